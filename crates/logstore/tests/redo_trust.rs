//! Damage of what was durable in the redo log is told, and what a loss of power may leave is never called damage.
//!
//! That the second holds says every test of `redo.rs`: a store that refuses to open is a violation there. Here its rules
//! are switched off, and copies of regions are damaged.

use crate::common;
use crate::common::lives::{Mix, Plan};
use crate::common::sampling::caught;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use tierstone_base::{ErrorKind, KeyspaceId, SeededRandom};
use tierstone_crash::{Choices, Mutations, sampled_runs, sampled_seed};
use tierstone_engine::harness::Harness;
use tierstone_engine::{BatchTicket, Engine, Write, WriteKind};
use tierstone_logstore::format::superblock::Superblock;
use tierstone_logstore::redo::{Survey, survey};
use tierstone_logstore::{LogShard, OpenReport, OpenSettings, RedoMemory};
use tierstone_media::region::{Region, WordRegion};
use tierstone_media::sim::{PowerCut, SimDevice, SimMachineSettings, SimMedium, WordMachine};
use tierstone_media::{BlockDevice, IoBuffer, IoKind, IoRequest, Wait};

const KEYSPACE: KeyspaceId = KeyspaceId(1);
const REDO_BYTES: u64 = 96 << 10;
const KEYS: u64 = 40;
/// Where the shard's line lies, and where its slots do.
const LINE_AT: usize = 8192;
const SLOTS_AT: usize = LINE_AT + 64;

fn batches() -> Mix {
    Mix { batches: 60, value_bytes_max: 3_000, batch_len_max: 9, operations: 24, keys: 9, ..Mix::default() }
}

fn plan() -> Plan {
    Plan::new(32 << 10, 12).redo(REDO_BYTES)
}

#[test]
fn a_record_says_nothing_of_what_no_fence_made_durable() {
    caught("redo_claimed_early", &plan(), 2_000, &|world, life, choices| {
        batches().work(world, life, choices)
    });
}

#[test]
fn the_mark_is_stored_after_the_fence() {
    caught("redo_marked_early", &plan(), 2_000, &|world, life, choices| batches().work(world, life, choices));
}

type Opened = (Harness<LogShard, SimDevice>, OpenReport);

fn settings(region: &Arc<WordRegion>, accepts_loss: bool) -> OpenSettings {
    let redo = Some(RedoMemory::new(Arc::clone(region) as Arc<dyn Region + Send + Sync>));
    let mut settings =
        OpenSettings { redo, redo_loss_accepted: accepts_loss, seed: 7, ..common::small_settings() };
    settings.shard.group_bytes_max = 8 << 10;
    settings
}

fn open_with(medium: &SimMedium, settings: &OpenSettings) -> tierstone_base::Result<Opened> {
    let mut device = medium.device();
    let mut opened = tierstone_logstore::open(&mut device, settings)?;
    let (shard, _) = opened.plans.pop().expect("one shard").build(&mut device)?;
    Ok((Harness::new(shard, device, opened.hasher), opened.report))
}

fn open(medium: &SimMedium, region: &Arc<WordRegion>, accepts_loss: bool) -> tierstone_base::Result<Opened> {
    open_with(medium, &settings(region, accepts_loss))
}

fn region_of(image: &[u8]) -> Arc<WordRegion> {
    let region = Arc::new(WordRegion::new(image.len() as u64));
    region.overwrite(0, image);
    region
}

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

/// A store as its process left it, and what was answered for.
struct Left {
    medium: SimMedium,
    image: Vec<u8>,
    contents: Contents,
    history: BTreeMap<Vec<u8>, Vec<Vec<u8>>>,
    /// Keys written by the last fences, the newest first, and the bytes of what was written with them.
    newest: Vec<(Vec<u8>, usize)>,
}

/// A key of this test.
fn key(number: u64) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

