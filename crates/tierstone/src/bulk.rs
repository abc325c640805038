//! Loading many records at once: what both handles share.
//!
//! Records are staged in memory and applied a stage at a time ([`DatabaseShard::load`]): so a call costs a copy, and
//! what a shard does once for many (looks at clocks and device, messages) it does once a stage. A stage is so
//! small that it stays in the processor's caches from the copy in to the copy out.
//!
//! Invariants:
//! 1. Records of one key are applied in the order in which they were given: stage after stage, record after
//!    record, and one that must wait for an old record holds up the later ones of its position.
//! 2. A load is not one piece: a crash, or an error, leaves some of the records that were given since the last
//!    [`BulkLoad::sync`](crate::BulkLoad::sync) and not others.
//!
//! Who owns the data: a stage owns copies of keys and values in one piece of memory, until all are applied.

use crate::batch::Until;
use crate::engine::DatabaseShard;
use crate::plain::check_plain;
use std::collections::VecDeque;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Now, Position, Result};
use tierstone_engine::{Key, ValueKind, Write, WriteKind};
use tierstone_logstore::PutOff;

/// Bytes that a record takes in a stage beside its key and value.
const PLACE_BYTES: usize = size_of::<Staged>();

/// How a bulk load goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkOptions {
    /// Bytes of keys and values that one shard's records gather to before they are written, from 64 KiB to
    /// 1 GiB; 256 KiB by default, which the caches of most processors hold. A load takes a few times this much
    /// memory for each shard, at most [`BulkOptions::STAGES_MAX`] times; it does not count into the store's budget.
    pub stage_bytes: usize,
}

impl Default for BulkOptions {
    fn default() -> Self {
        BulkOptions { stage_bytes: 256 << 10 }
    }
}

impl BulkOptions {
    /// Stages of a shard that wait for the device or for old records at most, the one included that gathers.
    pub const STAGES_MAX: usize = 8;

    pub(crate) fn check(self) -> Result<Self> {
        if (64 << 10..=1 << 30).contains(&self.stage_bytes) {
            return Ok(self);
        }
        Err(Error::new(ErrorKind::InvalidInput, "a stage has between 64 KiB and 1 GiB"))
    }
}

/// What a bulk load has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Records.
    pub records: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

impl std::ops::AddAssign for Loaded {
    fn add_assign(&mut self, other: Self) {
        self.records += other.records;
        self.bytes += other.bytes;
    }
}

#[derive(Clone, Copy, Debug)]
struct Staged {
    position: Position,
    start: usize,
    key_len: u32,
    value_len: u32,
    until: Until,
}

/// Records of one shard and keyspace that gather.
#[derive(Debug)]
pub(crate) struct Stage {
    keyspace: KeyspaceId,
    load: u64,
    bytes: Vec<u8>,
    records: Vec<Staged>,
}

impl Stage {
    /// An empty stage of the load with the number `load`.
    pub fn new(keyspace: KeyspaceId, load: u64) -> Self {
        Stage { keyspace, load, bytes: Vec::new(), records: Vec::new() }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// What is in it.
    pub fn loaded(&self) -> Loaded {
        Loaded { records: self.records.len() as u64, bytes: self.bytes.len() as u64 }
    }

    /// The keyspace that it is for.
    pub fn keyspace(&self) -> KeyspaceId {
        self.keyspace
    }

    /// The number of the load that it is of.
    pub fn load(&self) -> u64 {
        self.load
    }

    /// Whether a record of `len` bytes finds room within `stage_bytes`, or the stage is empty.
    pub fn has_room(&self, len: usize, stage_bytes: usize) -> bool {
        let taken = self.bytes.len() + self.records.len() * PLACE_BYTES;
        self.is_empty() || taken + len + PLACE_BYTES <= stage_bytes
    }

    /// Adds a record; key and value are within the limits of [`check_lengths`].
    pub fn push(&mut self, position: Position, key: &[u8], value: &[u8], until: Until) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let (key_len, value_len) = (key.len() as u32, value.len() as u32);
        self.records.push(Staged { position, start, key_len, value_len, until });
    }

    /// Empties the stage and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.records.clear();
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// The writes of the records from number `first` on, by the shard's clocks.
    pub fn writes(&self, first: usize, now: Now) -> Vec<Write<'_>> {
        self.records[first..].iter().map(|staged| self.write(staged, now)).collect()
    }

    fn write(&self, staged: &Staged, now: Now) -> Write<'_> {
        let key_end = staged.start + staged.key_len as usize;
        let value = &self.bytes[key_end..key_end + staged.value_len as usize];
        let bytes = &self.bytes[staged.start..key_end];
        let key = Key { keyspace: self.keyspace, position: staged.position, bytes };
        let expiry_ms = staged.until.at_ms(now);
        Write { key, kind: WriteKind::Put { value, expiry_ms, kind: ValueKind::STRING } }
    }
}

/// Stages on their way into one shard, in the order in which they were filled.
#[derive(Debug)]
pub(crate) struct Loads<D> {
    stages: VecDeque<Loading<D>>,
    put_off: PutOff,
}

