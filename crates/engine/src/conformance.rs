//! What every engine must do, as checks that a test calls with a way to make its engine.
//!
//! A check panics with its seed when the engine departs from the model. Losses of power are in [`crashes`],
//! faults of the device in [`faults`], keys that go for want of room in [`eviction`];
//! what only one engine has (cleaning, checkpoints), its own tests add.

mod commits;
mod costs;
pub mod crashes;
pub mod eviction;
pub mod faults;
mod ranges;

pub use commits::{
    a_batch_over_two_engines_is_decided_when_both_parts_are_durable, a_part_of_a_refused_batch_is_taken_back,
    a_relaxed_write_is_durable_within_its_bound, a_relaxed_write_waits_for_a_device_that_is_behind,
    a_switch_of_modes_keeps_what_was_promised, writes_are_visible_before_they_are_durable,
};
pub use costs::completions_tell_their_cost;
pub use ranges::{a_range_of_a_snapshot_shows_the_keys_of_the_cut, pages_of_a_range_join};

use crate::contract::{
    Direction, Durability, Engine, IndexKind, PREFETCHED_KEYS, SnapshotId, Write, WriteKind,
};
use crate::harness::Harness;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use tierstone_base::{ErrorKind, KeyspaceId, Result, SeededRandom};
use tierstone_media::BlockDevice;

/// What a random run looks like.
#[derive(Clone, Copy, Debug)]
pub struct ModelSettings {
    /// How many operations to do.
    pub operations: u32,
    /// How many different keys there are a keyspace.
    pub keys: u64,
    /// How many keyspaces there are.
    pub keyspaces: u32,
    /// So many of them, the first ones, have an order.
    pub ordered: u32,
    /// The longest value in bytes.
    pub value_bytes: u64,
    /// One of this many operations reopens the engine; zero: never.
    pub reopen_every: u64,
    /// At most this many snapshots are alive at a time.
    pub snapshots: usize,
    /// Whether the engine may lose a snapshot, for want of space. It may not lose all of a run.
    pub may_lose_snapshots: bool,
}

impl Default for ModelSettings {
    fn default() -> Self {
        ModelSettings {
            operations: 2_000,
            keys: 200,
            keyspaces: 2,
            ordered: 1,
            value_bytes: 600,
            reopen_every: 0,
            snapshots: 3,
            may_lose_snapshots: false,
        }
    }
}

type Model = BTreeMap<(u32, Vec<u8>), (Vec<u8>, u64)>;

/// Random operations against a map. `reopen` closes a harness cleanly and opens it again on the same
/// medium; engines without durability pass a function that is never called.
pub fn model<E: Engine, D: BlockDevice>(
    seed: u64,
    settings: ModelSettings,
    mut harness: Harness<E, D>,
    mut reopen: impl FnMut(Harness<E, D>) -> Harness<E, D>,
) -> Harness<E, D> {
    let mut random = SeededRandom::new(seed);
    let mut model = Model::new();
    let mut snapshots = Snapshots::default();
    for operation in 0..settings.operations {
        let place = format!("seed {seed}, operation {operation}");
        if random.chance(0.1) {
            announce_random(&mut random, settings, &mut harness);
        }
        match random.below(100) {
            0..32 => put_random(&mut random, settings, &mut harness, &mut model, &place),
            32..40 => expire_random(&mut random, settings, &mut harness, &mut model, &place),
            40..50 => delete_random(&mut random, settings, &mut harness, &mut model, &place),
            50..60 => batch_random(&mut random, settings, &mut harness, &mut model, &place),
            60..64 => {
                let keyspace = KeyspaceId(1 + random.below(u64::from(settings.keyspaces)) as u32);
                ranges::check(&mut random, settings, &mut harness, &model, keyspace, &place);
            }
            64..88 => {
                let (keyspace, key) = random_key(&mut random, settings);
                check_key(&mut harness, &model, keyspace, &key, &place);
            }
            88..95 => snapshots.operation(&mut random, settings, &mut harness, &mut model, &place),
            95..97 => harness.now.wall_ms += random.below(2_000),
            97..98 => check_everything(&mut harness, &model, settings, &mut random, &place),
            98 => {
                let group = Durability::Group { interval_ms: 5 };
                let mode = [Durability::Sync, group, Durability::Relaxed][random.below(3) as usize];
                let newest = harness.engine.set_durability(harness.now, mode);
                assert_eq!(newest, harness.engine.applied_seq(), "{place}: a switch to {mode:?}");
            }
            _ => {
                if let Err(error) = harness.sync() {
                    panic!("{place}: sync: {error}");
                }
            }
        }
        if settings.reopen_every > 0 && random.below(settings.reopen_every) == 0 {
            let now = harness.now;
            harness = reopen(harness);
            snapshots.alive.clear();
            harness.now = harness.now.max(now);
            check_everything(&mut harness, &model, settings, &mut random, &format!("{place}, reopened"));
        }
    }
    snapshots.end(&mut random, settings, &mut harness, &mut model, &format!("seed {seed}, end"));
    check_everything(&mut harness, &model, settings, &mut random, &format!("seed {seed}, end"));
    harness
}

