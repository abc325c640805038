//! Ranges: keys from an order, their values from memory or the device, in the order of the keys.
//!
//! Invariants:
//! 1. A page has at most [`READS_AT_ONCE_MAX`] keys under way, fewer where records are long. Entries leave in the
//!    order of their keys.
//! 2. A page ends when it has looked at as many keys as it may give, or has [`PAGE_BYTES_MAX`].
//! 3. A key that goes while its record is being read is left out; one whose record moves is looked for
//!    again; one that comes behind the last key taken is seen.
//! 4. Of a snapshot: keys come from the order and from those that have left it ([`crate::gone`]); where a key's
//!    record was at the cut is found out when the key is taken. So each key of the cut is given, once.
//!
//! Who owns the data: [`Reads`](crate::reads::Reads) owns pages; records are held by fetches of the
//! shard's own until they are copied into the page.

use crate::format::record::RecordHeader;
use crate::location::Target;
use crate::read_path::{Found, Search, matching};
use crate::reads::OWN_TOKENS;
use crate::shard::LogShard;
use crate::snapshot_reads::AskedBy;
use std::collections::VecDeque;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Position, Result, Token};
use tierstone_cache::FrameId;
use tierstone_engine::cuts::Cut;
use tierstone_engine::{Cost, Direction, Event, Key, OwnedRecord, RangeEntry, RangeRequest};

/// Keys of a page whose records are under way at the same time: as many as have [`PAGE_BYTES_MAX`] together as a rule, within
/// these bounds. All that a short range wants are read at once, so that its thread is woken once; of very long values only as
/// many as have [`LONG_BYTES`].
const READS_AT_ONCE_MIN: usize = 32;
const LONG_READS_AT_ONCE_MIN: usize = 4;
const LONG_BYTES: u64 = 16 << 20;
const READS_AT_ONCE_MAX: usize = 128;
/// A page with so many bytes takes no further keys.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// What an entry counts besides its key and value.
const ENTRY_BYTES: usize = 64;
/// How often a record may move away between its read and the look at it.
const ROUNDS_MAX: u32 = 100;

/// A page of a range in the making.
#[derive(Debug)]
pub(crate) struct RangePage {
    /// What is still wanted: the end it began at moves with the keys that are taken.
    request: RangeRequest,
    /// Of a snapshot: what it shows.
    cut: Option<Cut>,
    slots: VecDeque<Slot>,
    entries: Vec<RangeEntry>,
    /// Bytes of the entries so far.
    bytes: usize,
    /// The last key taken from the order.
    last: Option<Vec<u8>>,
    /// The order has no further key in the range.
    is_at_end: bool,
    error: Option<Error>,
    cost: Cost,
}

/// A key of a page, in its order.
#[derive(Debug)]
struct Slot {
    key: Vec<u8>,
    rounds: u32,
    state: SlotState,
}

#[derive(Debug)]
enum SlotState {
    /// Its record is being read by the fetch with this token.
    Reading(Token),
    /// What it was at the cut is being found out by the read with this number.
    ReadingAt(u64),
    /// What became of it; `None`: nothing to show.
    Known(Option<RangeEntry>),
}

impl RangePage {
    fn wants_keys(&self) -> bool {
        !self.is_at_end && self.request.limit > 0 && self.bytes < PAGE_BYTES_MAX
    }

    /// Moves what is known from the front into the entries; true when something was.
    fn emit(&mut self) -> bool {
        let before = self.slots.len();
        while let Some(Slot { state: SlotState::Known(_), .. }) = self.slots.front() {
            let Some(Slot { state: SlotState::Known(entry), .. }) = self.slots.pop_front() else { break };
            self.entries.extend(entry);
        }
        self.slots.len() < before
    }

    fn fail(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }

    /// What a read at the cut makes of its key.
    fn known_at(&mut self, key: &[u8], (found, cost): (Result<Option<OwnedRecord>>, Cost)) -> SlotState {
        self.cost += cost;
        let record = found.unwrap_or_else(|error| {
            self.fail(error);
            None
        });
        SlotState::Known(record.map(|OwnedRecord { meta, value }| {
            self.bytes += key.len() + value.len() + ENTRY_BYTES;
            RangeEntry { key: key.to_vec(), meta, value }
        }))
    }
}

/// The first `wanted` of both together, in order, each once.
fn merge(mut keys: Vec<Vec<u8>>, gone: Vec<Vec<u8>>, wanted: usize, direction: Direction) -> Vec<Vec<u8>> {
    if !gone.is_empty() {
        keys.extend(gone);
        match direction {
            Direction::Forward => keys.sort_unstable(),
            Direction::Backward => keys.sort_unstable_by(|one, other| other.cmp(one)),
        }
        keys.dedup();
        keys.truncate(wanted);
    }
    keys
}

/// How many records are read at once where they have `mean_bytes`.
fn at_once_of(mean_bytes: u64) -> usize {
    let fit = |bytes: u64| usize::try_from(bytes / mean_bytes.max(1)).unwrap_or(usize::MAX);
    let least = fit(LONG_BYTES).clamp(LONG_READS_AT_ONCE_MIN, READS_AT_ONCE_MIN);
    fit(PAGE_BYTES_MAX as u64).clamp(least, READS_AT_ONCE_MAX)
}

