//! Overwrites within one group: the newer record takes the older one's place, and nothing shows that.

use crate::common::lives::{Plan, World};
use crate::common::sampling::caught;
use crate::common::{Store, fresh, mutated, reopen, reopen_after_kill, small_settings};
use tierstone_base::{KeyspaceId, SeededRandom};
use tierstone_crash::{Choices, Violation};
use tierstone_engine::{Engine, Verification, Write, WriteKind};
use tierstone_media::Wait;

const SPACE: KeyspaceId = KeyspaceId(1);

fn kind(value: &[u8], expiry_ms: u64) -> WriteKind<'_> {
    WriteKind::Put { value, expiry_ms, kind: Default::default() }
}

/// Writes without a turn, so that the group stays open.
fn put(store: &mut Store, key: &[u8], value: &[u8], expiry_ms: u64) {
    let write = Write { key: store.key(SPACE, key), kind: kind(value, expiry_ms) };
    store.engine.write(store.now, &[write]).unwrap();
}

/// Bytes of records appended, and of those that took the place of others.
fn bytes(store: &Store) -> (u64, u64) {
    let statistics = store.engine.statistics();
    (statistics.record_bytes_written, statistics.absorbed_bytes)
}

fn value_of(store: &mut Store, key: &[u8]) -> Option<Vec<u8>> {
    store.get(SPACE, key).unwrap().map(|(_, value)| value)
}

fn verified(store: &mut Store) -> Verification {
    store.engine.begin_verification().unwrap();
    for _ in 0..100_000 {
        if !store.engine.verification().unwrap().is_running {
            return store.engine.verification().unwrap().clone();
        }
        store.turn(Wait::One);
    }
    panic!("the verification does not end: {:?}", store.engine.verification());
}

#[test]
fn of_a_counter_one_record_a_group_is_written() {
    let settings = small_settings();
    let (medium, mut store) = fresh(64 << 10, 16, &settings);
    for number in 100..900u32 {
        put(&mut store, b"counter", &number.to_le_bytes(), 0);
        put(&mut store, &[number as u8 % 50], b"beside it", 0);
    }
    let (appended, absorbed) = bytes(&store);
    assert_eq!((appended, absorbed), (51 * 64, (1_600 - 51) * 64));
    assert_eq!(value_of(&mut store, b"counter").unwrap(), 899u32.to_le_bytes());
    store.sync().unwrap();
    let mut store = reopen_after_kill(store, &medium, &settings);
    assert_eq!(value_of(&mut store, b"counter").unwrap(), 899u32.to_le_bytes());
    assert!(!verified(&mut store).is_damaged());
    let mut store = reopen(store, &medium, &settings);
    assert_eq!(value_of(&mut store, b"counter").unwrap(), 899u32.to_le_bytes());
    assert_eq!(store.engine.len(SPACE), 51);
    assert!(!verified(&mut store).is_damaged());
}

#[test]
fn a_group_that_is_closed_is_not_written_over() {
    let (_medium, mut store) = fresh(64 << 10, 16, &small_settings());
    put(&mut store, b"key", b"one", 0);
    store.sync().unwrap();
    put(&mut store, b"key", b"two", 0);
    assert_eq!(bytes(&store).1, 0);
    put(&mut store, b"key", b"three", 0);
    assert_eq!(bytes(&store).1, 64);
    assert_eq!(value_of(&mut store, b"key").unwrap(), b"three");
}

#[test]
fn another_length_or_expiry_is_a_record_of_its_own() {
    let (medium, mut store) = fresh(64 << 10, 16, &small_settings());
    let far = store.now.wall_ms + 1_000_000;
    put(&mut store, b"key", &[1; 20], 0);
    put(&mut store, b"key", &[2; 90], 0);
    put(&mut store, b"key", &[3; 90], far);
    assert_eq!(bytes(&store).1, 0);
    put(&mut store, b"key", &[4; 88], far);
    assert_eq!(bytes(&store).1, 160, "as many units");
    assert_eq!(value_of(&mut store, b"key").unwrap(), [4; 88]);
    store.sync().unwrap();
    let mut store = reopen_after_kill(store, &medium, &small_settings());
    let (meta, value) = store.get(SPACE, b"key").unwrap().unwrap();
    assert_eq!((meta.expiry_ms, value), (far, vec![4; 88]));
}

