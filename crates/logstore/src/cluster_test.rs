//! What of a page counts as scattered.

use super::*;

fn member(order: usize, segment: u32, unit: u32, value_len: usize) -> Member {
    let header = RecordHeader { key_len: 8, value_len, ..RecordHeader::EMPTY };
    let location = Location::new(segment, unit);
    Member { order, position: Position(0), location, header, frame: None, is_short: false }
}

#[test]
fn records_that_lie_together_are_one_piece_and_long_pieces_are_not_short() {
    // Nine records of some 1,000 bytes side by side, and three that lie alone.
    let units = member(0, 0, 0, 1_000).header.units() as u32;
    let mut members: Vec<Member> =
        (0..9).map(|number| member(number, 1, 128 + number as u32 * units, 1_000)).collect();
    members.extend((9..12).map(|number| member(number, number as u32, 128, 1_000)));
    assert_eq!(mark_short(&mut members), 3);
    assert!(members.iter().all(|member| member.is_short == (member.order >= 9)));
}

#[test]
fn a_gap_of_a_block_is_read_across_and_a_larger_one_is_not() {
    let block = (BLOCK_BYTES / UNIT_BYTES) as u32;
    let near = member(0, 0, 0, 100).header.units() as u32 + block;
    assert_eq!(mark_short(&mut [member(0, 1, 0, 100), member(1, 1, near, 100)]), 1);
    assert_eq!(mark_short(&mut [member(0, 1, 0, 100), member(1, 1, near + 1, 100)]), 2);
    assert_eq!(mark_short(&mut [member(0, 1, 0, 100), member(1, 2, 0, 100)]), 2);
    // One that is long by itself is worth its read.
    assert_eq!(mark_short(&mut [member(0, 1, 0, PIECE_BYTES_MIN)]), 0);
}

#[test]
fn no_more_is_spent_than_the_rate_gives() {
    let (rate, mut clusterer) = (1_000_000, Clusterer::default());
    assert!(!clusterer.may_spend(1_001, 1_000, rate), "a millisecond gives a thousand bytes");
    assert!(clusterer.may_spend(1_000, 1_000, rate));
    clusterer.spent(1_000);
    assert!(!clusterer.may_spend(1, 1_000, rate));
    // A pause is not followed by more than a second of it.
    assert!(clusterer.may_spend(1_000_000, 1_000_000_000, rate));
    assert!(clusterer.may_spend(5_000_000, 2_000_000_000, rate), "a page that is longer takes all of it");
    clusterer.spent(5_000_000);
    assert!(!clusterer.may_spend(1, 2_000_000_000, rate));
    assert!(!Clusterer::default().may_spend(1, 1_000_000, 0), "nothing at no rate");
}
