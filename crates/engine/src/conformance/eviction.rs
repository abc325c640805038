//! The suite over eviction: a store that is full takes new keys in the place of old ones, and no key comes back.
//!
//! A check is given a way to make an empty store that has room for some [`ROOM_KEYS`] records with values of
//! [`VALUE_BYTES`]; it plays the layer above, which deletes what the engine names.

use crate::contract::{Engine, Write, WriteKind};
use crate::eviction::Eviction;
use crate::harness::Harness;
use std::collections::BTreeMap;
use tierstone_base::{ErrorKind, KeyspaceId, SeededRandom};
use tierstone_media::{BlockDevice, Wait};

/// The keyspace in which everything is.
pub const KEYSPACE: KeyspaceId = KeyspaceId(2);
/// About so many records have room.
pub const ROOM_KEYS: u64 = 7_000;
/// The length of most values.
pub const VALUE_BYTES: usize = 2_000;
/// Records of a batch.
const BATCH: u64 = 25;
/// When the first keys expire, in milliseconds since 1970.
const SOON_MS: u64 = 1 << 50;

/// A turn, and what the layer above does after it; time goes on where nothing else happens.
pub fn step<E: Engine, D: BlockDevice>(store: &mut Harness<E, D>) {
    store.turn(Wait::One);
    while store.engine.evictable().is_some() && store.engine.evict(store.now).is_ok() {}
    if let Some(at) = store.engine.next_step_at_us() {
        store.now.monotonic_us = store.now.monotonic_us.max(at);
    }
}

