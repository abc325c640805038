//! Ranges of the shared handle.

use super::message::Message;
use super::waiter::Caller;
use super::{Answer, Inner, SharedSnapshot, SharedStore};
use crate::range::{KeyRange, Merge, RangePage};
use crate::scan::Entry;
use tierstone_base::{KeyspaceId, Result};
use tierstone_engine::SnapshotId;

/// A walk through a range of a shared handle, in the order of the keys, beside whatever other callers
/// do: an iterator for threads, [`SharedRange::next_async`] for tasks. See [`SharedStore::range`].
///
/// It shows the keys and values as they are when the first entry is asked for. From then until its end it is a snapshot,
/// and may be lost like one: a slow walk beside many writes may end with `SnapshotLost`; a
/// [live](SharedRange::live) one does not.
#[derive(Debug)]
#[must_use = "nothing is read before the first entry is asked for"]
pub struct SharedRange {
    store: SharedStore,
    keyspace: KeyspaceId,
    shown: Shown,
    merge: Merge,
}

/// What a walk shows.
#[derive(Debug)]
enum Shown {
    /// A snapshot, taken with the first entry.
    Cut(Option<SharedSnapshot>),
    Live,
}

impl Shown {
    /// The numbers of its snapshot, a shard each, if there is one now.
    fn ids(&self) -> Option<&[SnapshotId]> {
        match self {
            Shown::Cut(snapshot) => snapshot.as_ref().map(SharedSnapshot::ids),
            Shown::Live => None,
        }
    }

    /// Whether a snapshot must be taken first.
    fn wants_cut(&self) -> bool {
        matches!(self, Shown::Cut(None))
    }
}

type Asked = Vec<(u16, Answer<RangePage>)>;

impl Inner {
    /// Asks the shards for the pages that `merge` wants, of a snapshot if it has numbers. A caller that waits does so for
    /// the last one.
    fn ask_ranges(&self, waits: bool, ids: Option<&[SnapshotId]>, merge: &mut Merge) -> Asked {
        let wanted = merge.wanted();
        let last = wanted.last().map(|(shard, _)| *shard);
        let ask = |(shard, mut request): (u16, tierstone_engine::RangeRequest)| {
            request.snapshot = ids.map(|ids| ids[usize::from(shard)]);
            let caller = if waits && last == Some(shard) { Caller::Waits } else { Caller::GoesOn };
            (shard, self.ask_for(caller, shard, |reply| Message::Range { request, reply }))
        };
        wanted.into_iter().map(ask).collect()
    }
}

fn take(merge: &mut Merge, asked: Asked) -> Result<()> {
    for (shard, answer) in asked {
        merge.take(shard, answer.wait()?);
    }
    Ok(())
}

async fn take_async(merge: &mut Merge, asked: Asked) -> Result<()> {
    for (shard, answer) in asked {
        merge.take(shard, answer.await?);
    }
    Ok(())
}

impl SharedRange {
    pub(super) fn new(store: SharedStore, keyspace: KeyspaceId, range: impl KeyRange) -> Self {
        let merge = Merge::new(keyspace, range, store.inner.shards());
        SharedRange { store, keyspace, shown: Shown::Cut(None), merge }
    }

    /// The same range from its greatest key down. To be called before the first entry is taken.
    pub fn backward(mut self) -> Self {
        self.merge.turn_back();
        self
    }

    /// The first `count` entries only, as with [`Iterator::take`]; the store reads little more than these then. To be
    /// called before the first entry is taken.
    pub fn limit(mut self, count: u64) -> Self {
        self.merge.stop_after(count);
        self
    }

    /// The same range without a snapshot: it keeps nothing back and cannot be lost, and shows what is written
    /// meanwhile. A key that exists during the whole walk is given exactly once; one that comes or goes during it
    /// may be given or not. To be called before the first entry is taken.
    pub fn live(mut self) -> Self {
        self.shown = Shown::Live;
        self
    }

    /// The next entry, for tasks.
    pub async fn next_async(&mut self) -> Option<Result<Entry>> {
        while !self.merge.is_known() {
            if let Err(error) = self.fetch_async().await {
                return self.end(Some(Err(error)));
            }
        }
        match self.merge.next() {
            None => self.end(None),
            some => some,
        }
    }

    async fn fetch_async(&mut self) -> Result<()> {
        if self.shown.wants_cut() {
            self.shown = Shown::Cut(Some(self.store.snapshot_async().await?));
            // What was dropped before looks empty in it.
            self.store.inner.check_keyspace(self.keyspace)?;
        }
        let asked = self.store.inner.ask_ranges(false, self.shown.ids(), &mut self.merge);
        take_async(&mut self.merge, asked).await
    }

    fn fetch(&mut self) -> Result<()> {
        if self.shown.wants_cut() {
            self.shown = Shown::Cut(Some(self.store.snapshot()?));
            // What was dropped before looks empty in it.
            self.store.inner.check_keyspace(self.keyspace)?;
        }
        let asked = self.store.inner.ask_ranges(true, self.shown.ids(), &mut self.merge);
        take(&mut self.merge, asked)
    }

    /// Ends the walk, and its snapshot with it.
    fn end(&mut self, last: Option<Result<Entry>>) -> Option<Result<Entry>> {
        self.merge.end();
        self.shown = Shown::Live;
        last
    }
}

impl Iterator for SharedRange {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        while !self.merge.is_known() {
            if let Err(error) = self.fetch() {
                return self.end(Some(Err(error)));
            }
        }
        match self.merge.next() {
            None => self.end(None),
            some => some,
        }
    }
}

/// A walk through a range of a [`SharedSnapshot`], in the order of the keys: see [`SharedSnapshot::range`].
#[derive(Debug)]
#[must_use = "nothing is read before the first entry is asked for"]
pub struct SharedSnapshotRange<'s> {
    snapshot: &'s SharedSnapshot,
    merge: Merge,
}

impl<'s> SharedSnapshotRange<'s> {
    pub(super) fn new(snapshot: &'s SharedSnapshot, keyspace: KeyspaceId, range: impl KeyRange) -> Self {
        let merge = Merge::new(keyspace, range, snapshot.inner().shards());
        SharedSnapshotRange { snapshot, merge }
    }

    /// The same range from its greatest key down. To be called before the first entry is taken.
    pub fn backward(mut self) -> Self {
        self.merge.turn_back();
        self
    }

    /// The first `count` entries only, as with [`Iterator::take`]; the store reads little more than these then. To be
    /// called before the first entry is taken.
    pub fn limit(mut self, count: u64) -> Self {
        self.merge.stop_after(count);
        self
    }

    /// The next entry, for tasks.
    pub async fn next_async(&mut self) -> Option<Result<Entry>> {
        while !self.merge.is_known() {
            let asked = self.ask(false);
            if let Err(error) = take_async(&mut self.merge, asked).await {
                self.merge.end();
                return Some(Err(error));
            }
        }
        self.merge.next()
    }

    fn ask(&mut self, waits: bool) -> Asked {
        self.snapshot.inner().ask_ranges(waits, Some(self.snapshot.ids()), &mut self.merge)
    }
}

impl Iterator for SharedSnapshotRange<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        while !self.merge.is_known() {
            let asked = self.ask(true);
            if let Err(error) = take(&mut self.merge, asked) {
                self.merge.end();
                return Some(Err(error));
            }
        }
        self.merge.next()
    }
}