/// A snapshot and what it must show.
struct Alive {
    id: SnapshotId,
    model: Model,
    wall_ms: u64,
}

/// Snapshots of a run.
#[derive(Default)]
struct Snapshots {
    alive: Vec<Alive>,
    /// Whole walks that were right, and walks of ranges.
    walks: u32,
    ranges: u32,
    lost: u32,
}

impl Snapshots {
    /// Takes, reads, walks or releases a snapshot.
    fn operation<E: Engine, D: BlockDevice>(
        &mut self,
        random: &mut SeededRandom,
        settings: ModelSettings,
        harness: &mut Harness<E, D>,
        model: &mut Model,
        place: &str,
    ) {
        if settings.snapshots == 0 {
            return;
        }
        if self.alive.is_empty() || (self.alive.len() < settings.snapshots && random.chance(0.1)) {
            match harness.engine.snapshot(harness.now) {
                Ok(id) => self.alive.push(Alive { id, model: model.clone(), wall_ms: harness.now.wall_ms }),
                Err(error) => panic!("{place}: snapshot: {error}"),
            }
            return;
        }
        let chosen = random.below(self.alive.len() as u64) as usize;
        let lost = match random.below(20) {
            0 => {
                let ended = self.alive.swap_remove(chosen);
                harness.engine.release_snapshot(ended.id);
                let error = harness.get_at(ended.id, KeyspaceId(1), b"key").map_err(|error| error.kind());
                assert_eq!(error, Err(ErrorKind::InvalidInput), "{place}: a released snapshot");
                return;
            }
            1..4 => self.walk(chosen, random, settings, harness, model, place),
            4..8 => self.range(chosen, random, settings, harness, model, place),
            _ => {
                let (keyspace, key) = random_key(random, settings);
                self.read(chosen, harness, keyspace, &key, place)
            }
        };
        if let Err(error) = lost {
            assert!(settings.may_lose_snapshots, "{place}: {error}");
            let lost = self.alive.swap_remove(chosen);
            harness.engine.release_snapshot(lost.id);
            self.lost += 1;
        }
    }

    /// One read; an error is that the snapshot is lost.
    fn read<E: Engine, D: BlockDevice>(
        &self,
        chosen: usize,
        harness: &mut Harness<E, D>,
        keyspace: KeyspaceId,
        key: &[u8],
        place: &str,
    ) -> Result<()> {
        let Alive { id, model, wall_ms } = &self.alive[chosen];
        let found = match harness.get_at(*id, keyspace, key) {
            Err(error) if error.kind() == ErrorKind::SnapshotLost => return Err(error),
            Err(error) => panic!("{place}: get of {key:?} at {id:?}: {error}"),
            Ok(found) => found.map(|record| (record.value, record.meta.expiry_ms)),
        };
        let live = |expiry: u64| expiry == 0 || expiry > *wall_ms;
        let expected = model.get(&(keyspace.0, key.to_vec())).filter(|(_, expiry)| live(*expiry));
        let key = String::from_utf8_lossy(key);
        assert_eq!(found.as_ref(), expected, "{place}: get of {key:?} in {keyspace:?} at {id:?}");
        Ok(())
    }

