//! Which buffers the kernel keeps pinned for a ring, so that a transfer need not pin them anew.
//!
//! Pinning costs per page: a transfer of 64 KiB from a registered buffer takes some 15-20 % less
//! processor time, one of 4 KiB about nothing (measured, `docs/decisions/022-registered-buffers.md`). So
//! only long buffers that come back are registered: the write buffers of a log do.
//!
//! Invariants:
//! 1. A slot answers for a buffer's identity, never for its address: identities are not used twice,
//!    so memory that was freed and given to another buffer is not taken for the registered one.
//! 2. A buffer is registered only while it lies in the slot of a request that the kernel has not seen.
//! 3. A slot changes hands only when the kernel has taken every entry that names it: an entry that waits
//!    may be made after its slot was chosen for another buffer.
//! 4. At most [`SLOTS`] buffers stay pinned; one that was dropped stays so until its slot is reused.

use crate::IoBuffer;
use io_uring::Submitter;
use tierstone_base::collections::Map;

/// The shortest buffer worth a slot, in bytes.
const SHORTEST: usize = 32 << 10;
/// Buffers of one ring that are pinned at a time.
const SLOTS: usize = 4;
/// Uses of long buffers after which one that was not among them may lose its slot.
const IDLE_USES: u64 = 64;
/// Identities that are remembered as used once.
const REMEMBERED: usize = 16;

#[derive(Clone, Copy, Default)]
struct Slot {
    /// 0: none.
    identity: u64,
    used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    slot: usize,
    address: usize,
    bytes: usize,
    identity: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    /// The ring has none yet.
    Absent,
    Made,
    /// The kernel refuses more: too old, or no more memory may be locked. What is registered stays.
    Refused,
}

/// The buffers of one ring.
pub(super) struct RegisteredBuffers {
    table: Table,
    slots: [Slot; SLOTS],
    wanted: Vec<Wanted>,
    /// Identities used once, with the use.
    once: Map<u64, u64>,
    uses: u64,
    /// The last use whose entry has left our own queue, and the last whose entry the kernel has taken.
    moved: u64,
    entered: u64,
    transfers: u64,
}

impl RegisteredBuffers {
    pub(super) fn new() -> Self {
        RegisteredBuffers {
            table: Table::Absent,
            slots: [Slot::default(); SLOTS],
            wanted: Vec::new(),
            once: Map::default(),
            uses: 0,
            moved: 0,
            entered: 0,
            transfers: 0,
        }
    }

    /// The slot of a buffer that is about to be transferred, if it is registered. One that comes again
    /// is asked for, so that its next transfer finds a slot.
    pub(super) fn slot_of(&mut self, buffer: &mut IoBuffer) -> Option<u16> {
        if buffer.capacity() < SHORTEST {
            return None;
        }
        self.uses += 1;
        let identity = buffer.identity();
        if let Some(index) = self.slots.iter().position(|slot| slot.identity == identity) {
            self.slots[index].used = self.uses;
            self.transfers += 1;
            return Some(index as u16);
        }
        self.consider(identity, buffer);
        None
    }

    fn consider(&mut self, identity: u64, buffer: &mut IoBuffer) {
        if self.table == Table::Refused {
            return;
        }
        if self.once.remove(&identity).is_none() {
            if self.once.len() == REMEMBERED {
                let uses = self.uses;
                self.once.retain(|_, used| uses - *used < REMEMBERED as u64);
            }
            self.once.insert(identity, self.uses);
            return;
        }
        let taken = |index: usize| self.wanted.iter().any(|wanted| wanted.slot == index);
        let free = (0..SLOTS).filter(|&index| !taken(index)).find(|&index| {
            let slot = self.slots[index];
            slot.identity == 0 || self.uses - slot.used > IDLE_USES
        });
        if let Some(slot) = free {
            let (address, bytes) = (buffer.as_mut_ptr().addr(), buffer.capacity());
            self.wanted.push(Wanted { slot, address, bytes, identity });
        }
    }

    /// The kernel has taken all entries that were moved into its queue.
    pub(super) fn all_entered(&mut self) {
        self.entered = self.moved;
    }

    /// All entries made so far have been moved into the kernel's queue.
    pub(super) fn all_moved(&mut self) {
        self.moved = self.uses;
    }

    /// Registers what was asked for since the last call. Must come before the entries that name those
    /// buffers enter the kernel (invariant 2). Cost: a system call a buffer, seldom.
    pub(super) fn register(&mut self, submitter: &Submitter<'_>) {
        for wanted in std::mem::take(&mut self.wanted) {
            if self.table == Table::Absent {
                let made = submitter.register_buffers_sparse(SLOTS as u32).is_ok();
                self.table = if made { Table::Made } else { Table::Refused };
            }
            if self.table == Table::Refused {
                return;
            }
            let slot = self.slots[wanted.slot];
            if slot.identity != 0 && slot.used > self.entered {
                // Its buffer has come back, or is still on its way: who wanted the slot asks again.
                continue;
            }
            self.slots[wanted.slot] = Slot::default();
            let base = std::ptr::with_exposed_provenance_mut(wanted.address);
            let vector = libc::iovec { iov_base: base, iov_len: wanted.bytes };
            // SAFETY: the buffer lives in its request's slot now (invariant 2); afterwards the kernel
            // touches it only for entries that name the slot, which are made for the same buffer alone
            // (invariant 1), and keeps the pages themselves as long as they are registered.
            match unsafe { submitter.register_buffers_update(wanted.slot as u32, &[vector], None) } {
                Ok(()) => self.slots[wanted.slot] = Slot { identity: wanted.identity, used: self.uses },
                Err(_) => self.table = Table::Refused,
            }
        }
    }

    /// The ring was made anew: nothing is registered with it.
    pub(super) fn forget(&mut self) {
        *self = RegisteredBuffers { transfers: self.transfers, ..RegisteredBuffers::new() };
    }

    /// Transfers that used a registered buffer.
    pub(super) fn transfers(&self) -> u64 {
        self.transfers
    }
}

#[cfg(test)]
#[path = "registered_test.rs"]
mod registered_test;
