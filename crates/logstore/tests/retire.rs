//! Eviction by whole segments: what goes with its segment is gone for good, and nothing else goes.

use crate::common::{Store, geometry, mutated, open_on, reopen, small_settings};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use tierstone_base::{ErrorKind, KeyspaceId, SeededRandom};
use tierstone_crash::Choices;
use tierstone_engine::conformance::eviction;
use tierstone_engine::{Engine, Eviction, Write, WriteKind};
use tierstone_logstore::{OpenSettings, RedoMemory};
use tierstone_media::region::{Region, WordRegion};
use tierstone_media::sim::{Fault, FaultEffect, FaultTarget, SimMedium, SimSettings};

const SPACE: KeyspaceId = KeyspaceId(1);
/// Keys of the model, which have no room at once.
const KEYS: u64 = 900;
const STEPS: u64 = 8_000;
const REGION_BYTES: u64 = 1 << 20;

/// Settings with memory for all keys: space is what is short.
fn short_of_space(settings: OpenSettings) -> OpenSettings {
    let mut settings = settings;
    settings.shard.memory_bytes = 4 << 20;
    settings.shard.cache_bytes_max = 64 << 10;
    settings.shard.group_bytes_max = 8 << 10;
    settings.shard.checkpoint_idle_ms = 0;
    settings.shard.checkpoint_tail_records_min = 1;
    settings
}

/// The same with a region that takes checkpoints of the index, whatever space there is on the device.
fn with_region(settings: OpenSettings) -> OpenSettings {
    let region: Arc<dyn Region + Send + Sync> = Arc::new(WordRegion::new(REGION_BYTES));
    OpenSettings { redo: Some(RedoMemory::new(region)), ..settings }
}

/// What a key holds: the number of its value, and when it expires.
type Held = Option<(u64, u64)>;

/// What a key may be after a crash: where it may have been evicted, nothing is right too.
#[derive(Clone, Debug, Default)]
struct Known {
    /// As it was when everything was durable last.
    firm: Held,
    /// What it was since.
    since: Vec<Held>,
}

impl Known {
    fn newest(&self) -> Held {
        self.since.last().copied().unwrap_or(self.firm)
    }

    /// Whether the key stayed, whichever of these it was.
    fn is_lasting(&self) -> bool {
        self.since.iter().chain([&self.firm]).all(|held| held.is_some_and(|(_, expiry_ms)| expiry_ms == 0))
    }

    fn settle(&mut self) {
        self.firm = self.newest();
        self.since.clear();
    }
}

/// Far in the future, in milliseconds since 1970.
const LATE_MS: u64 = 1 << 42;

/// A store, what its keys may be, and what has happened.
struct Model {
    /// One of them at a time; either all or none spare keys that do not expire.
    policies: &'static [Eviction],
    random: SeededRandom,
    medium: SimMedium,
    settings: OpenSettings,
    known: BTreeMap<u64, Known>,
    evicted: u64,
    retired: u64,
}

fn held(store: &mut Store, number: u64) -> Result<Held, String> {
    let found = store.get(SPACE, &number.to_le_bytes()).map_err(|error| error.to_string())?;
    let version = |value: &[u8]| value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    Ok(found.map(|(meta, value)| (version(&value), meta.expiry_ms)))
}

impl Model {
    fn is_of_expiring(&self) -> bool {
        self.policies.iter().any(|policy| policy.is_of_expiring())
    }

    fn look(&mut self, store: &mut Store, number: u64) -> Result<(), String> {
        let is_of_expiring = self.is_of_expiring();
        let (found, known) = (held(store, number)?, self.known.entry(number).or_default());
        let is_lost = is_of_expiring && known.newest().is_some_and(|(_, expiry_ms)| expiry_ms == 0);
        if found != known.newest() && (found.is_some() || is_lost) {
            return Err(format!("key {number} is {found:?}, but {known:?}"));
        }
        if found.is_none() && known.newest().is_some() {
            known.since.push(None);
        }
        Ok(())
    }

