//! Reads at snapshots, and pages of walks and ranges of them.
//!
//! What a snapshot shows of a key is the record that the table of kept ones or the index names ([`crate::snapshots`],
//! invariant 1). It is looked for when the request comes: no step lies between, so that a snapshot that ends before
//! the answer changes nothing.

use crate::format::RecordHead;
use crate::gone::GoneRange;
use crate::read::Page;
use crate::read::{PAGE_BYTES_MAX, PAGE_ENTRIES_MAX, SCANS_A_PAGE, meta_of};
use crate::shard::PmShard;
use std::borrow::Cow;
use tierstone_base::{Position, Result};
use tierstone_engine::cuts::Cut;
use tierstone_engine::{
    Cost, Direction, Event, Key, OwnedRecord, RangeEntry, RangeRequest, ScanEntry, ScanRequest, SnapshotId,
};

/// A whole record: its head and its bytes.
type Record<'r> = (RecordHead, Cow<'r, [u8]>);

impl PmShard {
    /// The record that a key had at a snapshot.
    pub(crate) fn record_at(&self, snapshot: SnapshotId, key: &Key<'_>) -> Result<Option<OwnedRecord>> {
        let cut = self.snapshots.cuts.get(snapshot)?;
        let named = || -> Result<Option<Record<'_>>> {
            let Some(keys) = self.keys_at(key.keyspace, &cut) else { return Ok(None) };
            let Some(found) = self.find_in(keys, key)? else { return Ok(None) };
            self.record(found.place).map(Some)
        };
        let named = named();
        if let Ok(Some((head, record))) = &named
            && self.counts_at(head, &cut)
        {
            return self.owned_at(head, record, &cut);
        }
        // A record that could not be read is another key's, or an older or a younger one.
        match (self.kept_at(key, &cut), named) {
            (Ok(None), Err(error)) => Err(error),
            (kept, _) => kept,
        }
    }

    /// Whether the record is not younger than the cut.
    fn counts_at(&self, head: &RecordHead, cut: &Cut) -> bool {
        head.seq <= cut.seq || self.mutations.is_on("snapshot_shows_newer")
    }

    fn owned_at(&self, head: &RecordHead, record: &[u8], cut: &Cut) -> Result<Option<OwnedRecord>> {
        if !cut.is_unexpired(head.expiry_ms) {
            return Ok(None);
        }
        Ok(Some(OwnedRecord { meta: meta_of(head), value: self.value_of(head, record)? }))
    }

    /// The kept record of a key.
    fn kept_at(&self, key: &Key<'_>, cut: &Cut) -> Result<Option<OwnedRecord>> {
        let mut damaged = None;
        for place in self.snapshots.at(key.keyspace, key.position, cut) {
            let owned = || -> Result<Option<Option<OwnedRecord>>> {
                let (head, record) = self.record(place)?;
                let is_it = *self.key_of(&head, &record)? == *key.bytes;
                is_it.then(|| self.owned_at(&head, &record, cut)).transpose()
            };
            match owned() {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(error) => damaged = damaged.or(Some(error)),
            }
        }
        damaged.map_or(Ok(None), Err)
    }

    /// A page of a walk of a snapshot. Each key is given in the page that holds its position, and only there.
    pub(crate) fn scan_at(&self, request: &ScanRequest, snapshot: SnapshotId) -> Event {
        let token = request.token;
        let ended = |error| Event::Scanned {
            token,
            entries: Vec::new(),
            next: None,
            error: Some(error),
            cost: Cost::default(),
        };
        let cut = match self.snapshots.cuts.get(snapshot) {
            Ok(cut) => cut,
            Err(error) => return ended(error),
        };
        let count = (request.count.max(1) as usize).min(PAGE_ENTRIES_MAX);
        let (mut places, mut next) = (Vec::new(), None);
        if let Some(keys) = self.keys_at(request.keyspace, &cut) {
            next = Some(request.cursor);
            // A sparse index shows nothing for a while.
            for _ in 0..SCANS_A_PAGE {
                let Some(from) = next.filter(|_| places.len() < count) else { break };
                next = keys.scan(from, count - places.len(), |place| places.push(place));
            }
        }
        next = self.snapshots.page(request.keyspace, (request.cursor, next), count, &cut, &mut places);
        let (mut entries, mut error) = (Vec::new(), None);
        for place in places {
            let entry = || -> Result<Option<ScanEntry>> {
                let (head, record) = self.record(place)?;
                let position = Position(head.position);
                let is_in_page = position >= request.cursor && next.is_none_or(|next| position < next);
                let is_shown = is_in_page && self.counts_at(&head, &cut) && cut.is_unexpired(head.expiry_ms);
                if !is_shown {
                    return Ok(None);
                }
                Ok(Some(ScanEntry { key: self.key_of(&head, &record)?.into_owned(), meta: meta_of(&head) }))
            };
            match entry() {
                Ok(entry) => entries.extend(entry),
                Err(damaged) => error = error.or(Some(damaged)),
            }
        }
        Event::Scanned { token, entries, next, error, cost: Cost::default() }
    }

    /// A page of a range of a snapshot: keys in the order and keys that have left it, together.
    pub(crate) fn range_at(&self, request: &RangeRequest, snapshot: SnapshotId) -> Event {
        let mut page = Page::default();
        let walked = self.walk_range_at(request, snapshot, &mut page);
        let Page { entries, next, error, .. } = page;
        let error = error.or(walked.err());
        Event::Ranged { token: request.token, entries, next, error, cost: Cost::default() }
    }

    fn walk_range_at(&self, request: &RangeRequest, snapshot: SnapshotId, page: &mut Page) -> Result<()> {
        let cut = self.snapshots.cuts.get(snapshot)?;
        let keys = match self.keys_at(request.keyspace, &cut) {
            Some(keys) if keys.is_ordered() => keys,
            None if self.dropped.contains(&request.keyspace) => return Err(request.dropped()),
            _ => return Err(request.no_order()),
        };
        let bounds = (request.from.as_ref().map(Vec::as_slice), request.to.as_ref().map(Vec::as_slice));
        let gone = self.snapshots.gone.range(request.keyspace, bounds, request.direction);
        let mut walk = RangeWalk { shard: self, request, cut, gone, page };
        let mut goes_on = true;
        keys.range(bounds, request.direction, usize::MAX, |place| {
            goes_on = walk.take(place);
            goes_on
        });
        if goes_on {
            walk.take_gone(None);
        }
        Ok(())
    }
}

