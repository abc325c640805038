//! The memory of a cache: one anonymous mapping, zeroed and untouched until used.
//!
//! Invariants:
//! 1. The mapping is owned by one `Arena`, from creation to drop; its length never changes.
//! 2. Pages become resident when first written, and are given back by [`Arena::release`].
//!
//! A mapping and not a `Vec`: it starts on a page, so that frames keep their alignment to cache
//! lines; the kernel can be asked for huge pages, which saves the second miss (of the page table)
//! that a random access to gigabytes costs; and a shrinking cache can give pages back.
//! A crash loses all of it.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use tierstone_base::prefetch::prefetch_bytes;
use tierstone_base::{Error, ErrorKind, Result};

/// The unit in which memory is given back. Larger than or equal to the page of every supported
/// processor (aarch64 kernels may use 64 KiB).
const RELEASE_UNIT_BYTES: usize = 64 << 10;
/// Smaller mappings gain nothing from huge pages and would waste most of one.
const HUGE_PAGES_FROM_BYTES: usize = 4 << 20;

/// Zeroed bytes that cost memory only where they were written.
pub(super) struct Arena {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: an Arena owns its mapping exclusively, like a Box<[u8]>.
unsafe impl Send for Arena {}
// SAFETY: shared references only allow reads of the owned mapping.
unsafe impl Sync for Arena {}

impl Arena {
    /// Maps `len` zeroed bytes; none when `len` is zero. Cost: one or two system calls.
    ///
    /// # Errors
    /// `NoMemory` when the address space or the machine's commit limit does not allow it.
    pub(super) fn zeroed(len: usize, huge_pages: bool) -> Result<Arena> {
        if len == 0 {
            return Ok(Arena { start: NonNull::dangling(), len });
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no memory
        // that exists.
        let mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, flags) };
        let address = mapped.map_err(|error| {
            Error::new(ErrorKind::NoMemory, format!("cannot map {len} bytes for a cache: {error}"))
        })?;
        let Some(start) = NonNull::new(address.cast::<u8>()) else {
            return Err(Error::new(ErrorKind::NoMemory, "the kernel mapped a cache at address zero"));
        };
        if huge_pages && len >= HUGE_PAGES_FROM_BYTES {
            // A kernel without huge pages refuses; the cache then works with small ones.
            // SAFETY: the range is the mapping made above, and the advice does not change contents.
            let _ = unsafe { madvise(address, len, Advice::LinuxHugepage) };
        }
        Ok(Arena { start, len })
    }

    /// Gives the memory of whole units inside `range` back; their bytes read as zero or as before.
    pub(super) fn release(&mut self, range: Range<usize>) {
        let from = range.start.next_multiple_of(RELEASE_UNIT_BYTES);
        let to = range.end.min(self.len) / RELEASE_UNIT_BYTES * RELEASE_UNIT_BYTES;
        if from >= to {
            return;
        }
        let released = &mut self[from..to];
        let (start, len) = (released.as_mut_ptr(), released.len());
        // If the kernel refuses, memory stays resident and contents stay: both are harmless.
        // SAFETY: the range lies inside the owned private mapping, is borrowed mutably here, and
        // reads as zero afterwards, which is a valid value of bytes.
        let _ = unsafe { madvise(start.cast(), len, Advice::LinuxDontNeed) };
    }

    /// Asks the processor for the lines from `offset` on, `lines` of them at most.
    #[inline]
    pub(super) fn prefetch(&self, offset: usize, lines: usize) {
        prefetch_bytes(self.get(offset..).unwrap_or_default(), lines);
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: the mapping was made with this address and length and is unmapped once.
            let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        }
    }
}

impl Deref for Arena {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is zero-initialised, owned and `len` bytes long; for a length of
        // zero a dangling pointer is valid.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Arena {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Arena").field("len", &self.len).finish()
    }
}
