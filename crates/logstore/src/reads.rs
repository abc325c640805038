//! Records on their way from the device, and those held in memory for whoever asked for them.

use crate::format::record::RecordHeader;
use crate::location::Location;
use crate::range::RangePage;
use crate::reservations::Reservations;
use crate::runs::Runs;
use crate::snapshot_reads::SnapshotRead;
use std::collections::BTreeMap;
use tierstone_base::collections::{Map, Set};
use tierstone_base::{Error, KeyspaceId, Position, Seq, Token};
use tierstone_engine::cuts::Cut;
use tierstone_engine::{Cost, Event, ScanEntry, ScanRequest};
use tierstone_media::IoBuffer;

/// Who waits for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiter {
    /// A fetch.
    Token(Token),
    /// A page of a walk.
    Scan(u64),
    /// A read at a snapshot.
    Snapshot(u64),
}

/// A record that is being read.
#[derive(Debug)]
pub struct Reading {
    /// Who waits for it.
    pub waiters: Vec<Waiter>,
    /// Bytes asked for, from the record's first byte on.
    pub asked: usize,
    /// Whether the request has been made, or waits until the record's group is durable.
    pub submitted: bool,
    /// What was asked of the device for it.
    pub cost: Cost,
}

/// A record in memory for as long as somebody holds it.
#[derive(Debug)]
pub struct Held {
    /// The blocks around it.
    pub buffer: IoBuffer,
    /// Where in them it begins.
    pub start: usize,
    /// Its header.
    pub header: RecordHeader,
    /// How many tokens hold it.
    pub holders: u32,
}

impl Held {
    /// The record's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..]
    }
}

/// A fetch.
#[derive(Debug, Default)]
pub struct Fetch {
    /// Reads that have not come.
    pub outstanding: u32,
    /// Records held for it.
    pub holds: Vec<Location>,
    /// The first thing that went wrong.
    pub error: Option<Error>,
    /// Whether it waited for the device.
    pub has_waited: bool,
    /// What it cost: reads that another has asked for before are that one's.
    pub cost: Cost,
}

/// A page of a walk in the making.
#[derive(Debug)]
pub struct ScanPage {
    /// What was asked.
    pub request: ScanRequest,
    /// Of a snapshot: what it shows.
    pub cut: Option<Cut>,
    /// The newest sequence when it began.
    pub began_seq: Seq,
    /// Reads that have not come.
    pub outstanding: u32,
    /// Entries found so far.
    pub entries: Vec<ScanEntry>,
    /// Where the next page begins.
    pub next: Option<Position>,
    /// The first thing that went wrong.
    pub error: Option<Error>,
    /// What it cost.
    pub cost: Cost,
}

/// Everything being read or held.
#[derive(Debug, Default)]
pub struct Reads {
    /// By location.
    pub reading: Map<u64, Reading>,
    /// Reads that are gathered, and those of several records at once.
    pub(crate) runs: Runs,
    /// Locations that wait until their group is durable.
    pub deferred: Vec<Location>,
    /// By location.
    pub held: Map<u64, Held>,
    /// Records whose last read failed: writes go past them, lookups try again.
    pub damaged: Set<u64>,
    /// Keys that were written or deleted past an unreadable record, by its location: should the record
    /// become readable and be one of theirs, it is an old one.
    /// With the sequence of the first such write.
    pub passed: Map<u64, BTreeMap<(KeyspaceId, Vec<u8>), Seq>>,
    /// By token.
    pub fetches: Map<Token, Fetch>,
    /// By number.
    pub scans: Map<u64, ScanPage>,
    /// The number of the next page, of walks and ranges.
    pub next_scan: u64,
    /// Reads at snapshots, by number.
    pub snapshot_reads: Map<u64, SnapshotRead>,
    /// The number of the next read at a snapshot.
    pub next_snapshot_read: u64,
    /// Pages of ranges, by number.
    pub ranges: Map<u64, RangePage>,
    /// The page that each fetch for a range is for.
    pub range_of: Map<Token, u64>,
    /// Pages of which a fetch is done.
    pub ranges_ready: Vec<u64>,
    /// What the next step reports.
    pub ready: Vec<Event>,
    /// Fetches of the shard's own, made for writes that must know an old record.
    pub(crate) reservations: Reservations,
    /// Callers' fetches that have brought records from the device.
    pub device_hits: u64,
    /// How many of those have not been followed by the lookup that they were made for.
    pub owed_lookups: u64,
    /// Steps taken so far.
    pub steps: u64,
    /// The next token of the shard's own.
    pub next_own: Token,
}

/// Tokens of the shard's own begin here; callers' tokens stay below.
pub const OWN_TOKENS: Token = 1 << 63;

impl Reads {
    /// A token of the shard's own.
    pub fn own_token(&mut self) -> Token {
        self.next_own += 1;
        OWN_TOKENS | self.next_own
    }

    /// Whether a step would report something, or go on with a page, now.
    pub fn wants_step(&self) -> bool {
        !self.ready.is_empty() || !self.ranges_ready.is_empty()
    }

    /// Whether the key was written or deleted past the record at `location` when that was unreadable.
    pub fn is_passed(&self, location: Location, keyspace: KeyspaceId, key: &[u8]) -> bool {
        !self.passed.is_empty()
            && self
                .passed
                .get(&location.raw())
                .is_some_and(|keys| keys.contains_key(&(keyspace, key.to_vec())))
    }

    /// Forgets what was unreadable in a segment that is given up: its locations will be used again.
    pub fn forget_segment(&mut self, segment: u32) {
        self.damaged.retain(|raw| Location::from_raw(*raw).segment() != segment);
        self.passed.retain(|raw, _| Location::from_raw(*raw).segment() != segment);
    }

    /// Reports a fetch that waits for nothing any more: to its caller, or to the page that it is for.
    pub fn report(&mut self, token: Token) {
        let Some(fetch) = self.fetches.get_mut(&token) else { return };
        if fetch.outstanding > 0 {
            return;
        }
        if token >= OWN_TOKENS {
            self.ranges_ready.extend(self.range_of.get(&token));
            return;
        }
        if fetch.has_waited && fetch.error.is_none() {
            self.device_hits += 1;
            self.owed_lookups += 1;
        }
        let result = match fetch.error.take() {
            Some(error) => Err(error),
            None => Ok(()),
        };
        self.ready.push(Event::Fetched { token, result, cost: fetch.cost });
    }

    /// Reports a page that waits for nothing any more.
    pub fn report_scan(&mut self, number: u64) {
        if self.scans.get(&number).is_none_or(|page| page.outstanding > 0) {
            return;
        }
        if let Some(page) = self.scans.remove(&number) {
            self.ready.push(Event::Scanned {
                token: page.request.token,
                entries: page.entries,
                next: page.next,
                error: page.error,
                cost: page.cost,
            });
        }
    }
}
