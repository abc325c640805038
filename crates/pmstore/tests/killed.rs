//! What a process has stored and not written back when it is killed is there for the next one, and gone with the power: an
//! opening makes durable what it finds before it relies on it.

use crate::common::{
    Store, cut_while_opened, log_begins, machine, machine_of, open_all, small_settings, table_and_data,
    word_at,
};
use std::sync::Arc;
use tierstone_base::KeyspaceId;
use tierstone_crash::{Choices, ExploreSettings, Mutations, Report, Violation, assert_caught, explore};
use tierstone_engine::{BatchTicket, Engine, Write, WriteKind};
use tierstone_media::Wait;
use tierstone_media::sim::{Killed, SimMachine, WordMachine, set_processor, until_killed};
use tierstone_pmstore::OpenSettings;

const KEYSPACE: KeyspaceId = KeyspaceId(2);
const BYTES: u64 = 256 << 10;

fn name(number: u32) -> Vec<u8> {
    format!("key-{number:05}").into_bytes()
}

fn with(mutations: &Mutations) -> OpenSettings {
    OpenSettings { mutations: mutations.clone(), ..small_settings() }
}

fn open_killable(machine: &SimMachine<8>, settings: &OpenSettings) -> (Arc<Killed<8>>, Vec<Store>) {
    let region = Killed::over(Arc::new(machine.region()));
    let (stores, ..) = open_all(&region, settings).unwrap();
    (region, stores)
}

/// A durable write, and a step.
fn put(store: &mut Store, number: u32) {
    store.put(KEYSPACE, &name(number), &[number as u8; 100]).unwrap();
    store.sync().unwrap();
    store.turn(Wait::Poll);
}

/// Segments of storage blocks in an image.
fn storage_segments(image: &[u8]) -> usize {
    let (table, data) = table_and_data(image, &small_settings());
    let words = (table..data).step_by(8).map(|at| word_at(image, at as usize));
    words.filter(|word| word & 0xff == 3).count()
}

/// After how many writes `told` of the memory changes for the `times`th time.
fn writes_until<T: PartialEq>(times: u32, told: impl Fn(&[u8]) -> T) -> u32 {
    let machine = machine(BYTES);
    let (_, mut stores) = open_killable(&machine, &small_settings());
    let (mut count, mut left, mut last) = (0, times, told(&machine.region().image()));
    while left > 0 {
        put(&mut stores[0], count);
        let next = told(&machine.region().image());
        (left, count) = (left - u32::from(next != last), count + 1);
        last = next;
    }
    count
}

/// A store whose process does `writes` writes, and is killed before a write-back or fence of the last of them.
fn killed_in_the_last(machine: &SimMachine<8>, writes: u32, point: u64) {
    let (region, mut stores) = open_killable(machine, &small_settings());
    (0..writes - 1).for_each(|number| put(&mut stores[0], number));
    region.kill_before(point);
    until_killed(|| put(&mut stores[0], writes - 1));
    drop(stores);
    machine.kill_process();
}

/// All of these keys are there, with what was put.
fn are_there(store: &mut Store, mut keys: impl Iterator<Item = u32>) -> Result<(), Violation> {
    keys.try_for_each(|number| {
        let found = store.get(KEYSPACE, &name(number))?.map(|(_, value)| value);
        Violation::unless(found.as_deref() == Some(&[number as u8; 100]), || {
            format!("key {number} is {found:?}")
        })
    })
}

fn open_first(machine: &SimMachine<8>, settings: &OpenSettings) -> Result<Store, Violation> {
    open_all(machine, settings)?.0.pop().ok_or_else(|| Violation::new("no shard".to_owned()))
}

/// The process is killed while it takes a segment, the next one puts records there, and power is lost.
fn killed_with_a_new_segment(writes: u32, point: u64, mutations: &Mutations) -> Result<(), Violation> {
    let machine = machine(BYTES);
    killed_in_the_last(&machine, writes, point);
    let mut settings = with(mutations);
    // No other segment is taken: its word may lie in the same line.
    settings.shard.clean_below_blocks = 10_000;
    let mut store = open_first(&machine, &settings)?;
    (1_000..1_050).for_each(|number| put(&mut store, number));
    for number in 0..100 {
        store.delete(KEYSPACE, &name(number))?;
        store.turn(Wait::Poll);
    }
    // The log is truncated behind them.
    (0..250).for_each(|number| put(&mut store, 2_000 + number % 10));
    drop(store);
    machine.cut_power();
    machine.power_on_after_loss();
    are_there(&mut open_first(&machine, &with(mutations))?, (100..writes - 1).chain(1_000..1_050))
}

