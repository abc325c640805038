//! The order of a move, whatever the handles of its two ends: what is asked of which shard, and when.
//!
//! An [`End`] is all shards of one open store. Those of a local handle are driven by the calling thread, and what is asked
//! of them is done when the call returns; those of a shared handle answer messages. So the functions here are `async`, and
//! with local ends they never wait.
//!
//! Invariants:
//! 1. The target has everything durably before the source deletes anything.
//! 2. Records of one key are written in the order in which the source gave them: what a step took is written
//!    before the next step takes.
//! 3. A step takes at most [`STEP_BYTES`] and [`STEP_RECORDS`] from a shard, so that others are served in between.
//! 4. Whoever gives up, or drops the future, leaves the ends to end what was begun there: see [`End`].

use super::{MovePhase, MoveProgress, MoveReport};
use crate::batch::KeyspaceName;
use crate::engine::DatabaseShard;
use crate::named::resolve;
use std::future::Future;
use std::time::Duration;
use tierstone_base::collections::Set;
use tierstone_base::{KeyHasher, KeyspaceId, Position, Result};
use tierstone_engine::IndexKind;
use tierstone_logstore::LogShard;
use tierstone_logstore::compact::CompactProgress;
use tierstone_logstore::transfer::{MovedRecord, SplitProgress};
use tierstone_store::{DatabaseMap, NamedKeyspace};

/// Bytes that a step takes from a shard. Taking and writing them takes about 100 µs; the design allows 200 µs between
/// other work.
pub(crate) const STEP_BYTES: usize = 32 << 10;
/// Records that a step takes from a shard, for small ones cost as much; they are written as one.
pub(crate) const STEP_RECORDS: usize = 64;

/// Until when records are taken from a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// A lock would be short.
    CaughtUp,
    /// Under the lock: everything was taken.
    Drained,
    /// Nothing of the range is left.
    Dropped,
}

impl Until {
    /// Whether a shard has come so far.
    pub fn is_reached(self, progress: &SplitProgress) -> bool {
        match self {
            Until::CaughtUp => progress.caught_up,
            Until::Drained => progress.drained,
            Until::Dropped => progress.dropped,
        }
    }
}

/// What shards have to say of a move, together.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub records: Vec<MovedRecord>,
    pub sum: SplitProgress,
    /// Whether all have come as far as was asked.
    pub is_reached: bool,
}

/// All shards of one store. What was begun on them ends with the value, done or not.
pub(crate) trait End {
    fn shards(&self) -> u16;
    fn hasher(&self) -> KeyHasher;
    fn now_us(&mut self) -> u64;
    /// Finds a keyspace with a name, or makes it durably.
    async fn open_keyspace(&mut self, name: &str, index: IndexKind) -> Result<()>;
    /// Shows the store's keyspaces.
    fn with_map<R>(&self, look: impl FnOnce(&DatabaseMap) -> R) -> R;

    /// Begins something on all shards, or on none.
    async fn begin(&mut self, work: Work) -> Result<()>;
    /// Does something to the split of each shard.
    async fn change_split(&mut self, change: fn(&mut LogShard) -> Result<()>) -> Result<()>;
    /// Lets the shards work, and takes a step's records from them. Waits until there is something to say.
    async fn take(&mut self, until: Until) -> Result<Taken>;
    /// Writes records, of each shard its own.
    async fn ingest(&mut self, of_shard: Vec<Vec<MovedRecord>>) -> Result<()>;
    /// Goes on to make all that was written durable; true when it is.
    async fn sync_some(&mut self) -> Result<bool>;
    /// Lets the shards compact, and says how far they are. Waits until there is something to say.
    async fn compact_some(&mut self) -> Result<CompactProgress>;
}

/// What is begun on an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Split((Position, Position)),
    Merge((Position, Position)),
    Compact,
}

impl Work {
    /// Begins it on one shard.
    pub fn begin(self, engine: &mut DatabaseShard) -> Result<()> {
        match self {
            Work::Split(range) => engine.log()?.begin_split(range),
            Work::Merge(range) => engine.log()?.begin_merge(range),
            Work::Compact => engine.log()?.begin_compact(),
        }
    }

    /// Ends it on one shard; nothing happens where it was not begun.
    pub fn end(self, engine: &mut DatabaseShard) {
        let Ok(engine) = engine.log() else { return };
        match self {
            Work::Split(_) => engine.end_split(),
            Work::Merge(_) => engine.end_merge(),
            Work::Compact => engine.end_compact(),
        }
    }
}

/// A step's records of one shard, and how far its split is.
///
/// # Errors
/// See [`LogShard::split_progress`].
pub(crate) fn take_step(engine: &mut DatabaseShard, records: &mut Vec<MovedRecord>) -> Result<SplitProgress> {
    let engine = engine.log()?;
    engine.take_moved(STEP_BYTES, STEP_RECORDS, records);
    engine.split_progress()
}

/// Adds what one shard says.
pub(crate) fn add(sum: &mut SplitProgress, progress: &SplitProgress) {
    sum.segments_total += progress.segments_total;
    sum.segments_left += progress.segments_left;
    sum.changed_keys += progress.changed_keys;
    sum.records += progress.records;
    sum.bytes += progress.bytes;
}

fn progress_of(phase: MovePhase, sum: &SplitProgress) -> MoveProgress {
    MoveProgress {
        phase,
        segments_total: sum.segments_total,
        segments_left: sum.segments_left,
        changed_keys: sum.changed_keys,
        records: sum.records,
        bytes: sum.bytes,
    }
}

