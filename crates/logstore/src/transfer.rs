//! Split and Merge: a range of positions moves from one shard to another while both serve.
//!
//! After FAWN-DS (Vasudevan 2011, §3.3.2): one sequential scan of the source's segments, what changes
//! meanwhile after it, then a short lock in which the last changes go over. Departures: the scan skips
//! what is dead by asking the index, so nothing is sent twice without need; the tail is a list of
//! changed keys, not a part of the log; and the source's records of the range are deleted by records of
//! their own in a second scan, because segments are shared by all ranges.
//!
//! The caller drives it: [`LogShard::begin_split`], then, as often as it likes,
//! [`LogShard::take_moved`] here and [`LogShard::ingest`] there; when [`SplitProgress::caught_up`],
//! [`LogShard::lock_split`]; when [`SplitProgress::drained`] and the target has made all of it durable,
//! [`LogShard::drop_split`]; [`LogShard::end_split`] when it is done, or to give it up before the drop.
//!
//! Invariants:
//! 1. A record goes to the outbox when it is its key's newest, and every later write of its key in the
//!    range puts the key among the changed ones (`split_changes_not_kept`). So when scan, changes and
//!    outbox are empty under the lock, the target has the newest version of every key.
//! 2. A record that the cleaner moves out of a segment that was not scanned yet goes to the outbox
//!    (`split_misses_cleaned`). A segment that is freed needs no scan.
//! 3. The lock counts as drained only when everything in it is durable here: the target never holds what
//!    a crash of the source could have taken back.
//! 4. Outbox and changed keys are bounded. A split never holds back cleaning or writers but in the
//!    lock: beyond the bounds it fails, and the source stays as it is.
//!
//! Crash: all of this is in memory. Before the drop the source has everything; from the drop on the
//! target has it, durable, and what is left at the source is to be dropped again by whoever knows that
//! the range has moved.

mod scan;

use crate::admission::Purpose;
use crate::format::record::RecordHeader;
use crate::location::Target;
use crate::read_path::{Found, Search};
use crate::reservations::Writer;
use crate::shard::LogShard;
use scan::Scan;
use std::collections::{BTreeSet, VecDeque};
use tierstone_base::{Error, ErrorKind, KeyspaceId, Now, Position, Result, Seq};
use tierstone_engine::{Key, ValueKind, Write, WriteKind, WriteReceipt};

/// One key's newest state, on its way to another shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedRecord {
    /// The keyspace, by the source's number.
    pub keyspace: KeyspaceId,
    /// The key.
    pub key: Vec<u8>,
    /// Its record; `None` when it has none any more.
    pub put: Option<MovedValue>,
}

/// A record's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedValue {
    /// The value's bytes.
    pub value: Vec<u8>,
    /// When it expires, in milliseconds since 1970; zero: never.
    pub expiry_ms: u64,
    /// The kind of the value.
    pub kind: ValueKind,
}

impl MovedRecord {
    fn bytes(&self) -> usize {
        MOVED_OVERHEAD_BYTES + self.key.len() + self.put.as_ref().map_or(0, |put| put.value.len())
    }
}

/// How far a split has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SplitProgress {
    /// Segments of the scan, of the copying or of the drop.
    pub segments_total: u32,
    /// Of these, not scanned yet.
    pub segments_left: u32,
    /// Keys that changed and were not sent since.
    pub changed_keys: u64,
    /// Records sent so far, deletions too.
    pub records: u64,
    /// Bytes of keys and values sent so far.
    pub bytes: u64,
    /// The scan is over and few changes are left: a lock would be short.
    pub caught_up: bool,
    /// Under the lock: everything was taken, and is durable here.
    pub drained: bool,
    /// Nothing of the range is left here, durably.
    pub dropped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Copying,
    /// Writes to the range are refused; since when everything below this sequence was applied.
    Locked(Seq),
    Dropping,
}

/// A split under way.
#[derive(Debug)]
pub(crate) struct Split {
    range: (Position, Position),
    phase: Phase,
    scan: Scan,
    changed: BTreeSet<(KeyspaceId, Position, Vec<u8>)>,
    changed_bytes: usize,
    outbox: VecDeque<MovedRecord>,
    outbox_bytes: usize,
    failed: Option<Error>,
    records: u64,
    bytes: u64,
}

/// A merge under way: keys of its range that were written here since it began, but by it.
#[derive(Debug, Default)]
pub(crate) struct Merge {
    range: (Position, Position),
    written: BTreeSet<(KeyspaceId, Vec<u8>)>,
    written_bytes: usize,
    ingesting: bool,
    overrun: bool,
}

