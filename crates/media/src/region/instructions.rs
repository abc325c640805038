//! The CPU's instructions that move lines from its caches to the memory, and how to know which it has.

use std::sync::atomic::AtomicU64;

/// How lines are written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushMethod {
    /// CLWB and SFENCE: the line stays in the cache.
    Clwb,
    /// CLFLUSHOPT and SFENCE: the line leaves the cache.
    ClflushOpt,
    /// CLFLUSH and SFENCE: each line is waited for.
    Clflush,
    /// DC CVAP and DSB, of aarch64.
    DcCvap,
    /// A fence alone: the caches are in the persistence domain (eADR).
    FenceOnly,
    /// The `msync` system call, for files without DAX: pages, not lines.
    Msync,
}

impl FlushMethod {
    /// Its name in settings and reports.
    pub fn name(self) -> &'static str {
        match self {
            FlushMethod::Clwb => "clwb",
            FlushMethod::ClflushOpt => "clflushopt",
            FlushMethod::Clflush => "clflush",
            FlushMethod::DcCvap => "dc-cvap",
            FlushMethod::FenceOnly => "fence-only",
            FlushMethod::Msync => "msync",
        }
    }

    /// The best that this CPU has for lines; [`FlushMethod::Msync`] when it has nothing.
    pub fn detect() -> FlushMethod {
        let best = [FlushMethod::Clwb, FlushMethod::ClflushOpt, FlushMethod::Clflush, FlushMethod::DcCvap];
        best.into_iter().find(|method| method.is_available()).unwrap_or(FlushMethod::Msync)
    }

    /// Whether this machine can do it.
    #[cfg(target_arch = "x86_64")]
    pub fn is_available(self) -> bool {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        let leaf = |number: u32| __cpuid(0).eax >= number;
        match self {
            FlushMethod::Clwb => leaf(7) && __cpuid_count(7, 0).ebx & (1 << 24) != 0,
            FlushMethod::ClflushOpt => leaf(7) && __cpuid_count(7, 0).ebx & (1 << 23) != 0,
            FlushMethod::Clflush => leaf(1) && __cpuid(1).edx & (1 << 19) != 0,
            FlushMethod::DcCvap => false,
            FlushMethod::FenceOnly | FlushMethod::Msync => true,
        }
    }

    /// Whether this machine can do it.
    #[cfg(target_arch = "aarch64")]
    pub fn is_available(self) -> bool {
        /// The kernel's word for "DC CVAP is there".
        const HWCAP_DCPOP: usize = 1 << 16;
        match self {
            FlushMethod::DcCvap => rustix::param::linux_hwcap().0 & HWCAP_DCPOP != 0,
            FlushMethod::FenceOnly | FlushMethod::Msync => true,
            _ => false,
        }
    }

    /// Whether this machine can do it.
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    pub fn is_available(self) -> bool {
        self == FlushMethod::Msync
    }
}

/// Starts to write back the lines that hold `words`; nothing for methods that are no instruction on lines.
#[inline]
pub(super) fn write_back(method: FlushMethod, words: &[AtomicU64]) {
    let line = super::LINE_BYTES as usize;
    let range = words.as_ptr_range();
    let mut at = range.start.addr() / line * line;
    while at < range.end.addr() {
        write_back_line(method, range.start.with_addr(at).cast());
        at += line;
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn write_back_line(method: FlushMethod, line: *const u8) {
    use std::arch::asm;
    // SAFETY: the line holds a word of a live mapping, which pages contain whole; the instructions change no
    // value, and the method was found to be available.
    unsafe {
        match method {
            FlushMethod::Clwb => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
            FlushMethod::ClflushOpt => {
                asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags))
            }
            FlushMethod::Clflush => asm!("clflush [{}]", in(reg) line, options(nostack, preserves_flags)),
            FlushMethod::DcCvap | FlushMethod::FenceOnly | FlushMethod::Msync => {}
        }
    }
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn write_back_line(method: FlushMethod, line: *const u8) {
    if method == FlushMethod::DcCvap {
        // SAFETY: the line holds a word of a live mapping; DC CVAP, in its generic form so that every assembler
        // knows it, changes no value, and was found to be available.
        unsafe {
            std::arch::asm!("sys #3, c7, c12, #1, {}", in(reg) line, options(nostack, preserves_flags))
        };
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
fn write_back_line(_method: FlushMethod, _line: *const u8) {}

/// Stores past the caches where there is an instruction for it; returns by the ordinary way elsewhere.
#[inline]
pub(super) fn stream_word(word: &AtomicU64, value: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the address is that of a live word, which other threads access by atomic words only; MOVNTI stores
    // the aligned word whole.
    unsafe {
        std::arch::asm!("movnti [{}], {}", in(reg) word.as_ptr(), in(reg) value, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    word.store(value, std::sync::atomic::Ordering::Relaxed);
}

/// Whether [`stream_word`] goes past the caches, so that a fence is enough.
pub(super) const STREAMS: bool = cfg!(target_arch = "x86_64");

/// Waits for what was written back and streamed.
#[inline]
pub(super) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SFENCE is in every x86-64 CPU and changes no value.
    unsafe {
        std::arch::asm!("sfence", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: DSB changes no value.
    unsafe {
        std::arch::asm!("dsb sy", options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// The machine's counter of time, after everything that this thread did before: nanoseconds or less a step on x86-64
/// (TSC), on aarch64 the step of its generic timer; elsewhere nanoseconds of the system's clock.
#[inline]
pub(super) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: LFENCE and RDTSC are in every x86-64 CPU and change no value; the fence waits for earlier loads.
    unsafe {
        std::arch::x86_64::_mm_lfence();
        std::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: the virtual counter may be read by every program; ISB keeps the reading behind what came before.
        unsafe { std::arch::asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks, options(nostack)) };
        ticks
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        use tierstone_base::{SystemClock, clock::CpuClock};
        static CLOCK: std::sync::OnceLock<SystemClock> = std::sync::OnceLock::new();
        let mut clock = *CLOCK.get_or_init(SystemClock::new);
        clock.cpu_ns()
    }
}
