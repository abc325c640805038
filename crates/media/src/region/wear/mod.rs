//! Wear: how often each line, and if asked for each byte, of a region was written to its medium; levelling; lifetime.
//!
//! [`WornRegion`] wraps a region and counts; code that is generic over [`Region`] pays nothing where it is not used.
//! A byte counts as written when it was stored and then written back, or streamed, however often it was stored in
//! between; a line as written when one of its bytes was. Lines that a cache gives up by itself are not seen: the
//! counts are those of the software's own persists, as in S. Pelley, 2014, section 5.5 (Figure 5.7).
//!
//! Invariants: the counts of one line are exact as long as no two threads write back that line at once, and never
//! above the number of write-backs; a write-back of what was not stored since counts nothing.

pub mod lifetime;
pub mod start_gap;

use super::{LINE_BYTES, Region, WORD_BYTES};
use crate::Guarantee;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use tierstone_base::Result;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WearDetail {
    /// Lines: 16 bytes of memory for each.
    Lines,
    /// Lines and bytes: 8 bytes of memory more for each byte.
    Bytes,
}

/// The sums of what was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WearCounts {
    /// Writes of lines.
    pub line_writes: u64,
    /// The most writes of one line.
    pub hottest_line_writes: u64,
    /// The first line that has them.
    pub hottest_line: u64,
    /// Bytes that were stored and written.
    pub bytes_written: u64,
    /// The most writes of one byte; `None` when bytes are not counted.
    pub hottest_byte_writes: Option<u64>,
}

/// A region whose writes are counted.
#[derive(Debug)]
pub struct WornRegion<R> {
    inner: R,
    /// For each line its bytes that were stored and not written back, one bit each.
    dirty: Vec<AtomicU64>,
    lines: Vec<AtomicU64>,
    /// Empty when bytes are not counted.
    bytes: Vec<AtomicU64>,
    bytes_written: AtomicU64,
}

fn zeros(count: u64) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

/// The lines that `offset .. offset + len` touches, each with a bit for every byte of the range in it.
fn touched(offset: u64, len: u64) -> impl Iterator<Item = (usize, u64)> {
    let end = offset.saturating_add(len);
    let lines = offset / LINE_BYTES..if len == 0 { offset / LINE_BYTES } else { end.div_ceil(LINE_BYTES) };
    lines.map(move |line| {
        let first = offset.saturating_sub(line * LINE_BYTES);
        let count = (end - line * LINE_BYTES).min(LINE_BYTES) - first;
        (line as usize, (u64::MAX >> (LINE_BYTES - count)) << first)
    })
}

impl<R: Region> WornRegion<R> {
    /// `inner`, unworn.
    pub fn new(inner: R, detail: WearDetail) -> Self {
        let lines = inner.bytes() / LINE_BYTES;
        let bytes = if detail == WearDetail::Bytes { inner.bytes() } else { 0 };
        WornRegion {
            dirty: zeros(lines),
            lines: zeros(lines),
            bytes: zeros(bytes),
            bytes_written: AtomicU64::new(0),
            inner,
        }
    }

    /// The region inside.
    pub fn inner(&self) -> &R {
        &self.inner
    }

    /// The sums. Cost: a pass over all counters.
    pub fn counts(&self) -> WearCounts {
        let mut counts = WearCounts {
            bytes_written: self.bytes_written.load(Ordering::Relaxed),
            hottest_byte_writes: self.bytes.iter().map(|count| count.load(Ordering::Relaxed)).max(),
            ..WearCounts::default()
        };
        for (line, writes) in self.line_writes().into_iter().enumerate() {
            counts.line_writes += writes;
            if writes > counts.hottest_line_writes {
                (counts.hottest_line, counts.hottest_line_writes) = (line as u64, writes);
            }
        }
        counts
    }

    /// The writes of each line.
    pub fn line_writes(&self) -> Vec<u64> {
        self.lines.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// The writes of each byte; empty when bytes are not counted.
    pub fn byte_writes(&self) -> Vec<u64> {
        self.bytes.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    fn stored(&self, offset: u64, len: u64) {
        for (line, mask) in touched(offset, len) {
            if let Some(dirty) = self.dirty.get(line) {
                dirty.fetch_or(mask, Ordering::Relaxed);
            }
        }
    }

    fn written(&self, line: usize, mask: u64) {
        if mask == 0 {
            return;
        }
        if let Some(count) = self.lines.get(line) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.bytes_written.fetch_add(u64::from(mask.count_ones()), Ordering::Relaxed);
        if let Some(bytes) = self.bytes.chunks(LINE_BYTES as usize).nth(line) {
            let marked = bytes.iter().enumerate().filter(|(byte, _)| mask & (1 << byte) != 0);
            marked.for_each(|(_, count)| {
                count.fetch_add(1, Ordering::Relaxed);
            });
        }
    }
}

impl<R: Region> Region for WornRegion<R> {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn guarantee(&self) -> Guarantee {
        self.inner.guarantee()
    }

    fn load_word(&self, offset: u64) -> u64 {
        self.inner.load_word(offset)
    }

    fn store_word(&self, offset: u64, value: u64) {
        self.inner.store_word(offset, value);
        self.stored(offset, WORD_BYTES);
    }

    fn compare_exchange_word(&self, offset: u64, expected: u64, new: u64) -> std::result::Result<u64, u64> {
        let found = self.inner.compare_exchange_word(offset, expected, new);
        if found.is_ok() {
            self.stored(offset, WORD_BYTES);
        }
        found
    }

    fn load(&self, offset: u64, into: &mut [u8]) {
        self.inner.load(offset, into);
    }

    unsafe fn in_place(&self, offset: u64, len: usize) -> Option<&[u8]> {
        // SAFETY: what the caller promises of this region holds of the one inside.
        unsafe { self.inner.in_place(offset, len) }
    }

    fn store(&self, offset: u64, bytes: &[u8]) {
        self.inner.store(offset, bytes);
        self.stored(offset, bytes.len() as u64);
    }

    fn store_streaming(&self, offset: u64, bytes: &[u8]) {
        self.inner.store_streaming(offset, bytes);
        for (line, mask) in touched(offset, bytes.len() as u64) {
            // What was stored before goes to the medium with the line.
            let dirty = self.dirty.get(line).map_or(0, |dirty| dirty.swap(0, Ordering::Relaxed));
            self.written(line, mask | dirty);
        }
    }

    fn write_back(&self, offset: u64, len: u64) {
        self.inner.write_back(offset, len);
        for (line, _) in touched(offset, len) {
            let dirty = self.dirty.get(line).map_or(0, |dirty| dirty.swap(0, Ordering::Relaxed));
            self.written(line, dirty);
        }
    }

    fn fence(&self) -> Result<()> {
        self.inner.fence()
    }
}

#[cfg(test)]
#[path = "wear_test.rs"]
mod wear_test;
