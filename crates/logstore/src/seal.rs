//! What seals a segment: its summary and, in its last block, its footer, in one write.

use crate::format::segment::SegmentFooter;
use crate::format::summary::SummaryBuilder;
use crate::segments::SummaryPlace;
use crate::stream::StreamSettings;
use tierstone_base::checksum::checksum;
use tierstone_media::{BLOCK_BYTES, IoBuffer};

/// A new buffer is longer by one part in so many than what is written.
const SPARE_PART: usize = 8;

/// Builds what seals a segment: the summary and, in the segment's last block, the footer. Returns the
/// bytes, where they go, and the summary's place. `past_ms`: the highest that the segment's groups say. The bytes
/// lie in `spare` if it is long enough.
pub fn footer_block(
    settings: &StreamSettings,
    (generation, spare): (u64, Option<IoBuffer>),
    summary: &SummaryBuilder,
    segment: u32,
    groups: (u64, u64),
    data_end: u32,
    past_ms: u64,
) -> (IoBuffer, u64, SummaryPlace) {
    let padded = summary.bytes().len().next_multiple_of(BLOCK_BYTES);
    let start = settings.geometry.segment_bytes - (padded + BLOCK_BYTES) as u64;
    let place = SummaryPlace {
        start: start as u32,
        len: summary.bytes().len() as u32,
        records: summary.records(),
        checksum: checksum(generation, summary.bytes()),
    };
    let (len, used) = (padded + BLOCK_BYTES, summary.bytes().len());
    let spare = spare.filter(|spare| spare.capacity() >= len);
    // Longer than it must be, so that it serves for a summary that is a little longer as well.
    let mut buffer = spare.unwrap_or_else(|| IoBuffer::zeroed(len + len / SPARE_PART));
    buffer.set_len(len);
    buffer[..used].copy_from_slice(summary.bytes());
    buffer[used..].fill(0);
    let (min_seq, max_seq) = summary.seq_range();
    SegmentFooter {
        store: settings.store,
        segment,
        generation,
        log_id: settings.log_id,
        first_group: groups.0,
        end_group: groups.1,
        data_end,
        summary_start: place.start,
        summary_len: place.len,
        records: place.records,
        min_seq,
        max_seq,
        longest_units: summary.longest_units(),
        summary_checksum: place.checksum,
        past_ms,
    }
    .encode(&mut buffer[padded..]);
    (buffer, start, place)
}

#[cfg(test)]
#[path = "seal_test.rs"]
mod seal_test;