impl LogShard {
    /// Starts a page of a range.
    pub(crate) fn start_range(&mut self, mut request: RangeRequest) {
        let cut = match request.snapshot.map(|id| self.snapshots.cuts.get(id)).transpose().and_then(|cut| {
            self.keyspaces.order_of(&request, cut.as_ref())?;
            Ok(cut)
        }) {
            Ok(cut) => cut,
            Err(error) => {
                let (token, entries) = (request.token, Vec::new());
                let (next, cost) = (None, Cost::default());
                self.reads.ready.push(Event::Ranged { token, entries, next, error: Some(error), cost });
                return;
            }
        };
        request.limit = request.limit.max(1);
        let number = self.reads.next_scan;
        self.reads.next_scan += 1;
        let page = RangePage {
            request,
            cut,
            slots: VecDeque::new(),
            entries: Vec::new(),
            bytes: 0,
            last: None,
            is_at_end: false,
            error: None,
            cost: Cost::default(),
        };
        self.advance_range(number, page);
    }

    /// Goes on with the pages whose records have come.
    pub(crate) fn advance_ranges(&mut self) {
        while let Some(number) = self.reads.ranges_ready.pop() {
            if let Some(page) = self.reads.ranges.remove(&number) {
                self.advance_range(number, page);
            }
        }
    }

    fn advance_range(&mut self, number: u64, mut page: RangePage) {
        for place in 0..page.slots.len() {
            self.look_again(number, &mut page, place);
        }
        let at_once = self.reads_at_once(page.request.keyspace);
        loop {
            page.emit();
            // Half of them at least, so that runs are long.
            if !page.wants_keys() || page.slots.len() + at_once / 2 > at_once {
                break;
            }
            self.take_keys(number, &mut page, at_once);
        }
        if !page.slots.is_empty() {
            self.reads.ranges.insert(number, page);
            return;
        }
        let RangePage { request, entries, last, is_at_end, error, cost, .. } = page;
        let next = last.filter(|_| !is_at_end);
        if error.is_none() {
            self.cluster_page(request.keyspace, &entries, &cost);
        }
        self.reads.ready.push(Event::Ranged { token: request.token, entries, next, error, cost });
    }

    /// Keys of a page of `keyspace` that may be under way at the same time.
    fn reads_at_once(&self, keyspace: KeyspaceId) -> usize {
        let keys = self.keyspaces.get(keyspace).map_or(0, |keyspace| keyspace.index.len());
        at_once_of(self.segments.live_bytes() / keys.max(1))
    }

    /// Takes the next keys of the range and looks for their records.
    fn take_keys(&mut self, number: u64, page: &mut RangePage, at_once: usize) {
        let wanted = (at_once - page.slots.len()).min(page.request.limit as usize);
        let keys = match self.next_keys(page, wanted) {
            Ok(keys) => keys,
            Err(error) => {
                // Its snapshot, or its keyspace, went: what was taken before is right.
                page.request.limit = 0;
                if error.kind() == ErrorKind::SnapshotLost || page.cut.is_none() {
                    page.fail(error);
                }
                return;
            }
        };
        page.is_at_end = keys.len() < wanted;
        page.request.limit -= keys.len() as u32;
        if let Some(last) = keys.last() {
            page.request.go_on(last.clone());
            page.last = Some(last.clone());
        }
        let hasher = &self.identity.hasher;
        let places: Vec<(KeyspaceId, Position)> =
            keys.iter().map(|key| (page.request.keyspace, hasher.position(key))).collect();
        self.prefetch_places(places.iter().copied());
        self.reads.runs.begin();
        for (key, (_, position)) in keys.into_iter().zip(places) {
            let state = self.look_for(number, page, (&key, position), 0, None);
            page.slots.push_back(Slot { key, rounds: 0, state });
        }
        self.submit_runs();
    }

    /// Keys of the range that are not taken yet, in its order.
    fn next_keys(&self, page: &RangePage, wanted: usize) -> Result<Vec<Vec<u8>>> {
        let RangePage { request, cut, .. } = page;
        if let Some(cut) = cut {
            // Should it end, what it keeps goes, and the range would have gaps.
            self.snapshots.cuts.get(cut.id)?;
        }
        let bounds = (request.from.as_ref().map(Vec::as_slice), request.to.as_ref().map(Vec::as_slice));
        let (mut keys, mut gone) = (Vec::with_capacity(wanted), Vec::new());
        if let Some(order) = self.keyspaces.order_of(request, cut.as_ref())? {
            order.range(bounds.0, bounds.1, wanted, request.direction, |key| {
                keys.push(key.to_vec());
                true
            });
        }
        if cut.is_some() {
            let take = |key: &[u8]| gone.push(key.to_vec());
            self.snapshots.gone.range(request.keyspace, bounds, wanted, request.direction, take);
        }
        Ok(merge(keys, gone, wanted, request.direction))
    }

