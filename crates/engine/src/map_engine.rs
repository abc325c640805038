//! The oracle: an ordered map that answers everything from memory and loses everything at a crash.
//!
//! It is the model that every engine is compared with, and the engine of tests that are not about
//! durability. Writes become durable at the next [`Engine::step`], so that a caller that forgets to
//! gate its replies is seen.

use crate::batch::BatchTicket;
use crate::contract::{
    Admission, Commit, Cost, Direction, Durability, Engine, EngineStatistics, Event, Health, IndexKind, Key,
    Lookup, OwnedRecord, RangeEntry, RangeRequest, RecordMeta, RecordView, ScanEntry, ScanRequest,
    SnapshotId, Write, WriteKind, WriteReceipt,
};
use crate::cost::Meter;
use crate::eviction::Housekeeping;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;
use std::sync::Arc;
use tierstone_base::{CpuClock, Error, ErrorKind, KeyspaceId, Now, Position, Result, Seq, Token};
use tierstone_media::{IoCompletion, IoRequest};

type MapKey = (KeyspaceId, Position, Vec<u8>);
type Records = BTreeMap<MapKey, (RecordMeta, Vec<u8>)>;

/// An engine over a `BTreeMap`.
#[derive(Debug, Default)]
pub struct MapEngine {
    records: Records,
    applied: Seq,
    durable: Seq,
    durability: Durability,
    fetched: Vec<Token>,
    scans: Vec<ScanRequest>,
    ranges: Vec<RangeRequest>,
    ordered: BTreeSet<KeyspaceId>,
    dropped: BTreeSet<KeyspaceId>,
    user_bytes: u64,
    /// Whole copies: the oracle has no cleverness that could be wrong.
    snapshots: BTreeMap<SnapshotId, Cut>,
    next_snapshot: u64,
    /// Answers of reads at snapshots that the next step gives.
    read: Vec<Event>,
    parts: Vec<Part>,
    /// Writes are refused, as by an engine that has no room for them just now.
    is_full: bool,
    meter: Meter,
}

/// What a snapshot shows.
#[derive(Clone, Debug)]
struct Cut {
    records: Records,
    ordered: BTreeSet<KeyspaceId>,
    wall_ms: u64,
}

/// A part of a batch that is not decided.
#[derive(Debug)]
struct Part {
    first: Seq,
    is_durable: bool,
    is_undone: bool,
    batch: Arc<BatchTicket>,
}

impl Part {
    fn is_decided(&self) -> bool {
        self.is_durable && (self.is_undone || self.batch.is_decided())
    }
}

impl MapEngine {
    /// An empty engine whose first write has a sequence above `last`.
    pub fn new(last: Seq) -> Self {
        MapEngine { applied: last, durable: last, ..MapEngine::default() }
    }

    /// From now on refuses what is written, as an engine does that may have room for it later, or takes it again. What takes back a
    /// part it always takes.
    pub fn set_full(&mut self, is_full: bool) {
        self.is_full = is_full;
    }

    fn check_room(&self) -> Result<()> {
        if self.is_full { Err(Error::new(ErrorKind::Retry, "there is no room just now")) } else { Ok(()) }
    }