    fn write(&mut self, store: &mut Store, version: u64) -> Result<(), String> {
        let number = self.random.below(KEYS);
        let expiry_ms = if self.is_of_expiring() && self.random.chance(0.75) {
            LATE_MS + self.random.below(1_000) * 1_024
        } else {
            0
        };
        let chosen = self.random.below(20);
        // What happens then is of most interest.
        let again = if store.engine.is_retiring_any() { 12 } else { 4 };
        let before = if chosen < again && self.is_of_expiring() { held(store, number)? } else { None };
        // A value that is there gets another expiry, or a key a new value, or none.
        let new = match before {
            Some((version, _)) => Some((version, expiry_ms)),
            None => (chosen != 19).then_some((version, expiry_ms)),
        };
        let bytes = number.to_le_bytes();
        let key = store.key(SPACE, &bytes);
        let mut value = Vec::new();
        let kind = match new {
            Some((version, expiry_ms)) => {
                value.extend(version.to_le_bytes());
                value.resize(8 + SeededRandom::new(version).below(1_000) as usize, 7);
                WriteKind::Put { value: &value, expiry_ms, kind: Default::default() }
            }
            None => WriteKind::Delete,
        };
        match eviction::write(store, &[Write { key, kind }]) {
            Ok(()) => {}
            // In so small a store there may be no key to go at times, after a loss of power that has left copies.
            Err(ErrorKind::NoSpace) if self.is_of_expiring() => return Ok(()),
            Err(kind) => return Err(format!("a write: {kind:?}")),
        }
        self.known.entry(number).or_default().since.push(new);
        Ok(())
    }

    fn sync(&mut self, store: &mut Store) -> Result<(), String> {
        store.sync().map_err(|error| error.to_string())?;
        self.known.values_mut().for_each(Known::settle);
        Ok(())
    }

    fn end(&mut self, store: &Store) {
        self.evicted += store.engine.statistics().evicted_keys;
        self.retired += store.engine.retired_segments();
    }

    /// Power is lost, the process killed, or the store closed, and opened again.
    fn open_again(&mut self, mut store: Store) -> Result<Store, String> {
        self.end(&store);
        let way = self.random.below(3);
        if way == 0 {
            self.sync(&mut store)?;
            store = reopen(store, &self.medium, &self.settings);
        } else {
            for _ in 0..100 {
                let number = self.random.below(KEYS);
                self.look(&mut store, number)?;
            }
            if store.engine.durable_seq() >= store.engine.applied_seq() {
                // What was just seen stays so.
                self.known.values_mut().for_each(Known::settle);
            }
            let now = store.now;
            drop(store);
            let device = match way {
                1 => self.medium.kill_process(),
                _ => {
                    self.medium.cut_power();
                    self.medium.power_on_after_loss()
                }
            };
            store = open_on(device, &self.settings).map_err(|error| error.to_string())?.0;
            store.now = now;
        }
        let is_of_expiring = self.is_of_expiring();
        for number in 0..KEYS {
            let (found, known) = (held(&mut store, number)?, self.known.entry(number).or_default());
            let may_be = found == known.firm || known.since.contains(&found);
            let is_lost = is_of_expiring && known.is_lasting();
            if !may_be && (found.is_some() || is_lost) {
                return Err(format!("key {number} is {found:?} after way {way}, but was {known:?}"));
            }
            *known = Known { firm: found, since: Vec::new() };
        }
        self.set_policy(&mut store);
        Ok(store)
    }

    fn set_policy(&mut self, store: &mut Store) {
        let chosen = self.random.below(self.policies.len() as u64);
        store.engine.set_eviction(self.policies[chosen as usize]);
    }
}

