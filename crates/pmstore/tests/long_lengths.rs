//! Long values whose lengths change: segments in which little is left are emptied for others.

use crate::common;
use crate::common::{Store, flip_bit, fresh, open_all, reopen, reopen_after_kill, small_settings};
use std::collections::BTreeMap;
use std::sync::Arc;
use tierstone_base::{ErrorKind, KeyspaceId, SeededRandom};
use tierstone_engine::{Engine, Health, Key, Write, WriteKind};
use tierstone_media::Wait;
use tierstone_media::region::{MappedRegion, RegionSettings};
use tierstone_media::sim::WordMachine;
use tierstone_pmstore::check::{CheckSettings, check};
use tierstone_pmstore::{Geometry, OpenSettings};

const KEYSPACE: KeyspaceId = KeyspaceId(2);
const ORDERED: KeyspaceId = KeyspaceId(1);
/// Segments have 16 KiB here: units of 256, 512 and 1,024 bytes, for values up to 2,048, 4,096 and 16,384.
const LENS: [usize; 3] = [1_500, 3_000, 5_000];

fn value(number: u32, len: usize) -> Vec<u8> {
    let word = |at: usize| (u64::from(number) << 32 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..len).map(|at| word(at / 8).to_le_bytes()[at % 8]).collect()
}

/// Keys, and the number and length of the value of each.
type Model = BTreeMap<(KeyspaceId, Vec<u8>), (u32, usize)>;

fn name(number: u32) -> Vec<u8> {
    let mut name = format!("key {number:06}").into_bytes();
    // Some keys lie in overflow blocks with their values.
    if number % 11 == 7 && number < 1_000_000 {
        name.resize(600, b'x');
    }
    name
}

#[track_caller]
fn assert_holds(store: &mut Store, model: &Model) {
    for ((keyspace, name), (number, len)) in model {
        let found = store.get(*keyspace, name).unwrap().map(|(_, value)| value);
        assert!(found == Some(value(*number, *len)), "{name:?} is not what was put");
    }
    for keyspace in [ORDERED, KEYSPACE] {
        let own = model.keys().filter(|(own, _)| *own == keyspace).count() as u64;
        assert_eq!(store.engine.len(keyspace), own);
    }
}

/// No check calls what lies in the region damaged, and no two records name the same units.
fn assert_whole(region: &WordMachine) {
    let settings = CheckSettings { base: small_settings().base, ..CheckSettings::default() };
    let report = check(common::Place::region(region), &settings, &mut |_| {}).unwrap();
    assert!(!report.is_damaged(), "{:?}", report.findings);
}

/// Opens it again: closed in good order, after a kill, or after a loss of power.
fn again(mut store: Store, region: &WordMachine, settings: &OpenSettings, how: u64) -> Store {
    match how {
        0 => return reopen(store, region, settings),
        1 => return reopen_after_kill(store, region, settings),
        _ => {}
    }
    store.sync().unwrap();
    let now = store.now;
    drop(store);
    region.cut_power();
    region.power_on_after_loss();
    assert_whole(region);
    let mut store = open_all(region, settings).unwrap().0.pop().unwrap();
    store.now = now;
    store
}

/// Bytes of units that values of this length take.
fn taken(len: usize) -> usize {
    let unit = [256, 512, 1_024][[2_048, 4_096].iter().filter(|&&most| len > most).count()];
    len.next_multiple_of(unit)
}

/// Values come and go at random; what lengths come most changes. Nothing is refused while `percent` of the space is in use.
fn come_and_go(seed: u64, percent: usize, settings: &OpenSettings) {
    const BYTES: usize = 1 << 20;
    let mut random = SeededRandom::new(seed);
    let (region, mut store) = fresh(BYTES as u64, settings);
    let space = BYTES - 8_192 - (1 + 4) * (16 << 10);
    let costs = |(_, name): &(KeyspaceId, Vec<u8>), len: usize| match name.len() {
        600 => taken(len + 600) + 100,
        _ => taken(len) + 100,
    };
    let (mut model, mut live) = (Model::new(), 0);
    for number in 0..4_000 {
        let lens = LENS[(number as usize / 130) % 3];
        let len = lens / 2 + random.below(lens as u64 * 3 / 4) as usize;
        let keyspace = if random.chance(0.3) { ORDERED } else { KEYSPACE };
        let key = (keyspace, name(random.below(4_000) as u32));
        let before = model.get(&key).map_or(0, |(_, len)| costs(&key, *len));
        while live - before + costs(&key, len) > space * percent / 100 {
            let at = random.below(model.len() as u64) as usize;
            let gone = model.keys().nth(at).cloned().filter(|gone| *gone != key);
            let Some(gone) = gone else { continue };
            store.delete(gone.0, &gone.1).unwrap();
            let (_, len) = model.remove(&gone).unwrap();
            live -= costs(&gone, len);
        }
        if let Err(error) = store.put(key.0, &key.1, &value(number, len)) {
            panic!("write {number} of {len} bytes at {live} of {space}: {error}");
        }
        live = live + costs(&key, len) - before;
        model.insert(key, (number, len));
        if number % 500 == 499 {
            assert_holds(&mut store, &model);
            store = again(store, &region, settings, random.below(3));
            assert_holds(&mut store, &model);
        }
    }
}

