//! The shared handle: a thread a shard; callers send messages and wait for answers, or await them.
//!
//! Invariants:
//! 1. A call that has returned `Ok` for a write has made it durable, unless the durability is
//!    `relaxed`. Writes of all callers that come while a group is being written share the next one.
//! 2. No answer, of reads either, shows what a crash could take back.
//! 3. Calls of one caller that waits for each answer happen in its order. Requests under way at the
//!    same time have no order among each other.
//! 4. After the device failed a write, every call that needs the shard of that write says so until the store is opened again.
//!
//! Who owns what: each shard's thread owns its engine and its device; messages own copies of keys and
//! values. Memory: what callers have sent and not yet got an answer to; a caller that blocks has one
//! request under way, one that awaits as many as it likes.
//!
//! A crash, and a store whose last handle is dropped without [`SharedStore::close`], leave every
//! acknowledged write; the next opening then reads the ends of the logs.

mod across;
mod answer;
mod backup;
mod bulk;
mod cut;
mod gate;
mod keyspace;
mod message;
mod named;
mod opening;
mod range;
mod service;
mod shard;
pub(crate) mod sleep;
mod snapshot;
mod thread;
mod transfer;
mod waiter;

pub use answer::Answer;
pub use bulk::SharedBulkLoad;
pub use keyspace::SharedKeyspace;
pub use opening::Opening;
pub use range::{SharedRange, SharedSnapshotRange};
pub use snapshot::{SharedScan, SharedSnapshot, SharedSnapshotKeyspace, SharedSnapshotScan};

use crate::batch::{Batch, KeyspaceName, PutOptions, Until};
use crate::database::{Database, DatabaseOptions};
use crate::named::resolve;
use crate::range::KeyRange;
use crate::scan::{Cursor, Page};
use crate::statistics::sum;
use across::Across;
use answer::{Reply, closed};
use crossbeam_channel::Sender;
use message::{Message, OwnedBatch};
use opening::{Ends, Start, Turns, keep_list, spawn};
use shard::Shard;
use sleep::{Sleeper, Waker};
use std::collections::BTreeMap;
use std::future::Future;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::thread::JoinHandle;
use tierstone_base::clock::{Clock, SystemClock};
use tierstone_base::{KeyHasher, KeyspaceId, Position, Result};
use tierstone_engine::{Durability, EngineStatistics, Verification};
use tierstone_store::DatabaseMap;
use transfer::Claims;
use waiter::Caller;

/// A database that many threads and tasks use at the same time. Clones are handles of the same one.
#[derive(Clone, Debug)]
pub struct SharedStore {
    inner: Arc<Inner>,
}

/// What all handles share.
#[derive(Debug)]
struct Inner {
    mailboxes: Vec<Mailbox>,
    hasher: KeyHasher,
    /// The keyspace of database 0, which never changes.
    first: KeyspaceId,
    /// The longest value that a record takes.
    value_bytes_max: u64,
    /// A copy of the durable map, as far as every shard has learnt it.
    map: RwLock<DatabaseMap>,
    clock: SystemClock,
    running: Arc<Mutex<Option<Running>>>,
    /// Held while the messages of a cut, or of a batch over several shards, go out: they come to all
    /// shards in one order. It counts these batches.
    ordering: Mutex<u64>,
    /// Moves and compactions that are under way.
    claims: Claims,
    /// Whether a backup is under way.
    is_backed_up: AtomicBool,
    /// Bulk loads that were begun.
    loads: AtomicU64,
}

/// What ends with the store.
#[derive(Debug)]
struct Running {
    threads: Vec<JoinHandle<()>>,
    /// Shards that are shut, and whose threads have ended: a close that failed elsewhere comes again.
    shut: Vec<bool>,
    database: Database,
    /// The thread that keeps the list of segments ends when this does.
    _keeper: Sender<()>,
}

/// The way to one shard.
#[derive(Debug)]
struct Mailbox {
    sender: Sender<Message>,
    waker: Arc<Waker>,
    shard: Arc<Shard>,
}

impl Mailbox {
    /// Has a message handled, by this thread where that can be; false when the shard is gone.
    fn put(&self, message: Message, caller: &Caller) -> bool {
        let carried = match message.may_be_carried_in() {
            true => self.shard.carry_in(message, || self.sender.is_empty(), &self.waker, caller),
            false => Some(message),
        };
        let Some(message) = carried else { return true };
        let sent = self.sender.send(message).is_ok();
        if sent {
            self.waker.wake();
        }
        sent
    }
}

