//! A region made slower, in real time: what a published or planned memory would make of the same code.
//!
//! [`EmulatedRegion`] wraps any region. Code that is generic over [`Region`] pays nothing where it is not used.
//! Source: S. Pelley, *Database and System Design for Emerging Storage Technologies*, 2014, section 5.1.
//!
//! What is charged:
//! 1. A load: the latency of a random read for the first line it touches and of a sequential one for each other, from
//!    the instant at which it began, so that this machine's own time is part of it. Lines of a small cache of tags
//!    ([`Slowness::cached_lines`]) are free; without one every line pays, which is pessimistic, as in the source.
//! 2. A write-back and a streaming store: time on the channel of writing for every granule touched, whole. Writes are
//!    not combined between calls: the greatest amplification that the medium's granule can bring. Loads take time on
//!    the channel of reading. The first granule of a call that follows no earlier one is charged as random.
//! 3. A fence: the latency of a persist, from its beginning.
//! 4. A store: nothing; it ends in a cache.
//!
//! Invariant: what is stored, loaded and durable is that of the region inside; only time is added.

pub mod bandwidth;
mod channel;
pub mod delay;
pub mod profiles;

use super::{LINE_BYTES, Region};
use crate::Guarantee;
use channel::Channel;
use delay::{DelayLoop, TickClock};
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_crash::Mutations;

/// The longest latency that can be asked for: a second, in nanoseconds.
const LATENCY_NS_MAX: f64 = 1e9;
/// The largest granule, in bytes.
const GRANULE_BYTES_MAX: u64 = 1 << 20;
/// The most tags: a cache of 4 GiB.
const CACHED_LINES_MAX: usize = 1 << 26;

/// How slow a memory is. `None`: as this machine's own.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Slowness {
    /// A line read at a random place, nanoseconds to a second.
    pub random_read_ns: Option<f64>,
    /// A further line of the same load; `None`: as at a random place.
    pub sequential_read_ns: Option<f64>,
    /// A fence, nanoseconds to a second.
    pub persist_ns: Option<f64>,
    /// Bytes a second of all reading threads together.
    pub read_bytes_per_second: Option<f64>,
    /// Bytes a second of all writing threads together.
    pub write_bytes_per_second: Option<f64>,
    /// Bytes a second of reads whose granules follow no earlier one; `None`: as in order.
    pub random_read_bytes_per_second: Option<f64>,
    /// Bytes a second of writes whose granules follow no earlier one; `None`: as in order.
    pub random_write_bytes_per_second: Option<f64>,
    /// What the medium reads and writes at once: a power of two from a line to 1 MiB.
    pub granule_bytes: u64,
    /// Lines that are remembered as cached, each at one place by its address; 0: every line pays. Rounded up to a
    /// power of two.
    pub cached_lines: usize,
}

impl Slowness {
    /// Nothing is slowed down.
    pub const NONE: Slowness = Slowness {
        random_read_ns: None,
        sequential_read_ns: None,
        persist_ns: None,
        read_bytes_per_second: None,
        write_bytes_per_second: None,
        random_read_bytes_per_second: None,
        random_write_bytes_per_second: None,
        granule_bytes: LINE_BYTES,
        cached_lines: 0,
    };

    /// Refuses what cannot be waited for.
    ///
    /// # Errors
    /// `InvalidInput`, naming the field.
    pub fn check(&self) -> Result<()> {
        let wrong = |field: &str, need: &str| {
            Err(Error::new(
                ErrorKind::InvalidInput,
                format!("{field} of an emulated memory has to be {need}"),
            ))
        };
        let latencies = [
            ("random_read_ns", self.random_read_ns),
            ("sequential_read_ns", self.sequential_read_ns),
            ("persist_ns", self.persist_ns),
        ];
        for (field, ns) in latencies {
            if ns.is_some_and(|ns| !(0.0..=LATENCY_NS_MAX).contains(&ns)) {
                return wrong(field, "from 0 to a second");
            }
        }
        let bandwidths = [
            ("read_bytes_per_second", self.read_bytes_per_second),
            ("write_bytes_per_second", self.write_bytes_per_second),
            ("random_read_bytes_per_second", self.random_read_bytes_per_second),
            ("random_write_bytes_per_second", self.random_write_bytes_per_second),
        ];
        for (field, rate) in bandwidths {
            if rate.is_some_and(|rate| !(1e3..=1e15).contains(&rate)) {
                return wrong(field, "from 1e3 to 1e15");
            }
        }
        if !self.granule_bytes.is_power_of_two()
            || !(LINE_BYTES..=GRANULE_BYTES_MAX).contains(&self.granule_bytes)
        {
            return wrong("granule_bytes", "a power of two from 64 to 1 MiB");
        }
        if self.cached_lines > CACHED_LINES_MAX {
            return wrong("cached_lines", "at most 2^26");
        }
        Ok(())
    }
}

