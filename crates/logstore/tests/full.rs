//! Full stores: whatever crashes come, deletes and the cleaner go through, and what cannot be written is
//! refused with the cause, not put off for ever.

use crate::common::lives::{KEYSPACE, Mix, Plan, Work, World};
use crate::common::{Store, fresh, medium, small_settings};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tierstone_base::{ErrorKind, SeededRandom};
use tierstone_crash::{Choices, ExploreSettings, Mutations, Violation, assert_caught};
use tierstone_engine::harness::Harness;
use tierstone_engine::{Engine, Write, WriteKind};
use tierstone_logstore::OpenSettings;
use tierstone_logstore::settings::segment_bytes_for;
use tierstone_media::{BlockDevice, DurableWriteScope, Wait};

/// Work on a full store. Plain data.
#[derive(Clone, Copy)]
struct Full {
    keys: u64,
    value_bytes_max: u64,
    operations: u64,
    deletes: u64,
}

impl Full {
    fn work(self, world: &mut World<'_>, life: u32, choices: &Choices) -> Result<(), Violation> {
        let mut random = SeededRandom::new(choices.choose_seed("work"));
        let len = |random: &mut SeededRandom| 4 + random.below(self.value_bytes_max) as u32;
        if life == 0 {
            // Until it is full, and some more.
            let mut refused = 0;
            for key in 0..self.keys {
                refused += u32::from(!world.put(key as u32, len(&mut random))?);
                if refused > 5 {
                    break;
                }
            }
        }
        for _ in 0..self.operations {
            let key = random.below(self.keys) as u32;
            if random.below(100) < self.deletes {
                delete(world, key)?;
            } else {
                world.put(key, len(&mut random))?;
            }
            if random.chance(0.5) {
                world.poll();
            }
        }
        if random.chance(0.3) {
            for key in 0..self.keys {
                delete(world, key as u32)?;
            }
            let taken = world.put(1, 1_000)? || world.medium.power_is_off();
            Violation::unless(taken, || "an emptied store refuses a write".into())?;
        }
        world.sync()
    }
}

/// Without power no victim can be read, and what finds no space may be told so before it is told that the device is gone.
fn delete(world: &mut World<'_>, key: u32) -> Result<(), Violation> {
    let taken = world.delete(key)? || world.medium.power_is_off();
    Violation::unless(taken, || format!("the deletion of key {key} is refused"))
}

fn plan(segments: u32, shards: u16, lives: u32) -> Plan {
    let mut plan = Plan::new(32 << 10, segments).cut_one_in(150);
    plan.shards = vec![shards];
    (plan.sim.cut_limit, plan.sim.end_cuts) = (lives, 2);
    plan
}

/// Victims are chosen by the whole age, and dead records are not marked: the crashes that follow were found so.
fn by_age(mut plan: Plan) -> Plan {
    plan.open.shard.clean_age_exponent = 1.0;
    plan.open.shard.marks_dead_records = false;
    plan
}

#[track_caller]
fn survives(name: &str, plan: &Plan, work: Full, default_runs: u64) {
    let settings = ExploreSettings::sampled(7_000, default_runs, &Mutations::none());
    let report = plan.explore(settings, &|world, life, choices| work.work(world, life, choices));
    println!("{name}: {}", report.assert_clean());
}

const MEDIUM: Full = Full { keys: 300, value_bytes_max: 1_500, operations: 60, deletes: 25 };
/// Records hardly longer than tombstones.
const SMALL: Full = Full { keys: 700, value_bytes_max: 20, operations: 30, ..MEDIUM };

#[test]
fn a_full_store_goes_on_after_any_number_of_crashes() {
    survives("medium", &plan(12, 1, 8), MEDIUM, 8);
    survives("small", &plan(8, 1, 4), SMALL, 40);
    survives("large", &plan(14, 1, 8), Full { keys: 120, value_bytes_max: 3_900, ..MEDIUM }, 8);
}