    /// A whole walk, with writes between its pages: each key of the cut exactly once.
    fn walk<E: Engine, D: BlockDevice>(
        &mut self,
        chosen: usize,
        random: &mut SeededRandom,
        settings: ModelSettings,
        harness: &mut Harness<E, D>,
        now: &mut Model,
        place: &str,
    ) -> Result<()> {
        let Alive { id, model, wall_ms } = &self.alive[chosen];
        let keyspace = KeyspaceId(1 + random.below(u64::from(settings.keyspaces)) as u32);
        let count = random.below(40) as u32;
        let walked = harness.scan_all_at(Some(*id), keyspace, count, |harness| {
            for _ in 0..random.below(8) {
                put_random(random, settings, harness, now, place);
                expire_random(random, settings, harness, now, place);
                delete_random(random, settings, harness, now, place);
            }
        });
        let mut found = match walked {
            Err(error) if error.kind() == ErrorKind::SnapshotLost => return Err(error),
            Err(error) => panic!("{place}: walk of {id:?}: {error}"),
            Ok(entries) => entries,
        };
        found.sort_by(|one, other| one.key.cmp(&other.key));
        let live = |expiry: u64| expiry == 0 || expiry > *wall_ms;
        let expected: Vec<(&[u8], u64)> = model
            .iter()
            .filter(|((number, _), (_, expiry))| *number == keyspace.0 && live(*expiry))
            .map(|((_, key), (_, expiry))| (key.as_slice(), *expiry))
            .collect();
        let found: Vec<_> = found.iter().map(|entry| (entry.key.as_slice(), entry.meta.expiry_ms)).collect();
        assert_eq!(found, expected, "{place}: walk of {keyspace:?} at {id:?}");
        self.walks += 1;
        Ok(())
    }

    fn end<E: Engine, D: BlockDevice>(
        &mut self,
        random: &mut SeededRandom,
        settings: ModelSettings,
        harness: &mut Harness<E, D>,
        model: &mut Model,
        place: &str,
    ) {
        for chosen in 0..self.alive.len() {
            let lost = self
                .walk(chosen, random, settings, harness, model, place)
                .and_then(|()| self.range(chosen, random, settings, harness, model, place));
            assert!(lost.is_ok() || settings.may_lose_snapshots, "{place}: {lost:?}");
        }
        for ended in self.alive.drain(..) {
            harness.engine.release_snapshot(ended.id);
        }
        let Snapshots { walks, ranges, lost, .. } = self;
        assert!(settings.snapshots == 0 || *walks > 0, "{place}: no whole walk, {lost} snapshots lost");
        let has_ordered = settings.snapshots > 0 && settings.ordered > 0;
        assert!(!has_ordered || *ranges > 0, "{place}: no walk of a range, {lost} snapshots lost");
        harness.settle(1_000);
        let statistics = harness.engine.statistics();
        let kept = (statistics.snapshots, statistics.snapshot_table_bytes, statistics.snapshot_pinned_bytes);
        assert_eq!(kept, (0, 0, 0), "{place}: kept after the last snapshot");
    }
}

fn random_key(random: &mut SeededRandom, settings: ModelSettings) -> (KeyspaceId, Vec<u8>) {
    let keyspace = KeyspaceId(1 + random.below(u64::from(settings.keyspaces)) as u32);
    (keyspace, key_bytes(random.below(settings.keys)))
}

/// Keys of different lengths, the empty one too; some share a hash tag.
fn key_bytes(number: u64) -> Vec<u8> {
    match number {
        0 => Vec::new(),
        n if n % 7 == 0 => format!("{{tag}}:{n}").into_bytes(),
        n if n % 11 == 0 => vec![b'k'; (n % 300) as usize + 1],
        n => format!("key:{n}").into_bytes(),
    }
}

