//! Split, Merge and Compact of shared handles: the order is that of [`crate::transfer`], and what is asked of a
//! shard goes to its thread as a message. Everybody else is served in between.
//!
//! Invariants:
//! 1. One split, one merge and one compaction at a time a store: whoever begins one holds a claim, and no other
//!    handle's is ended by mistake.
//! 2. A future that is dropped drops its claims, and they end what was begun on every shard.

use super::answer::block_on;
use super::message::Message;
use super::{Answer, Inner, SharedStore};
use crate::named::{KeyspaceInfo, KeyspaceOptions};
use crate::transfer::drive::{self, End, STEP_RECORDS, Taken, Until, Work, add};
use crate::transfer::{MoveProgress, MoveReport, chunks_cannot_move, databases_suffice, positions};
use std::future::Future;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tierstone_base::clock::Clock;
use tierstone_base::position::SLOT_COUNT;
use tierstone_base::{Error, ErrorKind, KeyHasher, Result};
use tierstone_engine::IndexKind;
use tierstone_logstore::LogShard;
use tierstone_logstore::compact::CompactProgress;
use tierstone_logstore::transfer::{MovedRecord, SplitProgress};
use tierstone_store::DatabaseMap;

/// What is asked of one shard.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    Begin(Work),
    Change(fn(&mut LogShard) -> Result<()>),
    /// A step's records; answered when there are some, or something else than `seen` is to be told.
    Take {
        until: Until,
        seen: SplitProgress,
    },
    /// How far a compaction is; answered when it is further than `seen`.
    Compact {
        seen: CompactProgress,
    },
}

/// What one shard says.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub records: Vec<MovedRecord>,
    pub split: SplitProgress,
    pub compact: CompactProgress,
}

/// What is under way on a store.
#[derive(Debug, Default)]
pub(super) struct Claims {
    split: AtomicBool,
    merge: AtomicBool,
    compact: AtomicBool,
}

impl Claims {
    fn of(&self, work: Work) -> &AtomicBool {
        match work {
            Work::Split(_) => &self.split,
            Work::Merge(_) => &self.merge,
            Work::Compact => &self.compact,
        }
    }
}

/// The right to begin some work on a store, and the duty to end it.
#[derive(Debug)]
struct Claim {
    inner: Arc<Inner>,
    work: Work,
}

impl Claim {
    fn new(inner: &Arc<Inner>, work: Work) -> Result<Claim> {
        if inner.claims.of(work).swap(true, Ordering::AcqRel) {
            let what = match work {
                Work::Split(_) => "a split is under way",
                Work::Merge(_) => "a merge is under way",
                Work::Compact => "a compaction is under way",
            };
            return Err(Error::new(ErrorKind::Busy, what));
        }
        Ok(Claim { inner: Arc::clone(inner), work })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        for shard in 0..self.inner.shards() {
            self.inner.tell(shard, Message::EndWork { work: self.work });
        }
        // Only now: whoever claims it next sends its messages after these.
        self.inner.claims.of(self.work).store(false, Ordering::Release);
    }
}

/// All shards of a shared handle.
struct SharedEnd {
    inner: Arc<Inner>,
    begun: Vec<Claim>,
    /// What each shard said last.
    splits: Vec<SplitProgress>,
    compactions: Vec<CompactProgress>,
}

impl SharedEnd {
    fn new(store: &SharedStore) -> Self {
        let inner = Arc::clone(&store.inner);
        let shards = usize::from(inner.shards());
        let (splits, compactions) = (vec![Default::default(); shards], vec![Default::default(); shards]);
        SharedEnd { inner, begun: Vec::new(), splits, compactions }
    }

    /// Asks each shard; their answers in order.
    async fn ask(&self, ask: impl Fn(usize) -> Ask) -> Result<Vec<Told>> {
        let send = |shard: u16| {
            let ask = ask(usize::from(shard));
            self.inner.ask(shard, |reply| Message::Work { ask, reply })
        };
        all((0..self.inner.shards()).map(send).collect()).await
    }
}

async fn all<T>(answers: Vec<Answer<T>>) -> Result<Vec<T>> {
    let mut told = Vec::with_capacity(answers.len());
    for answer in answers {
        told.push(answer.await?);
    }
    Ok(told)
}

impl End for SharedEnd {
    fn shards(&self) -> u16 {
        self.inner.shards()
    }

    fn hasher(&self) -> KeyHasher {
        self.inner.hasher
    }

    fn now_us(&mut self) -> u64 {
        self.inner.clock.now().monotonic_us
    }

    /// Blocks for the durable write.
    async fn open_keyspace(&mut self, name: &str, index: IndexKind) -> Result<()> {
        let options = KeyspaceOptions { index: Some(index), ..KeyspaceOptions::default() };
        SharedStore { inner: Arc::clone(&self.inner) }.open_keyspace(name, options).map(drop)
    }

    fn with_map<R>(&self, look: impl FnOnce(&DatabaseMap) -> R) -> R {
        look(&self.inner.map())
    }