/// Writes, waiting as long as the engine says so.
pub fn write<E: Engine, D: BlockDevice>(
    store: &mut Harness<E, D>,
    writes: &[Write<'_>],
) -> Result<(), ErrorKind> {
    for _ in 0..100_000 {
        match store.engine.write(store.now, writes) {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Retry => step(store),
            Err(error) => return Err(error.kind()),
        }
    }
    panic!("a write stayed refused")
}

/// Puts keys as one batch that expire then, or never (zero).
fn put_until<E: Engine, D: BlockDevice>(
    store: &mut Harness<E, D>,
    numbers: std::ops::Range<u64>,
    value: &[u8],
    expiry_ms: u64,
) -> Result<(), ErrorKind> {
    let keys: Vec<[u8; 8]> = numbers.map(u64::to_le_bytes).collect();
    let kind = WriteKind::Put { value, expiry_ms, kind: Default::default() };
    let writes: Vec<Write<'_>> =
        keys.iter().map(|key| Write { key: store.key(KEYSPACE, key), kind }).collect();
    let result = write(store, &writes);
    step(store);
    result
}

/// Puts keys as one batch.
pub fn put<E: Engine, D: BlockDevice>(
    store: &mut Harness<E, D>,
    numbers: std::ops::Range<u64>,
    value: &[u8],
) -> Result<(), ErrorKind> {
    put_until(store, numbers, value, 0)
}

/// Puts keys until they are refused, `most` at most; how many were taken, and why no more.
pub fn fill<E: Engine, D: BlockDevice>(
    store: &mut Harness<E, D>,
    most: u64,
    (batch, value): (u64, &[u8]),
) -> (u64, Option<ErrorKind>) {
    for from in (0..most).step_by(batch as usize) {
        if let Err(kind) = put(store, from..from + batch, value) {
            return (from, Some(kind));
        }
    }
    (most, None)
}

/// Whether a key is there; to ask is to use it.
pub fn is_there<E: Engine, D: BlockDevice>(store: &mut Harness<E, D>, number: u64) -> bool {
    match store.get(KEYSPACE, &number.to_le_bytes()) {
        Ok(found) => found.is_some(),
        Err(error) => panic!("key {number} cannot be read: {error}"),
    }
}

/// How many of these are there.
pub fn count_there<E: Engine, D: BlockDevice>(
    store: &mut Harness<E, D>,
    numbers: std::ops::Range<u64>,
) -> usize {
    numbers.filter(|&number| is_there(store, number)).count()
}

/// Puts [`BATCH`] at a time, with values of [`VALUE_BYTES`], keys that expire then, or never (zero).
fn put_expiring<E: Engine, D: BlockDevice>(
    store: &mut Harness<E, D>,
    numbers: std::ops::Range<u64>,
    expiry_ms: u64,
) -> Result<(), String> {
    for from in numbers.step_by(BATCH as usize) {
        put_until(store, from..from + BATCH, &[7; VALUE_BYTES], expiry_ms)
            .map_err(|kind| format!("key {from}: {kind:?}"))?;
    }
    Ok(())
}

#[track_caller]
fn well<T>(result: Result<T, String>) -> T {
    result.unwrap_or_else(|text| panic!("{text}"))
}

/// Fills a store three times over: without eviction it refuses, with it the newest keys are there.
pub fn new_keys_take_the_room_of_old_ones<E: Engine, D: BlockDevice>(
    fresh: impl Fn() -> Harness<E, D>,
    (batch, value): (u64, &[u8]),
    refused: ErrorKind,
) -> Harness<E, D> {
    let mut store = fresh();
    let (taken, why) = fill(&mut store, u64::MAX, (batch, value));
    assert_eq!(why, Some(refused), "after {taken} keys");
    drop(store);
    let mut store = fresh();
    store.engine.set_eviction(Eviction::OldestFirst);
    let most = 3 * taken / batch * batch;
    assert_eq!(fill(&mut store, most, (batch, value)), (most, None));
    store.sync().unwrap_or_else(|error| panic!("{error}"));
    let statistics = store.engine.statistics();
    assert_eq!(statistics.keys + statistics.evicted_keys, most, "{statistics:?}");
    assert!(statistics.keys > taken * 6 / 10, "{} of {taken} keys are left", statistics.keys);
    let newest = count_there(&mut store, most - taken / 4..most) as u64;
    assert_eq!(newest, taken / 4, "the newest keys are there");
    let oldest = count_there(&mut store, 0..taken) as u64;
    assert!(oldest < taken / 10, "{oldest} of the first {taken} keys are there");
    store
}

/// Keys that are asked for all the time outlive others, where the engine knows of each that it is.
pub fn what_is_asked_for_now_and_then_stays<E: Engine, D: BlockDevice>(mut store: Harness<E, D>) {
    store.engine.set_eviction(Eviction::OldestFirst);
    for from in (0..20_000).step_by(BATCH as usize) {
        well(put_expiring(&mut store, from..from + BATCH, 0));
        count_there(&mut store, 0..from.min(100));
    }
    assert!(store.engine.statistics().evicted_keys > 10_000, "{:?}", store.engine.statistics());
    let stayed = count_there(&mut store, 0..100);
    assert!(stayed >= 90, "{stayed} of 100 keys that are asked for stayed");
    let others = count_there(&mut store, 100..1_000);
    assert!(others < 100, "{others} of 900 others did");
}

/// Keys of which half are asked for now and then, and new ones that nobody asks for: how many of the first are there
/// in the end of those asked for, and of the others.
pub fn stay_under_load<E: Engine, D: BlockDevice>(
    mut store: Harness<E, D>,
    policy: Eviction,
) -> (usize, usize) {
    store.engine.set_eviction(policy);
    for from in (0..20_000).step_by(BATCH as usize) {
        well(put_expiring(&mut store, from..from + BATCH, 0));
        let first = from / BATCH % 20 * 50;
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

/// What is counted of uses, and when.
pub fn uses_are_counted_under_a_policy_that_asks_for_them<E: Engine, D: BlockDevice>(
    mut store: Harness<E, D>,
) {
    let uses =
        |store: &Harness<E, D>, number: u64| store.engine.uses(store.key(KEYSPACE, &number.to_le_bytes()));
    let put_some = |store: &mut Harness<E, D>, numbers| assert_eq!(put(store, numbers, b"value"), Ok(()));
    put_some(&mut store, 0..25);
    let index_bytes = store.engine.statistics().index_bytes;
    assert_eq!(uses(&store, 3), None, "nothing is counted");
    store.engine.set_eviction(Eviction::LeastUsed);
    assert_eq!(uses(&store, 3), Some(0));
    (0..4).for_each(|_| assert!(is_there(&mut store, 3)));
    assert!(!is_there(&mut store, 1_000));
    assert_eq!((uses(&store, 3), uses(&store, 1_000), uses(&store, 4)), (Some(4), Some(1), Some(0)));
    let asked = 3_u64.to_le_bytes();
    let key = store.key(KEYSPACE, &asked);
    store.engine.peek(store.now, key);
    assert_eq!(uses(&store, 3), Some(4), "a peek is no use");
    put_some(&mut store, 0..25);
    assert_eq!((uses(&store, 3), uses(&store, 4)), (Some(5), Some(1)), "to write a key is to use it");
    put_some(&mut store, 1_000..1_025);
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

/// A policy may be chosen when it is too late already, and given up.
pub fn without_a_policy_nothing_is_evicted_and_it_may_change<E: Engine, D: BlockDevice>(
    mut store: Harness<E, D>,
) {
    let value = &[7; VALUE_BYTES][..];
    let (taken, why) = fill(&mut store, u64::MAX, (BATCH, value));
    assert_eq!(why, Some(ErrorKind::NoSpace));
    assert_eq!(store.engine.statistics().evicted_keys, 0);
    store.engine.set_eviction(Eviction::OldestFirst);
    for from in ((1 << 40)..(1 << 40) + 100).step_by(BATCH as usize) {
        assert_eq!(put(&mut store, from..from + BATCH, value), Ok(()));
    }
    assert!(store.engine.statistics().evicted_keys > 0);
    store.engine.set_eviction(Eviction::None);
    let keys = store.engine.statistics().keys;
    assert!(keys < taken + 100, "{keys}");
    (0..500).for_each(|_| step(&mut store));
    assert_eq!(store.engine.statistics().keys, keys);
}

/// Under a policy for keys that expire: those that never do stay, whenever they were written, and when only such
/// are left writers are refused.
///
/// # Errors
/// What went that must not.
pub fn only_expiring_keys_go<E: Engine, D: BlockDevice>(
    mut store: Harness<E, D>,
    policy: Eviction,
) -> Result<Harness<E, D>, String> {
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

/// Keys that never expire are taken until nothing else is left; then they are refused, and stay.
fn assert_refused_in_the_end<E: Engine, D: BlockDevice>(store: &mut Harness<E, D>, from: u64) {
    let refused = put_expiring(store, from..from + 10_000, 0);
    assert!(refused.as_ref().is_err_and(|text| text.contains("NoSpace")), "{refused:?}");
    assert_eq!(count_there(store, 0..1_400), 1_400);
}

/// `volatile-lru`.
pub fn of_keys_that_expire_the_oldest_go_first<E: Engine, D: BlockDevice>(store: Harness<E, D>) {
    let mut store = well(only_expiring_keys_go(store, Eviction::OldestExpiring));
    let (first, last) = (count_there(&mut store, 20_000..25_000), count_there(&mut store, 34_000..36_000));
    assert!(first < 500 && last == 2_000, "{first} of the first 5000 are there, {last} of the last 2000");
    assert_refused_in_the_end(&mut store, 50_000);
}

/// `volatile-lfu`.
pub fn of_keys_that_expire_those_asked_for_least_go_first<E: Engine, D: BlockDevice>(store: Harness<E, D>) {
    let mut store = well(only_expiring_keys_go(store, Eviction::LeastUsedExpiring));
    for round in 0..40 {
        (0..5).for_each(|_| assert_eq!(count_there(&mut store, 35_000..35_200), 200));
        let from = 50_000 + round * 250;
        well(put_expiring(&mut store, from..from + 250, SOON_MS));
    }
    assert_eq!(count_there(&mut store, 0..1_400), 1_400, "those that never expire");
    let others = count_there(&mut store, 35_200..36_000);
    assert!(others < 600, "{others} of 800 that nobody asked for are there");
    assert_refused_in_the_end(&mut store, 80_000);
}

/// Of the halves of what was written some are there of both: by age or by expiry one of them would be nothing. Those
/// written first were at stake most often.
fn assert_in_no_order(first: usize, last: usize) {
    assert!(
        first > 100 && last > first && last < 7_900,
        "{first} of the first half are there, {last} of the last"
    );
}

/// `volatile-random`.
pub fn keys_that_expire_go_in_no_order<E: Engine, D: BlockDevice>(store: Harness<E, D>) {
    let mut store = well(only_expiring_keys_go(store, Eviction::RandomExpiring));
    let (first, last) = (count_there(&mut store, 20_000..28_000), count_there(&mut store, 28_000..36_000));
    assert_in_no_order(first, last);
}

/// `allkeys-random`.
pub fn keys_go_in_no_order<E: Engine, D: BlockDevice>(mut store: Harness<E, D>) {
    store.engine.set_eviction(Eviction::Random);
    well(put_expiring(&mut store, 0..16_000, 0));
    let (first, last) = (count_there(&mut store, 0..8_000), count_there(&mut store, 8_000..16_000));
    assert_in_no_order(first, last);
    // What is asked for is not spared.
    for round in 0..200 {
        let from = 20_000 + round * 100;
        well(put_expiring(&mut store, from..from + 100, 0));
        count_there(&mut store, 8_000..8_100);
    }
    let asked_for = count_there(&mut store, 8_000..8_100);
    assert!(asked_for < 40, "{asked_for} of 100 keys that are asked for stayed");
}

/// `volatile-ttl`. Keys that never expire, that expire late, sooner and soonest, and more of the last than there is room for:
/// those that expire next go, others stay; and when only those are left that never expire, writers are refused.
///
/// # Errors
/// What is there that should have gone, or the other way round.
pub fn nearest_expiries_go_first<E: Engine, D: BlockDevice>(mut store: Harness<E, D>) -> Result<(), String> {
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
    let (first, last) = (there(&mut store, 20_000..23_000), there(&mut store, 27_000..28_000));
    if first > 400 || last < 900 {
        return Err(format!("{first} of the 3000 are there that expire first, {last} of the last 1000"));
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

/// Keys without an expiry that go under a policy for those that expire are noticed by the checks above; `broken` makes
/// a store that lets them go.
pub fn evictions_of_keys_without_an_expiry_are_noticed<E: Engine, D: BlockDevice>(
    broken: impl Fn() -> Harness<E, D>,
) {
    let is_noticed =
        |found: &Option<String>| found.as_ref().is_some_and(|text| text.contains("never expire"));
    for policy in [Eviction::OldestExpiring, Eviction::LeastUsedExpiring, Eviction::RandomExpiring] {
        let found = only_expiring_keys_go(broken(), policy).err();
        assert!(is_noticed(&found), "{policy:?}: {found:?}");
    }
    let found = nearest_expiries_go_first(broken()).err();
    assert!(is_noticed(&found), "{found:?}");
}

/// Where records are hardly longer than tombstones, deletions may find no room: writers are told so, and never left waiting.
pub fn small_records_are_taken_or_refused<E: Engine, D: BlockDevice>(
    fresh: impl Fn() -> Harness<E, D>,
    value: &[u8],
) {
    let mut store = fresh();
    let (taken, why) = fill(&mut store, u64::MAX, (100, value));
    assert_eq!(why, Some(ErrorKind::NoSpace), "after {taken} keys");
    drop(store);
    let mut store = fresh();
    store.engine.set_eviction(Eviction::OldestFirst);
    let most = 3 * taken / 100 * 100;
    let (more, why) = fill(&mut store, most, (100, value));
    assert!(why.is_none_or(|kind| kind == ErrorKind::NoSpace), "{why:?}");
    assert!(more > taken * 8 / 10, "{more} keys were taken, {taken} without eviction");
    assert!(is_there(&mut store, more - 1), "what was taken last is there");
}

/// A store is filled without eviction until so much of it lives, of one; what the first write is told that comes then,
/// when keys may be evicted and none has been. In the end it is taken, when some have gone if it had to wait.
///
/// # Errors
/// What it is told.
pub fn told_when_little_is_left<E: Engine, D: BlockDevice>(
    mut store: Harness<E, D>,
    full: f64,
    (batch, value): (u64, &[u8]),
) -> Result<(), String> {
    let live = |store: &Harness<E, D>| {
        let statistics = store.engine.statistics();
        statistics.space_live_bytes as f64 / statistics.space_capacity_bytes as f64
    };
    for from in (0..).step_by(batch as usize) {
        assert_eq!(put(&mut store, from..from + batch, value), Ok(()));
        if live(&store) > full {
            break;
        }
    }
    store.engine.set_eviction(Eviction::OldestFirst);
    let key = store.key(KEYSPACE, b"one more");
    let kind = WriteKind::Put { value, expiry_ms: 0, kind: Default::default() };
    let told =
        store.engine.write(store.now, &[Write { key, kind }]).map(drop).map_err(|error| error.to_string());
    assert_eq!(write(&mut store, &[Write { key, kind }]), Ok(()));
    assert!(told.is_ok() || live(&store) < full, "it is taken when some have gone: {}", live(&store));
    told
}

/// Of the store that was being looked at: closed or killed, as it says, and opened again.
pub type Reopen<'a, E, D> = &'a dyn Fn(Harness<E, D>, bool) -> Harness<E, D>;

/// The policies of which the model takes another at each opening.
const POLICIES: [Eviction; 3] = [Eviction::OldestFirst, Eviction::LeastUsed, Eviction::Random];
/// Keys of the model: their records should take twice what there is room for.
pub const MODEL_KEYS: u64 = 6_000;

/// Random writes, deletions, reads and openings over a store that evicts: a key has its newest value or none,
/// and one that is gone stays gone. `reopen` kills it, or closes it in good order.
///
/// # Errors
/// The key that has an old value, or what was refused.
pub fn follow_a_model<E: Engine, D: BlockDevice>(
    seed: u64,
    mut store: Harness<E, D>,
    value_bytes_max: u64,
    reopen: Reopen<'_, E, D>,
) -> Result<(), String> {
    let mut random = SeededRandom::new(seed);
    let some_policy = |random: &mut SeededRandom| POLICIES[random.below(POLICIES.len() as u64) as usize];
    store.engine.set_eviction(some_policy(&mut random));
    let mut model: BTreeMap<u64, u64> = BTreeMap::new();
    let mut evicted = 0;
    for version in 1..16_000u64 {
        let number = random.below(MODEL_KEYS);
        let bytes = number.to_le_bytes();
        let key = store.key(KEYSPACE, &bytes);
        let mut value = version.to_le_bytes().to_vec();
        value.resize(8 + random.below(value_bytes_max - 8) as usize, 7);
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
        check(&mut store, &mut model, random.below(MODEL_KEYS))?;
        if random.chance(0.001) {
            store.sync().map_err(|error| error.to_string())?;
            evicted += store.engine.statistics().evicted_keys;
            store = reopen(store, random.chance(0.7));
            store.engine.set_eviction(some_policy(&mut random));
            for number in 0..MODEL_KEYS {
                check(&mut store, &mut model, number)?;
            }
        }
    }
    evicted += store.engine.statistics().evicted_keys;
    if evicted < 1_000 { Err(format!("only {evicted} keys were evicted")) } else { Ok(()) }
}

fn check<E: Engine, D: BlockDevice>(
    store: &mut Harness<E, D>,
    model: &mut BTreeMap<u64, u64>,
    number: u64,
) -> Result<(), String> {
    let found = store.get(KEYSPACE, &number.to_le_bytes()).map_err(|error| error.to_string())?;
    let version = |value: &[u8]| value.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    match (found.and_then(|(_, value)| version(&value)), model.get(&number)) {
        (None, _) => {
            model.remove(&number);
            Ok(())
        }
        (Some(found), Some(&newest)) if found == newest => Ok(()),
        (Some(found), newest) => Err(format!("key {number} has version {found}, not {newest:?} or none")),
    }
}
