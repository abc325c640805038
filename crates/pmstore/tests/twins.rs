//! A record and the cleaner's copy of it, which names another place for the long value: both are left by a process that is
//! killed before the life of the old one's block ends.

use crate::common;
use crate::common::{
    Store, cut_while_opened, flip_bit, machine_of, open_all, small_settings, table_and_data, word_at,
};
use std::sync::Arc;
use tierstone_base::KeyspaceId;
use tierstone_base::checksum::{checksum, salt};
use tierstone_crash::{Choices, ExploreSettings, Mutations, Report, Violation, assert_caught, explore};
use tierstone_engine::Engine;
use tierstone_media::Wait;
use tierstone_media::sim::{Killed, SimMachine, until_killed};
use tierstone_pmstore::OpenSettings;

const KEYSPACE: KeyspaceId = KeyspaceId(2);
const BYTES: u64 = 256 << 10;
/// Before so many write-backs and fences, while segments are emptied, the process may be killed.
const POINTS: u64 = 100;

fn name(number: u32) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

fn long(number: u32) -> Vec<u8> {
    vec![number as u8; 1_500]
}

fn stays(number: u32) -> bool {
    (100 + number) % 5 == 2
}

fn choose_point(choices: &Choices) -> u64 {
    choices.choose(POINTS, "before which write-back or fence the process is killed")
}

fn open_first<const UNIT: usize>(
    machine: &SimMachine<UNIT>,
    settings: &OpenSettings,
) -> Result<Store, Violation> {
    open_all(machine, settings)?.0.pop().ok_or_else(|| Violation::new("no shard".to_owned()))
}

/// Values of which one of five stays, in blocks behind others that have become free. Segments are emptied for values of another
/// length, and the process is killed. How many there were.
fn emptied_until_killed(machine: &SimMachine<8>, point: u64) -> Result<u32, Violation> {
    let region = Killed::over(Arc::new(machine.region()));
    let mut store = open_all(&region, &small_settings())?.0.pop().unwrap();
    for number in 0..60 {
        store.put(KEYSPACE, &name(number), &[1; 100])?;
    }
    let mut count = 0;
    while store.put(KEYSPACE, &name(100 + count), &long(count)).is_ok() {
        count += 1;
    }
    for number in 0..60 {
        store.delete(KEYSPACE, &name(number))?;
    }
    for number in (0..count).filter(|number| !stays(*number)) {
        store.delete(KEYSPACE, &name(100 + number))?;
    }
    store.settle(1_000);
    region.kill_before(point);
    until_killed(|| {
        (0..8).for_each(|number| drop(store.put(KEYSPACE, &name(900 + number), &[9; 12_000])));
    });
    drop(store);
    machine.kill_process();
    Ok(count)
}

fn are_whole(store: &mut Store, count: u32, when: &str) -> Result<(), Violation> {
    for number in (0..count).filter(|number| stays(*number)) {
        let found = store.get(KEYSPACE, &name(100 + number)).map(|found| found.map(|(_, value)| value));
        Violation::unless(matches!(&found, Ok(Some(value)) if *value == long(number)), || {
            format!("{when} value {number} is {:?}", found.map(|found| found.map(|value| value.len())))
        })?;
    }
    Ok(())
}

/// Lives in which others are put, and blocks are cleaned again.
fn killed(choices: &Choices, mutations: &Mutations) -> Result<(), Violation> {
    let machine = machine_of::<8>(BYTES, choices);
    let count = emptied_until_killed(&machine, choose_point(choices))?;
    let settings = OpenSettings { mutations: mutations.clone(), ..small_settings() };
    for life in 2..5 {
        let mut store = open_first(&machine, &settings)?;
        are_whole(&mut store, count, &format!("at the start of life {life}"))?;
        let (first, few, many) =
            (choices.choose(8, "how many"), choices.choose(12, "how many"), choices.choose(8, "how many"));
        for number in 0..first as u32 {
            drop(store.delete(KEYSPACE, &name(900 + number)));
        }
        for number in 0..few as u32 {
            drop(store.put(KEYSPACE, &name(3_000 + life * 100 + number), &[7; 1_500]));
        }
        for number in 0..many as u32 {
            drop(store.put(KEYSPACE, &name(950 + life * 10 + number), &[9; 12_000]));
        }
        are_whole(&mut store, count, &format!("at the end of life {life}"))?;
        store.engine.shut();
        (0..10_000).for_each(|_| {
            if !store.engine.is_shut() {
                store.turn(Wait::One)
            }
        });
    }
    Ok(())
}

