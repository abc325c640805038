//! How much work requests have made, counted and not timed: the same requests count the same, on any machine.
//!
//! What a request costs beyond the few hundred instructions that each takes is added where it arises. A unit is about a
//! nanosecond of one core. Whoever offers requests ends a connection's turn by it ([`TURN_WORK_MAX`]), so that others are
//! served between the requests of a client who sends many that are long.
//!
//! Invariants:
//! 1. Nothing is decided by the count but when a turn ends, and that a transaction, which is one piece, is refused
//!    beyond [`PIECE_WORK_MAX`].
//! 2. A run that is thrown away counts like any other.

use crate::args::Args;
use crate::executor::Executor;
use std::cell::Cell;
use tierstone_base::{Error, ErrorKind};
use tierstone_engine::Engine;
use tierstone_store::Stop;

/// Work of one connection after which others have their turn, in units of about a nanosecond: about four milliseconds.
pub const TURN_WORK_MAX: u64 = 4_000_000;

/// Work of one transaction, which nobody else can come between, in the same units: about a second.
pub(crate) const PIECE_WORK_MAX: u64 = 1_000_000_000;

/// Of one argument: to find it, to hash it, to look it up.
const ARGUMENT: u64 = 50;

/// Bytes that are copied, or looked at by word, for one unit.
const BYTES_A_UNIT: u64 = 4;

/// The work for so many bytes that are copied.
pub(crate) fn of_bytes(bytes: usize) -> u64 {
    bytes as u64 / BYTES_A_UNIT
}

/// The work for the arguments of a request.
pub(crate) fn of_args(args: Args<'_>) -> u64 {
    args.len() as u64 * ARGUMENT
}

/// The work of one executor.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    /// Since it was taken last.
    untaken: u64,
    /// The same of looking whether requests may be made.
    checked: Cell<u64>,
    /// Of the piece at hand.
    piece: u64,
    /// That may be as long as it is.
    is_unbounded: bool,
}

impl Work {
    /// Counts so much more.
    #[inline]
    pub fn add(&mut self, work: u64) {
        self.untaken = self.untaken.saturating_add(work);
        self.piece = self.piece.saturating_add(work);
    }

    /// Counts so much more for a look at whether a request may be made.
    pub fn add_checked(&self, work: u64) {
        self.checked.set(self.checked.get().saturating_add(work));
    }

    /// What was counted since the last call.
    #[inline]
    fn take(&mut self) -> u64 {
        std::mem::take(&mut self.untaken).saturating_add(self.checked.take())
    }

    /// What follows is one piece.
    pub fn begin_piece(&mut self) {
        (self.piece, self.is_unbounded) = (0, false);
    }

    /// What follows is one piece that must come to its end: it has effects that cannot be taken back.
    pub fn begin_unbounded_piece(&mut self) {
        (self.piece, self.is_unbounded) = (0, true);
    }

    /// Whether the piece at hand may go on.
    ///
    /// # Errors
    /// `InvalidInput`: it is too long already; nothing of it may be applied.
    pub fn check_piece(&self) -> Result<(), Stop> {
        if self.is_unbounded { Ok(()) } else { check(self.piece) }
    }
}

/// Whether a piece of so much work may go on.
///
/// # Errors
/// As [`Work::check_piece`].
pub(crate) fn check(work: u64) -> Result<(), Stop> {
    if work <= PIECE_WORK_MAX {
        return Ok(());
    }
    let message = "a batch of commands may not keep others waiting for so long: send fewer of them together";
    Err(Stop::Failed(Error::new(ErrorKind::InvalidInput, message)))
}

impl<E: Engine> Executor<E> {
    /// The work that was made since the last call, in units of about a nanosecond.
    #[inline]
    pub fn take_work(&mut self) -> u64 {
        self.host.work.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_taken_once_and_a_piece_has_a_bound_of_its_own() {
        let mut work = Work::default();
        work.add(PIECE_WORK_MAX);
        assert!(work.check_piece().is_ok());
        work.begin_piece();
        work.add(PIECE_WORK_MAX);
        work.add(1);
        assert!(work.check_piece().is_err());
        work.begin_unbounded_piece();
        work.add(2 * PIECE_WORK_MAX);
        assert!(work.check_piece().is_ok());
        work.add_checked(1);
        assert_eq!((work.take(), work.take()), (4 * PIECE_WORK_MAX + 2, 0));
    }
}