#[test]
fn values_of_many_lengths_come_and_go_in_half_the_space() {
    for seed in 0..3 {
        come_and_go(seed, 60, &small_settings());
    }
    let mut settings = small_settings();
    settings.shard.partial_keys = true;
    common::always_checkpoint(&mut settings.shard);
    come_and_go(3, 50, &settings);
}

/// Puts values of `len` until they are refused, or `count` are there.
fn fill(store: &mut Store, model: &mut Model, from: u32, len: usize, count: u32) -> u32 {
    for number in from..from.saturating_add(count) {
        let key = (KEYSPACE, name(number));
        match store.put(key.0, &key.1, &value(number, len)) {
            Ok(_) => {
                model.insert(key, (number, len));
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                assert!(
                    error.message().contains("full") && error.message().contains("delete keys"),
                    "{error}"
                );
                return number - from;
            }
        }
    }
    count
}

/// Fills with values of `before` bytes, deletes nine of ten, and fills half the space with values of `after` bytes.
fn filled_anew(before: usize, after: usize, has_snapshot: bool) {
    const BYTES: u64 = 1 << 20;
    let (region, mut store) = fresh(BYTES, &small_settings());
    let mut model = Model::new();
    let count = fill(&mut store, &mut model, 0, before, u32::MAX);
    // One of each segment stays, or thereabouts.
    let every = (16 << 10) / taken(before) as u32;
    for number in (0..count).filter(|number| number % every != 1) {
        store.delete(KEYSPACE, &name(number)).unwrap();
        model.remove(&(KEYSPACE, name(number)));
    }
    let snapshot = has_snapshot.then(|| store.engine.snapshot(store.now).unwrap());
    let shown = model.clone();
    // What a snapshot keeps is not the newest of its key, and moves all the same.
    for number in (1..count).step_by(every as usize * 4).take(5) {
        store.delete(KEYSPACE, &name(number)).unwrap();
        model.remove(&(KEYSPACE, name(number)));
    }
    let wanted = (BYTES / 2) as u32 / (taken(after) + 100) as u32;
    let taken = fill(&mut store, &mut model, 1_000_000, after, wanted);
    assert_eq!(taken, wanted, "of {before} bytes {count} were there, of {after} bytes {taken} are taken");
    assert_holds(&mut store, &model);
    if let Some(snapshot) = snapshot {
        for ((keyspace, name), (number, len)) in &shown {
            let found = store.get_at(snapshot, *keyspace, name).unwrap().map(|record| record.value);
            assert!(found == Some(value(*number, *len)), "{name:?} is not what the snapshot shows");
        }
        store.engine.release_snapshot(snapshot);
    }
    for how in 0..3 {
        store = again(store, &region, &small_settings(), how);
        assert_holds(&mut store, &model);
    }
}

#[test]
fn one_value_a_segment_keeps_no_segment_from_values_of_another_length() {
    for before in LENS {
        for after in LENS.into_iter().filter(|&after| after != before) {
            filled_anew(before, after, false);
        }
        filled_anew(before, 300, false);
    }
}

#[test]
fn what_a_snapshot_keeps_moves_too() {
    filled_anew(1_500, 5_000, true);
    filled_anew(3_000, 300, true);
}

