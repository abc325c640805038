//! The subcommands of `DEBUG`: the part of it that public test suites use.

use super::{Action, Command, Keys, TaskKind, flag};
use crate::commands::{debug, help, keys};

const fn subcommand(name: &'static str, arity: i32, summary: &'static str, action: Action) -> Command {
    Command {
        name,
        arity,
        flags: flag::ADMIN | flag::NOSCRIPT | flag::LOADING | flag::STALE,
        categories: 0,
        keys: Keys::None,
        group: "server",
        since: "1.0.0",
        complexity: "Depends on subcommand",
        summary,
        action,
        subcommands: &[],
    }
}

pub(super) static COMMANDS: [Command; 20] = [
    Command {
        since: "8.2.0",
        complexity: "O(1), and O(N) in the background",
        ..subcommand(
            "debug|backup",
            -3,
            "Begins a backup of all databases (START, or START and what the base holds), gives its next frame, or OK at its end (NEXT), gives it up (END).",
            Action::Task(TaskKind::DebugBackup),
        )
    },
    subcommand(
        "debug|change-repl-id",
        2,
        "Is accepted: there is no replication.",
        Action::Control(debug::nothing),
    ),
    subcommand(
        "debug|dict-resizing",
        3,
        "Is accepted: there are no such dictionaries.",
        Action::Control(debug::nothing),
    ),
    subcommand("debug|error", 3, "Answers with this error.", Action::Control(debug::error)),
    subcommand("debug|flushall", 2, "Empties all databases.", Action::Task(TaskKind::FlushAll)),
    subcommand("debug|help", 2, "Explains the subcommands.", Action::Control(help::debug)),
    subcommand("debug|jmap", 2, "Is accepted.", Action::Control(debug::nothing)),
    subcommand(
        "debug|loadaof",
        2,
        "Answers when everything applied is durable: nothing is loaded from anywhere.",
        Action::Task(TaskKind::Save),
    ),
    subcommand(
        "debug|log",
        3,
        "Is accepted: clients write nothing into the log.",
        Action::Control(debug::nothing),
    ),
    Command {
        keys: Keys::Range { first: 2, last: 2, step: 1 },
        ..subcommand("debug|object", -3, "Describes a record.", Action::Data(keys::debug_object))
    },
    subcommand(
        "debug|protocol",
        3,
        "Answers with a value of a type of the protocol.",
        Action::Control(debug::protocol),
    ),
    subcommand(
        "debug|quicklist-packed-threshold",
        3,
        "Is accepted: there are no lists.",
        Action::Control(debug::nothing),
    ),
    subcommand(
        "debug|reload",
        -2,
        "Answers when everything applied is durable: what is served is what is stored.",
        Action::Task(TaskKind::Save),
    ),
    subcommand(
        "debug|replybuffer",
        -3,
        "Is accepted: buffers follow what is in them.",
        Action::Control(debug::nothing),
    ),
    subcommand(
        "debug|set-active-expire",
        3,
        "Is accepted: expired keys are never shown, and leave by themselves.",
        Action::Control(debug::set_active_expire),
    ),
    subcommand(
        "debug|set-disable-deny-scripts",
        3,
        "Is accepted: there are no scripts.",
        Action::Control(debug::nothing),
    ),
    subcommand("debug|sleep", 3, "Answers after some time.", Action::Task(TaskKind::DebugSleep)),
    subcommand(
        "debug|stringmatch-len",
        4,
        "Matches a pattern with a long text.",
        Action::Control(debug::stringmatch_len),
    ),
    Command {
        since: "8.2.0",
        complexity: "O(1), and O(N) in the background",
        ..subcommand(
            "debug|verify",
            3,
            "Verifies all records and the index in the background (START), or tells what was found (STATUS).",
            Action::Task(TaskKind::DebugVerify),
        )
    },
    Command {
        since: "8.2.0",
        complexity: "O(1), and O(N) in the background",
        ..subcommand(
            "debug|volume",
            -4,
            "Takes a member of the volume below the store out (FAIL member), or puts another in its place (REPLACE member [path]); INFO volume tells what becomes of it.",
            Action::Control(debug::volume),
        )
    },
];
