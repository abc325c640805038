//! What every engine must do, as checks that a test calls with a way to make its engine.
//!
//! A check panics with its seed when the engine departs from the model. The crash checks live with
//! each engine, because only it knows how its medium is reopened; they use the same operations.

use crate::batch::BatchTicket;
use crate::contract::{Engine, Write, WriteKind};
use crate::harness::Harness;
use std::collections::{BTreeMap, BTreeSet};
use tierstone_base::{ErrorKind, KeyspaceId, SeededRandom};
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
    /// The longest value in bytes.
    pub value_bytes: u64,
    /// One of this many operations reopens the engine; zero: never.
    pub reopen_every: u64,
}

impl Default for ModelSettings {
    fn default() -> Self {
        ModelSettings { operations: 2_000, keys: 200, keyspaces: 2, value_bytes: 600, reopen_every: 0 }
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
    for operation in 0..settings.operations {
        let place = format!("seed {seed}, operation {operation}");
        match random.below(100) {
            0..40 => put_random(&mut random, settings, &mut harness, &mut model, &place),
            40..50 => delete_random(&mut random, settings, &mut harness, &mut model, &place),
            50..60 => batch_random(&mut random, settings, &mut harness, &mut model, &place),
            60..95 => {
                let (keyspace, key) = random_key(&mut random, settings);
                check_key(&mut harness, &model, keyspace, &key, &place);
            }
            95..97 => harness.now.wall_ms += random.below(2_000),
            97..98 => check_everything(&mut harness, &model, settings, &mut random, &place),
            _ => {
                if let Err(error) = harness.sync() {
                    panic!("{place}: sync: {error}");
                }
            }
        }
        if settings.reopen_every > 0 && random.below(settings.reopen_every) == 0 {
            let now = harness.now;
            harness = reopen(harness);
            harness.now = harness.now.max(now);
            check_everything(&mut harness, &model, settings, &mut random, &format!("{place}, reopened"));
        }
    }
    check_everything(&mut harness, &model, settings, &mut random, &format!("seed {seed}, end"));
    harness
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
    let kind = WriteKind::Put { value: &value, expiry_ms, kind: Default::default() };
    match harness.write(&[Write { key: harness.key(keyspace, &key), kind }]) {
        Ok(_) => drop(model.insert((keyspace.0, key), (value, expiry_ms))),
        Err(error) => assert!(is_full(error.kind()), "{place}: put: {error}"),
    }
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
    harness.settle(1_000);
    for number in 0..50 {
        assert!(matches!(harness.get(KeyspaceId(1), &key_bytes(number)), Ok(None)));
        assert!(matches!(harness.get(KeyspaceId(2), &key_bytes(number)), Ok(Some(_))));
    }
}

/// A write is visible at once and durable only later, and the sequence says which.
pub fn writes_are_visible_before_they_are_durable<E: Engine, D: BlockDevice>(mut harness: Harness<E, D>) {
    let Ok(seq) = harness.put(KeyspaceId(1), b"key", b"value") else { panic!("put failed") };
    assert!(harness.engine.durable_seq() < seq, "durable before any step");
    assert!(matches!(harness.get(KeyspaceId(1), b"key"), Ok(Some(_))));
    if let Err(error) = harness.sync() {
        panic!("sync: {error}");
    }
    assert!(harness.engine.durable_seq() >= seq);
}

/// A batch over two engines (of one store, where it matters) is decided when both parts are durable, and
/// nothing that follows the part on either engine is decided before it.
pub fn a_batch_over_two_engines_is_decided_when_both_parts_are_durable<E: Engine, D: BlockDevice>(
    mut first: Harness<E, D>,
    mut second: Harness<E, D>,
) {
    let batch = BatchTicket::new(1, 2);
    let put = |value: &'static [u8]| WriteKind::Put { value, expiry_ms: 0, kind: Default::default() };
    let parts = [&mut first, &mut second].map(|harness| {
        let key = harness.key(KeyspaceId(1), b"key");
        let absent = harness.key(KeyspaceId(1), b"absent");
        let writes = [Write { key: absent, kind: WriteKind::Delete }, Write { key, kind: put(b"value") }];
        match harness.write_part(&writes, &batch) {
            Ok(seq) => seq,
            Err(error) => panic!("write_part: {error}"),
        }
    });
    assert!(first.write_part(&[], &batch).is_err(), "a part without writes is refused");
    let Ok(later) = first.put(KeyspaceId(1), b"later", b"value") else { panic!("put failed") };
    if let Err(error) = first.sync() {
        panic!("sync: {error}");
    }
    assert!(first.engine.durable_seq() >= later && !batch.is_decided());
    assert!(first.engine.decided_seq() < parts[0], "decided although a part is missing");
    assert!(matches!(first.get(KeyspaceId(1), b"key"), Ok(Some(_))), "a part is visible at once");
    if let Err(error) = second.sync() {
        panic!("sync: {error}");
    }
    assert!(batch.is_decided() && second.engine.decided_seq() >= parts[1]);
    assert!(first.engine.decided_seq() >= later, "what follows a decided part is decided with it");
}

/// A batch that one engine refused is taken back on the other, and what follows is decided.
pub fn a_part_of_a_refused_batch_is_taken_back<E: Engine, D: BlockDevice>(mut harness: Harness<E, D>) {
    let batch = BatchTicket::new(7, 2);
    let key = harness.key(KeyspaceId(1), b"key");
    let kind = WriteKind::Put { value: b"value", expiry_ms: 0, kind: Default::default() };
    let Ok(part) = harness.write_part(&[Write { key, kind }], &batch) else { panic!("part refused") };
    if let Err(error) = harness.sync() {
        panic!("sync: {error}");
    }
    assert!(harness.engine.decided_seq() < part);
    let undo = [Write { key, kind: WriteKind::Delete }];
    if let Err(error) = harness.engine.undo_part(harness.now, &undo, &batch) {
        panic!("undo_part: {error}");
    }
    if let Err(error) = harness.sync() {
        panic!("sync: {error}");
    }
    assert_eq!(harness.engine.decided_seq(), harness.engine.applied_seq());
    assert!(matches!(harness.get(KeyspaceId(1), b"key"), Ok(None)));
}
