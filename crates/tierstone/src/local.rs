//! The local handle: the caller's thread owns and drives all shards.
//!
//! Invariants:
//! 1. Nothing runs between calls. What needs time (cleaning, groups that gather) goes on inside the
//!    next calls; an idle caller may lend time with [`Store::turn`].
//! 2. A call that has returned `Ok` for a write has made it durable, unless the durability is
//!    `relaxed` or the call says otherwise ([`Store::put_nowait`]).
//! 3. Reads see every write of this handle at once, durable or not.
//! 4. After the device failed a write, every call that needs the shard of that write says so until the store is opened again.
//!
//! A crash, and a handle that is dropped without [`Store::close`], leave every acknowledged write;
//! the next opening then reads the ends of the logs.

use crate::backup::Abandoned;
use crate::batch::{Batch, Expiry, KeyspaceName, PutOptions};
use crate::database::{Database, DatabaseOptions, NOTED_EVERY};
use crate::lane::{Fetching, KeyPage, Lane, READS_AT_ONCE};
use crate::named::resolve;
use crate::plain::later;
use crate::range::{KeyRange, Merge, Range};
use crate::scan::{Cursor, Entry, Page};
use crate::snapshot::{Dropped, Scan, Snapshot};
use crate::statistics::sum;
use crate::storage::StorageDevice;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tierstone_base::clock::{Clock, SystemClock};
use tierstone_base::{Error, ErrorKind, KeyHasher, KeyspaceId, Now, Position, Result, Seq};
use tierstone_engine::{Engine, EngineStatistics, Key, SnapshotId, ValueKind, Write, WriteKind};
use tierstone_media::Wait;

mod across;
mod bulk;
mod keyspace;

pub use bulk::BulkLoad;
pub use keyspace::Keyspace;

/// A database whose shards the calling thread drives itself: the quickest way to use it from one
/// thread. It stays on the thread that opened it; [`crate::SharedStore`] serves many threads.
#[derive(Debug)]
pub struct Store {
    pub(crate) lanes: Vec<Lane<StorageDevice>>,
    hasher: KeyHasher,
    /// The keyspace of database 0.
    pub(crate) first: KeyspaceId,
    dropped: Dropped,
    abandoned: Abandoned,
    /// Which handle of this process it is.
    number: u64,
    /// Batches over several shards so far.
    batches: u64,
    /// Shards have something to say, or to hear, about such batches.
    has_parts: bool,
    clock: SystemClock,
    /// When the superblock's list of segments was looked after.
    listed_us: u64,
    // After the lanes: their devices are done with the files before the lock goes.
    database: Database,
    // A ring belongs to the thread that made it.
    stays_on_its_thread: PhantomData<*const ()>,
}

/// Handles that were opened.
static STORES: AtomicU64 = AtomicU64::new(0);

/// A write that was applied and not waited for: see [`Store::put_nowait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the write is acknowledged only when the ticket was waited for, or after a sync"]
pub struct Ticket {
    /// The handle's number in this process.
    store: u64,
    shard: u16,
    seq: Seq,
}

impl Store {
    /// Opens the database in `options.directories`, or makes it.
    ///
    /// Cost: two block reads a segment, then the summaries of all segments; a new store is probed for
    /// about a second unless `options.durable_method` is given.
    ///
    /// # Errors
    /// `Busy`: it is open already, here or in another process. Others: see [`Database::open`].
    pub fn open(options: &DatabaseOptions) -> Result<Store> {
        let mut database = Database::open(options)?;
        let clock = SystemClock::new();
        let mut lanes = Vec::new();
        for plan in database.take_plans() {
            let mut device = database.device()?;
            let (mut engine, _) = plan.build(&mut device)?;
            if options.measure_cpu {
                engine.set_cpu_clock(Box::new(clock));
            }
            engine.set_scrub_rate(options.scrub_rate());
            lanes.push(Lane::new(engine, device, clock));
        }
        let first = database.facts().map.keyspaces()[0];
        let hasher = database.hasher();
        let dropped = Dropped::default();
        let (batches, has_parts) = (0, false);
        Ok(Store {
            lanes,
            hasher,
            first,
            dropped,
            abandoned: Abandoned::default(),
            number: STORES.fetch_add(1, Ordering::Relaxed),
            batches,
            has_parts,
            clock,
            listed_us: clock.now().monotonic_us,
            database,
            stays_on_its_thread: PhantomData,
        })
    }