/// Power is lost while what a kill has left is opened.
fn killed_and_cut(choices: &Choices, mutations: &Mutations) -> Result<(), Violation> {
    let machine = machine_of::<8>(BYTES, choices);
    let count = emptied_until_killed(&machine, choose_point(choices))?;
    let settings = OpenSettings { mutations: mutations.clone(), ..small_settings() };
    cut_while_opened(&machine, &settings, 100);
    are_whole(&mut open_first(&machine, &settings)?, count, "after the loss of power")
}

fn explored(
    runs: u64,
    mutations: &Mutations,
    life: impl Fn(&Choices, &Mutations) -> Result<(), Violation>,
) -> Report {
    let settings = ExploreSettings { max_minimise_runs: 0, ..ExploreSettings::random(77, runs) };
    explore(settings, |choices| life(choices, mutations))
}

#[test]
fn a_copy_that_does_not_count_is_void_before_its_place_is_used() {
    explored(200, &Mutations::none(), killed).assert_clean();
    let name = "twins_left_valid";
    assert_caught(name, || explored(1_000, &Mutations::one(name), killed));
}

#[test]
fn a_copy_is_void_when_the_record_that_counts_is_durable() {
    explored(200, &Mutations::none(), killed_and_cut).assert_clean();
    let name = "twins_void_at_once";
    assert_caught(name, || explored(1_000, &Mutations::one(name), killed_and_cut));
    // Of what comes back mostly the other is taken, whose value is whole.
    let name = "ended_not_kept";
    let mutations = Mutations::one(name).and("twins_not_compared");
    assert_caught(name, || explored(1_000, &mutations, killed_and_cut));
}

/// Where the values of records lie that are there twice, each with its key's number: of a record and its copy.
fn values_of_twins(machine: &SimMachine<8>, count: u32) -> Vec<(u32, [usize; 2])> {
    let (image, base) = (machine.region().image(), small_settings().base as usize);
    let data = table_and_data(&image, &small_settings()).1 as usize;
    let block_bytes = common::SMALL.block_bytes as usize;
    // Behind 48 bytes of record, a checksum, and one place with its count.
    let is_record = |at: usize, key: &[u8]| {
        let life = word_at(&image, at - (at - data) % block_bytes);
        let (first, len) = (word_at(&image, at), (72 + key.len()).next_multiple_of(8));
        let salted = salt(life ^ ((at - base) as u64).rotate_left(24), first);
        let is_whole = checksum(salted, &image[at + 16..at + len]) == word_at(&image, at + 8);
        life != 0 && image[at + 6] == 2 && is_whole && word_at(&image, at + 56) == 1
    };
    let mut found = Vec::new();
    for number in (0..count).filter(|number| stays(*number)) {
        let key = name(100 + number);
        let places = image.windows(key.len()).enumerate().filter(|(_, bytes)| *bytes == key);
        let records: Vec<usize> = places
            .filter_map(|(at, _)| at.checked_sub(72))
            .filter(|at| *at >= data && at % 8 == 0 && is_record(*at, &key))
            .collect();
        if let [one, other] = records[..]
            && word_at(&image, one + 16) == word_at(&image, other + 16)
        {
            let value = |at: usize| (word_at(&image, at + 64) & ((1 << 36) - 1)) as usize * 64 + base;
            if value(one) != value(other) {
                found.push((number, [value(one), value(other)]));
            }
        }
    }
    found
}

/// One of two values of each record that has a copy rots. Which keys have not what was put.
fn rotten_twins(point: u64, which: usize, mutations: &Mutations) -> Result<(usize, Vec<u32>), Violation> {
    let machine = machine_of::<8>(BYTES, &Choices::quiet());
    let count = emptied_until_killed(&machine, point)?;
    let twins = values_of_twins(&machine, count);
    twins.iter().for_each(|(_, values)| flip_bit(&machine, values[which] + 700, 3));
    let settings = OpenSettings { mutations: mutations.clone(), ..small_settings() };
    let mut bad = Vec::new();
    for _ in 0..2 {
        let mut store = open_first(&machine, &settings)?;
        let is_bad = |number: &u32| {
            let found = store.get(KEYSPACE, &name(100 + number));
            !matches!(found, Ok(Some((_, value))) if value == long(*number))
        };
        bad.extend((0..count).filter(|number| stays(*number)).filter(is_bad));
    }
    Ok((twins.len(), bad))
}

#[test]
fn of_a_record_and_its_copy_the_one_with_a_whole_value_counts() {
    let (mut twins, mut caught) = (0, 0);
    for point in 0..POINTS {
        for which in 0..2 {
            let (count, bad) = rotten_twins(point, which, &Mutations::none()).unwrap();
            assert!(bad.is_empty(), "{bad:?} at point {point}, {which}");
            twins += count;
            if count > 0 {
                caught += rotten_twins(point, which, &Mutations::one("twins_not_compared")).unwrap().1.len();
            }
        }
    }
    assert!(twins > 0 && caught > 0, "{twins} twins, the mutation is caught {caught} times");
}
