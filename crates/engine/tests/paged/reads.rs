//! Bringing pages into memory and reading them: fetches, walks, ranges, snapshots.

use super::format::decode_page;
use super::page::Records;
use super::{Page, PagedEngine, Purpose};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;
use std::sync::Arc;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Now, Position, Result, Token};
use tierstone_engine::{
    Cost, Direction, Event, Key, OwnedRecord, RangeEntry, RangeRequest, ScanEntry, ScanRequest, SnapshotId,
};
use tierstone_media::{DeviceError, IoBuffer};

/// What a snapshot shows: pages that changed since as they were, the others as they are.
#[derive(Debug)]
pub struct Snapshot {
    pub wall_ms: u64,
    pub dropped: BTreeSet<KeyspaceId>,
    pub ordered: BTreeSet<KeyspaceId>,
    pub images: BTreeMap<usize, Arc<Records>>,
    /// Reads under way go on.
    pub is_released: bool,
}

/// A record found by a walk, with its key.
type FoundRecord = ((Position, Vec<u8>), OwnedRecord);

/// What a walk through all pages is for.
#[derive(Debug)]
enum WalkKind {
    Scan(ScanRequest),
    Range(RangeRequest),
}

#[derive(Debug)]
struct Walk {
    kind: WalkKind,
    wall_ms: u64,
    next_page: usize,
    found: Vec<FoundRecord>,
    error: Option<Error>,
    cost: Cost,
}

#[derive(Debug)]
struct ReadAt {
    token: Token,
    snapshot: SnapshotId,
    key: (KeyspaceId, Position, Vec<u8>),
    cost: Cost,
}

/// Reads under way.
#[derive(Debug, Default)]
pub struct Reads {
    pub pins: BTreeMap<Token, usize>,
    pub fetching: Vec<(Token, usize, Cost)>,
    walks: Vec<Walk>,
    read_at: Vec<ReadAt>,
    ready: Vec<Event>,
}

impl Reads {
    /// Whether a step would bring nothing of a read on.
    pub fn is_idle(&self, engine: &PagedEngine) -> bool {
        let stuck = |page: usize| matches!(engine.pages[page], Page::Loading);
        self.ready.is_empty()
            && self.fetching.iter().all(|(_, page, _)| stuck(*page))
            && self.walks.iter().all(|walk| stuck(walk.next_page))
            && self.read_at.iter().all(|read| stuck(engine.page_of(read.key.1)))
    }
}

impl PagedEngine {
    /// Reads a page that is not in memory; what that costs: who waits for it too pays nothing.
    pub(super) fn load(&mut self, page: usize) -> Cost {
        if !matches!(self.pages[page], Page::Absent | Page::Damaged(_)) {
            return Cost::default();
        }
        self.pages[page] = Page::Loading;
        let layout = self.settings.layout;
        self.read(layout.page(page), layout.page_bytes, Purpose::Load(page));
        Cost::of_read(layout.page_bytes)
    }

    pub(super) fn loaded(
        &mut self,
        page: usize,
        result: std::result::Result<(), DeviceError>,
        buffer: Option<IoBuffer>,
    ) {
        let bytes = buffer.as_deref().unwrap_or(&[]);
        self.pages[page] = match result.map_err(Error::from).and_then(|()| decode_page(page, bytes)) {
            Ok(records) => Page::Resident { records: Arc::new(records), is_dirty: false },
            Err(error) => Page::Damaged(error),
        };
    }

    /// Lets unchanged pages go that nobody needs.
    pub(super) fn evict(&mut self) {
        let mut kept = 0;
        for page in 0..self.pages.len() {
            let Page::Resident { is_dirty: false, .. } = self.pages[page] else { continue };
            kept += 1;
            let is_needed = self.is_being_written(page)
                || self.reads.pins.values().any(|pinned| *pinned == page)
                || self.wanted.contains(&page)
                || self.reads.walks.iter().any(|walk| walk.next_page == page)
                || self.reads.read_at.iter().any(|read| self.page_of(read.key.1) == page);
            if kept > self.settings.resident_pages && !is_needed {
                self.pages[page] = Page::Absent;
            }
        }
    }

