//! Start-Gap against a memory that really moves its lines; rules broken one by one; closed forms of wear.

use super::*;
use std::collections::BTreeSet;

/// A medium with its contents moved by hand, as the registers say. Whether every line was always found.
fn finds_its_lines(lines: u64, psi: u64, mutations: Mutations) -> bool {
    let mut levelling = StartGap::new(lines, psi).with_mutations(mutations);
    let mut medium: Vec<Option<u64>> = (0..lines).map(Some).chain([None]).collect();
    for _ in 0..psi * (lines + 1) * (lines + 2) {
        let is_found = |line: u64| medium[levelling.place(line) as usize] == Some(line);
        if !(0..lines).all(is_found) || medium[levelling.gap() as usize].is_some() {
            return false;
        }
        if let Some((into, from)) = levelling.write() {
            medium[into as usize] = medium[from as usize].take();
        }
    }
    true
}

#[test]
fn every_line_is_where_the_registers_say_whatever_the_gap_has_moved() {
    for lines in 1..20 {
        for psi in [1, 2, 7] {
            assert!(finds_its_lines(lines, psi, Mutations::none()), "{lines} lines, psi {psi}");
        }
    }
}

#[test]
fn each_rule_of_the_registers_is_seen_broken() {
    for rule in ["lines behind the gap are one further", "the start advances when the gap is round"] {
        assert!(!finds_its_lines(9, 3, Mutations::one(rule)), "'{rule}' was not caught");
    }
}

#[test]
fn one_write_in_psi_is_a_move_and_a_round_moves_every_line_by_one_place() {
    let mut levelling = StartGap::new(50, PSI);
    let before: Vec<u64> = (0..50).map(|line| levelling.place(line)).collect();
    let moves = (0..PSI * 51).filter(|_| levelling.write().is_some()).count();
    assert_eq!(moves, 51);
    for (line, before) in (0..50).zip(before) {
        // The one that the gap passed at the start of the round and at its end has moved twice.
        let by = (levelling.place(line) + 51 - before) % 51;
        assert_eq!(by, if line == 49 { 2 } else { 1 }, "line {line}");
    }
}

#[test]
fn a_hot_line_wears_all_places_alike() {
    let (lines, psi) = (30, 4);
    let mut levelling = StartGap::new(lines, psi);
    let mut wear = vec![0; levelling.places() as usize];
    // It comes round when it has been at every place, each for `lines psi` writes.
    for _ in 0..(lines + 1) * lines * psi {
        wear[levelling.place(11) as usize] += 1;
        levelling.write();
    }
    let (least, most) = (wear.iter().min().unwrap(), wear.iter().max().unwrap());
    assert_eq!((*least, *most), (lines * psi, lines * psi), "{wear:?}");
}

#[test]
fn lifetimes_without_levelling_are_those_of_the_hottest_line() {
    assert_eq!(writes_until_worn(100, None, 1_000, || 7), 1_000);
    let mut line = 0;
    let in_turn = || {
        line += 1;
        line
    };
    assert_eq!(
        writes_until_worn(100, None, 1_000, in_turn),
        99_901,
        "the first line is the first to get its thousandth"
    );
    // A hot line with levelling: all places alike, but for the copies of the gap.
    let levelled = writes_until_worn(100, Some(10), 10_000, || 7);
    assert!((900_000..=1_010_000).contains(&levelled), "{levelled}");
    assert_eq!(writes_until_worn(100, Some(10), 500, || 7), 500, "no cell outlasts a visit");
}

#[test]
fn scattering_is_a_permutation_that_parts_neighbours() {
    for lines in [1, 2, 3, 5, 64, 100, 1_000, 4_097] {
        let scatter = Scatter::new(lines, 3);
        let places: BTreeSet<u64> = (0..lines).map(|line| scatter.place(line)).collect();
        assert_eq!((places.len() as u64, places.last()), (lines, Some(&(lines - 1))), "{lines} lines");
    }
    let scatter = Scatter::new(10_000, 3);
    let stay = (0..9_999).filter(|&line| scatter.place(line).abs_diff(scatter.place(line + 1)) == 1).count();
    assert!(stay < 100, "{stay} pairs of neighbours stayed together");
    assert_ne!(Scatter::new(10_000, 4).place(1), scatter.place(1), "the seed decides");
}
