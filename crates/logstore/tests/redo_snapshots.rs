//! Checkpoints of the index in the region of the redo log: what they save, when they count, and that no loss of power
//! or of the region makes one wrong. Every rule, switched off, is seen.

use crate::common;
use crate::common::lives::{Mix, Plan};
use crate::common::sampling::{caught, sampled_in_scopes};
use std::sync::Arc;
use tierstone_base::checksum::checksum;
use tierstone_base::{KeyspaceId, SeededRandom};
use tierstone_crash::Mutations;
use tierstone_engine::Engine;
use tierstone_engine::harness::Harness;
use tierstone_logstore::redo::format::{HEADER_BYTES, HEADER_PLACES, Layout, SLOT_HEADER_BYTES, SlotHeader};
use tierstone_logstore::{BuildReport, LogShard, OpenSettings, RedoMemory};
use tierstone_media::Wait;
use tierstone_media::region::{Region, WordRegion};
use tierstone_media::sim::{SimDevice, SimMedium};

const REDO_BYTES: u64 = 96 << 10;
const REGION_BYTES: u64 = 1 << 20;
const SEGMENT_BYTES: u64 = 64 << 10;
const KEYSPACE: KeyspaceId = KeyspaceId(1);

/// The crash mark `snapshot-committing` lies on the way of every exploration here.
fn cleaning() -> Mix {
    Mix { touches: 8, ..Mix::cleaning() }
}

fn under_cleaning() -> Plan {
    Plan::new(32 << 10, 16).checkpoints().cut_one_in(400).redo(REDO_BYTES)
}

