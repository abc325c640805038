use super::*;

/// A shard's table with one segment, whose space was taken and is not filled.
fn thin() -> SegmentTable {
    let mut table = SegmentTable::new(64 << 10, Arc::new(SegmentPool::new(4, 1)));
    table.grant(0, false);
    assert_eq!(table.take_raw(), Some(0));
    table.becomes_thin(0);
    table.put_back(0, true);
    table
}

#[test]
fn space_that_was_taken_is_filled_once() {
    let mut table = thin();
    assert!(table.take_thin(0) && !table.take_thin(0));
    table.put_back(0, true);
    assert!(!table.take_thin(0));
}

#[test]
fn what_was_used_since_its_space_was_taken_is_not_filled() {
    for role in [Role::Checkpoint, Role::Open] {
        let mut table = thin();
        assert_eq!(table.take_free(), Some(0));
        table.get_mut(0).role = role;
        assert!(!table.take_thin(0), "{role:?}");
        table.get_mut(0).role = Role::Freeing;
        table.freed(0);
        assert!(table.own_free_count() == 1 && !table.take_thin(0), "{role:?}");
    }
}

#[test]
fn what_another_shard_may_have_used_is_not_filled() {
    let mut table = thin();
    table.give_back(0);
    assert!(!table.take_thin(0));
    assert!(table.secure(1) && !table.take_thin(0));
}
