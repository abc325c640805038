//! A trace of what several threads do, in an order that all of them saw.
//!
//! The code under trace is written over [`Memory`]; [`Traced`] does each access and records it as one atomic step
//! (the problem of analysis atomicity, Pelley 2014, chapter VIII): a bank of locks, one for each block of
//! addresses by its hash, is held over the access and its record. Every lock and every thread has a Lamport time;
//! a step takes the later of the two plus one. Threads keep their steps; merged by time they are one sequentially
//! consistent order: program order on each thread, and per address the order of the locks.
//!
//! Threads run freely, or in turns that a seed decides ([`Schedule::Seeded`]): then one seed gives one trace.
//! Departure from the publication: it instruments binaries, this the source, by the type of the memory.

mod threads;
mod turns;
mod unobserved;

pub use threads::{record, record_with_unobserved};
pub use unobserved::Unobserved;

use crate::memory::{Memory, Place};
use crate::trace::{Event, Kind, Space, WORD, pieces};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tierstone_base::Result;
use turns::Turns;

/// Who runs when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// As the machine has it.
    Free,
    /// One thread at a time; before each access the next one is drawn, once in `one_in` accesses, else the same
    /// goes on.
    Seeded {
        /// Decides every draw.
        seed: u64,
        /// One or more.
        one_in: u64,
    },
}

/// How a trace is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceSettings {
    /// How many threads run: 1 to 4,096.
    pub threads: usize,
    /// Locks of the bank.
    pub locks: usize,
    /// Bytes of the blocks that share a lock: a multiple of 8, so that no word lies in two of them.
    pub block_bytes: u64,
    /// Who runs when.
    pub schedule: Schedule,
    /// Whether the bank is used. Off, the trace is wrong: for the self-test.
    pub locking: bool,
}

impl TraceSettings {
    /// `threads` threads in turns by `seed`, drawn before every access; 1024 locks of blocks of 64 bytes.
    pub fn seeded(threads: usize, seed: u64) -> TraceSettings {
        let schedule = Schedule::Seeded { seed, one_in: 1 };
        TraceSettings { threads, locks: 1024, block_bytes: 64, schedule, locking: true }
    }
}

/// What the threads of one trace share.
#[derive(Debug)]
struct Shared {
    bank: Vec<Slot>,
    block_bytes: u64,
    locking: bool,
    turns: Option<Turns>,
}

#[derive(Debug, Default)]
struct Slot {
    lock: Mutex<()>,
    time: AtomicU64,
}

/// The word that holds the byte at `place`: what a thread waits for.
fn word_of(place: Place) -> Place {
    match place {
        Place::Volatile(address) => Place::Volatile(address / WORD * WORD),
        Place::Persistent(address) => Place::Persistent(address / WORD * WORD),
    }
}

/// A memory that records what its thread does to it.
#[derive(Debug)]
pub struct Traced<'a, M: Memory> {
    inner: M,
    shared: &'a Shared,
    time: Cell<u64>,
    steps: RefCell<Vec<Step>>,
}

/// What a thread did, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    time: u64,
    event: Event,
    /// Whether the load was an [`Memory::observe`]. A trace does not tell them apart.
    observes: bool,
}

impl<'a, M: Memory> Traced<'a, M> {
    fn new(inner: M, shared: &'a Shared) -> Self {
        if let Some(turns) = &shared.turns {
            turns.enter(inner.thread());
        }
        Traced { inner, shared, time: Cell::new(0), steps: RefCell::new(Vec::new()) }
    }

    fn number(&self) -> u16 {
        self.inner.thread() as u16
    }

    fn slot(&self, place: Place) -> &Slot {
        let (Place::Volatile(address) | Place::Persistent(address)) = place;
        let space = u64::from(matches!(place, Place::Persistent(_))) << 63;
        let hash = (space | (address / self.shared.block_bytes)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shared.bank[(hash >> 32) as usize % self.shared.bank.len()]
    }

    fn turn(&self) {
        if let Some(turns) = &self.shared.turns {
            turns.pass(self.inner.thread());
        }
    }

    /// Does `access` on `place` and records the events that it returns, as one step.
    fn step<T>(&self, place: Place, access: impl FnOnce(&M) -> (T, [Option<Event>; 2])) -> T {
        self.step_as(place, false, access)
    }

    fn step_as<T>(
        &self,
        place: Place,
        observes: bool,
        access: impl FnOnce(&M) -> (T, [Option<Event>; 2]),
    ) -> T {
        self.turn();
        let slot = self.slot(place);
        let lock = || -> MutexGuard<'_, ()> { slot.lock.lock().unwrap_or_else(PoisonError::into_inner) };
        let _held = self.shared.locking.then(lock);
        let (result, events) = access(&self.inner);
        if !self.shared.locking {
            // What the bank prevents: another thread comes between the access and its record.
            self.turn();
        }
        let time = slot.time.load(Ordering::Acquire).max(self.time.get()) + 1;
        slot.time.store(time, Ordering::Release);
        self.time.set(time);
        let stored = events.iter().flatten().any(|event| event.kind == Kind::Store);
        let steps = events.into_iter().flatten().map(|event| Step { time, event, observes });
        self.steps.borrow_mut().extend(steps);
        if stored && let Some(turns) = &self.shared.turns {
            turns.stored(word_of(place));
        }
        result
    }

    fn mark(&self, kind: Kind) {
        self.time.set(self.time.get() + 1);
        let (time, event) = (self.time.get(), Event::mark(self.number(), kind));
        self.steps.borrow_mut().push(Step { time, event, observes: false });
    }

    fn word(&self, kind: Kind, place: Place, value: u64) -> Option<Event> {
        let (space, address) = match place {
            Place::Volatile(address) => (Space::Volatile, address),
            Place::Persistent(address) => (Space::Persistent, address),
        };
        Some(Event { thread: self.number(), kind, space, len: WORD as u8, address, value })
    }

    /// The thread is done: its steps with their times.
    fn finish(self) -> Vec<Step> {
        self.steps.take()
    }
}

impl<M: Memory> Drop for Traced<'_, M> {
    fn drop(&mut self) {
        // Also when the program panics: the others must not wait for this thread's turn.
        if let Some(turns) = &self.shared.turns {
            turns.leave(self.inner.thread());
        }
    }
}