fn random_value(random: &mut SeededRandom, settings: ModelSettings) -> Vec<u8> {
    let mut value = vec![0; random.below(settings.value_bytes + 1) as usize];
    random.fill(&mut value);
    value
}

fn random_expiry(random: &mut SeededRandom, wall_ms: u64) -> u64 {
    if random.chance(0.1) { wall_ms + random.below(5_000) } else { 0 }
}

/// Announces some keys, as many as may be at a time, whatever becomes of them: some of the next operations are on them, with
/// others between.
fn announce_random<E: Engine, D: BlockDevice>(
    random: &mut SeededRandom,
    settings: ModelSettings,
    harness: &mut Harness<E, D>,
) {
    let names: Vec<_> = (0..PREFETCHED_KEYS).map(|_| random_key(random, settings)).collect();
    let keys = names.iter().map(|(keyspace, bytes)| harness.key(*keyspace, bytes));
    let places: Vec<_> = keys.map(|key| (key.keyspace, key.position)).collect();
    harness.engine.prefetch(&places);
}

fn put_random<E: Engine, D: BlockDevice>(
    random: &mut SeededRandom,
    settings: ModelSettings,
    harness: &mut Harness<E, D>,
    model: &mut Model,
    place: &str,
) {
    let (keyspace, key) = random_key(random, settings);
    let value = random_value(random, settings);
    let expiry_ms = random_expiry(random, harness.now.wall_ms);
    put(harness, model, (keyspace.0, key), (value, expiry_ms), &format!("{place}: put"));
}

/// Puts a value that expires at a time, or never, unless there is no room for it.
fn put<E: Engine, D: BlockDevice>(
    harness: &mut Harness<E, D>,
    model: &mut Model,
    (keyspace, key): (u32, Vec<u8>),
    (value, expiry_ms): (Vec<u8>, u64),
    place: &str,
) {
    let kind = WriteKind::Put { value: &value, expiry_ms, kind: Default::default() };
    match harness.write(&[Write { key: harness.key(KeyspaceId(keyspace), &key), kind }]) {
        Ok(_) => drop(model.insert((keyspace, key), (value, expiry_ms))),
        Err(error) => assert!(is_full(error.kind()), "{place}: {error}"),
    }
}

/// A key that has a value gets it again, with another expiry or none: an engine may leave the value alone.
fn expire_random<E: Engine, D: BlockDevice>(
    random: &mut SeededRandom,
    settings: ModelSettings,
    harness: &mut Harness<E, D>,
    model: &mut Model,
    place: &str,
) {
    let (keyspace, key) = random_key(random, settings);
    let after = model.range((keyspace.0, key)..).next().map(|(key, _)| key.clone());
    let Some((keyspace, key)) = after else { return };
    let wall_ms = harness.now.wall_ms;
    let Some((value, _)) =
        model.get(&(keyspace, key.clone())).filter(|(_, expiry)| *expiry == 0 || *expiry > wall_ms)
    else {
        return;
    };
    let (value, expiry_ms) = (value.clone(), random_expiry(random, wall_ms));
    let expiry_ms = if expiry_ms == 0 && random.chance(0.7) { wall_ms + 1_000_000 } else { expiry_ms };
    put(harness, model, (keyspace, key), (value, expiry_ms), &format!("{place}: expiry of a key"));
}

fn is_full(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NoSpace | ErrorKind::NoMemory)
}

fn delete_random<E: Engine, D: BlockDevice>(
    random: &mut SeededRandom,
    settings: ModelSettings,
    harness: &mut Harness<E, D>,
    model: &mut Model,
    place: &str,
) {
    let (keyspace, key) = random_key(random, settings);
    if let Err(error) = harness.delete(keyspace, &key) {
        panic!("{place}: delete: {error}");
    }
    model.remove(&(keyspace.0, key));
}

