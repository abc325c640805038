//! Checkpoints of the index: what an opening takes in of them, what it reads, and that a damaged or an old one is none.

use crate::common;
use crate::common::{
    Store, always_checkpoint, fresh, keyspaces, open_one, random_settings, reopen, reopen_after_kill,
    small_settings,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use tierstone_base::checksum::{checksum, salt};
use tierstone_base::{KeyspaceId, SeededRandom};
use tierstone_crash::Mutations;
use tierstone_engine::Engine;
use tierstone_engine::conformance::{self, ModelSettings};
use tierstone_media::Wait;
use tierstone_media::sim::WordMachine;
use tierstone_pmstore::OpenSettings;
use tierstone_pmstore::check::{CheckReport, CheckSettings, DamageKind, check};

const KEYSPACE: KeyspaceId = KeyspaceId(2);
const BYTES: u64 = 1 << 20;

fn settings() -> OpenSettings {
    let mut settings = small_settings();
    always_checkpoint(&mut settings.shard);
    settings
}

fn name(number: u32) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

fn fill(store: &mut Store, keys: std::ops::Range<u32>, byte: u8) {
    for number in keys {
        store.put(KEYSPACE, &name(number), &[byte; 100]).unwrap();
    }
}

fn turn(store: &mut Store, turns: u32) {
    (0..turns).for_each(|_| store.turn(Wait::Poll));
}

/// What a check finds of the closed store; it is run with memory for all keys and for few of them, in several passes.
fn checked(machine: &WordMachine) -> CheckReport {
    let run = |memory_bytes| {
        let settings = CheckSettings { base: settings().base, memory_bytes, ..CheckSettings::default() };
        check(Arc::new(machine.region()), &settings, &mut |_| {}).unwrap()
    };
    let (once, often) = (run(1 << 30), run(20_000));
    assert!(once.passes == 1 && often.passes > 2);
    assert_eq!((once.checkpoint_keys, &once.damage), (often.checkpoint_keys, &often.damage));
    once
}

fn contents(store: &mut Store) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let keys: Vec<_> = store.scan_all(KEYSPACE, 7).unwrap().into_iter().map(|entry| entry.key).collect();
    keys.into_iter().map(|key| (key.clone(), store.get(KEYSPACE, &key).unwrap().unwrap().1)).collect()
}

#[test]
fn what_a_checkpoint_says_is_not_read_again() {
    let settings = settings();
    let (machine, mut store) = fresh(BYTES, &settings);
    fill(&mut store, 0..800, 1);
    for number in (0..800).step_by(10) {
        store.delete(KEYSPACE, &name(number)).unwrap();
    }
    let before = contents(&mut store);
    store = reopen(store, &machine, &settings);
    assert!(contents(&mut store) == before);
    drop(store);
    let found = checked(&machine);
    assert!(!found.is_damaged(), "{:?}", found.findings.first());
    assert!(found.checkpoints == 1 && found.checkpoint_keys >= 680, "{} keys", found.checkpoint_keys);
    let (mut store, report) = open_one(&machine, &settings);
    assert!(report.loaded >= 680, "{report:?}");
    assert!(report.records <= 60, "only what lay in blocks with room is read: {report:?}");
    assert!(contents(&mut store) == before);
}

#[test]
fn after_a_kill_only_what_came_later_is_read() {
    let settings = settings();
    let (machine, mut store) = fresh(BYTES, &settings);
    fill(&mut store, 0..800, 1);
    turn(&mut store, 400);
    fill(&mut store, 780..900, 2);
    let before = contents(&mut store);
    drop(store);
    let (mut store, report) = open_one(&machine, &settings);
    assert!(report.loaded > 0 && report.records < 800, "{report:?}");
    assert!(contents(&mut store) == before);
    let store = reopen(store, &machine, &OpenSettings { loss_accepted: true, ..settings });
    assert_eq!(store.engine.len(KEYSPACE), 900);
}

