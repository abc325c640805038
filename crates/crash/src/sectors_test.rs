use super::*;
use crate::explore::{ExploreSettings, Report, explore};
use crate::violation::Violation;
use std::collections::BTreeSet;

const S: usize = SECTOR_BYTES;

fn sector(fill: u8) -> Vec<u8> {
    vec![fill; S]
}

/// The first byte of each of `sectors` sectors, over all states that a loss of power leaves.
fn survivors(sectors: usize, prepare: impl Fn(&mut SectorMedia)) -> BTreeSet<Vec<u8>> {
    let mut seen = BTreeSet::new();
    let report = explore(ExploreSettings::exhaustive(), |choices| {
        let mut media = SectorMedia::new(S);
        prepare(&mut media);
        let states = media.survivor_states();
        media.lose_power(choices, &SurvivorSettings::default());
        let mut bytes = vec![0; sectors * S];
        media.read(0, &mut bytes);
        assert!(bytes.chunks(S).all(|sector| sector.iter().all(|byte| *byte == sector[0])), "torn sector");
        seen.insert(bytes.chunks(S).map(|sector| sector[0]).collect());
        Violation::unless(media.undecided() == 0 && states > 0, || "undecided after the loss".into())
    });
    let report: Report = report.assert_exhausted();
    assert_eq!(report.distinct_states, seen.len());
    assert_eq!(report.runs as usize, seen.len(), "each state once");
    seen
}

fn set(states: &[&[u8]]) -> BTreeSet<Vec<u8>> {
    states.iter().map(|state| state.to_vec()).collect()
}

#[test]
fn any_subset_of_three_undurable_sectors_survives() {
    let seen = survivors(3, |media| _ = media.write(0, &[sector(1), sector(2), sector(3)].concat()));
    let expected: [&[u8]; 8] =
        [&[0, 0, 0], &[1, 0, 0], &[0, 2, 0], &[0, 0, 3], &[1, 2, 0], &[1, 0, 3], &[0, 2, 3], &[1, 2, 3]];
    assert_eq!(seen, set(&expected));
}

#[test]
fn any_version_of_a_sector_written_twice_survives() {
    let seen = survivors(2, |media| {
        media.write(0, &sector(7));
        media.flush(media.barrier());
        media.write(0, &sector(1));
        media.write(0, &[sector(2), sector(3)].concat());
    });
    let expected: [&[u8]; 6] = [&[7, 0], &[1, 0], &[2, 0], &[7, 3], &[1, 3], &[2, 3]];
    assert_eq!(seen, set(&expected));
}

#[test]
fn a_flush_covers_just_what_was_written_before_its_barrier() {
    let seen = survivors(2, |media| {
        media.write(0, &sector(1));
        let barrier = media.barrier();
        media.write(0, &sector(2));
        media.write(S as u64, &sector(3));
        media.flush(barrier);
    });
    let expected: [&[u8]; 4] = [&[1, 0], &[2, 0], &[1, 3], &[2, 3]];
    assert_eq!(seen, set(&expected));
}

#[test]
fn a_durable_write_covers_its_own_sectors_and_supersedes_older_writes_of_them() {
    let seen = survivors(2, |media| {
        media.write(0, &[sector(1), sector(2)].concat());
        let write = media.write(0, &sector(9));
        media.persist(write, 0, S as u64);
    });
    let expected: [&[u8]; 2] = [&[9, 0], &[9, 2]];
    assert_eq!(seen, set(&expected));
}

#[test]
fn a_durable_write_leaves_a_newer_write_of_its_sector_open() {
    let seen = survivors(1, |media| {
        let write = media.write(0, &sector(1));
        media.write(0, &sector(2));
        media.persist(write, 0, S as u64);
    });
    let expected: [&[u8]; 2] = [&[1], &[2]];
    assert_eq!(seen, set(&expected));
}

