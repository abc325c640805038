//! Which command a request is for.

use crate::args::Args;
use crate::context::{Halt, wrong_arity};
use crate::request::Admitted;
use crate::table::{self, Action, Command, Found};

/// Bytes of arguments that the error of an unknown command shows.
const SHOWN_BYTES: usize = 128;

/// The command or subcommand that a request is for, and its place in the table; else why it may not run.
pub(crate) fn resolve(args: Args<'_>) -> Result<(Found, &'static Command), Admitted> {
    let Some(found) = table::lookup(args.at(0)) else {
        if is_http(args.at(0)) {
            return Err(Admitted::CrossProtocol);
        }
        return Err(Admitted::Refused(unknown_command(args).into()));
    };
    let mut command = found.command;
    if !command.subcommands.is_empty() && args.len() > 1 {
        match table::subcommand(command, args.at(1)) {
            Some(subcommand) => command = subcommand,
            None => {
                let given = String::from_utf8_lossy(&args.at(1)[..args.at(1).len().min(SHOWN_BYTES)]);
                let container = command.name.to_ascii_uppercase();
                // Redis's DEBUG finds its words by itself.
                let what = if container == "DEBUG" { " or wrong number of arguments for" } else { "" };
                let text = format!("ERR unknown subcommand{what} '{given}'. Try {container} HELP.");
                return Err(Admitted::Refused(text.into()));
            }
        }
    }
    if !command.takes(args.len()) || matches!(command.action, Action::Container) {
        let Halt::Error(text) = wrong_arity(command.name) else { unreachable!("a wrong arity is an error") };
        return Err(Admitted::Refused(text));
    }
    Ok((found, command))
}

/// The command that a request names, in whatever way it may be wrong; `None`: there is no such one.
pub(crate) fn named(args: Args<'_>) -> Option<&'static Command> {
    let command = table::lookup(args.get(0)?)?.command;
    match args.get(1) {
        Some(name) if !command.subcommands.is_empty() => table::subcommand(command, name),
        _ => Some(command),
    }
}

/// Whether a line begins as a request of HTTP with a body does. Redis ends such connections as well: the
/// body, which an attacker's page chooses, could be commands.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"Host:")
}

fn unknown_command(args: Args<'_>) -> String {
    let shown =
        |bytes: &[u8], max: usize| String::from_utf8_lossy(&bytes[..bytes.len().min(max)]).into_owned();
    let mut text =
        format!("ERR unknown command '{}', with args beginning with: ", shown(args.at(0), SHOWN_BYTES));
    let start = text.len();
    for argument in args.from(1) {
        let used = text.len() - start;
        if used >= SHOWN_BYTES {
            break;
        }
        text.push_str(&format!("'{}' ", shown(argument, SHOWN_BYTES - used)));
    }
    text
}