/// What an opening takes in of a checkpoint that the opening before it has passed over, and wrote behind.
fn taken_in_of_an_old_one(mutations: &Mutations) -> u64 {
    let mut settings = settings();
    settings.mutations = mutations.clone();
    let mut never = settings.clone();
    (never.loss_accepted, never.shard.checkpoint_bytes_min) = (true, u64::MAX);
    // Only the second close makes one, so that there are few free blocks, and no segment goes.
    let (machine, mut store) = fresh(BYTES, &never);
    fill(&mut store, 0..800, 1);
    store = reopen(store, &machine, &settings);
    drop(reopen(store, &machine, &settings));
    // Damage is looked for: everything is read.
    let (mut store, report) = open_one(&machine, &never);
    assert_eq!((report.loaded, report.live), (0, 800));
    fill(&mut store, 0..3, 3);
    let before = contents(&mut store);
    drop(store);
    let (mut store, report) = open_one(&machine, &settings);
    assert!(mutations.is_on("checkpoint_of_any_opening") || contents(&mut store) == before);
    report.loaded
}

#[test]
fn a_checkpoint_that_an_opening_has_passed_over_is_none_for_the_next() {
    assert_eq!(taken_in_of_an_old_one(&Mutations::none()), 0);
    assert!(taken_in_of_an_old_one(&Mutations::one("checkpoint_of_any_opening")) > 0);
}

/// Keys that are there when everything is read, of 400, after others were deleted, a checkpoint was taken in, and much
/// was cleaned.
fn keys_after_cleaning(mutations: &Mutations) -> u64 {
    let mut settings = settings();
    settings.mutations = mutations.clone();
    settings.shard.clean_below_blocks = 10_000;
    let (machine, mut store) = fresh(BYTES, &settings);
    fill(&mut store, 0..800, 1);
    for number in (0..800).step_by(2) {
        store.delete(KEYSPACE, &name(number)).unwrap();
    }
    store = reopen(store, &machine, &settings);
    // Blocks with tombstones are cleaned, those with the old records hardly.
    fill(&mut store, 2_000..2_200, 1);
    for number in 2_000..2_200 {
        store.delete(KEYSPACE, &name(number)).unwrap();
    }
    let store = reopen_after_kill(store, &machine, &OpenSettings { loss_accepted: true, ..settings });
    store.engine.len(KEYSPACE)
}

#[test]
fn what_was_deleted_before_a_checkpoint_stays_deleted() {
    assert_eq!(keys_after_cleaning(&Mutations::none()), 400);
    assert!(keys_after_cleaning(&Mutations::one("tombstones_unlisted")) > 400);
    assert!(keys_after_cleaning(&Mutations::one("uncounted_taken_for_none")) > 400);
}

/// Deleted keys that are back when everything is read. A snapshot kept what they held, in blocks that a checkpoint lists, and
/// these were cleaned before anything in them was counted as old; the copies lie among what lives, for one old record a block
/// is not cleaned.
fn back_after_a_snapshot(mutations: &Mutations) -> usize {
    let mut settings = settings();
    settings.mutations = mutations.clone();
    settings.shard.clean_below_blocks = 10_000;
    let mut never = settings.clone();
    never.shard.clean_below_blocks = 6;
    let (machine, mut store) = fresh(BYTES, &never);
    fill(&mut store, 0..800, 1);
    (0..800).step_by(2).for_each(|number| fill(&mut store, number..number + 1, 2));
    store = reopen(store, &machine, &settings);
    let snapshot = store.engine.snapshot(store.now).unwrap();
    let gone = || (1..800).step_by(50);
    gone().for_each(|number| fill(&mut store, number..number + 1, 3));
    fill(&mut store, 2_000..2_100, 1);
    turn(&mut store, 300);
    store.engine.release_snapshot(snapshot);
    // All is counted.
    turn(&mut store, 3_000);
    for number in gone() {
        store.delete(KEYSPACE, &name(number)).unwrap();
    }
    for _ in 0..20 {
        fill(&mut store, 2_000..2_200, 1);
        turn(&mut store, 50);
    }
    let mut store = reopen_after_kill(store, &machine, &OpenSettings { loss_accepted: true, ..never });
    gone().filter(|number| store.get(KEYSPACE, &name(*number)).unwrap().is_some()).count()
}