    /// The numbered database `number`, for calls in it; the calls of the store itself are in number 0.
    ///
    /// # Errors
    /// `InvalidInput`: there is no such database.
    pub fn keyspace(&mut self, number: u32) -> Result<Keyspace<'_>> {
        let id = self.resolve(KeyspaceName::Number(number))?;
        Ok(Keyspace::new(self, id))
    }

    /// The value of `key`. Cost: none to the device when the record is in memory, one read otherwise.
    ///
    /// # Errors
    /// `Corrupt`: the record is damaged, or its device cannot read it; others can be read still, and the key can be written.
    /// `DeviceFailed`: a write of the shard has failed.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.first().get(key)
    }

    /// Appends the value of `key` to `value`; false when there is none.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn get_into(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.first().get_into(key, value)
    }

    /// Gives the value of `key` to `read` where it lies, without a copy; `None` when there is none.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn get_with<R>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.first().get_with(key, read)
    }

    /// The values of `keys`, by their places. Cost: all reads of the device are one submission a shard
    /// (in pieces of 1,024).
    ///
    /// # Errors
    /// As [`Store::get`], for the first key that fails.
    pub fn get_many(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.first().get_many(keys)
    }

    /// Puts a value. Returns when it is durable (at once when the durability is `relaxed`).
    ///
    /// # Errors
    /// Nothing was written: `InvalidInput` (key over 65,535 bytes, or a value longer than [`Store::value_bytes_max`]),
    /// `NoSpace`, `NoMemory`, `Retry`. `DeviceFailed`: whether it was written is unknown. A device that
    /// runs out of space under the store also gives `NoSpace`: the value is then visible, and becomes
    /// durable when there is space ([`Store::sync`]).
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.first().put(key, value)
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn put_with(&mut self, key: &[u8], value: &[u8], options: PutOptions) -> Result<()> {
        self.first().put_with(key, value, options)
    }

    /// Puts a value without waiting: it is visible at once and durable after [`Store::wait`] or
    /// [`Store::sync`]. Many of them share a group.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn put_nowait(&mut self, key: &[u8], value: &[u8]) -> Result<Ticket> {
        self.first().put_nowait(key, value)
    }

    /// Deletes `key`; true when it had a value. Returns when that is durable.
    ///
    /// # Errors
    /// As [`Store::put`]; deletes find room in a full store.
    pub fn delete(&mut self, key: &[u8]) -> Result<bool> {
        self.first().delete(key)
    }

    /// Applies all changes of `batch` or none, after a crash too, and returns when they are durable. Its
    /// keys may lie in several shards; these are written at the same time. Cost then: one durable write a
    /// shard, as for one shard, and at most one small one a shard later.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn write(&mut self, batch: &Batch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        let shards = self.lanes.len() as u16;
        self.release_dropped();
        let mut now = None;
        let mut writes = Vec::with_capacity(batch.len());
        for change in batch.changes() {
            let keyspace = resolve(&self.database.facts().map, change.keyspace)?;
            let key = Key { keyspace, position: self.hasher.position(change.key), bytes: change.key };
            let kind = match change.put {
                Some((value, expiry)) => {
                    let expiry_ms = match expiry {
                        Expiry::Never => 0,
                        expiry => expiry.at_ms(*now.get_or_insert_with(|| latest(&mut self.lanes))),
                    };
                    WriteKind::Put { value, expiry_ms, kind: ValueKind::STRING }
                }
                None => WriteKind::Delete,
            };
            writes.push(Write { key, kind });
        }
        let of_shard = |write: &Write<'_>| write.key.position.shard(shards);
        let first = writes.first().map_or(0, of_shard);
        if writes.iter().any(|write| of_shard(write) != first) {
            return across::write(self, &writes);
        }
        let receipt = across::write_on(self, first, &writes)?;
        self.lanes[usize::from(first)].commit(receipt)
    }

    /// Takes a snapshot of all databases: what every write before it has done, and nothing later. Cost:
    /// constant; see [`Snapshot`] for what it costs while it lives.
    ///
    /// # Errors
    /// `Retry`: a thousand are alive; drop some. `DeviceFailed`: the store has failed.
    pub fn snapshot(&mut self) -> Result<Snapshot> {
        self.release_dropped();
        let mut ids = Vec::with_capacity(self.lanes.len());
        for lane in &mut self.lanes {
            match lane.snapshot() {
                Ok(id) => ids.push(id),
                Err(error) => {
                    self.release(&ids);
                    return Err(error);
                }
            }
        }
        Ok(Snapshot::new(ids, Dropped::clone(&self.dropped)))
    }

    /// Walks all keys and values as they are when the first is asked for, in an order of no meaning. See
    /// [`Scan`].
    pub fn scan(&mut self) -> Scan<'_> {
        let id = self.first;
        Scan::new(self, id)
    }

    /// One page of a walk without a snapshot: about `count` entries from `cursor` on. A key that exists
    /// during the whole walk is given at least once.
    ///
    /// # Errors
    /// `DeviceFailed`: the store has failed. Single records that cannot be read are told in the page.
    pub fn scan_page(&mut self, cursor: Cursor, count: u32) -> Result<Page> {
        self.first().scan_page(cursor, count)
    }

    /// Walks the keys of a range and their values in the order of the keys, over all shards. It needs a
    /// database with the ordered index ([`DatabaseOptions::index`]); another gives one error
    /// (`Unsupported`) and no entry. It shows what there is when the first entry is asked for, and a value that
    /// had not expired then; [`Snapshot::range`] walks what there was earlier. Cost: a walk down a tree in memory; records
    /// that are not in memory are read from the device up to 32 a shard at a time, neighbours together. Those that lie scattered
    /// are copied beside each other on the way, so that the next walk reads less: 64 MiB a second and shard at most
    /// ([`tierstone_logstore::ShardSettings::cluster_bytes_per_second`]; 0 switches it off).
    ///
    /// ```
    /// use tierstone::{DatabaseOptions, IndexKind, Prefix, Store};
    ///
    /// # let directory = std::env::temp_dir().join(format!("tierstone-doc-range-{}", std::process::id()));
    /// # let _ = std::fs::remove_dir_all(&directory);
    /// let options = DatabaseOptions { index: Some(IndexKind::Ordered), shards: 2, ..DatabaseOptions::new(&directory) };
    /// let mut store = Store::open(&options)?;
    /// for (planet, moons) in [("earth", "1"), ("mars", "2"), ("neptune", "16"), ("mercury", "0")] {
    ///     store.put(planet.as_bytes(), moons.as_bytes())?;
    /// }
    /// let keys = |range: tierstone::Range<'_>| -> tierstone::Result<Vec<String>> {
    ///     range.map(|entry| Ok(String::from_utf8_lossy(&entry?.key).into_owned())).collect()
    /// };
    /// assert_eq!(keys(store.range("mars"..="neptune"))?, ["mars", "mercury", "neptune"]);
    /// assert_eq!(keys(store.range(Prefix("m")).backward())?, ["mercury", "mars"]);
    /// assert_eq!(store.range(..).next().unwrap()?.value, b"1");
    /// # drop(store);
    /// # std::fs::remove_dir_all(&directory).unwrap();
    /// # Ok::<(), tierstone::Error>(())
    /// ```
    pub fn range(&mut self, range: impl KeyRange) -> Range<'_> {
        let id = self.first;
        Range::new(self, id, range)
    }

    /// How many keys there are, those included that have expired and were not met since.
    pub fn len(&self) -> u64 {
        self.len_of(self.first)
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until the write of `ticket` is durable.
    ///
    /// # Errors
    /// `DeviceFailed`: it may be lost. `NoSpace`: not yet durable for want of space; wait again. `InvalidInput`: the ticket is
    /// of another handle.
    pub fn wait(&mut self, ticket: Ticket) -> Result<()> {
        if ticket.store != self.number {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "the ticket is of another store, or of an earlier opening",
            ));
        }
        self.lanes[usize::from(ticket.shard)].make_durable(ticket.seq)
    }

    /// Waits until every write of this handle is durable, in `relaxed` too. Shards are written at the
    /// same time.
    ///
    /// # Errors
    /// As [`Store::wait`].
    pub fn sync(&mut self) -> Result<()> {
        self.keep_list()?;
        let targets = self.lanes.iter_mut().map(Lane::start_sync).collect::<Result<Vec<Seq>>>()?;
        self.lanes.iter_mut().zip(targets).try_for_each(|(lane, target)| lane.make_durable(target))
    }

    /// Lends time to what goes on in the background, without waiting; gives the time after which it
    /// wants more, if it does. An idle caller needs this only when the durability is `relaxed` or
    /// writes were not waited for: so that a crash loses no more than was promised.
    ///
    /// # Errors
    /// When the device has failed.
    pub fn turn(&mut self) -> Result<Option<Duration>> {
        self.release_dropped();
        self.keep_list()?;
        let mut next = None;
        for lane in &mut self.lanes {
            lane.turn(Wait::Poll);
            lane.check_health()?;
            let wanted = lane.next_turn_in_us().map(Duration::from_micros);
            next = match (next, wanted) {
                (Some(one), Some(other)) => Some(std::cmp::min(one, other)),
                (one, other) => one.or(other),
            };
        }
        Ok(next)
    }

    fn keep_list(&mut self) -> Result<()> {
        let now_us = self.clock.now().monotonic_us;
        if now_us.saturating_sub(self.listed_us) < NOTED_EVERY.as_micros() as u64 {
            return Ok(());
        }
        self.listed_us = now_us;
        self.database.note_segments()
    }

    /// Counters and sizes of all shards together, since the store was opened.
    pub fn statistics(&self) -> EngineStatistics {
        sum(self.lanes.iter().map(|lane| lane.engine.statistics()))
    }

    /// The longest value: see [`Database::value_bytes_max`].
    pub fn value_bytes_max(&self) -> u64 {
        self.database.value_bytes_max()
    }

    /// What opening found, and what the files guarantee.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Writes what is left, seals the logs and notes that the store was closed: the next opening is
    /// quicker. Without it nothing acknowledged is lost.
    ///
    /// # Errors
    /// When the device fails, or has no space for what is left.
    pub fn close(self) -> Result<()> {
        let Store { mut lanes, database, .. } = self;
        across::shut(&mut lanes)?;
        drop(lanes);
        database.close()
    }

    /// The keyspace that a caller means.
    pub(crate) fn resolve(&self, name: KeyspaceName<'_>) -> Result<KeyspaceId> {
        resolve(&self.database.facts().map, name)
    }

    pub(crate) fn hasher(&self) -> KeyHasher {
        self.hasher
    }

    pub(crate) fn dropped(&self) -> &Dropped {
        &self.dropped
    }

    /// Releases the snapshots that were dropped.
    pub(crate) fn release_dropped(&mut self) {
        if self.abandoned.take() {
            self.lanes.iter_mut().for_each(|lane| lane.engine.end_backup());
        }
        // Taken out first: nothing below may find it borrowed.
        let dropped = std::mem::take(&mut *self.dropped.borrow_mut());
        dropped.iter().for_each(|ids| self.release(ids));
    }

    /// Where a backup says that it was dropped before its end.
    pub(crate) fn abandoned_backup(&self) -> Abandoned {
        self.abandoned.clone()
    }

    fn release(&mut self, ids: &[SnapshotId]) {
        self.lanes.iter_mut().zip(ids).for_each(|(lane, id)| lane.engine.release_snapshot(*id));
    }

    /// One page of the keys of a snapshot, and where the next one begins.
    pub(crate) fn keys_at(
        &mut self,
        snapshot: &Snapshot,
        id: KeyspaceId,
        cursor: Cursor,
        count: u32,
    ) -> Result<(KeyPage, Option<Cursor>)> {
        let shards = self.lanes.len() as u16;
        let shard = cursor.0.shard(shards);
        let of_lane = snapshot.ids_in(self)?.get(usize::from(shard)).copied();
        let found = self.lanes[usize::from(shard)].scan_page(id, cursor.0, count, of_lane)?;
        let next = cursor.after(shard, shards, found.next);
        Ok((found, next))
    }

    /// Reads `keys` at a snapshot, all shards at the same time, and gives all of them to `take`.
    pub(crate) fn read_at(
        &mut self,
        snapshot: &Snapshot,
        id: KeyspaceId,
        keys: &[&[u8]],
        mut take: impl FnMut(usize, Result<Option<Vec<u8>>>),
    ) -> Result<()> {
        let shards = self.lanes.len() as u16;
        let ids = snapshot.ids_in(self)?;
        for (piece, start) in keys.chunks(READS_AT_ONCE).zip((0..).step_by(READS_AT_ONCE)) {
            let key = |bytes| Key { keyspace: id, position: self.hasher.position(bytes), bytes };
            let keys: Vec<(usize, Key<'_>)> =
                (start..).zip(piece).map(|(place, &bytes)| (place, key(bytes))).collect();
            let mut reading = Vec::with_capacity(self.lanes.len());
            for ((lane, of_lane), shard) in self.lanes.iter_mut().zip(ids).zip(0..) {
                let own = keys.iter().copied().filter(|(_, key)| key.position.shard(shards) == shard);
                reading.push(lane.begin_at(*of_lane, own)?);
            }
            for (lane, reading) in self.lanes.iter_mut().zip(reading) {
                lane.finish_at(&reading, &mut take)?;
            }
        }
        Ok(())
    }

    pub(crate) fn parts(&mut self) -> (&mut Database, &mut [Lane<StorageDevice>]) {
        (&mut self.database, &mut self.lanes)
    }

    fn first(&mut self) -> Keyspace<'_> {
        let id = self.first;
        Keyspace::new(self, id)
    }

    pub(crate) fn len_of(&self, id: KeyspaceId) -> u64 {
        self.lanes.iter().map(|lane| lane.engine.len(id)).sum()
    }

    fn lane(&mut self, position: Position) -> (u16, &mut Lane<StorageDevice>) {
        let shard = position.shard(self.lanes.len() as u16);
        (shard, &mut self.lanes[usize::from(shard)])
    }

    pub(crate) fn shards(&self) -> u16 {
        self.lanes.len() as u16
    }

    /// Gets the pages of `snapshot` that `merge` wants, from all shards at the same time.
    pub(crate) fn fetch_ranges(&mut self, snapshot: &Snapshot, merge: &mut Merge) -> Result<()> {
        let ids = snapshot.ids_in(self)?;
        let mut begun = Vec::new();
        for (shard, mut request) in merge.wanted() {
            request.snapshot = Some(ids[usize::from(shard)]);
            begun.push((shard, self.lanes[usize::from(shard)].begin_range(request)?));
        }
        for (shard, token) in begun {
            merge.take(shard, self.lanes[usize::from(shard)].finish_range(token)?);
        }
        Ok(())
    }

    pub(crate) fn scan_page_in(&mut self, id: KeyspaceId, cursor: Cursor, count: u32) -> Result<Page> {
        let shards = self.lanes.len() as u16;
        let (shard, lane) = self.lane(cursor.0);
        let found = lane.scan_page(id, cursor.0, count.max(1), None)?;
        let mut page = Page {
            entries: Vec::new(),
            next: cursor.after(shard, shards, found.next),
            damaged: found.damaged,
        };
        let keys: Vec<&[u8]> = found.entries.iter().map(|entry| entry.key.as_slice()).collect();
        let mut values: Vec<Option<Vec<u8>>> = vec![None; keys.len()];
        self.get_many_with(id, &keys, |place, value| match value {
            Ok(value) => values[place] = Some(value.to_vec()),
            Err(error) => page.damaged = page.damaged.take().or(Some(error)),
        })?;
        for (found, value) in found.entries.into_iter().zip(values) {
            // A key that went between page and value is not shown.
            page.entries.extend(value.map(|value| Entry::new(found.key, value, found.meta.expiry_ms)));
        }
        Ok(page)
    }

    fn get_many_with(
        &mut self,
        id: KeyspaceId,
        keys: &[&[u8]],
        mut take: impl FnMut(usize, Result<&[u8]>),
    ) -> Result<()> {
        let shards = self.lanes.len() as u16;
        for (piece, start) in keys.chunks(READS_AT_ONCE).zip((0..).step_by(READS_AT_ONCE)) {
            let keys: Vec<(usize, Key<'_>)> = (start..)
                .zip(piece)
                .map(|(place, &bytes)| {
                    (place, Key { keyspace: id, position: self.hasher.position(bytes), bytes })
                })
                .collect();
            let mut fetching: Vec<Fetching<'_>> = Vec::with_capacity(self.lanes.len());
            for (lane, shard) in self.lanes.iter_mut().zip(0..) {
                let own = keys.iter().copied().filter(|(_, key)| key.position.shard(shards) == shard);
                fetching.push(lane.begin_many(own, &mut take)?);
            }
            for (lane, fetching) in self.lanes.iter_mut().zip(fetching) {
                lane.finish_many(fetching, &mut take)?;
            }
        }
        Ok(())
    }
}

fn put_of<'a>(key: Key<'a>, value: &'a [u8], expiry_ms: u64) -> Write<'a> {
    Write { key, kind: WriteKind::Put { value, expiry_ms, kind: ValueKind::STRING } }
}

fn expiry_ms(lane: &mut Lane<StorageDevice>, options: PutOptions) -> u64 {
    match options.expiry {
        Expiry::Never => 0,
        expiry => expiry.at_ms(lane.tick()),
    }
}

/// The time of the shard whose clock is ahead: that of each goes back no more, even where the system's does.
fn latest(lanes: &mut [Lane<StorageDevice>]) -> Now {
    lanes.iter_mut().fold(Now::default(), |now, lane| later(now, lane.tick()))
}

#[cfg(test)]
#[path = "local_test.rs"]
mod local_test;
