use super::*;
use crate::database_map::DatabaseMap;
use crate::shard::ShardSettings;
use tierstone_base::{KeyHasher, KeyspaceId};
use tierstone_engine::map_engine::MapEngine;
use tierstone_engine::{Durability, ValueKind};

const COORDINATOR: ShardId = 3;

/// A participant with its shard, whose time goes on when it is told to.
struct Scene {
    shard: Shard<MapEngine>,
    participant: Participant,
    now: Now,
    outgoing: Outgoing,
    granted: Vec<TaskId>,
}

impl Scene {
    fn new() -> Scene {
        let settings = ShardSettings {
            index: 0,
            count: 2,
            map: DatabaseMap::new(2),
            index_kind: Default::default(),
            hasher: KeyHasher::new([1, 2]),
            durability: Durability::Sync,
            record_bytes_max: 1 << 20,
        };
        Scene {
            shard: Shard::new(MapEngine::new(0), settings),
            participant: Participant::default(),
            now: Now { monotonic_us: 1, wall_ms: 1 },
            outgoing: Vec::new(),
            granted: Vec::new(),
        }
    }

    /// One in which the part of a batch is written and durable, and the batch not decided.
    fn with_part(number: u64, yields: bool) -> (Scene, BatchId) {
        let mut scene = Scene::new();
        let batch = scene.prepare(number, yields);
        scene.make_durable();
        assert_eq!(scene.prepared(batch), Some(None));
        (scene, batch)
    }

    fn receive(&mut self, message: ShardMessage) {
        let Scene { shard, participant, now, outgoing, granted } = self;
        participant.receive(*now, shard, message, outgoing, granted);
    }

    fn poll(&mut self) {
        let Scene { shard, participant, now, outgoing, granted } = self;
        participant.poll(*now, shard, outgoing, granted);
    }

    /// Locks the key of a batch and prepares a write of it, as one of two parts.
    fn prepare(&mut self, number: u64, yields: bool) -> BatchId {
        let batch = BatchId { coordinator: COORDINATOR, number };
        let key = OwnedKey {
            keyspace: KeyspaceId(1),
            position: tierstone_base::Position(number),
            bytes: number.to_le_bytes().to_vec(),
        };
        self.lock(batch, 0, key.clone());
        let value = Some((b"value".to_vec(), 0, ValueKind::STRING));
        self.receive(ShardMessage::Prepare {
            batch,
            participants: vec![0, 1],
            writes: vec![OwnedWrite { key, value }],
            ticket: batch.ticket(2),
            writer: None,
            yields,
        });
        batch
    }

    /// Locks a key for a batch that goes by the map with this version.
    fn lock(&mut self, batch: BatchId, map_version: u64, key: OwnedKey) {
        let keys = vec![key];
        self.receive(ShardMessage::Lock { batch, map_version, keys, watcher: None, is_use: true });
    }

    /// Whether the part of `batch` was prepared since the last look, and if so with what.
    fn prepared(&mut self, batch: BatchId) -> Option<Option<ErrorKind>> {
        let found = self.outgoing.drain(..).filter_map(|(to, message)| match message {
            ShardMessage::Prepared { batch: of, error } if of == batch => {
                assert_eq!(to, COORDINATOR);
                Some(error.map(|error| error.kind()))
            }
            _ => None,
        });
        let found: Vec<_> = found.collect();
        assert!(found.len() <= 1, "answered more than once: {found:?}");
        found.first().copied()
    }

    /// What becomes of a part of `batch` `waited_us` after it was refused for the first time.
    fn prepared_after(&mut self, batch: BatchId, waited_us: u64) -> Option<Option<ErrorKind>> {
        self.now.monotonic_us = 1 + waited_us;
        self.poll();
        self.prepared(batch)
    }

    fn has(&mut self, number: u64) -> bool {
        let (position, bytes) = (tierstone_base::Position(number), number.to_le_bytes());
        let key = Key { keyspace: KeyspaceId(1), position, bytes: &bytes };
        matches!(self.shard.engine_mut().lookup(self.now, key), Lookup::Found(_))
    }