/// What an emulated memory was asked for, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EmulationCounts {
    /// Lines that loads touched.
    pub lines_loaded: u64,
    /// Those of them that paid for being read.
    pub lines_read: u64,
    /// Bytes written back or streamed.
    pub bytes_persisted: u64,
    /// Bytes that the medium wrote for them: whole granules.
    pub bytes_written: u64,
    /// Fences.
    pub fences: u64,
}

impl EmulationCounts {
    /// Bytes written for each byte persisted; 1 when nothing was.
    pub fn write_amplification(&self) -> f64 {
        if self.bytes_persisted == 0 { 1.0 } else { self.bytes_written as f64 / self.bytes_persisted as f64 }
    }
}

#[derive(Debug, Default)]
struct Counters {
    lines_loaded: AtomicU64,
    lines_read: AtomicU64,
    bytes_persisted: AtomicU64,
    bytes_written: AtomicU64,
    fences: AtomicU64,
}

fn add(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// A region that answers as late as a slower memory would.
#[derive(Debug)]
pub struct EmulatedRegion<R, C = DelayLoop> {
    inner: R,
    clock: C,
    slowness: Slowness,
    reading: Option<Channel>,
    writing: Option<Channel>,
    /// Of each place the line that it holds, plus one.
    tags: Vec<AtomicU64>,
    counters: Counters,
    mutations: Mutations,
}

impl<R: Region> EmulatedRegion<R> {
    /// `inner`, slowed down by this machine's waiting loop.
    ///
    /// # Errors
    /// As [`Slowness::check`].
    pub fn new(inner: R, slowness: Slowness) -> Result<Self> {
        Self::with_clock(inner, slowness, *DelayLoop::of_machine())
    }
}

impl<R: Region, C: TickClock> EmulatedRegion<R, C> {
    /// The same by another clock.
    ///
    /// # Errors
    /// As [`Slowness::check`].
    pub fn with_clock(inner: R, slowness: Slowness, clock: C) -> Result<Self> {
        slowness.check()?;
        let (granule, ticks_per_ns, origin) = (slowness.granule_bytes, clock.ticks_per_ns(), clock.now());
        let channel = |rate, random_rate| Channel::new(rate, random_rate, granule, ticks_per_ns, origin);
        let places = if slowness.cached_lines == 0 { 0 } else { slowness.cached_lines.next_power_of_two() };
        Ok(EmulatedRegion {
            inner,
            slowness,
            reading: channel(slowness.read_bytes_per_second, slowness.random_read_bytes_per_second),
            writing: channel(slowness.write_bytes_per_second, slowness.random_write_bytes_per_second),
            tags: (0..places).map(|_| AtomicU64::new(0)).collect(),
            clock,
            counters: Counters::default(),
            mutations: Mutations::none(),
        })
    }

    /// The same region with rules broken.
    #[must_use]
    pub fn with_mutations(mut self, mutations: Mutations) -> Self {
        self.mutations = mutations;
        self
    }

    /// The region inside.
    pub fn inner(&self) -> &R {
        &self.inner
    }

    /// How slow it is made.
    pub fn slowness(&self) -> &Slowness {
        &self.slowness
    }

    /// What it was asked for.
    pub fn counts(&self) -> EmulationCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EmulationCounts {
            lines_loaded: of(&self.counters.lines_loaded),
            lines_read: of(&self.counters.lines_read),
            bytes_persisted: of(&self.counters.bytes_persisted),
            bytes_written: of(&self.counters.bytes_written),
            fences: of(&self.counters.fences),
        }
    }

    /// Takes note that the line is cached now. Returns whether it was.
    fn cache(&self, line: u64) -> bool {
        let Some(last) = self.tags.len().checked_sub(1) else { return false };
        let tag = line + 1;
        self.tags.get(line as usize & last).is_some_and(|place| place.swap(tag, Ordering::Relaxed) == tag)
    }

    /// Waits as long as loading these bytes takes the memory, from `begun` on.
    fn charge_load(&self, begun: u64, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        let lines = offset / LINE_BYTES..(offset + len).div_ceil(LINE_BYTES);
        add(&self.counters.lines_loaded, lines.end - lines.start);
        let (mut read, mut granules, mut last_granule) = (0, 0, None);
        let (mut first, mut last) = (offset, offset);
        for line in lines {
            if self.cache(line) {
                continue;
            }
            read += 1;
            let granule = Some(line * LINE_BYTES / self.slowness.granule_bytes);
            granules += u64::from(granule != last_granule);
            last_granule = granule;
            last = line * LINE_BYTES;
            first = if read == 1 { last } else { first };
        }
        if read == 0 {
            return;
        }
        add(&self.counters.lines_read, read);
        let mut deadline = begun;
        if let Some(random_ns) = self.slowness.random_read_ns {
            let sequential_ns = self.slowness.sequential_read_ns.unwrap_or(random_ns);
            deadline += self.clock.ticks_of(random_ns + (read - 1) as f64 * sequential_ns);
        }
        if let Some(channel) = &self.reading {
            deadline =
                deadline.max(channel.reserve(begun, granules * self.slowness.granule_bytes, first, last));
        }
        self.clock.wait_until(deadline);
    }

    /// Waits until the medium has taken these bytes, from `begun` on.
    fn charge_persist(&self, begun: u64, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        let granule = match self.mutations.is_on("whole granules are written") {
            true => 1,
            false => self.slowness.granule_bytes,
        };
        let written = ((offset + len).div_ceil(granule) - offset / granule) * granule;
        add(&self.counters.bytes_persisted, len);
        add(&self.counters.bytes_written, written);
        if let Some(channel) = &self.writing {
            self.clock.wait_until(channel.reserve(begun, written, offset, offset + len - 1));
        }
    }
}

