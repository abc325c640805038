//! Who has how much of a store's memory: the parts of its shards, and what no shard has.
//!
//! Invariants:
//! 1. All parts and what is free are the budget together; no part grows by more than was free. A shard lowers
//!    its part before it frees the bytes, and takes free bytes before it raises its part: at no moment are the
//!    parts together above the budget.
//! 2. A part changes only by its own shard, in whole steps.
//! 3. What is wanted and what could be spared are hints: they decide who gives, never who has.
//!
//! Words are changed atomically, nobody waits for anybody. With one thread the order of the steps alone
//! decides who gets what. Nothing here is durable: every opening begins with equal parts.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use tierstone_base::ShardId;

/// Makes a shard's thread take a step soon.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// A part moves in steps of one part in so many of what a shard begins with.
const STEPS: u64 = 16;

/// What is known of one shard.
#[derive(Default)]
struct Part {
    /// What it has.
    bytes: AtomicU64,
    /// What it wants more, when it last looked.
    wanted: AtomicU64,
    /// What it could give, when it last looked.
    spare: AtomicU64,
    waker: OnceLock<Waker>,
}

/// The memory of one store.
pub struct MemoryLedger {
    parts: Box<[Part]>,
    base_bytes: u64,
    /// What no shard has.
    free: AtomicU64,
    /// What all shards want.
    wanted: AtomicU64,
    /// A test breaks the first invariant with it: what is given is free before it is given up.
    is_given_twice: bool,
}

impl std::fmt::Debug for MemoryLedger {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<u64> = self.parts.iter().map(|part| part.bytes.load(Ordering::Relaxed)).collect();
        write!(formatter, "MemoryLedger({parts:?}, {} free)", self.free_bytes())
    }
}

impl MemoryLedger {
    /// A ledger of `shards` parts of `base_bytes` each.
    pub fn new(shards: u16, base_bytes: u64, is_given_twice: bool) -> Self {
        let part = |_| Part { bytes: AtomicU64::new(base_bytes), ..Part::default() };
        MemoryLedger {
            parts: (0..shards.max(1)).map(part).collect(),
            base_bytes,
            free: AtomicU64::new(0),
            wanted: AtomicU64::new(0),
            is_given_twice,
        }
    }

    /// Whether there is anybody to share with.
    pub fn is_shared(&self) -> bool {
        self.parts.len() > 1
    }

    /// What each shard begins with, in bytes.
    pub fn base_bytes(&self) -> u64 {
        self.base_bytes
    }

    /// Parts grow and shrink by multiples of this, in bytes.
    pub fn step_bytes(&self) -> u64 {
        (self.base_bytes / STEPS).max(1)
    }

    /// Bytes that no shard has.
    pub fn free_bytes(&self) -> u64 {
        self.free.load(Ordering::Acquire)
    }

    /// All parts together, in bytes. While shards change theirs, as it was at some moments.
    #[cfg(test)]
    pub fn parts_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes.load(Ordering::Acquire)).sum()
    }

    /// Says what `shard` wants more, and what it could spare, in bytes. Wakes those who could give when more is
    /// wanted than before.
    pub fn declare(&self, shard: ShardId, wanted: u64, spare: u64) {
        let Some(part) = self.parts.get(usize::from(shard)) else { return };
        part.spare.store(spare, Ordering::Relaxed);
        let before = part.wanted.swap(wanted, Ordering::AcqRel);
        if wanted > before {
            self.wanted.fetch_add(wanted - before, Ordering::AcqRel);
            self.wake_others(shard);
        } else {
            self.wanted.fetch_sub(before - wanted, Ordering::AcqRel);
        }
    }

    fn wake_others(&self, shard: ShardId) {
        for (number, part) in self.parts.iter().enumerate() {
            if number != usize::from(shard)
                && part.spare.load(Ordering::Relaxed) > 0
                && let Some(wake) = part.waker.get()
            {
                wake();
            }
        }
    }

    /// Makes all shards but `shard` take a step soon, whatever for.
    pub fn wake_all_but(&self, shard: ShardId) {
        for (number, part) in self.parts.iter().enumerate() {
            if number != usize::from(shard)
                && let Some(wake) = part.waker.get()
            {
                wake();
            }
        }
    }

    /// `wake` makes the thread of `shard` take a step; told once.
    pub fn set_waker(&self, shard: ShardId, wake: Waker) {
        if let Some(part) = self.parts.get(usize::from(shard)) {
            // A second one would wake the same thread.
            let _ = part.waker.set(wake);
        }
    }

    /// Bytes that others want and that are not free.
    pub fn asked_of(&self, shard: ShardId) -> u64 {
        if !self.is_shared() {
            return 0;
        }
        let own = self.parts.get(usize::from(shard)).map_or(0, |part| part.wanted.load(Ordering::Relaxed));
        self.wanted.load(Ordering::Relaxed).saturating_sub(own).saturating_sub(self.free_bytes())
    }

    /// Whether others want anything at all.
    pub fn is_wanted_by_others(&self, shard: ShardId) -> bool {
        let own = self.parts.get(usize::from(shard)).map_or(0, |part| part.wanted.load(Ordering::Relaxed));
        self.wanted.load(Ordering::Relaxed) > own
    }

    /// Whether `shard` may expect more: something is free, or somebody could give.
    pub fn could_gain(&self, shard: ShardId) -> bool {
        let others = self.parts.iter().enumerate().filter(|(number, _)| *number != usize::from(shard));
        self.free_bytes() >= self.step_bytes()
            || others.map(|(_, part)| part).any(|part| part.spare.load(Ordering::Relaxed) > 0)
    }

    /// Takes up to `bytes`, in whole steps, for `shard`: what it got.
    pub fn take(&self, shard: ShardId, bytes: u64) -> u64 {
        let step = self.step_bytes();
        let Some(part) = self.parts.get(usize::from(shard)) else { return 0 };
        let wanted = bytes.div_ceil(step).saturating_mul(step);
        let taken = |free: u64| wanted.min(free / step * step);
        let update = self.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, |free| {
            (taken(free) > 0).then(|| free - taken(free))
        });
        match update {
            Ok(before) => {
                part.bytes.fetch_add(taken(before), Ordering::AcqRel);
                taken(before)
            }
            Err(_) => 0,
        }
    }

    /// `shard` has given up `bytes` of what it has: whole steps that it took or began with.
    pub fn give(&self, shard: ShardId, bytes: u64) {
        let Some(part) = self.parts.get(usize::from(shard)) else { return };
        if !self.is_given_twice {
            part.bytes.fetch_sub(bytes, Ordering::AcqRel);
        }
        self.free.fetch_add(bytes, Ordering::AcqRel);
    }

    /// What `shard` has, in bytes.
    pub fn part_bytes(&self, shard: ShardId) -> u64 {
        self.parts.get(usize::from(shard)).map_or(0, |part| part.bytes.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
#[path = "memory_ledger_test.rs"]
mod memory_ledger_test;
