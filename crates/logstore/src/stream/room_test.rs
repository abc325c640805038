use super::*;
use crate::format::record::{FLAG_KEYED, RecordHeader};
use crate::io::StreamId;
use crate::pool::SegmentPool;
use crate::rules::BrokenRules;
use crate::segments::SegmentTable;
use crate::stream::{LazySettings, SpareBytes, StreamSettings};
use std::sync::Arc;
use tierstone_base::{KeyspaceId, Position, SeededRandom};
use tierstone_crash::Mutations;
use tierstone_media::IoKind;

const SEGMENT_BYTES: u64 = 32 << 10;

fn stream(group_bytes_max: usize) -> (Stream, SegmentTable) {
    let settings = StreamSettings {
        id: StreamId::Cold,
        store: 1,
        log_id: 1,
        positions: (Position(0), Position(u64::MAX)),
        geometry: Geometry { meta_bytes: 0, segment_bytes: SEGMENT_BYTES, segment_limit: 64 },
        group_bytes_max,
        spare: SpareBytes::default(),
        groups_in_flight: (1, 1),
        write_kind: IoKind::WriteDurable,
        lazy: LazySettings::NEVER,
        broken: BrokenRules::of(&Mutations::none()),
    };
    let mut table = SegmentTable::new(SEGMENT_BYTES, Arc::new(SegmentPool::new(64, 1)));
    (0..64).for_each(|segment| table.grant(segment, true));
    (Stream::new(settings, 0), table)
}

/// A record, some with their keys in the summary, some as long as they may be.
fn record(random: &mut SeededRandom) -> RecordHeader {
    let longest = [40, 40, 3_000, 7_900][random.below(4) as usize];
    RecordHeader {
        keyspace: KeyspaceId(1 + random.below(3) as u32),
        seq: 1 + random.below(1 << 40),
        flags: if random.chance(0.3) { FLAG_KEYED } else { 0 },
        key_len: random.below(100) as usize,
        value_len: random.below(longest) as usize,
        ..RecordHeader::EMPTY
    }
}

/// What [`Stream::segments_for`] says of one record is what appending does, and of more no less than that: also
/// where groups were closed before.
#[test]
fn records_take_no_more_segments_than_was_said() {
    let mut ahead = 0;
    for seed in 0..60 {
        let mut random = SeededRandom::new(seed);
        let (mut stream, mut table) = stream([8 << 10, 32 << 10, 64 << 10][random.below(3) as usize]);
        while stream.segments_opened() < 50 {
            let headers: Vec<RecordHeader> = (0..1 + random.below(40)).map(|_| record(&mut random)).collect();
            let entries: Vec<SummaryEntry> = headers
                .iter()
                .map(|header| SummaryEntry::new(header, Position(random.next_u64()), 0))
                .collect();
            let (said, before) = (stream.segments_for(&entries), stream.segments_opened());
            for (header, entry) in headers.iter().zip(&entries) {
                let (key, value) = (vec![7; header.key_len], vec![7; header.value_len]);
                let (one, opened) = (stream.segments_for(&[*entry]), stream.segments_opened());
                stream
                    .append(header, entry.position, &key, &value, 0, &mut table)
                    .expect("a segment is free");
                assert_eq!(stream.segments_opened() - opened, u64::from(one), "seed {seed}: {header:?}");
            }
            let opened = stream.segments_opened() - before;
            assert!(opened <= u64::from(said), "seed {seed}: {opened} segments, {said} were said");
            ahead += u64::from(said) - opened;
            if random.chance(0.1) {
                stream.close_group(&table);
            }
        }
    }
    assert!(ahead < 60, "{ahead} segments too many were said");
}
