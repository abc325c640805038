use super::*;
use crate::location::Location;
use crate::recovery::Packed;
use crate::touch::FoundTouch;
use proptest::prelude::*;
use tierstone_base::Seq;

fn record(position: u64, seq: Seq) -> Packed {
    Packed::of(position, seq)
}

fn touch(position: u64, seq: Seq) -> FoundTouch {
    let place = Location::new(1, 0);
    FoundTouch { keyspace: 0, position, value_seq: seq, value_place: 0, seq, expiry_ms: 1, place, units: 1 }
}

/// All passes over `positions`, of which each third is a touch; of each pass its records and touches in order.
fn passes(
    positions: &[u64],
    (first, last): (u64, u64),
    bytes_max: u64,
) -> Vec<(Vec<Packed>, Vec<FoundTouch>)> {
    let (mut passes, mut from) = (Vec::new(), first);
    loop {
        let mut buckets = Buckets::new((from, last), bytes_max);
        for (&position, seq) in positions.iter().zip(1..) {
            match seq % 3 {
                0 => buckets.push_touch(touch(position, seq)),
                _ => buckets.push(record(position, seq)),
            }
        }
        let (to, count, bytes) = (buckets.to(), buckets.count(), buckets.bytes);
        assert_eq!(bytes, buckets.lists.iter().map(Collected::bytes).sum::<u64>());
        let (mut records, mut touches) = (Vec::new(), Vec::new());
        for mut list in buckets.into_lists() {
            list.records.sort_unstable();
            list.touches.sort_by_key(|touch| (touch.position, touch.seq));
            records.append(&mut list.records);
            touches.append(&mut list.touches);
        }
        assert_eq!(count, (records.len() + touches.len()) as u64);
        let in_pass = |position: u64| (from..=to).contains(&position);
        assert!(records.iter().all(|record| in_pass(record.position)));
        assert!(touches.iter().all(|touch| in_pass(touch.position)));
        let of_one =
            records.iter().map(|record| record.position).chain(touches.iter().map(|touch| touch.position));
        let lowest = of_one.clone().min();
        assert!(bytes <= bytes_max || of_one.clone().all(|position| Some(position) == lowest));
        passes.push((records, touches));
        if to == last {
            return passes;
        }
        from = to + 1;
    }
}

/// Positions as keys have them: some alike in their upper bits, some alike in all.
fn positions() -> impl Strategy<Value = Vec<u64>> {
    let one = prop_oneof![
        any::<u64>(),
        any::<u64>().prop_map(|bits| 0x1234 << 48 | bits >> 16),
        any::<u64>().prop_map(|bits| 0x12_3456_789a << 24 | bits >> 40),
        (0u64..3).prop_map(|number| 0x7777 << 40 | number),
    ];
    proptest::collection::vec(one, 0..600)
}

proptest! {
    /// Passes together have every entry once, in the order of positions, and none holds more than it may.
    #[test]
    fn passes_are_whole_and_bounded(positions in positions(), bytes_max in 1_000u64..20_000) {
        let passes = passes(&positions, (0, u64::MAX), bytes_max);
        let records: Vec<Packed> = passes.iter().flat_map(|(records, _)| records).copied().collect();
        let touches: Vec<(u64, Seq)> =
            passes.iter().flat_map(|(_, touches)| touches).map(|touch| (touch.position, touch.seq)).collect();
        let numbered = || positions.iter().zip(1..);
        let is_touch = |seq: Seq| seq.is_multiple_of(3);
        let mut all: Vec<Packed> =
            numbered().filter(|(_, seq)| !is_touch(*seq)).map(|(&position, seq)| record(position, seq)).collect();
        all.sort_unstable();
        prop_assert_eq!(records, all);
        let mut all: Vec<(u64, Seq)> =
            numbered().filter(|(_, seq)| is_touch(*seq)).map(|(&position, seq)| (position, seq)).collect();
        all.sort_unstable();
        prop_assert_eq!(touches, all);
    }
}

#[test]
fn keys_of_one_tag_are_divided() {
    // A tag's keys have the upper fourteen bits in common, and are even below.
    let positions: Vec<u64> =
        (0..10_000u64).map(|number| 77 << 50 | number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 14).collect();
    let bytes =
        positions.len() as u64 * (2 * size_of::<Packed>() as u64 + size_of::<FoundTouch>() as u64) / 3;
    let passes = passes(&positions, (0, u64::MAX), bytes / 10);
    println!("{} passes", passes.len());
    assert!((10..30).contains(&passes.len()));
}

#[test]
fn what_is_few_takes_one_pass() {
    let positions: Vec<u64> = (0..1_000u64).map(|number| number << 54).collect();
    assert_eq!(passes(&positions, (0, u64::MAX), 1 << 20).len(), 1);
    assert_eq!(passes(&[], (5, 5), 1).len(), 1);
}
