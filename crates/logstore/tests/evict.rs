//! Eviction: a store that is full takes new keys in the place of old ones, and no key comes back.
#![expect(clippy::panic, clippy::unwrap_used, reason = "test code")]

mod common;

use common::{Store, fresh, mutated, reopen, reopen_after_kill, small_settings};
use std::collections::BTreeMap;
use tierstone_base::{ErrorKind, KeyspaceId, SeededRandom};
use tierstone_engine::{Engine, Eviction, Write, WriteKind};
use tierstone_logstore::OpenSettings;
use tierstone_media::Wait;
use tierstone_media::sim::SimMedium;

const KEYSPACE: KeyspaceId = KeyspaceId(1);
/// Keys of the model: their records take more than the device has.
const KEYS: u64 = 6_000;

/// A turn, and what the layer above does after it; time goes on where nothing else happens.
fn step(store: &mut Store) {
    store.turn(Wait::One);
    while store.engine.evictable().is_some() && store.engine.evict(store.now).is_ok() {}
    if let Some(at) = store.engine.next_step_at_us() {
        store.now.monotonic_us = store.now.monotonic_us.max(at);
    }
}

fn write(store: &mut Store, writes: &[Write<'_>]) -> Result<(), ErrorKind> {
    for _ in 0..100_000 {
        match store.engine.write(store.now, writes) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Retry => step(store),
            Err(error) => return Err(error.kind()),
        }
    }
    panic!("a write stayed refused")
}

fn put(store: &mut Store, numbers: std::ops::Range<u64>, value: &[u8]) -> Result<(), ErrorKind> {
    let keys: Vec<[u8; 8]> = numbers.map(u64::to_le_bytes).collect();
    let kind = WriteKind::Put { value, expiry_ms: 0, kind: Default::default() };
    let writes: Vec<Write<'_>> =
        keys.iter().map(|key| Write { key: store.key(KEYSPACE, key), kind }).collect();
    let result = write(store, &writes);
    step(store);
    result
}

/// Puts keys until they are refused, `most` at most; how many were taken, and why no more.
fn fill(store: &mut Store, most: u64, batch: u64, value: &[u8]) -> (u64, Option<ErrorKind>) {
    for from in (0..most).step_by(batch as usize) {
        if let Err(kind) = put(store, from..from + batch, value) {
            return (from, Some(kind));
        }
    }
    (most, None)
}

fn is_there(store: &mut Store, number: u64) -> bool {
    store.get(KEYSPACE, &number.to_le_bytes()).unwrap().is_some()
}

fn little_memory() -> OpenSettings {
    let mut settings = small_settings();
    settings.shard.memory_bytes = 1 << 20;
    settings.shard.group_bytes_max = 256 << 10;
    settings
}

fn little_space() -> OpenSettings {
    let mut settings = small_settings();
    settings.shard.memory_bytes = 16 << 20;
    settings.shard.group_bytes_max = 64 << 10;
    settings
}

/// Fills a store three times over: without eviction it refuses, with it the newest keys are there.
fn takes_three_times_as_much(
    fresh: impl Fn() -> (SimMedium, Store),
    (batch, value): (u64, &[u8]),
    refused: ErrorKind,
) -> Store {
    let (_medium, mut store) = fresh();
    let (taken, why) = fill(&mut store, u64::MAX, batch, value);
    assert_eq!(why, Some(refused), "after {taken} keys");
    let (_medium, mut store) = fresh();
    store.engine.set_eviction(Eviction::OldestFirst);
    let most = 3 * taken / batch * batch;
    assert_eq!(fill(&mut store, most, batch, value), (most, None));
    store.sync().unwrap();
    let statistics = store.engine.statistics();
    assert_eq!(statistics.keys + statistics.evicted_keys, most, "{statistics:?}");
    assert!(statistics.keys > taken * 6 / 10, "{} of {taken} keys are left", statistics.keys);
    let newest = (most - taken / 4..most).filter(|&number| is_there(&mut store, number)).count() as u64;
    assert_eq!(newest, taken / 4, "the newest keys are there");
    let oldest = (0..taken).filter(|&number| is_there(&mut store, number)).count() as u64;
    assert!(oldest < taken / 10, "{oldest} of the first {taken} keys are there");
    store
}

