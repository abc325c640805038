//! A store of more segments than narrow entries of an index can name.

use crate::common::{Store, medium, small_settings};
use tierstone_base::KeyspaceId;
use tierstone_engine::Engine;
use tierstone_engine::harness::Harness;
use tierstone_logstore::{BuildReport, OpenSettings, open};
use tierstone_media::Wait;
use tierstone_media::sim::{SimDevice, SimMedium};

const KEYSPACE: KeyspaceId = KeyspaceId(1);
/// A record takes a block, a segment has six of them, with header and footer.
const SEGMENT_BYTES: u64 = 32 << 10;
const VALUE_BYTES: usize = 3_900;
/// They fill what narrow entries name, and some more.
const KEYS: u32 = 6 * (24_576 + 200);

fn value(number: u32, life: u8) -> Vec<u8> {
    let mut value = vec![life; VALUE_BYTES];
    value[..4].copy_from_slice(&number.to_le_bytes());
    value
}

fn opened(mut device: SimDevice, settings: &OpenSettings) -> (Store, BuildReport) {
    let mut opened = open(&mut device, settings).unwrap();
    let (shard, report) = opened.plans.pop().expect("one shard").build(&mut device).unwrap();
    (Harness::new(shard, device, opened.hasher), report)
}

fn reopened(mut store: Store, medium: &SimMedium, settings: &OpenSettings) -> (Store, BuildReport) {
    store.engine.shut();
    while !store.engine.is_shut() {
        store.turn(Wait::One);
    }
    drop(store);
    opened(medium.device(), settings)
}

/// Every `step`th key is there, as it was written in `life`.
fn check(store: &mut Store, step: usize, life: impl Fn(u32) -> u8) {
    for number in (0..KEYS).step_by(step) {
        let found = store.get(KEYSPACE, &number.to_le_bytes()).unwrap();
        let (_, found) = found.unwrap_or_else(|| panic!("{number} is not there"));
        assert!(found == value(number, life(number)), "{number}");
    }
}

#[test]
fn a_store_of_many_segments_finds_all_keys_and_so_it_does_from_its_checkpoint_and_its_summaries() {
    let mut settings = small_settings();
    settings.shard.memory_bytes = 4 << 20;
    settings.shard.checkpoint_idle_ms = 0;
    settings.shard.checkpoint_tail_records_min = 1;
    // Of so small segments writers leave many to the cleaner.
    let medium = medium(SEGMENT_BYTES, 90_000);
    let (mut store, _) = opened(medium.device(), &settings);
    for number in 0..KEYS {
        store.put(KEYSPACE, &number.to_le_bytes(), &value(number, 1)).unwrap();
    }
    store.sync().unwrap();
    check(&mut store, 13, |_| 1);
    store.settle(5_000);

    let (mut store, report) = reopened(store, &medium, &settings);
    assert_eq!((report.from_checkpoint, report.records), (true, 0));
    check(&mut store, 29, |_| 1);
    // Cleaning moves what lies where only wide entries point to.
    let is_new = |number: u32| number.is_multiple_of(97);
    for number in (0..KEYS).filter(|number| is_new(*number)) {
        store.put(KEYSPACE, &number.to_le_bytes(), &value(number, 2)).unwrap();
    }
    let life = |number: u32| if is_new(number) { 2 } else { 1 };
    check(&mut store, 29, life);

    drop(store);
    let (mut store, report) = opened(medium.kill_process(), &settings);
    assert_eq!(report.live, u64::from(KEYS));
    check(&mut store, 31, life);
}

#[test]
fn a_device_of_more_segments_than_a_place_can_name_is_refused() {
    let mut device = medium(SEGMENT_BYTES, 122_881).device();
    let Err(error) = open(&mut device, &small_settings()) else { panic!("it is not refused") };
    assert!(error.message().contains("a store has at most 122880"), "{error}");
    open(&mut medium(SEGMENT_BYTES, 122_880).device(), &small_settings()).unwrap();
}