/// What moves out of a shard and into it.
#[derive(Debug, Default)]
pub(crate) struct Transfers {
    split: Option<Box<Split>>,
    merge: Option<Box<Merge>>,
    /// Reads of scans so far.
    reads: u64,
}

impl Transfers {
    /// Whether a split is about to hand over, or to end: it waits for the log on the device.
    pub(crate) fn wait_for_flash(&self) -> bool {
        self.split.as_ref().is_some_and(|split| !matches!(split.phase, Phase::Copying))
    }
}

/// Bytes in the outbox above which the scan pauses.
const OUTBOX_BYTES: usize = 1 << 20;
/// Bytes in the outbox above which a split fails: the cleaner, which does not pause, has filled it.
const OUTBOX_BYTES_MAX: usize = 16 << 20;
/// Bytes of changed keys above which a split, or a merge, fails.
const CHANGED_BYTES_MAX: usize = 16 << 20;
/// What a changed key or a record in the outbox takes besides its bytes.
const MOVED_OVERHEAD_BYTES: usize = 96;
/// Changed keys that a step sends: about 200 µs.
const CHANGES_A_STEP: usize = 256;
/// Of these, at most so many whose record must be read first.
const FETCHES_A_STEP: usize = 16;
/// With so many changed keys a lock is short.
const TAIL_KEYS_MAX: usize = 256;

impl Split {
    fn covers(&self, position: Position) -> bool {
        (self.range.0..=self.range.1).contains(&position)
    }

    fn has_room(&self) -> bool {
        match self.phase {
            Phase::Dropping => self.changed_bytes < CHANGED_BYTES_MAX / 2,
            Phase::Copying | Phase::Locked(_) => self.outbox_bytes < OUTBOX_BYTES,
        }
    }

    fn change(&mut self, keyspace: KeyspaceId, position: Position, key: &[u8]) {
        let bytes = MOVED_OVERHEAD_BYTES + key.len();
        if self.changed.insert((keyspace, position, key.to_vec())) {
            self.changed_bytes += bytes;
        }
        if self.changed_bytes > CHANGED_BYTES_MAX {
            self.fail(Error::new(
                ErrorKind::Retry,
                "more keys changed than could be moved; begin the split anew",
            ));
        }
    }

    fn send(&mut self, record: MovedRecord) {
        let bytes = record.bytes();
        self.outbox_bytes += bytes;
        self.records += 1;
        self.bytes += (bytes - MOVED_OVERHEAD_BYTES) as u64;
        self.outbox.push_back(record);
        if self.outbox_bytes > OUTBOX_BYTES_MAX {
            self.fail(Error::new(
                ErrorKind::Retry,
                "what was to be moved was not taken; begin the split anew",
            ));
        }
    }

    fn fail(&mut self, error: Error) {
        self.failed = self.failed.take().or(Some(error));
        self.changed.clear();
        self.outbox.clear();
        (self.changed_bytes, self.outbox_bytes) = (0, 0);
        self.scan.end();
    }

    fn is_quiet(&self) -> bool {
        self.scan.is_over() && self.changed.is_empty() && self.outbox.is_empty()
    }

    /// The refusal of a write to the range, in the lock and after it.
    fn refusal(&self, writes: &[Write<'_>]) -> Option<Error> {
        if self.phase == Phase::Copying
            || self.failed.is_some()
            || !writes.iter().any(|write| self.covers(write.key.position))
        {
            return None;
        }
        Some(match self.phase {
            Phase::Dropping => moved(),
            _ => Error::new(ErrorKind::Retry, "the key's range is being handed over"),
        })
    }
}

impl LogShard {
    /// Begins to move the keys with positions in `range`, both ends included, to another shard.
    ///
    /// # Errors
    /// `Busy`: a split is under way, or the shard is being closed. `DeviceFailed`, `NoSpace`: as writes.
    pub fn begin_split(&mut self, range: (Position, Position)) -> Result<()> {
        if let Some(error) = self.unwritable() {
            return Err(error);
        }
        if self.transfers.split.is_some() {
            return Err(Error::new(ErrorKind::Busy, "a split is under way"));
        }
        let scan = self.new_scan();
        self.transfers.split = Some(Box::new(Split {
            range,
            phase: Phase::Copying,
            scan,
            changed: BTreeSet::new(),
            changed_bytes: 0,
            outbox: VecDeque::new(),
            outbox_bytes: 0,
            failed: None,
            records: 0,
            bytes: 0,
        }));
        Ok(())
    }

