//! The threads of a trace: started, joined, and their steps merged.

use super::turns::Turns;
use super::{Schedule, Shared, Slot, TraceSettings, Traced};
use crate::memory::Memory;
use crate::trace::{Event, Trace, WORD};
use tierstone_base::{Error, ErrorKind, Result};

/// Runs `program` on as many threads as `settings` say, each with its own view of the memory that `view` makes
/// for its number, and gives the trace of all.
///
/// # Errors
/// `InvalidInput` for settings that cannot be; the first error of a thread, in the order of their numbers.
///
/// # Panics
/// When the program does.
pub fn record<M, V, P>(settings: &TraceSettings, view: V, program: P) -> Result<Trace>
where
    M: Memory,
    V: Fn(usize) -> M + Sync,
    P: Fn(&Traced<'_, M>) -> Result<()> + Sync,
{
    if settings.threads == 0 || settings.threads > usize::from(u16::MAX) || settings.locks == 0 {
        let message = "a trace needs a thread and a lock; at most 65,535 threads";
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    if settings.block_bytes == 0 || !settings.block_bytes.is_multiple_of(WORD) {
        let message = format!(
            "blocks of {} bytes cannot share a lock, for a word would lie in two of them: take a multiple of {WORD}",
            settings.block_bytes
        );
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    let shared = Shared {
        bank: (0..settings.locks).map(|_| Slot::default()).collect(),
        block_bytes: settings.block_bytes,
        locking: settings.locking,
        turns: match settings.schedule {
            Schedule::Free => None,
            Schedule::Seeded { seed, one_in } => Some(Turns::new(settings.threads, seed, one_in)),
        },
    };
    let run = |number: usize| -> Result<Vec<(u64, Event)>> {
        let memory = Traced::new(view(number), &shared);
        let result = program(&memory);
        let steps = memory.finish();
        result.map(|()| steps)
    };
    let results: Vec<Result<Vec<(u64, Event)>>> = std::thread::scope(|scope| {
        let run = &run;
        let started: Vec<_> = (0..settings.threads).map(|number| scope.spawn(move || run(number))).collect();
        let joined = started.into_iter().map(|thread| thread.join());
        joined.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let mut steps = Vec::new();
    for result in results {
        steps.extend(result?);
    }
    // Each thread's steps are in order already; a load and a store of one step have one time and stay together.
    steps.sort_by_key(|(time, event)| (*time, event.thread));
    Ok(steps.into_iter().map(|(_, event)| event).collect())
}