/// A cleaner that guesses what its open segment still takes leaves that half empty and needs another one, which
/// there is not: the victim is never done, and deletions are refused.
#[test]
fn what_is_moved_fills_the_one_segment_that_is_free() {
    let settings = ExploreSettings::random(21, 12);
    caught(
        "room_for_copies_guessed",
        "the deletion of key",
        &settings,
        &plan(8, 1, 4),
        &|world, life, choices| SMALL.work(world, life, choices),
    );
}

/// How power is lost while victims are read; found by sampling, minimised.
const VICTIMS_UNREADABLE: &str = "sampled: 0*8 4 0 1 0 1 0*2 1 5 0*45 2827531575 0*3 1 0*2 1 0*2 1 0*7 1 0 1 0 1 0*6 1 0*2 1 0*5 1 7 2 \
    0*58 1 0 3629424846 0*3 1 0*10 1 0*4 1 0*3 1 0*69 4 0*24 1 0*16 2827933966 0*3 1 0*3 1*2 0 1 0 1 0 2 \
    0*2 1 0*5 1 0*2 1 0*3 1 0*3 1 0*6 1 0*2 1 0*2 1*2 8 0*73 3 0*4 2 0*7 4 0 2 0 7 0 1 0 4 0*2 2 0 1 0 1 \
    0 1 0*29 1";
/// Writes, deletions and batches, some of what expires.
const ROLLED_WITHOUT_RECORDS: &str = "sampled: 0*7 4261937339 0 1 0*45 1 0 1 0 1 0*30 2 0 1*2 3 0*92 36859496 0*11 1 0*7 1 0 1 0 1 0*2 5 0 \
    2 0*2 1 0*4 1 0 1 0*3 1 0*2 2 0*14 1 0*13 1 0*6 1 0*2 2 0*3 2 0*2 3 0*2 4 0 4 0*8 1 0*46 1 0*8 1 0*2 \
    1 0 1 0*5 1 0 2 0 1 0*2 1 0*7 2 0*4 1 0*8 2 0 1 0 2 0*68 1 0*4 3 0 4 0 3 0 2 0 1 0*2 1 0*2 1 0*2 1 \
    0*2 1 0*9 1 0*48 1 0*76 2 0*5 5 0 3 0 5 0 3 0*6 2 0*9 1 0*2 7 0 7 0 5 0 3 0*3 1 0*2 4 0*9 1 0*12 1 \
    0*27 1 0*3 3 0 1 0 1 0*5 1 0*7 1 0*2 1 0*8 1 0*2 1 0*5 1701597605 0*29 4 0 3 0 2 0*2 2 0*3 1 0*2 2 0 \
    1 0 1 0*12 1 0*7 1 0 1 0*2 1 0*2 2 0*2 1 0*10 2 0*16 1 0*5 1 0*9 1 0 1 0*4 1 0 1 0*9 2 0*4 1 0*2 1 \
    0*42 1 0*6 1 0*2 2 0 1 0*9 1 0*4 1 0 2 0*2 1 0 3 0*2 2 0*23 1 0 1 0*3 1 0*16 1 0*2 1 0 1 0 1 0*27 1 \
    0*58 1 0 8 2";

/// Explores `work` with a mutation, which is caught with these words, and without, which is clean.
#[track_caller]
fn caught(name: &'static str, says: &str, settings: &ExploreSettings, plan: &Plan, work: Work<'_>) {
    let settings = || ExploreSettings { max_minimise_runs: 0, ..settings.clone() };
    let explored = |mutations: &Mutations| plan.clone().mutated(mutations).explore(settings(), work);
    let report = assert_caught(name, || explored(&Mutations::one(name)));
    let found = report.found.map(|found| found.message).unwrap_or_default();
    assert!(found.contains(says), "{found}");
    explored(&Mutations::none()).assert_clean();
}

fn replay(path: &str) -> ExploreSettings {
    ExploreSettings::replay(path.parse().unwrap())
}