#[derive(Debug)]
struct Loading<D> {
    stage: Stage,
    /// Records before this one were looked at.
    next: usize,
    /// Those of them that are not applied.
    put_off: Vec<usize>,
    done: D,
}

impl<D> Default for Loads<D> {
    fn default() -> Self {
        Loads { stages: VecDeque::new(), put_off: PutOff::default() }
    }
}

impl<D> Loads<D> {
    /// Takes a full stage; `done` comes back with it.
    pub fn push(&mut self, stage: Stage, done: D) {
        self.stages.push_back(Loading { stage, next: 0, put_off: Vec::new(), done });
    }

    /// Whether there is nothing left to apply.
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// How many stages are not applied.
    pub fn len(&self) -> usize {
        self.stages.len()
    }

    /// Whether all that is left waits for old records.
    pub fn is_through(&self) -> bool {
        self.stages.iter().all(|loading| loading.next == loading.stage.len())
    }

    /// Applies what there is room for; whether anything was applied.
    ///
    /// # Errors
    /// As [`tierstone_engine::Engine::write`], with the number of the load whose record is refused: nothing was applied.
    pub fn advance(
        &mut self,
        engine: &mut DatabaseShard,
        now: Now,
    ) -> std::result::Result<bool, (Error, u64)> {
        let mut has_moved = false;
        self.put_off.positions.clear();
        for loading in &mut self.stages {
            match loading.advance(engine, now, &mut self.put_off, &mut has_moved) {
                Ok(true) => {}
                Err(error) if !has_moved => return Err((error, loading.stage.load())),
                _ => break,
            }
        }
        Ok(has_moved)
    }

    /// A stage all of which is applied, if there is one.
    pub fn take_done(&mut self) -> Option<(Stage, D)> {
        let is_done =
            |loading: &Loading<D>| loading.next == loading.stage.len() && loading.put_off.is_empty();
        let place = self.stages.iter().position(is_done)?;
        self.stages.remove(place).map(|loading| (loading.stage, loading.done))
    }

    /// Takes out all stages of which `is_it` holds, applied or not.
    pub fn take_out(&mut self, is_it: impl Fn(&Stage) -> bool) -> Vec<D> {
        let (out, kept) = self.stages.drain(..).partition(|loading| is_it(&loading.stage));
        self.stages = kept;
        let out: VecDeque<Loading<D>> = out;
        out.into_iter().map(|loading| loading.done).collect()
    }
}

impl<D> Loading<D> {
    /// Applies what was put off, if it may be now, and then the records that were not looked at. False: so many wait that
    /// nothing behind them is looked at.
    fn advance(
        &mut self,
        engine: &mut DatabaseShard,
        now: Now,
        put_off: &mut PutOff,
        has_moved: &mut bool,
    ) -> Result<bool> {
        let Loading { stage, next, put_off: own, .. } = self;
        let mut outcome = Ok(());
        own.retain(|&number| {
            if put_off.positions.len() >= PutOff::WAITING_MAX {
                return true;
            }
            let write = stage.write(&stage.records[number], now);
            if put_off.positions.contains(&write.key.position) {
                return true;
            }
            let written = check_plain(engine, now, &[write]).and_then(|()| engine.load_put_off(now, &write));
            match written {
                Ok(()) => {
                    *has_moved = true;
                    return false;
                }
                Err(error) if error.kind() == ErrorKind::Retry => {}
                Err(error) => outcome = Err(error),
            }
            put_off.positions.insert(write.key.position);
            true
        });
        outcome?;
        if put_off.positions.len() >= PutOff::WAITING_MAX {
            return Ok(false);
        }
        if *next == stage.len() {
            return Ok(true);
        }
        let writes = stage.writes(*next, now);
        check_plain(engine, now, &writes)?;
        let mut rest = &writes[..];
        while !rest.is_empty() {
            put_off.numbers.clear();
            let count = engine.load(now, rest, put_off)?;
            *has_moved |= count > put_off.numbers.len();
            own.extend(put_off.numbers.iter().map(|number| *next + number));
            *next += count;
            rest = &rest[count..];
            if put_off.positions.len() >= PutOff::WAITING_MAX {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Refuses what no record holds, before it can take a whole piece down with it.
pub(crate) fn check_lengths(key: &[u8], value: &[u8], value_bytes_max: u64) -> Result<()> {
    if key.len() > KEY_BYTES_MAX {
        let message = format!("a key of {} bytes is longer than {KEY_BYTES_MAX}", key.len());
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    // Longer keys take of the value's room.
    let value_bytes_max = value_bytes_max.saturating_sub(key.len().saturating_sub(KEY_BYTES_BESIDE) as u64);
    if value.len() as u64 > value_bytes_max {
        let message = format!(
            "a value of {} bytes is longer than {value_bytes_max}, which is what its key leaves",
            value.len()
        );
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    Ok(())
}

/// Bytes of a key beside which the longest value finds room.
const KEY_BYTES_BESIDE: usize = 1_024;
/// The longest key.
const KEY_BYTES_MAX: usize = 65_535;

#[cfg(test)]
#[path = "bulk_test.rs"]
mod bulk_test;
