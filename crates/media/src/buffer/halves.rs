//! Memory for long buffers whose pages lie side by side: halves of huge pages.
//!
//! A device takes a request as a list of pieces of memory, and has room for so many pieces at a time: a virtual disk with
//! a queue of 256 takes one request of 1 MiB if its pages lie here and there, and eight if each lies in one piece
//! (measured: `docs/benchmarks/device.md`). The kernel gives memory in one piece as a huge page of 2 MiB, if asked.
//!
//! Invariants:
//! 1. Both halves of a page are never free at a time: the page goes back to the kernel with the second one. So what is
//!    free here is at most what is in use.
//! 2. A half that was used is zeros again before it is given.
//!
//! Where the kernel gives no huge page it gives small ones: the same memory, in more pieces.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// Half a huge page, in bytes: the longest buffer that lies in one.
pub(super) const HALF_BYTES: usize = 1 << 20;
const PAGE_BYTES: usize = 2 * HALF_BYTES;

/// Addresses of free halves, the other half of whose page is in use.
static FREE: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// A half whose first `len` bytes are zeros; `None` when the kernel has no memory. Cost: a new page, which the kernel
/// clears when it is first touched, or `len` bytes made zeros.
pub(super) fn take(len: usize) -> Option<NonNull<u8>> {
    debug_assert!(len <= HALF_BYTES);
    // A set of numbers is whole whatever a panic left undone.
    let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop_first();
    if let Some(address) = free {
        let half = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(address))?;
        // SAFETY: `give` was the end of its last user, and it was taken out of the set: nobody else has it.
        unsafe { half.write_bytes(0, len) };
        return Some(half);
    }
    let page = map_page()?;
    // SAFETY: the page is twice as long.
    let second = unsafe { page.add(HALF_BYTES) };
    FREE.lock().unwrap_or_else(PoisonError::into_inner).insert(second.as_ptr().expose_provenance());
    Some(page)
}

/// Takes a half back.
///
/// # Safety
/// `half` came from [`take`], is given once, and nobody uses it any more.
pub(super) unsafe fn give(half: NonNull<u8>) {
    let address = half.as_ptr().expose_provenance();
    let other = address ^ HALF_BYTES;
    {
        let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        if !free.remove(&other) {
            free.insert(address);
            return;
        }
    }
    let page = std::ptr::with_exposed_provenance_mut::<u8>(address.min(other));
    // SAFETY: the page was mapped by `map_page` with this length, and neither half has a user.
    let ended = unsafe { munmap(page.cast(), PAGE_BYTES) };
    debug_assert!(ended.is_ok(), "the mapping of a page did not end: {ended:?}");
}

/// Maps a page at a multiple of its length.
fn map_page() -> Option<NonNull<u8>> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new anonymous mapping at a place of the kernel's choice touches nobody's memory.
    let start = unsafe { mmap_anonymous(std::ptr::null_mut(), 2 * PAGE_BYTES, access, flags) }.ok()?;
    let start = start.cast::<u8>();
    let before = start.addr().next_multiple_of(PAGE_BYTES) - start.addr();
    let page = start.wrapping_add(before);
    for (part, len) in [(start, before), (page.wrapping_add(PAGE_BYTES), PAGE_BYTES - before)] {
        // SAFETY: parts of the new mapping before and behind the page, which nobody uses.
        let ended = if len > 0 { unsafe { munmap(part.cast(), len) } } else { Ok(()) };
        debug_assert!(ended.is_ok(), "a part of a new mapping did not end: {ended:?}");
    }
    // SAFETY: advice about memory that nobody uses yet; a kernel that refuses gives small pages.
    let _ = unsafe { madvise(page.cast(), PAGE_BYTES, Advice::LinuxHugepage) };
    page.expose_provenance();
    NonNull::new(page)
}

#[cfg(test)]
mod tests {
    use crate::IoBuffer;
    use std::thread;

    #[test]
    fn halves_are_zeros_and_nobody_elses() {
        thread::scope(|scope| {
            for id in 1..=4u8 {
                scope.spawn(move || {
                    let mut held: Vec<IoBuffer> = Vec::new();
                    for round in 0..200usize {
                        // From just above half a half up to a whole one.
                        let mut buffer = IoBuffer::zeroed((516 << 10) + (round % 127) * 4096);
                        assert!(buffer.iter().all(|&byte| byte == 0), "what another one left");
                        buffer.fill(id);
                        held.push(buffer);
                        if held.len() > 1 + round % 5 {
                            let old = held.remove(round % held.len());
                            assert!(old.iter().all(|&byte| byte == id), "somebody else wrote into it");
                        }
                    }
                });
            }
        });
    }
}