    /// Appends up to `count` records to `out`, about `bytes` of them at most, in the order in which they must be
    /// ingested. To be called after every step.
    pub fn take_moved(&mut self, bytes: usize, count: usize, out: &mut Vec<MovedRecord>) {
        let Some(split) = &mut self.transfers.split else { return };
        let (mut taken, full) = (0, out.len().saturating_add(count));
        while taken < bytes
            && out.len() < full
            && let Some(record) = split.outbox.pop_front()
        {
            taken += record.bytes();
            split.outbox_bytes -= record.bytes();
            out.push(record);
        }
    }

    /// How far the split has come.
    ///
    /// # Errors
    /// `InvalidInput`: there is none. Otherwise it has failed and is to be ended; before the drop the
    /// source has everything. `Retry`: begin anew, into an empty range. `Corrupt`: a record or a
    /// summary cannot be read.
    pub fn split_progress(&self) -> Result<SplitProgress> {
        let Some(split) = &self.transfers.split else { return Err(no_split()) };
        if let Some(error) = &split.failed {
            return Err(error.clone());
        }
        let (total, left) = split.scan.segments();
        let quiet = split.is_quiet();
        Ok(SplitProgress {
            segments_total: total,
            segments_left: left,
            changed_keys: split.changed.len() as u64,
            records: split.records,
            bytes: split.bytes,
            caught_up: split.scan.is_over()
                && split.changed.len() <= TAIL_KEYS_MAX
                && split.outbox.is_empty(),
            drained: quiet
                && matches!(split.phase, Phase::Locked(applied) if self.hot.decided_seq() >= applied),
            dropped: quiet && split.phase == Phase::Dropping && self.hot.durable_seq() >= self.applied,
        })
    }

    /// Refuses writes to the range from now on (`Retry`), so that the last changes can go over.
    ///
    /// # Errors
    /// `InvalidInput`: there is no split, or it is locked.
    pub fn lock_split(&mut self) -> Result<()> {
        let applied = self.applied;
        match &mut self.transfers.split {
            Some(split) if split.phase == Phase::Copying => split.phase = Phase::Locked(applied),
            _ => return Err(no_split()),
        }
        // What the target gets must be durable here: no waiting for company.
        self.hot.close_group(&self.segments);
        Ok(())
    }

    /// Begins to delete the range's keys here. To be called when everything that was taken is durable at
    /// the target: from now on the range is the target's (writes here get `Unsupported`).
    ///
    /// # Errors
    /// `InvalidInput`: the lock is not drained.
    pub fn drop_split(&mut self) -> Result<()> {
        if !self.split_progress()?.drained {
            return Err(no_split().context("the range is not drained"));
        }
        let scan = self.new_scan();
        if let Some(split) = &mut self.transfers.split {
            split.phase = Phase::Dropping;
            split.scan = scan;
        }
        Ok(())
    }

    /// Ends the split, done or not: the range takes writes again. Given up before [`LogShard::drop_split`],
    /// the source has everything, and what the target got is void.
    pub fn end_split(&mut self) {
        if let Some(mut split) = self.transfers.split.take() {
            self.end_scan(&mut split.scan);
        }
    }

    /// Begins to take another shard's records of `range` in: writes here win over them from now on, what is here
    /// already does not. Cost: of writes to the range the keys are remembered until it ends, in 16 MiB at most.
    ///
    /// # Errors
    /// `Busy`: a merge is under way.
    pub fn begin_merge(&mut self, range: (Position, Position)) -> Result<()> {
        if self.transfers.merge.is_some() {
            return Err(Error::new(ErrorKind::Busy, "a merge is under way"));
        }
        self.transfers.merge = Some(Box::new(Merge { range, ..Merge::default() }));
        Ok(())
    }

