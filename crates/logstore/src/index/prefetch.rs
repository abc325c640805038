//! The one place of this crate's index that needs `unsafe`: a hint to the processor.

/// Asks for the cache line of `place`. Does nothing where the standard library offers no stable
/// way to ask.
#[inline]
pub fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86-64, and a prefetch of any address changes no memory and
        // cannot fault; this one is even that of a live reference.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