/// A store after puts, deletions and cleanings, killed while its redo log had what the device had not.
fn left(seed: u64) -> Left {
    let mut random = SeededRandom::new(seed);
    let medium = common::medium(32 << 10, 12);
    let region = Arc::new(WordRegion::new(REDO_BYTES));
    let (mut store, _) = open(&medium, &region, false).unwrap();
    let (mut contents, mut history) = (Contents::new(), BTreeMap::<_, Vec<Vec<u8>>>::new());
    let mut newest = Vec::new();
    let writes = 260 + random.below(60);
    for number in 0..writes {
        let key = key(random.below(KEYS));
        let mut value = vec![0; random.below(500) as usize];
        if random.chance(0.2) {
            store.delete(KEYSPACE, &key).unwrap();
            contents.remove(&key);
        } else {
            random.fill(&mut value);
            store.put(KEYSPACE, &key, &value).unwrap();
            history.entry(key.clone()).or_default().push(value.clone());
            contents.insert(key.clone(), value.clone());
        }
        // At the end the device falls behind.
        if number < 230 {
            store.now.monotonic_us += random.below(100_000);
            store.turn(Wait::Poll);
        }
        store.engine.flush(store.now);
        newest.insert(0, (key, value.len()));
    }
    assert_eq!(store.engine.decided_seq(), store.engine.applied_seq(), "all was answered for");
    drop(store);
    Left { medium, image: region.image(), contents, history, newest }
}

impl Left {
    /// The device as it is after the process has died; nothing of what was being written may be there.
    fn medium(&self) -> SimMedium {
        self.medium.crashed_copy(&Choices::quiet())
    }

    /// Opens a copy with damage; whatever it shows is right, but for keys of `excused`. Whether it was refused.
    fn is_refused(&self, image: &[u8], excused: &[&[u8]], what: &str) -> bool {
        let (mut store, report) = match open(&self.medium(), &region_of(image), false) {
            Ok(opened) => opened,
            Err(error) => {
                let kinds = [ErrorKind::Corrupt, ErrorKind::Incompatible, ErrorKind::InvalidInput];
                assert!(kinds.contains(&error.kind()), "{what}: {error}");
                return true;
            }
        };
        assert!(report.redo_damage.is_empty() && report.redo_lost_bytes == 0, "{what}: {report:?}");
        for key in (0..KEYS).map(key).filter(|key| !excused.contains(&key.as_slice())) {
            let found = store.get(KEYSPACE, &key).unwrap().map(|(_, value)| value);
            let name = String::from_utf8_lossy(&key);
            assert_eq!(found.as_ref(), self.contents.get(&key), "{what}: {name} is silently another");
        }
        false
    }

    /// What a survey of the region says, which changes nothing.
    fn survey(&self, image: &[u8]) -> tierstone_base::Result<Survey> {
        let mut device = self.medium().device();
        let (superblock, findings) = tierstone_logstore::check::check_bare(&mut device)?;
        let superblock: Superblock = superblock;
        let region = region_of(image);
        let memory = RedoMemory::new(Arc::clone(&region) as Arc<dyn Region + Send + Sync>);
        let survey = survey(&memory, &superblock, !findings.is_empty(), common::geometry(32 << 10, 12));
        assert!(region.image() == image, "a survey changed the region");
        survey
    }

    /// Opens a copy whose loss is accepted: what it shows is some value of the key, and it can be worked with.
    fn open_accepted(&self, image: &[u8], what: &str) -> bool {
        let (medium, region) = (self.medium(), region_of(image));
        let Ok((mut store, report)) = open(&medium, &region, true) else { return false };
        assert!(report.redo_lost || !report.redo_damage.is_empty(), "{what}: opened without a word");
        for key in (0..KEYS).map(key) {
            let Ok(Some((_, value))) = store.get(KEYSPACE, &key) else { continue };
            let is_own = self.history.get(&key).is_some_and(|values| values.contains(&value));
            assert!(is_own, "{what}: a key has a value that nobody put");
        }
        for number in 0..30u32 {
            store.put(KEYSPACE, &number.to_le_bytes(), &[7; 200]).unwrap();
        }
        store.sync().unwrap();
        drop(store);
        medium.kill_process();
        // Without acceptance: nothing is damaged any more.
        let (mut store, _) = open(&medium, &region, false).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!((0..30u32).all(|number| store.get(KEYSPACE, &number.to_le_bytes()).unwrap().is_some()));
        true
    }
}