/// What a batch says last of a key counts, in the cache, in the log and after a crash; its end is always there.
#[test]
fn a_batch_may_name_a_key_many_times() {
    let settings = small_settings();
    let (medium, mut store) = fresh(64 << 10, 16, &settings);
    put(&mut store, b"a", b"before", 0);
    let values: Vec<Vec<u8>> = (0..60u8).map(|number| vec![number; 3 + usize::from(number) / 4]).collect();
    let writes: Vec<Write<'_>> = values
        .iter()
        .zip([&b"a"[..], b"b", b"c"].into_iter().cycle())
        .map(|(value, key)| Write { key: store.key(SPACE, key), kind: kind(value, 0) })
        .collect();
    store.write(&writes).unwrap();
    let absorbed = bytes(&store).1;
    assert!((50 * 64..60 * 64).contains(&absorbed), "{absorbed} bytes");
    let expected = [(&b"a"[..], 57), (b"b", 58), (b"c", 59)];
    for (key, number) in expected {
        assert_eq!(value_of(&mut store, key).unwrap(), values[number], "{number}");
    }
    store.sync().unwrap();
    let mut store = reopen_after_kill(store, &medium, &settings);
    for (key, number) in expected {
        assert_eq!(value_of(&mut store, key).unwrap(), values[number], "{number}");
    }
    assert!(!verified(&mut store).is_damaged());
}

#[test]
fn a_snapshot_keeps_what_it_shows() {
    for settings in [small_settings(), mutated("absorbed_beside_snapshots")] {
        let (_medium, mut store) = fresh(64 << 10, 16, &settings);
        put(&mut store, b"key", b"old", 0);
        let snapshot = store.engine.snapshot(store.now).unwrap();
        put(&mut store, b"key", b"new", 0);
        let shown = store.get_at(snapshot, SPACE, b"key").unwrap().map(|record| record.value);
        let holds = !settings.mutations.is_any_on();
        assert_eq!(shown.as_deref() == Some(b"old"), holds, "{shown:?}");
        store.engine.release_snapshot(snapshot);
        let before = bytes(&store).1;
        put(&mut store, b"key", b"one more", 0);
        put(&mut store, b"key", b"newest", 0);
        assert!(bytes(&store).1 > before, "without a snapshot");
    }
}

/// Values of one length, of few keys, so that many take the place of others in groups that fill and segments that end.
fn random_writes(store: &mut Store, random: &mut SeededRandom) -> Vec<u64> {
    let mut newest = vec![0; 40];
    for number in 1..6_000u64 {
        let key = (random.below(40).min(random.below(40))) as usize;
        let value = vec![number as u8; 300];
        store.write(&[Write { key: store.key(SPACE, &[key as u8]), kind: kind(&value, 0) }]).unwrap();
        newest[key] = number;
        if random.below(30) == 0 {
            store.turn(Wait::Poll);
        }
    }
    newest
}

#[test]
fn summaries_name_what_lies_in_the_segment() {
    for name in [None, Some("summary_not_settled")] {
        let settings = name.map_or_else(small_settings, mutated);
        let mut damaged = 0;
        for seed in 0..4 {
            let (medium, mut store) = fresh(32 << 10, 40, &settings);
            let newest = random_writes(&mut store, &mut SeededRandom::new(seed));
            assert!(bytes(&store).1 > 100 * 352, "seed {seed}");
            store.sync().unwrap();
            let mut store = reopen(store, &medium, &settings);
            damaged += u64::from(verified(&mut store).is_damaged());
            for (key, number) in newest.into_iter().enumerate().filter(|(_, number)| *number > 0) {
                let value = value_of(&mut store, &[key as u8]).unwrap();
                assert_eq!(value, [number as u8; 300], "seed {seed}, key {key}");
            }
        }
        assert_eq!(damaged > 0, name.is_some(), "the rule {name:?}");
    }
}

/// Batches, most of which end in a group after the one they begin in.
fn overwriting(world: &mut World<'_>, _life: u32, choices: &Choices) -> Result<(), Violation> {
    let mut random = SeededRandom::new(choices.choose_seed("work"));
    for _ in 0..12 {
        let count = 1 + random.below(30);
        let changes: Vec<_> = (0..count).map(|_| (random.below(40) as u32, Some(300))).collect();
        world.write(&changes)?;
        if random.chance(0.3) {
            world.poll();
        }
    }
    world.prove_alive()
}

#[test]
fn a_batch_that_is_dropped_takes_nothing_with_it() {
    caught("absorbed_over_batches", &Plan::new(64 << 10, 12), 2_000, &overwriting);
}