/// A segment is emptied while other values are written, read, replaced and deleted; expiries and sequences stay.
#[test]
fn values_that_move_stay_what_they_are() {
    let (_region, mut store) = fresh(1 << 20, &small_settings());
    let mut model = Model::new();
    let count = fill(&mut store, &mut model, 0, 1_500, u32::MAX);
    for number in (0..count).filter(|number| number % 10 != 3) {
        store.delete(KEYSPACE, &name(number)).unwrap();
    }
    let expiry_ms = store.now.wall_ms + 1_000_000_000;
    let seqs: Vec<_> = (3..count)
        .step_by(10)
        .map(|number| {
            let (name, value) = (name(number), value(number, 1_500));
            let kind = WriteKind::Put { value: &value, expiry_ms, kind: tierstone_engine::ValueKind(5) };
            let key: Key<'_> = store.key(KEYSPACE, &name);
            store.write(&[Write { key, kind }]).unwrap()
        })
        .collect();
    let mut others = Model::new();
    let taken = fill(&mut store, &mut others, 1_000_000, 5_000, 90);
    assert_eq!(taken, 90);
    for (number, seq) in (3..count).step_by(10).zip(seqs) {
        let (meta, found) = store.get(KEYSPACE, &name(number)).unwrap().unwrap();
        assert!(found == value(number, 1_500));
        assert_eq!((meta.seq, meta.expiry_ms, meta.kind.0), (seq, expiry_ms, 5));
    }
}

/// Full of values that leave nothing to be gained: refused with a clear word at once, after some steps, and taken again after
/// deletions.
#[test]
fn a_store_that_is_full_of_long_values_refuses_and_goes_on_after_deletions() {
    for len in LENS {
        let (region, mut store) = fresh(512 << 10, &small_settings());
        let mut model = Model::new();
        let first = 1_000_000;
        let count = fill(&mut store, &mut model, first, len, u32::MAX);
        let full = model.values().map(|(_, len)| taken(*len)).sum::<usize>();
        assert!(full > 512 << 10 >> 1, "{full} bytes are taken by values of {len}");
        for other in LENS.into_iter().chain([300]) {
            fill(&mut store, &mut model, 2_000_000 + other as u32 * 1_000, other, u32::MAX);
        }
        // Nothing is gained by trying: the engine comes to rest.
        for _ in 0..10 {
            assert_eq!(fill(&mut store, &mut model, 3_000_000, 5_000, 1), 0);
        }
        for _ in 0..10_000 {
            store.turn(Wait::Poll);
        }
        assert!(
            store.engine.next_step_at_us().is_none_or(|at| at > store.now.monotonic_us),
            "it never rests"
        );
        assert!(matches!(store.engine.health(), Health::Good));
        assert_holds(&mut store, &model);
        store = again(store, &region, &small_settings(), 2);
        assert_holds(&mut store, &model);
        for number in (first..first + count).filter(|number| number % 3 != 0) {
            store.delete(KEYSPACE, &name(number)).unwrap();
            model.remove(&(KEYSPACE, name(number)));
        }
        for other in LENS {
            let taken = fill(&mut store, &mut model, 4_000_000 + other as u32 * 1_000, other, 10);
            assert_eq!(taken, 10, "values of {other} after deletions of those of {len}");
        }
        assert_holds(&mut store, &model);
    }
}

/// Long values, and the long keys of deletions, get the free segments of blocks, but not the last blocks: deletions and
/// cleaning need some.
#[test]
fn long_values_leave_deletions_some_blocks() {
    for len in LENS {
        let (region, mut store) = fresh(512 << 10, &small_settings());
        let mut model = Model::new();
        let count = fill(&mut store, &mut model, 0, len, u32::MAX);
        for (from, other) in [(220009, 1_500), (330005, 3_000), (440007, 5_000), (550010, 300)] {
            fill(&mut store, &mut model, from, other, u32::MAX);
        }
        for _ in 0..10 {
            fill(&mut store, &mut model, 660003, 5_000, 1);
        }
        store.settle(10_000);
        store = again(store, &region, &small_settings(), 2);
        // The deletion of a long key takes room, too, and may have to wait for others.
        let mut long = Vec::new();
        for number in (0..count).filter(|number| number % 3 != 0) {
            match store.delete(KEYSPACE, &name(number)) {
                Ok(_) => drop(model.remove(&(KEYSPACE, name(number)))),
                Err(error) => {
                    assert!(error.kind() == ErrorKind::NoSpace && number % 11 == 7, "{number}: {error}");
                    long.push(number);
                }
            }
        }
        for number in long {
            store.delete(KEYSPACE, &name(number)).unwrap();
            model.remove(&(KEYSPACE, name(number)));
        }
        assert_holds(&mut store, &model);
    }
}