#[test]
fn new_keys_take_the_memory_of_old_ones() {
    let settings = little_memory();
    let store =
        takes_three_times_as_much(|| fresh(1 << 20, 200, &settings), (250, b"value"), ErrorKind::NoMemory);
    let index = store.engine.statistics().index_bytes;
    assert!(index <= (1 << 20) + (64 << 10), "{index} bytes of index");
}

#[test]
fn new_records_take_the_space_of_old_ones() {
    let settings = little_space();
    takes_three_times_as_much(|| fresh(256 << 10, 60, &settings), (25, &[7; 2_000]), ErrorKind::NoSpace);
}

/// Where records are hardly longer than tombstones, deletions may find no room: writers are told so.
#[test]
fn small_records_are_taken_or_refused_and_never_left_waiting() {
    let settings = &little_space();
    let (_medium, mut store) = fresh(128 << 10, 40, settings);
    let (taken, why) = fill(&mut store, u64::MAX, 100, &[7; 16]);
    assert_eq!(why, Some(ErrorKind::NoSpace), "after {taken} keys");
    let (_medium, mut store) = fresh(128 << 10, 40, settings);
    store.engine.set_eviction(Eviction::OldestFirst);
    let most = 3 * taken / 100 * 100;
    let (more, why) = fill(&mut store, most, 100, &[7; 16]);
    assert!(why.is_none_or(|kind| kind == ErrorKind::NoSpace), "{why:?}");
    assert!(more > taken * 8 / 10, "{more} keys were taken, {taken} without eviction");
    assert!(is_there(&mut store, more - 1), "what was taken last is there");
}

#[test]
fn what_is_read_now_and_then_stays() {
    let mut settings = little_space();
    settings.shard.cache_bytes_max = u64::MAX;
    let (_medium, mut store) = fresh(256 << 10, 60, &settings);
    store.engine.set_eviction(Eviction::OldestFirst);
    for from in (0..20_000).step_by(25) {
        put(&mut store, from..from + 25, &[7; 2_000]).unwrap();
        for number in 0..from.min(100) {
            is_there(&mut store, number);
        }
    }
    assert!(store.engine.statistics().evicted_keys > 10_000, "{:?}", store.engine.statistics());
    let stayed = (0..100).filter(|&number| is_there(&mut store, number)).count();
    assert!(stayed >= 90, "{stayed} of 100 keys that are read stayed");
    let others = (100..1_000).filter(|&number| is_there(&mut store, number)).count();
    assert!(others < 100, "{others} of 900 others did");
}

/// A store that is filled without eviction until a write finds no room; what the first write is told that comes when
/// little is left and keys may be evicted, before any has been.
fn told_when_little_is_left(settings: &OpenSettings) -> Result<(), String> {
    let live = |store: &Store| {
        let statistics = store.engine.statistics();
        statistics.space_live_bytes as f64 / statistics.space_capacity_bytes as f64
    };
    let (_medium, mut store) = fresh(512 << 10, 200, settings);
    for from in (0..).step_by(40) {
        put(&mut store, from..from + 40, &[7; 2_000]).unwrap();
        if live(&store) > 0.895 {
            break;
        }
    }
    store.engine.set_eviction(Eviction::OldestFirst);
    let key = store.key(KEYSPACE, b"one more");
    let kind = WriteKind::Put { value: &[7; 2_000], expiry_ms: 0, kind: Default::default() };
    let told =
        store.engine.write(store.now, &[Write { key, kind }]).map(drop).map_err(|error| error.to_string());
    write(&mut store, &[Write { key, kind }]).unwrap();
    assert!(told.is_ok() || live(&store) < 0.895, "it is taken when some have gone: {}", live(&store));
    told
}

