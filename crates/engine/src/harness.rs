//! Drives one engine over one device from a single thread, for tests, benchmarks and the local
//! handle's simplest form: every call runs the engine and the device until its answer is there.

use crate::batch::BatchTicket;
use crate::contract::{
    Direction, Engine, Event, Health, Key, Lookup, OwnedRecord, RangeEntry, RangeRequest, RecordMeta,
    ScanEntry, ScanRequest, SnapshotId, Write, WriteKind,
};
use std::ops::Bound;
use std::sync::Arc;
use tierstone_base::{Error, ErrorKind, KeyHasher, KeyspaceId, Now, Position, Result, Seq, Token};
use tierstone_media::{BlockDevice, IoCompletion, IoRequest, Wait};

/// One engine, its device and a clock that only moves when told.
#[derive(Debug)]
pub struct Harness<E, D> {
    /// The engine under test.
    pub engine: E,
    /// Its device.
    pub device: D,
    /// The time that every step sees; tests move it.
    pub now: Now,
    hasher: KeyHasher,
    requests: Vec<IoRequest>,
    completions: Vec<IoCompletion>,
    events: Vec<Event>,
    next_token: Token,
}

/// Steps without any progress after which the harness calls the engine stuck.
const STUCK_STEPS: u32 = 10_000;

impl<E: Engine, D: BlockDevice> Harness<E, D> {
    /// A harness that computes positions with `hasher`.
    pub fn new(engine: E, device: D, hasher: KeyHasher) -> Self {
        Harness {
            engine,
            device,
            now: Now { monotonic_us: 1_000, wall_ms: 1_700_000_000_000 },
            hasher,
            requests: Vec::new(),
            completions: Vec::new(),
            events: Vec::new(),
            next_token: 1,
        }
    }

