//! A mapping of a file or of anonymous memory as a slice of atomic words: the one place where the
//! address of a mapping is handled.

use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Smaller mappings gain nothing from huge pages and would waste most of one.
const HUGE_PAGES_FROM_BYTES: usize = 4 << 20;

/// Anonymous mappings up to this size are there whole from the start: what the kernel takes to give and to clear a page on its first
/// touch is no cost of persistent memory, and would be measured as one. Larger ones may be meant to stay mostly empty.
const POPULATED_BYTES_MAX: usize = 4 << 30;

/// A shared mapping that lives as long as this value.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping is plain memory that belongs to no thread; all access is by atomic words.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` of `file`, with MAP_SYNC when `sync`.
    pub fn of_file(file: &File, bytes: usize, sync: bool) -> io::Result<Mapping> {
        let flags = if sync { MapFlags::SHARED_VALIDATE | MapFlags::SYNC } else { MapFlags::SHARED };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory in use.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, flags, file, 0) }?;
        Self::of(start, bytes)
    }

    /// Maps `bytes` of anonymous memory, zeros. Large ones ask for huge pages, as persistent memory is mapped with: a
    /// record that no cache holds then costs a miss of one, not of the page table too.
    pub fn anonymous(bytes: usize) -> io::Result<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as above.
        let start = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)
        }?;
        if bytes >= HUGE_PAGES_FROM_BYTES {
            // A kernel without huge pages refuses; the region then works with small ones.
            // SAFETY: the mapping was made just now, and advice changes nothing of what it holds.
            let _ = unsafe { rustix::mm::madvise(start, bytes, Advice::LinuxHugepage) };
        }
        if (HUGE_PAGES_FROM_BYTES..=POPULATED_BYTES_MAX).contains(&bytes) {
            // Kernels before 5.14 do not know this, and pages come as they are touched.
            // SAFETY: as above; the pages come with the zeros that they would have had.
            let _ = unsafe { rustix::mm::madvise(start, bytes, Advice::LinuxPopulateWrite) };
        }
        Self::of(start, bytes)
    }

    fn of(start: *mut c_void, bytes: usize) -> io::Result<Mapping> {
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Mapping { start, words: bytes / size_of::<AtomicU64>() })
    }

    /// All its words.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has this many words, is aligned to a page, zeroed or from the file (every bit
        // pattern is a word), and lives as long as `self`. The file is locked and was given its blocks, so
        // that no other process shortens it while it keeps to the lock.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }

    /// `len` of its bytes from `offset`.
    ///
    /// # Safety
    /// Nobody stores to them while the slice is used.
    ///
    /// # Panics
    /// When they lie outside the mapping.
    #[inline]
    pub unsafe fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        let end = offset.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.words * size_of::<AtomicU64>()), "outside the mapping");
        // SAFETY: the range lies in the mapping, which lives as long as `self`; that nobody stores to it
        // meanwhile is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast::<u8>().add(offset), len) }
    }

    /// Writes the pages of `bytes` bytes from `offset` to the file's device and waits for them.
    pub fn msync(&self, offset: usize, bytes: usize) -> io::Result<()> {
        let page = rustix::param::page_size();
        let start = offset / page * page;
        let end = (offset + bytes).next_multiple_of(page).min(self.words * size_of::<AtomicU64>());
        // SAFETY: the range lies in the mapping; msync reads it.
        let synced = unsafe {
            rustix::mm::msync(self.start.as_ptr().byte_add(start).cast(), end - start, MsyncFlags::SYNC)
        };
        Ok(synced?)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: nobody borrows the words any more, and the range is the one that was mapped. A failure
        // leaves the memory mapped, which harms nobody.
        let _ =
            unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.words * size_of::<AtomicU64>()) };
    }
}