/// A victim that turned out to be unreadable, since power was lost, is to be looked at for what has expired. A look that
/// had found nothing else was the last one: the write waited for that for ever.
#[test]
fn a_write_that_waits_for_space_is_answered_when_nothing_can_be_read() {
    caught(
        "unreadable_victim_not_looked_at",
        "stayed throttled: space is being cleaned",
        &replay(VICTIMS_UNREADABLE),
        &plan(8, 1, 4),
        &|world, life, choices| SMALL.work(world, life, choices),
    );
}

/// The open segment holds what the log says of itself, and no records: freed, it is followed by another one like it, and
/// each looked like a gain.
#[test]
fn a_write_does_not_wait_for_a_segment_without_records() {
    let mix = Mix { expiring: 8, ..Mix::cleaning() };
    let plan = by_age(Plan::new(32 << 10, 9).cut_one_in(400).groups_in_flight(2));
    caught(
        "segment_without_records_rolled",
        "stayed throttled: space is being cleaned",
        &replay(ROLLED_WITHOUT_RECORDS),
        &plan.scope(DurableWriteScope::OwnSectors),
        &|world, life, choices| mix.work(world, life, choices),
    );
}

#[test]
fn a_full_store_of_two_shards_goes_on_after_any_number_of_crashes() {
    survives("two shards", &plan(22, 2, 6), MEDIUM, 8);
}

#[test]
fn a_store_opened_with_more_shards_shares_what_is_free() {
    // One shard fills the store nearly; all of it is one shard's, then three shards' turn by turn.
    let mut plan = plan(40, 1, 3);
    plan.shards = vec![1, 3, 2];
    survives("more shards", &plan, Full { keys: 200, operations: 60, ..MEDIUM }, 8);
}

/// How power is lost while three shards clean what one has written, and then one, and three again.
const SHARED_TOMBSTONE: &str = "sampled: 0*7 1664995417 0*3 19 0 23 0 16 0 5 0 12 0 6 0 14 0 14 0 15 0 18 0 15 0 8 0 13 0 3 0 6 0 10 \
    0*3 10 0 5 0 3 0 4 0 6 0 4 0*3 1 0 2 0 1 0*3 9 0 8 0 8 0 3 0 2 0 3 0 1 0 1 0*4 2 0*2 3 0 3 0*3 1 0 1 \
    0*2 1 0*2 1 0 1 0 1 0*2 2 0 2 0 1 0 1 0*14 1 0 1 0 1 0*2 1 0*6 1 0*11 1 0*5 1 0*5 1 0 1 0*4 1 0 1 \
    0*6 1 0*8 1 0 1 0 1 0*12 1 0*11 1 0 1 0 1 0*27 1 0*4 1 0*8 2 0*2 2 0 2 1 0 1 0*6 1 0 1 0*22 2 0*7 1 \
    0*9 1 0*6 1 0*2 1 0*5 2 0 1 0*6 1 0*2 1 0*5 2 0*4 1 0*3 2 0*7 1 0*6 2 0*2 1 0 1 0*2 1 0*2 1 0*5 1 \
    0*2 1 0*12 1 0*5 1 0*20 1 0*11 1 0*6 2 0*2 1 0 1 0*2 1 0*8 1 0*2 1 0*2 1 0*5 2 0 1 0*9 1 0*6 2 0*5 1 \
    0*2 2 0*2 2 0*10 1 0*5 2 0 1 0*20 1 0*2 1 0*8 1 0*5 1 0*12 1 0 1 0*5 1 0*8 1 0*6 1 0*5 1 0*6 1 0 1 \
    0*2 1 0*23 1 0*11 1 0*6 2 0*5 1 0*2 1 0*2 2 0*7 1 0*2 1 0*2 1 0*12 2 0*4 1 0*5 2 0*4 1 0*2 2 0*4 1 \
    0*2 1 0*9 1 0*8 2 0*2 2 0*5 3 0*2 1 0*2 4 0 1 0*2 3 0*4 1 0*2 2 0*7 1 0*3 2 0*4 1 0*3 1 0*2 2 0 1 0 \
    1 0*5 57 0*316 4 0*2 5 0 6 0*2 4 0*3 3 0*4 1 0 2 0*4 1 0*2 2 0*2 1 0 7 0 3 0*2 4 0 1 0 5 0 1 0*12 2 \
    0*4 1 0*5 3 0*2 8 0*9 2 0 2 0 2 0 1 0 2 0*5 8 0 6 0 1 0 6 0*2 2 0 6 0 5 0*2 3 0 1 0*4 1 0 2 0 1 0*2 \
    1 0*6 2 0*3 1 0 1 0*3 1 0*4 1 0*3 1 0*10 1 0*6 1 0*7 1 0*5 1 0 1 0*8 1 0*2 1 0 1 0*9 1 0*4 1 0*5 1 \
    0*2 1 0*12 1 0*2 1 0*2 1 0*2 1 0*22 1 0*21 1 0*4 1 0*2 1 0*4 1 0*3 3869659878 1 0*3 1 0*15 1 0 1 0 \
    2*2 0 1 0 1 0 1*2 0 1 0*3 1 0*25 1 0 1 0*4 1 0 1 0*3 1 0 1 0*7 3 0*10 1 0*5 1 0*4 1 0*3 1 0*6 1 0*2 \
    1 0*5 1 0*8 1 0*12 1 0*17 2 0 2 1 0 2 0 2 1 0*4 1 0 1 0*5 1 2 0 2 0*112 1 0*3 1 0 1 0*155 1*4 0 1*5 \
    0*2 1 0*2 1 0*3 1*4 0 1 0*9 1 0*4 1*2";

