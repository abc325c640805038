//! The numbers of a log's segments: they begin anew at 1 after [`LAST`], so that a log never ends.
//!
//! Which of two comes first says how far one is ahead of the other: what is far ahead is behind. A log has some thousand
//! segments at most, and spare ones keep the numbers that they had; those used first are taken first ([`crate::log`]), so that
//! no number is older than a few turns of the ring. What programs before 2026-12 left, which took the newest ones first, is
//! almost always older than what may be ahead, and goes with the first turn.
//!
//! Zero says that there is no log, [`crate::format::SPARE`] that a segment never had a number.

use crate::format::SPARE;

/// The first number.
pub const FIRST: u32 = 1;
/// The last one.
pub const LAST: u32 = SPARE - 1;
/// A number is ahead by less than this, or behind: more than a log's segments, and than openings that were cut off.
const AHEAD_MAX: u32 = 1 << 24;

/// The number after `number`.
pub fn next(number: u32) -> u32 {
    after(number, 1)
}

/// The number that comes `steps` after `number`.
pub fn after(number: u32, steps: u32) -> u32 {
    let before = u64::from(number.max(FIRST) - FIRST) + u64::from(steps);
    (before % u64::from(LAST)) as u32 + FIRST
}

/// How many steps it is from one number on to another. Of what is no number, anything below [`LAST`].
pub fn distance(from: u32, to: u32) -> u32 {
    let cycle = u64::from(LAST);
    ((u64::from(to) + cycle - u64::from(from) % cycle) % cycle) as u32
}

/// Whether `number` is `start`, or comes after it.
pub fn is_at_or_after(start: u32, number: u32) -> bool {
    distance(start, number) < AHEAD_MAX
}

#[cfg(test)]
#[path = "serial_test.rs"]
mod serial_test;
