//! Snapshots of the local handle, and walks through them.
//!
//! Invariants:
//! 1. The cut is one for all shards: the calling thread takes it in all of them with no write between.
//! 2. A snapshot that is dropped is released by the next call of the store that writes, or that takes
//!    another; until then it keeps what it kept.

use crate::batch::KeyspaceName;
use crate::local::Store;
use crate::plain::is_user_value;
use crate::range::{KeyRange, Range};
use crate::scan::{Buffered, Cursor, Entry, Page};
use std::cell::RefCell;
use std::rc::Rc;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Result};
use tierstone_engine::SnapshotId;

/// Snapshots that were dropped, a number a shard each, to be released.
pub(crate) type Dropped = Rc<RefCell<Vec<Vec<SnapshotId>>>>;

/// What a [`Store`] held at one moment, in all its databases: see [`Store::snapshot`]. Later writes do
/// not show, batches show whole, and a value that had not expired then does not expire.
///
/// Values that were replaced since are kept for it, within bounds ([`crate::ShardSettings`],
/// `snapshot_…`). Beyond them the oldest snapshot is lost: its calls give `SnapshotLost` from then on,
/// never anything wrong. It ends when it is dropped, and with the store.
///
/// ```
/// use tierstone::{DatabaseOptions, Store};
///
/// # let directory = std::env::temp_dir().join(format!("tierstone-doc-snapshot-{}", std::process::id()));
/// # let _ = std::fs::remove_dir_all(&directory);
/// let mut store = Store::open(&DatabaseOptions::new(&directory))?;
/// store.put(b"balance:ann", b"90")?;
/// store.put(b"balance:bob", b"110")?;
///
/// let snapshot = store.snapshot()?;
/// store.put(b"balance:ann", b"0")?;
/// store.delete(b"balance:bob")?;
///
/// // The sum of one moment, whatever happened since.
/// let mut sum = 0;
/// for entry in snapshot.scan(&mut store) {
///     sum += String::from_utf8_lossy(&entry?.value).parse::<u64>().unwrap();
/// }
/// assert_eq!(sum, 200);
/// assert_eq!(snapshot.get(&mut store, b"balance:bob")?.as_deref(), Some(&b"110"[..]));
/// assert_eq!(store.get(b"balance:bob")?, None);
/// # drop(store);
/// # std::fs::remove_dir_all(&directory).unwrap();
/// # Ok::<(), tierstone::Error>(())
/// ```
#[derive(Debug)]
pub struct Snapshot {
    ids: Vec<SnapshotId>,
    dropped: Dropped,
}

impl Snapshot {
    pub(crate) fn new(ids: Vec<SnapshotId>, dropped: Dropped) -> Self {
        Snapshot { ids, dropped }
    }

    /// The value that `key` had. `store` is the one that the snapshot is of.
    ///
    /// # Errors
    /// `SnapshotLost`: take a new one. `InvalidInput`: `store` is another one. Others: see
    /// [`Store::get`].
    pub fn get(&self, store: &mut Store, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.first(store).get(key)
    }

    /// The values that `keys` had, by their places. Cost: see [`Store::get_many`].
    ///
    /// # Errors
    /// As [`Snapshot::get`], for the first key that fails.
    pub fn get_many(&self, store: &mut Store, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.first(store).get_many(keys)
    }

    /// Walks all keys and values; gives each once.
    pub fn scan<'s>(&'s self, store: &'s mut Store) -> Scan<'s> {
        self.first(store).into_scan()
    }

    /// Walks a range of keys and their values in the order of the keys, as [`Store::range`] does: each key of the
    /// snapshot once, also those that were deleted since.
    ///
    /// ```
    /// use tierstone::{DatabaseOptions, IndexKind, Prefix, Store};
    ///
    /// # let directory = std::env::temp_dir().join(format!("tierstone-doc-cut-range-{}", std::process::id()));
    /// # let _ = std::fs::remove_dir_all(&directory);
    /// let options = DatabaseOptions { index: Some(IndexKind::Ordered), shards: 2, ..DatabaseOptions::new(&directory) };
    /// let mut store = Store::open(&options)?;
    /// for task in ["task:1", "task:2", "task:3"] {
    ///     store.put(task.as_bytes(), b"open")?;
    /// }
    /// let snapshot = store.snapshot()?;
    /// store.delete(b"task:2")?;
    /// store.put(b"task:4", b"open")?;
    ///
    /// let shown = snapshot.range(&mut store, Prefix("task:")).backward().collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(shown.iter().map(|entry| &entry.key[5..]).collect::<Vec<_>>(), [b"3", b"2", b"1"]);
    /// assert_eq!(store.range(Prefix("task:")).count(), 3);
    /// # drop(store);
    /// # std::fs::remove_dir_all(&directory).unwrap();
    /// # Ok::<(), tierstone::Error>(())
    /// ```
    pub fn range<'s>(&'s self, store: &'s mut Store, range: impl KeyRange) -> Range<'s> {
        self.first(store).into_range(range)
    }

    /// The numbered database `number` as it was.
    ///
    /// # Errors
    /// `InvalidInput`: there is no such database.
    pub fn keyspace<'s>(&'s self, store: &'s mut Store, number: u32) -> Result<SnapshotKeyspace<'s>> {
        let id = store.resolve(KeyspaceName::Number(number))?;
        Ok(SnapshotKeyspace { snapshot: self, store, id })
    }

