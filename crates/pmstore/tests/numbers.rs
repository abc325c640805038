//! The numbers of a log's segments come round: what is written across that is there, whatever a crash takes.

use crate::common::lives::{Mix, Plan, sampled};
use crate::common::{
    Store, log_begins, machine, make_with_logs_from, open_one, reopen, reopen_after_kill, small_settings,
};
use std::collections::BTreeMap;
use tierstone_base::{KeyspaceId, SeededRandom};
use tierstone_media::sim::WordMachine;
use tierstone_pmstore::check::{CheckSettings, check};

const KEYSPACE: KeyspaceId = KeyspaceId(2);
/// The last number of a segment.
const LAST: u32 = u32::MAX - 1;

fn assert_holds(store: &mut Store, expected: &BTreeMap<u64, Vec<u8>>) {
    for (key, value) in expected {
        let found = store.get(KEYSPACE, &key.to_le_bytes()).unwrap().map(|(_, value)| value);
        assert_eq!(found.as_ref(), Some(value), "key {key}");
    }
}

fn assert_clean(machine: &WordMachine) {
    let settings = CheckSettings { base: small_settings().base, ..CheckSettings::default() };
    let report = check(std::sync::Arc::new(machine.region()), &settings, &mut |_| {}).unwrap();
    assert!(!report.is_damaged(), "{:?}", report.findings);
}

/// Lives of a few writes or of many, each of which ends in good order or by a kill.
fn comes_round(first: u32, seed: u64) {
    let settings = small_settings();
    let machine = machine(512 << 10);
    make_with_logs_from(&machine, &settings, first);
    let begins = || log_begins(&machine.region().image(), &settings, 0);
    assert_eq!(begins(), u64::from(first));
    let (mut random, mut expected) = (SeededRandom::new(seed), BTreeMap::new());
    let (mut store, _) = open_one(&machine, &settings);
    for _ in 0..40 {
        let writes = if random.chance(0.3) { 300 } else { random.below(20) };
        for _ in 0..writes {
            let (key, byte) = (random.below(60), random.below(256) as u8);
            let value = vec![byte; 20 + random.below(400) as usize];
            store.put(KEYSPACE, &key.to_le_bytes(), &value).unwrap();
            expected.insert(key, value);
        }
        store.sync().unwrap();
        store = match random.chance(0.5) {
            true => reopen(store, &machine, &settings),
            false => reopen_after_kill(store, &machine, &settings),
        };
        assert_clean(&machine);
        assert_holds(&mut store, &expected);
    }
    let turns = u64::from(settings.geometry.log_segments) * 3;
    assert!((turns..1_000_000).contains(&begins()), "the log begins at {}", begins());
}

#[test]
fn a_store_goes_on_when_the_numbers_of_its_log_come_round() {
    for (seed, before) in [0, 1, 2, 3, 5, 8].into_iter().enumerate() {
        comes_round(LAST - before, seed as u64);
    }
}

#[test]
fn crashes_lose_nothing_while_numbers_come_round() {
    let mut plan = Plan::new(160 << 10);
    (plan.steps, plan.lives, plan.kill_percent) = (1_200, 5, 40);
    let mix = Mix { operations: 70, value_bytes: 480, ..Mix::default() };
    for (seed, before) in [(1_700, 0), (1_710, 2), (1_720, 5)] {
        plan.logs_from = Some(LAST - before);
        sampled("numbers", seed, 120, &plan, &mix);
        sampled("numbers, short lives", seed + 2, 60, &plan, &Mix { operations: 6, ..mix.clone() });
    }
    plan.open.shard_count = 2;
    plan.bytes *= 2;
    sampled("numbers, two shards", 1_730, 120, &plan, &Mix { batches: 60, keys: 12, ..mix });
}
