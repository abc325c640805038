use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

proptest! {
    #[test]
    fn runs_name_the_same_segments(segments in proptest::collection::btree_set(0..300u32, 0..200)) {
        let runs = runs_of(segments.iter().copied());
        prop_assert_eq!(segments_of(&runs).collect::<BTreeSet<u32>>(), segments);
        prop_assert!(runs.windows(2).all(|two| two[0].0 + two[0].1 < two[1].0), "{:?}", runs);
    }
}

#[test]
fn space_that_is_listed_is_given_back_only_when_both_slots_list_it_no_more() {
    let inventory = Inventory::default();
    inventory.opened(&[(5, 1)], [1, 2, 3].map(|segment| (segment, Some(1))).into_iter());
    assert!(!inventory.is_due(), "the opening has said what there is");
    inventory.freed(2);
    assert!(inventory.may_be_discarded(4) && !inventory.is_due());
    assert!(!inventory.may_be_discarded(2) && inventory.is_due());
    assert!(!inventory.may_be_discarded(5), "the other slot lists it");
    let runs = inventory.begin_note();
    assert_eq!(runs, [(1, 1), (3, 1)]);
    assert!(!inventory.may_be_discarded(2), "nothing is written yet");
    inventory.end_note(&runs);
    assert!(inventory.may_be_discarded(2) && inventory.may_be_discarded(5) && !inventory.may_be_discarded(3));
}

#[test]
fn what_is_used_while_the_superblock_is_written_is_due_again() {
    let inventory = Inventory::default();
    inventory.used(7, 1);
    assert!(inventory.is_due());
    let runs = inventory.begin_note();
    inventory.used(8, 1);
    inventory.used(7, 1);
    inventory.end_note(&runs);
    assert!(inventory.is_due());
    assert_eq!((runs, inventory.begin_note()), (vec![(7, 1)], vec![(7, 2)]));
    assert!(!inventory.is_due());
}
