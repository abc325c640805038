//! Reads: records in place, walks by position, ranges by key.

use crate::format::{FLAG_KEY_OUT, RECORD_BYTES, RecordHead};
use crate::shard::{Found, PmShard};
use std::borrow::Cow;
use tierstone_base::{Error, KeyspaceId, Now, Result};
use tierstone_engine::{
    Cost, Event, Key, Lookup, RangeEntry, RangeRequest, RecordMeta, RecordView, ScanEntry, ScanRequest,
    ValueKind,
};

/// Entries of a page at most, whatever was asked for.
pub(crate) const PAGE_ENTRIES_MAX: usize = 1024;
/// A page of a walk asks the index so often at most.
pub(crate) const SCANS_A_PAGE: usize = 16;
/// A page of a range ends when it holds so many bytes.
pub(crate) const PAGE_BYTES_MAX: usize = 1 << 20;

pub(crate) fn meta_of(head: &RecordHead) -> RecordMeta {
    RecordMeta { seq: head.seq, expiry_ms: head.expiry_ms, kind: ValueKind(head.kind) }
}

/// Where a value can be borrowed from.
enum ValuePlace {
    InPlace(u64, usize),
    Scratch,
}

impl PmShard {
    /// See [`tierstone_engine::Engine::lookup`]. `Fetch` only where a record is damaged: the fetch says so.
    pub(crate) fn lookup_inner(&mut self, now: Now, key: Key<'_>, is_use: bool) -> Lookup<'_> {
        let found = match self.find(&key) {
            Ok(found) => found,
            Err(_) => return Lookup::Fetch,
        };
        if is_use {
            self.evictor.uses.asked(key.keyspace, key.position, found.is_some());
        }
        let Some(found) = found else { return Lookup::Missing };
        self.now.monotonic_us = self.now.monotonic_us.max(now.monotonic_us);
        if self.is_past(found.head.expiry_ms, now.wall_ms) {
            return Lookup::Missing;
        }
        self.counts.memory_hits += 1;
        let meta = meta_of(&found.head);
        let Ok(place) = self.place_value(&found) else { return Lookup::Fetch };
        let value = match place {
            ValuePlace::Scratch => self.scratch.as_slice(),
            ValuePlace::InPlace(offset, len) => match self.maker.memory.bytes(offset, len) {
                Cow::Borrowed(value) => value,
                Cow::Owned(_) => &[],
            },
        };
        Lookup::Found(RecordView { meta, value })
    }

    /// Finds the value of a record that was verified just now; what cannot be borrowed from the region is copied to `scratch`.
    fn place_value(&mut self, found: &Found) -> Result<ValuePlace> {
        let is_in_place = self.maker.memory.is_in_place();
        if is_in_place && !found.head.is_overflow() {
            let offset = found.place + (RECORD_BYTES + usize::from(found.head.key_len)) as u64;
            return Ok(ValuePlace::InPlace(offset, found.head.value_len as usize));
        }
        let (head, record) = self.record(found.place)?;
        if !head.is_overflow() {
            self.scratch = head.body(&record).1.to_vec();
            return Ok(ValuePlace::Scratch);
        }
        let skipped = if head.flags & FLAG_KEY_OUT == 0 { 0 } else { usize::from(head.key_len) };
        let extents = head.overflow(&record).map_or_else(Vec::new, |overflow| overflow.extents);
        let payload = self.payload(&head, &record)?;
        if let (true, [only]) = (is_in_place, extents.as_slice()) {
            return Ok(ValuePlace::InPlace(only.offset + skipped as u64, payload.len() - skipped));
        }
        self.scratch = payload[skipped..].to_vec();
        Ok(ValuePlace::Scratch)
    }

    /// A value of one's own.
    pub(crate) fn value_of(&self, head: &RecordHead, record: &[u8]) -> Result<Vec<u8>> {
        if !head.is_overflow() {
            return Ok(head.body(record).1.to_vec());
        }
        let skipped = if head.flags & FLAG_KEY_OUT == 0 { 0 } else { usize::from(head.key_len) };
        Ok(self.payload(head, record)?[skipped..].to_vec())
    }

    /// Whether what a lookup gave up on is damaged.
    pub(crate) fn fetch_one(&self, key: &Key<'_>) -> Result<()> {
        match self.find(key)? {
            None => Ok(()),
            Some(found) => {
                let (head, record) = self.record(found.place)?;
                if head.is_overflow() {
                    self.payload(&head, &record)?;
                }
                Ok(())
            }
        }
    }

    /// Gives what was asked for since the last step.
    pub(crate) fn answer(&mut self, events: &mut Vec<Event>) {
        let asked = std::mem::take(&mut self.asked);
        for (token, result) in asked.fetched {
            events.push(Event::Fetched { token, result, cost: Cost::default() });
        }
        events.extend(asked.ready);
        for request in asked.scans {
            events.push(self.scan_page(request));
        }
        for request in asked.ranges {
            events.push(self.range_page(request));
        }
    }

    fn scan_page(&self, request: ScanRequest) -> Event {
        let ScanRequest { token, keyspace, cursor, count, .. } = request;
        let (mut entries, mut error, mut next) = (Vec::new(), None, Some(cursor));
        let read = |place| -> Result<ScanEntry> {
            let (head, record) = self.record(place)?;
            Ok(ScanEntry { key: self.key_of(&head, &record)?.into_owned(), meta: meta_of(&head) })
        };
        let count = (count.max(1) as usize).min(PAGE_ENTRIES_MAX);
        let keys = self.keyspaces.get(&keyspace);
        // A sparse index shows nothing for a while.
        for _ in 0..SCANS_A_PAGE {
            let (Some(keys), Some(from)) = (keys, next.filter(|_| entries.len() < count)) else { break };
            next = keys.scan(from, count - entries.len(), |place| match read(place) {
                Ok(entry) => entries.push(entry),
                Err(damaged) => error = error.take().or(Some(damaged)),
            });
        }
        let next = next.filter(|_| keys.is_some());
        Event::Scanned { token, entries, next, error, cost: Cost::default() }
    }

    fn range_page(&mut self, request: RangeRequest) -> Event {
        let token = request.token;
        let (mut page, mut past_ms) = (Page::default(), 0);
        match self.keyspaces.get(&request.keyspace) {
            Some(keys) if keys.is_ordered() => {
                let bounds =
                    (request.from.as_ref().map(Vec::as_slice), request.to.as_ref().map(Vec::as_slice));
                let wall_ms = self.now.wall_ms;
                keys.range(bounds, request.direction, usize::MAX, |place| {
                    self.range_entry(place, wall_ms, request.limit, &mut page, &mut past_ms)
                });
            }
            _ if self.dropped.contains(&request.keyspace) => page.error = Some(request.dropped()),
            _ => page.error = Some(request.no_order()),
        }
        if past_ms > 0 {
            self.show_past(past_ms);
        }
        let Page { entries, next, error, .. } = page;
        Event::Ranged { token, entries, next, error, cost: Cost::default() }
    }

    /// One record of a range; whether to go on.
    fn range_entry(&self, place: u64, wall_ms: u64, limit: u32, page: &mut Page, past_ms: &mut u64) -> bool {
        let is_full = page.entries.len() >= (limit.max(1) as usize).min(PAGE_ENTRIES_MAX)
            || page.bytes >= PAGE_BYTES_MAX
            || page.looked >= PAGE_ENTRIES_MAX;
        if is_full && page.last.is_some() {
            page.next = page.last.take();
            return false;
        }
        page.looked += 1;
        let read = || -> Result<RangeEntry> {
            let (head, record) = self.record(place)?;
            let key = self.key_of(&head, &record)?.into_owned();
            Ok(RangeEntry { key, meta: meta_of(&head), value: self.value_of(&head, &record)? })
        };
        match read() {
            Ok(entry) => {
                page.last = Some(entry.key.clone());
                let expiry_ms = entry.meta.expiry_ms;
                if expiry_ms != 0 && expiry_ms <= wall_ms {
                    *past_ms = (*past_ms).max(expiry_ms);
                    return true;
                }
                page.bytes += entry.key.len() + entry.value.len();
                page.entries.push(entry);
            }
            Err(damaged) => page.error = page.error.take().or(Some(damaged)),
        }
        true
    }

    /// Live keys of `keyspace`, those included that have expired and were not met since.
    pub(crate) fn keys_of(&self, keyspace: KeyspaceId) -> u64 {
        self.keyspaces.get(&keyspace).map_or(0, crate::keys::Keys::len)
    }
}

/// A page of a range that is being made.
#[derive(Default)]
pub(crate) struct Page {
    pub entries: Vec<RangeEntry>,
    pub bytes: usize,
    pub looked: usize,
    /// The last key that was looked at.
    pub last: Option<Vec<u8>>,
    pub next: Option<Vec<u8>>,
    pub error: Option<Error>,
}