    /// The keyspace `name` as it was; one that was made since is empty.
    ///
    /// # Errors
    /// `InvalidInput`: there is no such keyspace now.
    pub fn named<'s>(&'s self, store: &'s mut Store, name: &str) -> Result<SnapshotKeyspace<'s>> {
        let id = store.resolve(KeyspaceName::Name(name))?;
        Ok(SnapshotKeyspace { snapshot: self, store, id })
    }

    fn first<'s>(&'s self, store: &'s mut Store) -> SnapshotKeyspace<'s> {
        let id = store.first;
        SnapshotKeyspace { snapshot: self, store, id }
    }

    /// The snapshot's numbers, a shard each, if it is `store`'s.
    pub(crate) fn ids_in(&self, store: &Store) -> Result<&[SnapshotId]> {
        if Rc::ptr_eq(&self.dropped, store.dropped()) {
            return Ok(&self.ids);
        }
        Err(Error::new(ErrorKind::InvalidInput, "the snapshot is one of another store"))
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.dropped.borrow_mut().push(std::mem::take(&mut self.ids));
    }
}

/// A database or keyspace of a [`Snapshot`].
#[derive(Debug)]
pub struct SnapshotKeyspace<'s> {
    snapshot: &'s Snapshot,
    store: &'s mut Store,
    id: KeyspaceId,
}

impl<'s> SnapshotKeyspace<'s> {
    /// See [`Snapshot::get`].
    ///
    /// # Errors
    /// As there.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.get_many(&[key])?.pop().flatten())
    }

    /// See [`Snapshot::get_many`].
    ///
    /// # Errors
    /// As there.
    pub fn get_many(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values = vec![None; keys.len()];
        let mut failure = None;
        self.store.read_at(self.snapshot, self.id, keys, |place, value| match value {
            Ok(value) => values[place] = value,
            Err(error) => failure = failure.take().or(Some(error)),
        })?;
        failure.map_or(Ok(values), Err)
    }

    /// See [`Snapshot::range`].
    pub fn into_range(self, range: impl KeyRange) -> Range<'s> {
        Range::new(self.store, self.id, range).at(self.snapshot)
    }

    /// See [`Snapshot::scan`].
    pub fn into_scan(self) -> Scan<'s> {
        let SnapshotKeyspace { snapshot, store, id } = self;
        Scan { store, keyspace: id, shown: Shown::Lent(snapshot), buffered: Buffered::new() }
    }
}

/// A walk through all keys and values of a local handle, 256 at a time, as they were when it began (or
/// when its snapshot was taken): each once. A record that cannot be read gives one error a page, and
/// the walk goes on; any other error ends it.
#[derive(Debug)]
pub struct Scan<'s> {
    store: &'s mut Store,
    keyspace: KeyspaceId,
    shown: Shown<'s>,
    buffered: Buffered,
}

/// The snapshot that a walk shows.
#[derive(Debug)]
pub(crate) enum Shown<'s> {
    /// One of the walk's own, taken with its first entry.
    Own(Option<Snapshot>),
    Lent(&'s Snapshot),
}

impl Shown<'_> {
    /// The snapshot; taken now if it is the walk's own and this the first time.
    pub fn in_store(&mut self, store: &mut Store) -> Result<&Snapshot> {
        match self {
            Shown::Lent(snapshot) => Ok(snapshot),
            Shown::Own(Some(snapshot)) => Ok(snapshot),
            Shown::Own(none) => Ok(none.insert(store.snapshot()?)),
        }
    }
}

impl<'s> Scan<'s> {
    pub(crate) fn new(store: &'s mut Store, keyspace: KeyspaceId) -> Self {
        Scan { store, keyspace, shown: Shown::Own(None), buffered: Buffered::new() }
    }
}

impl Iterator for Scan<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        let Scan { store, keyspace, shown, buffered } = self;
        buffered.next(|cursor, count| {
            let snapshot = shown.in_store(store)?;
            page_at(store, snapshot, *keyspace, (cursor, count))
        })
    }
}

/// One page of a walk of a snapshot, of about `count` entries.
fn page_at(
    store: &mut Store,
    snapshot: &Snapshot,
    id: KeyspaceId,
    (cursor, count): (Cursor, u32),
) -> Result<Page> {
    let (found, next) = store.keys_at(snapshot, id, cursor, count)?;
    let mut page = Page { entries: Vec::new(), next, damaged: found.damaged };
    let shown: Vec<_> = found.entries.into_iter().filter(|entry| is_user_value(&entry.meta)).collect();
    let keys: Vec<&[u8]> = shown.iter().map(|entry| entry.key.as_slice()).collect();
    let mut values: Vec<Option<Vec<u8>>> = vec![None; keys.len()];
    let mut lost = None;
    store.read_at(snapshot, id, &keys, |place, value| match value {
        Ok(value) => values[place] = value,
        Err(error) if error.kind() == ErrorKind::SnapshotLost => lost = Some(error),
        Err(error) => page.damaged = page.damaged.take().or(Some(error)),
    })?;
    if let Some(error) = lost {
        return Err(error);
    }
    for (found, value) in shown.into_iter().zip(values) {
        page.entries.extend(value.map(|value| Entry::new(found.key, value, found.meta.expiry_ms)));
    }
    Ok(page)
}

#[cfg(test)]
#[path = "snapshot_test.rs"]
mod snapshot_test;