impl SharedStore {
    /// Opens the database in `options.directories`, or makes it, and starts a thread a shard; shards
    /// are rebuilt in parallel.
    ///
    /// # Errors
    /// `Busy`: it is open already, here or in another process. Others: see [`Database::open`].
    pub fn open(options: &DatabaseOptions) -> Result<SharedStore> {
        let (store, opening) = Self::open_serving(options)?;
        opening.wait()?;
        Ok(store)
    }

    /// The same without waiting for the shards: each serves as soon as its own index is there, and of those that wait for
    /// a processor the first to be made is one that was asked for. A call waits for the shards that it needs; a batch over
    /// several shards, a snapshot and [`SharedStore::close`] for all that take part, which hold the others up for
    /// moments meanwhile. Dropping the last handle waits for all.
    ///
    /// # Errors
    /// As [`SharedStore::open`], but for shards that cannot be made: [`Opening::wait`] tells of them, and calls that need one
    /// get `Busy`.
    pub fn open_serving(options: &DatabaseOptions) -> Result<(SharedStore, Opening)> {
        let mut database = Database::open(options)?;
        let clock = SystemClock::new();
        let relaxed = options.shard.durability == Durability::Relaxed;
        let mut inner = Inner {
            mailboxes: Vec::new(),
            hasher: database.hasher(),
            first: resolve(&database.facts().map, KeyspaceName::Number(0))?,
            value_bytes_max: database.value_bytes_max(),
            map: RwLock::new(database.facts().map.clone()),
            clock,
            running: Arc::new(Mutex::new(None)),
            ordering: Mutex::new(0),
            claims: Claims::default(),
            is_backed_up: AtomicBool::new(false),
            loads: AtomicU64::new(0),
        };
        // Reading devices is waiting, which any number may do; reading memory takes a processor.
        let turns = match database.storage().nvm() {
            Some(_) => std::thread::available_parallelism().map_or(1, NonZero::get),
            None => usize::MAX,
        };
        let turns = Arc::new(Turns::new(turns));
        let (mut threads, mut ready) = (Vec::new(), Vec::new());
        for (plan, shard) in database.take_plans().into_iter().zip(0..) {
            let (sleeper, waker) = Sleeper::new()?;
            let woken = Arc::clone(&waker);
            plan.wake_for_others(Arc::new(move || woken.wake()));
            let start = Start {
                turns: Arc::clone(&turns),
                plan,
                storage: database.storage().clone(),
                method: database.facts().durable_method,
                clock,
                relaxed,
                measure_cpu: options.measure_cpu,
                scrub_rate: options.scrub_rate(),
            };
            let (sender, mailbox) = crossbeam_channel::unbounded();
            let (reply, built) = Answer::new();
            let (serving, left) = Shard::new();
            let serving = Arc::new(serving);
            let ends = Ends { shard: Arc::clone(&serving), mailbox, left, sleeper };
            threads.push(spawn(shard, start, ends, reply)?);
            inner.mailboxes.push(Mailbox { sender, waker, shard: serving });
            ready.push(built);
        }
        let (keeper, keeps) = crossbeam_channel::bounded(0);
        inner.running = Arc::new(Mutex::new(Some(Running {
            shut: vec![false; threads.len()],
            threads,
            database,
            _keeper: keeper,
        })));
        keep_list(Arc::clone(&inner.running), keeps)?;
        Ok((SharedStore { inner: Arc::new(inner) }, Opening { ready }))
    }

    /// The numbered database `number`, for calls in it; the calls of the store itself are in number 0.
    ///
    /// # Errors
    /// `InvalidInput`: there is no such database.
    pub fn keyspace(&self, number: u32) -> Result<SharedKeyspace> {
        let id = resolve(&self.inner.map(), KeyspaceName::Number(number))?;
        Ok(SharedKeyspace::new(self.clone(), id))
    }

    /// What turns keys into positions.
    #[cfg(test)]
    pub(crate) fn hasher(&self) -> KeyHasher {
        self.inner.hasher
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// `Corrupt`: the record is damaged, or its device cannot read it; others can be read still, and the key can be written.
    /// `DeviceFailed`: a write of the shard has failed.
    /// `Busy`: the store was closed.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inner.get(Caller::Waits, self.first(), key).wait()
    }