    /// What a snapshot (or now) shows of a page, if that is in memory; loads it otherwise, for whom `cost` counts.
    fn view(
        &mut self,
        snapshot: Option<SnapshotId>,
        page: usize,
        cost: &mut Cost,
    ) -> Option<Result<Arc<Records>>> {
        if let Some(id) = snapshot {
            match self.snapshots.get(&id).map(|snapshot| snapshot.images.get(&page)) {
                None => return Some(Err(unknown(id))),
                Some(Some(image)) => return Some(Ok(Arc::clone(image))),
                Some(None) => {}
            }
        }
        match &self.pages[page] {
            Page::Resident { records, .. } => return Some(Ok(Arc::clone(records))),
            Page::Damaged(error) => {
                let error = error.clone();
                self.pages[page] = Page::Absent;
                return Some(Err(error));
            }
            Page::Absent | Page::Loading => {}
        }
        *cost += self.load(page);
        None
    }

    pub(super) fn start_scan(&mut self, now: Now, request: ScanRequest) {
        // What expires during a walk that shows the present may be given: its caller looks at the clock.
        match request.snapshot.map_or(Ok(0), |id| self.cut(id).map(|cut| cut.wall_ms)) {
            Ok(wall_ms) => self.start_walk(now, WalkKind::Scan(request), wall_ms),
            Err(error) => {
                let (token, entries) = (request.token, Vec::new());
                self.reads.ready.push(Event::Scanned {
                    token,
                    entries,
                    next: None,
                    error: Some(error),
                    cost: Cost::default(),
                });
            }
        }
    }

    pub(super) fn start_range(&mut self, now: Now, request: RangeRequest) {
        match self.ranged(now, &request) {
            Ok(wall_ms) => self.start_walk(now, WalkKind::Range(request), wall_ms),
            Err(error) => {
                let (token, entries) = (request.token, Vec::new());
                self.reads.ready.push(Event::Ranged {
                    token,
                    entries,
                    next: None,
                    error: Some(error),
                    cost: Cost::default(),
                });
            }
        }
    }

    /// The time at which a range judges expiry, if it may be walked.
    fn ranged(&self, now: Now, request: &RangeRequest) -> Result<u64> {
        let (ordered, wall_ms) = match request.snapshot.map(|id| self.cut(id)).transpose()? {
            Some(cut) => (&cut.ordered, cut.wall_ms),
            None => (&self.ordered, now.wall_ms),
        };
        match ordered.contains(&request.keyspace) {
            true => Ok(wall_ms),
            false if self.dropped.contains(&request.keyspace) => Err(request.dropped()),
            false => Err(request.no_order()),
        }
    }

    /// The snapshot, if it may be asked.
    fn cut(&self, id: SnapshotId) -> Result<&Snapshot> {
        self.snapshots.get(&id).filter(|snapshot| !snapshot.is_released).ok_or_else(|| unknown(id))
    }

    pub(super) fn drop_released(&mut self) {
        let walks = self.reads.walks.iter().filter_map(|walk| match &walk.kind {
            WalkKind::Scan(request) => request.snapshot,
            WalkKind::Range(request) => request.snapshot,
        });
        let used: BTreeSet<SnapshotId> =
            walks.chain(self.reads.read_at.iter().map(|read| read.snapshot)).collect();
        self.snapshots.retain(|id, snapshot| !snapshot.is_released || used.contains(id));
    }

    fn start_walk(&mut self, now: Now, kind: WalkKind, wall_ms: u64) {
        self.now = self.now.max(now);
        self.reads.walks.push(Walk {
            kind,
            wall_ms,
            next_page: 0,
            found: Vec::new(),
            error: None,
            cost: Cost::default(),
        });
    }

    pub(super) fn start_read_at(&mut self, snapshot: SnapshotId, token: Token, key: &Key<'_>) {
        if let Err(error) = self.cut(snapshot) {
            let (result, cost) = (Err(error), Cost::default());
            return self.reads.ready.push(Event::SnapshotRead { token, result, cost });
        }
        let key = (key.keyspace, key.position, key.bytes.to_vec());
        self.reads.read_at.push(ReadAt { token, snapshot, key, cost: Cost::default() });
    }

