//! Damage of what was durable is told, and what a loss of power may leave is never called damage.
//!
//! That the second holds says every test of `crash.rs`: a store that refuses to open is a violation there. Here its
//! rules are switched off, and bits are flipped in copies of regions.

use crate::common;
use crate::common::lives::{Mix, Plan, caught};
use crate::common::{flip_bit, machine, open_all, reopen, small_settings};
use std::collections::BTreeMap;
use std::sync::Arc;
use tierstone_base::{ErrorKind, KeyspaceId, SeededRandom};
use tierstone_crash::{Mutations, sampled_runs, sampled_seed};
use tierstone_engine::Engine;
use tierstone_media::Wait;
use tierstone_media::sim::WordMachine;
use tierstone_pmstore::OpenSettings;
use tierstone_pmstore::check::{CheckSettings, check};

const KEYSPACE: KeyspaceId = KeyspaceId(2);

fn plan() -> Plan {
    let mut plan = Plan::new(160 << 10);
    (plan.lives, plan.steps) = (3, 400);
    plan
}

#[test]
fn a_frame_says_nothing_of_what_no_fence_made_durable() {
    caught("fence_claimed_early", &plan(), 2_000, &Mix { steps: 20, ..Mix::default() });
}

/// The crash mark `log-end-noted` lies on its way.
#[test]
fn the_end_of_a_log_is_noted_after_its_fence() {
    let mut plan = plan();
    plan.open.shard.durability = tierstone_engine::Durability::Group { interval_ms: 5 };
    plan.open.shard.mark_every_us = 0;
    caught("mark_before_fence", &plan, 2_000, &Mix::default());
}

#[test]
fn a_block_is_sealed_after_its_fence() {
    let mut plan = plan();
    plan.open.shard.clean_below_blocks = 10_000;
    (plan.bytes, plan.steps) = (96 << 10, 1_500);
    let mix = Mix { operations: 60, keys: 8, value_bytes: 400, deletes: 30, steps: 90, ..Mix::default() };
    caught("sealed_before_fence", &plan, 3_000, &mix);
}

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// A store's region as its process left it, and what it holds.
struct Left {
    image: Vec<u8>,
    settings: OpenSettings,
    contents: Contents,
    history: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
}

fn settings() -> OpenSettings {
    let mut settings = small_settings();
    settings.base = 0;
    settings
}

/// A store after puts and deletes over several log segments and cleanings; `is_closed`: in good order.
fn left(seed: u64, is_closed: bool) -> Left {
    let settings = settings();
    let mut random = SeededRandom::new(seed);
    let (region, mut store) = common::fresh(256 << 10, &settings);
    let (mut contents, mut history) = (Contents::new(), BTreeMap::new());
    for _ in 0..700 {
        let key = format!("key-{}", random.below(60)).into_bytes();
        if random.chance(0.2) {
            store.delete(KEYSPACE, &key).unwrap();
            contents.remove(&key);
        } else {
            let len = if random.chance(0.03) { 5_000 } else { random.below(300) };
            let mut value = vec![0; len as usize];
            random.fill(&mut value);
            store.put(KEYSPACE, &key, &value).unwrap();
            put(&mut history, &key, &value);
            contents.insert(key, value);
        }
        store.turn(Wait::Poll);
    }
    store.sync().unwrap();
    store.settle(100);
    if is_closed {
        store = reopen(store, &region, &settings);
        store.engine.shut();
        store.settle(100);
    }
    drop(store);
    Left { image: region.region().image(), settings, contents, history }
}

/// Every value that a key has had.
fn put(history: &mut BTreeMap<Vec<u8>, Vec<Vec<u8>>>, key: &[u8], value: &[u8]) {
    history.entry(key.to_vec()).or_default().push(value.to_vec());
}

/// What came of opening a damaged copy.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Refused,
    Told,
    Whole,
}

