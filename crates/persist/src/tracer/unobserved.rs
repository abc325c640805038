//! Loads that order persists in a trace and not on the machine.
//!
//! In a trace a load of a word that another thread stored orders what this thread persists behind its next barrier. On
//! the machine that barrier makes durable the lines that this thread stored to or observed, as [`crate::memory::Direct`]
//! has it: a word that was only loaded may be lost where what follows the barrier is not.

use super::Step;
use crate::trace::{Kind, Space};
use std::collections::{BTreeMap, BTreeSet};
use tierstone_media::region::LINE_BYTES;

/// A load of another thread's persistent word that was not durable, and still was not when the thread that loaded it had
/// done a barrier or sync. No mistake by itself: nothing of what follows may have to come after that word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unobserved {
    /// The load's step in the trace.
    pub load: usize,
    /// The step of the store that it saw.
    pub store: usize,
    /// The step of the barrier or sync that did not cover the store.
    pub barrier: usize,
}

/// A store that no barrier has covered.
#[derive(Clone, Copy, Debug)]
struct Store {
    step: usize,
    thread: u16,
}

/// What one thread has done since its last barrier.
#[derive(Debug, Default)]
struct SinceBarrier {
    /// Lines that its next barrier writes back.
    lines: BTreeSet<u64>,
    /// Loads of what others had stored: the step, the word, the store's step.
    loads: Vec<(usize, u64, usize)>,
}

/// All of them in `steps`, in the order of their barriers.
pub(super) fn unobserved(steps: &[Step]) -> Vec<Unobserved> {
    let mut found = Vec::new();
    let mut stored: BTreeMap<u64, Store> = BTreeMap::new();
    let mut threads: BTreeMap<u16, SinceBarrier> = BTreeMap::new();
    for (place, step) in steps.iter().enumerate() {
        let event = &step.event;
        let since = threads.entry(event.thread).or_default();
        let (word, line) = (event.word(), event.address / LINE_BYTES);
        match (event.kind, event.space) {
            (Kind::Store, Space::Persistent) => {
                stored.insert(word, Store { step: place, thread: event.thread });
                since.lines.insert(line);
            }
            (Kind::Load, Space::Persistent) if step.observes => {
                since.lines.insert(line);
            }
            (Kind::Load, Space::Persistent) => {
                let others = stored.get(&word).filter(|store| store.thread != event.thread);
                since.loads.extend(others.map(|store| (place, word, store.step)));
            }
            (Kind::Barrier | Kind::Sync, _) => {
                // Lines are written back as they are now, with what others stored to them.
                stored.retain(|word, _| !since.lines.contains(&(word / LINE_BYTES)));
                since.lines.clear();
                let is_lost = |&(_, word, _): &(usize, u64, usize)| stored.contains_key(&word);
                let lost = since.loads.drain(..).filter(is_lost);
                found.extend(lost.map(|(load, _, store)| Unobserved { load, store, barrier: place }));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
#[path = "unobserved_test.rs"]
mod unobserved_test;