#[test]
fn checkpoints_in_the_region_change_nothing() {
    let mix = Mix { operations: 60, batches: 20, keys: 14, touches: 8, settle_one_in: 9, ..Mix::default() };
    let mut plan = Plan::new(32 << 10, 24).checkpoints().cut_one_in(120).redo(REDO_BYTES);
    (plan.sim.cut_limit, plan.sim.end_cuts) = (4, 2);
    sampled_in_scopes("checkpoints", 100, 400, &plan, &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn cleaning_makes_a_checkpoint_in_the_region_void_first() {
    let mix = cleaning();
    sampled_in_scopes("cleaning", 200, 300, &under_cleaning(), &|world, life, choices| {
        mix.work(world, life, choices)
    });
}

#[test]
fn another_number_of_shards_finds_other_areas() {
    let mix = Mix { operations: 60, batches: 20, keys: 30, across: 15, settle_one_in: 8, ..Mix::default() };
    let mut plan = Plan::new(32 << 10, 30).checkpoints().cut_one_in(250).redo(3 * REDO_BYTES);
    plan.shards = vec![1, 3, 3, 2, 1, 1, 2];
    plan.sim.end_cuts = 3;
    sampled_in_scopes("shards", 300, 200, &plan, &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn a_killed_process_and_a_loss_of_power_after_it_find_the_checkpoint_or_the_summaries() {
    let mut plan = under_cleaning().cut_one_in(100);
    plan.kill_percent = 50;
    let mix = Mix { operations: 40, ..cleaning() };
    sampled_in_scopes("kill", 400, 200, &plan, &|world, life, choices| mix.work(world, life, choices));
}

#[test]
fn a_checkpoint_in_the_region_is_committed_when_the_device_has_what_it_points_to() {
    // Four slots of two blocks: groups of a long batch find none, and only the device answers for them.
    let plan = Plan::new(32 << 10, 24).checkpoints().redo(72 << 10);
    let mix = Mix { batches: 60, value_bytes_max: 3_000, batch_len_max: 9, keys: 9, ..Mix::default() };
    caught("redo_snapshot_committed_early", &plan, 3_000, &|world, life, choices| {
        mix.work(world, life, choices)
    });
}

#[test]
fn a_checkpoint_in_the_region_from_before_cleaning_does_not_count() {
    caught("redo_snapshot_stale", &under_cleaning(), 1_000, &|world, life, choices| {
        cleaning().work(world, life, choices)
    });
}

type Store = Harness<LogShard, SimDevice>;

/// How a store is opened here: with a region or without, and what it saves of its index.
#[derive(Clone, Default)]
struct How {
    region: Option<Arc<WordRegion>>,
    saves: bool,
    shards: u16,
    mutations: Mutations,
}

impl How {
    fn with(region: &Arc<WordRegion>) -> How {
        How { region: Some(Arc::clone(region)), saves: true, ..How::default() }
    }

    fn settings(&self) -> OpenSettings {
        let region = self.region.clone();
        let mut settings = OpenSettings {
            redo: region.map(|region| RedoMemory::new(region as Arc<dyn Region + Send + Sync>)),
            redo_loss_accepted: true,
            shard_count: self.shards.max(1),
            mutations: self.mutations.clone(),
            ..common::small_settings()
        };
        settings.shard.checkpoint_idle_ms = 0;
        settings.shard.checkpoint_tail_records_min = if self.saves { 1 } else { u64::MAX };
        settings
    }

    fn open_all(&self, medium: &SimMedium) -> Vec<(Store, BuildReport)> {
        let mut device = medium.device();
        let opened = tierstone_logstore::open(&mut device, &self.settings()).unwrap();
        let shards = opened.plans.into_iter().map(|plan| {
            let mut device = medium.device();
            let (shard, report) = plan.build(&mut device).unwrap();
            (Harness::new(shard, device, opened.hasher), report)
        });
        shards.collect()
    }

    fn open(&self, medium: &SimMedium) -> (Store, BuildReport) {
        self.open_all(medium).pop().expect("one shard")
    }
}

/// Everything reaches the device, and the index is saved if it may be.
fn rest(store: &mut Store) {
    for _ in 0..4 {
        store.now.monotonic_us += 1_500_000;
        store.settle(1_000);
    }
}

fn die(store: Store, medium: &SimMedium) {
    drop(store);
    medium.kill_process();
}

fn value(round: u64, number: u64, len: usize) -> Vec<u8> {
    [&round.to_le_bytes()[..], &vec![number as u8; len]].concat()
}

fn fill(store: &mut Store, numbers: std::ops::Range<u64>, round: u64, len: usize) {
    for number in numbers {
        store.put(KEYSPACE, &number.to_le_bytes(), &value(round, number, len)).unwrap();
    }
    store.sync().unwrap();
}

/// Whether keys have the values of these rounds.
fn holds(store: &mut Store, numbers: std::ops::Range<u64>, len: usize, round: impl Fn(u64) -> u64) -> bool {
    numbers.into_iter().all(|number| {
        let found = store.get(KEYSPACE, &number.to_le_bytes());
        found.is_ok_and(|found| found.is_some_and(|(_, bytes)| bytes == value(round(number), number, len)))
    })
}

fn written(store: &Store) -> (u64, u64) {
    let statistics = store.engine.statistics();
    (statistics.checkpoint_bytes_written, statistics.checkpoint_region_bytes_written)
}

/// A store of 500 keys whose index is saved in the region; its process died.
fn saved(region: &Arc<WordRegion>) -> SimMedium {
    let medium = common::medium(SEGMENT_BYTES, 24);
    let (mut store, report) = How::with(region).open(&medium);
    assert!(!report.from_checkpoint);
    fill(&mut store, 0..500, 0, 20);
    rest(&mut store);
    let (on_flash, in_region) = written(&store);
    assert!(on_flash == 0 && in_region > 500 * 7, "{on_flash} {in_region}");
    die(store, &medium);
    medium
}

#[test]
fn an_index_is_saved_in_the_region_and_loaded_from_there_after_a_kill_and_after_an_end() {
    let region = Arc::new(WordRegion::new(REGION_BYTES));
    let medium = saved(&region);
    for round in 1..4 {
        let (mut store, report) = How::with(&region).open(&medium);
        assert!(report.from_checkpoint, "opening {round}");
        assert!(holds(&mut store, 0..500, 20, |number| if number < 50 { round - 1 } else { 0 }));
        fill(&mut store, 0..50, round, 20);
        assert_eq!(written(&store).0, 0, "nothing on flash");
        match round {
            1 => die(store, &medium),
            2 => {
                rest(&mut store);
                die(store, &medium);
            }
            _ => {
                store.engine.shut();
                for _ in 0..10_000 {
                    if !store.engine.is_shut() {
                        store.turn(Wait::One);
                    }
                }
                assert!(store.engine.is_shut());
                drop(store);
            }
        }
    }
    let (mut store, report) = How::with(&region).open(&medium);
    assert_eq!((report.from_checkpoint, report.records, report.live), (true, 0, 500));
    assert!(holds(&mut store, 0..500, 20, |number| if number < 50 { 3 } else { 0 }));
}

#[test]
fn an_index_that_outgrows_its_area_goes_to_flash_and_ends_the_one_in_the_region() {
    // Areas of 20 KiB.
    let region = Arc::new(WordRegion::new(REDO_BYTES + (64 << 10)));
    let medium = common::medium(SEGMENT_BYTES, 60);
    let (mut store, _) = How::with(&region).open(&medium);
    fill(&mut store, 0..100, 0, 20);
    rest(&mut store);
    assert!(written(&store).0 == 0 && written(&store).1 > 0, "{:?}", written(&store));
    fill(&mut store, 0..9_000, 1, 20);
    rest(&mut store);
    assert!(written(&store).0 > 9_000 * 7, "{:?}", written(&store));
    die(store, &medium);
    let (mut store, report) = How::with(&region).open(&medium);
    assert_eq!((report.from_checkpoint, report.records, report.live), (true, 0, 9_000));
    assert!(holds(&mut store, 0..9_000, 20, |_| 1));
}

#[test]
fn another_number_of_shards_makes_the_checkpoint_void_for_good() {
    let region = Arc::new(WordRegion::new(REGION_BYTES));
    let medium = saved(&region);
    let two = How { shards: 2, saves: false, ..How::with(&region) };
    let shards = two.open_all(&medium);
    assert!(shards.iter().all(|(_, report)| !report.from_checkpoint));
    drop(shards);
    medium.kill_process();
    let (mut store, report) = How::with(&region).open(&medium);
    assert!(!report.from_checkpoint && holds(&mut store, 0..500, 20, |_| 0), "{report:?}");
}

#[test]
fn a_lost_region_takes_its_checkpoint_with_it_and_the_summaries_serve() {
    let region = Arc::new(WordRegion::new(REGION_BYTES));
    let medium = saved(&region);
    region.overwrite(0, &vec![0; REGION_BYTES as usize]);
    let (mut store, report) = How::with(&region).open(&medium);
    assert!(!report.from_checkpoint && holds(&mut store, 0..500, 20, |_| 0), "{report:?}");
}

#[test]
fn a_rotten_checkpoint_in_the_region_is_ignored() {
    let layout = Layout::of(REGION_BYTES, 1, 16 << 10).unwrap();
    let (from, saved_bytes) = (layout.snapshot_pieces(0, 0), 500 * 7);
    let mut refused = 0;
    for seed in 0..30 {
        let mut random = SeededRandom::new(seed);
        let region = Arc::new(WordRegion::new(REGION_BYTES));
        let medium = saved(&region);
        let mut copy = region.image();
        let commits = layout.snapshot_commit(0, 0)..layout.snapshot_commit(0, 0) + 88;
        let place = if random.chance(0.3) {
            commits.start + random.below(88)
        } else {
            from + random.below(layout.snapshot_bytes + saved_bytes)
        };
        copy[place as usize] ^= 1 << random.below(8);
        region.overwrite(0, &copy);
        let (mut store, report) = How::with(&region).open(&medium);
        refused += u32::from(!report.from_checkpoint);
        assert!(holds(&mut store, 0..500, 20, |_| 0), "seed {seed}");
    }
    println!("{refused} of 30 flipped bits made the checkpoint void");
    assert!(refused > 3);
}

/// Keys of which every third is never written again: cleaning moves them.
fn is_still(number: u64) -> bool {
    number.is_multiple_of(3)
}

/// Writes the others often enough that every segment is used again.
fn wear(store: &mut Store) {
    for round in 1..=12 {
        for number in (0..150).filter(|&number| !is_still(number)) {
            store.put(KEYSPACE, &number.to_le_bytes(), &value(round, number, 2_000)).unwrap();
        }
        store.settle(20);
    }
    rest(store);
    let statistics = store.engine.statistics();
    assert!(statistics.cleaned_bytes_written > 0, "nothing was cleaned");
}

fn is_worn(store: &mut Store) -> bool {
    holds(store, 0..150, 2_000, |number| if is_still(number) { 0 } else { 12 })
}

/// A store whose index is saved in `how`; its process died.
fn filled(how: &How, segments: u32) -> SimMedium {
    let medium = common::medium(SEGMENT_BYTES, segments);
    let (mut store, _) = how.open(&medium);
    fill(&mut store, 0..150, 0, 2_000);
    rest(&mut store);
    assert!(written(&store) != (0, 0), "the index was saved");
    die(store, &medium);
    medium
}

/// A region comes back after an opening without it that cleaned. Whether everything is there, in the next opening and
/// in the one after it, and whether one of them took the checkpoint.
fn after_an_opening_without_the_region(mutations: &Mutations) -> (bool, bool) {
    let region = Arc::new(WordRegion::new(REGION_BYTES));
    let medium = filled(&How::with(&region), 16);
    let (mut store, report) = How::default().open(&medium);
    assert!(!report.from_checkpoint);
    wear(&mut store);
    die(store, &medium);
    let back = How { saves: false, mutations: mutations.clone(), ..How::with(&region) };
    let (mut is_whole, mut is_taken) = (true, false);
    for _ in 0..2 {
        let (mut store, report) = back.open(&medium);
        is_taken |= report.from_checkpoint;
        is_whole &= is_worn(&mut store);
        die(store, &medium);
    }
    (is_whole, is_taken)
}

#[test]
fn a_checkpoint_of_a_region_that_comes_back_after_an_opening_without_it_does_not_count() {
    assert_eq!(after_an_opening_without_the_region(&Mutations::none()), (true, false));
    let mutations = Mutations::one("redo_snapshot_of_any_opening");
    assert_eq!(after_an_opening_without_the_region(&mutations), (false, true), "the mutation is not caught");
}

#[test]
fn what_does_not_count_when_the_region_is_divided_never_counts_again() {
    let mutations = Mutations::one("redo_snapshot_not_voided");
    assert_eq!(after_an_opening_without_the_region(&mutations), (false, true), "the mutation is not caught");
}

/// A checkpoint on flash, then one in the region, then cleaning; the region is lost. Whether everything is there.
fn after_a_checkpoint_on_flash(mutations: &Mutations) -> bool {
    let medium = filled(&How { saves: true, ..How::default() }, 19);
    let region = Arc::new(WordRegion::new(REGION_BYTES));
    let how = How { mutations: mutations.clone(), ..How::with(&region) };
    let (mut store, report) = how.open(&medium);
    assert!(report.from_checkpoint);
    (1..20).for_each(|round| fill(&mut store, 1..2, round, 2_000));
    rest(&mut store);
    let (on_flash, in_region) = written(&store);
    assert!(on_flash == 0 && in_region > 0, "{on_flash} {in_region}");
    wear(&mut store);
    die(store, &medium);
    region.overwrite(0, &vec![0; REGION_BYTES as usize]);
    is_worn(&mut how.open(&medium).0)
}

#[test]
fn an_older_checkpoint_on_flash_is_void_when_one_in_the_region_counts() {
    assert!(after_a_checkpoint_on_flash(&Mutations::none()));
    let mutations = Mutations::one("redo_snapshot_beside_flash");
    assert!(!after_a_checkpoint_on_flash(&mutations), "the mutation is not caught");
}

fn word(image: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(image[at..][..8].try_into().unwrap())
}

/// Makes of a region of one shard, none of whose groups is on the device, what the first version wrote: a header that knows
/// nothing of areas, and slots at the same places, in which nothing says what was durable.
fn first_version(image: &mut [u8]) {
    let mut slots = None;
    for place in HEADER_PLACES.map(|place| place as usize) {
        let magic = word(image, place);
        if magic != 0 {
            slots = Some((word(image, place + 16), word(image, place + 32) as u32, word(image, place + 40)));
            image[place + 8] = 1;
            image[place + 36..place + 40].fill(0);
            let sum = checksum(magic, &image[place..][..HEADER_BYTES - 8]);
            image[place + HEADER_BYTES - 8..][..8].copy_from_slice(&sum.to_le_bytes());
        }
    }
    let (store, slots, slot_bytes) = slots.unwrap();
    let layout = Layout { shards: 1, slots, slot_bytes, snapshot_bytes: 0 };
    image[layout.area(0) as usize..layout.slot(0, 0) as usize].fill(0);
    for place in (0..slots).map(|slot| layout.slot(0, slot) as usize) {
        let slot = &mut image[place..][..SLOT_HEADER_BYTES];
        if SlotHeader::decode(slot, store, true).is_some() {
            slot[72..].fill(0);
            let sum = checksum(store, &slot[..72]);
            slot[72..80].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

#[test]
fn a_region_of_the_first_version_is_replayed_and_divided_anew() {
    let region = Arc::new(WordRegion::new(REGION_BYTES));
    let medium = common::medium(SEGMENT_BYTES, 24);
    let (mut store, _) = How { saves: false, ..How::with(&region) }.open(&medium);
    fill(&mut store, 0..5, 0, 20);
    assert_eq!(store.engine.statistics().groups, 0, "the region alone has them");
    die(store, &medium);
    let mut copy = region.image();
    first_version(&mut copy);
    region.overwrite(0, &copy);
    let (mut store, _) = How::with(&region).open(&medium);
    assert!(holds(&mut store, 0..5, 20, |_| 0), "its groups are replayed");
    rest(&mut store);
    assert!(written(&store).1 > 0, "and it has areas now");
    die(store, &medium);
    let (mut store, report) = How::with(&region).open(&medium);
    assert!(report.from_checkpoint && holds(&mut store, 0..5, 20, |_| 0), "{report:?}");
}