/// The bytes that one kind of damage changes.
fn damaged(image: &[u8], random: &mut SeededRandom, kind: u64) -> (Vec<u8>, String, Range<usize>) {
    let mut image = image.to_vec();
    let at = random.below(image.len() as u64) as usize;
    let (what, range) = match kind {
        0 => {
            let bit = random.below(8);
            image[at] ^= 1 << bit;
            (format!("bit {bit} of {at}"), at..at + 1)
        }
        1 | 2 => {
            let bytes = if kind == 1 { 64 } else { 4096 };
            let range = at / bytes * bytes..(at / bytes + 1) * bytes;
            image[range.clone()].fill(0);
            (format!("zeros from {} to {}", range.start, range.end), range)
        }
        _ => {
            let from = random.below(image.len() as u64 / 64) as usize * 64;
            let range = at / 64 * 64..at / 64 * 64 + 64;
            image.copy_within(from..from + 64, range.start);
            (format!("the line at {from} over that at {}", range.start), range)
        }
    };
    (image, what, range)
}

/// Damage outside of what the last fence brought is never silent. A line may have the end of the write before it as well,
/// with what says that this was fenced; a page what the last mark does not name: 4,096 bytes, and one write more.
#[test]
fn damage_is_never_a_silent_loss_but_of_what_came_last() {
    let seed = sampled_seed(91);
    for seed in seed..seed + 3 {
        let left = left(seed);
        assert!(!left.is_refused(&left.image, &[], "no damage"));
        assert!(left.survey(&left.image).unwrap().damage.is_empty());
        let mut random = SeededRandom::new(seed);
        let (mut refused, mut whole) = ([0; 4], 0);
        for _ in 0..sampled_runs(1_200) {
            let kind = random.below(4);
            let (image, what, _) = damaged(&left.image, &mut random, kind);
            let what = format!("seed {seed}, {what}");
            let mut bytes = 0;
            let last_page = left.newest.iter().take_while(|(_, len)| {
                bytes += len + 32;
                bytes <= 4096 + 600
            });
            let count = [1, 2, last_page.count(), 2][kind as usize];
            let excused: Vec<&[u8]> = left.newest.iter().take(count).map(|(key, _)| key.as_slice()).collect();
            let is_refused = left.is_refused(&image, &excused, &what);
            let is_found = left.survey(&image).map_or(true, |survey| !survey.damage.is_empty());
            assert_eq!(is_found, is_refused, "{what}: an opening and a survey say the same");
            refused[kind as usize] += u32::from(is_refused);
            whole += u32::from(!is_refused);
        }
        println!("seed {seed}: {refused:?} refused, {whole} opened");
        assert!(refused.iter().all(|&count| count > 20) && whole > 20, "seed {seed}: {refused:?}, {whole}");
    }
}

#[test]
fn a_loss_that_is_accepted_is_counted_and_over() {
    let seed = sampled_seed(92);
    let left = left(seed);
    let mut random = SeededRandom::new(seed);
    let (mut refused, mut opened) = (0, 0);
    for _ in 0..sampled_runs(600) {
        let kind = random.below(4);
        let (image, what, _) = damaged(&left.image, &mut random, kind);
        if open(&left.medium(), &region_of(&image), false).is_err() {
            refused += 1;
            opened += u32::from(left.open_accepted(&image, &format!("seed {seed}, {what}")));
        }
    }
    println!("seed {seed}: {refused} refused, {opened} of them opened when accepted");
    assert!(opened * 10 > refused * 9 && opened > 20, "{opened} of {refused}");
}

/// A store whose redo log alone has `count` values, one a fence, in several groups; killed.
fn killed_with(count: u32, value_bytes: usize) -> (SimMedium, Vec<u8>) {
    killed_with_records(count, &|number| (number.to_le_bytes().to_vec(), vec![number as u8 + 1; value_bytes]))
}

/// The same with keys and values of any kind.
fn killed_with_records(count: u32, record: &dyn Fn(u32) -> (Vec<u8>, Vec<u8>)) -> (SimMedium, Vec<u8>) {
    let medium = common::medium(64 << 10, 16);
    let region = Arc::new(WordRegion::new(REDO_BYTES));
    let (mut store, _) = open(&medium, &region, false).unwrap();
    for number in 0..count {
        let (key, value) = record(number);
        store.put(KEYSPACE, &key, &value).unwrap();
        store.engine.flush(store.now);
    }
    assert_eq!(store.engine.decided_seq(), store.engine.applied_seq());
    let fences = store.engine.statistics().redo_fences;
    assert_eq!(fences, u64::from(count), "a write costs one fence");
    drop(store);
    medium.kill_process();
    (medium.crashed_copy(&Choices::quiet()), region.image())
}

