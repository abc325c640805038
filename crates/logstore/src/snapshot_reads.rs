//! Reads at snapshots, and pages of walks, of snapshots too.
//!
//! What a snapshot shows of a key is among the records that the side table and the index name at the
//! start of a read ([`crate::snapshots`], invariant 1). Those that are not in memory are read; their
//! segments stay while they are, so the answer is right whatever happens to the snapshot meanwhile.

use crate::format::record;
use crate::index::ScanProgress;
use crate::location::{Location, Target};
use crate::read_path::{Found, matching};
use crate::reads::{ScanPage, Waiter};
use crate::shard::LogShard;
use crate::touch::Touches;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Position, Result, Seq, Token};
use tierstone_cache::FrameId;
use tierstone_engine::cuts::Cut;
use tierstone_engine::{Cost, Event, Key, OwnedRecord, ScanEntry, ScanRequest, SnapshotId};

/// Who asked for a read at a snapshot.
#[derive(Clone, Copy, Debug)]
pub enum AskedBy {
    /// A caller; its answer is an event.
    Caller(Token),
    /// The page of a range with this number, which takes it itself.
    Range(u64),
}

/// A read at a snapshot.
#[derive(Debug)]
pub struct SnapshotRead {
    asked_by: AskedBy,
    keyspace: KeyspaceId,
    position: Position,
    key: Vec<u8>,
    cut: Cut,
    /// Reads of the device that have not come.
    outstanding: u32,
    /// The newest version so far that is not younger than the cut.
    found: Option<OwnedRecord>,
    error: Option<Error>,
    cost: Cost,
}

impl SnapshotRead {
    /// Looks at one record that may be the one.
    fn take(&mut self, bytes: &[u8], passed_at: Option<Seq>, show_newer: bool, touches: &Touches) {
        let key = Key { keyspace: self.keyspace, position: self.position, bytes: &self.key };
        let Some(header) = matching(bytes, &key) else { return };
        let counts = header.seq <= self.cut.seq && passed_at.is_none_or(|at| at > self.cut.seq);
        let newer = self.found.as_ref().is_none_or(|found| found.meta.seq < header.seq);
        if (counts || show_newer)
            && newer
            && let Some(value) = bytes.get(header.value_range())
        {
            self.found =
                Some(OwnedRecord { meta: touches.meta(self.position, &header), value: value.to_vec() });
        }
    }

    fn result(self) -> Result<Option<OwnedRecord>> {
        let wall_ms = self.cut.wall_ms;
        let is_live = |record: &OwnedRecord| record.meta.expiry_ms == 0 || record.meta.expiry_ms > wall_ms;
        match (self.found, self.error) {
            // A record that could not be read is another key's, or an older one.
            (Some(record), _) => Ok(Some(record).filter(is_live)),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(None),
        }
    }
}

impl LogShard {
    pub(crate) fn start_read_at(&mut self, snapshot: SnapshotId, token: Token, key: &Key<'_>) {
        let cut = match self.snapshots.cuts.get(snapshot) {
            Ok(cut) => cut,
            Err(error) => {
                let event = Event::SnapshotRead { token, result: Err(error), cost: Cost::default() };
                self.reads.ready.push(event);
                return;
            }
        };
        let number = self.begin_read_at(cut, AskedBy::Caller(token), key);
        self.report_snapshot_read(number);
    }

    /// Begins a read at a snapshot; gives its number.
    pub(crate) fn begin_read_at(&mut self, cut: Cut, asked_by: AskedBy, key: &Key<'_>) -> u64 {
        let mut read = SnapshotRead {
            asked_by,
            keyspace: key.keyspace,
            position: key.position,
            key: key.bytes.to_vec(),
            cut,
            outstanding: 0,
            found: None,
            error: None,
            cost: Cost::default(),
        };
        let number = self.reads.next_snapshot_read;
        self.reads.next_snapshot_read += 1;
        for found in self.places_at(&cut, key) {
            if let Some(bytes) = self.found_bytes(found) {
                read.take(bytes, None, self.shows_newer(), &self.touches);
            } else if let Found::Held(location) | Found::Unsubmitted(location) = found {
                read.outstanding += 1;
                self.read_record(location, Waiter::Snapshot(number));
            }
        }
        self.reads.snapshot_reads.insert(number, read);
        number
    }

