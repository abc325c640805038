use super::*;
use crate::database_map::MapChange;
use tierstone_engine::map_engine::MapEngine;

fn shard() -> Shard<MapEngine> {
    let settings = ShardSettings {
        index: 0,
        count: 1,
        map: DatabaseMap::new(2),
        index_kind: Default::default(),
        hasher: KeyHasher::new([1, 2]),
        durability: Durability::Sync,
        record_bytes_max: 1 << 20,
    };
    Shard::new(MapEngine::new(0), settings)
}

fn at(wall_ms: u64) -> Now {
    Now { monotonic_us: 0, wall_ms }
}

fn set(shard: &mut Shard<MapEngine>, now: Now, key: &[u8], expiry_ms: u64) -> Seq {
    let outcome = shard.run(now, &mut Workspace::default(), &[], |view| {
        view.put(0, key, b"value", expiry_ms, ValueKind::STRING)
    });
    let RunOutcome::Done { gate, .. } = outcome else { panic!("{outcome:?}") };
    gate
}

fn get(shard: &mut Shard<MapEngine>, now: Now, key: &[u8]) -> (bool, Seq) {
    let outcome = shard.run(now, &mut Workspace::default(), &[], |view| Ok(view.get(0, key)?.is_some()));
    let RunOutcome::Done { value, gate } = outcome else { panic!("{outcome:?}") };
    (value, gate)
}

#[test]
fn a_read_is_gated_by_the_write_that_it_saw_and_a_miss_by_everything_applied() {
    let mut shard = shard();
    let first = set(&mut shard, at(1), b"a", 0);
    let second = set(&mut shard, at(1), b"b", 0);
    assert!(second > first);
    assert_eq!(get(&mut shard, at(1), b"a"), (true, first));
    assert_eq!(get(&mut shard, at(1), b"none"), (false, second));
    shard.set_durability(Now::default(), Durability::Relaxed);
    assert_eq!(get(&mut shard, at(1), b"a"), (true, 0));
    assert_eq!(set(&mut shard, at(1), b"a", 0), 0);
}

#[test]
fn an_expired_key_stays_expired_when_the_clock_goes_back() {
    let mut shard = shard();
    set(&mut shard, at(1_000), b"a", 2_000);
    assert!(get(&mut shard, at(1_999), b"a").0);
    assert!(!get(&mut shard, at(2_000), b"a").0);
    assert!(!get(&mut shard, at(500), b"a").0);
}

#[test]
fn a_command_sees_its_own_writes_and_a_failed_one_leaves_none() {
    let mut shard = shard();
    let mut workspace = Workspace::default();
    let outcome = shard.run(at(1), &mut workspace, &[], |view| {
        view.put(0, b"a", b"one", 0, ValueKind::STRING)?;
        let seen = view.get(0, b"a")?.map(|record| record.value.to_vec());
        let count = view.len(0)?;
        view.delete(0, b"a")?;
        Ok((seen, count, view.get(0, b"a")?.is_none(), view.len(0)?))
    });
    let RunOutcome::Done { value, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(value, (Some(b"one".to_vec()), 1, true, 0));
    let outcome = shard.run(at(1), &mut workspace, &[], |view| {
        view.put(0, b"b", b"one", 0, ValueKind::STRING)?;
        view.get(9, b"b").map(|_| ())
    });
    assert!(matches!(outcome, RunOutcome::Failed(_)));
    assert!(!get(&mut shard, at(1), b"b").0);
}

#[test]
fn a_flushed_database_is_empty_and_its_watchers_are_marked() {
    let mut shard = shard();
    set(&mut shard, at(1), b"a", 0);
    let (keyspace, position) = (shard.map().keyspace(0).unwrap(), shard.position(b"a"));
    let key = crate::WatchedKey { keyspace, position, expiry_ms: 0, existed: true };
    shard.watches.watch(7, key);
    let mut map = shard.map().clone();
    map.change(MapChange::Flush(0)).unwrap();
    shard.apply_map(&map);
    assert!(!get(&mut shard, at(1), b"a").0);
    assert!(shard.watches.is_dirty(7, at(1)));
    assert_eq!(shard.engine().len(keyspace), 0);
}
