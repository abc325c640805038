//! The oracle behind an engine that behaves like one with a device: a random part of the lookups must
//! be fetched, in any order, writes are refused for a moment, durability lags behind.

use super::HASHER;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tierstone_base::{
    CpuClock, Error, ErrorKind, KeyspaceId, Now, Position, Result, SeededRandom, Seq, Token,
};
use tierstone_engine::backup::BackupRecord;
use tierstone_engine::map_engine::MapEngine;
use tierstone_engine::{
    Admission, BackupCut, BackupPiece, BackupSince, BackupStep, BatchTicket, Durability, Engine,
    EngineStatistics, Event, Health, IndexKind, Key, Lookup, RangeRequest, ScanEntry, ScanRequest,
    SnapshotId, Write, WriteReceipt,
};
use tierstone_media::{IoCompletion, IoRequest};

#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    /// How often a lookup must fetch.
    pub fetch: f64,
    /// How often a write is refused for a moment.
    pub retry: f64,
    /// How often a part of a batch over shards is refused for good.
    pub refuse: f64,
    /// How often a fetch fails for good.
    pub corrupt: f64,
    /// How often a step makes everything durable.
    pub durable: f64,
}

impl Default for Trouble {
    fn default() -> Self {
        Trouble { fetch: 0.5, retry: 0.1, refuse: 0.0, corrupt: 0.0, durable: 0.4 }
    }
}

#[derive(Debug)]
pub struct FetchingEngine {
    inner: MapEngine,
    random: SeededRandom,
    trouble: Trouble,
    pending: Vec<(Token, KeyspaceId, Position)>,
    held: BTreeMap<Token, (KeyspaceId, Position)>,
    durable: Seq,
    /// Every key that was ever written.
    keys: BTreeSet<(KeyspaceId, Position, Vec<u8>)>,
    /// What a backup has still to give, and up to where it must be durable.
    backup: Option<(VecDeque<BackupPiece>, Seq)>,
    /// Pages of walks are those of an index in buckets: what a page gives begins before its cursor, the next one
    /// begins right behind its last key, and the last one ends somewhere behind the shard's.
    pub has_buckets: bool,
    scans: BTreeMap<Token, ScanRequest>,
    /// The device has failed, and this is why.
    pub failure: Option<Error>,
    /// Backups are given up where they are asked for more.
    pub loses_backups: bool,
    pub fetches: u64,
    /// The most records that were held together.
    pub held_max: usize,
}

impl FetchingEngine {
    /// What troubles it from now on.
    pub fn set_trouble(&mut self, trouble: Trouble) {
        self.trouble = trouble;
    }

    /// How often a step makes everything durable, from now on.
    pub fn set_durable_chance(&mut self, chance: f64) {
        self.trouble.durable = chance;
    }

    pub fn new(seed: u64, trouble: Trouble) -> Self {
        FetchingEngine {
            inner: MapEngine::new(0),
            random: SeededRandom::new(seed),
            trouble,
            pending: Vec::new(),
            held: BTreeMap::new(),
            durable: 0,
            keys: BTreeSet::new(),
            backup: None,
            has_buckets: false,
            scans: BTreeMap::new(),
            failure: None,
            loses_backups: false,
            fetches: 0,
            held_max: 0,
        }
    }