    /// The engine's view of `bytes` in `keyspace`.
    pub fn key<'a>(&self, keyspace: KeyspaceId, bytes: &'a [u8]) -> Key<'a> {
        Key { keyspace, position: self.hasher.position(bytes), bytes }
    }

    /// One turn of a driver: completions in, step, requests out. `wait` is how long to wait for the
    /// device.
    pub fn turn(&mut self, wait: Wait) {
        self.engine.take_requests(&mut self.requests);
        self.device.submit(&mut self.requests);
        self.device.complete(wait, &mut self.completions);
        self.now.monotonic_us += 50;
        self.engine.step(self.now, &mut self.completions, &mut self.events);
        self.engine.take_requests(&mut self.requests);
        self.device.submit(&mut self.requests);
    }

    /// Turns until `done` gives an answer.
    fn run_until<T>(&mut self, mut done: impl FnMut(&mut Self) -> Option<T>) -> Result<T> {
        for _ in 0..STUCK_STEPS {
            if let Some(answer) = done(self) {
                return Ok(answer);
            }
            self.turn(Wait::One);
            if let Health::Failed(error) = self.engine.health() {
                return match done(self) {
                    Some(answer) => Ok(answer),
                    None => Err(error),
                };
            }
            if let Some(at) = self.engine.next_step_at_us() {
                self.now.monotonic_us = self.now.monotonic_us.max(at);
            }
        }
        Err(Error::new(ErrorKind::Retry, format!("no progress in {STUCK_STEPS} steps")))
    }

    pub(crate) fn wait_event(&mut self, wanted: Token) -> Result<Event> {
        self.run_until(|harness| {
            let found = harness.events.iter().position(|event| event.token() == wanted)?;
            Some(harness.events.remove(found))
        })
    }

    pub(crate) fn token(&mut self) -> Token {
        self.next_token += 1;
        self.next_token
    }

    /// The key's value and meta data; reads the device if needed.
    ///
    /// # Errors
    /// What the engine says about the read.
    pub fn get(&mut self, keyspace: KeyspaceId, bytes: &[u8]) -> Result<Option<(RecordMeta, Vec<u8>)>> {
        let key = self.key(keyspace, bytes);
        for _ in 0..100 {
            match self.engine.lookup(self.now, key) {
                Lookup::Found(view) => return Ok(Some((view.meta, view.value.to_vec()))),
                Lookup::Missing => return Ok(None),
                Lookup::Fetch => {}
            }
            let token = self.token();
            self.engine.fetch(self.now, &[(token, key)]);
            let Event::Fetched { result, .. } = self.wait_event(token)? else {
                unreachable!("a fetch is answered by Fetched");
            };
            // The record is held until the release, so that the lookup after the fetch finds it.
            let answer = match self.engine.lookup(self.now, key) {
                Lookup::Found(view) => Some(Some((view.meta, view.value.to_vec()))),
                Lookup::Missing => Some(None),
                Lookup::Fetch => None,
            };
            self.engine.release(token);
            match (answer, result) {
                (Some(answer), _) => return Ok(answer),
                (None, Err(error)) => return Err(error),
                (None, Ok(())) => {}
            }
        }
        Err(Error::new(ErrorKind::Retry, "a fetched record was not there a hundred times"))
    }

    /// Applies `writes`, stepping while the engine is throttled; gives the sequence of the last.
    ///
    /// # Errors
    /// What the engine says.
    pub fn write(&mut self, writes: &[Write<'_>]) -> Result<Seq> {
        for _ in 0..STUCK_STEPS {
            match self.engine.write(self.now, writes) {
                Ok(receipt) => return Ok(receipt.seq),
                Err(error) if error.kind() == ErrorKind::Retry => self.turn(Wait::One),
                Err(error) => return Err(error),
            }
        }
        match self.engine.write(self.now, writes) {
            Ok(receipt) => Ok(receipt.seq),
            Err(error) => Err(error.context("the engine stayed throttled")),
        }
    }

    /// Applies this engine's part of a batch over several; no stepping, no waiting.
    ///
    /// # Errors
    /// What the engine says; `Retry` when it must step first.
    pub fn write_part(&mut self, writes: &[Write<'_>], batch: &Arc<BatchTicket>) -> Result<Seq> {
        self.engine.write_part(self.now, writes, batch).map(|receipt| receipt.seq)
    }

    /// Puts one value without expiry.
    ///
    /// # Errors
    /// As [`Harness::write`].
    pub fn put(&mut self, keyspace: KeyspaceId, key: &[u8], value: &[u8]) -> Result<Seq> {
        let kind = WriteKind::Put { value, expiry_ms: 0, kind: Default::default() };
        self.write(&[Write { key: self.key(keyspace, key), kind }])
    }

    /// Deletes one key.
    ///
    /// # Errors
    /// As [`Harness::write`].
    pub fn delete(&mut self, keyspace: KeyspaceId, key: &[u8]) -> Result<Seq> {
        self.write(&[Write { key: self.key(keyspace, key), kind: WriteKind::Delete }])
    }

    /// Waits until everything applied is durable.
    ///
    /// # Errors
    /// When the engine has failed.
    pub fn sync(&mut self) -> Result<()> {
        let target = self.engine.applied_seq();
        self.engine.flush(self.now);
        self.run_until(|harness| (harness.engine.durable_seq() >= target).then_some(()))
    }

    /// The record that a key had at `snapshot`.
    ///
    /// # Errors
    /// What the engine says about the read.
    pub fn get_at(
        &mut self,
        snapshot: SnapshotId,
        keyspace: KeyspaceId,
        bytes: &[u8],
    ) -> Result<Option<OwnedRecord>> {
        let token = self.token();
        let key = self.key(keyspace, bytes);
        self.engine.read_at(self.now, snapshot, &[(token, key)]);
        let Event::SnapshotRead { result, .. } = self.wait_event(token)? else {
            unreachable!("a read at a snapshot is answered by SnapshotRead");
        };
        result
    }

    /// Walks a whole keyspace, `count` entries a page.
    ///
    /// # Errors
    /// The first unreadable record, or what the engine says.
    pub fn scan_all(&mut self, keyspace: KeyspaceId, count: u32) -> Result<Vec<ScanEntry>> {
        self.scan_all_at(None, keyspace, count, |_| {})
    }

    /// The same at a snapshot; `between` runs after every page.
    ///
    /// # Errors
    /// As [`Harness::scan_all`].
    pub fn scan_all_at(
        &mut self,
        snapshot: Option<SnapshotId>,
        keyspace: KeyspaceId,
        count: u32,
        mut between: impl FnMut(&mut Self),
    ) -> Result<Vec<ScanEntry>> {
        let mut all = Vec::new();
        let mut cursor = Some(Position(0));
        while let Some(from) = cursor {
            let token = self.token();
            self.engine.scan(self.now, ScanRequest { token, keyspace, cursor: from, count, snapshot });
            let Event::Scanned { entries, next, error, .. } = self.wait_event(token)? else {
                unreachable!("a scan is answered by Scanned");
            };
            if let Some(error) = error {
                return Err(error);
            }
            all.extend(entries);
            cursor = next;
            between(self);
        }
        Ok(all)
    }

    /// One page of a range, and the key behind which the next one begins.
    ///
    /// # Errors
    /// The first unreadable record, or what the engine says.
    pub fn range_page(
        &mut self,
        keyspace: KeyspaceId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: u32,
        direction: Direction,
    ) -> Result<(Vec<RangeEntry>, Option<Vec<u8>>)> {
        let (from, to) = (from.map(<[u8]>::to_vec), to.map(<[u8]>::to_vec));
        let snapshot = None;
        self.range_request(RangeRequest { token: 0, keyspace, from, to, limit, direction, snapshot })
    }

    /// The page of `request`, whatever its token, and the key behind which the next one begins.
    ///
    /// # Errors
    /// As [`Harness::range_page`].
    pub fn range_request(&mut self, mut request: RangeRequest) -> Result<(Vec<RangeEntry>, Option<Vec<u8>>)> {
        request.token = self.token();
        let token = request.token;
        self.engine.range(self.now, request);
        let Event::Ranged { entries, next, error, .. } = self.wait_event(token)? else {
            unreachable!("a range is answered by Ranged");
        };
        error.map_or(Ok((entries, next)), Err)
    }

    /// Walks a whole range of a snapshot, page by page as `request` says; `between` runs after every page.
    ///
    /// # Errors
    /// As [`Harness::range_page`].
    pub fn range_walk(
        &mut self,
        mut request: RangeRequest,
        mut between: impl FnMut(&mut Self),
    ) -> Result<Vec<RangeEntry>> {
        let mut all = Vec::new();
        loop {
            let (entries, next) = self.range_request(request.clone())?;
            all.extend(entries);
            between(self);
            match next {
                Some(next) => request.go_on(next),
                None => return Ok(all),
            }
        }
    }

    /// Walks a whole range, `limit` entries a page.
    ///
    /// # Errors
    /// The first unreadable record, or what the engine says.
    pub fn range_all(
        &mut self,
        keyspace: KeyspaceId,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: u32,
        direction: Direction,
    ) -> Result<Vec<RangeEntry>> {
        let (mut all, mut last): (Vec<RangeEntry>, Option<Vec<u8>>) = (Vec::new(), None);
        loop {
            let behind = last.as_deref().map(Bound::Excluded);
            let (from, to) = match direction {
                Direction::Forward => (behind.unwrap_or(from), to),
                Direction::Backward => (from, behind.unwrap_or(to)),
            };
            let (entries, next) = self.range_page(keyspace, from, to, limit, direction)?;
            all.extend(entries);
            if next.is_none() {
                return Ok(all);
            }
            last = next;
        }
    }

    /// Turns until neither the device nor the engine has anything left to do, or `turns` are used up.
    pub fn settle(&mut self, turns: u32) {
        for _ in 0..turns {
            self.turn(Wait::One);
            if self.device.in_flight() == 0 && self.engine.next_step_at_us().is_none() {
                return;
            }
        }
    }
}