/// Where the value of `number` lies in the region.
fn place_of(image: &[u8], number: u32) -> usize {
    image
        .windows(32)
        .position(|bytes| bytes.iter().all(|&byte| byte == number as u8 + 1))
        .expect("it is there")
}

fn holds(store: &mut Harness<LogShard, SimDevice>, number: u32) -> bool {
    store.get(KEYSPACE, &number.to_le_bytes()).unwrap().is_some()
}

/// The error of an opening that is refused, with the byte of the region that it names.
fn refusal(medium: &SimMedium, image: &[u8]) -> (usize, String) {
    let medium = medium.crashed_copy(&Choices::quiet());
    let error = open(&medium, &region_of(image), false).map(drop).expect_err("damage is not passed over");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.message().contains("--nvm-loss accept"), "{error}");
    let byte = error.message().split("at byte ").nth(1).and_then(|rest| rest.split(' ').next());
    (byte.and_then(|byte| byte.parse().ok()).expect("a place"), error.message().to_owned())
}

#[test]
fn a_damaged_record_is_told_with_its_place_and_costs_no_other() {
    let (medium, image) = killed_with(40, 600);
    for number in [0, 7, 20, 38] {
        let mut image = image.clone();
        let at = place_of(&image, number);
        image[at + 9] ^= 4;
        let (place, message) = refusal(&medium, &image);
        assert!(
            (at - 100..=at).contains(&place) && message.contains("records of shard 0"),
            "{at}: {message}"
        );
        let copy = medium.crashed_copy(&Choices::quiet());
        let (mut store, report) = open(&copy, &region_of(&image), true).unwrap();
        assert_eq!(report.redo_damage.len(), 1, "{report:?}");
        assert!((600..700).contains(&report.redo_lost_bytes), "{report:?}");
        for other in 0..40 {
            assert_eq!(holds(&mut store, other), other != number, "{other} beside {number}");
        }
    }
}

/// A key as long as a unit of 32 bytes, so that its value begins at one; and a value of integers, `word` of a number.
fn integers(word: &dyn Fn(u64) -> u64, number: u32) -> (Vec<u8>, Vec<u8>) {
    let value = (0..80u64).map(|place| word(u64::from(number) * 80 + place)).flat_map(u64::to_le_bytes);
    (format!("key-{number:028}").into_bytes(), value.collect())
}

#[test]
fn values_that_look_like_headers_hide_no_damage_and_cost_no_other() {
    let seconds = |number: u64| 1_764_000_000 + number;
    let counts = |number: u64| 1_000 + number % 4;
    // A sequence beyond all, a length that fits, a keyspace that there is.
    let headers = |number: u64| [0, 1 << 40, 2_000, 1][(number % 4) as usize];
    let kinds: [&dyn Fn(u64) -> u64; 3] = [&seconds, &counts, &headers];
    for (kind, word) in kinds.into_iter().enumerate() {
        let (medium, image) = killed_with_records(40, &|number| integers(word, number));
        let copy = medium.crashed_copy(&Choices::quiet());
        open(&copy, &region_of(&image), false).unwrap();
        for number in [0, 7, 20, 38u32] {
            let mut image = image.clone();
            let (key, _) = integers(word, number);
            let at = image.windows(32).position(|bytes| bytes == key).expect("it is there");
            image[at + 40] ^= 4;
            let (place, message) = refusal(&medium, &image);
            assert!(place == at - 32 && message.contains("records of shard 0"), "{kind}: {message}");
            let copy = medium.crashed_copy(&Choices::quiet());
            let (mut store, report) = open(&copy, &region_of(&image), true).unwrap();
            assert_eq!((report.redo_damage.len(), report.redo_lost_bytes), (1, 704), "{kind}: {report:?}");
            for other in 0..40 {
                let (key, value) = integers(word, other);
                let found = store.get(KEYSPACE, &key).unwrap().map(|(_, value)| value);
                assert_eq!(found, (other != number).then_some(value), "{kind}: {other} beside {number}");
            }
        }
    }
}

