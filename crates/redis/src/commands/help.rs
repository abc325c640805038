//! The `HELP` subcommands, made from the table of commands.

use crate::context::Halt;
use crate::control::{Control, Flow};
use crate::table;

fn help(control: &mut Control<'_>, container: &str) -> Result<Flow, Halt> {
    let Some(found) = table::lookup(container.as_bytes()) else {
        unreachable!("{container} is in the table")
    };
    let mut lines = vec![format!(
        "{} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        container.to_ascii_uppercase()
    )];
    for command in found.command.subcommands {
        lines.push(command.own_name().to_ascii_uppercase());
        lines.push(format!("    {}", command.summary));
    }
    control.reply.array(lines.len());
    for line in lines {
        control.reply.simple(line);
    }
    Ok(Flow::Done)
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