/// Three shards clean a segment that one has left; each of them kept a deletion in it, whose ever it was. Of these copies an
/// opening with one shard kept a stranger's, which the next opening did not look at: the deleted value was back.
#[test]
fn a_shard_moves_no_tombstone_of_another() {
    let mut plan = by_age(plan(40, 1, 3));
    plan.shards = vec![1, 3, 2];
    let work = Full { keys: 200, operations: 60, ..MEDIUM };
    caught(
        "tombstones_of_others_moved",
        "was never written",
        &replay(SHARED_TOMBSTONE),
        &plan,
        &|world, life, choices| work.work(world, life, choices),
    );
}

const VALUE_BYTES: usize = 1_000;

/// Puts a key, again and again while the store says so; gives the bytes that the cleaner moved meanwhile.
/// `None`: the store is full.
fn put(store: &mut Store, number: u64) -> Option<u64> {
    let before = store.engine.statistics().cleaned_bytes_written;
    let (key, value) = (number.to_le_bytes(), [7; VALUE_BYTES]);
    for _ in 0..100_000 {
        let kind = WriteKind::Put { value: &value, expiry_ms: 0, kind: Default::default() };
        let write = Write { key: store.key(KEYSPACE, &key), kind };
        match store.engine.write(store.now, &[write]) {
            Ok(_) => return Some(store.engine.statistics().cleaned_bytes_written - before),
            Err(error) if error.kind() == ErrorKind::Retry => {
                store.turn(Wait::One);
            }
            Err(error) if error.kind() == ErrorKind::NoSpace => return None,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the write of key {number} stayed refused");
}

/// Overwrites at random at 95 % of what the store takes: between two accepted writes the cleaner moves a
/// bounded part of a segment.
#[test]
fn writes_to_a_nearly_full_store_keep_pace_with_cleaning() {
    const SEGMENT_BYTES: u64 = 256 << 10;
    let mut settings = small_settings();
    settings.shard.memory_bytes = 32 << 20;
    let (_medium, mut store) = fresh(SEGMENT_BYTES, 96, &settings);
    let full = (0..100_000).find(|&number| put(&mut store, number).is_none()).expect("the store fills up");
    let (_medium, mut store) = fresh(SEGMENT_BYTES, 96, &settings);
    let mut random = SeededRandom::new(5);
    let keys = full * 95 / 100;
    let (mut longest, mut cleaned, mut written) = (0, 0, 0u64);
    for round in 0..4 * keys {
        let number = if round < keys { round } else { random.below(keys) };
        let gap = put(&mut store, number).expect("95 % fit");
        if round >= keys {
            longest = longest.max(gap);
            cleaned += gap;
            written += VALUE_BYTES as u64;
        }
    }
    println!(
        "{keys} keys, {written} bytes overwritten, {cleaned} moved, at most {longest} between two writes"
    );
    assert!(cleaned > written, "the cleaner has little to do: the store is not nearly full");
    assert!(longest < SEGMENT_BYTES / 2, "{longest} bytes were moved between two writes");
}

/// The shards of a new store of `capacity` bytes, with segments as a store gets them that is not told.
fn two_shards(capacity: u64) -> (u64, [Store; 2]) {
    let segment_bytes = segment_bytes_for(capacity, 2);
    let mut settings = OpenSettings { shard_count: 2, ..small_settings() };
    settings.shard.memory_bytes = 32 << 20;
    let medium = medium(segment_bytes, (capacity / segment_bytes) as u32);
    let opened = tierstone_logstore::open(&mut medium.device(), &settings).unwrap();
    let mut shards = opened.plans.into_iter().map(|plan| {
        let mut device = medium.device();
        let (shard, _) = plan.build(&mut device).unwrap();
        Harness::new(shard, device, opened.hasher)
    });
    (segment_bytes, [shards.next().unwrap(), shards.next().unwrap()])
}

const LARGE_VALUE_BYTES: usize = 8_000;

/// As [`put`], into the key's shard; both shards step meanwhile.
fn put_in(shards: &mut [Store; 2], number: u64) -> Option<u64> {
    let bytes = number.to_le_bytes();
    let key = shards[0].key(KEYSPACE, &bytes);
    let place = usize::from(key.position.shard(2));
    let cleaned = |shards: &[Store; 2]| shards[place].engine.statistics().cleaned_bytes_written;
    let before = cleaned(shards);
    for _ in 0..100_000 {
        let kind = WriteKind::Put { value: &[7; LARGE_VALUE_BYTES], expiry_ms: 0, kind: Default::default() };
        match shards[place].engine.write(shards[place].now, &[Write { key, kind }]) {
            Ok(_) => return Some(cleaned(shards) - before),
            Err(error) if error.kind() == ErrorKind::Retry => {
                shards.iter_mut().for_each(|shard| shard.turn(Wait::One));
            }
            Err(error) if error.kind() == ErrorKind::NoSpace => return None,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the write of key {number} stayed refused");
}

/// The same in a small store of two shards that was not told how large its segments are to be.
#[test]
fn writes_to_a_small_store_of_two_shards_keep_pace_with_cleaning() {
    const CAPACITY: u64 = 128 << 20;
    let (_, mut shards) = two_shards(CAPACITY);
    let full =
        (0..100_000).find(|&number| put_in(&mut shards, number).is_none()).expect("the store fills up");
    let (segment_bytes, mut shards) = two_shards(CAPACITY);
    let mut random = SeededRandom::new(6);
    let keys = full * 90 / 100;
    let (mut longest, mut cleaned, mut written) = (0, 0, 0u64);
    for round in 0..4 * keys {
        let number = if round < keys { round } else { random.below(keys) };
        let gap = put_in(&mut shards, number).expect("90 % fit");
        if round >= keys {
            longest = longest.max(gap);
            cleaned += gap;
            written += LARGE_VALUE_BYTES as u64;
        }
    }
    println!(
        "{keys} keys, {written} bytes overwritten, {cleaned} moved, at most {longest} between two writes; \
         segments of {segment_bytes} bytes"
    );
    assert!(cleaned > written, "the cleaner has little to do: the store is not nearly full");
    assert!(longest < segment_bytes / 2, "{longest} bytes were moved between two writes");
}

/// What one shard has written is two shards' now: no segment is free before both have left it. One of them
/// sleeps meanwhile, unless it is woken or has something to do.
fn writes_of_one_shard_beside_a_sleeping_one(mutations: Mutations) -> Result<(), u64> {
    let settings = small_settings();
    let (medium, mut store) = fresh(128 << 10, 64, &settings);
    let mut random = SeededRandom::new(7);
    for number in 0..4_500 {
        put(&mut store, if number < 1_500 { number } else { random.below(1_500) }).unwrap();
    }
    store.settle(1_000);
    drop(store);
    let settings = OpenSettings { shard_count: 2, mutations, ..settings };
    let opened = tierstone_logstore::open(&mut medium.kill_process(), &settings).unwrap();
    let is_woken = Arc::new(AtomicBool::new(true));
    let mut shards = opened.plans.into_iter().map(|plan| {
        let woken = Arc::clone(&is_woken);
        if plan.shard() == 1 {
            plan.wake_for_others(Arc::new(move || woken.store(true, Ordering::Relaxed)));
        }
        let mut device = medium.device();
        let (shard, _) = plan.build(&mut device).unwrap();
        Harness::new(shard, device, opened.hasher)
    });
    // What both had to do at the opening is done before.
    let (mut writer, mut sleeper) = (shards.next().unwrap(), shards.next().unwrap());
    sleeper.settle(1_000);
    is_woken.store(false, Ordering::Relaxed);
    let is_writers = |number: &u64| {
        let bytes = number.to_le_bytes();
        writer.key(KEYSPACE, &bytes).position.shard(2) == 0
    };
    // Of the 64 segments six are the reserves of the two shards. The others take some 5,600 such records, of which 1,500
    // are there.
    let keys: Vec<u64> = (10_000..20_000).filter(is_writers).take(4_000).collect();
    for (count, number) in keys.into_iter().enumerate() {
        let (key, value) = (number.to_le_bytes(), [7; VALUE_BYTES]);
        loop {
            let kind = WriteKind::Put { value: &value, expiry_ms: 0, kind: Default::default() };
            let write = Write { key: writer.key(KEYSPACE, &key), kind };
            match writer.engine.write(writer.now, &[write]) {
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::Retry => writer.turn(Wait::One),
                Err(error) if error.kind() == ErrorKind::NoSpace => return Err(count as u64),
                Err(error) => panic!("{error}"),
            }
            sleeper.now = writer.now;
            let is_due = |at_us| at_us <= writer.now.monotonic_us;
            if is_woken.swap(false, Ordering::Relaxed)
                || sleeper.device.in_flight() > 0
                || sleeper.engine.next_step_at_us().is_some_and(is_due)
            {
                sleeper.turn(Wait::One);
            }
        }
    }
    Ok(())
}

#[test]
fn a_shard_without_room_wakes_those_that_could_free_some() {
    assert_eq!(writes_of_one_shard_beside_a_sleeping_one(Mutations::none()), Ok(()));
    let refused = writes_of_one_shard_beside_a_sleeping_one(Mutations::one("others_not_asked_for_space"));
    assert!(refused.is_err(), "the sleeping shard was not needed: the test tests nothing");
}

/// Moving its part of segments that are another's too gives a shard nothing back before the other has moved its own;
/// so its free segment may be used up while the other keeps a reserve.
#[test]
fn a_cleaner_without_a_segment_to_go_on_with_is_lent_one() {
    // A shard that is not ahead of the other keeps its free segment here.
    let ahead = || Mutations::one("shards_run_ahead");
    let refused = writes_of_one_shard_beside_a_sleeping_one(ahead().and("starving_cleaners_left_alone"));
    assert!(refused.is_err(), "no cleaner was without a segment: the test tests nothing");
    assert_eq!(writes_of_one_shard_beside_a_sleeping_one(ahead()), Ok(()));
    assert_eq!(writes_of_one_shard_beside_a_sleeping_one(Mutations::none()), Ok(()));
}

#[test]
fn an_idle_store_gets_rid_of_its_tombstones() {
    let settings = small_settings();
    let (_medium, mut store) = fresh(256 << 10, 40, &settings);
    let keys = 2_000u64;
    for number in 0..keys {
        put(&mut store, number).expect("there is room");
    }
    store.settle(10_000);
    let bytes_a_key = store.engine.statistics().space_live_bytes / keys;
    for number in (0..keys).filter(|number| number % 50 != 0) {
        let key = number.to_le_bytes();
        let write = Write { key: store.key(KEYSPACE, &key), kind: WriteKind::Delete };
        while let Err(error) = store.engine.write(store.now, &[write]) {
            assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
            store.turn(Wait::One);
        }
        store.turn(Wait::Poll);
    }
    for _ in 0..400 {
        store.settle(100);
    }
    let live = store.engine.statistics().space_live_bytes;
    let wanted = keys / 50 * bytes_a_key;
    // For less than a sixteenth of a segment nothing is moved.
    let tolerated = (wanted / 8).max((256 << 10) / 16);
    assert!(live <= wanted + tolerated, "{live} bytes are held for {wanted}");
    assert!(keys * 32 > 2 * tolerated, "all the tombstones together would not be tolerated");
    assert_eq!(store.engine.len(KEYSPACE), keys / 50);
}

/// Fills stores of so few segments with records that are hardly longer than tombstones, deletes all of them in a
/// random order, and fills again: how much less is taken then, or what is refused.
fn fill_and_empty(segments: u32, value_bytes: usize, settings: &OpenSettings) -> Result<(), String> {
    let (_medium, mut store) = fresh(32 << 10, segments, settings);
    let mut random = SeededRandom::new(u64::from(segments));
    let mut first = 0;
    for round in 0..6u64 {
        let mut keys = Vec::new();
        for number in round << 32.. {
            let key = u64::to_le_bytes(number);
            let kind =
                WriteKind::Put { value: &[7; 64][..value_bytes], expiry_ms: 0, kind: Default::default() };
            let write = Write { key: store.key(KEYSPACE, &key), kind };
            match patient_write(&mut store, write) {
                Ok(()) => keys.push(key),
                Err(ErrorKind::NoSpace) => break,
                Err(other) => return Err(format!("round {round}: {other:?} after {} keys", keys.len())),
            }
        }
        first = keys.len().max(first);
        if keys.len() < first * 8 / 10 {
            return Err(format!("round {round}: {} keys are taken, {first} before", keys.len()));
        }
        for at in (1..keys.len()).rev() {
            keys.swap(at, random.below(at as u64 + 1) as usize);
        }
        for (at, key) in keys.iter().enumerate() {
            let write = Write { key: store.key(KEYSPACE, key), kind: WriteKind::Delete };
            patient_write(&mut store, write).map_err(|kind| {
                format!("round {round}: deletion {at} of {} is refused: {kind:?}", keys.len())
            })?;
        }
    }
    Ok(())
}

/// A write that comes again while it is told to.
fn patient_write(store: &mut Store, write: Write<'_>) -> Result<(), ErrorKind> {
    for _ in 0..20_000 {
        match store.engine.write(store.now, &[write]) {
            Ok(_) => {
                store.turn(Wait::Poll);
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::Retry => {
                store.turn(Wait::One);
                if let Some(at) = store.engine.next_step_at_us() {
                    store.now.monotonic_us = store.now.monotonic_us.max(at);
                }
            }
            Err(error) => return Err(error.kind()),
        }
    }
    Err(ErrorKind::Retry)
}

#[test]
fn tombstones_do_not_keep_a_small_store_full() {
    let mut mutated = small_settings();
    mutated.mutations = Mutations::one("tombstones_fill_the_store");
    let mut noticed = 0;
    for segments in 6..14 {
        for value_bytes in [1, 12, 40] {
            let found = fill_and_empty(segments, value_bytes, &small_settings());
            assert_eq!(found, Ok(()), "{segments} segments, values of {value_bytes} bytes");
            noticed += u32::from(fill_and_empty(segments, value_bytes, &mutated).is_err());
        }
    }
    assert!(noticed > 5, "of 24 stores {noticed} were kept full without the rule");
}
