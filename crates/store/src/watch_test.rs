use super::*;

const SPACE: KeyspaceId = KeyspaceId(1);

fn key(position: u64, expiry_ms: u64, existed: bool) -> WatchedKey {
    WatchedKey { keyspace: SPACE, position: Position(position), expiry_ms, existed }
}

fn at(wall_ms: u64) -> Now {
    Now { monotonic_us: 0, wall_ms }
}

#[test]
fn a_write_marks_the_watchers_of_its_position_only() {
    let mut table = WatchTable::default();
    table.watch(1, key(7, 0, true));
    table.watch(2, key(8, 0, true));
    table.watch(3, key(7, 0, false));
    table.touch(SPACE, Position(7));
    table.touch(KeyspaceId(9), Position(8));
    assert!(table.is_dirty(1, at(0)) && table.is_dirty(3, at(0)));
    assert!(!table.is_dirty(2, at(0)));
}

#[test]
fn unwatching_forgets_the_mark_and_leaves_nothing_behind() {
    let mut table = WatchTable::default();
    table.watch(1, key(7, 0, true));
    table.watch(1, key(7, 0, true));
    table.touch(SPACE, Position(7));
    table.unwatch(1);
    assert!(!table.is_dirty(1, at(0)));
    assert!(table.is_empty() && table.positions.is_empty());
}

#[test]
fn expiry_after_the_watch_began_counts_as_a_change() {
    let mut table = WatchTable::default();
    table.watch(1, key(7, 1_000, true));
    assert!(!table.is_dirty(1, at(999)));
    assert!(table.is_dirty(1, at(1_000)));
}

#[test]
fn a_flush_marks_watchers_of_keys_that_existed_and_the_others_watch_on() {
    let mut table = WatchTable::default();
    table.watch(1, key(7, 0, true));
    table.watch(2, key(8, 0, false));
    table.replace_keyspace(SPACE, KeyspaceId(5));
    assert!(table.is_dirty(1, at(0)) && !table.is_dirty(2, at(0)));
    table.touch(SPACE, Position(8));
    assert!(!table.is_dirty(2, at(0)), "nothing is written to a dropped keyspace any more");
    table.touch(KeyspaceId(5), Position(8));
    assert!(table.is_dirty(2, at(0)));
    table.unwatch(1);
    table.unwatch(2);
    assert!(table.is_empty() && table.positions.is_empty());
}

#[test]
fn a_swap_marks_all_watchers_of_the_keyspace() {
    let mut table = WatchTable::default();
    table.watch(1, key(8, 0, false));
    table.touch_keyspace(KeyspaceId(9));
    assert!(!table.is_dirty(1, at(0)));
    table.touch_keyspace(SPACE);
    assert!(table.is_dirty(1, at(0)));
}
