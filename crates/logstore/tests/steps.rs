//! What one step of the background's work does at most. Nothing is timed: the work is counted.

use crate::common::{Store, fresh, small_settings};
use tierstone_base::{ErrorKind, KeyspaceId, SeededRandom};
use tierstone_crash::Mutations;
use tierstone_engine::{Engine, Write, WriteKind};
use tierstone_logstore::{CleaningWork, OpenSettings};
use tierstone_media::{BlockDevice, Wait};

const KEYSPACE: KeyspaceId = KeyspaceId(1);

/// One turn, and what its step has cleaned.
fn turn(store: &mut Store) -> CleaningWork {
    let before = store.engine.cleaning_work();
    store.turn(Wait::Poll);
    let after = store.engine.cleaning_work();
    CleaningWork {
        entries: after.entries - before.entries,
        marked: after.marked - before.marked,
        records: after.records - before.records,
        bytes: after.bytes - before.bytes,
        lookups: after.lookups - before.lookups,
    }
}

/// Keys of which all or none expire.
fn put(store: &mut Store, keys: std::ops::Range<u64>, expiry_ms: u64) {
    let keys: Vec<[u8; 8]> = keys.map(u64::to_le_bytes).collect();
    let kind = WriteKind::Put { value: &[7; 8], expiry_ms, kind: Default::default() };
    let writes: Vec<Write<'_>> =
        keys.iter().map(|key| Write { key: store.key(KEYSPACE, key), kind }).collect();
    store.write(&writes).expect("there is room");
}

/// Open segments, whose summaries are in memory, and sealed ones.
#[test]
fn no_step_drops_more_expired_keys_than_its_part() {
    let mut settings = small_settings();
    settings.shard.memory_bytes = 16 << 20;
    settings.shard.group_bytes_max = 256 << 10;
    let (_medium, mut store) = fresh(2 << 20, 12, &settings);
    let expiry_ms = store.now.wall_ms + 60_000;
    let keys = 60_000;
    for number in (0..keys).step_by(400) {
        put(&mut store, number..number + 400, if number % 1_200 == 0 { 0 } else { expiry_ms });
    }
    store.sync().expect("the device works");
    store.now.wall_ms = expiry_ms + 2_000;
    let mut most = CleaningWork::default();
    for _ in 0..4_000 {
        let step = turn(&mut store);
        most.lookups = most.lookups.max(step.lookups);
        most.bytes = most.bytes.max(step.bytes);
        store.now.monotonic_us += 1_000;
    }
    println!("at most {} keys looked up in a step", most.lookups);
    assert_eq!(store.engine.len(KEYSPACE), keys / 3, "what has expired is gone, and nothing else");
    assert!(most.lookups <= ENTRIES_MAX / 2 && most.bytes <= BYTES_MAX, "{most:?}");
}

/// Bytes of index that a step puts into a checkpoint: those of the setting, and the rest of a region.
#[test]
fn no_step_of_a_checkpoint_does_more_than_its_part() {
    let mut settings = small_settings();
    settings.shard.memory_bytes = 16 << 20;
    settings.shard.group_bytes_max = 256 << 10;
    settings.shard.checkpoint_idle_ms = 10;
    settings.shard.checkpoint_step_bytes = 8 << 10;
    let (_medium, mut store) = fresh(2 << 20, 40, &settings);
    let keys = 120_000;
    for number in (0..keys).step_by(400) {
        put(&mut store, number..number + 400, 0);
    }
    store.sync().expect("the device works");
    let mut most = 0;
    for _ in 0..4_000 {
        let before = store.engine.checkpoint_work();
        turn(&mut store);
        most = most.max(store.engine.checkpoint_work() - before);
    }
    let (all, written) = (store.engine.checkpoint_work(), store.engine.statistics().checkpoint_bytes_written);
    println!("{all} bytes of index, at most {most} in a step; {written} bytes written");
    assert!(all > keys * 7 && written > all, "no checkpoint was written");
    assert!(most <= (8 << 10) + (8 << 10), "{most} bytes in a step");
}