fn region_of(image: &[u8]) -> WordMachine {
    let region = machine(image.len() as u64);
    region.region().overwrite(0, image);
    region
}

/// Opens a copy with damage; whatever it shows is right, or an error.
fn open_damaged(left: &Left, image: &[u8], seed: u64, what: &str) -> Outcome {
    let region = region_of(image);
    let (mut stores, report, built) = match open_all(&region, &left.settings) {
        Ok(opened) => opened,
        Err(error) => {
            assert!(
                matches!(
                    error.kind(),
                    ErrorKind::Corrupt | ErrorKind::Incompatible | ErrorKind::InvalidInput
                ),
                "seed {seed}, {what}: {error}"
            );
            return Outcome::Refused;
        }
    };
    assert!(report.damaged_segments.is_empty(), "seed {seed}, {what}: served without them");
    let mut is_told = built[0].damaged > 0;
    if is_told {
        return Outcome::Told;
    }
    for number in 0..60 {
        let key = format!("key-{number}").into_bytes();
        match stores[0].get(KEYSPACE, &key) {
            Ok(found) => assert_eq!(
                found.map(|(_, value)| value).as_ref(),
                left.contents.get(&key),
                "seed {seed}, {what}: key {number} is silently another"
            ),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "seed {seed}, {what}: {error}");
                is_told = true;
            }
        }
    }
    if is_told { Outcome::Told } else { Outcome::Whole }
}

/// Whether a check of the region tells of damage. It changes nothing.
fn is_found_by_check(image: &[u8]) -> bool {
    let region = region_of(image);
    let found = check(Arc::new(region.region()), &CheckSettings::default(), &mut |_| {});
    assert!(region.region().image() == image, "a check changed the region");
    found.map_or(true, |report| report.is_damaged())
}

#[test]
fn a_flipped_bit_is_never_a_silent_loss() {
    let seed = sampled_seed(77);
    for is_closed in [false, true] {
        let left = left(seed, is_closed);
        assert_eq!(open_damaged(&left, &left.image, seed, "no damage"), Outcome::Whole);
        let mut random = SeededRandom::new(seed);
        let mut counts: BTreeMap<Outcome, u32> = BTreeMap::new();
        let mut found = 0;
        assert!(!is_found_by_check(&left.image), "seed {seed}");
        for _ in 0..sampled_runs(1_500) {
            let (at, bit) = (random.below(left.image.len() as u64) as usize, random.below(8));
            let mut image = left.image.clone();
            image[at] ^= 1 << bit;
            let what = format!("closed {is_closed}, bit {bit} of {at}");
            let is_found = is_found_by_check(&image);
            let outcome = open_damaged(&left, &image, seed, &what);
            assert!(
                is_found || outcome == Outcome::Whole,
                "seed {seed}, {what}: {outcome:?}, and no check finds it"
            );
            found += u32::from(is_found);
            *counts.entry(outcome).or_default() += 1;
        }
        println!("seed {seed}, closed {is_closed}: {counts:?}, {found} found by a check");
        assert!(counts[&Outcome::Refused] > 20 && counts[&Outcome::Whole] > 20, "seed {seed}: {counts:?}");
    }
}

/// Opens a damaged copy whose loss is accepted: what it shows is some value of the key, and it can be worked with.
fn open_accepted(left: &Left, image: &[u8], seed: u64, what: &str) -> bool {
    let region = region_of(image);
    let settings = OpenSettings { loss_accepted: true, ..left.settings.clone() };
    let Ok((mut stores, report, built)) = open_all(&region, &settings) else { return false };
    let told = (report.damaged_log.len() + report.damaged_segments.len()) as u64 + built[0].damaged_blocks;
    assert!(told > 0, "seed {seed}, {what}: opened without a word");
    let mut store = stores.pop().unwrap();
    for number in 0..60 {
        let key = format!("key-{number}").into_bytes();
        let Ok(Some((_, value))) = store.get(KEYSPACE, &key) else { continue };
        let is_own = left.history.get(&key).is_some_and(|values| values.contains(&value));
        assert!(is_own, "seed {seed}, {what}: key {number} has a value that nobody put");
    }
    for number in 0..30u32 {
        store.put(KEYSPACE, &number.to_le_bytes(), &[7; 200]).unwrap();
    }
    store.sync().unwrap();
    drop(store);
    // Without acceptance: nothing is damaged any more.
    let (mut stores, ..) = open_all(&region, &left.settings).unwrap_or_else(|error| {
        panic!("seed {seed}, {what}: {error}");
    });
    assert!((0..30u32).all(|number| stores[0].get(KEYSPACE, &number.to_le_bytes()).unwrap().is_some()));
    true
}

