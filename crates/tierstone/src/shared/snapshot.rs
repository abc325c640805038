//! Snapshots of the shared handle, and walks through them.

use super::cut::{Cut, Taken};
use super::keyspace::{Part, gather, gather_async};
use super::message::Message;
use super::shard::carry_in_together;
use super::{Answer, Inner, SharedSnapshotRange, SharedStore};
use crate::batch::KeyspaceName;
use crate::named::resolve;
use crate::range::KeyRange;
use crate::scan::{Buffered, Cursor, Entry, Page};
use std::future::Future;
use std::sync::{Arc, PoisonError};
use tierstone_base::{KeyspaceId, Result};
use tierstone_engine::SnapshotId;

/// What a [`SharedStore`] held at one moment, in all its databases: see [`SharedStore::snapshot`]. What
/// [`crate::Snapshot`] says holds here too. Many threads may use it; it ends when it is dropped, or with
/// the store. Like any handle it keeps a store alive that was not closed.
///
/// ```
/// use tierstone::{DatabaseOptions, SharedStore};
///
/// # let directory = std::env::temp_dir().join(format!("tierstone-doc-cut-{}", std::process::id()));
/// # let _ = std::fs::remove_dir_all(&directory);
/// let store = SharedStore::open(&DatabaseOptions { shards: 2, ..DatabaseOptions::new(&directory) })?;
/// store.put(b"first", b"1")?;
/// store.put(b"second", b"1")?;
/// let snapshot = store.snapshot()?;
/// std::thread::scope(|scope| {
///     scope.spawn(|| store.put(b"first", b"2"));
///     // Reads of the snapshot do not see the other thread's write.
///     assert_eq!(snapshot.get(b"first")?.as_deref(), Some(&b"1"[..]));
///     assert_eq!(snapshot.scan().count(), 2);
///     Ok::<(), tierstone::Error>(())
/// })?;
/// # drop(snapshot);
/// # store.close()?;
/// # std::fs::remove_dir_all(&directory).unwrap();
/// # Ok::<(), tierstone::Error>(())
/// ```
#[derive(Debug)]
pub struct SharedSnapshot {
    inner: Arc<Inner>,
    ids: Vec<SnapshotId>,
}

impl Inner {
    /// Asks every shard for its part of one cut.
    fn cut(self: &Arc<Self>) -> Vec<Answer<Taken>> {
        let _one_after_another = self.ordering.lock().unwrap_or_else(PoisonError::into_inner);
        let count = self.mailboxes.len();
        let message = |share| {
            let ((reply, answer), store) = (Answer::new(), Arc::downgrade(self));
            (Message::Snapshot { share, store, reply }, answer)
        };
        // Nobody has to be told of a cut that is whole before anybody else comes in.
        let (messages, answers) = Cut::shares(count, Vec::new()).into_iter().map(message).unzip();
        if carry_in_together(&self.mailboxes, messages).is_none() {
            return answers;
        }
        let wakers = self.mailboxes.iter().map(|mailbox| Arc::clone(&mailbox.waker)).collect();
        let shares = Cut::shares(count, wakers).into_iter().zip(0..);
        let ask = |(share, shard)| {
            let store = Arc::downgrade(self);
            self.ask(shard, |reply| Message::Snapshot { share, store, reply })
        };
        shares.map(ask).collect()
    }

    fn get_at(&self, ids: &[SnapshotId], keyspace: KeyspaceId, keys: &[&[u8]]) -> Vec<Part> {
        self.of_shards(keyspace, keys)
            .map(|(shard, places, keys)| {
                let snapshot = ids[usize::from(shard)];
                (places, self.ask(shard, |reply| Message::GetAt { snapshot, keys, reply }))
            })
            .collect()
    }

    fn scan_page_at(
        &self,
        ids: &[SnapshotId],
        keyspace: KeyspaceId,
        (cursor, count): (Cursor, u32),
    ) -> Answer<Page> {
        let shard = cursor.0.shard(self.shards());
        let snapshot = ids[usize::from(shard)];
        self.ask(shard, |reply| Message::ScanAt { snapshot, keyspace, cursor, count, reply })
    }
}

