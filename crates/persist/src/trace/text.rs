//! Traces as text, one step a line; the page is `docs/formats/persist-trace.md`.
//!
//! ```text
//! persist-trace 1
//! # thread, what, memory and address, bytes, value
//! 0 store p:0x40 8 0x7
//! 0 barrier
//! 1 load v:0x0 8 0x0
//! end 3
//! ```
//! The last line gives the number of steps, so that a file that was cut is known; only empty lines and comments may
//! follow.

use super::{Event, Kind, Space, Trace};
use std::fmt::Write;
use tierstone_base::{Error, ErrorKind, Result};

/// The first line of such a file.
pub const TITLE: &str = "persist-trace 1";

/// The trace as text.
pub fn write(trace: &Trace) -> String {
    let mut text = format!("{TITLE}\n");
    for event in trace.events() {
        let (thread, kind) = (event.thread, name(event.kind));
        // Writing to a string does not fail.
        let _ = match event.is_access() {
            true => {
                let space = if event.space == Space::Persistent { 'p' } else { 'v' };
                writeln!(
                    text,
                    "{thread} {kind} {space}:{:#x} {} {:#x}",
                    event.address, event.len, event.value
                )
            }
            false => writeln!(text, "{thread} {kind}"),
        };
    }
    let _ = writeln!(text, "end {}", trace.events().len());
    text
}

/// Reads what [`write`] wrote, or a person.
///
/// # Errors
/// `Incompatible` for what is no trace, `Corrupt` for one that was cut, inside a line too, `InvalidInput` for a line that is
/// wrong, with its number, and for one behind the end.
pub fn read(text: &str) -> Result<Trace> {
    let mut lines = (1..).zip(text.lines());
    if lines.next().is_none_or(|(_, line)| line.trim() != TITLE) {
        let message = format!("this is no trace of version 1: its first line is not '{TITLE}'");
        return Err(Error::new(ErrorKind::Incompatible, message));
    }
    let (mut trace, mut ended) = (Trace::new(), false);
    // A last line without an end may be the first part of one.
    let last = text.lines().count();
    let may_be_part = |number: usize| number == last && !text.ends_with('\n');
    for (number, line) in lines {
        let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
        let refused =
            |why: &str| Error::new(ErrorKind::InvalidInput, format!("line {number} ('{line}'): {why}"));
        match words.as_slice() {
            [] => {}
            _ if ended => return Err(refused("behind 'end', the last line of a trace")),
            ["end", count] => {
                let steps = trace.events().len();
                if count.parse() != Ok(steps) {
                    let message =
                        format!("the trace says that it has {count} steps and has {steps}: record it again");
                    return Err(Error::new(ErrorKind::Corrupt, message));
                }
                ended = true;
            }
            words => {
                let Some(event) = event(words) else {
                    if may_be_part(number) {
                        return Err(cut(&trace, &format!("its last line is '{line}'")));
                    }
                    return Err(refused("not a step; see docs/formats/persist-trace.md"));
                };
                trace.push(event).map_err(|error| refused(error.message()))?;
            }
        }
    }
    if ended {
        return Ok(trace);
    }
    Err(cut(&trace, "there is no more"))
}

fn cut(trace: &Trace, what_follows: &str) -> Error {
    let steps = trace.events().len();
    let message = format!("the trace is cut: no 'end' after {steps} steps, {what_follows}; record it again");
    Error::new(ErrorKind::Corrupt, message)
}

fn event(words: &[&str]) -> Option<Event> {
    let (thread, kind) = (words.first()?.parse().ok()?, *words.get(1)?);
    let kind = [Kind::Load, Kind::Store, Kind::Barrier, Kind::Strand, Kind::Sync]
        .into_iter()
        .find(|known| name(*known) == kind)?;
    match (kind, &words[2..]) {
        (Kind::Load | Kind::Store, [place, len, value]) => {
            let (space, address) = place.split_once(':')?;
            let space = match space {
                "p" => Space::Persistent,
                "v" => Space::Volatile,
                _ => return None,
            };
            let (address, value) = (number(address)?, number(value)?);
            Some(Event { thread, kind, space, len: len.parse().ok()?, address, value })
        }
        (Kind::Barrier | Kind::Strand | Kind::Sync, []) => Some(Event::mark(thread, kind)),
        _ => None,
    }
}

/// A number in decimal, or in hexadecimal after `0x`.
pub fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Load => "load",
        Kind::Store => "store",
        Kind::Barrier => "barrier",
        Kind::Strand => "strand",
        Kind::Sync => "sync",
    }
}