    async fn begin(&mut self, work: Work) -> Result<()> {
        self.begun.push(Claim::new(&self.inner, work)?);
        self.ask(|_| Ask::Begin(work)).await.map(drop)
    }

    async fn change_split(&mut self, change: fn(&mut LogShard) -> Result<()>) -> Result<()> {
        self.ask(|_| Ask::Change(change)).await.map(drop)
    }

    async fn take(&mut self, until: Until) -> Result<Taken> {
        let told = self.ask(|shard| Ask::Take { until, seen: self.splits[shard] }).await?;
        let mut taken = Taken { is_reached: true, ..Taken::default() };
        for (Told { records, split, .. }, seen) in told.into_iter().zip(&mut self.splits) {
            taken.is_reached &= until.is_reached(&split);
            add(&mut taken.sum, &split);
            *seen = split;
            taken.records.extend(records);
        }
        Ok(taken)
    }

    async fn ingest(&mut self, of_shard: Vec<Vec<MovedRecord>>) -> Result<()> {
        let mut answers = Vec::new();
        for (records, shard) in of_shard.into_iter().zip(0..) {
            let mut records = records.into_iter().peekable();
            // Others' messages come between those of one step.
            while records.peek().is_some() {
                let records = records.by_ref().take(STEP_RECORDS).collect();
                answers.push(self.inner.ask(shard, |reply| Message::Ingest { records, reply }));
            }
        }
        all(answers).await.map(drop)
    }

    async fn sync_some(&mut self) -> Result<bool> {
        all(self.inner.ask_all(|reply| Message::Sync { reply })).await.map(|_| true)
    }

    async fn compact_some(&mut self) -> Result<CompactProgress> {
        let told = self.ask(|shard| Ask::Compact { seen: self.compactions[shard] }).await?;
        let mut sum = CompactProgress::default();
        for (Told { compact, .. }, seen) in told.into_iter().zip(&mut self.compactions) {
            sum.segments_total += compact.segments_total;
            sum.segments_left += compact.segments_left;
            *seen = compact;
        }
        Ok(sum)
    }
}

impl SharedStore {
    /// Moves all keys of `slots` (Redis Cluster slots, 0 to 16383) of all databases to `target`, while others read
    /// and write both. Writes to the slots here, up to the hand-over, go over too; of keys that were written in both,
    /// the target's write wins. Keyspaces with names that are made here meanwhile are made there. `progress` is told now and
    /// then.
    ///
    /// Writes to the slots wait here while the last changes go over; those that come after
    /// [`MovePhase::HandedOver`](crate::MovePhase::HandedOver) was told, and before this returns, give `Unsupported` and
    /// belong to the target. So note the move in `progress` then, and send what is sent later to the target: once this
    /// has returned, the slots take writes here again. Reads find a key here, or else in the target.
    ///
    /// Returns when the target has all of it, durably, and nothing of it is left here. If the process ends
    /// after the hand-over and before that, the target has everything, and what is left here is to be
    /// dropped with [`SharedStore::drop_slots`].
    ///
    /// Cost: as [`Store::split_to`](crate::Store::split_to); each shard works on it in steps of at most 32 KiB or 64
    /// records, between its callers' requests.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use tierstone::{DatabaseOptions, MovePhase, SharedStore};
    ///
    /// # let directory = std::env::temp_dir().join(format!("tierstone-doc-shared-split-{}", std::process::id()));
    /// # let _ = std::fs::remove_dir_all(&directory);
    /// let source = SharedStore::open(&DatabaseOptions::new(directory.join("source")))?;
    /// let target = SharedStore::open(&DatabaseOptions::new(directory.join("target")))?;
    /// for number in 0..1_000u32 {
    ///     source.put(&number.to_be_bytes(), b"value")?;
    /// }
    /// let has_moved = AtomicBool::new(false);
    /// std::thread::scope(|scope| {
    ///     // Others go on: they find a key in the source, or else in the target.
    ///     scope.spawn(|| {
    ///         while !has_moved.load(Ordering::Relaxed) {
    ///             let key = 7u32.to_be_bytes();
    ///             assert!(source.get(&key).unwrap().or(target.get(&key).unwrap()).is_some());
    ///         }
    ///     });
    ///     let moved = source.split_to(&target, 8_192..=16_383, |progress| {
    ///         if progress.phase == MovePhase::HandedOver {
    ///             // Here a program notes, durably, that the slots are the target's now.
    ///         }
    ///     });
    ///     has_moved.store(true, Ordering::Relaxed);
    ///     moved
    /// })?;
    /// assert!(source.len()? > 0 && target.len()? > 0);
    /// assert_eq!(source.len()? + target.len()?, 1_000);
    /// # source.close()?;
    /// # target.close()?;
    /// # std::fs::remove_dir_all(&directory).unwrap();
    /// # Ok::<(), tierstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// `InvalidInput`: no such slots, `target` has fewer databases, or is this store. Others: as
    /// [`Store::split_to`](crate::Store::split_to); what they leave, too.
    pub fn split_to(
        &self,
        target: &SharedStore,
        slots: RangeInclusive<u16>,
        progress: impl FnMut(&MoveProgress),
    ) -> Result<MoveReport> {
        target.adopt_keyspaces(self)?;
        block_on(split(SharedEnd::new(self), SharedEnd::new(target), slots, progress))
    }