#[test]
fn what_a_snapshot_kept_of_a_deleted_key_is_counted_as_old() {
    assert_eq!(back_after_a_snapshot(&Mutations::none()), 0);
    assert!(back_after_a_snapshot(&Mutations::one("kept_moved_uncounted")) > 0);
}

/// Whatever bit of a checkpoint is flipped, everything is read, or what it says is right.
#[test]
fn a_damaged_checkpoint_is_none() {
    let settings = settings();
    let (machine, mut store) = fresh(BYTES, &settings);
    fill(&mut store, 0..800, 1);
    let before = contents(&mut store);
    drop(reopen(store, &machine, &settings));
    let whole = machine.region().image();
    let line = 4096 + settings.base as usize;
    let page = u64::from_le_bytes(whole[line + 32..][..8].try_into().unwrap()) & ((1 << 48) - 1);
    assert!(page > 0, "there is a checkpoint");
    let mut random = SeededRandom::new(3);
    let (mut passed_over, mut taken) = (0, 0);
    for round in 0..40 {
        machine.region().overwrite(0, &whole);
        let at = match round % 4 {
            // The line's words, and its page, wherever that lies.
            0 => line + 24 + random.below(16) as usize,
            _ => first_page(&whole, &settings, page - 1) + random.below(4000) as usize,
        };
        common::flip_bit(&machine, at, random.below(8) as u32);
        let found = checked(&machine);
        let (mut store, report) = open_one(&machine, &settings);
        match report.loaded {
            0 => {
                passed_over += 1;
                assert!(found.is_damaged() && found.checkpoints == 0, "round {round}: {found:?}");
                let kind = if round % 4 == 0 { DamageKind::Header } else { DamageKind::Checkpoint };
                assert_eq!(found.damage.keys().collect::<Vec<_>>(), [&kind], "round {round}");
            }
            _ => {
                taken += 1;
                assert!(found.checkpoints == 1);
            }
        }
        assert!(contents(&mut store) == before, "round {round}");
    }
    assert!(passed_over >= 36 && taken <= 4, "{passed_over} passed over, {taken} taken in");
}

/// A checkpoint whose pages are whole, and which says too little or what is wrong.
#[test]
fn a_check_holds_what_a_checkpoint_names_against_the_records() {
    let settings = settings();
    let (machine, mut store) = fresh(BYTES, &settings);
    fill(&mut store, 0..800, 1);
    drop(reopen(store, &machine, &settings));
    let image = machine.region().image();
    assert!(!checked(&machine).is_damaged());
    let keys = keys_page(&image, &settings);
    // An item that names the record of the one before it: one key twice, one not at all.
    let mut broken = image.clone();
    broken.copy_within(keys.item(3)..keys.item(4), keys.item(4));
    keys.seal(&mut broken);
    machine.region().overwrite(0, &broken);
    let found = checked(&machine);
    assert_eq!(found.damage.into_iter().collect::<Vec<_>>(), [(DamageKind::CheckpointLacks, 1)]);
    let (store, report) = open_one(&machine, &settings);
    assert!(report.loaded > 0 && store.engine.len(KEYSPACE) == 799, "the opening believes what is whole");
    drop(store);
    // A key that is led to the record of another one.
    let mut broken = image.clone();
    let position = keys.item(4)..keys.item(4) + 8;
    broken[position.start] ^= 1;
    keys.seal(&mut broken);
    machine.region().overwrite(0, &broken);
    let found = checked(&machine);
    let expected = [(DamageKind::Checkpoint, 1), (DamageKind::CheckpointLacks, 1)];
    assert_eq!(found.damage.into_iter().collect::<Vec<_>>(), expected);
}

