//! Callers that wait until what was sent before is durable, and those that close the store.
//!
//! Invariant: each write that is not applied, wherever it waits (for an old record, for room, behind or as a part of a batch over
//! several shards), holds the [`Unfinished`] that was the service's as it came. A sync or a closing takes that, and leaves another one.

use super::super::answer::Reply;
use super::super::gate::Ready;
use super::Service;
use std::sync::Arc;
use tierstone_base::Error;
use tierstone_engine::Engine;

/// A write that is not done holds one; all that were sent before the same sync share theirs.
pub(super) type Unfinished = Arc<()>;

impl Service {
    pub(super) fn begin_sync(&mut self, reply: Reply<()>) {
        self.syncs.push_back((std::mem::take(&mut self.unfinished), reply));
        self.advance_syncs();
    }

    pub(super) fn begin_ending(&mut self, reply: Reply<()>) {
        self.ending = Some((std::mem::take(&mut self.unfinished), reply));
        self.advance_syncs();
    }

    /// Makes durable what was sent before a sync, once all of it is applied: writes may wait for old records, for room, or
    /// for other shards. Ends the engine after what was sent before the closing.
    pub(super) fn advance_syncs(&mut self) {
        while self.syncs.front().is_some_and(|(before, _)| Arc::strong_count(before) == 1) {
            let Some((_, reply)) = self.syncs.pop_front() else { return };
            self.engine.flush(self.now);
            self.gate.hold(self.engine.applied_seq(), Ready::Done(reply));
        }
        let is_applied = |ending: &mut (Unfinished, _)| Arc::strong_count(&ending.0) == 1;
        if self.syncs.is_empty()
            && let Some((_, reply)) = self.ending.take_if(is_applied)
        {
            self.engine.shut();
            self.closing = Some(reply);
        }
    }

    /// Whether the store is being closed.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.is_some() || self.closing.is_some()
    }

    /// Answers with `error` who waits for what was sent before. A store that is being closed takes no writes from then on.
    pub(super) fn refuse_syncs(&mut self, error: &Error) {
        let ending = self.ending.take().map(|(_, reply)| reply);
        if ending.is_some() {
            self.engine.shut();
        }
        let syncs = self.syncs.drain(..).map(|(_, reply)| reply);
        for reply in syncs.chain(ending).chain(self.closing.take()) {
            drop(reply.send(Err(error.clone())));
        }
    }
}