fn batch_random<E: Engine, D: BlockDevice>(
    random: &mut SeededRandom,
    settings: ModelSettings,
    harness: &mut Harness<E, D>,
    model: &mut Model,
    place: &str,
) {
    let mut changes = Vec::new();
    for _ in 0..random.below(12) + 1 {
        let (keyspace, key) = random_key(random, settings);
        let value = random.chance(0.8).then(|| random_value(random, settings));
        changes.push((keyspace, key, value));
    }
    let writes: Vec<Write<'_>> = changes
        .iter()
        .map(|(keyspace, key, value)| Write {
            key: harness.key(*keyspace, key),
            kind: match value {
                Some(value) => WriteKind::Put { value, expiry_ms: 0, kind: Default::default() },
                None => WriteKind::Delete,
            },
        })
        .collect();
    if let Err(error) = harness.write(&writes) {
        assert!(is_full(error.kind()), "{place}: batch: {error}");
        return;
    }
    for (keyspace, key, value) in changes {
        match value {
            Some(value) => drop(model.insert((keyspace.0, key), (value, 0))),
            None => drop(model.remove(&(keyspace.0, key))),
        }
    }
}

fn check_key<E: Engine, D: BlockDevice>(
    harness: &mut Harness<E, D>,
    model: &Model,
    keyspace: KeyspaceId,
    key: &[u8],
    place: &str,
) {
    let found = match harness.get(keyspace, key) {
        Ok(found) => found.map(|(meta, value)| (value, meta.expiry_ms)),
        Err(error) => panic!("{place}: get {key:?}: {error}"),
    };
    let wall_ms = harness.now.wall_ms;
    let expected =
        model.get(&(keyspace.0, key.to_vec())).filter(|(_, expiry)| *expiry == 0 || *expiry > wall_ms);
    assert_eq!(found.as_ref(), expected, "{place}: get {:?}", String::from_utf8_lossy(key));
}

fn check_everything<E: Engine, D: BlockDevice>(
    harness: &mut Harness<E, D>,
    model: &Model,
    settings: ModelSettings,
    random: &mut SeededRandom,
    place: &str,
) {
    for keyspace in (1..=settings.keyspaces).map(KeyspaceId) {
        for number in 0..settings.keys {
            check_key(harness, model, keyspace, &key_bytes(number), place);
        }
        let scanned = match harness.scan_all(keyspace, random.below(20) as u32) {
            Ok(entries) => entries,
            Err(error) => panic!("{place}: scan: {error}"),
        };
        let wall_ms = harness.now.wall_ms;
        let live = |expiry: u64| expiry == 0 || expiry > wall_ms;
        let found: BTreeSet<Vec<u8>> =
            scanned.into_iter().filter(|entry| live(entry.meta.expiry_ms)).map(|entry| entry.key).collect();
        let expected: BTreeSet<Vec<u8>> = model
            .iter()
            .filter(|((id, _), (_, expiry))| *id == keyspace.0 && live(*expiry))
            .map(|((_, key), _)| key.clone())
            .collect();
        assert_eq!(found, expected, "{place}: scan of keyspace {}", keyspace.0);
        ranges::check(random, settings, harness, model, keyspace, place);
        let count = harness.engine.len(keyspace);
        assert!(count >= expected.len() as u64, "{place}: {count} keys counted, {} live", expected.len());
    }
}

