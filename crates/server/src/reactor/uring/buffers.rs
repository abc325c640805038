//! The receive buffers that a ring shares among its connections.
//!
//! Invariants:
//! 1. A buffer belongs to the kernel from [`ReceiveBuffers::give`] on, until a completion names it.
//! 2. The memory lives until the ring is gone: the owner drops the ring first, or leaks this.

use io_uring::{IoUring, types::BufRingEntry};
use std::sync::atomic::{AtomicU16, Ordering};
use tierstone_base::Result;
use tierstone_media::IoBuffer;

/// The one group of buffers of a ring.
pub(super) const GROUP: u16 = 0;

pub(super) struct ReceiveBuffers {
    /// The kernel's queue of buffers; its first entry holds the tail.
    queue: IoBuffer,
    bytes: IoBuffer,
    count: u16,
    buffer_bytes: usize,
    tail: u16,
}

impl ReceiveBuffers {
    /// Registers `count` (a power of two) buffers of `buffer_bytes` each with `ring`.
    pub fn new(ring: &IoUring, count: u16, buffer_bytes: usize) -> Result<Self> {
        let queue = IoBuffer::zeroed(usize::from(count) * size_of::<BufRingEntry>());
        let bytes = IoBuffer::zeroed(usize::from(count) * buffer_bytes);
        let mut buffers = ReceiveBuffers { queue, bytes, count, buffer_bytes, tail: 0 };
        let address = buffers.queue.as_mut_ptr() as u64;
        // SAFETY: the queue is page-aligned, holds `count` entries and lives as long as the ring
        // (invariant 2).
        unsafe { ring.submitter().register_buf_ring_with_flags(address, count, GROUP, 0)? };
        for id in 0..count {
            buffers.give(id);
        }
        buffers.publish();
        Ok(buffers)
    }

    /// The length of one buffer.
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// The first `len` bytes of buffer `id`, which a completion has named.
    #[inline]
    pub fn bytes(&self, id: u16, len: usize) -> &[u8] {
        let start = usize::from(id) * self.buffer_bytes;
        &self.bytes[start..start + len.min(self.buffer_bytes)]
    }

    /// Gives buffer `id` back; the kernel sees it after [`ReceiveBuffers::publish`].
    #[inline]
    pub fn give(&mut self, id: u16) {
        let slot = usize::from(self.tail & (self.count - 1));
        let offset = usize::from(id) * self.buffer_bytes;
        debug_assert!(id < self.count, "no such buffer");
        let address = self.bytes.as_mut_ptr().wrapping_add(offset) as u64;
        // SAFETY: the slot lies inside the queue; the kernel does not read entries beyond the
        // published tail, and of the first entry only the tail field is shared, which is not touched.
        let entry = unsafe { &mut *self.queue.as_mut_ptr().cast::<BufRingEntry>().add(slot) };
        entry.set_addr(address);
        entry.set_len(self.buffer_bytes as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the kernel what was given back.
    #[inline]
    pub fn publish(&mut self) {
        let first = self.queue.as_mut_ptr().cast::<BufRingEntry>();
        // SAFETY: `first` is the address of the registered queue, whose entries are initialised; the
        // tail is a 16-bit field, aligned to it, that the kernel reads with acquire order.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(first).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}
