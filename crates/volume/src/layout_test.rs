//! The map of each level is a bijection.

use super::*;
use std::collections::BTreeSet;

fn layout(level: Level, members: usize, rows: u64) -> Layout {
    let (redundancy, groups, width) = level.shape(members).expect("a shape");
    Layout { redundancy, groups, width, chunk_bytes: 8192, rows }
}

fn every_level() -> Vec<Layout> {
    vec![
        layout(Level::Raid0, 3, 5),
        layout(Level::Raid1, 3, 7),
        layout(Level::Raid5, 3, 6),
        layout(Level::Raid5, 5, 11),
        layout(Level::Raid10, 6, 4),
        layout(Level::Raid50 { groups: 2 }, 6, 7),
        layout(Level::Raid50 { groups: 3 }, 12, 5),
    ]
}

#[test]
fn every_block_of_the_volume_has_its_own_block_and_no_data_block_is_left() {
    for layout in every_level() {
        let mut seen = BTreeSet::new();
        for block in 0..layout.data_bytes() / 4096 {
            let places = layout.places(block * 4096, 4096);
            assert_eq!(places.len(), 1);
            let place = places[0];
            assert!(place.row < layout.rows && place.group < layout.groups, "{place:?}");
            let member = layout.data_member(place.row, place.position);
            assert!(seen.insert((place.group, member, layout.member_offset(&place))), "{place:?} twice");
            if layout.redundancy == Redundancy::Parity {
                assert_ne!(member, layout.parity_member(place.row), "data on parity: {place:?}");
            }
        }
        let blocks = u64::from(layout.groups) * u64::from(layout.positions()) * layout.rows * 2;
        assert_eq!(seen.len() as u64, blocks, "{layout:?}");
    }
}

#[test]
fn places_of_a_range_are_those_of_its_blocks() {
    for layout in every_level() {
        let (offset, len) = (3 * 4096, 9 * 4096);
        let mut covered = 0;
        for place in layout.places(offset, len) {
            for step in (0..place.len).step_by(4096) {
                let single = layout.places(offset + place.at + step, 4096)[0];
                let in_member = layout.member_offset(&place) + step;
                assert_eq!((single.group, layout.member_offset(&single)), (place.group, in_member));
                assert_eq!(single.position, place.position);
            }
            covered += place.len;
        }
        assert_eq!(covered, len);
    }
}

#[test]
fn parity_rotates_over_all_members_and_capacity_is_as_published() {
    let layout = layout(Level::Raid5, 5, 10);
    let parity: BTreeSet<u32> = (0..5).map(|row| layout.parity_member(row)).collect();
    assert_eq!(parity.len(), 5);
    // RAID 5 of N members gives 1 - 1/N, mirrors a half.
    assert_eq!(layout.data_bytes() * 5, 10 * 5 * 8192 * 4);
    let mirrors = super::Layout { redundancy: Redundancy::Mirror, groups: 3, width: 2, ..layout };
    assert_eq!(mirrors.data_bytes() * 2, 10 * 6 * 8192);
}

#[test]
fn numbers_of_members_that_do_not_fit_are_refused() {
    for (level, members) in [
        (Level::Raid0, 0),
        (Level::Raid1, 1),
        (Level::Raid5, 2),
        (Level::Raid10, 3),
        (Level::Raid50 { groups: 2 }, 5),
        (Level::Raid50 { groups: 2 }, 4),
        (Level::Raid50 { groups: 0 }, 4),
        (Level::Raid0, 1000),
    ] {
        let error = level.shape(members).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
}