#[test]
fn a_loss_that_is_accepted_is_counted_and_over() {
    let seed = sampled_seed(78);
    for is_closed in [false, true] {
        let left = left(seed, is_closed);
        let mut random = SeededRandom::new(seed);
        let (mut refused, mut opened) = (0, 0);
        for _ in 0..sampled_runs(500) {
            let (at, bit) = (random.below(left.image.len() as u64) as usize, random.below(8));
            let mut image = left.image.clone();
            image[at] ^= 1 << bit;
            let what = format!("closed {is_closed}, bit {bit} of {at}");
            if open_all(&region_of(&image), &left.settings).is_err() {
                refused += 1;
                opened += u32::from(open_accepted(&left, &image, seed, &what));
            }
        }
        println!("seed {seed}, closed {is_closed}: {refused} refused, {opened} of them opened when accepted");
        assert!(opened * 10 > refused * 9 && opened > 20, "seed {seed}: {opened} of {refused}");
    }
}

/// Where the line of the first shard lies in these regions.
const LINE_AT: usize = 4096;

#[test]
fn zeros_in_place_of_a_shards_line_are_no_empty_shard() {
    for is_closed in [false, true] {
        let left = left(sampled_seed(79), is_closed);
        for len in [8, 64] {
            let mut image = left.image.clone();
            image[LINE_AT..LINE_AT + len].fill(0);
            let error = open_all(&region_of(&image), &left.settings).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.message().contains("the log of shard 0 is damaged or missing"), "{error}");
            assert!(is_found_by_check(&image));
        }
    }
}

#[test]
fn a_damaged_word_of_the_table_is_refused_and_its_segment_counted_where_the_loss_is_accepted() {
    let left = left(sampled_seed(80), true);
    let (table, _) = common::table_and_data(&left.image, &left.settings);
    let mut image = left.image.clone();
    let words = (0..left.settings.geometry.log_segments as usize * 4).map(|word| table as usize + word * 8);
    // Behind the log's own: a segment of blocks or of long values.
    let place = words
        .skip(left.settings.geometry.log_segments as usize)
        .find(|place| image[*place] != 8)
        .expect("a segment is in use");
    image[place + 2] ^= 1;
    let error = open_all(&region_of(&image), &left.settings).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.message().contains(&format!("byte {place} of the region")), "{error}");
    let settings = OpenSettings { loss_accepted: true, ..left.settings.clone() };
    let (_, report, built) = open_all(&region_of(&image), &settings).unwrap();
    assert_eq!(report.damaged_segments.len(), 1);
    assert!(built[0].lost_bytes >= settings.geometry.segment_bytes, "{}", built[0].lost_bytes);
    assert!(open_accepted(&left, &image, 80, "a word of the table"));
}

#[test]
fn zeros_in_the_table_are_refused_as_damage() {
    let left = left(sampled_seed(80), true);
    let (table, data) = common::table_and_data(&left.image, &left.settings);
    let segments = common::word_at(&left.image, left.settings.base as usize + 56) as usize;
    assert!(segments > 8 && table + 8 * segments as u64 <= data);
    for place in (0..segments).map(|segment| table as usize + 8 * segment) {
        let mut image = left.image.clone();
        image[place..place + 8].fill(0);
        let error = open_all(&region_of(&image), &left.settings).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.message().contains(&format!("byte {place} of the region")), "{error}");
        assert!(is_found_by_check(&image));
    }
}