#[test]
fn writers_wait_for_deletions_while_there_is_room_for_both() {
    let mut plain = little_space();
    plain.shard.group_bytes_max = 256 << 10;
    let told = told_when_little_is_left(&plain);
    assert!(told.as_ref().is_err_and(|text| text.contains("keys are being evicted")), "{told:?}");
    let mut settings = mutated("writes_outrun_eviction");
    settings.shard = plain.shard;
    assert_eq!(told_when_little_is_left(&settings), Ok(()), "writes that outrun eviction are not noticed");
}

/// Keys of which half are asked for now and then, far more than the record cache holds, and new ones that nobody asks
/// for: how many of the first are there in the end of those asked for, and of the others.
fn stay_under_load(policy: Eviction) -> (usize, usize) {
    let mut settings = little_space();
    settings.shard.cache_bytes_max = 128 << 10;
    let (_medium, mut store) = fresh(256 << 10, 60, &settings);
    store.engine.set_eviction(policy);
    for from in (0..20_000).step_by(25) {
        put(&mut store, from..from + 25, &[7; 2_000]).unwrap();
        let first = from / 25 % 20 * 50;
        for number in first.min(from)..(first + 50).min(from) {
            if number % 2 == 0 {
                is_there(&mut store, number);
            }
        }
    }
    assert!(store.engine.statistics().evicted_keys > 10_000, "{:?}", store.engine.statistics());
    let mut left = [0, 0];
    (0..1_000).for_each(|number| left[(number % 2) as usize] += usize::from(is_there(&mut store, number)));
    (left[0], left[1])
}

#[test]
fn what_is_asked_for_most_often_stays_though_it_is_not_cached() {
    let (asked, others) = stay_under_load(Eviction::LeastUsed);
    assert!(asked >= 450, "{asked} of 500 keys that are asked for stayed");
    assert!(others < 50, "{others} of 500 others did");
    // The record cache alone knows too little of them.
    let (asked, _) = stay_under_load(Eviction::OldestFirst);
    assert!(asked < 250, "{asked} of 500 keys stayed by age");
}

#[test]
fn uses_are_counted_under_a_policy_that_asks_for_them() {
    let (_medium, mut store) = fresh(256 << 10, 60, &little_space());
    let uses = |store: &Store, number: u64| store.engine.uses(store.key(KEYSPACE, &number.to_le_bytes()));
    put(&mut store, 0..25, b"value").unwrap();
    let index_bytes = store.engine.statistics().index_bytes;
    assert_eq!(uses(&store, 3), None, "nothing is counted");
    store.engine.set_eviction(Eviction::LeastUsed);
    assert_eq!(uses(&store, 3), Some(0));
    (0..4).for_each(|_| assert!(is_there(&mut store, 3)));
    assert!(!is_there(&mut store, 1_000));
    assert_eq!((uses(&store, 3), uses(&store, 1_000), uses(&store, 4)), (Some(4), Some(1), Some(0)));
    put(&mut store, 0..25, b"value").unwrap();
    assert_eq!((uses(&store, 3), uses(&store, 4)), (Some(5), Some(1)), "to write a key is to use it");
    put(&mut store, 1_000..1_025, b"value").unwrap();
    assert_eq!(
        (uses(&store, 1_000), uses(&store, 1_001)),
        (Some(1), Some(1)),
        "a key that was missed counts once"
    );
    assert!(store.engine.statistics().index_bytes > index_bytes + 4_000, "counters are memory of the index");
    // Another policy that counts keeps the counts, one that does not drops them.
    store.engine.set_eviction(Eviction::LeastUsedExpiring);
    assert_eq!(uses(&store, 3), Some(5));
    store.engine.set_eviction(Eviction::OldestFirst);
    assert_eq!(uses(&store, 3), None);
}

