//! The persistent queues as experiments use them: on ordinary memory, timed and traced.

use crate::run::Run;
use std::sync::{Barrier, Mutex, PoisonError};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::region::{FlushMethod, MappedRegion, Region, RegionSettings};
use tierstone_persist::memory::{Direct, Memory, VolatileWords};
use tierstone_persist::order::Model;
use tierstone_persist::queue::{Design, Queue, QueueSettings};
use tierstone_persist::timing::{Timing, TimingSettings};
use tierstone_persist::trace::Trace;
use tierstone_persist::tracer::{Schedule, TraceSettings, record};

/// The published entry.
pub const ENTRY_BYTES: usize = 100;
/// Bytes that such an entry takes in every design.
const ROOM_BYTES: u64 = 128;
/// The models of the published tables, in their order.
pub const MODELS: [Model; 3] = [Model::Strict, Model::Epoch, Model::Strand];
/// The published sizes of atomic and of tracked blocks, in bytes.
pub const SIZES: [u64; 7] = [8, 16, 32, 64, 128, 256, 512];

/// A queue, its region and its volatile words.
pub(crate) type Parts = (Queue, MappedRegion, VolatileWords);

/// A queue with room for `inserts` entries, and its memories. The instruction rate is that of a machine that need not
/// persist: a barrier is a fence alone.
pub(crate) fn queue(design: Design, threads: usize, inserts: u64) -> Result<Parts> {
    let settings = QueueSettings::new(design, ROOM_BYTES * inserts, threads);
    let ordinary = RegionSettings { flush: Some(FlushMethod::FenceOnly), ..RegionSettings::default() };
    let region = MappedRegion::anonymous(settings.persistent_bytes(), &ordinary)?;
    // The kernel's first touch of each page is no part of an insert.
    region.store(0, &vec![0; settings.persistent_bytes() as usize]);
    let words = VolatileWords::new(settings.volatile_bytes());
    let queue = Queue::create(settings, &Direct::new(&region, &words, 0))?;
    Ok((queue, region, words))
}

/// Inserts the published entry.
pub(crate) fn insert_one(queue: &Queue, memory: &impl Memory) -> Result<()> {
    queue.insert(memory, &[7; ENTRY_BYTES]).map(drop)
}

/// Each of `threads` threads inserts `each` entries; the positions of the entries of each.
fn insert_freely((queue, region, words): &Parts, threads: usize, each: u64) -> Result<Vec<Vec<u64>>> {
    // Nobody is done before everybody has begun.
    let start = Barrier::new(threads);
    let insert_all = |thread| -> Result<Vec<u64>> {
        let memory = Direct::new(region, words, thread).relaxing(std::thread::yield_now);
        start.wait();
        (0..each).map(|_| queue.insert(&memory, &[7; ENTRY_BYTES])).collect()
    };
    std::thread::scope(|scope| {
        let insert_all = &insert_all;
        let started: Vec<_> = (0..threads).map(|thread| scope.spawn(move || insert_all(thread))).collect();
        let broken = || Error::new(ErrorKind::Retry, "a thread of the measurement broke off; run again");
        started.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(broken()))).collect()
    })
}

/// A trace of `each` inserts by each of `threads` threads, whose turns `seed` decides.
///
/// # Errors
/// Those of the tracer.
pub fn trace(design: Design, threads: usize, each: u64, seed: u64) -> Result<Trace> {
    Ok(traced(design, threads, each, &TraceSettings::seeded(threads, seed))?.0)
}

/// A trace, and the positions of the entries of each thread.
fn traced(
    design: Design,
    threads: usize,
    each: u64,
    settings: &TraceSettings,
) -> Result<(Trace, Vec<Vec<u64>>)> {
    let (queue, region, words) = queue(design, threads, each * threads as u64)?;
    let positions = Mutex::new(vec![Vec::new(); threads]);
    // Threads in turns must not wait for each other outside the memory that is traced.
    let start = Barrier::new(if settings.schedule == Schedule::Free { threads } else { 1 });
    let trace = record(
        settings,
        |thread| Direct::new(&region, &words, thread).relaxing(std::thread::yield_now),
        |memory| {
            let payload = [memory.thread() as u8; ENTRY_BYTES];
            start.wait();
            let mine: Vec<u64> = (0..each).map(|_| queue.insert(memory, &payload)).collect::<Result<_>>()?;
            positions.lock().unwrap_or_else(PoisonError::into_inner)[memory.thread()] = mine;
            Ok(())
        },
    )?;
    Ok((trace, positions.into_inner().unwrap_or_else(PoisonError::into_inner)))
}