#[test]
fn a_damaged_header_of_a_slot_is_told_and_the_log_ends_before_it() {
    let (medium, image) = killed_with(40, 600);
    let slot_bytes = 128 + (8 << 10);
    for slot in 0..3 {
        for zeros in [false, true] {
            let mut image = image.clone();
            let at = SLOTS_AT + slot * slot_bytes;
            match zeros {
                true => image[at..at + 64].fill(0),
                false => image[at + 17] ^= 1,
            }
            let (_, message) = refusal(&medium, &image);
            assert!(message.contains("the header of a slot"), "{message}");
            let copy = medium.crashed_copy(&Choices::quiet());
            let (mut store, report) = open(&copy, &region_of(&image), true).unwrap();
            assert!(report.redo_lost_bytes > 600, "{report:?}");
            let there: Vec<bool> = (0..40).map(|number| holds(&mut store, number)).collect();
            let ends = there.iter().position(|is_there| !is_there).unwrap();
            assert!(there[ends..].iter().all(|is_there| !is_there), "a prefix: {there:?}");
            assert_eq!(ends == 0, slot == 0, "{there:?}");
        }
    }
}

#[test]
fn a_damaged_line_of_a_shard_is_refused_and_one_watermark_of_two_is_enough() {
    let (medium, image) = killed_with(20, 600);
    let mut zeros = image.clone();
    zeros[LINE_AT..LINE_AT + 64].fill(0);
    assert!(refusal(&medium, &zeros).1.contains("the mark of the redo log"));
    let copy = medium.crashed_copy(&Choices::quiet());
    let (mut store, report) = open(&copy, &region_of(&zeros), true).unwrap();
    assert!(report.redo_damage.len() == 2 && report.redo_lost_bytes > 12_000, "{report:?}");
    assert!((0..20).all(|number| !holds(&mut store, number)), "nobody knows what is another's");
    for at in [LINE_AT, LINE_AT + 24] {
        let mut image = image.clone();
        image[at..at + 8].fill(0xff);
        let copy = medium.crashed_copy(&Choices::quiet());
        let (mut store, _) = open(&copy, &region_of(&image), false).unwrap();
        assert!((0..20).all(|number| holds(&mut store, number)));
    }
}

/// Whether damage of the last write is told when the device has not taken it for a while, after a loss of power.
fn is_told_of_the_last(waits_us: u64, mutations: Mutations) -> bool {
    let medium = common::medium(64 << 10, 16);
    let nothing = SimMachineSettings {
        devices: Vec::new(),
        power_cut: PowerCut::Never,
        trace_limit_lines: 0,
        ..SimMachineSettings::exploring(REDO_BYTES, common::geometry(64 << 10, 16))
    };
    let machine = WordMachine::new(&nothing, &Choices::quiet());
    let region: Arc<dyn Region + Send + Sync> = Arc::new(machine.region());
    let blank = Arc::new(WordRegion::new(REDO_BYTES));
    let open_settings =
        OpenSettings { redo: Some(RedoMemory::new(region)), mutations, ..settings(&blank, false) };
    let (mut store, _) = open_with(&medium, &open_settings).unwrap();
    store.put(KEYSPACE, &0u32.to_le_bytes(), &[1; 600]).unwrap();
    let step = |store: &mut Harness<LogShard, SimDevice>| {
        // The device gives no answer.
        store.engine.step(store.now, &mut Vec::new(), &mut Vec::new());
    };
    step(&mut store);
    let fences = store.engine.statistics().redo_fences;
    store.now.monotonic_us += waits_us;
    step(&mut store);
    assert!(store.engine.statistics().redo_fences <= fences + 1);
    drop(store);
    let lost = machine.crashed_copy(&Choices::quiet());
    let mut image = lost.region().image();
    let at = place_of(&image, 0);
    image[at] ^= 1;
    open(&medium.crashed_copy(&Choices::quiet()), &region_of(&image), false).is_err()
}

/// The crash mark `redo-marked` lies on its way.
#[test]
fn what_the_device_does_not_take_for_a_second_is_marked_with_a_fence_of_its_own() {
    assert!(!is_told_of_the_last(900_000, Mutations::none()), "nobody speaks for the last fence");
    assert!(is_told_of_the_last(1_000_000, Mutations::none()));
    let unfenced = is_told_of_the_last(1_000_000, Mutations::one("redo_mark_unfenced"));
    assert!(!unfenced, "the mutation is not caught");
}