/// A page that is being made.
struct RangeWalk<'w> {
    shard: &'w PmShard,
    request: &'w RangeRequest,
    cut: Cut,
    gone: GoneRange<'w>,
    page: &'w mut Page,
}

impl RangeWalk<'_> {
    /// The next key of the order, whose record is at `place`; whether to go on.
    fn take(&mut self, place: u64) -> bool {
        let shard = self.shard;
        let read = || -> Result<(RecordHead, Cow<'_, [u8]>, Vec<u8>)> {
            let (head, record) = shard.record(place)?;
            let key = shard.key_of(&head, &record)?.into_owned();
            Ok((head, record, key))
        };
        let (head, record, key) = match read() {
            Ok(read) => read,
            Err(damaged) => {
                self.page.looked += 1;
                self.page.error = self.page.error.take().or(Some(damaged));
                return true;
            }
        };
        if !self.take_gone(Some(&key)) || !self.has_room() {
            return false;
        }
        let found = match shard.counts_at(&head, &self.cut) {
            true => shard.owned_at(&head, &record, &self.cut),
            false => self.kept(&key, Position(head.position)),
        };
        self.give(key, found);
        true
    }

    fn kept(&self, key: &[u8], position: Position) -> Result<Option<OwnedRecord>> {
        self.shard.kept_at(&Key { keyspace: self.request.keyspace, position, bytes: key }, &self.cut)
    }

    /// Gone keys that come before `key`, all where there is none; `key` itself is one of the order. Whether to go on.
    fn take_gone(&mut self, key: Option<&[u8]>) -> bool {
        while let Some(&(gone, position)) = self.gone.peek() {
            let comes_first = key.is_none_or(|key| match self.request.direction {
                Direction::Forward => gone < key,
                Direction::Backward => gone > key,
            });
            if !comes_first {
                if key == Some(gone) {
                    self.gone.next();
                }
                return true;
            }
            if !self.has_room() {
                return false;
            }
            self.gone.next();
            let found = self.kept(gone, position);
            self.give(gone.to_vec(), found);
        }
        true
    }

    /// Whether the page takes a further key; if not, it ends with the one before.
    fn has_room(&mut self) -> bool {
        let page = &mut self.page;
        let is_full = page.entries.len() >= (self.request.limit.max(1) as usize).min(PAGE_ENTRIES_MAX)
            || page.bytes >= PAGE_BYTES_MAX
            || page.looked >= PAGE_ENTRIES_MAX;
        if is_full && page.last.is_some() {
            page.next = page.last.take();
            return false;
        }
        true
    }

    fn give(&mut self, key: Vec<u8>, found: Result<Option<OwnedRecord>>) {
        let page = &mut self.page;
        page.looked += 1;
        page.last = Some(key.clone());
        match found {
            Ok(None) => {}
            Ok(Some(OwnedRecord { meta, value })) => {
                page.bytes += key.len() + value.len();
                page.entries.push(RangeEntry { key, meta, value });
            }
            Err(damaged) => page.error = page.error.take().or(Some(damaged)),
        }
    }
}
