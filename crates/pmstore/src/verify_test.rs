use super::*;
use crate::{Geometry, OpenSettings, ShardSettings};
use std::sync::Arc;
use tierstone_base::{KeyHasher, Now};
use tierstone_crash::Mutations;
use tierstone_engine::{Engine, Event, IndexKind, Key, Write, WriteKind};
use tierstone_media::region::{MappedRegion, Region, RegionSettings};

pub(crate) const ORDERED: KeyspaceId = KeyspaceId(1);
pub(crate) const HASHED: KeyspaceId = KeyspaceId(2);

pub(crate) struct Store {
    region: Arc<MappedRegion>,
    pub shard: PmShard,
    hasher: KeyHasher,
    pub now: Now,
}

impl Store {
    /// 300 keys in each of two keyspaces; some are long, and some values.
    pub fn filled() -> Store {
        Store::filled_with(Mutations::default(), 0)
    }

    pub fn filled_with(mutations: Mutations, scrub_rate: u64) -> Store {
        let region = Arc::new(MappedRegion::anonymous(8 << 20, &RegionSettings::default()).unwrap());
        let settings = OpenSettings {
            create: true,
            geometry: Geometry { segment_bytes: 64 << 10, block_bytes: 4 << 10, log_segments: 4 },
            shard: ShardSettings { memory_bytes: u64::MAX, ..ShardSettings::default() },
            keyspaces: [(ORDERED, IndexKind::Ordered), (HASHED, IndexKind::Hash)]
                .map(|(id, index)| crate::Keyspace { id, index })
                .to_vec(),
            seed: 5,
            mutations,
            ..OpenSettings::default()
        };
        let opened = crate::open(Arc::clone(&region) as Arc<dyn Region + Send + Sync>, &settings).unwrap();
        let (shard, _) = opened.plans.into_iter().next().unwrap().build().unwrap();
        let mut store = Store { region, shard, hasher: opened.hasher, now: Now::default() };
        store.shard.set_scrub_rate(scrub_rate);
        for number in 0..300 {
            store.put(ORDERED, number);
            store.put(HASHED, number);
        }
        store
    }

    fn key<'k>(&self, keyspace: KeyspaceId, bytes: &'k [u8]) -> Key<'k> {
        Key { keyspace, position: self.hasher.position(bytes), bytes }
    }

    pub fn put(&mut self, keyspace: KeyspaceId, number: u32) {
        let (name, value) = (name(number), value(number));
        let kind = WriteKind::Put { value: &value, expiry_ms: 0, kind: Default::default() };
        let key = self.key(keyspace, &name);
        while self.shard.write(self.now, &[Write { key, kind }]).is_err() {
            self.step();
        }
        self.step();
    }

    pub fn step(&mut self) {
        self.now.monotonic_us += 10;
        let mut events: Vec<Event> = Vec::new();
        self.shard.step(self.now, &mut Vec::new(), &mut events);
    }

    pub fn place(&self, keyspace: KeyspaceId, number: u32) -> u64 {
        self.shard.find(&self.key(keyspace, &name(number))).unwrap().unwrap().place
    }

    /// Flips a bit of the record, or of what of it lies outside.
    pub fn flip(&self, place: u64, is_outside: bool) {
        let (head, record) = self.shard.record(place).unwrap();
        let overflow = head.overflow(&record).filter(|_| is_outside);
        let at = overflow.map_or(place + 41, |overflow| overflow.extents[0].offset + 2_000);
        let byte: [u8; 1] = self.shard.maker.memory.load(at);
        drop(record);
        self.region.store(at, &[byte[0] ^ 8]);
    }

    fn verified(&mut self) -> Verification {
        self.shard.begin_verification().unwrap();
        assert_eq!(self.shard.begin_verification().unwrap_err().kind(), ErrorKind::Busy);
        for _ in 0..1_000 {
            if !self.shard.verification().unwrap().is_running {
                break;
            }
            assert!(self.shard.next_step_at_us().is_some_and(|at_us| at_us <= self.now.monotonic_us));
            self.step();
        }
        self.shard.verification().unwrap().clone()
    }
}

fn name(number: u32) -> Vec<u8> {
    let mut name = format!("key {number}").into_bytes();
    if number % 50 == 7 {
        name.resize(3_000, b'x');
    }
    name
}

fn value(number: u32) -> Vec<u8> {
    vec![number as u8; if number % 40 == 3 { 70_000 } else { 100 }]
}

#[test]
fn a_whole_store_is_found_whole_beside_writes() {
    let mut store = Store::filled();
    assert!(store.shard.verification().is_none());
    let report = store.verified();
    assert!(!report.is_damaged() && !report.is_running, "{report:?}");
    assert_eq!((report.records, report.live_records, report.index_entries), (600, 600, 600));
    assert!(report.bytes > 2 * 8 * 70_000 && report.bytes <= report.bytes_total, "{report:?}");
    store.shard.begin_verification().unwrap();
    let mut number = 0;
    while store.shard.verification().unwrap().is_running {
        number += 1;
        store.put(ORDERED, number % 400);
        if number == 10 {
            store.shard.drop_keyspace(HASHED);
        }
    }
    let report = store.shard.verification().unwrap();
    assert!(!report.is_damaged() && report.records >= 300, "{report:?}");
}

#[test]
fn damage_is_told_by_its_kind_and_place() {
    let mut store = Store::filled();
    let (record, long) = (store.place(HASHED, 20), store.place(ORDERED, 43));
    store.flip(record, false);
    store.flip(long, true);
    // The index leads elsewhere, and an order has lost a key.
    let (key, other) = (name(400), store.place(ORDERED, 50));
    let position = store.shard.record(other).unwrap().0.position;
    let keys = store.shard.keyspaces.get_mut(&HASHED).unwrap();
    keys.insert(Position(position), &key, other);
    store.shard.keyspaces.get_mut(&ORDERED).unwrap().leave_order(&name(60));
    let report = store.verified();
    let expected = [("index", 1), ("long value", 1), ("order", 1), ("record", 1)];
    assert_eq!(report.damage, expected.map(|(kind, count)| (kind.to_owned(), count)).into());
    assert_eq!((report.lost_keys, report.index_entries, report.records), (3, 601, 597));
    let has = |word: &str, place: u64| {
        let byte = format!("byte {place} ");
        report.findings.iter().any(|finding| finding.contains(word) && finding.contains(&byte))
    };
    assert!(has("record of keyspace 2", record) && has("long value of keyspace 1", long), "{report:?}");
    assert!(report.findings.iter().all(|finding| finding.starts_with("shard 0, segment ")), "{report:?}");
    assert_eq!(report.findings.iter().filter(|finding| finding.contains("key hash")).count(), 3);
    // The store goes on, and so does another verification.
    store.put(HASHED, 1);
    assert_eq!(store.verified().damage, report.damage);
}

#[test]
fn a_store_that_is_closed_ends_its_verification() {
    let mut store = Store::filled();
    store.shard.begin_verification().unwrap();
    store.shard.shut();
    for _ in 0..100 {
        store.step();
    }
    assert!(store.shard.is_shut() && !store.shard.verification().unwrap().is_running);
    assert_eq!(store.shard.begin_verification().unwrap_err().kind(), ErrorKind::Busy);
}