/// Fills with values of 1,500 bytes beside segments that have few bytes taken and cannot be emptied, for no other has a run
/// that is as long; deletes half. How many values of 3,000 bytes are taken then.
fn taken_beside(obstacles: u32) -> u32 {
    let (_region, mut store) = fresh(1 << 20, &small_settings());
    let mut model = Model::new();
    for number in 0..obstacles {
        fill(&mut store, &mut model, 1_000_000 + number, 5_000, 1);
        fill(&mut store, &mut model, 2_000_000 + number, 6_900, 1);
    }
    let count = fill(&mut store, &mut model, 3_000_000, 1_500, u32::MAX);
    let goes = (1_000_000..1_000_000 + obstacles).chain((3_000_000..3_000_000 + count).step_by(2));
    for number in goes {
        store.delete(KEYSPACE, &name(number)).unwrap();
        model.remove(&(KEYSPACE, name(number)));
    }
    store.settle(1_000);
    let taken = fill(&mut store, &mut model, 4_000_000, 3_000, u32::MAX);
    assert_holds(&mut store, &model);
    taken
}

#[test]
fn segments_that_cannot_be_emptied_hide_no_others() {
    for obstacles in [0, 7, 8, 9, 20] {
        let taken = taken_beside(obstacles);
        let bytes = (1 << 20) - (1 + 4 + obstacles as usize) * (16 << 10);
        assert!(taken as usize > bytes / 3 / 3_000, "{taken} beside {obstacles}");
    }
}

/// A block with a damaged record is not cleaned, so that segments with what it names stay; those in which least lives are among
/// them. Others are emptied all the same, before a write is refused.
#[test]
fn segments_that_are_given_up_keep_no_write_from_others() {
    let (region, mut store) = fresh(1 << 20, &small_settings());
    let mut model = Model::new();
    let count = fill(&mut store, &mut model, 1_000_000, 1_500, u32::MAX);
    let damaged = name(1_000_051);
    let image = region.region().image();
    let places = image.windows(damaged.len()).enumerate().filter(|(_, bytes)| *bytes == damaged.as_slice());
    places.for_each(|(at, _)| flip_bit(&region, at, 1));
    // One value a segment stays where the damaged record is, two elsewhere.
    let stays = |number: u32| number % 10 == 1 || number >= 100 && number % 10 == 2;
    for number in (0..count).filter(|number| !stays(*number)) {
        store.delete(KEYSPACE, &name(1_000_000 + number)).unwrap();
    }
    store.settle(1_000);
    let mut taken = 0;
    while taken < 60 {
        match store.put(KEYSPACE, &name(2_000_000 + taken), &value(taken, 5_000)) {
            Ok(_) => taken += 1,
            // A second for each of four that stay, and none between.
            Err(error) => {
                let is_early = store.now.monotonic_us < 6_000_000;
                assert!(error.kind() == ErrorKind::Retry && is_early, "{taken} taken: {error}");
            }
        }
    }
}

/// The usual segments of 2 MiB, and lengths of all classes. One of twenty values stays, as it comes.
#[test]
fn in_segments_of_the_usual_size_lengths_change_too() {
    const BYTES: usize = 96 << 20;
    for (before, after) in [(5_000, 100_000), (100_000, 5_000), (5_000, 700), (30_000, 5_000), (100_000, 700)]
    {
        let region = MappedRegion::anonymous(BYTES as u64, &RegionSettings::default()).unwrap();
        let settings = OpenSettings { geometry: Geometry::default(), ..small_settings() };
        let (mut store, _) = common::open_one(&Arc::new(region), &settings);
        let (mut model, mut random) = (Model::new(), SeededRandom::new(4));
        let count = fill(&mut store, &mut model, 1_000_000, before, u32::MAX);
        assert!(count as usize * before > BYTES / 2, "{count} values of {before}");
        for number in 1_000_000..1_000_000 + count {
            if random.chance(0.95) {
                store.delete(KEYSPACE, &name(number)).unwrap();
                model.remove(&(KEYSPACE, name(number)));
            }
        }
        let wanted = (BYTES / 2 / (after + 100)) as u32;
        let taken = fill(&mut store, &mut model, 2_000_000, after, wanted);
        assert_eq!(taken, wanted, "{count} of {before} bytes were there, of {after} bytes {taken} are taken");
        assert_holds(&mut store, &model);
    }
}