    /// [`SharedStore::split_to`] for tasks. It begins with the first poll. Dropped before the hand-over was told, it
    /// gives the move up: this store is as if nothing had happened, and what the target got of the slots is void
    /// ([`SharedStore::drop_slots`] of the target takes it away). Dropped later, the slots are the target's, and the rest
    /// here is to be dropped.
    ///
    /// This call itself makes the keyspaces with names that the target lacks: it blocks for one durable write each. So does
    /// the poll that meets a key of one that was made here later.
    pub fn split_to_async<P: FnMut(&MoveProgress) + Send>(
        &self,
        target: &SharedStore,
        slots: RangeInclusive<u16>,
        progress: P,
    ) -> impl Future<Output = Result<MoveReport>> + Send + use<P> {
        let adopted = target.adopt_keyspaces(self);
        let (source, target) = (SharedEnd::new(self), SharedEnd::new(target));
        async move {
            adopted?;
            split(source, target, slots, progress).await
        }
    }

    /// Takes all keys of `source` in; `source` is empty afterwards. Otherwise as [`SharedStore::split_to`].
    ///
    /// # Errors
    /// As there.
    pub fn merge_from(
        &self,
        source: &SharedStore,
        progress: impl FnMut(&MoveProgress),
    ) -> Result<MoveReport> {
        source.split_to(self, 0..=SLOT_COUNT - 1, progress)
    }

    /// [`SharedStore::merge_from`] for tasks; see [`SharedStore::split_to_async`].
    pub fn merge_from_async<P: FnMut(&MoveProgress) + Send>(
        &self,
        source: &SharedStore,
        progress: P,
    ) -> impl Future<Output = Result<MoveReport>> + Send + use<P> {
        source.split_to_async(self, 0..=SLOT_COUNT - 1, progress)
    }

    /// Deletes all keys of `slots` in all databases, durably: see [`Store::drop_slots`](crate::Store::drop_slots).
    ///
    /// # Errors
    /// As there.
    pub fn drop_slots(&self, slots: RangeInclusive<u16>) -> Result<()> {
        block_on(self.drop_slots_async(slots))
    }

    /// [`SharedStore::drop_slots`] for tasks. It begins with the first poll; dropped, it leaves the rest.
    pub fn drop_slots_async(
        &self,
        slots: RangeInclusive<u16>,
    ) -> impl Future<Output = Result<()>> + Send + use<> {
        let mut end = SharedEnd::new(self);
        async move { drive::drop_range(&mut end, positions(&slots)?).await }
    }

    /// Rewrites everything that is not dense, while others use the store: see
    /// [`Store::compact`](crate::Store::compact). `progress` is told now and then.
    ///
    /// # Errors
    /// As there; `Busy` also when the store was closed.
    pub fn compact(&self, progress: impl FnMut(&CompactProgress)) -> Result<()> {
        block_on(compact(SharedEnd::new(self), progress))
    }

    /// [`SharedStore::compact`] for tasks. It begins with the first poll. Dropped, it leaves the rest as it is, and what was
    /// compacted stays so.
    pub fn compact_async<P: FnMut(&CompactProgress) + Send>(
        &self,
        progress: P,
    ) -> impl Future<Output = Result<()>> + Send + use<P> {
        compact(SharedEnd::new(self), progress)
    }

    /// Makes the keyspaces with names that `source` has and this store has not.
    fn adopt_keyspaces(&self, source: &SharedStore) -> Result<()> {
        if Arc::ptr_eq(&self.inner, &source.inner) {
            return Err(Error::new(ErrorKind::InvalidInput, "the source and the target are one store"));
        }
        let databases = |store: &SharedStore| store.inner.map().databases();
        databases_suffice(databases(self), databases(source))?;
        for (store, which) in [(source, "source"), (self, "target")] {
            let ids = store.inner.map().keyspaces().to_vec();
            for id in ids {
                chunks_cannot_move(store.inner.len(id.chunks())?, which)?;
            }
        }
        for KeyspaceInfo { name, index } in source.keyspaces() {
            self.open_keyspace(&name, KeyspaceOptions { index: Some(index), ..KeyspaceOptions::default() })?;
        }
        Ok(())
    }
}

async fn split(
    mut source: SharedEnd,
    mut target: SharedEnd,
    slots: RangeInclusive<u16>,
    mut progress: impl FnMut(&MoveProgress),
) -> Result<MoveReport> {
    drive::split(&mut source, &mut target, positions(&slots)?, |_, _, told| progress(told)).await
}

async fn compact(mut end: SharedEnd, mut progress: impl FnMut(&CompactProgress)) -> Result<()> {
    drive::compact(&mut end, |_, told| progress(told)).await
}
