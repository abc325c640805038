//! The order of write-backs, and what the printed form of it does.

use super::*;
use proptest::prelude::*;

fn of(addresses: impl IntoIterator<Item = u64>) -> Elevator<()> {
    let mut elevator = Elevator::new();
    addresses.into_iter().for_each(|address| elevator.add(address, ()));
    elevator
}

fn drain(elevator: &mut Elevator<()>) -> Vec<u64> {
    std::iter::from_fn(|| elevator.next_entry().map(|(address, ())| address)).collect()
}

#[test]
fn without_reads_one_sweep_writes_all_in_order() {
    let mut elevator = of([5, 1, 9, 3]);
    assert_eq!(drain(&mut elevator), [1, 3, 5, 9]);
    assert_eq!(elevator.turns(), 0);
}

#[test]
fn after_a_read_it_goes_on_beside_it_in_the_direction_of_the_head() {
    let mut elevator = of([10, 20, 30, 40, 50]);
    elevator.read_at(25);
    assert_eq!(elevator.next_entry(), Some((30, ())));
    elevator.read_at(22);
    assert_eq!(elevator.next_entry(), Some((20, ())));
    assert_eq!(drain(&mut elevator), [10, 40, 50]);
}

#[test]
fn an_address_that_is_added_again_is_written_once_with_the_newest() {
    let mut elevator = Elevator::new();
    elevator.add(4, "old");
    elevator.add(4, "new");
    assert_eq!(elevator.next_entry(), Some((4, "new")));
    elevator.add(4, "newer");
    assert_eq!(elevator.next_entry(), Some((4, "newer")), "also where the head stands");
    assert_eq!(elevator.next_entry(), None);
}

proptest! {
    #[test]
    fn every_entry_comes_once_for_every_k_and_every_reads(
        addresses in prop::collection::btree_set(0u64..500, 0..100),
        k in 1usize..12,
        reads in prop::collection::vec(0u64..600, 0..40),
    ) {
        let mut elevator = of(addresses.iter().copied());
        let mut reads = reads.into_iter();
        let mut written = Vec::new();
        let mut iterations = 0;
        while !elevator.is_empty() {
            if let Some(read) = reads.next() {
                elevator.read_at(read);
            }
            written.extend((0..k).map_while(|_| elevator.next_entry()).map(|(address, ())| address));
            iterations += 1;
        }
        prop_assert_eq!(iterations, addresses.len().div_ceil(k), "each iteration writes K");
        written.sort_unstable();
        prop_assert_eq!(written, addresses.into_iter().collect::<Vec<_>>());
    }
}

/// The printed algorithm, with its array and its `Last`; `None` where it leaves the array.
fn printed(entries: usize, k: usize, reads: &[usize]) -> Option<Vec<usize>> {
    let mut valid = vec![true; entries];
    let (mut last, mut direction, mut bound) = (-1i64, 1i64, entries as i64);
    let (mut left, mut order, mut reads) = (entries, Vec::new(), reads.iter());
    while left > 0 {
        if let Some(&read) = reads.next() {
            let beside = read as i64;
            (direction, bound, last) =
                if last < beside { (1, entries as i64, beside) } else { (-1, -1, beside + 1) };
        }
        let mut at = last + direction;
        let mut written = 0;
        while written < k && at != bound {
            let place = usize::try_from(at).ok().filter(|&at| at < entries)?;
            if valid[place] {
                valid[place] = false;
                order.push(place);
                written += 1;
            }
            at += direction;
        }
        left -= written;
        last = at;
    }
    Some(order)
}

#[test]
fn the_printed_form_skips_entries_and_runs_off_its_list() {
    assert_eq!(printed(1000, 1, &[]), None, "it skips every other entry, and then leaves the list");
    assert_eq!(printed(1000, 10, &[]), None);
    // Here: every entry, in as many iterations as there are K in them.
    assert_eq!(drain(&mut of(0..1000)).len(), 1000);
}
