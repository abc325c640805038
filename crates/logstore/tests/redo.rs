//! The redo log in persistent memory: device and region lose power together, at any step of either, and whatever
//! was answered for after a fence is there. Every rule of order, switched off, is seen.

use crate::common;
use crate::common::lives::{Mix, Plan};
use crate::common::sampling::{caught, sampled_in_scopes};
use std::sync::Arc;
use tierstone_base::{ErrorKind, KeyspaceId};
use tierstone_crash::{Choices, Mutations, SurvivorSettings};
use tierstone_engine::harness::Harness;
use tierstone_engine::{BatchTicket, Engine, Write, WriteKind};
use tierstone_logstore::format::superblock::META_BYTES;
use tierstone_logstore::{LogShard, OpenReport, OpenSettings, RedoMemory};
use tierstone_media::Wait;
use tierstone_media::region::{Region, WordRegion};
use tierstone_media::sim::{Killed, SimDevice, SimMedium, until_killed};

const REDO_BYTES: u64 = 96 << 10;
const KEYSPACE: KeyspaceId = KeyspaceId(1);

fn cleaning() -> Mix {
    Mix { expiring: 8, ..Mix::cleaning() }
}

fn small() -> Plan {
    Plan::new(32 << 10, 12).redo(REDO_BYTES)
}

fn batches() -> Mix {
    Mix { batches: 60, value_bytes_max: 3_000, batch_len_max: 9, operations: 24, keys: 9, ..Mix::default() }
}

fn across() -> Mix {
    Mix { across: 60, value_bytes_max: 2_000, batch_len_max: 6, operations: 24, keys: 9, ..Mix::default() }
}

