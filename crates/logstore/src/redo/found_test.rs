use super::*;
use std::ops::Range;
use tierstone_base::KeyspaceId;
use tierstone_base::checksum::salt;

const IMAGE_BYTES: usize = 8 << 10;
const START: u32 = 8 << 10;
const FIRST_SEQ: Seq = 1_000;
const VALUE_BYTES: usize = 640;
/// As long as a unit, so that values begin at one.
const KEY: &[u8] = &[b'k'; UNIT_BYTES];

fn region() -> RegionHeader {
    let layout = super::super::format::Layout::of(96 << 10, 1, 8 << 10).unwrap();
    RegionHeader { store: 7, opening: 2, layout, is_void: false, counter: 1, has_evidence: true }
}

/// A value that looks like the header of a record at each unit, one as long as may be.
fn hostile(bytes: usize) -> Vec<u8> {
    let words = [0, FIRST_SEQ + 500, 1_000, 1u64];
    words.into_iter().cycle().flat_map(u64::to_le_bytes).take(bytes).collect()
}

/// A slot with `count` records of hostile values, and as much behind them as fits; with the records' places.
fn slot(count: u64) -> (Slot, Vec<Range<usize>>) {
    let header = SlotHeader {
        log_id: log_id(2, 0, false),
        group: 5,
        segment: 3,
        start: START,
        first_seq: FIRST_SEQ,
        ..SlotHeader::default()
    };
    let mut image = hostile(IMAGE_BYTES);
    let (salt, mut at, mut places) = (salt(7, 9), group::HEADER_BYTES, Vec::new());
    for number in 0..count {
        let value = hostile(VALUE_BYTES);
        let record = RecordHeader {
            seq: FIRST_SEQ + number,
            keyspace: KeyspaceId(1),
            key_len: KEY.len(),
            value_len: value.len(),
            ..RecordHeader::EMPTY
        };
        let unit = ((START as usize + at) / UNIT_BYTES) as u32;
        record::encode(&mut image[at..], &record, KEY, &value, salt, unit);
        places.push(at..at + record.units() * UNIT_BYTES);
        at += record.units() * UNIT_BYTES;
    }
    (Slot { header, place: 0, image, past_ms: Some(0), salt, fits: true }, places)
}

fn found(slot: Slot, known: Option<Known>, search_left: u64) -> FoundShard {
    let mut found = FoundShard::new(search_left);
    assert!(!found.take((0, &region()), slot, known, false), "the log goes on behind it");
    found
}

#[test]
fn values_that_look_like_headers_hide_no_record_behind_a_hole() {
    for is_claim in [false, true] {
        let (mut slot, places) = slot(8);
        slot.image[places[2].start + 50] ^= 1;
        // What says that there was more: a claim behind the hole, or the next slot.
        let known = match is_claim {
            true => {
                turn_claim(&mut slot.image[places[7].clone()]);
                None
            }
            false => Some(Known { end: places[7].end, is_all: true }),
        };
        let found = found(slot, known, SEARCH_BYTES);
        assert_eq!(found.damage.len(), 1, "{:?}", found.damage);
        let (group, lost) = (&found.groups[0], places[2].len() as u64);
        assert_eq!((group.records, group.end, group.lost), (8, places[7].end, lost));
        assert_eq!(found.lost_bytes, lost);
    }
}

#[test]
fn where_a_search_ends_early_what_it_has_not_seen_is_damage() {
    for (bit, known) in [(None, None), (Some(2), None), (Some(2), Some(7))] {
        let (mut slot, places) = slot(8);
        let whole = bit.unwrap_or(8);
        if let Some(number) = bit {
            slot.image[places[number].start + 50] ^= 1;
        }
        let known: Option<usize> = known;
        let known = known.map(|last| Known { end: places[last].end, is_all: true });
        let to = known.map_or(IMAGE_BYTES, |known| known.end);
        let found = found(slot, known, 10_000);
        let [damage] = found.damage.as_slice() else { panic!("{:?}", found.damage) };
        let end = places[whole - 1].end;
        assert!(damage.what.contains("too much to search") && damage.at == (SLOT_HEADER_BYTES + end) as u64);
        assert_eq!((found.groups[0].records, found.groups[0].end), (whole as u32, end));
        assert_eq!(found.lost_bytes, (to - end) as u64);
    }
}

#[test]
fn behind_a_group_that_was_closed_nothing_is_searched() {
    let (slot, places) = slot(8);
    let found = found(slot, Some(Known { end: places[7].end, is_all: true }), 0);
    assert!(found.damage.is_empty() && found.lost_bytes == 0);
    assert_eq!((found.groups[0].records, found.groups[0].end), (8, places[7].end));
}

#[test]
fn only_what_may_be_a_record_is_summed() {
    // Seconds since 1970, too long for records; and what an earlier use left, with lower sequences.
    for words in [[1_764_000_000; 4], [0, FIRST_SEQ, 300, 1]] {
        let (mut slot, places) = slot(8);
        let rest = places[7].end..IMAGE_BYTES;
        let stale: Vec<u8> = words.into_iter().cycle().flat_map(u64::to_le_bytes).take(rest.len()).collect();
        slot.image[rest].copy_from_slice(&stale);
        let found = found(slot, None, 0);
        assert!(found.damage.is_empty() && found.lost_bytes == 0, "{words:?}: {:?}", found.damage);
    }
}

#[test]
fn no_value_of_a_slot_of_one_mebibyte_uses_up_the_search() {
    let units = (1u64 << 20) / UNIT_BYTES as u64;
    assert!((1..=units).map(|units| units * UNIT_BYTES as u64).sum::<u64>() <= SEARCH_BYTES / 2 + (1 << 20));
}
