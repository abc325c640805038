//! The engine of a shard, by what the store lies on: one type for all handles and for the server.
//!
//! Cost: a comparison a call. What an engine has not, it refuses in words.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use tierstone_base::{
    CpuClock, Error, ErrorKind, KeyHasher, KeyspaceId, Now, Position, Result, Seq, ShardId, Token,
};
use tierstone_engine::{
    Admission, BackupCut, BackupSince, BackupStep, BatchTicket, Durability, Engine, EngineStatistics, Event,
    Eviction, Health, Housekeeping, IndexKind, Key, Lookup, PreparedPart, RangeRequest, ScanRequest,
    SnapshotId, ValueKind, Verification, Write, WriteReceipt,
};
use tierstone_logstore::{
    BuildReport, Inventory, LogShard, OpenReport, OpenedStore, PutOff, ShardPlan, SuperblockWriter,
};
use tierstone_media::{BlockDevice, IoCompletion, IoRequest};
use tierstone_pmstore::PmShard;

/// One shard of a database.
#[derive(Debug)]
pub enum DatabaseShard {
    /// On files or a volume: the index+log engine of [`tierstone_logstore`].
    Log(Box<LogShard>),
    /// In a region: the engine of [`tierstone_pmstore`].
    Memory(Box<MemoryShard>),
}

/// A shard in persistent memory, and what the store knows of it.
#[derive(Debug)]
pub struct MemoryShard {
    engine: PmShard,
    shards: u16,
    hasher: KeyHasher,
}

impl Deref for MemoryShard {
    type Target = PmShard;

    fn deref(&self) -> &PmShard {
        &self.engine
    }
}

impl DerefMut for MemoryShard {
    fn deref_mut(&mut self) -> &mut PmShard {
        &mut self.engine
    }
}

/// A shard of a database that has not been built.
#[derive(Debug)]
pub enum DatabasePlan {
    /// On files or a volume.
    Log(Box<ShardPlan>),
    /// In a region; of so many shards.
    Memory(Box<tierstone_pmstore::ShardPlan>, u16, KeyHasher),
}

/// An opened database before its shards are built.
#[derive(Debug)]
pub struct OpenedEngines {
    /// Writes the superblock.
    pub superblock: SuperblockWriter,
    /// One for each shard.
    pub plans: Vec<DatabasePlan>,
    /// What was found.
    pub report: OpenReport,
    /// Gives keys their positions.
    pub hasher: KeyHasher,
    /// The longest value that a record holds, in bytes; `None`: as the device's segments say.
    pub value_bytes_max: Option<u64>,
    /// Which segments hold records, for the superblock's list; `None`: it has none.
    pub inventory: Option<Arc<Inventory>>,
}

impl From<OpenedStore> for OpenedEngines {
    fn from(opened: OpenedStore) -> Self {
        let OpenedStore { superblock, plans, report, hasher, inventory } = opened;
        OpenedEngines {
            superblock,
            plans: plans.into_iter().map(|plan| DatabasePlan::Log(Box::new(plan))).collect(),
            report,
            hasher,
            value_bytes_max: None,
            inventory: Some(inventory),
        }
    }
}

impl DatabasePlan {
    /// Which shard.
    pub fn shard(&self) -> ShardId {
        match self {
            DatabasePlan::Log(plan) => plan.shard(),
            DatabasePlan::Memory(plan, ..) => plan.shard(),
        }
    }

    /// See [`ShardPlan::wake_for_others`].
    pub fn wake_for_others(&self, wake: Arc<dyn Fn() + Send + Sync>) {
        match self {
            DatabasePlan::Log(plan) => plan.wake_for_others(wake),
            // Memory does not move between these shards.
            DatabasePlan::Memory(..) => drop(wake),
        }
    }

    pub(crate) fn durable_writes_flush(&mut self) {
        match self {
            DatabasePlan::Log(plan) => plan.durable_writes_flush(),
            DatabasePlan::Memory(..) => {}
        }
    }

    /// Builds the shard: its index is made from what `device`, or the region, holds.
    ///
    /// # Errors
    /// As [`ShardPlan::build`] and [`tierstone_pmstore::ShardPlan::build`].
    pub fn build(self, device: &mut dyn BlockDevice) -> Result<(DatabaseShard, BuildReport)> {
        match self {
            DatabasePlan::Log(plan) => {
                let (shard, report) = plan.build(device)?;
                Ok((DatabaseShard::Log(Box::new(shard)), report))
            }
            DatabasePlan::Memory(plan, shards, hasher) => {
                let (engine, found) = plan.build()?;
                let report = BuildReport {
                    records: found.records + found.replayed,
                    live: found.live,
                    damaged_records: found.damaged,
                    lost_bytes: found.lost_bytes,
                    ..BuildReport::default()
                };
                Ok((DatabaseShard::Memory(Box::new(MemoryShard { engine, shards, hasher })), report))
            }
        }
    }
}

