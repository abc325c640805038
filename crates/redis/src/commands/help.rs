//! The `HELP` subcommands, made from the table of commands and the syntax of their arguments.

use crate::context::Halt;
use crate::control::{Control, Flow};
use crate::table::{self, Action, Command};

/// The forms of the arguments of those subcommands that take some.
const ARGUMENTS: [(&str, &[&str]); 56] = [
    ("acl|cat", &["[<category>]"]),
    ("acl|deluser", &["<username> [<username> ...]"]),
    ("acl|dryrun", &["<username> <command> [<arg> ...]"]),
    ("acl|genpass", &["[<bits>]"]),
    ("acl|getuser", &["<username>"]),
    ("acl|log", &["[<count> | RESET]"]),
    ("acl|setuser", &["<username> <attribute> [<attribute> ...]"]),
    ("client|caching", &["(YES|NO)"]),
    (
        "client|kill",
        &[
            "<ip:port>",
            "[ADDR <ip:port>] [LADDR <ip:port>] [TYPE (NORMAL|MASTER|REPLICA|PUBSUB)] [USER <username>] \
             [SKIPME (YES|NO)] [ID <client-id>] [MAXAGE <seconds>]",
        ],
    ),
    ("client|list", &["[TYPE (NORMAL|MASTER|REPLICA|PUBSUB)]", "[ID <client-id> [<client-id> ...]]"]),
    ("client|no-evict", &["(ON|OFF)"]),
    ("client|no-touch", &["(ON|OFF)"]),
    ("client|pause", &["<milliseconds> [WRITE|ALL]"]),
    ("client|reply", &["(ON|OFF|SKIP)"]),
    ("client|setinfo", &["(LIB-NAME <name>|LIB-VER <version>)"]),
    ("client|setname", &["<name>"]),
    (
        "client|tracking",
        &["(ON|OFF) [REDIRECT <client-id>] [BCAST] [PREFIX <prefix> [...]] [OPTIN] [OPTOUT] [NOLOOP]"],
    ),
    ("client|unblock", &["<client-id> [TIMEOUT|ERROR]"]),
    ("command|docs", &["[<command-name> ...]"]),
    ("command|getkeys", &["<full-command>"]),
    ("command|getkeysandflags", &["<full-command>"]),
    ("command|info", &["[<command-name> ...]"]),
    ("command|list", &["[FILTERBY (MODULE <name>|ACLCAT <category>|PATTERN <pattern>)]"]),
    ("config|get", &["<pattern> [<pattern> ...]"]),
    ("config|set", &["<setting> <value> [<setting> <value> ...]"]),
    ("debug|backup", &["(START [<base> ...]|NEXT|END)"]),
    ("debug|dict-resizing", &["(0|1)"]),
    ("debug|error", &["<text>"]),
    ("debug|log", &["<text>"]),
    ("debug|object", &["<key>"]),
    (
        "debug|protocol",
        &["(STRING|INTEGER|DOUBLE|BIGNUM|NULL|ARRAY|SET|MAP|ATTRIB|PUSH|VERBATIM|TRUE|FALSE)"],
    ),
    ("debug|quicklist-packed-threshold", &["<size>"]),
    ("debug|reload", &["[<option> ...]"]),
    ("debug|replybuffer", &["<option> [<value> ...]"]),
    ("debug|set-active-expire", &["(0|1)"]),
    ("debug|set-disable-deny-scripts", &["(0|1)"]),
    ("debug|sleep", &["<seconds>"]),
    ("debug|stringmatch-len", &["<length> <pattern>"]),
    ("debug|verify", &["(START|STATUS)"]),
    ("debug|volume", &["FAIL <member>", "REPLACE <member> [<path>]"]),
    ("function|flush", &["[ASYNC|SYNC]"]),
    ("function|list", &["[LIBRARYNAME <pattern>] [WITHCODE]"]),
    ("latency|graph", &["<event>"]),
    ("latency|histogram", &["[<command> ...]"]),
    ("latency|history", &["<event>"]),
    ("latency|reset", &["[<event> ...]"]),
    ("memory|usage", &["<key> [SAMPLES <count>]"]),
    ("object|encoding", &["<key>"]),
    ("object|freq", &["<key>"]),
    ("object|idletime", &["<key>"]),
    ("object|refcount", &["<key>"]),
    ("pubsub|channels", &["[<pattern>]"]),
    ("pubsub|numsub", &["[<channel> ...]"]),
    ("pubsub|shardchannels", &["[<pattern>]"]),
    ("pubsub|shardnumsub", &["[<shardchannel> ...]"]),
    ("slowlog|get", &["[<count>]"]),
];

/// The forms of a subcommand's arguments.
pub(crate) fn forms(name: &str) -> &'static [&'static str] {
    let found = ARGUMENTS.iter().find(|(known, _)| *known == name);
    found.map_or(&[], |(_, forms)| forms)
}

fn help(control: &mut Control<'_>, container: &str) -> Result<Flow, Halt> {
    let Some(found) = table::lookup(container.as_bytes()) else {
        unreachable!("{container} is in the table")
    };
    let mut lines = vec![format!(
        "{} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        container.to_ascii_uppercase()
    )];
    if !matches!(found.command.action, Action::Container) {
        lines.extend(["(no subcommand)".to_owned(), format!("    {}", found.command.summary)]);
    }
    let by_itself = |command: &&Command| command.own_name() != "help";
    let last = |command: &&Command| command.own_name() == "help";
    let subcommands = found.command.subcommands;
    for command in subcommands.iter().filter(by_itself).chain(subcommands.iter().filter(last)) {
        let name = command.own_name().to_ascii_uppercase();
        match forms(command.name) {
            [] => lines.push(name),
            forms => lines.extend(forms.iter().map(|form| format!("{name} {form}"))),
        }
        lines.push(format!("    {}", command.summary));
    }
    control.reply.array(lines.len());
    for line in lines {
        control.reply.simple(line);
    }
    Ok(Flow::Done)
}

pub(crate) fn acl(control: &mut Control<'_>) -> Result<Flow, Halt> {
    help(control, "acl")
}

pub(crate) fn client(control: &mut Control<'_>) -> Result<Flow, Halt> {
    help(control, "client")
}

pub(crate) fn command(control: &mut Control<'_>) -> Result<Flow, Halt> {
    help(control, "command")
}

pub(crate) fn config(control: &mut Control<'_>) -> Result<Flow, Halt> {
    help(control, "config")
}

pub(crate) fn debug(control: &mut Control<'_>) -> Result<Flow, Halt> {
    help(control, "debug")
}

pub(crate) fn memory(control: &mut Control<'_>) -> Result<Flow, Halt> {
    help(control, "memory")
}

pub(crate) fn object(control: &mut Control<'_>) -> Result<Flow, Halt> {
    help(control, "object")
}

pub(crate) fn latency(control: &mut Control<'_>) -> Result<Flow, Halt> {
    help(control, "latency")
}

pub(crate) fn slowlog(control: &mut Control<'_>) -> Result<Flow, Halt> {
    help(control, "slowlog")
}

pub(crate) fn pubsub(control: &mut Control<'_>) -> Result<Flow, Halt> {
    help(control, "pubsub")
}

pub(crate) fn function(control: &mut Control<'_>) -> Result<Flow, Halt> {
    help(control, "function")
}

pub(crate) fn module(control: &mut Control<'_>) -> Result<Flow, Halt> {
    help(control, "module")
}

#[cfg(test)]
#[path = "help_test.rs"]
mod help_test;