#[test]
fn what_was_answered_after_a_fence_survives_every_sampled_crash() {
    let mix = Mix { touches: 10, loads: 5, ..Mix::default() };
    sampled_in_scopes("single", 100, 1_200, &small(), &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn batches_over_groups_and_segments_are_all_or_nothing() {
    let mix = batches();
    let plan = Plan::new(32 << 10, 16).redo(REDO_BYTES);
    sampled_in_scopes("batches", 200, 800, &plan, &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn cleaning_under_a_redo_log_loses_nothing_and_brings_nothing_back() {
    let mix = cleaning();
    let plan = Plan::new(32 << 10, 9).cut_one_in(300).redo(REDO_BYTES);
    sampled_in_scopes("cleaning", 300, 600, &plan, &|world, life, choices| mix.work(world, life, choices));
}

/// The crash marks `replayed-not-void` and `region-divided` lie on its way.
#[test]
fn replay_cut_again_and_again_ends_the_same() {
    let mix = Mix { operations: 20, batches: 30, ..Mix::default() };
    let mut plan = Plan::new(32 << 10, 10).cut_one_in(40).redo(REDO_BYTES);
    (plan.sim.cut_limit, plan.sim.end_cuts) = (4, 2);
    sampled_in_scopes("replay", 400, 600, &plan, &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn any_number_of_shards_takes_over_the_redo_logs_of_others() {
    let mix = Mix { operations: 60, batches: 20, keys: 30, across: 15, settle_one_in: 10, ..Mix::default() };
    let mut plan = Plan::new(32 << 10, 30).cut_one_in(250).redo(3 * REDO_BYTES);
    plan.shards = vec![1, 3, 2, 1, 2];
    plan.sim.end_cuts = 3;
    sampled_in_scopes("shards", 500, 300, &plan, &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn a_killed_process_and_a_loss_of_power_after_it_lose_nothing() {
    let mut plan = small();
    plan.kill_percent = 50;
    let mix = Mix { operations: 20, batches: 20, ..Mix::default() };
    sampled_in_scopes("kill", 700, 400, &plan, &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn checkpoints_of_the_index_change_nothing_under_a_redo_log() {
    let mix = Mix { operations: 60, batches: 20, keys: 14, settle_one_in: 9, ..Mix::default() };
    let mut plan = Plan::new(32 << 10, 24).checkpoints().cut_one_in(120).redo(REDO_BYTES);
    (plan.sim.cut_limit, plan.sim.end_cuts) = (4, 2);
    sampled_in_scopes("checkpoints", 800, 400, &plan, &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn groups_that_find_no_slot_are_answered_for_by_the_device() {
    // Four slots of two blocks: most batches are longer.
    let plan = Plan::new(32 << 10, 16).redo(42 << 10);
    let mix = batches();
    sampled_in_scopes("no slot", 900, 600, &plan, &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn a_group_at_the_end_of_its_segment_is_replayed_though_its_slot_is_longer_than_what_is_left() {
    let mut plan = Plan::new(64 << 10, 12).cut_one_in(600).redo(2 * REDO_BYTES);
    plan.open.shard.group_bytes_max = 16 << 10;
    let mix = Mix { operations: 160, value_bytes_max: 3_000, deletes: 5, ..Mix::default() };
    sampled_in_scopes("end of segment", 1_000, 400, &plan, &|world, life, choices| {
        mix.work(world, life, choices)
    });
}

#[test]
fn nothing_is_answered_before_its_fence() {
    caught("redo_answered_before_fence", &small(), 300, &|world, life, choices| {
        Mix::default().work(world, life, choices)
    });
}

#[test]
fn an_answer_that_a_key_has_expired_is_in_the_redo_log_too() {
    let plan = Plan { set_back_ms: 200, ..Plan::new(32 << 10, 9).cut_one_in(60).redo(REDO_BYTES) };
    caught("redo_past_not_kept", &plan, 1_000, &common::sampling::expiring);
}

#[test]
fn a_group_is_whole_before_the_next_one_begins() {
    caught("redo_closed_unfenced", &small(), 1_000, &|world, life, choices| {
        batches().work(world, life, choices)
    });
}

#[test]
fn what_lies_behind_a_group_without_slot_waits_for_it() {
    let plan = Plan::new(32 << 10, 16).redo(42 << 10);
    caught("redo_gap_answered", &plan, 2_000, &|world, life, choices| batches().work(world, life, choices));
}

#[test]
fn the_redo_log_is_truncated_when_the_device_has_it() {
    caught("redo_truncated_early", &small(), 1_000, &|world, life, choices| {
        batches().work(world, life, choices)
    });
}

#[test]
fn the_redo_log_is_truncated_before_a_segment_gets_another_life() {
    let plan = Plan::new(32 << 10, 9).cut_one_in(400).redo(REDO_BYTES);
    caught("redo_not_truncated", &plan, 1_000, &|world, life, choices| cleaning().work(world, life, choices));
}

#[test]
fn the_region_is_void_when_the_device_has_what_it_held() {
    let mut plan = small().cut_one_in(30);
    (plan.sim.cut_limit, plan.sim.end_cuts) = (4, 2);
    caught("redo_voided_early", &plan, 2_000, &|world, life, choices| {
        Mix::default().work(world, life, choices)
    });
}

#[test]
fn the_region_is_void_before_recovery_changes_anything() {
    let mut plan = Plan::new(32 << 10, 24).cut_one_in(60).redo(3 * REDO_BYTES);
    plan.shards = vec![3];
    (plan.sim.cut_limit, plan.sim.end_cuts) = (4, 2);
    caught("redo_not_voided", &plan, 4_000, &|world, life, choices| across().work(world, life, choices));
}

#[test]
fn a_part_of_a_batch_counts_when_it_has_been_fenced() {
    let mut plan = Plan::new(32 << 10, 24).redo(3 * REDO_BYTES);
    plan.shards = vec![3];
    caught("redo_part_counted_early", &plan, 2_000, &|world, life, choices| {
        across().work(world, life, choices)
    });
}

#[test]
fn watermarks_begin_anew_with_every_opening() {
    caught("redo_watermark_stays", &small(), 1_000, &|world, life, choices| {
        batches().work(world, life, choices)
    });
}

#[test]
fn the_header_is_durable_before_the_superblock_names_its_opening() {
    caught("redo_header_unfenced", &small(), 1_000, &|world, life, choices| {
        Mix::default().work(world, life, choices)
    });
}

#[test]
fn the_region_is_void_durably_before_recovery_changes_anything() {
    let mut plan = Plan::new(32 << 10, 24).cut_one_in(60).redo(3 * REDO_BYTES);
    plan.shards = vec![3];
    (plan.sim.cut_limit, plan.sim.end_cuts) = (4, 2);
    caught("redo_void_unfenced", &plan, 1_500, &|world, life, choices| across().work(world, life, choices));
}

#[test]
fn the_redo_log_is_truncated_durably_before_a_segment_gets_another_life() {
    let plan = Plan::new(32 << 10, 9).cut_one_in(400).redo(REDO_BYTES);
    caught("redo_truncated_unfenced", &plan, 1_000, &|world, life, choices| {
        cleaning().work(world, life, choices)
    });
}

type Opened = (Harness<LogShard, SimDevice>, OpenReport);

fn open_seeded(
    (seed, mutations): (u64, Mutations),
    medium: &SimMedium,
    region: Option<&Arc<WordRegion>>,
    accepts_loss: bool,
) -> tierstone_base::Result<Opened> {
    let redo = region.map(|region| RedoMemory::new(Arc::clone(region) as Arc<dyn Region + Send + Sync>));
    let settings =
        OpenSettings { redo, redo_loss_accepted: accepts_loss, seed, mutations, ..common::small_settings() };
    let mut device = medium.device();
    let mut opened = tierstone_logstore::open(&mut device, &settings)?;
    let (shard, _) = opened.plans.pop().expect("one shard").build(&mut device)?;
    Ok((Harness::new(shard, device, opened.hasher), opened.report))
}

fn open(
    medium: &SimMedium,
    region: Option<&Arc<WordRegion>>,
    accepts_loss: bool,
) -> tierstone_base::Result<Opened> {
    open_seeded((7, Mutations::none()), medium, region, accepts_loss)
}

/// Persistent memory that nothing was written to; its power stays on.
fn blank(bytes: u64) -> Arc<WordRegion> {
    Arc::new(WordRegion::new(bytes))
}

/// A store with the value `new` of `key` in the redo log only, and `old` before it on the device; then its process
/// dies.
fn killed(region: &Arc<WordRegion>) -> SimMedium {
    let medium = common::medium(64 << 10, 16);
    let (mut store, report) = open(&medium, Some(region), false).unwrap();
    assert!(report.created && report.redo_bytes_wanted == 0, "{report:?}");
    store.put(KEYSPACE, b"key", b"old").unwrap();
    store.now.monotonic_us += 2_000_000;
    store.settle(200);
    let before = store.engine.statistics().groups;
    assert!(before > 0, "the old value reached the device");
    store.put(KEYSPACE, b"key", b"new").unwrap();
    store.sync().unwrap();
    assert_eq!(store.engine.statistics().groups, before, "the new value was answered for without the device");
    drop(store);
    medium.kill_process();
    medium
}

fn value(store: &mut Harness<LogShard, SimDevice>) -> Vec<u8> {
    store.get(KEYSPACE, b"key").unwrap().expect("the key is there").1
}

#[test]
fn an_acknowledged_write_waits_for_a_fence_and_for_no_device() {
    let region = blank(1 << 20);
    let medium = killed(&region);
    let (mut store, report) = open(&medium, Some(&region), false).unwrap();
    assert_eq!((value(&mut store), report.redo_groups, report.redo_lost), (b"new".to_vec(), 1, false));
}

#[test]
fn an_answer_that_a_key_has_expired_waits_for_a_fence_though_all_writes_were_answered_for() {
    let region = blank(1 << 20);
    let (mut store, _) = open(&common::medium(64 << 10, 16), Some(&region), false).unwrap();
    let kind = WriteKind::Put { value: b"value", expiry_ms: 1_500, kind: Default::default() };
    store.write(&[Write { key: store.key(KEYSPACE, b"key"), kind }]).unwrap();
    store.engine.flush(store.now);
    assert_eq!(store.engine.decided_seq(), store.engine.applied_seq(), "the write is answered for");
    store.now.wall_ms = 2_000;
    store.turn(Wait::Poll);
    assert!(store.get(KEYSPACE, b"key").unwrap().is_none());
    assert!(store.engine.decided_seq() < store.engine.past_gate(), "the answer waits");
    store.engine.flush(store.now);
    assert!(store.engine.decided_seq() >= store.engine.past_gate());
}

#[test]
fn a_store_without_its_region_is_opened_only_when_the_loss_is_accepted() {
    let region = blank(1 << 20);
    let medium = killed(&region);
    let refused = |given: Option<&Arc<WordRegion>>, why: &str| {
        let error = open(&medium, given, false).expect_err("what is lost is not passed over");
        assert!(error.kind() == ErrorKind::InvalidInput && error.message().contains(why), "{error}");
    };
    refused(None, "no region was given");
    refused(Some(&blank(1 << 20)), "blank");
    let copy = region.image();
    let (store, _) = open(&medium, Some(&region), false).unwrap();
    drop(store);
    medium.kill_process();
    region.overwrite(0, &copy);
    refused(Some(&region), "older copy");
    let (mut store, report) = open(&medium, None, true).unwrap();
    assert!(report.redo_lost);
    assert_eq!(value(&mut store), b"new", "the opening in between had brought it to the device");
}

#[test]
fn a_lost_region_leaves_what_the_device_has() {
    let medium = killed(&blank(1 << 20));
    let region = blank(1 << 20);
    let (mut store, report) = open(&medium, Some(&region), true).unwrap();
    assert!(report.redo_lost && value(&mut store) == b"old", "{report:?}");
    // From now on the blank region is the store's.
    store.put(KEYSPACE, b"key", b"newer").unwrap();
    store.sync().unwrap();
    drop(store);
    medium.kill_process();
    let (mut store, report) = open(&medium, Some(&region), false).unwrap();
    assert!(!report.redo_lost && value(&mut store) == b"newer", "{report:?}");
}

#[test]
fn the_region_of_another_store_is_left_alone() {
    let region = blank(1 << 20);
    let medium = killed(&region);
    let other = common::medium(64 << 10, 16);
    let error =
        open_seeded((8, Mutations::none()), &other, Some(&region), true).expect_err("it is needed elsewhere");
    assert!(error.kind() == ErrorKind::InvalidInput && error.message().contains("another store"), "{error}");
    let (mut store, _) = open(&medium, Some(&region), false).unwrap();
    assert_eq!(value(&mut store), b"new");
}

#[test]
fn a_region_that_is_too_small_is_not_used_and_the_report_says_so() {
    let medium = common::medium(64 << 10, 16);
    let region = blank(16 << 10);
    let (mut store, report) = open(&medium, Some(&region), false).unwrap();
    assert!(report.redo_bytes_wanted > 16 << 10, "{report:?}");
    store.put(KEYSPACE, b"key", b"value").unwrap();
    store.sync().unwrap();
    assert!(store.engine.statistics().groups > 0, "the device answers");
    drop(store);
    medium.kill_process();
    let (mut store, _) = open(&medium, None, false).unwrap();
    assert_eq!(value(&mut store), b"value");
}

/// How often everything is written again in the opening without the region.
const ROUNDS: u64 = 16;

/// Whether everything is there when a region comes back after an opening without it, in which every segment was
/// written anew.
fn is_whole_after_the_region_comes_back(mutations: Mutations) -> bool {
    let region = blank(1 << 20);
    let medium = killed(&region);
    let (mut store, _) = open(&medium, None, true).unwrap();
    let value = |number: u64| vec![number as u8; 1_500];
    for round in 0..ROUNDS {
        for number in 0..300u64 {
            store.put(KEYSPACE, &number.to_le_bytes(), &value(round + number)).unwrap();
        }
        store.settle(20);
    }
    let statistics = store.engine.statistics();
    assert!(
        statistics.record_bytes_written > 2 * statistics.space_capacity_bytes,
        "every segment was used again"
    );
    store.sync().unwrap();
    drop(store);
    medium.kill_process();
    let Ok((mut store, report)) = open_seeded((7, mutations), &medium, Some(&region), false) else {
        return false;
    };
    let mut holds = |number: u64| {
        let found = store.get(KEYSPACE, &number.to_le_bytes());
        found.is_ok_and(|found| found.is_some_and(|(_, bytes)| bytes == value(ROUNDS - 1 + number)))
    };
    (0..300).all(&mut holds) && report.damaged_segments.is_empty()
}

#[test]
fn a_region_that_comes_back_after_an_opening_without_it_is_not_replayed() {
    assert!(is_whole_after_the_region_comes_back(Mutations::none()));
    assert!(
        !is_whole_after_the_region_comes_back(Mutations::one("redo_old_replayed")),
        "the mutation is not caught"
    );
}

/// Both shards of a store.
fn open_two(
    medium: &SimMedium,
    region: &Arc<WordRegion>,
    mutations: Mutations,
    accepts_loss: bool,
) -> [Harness<LogShard, SimDevice>; 2] {
    let redo = Some(RedoMemory::new(Arc::clone(region) as Arc<dyn Region + Send + Sync>));
    let shard_count = 2;
    let settings = OpenSettings {
        shard_count,
        redo,
        redo_loss_accepted: accepts_loss,
        mutations,
        ..common::small_settings()
    };
    let mut device = medium.device();
    let opened = tierstone_logstore::open(&mut device, &settings).unwrap();
    let mut shards = opened.plans.into_iter().map(|plan| {
        let mut device = medium.device();
        Harness::new(plan.build(&mut device).unwrap().0, device, opened.hasher)
    });
    [shards.next().unwrap(), shards.next().unwrap()]
}

/// A key of each of two shards.
fn keys_of_two(store: &Harness<LogShard, SimDevice>) -> [Vec<u8>; 2] {
    [0, 1].map(|shard| {
        let mut keys = (0u32..).map(|number| format!("key{number}").into_bytes());
        let is_its = |key: &Vec<u8>| store.key(KEYSPACE, key).position.shard(2) == shard;
        keys.find(is_its).unwrap()
    })
}

fn put_of<'k>(store: &Harness<LogShard, SimDevice>, key: &'k [u8], value: &'k [u8]) -> Write<'k> {
    Write {
        key: store.key(KEYSPACE, key),
        kind: WriteKind::Put { value, expiry_ms: 0, kind: Default::default() },
    }
}

/// Time for groups and for what logs say of batches.
fn rest(store: &mut Harness<LogShard, SimDevice>) {
    for _ in 0..4 {
        store.now.monotonic_us += 1_000_000;
        store.settle(200);
    }
}

/// A batch over two shards is answered for by their regions; the device then gets the first shard's part, and what
/// that shard knows of the batch, and the process dies. `undone`: another batch has put the first shard's key back to
/// the batch's value meanwhile. Gives both values as the next opening finds them.
fn batch_of_two(mutations: Mutations, is_lost: bool, undone: bool) -> [Vec<u8>; 2] {
    let region = blank(1 << 20);
    let medium = common::medium(64 << 10, 24);
    let mut stores = open_two(&medium, &region, mutations, false);
    let keys = keys_of_two(&stores[0]);
    for (store, key) in stores.iter_mut().zip(&keys) {
        store.put(KEYSPACE, key, b"old").unwrap();
        rest(store);
    }
    let ticket = BatchTicket::new(1, 2);
    let mut part = |shard: usize| {
        let write = put_of(&stores[shard], &keys[shard], b"new");
        let seq = stores[shard].write_part(&[write], &ticket).unwrap();
        let now = stores[shard].now;
        stores[shard].engine.flush(now);
        seq
    };
    let seqs = [0, 1].map(&mut part);
    assert!(ticket.is_kept() && !ticket.is_decided(), "the regions answer, the device has nothing");
    for (store, seq) in stores.iter().zip(seqs) {
        assert!(store.engine.decided_seq() >= seq, "a part waits for the device");
    }
    let [first, _] = &mut stores;
    if undone {
        let refused = BatchTicket::new(2, 2);
        first.write_part(&[put_of(first, &keys[0], b"other")], &refused).unwrap();
        let write = put_of(first, &keys[0], b"new");
        match first.engine.undo_part(first.now, &[write], &refused) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::Retry, "{error}"),
        }
    }
    rest(first);
    drop(stores);
    medium.kill_process();
    let region = if is_lost { blank(1 << 20) } else { region };
    let mut stores = open_two(&medium, &region, Mutations::none(), is_lost);
    [0, 1].map(|shard| stores[shard].get(KEYSPACE, &keys[shard]).unwrap().expect("the key is there").1)
}

#[test]
fn a_batch_over_shards_is_answered_for_by_the_regions_and_lost_with_them_as_a_whole() {
    let (old, new) = (b"old".to_vec(), b"new".to_vec());
    assert_eq!(batch_of_two(Mutations::none(), false, false), [new.clone(), new.clone()]);
    assert_eq!(batch_of_two(Mutations::none(), true, false), [old.clone(), old.clone()]);
    let torn = batch_of_two(Mutations::one("redo_parts_decided_by_region"), true, false);
    assert_eq!(torn, [new, old], "the mutation is not caught");
}

#[test]
fn what_takes_a_batch_back_waits_until_the_device_has_the_batch_before() {
    let (old, new) = (b"old".to_vec(), b"new".to_vec());
    assert_eq!(batch_of_two(Mutations::none(), false, true), [new.clone(), new.clone()]);
    assert_eq!(batch_of_two(Mutations::none(), true, true), [old.clone(), old.clone()]);
    let torn = batch_of_two(Mutations::one("redo_undo_not_delayed"), true, true);
    assert_eq!(torn, [new, old], "the mutation is not caught");
}

/// Opens a store and kills the process before the write-back or fence of number `point`. Whether it came so far.
fn killed_while_opened(
    medium: &SimMedium,
    region: &Arc<WordRegion>,
    point: u64,
    mutations: &Mutations,
) -> bool {
    let killable = Killed::over(Arc::clone(region));
    killable.kill_before(point);
    let redo = Some(RedoMemory::new(killable));
    let settings = OpenSettings { redo, mutations: mutations.clone(), ..common::small_settings() };
    let was_killed =
        until_killed(|| drop(tierstone_logstore::open(&mut medium.device(), &settings).unwrap()));
    medium.kill_process();
    was_killed
}

/// An opening replays a region, makes it void, and its process is killed before that is written back; the next one finds it void,
/// and is killed at `point`. Whether the device has changed in it, and whether the region is one that is replayed when
/// power is lost.
fn void_not_written_back(point: u64, mutations: &Mutations) -> Option<(bool, bool)> {
    let region = blank(1 << 20);
    let medium = killed(&region);
    assert!(killed_while_opened(&medium, &region, 0, &Mutations::none()));
    let header = |region: &Arc<WordRegion>| {
        let memory = RedoMemory::new(Arc::clone(region) as Arc<dyn Region + Send + Sync>);
        memory.header().unwrap().expect("there is a header")
    };
    let found = header(&region);
    assert!(found.is_void, "it was stored");
    let device = || medium.peek(0, (META_BYTES + 16 * (64 << 10)) as usize);
    let before = device();
    if !killed_while_opened(&medium, &region, point, mutations) {
        return None;
    }
    region.lose_power(&Choices::quiet(), &SurvivorSettings::default());
    let left = header(&region);
    Some((device() != before, !left.is_void && left.opening == found.opening))
}

#[test]
fn a_region_that_is_found_void_is_so_durably_before_anything_is_written() {
    let all = |mutations: &Mutations| -> Vec<(bool, bool)> {
        (0..).map_while(|point| void_not_written_back(point, mutations)).collect()
    };
    let clean = all(&Mutations::none());
    assert!(clean.contains(&(true, false)), "{clean:?}");
    assert!(!clean.contains(&(true, true)), "{clean:?}");
    let broken = all(&Mutations::one("redo_found_void_not_kept"));
    assert!(broken.contains(&(true, true)), "the mutation is not caught: {broken:?}");
}
