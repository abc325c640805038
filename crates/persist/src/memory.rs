//! What a structure in persistent memory does to memory, and the way that costs nothing: straight to a region.
//!
//! Structures are written over [`Memory`], the view of one thread. [`Direct`] goes to a region and to plain atomic
//! words; [`crate::tracer::Traced`] records every step besides. Both are type parameters: code over [`Direct`] is
//! the code that would be written by hand.
//!
//! How the verbs of the models become instructions in [`Direct`]: a barrier writes back the lines that the thread
//! stored to or observed since its last barrier, and fences; a sync is the same, because a fence waits; a strand is nothing,
//! because a fence orders more than a strand asks for.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use tierstone_base::Result;
use tierstone_media::region::{LINE_BYTES, Region};

/// Where a word is: a byte address, a multiple of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In memory that a crash takes.
    Volatile(u64),
    /// In the region.
    Persistent(u64),
}

/// Memory as one thread sees it: words, and the verbs of persistency.
///
/// Volatile words are sequentially consistent. Of persistent ones a load acquires, a store releases, and what does both
/// acquires and releases; ranges of bytes order nothing by themselves, and barriers only what becomes durable. A
/// structure that needs its store seen before its later load of another word (Dekker) keeps both words volatile.
/// [`crate::tracer::Traced`] is sequentially consistent throughout, so it does not show where that is missing.
///
/// # Panics
/// Every access, when the place is outside of the memory or not aligned: a mistake of the structure.
pub trait Memory {
    /// The number of this thread, from zero.
    fn thread(&self) -> usize;

    /// Bytes of persistent memory.
    fn persistent_bytes(&self) -> u64;

    /// The word at `place`. In a trace it orders what this thread persists behind its next barrier; that barrier does not
    /// make it durable if another thread stored it: see [`Memory::observe`]. So it is with all that load below.
    fn load(&self, place: Place) -> u64;

    /// Stores a word.
    fn store(&self, place: Place, value: u64);

    /// Stores a word and returns the one before.
    fn swap(&self, place: Place, value: u64) -> u64;

    /// Adds to a word and returns the one before; wraps.
    fn fetch_add(&self, place: Place, addend: u64) -> u64;

    /// Stores `new` if `expected` is there. Returns what was there.
    ///
    /// # Errors
    /// What was there instead.
    fn compare_exchange(&self, place: Place, expected: u64, new: u64) -> std::result::Result<u64, u64>;

    /// Fills `into` from byte `offset` of persistent memory.
    fn load_bytes(&self, offset: u64, into: &mut [u8]);

    /// Stores `bytes` at byte `offset` of persistent memory, word by word.
    fn store_bytes(&self, offset: u64, bytes: &[u8]);

    /// Waits until `holds` of the word at `place`, which another thread will store. Returns the word.
    ///
    /// # Errors
    /// When no thread can go on: a deadlock, which only a tracer notices.
    fn wait_until(&self, place: Place, holds: impl Fn(u64) -> bool) -> Result<u64>;

    /// What the thread does between two looks at a word that it waits for.
    fn relax(&self) {
        std::hint::spin_loop();
    }

    /// Loads a persistent word that another thread stored, so that this thread's next barrier or sync covers that
    /// persist too.
    fn observe(&self, offset: u64) -> u64;

    /// A persist barrier: what this thread stored or observed before it is durable before what it stores after it.
    ///
    /// # Errors
    /// When the region could not make it durable.
    fn barrier(&self) -> Result<()>;

    /// A new strand: what this thread stores from now on need not follow what it did before.
    fn strand(&self);

    /// Waits until everything that this thread stored or observed is durable.
    ///
    /// # Errors
    /// When the region could not make it durable.
    fn sync(&self) -> Result<()>;
}

/// Words that a crash takes: locks, lists, and what else a structure keeps beside its region. All zeros at first.
#[derive(Debug)]
pub struct VolatileWords {
    words: Box<[AtomicU64]>,
}

impl VolatileWords {
    /// Room for `bytes` bytes.
    pub fn new(bytes: u64) -> VolatileWords {
        VolatileWords { words: (0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect() }
    }

    fn word(&self, address: u64) -> &AtomicU64 {
        assert!(address.is_multiple_of(8), "the volatile word at {address} is not aligned");
        &self.words[(address / 8) as usize]
    }
}

/// How many ranges of lines a thread keeps before it writes the first back early.
const RANGES: usize = 8;

/// Lines that the thread stored to since its last barrier.
#[derive(Clone, Copy, Debug, Default)]
struct Stored {
    ranges: [(u64, u64); RANGES],
    count: usize,
}

/// A thread's view of a region, without any record of what it does.
#[derive(Debug)]
pub struct Direct<'a, R> {
    region: &'a R,
    words: &'a VolatileWords,
    thread: usize,
    relax: fn(),
    stored: RefCell<Stored>,
}