    /// Looks at a key whose record has been read.
    fn look_again(&mut self, number: u64, page: &mut RangePage, place: usize) {
        if let SlotState::ReadingAt(read) = page.slots[place].state
            && let Some(found) = self.take_read_at(read)
        {
            let key = std::mem::take(&mut page.slots[place].key);
            page.slots[place].state = page.known_at(&key, found);
        }
        let SlotState::Reading(token) = page.slots[place].state else { return };
        let Some(fetch) = self.reads.fetches.get_mut(&token) else { return };
        if fetch.outstanding > 0 {
            return;
        }
        let failure = fetch.error.take();
        page.cost += fetch.cost;
        let key = std::mem::take(&mut page.slots[place].key);
        let rounds = page.slots[place].rounds + 1;
        let position = self.identity.hasher.position(&key);
        let state = self.look_for(number, page, (&key, position), rounds, failure);
        page.slots[place] = Slot { key, rounds, state };
        self.reads.range_of.remove(&token);
        self.release_token(token);
    }

    /// Looks for a key's record; starts to read it where that is needed and no earlier read has failed.
    fn look_for(
        &mut self,
        number: u64,
        page: &mut RangePage,
        (bytes, position): (&[u8], Position),
        rounds: u32,
        failure: Option<Error>,
    ) -> SlotState {
        let key = Key { keyspace: page.request.keyspace, position, bytes };
        if let Some(cut) = page.cut {
            if let Some(entry) = self.newest_at(&cut, page, &key) {
                return SlotState::Known(entry);
            }
            let read = self.begin_read_at(cut, AskedBy::Range(number), &key);
            return match self.take_read_at(read) {
                Some(found) => page.known_at(bytes, found),
                None => SlotState::ReadingAt(read),
            };
        }
        let Search { found, header, damaged, .. } = self.search(&key);
        match found {
            Found::Absent if !damaged => SlotState::Known(None),
            Found::Absent | Found::Unknown => {
                let moved = (rounds >= ROUNDS_MAX).then(|| {
                    let message = format!("a record moved away {rounds} times before it could be read");
                    Error::new(ErrorKind::Retry, message)
                });
                if let Some(error) = failure.or(moved) {
                    page.fail(error);
                    return SlotState::Known(None);
                }
                self.counts.device_hits += 1;
                let token = self.reads.own_token();
                debug_assert!(token >= OWN_TOKENS);
                self.reads.range_of.insert(token, number);
                self.start_fetch(token, &key);
                SlotState::Reading(token)
            }
            Found::Frame(_) | Found::Held(_) | Found::Unsubmitted(_) => {
                SlotState::Known(self.entry_of(page, (bytes, position), found, &header))
            }
        }
    }

    /// What a key shows at a cut, where its newest record is in the cache and not younger: nothing else can be it then. `None` where
    /// that is not so.
    fn newest_at(&mut self, cut: &Cut, page: &mut RangePage, key: &Key<'_>) -> Option<Option<RangeEntry>> {
        let first = self.keyspaces.get(key.keyspace)?.index.first_candidate(key.position)?;
        let Target::Frame(bits) = Target::unpack(first) else { return None };
        let bytes = self.cache.peek(FrameId::from_bits(bits)).bytes;
        let header = matching(bytes, key).filter(|header| header.seq <= cut.seq)?;
        let meta = self.meta_at(key.position, &header);
        if meta.expiry_ms != 0 && meta.expiry_ms <= cut.wall_ms {
            return Some(None);
        }
        let value = bytes.get(header.value_range())?.to_vec();
        page.bytes += key.bytes.len() + value.len() + ENTRY_BYTES;
        Some(Some(RangeEntry { key: key.bytes.to_vec(), meta, value }))
    }

    /// The entry of a record in memory, unless it has expired.
    fn entry_of(
        &mut self,
        page: &mut RangePage,
        (key, position): (&[u8], Position),
        found: Found,
        header: &RecordHeader,
    ) -> Option<RangeEntry> {
        let meta = self.meta_at(position, header);
        if self.is_past(meta.expiry_ms, self.now.wall_ms) {
            return None;
        }
        match found {
            Found::Frame(frame) => {
                self.counts.memory_hits += 1;
                self.cache.touch(frame);
            }
            Found::Unsubmitted(_) => self.counts.memory_hits += 1,
            Found::Held(_) | Found::Absent | Found::Unknown => {}
        }
        let value = self.found_bytes(found)?.get(header.value_range())?.to_vec();
        page.bytes += key.len() + value.len() + ENTRY_BYTES;
        Some(RangeEntry { key: key.to_vec(), meta, value })
    }
}

#[cfg(test)]
mod tests {
    use super::at_once_of;

    #[test]
    fn records_that_are_read_at_once_are_fewer_where_they_are_long() {
        for (mean_bytes, at_once) in
            [(0, 128), (100, 128), (16 << 10, 64), (100_000, 32), (1 << 20, 16), (8 << 20, 4), (u64::MAX, 4)]
        {
            assert_eq!(at_once_of(mean_bytes), at_once, "{mean_bytes} bytes");
        }
    }
}