#[test]
fn without_a_policy_nothing_is_evicted_and_it_may_change() {
    let settings = little_space();
    let (_medium, mut store) = fresh(256 << 10, 30, &settings);
    let (taken, why) = fill(&mut store, u64::MAX, 25, &[7; 2_000]);
    assert_eq!(why, Some(ErrorKind::NoSpace));
    assert_eq!(store.engine.statistics().evicted_keys, 0);
    store.engine.set_eviction(Eviction::OldestFirst);
    put(&mut store, 1 << 40..(1 << 40) + 100, &[7; 2_000]).unwrap();
    assert!(store.engine.statistics().evicted_keys > 0);
    store.engine.set_eviction(Eviction::None);
    let keys = store.engine.statistics().keys;
    assert!(keys < taken + 100, "{keys}");
    (0..500).for_each(|_| step(&mut store));
    assert_eq!(store.engine.statistics().keys, keys);
}

/// When the first keys of the tests below expire, in milliseconds since 1970.
const SOON_MS: u64 = 1 << 50;

/// Puts keys that expire then, or never (zero).
fn put_expiring(store: &mut Store, numbers: std::ops::Range<u64>, expiry_ms: u64) -> Result<(), String> {
    for from in numbers.step_by(25) {
        let keys: Vec<[u8; 8]> = (from..from + 25).map(u64::to_le_bytes).collect();
        let kind = WriteKind::Put { value: &[7; 2_000], expiry_ms, kind: Default::default() };
        let writes: Vec<Write<'_>> =
            keys.iter().map(|key| Write { key: store.key(KEYSPACE, key), kind }).collect();
        write(store, &writes).map_err(|kind| format!("key {from}: {kind:?}"))?;
        step(store);
    }
    Ok(())
}

fn count_there(store: &mut Store, numbers: std::ops::Range<u64>) -> usize {
    numbers.filter(|&number| is_there(store, number)).count()
}

/// Under a policy for keys that expire: those that never do stay, whenever they were written, and when only such
/// are left writers are refused.
fn only_expiring_keys_go(policy: Eviction, settings: &OpenSettings) -> Result<Store, String> {
    let (_medium, mut store) = fresh(256 << 10, 60, settings);
    store.engine.set_eviction(policy);
    put_expiring(&mut store, 0..1_000, 0)?;
    // Two and a half times what there is room for, the later the sooner to expire.
    for thousand in 0..16 {
        let from = 20_000 + thousand * 1_000;
        put_expiring(&mut store, from..from + 1_000, SOON_MS - (thousand << 20))?;
        put_expiring(&mut store, 1_000 + thousand * 25..1_025 + thousand * 25, 0)?;
    }
    let never = count_there(&mut store, 0..1_400);
    if never != 1_400 {
        return Err(format!("{never} of 1400 keys that never expire are there"));
    }
    Ok(store)
}

#[test]
fn of_keys_that_expire_the_oldest_go_first() {
    let mut store = only_expiring_keys_go(Eviction::OldestExpiring, &little_space()).unwrap();
    let (first, last) = (count_there(&mut store, 20_000..25_000), count_there(&mut store, 34_000..36_000));
    assert!(first < 500 && last == 2_000, "{first} of the first 5000 are there, {last} of the last 2000");
    let refused = put_expiring(&mut store, 50_000..60_000, 0).unwrap_err();
    assert!(refused.contains("NoSpace"), "{refused}");
    assert_eq!(count_there(&mut store, 0..1_400), 1_400);
}

#[test]
fn of_keys_that_expire_those_asked_for_least_go_first() {
    let mut store = only_expiring_keys_go(Eviction::LeastUsedExpiring, &little_space()).unwrap();
    for round in 0..40 {
        (0..5).for_each(|_| assert_eq!(count_there(&mut store, 35_000..35_200), 200));
        put_expiring(&mut store, 50_000 + round * 250..50_250 + round * 250, SOON_MS).unwrap();
    }
    assert_eq!(count_there(&mut store, 0..1_400), 1_400, "those that never expire");
    let others = count_there(&mut store, 35_200..36_000);
    assert!(others < 600, "{others} of 800 that nobody asked for are there");
    let refused = put_expiring(&mut store, 80_000..90_000, 0).unwrap_err();
    assert!(refused.contains("NoSpace"), "{refused}");
    assert_eq!(count_there(&mut store, 0..1_400), 1_400);
}