    /// What a read has found, and its cost; `None` while it waits for the device.
    pub(crate) fn take_read_at(&mut self, number: u64) -> Option<(Result<Option<OwnedRecord>>, Cost)> {
        self.reads.snapshot_reads.get(&number).filter(|read| read.outstanding == 0)?;
        let read = self.reads.snapshot_reads.remove(&number)?;
        let cost = read.cost;
        Some((read.result(), cost))
    }

    /// Everything that may be the key's record as `cut` shows it.
    fn places_at(&mut self, cut: &Cut, key: &Key<'_>) -> Vec<Found> {
        let mut kept = Vec::new();
        self.snapshots.at(key.keyspace, key.position, cut, &mut kept);
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        if let Some(keyspace) = self.keyspaces.at(key.keyspace, cut) {
            keyspace.index.candidates(key.position, &mut candidates);
        }
        let targets = kept.into_iter().map(Target::Device).chain(candidates.iter().map(Target::unpack));
        let places = targets.map(|target| self.place_of(target)).collect();
        self.candidates = candidates;
        places
    }

    fn place_of(&self, target: Target) -> Found {
        match target {
            Target::Frame(bits) => Found::Frame(FrameId::from_bits(bits)),
            Target::Device(location) if self.reads.held.contains_key(&location.raw()) => {
                Found::Held(location)
            }
            Target::Device(location) => Found::Unsubmitted(location),
        }
    }

    /// For a test's mutation.
    fn shows_newer(&self) -> bool {
        self.identity.mutations.is_on("snapshot_shows_newer")
    }

    pub(crate) fn snapshot_read_came(
        &mut self,
        number: u64,
        bytes: &[u8],
        passed_at: Option<Seq>,
        cost: Cost,
    ) {
        let show_newer = self.shows_newer();
        if let Some(read) = self.reads.snapshot_reads.get_mut(&number) {
            read.outstanding -= 1;
            read.cost += cost;
            read.take(bytes, passed_at, show_newer, &self.touches);
        }
        self.report_snapshot_read(number);
    }

    pub(crate) fn snapshot_read_failed(
        &mut self,
        number: u64,
        location: Location,
        error: Option<Error>,
        cost: Cost,
    ) {
        if let Some(read) = self.reads.snapshot_reads.get_mut(&number) {
            read.outstanding -= 1;
            read.cost += cost;
            let passed_at = self.reads.passed.get(&location.raw()).and_then(|keys| {
                // The set holds owned keys; this path is rare.
                keys.get(&(read.keyspace, read.key.clone())).copied()
            });
            // A record that was written past before the cut does not count at the cut.
            if passed_at.is_none_or(|at| at > read.cut.seq) {
                let unknown = || Error::new(ErrorKind::Corrupt, "a record could not be read");
                read.error = read.error.take().or_else(|| Some(error.unwrap_or_else(unknown)));
            }
        }
        self.report_snapshot_read(number);
    }

    fn report_snapshot_read(&mut self, number: u64) {
        let Some(read) = self.reads.snapshot_reads.get(&number).filter(|read| read.outstanding == 0) else {
            return;
        };
        match read.asked_by {
            AskedBy::Range(page) => self.reads.ranges_ready.push(page),
            AskedBy::Caller(token) => {
                if let Some((result, cost)) = self.take_read_at(number) {
                    self.reads.ready.push(Event::SnapshotRead { token, result, cost });
                }
            }
        }
    }