/// How threads run whose inserts are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Running {
    /// As the machine has it, nothing recorded.
    Native,
    /// As the machine has it, each access recorded.
    Traced,
    /// In turns that a seed decides, each access recorded.
    InTurns,
}

/// How many inserts of others lie between two successive ones of a thread: for each such pair of all threads, in no
/// particular order. The order of inserts is that of their entries in the queue.
///
/// # Errors
/// As [`trace`].
pub fn distances(design: Design, threads: usize, each: u64, running: Running, seed: u64) -> Result<Vec<u64>> {
    let seeded = TraceSettings::seeded(threads, seed);
    let positions = match running {
        Running::Native => insert_freely(&queue(design, threads, each * threads as u64)?, threads, each)?,
        Running::Traced => {
            let free = TraceSettings { schedule: Schedule::Free, ..seeded };
            traced(design, threads, each, &free)?.1
        }
        Running::InTurns => traced(design, threads, each, &seeded)?.1,
    };
    Ok(between(&positions))
}

/// The distances among `positions`, those of each thread by themselves.
fn between(positions: &[Vec<u64>]) -> Vec<u64> {
    let mut order: Vec<(u64, usize)> = Vec::new();
    for (thread, mine) in positions.iter().enumerate() {
        order.extend(mine.iter().map(|&position| (position, thread)));
    }
    order.sort_unstable();
    let mut last: Vec<Option<u64>> = vec![None; positions.len()];
    let mut found = Vec::new();
    for (number, &(_, thread)) in (0u64..).zip(&order) {
        if let Some(before) = last[thread].replace(number) {
            found.push(number - before - 1);
        }
    }
    found
}

/// What a sweep over [`SIZES`] found of one queue: bytes, then persists that follow each other an insert, strict and epoch.
pub type Sweep = Vec<(u64, f64, f64)>;

/// Times inserts of one thread by each design under strict and epoch persistency, with the settings that `with` makes of
/// the model's own and each size. A step of the run a design.
///
/// # Errors
/// `Retry` when the run was stopped.
pub fn sweeps(
    run: &mut Run<'_>,
    inserts: u64,
    with: impl Fn(TimingSettings, u64) -> TimingSettings,
) -> Result<Vec<(Design, Sweep)>> {
    let mut sweeps = Vec::new();
    for design in Design::ALL {
        run.step(format!("{}, 1 thread", design.name()))?;
        let trace = trace(design, 1, inserts, run.next_seed())?;
        let mut sweep = Sweep::new();
        for (number, size) in SIZES.into_iter().enumerate() {
            let path = |model| -> Result<f64> {
                let report = Timing::of(&trace, with(TimingSettings::of(model), size))?;
                Ok(report.critical_path as f64 / inserts as f64)
            };
            sweep.push((size, path(Model::Strict)?, path(Model::Epoch)?));
            run.go_on((number + 1) as f64 / SIZES.len() as f64)?;
        }
        sweeps.push((design, sweep));
    }
    Ok(sweeps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_the_inserts_of_others_between_two_of_a_thread() {
        // In order: 0 1 1 0 2 0 1.
        let positions = [vec![0, 384, 640], vec![128, 256, 768], vec![512]];
        let mut found = between(&positions);
        found.sort_unstable();
        assert_eq!(found, [0, 1, 2, 3]);
        assert!(between(&[]).is_empty());
    }

    #[test]
    fn every_way_of_running_gives_all_distances_and_one_seed_the_same() {
        for design in Design::ALL {
            for running in [Running::Native, Running::Traced, Running::InTurns] {
                assert_eq!(distances(design, 3, 20, running, 1).unwrap().len(), 3 * 19, "{design:?}");
            }
            let seeded = |seed| distances(design, 3, 40, Running::InTurns, seed).unwrap();
            assert_eq!(seeded(5), seeded(5));
        }
        // One queue lock: threads that always want it get it one after the other.
        let locked = distances(Design::CopyWhileLocked, 3, 40, Running::InTurns, 1).unwrap();
        assert!(locked.iter().filter(|distance| **distance == 2).count() > 100, "{locked:?}");
    }
}
