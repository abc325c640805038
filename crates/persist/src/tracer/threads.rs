//! The threads of a trace: started, joined, and their steps merged.

use super::turns::Turns;
use super::unobserved::{Unobserved, unobserved};
use super::{Schedule, Shared, Slot, Step, TraceSettings, Traced};
use crate::memory::Memory;
use crate::trace::{Trace, WORD};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, scope};
use tierstone_base::{Error, ErrorKind, Result};

/// Threads of one trace at most: each takes a few maps of the process's memory, of which it has some 65,000.
const THREADS_MAX: usize = 4_096;

/// Runs `program` on as many threads as `settings` say, each with its own view of the memory that `view` makes
/// for its number, and gives the trace of all.
///
/// # Errors
/// `InvalidInput` for settings that cannot be; what the system says when it gives no more threads, and then none of them has
/// done anything; the first error of a thread, in the order of their numbers.
///
/// # Panics
/// When the program does.
pub fn record<M, V, P>(settings: &TraceSettings, view: V, program: P) -> Result<Trace>
where
    M: Memory,
    V: Fn(usize) -> M + Sync,
    P: Fn(&Traced<'_, M>) -> Result<()> + Sync,
{
    record_on(settings, &|_| STACK_BYTES, view, program)
}

/// The same, and every load in it after which a barrier of its thread does not cover what was loaded, though it orders it
/// in the trace: where an [`Memory::observe`] may be missing.
///
/// # Errors
/// As [`record`].
///
/// # Panics
/// As [`record`].
pub fn record_with_unobserved<M, V, P>(
    settings: &TraceSettings,
    view: V,
    program: P,
) -> Result<(Trace, Vec<Unobserved>)>
where
    M: Memory,
    V: Fn(usize) -> M + Sync,
    P: Fn(&Traced<'_, M>) -> Result<()> + Sync,
{
    let steps = steps_of(settings, &|_| STACK_BYTES, view, program)?;
    let found = unobserved(&steps);
    Ok((steps.into_iter().map(|step| step.event).collect(), found))
}

/// What one thread did, and when.
type Steps = Vec<Step>;

/// Bytes of a thread's stack.
const STACK_BYTES: usize = 2 << 20;

/// The same, each thread with its own stack, by its number.
pub(super) fn record_on<M, V, P>(
    settings: &TraceSettings,
    stack_bytes: &dyn Fn(usize) -> usize,
    view: V,
    program: P,
) -> Result<Trace>
where
    M: Memory,
    V: Fn(usize) -> M + Sync,
    P: Fn(&Traced<'_, M>) -> Result<()> + Sync,
{
    let steps = steps_of(settings, stack_bytes, view, program)?;
    Ok(steps.into_iter().map(|step| step.event).collect())
}

/// What all threads did, in the order of the trace.
fn steps_of<M, V, P>(
    settings: &TraceSettings,
    stack_bytes: &dyn Fn(usize) -> usize,
    view: V,
    program: P,
) -> Result<Steps>
where
    M: Memory,
    V: Fn(usize) -> M + Sync,
    P: Fn(&Traced<'_, M>) -> Result<()> + Sync,
{
    refuse_impossible(settings)?;
    let shared = shared(settings);
    // Held until it is known whether all threads are there: one that waited for another would wait for ever.
    let all_started = Mutex::new(false);
    let run = |number: usize| -> Result<Steps> {
        if !*all_started.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(Vec::new());
        }
        let mut absent = Absent { shared: &shared, number: Some(number) };
        let inner = view(number);
        absent.number = None;
        let memory = Traced::new(inner, &shared);
        let result = program(&memory);
        let steps = memory.finish();
        result.map(|()| steps)
    };
    let results: Vec<Result<Steps>> = scope(|scope| -> Result<Vec<Result<Steps>>> {
        let run = &run;
        let mut may_go = all_started.lock().unwrap_or_else(PoisonError::into_inner);
        let start = |number: usize| {
            let builder = Builder::new().stack_size(stack_bytes(number));
            builder.spawn_scoped(scope, move || run(number))
        };
        let started = (0..settings.threads).map(start).collect::<std::io::Result<Vec<_>>>();
        let started = started.map_err(|error| {
            let doing = format!("cannot start {} threads; trace fewer", settings.threads);
            Error::from(error).context(&doing)
        })?;
        *may_go = true;
        drop(may_go);
        let joined = started.into_iter().map(|thread| thread.join());
        Ok(joined.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect())
    })?;
    let mut steps = Vec::new();
    for result in results {
        steps.extend(result?);
    }
    // Each thread's steps are in order already; a load and a store of one step have one time and stay together.
    steps.sort_by_key(|step: &Step| (step.time, step.event.thread));
    Ok(steps)
}

/// A thread that has no view of the memory yet: if it never gets one, the others must not wait for its turn.
struct Absent<'a> {
    shared: &'a Shared,
    number: Option<usize>,
}

impl Drop for Absent<'_> {
    fn drop(&mut self) {
        if let (Some(turns), Some(number)) = (&self.shared.turns, self.number) {
            turns.leave(number);
        }
    }
}

fn refuse_impossible(settings: &TraceSettings) -> Result<()> {
    if settings.threads == 0 || settings.threads > THREADS_MAX || settings.locks == 0 {
        let message = "a trace needs a thread and a lock; at most 4,096 threads";
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    if settings.block_bytes == 0 || !settings.block_bytes.is_multiple_of(WORD) {
        let message = format!(
            "blocks of {} bytes cannot share a lock, for a word would lie in two of them: take a multiple of {WORD}",
            settings.block_bytes
        );
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    Ok(())
}

fn shared(settings: &TraceSettings) -> Shared {
    Shared {
        bank: (0..settings.locks).map(|_| Slot::default()).collect(),
        block_bytes: settings.block_bytes,
        locking: settings.locking,
        turns: match settings.schedule {
            Schedule::Free => None,
            Schedule::Seeded { seed, one_in } => Some(Turns::new(settings.threads, seed, one_in)),
        },
    }
}
