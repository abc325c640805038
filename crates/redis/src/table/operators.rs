//! Commands of those who look into the server.

use super::{Action, Command, Keys, TaskKind, flag};
use crate::commands::help;

static SLOWLOG: [Command; 4] = [
    Command {
        name: "slowlog|get",
        arity: -2,
        flags: flag::ADMIN | flag::LOADING | flag::STALE,
        categories: 0,
        keys: Keys::None,
        group: "server",
        since: "2.2.12",
        complexity: "O(N) with N the number of entries",
        summary: "Lists the commands that took long, the last first: ten, or as many as asked for.",
        action: Action::Task(TaskKind::SlowLog),
        subcommands: &[],
    },
    Command {
        name: "slowlog|help",
        arity: 2,
        flags: flag::LOADING | flag::STALE,
        categories: 0,
        keys: Keys::None,
        group: "server",
        since: "6.2.0",
        complexity: "O(1)",
        summary: "Explains the subcommands.",
        action: Action::Control(help::slowlog),
        subcommands: &[],
    },
    Command {
        name: "slowlog|len",
        arity: 2,
        flags: flag::ADMIN | flag::LOADING | flag::STALE,
        categories: 0,
        keys: Keys::None,
        group: "server",
        since: "2.2.12",
        complexity: "O(1)",
        summary: "Counts the commands that took long.",
        action: Action::Task(TaskKind::SlowLog),
        subcommands: &[],
    },
    Command {
        name: "slowlog|reset",
        arity: 2,
        flags: flag::ADMIN | flag::LOADING | flag::STALE,
        categories: 0,
        keys: Keys::None,
        group: "server",
        since: "2.2.12",
        complexity: "O(N) with N the number of entries",
        summary: "Forgets the commands that took long.",
        action: Action::Task(TaskKind::SlowLog),
        subcommands: &[],
    },
];

pub(super) static COMMANDS: [Command; 1] = [Command {
    name: "slowlog",
    arity: -2,
    flags: 0,
    categories: 0,
    keys: Keys::None,
    group: "server",
    since: "2.2.12",
    complexity: "Depends on subcommand",
    summary: "Tells which commands took long.",
    action: Action::Container,
    subcommands: &SLOWLOG,
}];