/// Dropping a keyspace empties it at once and leaves the others alone.
pub fn dropping_a_keyspace_empties_only_it<E: Engine, D: BlockDevice>(mut harness: Harness<E, D>) {
    for number in 0..50 {
        for keyspace in [KeyspaceId(1), KeyspaceId(2)] {
            if let Err(error) = harness.put(keyspace, &key_bytes(number), b"value") {
                panic!("put: {error}");
            }
        }
    }
    harness.engine.drop_keyspace(KeyspaceId(1));
    assert_eq!(harness.engine.len(KeyspaceId(1)), 0);
    assert_eq!(harness.engine.len(KeyspaceId(2)), 50);
    assert!(!matches!(range(&mut harness, KeyspaceId(1)), Ok(entries) if !entries.is_empty()));
    harness.settle(1_000);
    for number in 0..50 {
        assert!(matches!(harness.get(KeyspaceId(1), &key_bytes(number)), Ok(None)));
        assert!(matches!(harness.get(KeyspaceId(2), &key_bytes(number)), Ok(Some(_))));
    }
    // The part of a batch that began on another shard before the drop.
    let live = harness.engine.statistics().space_live_bytes;
    for number in 0..50 {
        if let Err(error) = harness.put(KeyspaceId(1), &key_bytes(number), b"late") {
            panic!("put: {error}");
        }
    }
    harness.settle(1_000);
    assert_eq!((harness.engine.len(KeyspaceId(1)), harness.engine.len(KeyspaceId(2))), (0, 50));
    // Of records whose lengths are not at hand the mean is taken off.
    let left = harness.engine.statistics().space_live_bytes;
    assert!(left < live + 500, "{live}, then {left}: what came late takes space for ever");
    for number in 0..50 {
        assert!(matches!(harness.get(KeyspaceId(1), &key_bytes(number)), Ok(None)));
    }
}

/// A snapshot shows keyspaces that were dropped after it was taken, and a later one does not.
pub fn a_snapshot_outlives_the_drop_of_its_keyspaces<E: Engine, D: BlockDevice>(mut harness: Harness<E, D>) {
    let (moved, pinned, other) = (KeyspaceId(1), KeyspaceId(2), KeyspaceId(3));
    let value = vec![7; 2_000];
    let fill = |harness: &mut Harness<E, D>, keyspace, keys: std::ops::Range<u64>, value: &[u8]| {
        for number in keys {
            if let Err(error) = harness.put(keyspace, &key_bytes(number), value) {
                panic!("put: {error}");
            }
        }
    };
    harness.engine.create_keyspace(moved, IndexKind::Ordered);
    harness.engine.create_keyspace(pinned, IndexKind::Ordered);
    // What is replaced now makes it worth while to move the rest of the first keyspace.
    fill(&mut harness, moved, 0..50, &value);
    fill(&mut harness, moved, 0..35, &value);
    fill(&mut harness, pinned, 0..50, &value);
    let Ok(before) = harness.engine.snapshot(harness.now) else { panic!("no snapshot") };
    for number in 0..20 {
        if let Err(error) = harness.delete(pinned, &key_bytes(number)) {
            panic!("delete: {error}");
        }
    }
    harness.engine.drop_keyspace(moved);
    harness.engine.drop_keyspace(pinned);
    let Ok(after) = harness.engine.snapshot(harness.now) else { panic!("no snapshot") };
    for round in 0..40 {
        fill(&mut harness, other, 0..50, &[round; 2_000]);
        if let Err(error) = harness.sync() {
            panic!("sync: {error}");
        }
        harness.settle(200);
    }
    for keyspace in [moved, pinned] {
        let nothing = harness.scan_all_at(Some(after), keyspace, 7, |_| {});
        assert!(matches!(nothing, Ok(entries) if entries.is_empty()));
        ranges::outlive_the_drop(&mut harness, keyspace, (before, after), &value);
        let shown = harness.scan_all_at(Some(before), keyspace, 7, |_| {});
        assert_eq!(shown.map(|entries| entries.len()).map_err(|error| error.kind()), Ok(50));
        for number in 0..50 {
            let read = harness.get_at(before, keyspace, &key_bytes(number)).map_err(|error| error.kind());
            assert_eq!(read.map(|found| found.map(|record| record.value)), Ok(Some(value.clone())));
            assert!(matches!(harness.get_at(after, keyspace, &key_bytes(number)), Ok(None)));
        }
    }
    harness.engine.release_snapshot(before);
    harness.engine.release_snapshot(after);
    harness.settle(1_000);
    assert!(matches!(harness.get(moved, &key_bytes(30)), Ok(None)));
}

fn range<E: Engine, D: BlockDevice>(
    harness: &mut Harness<E, D>,
    keyspace: KeyspaceId,
) -> tierstone_base::Result<Vec<crate::RangeEntry>> {
    harness.range_all(keyspace, Bound::Unbounded, Bound::Unbounded, 7, Direction::Forward)
}