#[test]
fn keys_that_expire_go_in_no_order() {
    let mut store = only_expiring_keys_go(Eviction::RandomExpiring, &little_space()).unwrap();
    let (first, last) = (count_there(&mut store, 20_000..28_000), count_there(&mut store, 28_000..36_000));
    // By age or by expiry one of them would be nothing. Those written first were at stake most often.
    assert!(
        first > 100 && last > first && last < 7_900,
        "{first} of the first half are there, {last} of the last"
    );
}

#[test]
fn keys_go_in_no_order() {
    let settings = little_space();
    let (_medium, mut store) = fresh(256 << 10, 60, &settings);
    store.engine.set_eviction(Eviction::Random);
    put_expiring(&mut store, 0..16_000, 0).unwrap();
    let (first, last) = (count_there(&mut store, 0..8_000), count_there(&mut store, 8_000..16_000));
    assert!(
        first > 100 && last > first && last < 7_900,
        "{first} of the first half are there, {last} of the last"
    );
    // What is asked for is not spared.
    for round in 0..200 {
        put_expiring(&mut store, 20_000 + round * 100..20_100 + round * 100, 0).unwrap();
        count_there(&mut store, 8_000..8_100);
    }
    let asked_for = count_there(&mut store, 8_000..8_100);
    assert!(asked_for < 40, "{asked_for} of 100 keys that are read stayed");
}

#[test]
fn an_eviction_of_a_key_without_an_expiry_is_noticed_under_each_policy() {
    for policy in [Eviction::OldestExpiring, Eviction::LeastUsedExpiring, Eviction::RandomExpiring] {
        let mut settings = mutated("evicted_without_expiry");
        settings.shard = little_space().shard;
        let found = only_expiring_keys_go(policy, &settings).err();
        assert!(found.as_ref().is_some_and(|text| text.contains("never expire")), "{policy:?}: {found:?}");
    }
}

/// Keys that never expire, that expire late, sooner and soonest, and more of the last than there is room for:
/// those that expire next go, others stay; and when only those are left that never expire, writers are refused.
fn nearest_expiries_go_first(settings: &OpenSettings) -> Result<(), String> {
    let (_medium, mut store) = fresh(256 << 10, 60, settings);
    store.engine.set_eviction(Eviction::NearestExpiry);
    let (put, there) = (put_expiring, count_there);
    put(&mut store, 0..1_000, 0)?;
    put(&mut store, 10_000..11_000, SOON_MS + (1 << 40))?;
    // Each thousand expires later than the one before.
    for thousand in 0..8 {
        let from = 20_000 + thousand * 1_000;
        put(&mut store, from..from + 1_000, SOON_MS + (thousand << 20))?;
    }
    let (never, late) = (there(&mut store, 0..1_000), there(&mut store, 10_000..11_000));
    if (never, late) != (1_000, 1_000) {
        return Err(format!("{never} of 1000 keys that never expire are there, {late} that expire late"));
    }
    let (first, last) = (there(&mut store, 20_000..24_000), there(&mut store, 27_000..28_000));
    if first > 200 || last < 900 {
        return Err(format!("{first} of the 4000 are there that expire first, {last} of the last 1000"));
    }
    // What is written last expires before all others: it goes first, however young it is.
    put(&mut store, 40_000..44_000, SOON_MS - (1 << 20))?;
    let last = there(&mut store, 27_000..28_000);
    if last < 900 {
        return Err(format!("{last} of 1000 are there that expire later than 4000 new ones"));
    }
    // In the end nothing is left but what must stay.
    let refused = put(&mut store, 50_000..60_000, 0).err();
    if !refused.as_ref().is_some_and(|text| text.contains("NoSpace")) {
        return Err(format!("keys that never expire were taken without end: {refused:?}"));
    }
    let (never, late) = (there(&mut store, 0..1_000), there(&mut store, 10_000..11_000));
    if never < 1_000 || late > 50 {
        return Err(format!("{never} of 1000 keys are left that never expire, {late} that do"));
    }
    Ok(())
}

