//! Buffers that a device can read and write directly: aligned to a block and owned.

mod halves;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// The unit of all device input and output, and the alignment of every buffer, in bytes. It is the
/// physical block of today's disks and flash: no two durable writes ever share one.
pub const BLOCK_BYTES: usize = 4096;

/// Buffers of so many bytes are mappings of their own, which go back to the kernel when they are dropped. Allocators keep
/// what was freed by another thread than took it: of a process that cleaned, 40 MiB beyond its budget.
const MAPPED_BYTES_MIN: usize = 128 << 10;

/// Longer buffers, up to [`halves::HALF_BYTES`], lie in one piece of memory where the kernel gives it.
const HALF_BYTES_MIN: usize = 512 << 10;

static IDENTITIES: AtomicU64 = AtomicU64::new(1);

/// Zeroed memory aligned to [`BLOCK_BYTES`], a whole number of blocks long.
pub struct IoBuffer {
    start: NonNull<u8>,
    /// Bytes that requests and slices cover; at most `capacity`.
    len: usize,
    capacity: usize,
    identity: u64,
}

// SAFETY: an IoBuffer owns its memory exclusively, like a Box<[u8]>.
unsafe impl Send for IoBuffer {}
// SAFETY: shared references only allow reads of the owned memory.
unsafe impl Sync for IoBuffer {}

impl IoBuffer {
    /// A zeroed buffer of at least `bytes` bytes, rounded up to whole blocks; one block at least.
    /// Cost: one allocation; from 128 KiB on a mapping, whose pages come when they are first touched; above 512 KiB and up
    /// to 1 MiB half a huge page, which may have to be made zeros ([`halves`]).
    pub fn zeroed(bytes: usize) -> Self {
        let len = bytes.max(1).next_multiple_of(BLOCK_BYTES);
        let layout = Self::layout(len);
        let memory = if Self::is_half(len) {
            halves::take(len).map_or(std::ptr::null_mut(), NonNull::as_ptr)
        } else if len >= MAPPED_BYTES_MIN {
            let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            // SAFETY: a new anonymous mapping at a place of the kernel's choice touches nobody's memory; its pages
            // are zero, and aligned to a page, which is a block or a multiple of it.
            unsafe { mmap_anonymous(std::ptr::null_mut(), len, access, flags) }
                .map_or(std::ptr::null_mut(), <*mut std::ffi::c_void>::cast)
        } else {
            // SAFETY: the layout has a non-zero size, because `len` is at least one block.
            unsafe { alloc_zeroed(layout) }
        };
        match NonNull::new(memory) {
            Some(start) => {
                let identity = IDENTITIES.fetch_add(1, Ordering::Relaxed);
                IoBuffer { start, len, capacity: len, identity }
            }
            None => handle_alloc_error(layout),
        }
    }

    /// As [`IoBuffer::zeroed`], and the kernel is asked for huge pages, which it may refuse: for large memory that is
    /// filled whole, whose first touch costs a fault for 2 MiB then, not for each 4 KiB.
    pub fn zeroed_huge(bytes: usize) -> Self {
        let buffer = Self::zeroed(bytes);
        if buffer.capacity >= MAPPED_BYTES_MIN && !Self::is_half(buffer.capacity) {
            // SAFETY: advice about a mapping that this buffer owns; what it holds stays.
            let _ = unsafe { madvise(buffer.start.as_ptr().cast(), buffer.capacity, Advice::LinuxHugepage) };
        }
        buffer
    }

    /// A buffer that holds `bytes`, padded with zeros to whole blocks.
    pub fn from_slice(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer[..bytes.len()].copy_from_slice(bytes);
        buffer
    }

    fn is_half(len: usize) -> bool {
        (HALF_BYTES_MIN + 1..=halves::HALF_BYTES).contains(&len)
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

    /// A number that no other buffer of this process has or had, and never 0. For back-ends that keep
    /// something a buffer: an address may be given to another one.
    pub fn identity(&self) -> u64 {
        self.identity
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
        if Self::is_half(self.capacity) {
            // SAFETY: it was taken for this buffer, and is given once.
            unsafe { halves::give(self.start) }
        } else if self.capacity >= MAPPED_BYTES_MIN {
            // SAFETY: the mapping was made for this buffer with this length, and is ended once.
            let ended = unsafe { munmap(self.start.as_ptr().cast(), self.capacity) };
            debug_assert!(ended.is_ok(), "the buffer's mapping did not end: {ended:?}");
        } else {
            // SAFETY: `start` was allocated with this very layout and is freed once.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.capacity)) }
        }
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

/// Buffers that were used before, for those who fill them wholly: taking one costs neither an allocation
/// nor zeroing.
#[derive(Debug, Default)]
pub struct BufferPool {
    /// By their whole blocks, less one.
    spare: [Vec<IoBuffer>; POOLED_BLOCKS_MAX],
}

/// The longest buffers that a pool keeps, in blocks.
const POOLED_BLOCKS_MAX: usize = 5;
/// The most buffers of one length that a pool keeps.
const POOLED_BUFFERS_MAX: usize = 64;

impl BufferPool {
    /// A buffer of at least `bytes` bytes, rounded up to whole blocks. What is in it is undefined: zeros
    /// or what an earlier user left.
    pub fn take(&mut self, bytes: usize) -> IoBuffer {
        let blocks = bytes.div_ceil(BLOCK_BYTES).max(1);
        let spare = self.spare.get_mut(blocks - 1).and_then(Vec::pop);
        spare.unwrap_or_else(|| IoBuffer::zeroed(blocks * BLOCK_BYTES))
    }

    /// Takes a buffer back, or drops it if there are enough of its length.
    pub fn give(&mut self, mut buffer: IoBuffer) {
        let capacity = buffer.capacity();
        if let Some(spare) = self.spare.get_mut(capacity / BLOCK_BYTES - 1)
            && spare.len() < POOLED_BUFFERS_MAX
        {
            buffer.set_len(capacity);
            spare.push(buffer);
        }
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

    #[test]
    fn a_pool_gives_buffers_of_the_length_asked_for_again() {
        let mut pool = BufferPool::default();
        let mut first = pool.take(5000);
        assert_eq!(first.len(), 8192);
        first[0] = 7;
        first.set_len(1);
        pool.give(first);
        assert_eq!(pool.take(4096)[0], 0, "of another length");
        let again = pool.take(8192);
        assert_eq!((again.len(), again[0]), (8192, 7));
        pool.give(IoBuffer::zeroed(1 << 20));
        assert_eq!(pool.take(1 << 20).len(), 1 << 20);
    }

    #[test]
    fn a_pool_is_bounded() {
        let mut pool = BufferPool::default();
        for _ in 0..2 * POOLED_BUFFERS_MAX {
            pool.give(IoBuffer::zeroed(1));
        }
        assert_eq!(pool.spare[0].len(), POOLED_BUFFERS_MAX);
    }
}