impl<'a, R: Region> Direct<'a, R> {
    /// The view of thread `thread`, which spins where it waits.
    pub fn new(region: &'a R, words: &'a VolatileWords, thread: usize) -> Direct<'a, R> {
        let stored = RefCell::new(Stored::default());
        Direct { region, words, thread, relax: std::hint::spin_loop, stored }
    }

    /// The same view, which calls `relax` between two looks while it waits: where there are more threads than
    /// CPUs it should let others run.
    #[must_use]
    pub fn relaxing(self, relax: fn()) -> Self {
        Direct { relax, ..self }
    }

    #[inline]
    fn note(&self, offset: u64, len: u64) {
        let (start, end) = (offset / LINE_BYTES * LINE_BYTES, (offset + len).next_multiple_of(LINE_BYTES));
        let stored = &mut *self.stored.borrow_mut();
        for (first, last) in &mut stored.ranges[..stored.count] {
            if start <= *last && end >= *first {
                (*first, *last) = (start.min(*first), end.max(*last));
                return;
            }
        }
        if stored.count == RANGES {
            // The fence of the next barrier covers it all the same.
            let (first, last) = stored.ranges[0];
            self.region.write_back(first, last - first);
            stored.ranges.rotate_left(1);
            stored.count -= 1;
        }
        stored.ranges[stored.count] = (start, end);
        stored.count += 1;
    }
}

impl<R: Region> Memory for Direct<'_, R> {
    fn thread(&self) -> usize {
        self.thread
    }

    fn persistent_bytes(&self) -> u64 {
        self.region.bytes()
    }

    #[inline]
    fn load(&self, place: Place) -> u64 {
        match place {
            Place::Volatile(address) => self.words.word(address).load(Ordering::SeqCst),
            Place::Persistent(offset) => self.region.load_word(offset),
        }
    }

    #[inline]
    fn store(&self, place: Place, value: u64) {
        match place {
            Place::Volatile(address) => self.words.word(address).store(value, Ordering::SeqCst),
            Place::Persistent(offset) => {
                self.region.store_word(offset, value);
                self.note(offset, 8);
            }
        }
    }

    fn swap(&self, place: Place, value: u64) -> u64 {
        match place {
            Place::Volatile(address) => self.words.word(address).swap(value, Ordering::SeqCst),
            Place::Persistent(_) => update(self, place, |_| value),
        }
    }

    fn fetch_add(&self, place: Place, addend: u64) -> u64 {
        match place {
            Place::Volatile(address) => self.words.word(address).fetch_add(addend, Ordering::SeqCst),
            Place::Persistent(_) => update(self, place, |old| old.wrapping_add(addend)),
        }
    }

    fn compare_exchange(&self, place: Place, expected: u64, new: u64) -> std::result::Result<u64, u64> {
        match place {
            Place::Volatile(address) => {
                let word = self.words.word(address);
                word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst)
            }
            Place::Persistent(offset) => {
                let result = self.region.compare_exchange_word(offset, expected, new);
                if result.is_ok() {
                    self.note(offset, 8);
                }
                result
            }
        }
    }

    #[inline]
    fn load_bytes(&self, offset: u64, into: &mut [u8]) {
        self.region.load(offset, into);
    }

    #[inline]
    fn store_bytes(&self, offset: u64, bytes: &[u8]) {
        self.region.store(offset, bytes);
        self.note(offset, bytes.len() as u64);
    }

    fn wait_until(&self, place: Place, holds: impl Fn(u64) -> bool) -> Result<u64> {
        loop {
            let value = self.load(place);
            if holds(value) {
                return Ok(value);
            }
            self.relax();
        }
    }

    #[inline]
    fn relax(&self) {
        (self.relax)();
    }

    #[inline]
    fn observe(&self, offset: u64) -> u64 {
        let value = self.region.load_word(offset);
        self.note(offset, 8);
        value
    }

    #[inline]
    fn barrier(&self) -> Result<()> {
        let stored = &mut *self.stored.borrow_mut();
        for (first, last) in &stored.ranges[..stored.count] {
            self.region.write_back(*first, last - first);
        }
        stored.count = 0;
        self.region.fence()
    }

    #[inline]
    fn strand(&self) {}

    #[inline]
    fn sync(&self) -> Result<()> {
        self.barrier()
    }
}

/// Stores what `change` makes of the word at `place`, atomically; returns the word before.
fn update<M: Memory>(memory: &M, place: Place, change: impl Fn(u64) -> u64) -> u64 {
    let mut old = memory.load(place);
    loop {
        match memory.compare_exchange(place, old, change(old)) {
            Ok(before) => return before,
            Err(now) => old = now,
        }
    }
}

#[cfg(test)]
#[path = "memory_test.rs"]
mod memory_test;