impl<M: Memory> Memory for Traced<'_, M> {
    fn thread(&self) -> usize {
        self.inner.thread()
    }

    fn persistent_bytes(&self) -> u64 {
        self.inner.persistent_bytes()
    }

    fn load(&self, place: Place) -> u64 {
        self.step(place, |inner| {
            let value = inner.load(place);
            (value, [self.word(Kind::Load, place, value), None])
        })
    }

    fn store(&self, place: Place, value: u64) {
        self.step(place, |inner| {
            inner.store(place, value);
            ((), [self.word(Kind::Store, place, value), None])
        });
    }

    fn swap(&self, place: Place, value: u64) -> u64 {
        self.step(place, |inner| {
            let old = inner.swap(place, value);
            (old, [self.word(Kind::Load, place, old), self.word(Kind::Store, place, value)])
        })
    }

    fn fetch_add(&self, place: Place, addend: u64) -> u64 {
        self.step(place, |inner| {
            let old = inner.fetch_add(place, addend);
            let new = old.wrapping_add(addend);
            (old, [self.word(Kind::Load, place, old), self.word(Kind::Store, place, new)])
        })
    }

    fn compare_exchange(&self, place: Place, expected: u64, new: u64) -> std::result::Result<u64, u64> {
        self.step(place, |inner| {
            let result = inner.compare_exchange(place, expected, new);
            let (Ok(found) | Err(found)) = result;
            let store = result.is_ok().then(|| self.word(Kind::Store, place, new)).flatten();
            (result, [self.word(Kind::Load, place, found), store])
        })
    }

    fn load_bytes(&self, offset: u64, into: &mut [u8]) {
        let parts: Vec<Event> = pieces(self.number(), Kind::Load, Space::Persistent, offset, into).collect();
        for piece in parts {
            let at = (piece.address - offset) as usize;
            let part = &mut into[at..at + usize::from(piece.len)];
            self.step(Place::Persistent(piece.address), |inner| {
                inner.load_bytes(piece.address, part);
                let mut word = [0; WORD as usize];
                word[..part.len()].copy_from_slice(part);
                ((), [Some(Event { value: u64::from_le_bytes(word), ..piece }), None])
            });
        }
    }

    fn store_bytes(&self, offset: u64, bytes: &[u8]) {
        for piece in pieces(self.number(), Kind::Store, Space::Persistent, offset, bytes) {
            self.step(Place::Persistent(piece.address), |inner| {
                inner.store_bytes(piece.address, &piece.bytes()[..usize::from(piece.len)]);
                ((), [Some(piece), None])
            });
        }
    }

    fn wait_until(&self, place: Place, holds: impl Fn(u64) -> bool) -> Result<u64> {
        loop {
            let value = self.load(place);
            if holds(value) {
                return Ok(value);
            }
            match &self.shared.turns {
                Some(turns) => turns.wait_for(self.inner.thread(), place)?,
                None => self.inner.relax(),
            }
        }
    }

    fn observe(&self, offset: u64) -> u64 {
        self.step_as(Place::Persistent(offset), true, |inner| {
            let value = inner.observe(offset);
            (value, [self.word(Kind::Load, Place::Persistent(offset), value), None])
        })
    }

    fn barrier(&self) -> Result<()> {
        self.mark(Kind::Barrier);
        self.inner.barrier()
    }

    fn strand(&self) {
        self.mark(Kind::Strand);
        self.inner.strand();
    }

    fn sync(&self) -> Result<()> {
        self.mark(Kind::Sync);
        self.inner.sync()
    }
}

#[cfg(test)]
#[path = "tracer_test.rs"]
mod tracer_test;
