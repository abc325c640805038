//! A small engine that updates pages in place, for tests: it keeps the contract from fitting logs only.
//!
//! A key's page follows from its position. A write changes its page in memory and is durable when the
//! journal's group with it is. Now and then a checkpoint puts the changed pages back: images of all of them
//! go to a shadow first, then to their places, then the next epoch's root makes journal and shadow nothing.
//!
//! Invariants:
//! 1. A page is changed in its place only while a whole shadow of the epoch has its new image.
//! 2. Nothing of an undecided batch over several engines reaches a page or a shadow: there is no checkpoint
//!    while a part is not marked by all participants or taken back. Until then recovery can leave it out.
//! 3. A page that a snapshot shows is copied before it changes.
//!
//! A crash leaves a root, whole groups of its epoch up to the first that is not, and perhaps its shadow.
//! Walks read every page, and openings too: what is small here is the code.
#![allow(dead_code, reason = "the test files use their parts")]

pub mod format;
pub mod open;
mod page;
mod reads;
mod writes;

use format::{BLOCK, Layout};
use page::Records;
use reads::{Reads, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tierstone_base::{CpuClock, Error, ErrorKind, KeyspaceId, Now, Result, Seq, Token};
use tierstone_engine::cost::Meter;
use tierstone_engine::{
    Admission, BatchTicket, Cost, Durability, Engine, EngineStatistics, Event, Health, IndexKind, Key,
    Lookup, RangeRequest, RecordView, ScanRequest, SnapshotId, Write, WriteReceipt,
};
use tierstone_media::{IoBuffer, IoCompletion, IoRequest};
use writes::{Checkpoint, OpenGroup, Part};

/// How a paged engine is made. Plain data.
#[derive(Clone, Debug)]
pub struct PagedSettings {
    /// Where its pieces lie.
    pub layout: Layout,
    /// Unchanged pages that stay in memory.
    pub resident_pages: usize,
    /// The keyspaces of the store, and how they find their keys; records of others are dropped.
    pub keyspaces: Vec<(KeyspaceId, IndexKind)>,
    /// Rules that are switched off, to see that they are needed.
    pub mutations: tierstone_crash::Mutations,
}

/// A page in memory, or not.
#[derive(Clone, Debug)]
enum Page {
    Absent,
    Loading,
    Resident {
        records: Arc<Records>,
        is_dirty: bool,
    },
    /// It could not be read.
    Damaged(Error),
}

/// What a device request was for.
#[derive(Debug)]
enum Purpose {
    Load(usize),
    Group { last: Seq, batches: Vec<Arc<BatchTicket>>, marks: Vec<Arc<BatchTicket>> },
    Checkpoint,
}

/// The engine.
#[derive(Debug)]
pub struct PagedEngine {
    settings: PagedSettings,
    pages: Vec<Page>,
    ordered: BTreeSet<KeyspaceId>,
    dropped: BTreeSet<KeyspaceId>,
    counts: BTreeMap<KeyspaceId, u64>,
    durability: Durability,
    applied: Seq,
    durable: Seq,
    epoch: u64,
    next_group: u64,
    /// Where the journal goes on, in bytes from its start.
    journal_at: u64,
    group: OpenGroup,
    group_in_flight: bool,
    checkpoint: Option<Checkpoint>,
    parts: Vec<Part>,
    /// Pages that a refused write wants.
    wanted: BTreeSet<usize>,
    /// A write waits for room in the journal.
    wants_room: bool,
    reads: Reads,
    snapshots: BTreeMap<SnapshotId, Snapshot>,
    next_snapshot: u64,
    next_token: Token,
    purposes: BTreeMap<Token, Purpose>,
    requests: Vec<IoRequest>,
    failed: Option<Error>,
    is_shutting: bool,
    is_shut: bool,
    now: Now,
    device: Cost,
    meter: Meter,
    /// Bytes of records in the journal.
    record_bytes: u64,
}

impl PagedEngine {
    fn page_of(&self, position: tierstone_base::Position) -> usize {
        (position.0 % self.settings.layout.pages) as usize
    }

    fn is_gone(&self, keyspace: KeyspaceId) -> bool {
        self.dropped.contains(&keyspace)
    }

    fn records(&self, page: usize) -> Option<&Arc<Records>> {
        match &self.pages[page] {
            Page::Resident { records, .. } => Some(records),
            Page::Absent | Page::Loading | Page::Damaged(_) => None,
        }
    }

    fn read(&mut self, offset: u64, bytes: u64, purpose: Purpose) {
        self.next_token += 1;
        self.purposes.insert(self.next_token, purpose);
        self.device += Cost::of_read(bytes);
        self.requests.push(IoRequest::read(self.next_token, offset, IoBuffer::zeroed(bytes as usize)));
    }

    fn write_durable(&mut self, offset: u64, buffer: IoBuffer, purpose: Purpose) {
        self.next_token += 1;
        self.purposes.insert(self.next_token, purpose);
        self.device.writes += 1;
        self.device.bytes_written += buffer.len() as u64;
        self.requests.push(IoRequest::write_durable(self.next_token, offset, buffer));
    }

    /// The answer to a call that began at the reading `since`, with what the call took.
    fn charge(&mut self, since: u64, mut answer: Result<WriteReceipt>) -> Result<WriteReceipt> {
        let cpu_ns = self.meter.call(since, answer.is_ok());
        if let Ok(receipt) = &mut answer {
            receipt.cost.cpu_ns = cpu_ns;
        }
        answer
    }

    fn completed(&mut self, completion: IoCompletion) {
        let Some(purpose) = self.purposes.remove(&completion.token) else { return };
        match (purpose, completion.result) {
            (Purpose::Load(page), result) => self.loaded(page, result, completion.buffer),
            (_, Err(error)) => {
                let error = Error::from(error).context("a write to the device failed");
                self.failed.get_or_insert(error);
            }
            (Purpose::Group { last, batches, marks }, Ok(())) => self.group_durable(last, &batches, &marks),
            (Purpose::Checkpoint, Ok(())) => self.checkpoint_written(),
        }
    }
}

impl Engine for PagedEngine {
    fn lookup(&mut self, now: Now, key: Key<'_>) -> Lookup<'_> {
        let page = self.page_of(key.position);
        if self.is_gone(key.keyspace) {
            return Lookup::Missing;
        }
        let Some(records) = self.records(page) else { return Lookup::Fetch };
        match records.get(&(key.keyspace, key.position, key.bytes.to_vec())) {
            Some(record) if record.meta.expiry_ms == 0 || record.meta.expiry_ms > now.wall_ms => {
                Lookup::Found(RecordView { meta: record.meta, value: &record.value })
            }
            Some(_) | None => Lookup::Missing,
        }
    }

    fn fetch(&mut self, now: Now, keys: &[(Token, Key<'_>)]) {
        let since = self.meter.read();
        self.now = self.now.max(now);
        for (token, key) in keys {
            let page = self.page_of(key.position);
            self.reads.pins.insert(*token, page);
            let cost = self.load(page);
            self.reads.fetching.push((*token, page, cost));
        }
        self.meter.asked(since, keys.iter().map(|(token, _)| *token));
    }

    fn release(&mut self, token: Token) {
        self.reads.pins.remove(&token);
        self.meter.forget(token);
    }

    fn write(&mut self, now: Now, writes: &[Write<'_>]) -> Result<WriteReceipt> {
        let since = self.meter.read();
        self.now = self.now.max(now);
        let answer = self.apply(writes, None);
        self.charge(since, answer)
    }

    fn admit(&mut self, now: Now, writes: &[Write<'_>]) -> Result<()> {
        self.now = self.now.max(now);
        self.plan(writes, true).map(drop)
    }

    fn write_part(
        &mut self,
        now: Now,
        writes: &[Write<'_>],
        batch: &Arc<BatchTicket>,
    ) -> Result<WriteReceipt> {
        let since = self.meter.read();
        self.now = self.now.max(now);
        if writes.is_empty() {
            return Err(Error::new(ErrorKind::InvalidInput, "a part of a batch has at least one write"));
        }
        let answer = self.apply(writes, Some(batch));
        self.charge(since, answer)
    }

    fn undo_part(
        &mut self,
        now: Now,
        writes: &[Write<'_>],
        batch: &Arc<BatchTicket>,
    ) -> Result<WriteReceipt> {
        let since = self.meter.read();
        self.now = self.now.max(now);
        let answer = self.undo(writes, batch);
        self.charge(since, answer)
    }

    fn scan(&mut self, now: Now, request: ScanRequest) {
        let since = self.meter.read();
        self.start_scan(now, request);
        self.meter.asked(since, [request.token].into_iter());
    }

    fn range(&mut self, now: Now, request: RangeRequest) {
        let (since, token) = (self.meter.read(), request.token);
        self.start_range(now, request);
        self.meter.asked(since, [token].into_iter());
    }

    fn create_keyspace(&mut self, keyspace: KeyspaceId, index: IndexKind) {
        if index == IndexKind::Ordered {
            self.ordered.insert(keyspace);
        }
    }

    fn snapshot(&mut self, now: Now) -> Result<SnapshotId> {
        self.next_snapshot += 1;
        let id = SnapshotId(self.next_snapshot);
        let snapshot = Snapshot {
            wall_ms: now.wall_ms,
            dropped: self.dropped.clone(),
            ordered: self.ordered.clone(),
            images: BTreeMap::new(),
            is_released: false,
        };
        self.snapshots.insert(id, snapshot);
        Ok(id)
    }

    fn release_snapshot(&mut self, snapshot: SnapshotId) {
        if let Some(snapshot) = self.snapshots.get_mut(&snapshot) {
            snapshot.is_released = true;
        }
        self.drop_released();
    }

    fn read_at(&mut self, now: Now, snapshot: SnapshotId, keys: &[(Token, Key<'_>)]) {
        let since = self.meter.read();
        self.now = self.now.max(now);
        for (token, key) in keys {
            self.start_read_at(snapshot, *token, key);
        }
        self.meter.asked(since, keys.iter().map(|(token, _)| *token));
    }

    fn drop_keyspace(&mut self, keyspace: KeyspaceId) {
        self.dropped.insert(keyspace);
        self.ordered.remove(&keyspace);
        self.counts.remove(&keyspace);
    }

    fn len(&self, keyspace: KeyspaceId) -> u64 {
        self.counts.get(&keyspace).copied().unwrap_or(0)
    }

    fn step(&mut self, now: Now, completions: &mut Vec<IoCompletion>, events: &mut Vec<Event>) {
        let (began, first) = (self.meter.read(), events.len());
        self.now = now;
        for completion in completions.drain(..) {
            self.completed(completion);
        }
        let worked = self.meter.read();
        self.advance_parts();
        let rested = self.meter.read();
        self.advance_reads(events);
        self.meter.step([began, worked, rested], &mut events[first..]);
        let since = self.meter.read();
        if self.failed.is_none() {
            self.close_group_if_due();
            self.begin_checkpoint_if_due();
        }
        self.evict();
        self.meter.call(since, false);
    }

    fn take_requests(&mut self, requests: &mut Vec<IoRequest>) {
        requests.append(&mut self.requests);
    }

    fn next_step_at_us(&self) -> Option<u64> {
        let now_us = self.now.monotonic_us;
        let is_due = self.failed.is_none() && self.wants_checkpoint() && self.may_checkpoint();
        if !self.reads.is_idle(self) || self.failed.is_none() && !self.parts.is_empty() || is_due {
            return Some(now_us);
        }
        if self.failed.is_some() || self.group_in_flight || self.checkpoint.is_some() {
            return None;
        }
        self.group_due_us()
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

    fn flush(&mut self, now: Now) {
        self.now = self.now.max(now);
        self.group.is_due = true;
        if self.failed.is_none() {
            self.close_group_if_due();
        }
    }

    fn set_durability(&mut self, now: Now, durability: Durability) -> Seq {
        let old = std::mem::replace(&mut self.durability, durability);
        if old == Durability::Relaxed && durability != Durability::Relaxed {
            self.flush(now);
        }
        self.applied
    }

    fn health(&self) -> Health {
        self.failed.clone().map_or(Health::Good, Health::Failed)
    }

    fn admission(&self) -> Admission {
        if self.journal_is_full(BLOCK) { Admission::Throttled } else { Admission::Open }
    }

    fn set_cpu_clock(&mut self, clock: Box<dyn CpuClock>) {
        self.meter.set_clock(clock);
    }

    fn statistics(&self) -> EngineStatistics {
        let images = self.snapshots.values().flat_map(|snapshot| snapshot.images.values());
        EngineStatistics {
            keys: self.counts.values().sum(),
            device: Cost { cpu_ns: self.meter.total_ns(), ..self.device },
            background_cpu_ns: self.meter.background_ns(),
            record_bytes_written: self.record_bytes,
            snapshots: self.snapshots.len() as u64,
            snapshot_pinned_bytes: images.map(|records| page::encoded_len(records) as u64).sum(),
            ..EngineStatistics::default()
        }
    }

    fn shut(&mut self) {
        self.is_shutting = true;
        self.group.is_due = true;
    }

    fn is_shut(&self) -> bool {
        self.is_shut || self.is_shutting && self.failed.is_some()
    }
}
