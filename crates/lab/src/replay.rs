//! A recorded workload, replayed in a fresh store of this process, and what it cost.
//!
//! The store is used by the shared handle: a thread a shard, and the callers' own threads. Processor time is that of the
//! whole process; what the callers took of it is told beside it.

use serde::Serialize;
use std::ops::ControlFlow;
use std::time::Duration;
use tierstone::{DatabaseOptions, Durability, EngineStatistics, PutOptions, SharedStore};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_workload::replay::{self, PlanReport, ReplayOutcome, ReplayPlan, ReplaySettings, ReplayTarget};
use tierstone_workload::{Outcome, Progress};

/// What the store did for the replay, the loading before it left out.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StoreCost {
    /// Requests to the device that read.
    pub device_reads: u64,
    /// Bytes read.
    pub device_read_bytes: u64,
    /// Requests that write.
    pub device_writes: u64,
    /// Bytes written: records, padding, summaries, checkpoints, cleaning.
    pub device_written_bytes: u64,
    /// Flushes; a durable write counts as a write.
    pub device_flushes: u64,
    /// Bytes written to the redo log's memory.
    pub redo_written_bytes: u64,
    /// Fences there.
    pub redo_fences: u64,
    /// Reads that memory answered.
    pub memory_hits: u64,
    /// Reads that the device answered.
    pub device_hits: u64,
    /// Memory of the indexes at the end, in bytes.
    pub index_bytes: u64,
    /// Of the record caches.
    pub cache_bytes: u64,
    /// Of write buffers.
    pub buffer_bytes: u64,
    /// Processor time of the whole process for each operation, in microseconds.
    pub cpu_us_per_operation: f64,
}

impl StoreCost {
    fn new(before: &EngineStatistics, after: &EngineStatistics, cpu_us: f64, operations: u64) -> StoreCost {
        let device = after.device - before.device;
        StoreCost {
            device_reads: device.reads,
            device_read_bytes: device.bytes_read,
            device_writes: device.writes,
            device_written_bytes: device.bytes_written,
            device_flushes: device.flushes,
            redo_written_bytes: after.redo_bytes_written - before.redo_bytes_written,
            redo_fences: after.redo_fences - before.redo_fences,
            memory_hits: after.memory_hits - before.memory_hits,
            device_hits: after.device_hits - before.device_hits,
            index_bytes: after.index_bytes,
            cache_bytes: after.cache_bytes,
            buffer_bytes: after.buffer_bytes,
            cpu_us_per_operation: cpu_us / operations.max(1) as f64,
        }
    }
}

/// What came of a replay in a store.
#[derive(Clone, Debug, Serialize)]
pub struct StoreReplay {
    /// What was done of the trace, left out and assumed.
    pub plan: PlanReport,
    /// How.
    pub settings: ReplaySettings,
    /// Where the redo log was, if there was one.
    pub redo: Option<String>,
    /// The keys that had to be there.
    pub load: Outcome,
    /// The operations.
    pub run: ReplayOutcome,
    /// What they cost.
    pub cost: StoreCost,
}

impl StoreReplay {
    /// An error if what was measured is not what was meant: an operation failed, was not answered, or read a wrong value.
    ///
    /// # Errors
    /// `Corrupt`: wrong values. `Retry`: it was interrupted, or operations failed, with the first reason.
    pub fn judge(&self) -> Result<()> {
        for outcome in [&self.load, &self.run.outcome] {
            if outcome.verification_failures > 0 {
                let message = format!("{} values were not what was written", outcome.verification_failures);
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
            if !outcome.is_clean() {
                let why =
                    outcome.first_error.clone().or_else(|| outcome.ended_early.clone()).unwrap_or_default();
                let message = format!(
                    "{} operations failed, {} were not done: {why}",
                    outcome.errors, outcome.unanswered
                );
                return Err(Error::new(ErrorKind::Retry, message));
            }
        }
        Ok(())
    }
}

/// One caller's handle.
#[derive(Clone, Debug)]
struct Handle(SharedStore);

impl ReplayTarget for Handle {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.0.get(key)?;
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8], expiry: Option<Duration>) -> Result<()> {
        self.0.put_with(key, value, expiry.map_or_else(PutOptions::default, PutOptions::expires_in))
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        self.0.delete(key)
    }

    fn put_many(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let answers: Vec<_> = records.iter().map(|(key, value)| self.0.put_async(key, value)).collect();
        // All of them, so that no answer is outstanding when the call is made again.
        answers.into_iter().map(|answer| answer.wait()).fold(Ok(()), Result::and)
    }
}

/// Replays `plan` in a new store of `options`, whose directory must be empty or not there. `progress` is told the phase
/// (`loading`, `replaying`), and ends it with `Break`.
///
/// # Errors
/// `InvalidInput`: settings out of range, or a redo log that is too small for so many shards. Others: when the store
/// cannot be opened or closed. What happens in between is in the result ([`StoreReplay::judge`]).
pub fn replay(
    plan: &ReplayPlan,
    settings: &ReplaySettings,
    options: &DatabaseOptions,
    progress: &mut dyn FnMut(&str, Progress) -> ControlFlow<()>,
) -> Result<StoreReplay> {
    settings.validate()?;
    let store = SharedStore::open(options)?;
    let mut open = || Ok(Handle(store.clone()));
    let load = replay::load(plan, settings, &mut open, &mut |now| progress("loading", now))?;
    store.sync()?;
    let (before, cpu_before_us) = (store.statistics()?, process_cpu_us());
    let run = replay::run(plan, settings, &mut open, &mut |now| progress("replaying", now))?;
    let (cpu_us, after) = (process_cpu_us() - cpu_before_us, store.statistics()?);
    store.close()?;
    let cost = StoreCost::new(&before, &after, cpu_us, run.outcome.operations);
    let waits = options.shard.durability != Durability::Relaxed;
    if options.redo.is_some() && waits && run.writes.count > 0 && after.redo_fences == 0 {
        let message = "the redo log was not used: its memory is too small for so many shards; give it more, or the store \
                       fewer shards";
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    Ok(StoreReplay {
        plan: plan.report().clone(),
        settings: *settings,
        redo: options.redo.as_ref().map(|redo| redo.region.clone()),
        load,
        run,
        cost,
    })
}

/// Processor time of this process, in microseconds.
fn process_cpu_us() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