    fn put_all(&mut self, writes: &[Write<'_>]) -> WriteReceipt {
        let since = self.meter.read();
        for write in writes {
            self.applied += 1;
            self.user_bytes += write.key.bytes.len() as u64;
            match write.kind {
                WriteKind::Put { .. } if self.dropped.contains(&write.key.keyspace) => {}
                WriteKind::Put { value, expiry_ms, kind } => {
                    let meta = RecordMeta { seq: self.applied, expiry_ms, kind };
                    self.user_bytes += value.len() as u64;
                    self.records.insert(map_key(write.key), (meta, value.to_vec()));
                }
                WriteKind::Delete => {
                    self.records.remove(&map_key(write.key));
                }
            }
        }
        let commit = match self.durability {
            Durability::Sync => Commit::Durable,
            Durability::Group { .. } => Commit::Grouped,
            Durability::Relaxed => Commit::Relaxed,
        };
        let cost = Cost { cpu_ns: self.meter.call(since, true), ..Cost::default() };
        WriteReceipt { seq: self.applied, commit, cost }
    }

    fn page(&self, request: ScanRequest) -> Event {
        let (records, expired_ms) = match request.snapshot.map(|id| self.cut(id)) {
            None => (&self.records, 0),
            Some(Ok(cut)) => (&cut.records, cut.wall_ms),
            Some(Err(error)) => {
                let (token, entries) = (request.token, Vec::new());
                return Event::Scanned {
                    token,
                    entries,
                    next: None,
                    error: Some(error),
                    cost: Cost::default(),
                };
            }
        };
        let start = (request.keyspace, request.cursor, Vec::new());
        let mut entries = Vec::new();
        let mut last = None;
        for ((keyspace, position, key), (meta, _)) in records.range(start..) {
            if *keyspace != request.keyspace {
                break;
            }
            if entries.len() >= request.count.max(1) as usize && last != Some(*position) {
                return Event::Scanned {
                    token: request.token,
                    entries,
                    next: Some(*position),
                    error: None,
                    cost: Cost::default(),
                };
            }
            last = Some(*position);
            if meta.expiry_ms == 0 || meta.expiry_ms > expired_ms {
                entries.push(ScanEntry { key: key.clone(), meta: *meta });
            }
        }
        Event::Scanned { token: request.token, entries, next: None, error: None, cost: Cost::default() }
    }

    fn cut(&self, id: SnapshotId) -> Result<&Cut> {
        let unknown = || Error::new(ErrorKind::InvalidInput, format!("there is no snapshot {}", id.0));
        self.snapshots.get(&id).ok_or_else(unknown)
    }

    /// What a range is to show, and the time at which it judges expiry.
    fn ranged(&self, now: Now, request: &RangeRequest) -> Result<(&Records, u64)> {
        let (records, ordered, wall_ms) = match request.snapshot.map(|id| self.cut(id)).transpose()? {
            Some(cut) => (&cut.records, &cut.ordered, cut.wall_ms),
            None => (&self.records, &self.ordered, now.wall_ms),
        };
        match ordered.contains(&request.keyspace) {
            true => Ok((records, wall_ms)),
            false if self.dropped.contains(&request.keyspace) => Err(request.dropped()),
            false => Err(request.no_order()),
        }
    }

    fn range_page(&self, now: Now, request: RangeRequest) -> Event {
        let (records, wall_ms) = match self.ranged(now, &request) {
            Ok(shown) => shown,
            Err(error) => {
                let (token, entries) = (request.token, Vec::new());
                return Event::Ranged {
                    token,
                    entries,
                    next: None,
                    error: Some(error),
                    cost: Cost::default(),
                };
            }
        };
        let RangeRequest { token, keyspace, from, to, limit, direction, .. } = request;
        let start = (keyspace, Position(0), Vec::new());
        let own = records.range(start..).take_while(|((id, ..), _)| *id == keyspace);
        let mut found: Vec<RangeEntry> = own
            .filter(|((_, _, key), _)| (from.clone(), to.clone()).contains(key))
            .filter(|(_, (meta, _))| meta.expiry_ms == 0 || meta.expiry_ms > wall_ms)
            .map(|((_, _, key), (meta, value))| RangeEntry {
                key: key.clone(),
                meta: *meta,
                value: value.clone(),
            })
            .collect();
        found.sort_by(|one, other| one.key.cmp(&other.key));
        if direction == Direction::Backward {
            found.reverse();
        }
        let more = found.len() > limit.max(1) as usize;
        found.truncate(limit.max(1) as usize);
        let next = found.last().filter(|_| more).map(|entry| entry.key.clone());
        Event::Ranged { token, entries: found, next, error: None, cost: Cost::default() }
    }
}

fn map_key(key: Key<'_>) -> MapKey {
    (key.keyspace, key.position, key.bytes.to_vec())
}

impl Engine for MapEngine {
    fn lookup(&mut self, now: Now, key: Key<'_>) -> Lookup<'_> {
        match self.records.get(&map_key(key)) {
            Some((meta, _)) if meta.expiry_ms != 0 && meta.expiry_ms <= now.wall_ms => Lookup::Missing,
            Some((meta, value)) => Lookup::Found(RecordView { meta: *meta, value }),
            None => Lookup::Missing,
        }
    }

    fn fetch(&mut self, _now: Now, keys: &[(Token, Key<'_>)]) {
        let since = self.meter.read();
        self.fetched.extend(keys.iter().map(|(token, _)| *token));
        self.meter.asked(since, keys.iter().map(|(token, _)| *token));
    }

    fn release(&mut self, token: Token) {
        self.meter.forget(token);
    }

    fn write(&mut self, _now: Now, writes: &[Write<'_>]) -> Result<WriteReceipt> {
        self.check_room()?;
        Ok(self.put_all(writes))
    }

    fn admit(&mut self, _now: Now, _writes: &[Write<'_>]) -> Result<()> {
        self.check_room()
    }

    fn write_part(
        &mut self,
        _now: Now,
        writes: &[Write<'_>],
        batch: &Arc<BatchTicket>,
    ) -> Result<WriteReceipt> {
        if writes.is_empty() {
            return Err(Error::new(ErrorKind::InvalidInput, "a part of a batch has at least one write"));
        }
        self.check_room()?;
        let first = self.applied + 1;
        self.parts.push(Part { first, is_durable: false, is_undone: false, batch: Arc::clone(batch) });
        Ok(self.put_all(writes))
    }

    fn undo_part(
        &mut self,
        _now: Now,
        writes: &[Write<'_>],
        batch: &Arc<BatchTicket>,
    ) -> Result<WriteReceipt> {
        let receipt = self.put_all(writes);
        let own = self.parts.iter_mut().filter(|part| Arc::ptr_eq(&part.batch, batch));
        own.for_each(|part| part.is_undone = true);
        Ok(receipt)
    }

    fn scan(&mut self, _now: Now, request: ScanRequest) {
        let since = self.meter.read();
        self.scans.push(request);
        self.meter.asked(since, [request.token].into_iter());
    }

    fn snapshot(&mut self, now: Now) -> Result<SnapshotId> {
        self.next_snapshot += 1;
        let id = SnapshotId(self.next_snapshot);
        let (records, ordered) = (self.records.clone(), self.ordered.clone());
        self.snapshots.insert(id, Cut { records, ordered, wall_ms: now.wall_ms });
        Ok(id)
    }

    fn release_snapshot(&mut self, snapshot: SnapshotId) {
        self.snapshots.remove(&snapshot);
    }

    fn read_at(&mut self, _now: Now, snapshot: SnapshotId, keys: &[(Token, Key<'_>)]) {
        let since = self.meter.read();
        for (token, key) in keys {
            let result = self.cut(snapshot).map(|cut| {
                let (meta, value) = cut.records.get(&map_key(*key))?;
                let live = meta.expiry_ms == 0 || meta.expiry_ms > cut.wall_ms;
                live.then(|| OwnedRecord { meta: *meta, value: value.clone() })
            });
            self.read.push(Event::SnapshotRead { token: *token, result, cost: Cost::default() });
        }
        self.meter.asked(since, keys.iter().map(|(token, _)| *token));
    }

    fn range(&mut self, _now: Now, request: RangeRequest) {
        let (since, token) = (self.meter.read(), request.token);
        self.ranges.push(request);
        self.meter.asked(since, [token].into_iter());
    }

    fn create_keyspace(&mut self, keyspace: KeyspaceId, index: IndexKind) {
        if index == IndexKind::Ordered {
            self.ordered.insert(keyspace);
        }
    }

    fn drop_keyspace(&mut self, keyspace: KeyspaceId) {
        self.ordered.remove(&keyspace);
        self.dropped.insert(keyspace);
        self.records.retain(|key, _| key.0 != keyspace);
    }

    fn len(&self, keyspace: KeyspaceId) -> u64 {
        let start = (keyspace, Position(0), Vec::new());
        self.records.range(start..).take_while(|(key, _)| key.0 == keyspace).count() as u64
    }

    fn step(&mut self, now: Now, _completions: &mut Vec<IoCompletion>, events: &mut Vec<Event>) {
        let (began, first) = (self.meter.read(), events.len());
        self.durable = self.applied;
        for part in self.parts.iter_mut().filter(|part| !part.is_durable) {
            part.is_durable = true;
            part.batch.note_durable();
        }
        // Nothing here survives a crash, so that there is nothing to be marked.
        self.parts.retain(|part| {
            let is_decided = part.is_decided();
            if is_decided {
                part.batch.note_marked();
            }
            !is_decided
        });
        let rested = self.meter.read();
        for token in self.fetched.drain(..) {
            events.push(Event::Fetched { token, result: Ok(()), cost: Cost::default() });
        }
        events.append(&mut self.read);
        for request in std::mem::take(&mut self.scans) {
            events.push(self.page(request));
        }
        for request in std::mem::take(&mut self.ranges) {
            events.push(self.range_page(now, request));
        }
        self.meter.step([began, began, rested], &mut events[first..]);
    }

    fn take_requests(&mut self, _requests: &mut Vec<IoRequest>) {}

    fn next_step_at_us(&self) -> Option<u64> {
        let answered = self.fetched.is_empty()
            && self.scans.is_empty()
            && self.ranges.is_empty()
            && self.read.is_empty()
            && self.parts.is_empty();
        let idle = self.durable == self.applied && answered;
        (!idle).then_some(0)
    }

    fn durable_seq(&self) -> Seq {
        self.durable
    }

    fn decided_seq(&self) -> Seq {
        let open = self.parts.iter().find(|part| !part.is_decided());
        open.map_or(self.durable, |part| self.durable.min(part.first - 1))
    }

    fn applied_seq(&self) -> Seq {
        self.applied
    }

    fn flush(&mut self, _now: Now) {}

    fn set_durability(&mut self, _now: Now, durability: Durability) -> Seq {
        self.durability = durability;
        self.applied
    }

    fn health(&self) -> Health {
        Health::Good
    }

    fn admission(&self) -> Admission {
        Admission::Open
    }

    /// It is never full, and nothing of it rots: what it is told of both it keeps.
    fn housekeeping(&self) -> Housekeeping {
        Housekeeping { evicts: true, scrubs: true }
    }

    fn set_cpu_clock(&mut self, clock: Box<dyn CpuClock>) {
        self.meter.set_clock(clock);
    }

    fn statistics(&self) -> EngineStatistics {
        EngineStatistics {
            device: Cost { cpu_ns: self.meter.total_ns(), ..Cost::default() },
            background_cpu_ns: self.meter.background_ns(),
            keys: self.records.len() as u64,
            user_bytes_written: self.user_bytes,
            snapshots: self.snapshots.len() as u64,
            ..EngineStatistics::default()
        }
    }
}