/// Whether what was written is there when the rot that one opening has seen in a checkpoint is not seen by the next.
fn outlives_passing_rot(mutations: &Mutations) -> bool {
    let mut settings = settings();
    settings.mutations = mutations.clone();
    let mut never = settings.clone();
    never.shard.checkpoint_bytes_min = u64::MAX;
    // Only the second close makes one, so that there are few free blocks, and no segment goes.
    let (machine, mut store) = fresh(BYTES, &never);
    fill(&mut store, 0..800, 1);
    store = reopen(store, &machine, &settings);
    drop(reopen(store, &machine, &settings));
    let image = machine.region().image();
    let line = 4096 + settings.base as usize;
    let page = u64::from_le_bytes(image[line + 32..][..8].try_into().unwrap()) & ((1 << 48) - 1);
    let at = first_page(&image, &settings, page - 1) + 100;
    common::flip_bit(&machine, at, 0);
    let (mut store, report) = open_one(&machine, &never);
    assert_eq!((report.loaded, report.live), (0, 800));
    fill(&mut store, 0..3, 3);
    drop(store);
    common::flip_bit(&machine, at, 0);
    let (mut store, report) = open_one(&machine, &never);
    let is_there = (0..3).all(|number| {
        store
            .get(KEYSPACE, &name(number))
            .is_ok_and(|found| found.is_some_and(|(_, value)| value == [3; 100]))
    });
    report.loaded == 0 && is_there
}

/// The crash mark `checkpoint-found-unfit` lies on its way: nothing else has changed there.
#[test]
fn a_checkpoint_that_was_found_unfit_is_taken_back() {
    assert!(outlives_passing_rot(&Mutations::none()));
    assert!(!outlives_passing_rot(&Mutations::one("unfit_checkpoint_kept")));
}

/// Deletes most keys of a store with a checkpoint, until segments that it lists blocks of were given back, and kills the
/// process. In those segments lies again what lay there before, as if others had put it there. What the next opening took in
/// of the checkpoint, and whether the right keys are there.
fn outlives_segments(mutations: &Mutations) -> (u64, bool) {
    let mut settings = settings();
    settings.mutations = mutations.clone();
    let mut never = settings.clone();
    never.shard.checkpoint_bytes_min = u64::MAX;
    let (machine, mut store) = fresh(BYTES, &never);
    fill(&mut store, 0..2_000, 1);
    store = reopen(store, &machine, &settings);
    drop(reopen(store, &machine, &settings));
    let before = machine.region().image();
    let mut cleaning = never.clone();
    cleaning.shard.clean_below_blocks = 10_000;
    let (mut store, report) = open_one(&machine, &cleaning);
    assert!(report.loaded > 1_900, "{report:?}");
    for number in 0..1_900 {
        store.delete(KEYSPACE, &name(number)).unwrap();
    }
    store.sync().unwrap();
    turn(&mut store, 2_000);
    drop(store);
    let (mut store, _) = open_one(&machine, &never);
    turn(&mut store, 200);
    drop(store);
    let after = machine.region().image();
    let (table, segments) = table_of(&after, &settings);
    let segment_bytes = settings.geometry.segment_bytes as usize;
    let data =
        (table + 8 * segments - settings.base as usize).next_multiple_of(4096) + settings.base as usize;
    let kind = |image: &[u8], segment: usize| image[table + 8 * segment];
    let gone: Vec<usize> =
        (0..segments).filter(|&at| kind(&before, at) == 3 && kind(&after, at) == 8).collect();
    assert!(gone.len() > 3, "only {} segments were given back", gone.len());
    let found = checked(&machine);
    assert!(!found.is_damaged() && found.checkpoints == 1, "{:?}", found.damage);
    for segment in gone {
        let place = data + segment * segment_bytes..data + (segment + 1) * segment_bytes;
        machine.region().overwrite(place.start as u64, &before[place]);
    }
    assert!(!checked(&machine).is_damaged());
    let (mut store, report) = open_one(&machine, &never);
    let right = (1_900..2_000).map(|number| (name(number), vec![1; 100])).collect();
    (report.loaded, contents(&mut store) == right)
}

