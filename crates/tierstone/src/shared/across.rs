//! A batch over several shards of a shared handle: what its shards share until it is decided.
//!
//! A shard that would take its part now votes, and stands still: it serves nobody and does not step. When
//! all stand still together, each writes its part; no part is ever taken back. One that stands still for
//! too long takes its vote back, steps, and votes again, and wakes the others then: they stand still no more either, and
//! would come each in its own time. From there on the engines' ticket decides, as for batches of the local handle.
//!
//! Invariants:
//! 1. Either every shard writes its part or none: the last vote and a withdrawal exclude each other.
//! 2. Batches over several shards, and cuts, come to all shards in one order (their sender holds a lock):
//!    two of them cannot wait for each other, and no cut shows half a batch.
//! 3. A seat that goes without having written refuses the batch, or, when others have written, stops them:
//!    what a dead shard had to write is never called decided.

use super::answer::{Reply, closed};
use super::sleep::Waker;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tierstone_base::{Error, Result};
use tierstone_engine::BatchTicket;

/// What the shards of one batch share.
#[derive(Debug)]
pub(super) struct Across {
    ticket: Arc<BatchTicket>,
    state: Mutex<State>,
    wakers: Vec<Arc<Waker>>,
    reply: Mutex<Option<Reply<()>>>,
}

#[derive(Debug, Default)]
struct State {
    votes: usize,
    /// Whether some shard has taken its vote back.
    is_repeated: bool,
    verdict: Verdict,
}

/// What has become of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum Verdict {
    /// Not all shards stand still.
    #[default]
    Waits,
    /// Every shard writes its part now.
    Goes,
    /// Nobody writes.
    Refused,
}

/// One shard's part in a batch.
#[derive(Debug)]
pub(super) struct Seat {
    across: Arc<Across>,
    is_written: bool,
}

impl Across {
    /// The seats of batch `id` for the shards that `wakers` wake.
    pub fn seats(id: u64, wakers: Vec<Arc<Waker>>, reply: Reply<()>) -> Vec<Seat> {
        let count = wakers.len();
        let ticket = BatchTicket::new(id, count as u16);
        let (state, reply) = (Mutex::default(), Mutex::new(Some(reply)));
        let across = Arc::new(Across { ticket, state, wakers, reply });
        (0..count).map(|_| Seat { across: Arc::clone(&across), is_written: false }).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers the caller, if nobody has.
    pub fn answer(&self, result: Result<()>) {
        let reply = self.reply.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(reply) = reply {
            // Whoever has dropped the answer does not want it.
            drop(reply.send(result));
        }
    }

    fn wake_all(&self) {
        self.wakers.iter().for_each(|waker| waker.wake());
    }
}

impl Seat {
    /// What the engines share.
    pub fn ticket(&self) -> &Arc<BatchTicket> {
        &self.across.ticket
    }

    /// For the answer, when the part is decided.
    pub fn across(&self) -> Arc<Across> {
        Arc::clone(&self.across)
    }

    /// What has become of the batch so far.
    pub fn verdict(&self) -> Verdict {
        self.across.state().verdict
    }

    /// This shard stands still and would take its part.
    pub fn vote(&self) -> Verdict {
        let mut state = self.across.state();
        state.votes += 1;
        if state.verdict == Verdict::Waits && state.votes == self.across.wakers.len() {
            state.verdict = Verdict::Goes;
            drop(state);
            self.across.wake_all();
            return Verdict::Goes;
        }
        let (verdict, is_repeated) = (state.verdict, state.is_repeated);
        drop(state);
        if is_repeated {
            self.across.wake_all();
        }
        verdict
    }

    /// This shard wants to step; it may only if this gives [`Verdict::Waits`].
    pub fn withdraw(&self) -> Verdict {
        let mut state = self.across.state();
        if state.verdict == Verdict::Waits {
            state.votes -= 1;
            state.is_repeated = true;
        }
        state.verdict
    }

    /// This shard cannot take its part; false when the others write already.
    pub fn refuse(&self, error: Error) -> bool {
        let mut state = self.across.state();
        if state.verdict == Verdict::Goes {
            return false;
        }
        state.verdict = Verdict::Refused;
        drop(state);
        self.across.answer(Err(error));
        self.across.wake_all();
        true
    }

    /// The part is written.
    pub fn note_written(&mut self) {
        self.is_written = true;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if !self.is_written && !self.refuse(closed()) {
            self.across.ticket.abandon();
            self.across.wake_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::answer::Answer;
    use super::super::sleep::Sleeper;
    use super::*;

    fn seats(count: usize) -> (Vec<Seat>, Answer<()>) {
        let (_, waker) = Sleeper::new().unwrap();
        let (reply, answer) = Answer::new();
        (Across::seats(1, vec![waker; count], reply), answer)
    }

    #[test]
    fn a_batch_goes_when_all_shards_stand_still_together() {
        let (seats, _answer) = seats(2);
        assert_eq!(seats[0].vote(), Verdict::Waits);
        assert_eq!(seats[0].withdraw(), Verdict::Waits);
        assert_eq!(seats[1].vote(), Verdict::Waits);
        assert_eq!(seats[0].vote(), Verdict::Goes);
        assert_eq!(seats[1].verdict(), Verdict::Goes);
        assert_eq!(seats[1].withdraw(), Verdict::Goes, "too late");
        assert!(!seats[1].refuse(closed()));
    }

    #[test]
    fn who_votes_after_a_vote_was_taken_back_wakes_the_others() {
        let (sleepers, wakers): (Vec<_>, Vec<_>) = (0..2).map(|_| Sleeper::new().unwrap()).unzip();
        let (reply, _answer) = Answer::new();
        let seats = Across::seats(1, wakers, reply);
        assert_eq!((seats[0].vote(), seats[0].withdraw()), (Verdict::Waits, Verdict::Waits));
        assert_eq!(seats[1].vote(), Verdict::Waits);
        for mut sleeper in sleepers {
            // For ever, unless it was woken.
            sleeper.sleep(None).unwrap();
        }
    }

    #[test]
    fn a_shard_that_refuses_or_goes_ends_the_batch_for_all() {
        let (mut all, answer) = seats(3);
        assert_eq!(all[0].vote(), Verdict::Waits);
        drop(all.pop());
        assert_eq!(all[0].verdict(), Verdict::Refused);
        assert_eq!(all[1].vote(), Verdict::Refused);
        assert_eq!(answer.wait().unwrap_err().kind(), tierstone_base::ErrorKind::Busy);
        let (mut all, _answer) = seats(2);
        assert_eq!((all[0].vote(), all[1].vote()), (Verdict::Waits, Verdict::Goes));
        all[0].note_written();
        let ticket = Arc::clone(all[0].ticket());
        all.remove(0);
        assert!(!ticket.is_abandoned());
        drop(all);
        assert!(ticket.is_abandoned(), "the part of a shard that is gone");
    }
}
