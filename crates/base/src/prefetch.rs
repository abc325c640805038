//! A hint to the processor: this memory is wanted soon.
//!
//! Who works on many keys at once touches memory that no cache of the processor holds, and waits some 100 ns
//! for each line. Asked for ahead, the lines come side by side. A hint changes nothing else: what it names
//! may be used, changed or given back afterwards as if it had not been named.

/// Asks for the cache line in which `place` begins. Costs an instruction, and that the place in a
/// processor's list of outstanding lines (some ten) is taken: more than a few dozen at once only wait for
/// each other. Does nothing on processors other than x86-64 and aarch64.
#[inline(always)]
pub fn prefetch_read<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86-64, and a prefetch of any address changes no memory and
        // cannot fault; this one is even that of a live reference.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast()) }
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above; the instruction has no effect but on caches.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) std::ptr::from_ref(place), options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = place;
}

/// Asks for the lines of `bytes`, `lines_max` of them at most.
#[inline]
pub fn prefetch_bytes(bytes: &[u8], lines_max: usize) {
    bytes.iter().step_by(LINE_BYTES).take(lines_max).for_each(prefetch_read);
}

/// Bytes of a cache line on the processors that are asked.
const LINE_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays_as_it_is() {
        let bytes: Vec<u8> = (0..=255).collect();
        let before = bytes.clone();
        prefetch_read(&bytes[7]);
        prefetch_bytes(&bytes, 2);
        prefetch_bytes(&bytes, usize::MAX);
        prefetch_bytes(&[], 4);
        assert_eq!(bytes, before);
    }
}