/// Calls the same on whichever engine it is.
macro_rules! each {
    ($shard:expr, $engine:ident => $call:expr) => {
        match $shard {
            DatabaseShard::Log($engine) => $call,
            DatabaseShard::Memory($engine) => $call,
        }
    };
}

/// What only the index+log engine on devices has.
impl DatabaseShard {
    /// Which shard it is, of how many.
    pub(crate) fn place(&self) -> (ShardId, u16) {
        match self {
            DatabaseShard::Log(shard) => (shard.identity().shard, shard.identity().shard_count),
            DatabaseShard::Memory(memory) => (memory.shard(), memory.shards),
        }
    }

    /// Gives keys their positions.
    pub(crate) fn hasher(&self) -> KeyHasher {
        match self {
            DatabaseShard::Log(shard) => shard.identity().hasher,
            DatabaseShard::Memory(memory) => memory.hasher,
        }
    }

    /// See [`LogShard::has_parts`].
    pub(crate) fn has_parts(&self) -> bool {
        match self {
            DatabaseShard::Log(shard) => shard.has_parts(),
            DatabaseShard::Memory(memory) => memory.has_parts(),
        }
    }

    /// See [`LogShard::past_gate`].
    pub(crate) fn past_gate(&self) -> Seq {
        match self {
            DatabaseShard::Log(shard) => shard.past_gate(),
            // A fence away: what was written beside it is waited for, too.
            DatabaseShard::Memory(memory) => memory.applied_seq(),
        }
    }

    /// See [`LogShard::load_put_off`].
    pub(crate) fn load_put_off(&mut self, now: Now, put: &Write<'_>) -> Result<()> {
        match self {
            DatabaseShard::Log(shard) => shard.load_put_off(now, put),
            DatabaseShard::Memory(memory) => memory.write(now, std::slice::from_ref(put)).map(drop),
        }
    }