#[test]
fn what_an_opening_finds_in_the_table_is_durable_before_it_relies_on_it() {
    // Words of the first eight segments lie in the line of the log's, which is written back with those.
    let writes = writes_until(5, storage_segments);
    for point in 0..16 {
        killed_with_a_new_segment(writes, point, &Mutations::none())
            .unwrap_or_else(|violation| panic!("point {point}: {violation}"));
    }
    let broken = Mutations::one("found_words_not_kept");
    let caught = (0..16).filter(|point| killed_with_a_new_segment(writes, *point, &broken).is_err()).count();
    println!("found_words_not_kept: caught at {caught} of 16 points");
    assert!(caught > 0, "the mutation is not caught");
}

/// The process is killed while it makes the store, the next one writes to it, and power is lost.
fn killed_while_made(point: u64, mutations: &Mutations) -> Result<(), Violation> {
    let machine = machine(BYTES);
    let region = Killed::over(Arc::new(machine.region()));
    region.kill_before(point);
    until_killed(|| drop(open_all(&region, &small_settings()).unwrap()));
    machine.kill_process();
    let mut store = open_first(&machine, &with(mutations))?;
    (0..20).for_each(|number| put(&mut store, number));
    drop(store);
    machine.cut_power();
    machine.power_on_after_loss();
    are_there(&mut open_first(&machine, &with(mutations))?, 0..20)
}

#[test]
fn a_store_that_an_opening_finds_made_is_so_durably_before_it_is_used() {
    for point in 0..30 {
        killed_while_made(point, &Mutations::none())
            .unwrap_or_else(|violation| panic!("point {point}: {violation}"));
    }
    let broken = Mutations::one("found_words_not_kept");
    let caught = (0..30).filter(|point| killed_while_made(*point, &broken).is_err()).count();
    println!("found_words_not_kept: caught at {caught} of 30 points");
    assert!(caught > 0, "the mutation is not caught");
}

/// The process is killed while it truncates the log, and power is lost while the next one opens the store.
fn killed_in_a_truncation(
    (writes, point): (u32, u64),
    choices: &Choices,
    mutations: &Mutations,
) -> Result<(), Violation> {
    let machine: WordMachine = machine_of(BYTES, choices);
    killed_in_the_last(&machine, writes, point);
    cut_while_opened(&machine, &with(mutations), 60);
    are_there(&mut open_first(&machine, &with(mutations))?, 0..writes - 1)
}

#[test]
fn where_an_opening_finds_the_log_to_begin_it_begins_durably() {
    let begins = |image: &[u8]| log_begins(image, &small_settings(), 0);
    // Segments that were never used are taken last: the first truncation leaves one, and what it frees is taken before that.
    let writes = writes_until(1, begins);
    // The write-back behind the store of the word.
    let point = (0..60).find(|point| {
        let machine = machine(BYTES);
        killed_in_the_last(&machine, writes, *point);
        begins(&machine.region().image()) > 1
    });
    let last = (writes, point.expect("the log was truncated"));
    let explored = |mutations: &Mutations, runs| -> Report {
        let settings = ExploreSettings { max_minimise_runs: 0, ..ExploreSettings::random(78, runs) };
        explore(settings, |choices| killed_in_a_truncation(last, choices, mutations))
    };
    explored(&Mutations::none(), 400).assert_clean();
    let name = "found_words_not_kept";
    println!("{}", assert_caught(name, || explored(&Mutations::one(name), 2_000)));
}