impl<R: Region, C: TickClock> Region for EmulatedRegion<R, C> {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn guarantee(&self) -> Guarantee {
        self.inner.guarantee()
    }

    fn load_word(&self, offset: u64) -> u64 {
        let begun = self.clock.now();
        let word = self.inner.load_word(offset);
        self.charge_load(begun, offset, super::WORD_BYTES);
        word
    }

    fn store_word(&self, offset: u64, value: u64) {
        self.inner.store_word(offset, value);
        self.cache(offset / LINE_BYTES);
    }

    fn compare_exchange_word(&self, offset: u64, expected: u64, new: u64) -> std::result::Result<u64, u64> {
        let begun = self.clock.now();
        let found = self.inner.compare_exchange_word(offset, expected, new);
        self.charge_load(begun, offset, super::WORD_BYTES);
        found
    }

    fn load(&self, offset: u64, into: &mut [u8]) {
        let begun = self.clock.now();
        self.inner.load(offset, into);
        self.charge_load(begun, offset, into.len() as u64);
    }

    unsafe fn in_place(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let begun = self.clock.now();
        // SAFETY: what the caller promises of this region holds of the one inside.
        let bytes = unsafe { self.inner.in_place(offset, len) }?;
        self.charge_load(begun, offset, len as u64);
        Some(bytes)
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        self.inner.store(offset, bytes);
        if !self.tags.is_empty() && !bytes.is_empty() {
            let end = (offset + bytes.len() as u64).div_ceil(LINE_BYTES);
            (offset / LINE_BYTES..end).for_each(|line| {
                self.cache(line);
            });
        }
    }

    fn store_streaming(&self, offset: u64, bytes: &[u8]) {
        let begun = self.clock.now();
        self.inner.store_streaming(offset, bytes);
        self.charge_persist(begun, offset, bytes.len() as u64);
    }

    fn write_back(&self, offset: u64, len: u64) {
        let begun = self.clock.now();
        self.inner.write_back(offset, len);
        self.charge_persist(begun, offset, len);
    }

    fn fence(&self) -> Result<()> {
        let begun = self.clock.now();
        self.inner.fence()?;
        add(&self.counters.fences, 1);
        if let Some(ns) = self.slowness.persist_ns
            && !self.mutations.is_on("a fence waits for the medium")
        {
            self.clock.wait_until(begun + self.clock.ticks_of(ns));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "emulated_test.rs"]
mod emulated_test;