    /// Writes `records`, in order, but for keys that were written here since the merge began. They are
    /// durable when the receipt says so; several calls share groups. Gives `None` when nothing was to be
    /// written.
    ///
    /// # Errors
    /// Nothing was written: as [`tierstone_engine::Engine::write`]; with `Retry` the same records are to
    /// come again after a step. `InvalidInput`: there is no merge. `NoMemory`: more keys of the range
    /// were written here meanwhile than can be remembered; the merge is void.
    pub fn ingest(&mut self, now: Now, records: &[MovedRecord]) -> Result<Option<WriteReceipt>> {
        self.now = self.now.max(now);
        let Some(merge) = &mut self.transfers.merge else {
            return Err(Error::new(ErrorKind::InvalidInput, "there is no merge"));
        };
        if merge.overrun {
            return Err(Error::new(ErrorKind::NoMemory, "too many keys were written during the merge"));
        }
        let ignores_writes = self.identity.mutations.is_on("merge_overwrites");
        let hasher = self.identity.hasher;
        let writes: Vec<Write<'_>> = records
            .iter()
            .filter(|record| {
                ignores_writes
                    || merge.written.is_empty()
                    || !merge.written.contains(&(record.keyspace, record.key.clone()))
            })
            .map(|record| Write {
                key: Key {
                    keyspace: record.keyspace,
                    position: hasher.position(&record.key),
                    bytes: &record.key,
                },
                kind: match &record.put {
                    Some(put) => {
                        WriteKind::Put { value: &put.value, expiry_ms: put.expiry_ms, kind: put.kind }
                    }
                    None => WriteKind::Delete,
                },
            })
            .collect();
        if writes.is_empty() {
            return Ok(None);
        }
        self.note_ingesting(true);
        let written = self.write_inner(&writes);
        self.note_ingesting(false);
        written.map(Some)
    }

    /// Ends the merge.
    pub fn end_merge(&mut self) {
        self.transfers.merge = None;
    }

    /// Whether a key at `position` is this shard's still: from the drop on it is another's, and that it is not
    /// found here says nothing.
    ///
    /// # Errors
    /// `Unsupported`: it has moved.
    pub fn check_not_moved(&self, position: Position) -> Result<()> {
        match &self.transfers.split {
            Some(split) if split.phase == Phase::Dropping && split.covers(position) => Err(moved()),
            _ => Ok(()),
        }
    }