#[test]
fn keys_that_expire_next_go_first_and_those_without_an_expiry_stay() {
    nearest_expiries_go_first(&little_space()).unwrap();
}

#[test]
fn an_eviction_of_a_key_without_an_expiry_is_noticed() {
    let mut settings = mutated("evicted_without_expiry");
    settings.shard = little_space().shard;
    let found = nearest_expiries_go_first(&settings).err();
    assert!(found.as_ref().is_some_and(|text| text.contains("never expire")), "{found:?}");
}

/// The policies of which the model below takes another at each opening.
const POLICIES: [Eviction; 3] = [Eviction::OldestFirst, Eviction::LeastUsed, Eviction::Random];

/// Random writes, deletions, reads and openings over a store that evicts: a key has its newest value or none,
/// and one that is gone stays gone.
fn follow_model(seed: u64, settings: &OpenSettings) -> Result<(), String> {
    let mut random = SeededRandom::new(seed);
    let (medium, mut store) = fresh(128 << 10, 24, settings);
    store.engine.set_eviction(POLICIES[random.below(3) as usize]);
    let mut model: BTreeMap<u64, u64> = BTreeMap::new();
    let mut evicted = 0;
    for version in 1..16_000u64 {
        let number = random.below(KEYS);
        let bytes = number.to_le_bytes();
        let key = store.key(KEYSPACE, &bytes);
        let mut value = version.to_le_bytes().to_vec();
        value.resize(8 + random.below(1_500) as usize, 7);
        if random.chance(0.7) {
            let kind = WriteKind::Put { value: &value, expiry_ms: 0, kind: Default::default() };
            write(&mut store, &[Write { key, kind }]).map_err(|kind| format!("a write: {kind:?}"))?;
            model.insert(number, version);
        } else if random.chance(0.2) {
            let delete = Write { key, kind: WriteKind::Delete };
            write(&mut store, &[delete]).map_err(|kind| format!("a deletion: {kind:?}"))?;
            model.remove(&number);
        }
        step(&mut store);
        check(&mut store, &mut model, random.below(KEYS))?;
        if random.chance(0.001) {
            store.sync().map_err(|error| error.to_string())?;
            evicted += store.engine.statistics().evicted_keys;
            let is_killed = random.chance(0.7);
            store = match is_killed {
                true => reopen_after_kill(store, &medium, settings),
                false => reopen(store, &medium, settings),
            };
            store.engine.set_eviction(POLICIES[random.below(3) as usize]);
            for number in 0..KEYS {
                check(&mut store, &mut model, number)?;
            }
        }
    }
    evicted += store.engine.statistics().evicted_keys;
    if evicted < 1_000 { Err(format!("only {evicted} keys were evicted")) } else { Ok(()) }
}

fn check(store: &mut Store, model: &mut BTreeMap<u64, u64>, number: u64) -> Result<(), String> {
    let found = store.get(KEYSPACE, &number.to_le_bytes()).map_err(|error| error.to_string())?;
    let found = found.map(|(_, value)| u64::from_le_bytes(value[..8].try_into().unwrap()));
    match (found, model.get(&number)) {
        (None, _) => {
            model.remove(&number);
            Ok(())
        }
        (Some(found), Some(&newest)) if found == newest => Ok(()),
        (Some(found), newest) => Err(format!("key {number} has version {found}, not {newest:?} or none")),
    }
}

fn model_settings(settings: OpenSettings) -> OpenSettings {
    let mut settings = settings;
    settings.shard.memory_bytes = 1 << 20;
    settings
}

#[test]
fn a_key_that_may_vanish_never_shows_an_old_value() {
    for seed in 1..6 {
        follow_model(seed, &model_settings(small_settings()))
            .unwrap_or_else(|text| panic!("seed {seed}: {text}"));
    }
}

#[test]
fn an_eviction_without_a_tombstone_is_noticed() {
    let settings = model_settings(mutated("evicted_without_tombstone"));
    let found = (1..25).find_map(|seed| follow_model(seed, &settings).err());
    assert!(found.is_some_and(|text| text.contains("has version")), "the model sees a key that comes back");
}