    /// [`SharedStore::get`] for tasks. The request is sent by this call, not by the first poll; so are
    /// those of all calls below.
    pub fn get_async(&self, key: &[u8]) -> Answer<Option<Vec<u8>>> {
        self.inner.get(Caller::GoesOn, self.first(), key)
    }

    /// The values of `keys`, by their places. Cost: one message a shard; all reads of the device are
    /// one submission a shard.
    ///
    /// # Errors
    /// As [`SharedStore::get`], for the first key that fails.
    pub fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        keyspace::gather(self.inner.get_many(self.first(), keys), keys.len(), Answer::wait)
    }

    /// [`SharedStore::get_many`] for tasks.
    pub fn get_many_async(
        &self,
        keys: &[&[u8]],
    ) -> impl Future<Output = Result<Vec<Option<Vec<u8>>>>> + Send + use<> {
        keyspace::gather_async(self.inner.get_many(self.first(), keys), keys.len())
    }

    /// Puts a value. Returns when it is durable (at once when the durability is `relaxed`).
    ///
    /// # Errors
    /// Nothing was written: `InvalidInput` (key over 65,535 bytes, or a value longer than [`SharedStore::value_bytes_max`]),
    /// `NoSpace`, `NoMemory`, `Retry`. `DeviceFailed`, and `Busy` when the store is closed meanwhile:
    /// whether it was written is unknown. A device that runs out of space under the store also gives
    /// `NoSpace`: the value is then visible, and becomes durable when there is space.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_with(key, value, PutOptions::default())
    }

    /// The same with options.
    ///
    /// # Errors
    /// As [`SharedStore::put`].
    pub fn put_with(&self, key: &[u8], value: &[u8], options: PutOptions) -> Result<()> {
        self.inner.put(Caller::writes(), self.first(), (key, value), options).wait()
    }

    /// [`SharedStore::put`] for tasks.
    pub fn put_async(&self, key: &[u8], value: &[u8]) -> Answer<()> {
        self.put_with_async(key, value, PutOptions::default())
    }

    /// [`SharedStore::put_with`] for tasks.
    pub fn put_with_async(&self, key: &[u8], value: &[u8], options: PutOptions) -> Answer<()> {
        self.inner.put(Caller::GoesOn, self.first(), (key, value), options)
    }

    /// Deletes `key`; true when it had a value. Returns when that is durable.
    ///
    /// # Errors
    /// As [`SharedStore::put`]; deletes find room in a full store.
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        self.inner.delete(Caller::writes(), self.first(), key).wait()
    }

    /// [`SharedStore::delete`] for tasks.
    pub fn delete_async(&self, key: &[u8]) -> Answer<bool> {
        self.inner.delete(Caller::GoesOn, self.first(), key)
    }

    /// Applies all changes of `batch` or none, after a crash too, and returns when they are durable. Its
    /// keys may lie in several shards, which then stand still together for a moment; no snapshot shows a
    /// part of it.
    ///
    /// # Errors
    /// As [`SharedStore::put`].
    pub fn write(&self, batch: &Batch) -> Result<()> {
        self.inner.write(Caller::writes(), batch)?.wait()
    }

    /// [`SharedStore::write`] for tasks.
    pub fn write_async(&self, batch: &Batch) -> Answer<()> {
        self.inner.write(Caller::GoesOn, batch).unwrap_or_else(Answer::refused)
    }

    /// One page of a walk without a snapshot: about `count` entries from `cursor` on. A key that exists
    /// during the whole walk is given at least once.
    ///
    /// # Errors
    /// `DeviceFailed`: the store has failed. Single records that cannot be read are told in the page.
    pub fn scan_page(&self, cursor: Cursor, count: u32) -> Result<Page> {
        self.scan_page_async(cursor, count).wait()
    }

    /// [`SharedStore::scan_page`] for tasks.
    pub fn scan_page_async(&self, cursor: Cursor, count: u32) -> Answer<Page> {
        self.inner.scan_page(self.first(), cursor, count)
    }

    /// Walks all keys and values as they are when the first is asked for.
    pub fn scan(&self) -> SharedScan {
        SharedScan::new(self.clone(), self.first())
    }

    /// Walks the keys of a range and their values in the order of the keys, over all shards. It needs a
    /// database with the ordered index ([`DatabaseOptions::index`]); another gives one error
    /// (`Unsupported`) and no entry. What it shows is durable, as with every read, and that of one moment: when the
    /// first entry is asked for. Cost: that of a [snapshot](SharedStore::snapshot) while it lives;
    /// [`SharedRange::live`] walks without. Records that lie scattered are brought together, as by [`crate::Store::range`].
    ///
    /// ```
    /// use tierstone::{DatabaseOptions, IndexKind, SharedStore};
    ///
    /// # let directory = std::env::temp_dir().join(format!("tierstone-doc-ranges-{}", std::process::id()));
    /// # let _ = std::fs::remove_dir_all(&directory);
    /// let options = DatabaseOptions { index: Some(IndexKind::Ordered), shards: 2, ..DatabaseOptions::new(&directory) };
    /// let store = SharedStore::open(&options)?;
    /// for hour in 0..24u8 {
    ///     store.put(format!("2026-11-21T{hour:02}").as_bytes(), &[hour])?;
    /// }
    /// let morning = store.range("2026-11-21T06".."2026-11-21T09").collect::<Result<Vec<_>, _>>()?;
    /// assert_eq!(morning.iter().map(|entry| entry.value[0]).collect::<Vec<_>>(), [6, 7, 8]);
    /// let last = store.range(..).backward().next().unwrap()?;
    /// assert_eq!(last.value, [23]);
    /// # store.close()?;
    /// # std::fs::remove_dir_all(&directory).unwrap();
    /// # Ok::<(), tierstone::Error>(())
    /// ```
    pub fn range(&self, range: impl KeyRange) -> SharedRange {
        SharedRange::new(self.clone(), self.first(), range)
    }

    /// The longest value: see [`Database::value_bytes_max`].
    pub fn value_bytes_max(&self) -> u64 {
        self.inner.value_bytes_max
    }

    /// How many keys there are, those included that have expired and were not met since.
    ///
    /// # Errors
    /// `Busy`: the store was closed. `DeviceFailed`: it has failed.
    pub fn len(&self) -> Result<u64> {
        self.inner.len(self.first())
    }

    /// Whether there is no key.
    ///
    /// # Errors
    /// As [`SharedStore::len`].
    pub fn is_empty(&self) -> Result<bool> {
        self.len().map(|count| count == 0)
    }

    /// Waits until every write that was sent before is durable, in `relaxed` too.
    ///
    /// # Errors
    /// As [`SharedStore::put`].
    pub fn sync(&self) -> Result<()> {
        let answers = self.inner.ask_all(|reply| Message::Sync { reply });
        answers.into_iter().try_for_each(Answer::wait)
    }

    /// [`SharedStore::sync`] for tasks.
    pub fn sync_async(&self) -> impl Future<Output = Result<()>> + Send + use<> {
        let answers = self.inner.ask_all(|reply| Message::Sync { reply });
        async move {
            for answer in answers {
                answer.await?;
            }
            Ok(())
        }
    }

    /// Counters and sizes of all shards together, since the store was opened.
    ///
    /// # Errors
    /// As [`SharedStore::len`].
    pub fn statistics(&self) -> Result<EngineStatistics> {
        let answers = self.inner.ask_all(|reply| Message::Statistics { reply });
        let shards = answers.into_iter().map(Answer::wait).collect::<Result<Vec<_>>>()?;
        Ok(sum(shards.into_iter()))
    }

    /// Ends the store for all handles: what was sent before is carried out and answered, what is left is written, the
    /// logs are sealed, and the superblock notes that the store was closed. Calls that come later get
    /// `Busy`.
    ///
    /// # Errors
    /// `Busy`: it was closed before. `NoSpace`: the device has no room for what is left; writes are
    /// refused from now on, and this call may be tried again. `DeviceFailed`: the device has failed.
    pub fn close(&self) -> Result<()> {
        let running = self.inner.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut running) = running else { return Err(closed()) };
        let left: Vec<usize> = (0..running.shut.len()).filter(|shard| !running.shut[*shard]).collect();
        let close = |shard: &usize| self.inner.ask(*shard as u16, |reply| Message::Close { reply });
        let answers: Vec<Answer<()>> = left.iter().map(close).collect();
        // Every shard is waited for, whatever happened to the others.
        let mut all = Ok(());
        for (shard, answer) in left.into_iter().zip(answers) {
            let shut = answer.wait();
            running.shut[shard] = shut.is_ok();
            all = all.and(shut);
        }
        if let Err(error) = all {
            *self.inner.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
            return Err(error);
        }
        running.threads.drain(..).for_each(join);
        running.database.close()
    }

    /// Asks every shard what its verification has found.
    pub(crate) fn ask_verification(&self, begins: bool) -> Result<Vec<Option<Verification>>> {
        let answers = self.inner.ask_all(|reply| Message::Verify { begins, reply });
        answers.into_iter().map(Answer::wait).collect()
    }

    fn first(&self) -> KeyspaceId {
        self.inner.first
    }
}