/// Random writes, deletions, reads and ends; gives how many keys were evicted and segments retired.
fn follow(seed: u64, settings: OpenSettings, policies: &'static [Eviction]) -> Result<(u64, u64), String> {
    let settings = short_of_space(settings);
    let settings = if seed.is_multiple_of(2) { with_region(settings) } else { settings };
    let sim = SimSettings::new(geometry(32 << 10, 20));
    let medium = SimMedium::new(sim, &Choices::random(seed));
    let mut store = open_on(medium.device(), &settings).map_err(|error| error.to_string())?.0;
    let random = SeededRandom::new(seed);
    let known = BTreeMap::new();
    let mut model = Model { policies, random, medium, settings, known, evicted: 0, retired: 0 };
    model.set_policy(&mut store);
    for version in 1..STEPS {
        model.write(&mut store, version)?;
        if model.random.chance(0.8) {
            eviction::step(&mut store);
        }
        let number = model.random.below(KEYS);
        model.look(&mut store, number)?;
        if model.random.chance(0.05) {
            model.sync(&mut store)?;
        }
        // What happens just then is of most interest.
        let chance = if store.engine.is_retiring_any() { 0.03 } else { 0.001 };
        if model.random.chance(chance) {
            store = model.open_again(store)?;
        }
    }
    model.end(&store);
    Ok((model.evicted, model.retired))
}

const OF_ALL: &[Eviction] = &[Eviction::OldestFirst, Eviction::LeastUsed];
const OF_EXPIRING: &[Eviction] =
    &[Eviction::OldestExpiring, Eviction::LeastUsedExpiring, Eviction::NearestExpiry];

fn follow_all(policies: &'static [Eviction], least: u64) {
    let (mut evicted, mut retired) = (0, 0);
    for seed in 1..7 {
        let found = follow(seed, small_settings(), policies);
        let found = found.unwrap_or_else(|text| panic!("seed {seed}: {text}"));
        (evicted, retired) = (evicted + found.0, retired + found.1);
    }
    println!("{evicted} keys, {retired} segments");
    assert!(evicted > 1_000 && retired > least, "{evicted} keys, {retired} segments");
}

#[test]
fn what_goes_with_its_segment_is_gone_for_good() {
    follow_all(OF_ALL, 100);
}

#[test]
fn what_never_expires_stays_where_only_other_keys_may_go() {
    follow_all(OF_EXPIRING, 20);
    follow_all(&[Eviction::NearestExpiry], 20);
}

fn assert_noticed(rule: &'static str, policies: &'static [Eviction], seeds: Range<u64>) {
    let found = seeds.clone().find_map(|seed| Some((seed, follow(seed, mutated(rule), policies).err()?)));
    let Some((seed, text)) = found else { panic!("{rule}: nothing was noticed in seeds {seeds:?}") };
    println!("{rule}: seed {seed}: {}", text.chars().take(200).collect::<String>());
}

#[test]
fn a_key_that_is_forgotten_before_its_segment_is_free_is_noticed() {
    assert_noticed("left_forgotten_early", OF_ALL, 5..30);
}

#[test]
fn a_key_that_is_left_beside_an_older_version_is_noticed() {
    assert_noticed("left_beside_older", OF_ALL, 60..400);
}

#[test]
fn a_key_that_is_left_beside_its_own_copy_is_noticed() {
    assert_noticed("left_beside_copies", OF_ALL, 180..300);
}

#[test]
fn a_key_that_never_expires_and_is_left_is_noticed() {
    assert_noticed("evicted_without_expiry", OF_EXPIRING, 1..20);
}

#[test]
fn a_key_that_is_left_and_shall_not_expire_any_more_is_noticed() {
    assert_noticed("left_touched", OF_EXPIRING, 60..200);
}

#[test]
fn a_segment_that_is_opened_again_while_keys_lie_in_it_is_noticed() {
    assert_noticed("retired_reused_early", OF_ALL, 4..12);
}

