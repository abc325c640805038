use super::*;
use crate::format::record::RecordHeader;
use crate::format::summary::SummaryEntry;
use crate::io::StreamId;
use crate::rules::BrokenRules;
use crate::stream::{LazySettings, SpareBytes};
use tierstone_base::{KeyspaceId, Position};
use tierstone_media::{Geometry, IoKind};

fn settings() -> StreamSettings {
    StreamSettings {
        id: StreamId::Hot,
        store: 7,
        log_id: 9,
        positions: (Position(0), Position(u64::MAX)),
        geometry: Geometry { meta_bytes: 0, segment_bytes: 1 << 20, segment_limit: 8 },
        group_bytes_max: 0,
        spare: SpareBytes::default(),
        groups_in_flight: (1, 1),
        write_kind: IoKind::WriteDurable,
        lazy: LazySettings::NEVER,
        broken: BrokenRules::default(),
    }
}

/// Adds `records` records to a summary.
fn fill(summary: &mut SummaryBuilder, records: u32, first_seq: u64) {
    for number in 0..records {
        let header = RecordHeader {
            seq: first_seq + u64::from(number),
            keyspace: KeyspaceId(number / 100),
            key_len: 10,
            value_len: 20,
            ..RecordHeader::EMPTY
        };
        summary.push(SummaryEntry::new(&header, Position(u64::from(number) << 40), 2 * number), &[]);
    }
}

#[test]
fn what_seals_a_segment_does_not_depend_on_what_lay_in_its_memory() {
    let mut used = SummaryBuilder::default();
    fill(&mut used, 3_000, 5_000);
    let memory = used.memory_bytes();
    used.clear();
    assert_eq!((used.bytes(), used.records(), used.seq_range()), (&[][..], 0, (0, 0)));
    let mut fresh = SummaryBuilder::default();
    fill(&mut used, 1_000, 1);
    fill(&mut fresh, 1_000, 1);
    assert_eq!(used.memory_bytes(), memory, "the memory was not kept");

    let (expected, start, place) = footer_block(&settings(), (3, None), &fresh, 1, (4, 5), 4096, 0);
    let mut spare = IoBuffer::zeroed(2 * expected.len());
    spare.fill(0xff);
    let identity = spare.identity();
    let (buffer, again, found) = footer_block(&settings(), (3, Some(spare)), &used, 1, (4, 5), 4096, 0);
    assert_eq!(buffer.identity(), identity, "the memory was not used");
    assert_eq!((&buffer[..], again, found), (&expected[..], start, place));

    // Too short a buffer does not do.
    let short = IoBuffer::zeroed(expected.len() - BLOCK_BYTES);
    let (buffer, ..) = footer_block(&settings(), (3, Some(short)), &used, 1, (4, 5), 4096, 0);
    assert_eq!(&buffer[..], &expected[..]);
}