/// Where the allocation table lies in an image, and how many segments it is of.
fn table_of(image: &[u8], settings: &OpenSettings) -> (usize, usize) {
    let base = settings.base as usize;
    let segments = u64::from_le_bytes(image[base + 56..][..8].try_into().unwrap());
    (base + (4096_usize + 64).next_multiple_of(4096), segments as usize)
}

#[test]
fn a_checkpoint_outlives_segments_that_are_given_back() {
    let (loaded, is_right) = outlives_segments(&Mutations::none());
    assert!((1..=100).contains(&loaded) && is_right, "{loaded} keys of it, right: {is_right}");
    let (_, is_right) = outlives_segments(&Mutations::one("listed_of_others_adopted"));
    assert!(!is_right, "the mutation is not caught");
}

/// Where the page in block `number` begins.
/// Where a page of keys lies in an image, and which one of its checkpoint it is.
struct KeysPage {
    at: usize,
    number: u64,
    len: usize,
}

impl KeysPage {
    fn item(&self, number: usize) -> usize {
        self.at + 64 + number * 16
    }

    /// Makes the checksum right.
    fn seal(&self, image: &mut [u8]) {
        let page = &image[self.at..self.at + self.len];
        let id = u64::from_le_bytes(page[8..16].try_into().unwrap());
        let sum = checksum(salt(id, self.number), &page[8..]);
        image[self.at..self.at + 8].copy_from_slice(&sum.to_le_bytes());
    }
}

/// The first page with keys of the checkpoint that the first shard's line names.
fn keys_page(image: &[u8], settings: &OpenSettings) -> KeysPage {
    let word = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
    let line = 4096 + settings.base as usize;
    let mut next = word(line + 32) & ((1 << 48) - 1);
    for number in 1.. {
        let at = first_page(image, settings, next - 1);
        if word(at + 24) >> 32 == 2 {
            return KeysPage { at, number, len: settings.geometry.block_bytes as usize - 64 };
        }
        next = word(at + 16);
    }
    unreachable!("the end comes behind the keys")
}

fn first_page(image: &[u8], settings: &OpenSettings, number: u64) -> usize {
    let (_, data) = common::table_and_data(image, settings);
    (data + number * settings.geometry.block_bytes + 64) as usize
}

#[test]
fn a_damaged_record_that_was_not_read_is_told_when_it_is() {
    let settings = settings();
    let (machine, mut store) = fresh(BYTES, &settings);
    fill(&mut store, 0..800, 0xa7);
    drop(reopen(store, &machine, &settings));
    let image = machine.region().image();
    let key = name(17);
    let at = image
        .windows(key.len() + 8)
        .position(|bytes| bytes[..key.len()] == key[..] && bytes[key.len()..] == [0xa7; 8]);
    // The last copy is the one in a block: the log lies before.
    let last = image
        .windows(key.len() + 8)
        .rposition(|bytes| bytes[..key.len()] == key[..] && bytes[key.len()..] == [0xa7; 8]);
    let mut told = 0;
    for at in [at, last].into_iter().flatten() {
        machine.region().overwrite(0, &image);
        common::flip_bit(&machine, at + key.len() + 20, 3);
        let (mut store, report) = open_one(&machine, &settings);
        if report.loaded == 0 {
            continue;
        }
        match store.get(KEYSPACE, &key) {
            Err(error) => {
                assert_eq!(error.kind(), tierstone_base::ErrorKind::Corrupt);
                told += 1;
            }
            Ok(found) => assert!(found.unwrap().1 == [0xa7; 100]),
        }
    }
    assert!(told > 0, "no record was hit");
}