/// A batch over two shards is decided, the process of the shard that says so first is killed, and power is lost while the store
/// is opened.
fn killed_with_a_decided_part(choices: &Choices, mutations: &Mutations) -> Result<(), Violation> {
    let machine: WordMachine = machine_of(2 * BYTES, choices);
    let settings = OpenSettings { shard_count: 2, ..with(mutations) };
    let (region, mut stores) = open_killable(&machine, &settings);
    let names: Vec<_> = (0..8).map(name).collect();
    let ticket = BatchTicket::new(1, 2);
    for (shard, store) in (0..).zip(&mut stores) {
        set_processor(u32::from(shard) + 1);
        let own: Vec<_> =
            names.iter().filter(|name| store.key(KEYSPACE, name).position.shard(2) == shard).collect();
        let put = |value| WriteKind::Put { value, expiry_ms: 0, kind: Default::default() };
        for name in &own {
            store.put(KEYSPACE, name, &[1; 100])?;
        }
        store.sync()?;
        let writes: Vec<_> =
            own.iter().map(|name| Write { key: store.key(KEYSPACE, name), kind: put(&[2; 100]) }).collect();
        store.write_part(&writes, &ticket)?;
        if shard == 0 {
            store.sync()?;
        }
    }
    region.kill_before(choices.choose(8, "before which write-back or fence the process is killed"));
    until_killed(|| {
        stores[1].sync().unwrap();
        stores[1].settle(5);
    });
    drop(stores);
    machine.kill_process();
    cut_while_opened(&machine, &settings, 120);
    let (mut stores, ..) = open_all(&machine, &settings)?;
    let mut values = Vec::new();
    for name in &names {
        let position = stores[0].key(KEYSPACE, name).position;
        let found = stores[usize::from(position.shard(2))].get(KEYSPACE, name)?;
        values.push(found.map_or(0, |(_, value)| value[0]));
    }
    let is_whole = values.iter().all(|value| *value == values[0] && *value > 0);
    Violation::unless(is_whole, || format!("of a batch over two shards there is {values:?}"))
}

#[test]
fn a_verdict_that_an_opening_finds_is_durable_before_it_relies_on_it() {
    let explored = |mutations: &Mutations, runs| -> Report {
        let settings = ExploreSettings { max_minimise_runs: 0, ..ExploreSettings::random(79, runs) };
        explore(settings, |choices| killed_with_a_decided_part(choices, mutations))
    };
    explored(&Mutations::none(), 600).assert_clean();
    let name = "found_verdicts_not_kept";
    println!("{}", assert_caught(name, || explored(&Mutations::one(name), 3_000)));
}

/// The process is killed while it cleans blocks of which a snapshot keeps all that lives; the store is opened, and power is lost.
/// Whether it can be opened again, and all is there.
fn killed_while_kept_records_move(point: u64, mutations: &Mutations) -> Result<(), Violation> {
    let machine = machine(BYTES);
    let mut settings = small_settings();
    settings.shard.clean_below_blocks = 10_000;
    let (region, mut stores) = open_killable(&machine, &settings);
    let store = &mut stores[0];
    let fill = |store: &mut Store, keys: &mut dyn Iterator<Item = u32>| {
        for number in keys {
            store.put(KEYSPACE, &name(number), &[number as u8; 100]).unwrap();
        }
    };
    fill(store, &mut (0..100));
    let first = store.engine.snapshot(store.now)?;
    fill(store, &mut (0..100).step_by(2));
    store.engine.snapshot(store.now)?;
    fill(store, &mut (0..100));
    // The log is truncated behind all these.
    (0..300).for_each(|number| put(store, 200 + number % 30));
    region.kill_before(point);
    store.engine.release_snapshot(first);
    until_killed(|| (0..20).for_each(|_| store.turn(Wait::Poll)));
    drop(stores);
    machine.kill_process();
    let mut store = open_first(&machine, &with(mutations))?;
    are_there(&mut store, (0..100).chain(200..230))?;
    drop(store);
    machine.cut_power();
    machine.power_on_after_loss();
    are_there(&mut open_first(&machine, &with(mutations))?, (0..100).chain(200..230))
}

#[test]
fn what_an_opening_seals_is_durable_old_records_too() {
    for point in 0..60 {
        killed_while_kept_records_move(point, &Mutations::none())
            .unwrap_or_else(|violation| panic!("point {point}: {violation}"));
    }
    let broken = Mutations::one("unsealed_taken_for_durable");
    let caught = (0..60).filter(|point| killed_while_kept_records_move(*point, &broken).is_err()).count();
    println!("unsealed_taken_for_durable: caught at {caught} of 60 points");
    assert!(caught > 0, "the mutation is not caught");
}
