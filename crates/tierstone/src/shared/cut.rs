//! One snapshot over all shards of a shared handle: a cut at one moment.
//!
//! Each shard takes its snapshot when the message comes, and applies nothing until all have taken
//! theirs; or a caller takes all of them while it is inside all shards. So at the moment of the last one,
//! every shard is as its snapshot shows it: a write that was answered before the request is in; and of two
//! writes of which one was answered before the other was sent, the first is in if the second is.
//!
//! Invariants:
//! 1. Requests for cuts come to all shards in one order (their sender holds a lock): two cuts cannot
//!    wait for each other.
//! 2. A shard's snapshot that nobody takes, since whoever asked has gone, is released.
//! 3. A share that is dropped, with its message or its shard, counts as taken: nobody waits for a
//!    shard that is gone.

use super::Inner;
use super::message::Message;
use super::sleep::Waker;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use tierstone_engine::SnapshotId;

/// What the shards that take part in a cut share.
#[derive(Debug)]
pub(super) struct Cut {
    missing: AtomicUsize,
    wakers: Vec<Arc<Waker>>,
}

/// One shard's part of a cut that it has not taken yet.
#[derive(Debug)]
pub(super) struct Share(Arc<Cut>);

/// A shard's snapshot on its way to whoever asked for it; released when it is dropped before.
#[derive(Debug)]
pub(super) struct Taken {
    id: Option<SnapshotId>,
    shard: u16,
    store: Weak<Inner>,
}

impl Taken {
    pub fn new(id: SnapshotId, shard: u16, store: Weak<Inner>) -> Self {
        Taken { id: Some(id), shard, store }
    }

    /// Its number; the caller releases it from now on.
    pub fn keep(mut self) -> Option<SnapshotId> {
        self.id.take()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let (Some(snapshot), Some(store)) = (self.id, self.store.upgrade()) {
            store.tell(self.shard, Message::Release { snapshot });
        }
    }
}

impl Cut {
    /// The shares of a cut by `count` shards; `wakers` wake those that have to be told when it is whole.
    pub fn shares(count: usize, wakers: Vec<Arc<Waker>>) -> Vec<Share> {
        let cut = Arc::new(Cut { missing: AtomicUsize::new(count), wakers });
        (0..count).map(|_| Share(Arc::clone(&cut))).collect()
    }

    /// Whether every shard has taken its part, or is gone.
    pub fn is_whole(&self) -> bool {
        self.missing.load(Ordering::Acquire) == 0
    }
}

impl Share {
    /// The shard has taken its part: what it applies next must wait until the cut is whole.
    pub fn take(self) -> Arc<Cut> {
        Arc::clone(&self.0)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        // Release: what this shard applied before is before the cut for all others.
        if self.0.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.wakers.iter().for_each(|waker| waker.wake());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sleep::Sleeper;
    use super::*;

    #[test]
    fn a_cut_is_whole_when_every_share_is_taken_or_gone() {
        let (mut sleeper, waker) = Sleeper::new().unwrap();
        let mut shares = Cut::shares(2, vec![Arc::clone(&waker), waker]);
        let cut = shares.pop().unwrap().take();
        assert!(!cut.is_whole());
        drop(shares);
        assert!(cut.is_whole());
        // The last one has woken everybody: this does not sleep.
        sleeper.sleep(None).unwrap();
    }
}
