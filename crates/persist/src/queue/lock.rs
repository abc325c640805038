//! The MCS queue lock, in volatile memory: each thread spins on a word of its own (Mellor-Crummey and Scott 1991).

use crate::memory::{Memory, Place};
use tierstone_base::Result;

/// Where a lock is: the word with its last waiter, and a node of 64 bytes for each thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockMemory {
    pub tail: u64,
    pub nodes: u64,
}

/// A lock as one thread uses it.
#[derive(Debug)]
pub(super) struct Lock<'a, M> {
    place: LockMemory,
    memory: &'a M,
}

impl<'a, M: Memory> Lock<'a, M> {
    pub fn new(place: LockMemory, memory: &'a M) -> Self {
        Lock { place, memory }
    }

    fn tail(&self) -> Place {
        Place::Volatile(self.place.tail)
    }

    /// The word of `thread`'s node that names who comes after it: zero, or one more than a thread.
    fn next(&self, thread: u64) -> Place {
        Place::Volatile(self.place.nodes + thread * 64)
    }

    /// The word of `thread`'s node that is one while it waits.
    fn waits(&self, thread: u64) -> Place {
        Place::Volatile(self.place.nodes + thread * 64 + 8)
    }

    pub fn acquire(&self) -> Result<()> {
        let me = self.memory.thread() as u64;
        self.memory.store(self.next(me), 0);
        self.memory.store(self.waits(me), 1);
        if let Some(before) = self.memory.swap(self.tail(), me + 1).checked_sub(1) {
            self.memory.store(self.next(before), me + 1);
            self.memory.wait_until(self.waits(me), |waits| waits == 0)?;
        }
        Ok(())
    }

    pub fn release(&self) -> Result<()> {
        let me = self.memory.thread() as u64;
        let mut next = self.memory.load(self.next(me));
        if next == 0 {
            if self.memory.compare_exchange(self.tail(), me + 1, 0).is_ok() {
                return Ok(());
            }
            next = self.memory.wait_until(self.next(me), |next| next != 0)?;
        }
        self.memory.store(self.waits(next - 1), 0);
        Ok(())
    }
}