impl Inner {
    fn map(&self) -> RwLockReadGuard<'_, DatabaseMap> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn shards(&self) -> u16 {
        self.mailboxes.len() as u16
    }

    /// Asks a shard for a caller that goes on.
    fn ask<T>(&self, shard: u16, message: impl FnOnce(Reply<T>) -> Message) -> Answer<T> {
        self.ask_for(Caller::GoesOn, shard, message)
    }

    /// Asks a shard; the answer is there already for a caller that waits.
    fn ask_for<T>(&self, caller: Caller, shard: u16, message: impl FnOnce(Reply<T>) -> Message) -> Answer<T> {
        let (reply, answer) = Answer::new();
        let mailbox = &self.mailboxes[usize::from(shard)];
        if !mailbox.put(message(reply), &caller) {
            return Answer::refused(closed());
        }
        let Caller::WaitsForWrite(waiter) = &caller else { return answer };
        let lead =
            || waiter.take().map(|request| mailbox.shard.lead(request, &mailbox.waker, &caller)).is_some();
        let answer = answer.wait_beside(lead);
        if let Some(request) = waiter.leave() {
            mailbox.shard.hand_on(request, &mailbox.waker);
        }
        answer
    }

    /// Sends a message that has no answer; a shard that is gone needs none.
    fn tell(&self, shard: u16, message: Message) {
        // When the store is being dropped its mailboxes are gone first.
        if let Some(mailbox) = self.mailboxes.get(usize::from(shard)) {
            mailbox.put(message, &Caller::GoesOn);
        }
    }

    fn ask_all<T>(&self, message: impl Fn(Reply<T>) -> Message) -> Vec<Answer<T>> {
        (0..self.shards()).map(|shard| self.ask(shard, &message)).collect()
    }

    /// Sends a batch to its shard, or its parts to theirs.
    fn write(&self, caller: Caller, batch: &Batch) -> Result<Answer<()>> {
        // Once for all changes: those that last as long go at the same time.
        let now = self.clock.now();
        let mut places = Vec::with_capacity(batch.len());
        {
            let map = self.map();
            for change in batch.changes() {
                let keyspace = resolve(&map, change.keyspace)?;
                let until = change.put.map_or(Until::Never, |(_, expiry)| Until::of(expiry, || now));
                places.push((keyspace, self.hasher.position(change.key), until));
            }
        }
        let of_shard = |&(_, position, _): &(KeyspaceId, Position, Until)| position.shard(self.shards());
        let first = places.first().map_or(0, of_shard);
        if places.iter().all(|place| of_shard(place) == first) {
            let batch = OwnedBatch { batch: batch.clone(), places };
            return Ok(self.ask_for(caller, first, |reply| Message::Write { batch, reply }));
        }
        let mut parts: BTreeMap<u16, OwnedBatch> = BTreeMap::new();
        for (change, place) in batch.changes().zip(places) {
            let part = parts.entry(of_shard(&place)).or_default();
            match change.put {
                Some((value, _)) => part.batch.put(change.key, value),
                None => part.batch.delete(change.key),
            };
            part.places.push(place);
        }
        let wakers = parts.keys().map(|&shard| Arc::clone(&self.mailboxes[usize::from(shard)].waker));
        let (reply, answer) = Answer::new();
        let wakers = wakers.collect();
        let mut batches = self.ordering.lock().unwrap_or_else(PoisonError::into_inner);
        *batches += 1;
        let seats = Across::seats(*batches, wakers, reply);
        for ((shard, batch), seat) in parts.into_iter().zip(seats) {
            // Where a shard is gone, its seat refuses the batch.
            self.tell(shard, Message::Part { batch, seat });
        }
        Ok(answer)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for Mailbox { sender, waker, .. } in std::mem::take(&mut self.mailboxes) {
            drop(sender);
            waker.wake();
        }
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Running { threads, .. }) = running {
            threads.into_iter().for_each(join);
        }
    }
}

/// Waits for the end of a thread, unless it is this one: an answer's task may own the last handle.
fn join(thread: JoinHandle<()>) {
    if thread.thread().id() != std::thread::current().id() {
        // Its callers have seen that it is gone.
        let _ = thread.join();
    }
}