    pub(super) fn advance_reads(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.reads.ready);
        for (token, page, mut cost) in std::mem::take(&mut self.reads.fetching) {
            match self.view(None, page, &mut cost) {
                None => self.reads.fetching.push((token, page, cost)),
                Some(result) => events.push(Event::Fetched { token, result: result.map(drop), cost }),
            }
        }
        for mut read in std::mem::take(&mut self.reads.read_at) {
            match self.view(Some(read.snapshot), self.page_of(read.key.1), &mut read.cost) {
                None => self.reads.read_at.push(read),
                Some(view) => {
                    let result = view.and_then(|records| self.record_at(&read, &records));
                    events.push(Event::SnapshotRead { token: read.token, result, cost: read.cost });
                }
            }
        }
        for mut walk in std::mem::take(&mut self.reads.walks) {
            if self.advance_walk(&mut walk) {
                events.push(finish(walk));
            } else {
                self.reads.walks.push(walk);
            }
        }
        self.drop_released();
    }

    fn record_at(&self, read: &ReadAt, records: &Records) -> Result<Option<OwnedRecord>> {
        let snapshot = self.snapshots.get(&read.snapshot).ok_or_else(|| unknown(read.snapshot))?;
        let record = records.get(&read.key).filter(|_| !snapshot.dropped.contains(&read.key.0));
        Ok(record.filter(|record| is_live(record, snapshot.wall_ms)).cloned())
    }

    /// True when the walk has seen every page.
    fn advance_walk(&mut self, walk: &mut Walk) -> bool {
        let (keyspace, snapshot) = match &walk.kind {
            WalkKind::Scan(request) => (request.keyspace, request.snapshot),
            WalkKind::Range(request) => (request.keyspace, request.snapshot),
        };
        let cut = snapshot.and_then(|id| self.snapshots.get(&id));
        let is_gone = cut.map_or(&self.dropped, |cut| &cut.dropped).contains(&keyspace);
        while walk.next_page < self.pages.len() && !is_gone {
            let Some(view) = self.view(snapshot, walk.next_page, &mut walk.cost) else { return false };
            match view {
                Ok(records) => {
                    let own = records.iter().filter(|((id, ..), _)| *id == keyspace);
                    let live = own.filter(|(_, record)| is_live(record, walk.wall_ms));
                    walk.found
                        .extend(live.map(|((_, at, key), record)| ((*at, key.clone()), record.clone())));
                }
                Err(error) => walk.error = Some(error),
            }
            walk.next_page += 1;
        }
        true
    }
}

fn is_live(record: &OwnedRecord, wall_ms: u64) -> bool {
    record.meta.expiry_ms == 0 || record.meta.expiry_ms > wall_ms
}

fn unknown(id: SnapshotId) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("there is no snapshot {}", id.0))
}

fn finish(mut walk: Walk) -> Event {
    match walk.kind {
        WalkKind::Scan(request) => {
            walk.found.retain(|((position, _), _)| *position >= request.cursor);
            walk.found.sort_by(|one, other| one.0.cmp(&other.0));
            let whole = (request.count.max(1) as usize).min(walk.found.len());
            // Keys that share a position belong to one page.
            let last = walk.found[..whole].last().map(|((position, _), _)| *position);
            let end = walk.found.partition_point(|((position, _), _)| Some(*position) <= last);
            let next = walk.found.get(end).map(|((position, _), _)| *position);
            let entries = walk.found.into_iter().take(end);
            let entries = entries.map(|((_, key), record)| ScanEntry { key, meta: record.meta }).collect();
            Event::Scanned { token: request.token, entries, next, error: walk.error, cost: walk.cost }
        }
        WalkKind::Range(request) => {
            walk.found.retain(|((_, key), _)| (request.from.clone(), request.to.clone()).contains(key));
            walk.found.sort_by(|one, other| one.0.1.cmp(&other.0.1));
            if request.direction == Direction::Backward {
                walk.found.reverse();
            }
            let limit = request.limit.max(1) as usize;
            let has_more = walk.found.len() > limit;
            let entries: Vec<RangeEntry> = walk
                .found
                .into_iter()
                .take(limit)
                .map(|((_, key), record)| RangeEntry { key, meta: record.meta, value: record.value })
                .collect();
            let next = entries.last().filter(|_| has_more).map(|entry| entry.key.clone());
            Event::Ranged { token: request.token, entries, next, error: walk.error, cost: walk.cost }
        }
    }
}
