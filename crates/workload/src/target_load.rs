//! The same workloads against a store in this process.
//!
//! Each thread has a handle of its own and calls it synchronously. With a pipeline above 1 it gathers
//! that many operations into a batch of reads and a batch of writes; each operation's latency is then
//! that of its batch.
//!
//! A handle that stays on its thread is driven there by [`run_here`] and [`load_here`].

use std::ops::{ControlFlow, Range};

use tierstone_base::{Error, ErrorKind, Result};

use crate::key::KeyFormat;
use crate::mix::OperationKind;
use crate::outcome::Outcome;
use crate::pacing::{Pacing, Schedule};
use crate::recorder::{self, Recorder};
use crate::run::{Context, Progress, pause, run_here as run_on_own_thread, run_threads, wake_exactly};
use crate::value::{ValueMaker, check_value};
use crate::workload::{Operation, OperationSource, Workload};

/// The longest pause: how soon a stop is seen.
const PAUSE_MAX_US: u64 = 100_000;

/// What a store offers to a load generator. One handle is used by one thread.
pub trait Target {
    /// Reads a record: appends its value to `value` (which is empty), or answers false.
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Writes a record, new or not, with the durability that the store is set to.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Reads records: calls `each` once for every key, in order. By default one after the other.
    fn get_many(&mut self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let mut value = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            value.clear();
            let is_found = self.get(key, &mut value)?;
            each(index, is_found.then_some(value.as_slice()));
        }
        Ok(())
    }

    /// Writes records as one batch. By default one after the other.
    fn put_many(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        records.iter().try_for_each(|(key, value)| self.put(key, value))
    }

    /// Reads up to `count` records from `key` on, in key order: calls `each` with key and value. By
    /// default the keys of successive record numbers are read with [`Target::get_many`] instead.
    fn scan(&mut self, key: &[u8], count: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Option<Result<()>> {
        let _ = (key, count, each);
        None
    }
}

impl<T: Target + ?Sized> Target for &mut T {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        (**self).get(key, value)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        (**self).put(key, value)
    }

    fn get_many(&mut self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        (**self).get_many(keys, each)
    }

    fn put_many(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        (**self).put_many(records)
    }

    fn scan(&mut self, key: &[u8], count: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Option<Result<()>> {
        (**self).scan(key, count, each)
    }
}

