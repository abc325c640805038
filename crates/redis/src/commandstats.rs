//! How often each command was called, refused or failed, and how long it took: the section Commandstats of `INFO`.
//!
//! Invariants:
//! 1. Every command and subcommand has a place of its own; a container's place counts what was refused in its own
//!    name.
//! 2. A call is counted once, at the shard whose client asks; time and failures at the shards that carry it out. An
//!    answer adds those of all shards up.

use crate::args::Args;
use crate::control::Control;
use crate::resolve::named;
use crate::table::{self, Command};
use std::collections::BTreeMap;
use std::fmt::Write;

/// For each container the place of its first subcommand; of other commands it means nothing.
static FIRST_SUBCOMMANDS: [u16; table::count()] = {
    let mut places = [0; table::count()];
    let (mut index, mut next) = (0, table::count());
    while index < table::count() {
        places[index] = next as u16;
        next += table::command(index).subcommands.len();
        index += 1;
    }
    places
};

/// How many places there are.
const PLACES: usize = {
    let (mut index, mut count) = (0, table::count());
    while index < table::count() {
        count += table::command(index).subcommands.len();
        index += 1;
    }
    count
};

/// Where `command` stands in `list`, if it is one of its entries.
fn place_in(list: &'static [Command], command: &'static Command) -> Option<usize> {
    let from = std::ptr::from_ref(command).addr().wrapping_sub(list.as_ptr().addr());
    (from < size_of_val(list)).then_some(from / size_of::<Command>())
}

/// The place of a command of the table.
#[inline]
pub(crate) fn place_of(command: &'static Command) -> usize {
    let mut first = 0;
    for family in table::families() {
        if let Some(place) = place_in(family, command) {
            return first + place;
        }
        first += family.len();
    }
    let container = command.name.split('|').next().unwrap_or_default();
    let found = table::lookup(container.as_bytes());
    let place = found.and_then(|found| {
        let own = place_in(found.command.subcommands, command)?;
        Some(usize::from(FIRST_SUBCOMMANDS[found.index]) + own)
    });
    debug_assert!(place.is_some(), "'{}' is in the table", command.name);
    place.unwrap_or(0)
}

/// All commands and subcommands in the order of their places.
fn by_place() -> impl Iterator<Item = &'static Command> {
    table::commands().chain(table::commands().flat_map(|command| command.subcommands))
}

/// Counts of one command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    calls: u64,
    rejected: u64,
    failed: u64,
}

/// Counts of all commands.
#[derive(Clone, Debug)]
pub struct CommandCounts(Vec<Tally>);

impl Default for CommandCounts {
    fn default() -> Self {
        CommandCounts(vec![Tally::default(); PLACES])
    }
}

impl CommandCounts {
    #[inline]
    fn at(&mut self, place: usize) -> &mut Tally {
        &mut self.0[place]
    }

    /// One more call of the command of this place.
    #[inline]
    pub(crate) fn call(&mut self, place: usize) {
        self.at(place).calls += 1;
    }

    /// A request was refused before it was carried out; nothing is counted of unknown commands.
    pub(crate) fn reject(&mut self, args: Args<'_>) {
        if let Some(command) = named(args) {
            self.at(place_of(command)).rejected += 1;
        }
    }

    /// Counts the reply of a command that was carried out if it is an error.
    pub(crate) fn note_failed(&mut self, command: &'static Command, reply: &[u8]) {
        if reply.first() == Some(&b'-') {
            self.at(place_of(command)).failed += 1;
        }
    }
}

/// What commands took, by their places, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommandTimes(Vec<u64>);

impl CommandTimes {
    /// The command of this place took so long.
    pub fn add(&mut self, place: usize, took_ns: u64) {
        if self.0.is_empty() {
            self.0 = vec![0; PLACES];
        }
        self.0[place] += took_ns;
    }

    /// What the command of this place took.
    pub fn of(&self, place: usize) -> u64 {
        self.0.get(place).copied().unwrap_or(0)
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.0 = Vec::new();
    }
}

/// One line of the section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Line {
    calls: u64,
    usec: u64,
    rejected: u64,
    failed: u64,
}

impl Line {
    fn write(&self, name: &str, out: &mut String) -> std::fmt::Result {
        let Line { calls, usec, rejected, failed } = self;
        let each = if *calls == 0 { 0.0 } else { *usec as f64 / *calls as f64 };
        write!(
            out,
            "{PREFIX}{name}:calls={calls},usec={usec},usec_per_call={each:.2},rejected_calls={rejected},\
             failed_calls={failed}\r\n"
        )
    }

    /// What [`Line::write`] has written.
    fn read(line: &str) -> Option<(&str, Line)> {
        let (name, fields) = line.strip_prefix(PREFIX)?.rsplit_once(':')?;
        let mut read = Line::default();
        for field in fields.split(',') {
            let (field, value) = field.split_once('=')?;
            match field {
                "calls" => read.calls = value.parse().ok()?,
                "usec" => read.usec = value.parse().ok()?,
                "rejected_calls" => read.rejected = value.parse().ok()?,
                "failed_calls" => read.failed = value.parse().ok()?,
                _ => {}
            }
        }
        Some((name, read))
    }

    fn add(&mut self, other: Line) {
        self.calls += other.calls;
        self.usec += other.usec;
        self.rejected += other.rejected;
        self.failed += other.failed;
    }
}

/// Begins the name of every line.
const PREFIX: &str = "cmdstat_";

/// The section Commandstats of `INFO`.
pub(crate) fn commandstats(control: &Control<'_>, out: &mut String) -> std::fmt::Result {
    let times = control.host.timing.times();
    let tallies = &control.host.counters.of_commands.0;
    for (place, command) in by_place().enumerate() {
        let Tally { calls, rejected, failed } = tallies.get(place).copied().unwrap_or_default();
        let ns = times.of(place);
        // Of a call that was made at another shard the time only is known here.
        if calls + rejected + failed > 0 || control.host.is_partial && ns > 0 {
            Line { calls, usec: ns / 1_000, rejected, failed }.write(command.name, out)?;
        }
    }
    Ok(())
}

/// The lines of the section out of those of all shards.
pub(crate) fn merge_commandstats(sections: &[&str]) -> String {
    let mut all: BTreeMap<&str, Line> = BTreeMap::new();
    let lines = sections.iter().flat_map(|section| section.split("\r\n"));
    for (name, line) in lines.filter_map(Line::read) {
        all.entry(name).or_default().add(line);
    }
    let mut out = String::new();
    for command in by_place() {
        if let Some(line) = all.get(command.name).filter(|line| line.calls + line.rejected + line.failed > 0)
        {
            // Writing to a string cannot fail.
            let _ = line.write(command.name, &mut out);
        }
    }
    out
}

#[cfg(test)]
#[path = "commandstats_test.rs"]
mod commandstats_test;