/// Writes `numbers` in one batch; gives the steps that it took.
fn write(store: &mut Store, numbers: &[u64], value: &[u8], steps: &mut Vec<CleaningWork>) {
    let keys: Vec<[u8; 8]> = numbers.iter().map(|number| number.to_le_bytes()).collect();
    // Marks of dead records do not tell of one that expires whether it lives.
    let far_ms = store.now.wall_ms + 1_000_000_000;
    let expiry_ms = |number: &u64| if number.is_multiple_of(2) { far_ms } else { 0 };
    let kinds = numbers.iter().map(|number| WriteKind::Put {
        value,
        expiry_ms: expiry_ms(number),
        kind: Default::default(),
    });
    let writes: Vec<Write<'_>> =
        keys.iter().zip(kinds).map(|(key, kind)| Write { key: store.key(KEYSPACE, key), kind }).collect();
    for _ in 0..100_000 {
        match store.engine.write(store.now, &writes) {
            Ok(_) => {
                steps.push(turn(store));
                return;
            }
            Err(error) if error.kind() == ErrorKind::Retry => steps.push(turn(store)),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("a write stayed refused");
}

/// Entries of a summary, or records moved, that a step may look at: some 200 µs.
const ENTRIES_MAX: u64 = 256;
/// Bytes that a step may move, checksum or both, and the longest record besides.
const BYTES_MAX: u64 = 256 << 10;

/// Segments of 40,000 records: half of each is overwritten, then all the rest.
#[test]
fn no_step_of_cleaning_does_more_than_its_part() {
    let mut settings = small_settings();
    settings.shard.memory_bytes = 16 << 20;
    settings.shard.cache_bytes_max = u64::MAX;
    settings.shard.group_bytes_max = 256 << 10;
    settings.shard.clean_step_bytes = 256 << 10;
    settings.shard.clean_below_free_fraction = 0.8;
    let (_medium, mut store) = fresh(2 << 20, 12, &settings);
    let mut random = SeededRandom::new(3);
    let mut steps = Vec::new();
    let keys = 60_000;
    for number in (0..keys).step_by(400) {
        write(&mut store, &(number..number + 400).collect::<Vec<_>>(), &[7; 8], &mut steps);
    }
    for _ in 0..250 {
        let numbers: Vec<u64> = (0..400).map(|_| random.below(keys)).collect();
        write(&mut store, &numbers, &[8; 8], &mut steps);
    }
    for number in 0..40 {
        write(&mut store, &[number], &[9; 100_000], &mut steps);
    }
    for _ in 0..20_000 {
        steps.push(turn(&mut store));
    }
    let most = |part: fn(&CleaningWork) -> u64| steps.iter().map(part).max().unwrap();
    let all = store.engine.cleaning_work();
    println!(
        "{} steps looked at {} entries, passed {} marked ones and moved {} records, {} bytes; at most {} entries, {} records, {} bytes",
        steps.len(),
        all.entries,
        all.marked,
        all.records,
        all.bytes,
        most(|step| step.entries),
        most(|step| step.records),
        most(|step| step.bytes),
    );
    let is_busy = all.entries > 30_000 && all.marked > 30_000 && all.records > 30_000;
    assert!(is_busy, "the cleaner had little to do: {all:?}");
    assert!(most(|step| step.entries + step.records + step.marked / 8) <= ENTRIES_MAX + 1);
    assert!(most(|step| step.bytes) <= BYTES_MAX + 100_000);
    for number in (0..keys).step_by(97) {
        assert!(store.get(KEYSPACE, &number.to_le_bytes()).unwrap().is_some(), "key {number} is gone");
    }
}

/// Whether somebody who writes, and steps only when the engine asks for it, comes to the end of it: what a step
/// leaves behind, and what is written behind it, is never left without a next step.
fn ends_by_itself(settings: &OpenSettings) -> bool {
    let (_medium, mut store) = fresh(128 << 10, 80, settings);
    (0..3_000u64).all(|number| {
        let value = vec![7; (number as usize * 37) % 3_000];
        let key = number.to_le_bytes();
        let kind = WriteKind::Put { value: &value, expiry_ms: 0, kind: Default::default() };
        let write = Write { key: store.key(KEYSPACE, &key), kind };
        store.engine.write(store.now, &[write]).is_ok() && (number % 7 > 0 || runs_dry(&mut store))
    })
}

/// Turns while the engine asks for it or the device is at work; whether all that was written is durable then.
fn runs_dry(store: &mut Store) -> bool {
    while store.device.in_flight() > 0
        || store.engine.next_step_at_us().is_some_and(|at_us| at_us <= store.now.monotonic_us)
    {
        store.turn(Wait::One);
    }
    store.engine.durable_seq() == store.engine.applied_seq()
}

#[test]
fn what_is_written_between_steps_asks_for_the_next_one() {
    let mut settings = small_settings();
    // One group takes hardly more than one record: most writes close one.
    settings.shard.group_bytes_max = 4 << 10;
    settings.shard.memory_bytes = 4 << 20;
    assert!(ends_by_itself(&settings));
    settings.mutations = Mutations::one("closed_groups_left");
    assert!(!ends_by_itself(&settings), "no write was left without a step: the test tests nothing");
}
