//! Ranges of the shared handle.

use super::message::Message;
use super::{Answer, Inner, SharedStore};
use crate::range::{KeyRange, Merge, RangePage};
use crate::scan::Entry;
use tierstone_base::{KeyspaceId, Result};

/// A walk through a range of a shared handle, in the order of the keys, beside whatever other callers
/// do: an iterator for threads, [`SharedRange::next_async`] for tasks. See [`SharedStore::range`].
#[derive(Debug)]
#[must_use = "nothing is read before the first entry is asked for"]
pub struct SharedRange {
    store: SharedStore,
    merge: Merge,
}

impl Inner {
    /// Asks the shards for the pages that `merge` wants.
    fn ask_ranges(&self, merge: &mut Merge) -> Vec<(u16, Answer<RangePage>)> {
        let wanted = merge.wanted();
        let ask = |(shard, request)| (shard, self.ask(shard, |reply| Message::Range { request, reply }));
        wanted.into_iter().map(ask).collect()
    }
}

impl SharedRange {
    pub(super) fn new(store: SharedStore, keyspace: KeyspaceId, range: impl KeyRange) -> Self {
        let merge = Merge::new(keyspace, range, store.inner.shards());
        SharedRange { store, merge }
    }

    /// The same range from its greatest key down. To be called before the first entry is taken.
    pub fn backward(mut self) -> Self {
        self.merge.turn_back();
        self
    }

    /// The next entry, for tasks.
    pub async fn next_async(&mut self) -> Option<Result<Entry>> {
        while !self.merge.is_known() {
            for (shard, answer) in self.store.inner.ask_ranges(&mut self.merge) {
                match answer.await {
                    Ok(page) => self.merge.take(shard, page),
                    Err(error) => {
                        self.merge.end();
                        return Some(Err(error));
                    }
                }
            }
        }
        self.merge.next()
    }
}

impl Iterator for SharedRange {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        while !self.merge.is_known() {
            for (shard, answer) in self.store.inner.ask_ranges(&mut self.merge) {
                match answer.wait() {
                    Ok(page) => self.merge.take(shard, page),
                    Err(error) => {
                        self.merge.end();
                        return Some(Err(error));
                    }
                }
            }
        }
        self.merge.next()
    }
}