impl SharedStore {
    /// Takes a snapshot of all databases: a cut at one moment over all shards. Every write that was
    /// answered before this call is in it; and of two writes of which one was answered before the other
    /// was sent, the first is in it if the second is. Returns when all of it is durable (at once when
    /// the durability is `relaxed`).
    ///
    /// Cost: constant; for the time of one turn of the slowest shard, no shard applies anything. See
    /// [`crate::Snapshot`] for what it costs while it lives.
    ///
    /// # Errors
    /// `Retry`: a thousand are alive; drop some. Others: as [`SharedStore::put`].
    pub fn snapshot(&self) -> Result<SharedSnapshot> {
        let answers = self.inner.cut();
        self.cut_of(answers.into_iter().map(Answer::wait).collect())
    }

    /// [`SharedStore::snapshot`] for tasks.
    pub fn snapshot_async(&self) -> impl Future<Output = Result<SharedSnapshot>> + Send + use<> {
        let (answers, store) = (self.inner.cut(), self.clone());
        async move {
            let mut taken = Vec::with_capacity(answers.len());
            for answer in answers {
                taken.push(answer.await);
            }
            store.cut_of(taken)
        }
    }

    /// A snapshot of what the shards have taken; when one could not, the others release theirs.
    fn cut_of(&self, taken: Vec<Result<Taken>>) -> Result<SharedSnapshot> {
        let taken = taken.into_iter().collect::<Result<Vec<Taken>>>()?;
        let ids = taken.into_iter().filter_map(Taken::keep).collect();
        Ok(SharedSnapshot { inner: Arc::clone(&self.inner), ids })
    }
}

impl SharedSnapshot {
    /// The value that `key` had.
    ///
    /// # Errors
    /// `SnapshotLost`: take a new one. Others: see [`SharedStore::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.first().get(key)
    }

    /// The values that `keys` had, by their places.
    ///
    /// # Errors
    /// As [`SharedSnapshot::get`], for the first key that fails.
    pub fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.first().get_many(keys)
    }

    /// [`SharedSnapshot::get_many`] for tasks.
    pub fn get_many_async(
        &self,
        keys: &[&[u8]],
    ) -> impl Future<Output = Result<Vec<Option<Vec<u8>>>>> + Send + use<> {
        self.first().get_many_async(keys)
    }

    /// Walks all keys and values; gives each once.
    pub fn scan(&self) -> SharedSnapshotScan<'_> {
        self.first().scan()
    }

    /// Walks a range of keys and their values in the order of the keys, as [`SharedStore::range`] does: each key
    /// of the snapshot once, also those that were deleted since.
    pub fn range(&self, range: impl KeyRange) -> SharedSnapshotRange<'_> {
        self.first().range(range)
    }

    /// The numbered database `number` as it was.
    ///
    /// # Errors
    /// `InvalidInput`: there is no such database.
    pub fn keyspace(&self, number: u32) -> Result<SharedSnapshotKeyspace<'_>> {
        let id = resolve(&self.inner.map(), KeyspaceName::Number(number))?;
        Ok(SharedSnapshotKeyspace { snapshot: self, id })
    }

    /// The keyspace `name` as it was; one that was made since is empty. What this gives goes on showing a keyspace
    /// that is dropped meanwhile.
    ///
    /// # Errors
    /// `InvalidInput`: there is no such keyspace now.
    pub fn named(&self, name: &str) -> Result<SharedSnapshotKeyspace<'_>> {
        let id = resolve(&self.inner.map(), KeyspaceName::Name(name))?;
        Ok(SharedSnapshotKeyspace { snapshot: self, id })
    }

    pub(super) fn ids(&self) -> &[SnapshotId] {
        &self.ids
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.inner
    }

    fn first(&self) -> SharedSnapshotKeyspace<'_> {
        SharedSnapshotKeyspace { snapshot: self, id: self.inner.first }
    }
}