#[test]
fn what_a_failed_flush_left_is_not_made_durable_by_the_next_one() {
    let seen = survivors(2, |media| {
        media.write(0, &sector(1));
        media.orphan(media.barrier());
        media.write(S as u64, &sector(2));
        media.flush(media.barrier());
        let mut bytes = sector(0);
        media.read(0, &mut bytes);
        assert_eq!(bytes, sector(1), "it is read back as if all were well");
    });
    let expected: [&[u8]; 2] = [&[0, 2], &[1, 2]];
    assert_eq!(seen, set(&expected));
}

#[test]
fn a_later_durable_write_ends_the_doubt_about_an_orphan() {
    let seen = survivors(1, |media| {
        media.write(0, &sector(1));
        media.orphan(media.barrier());
        let write = media.write(0, &sector(2));
        media.persist(write, 0, S as u64);
    });
    assert_eq!(seen, set(&[&[2]]));
}

#[test]
fn writing_again_what_is_there_leaves_nothing_to_decide() {
    let mut media = SectorMedia::new(S);
    media.write(0, &vec![0; 64 * S]);
    assert_eq!((media.undecided(), media.survivor_states()), (0, 1));
    media.write(S as u64, &sector(1));
    media.write(S as u64, &sector(1));
    assert_eq!((media.undecided(), media.survivor_states()), (1, 2));
    media.write(S as u64, &sector(0));
    assert_eq!(media.survivor_states(), 2, "back to the old content is not a third state");
}

#[test]
fn zeros_may_survive_in_any_part_of_a_range_that_held_something() {
    let seen = survivors(3, |media| {
        media.write(0, &sector(1));
        media.write(2 * S as u64, &sector(3));
        media.flush(media.barrier());
        media.write_zeros(0, 1 << 40);
    });
    let expected: [&[u8]; 4] = [&[1, 0, 3], &[0, 0, 3], &[1, 0, 0], &[0, 0, 0]];
    assert_eq!(seen, set(&expected));
}

#[test]
fn a_torn_sector_mixes_the_version_picked_with_the_one_before() {
    let settings = SurvivorSettings { torn_sectors: true, ..SurvivorSettings::default() };
    let (mut whole, mut torn) = (0, BTreeSet::new());
    explore(ExploreSettings::exhaustive(), |choices| {
        let mut media = SectorMedia::new(S);
        media.write(0, &sector(1));
        media.lose_power(choices, &settings);
        let mut bytes = sector(9);
        media.read(0, &mut bytes);
        let ones = bytes.iter().filter(|byte| **byte == 1).count();
        if ones == 0 || ones == S {
            whole += 1;
        } else {
            assert!(ones.is_multiple_of(8));
            let heads = bytes[..ones].iter().all(|byte| *byte == 1);
            let tails = bytes[S - ones..].iter().all(|byte| *byte == 1);
            assert!(heads != tails, "one cut");
            torn.insert((ones, heads));
        }
        Ok(())
    })
    .assert_exhausted();
    assert_eq!((whole, torn.len()), (2, 2 * 63));
}

#[test]
fn a_flipped_bit_is_seen_in_the_cache_and_on_the_medium() {
    let mut media = SectorMedia::new(S);
    media.write(0, &sector(1));
    media.flush(media.barrier());
    media.write(0, &sector(3));
    media.flip_bit(5, 7);
    let mut bytes = sector(0);
    media.read(0, &mut bytes);
    assert_eq!((bytes[4], bytes[5]), (3, 0x83));
    media.durable().read(0, &mut bytes);
    assert_eq!((bytes[4], bytes[5]), (1, 0x81));
}

#[test]
fn reads_that_start_and_end_within_sectors_see_the_newest_bytes() {
    let mut media = SectorMedia::new(S);
    media.write(S as u64, &sector(5));
    let mut bytes = vec![9; S + 20];
    media.read(S as u64 - 10, &mut bytes);
    assert!(bytes[..10].iter().all(|byte| *byte == 0) && bytes[10..S + 10].iter().all(|byte| *byte == 5));
    assert!(bytes[S + 10..].iter().all(|byte| *byte == 0));
    media.read(S as u64 + 3, &mut bytes[..7]);
    assert_eq!(bytes[..7], [5; 7]);
}