/// Writes keys that were never there from `number` on, until `is_enough`; gives the next one.
fn write_until(store: &mut Store, mut number: u64, is_enough: impl Fn(&Store) -> bool) -> u64 {
    let most = number + 20_000;
    while !is_enough(store) {
        assert!(number < most, "{number} keys");
        let bytes = number.to_le_bytes();
        let kind = WriteKind::Put { value: &[7; 500], expiry_ms: 0, kind: Default::default() };
        let write = Write { key: store.key(SPACE, &bytes), kind };
        eviction::write(store, &[write]).unwrap_or_else(|kind| panic!("key {number}: {kind:?}"));
        number += 1;
        eviction::step(store);
    }
    number
}

/// A cache whose retired segment cannot be read when its keys are to go; the key to be written next.
fn blocked(settings: &OpenSettings) -> (SimMedium, Store, u64) {
    let medium = SimMedium::new(SimSettings::new(geometry(32 << 10, 20)), &Choices::random(1));
    let mut store = open_on(medium.device(), settings).unwrap_or_else(|error| panic!("{error}")).0;
    store.engine.set_eviction(Eviction::OldestFirst);
    let next = write_until(&mut store, 0, |store| store.engine.retired_segment().is_some());
    let Some(segment) = store.engine.retired_segment() else { panic!("nothing is retired") };
    let from = medium.settings().geometry.segment_offset(segment);
    medium.inject(Fault::new(FaultTarget::Read, FaultEffect::Fail).within(from..from + (32 << 10)));
    let next = write_until(&mut store, next, |store| store.engine.is_retired_blocked());
    (medium, store, next)
}

#[test]
fn a_retired_segment_that_cannot_be_read_holds_nobody_up() {
    let settings = short_of_space(small_settings());
    let (medium, mut store, next) = blocked(&settings);
    let (retired, corrupt) = (store.engine.retired_segments(), store.engine.statistics().corrupt_reads);
    // Several times what there is room for: others go by deletions meanwhile.
    let evicted = store.engine.statistics().evicted_keys;
    let next =
        write_until(&mut store, next, |store| store.engine.statistics().evicted_keys > evicted + 5_000);
    assert!(store.engine.is_retired_blocked() && store.engine.retired_segments() == retired);
    assert_eq!(store.engine.statistics().corrupt_reads, corrupt, "told once");
    for number in next - 100..next {
        let key = number.to_le_bytes();
        assert!(matches!(store.get(SPACE, &key), Ok(Some(_))), "key {number}");
    }
    medium.clear_faults();
    write_until(&mut store, next, |store| store.engine.retired_segments() > retired + 2);
}

#[test]
fn a_store_whose_retired_segment_cannot_be_read_is_closed_and_opened() {
    for settings in [short_of_space(small_settings()), with_region(short_of_space(small_settings()))] {
        let (medium, mut store, next) = blocked(&settings);
        let present = |store: &mut Store, number: u64| held(store, number).is_ok_and(|found| found.is_some());
        let before: Vec<u64> = (0..next).filter(|&number| present(&mut store, number)).collect();
        store.engine.shut();
        for _ in 0..10_000 {
            eviction::step(&mut store);
        }
        assert!(store.engine.is_shut(), "a store that cannot read what it has given up does not close");
        drop(store);
        medium.clear_faults();
        let device = medium.kill_process();
        let mut store = open_on(device, &settings).unwrap_or_else(|error| panic!("{error}")).0;
        store.engine.set_eviction(Eviction::OldestFirst);
        let after: Vec<u64> = (0..next).filter(|&number| present(&mut store, number)).collect();
        // What was left in the segment and cached was served until then; it holds 56 of these records.
        let gone = before.iter().filter(|number| !after.contains(number)).count();
        assert!(after.len() > 200 && gone < 57, "{} keys before, {} after", before.len(), after.len());
        assert!(after.iter().all(|number| before.contains(number)), "a key has come back");
        write_until(&mut store, next, |store| store.engine.retired_segments() > 2);
    }
}