    fn note_keys(&mut self, writes: &[Write<'_>]) {
        let key = |write: &Write<'_>| (write.key.keyspace, write.key.position, write.key.bytes.to_vec());
        self.keys.extend(writes.iter().map(key));
    }

    /// Makes a page of a walk as [`FetchingEngine::has_buckets`] says.
    fn make_bucket(&mut self, now: Now, event: &mut Event) {
        let Event::Scanned { token, entries, next, .. } = event else { return };
        let Some(request) = self.scans.remove(token).filter(|_| self.has_buckets) else { return };
        let last = entries.iter().map(|entry| HASHER.position(&entry.key)).max();
        *next = match (*next, last) {
            (Some(_), Some(last)) => Some(Position(last.0 + 1)),
            // The last bucket may reach beyond the shard's positions.
            (None, Some(last)) => last.0.checked_add(3 << 50).map(Position),
            (next, None) => next,
        };
        let before = self.keys.range(..(request.keyspace, request.cursor, Vec::new())).rev();
        for (keyspace, position, bytes) in before.take_while(|key| key.0 == request.keyspace).take(3) {
            let key = Key { keyspace: *keyspace, position: *position, bytes };
            if let Lookup::Found(record) = self.inner.lookup(now, key) {
                entries.push(ScanEntry { key: bytes.clone(), meta: record.meta });
            }
        }
    }

    /// Records that are held in memory: none when nothing is suspended.
    pub fn held(&self) -> usize {
        self.held.len() + self.pending.len()
    }
}

impl Engine for FetchingEngine {
    fn lookup(&mut self, now: Now, key: Key<'_>) -> Lookup<'_> {
        let is_held = self.held.values().any(|held| *held == (key.keyspace, key.position));
        if !is_held && self.random.chance(self.trouble.fetch) {
            return Lookup::Fetch;
        }
        self.inner.lookup(now, key)
    }

    fn fetch(&mut self, _now: Now, keys: &[(Token, Key<'_>)]) {
        self.fetches += keys.len() as u64;
        self.pending.extend(keys.iter().map(|(token, key)| (*token, key.keyspace, key.position)));
        self.held_max = self.held_max.max(self.held());
    }

    fn release(&mut self, token: Token) {
        self.held.remove(&token);
        self.pending.retain(|(other, ..)| *other != token);
    }

    fn write(&mut self, now: Now, writes: &[Write<'_>]) -> Result<WriteReceipt> {
        if self.random.chance(self.trouble.retry) {
            return Err(Error::new(ErrorKind::Retry, "throttled"));
        }
        self.note_keys(writes);
        self.inner.write(now, writes)
    }

    fn admit(&mut self, now: Now, writes: &[Write<'_>]) -> Result<()> {
        self.inner.admit(now, writes)
    }

    fn write_part(
        &mut self,
        now: Now,
        writes: &[Write<'_>],
        batch: &Arc<BatchTicket>,
    ) -> Result<WriteReceipt> {
        if self.random.chance(self.trouble.retry) {
            return Err(Error::new(ErrorKind::Retry, "throttled"));
        }
        if self.random.chance(self.trouble.refuse) {
            return Err(Error::new(ErrorKind::NoSpace, "full"));
        }
        self.note_keys(writes);
        self.inner.write_part(now, writes, batch)
    }

    fn undo_part(
        &mut self,
        now: Now,
        writes: &[Write<'_>],
        batch: &Arc<BatchTicket>,
    ) -> Result<WriteReceipt> {
        self.inner.undo_part(now, writes, batch)
    }

    fn scan(&mut self, now: Now, request: ScanRequest) {
        self.scans.insert(request.token, request);
        self.inner.scan(now, request);
    }

    fn snapshot(&mut self, now: Now) -> Result<SnapshotId> {
        self.inner.snapshot(now)
    }

    fn release_snapshot(&mut self, snapshot: SnapshotId) {
        self.inner.release_snapshot(snapshot);
    }

    fn read_at(&mut self, now: Now, snapshot: SnapshotId, keys: &[(Token, Key<'_>)]) {
        self.inner.read_at(now, snapshot, keys);
    }

    fn range(&mut self, now: Now, request: RangeRequest) {
        self.inner.range(now, request);
    }

    fn create_keyspace(&mut self, keyspace: KeyspaceId, index: IndexKind) {
        self.inner.create_keyspace(keyspace, index);
    }

    fn drop_keyspace(&mut self, keyspace: KeyspaceId) {
        self.inner.drop_keyspace(keyspace);
    }

    fn len(&self, keyspace: KeyspaceId) -> u64 {
        Engine::len(&self.inner, keyspace)
    }

    fn step(&mut self, now: Now, completions: &mut Vec<IoCompletion>, events: &mut Vec<Event>) {
        let known = events.len();
        self.inner.step(now, completions, events);
        for event in &mut events[known..] {
            self.make_bucket(now, event);
        }
        if self.failure.is_some() {
            return;
        }
        if self.random.chance(self.trouble.durable) {
            self.durable = self.inner.applied_seq();
        }
        let mut index = 0;
        while index < self.pending.len() {
            if !self.random.chance(0.4) {
                index += 1;
                continue;
            }
            let (token, keyspace, position) = self.pending.swap_remove(index);
            let is_corrupt = self.random.chance(self.trouble.corrupt);
            let result = if is_corrupt {
                Err(Error::new(ErrorKind::Corrupt, "checksum"))
            } else {
                self.held.insert(token, (keyspace, position));
                Ok(())
            };
            events.push(Event::Fetched { token, result, cost: Default::default() });
        }
    }

    fn take_requests(&mut self, requests: &mut Vec<IoRequest>) {
        self.inner.take_requests(requests);
    }

    fn next_step_at_us(&self) -> Option<u64> {
        Some(0)
    }

    fn durable_seq(&self) -> Seq {
        self.durable
    }

    fn decided_seq(&self) -> Seq {
        self.durable.min(self.inner.decided_seq())
    }

    fn applied_seq(&self) -> Seq {
        Engine::applied_seq(&self.inner)
    }

    fn flush(&mut self, now: Now) {
        self.inner.flush(now);
    }

    fn set_durability(&mut self, now: Now, durability: Durability) -> Seq {
        self.inner.set_durability(now, durability)
    }

    fn health(&self) -> Health {
        self.failure.clone().map_or(Health::Good, Health::Failed)
    }

    fn admission(&self) -> Admission {
        self.inner.admission()
    }

    fn set_cpu_clock(&mut self, clock: Box<dyn CpuClock>) {
        self.inner.set_cpu_clock(clock);
    }

    fn begin_backup(&mut self, now: Now, _: Option<BackupSince>) -> Result<BackupCut> {
        if self.backup.is_some() {
            return Err(Error::new(ErrorKind::Busy, "a backup is under way"));
        }
        let mut pieces = VecDeque::new();
        for (keyspace, position, bytes) in &self.keys {
            let key = Key { keyspace: *keyspace, position: *position, bytes };
            if let Lookup::Found(record) = self.inner.lookup(now, key) {
                let (kind, expiry_ms, value) = (record.meta.kind, record.meta.expiry_ms, record.value);
                let mut piece = BackupPiece::of_part(0, 0);
                piece.push(&BackupRecord {
                    place: 0,
                    keyspace: *keyspace,
                    kind,
                    expiry_ms,
                    key: bytes,
                    value,
                });
                pieces.push_back(piece);
            }
        }
        let seq = Engine::applied_seq(&self.inner);
        let bytes = pieces.iter().map(|piece| piece.bytes.len() as u64).sum();
        self.backup = Some((pieces, seq));
        Ok(BackupCut {
            seq,
            wall_ms: now.wall_ms,
            past_ms: 0,
            bytes,
            segment_bytes: 1 << 20,
            store: 1,
            opening: 1,
        })
    }

    fn take_backup(&mut self) -> Result<BackupStep> {
        if self.loses_backups {
            return Err(Error::new(ErrorKind::SnapshotLost, "the backup was given up: the store is full"));
        }
        let is_late = self.random.chance(0.3);
        let Some((pieces, seq)) = &mut self.backup else {
            return Err(Error::new(ErrorKind::InvalidInput, "there is no backup"));
        };
        Ok(match pieces.pop_front() {
            Some(piece) if is_late => {
                pieces.push_front(piece);
                BackupStep::Later
            }
            Some(piece) => BackupStep::Piece(piece),
            None if self.durable < *seq => BackupStep::Later,
            None => BackupStep::End,
        })
    }

    fn end_backup(&mut self) {
        self.backup = None;
    }

    fn statistics(&self) -> EngineStatistics {
        self.inner.statistics()
    }
}