#[test]
fn damage_in_the_middle_of_a_log_is_told_with_its_place() {
    let settings = settings();
    let (region, mut store) = common::fresh(256 << 10, &settings);
    for number in 0..3 {
        store.put(KEYSPACE, &[number], format!("the value of number {number}").as_bytes()).unwrap();
        store.sync().unwrap();
    }
    drop(store);
    let image = region.region().image();
    let needle = b"the value of number 0";
    let places: Vec<usize> =
        image.windows(needle.len()).enumerate().filter(|(_, at)| *at == needle).map(|(at, _)| at).collect();
    // The frame's value, and the record's in its block, which alone is replayed from the log.
    assert_eq!(places.len(), 2, "{places:?}");
    let errors: Vec<String> = places
        .iter()
        .filter_map(|at| {
            let region = region_of(&image);
            flip_bit(&region, *at, 1);
            let error = open_all(&region, &settings).err()?;
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            let offset: u64 =
                error.message().split("byte ").nth(1)?.split(' ').next()?.parse().expect("a number");
            assert!((*at as u64 - 200..=*at as u64).contains(&offset), "{at}: {error}");
            assert!(
                error.message().contains("shard 0") && error.message().contains("accepting the loss"),
                "{error}"
            );
            Some(error.message().to_owned())
        })
        .collect();
    assert!(errors.len() == 1 && errors[0].contains("log"), "{errors:?}");
}

/// The words of a block's first line: its life, the check of it, its seal.
fn first_line(image: &[u8], settings: &OpenSettings, number: u64) -> (usize, [u64; 3]) {
    let (_, data) = common::table_and_data(image, settings);
    let at = (data + number * settings.geometry.block_bytes) as usize;
    (at, [0, 8, 16].map(|word| common::word_at(image, at + word)))
}

/// Power is lost while a block's life ends, so that its seal stays, and lost again while the next life begins there, so
/// that the old check stays: whether the store opens.
fn opens_after_two_torn_lines(mutations: &Mutations) -> bool {
    let mut settings = small_settings();
    settings.mutations = mutations.clone();
    settings.shard.clean_below_blocks = 10_000;
    let (machine, mut store) = common::fresh(256 << 10, &settings);
    let name = |number: u32| format!("key {}", number % 60).into_bytes();
    let mut image = machine.region().image();
    let mut ended = None;
    for number in 0..4_000 {
        store.put(KEYSPACE, &name(number), &[number as u8; 200]).unwrap();
        store.turn(Wait::Poll);
        let before = std::mem::replace(&mut image, machine.region().image());
        let (_, data) = common::table_and_data(&before, &settings);
        let blocks = (before.len() as u64 - data) / settings.geometry.block_bytes;
        ended = (0..blocks).find_map(|block| {
            let (place, [life, check, seal]) = first_line(&before, &settings, block);
            let now = first_line(&image, &settings, block).1;
            (life != 0 && seal != 0 && now == [0, check, 0]).then_some((place, life, seal))
        });
        if ended.is_some() {
            break;
        }
    }
    let (place, life, seal) = ended.unwrap();
    drop(store);
    machine.region().overwrite(place as u64 + 16, &seal.to_le_bytes());
    drop(open_all(&machine, &settings).unwrap());
    machine.region().overwrite(place as u64, &(life + 0x0100).to_le_bytes());
    match open_all(&machine, &settings) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            false
        }
    }
}

#[test]
fn a_seal_that_outlived_its_block_is_gone_before_another_life_begins_there() {
    assert!(opens_after_two_torn_lines(&Mutations::none()));
    let kept = Mutations::one("seals_left_on_free_blocks");
    assert!(!opens_after_two_torn_lines(&kept), "the mutation is not caught");
}