/// A batch over two shards that both regions answer for, and a write behind each part; then a part is damaged.
#[test]
fn of_a_batch_over_shards_with_a_damaged_part_nothing_is_left() {
    let medium = common::medium(64 << 10, 24);
    let region = Arc::new(WordRegion::new(2 * REDO_BYTES));
    let open_two = |medium: &SimMedium, region: &Arc<WordRegion>, accepts| {
        let settings = OpenSettings { shard_count: 2, ..settings(region, accepts) };
        let mut device = medium.device();
        let opened = tierstone_logstore::open(&mut device, &settings)?;
        let shards = opened.plans.into_iter().map(|plan| {
            let mut device = medium.device();
            Harness::new(plan.build(&mut device).unwrap().0, device, opened.hasher)
        });
        let shards: Vec<Harness<LogShard, SimDevice>> = shards.collect();
        tierstone_base::Result::Ok(shards)
    };
    let mut stores = open_two(&medium, &region, false).unwrap();
    let keys: Vec<Vec<u8>> = (0..2)
        .map(|shard| {
            (0..).map(key).find(|key| stores[0].key(KEYSPACE, key).position.shard(2) == shard).unwrap()
        })
        .collect();
    let ticket = BatchTicket::new(1, 2);
    for (shard, store) in stores.iter_mut().enumerate() {
        store.put(KEYSPACE, &keys[shard], b"old").unwrap();
        store.engine.flush(store.now);
        let kind = WriteKind::Put { value: &[40 + shard as u8; 64], expiry_ms: 0, kind: Default::default() };
        let write = Write { key: store.key(KEYSPACE, &keys[shard]), kind };
        store.write_part(&[write], &ticket).unwrap();
        store.engine.flush(store.now);
    }
    assert!(ticket.is_kept() && !ticket.is_decided(), "the regions answer, the device has nothing");
    for store in &mut stores {
        store.put(KEYSPACE, b"another key", b"behind").unwrap();
        store.engine.flush(store.now);
    }
    drop(stores);
    medium.kill_process();
    let whole = region.image();
    for damaged in [None, Some(0), Some(1)] {
        let mut image = whole.clone();
        if let Some(shard) = damaged {
            let value = [40 + shard; 64];
            let at = image.windows(64).position(|bytes| bytes == value).expect("it is in the region");
            image[at] ^= 1;
        }
        let copy = medium.crashed_copy(&Choices::quiet());
        assert_eq!(open_two(&copy, &region_of(&image), false).is_err(), damaged.is_some());
        let copy = medium.crashed_copy(&Choices::quiet());
        let mut stores = open_two(&copy, &region_of(&image), true).unwrap();
        for (shard, store) in stores.iter_mut().enumerate() {
            let found = store.get(KEYSPACE, &keys[shard]).unwrap().expect("the key is there").1;
            let expected = if damaged.is_some() { b"old".to_vec() } else { vec![40 + shard as u8; 64] };
            assert_eq!(found, expected, "shard {shard}, {damaged:?} damaged");
        }
    }
}

/// Lays what the device of `from` has over that of `to`, into its cache only.
fn write_over(from: &SimMedium, to: &SimMedium) {
    let geometry = to.settings().geometry;
    let mut device = to.device();
    for segment in 0..geometry.segment_limit {
        let at = geometry.segment_offset(segment);
        let mut buffer = IoBuffer::zeroed(geometry.segment_bytes as usize);
        buffer.copy_from_slice(&from.peek(at, geometry.segment_bytes as usize));
        let kind = IoKind::Write;
        device.submit(&mut vec![IoRequest { token: 0, kind, offset: at, buffer: Some(buffer) }]);
        device.complete(Wait::All, &mut Vec::new());
    }
}

#[test]
fn what_the_device_has_whole_stays_durably_where_a_loss_is_accepted() {
    let (medium, mut image) = killed_with(40, 600);
    // The device has all groups, some perhaps in its cache, and the region does not know it.
    let replayed = medium.crashed_copy(&Choices::quiet());
    drop(open(&replayed, &region_of(&image), false).unwrap());
    write_over(&replayed, &medium);
    let at = place_of(&image, 7) + 9;
    image[at] ^= 4;
    let region = region_of(&image);
    // The opening itself flushes later, when the region is void already.
    let mutations = Mutations::one("no_flush_at_open");
    let (mut store, report) =
        open_with(&medium, &OpenSettings { mutations, ..settings(&region, true) }).unwrap();
    assert_eq!((report.redo_damage.len(), report.redo_lost_bytes), (1, 0), "{report:?}");
    assert!((0..40).all(|number| holds(&mut store, number)));
    drop(store);
    let (mut store, _) = open(&medium.crashed_copy(&Choices::quiet()), &region, false).unwrap();
    assert!((0..40).all(|number| holds(&mut store, number)), "power was lost");
}