    /// Why these writes may not be made now, if a split forbids them.
    pub(crate) fn refused_by_split(&self, writes: &[Write<'_>]) -> Option<Error> {
        self.transfers.split.as_ref()?.refusal(writes)
    }

    /// A key is written or deleted; also one that is not there: what a merge brings must not come after.
    pub(crate) fn note_change(&mut self, key: &Key<'_>) {
        self.verifier.note_change(key.position);
        if let Some(split) = &mut self.transfers.split
            && split.phase != Phase::Dropping
            && split.failed.is_none()
            && split.covers(key.position)
            && !self.identity.mutations.is_on("split_changes_not_kept")
        {
            split.change(key.keyspace, key.position, key.bytes);
        }
        if let Some(merge) = &mut self.transfers.merge
            && !merge.ingesting
            && !merge.overrun
            && (merge.range.0..=merge.range.1).contains(&key.position)
            && merge.written.insert((key.keyspace, key.bytes.to_vec()))
        {
            merge.written_bytes += MOVED_OVERHEAD_BYTES + key.bytes.len();
            if merge.written_bytes > CHANGED_BYTES_MAX {
                merge.overrun = true;
                merge.written = BTreeSet::new();
            }
        }
    }

    /// A keyspace was dropped: what was sent of it cannot be taken back.
    pub(crate) fn split_loses_keyspace(&mut self) {
        if let Some(split) = &mut self.transfers.split
            && split.phase != Phase::Dropping
        {
            split
                .fail(Error::new(ErrorKind::Retry, "a keyspace was dropped meanwhile; begin the split anew"));
        }
    }

    /// Sends changes, and goes on with the scan.
    pub(crate) fn split_step(&mut self) {
        match self.transfers.split.as_ref().map(|split| (split.phase, split.failed.is_some())) {
            None | Some((_, true)) => return,
            Some((Phase::Dropping, _)) => self.delete_changed(),
            Some(_) => self.send_changed(),
        }
        self.scan_step();
    }

    /// Whether a step would do something that no completion announces.
    pub(crate) fn split_wants_step(&self) -> bool {
        self.transfers.split.as_ref().is_some_and(|split| {
            split.failed.is_none()
                && split.has_room()
                && (!split.changed.is_empty() || split.scan.wants_step())
        })
    }

    fn take_changed(&mut self) -> Option<(KeyspaceId, Position, Vec<u8>)> {
        let split = self.transfers.split.as_mut().filter(|split| split.failed.is_none())?;
        let changed = split.changed.pop_first()?;
        split.changed_bytes -= MOVED_OVERHEAD_BYTES + changed.2.len();
        Some(changed)
    }

    fn send_changed(&mut self) {
        let mut unknown = Vec::new();
        for _ in 0..CHANGES_A_STEP {
            if unknown.len() >= FETCHES_A_STEP
                || !self.transfers.split.as_ref().is_some_and(|split| split.has_room())
            {
                break;
            }
            let Some((keyspace, position, bytes)) = self.take_changed() else { break };
            let key = Key { keyspace, position, bytes: &bytes };
            let search = self.search(&key);
            let header = search.header;
            let expiry_ms = self.expiry_of(position, &header);
            let put =
                match search.found {
                    Found::Unknown => {
                        self.reserve(Writer::of([key].iter()), [key].iter());
                        unknown.push((keyspace, position, bytes));
                        continue;
                    }
                    Found::Absent if search.damaged => {
                        let error =
                            Error::new(ErrorKind::Corrupt, "a record that may be a changed key's is damaged");
                        return self.fail_split(error);
                    }
                    Found::Absent => None,
                    _ if expiry_ms != 0 && expiry_ms <= self.now.wall_ms => None,
                    found => self.found_bytes(found).and_then(|record| record.get(header.value_range())).map(
                        |value| MovedValue { value: value.to_vec(), expiry_ms, kind: ValueKind(header.kind) },
                    ),
                };
            if self.has_reservations() {
                self.release_reservation(Writer::of([key].iter()));
            }
            if let Some(split) = &mut self.transfers.split {
                split.send(MovedRecord { keyspace, key: bytes, put });
            }
        }
        if let Some(split) = &mut self.transfers.split {
            for (keyspace, position, key) in unknown {
                split.change(keyspace, position, &key);
            }
        }
    }

    /// Deletes keys that the scan of the drop has met.
    fn delete_changed(&mut self) {
        let mut refused = Vec::new();
        for _ in 0..CHANGES_A_STEP {
            // Most refusals are reads of old records, which may go on side by side.
            if refused.len() >= FETCHES_A_STEP {
                break;
            }
            let Some((keyspace, position, bytes)) = self.take_changed() else { break };
            let key = Key { keyspace, position, bytes: &bytes };
            match self.write_unlocked(&[Write { key, kind: WriteKind::Delete }]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Retry => refused.push((keyspace, position, bytes)),
                Err(error) => return self.fail_split(error),
            }
        }
        if let Some(split) = &mut self.transfers.split {
            for (keyspace, position, key) in refused {
                split.change(keyspace, position, &key);
            }
        }
    }

    /// Deletes a key whose newest record was just read, without another look for it. False when it must
    /// be looked for after all, or there is no room yet.
    fn delete_known(&mut self, key: &Key<'_>, target: Target, header: RecordHeader) -> bool {
        let search = Search::known(target, header);
        let write = Write { key: *key, kind: WriteKind::Delete };
        self.is_alone(key)
            && self.check_writable().is_ok()
            && self.admit(&[write], &[search], Purpose::Write).is_ok()
            && self.apply(&write, search, (false, None)).is_ok()
    }

    /// The same for the cleaner, which must keep its room: nothing else is done for it.
    pub(crate) fn delete_in_room(&mut self, key: &Key<'_>, target: Target, header: RecordHeader) -> bool {
        let write = Write { key: *key, kind: WriteKind::Delete };
        if !self.is_alone(key) || self.check_writable().is_err() || !self.has_room_for_tombstone(&write) {
            return false;
        }
        // Nobody has written the key here: what a merge brings for it counts.
        self.note_ingesting(!self.identity.mutations.is_on("merge_misses_expired"));
        let deleted = self.apply(&write, Search::known(target, header), (false, None)).is_ok();
        self.note_ingesting(false);
        deleted
    }

    fn note_ingesting(&mut self, is_ingesting: bool) {
        if let Some(merge) = &mut self.transfers.merge {
            merge.ingesting = is_ingesting;
        }
    }

    /// Whether the index knows one record only that may be the key's.
    pub(crate) fn is_alone(&mut self, key: &Key<'_>) -> bool {
        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        if let Some(keyspace) = self.keyspaces.get(key.keyspace) {
            keyspace.index.candidates(key.position, &mut candidates);
        }
        let is_alone = candidates.len() == 1;
        self.candidates = candidates;
        is_alone
    }

    fn fail_split(&mut self, error: Error) {
        if let Some(split) = &mut self.transfers.split {
            split.fail(error);
        }
    }
}

fn moved() -> Error {
    Error::new(ErrorKind::Unsupported, "the key's range has moved to another shard")
}

fn no_split() -> Error {
    Error::new(ErrorKind::InvalidInput, "there is no split in the state that this needs")
}