/// Drives the mix of `workload`; `open` gives each thread its handle. Progress as of
/// [`crate::redis_load::run`].
///
/// Errors: `InvalidInput` for settings out of range, and those of `open`. A target's errors are counted
/// in the outcome.
pub fn run<T: Target + Send>(
    workload: &Workload,
    pacing: &Pacing,
    open: &mut dyn FnMut() -> Result<T>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Outcome> {
    pacing.validate()?;
    let sources = OperationSource::mixed(workload, pacing.seed, pacing.threads as u64)?;
    drive(workload, pacing, sources, None, open, progress)
}

/// Inserts every record once, in batches of the pacing's pipeline, as fast as it goes.
pub fn load<T: Target + Send>(
    workload: &Workload,
    pacing: &Pacing,
    open: &mut dyn FnMut() -> Result<T>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Outcome> {
    walk(workload, pacing, OperationKind::Insert, open, progress)
}

/// Reads every record once and checks its content.
pub fn verify<T: Target + Send>(
    workload: &Workload,
    pacing: &Pacing,
    open: &mut dyn FnMut() -> Result<T>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Outcome> {
    let workload = Workload { verify: true, ..workload.clone() };
    walk(&workload, pacing, OperationKind::Get, open, progress)
}

/// Drives the mix of `workload` on the caller's own thread; the pacing has one thread.
///
/// Errors: `InvalidInput` for settings out of range. The target's errors are counted in the outcome.
pub fn run_here(
    workload: &Workload,
    pacing: &Pacing,
    target: &mut dyn Target,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Outcome> {
    let source = OperationSource::mixed(workload, pacing.seed, 1)?.swap_remove(0);
    drive_here(workload, pacing, source, None, target, progress)
}

/// Inserts the records with numbers `ids` once, in order, in batches of the pacing's pipeline, on the
/// caller's own thread: so a store can be grown between runs.
///
/// Errors: as [`run_here`].
pub fn load_here(
    workload: &Workload,
    ids: Range<u64>,
    pacing: &Pacing,
    target: &mut dyn Target,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Outcome> {
    workload.key.validate(ids.end)?;
    workload.value.validate()?;
    let pacing = Pacing { rate: None, warmup_seconds: 0.0, ..*pacing };
    let count = ids.end.saturating_sub(ids.start);
    let source = OperationSource::walk_of(OperationKind::Insert, ids);
    drive_here(workload, &pacing, source, Some(count), target, progress)
}

fn drive_here(
    workload: &Workload,
    pacing: &Pacing,
    source: OperationSource,
    operations_total: Option<u64>,
    target: &mut dyn Target,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Outcome> {
    pacing.validate()?;
    if pacing.threads != 1 {
        return Err(Error::new(ErrorKind::InvalidInput, "pacing: the caller's own thread is one thread"));
    }
    let values = ValueMaker::new(workload.value.clone(), pacing.seed);
    let caller = Caller::new(target, source, workload, values, pacing);
    let recorder =
        run_on_own_thread(pacing, operations_total, progress, |context| caller.run(pacing, context));
    Ok(recorder::combine(vec![recorder], pacing.rate))
}

fn walk<T: Target + Send>(
    workload: &Workload,
    pacing: &Pacing,
    kind: OperationKind,
    open: &mut dyn FnMut() -> Result<T>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Outcome> {
    let pacing = Pacing { rate: None, warmup_seconds: 0.0, ..*pacing };
    workload.validate()?;
    pacing.validate()?;
    let sources = OperationSource::walk(kind, workload.records, pacing.threads as u64);
    drive(workload, &pacing, sources, Some(workload.records), open, progress)
}

fn drive<T: Target + Send>(
    workload: &Workload,
    pacing: &Pacing,
    sources: Vec<OperationSource>,
    operations_total: Option<u64>,
    open: &mut dyn FnMut() -> Result<T>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Outcome> {
    let values = ValueMaker::new(workload.value.clone(), pacing.seed);
    let mut callers = Vec::with_capacity(sources.len());
    for source in sources {
        callers.push(Caller::new(open()?, source, workload, values.clone(), pacing));
    }
    let recorders = run_threads(pacing, operations_total, callers, progress, |caller, context| {
        caller.run(pacing, context)
    })?;
    Ok(recorder::combine(recorders, pacing.rate))
}

/// One thread's handle and operations.
struct Caller<T> {
    target: T,
    source: OperationSource,
    key: KeyFormat,
    values: ValueMaker,
    verify: bool,
    recorder: Recorder,
    /// The operations of the current batch and their beginnings.
    batch: Vec<(Operation, u64)>,
    /// When the calls of the batch began.
    called_us: u64,
    /// Keys and values of the current call, one behind the other, and where each ends.
    bytes: Vec<u8>,
    bounds: Vec<usize>,
    /// Which of the keys read last are not there.
    absent: Vec<usize>,
}

impl<T: Target> Caller<T> {
    fn new(
        target: T,
        source: OperationSource,
        workload: &Workload,
        values: ValueMaker,
        pacing: &Pacing,
    ) -> Caller<T> {
        Caller {
            target,
            source,
            key: workload.key.clone(),
            values,
            verify: workload.verify,
            recorder: Recorder::new(0),
            batch: Vec::with_capacity(pacing.pipeline),
            called_us: 0,
            bytes: Vec::new(),
            bounds: Vec::new(),
            absent: Vec::new(),
        }
    }

    fn run(mut self, pacing: &Pacing, context: &mut Context<'_>) -> Recorder {
        self.recorder = Recorder::new(context.measured_from_us);
        let mut left = context.operations;
        let mut schedule = pacing.schedule(context.thread, context.start_us);
        if schedule.is_some() {
            wake_exactly();
        }
        let mut is_last = false;
        while !is_last && !context.is_stopped() {
            let now_us = context.now_us();
            context.tick(now_us, &mut self.recorder);
            is_last = !self.gather(pacing.pipeline, &mut schedule, &mut left, now_us, context);
            if self.batch.is_empty() {
                if let (Some(schedule), false) = (&schedule, is_last) {
                    pause(schedule.intended_us().saturating_sub(now_us).min(PAUSE_MAX_US));
                }
                continue;
            }
            self.recorder.awaits(now_us);
            self.called_us = now_us;
            self.call(context);
            self.recorder.heard(context.now_us(), false);
            self.batch.clear();
        }
        context.finish(&mut self.recorder);
        self.recorder
    }

    /// Fills the batch with what is due; false when nothing comes after it.
    fn gather(
        &mut self,
        pipeline: usize,
        schedule: &mut Option<Schedule>,
        left: &mut Option<u64>,
        now_us: u64,
        context: &Context<'_>,
    ) -> bool {
        while self.batch.len() < pipeline {
            let began_us = schedule.as_ref().map_or(now_us, Schedule::intended_us);
            if *left == Some(0) || context.end_us.is_some_and(|end_us| began_us >= end_us) {
                return false;
            }
            if began_us > now_us {
                break;
            }
            let Some(operation) = self.source.next_operation() else { return false };
            if let Some(left) = left
                && self.recorder.is_measured(began_us)
            {
                *left -= 1;
            }
            if let Some(schedule) = schedule {
                self.recorder.sent_late(began_us, now_us);
                schedule.advance();
            }
            self.batch.push((operation, began_us));
        }
        true
    }

    /// Reads, then writes, then scans of the batch.
    fn call(&mut self, context: &Context<'_>) {
        use OperationKind::{Get, Insert, ReadModifyWrite, ReadThrough, Scan, Set};
        let batch = std::mem::take(&mut self.batch);
        let read = self.get_all(batch.iter().filter(|(o, _)| matches!(o.kind, Get | ReadModifyWrite)));
        self.count(&batch, &[Get], &read, context);
        let through: Vec<&(Operation, u64)> = batch.iter().filter(|(o, _)| o.kind == ReadThrough).collect();
        let result = self.get_all(through.iter().copied()).and_then(|()| {
            let absent = std::mem::take(&mut self.absent);
            self.put_all(absent.iter().filter_map(|index| through.get(*index).copied()))
        });
        self.count(&batch, &[ReadThrough], &result, context);
        // A read-modify-write whose read failed still writes: what it writes does not depend on it.
        let written =
            self.put_all(batch.iter().filter(|(o, _)| matches!(o.kind, Set | Insert | ReadModifyWrite)));
        self.count(&batch, &[Set, Insert, ReadModifyWrite], &written, context);
        for entry in batch.iter().filter(|(operation, _)| operation.kind == Scan) {
            let scanned = self.scan(&entry.0, entry.1);
            self.count(std::slice::from_ref(entry), &[Scan], &scanned, context);
        }
        self.batch = batch;
    }

    fn count(
        &mut self,
        batch: &[(Operation, u64)],
        kinds: &[OperationKind],
        result: &Result<()>,
        context: &Context<'_>,
    ) {
        let now_us = context.now_us();
        for (operation, began_us) in batch.iter().filter(|(operation, _)| kinds.contains(&operation.kind)) {
            if let Err(error) = result {
                self.recorder.failed(*began_us, error.message().as_bytes());
            }
            if operation.kind == OperationKind::Insert {
                self.source.insert_answered(operation.id);
            }
            self.recorder.answered(operation.kind, *began_us, now_us);
            self.recorder.returned(*began_us, self.called_us, now_us);
        }
    }

    fn get_all<'a>(&mut self, operations: impl Iterator<Item = &'a (Operation, u64)>) -> Result<()> {
        let (ids, began_us): (Vec<u64>, Vec<u64>) =
            operations.map(|(operation, began_us)| (operation.id, *began_us)).unzip();
        self.read(&ids, began_us.first().copied().unwrap_or_default())
    }

    /// Reads records that were asked for at `began_us`, and keeps which of them are not there.
    fn read(&mut self, ids: &[u64], began_us: u64) -> Result<()> {
        self.absent.clear();
        if ids.is_empty() {
            return Ok(());
        }
        self.bytes.clear();
        self.bounds.clear();
        for id in ids {
            self.key.append(*id, &mut self.bytes);
            self.bounds.push(self.bytes.len());
        }
        self.recorder.bytes_sent += self.bytes.len() as u64;
        let keys: Vec<&[u8]> = pieces(&self.bytes, &self.bounds).collect();
        let (recorder, absent, verify) = (&mut self.recorder, &mut self.absent, self.verify);
        self.target.get_many(&keys, &mut |index, value| match value {
            None => {
                recorder.missed(began_us);
                absent.push(index);
            }
            Some(value) => {
                recorder.bytes_received += value.len() as u64;
                let is_right = ids.get(index).is_some_and(|id| check_value(*id, value).is_ok());
                if verify && !is_right {
                    recorder.verification_failures += 1;
                }
            }
        })
    }

    fn put_all<'a>(&mut self, operations: impl Iterator<Item = &'a (Operation, u64)>) -> Result<()> {
        self.bytes.clear();
        self.bounds.clear();
        for (operation, _) in operations {
            self.key.append(operation.id, &mut self.bytes);
            self.bounds.push(self.bytes.len());
            self.values.append(operation.id, operation.version, &mut self.bytes);
            self.bounds.push(self.bytes.len());
        }
        self.recorder.bytes_sent += self.bytes.len() as u64;
        let mut parts = pieces(&self.bytes, &self.bounds);
        let mut records = Vec::with_capacity(self.bounds.len() / 2);
        while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
            records.push((key, value));
        }
        match records.as_slice() {
            [] => Ok(()),
            [(key, value)] => self.target.put(key, value),
            records => self.target.put_many(records),
        }
    }

    fn scan(&mut self, operation: &Operation, began_us: u64) -> Result<()> {
        self.bytes.clear();
        self.key.append(operation.id, &mut self.bytes);
        let received = &mut self.recorder.bytes_received;
        let scanned = self.target.scan(&self.bytes, operation.scan_len as usize, &mut |key, value| {
            *received += (key.len() + value.len()) as u64;
        });
        scanned.unwrap_or_else(|| {
            let ids: Vec<u64> = (operation.id..).take(operation.scan_len as usize).collect();
            self.read(&ids, began_us)
        })
    }
}

/// The pieces of `bytes` that end at `bounds`.
fn pieces<'a>(bytes: &'a [u8], bounds: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let starts = std::iter::once(0).chain(bounds.iter().copied());
    starts.zip(bounds).map(|(start, end)| &bytes[start..*end])
}

#[cfg(test)]
#[path = "target_load_test.rs"]
mod target_load_test;