/// A store that was closed in good order, opened again and killed while its redo log alone had its 30 values.
fn killed_after_a_close() -> (SimMedium, Vec<u8>) {
    let medium = common::medium(64 << 10, 16);
    let region = Arc::new(WordRegion::new(REDO_BYTES));
    let mut device = medium.device();
    let mut opened = tierstone_logstore::open(&mut device, &settings(&region, false)).unwrap();
    let (shard, _) = opened.plans.pop().unwrap().build(&mut device).unwrap();
    let mut store = Harness::new(shard, device, opened.hasher);
    store.put(KEYSPACE, b"first", b"value").unwrap();
    store.engine.shut();
    while !store.engine.is_shut() {
        store.turn(Wait::One);
    }
    drop(store);
    opened.superblock.close(&mut medium.device(), Some(&opened.inventory)).unwrap();
    let (mut store, report) = open(&medium, &region, false).unwrap();
    assert!(report.clean);
    for number in 0..30u32 {
        store.put(KEYSPACE, &number.to_le_bytes(), &[7; 100]).unwrap();
        store.engine.flush(store.now);
    }
    drop(store);
    medium.kill_process();
    (medium.crashed_copy(&Choices::quiet()), region.image())
}

#[test]
fn a_slot_of_the_superblock_that_rots_hides_no_opening_that_the_region_knows() {
    let (medium, image) = killed_after_a_close();
    let slot_bytes = tierstone_logstore::format::superblock::SLOT_BYTES;
    let mut doubtful = 0;
    for (slot, is_blank) in [(0, false), (1, false), (0, true), (1, true)] {
        let rotten = medium.crashed_copy(&Choices::quiet());
        let at = slot * slot_bytes as u64;
        let mut bytes = rotten.peek(at, slot_bytes);
        if is_blank {
            bytes.fill(0)
        } else {
            bytes[40] ^= 1
        };
        rotten.overwrite(at, &bytes);
        let (superblock, findings) = tierstone_logstore::check::check_bare(&mut rotten.device()).unwrap();
        let memory = RedoMemory::new(region_of(&image) as Arc<dyn Region + Send + Sync>);
        let survey = survey(&memory, &superblock, !findings.is_empty(), medium.settings().geometry).unwrap();
        assert!(findings.len() == 1 && survey.records == 30, "slot {slot}: {survey:?}");
        let alone = OpenSettings { redo: None, ..settings(&region_of(&image), false) };
        let error = open_with(&rotten.crashed_copy(&Choices::quiet()), &alone).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        doubtful += u32::from(error.message().contains("may lie"));
        let (mut store, report) = open(&rotten, &region_of(&image), false).unwrap();
        assert!(report.damaged_superblock_slot && !report.clean);
        assert!((0..30).all(|number| holds(&mut store, number)), "slot {slot}");
    }
    assert_eq!(doubtful, 2, "of the older slot one cannot tell");
}

#[test]
fn a_group_beyond_a_capacity_that_is_smaller_now_is_told() {
    let medium = common::medium(32 << 10, 12);
    let region = Arc::new(WordRegion::new(REDO_BYTES));
    let (mut store, _) = open(&medium, &region, false).unwrap();
    // Of a store of twelve segments some are written before the last writes, which the redo log alone has.
    for number in 0..24u32 {
        store.put(KEYSPACE, &number.to_le_bytes(), &[7; 2_000]).unwrap();
        store.sync().unwrap();
    }
    store.put(KEYSPACE, b"last", b"value").unwrap();
    store.engine.flush(store.now);
    drop(store);
    medium.kill_process();
    let image = region.image();
    let smaller = SimMedium::new(
        tierstone_media::sim::SimSettings::new(common::geometry(32 << 10, 1)),
        &Choices::quiet(),
    );
    let bytes = medium.settings().geometry.segment_offset(1) as usize;
    smaller.overwrite(0, &medium.peek(0, bytes));
    let settings = OpenSettings { loss_accepted: true, ..settings(&region_of(&image), false) };
    let error = open_with(&smaller, &settings).map(drop).expect_err("it is not passed over");
    assert!(
        error.kind() == ErrorKind::Corrupt && error.message().contains("beyond the store's capacity"),
        "{error}"
    );
}