#[test]
fn a_full_store_takes_the_space_of_its_checkpoint() {
    let settings = settings();
    let (_machine, mut store) = fresh(256 << 10, &settings);
    let mut count = 0;
    while store.put(KEYSPACE, &name(count), &[1; 100]).is_ok() {
        count += 1;
    }
    let mut without = settings.clone();
    without.shard.checkpoint_bytes_min = u64::MAX;
    let (_machine, mut store) = fresh(256 << 10, &without);
    let mut most = 0;
    while store.put(KEYSPACE, &name(most), &[1; 100]).is_ok() {
        most += 1;
    }
    assert_eq!(count, most);
}

/// Its steps are paced, and so is the cleaning that makes room for it; neither may wait for ever beside writes that take more
/// blocks than that pace frees.
#[test]
fn a_checkpoint_rests_between_its_steps_and_comes_to_its_end_beside_writes() {
    let mut settings = settings();
    settings.shard.checkpoint_step_rest = 70;
    let (_machine, mut store) = fresh(2 << 20, &settings);
    let written = |store: &Store| store.engine.statistics().checkpoint_region_bytes_written;
    let mut random = SeededRandom::new(11);
    let (mut rests, mut checkpoints) = (0, 0);
    for round in 0..60 {
        let before = written(&store);
        // A block is full after five turns; the pace frees one in nine.
        for _ in 0..1_000 {
            for _ in 0..5 {
                store.put(KEYSPACE, &name(random.below(6_000) as u32), &[round; 100]).unwrap();
            }
            turn(&mut store, 1);
            rests += u32::from(store.engine.next_step_at_us().is_some_and(|at| at > store.now.monotonic_us));
        }
        // The first rounds write where nothing has to be cleaned.
        checkpoints += u32::from(round >= 4 && written(&store) > before);
    }
    let statistics = store.engine.statistics();
    assert!(statistics.cleaned_bytes_written > 1 << 20, "{statistics:?}");
    assert!(checkpoints > 5, "{checkpoints} of 56 rounds saw a checkpoint end");
    assert!(rests > 20, "{rests} rests");
}

#[test]
fn the_store_passes_the_model_with_checkpoints() {
    let mut seeds = SeededRandom::new(21);
    for round in 0..12 {
        let seed = seeds.next_u64();
        let mut random = SeededRandom::new(seed);
        let mut settings = random_settings(&mut random);
        always_checkpoint(&mut settings.shard);
        let bytes = if round % 2 == 0 { 512 << 10 } else { 4 << 20 };
        let (region, store) = fresh(bytes, &settings);
        let value_bytes = if round % 2 == 0 { 300 } else { 20_000 };
        let model = ModelSettings {
            operations: 4_000,
            keys: 60,
            value_bytes,
            reopen_every: 150,
            may_lose_snapshots: true,
            ..ModelSettings::default()
        };
        conformance::model(seed, model, store, |store| match random.chance(0.5) {
            true => reopen(store, &region, &settings),
            false => reopen_after_kill(store, &region, &settings),
        });
    }
}

/// Tombstones go when all old records are counted, as in a store whose opening has read everything.
#[test]
fn what_was_deleted_is_forgotten_after_the_count() {
    let settings = settings();
    let (machine, mut store) = fresh(BYTES, &settings);
    fill(&mut store, 0..800, 1);
    for number in 0..800 {
        store.delete(KEYSPACE, &name(number)).unwrap();
    }
    store = reopen(store, &machine, &settings);
    // The space is wanted again and again.
    for round in 0..12 {
        fill(&mut store, 1_000..1_600, round);
    }
    for number in 1_000..1_600 {
        store.delete(KEYSPACE, &name(number)).unwrap();
    }
    for _ in 0..40 {
        turn(&mut store, 50);
        store.now.monotonic_us += 1_000;
    }
    fill(&mut store, 0..3_000, 9);
    assert_eq!(store.engine.len(keyspaces()[1].id), 3_000);
}
