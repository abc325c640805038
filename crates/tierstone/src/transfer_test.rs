use super::*;
use crate::{DatabaseOptions, SharedStore};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tierstone_base::SeededRandom;
use tierstone_base::position::slot_of;

type Model = BTreeMap<(u32, Vec<u8>), Vec<u8>>;

/// The upper half.
const SLOTS: RangeInclusive<u16> = SLOT_COUNT / 2..=SLOT_COUNT - 1;

fn options(name: &str, shards: u16) -> (PathBuf, DatabaseOptions) {
    let path = std::env::temp_dir().join(format!("tierstone-transfer-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    (path.clone(), options_at(path, shards))
}

fn options_at(path: PathBuf, shards: u16) -> DatabaseOptions {
    DatabaseOptions {
        shards,
        segment_bytes: Some(128 << 10),
        capacity_bytes: Some(8 << 20),
        memory_bytes: 4 << 20,
        databases: 2,
        durable_method: Some(tierstone_media::file::DurableMethod::DurableWrite),
        ..DatabaseOptions::new(path)
    }
}

fn change(store: &mut Store, model: &mut Model, random: &mut SeededRandom, slots: &RangeInclusive<u16>) {
    let number = random.below(2) as u32;
    let key = format!("key:{}", random.below(600)).into_bytes();
    if !slots.contains(&slot_of(&key)) {
        return;
    }
    let mut keyspace = store.keyspace(number).unwrap();
    if random.chance(0.2) {
        assert_eq!(keyspace.delete(&key).unwrap(), model.remove(&(number, key)).is_some());
    } else {
        let value = vec![random.below(256) as u8; random.below(700) as usize];
        let _ticket = keyspace.put_nowait(&key, &value).unwrap();
        model.insert((number, key), value);
    }
}

fn contents(store: &mut Store) -> Model {
    let mut found = Model::new();
    for number in 0..2 {
        for entry in store.keyspace(number).unwrap().scan() {
            let entry = entry.unwrap();
            found.insert((number, entry.key), entry.value);
        }
    }
    found
}

fn part(model: &Model, moved: bool) -> Model {
    let of_part = model.iter().filter(|((_, key), _)| SLOTS.contains(&slot_of(key)) == moved);
    of_part.map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[test]
fn half_of_the_slots_move_between_stores_of_other_shards_beside_writes_and_come_back() {
    let (one_path, one_options) = options("one", 3);
    let (other_path, other_options) = options("other", 2);
    let mut one = Store::open(&one_options).unwrap();
    let mut other = Store::open(&other_options).unwrap();
    let seed = SeededRandom::system_seed().unwrap();
    let mut random = SeededRandom::new(seed);
    let mut model = Model::new();
    let all = 0..=SLOT_COUNT - 1;
    for _ in 0..2_000 {
        change(&mut one, &mut model, &mut random, &all);
    }
    let (mut handed_over, mut steps) = (0, 0);
    let report = one
        .split_to(&mut other, SLOTS, |one, other, progress| match progress.phase {
            MovePhase::Copying => {
                steps += 1;
                for _ in 0..20 {
                    change(one, &mut model, &mut random, &all);
                }
            }
            MovePhase::HandedOver => {
                handed_over += 1;
                assert!(contents(one) == model, "seed {seed}: the source is not whole at the hand-over");
                assert!(contents(other) == part(&model, true), "seed {seed}: at the hand-over");
            }
            MovePhase::Dropping => {
                change(one, &mut model, &mut random, &(0..=SLOT_COUNT / 2 - 1));
                change(other, &mut model, &mut random, &SLOTS);
            }
        })
        .unwrap();
    assert_eq!(handed_over, 1);
    assert!(steps > 0 && report.records >= part(&model, true).len() as u64, "{report:?}");
    assert!(contents(&mut one) == part(&model, false), "seed {seed}: what stays");
    assert!(contents(&mut other) == part(&model, true), "seed {seed}: what moved");
    // Durable on both sides, and back by a merge.
    drop((one, other));
    let mut one = Store::open(&one_options).unwrap();
    let mut other = Store::open(&other_options).unwrap();
    one.merge_from(&mut other, |one, other, progress| {
        if progress.phase == MovePhase::Copying {
            change(other, &mut model, &mut random, &SLOTS);
            change(one, &mut model, &mut random, &(0..=SLOT_COUNT / 2 - 1));
        }
    })
    .unwrap();
    assert!(contents(&mut one) == model, "seed {seed}: after the merge");
    assert!(contents(&mut other).is_empty(), "seed {seed}: after the merge");
    drop((one, other));
    std::fs::remove_dir_all(&one_path).unwrap();
    std::fs::remove_dir_all(&other_path).unwrap();
}

/// Copies a store's files: what is found when its process ends at this moment. Writes that are on their
/// way to a file are in its page cache, or not.
fn copy_files(from: &std::path::Path, to: &std::path::Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn a_process_that_ends_after_the_hand_over_leaves_all_in_the_target_and_the_rest_can_be_dropped() {
    let (one_path, one_options) = options("killed", 2);
    let (other_path, other_options) = options("takes", 1);
    let (copy_path, copy_options) = options("copy", 2);
    let (taken_path, taken_options) = options("taken", 1);
    let mut one = Store::open(&one_options).unwrap();
    let mut other = Store::open(&other_options).unwrap();
    let (mut model, mut random) = (Model::new(), SeededRandom::new(3));
    for _ in 0..1_500 {
        change(&mut one, &mut model, &mut random, &(0..=SLOT_COUNT - 1));
    }
    one.sync().unwrap();
    let mut copied = false;
    one.split_to(&mut other, SLOTS, |_, _, progress| {
        if progress.phase == MovePhase::Dropping && !copied && progress.segments_left > 0 {
            copied = true;
            copy_files(&one_path, &copy_path);
            copy_files(&other_path, &taken_path);
        }
    })
    .unwrap();
    assert!(copied);
    let mut left = Store::open(&copy_options).unwrap();
    let mut taken = Store::open(&taken_options).unwrap();
    assert!(contents(&mut taken) == part(&model, true));
    let found = contents(&mut left);
    assert!(part(&found, false) == part(&model, false));
    left.drop_slots(SLOTS).unwrap();
    assert!(contents(&mut left) == part(&model, false));
    drop(left);
    let mut left = Store::open(&copy_options).unwrap();
    assert!(contents(&mut left) == part(&model, false), "a drop is durable");
    drop((one, other, left, taken));
    for path in [one_path, other_path, copy_path, taken_path] {
        std::fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn a_compaction_makes_a_store_small_while_it_serves() {
    let (path, mut options) = options("compact", 2);
    options.capacity_bytes = Some(64 << 20);
    options.shard.clean_below_free_fraction = 0.01;
    let mut store = Store::open(&options).unwrap();
    for number in 0..6_000u32 {
        let _ticket = store.put_nowait(&number.to_be_bytes(), &[7; 800]).unwrap();
    }
    for number in (0..6_000u32).filter(|number| number % 3 != 0) {
        let _ticket = store.put_nowait(&number.to_be_bytes(), b"").unwrap();
    }
    store.sync().unwrap();
    let before = store.statistics();
    let mut steps = 0;
    store
        .compact(|store, progress| {
            steps += 1;
            assert!(progress.segments_left <= progress.segments_total);
            assert_eq!(store.get(&0u32.to_be_bytes()).unwrap().unwrap(), [7; 800]);
            let _ticket = store.put_nowait(b"beside", &[steps as u8]).unwrap();
            if steps == 1 {
                assert_eq!(store.compact(|_, _| {}).unwrap_err().kind(), ErrorKind::Busy);
            }
        })
        .unwrap();
    let after = store.statistics();
    assert!(steps > 10, "{steps} steps");
    assert!(after.space_used_bytes * 2 < before.space_used_bytes, "{before:?} {after:?}");
    for number in 0..6_000u32 {
        let expected: &[u8] = if number % 3 == 0 { &[7; 800] } else { b"" };
        assert_eq!(store.get(&number.to_be_bytes()).unwrap().unwrap(), expected);
    }
    drop(store);
    std::fs::remove_dir_all(&path).unwrap();
}

/// Between two calls of the caller's function little is moved, so that whoever reads in it waits little.
#[test]
fn a_step_of_a_move_is_short() {
    for (value_bytes, records_a_step) in [(10, drive::STEP_RECORDS as u64), (4_000, 8)] {
        let (one_path, one_options) = options("short", 2);
        let (other_path, other_options) = options("steps", 1);
        let mut one = Store::open(&one_options).unwrap();
        let mut other = Store::open(&other_options).unwrap();
        for number in 0..1_000u32 {
            let _ticket = one.put_nowait(&number.to_be_bytes(), &vec![7; value_bytes]).unwrap();
        }
        // Its log is open then.
        other.put(b"before", b"").unwrap();
        let written = |store: &Store| store.statistics().device.writes;
        let (mut taken, mut steps, before) = (1, 0, written(&other));
        one.split_to(&mut other, 0..=SLOT_COUNT - 1, |_, other, progress| {
            if progress.phase == MovePhase::Copying {
                let step = other.len() - taken;
                assert!(step <= records_a_step, "{step} records of {value_bytes} bytes");
                assert!(
                    taken + step == 1 || written(other) > before,
                    "what came is not on its way to the device"
                );
                (taken, steps) = (other.len(), steps + 1);
            }
        })
        .unwrap();
        assert_eq!(other.len(), 1_001);
        assert!(steps >= 1_000 / records_a_step, "{steps} steps");
        drop((one, other));
        std::fs::remove_dir_all(&one_path).unwrap();
        std::fs::remove_dir_all(&other_path).unwrap();
    }
}

#[test]
fn a_deletion_that_comes_after_the_hand_over_is_refused_whether_the_key_is_dropped_or_not() {
    let (one_path, one_options) = options("late", 1);
    let (other_path, other_options) = options("has", 1);
    let mut one = Store::open(&one_options).unwrap();
    let mut other = Store::open(&other_options).unwrap();
    for number in 0..2_000u32 {
        let _ticket = one.put_nowait(&number.to_be_bytes(), &[7; 500]).unwrap();
    }
    let moved = (0..2_000u32).map(u32::to_be_bytes).find(|key| SLOTS.contains(&slot_of(key))).unwrap();
    let mut refused = 0;
    one.split_to(&mut other, SLOTS, |one, _, progress| {
        if progress.phase == MovePhase::Dropping {
            assert_eq!(one.delete(&moved).unwrap_err().kind(), ErrorKind::Unsupported);
            assert_eq!(one.delete(b"a key that never was {a}").is_ok(), !SLOTS.contains(&slot_of(b"{a}")));
            refused += 1;
        }
    })
    .unwrap();
    assert!(refused > 0 && other.get(&moved).unwrap().is_some());
    drop((one, other));
    std::fs::remove_dir_all(&one_path).unwrap();
    std::fs::remove_dir_all(&other_path).unwrap();
}

#[test]
fn moves_that_make_no_sense_are_refused() {
    let (one_path, one_options) = options("refused", 1);
    let (other_path, mut other_options) = options("small", 1);
    other_options.databases = 1;
    let mut one = Store::open(&one_options).unwrap();
    let mut other = Store::open(&other_options).unwrap();
    let kind = |moved: Result<MoveReport>| moved.unwrap_err().kind();
    assert_eq!(kind(one.split_to(&mut other, SLOTS, |_, _, _| {})), ErrorKind::InvalidInput);
    assert_eq!(kind(other.split_to(&mut one, 5..=SLOT_COUNT, |_, _, _| {})), ErrorKind::InvalidInput);
    #[expect(clippy::reversed_empty_ranges, reason = "that is the point")]
    let empty = 5..=4;
    assert_eq!(other.drop_slots(empty).unwrap_err().kind(), ErrorKind::InvalidInput);
    // A move in a move.
    other
        .split_to(&mut one, SLOTS, |other, one, _| {
            assert_eq!(kind(other.split_to(one, 0..=1, |_, _, _| {})), ErrorKind::Busy);
        })
        .unwrap();
    drop((one, other));
    std::fs::remove_dir_all(&one_path).unwrap();
    std::fs::remove_dir_all(&other_path).unwrap();
}

#[test]
fn stores_with_large_values_of_the_server_neither_give_nor_take_slots() {
    let (one_path, one_options) = options("large", 1);
    let (other_path, other_options) = options("plain", 2);
    let mut one = Store::open(&one_options).unwrap();
    let mut other = Store::open(&other_options).unwrap();
    crate::simulated::put_large(&mut one, "xx");
    other.put(b"{xx}large", b"small").unwrap();
    let kind = |moved: Result<MoveReport>| moved.unwrap_err().kind();
    assert_eq!(kind(one.split_to(&mut other, SLOTS, |_, _, _| {})), ErrorKind::Unsupported);
    assert_eq!(kind(one.merge_from(&mut other, |_, _, _| {})), ErrorKind::Unsupported);
    one.close().unwrap();
    other.close().unwrap();
    let one = SharedStore::open(&one_options).unwrap();
    let other = SharedStore::open(&other_options).unwrap();
    assert_eq!(kind(one.split_to(&other, SLOTS, |_| {})), ErrorKind::Unsupported);
    assert_eq!(kind(one.merge_from(&other, |_| {})), ErrorKind::Unsupported);
    assert_eq!(other.len().unwrap(), 1);
    drop((one, other));
    std::fs::remove_dir_all(&one_path).unwrap();
    std::fs::remove_dir_all(&other_path).unwrap();
}

#[test]
fn a_keyspace_that_is_made_during_a_move_goes_with_it_and_one_that_the_target_drops_ends_it() {
    let (one_path, one_options) = options("made", 2);
    let (other_path, other_options) = options("adopts", 1);
    let mut one = Store::open(&one_options).unwrap();
    let mut other = Store::open(&other_options).unwrap();
    let fill = |store: &mut Store, name: &str| {
        let mut keyspace = store.open_keyspace(name, KeyspaceOptions::default()).unwrap();
        for key in 0..500u32 {
            let _ticket = keyspace.put_nowait(&key.to_be_bytes(), &[3; 300]).unwrap();
        }
    };
    fill(&mut one, "first");
    let mut is_made = false;
    other
        .merge_from(&mut one, |_, one, progress| {
            if progress.phase == MovePhase::Copying && !is_made {
                fill(one, "later");
                is_made = true;
            }
        })
        .unwrap();
    assert!(is_made);
    for name in ["first", "later"] {
        assert_eq!(other.open_keyspace(name, KeyspaceOptions::default()).unwrap().len(), 500, "{name}");
        assert!(one.open_keyspace(name, KeyspaceOptions::default()).unwrap().is_empty());
    }
    // Back, through shared handles.
    one.close().unwrap();
    other.close().unwrap();
    let one = SharedStore::open(&one_options).unwrap();
    let other = SharedStore::open(&other_options).unwrap();
    let mut last = None;
    one.merge_from(&other, |progress| {
        if progress.phase == MovePhase::Copying && last.is_none() {
            let made = other.open_keyspace("last", KeyspaceOptions::default()).unwrap();
            (0..500u32).for_each(|key| made.put(&key.to_be_bytes(), b"value").unwrap());
            last = Some(made);
        }
    })
    .unwrap();
    for name in ["first", "later", "last"] {
        assert_eq!(
            one.open_keyspace(name, KeyspaceOptions::default()).unwrap().len().unwrap(),
            500,
            "{name}"
        );
    }
    let mut is_dropped = false;
    let moved = other.merge_from(&one, |_| {
        if !is_dropped {
            is_dropped = other.drop_keyspace("later").unwrap();
        }
    });
    assert_eq!(moved.unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(one.open_keyspace("later", KeyspaceOptions::default()).unwrap().len().unwrap(), 500);
    drop((one, other, last));
    std::fs::remove_dir_all(&one_path).unwrap();
    std::fs::remove_dir_all(&other_path).unwrap();
}