    fn make_durable(&mut self) {
        self.shard.engine_mut().step(self.now, &mut Vec::new(), &mut Vec::new());
        self.poll();
    }
}

#[test]
fn a_part_without_room_yields_to_an_earlier_batch_that_is_not_decided() {
    let (mut scene, first) = Scene::with_part(1, true);
    scene.shard.engine_mut().set_full(true);
    let second = scene.prepare(2, true);
    assert_eq!(scene.prepared_after(second, YIELDS_AFTER_US - 1), None, "there may be room yet");
    assert_eq!(scene.prepared_after(second, YIELDS_AFTER_US), Some(Some(ErrorKind::Retry)));
    // It is taken back: nothing of it was written, and its key is free for another.
    scene.receive(ShardMessage::Decide { batch: second, undo: Vec::new() });
    scene.receive(ShardMessage::Decide { batch: first, undo: Vec::new() });
    assert!(scene.participant.is_empty() && scene.has(1) && !scene.has(2));
    scene.shard.engine_mut().set_full(false);
    let again = scene.prepare(2, true);
    scene.make_durable();
    assert_eq!(scene.prepared(again), Some(None));
    assert!(scene.has(2));
}

#[test]
fn a_part_does_not_yield_to_a_later_batch_that_would_yield_itself() {
    let (mut scene, _) = Scene::with_part(2, true);
    scene.shard.engine_mut().set_full(true);
    let earlier = scene.prepare(1, true);
    assert_eq!(scene.prepared_after(earlier, 50 * YIELDS_AFTER_US), None, "the later one yields");
    scene.shard.engine_mut().set_full(false);
    scene.poll();
    scene.make_durable();
    assert_eq!(scene.prepared(earlier), Some(None));
}

#[test]
fn a_part_yields_to_any_batch_that_cannot() {
    let (mut scene, _) = Scene::with_part(2, false);
    scene.shard.engine_mut().set_full(true);
    let earlier = scene.prepare(1, true);
    assert_eq!(scene.prepared_after(earlier, YIELDS_AFTER_US), Some(Some(ErrorKind::Retry)));
}

#[test]
fn a_part_that_cannot_yield_or_need_not_waits_two_seconds_for_room() {
    for (first_is_decided, yields) in [(false, false), (true, true)] {
        let (mut scene, first) = Scene::with_part(1, true);
        if first_is_decided {
            scene.receive(ShardMessage::Decide { batch: first, undo: Vec::new() });
        }
        scene.shard.engine_mut().set_full(true);
        let second = scene.prepare(2, yields);
        assert_eq!(scene.prepared_after(second, PART_WAIT_US - 1), None);
        assert_eq!(scene.prepared_after(second, PART_WAIT_US), Some(Some(ErrorKind::NoSpace)));
        assert!(!scene.has(2));
    }
}

#[test]
fn what_takes_a_part_back_is_written_whatever_room_there_is() {
    let (mut scene, batch) = Scene::with_part(1, true);
    scene.shard.engine_mut().set_full(true);
    let key = OwnedKey {
        keyspace: KeyspaceId(1),
        position: tierstone_base::Position(1),
        bytes: 1u64.to_le_bytes().to_vec(),
    };
    scene.receive(ShardMessage::Decide { batch, undo: vec![OwnedWrite { key, value: None }] });
    assert!(!scene.has(1) && scene.participant.is_empty());
}

/// A key of database 0 as its first map has it.
fn first_key() -> OwnedKey {
    OwnedKey { keyspace: KeyspaceId(1), position: tierstone_base::Position(1), bytes: b"key".to_vec() }
}

