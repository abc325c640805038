//! Buffers that a device can read and write directly: aligned to a block and owned.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// The unit of all device input and output, and the alignment of every buffer, in bytes. It is the
/// physical block of today's disks and flash: no two durable writes ever share one.
pub const BLOCK_BYTES: usize = 4096;

/// Zeroed memory aligned to [`BLOCK_BYTES`], a whole number of blocks long.
pub struct IoBuffer {
    start: NonNull<u8>,
    /// Bytes that requests and slices cover; at most `capacity`.
    len: usize,
    capacity: usize,
}

// SAFETY: an IoBuffer owns its memory exclusively, like a Box<[u8]>.
unsafe impl Send for IoBuffer {}
// SAFETY: shared references only allow reads of the owned memory.
unsafe impl Sync for IoBuffer {}

impl IoBuffer {
    /// A zeroed buffer of at least `bytes` bytes, rounded up to whole blocks; one block at least.
    /// Cost: one allocation.
    pub fn zeroed(bytes: usize) -> Self {
        let len = bytes.max(1).next_multiple_of(BLOCK_BYTES);
        let layout = Self::layout(len);
        // SAFETY: the layout has a non-zero size, because `len` is at least one block.
        let memory = unsafe { alloc_zeroed(layout) };
        match NonNull::new(memory) {
            Some(start) => IoBuffer { start, len, capacity: len },
            None => handle_alloc_error(layout),
        }
    }

    /// A buffer that holds `bytes`, padded with zeros to whole blocks.
    pub fn from_slice(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer[..bytes.len()].copy_from_slice(bytes);
        buffer
    }

    fn layout(len: usize) -> Layout {
        match Layout::from_size_align(len, BLOCK_BYTES) {
            Ok(layout) => layout,
            Err(error) => unreachable!("a buffer of {len} bytes has no layout: {error}"),
        }
    }

    /// How many bytes the buffer can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Makes requests and slices cover the first `bytes` bytes, rounded up to whole blocks and at
    /// most the capacity. The bytes themselves stay as they are.
    pub fn set_len(&mut self, bytes: usize) {
        self.len = bytes.clamp(1, self.capacity).next_multiple_of(BLOCK_BYTES);
    }

    /// The address of the first byte, for back-ends that hand it to the kernel.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for IoBuffer {
    fn drop(&mut self) {
        // SAFETY: `start` was allocated with this very layout and is freed once.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.capacity)) }
    }
}

impl Deref for IoBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is initialised (zeroed), owned and `len` bytes long.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for IoBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Clone for IoBuffer {
    fn clone(&self) -> Self {
        Self::from_slice(self)
    }
}

impl std::fmt::Debug for IoBuffer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "IoBuffer({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_zeroed_and_whole_blocks() {
        let mut buffer = IoBuffer::zeroed(5000);
        assert_eq!(buffer.len(), 8192);
        assert_eq!(buffer.as_mut_ptr().addr() % BLOCK_BYTES, 0);
        assert!(buffer.iter().all(|&byte| byte == 0));
        buffer[4999] = 1;
        assert_eq!(buffer.clone()[4999], 1);
        buffer.set_len(10);
        assert_eq!((buffer.len(), buffer.capacity()), (4096, 8192));
        buffer.set_len(100_000);
        assert_eq!(buffer[4999], 1);
    }
}
