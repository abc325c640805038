//! A control: the queues with a lock that whoever comes first takes, in the place of their own, which hands over in the
//! order of arrival.

use std::ops::Range;
use tierstone_base::Result;
use tierstone_persist::memory::{Memory, Place};

/// Words of the locks of a queue, each with the last waiter; where nobody holds one it is zero.
const LOCKS: [u64; 3] = [0, 64, 128];

/// Which locks a queue has under trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locks {
    /// Its own.
    Queue,
    /// Words that are swapped; who finds one taken stops until it is given back.
    Swapped,
    /// The same; who finds one taken swaps it again in each of its turns.
    SwappedSpinning,
}

/// A memory in which the queue's locks are words that are swapped until zero was there. The queue does what it does for
/// its own locks; what that means for a lock without waiters is all that reaches the memory.
#[derive(Debug)]
pub struct SwapLocks<'a, M> {
    pub memory: &'a M,
    pub locks: Locks,
    /// The nodes in which threads wait for the queue's own locks: nothing reaches them unless those are used.
    pub nodes: Range<u64>,
}

impl<M> SwapLocks<'_, M> {
    fn is_lock(&self, place: Place) -> bool {
        self.locks != Locks::Queue && LOCKS.iter().any(|&lock| place == Place::Volatile(lock))
    }

    fn is_node(&self, place: Place) -> bool {
        let is_inside = matches!(place, Place::Volatile(address) if self.nodes.contains(&address));
        self.locks != Locks::Queue && is_inside
    }
}

impl<M: Memory> Memory for SwapLocks<'_, M> {
    fn thread(&self) -> usize {
        self.memory.thread()
    }

    fn persistent_bytes(&self) -> u64 {
        self.memory.persistent_bytes()
    }

    fn load(&self, place: Place) -> u64 {
        // Nobody waits in the node of whoever gives a lock back.
        if self.is_node(place) { 0 } else { self.memory.load(place) }
    }

    fn store(&self, place: Place, value: u64) {
        if !self.is_node(place) {
            self.memory.store(place, value);
        }
    }

    /// Of a lock: returns when it was free, and it is taken.
    fn swap(&self, place: Place, value: u64) -> u64 {
        let mut old = self.memory.swap(place, value);
        while old != 0 && self.is_lock(place) {
            if self.locks == Locks::Swapped {
                self.memory.wait_until(place, |word| word == 0).unwrap();
            }
            old = self.memory.swap(place, value);
        }
        old
    }

    fn fetch_add(&self, place: Place, addend: u64) -> u64 {
        self.memory.fetch_add(place, addend)
    }

    /// Of a lock: gives it back, whoever has swapped since.
    fn compare_exchange(&self, place: Place, expected: u64, new: u64) -> std::result::Result<u64, u64> {
        if !self.is_lock(place) {
            return self.memory.compare_exchange(place, expected, new);
        }
        self.memory.store(place, new);
        Ok(expected)
    }

    fn load_bytes(&self, offset: u64, into: &mut [u8]) {
        self.memory.load_bytes(offset, into);
    }

    fn store_bytes(&self, offset: u64, bytes: &[u8]) {
        self.memory.store_bytes(offset, bytes);
    }

    fn wait_until(&self, place: Place, holds: impl Fn(u64) -> bool) -> Result<u64> {
        self.memory.wait_until(place, holds)
    }

    fn relax(&self) {
        self.memory.relax();
    }

    fn observe(&self, offset: u64) -> u64 {
        self.memory.observe(offset)
    }

    fn barrier(&self) -> Result<()> {
        self.memory.barrier()
    }

    fn strand(&self) {
        self.memory.strand();
    }

    fn sync(&self) -> Result<()> {
        self.memory.sync()
    }
}
