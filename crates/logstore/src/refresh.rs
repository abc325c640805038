//! Brings back tag bits that the index lost while it grew, from the segments' summaries.
//!
//! Each split of a region costs its entries a bit of their tags; with fewer bits more lookups read a
//! record of another key. When the worst entries know no more than [`KNOWN_BITS_MIN`], all summaries are read
//! once, a bounded number of entries a step, and each live entry is completed. No record is read.
//! Nothing depends on it but the number of false reads.

use crate::format::summary::{SummaryCursor, SummaryEntry, SummaryReader};
use crate::io::IoTag;
use crate::location::{Location, index_settings};
use crate::segments::Role;
use crate::shard::LogShard;
use tierstone_base::checksum::checksum;
use tierstone_engine::PREFETCHED_KEYS;
use tierstone_media::{BLOCK_BYTES, IoBuffer, IoCompletion, IoKind};

/// Bits known at which a pass begins: the worst entries then tell neighbours apart with ten of them.
const KNOWN_BITS_MIN: u32 = 16;
/// The same while a load goes on, which will cost those that are completed now as many again: the fewer entries
/// are old the more bits they lack, so each bit more costs as few false reads as the first.
const KNOWN_BITS_LOADING_MIN: u32 = 12;
/// One step looks at so many times [`PREFETCHED_KEYS`] entries of summaries: some 20 µs, which the call in which
/// the step runs pays for.
const GROUPS_A_STEP: usize = 6;

/// A pass over all summaries.
#[derive(Debug, Default)]
pub struct Refresher {
    waiting: Vec<u32>,
    current: Option<Current>,
    /// Keys in the index when the last pass began: the next one begins when there are twice as many.
    keys_at_last_pass: u64,
}

#[derive(Debug)]
struct Current {
    segment: u32,
    summary: Option<IoBuffer>,
    cursor: SummaryCursor,
}

impl Refresher {
    /// Whether a step would do something now.
    pub fn wants_step(&self) -> bool {
        self.current.as_ref().map_or(!self.waiting.is_empty(), |current| current.summary.is_some())
    }
}

impl LogShard {
    /// Begins a pass when it is worth it, and goes on with the one under way.
    pub(crate) fn refresh_step(&mut self) {
        if self.refresher.current.is_some() {
            self.refresh_some();
            return;
        }
        match self.refresher.waiting.pop() {
            Some(segment) => self.refresh_segment(segment),
            None => self.begin_refresh(),
        }
    }

    /// Bits that the worst entries of the index have lost.
    pub fn lost_tag_bits(&self) -> u32 {
        self.keyspaces.iter().map(|keyspace| keyspace.index.stale_tag_bits()).max().unwrap_or(0)
    }

    fn begin_refresh(&mut self) {
        let is_loading = self.now.monotonic_us < self.loading_until_us();
        let needed = if is_loading { KNOWN_BITS_LOADING_MIN } else { KNOWN_BITS_MIN };
        let layout = index_settings(self.identity.geometry.segment_limit).layout;
        if layout.known_bits() - self.lost_tag_bits() > needed {
            return;
        }
        let keys: u64 = self.keyspaces.iter().map(|keyspace| keyspace.index.len()).sum();
        if keys < 2 * self.refresher.keys_at_last_pass {
            return;
        }
        self.refresher.keys_at_last_pass = keys;
        self.refresher.waiting = self
            .segments
            .iter()
            .filter(|(_, segment)| segment.role == Role::Sealed)
            .map(|(number, _)| number)
            .collect();
    }

    fn refresh_segment(&mut self, number: u32) {
        let segment = self.segments.get_mut(number);
        if segment.role != Role::Sealed || segment.summary.records == 0 {
            return;
        }
        segment.pins += 1;
        let place = segment.summary;
        let len = (place.len as usize).max(1).next_multiple_of(BLOCK_BYTES);
        let offset = self.identity.geometry.segment_offset(number) + u64::from(place.start);
        let cursor = SummaryCursor::new(place.records);
        self.refresher.current = Some(Current { segment: number, summary: None, cursor });
        self.requests.push(
            IoTag::RefreshSummary { segment: number },
            IoKind::Read,
            offset,
            IoBuffer::zeroed(len),
        );
    }

    /// The summary came; a damaged one is left alone, its entries keep the bits they have.
    pub(crate) fn refresh_summary_read(&mut self, number: u32, completion: IoCompletion) {
        let segment = self.segments.get(number);
        let place = segment.summary;
        let buffer = completion.buffer.filter(|buffer| {
            completion.result.is_ok()
                && buffer
                    .get(..place.len as usize)
                    .is_some_and(|bytes| checksum(segment.generation, bytes) == place.checksum)
        });
        match (&mut self.refresher.current, buffer) {
            (Some(current), Some(buffer)) if current.segment == number => current.summary = Some(buffer),
            _ => self.end_refresh_segment(number),
        }
    }

    fn end_refresh_segment(&mut self, number: u32) {
        self.refresher.current = None;
        let segment = self.segments.get_mut(number);
        segment.pins = segment.pins.saturating_sub(1);
    }

    fn refresh_some(&mut self) {
        let Some(mut current) = self.refresher.current.take() else { return };
        let Some(summary) = current.summary.take() else {
            self.refresher.current = Some(current);
            return;
        };
        let len = self.segments.get(current.segment).summary.len as usize;
        let bytes = &summary[..len];
        let mut reader = SummaryReader::resume(bytes, current.cursor);
        let mut entries = [SummaryEntry::default(); PREFETCHED_KEYS];
        for _ in 0..GROUPS_A_STEP {
            let mut count = 0;
            for (slot, entry) in entries.iter_mut().zip(&mut reader) {
                *slot = entry;
                count += 1;
            }
            let some = &entries[..count];
            self.prefetch_places(some.iter().map(|entry| (entry.keyspace, entry.position)));
            some.iter().for_each(|entry| self.refresh_entry(current.segment, entry));
        }
        current.cursor = reader.cursor(bytes);
        if reader.damaged() || current.cursor.is_at_end() {
            self.end_refresh_segment(current.segment);
            return;
        }
        current.summary = Some(summary);
        self.refresher.current = Some(current);
    }
    /// The entry's record lies in `segment`: what points to it learns its whole position.
    fn refresh_entry(&mut self, segment: u32, entry: &SummaryEntry) {
        let location = Location::new(segment, entry.unit);
        if let Some(target) = self.target_of(entry, location)
            && let Some(keyspace) = self.keyspaces.get_mut(entry.keyspace)
        {
            keyspace.index.refresh(entry.position, target.pack());
        }
    }
}
