//! This shard's parts in batches over several shards: one after the other, in the order in which they came.
//!
//! Invariant: behind a part that is not written wait the parts, cuts and the closing that came after it;
//! everything else goes on until the shard stands still for the part.

use super::super::across::{Seat, Verdict};
use super::super::gate::Ready;
use super::super::message::{Message, OwnedBatch};
use super::{ROOM_PATIENCE_US, Service, Unfinished, failed};
use crate::plain::check_plain;
use std::collections::VecDeque;
use tierstone_base::{Error, ErrorKind};
use tierstone_engine::{Commit, Engine, Health};

/// How long a shard stands still at a time, in microseconds: at first, and after votes that were taken back, each of which
/// doubles it. Where others have the processors, the threads of all shards take longer to come.
const STILL_US: u64 = 1_000;
const STILL_MAX_US: u64 = 32_000;

/// Parts, and what waits behind them.
#[derive(Debug, Default)]
pub(super) struct Parts {
    current: Option<Part>,
    behind: VecDeque<(Message, Option<Unfinished>)>,
}

#[derive(Debug)]
struct Part {
    batch: OwnedBatch,
    seat: Seat,
    since_us: u64,
    /// Since when the shard stands still for it.
    still_since_us: Option<u64>,
    still_us: u64,
    _unfinished: Option<Unfinished>,
}

impl Service {
    /// Takes a message that waits behind parts; gives back one that does not.
    pub(super) fn put_behind_parts(
        &mut self,
        message: Message,
        unfinished: Option<Unfinished>,
    ) -> Option<(Message, Option<Unfinished>)> {
        let is_ordered = matches!(
            message,
            Message::Part { .. }
                | Message::Snapshot { .. }
                | Message::BeginBackup { .. }
                | Message::EndBackup
                | Message::Close { .. }
        );
        if self.parts.current.is_none() || !is_ordered {
            return Some((message, unfinished));
        }
        self.parts.behind.push_back((message, unfinished));
        None
    }

    pub(super) fn begin_part(&mut self, batch: OwnedBatch, seat: Seat, unfinished: Option<Unfinished>) {
        let (since_us, still_us) = (self.now.monotonic_us, STILL_US);
        let part = Part { batch, seat, since_us, still_since_us: None, still_us, _unfinished: unfinished };
        self.parts.current = Some(part);
    }

    /// Whether the shard may neither serve nor step.
    pub fn stands_still(&self) -> bool {
        self.parts.current.as_ref().is_some_and(|part| part.still_since_us.is_some())
    }

    /// Whether a part waits.
    pub fn has_part(&self) -> bool {
        self.parts.current.is_some()
    }

    /// Goes on with the parts, as far as they come; true when one was done.
    pub fn advance_parts(&mut self) -> bool {
        let mut some = false;
        while self.advance_part() {
            some = true;
            while self.parts.current.is_none() {
                let Some((message, unfinished)) = self.parts.behind.pop_front() else { break };
                self.take_one(message, unfinished);
            }
        }
        some
    }

    /// Goes on with the part at hand; true when it is done.
    fn advance_part(&mut self) -> bool {
        let Some(mut part) = self.parts.current.take() else { return false };
        let is_done = match part.still_since_us {
            None => self.vote(&mut part),
            Some(since_us) => match part.seat.verdict() {
                Verdict::Waits if self.now.monotonic_us < since_us + part.still_us => false,
                Verdict::Waits => self.step_aside(&mut part),
                verdict => self.carry_out(&mut part, verdict),
            },
        };
        if !is_done {
            self.parts.current = Some(part);
        }
        is_done
    }

    /// Takes the vote back, unless it is too late.
    fn step_aside(&mut self, part: &mut Part) -> bool {
        match part.seat.withdraw() {
            Verdict::Waits => {
                part.still_since_us = None;
                part.still_us = (2 * part.still_us).min(STILL_MAX_US);
                false
            }
            verdict => self.carry_out(part, verdict),
        }
    }

    /// Votes for the part, if the engine would take it now; true when it is done.
    fn vote(&mut self, part: &mut Part) -> bool {
        if part.seat.verdict() == Verdict::Refused {
            return true;
        }
        if let Health::Failed(error) = self.engine.health() {
            return part.seat.refuse(failed(error));
        }
        let writes = part.batch.view(self.now);
        let admitted = check_plain(&mut self.engine, self.now, &writes)
            .and_then(|()| self.engine.admit(self.now, &writes));
        drop(writes);
        match admitted {
            Ok(()) => {
                part.still_since_us = Some(self.now.monotonic_us);
                match part.seat.vote() {
                    Verdict::Waits => false,
                    verdict => self.carry_out(part, verdict),
                }
            }
            Err(error) if self.may_find_room(&error) => {
                let has_patience = self.now.monotonic_us < part.since_us + ROOM_PATIENCE_US;
                let message = "a shard had no room for its part of the batch for too long";
                !has_patience && part.seat.refuse(Error::new(ErrorKind::Retry, message))
            }
            Err(error) => part.seat.refuse(error),
        }
    }

    /// Writes the part of a batch that goes. Always true: the part is done.
    fn carry_out(&mut self, part: &mut Part, verdict: Verdict) -> bool {
        if verdict != Verdict::Goes {
            return true;
        }
        let across = part.seat.across();
        // Nothing else was asked of the engine since it said that it would take this.
        match self.engine.write_part(self.now, &part.batch.view(self.now), part.seat.ticket()) {
            Ok(receipt) => {
                part.seat.note_written();
                match receipt.commit {
                    Commit::Relaxed => across.answer(Ok(())),
                    Commit::Durable | Commit::Grouped => self.answer(receipt.seq, Ready::Across(across)),
                }
            }
            // The seat stops the others: what is missing here must not be called decided there.
            Err(error) => across.answer(Err(error)),
        }
        true
    }

    /// Refuses the part at hand and what waits behind it.
    pub(super) fn refuse_parts(&mut self, error: &Error) {
        if let Some(part) = self.parts.current.take() {
            part.seat.refuse(error.clone());
        }
        self.parts.behind.drain(..).for_each(|(message, _)| message.refuse(error.clone()));
    }
}
