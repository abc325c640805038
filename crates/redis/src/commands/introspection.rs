//! `COMMAND` and its subcommands.

use crate::args::Args;
use crate::context::{Halt, SYNTAX, fail};
use crate::control::{Control, Flow};
use crate::glob::Pattern;
use crate::key_specs;
use crate::table::{self, Command, Keys, category, flag};
use std::collections::BTreeSet;
use tierstone_wire::resp::ReplyWriter;

/// The command called `name`, `container|subcommand` included.
/// No command has a longer name.
const NAME_BYTES_MAX: usize = 64;

fn find(name: &[u8]) -> Option<&'static Command> {
    table::find(name).map(|found| found.command)
}

fn names_of<'a>(bits: u32, names: &'a [(u32, &'a str)]) -> impl Iterator<Item = &'a str> + Clone {
    names.iter().filter(move |(bit, _)| bits & bit != 0).map(|(_, name)| *name)
}

fn write_info(command: &Command, reply: &mut ReplyWriter<'_>) {
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(i64::from(command.arity));
    let flags = names_of(command.flags, &flag::NAMES);
    reply.set(flags.clone().count());
    flags.for_each(|name| reply.simple(name));
    let (first, last, step) = match command.keys {
        Keys::None | Keys::Counted { .. } => (0, 0, 0),
        Keys::Range { first, last, step } => (first as i64, i64::from(last), step as i64),
    };
    reply.integer(first);
    reply.integer(last);
    reply.integer(step);
    let categories = names_of(command.all_categories(), &category::NAMES);
    reply.set(categories.clone().count());
    categories.for_each(|name| reply.simple(format!("@{name}")));
    // No tips.
    reply.set(0);
    write_key_specs(command, reply);
    reply.set(command.subcommands.len());
    command.subcommands.iter().for_each(|subcommand| write_info(subcommand, reply));
}

fn write_key_specs(command: &Command, reply: &mut ReplyWriter<'_>) {
    let specs = key_specs::of(command);
    reply.set(specs.len());
    for spec in specs {
        // Where the search begins, how it goes on, and its facts: positions count from where it begins.
        let (begin, how, facts) = match spec.keys {
            Keys::None => unreachable!("'{}' has a specification without keys", command.name),
            Keys::Range { first, last, step } => {
                let last = if last < 0 { i64::from(last) } else { i64::from(last) - first as i64 };
                (first, "range", [("lastkey", last), ("keystep", step as i64), ("limit", 0)])
            }
            Keys::Counted { count_at, first, step } => {
                let first = (first - count_at) as i64;
                (count_at, "keynum", [("keynumidx", 0), ("firstkey", first), ("keystep", step as i64)])
            }
        };
        reply.map(3);
        reply.bulk(b"flags");
        write_names(spec.flags, reply);
        reply.bulk(b"begin_search");
        write_search("index", &[("index", begin as i64)], reply);
        reply.bulk(b"find_keys");
        write_search(how, &facts, reply);
    }
}

fn write_search(how: &str, facts: &[(&str, i64)], reply: &mut ReplyWriter<'_>) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(how.as_bytes());
    reply.bulk(b"spec");
    reply.map(facts.len());
    for (name, value) in facts {
        reply.bulk(name.as_bytes());
        reply.integer(*value);
    }
}

fn write_names(names: &[&str], reply: &mut ReplyWriter<'_>) {
    reply.set(names.len());
    names.iter().for_each(|name| reply.simple(name));
}

pub(crate) fn all(control: &mut Control<'_>) -> Result<Flow, Halt> {
    control.reply.array(table::count());
    for command in table::commands() {
        write_info(command, &mut control.reply);
    }
    Ok(Flow::Done)
}

pub(crate) fn info(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let args = control.args;
    if args.len() == 2 {
        return all(control);
    }
    let start = control.reply.len();
    control.reply.array(args.len() - 2);
    for name in args.from(2) {
        match find(name) {
            Some(command) => write_info(command, &mut control.reply),
            None => control.reply.null(),
        }
        control.check_reply(start)?;
    }
    Ok(Flow::Done)
}

pub(crate) fn count(control: &mut Control<'_>) -> Result<Flow, Halt> {
    control.reply.integer(table::count() as i64);
    Ok(Flow::Done)
}

fn write_docs(command: &Command, reply: &mut ReplyWriter<'_>) {
    reply.bulk(command.name.as_bytes());
    let has_subcommands = !command.subcommands.is_empty();
    reply.map(4 + usize::from(has_subcommands));
    for (name, text) in [
        ("summary", command.summary),
        ("since", command.since),
        ("group", command.group),
        ("complexity", command.complexity),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    if has_subcommands {
        reply.bulk(b"subcommands");
        reply.map(command.subcommands.len());
        command.subcommands.iter().for_each(|subcommand| write_docs(subcommand, reply));
    }
}

pub(crate) fn docs(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let args = control.args;
    let mut wanted: Vec<&'static Command> = Vec::new();
    if args.len() == 2 {
        wanted.extend(table::commands());
    } else {
        // It is a map: each once.
        let mut seen = BTreeSet::new();
        wanted.extend(args.from(2).filter_map(find).filter(|command| seen.insert(command.name)));
    }
    control.reply.map(wanted.len());
    wanted.iter().for_each(|command| write_docs(command, &mut control.reply));
    Ok(Flow::Done)
}

pub(crate) fn list(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let args = control.args;
    let every = || table::commands().flat_map(|c| std::iter::once(c).chain(c.subcommands));
    let names: Vec<&'static str> = match (args.len(), args.get(2)) {
        (2, _) => every().map(|command| command.name).collect(),
        (5, Some(word)) if word.eq_ignore_ascii_case(b"FILTERBY") => {
            let value = args.at(4);
            match args.at(3).to_ascii_uppercase().as_slice() {
                b"MODULE" => Vec::new(),
                b"ACLCAT" => {
                    let bit = category::bit_of(value).unwrap_or(0);
                    every().filter(|c| c.all_categories() & bit != 0).map(|c| c.name).collect()
                }
                b"PATTERN" => {
                    let pattern = Pattern::new(value, true, NAME_BYTES_MAX);
                    let fits = |command: &&Command| pattern.matches(command.name.as_bytes(), &mut 0);
                    every().filter(fits).map(|command| command.name).collect()
                }
                _ => return fail(SYNTAX),
            }
        }
        _ => return fail(SYNTAX),
    };
    control.reply.array(names.len());
    names.iter().for_each(|name| control.reply.bulk(name.as_bytes()));
    Ok(Flow::Done)
}

/// A key of a request: its index, and what the request does with it.
type KeyUse = (usize, &'static [&'static str]);

/// The keys of the request inside a `COMMAND GETKEYS`.
fn inner(args: Args<'_>) -> Result<Vec<KeyUse>, Halt> {
    let words: Vec<&[u8]> = args.from(2).collect();
    let request = Args::Slices(&words);
    let Some(found) = table::lookup(request.at(0)) else { return fail("ERR Invalid command specified") };
    let mut command = found.command;
    if !command.subcommands.is_empty()
        && let Some(subcommand) = request.get(1).and_then(|name| table::subcommand(command, name))
    {
        command = subcommand;
    }
    if command.keys == Keys::None {
        return fail("ERR The command has no key arguments");
    }
    if !command.takes(request.len()) {
        return fail("ERR Invalid number of arguments specified for command");
    }
    let uses = key_specs::of_request(command, request);
    if uses.is_empty() {
        return fail("ERR Invalid arguments specified for command");
    }
    Ok(uses.into_iter().map(|(index, flags)| (index + 2, flags)).collect())
}

pub(crate) fn getkeys(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let args = control.args;
    let uses = inner(args)?;
    control.reply.array(uses.len());
    uses.iter().for_each(|(index, _)| control.reply.bulk(args.at(*index)));
    Ok(Flow::Done)
}

pub(crate) fn getkeysandflags(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let args = control.args;
    let uses = inner(args)?;
    control.reply.array(uses.len());
    for (index, flags) in uses {
        control.reply.array(2);
        control.reply.bulk(args.at(index));
        write_names(flags, &mut control.reply);
    }
    Ok(Flow::Done)
}