    /// Starts a page of a walk.
    pub(crate) fn start_scan(&mut self, request: ScanRequest) {
        let cut = match request.snapshot.map(|id| self.snapshots.cuts.get(id)).transpose() {
            Ok(cut) => cut,
            Err(error) => {
                let (token, entries) = (request.token, Vec::new());
                let (next, cost) = (None, Cost::default());
                self.reads.ready.push(Event::Scanned { token, entries, next, error: Some(error), cost });
                return;
            }
        };
        let number = self.reads.next_scan;
        self.reads.next_scan += 1;
        let mut values = Vec::new();
        let mut next = None;
        let keyspace = match &cut {
            Some(cut) => self.keyspaces.at(request.keyspace, cut),
            None => self.keyspaces.get(request.keyspace),
        };
        let count = request.count.max(1) as usize;
        if let Some(keyspace) = keyspace {
            match keyspace.index.scan(request.cursor, count, &mut values) {
                // Buckets may reach beyond the shard's positions; the walk does not.
                ScanProgress::Next(position) if position <= self.identity.positions().1 => {
                    next = Some(position);
                }
                ScanProgress::Next(_) => {}
                ScanProgress::End => {}
            }
        }
        let mut targets: Vec<Target> = values.into_iter().map(Target::unpack).collect();
        if let Some(cut) = &cut {
            let mut kept = Vec::new();
            let range = (request.cursor, next);
            next = self.snapshots.page(request.keyspace, range, count, cut, &mut kept);
            targets.extend(kept.into_iter().map(Target::Device));
        }
        let began_seq = self.applied;
        let page = ScanPage {
            request,
            cut,
            began_seq,
            outstanding: 0,
            entries: Vec::new(),
            next,
            error: None,
            cost: Cost::default(),
        };
        self.reads.scans.insert(number, page);
        for target in targets {
            let found = self.place_of(target);
            if let Some(bytes) = self.found_bytes(found) {
                let entry = self.page_entry(number, bytes, None);
                if let Some(page) = self.reads.scans.get_mut(&number) {
                    page.entries.extend(entry);
                }
            } else if let Target::Device(location) = target {
                if let Some(page) = self.reads.scans.get_mut(&number) {
                    page.outstanding += 1;
                }
                self.read_record(location, Waiter::Scan(number));
            }
        }
        self.reads.report_scan(number);
    }

    /// What a page gives of the record in `bytes`; `passed_at`: a write went past it while it could not
    /// be read.
    pub(crate) fn page_entry(&self, number: u64, bytes: &[u8], passed_at: Option<Seq>) -> Option<ScanEntry> {
        let page = self.reads.scans.get(&number)?;
        let Some(cut) = &page.cut else {
            // Written past before the page began, it is an old record, and a newer one, if there is any, is
            // in the page. Written past since, it is what the page found: the newer one is in no page.
            return if passed_at.is_some_and(|at| at <= page.began_seq) {
                None
            } else {
                self.scan_entry(bytes)
            };
        };
        let header = record::decode_header(bytes)?;
        // Buckets may hold positions on both sides of the page: each is given in its own page only.
        let position = self.identity.hasher.position(bytes.get(header.key_range())?);
        let in_page = position >= page.request.cursor && page.next.is_none_or(|next| position < next);
        let counts = header.seq <= cut.seq && passed_at.is_none_or(|at| at > cut.seq);
        let expiry_ms = self.expiry_of(position, &header);
        let is_live = expiry_ms == 0 || expiry_ms > cut.wall_ms;
        let shown = in_page && (counts || self.shows_newer()) && is_live;
        if shown { self.scan_entry(bytes) } else { None }
    }

    fn scan_entry(&self, bytes: &[u8]) -> Option<ScanEntry> {
        let header = record::decode_header(bytes)?;
        let key = bytes.get(header.key_range())?;
        Some(ScanEntry { key: key.to_vec(), meta: self.meta_of_record(&header, key) })
    }
}