    /// See [`LogShard::load`].
    pub(crate) fn load(&mut self, now: Now, puts: &[Write<'_>], put_off: &mut PutOff) -> Result<usize> {
        match self {
            DatabaseShard::Log(shard) => shard.load(now, puts, put_off),
            // Nothing has to be read first, and nobody waits: one after the other is as quick.
            DatabaseShard::Memory(memory) => {
                for (place, put) in puts.chunks(1).enumerate() {
                    match memory.write(now, put) {
                        Ok(_) => {}
                        Err(error) if place == 0 => return Err(error),
                        Err(_) => return Ok(place),
                    }
                }
                Ok(puts.len())
            }
        }
    }

    /// See [`LogShard::check_not_moved`].
    pub(crate) fn check_not_moved(&self, position: Position) -> Result<()> {
        match self {
            DatabaseShard::Log(shard) => shard.check_not_moved(position),
            DatabaseShard::Memory(_) => Ok(()),
        }
    }

    /// The engine that splits, merges and compacts.
    ///
    /// # Errors
    /// `Unsupported`: this one does not.
    pub(crate) fn log(&mut self) -> Result<&mut LogShard> {
        match self {
            DatabaseShard::Log(shard) => Ok(shard),
            DatabaseShard::Memory(_) => {
                let message = "stores in persistent memory do not split, merge or compact";
                Err(Error::new(ErrorKind::Unsupported, message))
            }
        }
    }
}

impl Engine for DatabaseShard {
    fn lookup(&mut self, now: Now, key: Key<'_>) -> Lookup<'_> {
        each!(self, engine => engine.lookup(now, key))
    }

    fn peek(&mut self, now: Now, key: Key<'_>) -> Lookup<'_> {
        each!(self, engine => engine.peek(now, key))
    }

    fn prefetch(&mut self, places: &[(KeyspaceId, Position)]) {
        each!(self, engine => engine.prefetch(places))
    }

    fn fetch(&mut self, now: Now, keys: &[(Token, Key<'_>)]) {
        each!(self, engine => engine.fetch(now, keys))
    }

    fn release(&mut self, token: Token) {
        each!(self, engine => engine.release(token))
    }

    fn write(&mut self, now: Now, writes: &[Write<'_>]) -> Result<WriteReceipt> {
        each!(self, engine => engine.write(now, writes))
    }

    fn admit(&mut self, now: Now, writes: &[Write<'_>]) -> Result<()> {
        each!(self, engine => engine.admit(now, writes))
    }

    fn prepare_part<'e>(&'e mut self, now: Now, writes: &'e [Write<'e>]) -> Result<PreparedPart<'e>> {
        each!(self, engine => engine.prepare_part(now, writes))
    }

    fn write_part(
        &mut self,
        now: Now,
        writes: &[Write<'_>],
        batch: &Arc<BatchTicket>,
    ) -> Result<WriteReceipt> {
        each!(self, engine => engine.write_part(now, writes, batch))
    }

    fn undo_part(
        &mut self,
        now: Now,
        writes: &[Write<'_>],
        batch: &Arc<BatchTicket>,
    ) -> Result<WriteReceipt> {
        each!(self, engine => engine.undo_part(now, writes, batch))
    }

    fn scan(&mut self, now: Now, request: ScanRequest) {
        each!(self, engine => engine.scan(now, request))
    }

    fn range(&mut self, now: Now, request: RangeRequest) {
        each!(self, engine => engine.range(now, request))
    }

    fn create_keyspace(&mut self, keyspace: KeyspaceId, index: IndexKind) {
        each!(self, engine => engine.create_keyspace(keyspace, index))
    }

    fn snapshot(&mut self, now: Now) -> Result<SnapshotId> {
        each!(self, engine => engine.snapshot(now))
    }

    fn release_snapshot(&mut self, snapshot: SnapshotId) {
        each!(self, engine => engine.release_snapshot(snapshot))
    }

    fn read_at(&mut self, now: Now, snapshot: SnapshotId, keys: &[(Token, Key<'_>)]) {
        each!(self, engine => engine.read_at(now, snapshot, keys))
    }

    fn drop_keyspace(&mut self, keyspace: KeyspaceId) {
        each!(self, engine => engine.drop_keyspace(keyspace))
    }

    fn past_ms(&self) -> u64 {
        each!(self, engine => engine.past_ms())
    }

    fn note_past(&mut self, expiry_ms: u64) {
        each!(self, engine => engine.note_past(expiry_ms))
    }

    fn len(&self, keyspace: KeyspaceId) -> u64 {
        each!(self, engine => engine.len(keyspace))
    }

    fn step(&mut self, now: Now, completions: &mut Vec<IoCompletion>, events: &mut Vec<Event>) {
        each!(self, engine => engine.step(now, completions, events))
    }

    fn take_requests(&mut self, requests: &mut Vec<IoRequest>) {
        each!(self, engine => engine.take_requests(requests))
    }

    fn next_step_at_us(&self) -> Option<u64> {
        each!(self, engine => engine.next_step_at_us())
    }

    fn durable_seq(&self) -> Seq {
        each!(self, engine => engine.durable_seq())
    }

    fn decided_seq(&self) -> Seq {
        each!(self, engine => engine.decided_seq())
    }

    fn applied_seq(&self) -> Seq {
        each!(self, engine => engine.applied_seq())
    }

    fn flush(&mut self, now: Now) {
        each!(self, engine => engine.flush(now))
    }

    fn set_durability(&mut self, now: Now, durability: Durability) -> Seq {
        each!(self, engine => engine.set_durability(now, durability))
    }

    fn health(&self) -> Health {
        each!(self, engine => engine.health())
    }

    fn admission(&self) -> Admission {
        each!(self, engine => engine.admission())
    }

    fn housekeeping(&self) -> Housekeeping {
        each!(self, engine => engine.housekeeping())
    }

    fn set_eviction(&mut self, eviction: Eviction) {
        each!(self, engine => engine.set_eviction(eviction))
    }

    fn evictable(&mut self) -> Option<(Key<'_>, ValueKind)> {
        each!(self, engine => engine.evictable())
    }

    fn evict(&mut self, now: Now) -> Result<bool> {
        each!(self, engine => engine.evict(now))
    }

    fn uses(&self, key: Key<'_>) -> Option<u8> {
        each!(self, engine => engine.uses(key))
    }

    fn pass_evictable(&mut self, freed: Option<u64>) {
        each!(self, engine => engine.pass_evictable(freed))
    }

    fn note_outside_bytes(&mut self, bytes: u64) {
        each!(self, engine => engine.note_outside_bytes(bytes))
    }

    fn set_cpu_clock(&mut self, clock: Box<dyn CpuClock>) {
        each!(self, engine => engine.set_cpu_clock(clock))
    }

    fn statistics(&self) -> EngineStatistics {
        each!(self, engine => engine.statistics())
    }

    fn begin_verification(&mut self) -> Result<()> {
        each!(self, engine => engine.begin_verification())
    }

    fn verification(&self) -> Option<&Verification> {
        each!(self, engine => engine.verification())
    }

    fn set_scrub_rate(&mut self, bytes_per_second: u64) {
        each!(self, engine => engine.set_scrub_rate(bytes_per_second))
    }

    fn take_scrub_findings(&mut self) -> Vec<String> {
        each!(self, engine => engine.take_scrub_findings())
    }

    fn begin_backup(&mut self, now: Now, since: Option<BackupSince>) -> Result<BackupCut> {
        each!(self, engine => engine.begin_backup(now, since))
    }

    fn take_backup(&mut self) -> Result<BackupStep> {
        each!(self, engine => engine.take_backup())
    }

    fn end_backup(&mut self) {
        each!(self, engine => engine.end_backup())
    }

    fn shut(&mut self) {
        each!(self, engine => engine.shut())
    }

    fn is_shut(&self) -> bool {
        each!(self, engine => engine.is_shut())
    }
}