#[test]
fn a_batch_by_an_older_map_is_told_that_it_is_stale_even_if_the_change_comes_while_it_waits_for_its_locks() {
    for waits in [false, true] {
        let mut scene = Scene::new();
        let [first, second] = [1, 2].map(|number| BatchId { coordinator: COORDINATOR, number });
        if waits {
            scene.lock(first, 0, first_key());
            scene.lock(second, 0, first_key());
            assert_eq!(scene.outgoing.len(), 1, "the other one waits");
        }
        let mut map = scene.shard.map().clone();
        map.change(crate::MapChange::Flush(0)).unwrap();
        scene.shard.apply_map(&map);
        if waits {
            scene.receive(ShardMessage::Decide { batch: first, undo: Vec::new() });
            for task in std::mem::take(&mut scene.granted) {
                let Scene { shard, participant, now, outgoing, .. } = &mut scene;
                participant.granted(*now, shard, task, outgoing);
            }
        } else {
            scene.lock(second, 0, first_key());
        }
        let told = scene.outgoing.pop();
        let is_stale = |message: &ShardMessage| matches!(message, ShardMessage::Stale { batch, map_version: 1 } if *batch == second);
        assert!(
            told.as_ref().is_some_and(|(to, message)| *to == COORDINATOR && is_stale(message)),
            "{told:?}"
        );
        scene.receive(ShardMessage::Decide { batch: second, undo: Vec::new() });
        assert!(scene.participant.is_empty() && scene.shard.locks.is_empty());
    }
}

#[test]
fn a_batch_by_a_newer_map_waits_with_its_locks_until_the_map_is_here() {
    let mut scene = Scene::new();
    let batch = BatchId { coordinator: COORDINATOR, number: 1 };
    let mut map = scene.shard.map().clone();
    map.change(crate::MapChange::Flush(1)).unwrap();
    scene.lock(batch, map.version, first_key());
    scene.poll();
    assert!(scene.outgoing.is_empty() && scene.shard.locks.blocks_writer(tierstone_base::Position(1)));
    scene.shard.apply_map(&map);
    scene.poll();
    assert!(
        matches!(scene.outgoing[..], [(COORDINATOR, ShardMessage::Locked { .. })]),
        "{:?}",
        scene.outgoing
    );
    scene.poll();
    assert_eq!(scene.outgoing.len(), 1, "it is answered once");
}

/// Chunks are gathered with the records of before, under the locks that are held: a lock at a chunk's own position keeps nobody
/// who has its value's key.
#[test]
fn chunks_are_gathered_without_further_locks_and_by_the_map_of_the_batch() {
    let mut scene = Scene::new();
    let batch = BatchId { coordinator: COORDINATOR, number: 1 };
    let key_of = |keyspace, number: u64| OwnedKey {
        keyspace,
        position: tierstone_base::Position(number),
        bytes: number.to_le_bytes().to_vec(),
    };
    let (key, chunk) = (key_of(KeyspaceId(1), 1), key_of(KeyspaceId(1).chunks(), 2));
    for key in [&key, &chunk] {
        let put = WriteKind::Put { value: &key.bytes, expiry_ms: 0, kind: ValueKind::STRING };
        let write = Write { key: borrowed(key), kind: put };
        scene.shard.write_whole(scene.now, &[write], Whole::Batch).unwrap();
    }
    scene.lock(batch, 0, key.clone());
    scene.lock(BatchId { coordinator: COORDINATOR, number: 2 }, 0, chunk.clone());
    scene.outgoing.clear();
    scene.receive(ShardMessage::Gather { batch, chunks: vec![chunk.clone()] });
    let Some((COORDINATOR, ShardMessage::Locked { batch: of, records: Ok(records), .. })) =
        scene.outgoing.pop()
    else {
        panic!("it was not gathered")
    };
    let values: Vec<_> = records.into_iter().map(|record| record.unwrap().value).collect();
    assert_eq!((of, values), (batch, vec![key.bytes, chunk.bytes.clone()]));
    let mut map = DatabaseMap::new(2);
    map.change(crate::MapChange::Flush(1)).unwrap();
    scene.shard.apply_map(&map);
    scene.receive(ShardMessage::Gather { batch, chunks: vec![chunk] });
    assert!(matches!(scene.outgoing.pop(), Some((COORDINATOR, ShardMessage::Stale { map_version: 1, .. }))));
}