/// Moves `range` from `source` to `target`.
pub(crate) async fn split<S: End, T: End>(
    source: &mut S,
    target: &mut T,
    range: (Position, Position),
    mut between: impl FnMut(&mut S, &mut T, &MoveProgress),
) -> Result<MoveReport> {
    source.begin(Work::Split(range)).await?;
    target.begin(Work::Merge(range)).await?;
    let mut paired = Paired(source.with_map(|own| own.names().map(|(_, named)| named.id).collect()));
    // What went over before the lock is durable before it: the lock waits for the last changes only.
    for synced in [false, true] {
        while synced && !target.sync_some().await? {
            let progress = source.take(Until::CaughtUp).await?;
            ingest(source, target, &mut paired, progress.records).await?;
            between(source, target, &progress_of(MovePhase::Copying, &progress.sum));
        }
        loop {
            let Taken { records, sum, is_reached } = source.take(Until::CaughtUp).await?;
            ingest(source, target, &mut paired, records).await?;
            if is_reached {
                break;
            }
            between(source, target, &progress_of(MovePhase::Copying, &sum));
        }
    }
    let locked_us = source.now_us();
    source.change_split(LogShard::lock_split).await?;
    let handed = loop {
        let Taken { records, sum, is_reached } = source.take(Until::Drained).await?;
        ingest(source, target, &mut paired, records).await?;
        if is_reached {
            break progress_of(MovePhase::HandedOver, &sum);
        }
    };
    while !target.sync_some().await? {}
    let lock = Duration::from_micros(source.now_us() - locked_us);
    between(source, target, &handed);
    source.change_split(LogShard::drop_split).await?;
    loop {
        let Taken { sum, is_reached, .. } = source.take(Until::Dropped).await?;
        if is_reached {
            return Ok(MoveReport { records: handed.records, bytes: handed.bytes, lock });
        }
        between(source, target, &progress_of(MovePhase::Dropping, &sum));
    }
}

/// Deletes `range` at `source`.
pub(crate) async fn drop_range<S: End>(source: &mut S, range: (Position, Position)) -> Result<()> {
    source.begin(Work::Split(range)).await?;
    source.change_split(LogShard::lock_split).await?;
    // What is met on the way is void.
    while !source.take(Until::Drained).await?.is_reached {}
    source.change_split(LogShard::drop_split).await?;
    while !source.take(Until::Dropped).await?.is_reached {}
    Ok(())
}

/// Compacts all shards of `store`.
pub(crate) async fn compact<S: End>(
    store: &mut S,
    mut between: impl FnMut(&mut S, &CompactProgress),
) -> Result<()> {
    store.begin(Work::Compact).await?;
    loop {
        let progress = store.compact_some().await?;
        between(store, &progress);
        if progress.segments_left == 0 {
            break;
        }
    }
    while !store.sync_some().await? {}
    Ok(())
}

/// Keyspaces with names of the source that have had one in the target: where that is missing now, it was dropped there.
struct Paired(Set<KeyspaceId>);

impl Paired {
    /// Makes those in the target that were made in the source since the last time.
    async fn adopt<S: End, T: End>(&mut self, source: &S, target: &mut T) -> Result<()> {
        let is_new = |named: &NamedKeyspace| !self.0.contains(&named.id);
        let new: Vec<(String, NamedKeyspace)> = source.with_map(|own| {
            own.names()
                .filter(|(_, named)| is_new(named))
                .map(|(name, named)| (name.to_owned(), named))
                .collect()
        });
        for (name, named) in new {
            target.open_keyspace(&name, named.index).await?;
            self.0.insert(named.id);
        }
        Ok(())
    }
}

/// The source's keyspaces in order, with the target's that have their numbers or names. Stores number
/// keyspaces by themselves; records of keyspaces that are gone are not among them, and stay.
fn counterparts(own: &DatabaseMap, others: &DatabaseMap) -> Result<Vec<(KeyspaceId, KeyspaceId)>> {
    let mut pairs = Vec::new();
    for (&id, number) in own.keyspaces().iter().zip(0..) {
        pairs.push((id, resolve(others, KeyspaceName::Number(number))?));
    }
    for (name, named) in own.names() {
        pairs.push((named.id, resolve(others, KeyspaceName::Name(name))?));
    }
    pairs.sort_unstable();
    Ok(pairs)
}

/// Writes `records` of the source to the target.
async fn ingest<S: End, T: End>(
    source: &S,
    target: &mut T,
    paired: &mut Paired,
    records: Vec<MovedRecord>,
) -> Result<()> {
    if records.is_empty() {
        return Ok(());
    }
    paired.adopt(source, target).await?;
    let shards = target.shards();
    let hasher = target.hasher();
    let counterparts = source.with_map(|own| target.with_map(|others| counterparts(own, others)))?;
    let mut of_shard: Vec<Vec<MovedRecord>> = Vec::new();
    of_shard.resize_with(usize::from(shards), Vec::new);
    for mut record in records {
        let known = counterparts.binary_search_by_key(&record.keyspace, |(id, _)| *id);
        let Ok(place) = known else { continue };
        record.keyspace = counterparts[place].1;
        let shard = hasher.position(&record.key).shard(shards);
        of_shard[usize::from(shard)].push(record);
    }
    target.ingest(of_shard).await
}

/// What a future of local ends gives, which is done when it is first asked.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => unreachable!("local ends wait by themselves"),
    }
}