impl Drop for SharedSnapshot {
    fn drop(&mut self) {
        for (id, shard) in self.ids.iter().zip(0..) {
            self.inner.tell(shard, Message::Release { snapshot: *id });
        }
    }
}

/// A database or keyspace of a [`SharedSnapshot`].
#[derive(Clone, Copy, Debug)]
pub struct SharedSnapshotKeyspace<'s> {
    snapshot: &'s SharedSnapshot,
    id: KeyspaceId,
}

impl<'s> SharedSnapshotKeyspace<'s> {
    /// See [`SharedSnapshot::get`].
    ///
    /// # Errors
    /// As there.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.get_many(&[key])?.pop().flatten())
    }

    /// See [`SharedSnapshot::get_many`].
    ///
    /// # Errors
    /// As there.
    pub fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let SharedSnapshot { inner, ids } = self.snapshot;
        gather(inner.get_at(ids, self.id, keys), keys.len(), Answer::wait)
    }

    /// See [`SharedSnapshot::get_many_async`].
    pub fn get_many_async(
        &self,
        keys: &[&[u8]],
    ) -> impl Future<Output = Result<Vec<Option<Vec<u8>>>>> + Send + use<> {
        let SharedSnapshot { inner, ids } = self.snapshot;
        gather_async(inner.get_at(ids, self.id, keys), keys.len())
    }

    /// See [`SharedSnapshot::range`].
    pub fn range(&self, range: impl KeyRange) -> SharedSnapshotRange<'s> {
        SharedSnapshotRange::new(self.snapshot, self.id, range)
    }

    /// See [`SharedSnapshot::scan`].
    pub fn scan(&self) -> SharedSnapshotScan<'s> {
        SharedSnapshotScan { snapshot: self.snapshot, keyspace: self.id, buffered: Buffered::new() }
    }
}

/// A walk through all keys and values of a [`SharedSnapshot`], some 4 to 256 at a time: each once. A record that
/// cannot be read gives one error a page, and the walk goes on; any other error ends it.
#[derive(Debug)]
pub struct SharedSnapshotScan<'s> {
    snapshot: &'s SharedSnapshot,
    keyspace: KeyspaceId,
    buffered: Buffered,
}

impl Iterator for SharedSnapshotScan<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        let SharedSnapshotScan { snapshot, keyspace, buffered } = self;
        buffered.next(|cursor, count| {
            snapshot.inner.scan_page_at(&snapshot.ids, *keyspace, (cursor, count)).wait()
        })
    }
}

/// A walk through all keys and values of a shared handle, some 4 to 256 at a time, as they were when its first
/// entry was asked for: each once, beside whatever other callers do. While it lives it is a snapshot,
/// and may be lost like one: a slow walk beside many writes may end with `SnapshotLost`;
/// [`SharedStore::scan_page`] walks without.
#[derive(Debug)]
pub struct SharedScan {
    store: SharedStore,
    keyspace: KeyspaceId,
    snapshot: Option<SharedSnapshot>,
    buffered: Buffered,
}

impl SharedScan {
    pub(super) fn new(store: SharedStore, keyspace: KeyspaceId) -> Self {
        SharedScan { store, keyspace, snapshot: None, buffered: Buffered::new() }
    }
}

impl Iterator for SharedScan {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        let SharedScan { store, keyspace, snapshot, buffered } = self;
        buffered.next(|cursor, count| {
            if snapshot.is_none() {
                *snapshot = Some(store.snapshot()?);
                // What was dropped before looks empty in it.
                store.inner.check_keyspace(*keyspace)?;
            }
            let Some(snapshot) = snapshot else { unreachable!("it was taken just now") };
            snapshot.inner.scan_page_at(&snapshot.ids, *keyspace, (cursor, count)).wait()
        })
    }
}
