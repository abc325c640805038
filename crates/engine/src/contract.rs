//! The contract itself: requests, answers and the [`Engine`] trait.

use crate::backup::{BackupCut, BackupSince, BackupStep};
use crate::batch::{BatchTicket, PreparedPart};
pub use crate::cost::Cost;
pub use crate::durability::{Commit, Durability, WriteReceipt};
use crate::eviction::{Eviction, Housekeeping};
pub use crate::health::{Admission, Health};
pub use crate::statistics::EngineStatistics;
use crate::verification::Verification;
use serde::{Deserialize, Serialize};
use std::ops::Bound;
use std::sync::Arc;
use tierstone_base::{CpuClock, Error, ErrorKind, KeyspaceId, Now, Position, Result, Seq, Token};
use tierstone_media::{IoCompletion, IoRequest};

/// A key with everything that the layers above already know about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// The keyspace it belongs to.
    pub keyspace: KeyspaceId,
    /// Its position, computed once with the store's [`tierstone_base::KeyHasher`].
    pub position: Position,
    /// Its bytes: 0 to 65,535 of them.
    pub bytes: &'a [u8],
}

/// What kind of typed value a record holds. Engines carry it and do not look inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct ValueKind(pub u8);

impl ValueKind {
    /// A string of bytes, whole in its record.
    pub const STRING: ValueKind = ValueKind(0);
    /// A map of the chunks of a large string.
    pub const CHUNKED: ValueKind = ValueKind(1);
    /// Something of the store's own, invisible to clients.
    pub const INTERNAL: ValueKind = ValueKind(2);
}

/// What a record says about its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RecordMeta {
    /// The sequence of the write that made it.
    pub seq: Seq,
    /// When it expires, in milliseconds since 1970; zero: never.
    pub expiry_ms: u64,
    /// The kind of its value.
    pub kind: ValueKind,
}

/// A record in memory, borrowed from the engine until its next call.
#[derive(Clone, Copy, Debug)]
pub struct RecordView<'a> {
    /// Sequence, expiry and kind.
    pub meta: RecordMeta,
    /// The value's bytes.
    pub value: &'a [u8],
}

/// A record of one's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedRecord {
    /// Sequence, expiry and kind.
    pub meta: RecordMeta,
    /// The value's bytes.
    pub value: Vec<u8>,
}

/// A snapshot of one engine. Numbers grow; none is given twice between two openings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId(pub u64);

/// The answer to a lookup.
#[derive(Clone, Copy, Debug)]
pub enum Lookup<'a> {
    /// The key has this record.
    Found(RecordView<'a>),
    /// The key has no record (or one that has expired).
    Missing,
    /// Only the device knows: [`Engine::fetch`] it and look again.
    Fetch,
}

/// One change of one key.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// The key.
    pub key: Key<'a>,
    /// What happens to it.
    pub kind: WriteKind<'a>,
}

impl Write<'_> {
    /// Whether `writes` only give space back: deletions, and with them entries of the ledger of large values. A large value
    /// that loses its name is put there in the same batch, which makes the space of all its chunks come back.
    pub fn only_free(writes: &[Write<'_>]) -> bool {
        let is_put = |write: &Write<'_>| matches!(write.kind, WriteKind::Put { .. });
        let frees = |write: &Write<'_>| !is_put(write) || write.key.keyspace.is_ledger();
        writes.iter().all(frees) && !writes.iter().all(is_put)
    }
}

/// What happens to a key.
#[derive(Clone, Copy, Debug)]
pub enum WriteKind<'a> {
    /// It gets this value, whether or not it had one.
    Put {
        /// The new value.
        value: &'a [u8],
        /// When it expires, in milliseconds since 1970; zero: never.
        expiry_ms: u64,
        /// The kind of the value.
        kind: ValueKind,
    },
    /// It loses its value, if it had one.
    Delete,
}

/// One page of a walk through a keyspace.
#[derive(Clone, Copy, Debug)]
pub struct ScanRequest {
    /// Comes back with [`Event::Scanned`].
    pub token: Token,
    /// Which keyspace.
    pub keyspace: KeyspaceId,
    /// Where to begin; [`Position`] zero for the start.
    pub cursor: Position,
    /// About how many entries to give: more only where many keys share one place.
    pub count: u32,
    /// Walk this snapshot; `None`: the keys as they are when their page is made.
    pub snapshot: Option<SnapshotId>,
}

/// One key of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanEntry {
    /// The key's bytes.
    pub key: Vec<u8>,
    /// Its record's meta data.
    pub meta: RecordMeta,
}

/// How a keyspace finds its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IndexKind {
    /// By position alone: least memory a key, no order.
    #[default]
    Hash,
    /// By position, and the whole keys in memory in order besides: range scans.
    Ordered,
}

impl IndexKind {
    /// Its name in settings and reports.
    pub fn name(self) -> &'static str {
        match self {
            IndexKind::Hash => "hash",
            IndexKind::Ordered => "ordered",
        }
    }
}

/// Which way a range is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Direction {
    /// From the least key up.
    #[default]
    Forward,
    /// From the greatest key down.
    Backward,
}

/// One page of a range of keys, in their order as strings of bytes.
#[derive(Clone, Debug)]
pub struct RangeRequest {
    /// Comes back with [`Event::Ranged`].
    pub token: Token,
    /// Which keyspace; it must be [`IndexKind::Ordered`].
    pub keyspace: KeyspaceId,
    /// The lower end, whichever the direction.
    pub from: Bound<Vec<u8>>,
    /// The upper end, whichever the direction.
    pub to: Bound<Vec<u8>>,
    /// How many entries to give at most.
    pub limit: u32,
    /// Which end to begin at.
    pub direction: Direction,
    /// Walk this snapshot; `None`: the keys as they are when they are looked at.
    pub snapshot: Option<SnapshotId>,
}

impl RangeRequest {
    /// Makes the request that of the page behind `next`, which a page ended with.
    pub fn go_on(&mut self, next: Vec<u8>) {
        match self.direction {
            Direction::Forward => self.from = Bound::Excluded(next),
            Direction::Backward => self.to = Bound::Excluded(next),
        }
    }

    /// What the request gets when its keyspace has no order.
    pub fn no_order(&self) -> Error {
        let message = format!(
            "keyspace {} has a hash index and no order: ranges need one made with the ordered index",
            self.keyspace.0
        );
        Error::new(ErrorKind::Unsupported, message)
    }

    /// What the request gets when its keyspace was dropped, and its snapshot (if it has one) is younger.
    pub fn dropped(&self) -> Error {
        let message = format!("keyspace {} was dropped: no range of it can be walked", self.keyspace.0);
        Error::new(ErrorKind::InvalidInput, message)
    }
}

/// One key of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeEntry {
    /// The key's bytes.
    pub key: Vec<u8>,
    /// Its record's meta data.
    pub meta: RecordMeta,
    /// Its value.
    pub value: Vec<u8>,
}

/// Something that became known in a step.
#[derive(Debug)]
pub enum Event {
    /// The fetch with this token is done: look again, then [`Engine::release`] the token.
    Fetched {
        /// The fetch's token.
        token: Token,
        /// Whether the bytes came and were whole. [`tierstone_base::ErrorKind::Corrupt`] when their
        /// checksum was wrong.
        result: Result<()>,
        /// What it cost.
        cost: Cost,
    },
    /// A page of a walk is complete.
    Scanned {
        /// The scan's token.
        token: Token,
        /// Live entries, in no particular order inside the page. A key that exists during the whole
        /// walk is given at least once. Of a snapshot: the whole walk gives each key of the cut that
        /// had not expired then exactly once.
        entries: Vec<ScanEntry>,
        /// Where to go on; `None` at the end.
        next: Option<Position>,
        /// The first record that could not be read, if any; the others are given all the same. A walk
        /// of a snapshot that is lost ends with [`tierstone_base::ErrorKind::SnapshotLost`].
        error: Option<Error>,
        /// What the page cost.
        cost: Cost,
    },
    /// A read at a snapshot is done; nothing is held for it.
    SnapshotRead {
        /// The read's token.
        token: Token,
        /// The record that the key had at the cut; `None` when it had none, or an expired one.
        /// `SnapshotLost`: take a new snapshot. `Corrupt`: the record is damaged. `InvalidInput`: the
        /// snapshot was released, or never made.
        result: Result<Option<OwnedRecord>>,
        /// What it cost.
        cost: Cost,
    },
    /// A page of a range is complete.
    Ranged {
        /// The request's token.
        token: Token,
        /// Live entries in the order that was asked for. A key that exists during the whole page is given
        /// exactly once, with a value that it had at some time during the page. Of a snapshot: the whole
        /// walk gives each key of the cut that had not expired then exactly once, with its value of then.
        entries: Vec<RangeEntry>,
        /// The last key that was looked at, when there may be more behind it: see
        /// [`RangeRequest::go_on`]. A page may end before its limit.
        next: Option<Vec<u8>>,
        /// The first record that could not be read, if any; the others are given all the same.
        /// [`tierstone_base::ErrorKind::Unsupported`], without entries: the keyspace has no order.
        /// [`tierstone_base::ErrorKind::InvalidInput`]: the keyspace was dropped (a snapshot from before
        /// goes on showing it), or the snapshot was released.
        /// [`tierstone_base::ErrorKind::SnapshotLost`]: the walk ends; what it gave is right.
        error: Option<Error>,
        /// What the page cost.
        cost: Cost,
    },
}

impl Event {
    /// The token of the request that this answers.
    pub fn token(&self) -> Token {
        match self {
            Event::Fetched { token, .. }
            | Event::Scanned { token, .. }
            | Event::SnapshotRead { token, .. }
            | Event::Ranged { token, .. } => *token,
        }
    }

    /// Whom it answers, and what that cost.
    pub fn cost_mut(&mut self) -> (Token, &mut Cost) {
        match self {
            Event::Fetched { token, cost, .. }
            | Event::Scanned { token, cost, .. }
            | Event::SnapshotRead { token, cost, .. }
            | Event::Ranged { token, cost, .. } => (*token, cost),
        }
    }
}

/// Keys that are worth asking for together ([`Engine::prefetch`]): more would wait for each other.
pub const PREFETCHED_KEYS: usize = 16;

/// One shard's engine.
pub trait Engine {
    /// Looks a key up in memory. Cost: no I/O, no allocation.
    fn lookup(&mut self, now: Now, key: Key<'_>) -> Lookup<'_>;

    /// As [`Engine::lookup`], but no use of the key: it stays as likely to be evicted, and its record to leave memory, as it was.
    fn peek(&mut self, now: Now, key: Key<'_>) -> Lookup<'_> {
        self.lookup(now, key)
    }

    /// [`Engine::lookup`] where that is a use of the key, else [`Engine::peek`].
    #[inline]
    fn look(&mut self, now: Now, key: Key<'_>, is_use: bool) -> Lookup<'_> {
        if is_use { self.lookup(now, key) } else { self.peek(now, key) }
    }

    /// Keys with these positions will be looked up or written right away: has the processor fetch the memory that this
    /// touches, for all of them side by side. A hint, for [`PREFETCHED_KEYS`] at a time, which changes no answer; an engine
    /// may keep what it finds out until the next call. Cost: a look at the index for each key.
    fn prefetch(&mut self, places: &[(KeyspaceId, Position)]) {
        let _ = places;
    }

    /// Starts reading the records of `keys` for lookups that gave [`Lookup::Fetch`]; each token comes
    /// back with [`Event::Fetched`] and holds its record in memory until [`Engine::release`].
    fn fetch(&mut self, now: Now, keys: &[(Token, Key<'_>)]);

    /// Lets the records that `token` holds go.
    fn release(&mut self, token: Token);

    /// Applies `writes` in order, all or none, after a crash too. They are visible when this returns.
    ///
    /// # Errors
    /// Nothing was applied. `NoSpace`: the device is full (deletes are still accepted). `NoMemory`:
    /// the index may not grow (overwrites and deletes are still accepted). `InvalidInput`: a key or
    /// value is too long. `DeviceFailed`: see [`Engine::health`]. `Retry`: throttled, or what the writes
    /// change is being read: step first. `Corrupt`: it is damaged, and the engine updates it in place.
    fn write(&mut self, now: Now, writes: &[Write<'_>]) -> Result<WriteReceipt>;

    /// Whether `writes` would be taken now, as a part of a batch too; begins what it would have to wait for. Nothing
    /// is applied. Where nothing else is asked of the engine in between, the write that follows is taken.
    ///
    /// # Errors
    /// As [`Engine::write`].
    fn admit(&mut self, now: Now, writes: &[Write<'_>]) -> Result<()>;

    /// As [`Engine::write`], for this engine's part of a batch over several engines: after a crash all
    /// parts are there or none. The part is durable as any write, and decided when all parts are
    /// durable; nobody may be told of it, or of anything that depends on it, before
    /// [`Engine::decided_seq`] has reached it. The caller sees to it that no other write that follows
    /// from this one is applied before.
    ///
    /// A batch that another engine refused is taken back by [`Engine::undo_part`].
    ///
    /// # Errors
    /// As [`Engine::write`]; `InvalidInput` also when there are no writes.
    fn write_part(
        &mut self,
        now: Now,
        writes: &[Write<'_>],
        batch: &Arc<BatchTicket>,
    ) -> Result<WriteReceipt>;

    /// [`Engine::admit`] and [`Engine::write_part`] as one, with a look at the other engines between: what was found for
    /// the first serves the second, since nothing can be asked of the engine meanwhile. What is given writes the part;
    /// dropped, it has changed nothing.
    ///
    /// # Errors
    /// As [`Engine::admit`]; those of [`Engine::write_part`] come when the part is written.
    fn prepare_part<'e>(&'e mut self, now: Now, writes: &'e [Write<'e>]) -> Result<PreparedPart<'e>> {
        self.admit(now, writes)?;
        Ok(Box::new(move |batch| self.write_part(now, writes, batch)))
    }

    /// Takes this engine's part of a refused batch back: applies `writes`, which restore what was there
    /// before. The part counts as decided then. To be called for each part that was
    /// written, and only if at least one never is.
    ///
    /// # Errors
    /// As [`Engine::write`]; nothing was taken back then, and it is to be tried again.
    fn undo_part(&mut self, now: Now, writes: &[Write<'_>], batch: &Arc<BatchTicket>)
    -> Result<WriteReceipt>;

    /// Starts a page of a walk; answered by [`Event::Scanned`].
    fn scan(&mut self, now: Now, request: ScanRequest);

    /// Starts a page of a range; answered by [`Event::Ranged`]. Reads of the device in flight for it at a
    /// time are bounded.
    fn range(&mut self, now: Now, request: RangeRequest);

    /// Says how a new keyspace finds its keys, before its first write; keyspaces that nothing was said of
    /// have no order. The caller keeps the kind durably, from before the first write on.
    fn create_keyspace(&mut self, keyspace: KeyspaceId, index: IndexKind);

    /// Takes a snapshot: the state of all keyspaces after the newest write, batches whole, with expiry
    /// judged at `now` for ever. Cost: constant; while it lives, records that are replaced are kept.
    /// It ends with [`Engine::release_snapshot`] or with the process. What it shows need not be
    /// durable: who answers a client waits for [`Engine::applied_seq`] as it is now.
    ///
    /// # Errors
    /// `Retry`: too many are alive; release some. `Unsupported`: the engine has none.
    fn snapshot(&mut self, now: Now) -> Result<SnapshotId>;

    /// Ends a snapshot; reads of it under way still end well. Space and memory come back step by step.
    /// Does nothing when it has ended.
    fn release_snapshot(&mut self, snapshot: SnapshotId);

    /// Starts reading the records that `keys` had at `snapshot`; each token comes back with
    /// [`Event::SnapshotRead`]. Cost: as a lookup and, where the record is not in memory, a fetch.
    fn read_at(&mut self, now: Now, snapshot: SnapshotId, keys: &[(Token, Key<'_>)]);

    /// Drops every key of `keyspace`, but not from snapshots. Cost: constant now; space and memory come
    /// back step by step, when no snapshot shows the keyspace any more.
    /// The caller makes the drop itself durable (the keyspace's id is never used again). What is written to it afterwards, as
    /// by the part of a batch that began on another shard before, goes with one of the next steps.
    fn drop_keyspace(&mut self, keyspace: KeyspaceId);

    /// The highest expiry that was ever shown as past, earlier openings included, in milliseconds since 1970:
    /// no key expires by an earlier time.
    fn past_ms(&self) -> u64 {
        0
    }

    /// The caller leaves a record with this expiry out of what it shows. Until this is durable,
    /// [`Engine::durable_seq`] stays below [`Engine::applied_seq`].
    fn note_past(&mut self, expiry_ms: u64) {
        let _ = expiry_ms;
    }

    /// Live keys of `keyspace`, those included that have expired and were not met since.
    fn len(&self, keyspace: KeyspaceId) -> u64;

    /// Takes device completions in, does a bounded amount of background work, closes groups.
    /// Appends what became known to `events`.
    fn step(&mut self, now: Now, completions: &mut Vec<IoCompletion>, events: &mut Vec<Event>);

    /// Appends the device requests that have come up since the last call. To be called after every
    /// step, and as often as the driver likes.
    fn take_requests(&mut self, requests: &mut Vec<IoRequest>);

    /// The time at which the engine wants a step even if nothing happens, if any.
    fn next_step_at_us(&self) -> Option<u64>;

    /// Every write up to this sequence survives a crash, parts of undecided batches apart.
    fn durable_seq(&self) -> Seq;

    /// Every write up to this sequence survives a crash: at most [`Engine::durable_seq`], and below the
    /// first part of a batch that is not decided. Answers wait for this one.
    fn decided_seq(&self) -> Seq;

    /// The sequence of the newest write.
    fn applied_seq(&self) -> Seq;

    /// Closes the open group without waiting for company, as far as the device allows.
    fn flush(&mut self, now: Now);

    /// Changes when writes may be acknowledged: receipts of the next write on name the new mode. Gives the
    /// sequence of the newest write before.
    ///
    /// What was promised before stays promised. A write whose answer waits for [`Engine::decided_seq`]
    /// waits for it on. What was acknowledged before it was durable survives a crash within the bound of
    /// [`Durability::Relaxed`], whatever the new mode; when [`Engine::decided_seq`] has reached the given
    /// sequence, nothing that was ever acknowledged can be lost any more. To lead from `Relaxed` to another
    /// mode the engine closes the open group at once, as by [`Engine::flush`]: a caller that waits for the
    /// sequence waits for no interval.
    fn set_durability(&mut self, now: Now, durability: Durability) -> Seq;

    /// Whether the engine can still make writes durable.
    fn health(&self) -> Health;

    /// Whether the engine wants more work now.
    fn admission(&self) -> Admission;

    /// What it does in the background when it is told to.
    fn housekeeping(&self) -> Housekeeping {
        Housekeeping::default()
    }

    /// Changes what is done when new keys find no memory, or records no space.
    fn set_eviction(&mut self, eviction: Eviction) {
        let _ = eviction;
    }

    /// The key that should be evicted first, and the kind of its value, while the engine wants keys to be. The
    /// caller deletes it ([`Engine::evict`], or by a write of its own), or says that it is to stay
    /// ([`Engine::pass_evictable`]). Cost: a search of the index.
    fn evictable(&mut self) -> Option<(Key<'_>, ValueKind)> {
        None
    }

    /// Deletes the key that [`Engine::evictable`] named, as a write of the caller's would; whether it did: not when
    /// its record is another now. The next one is named then.
    ///
    /// # Errors
    /// As [`Engine::write`]; the key is named again.
    fn evict(&mut self, now: Now) -> Result<bool> {
        let _ = now;
        Ok(false)
    }

    /// The named key was deleted by a write of the caller's, and `freed` bytes come free beside its record, or it is to stay.
    /// The next one is named.
    fn pass_evictable(&mut self, freed: Option<u64>) {
        let _ = freed;
    }

    /// About how often a key was asked for lately, from 0 to 15, whether or not it is there; `None` while that is not
    /// counted ([`Eviction::counts_uses`]).
    fn uses(&self, key: Key<'_>) -> Option<u8> {
        let _ = key;
        None
    }

    /// Says how many bytes others take from the memory that the engine was given: buffers of connections,
    /// requests that wait. An engine with a cache makes room for them.
    fn note_outside_bytes(&mut self, _bytes: u64) {}

    /// Counts processor time with `clock` from now on: in [`Event`]s, receipts and statistics. Without one, which
    /// is how an engine begins, these say zero and no clock is read.
    fn set_cpu_clock(&mut self, clock: Box<dyn CpuClock>);

    /// Counters and sizes.
    fn statistics(&self) -> EngineStatistics;

    /// Begins to verify what is durable while it serves: checksums of all records, and whether records and
    /// index lead to each other, both ways; in small steps. Cost: every segment is read once.
    ///
    /// # Errors
    /// `Busy`: one is under way, or the engine is being closed. `Unsupported`: the engine has none.
    fn begin_verification(&mut self) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "this engine does not verify itself"))
    }

    /// What the last verification has found so far; `None` before the first.
    fn verification(&self) -> Option<&Verification> {
        None
    }

    /// From now on what is durable is read again and again in the background, at most so many bytes a second, to
    /// find what has rotted before somebody needs it; 0, as at first: nothing is. What is found is counted
    /// ([`EngineStatistics::scrub`]), told ([`Engine::take_scrub_findings`]) and otherwise left as it is.
    fn set_scrub_rate(&mut self, bytes_per_second: u64) {
        let _ = bytes_per_second;
    }

    /// What scrubbing has found since this was asked last, in words. Cost: nothing when there is nothing.
    fn take_scrub_findings(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Begins a backup of the records as they are now, those that have expired at `now` apart: [`crate::backup`].
    /// What an earlier one holds (`since`) is named instead of given.
    fn begin_backup(&mut self, _now: Now, _since: Option<BackupSince>) -> Result<BackupCut> {
        Err(Error::new(ErrorKind::Unsupported, "this engine makes no backups"))
    }

    /// The next piece of the backup. The engine reads ahead, within bounds, when it is stepped.
    fn take_backup(&mut self) -> Result<BackupStep> {
        Err(Error::new(ErrorKind::InvalidInput, "there is no backup"))
    }

    /// Ends the backup, whole or not.
    fn end_backup(&mut self) {}

    /// Starts the end in good order: writes are refused from now on, what was applied is made durable,
    /// what shortens the next opening is written. Step until [`Engine::is_shut`]. Engines that have
    /// nothing to put in order do nothing.
    fn shut(&mut self) {}

    /// Whether nothing is left to be written after [`Engine::shut`].
    fn is_shut(&self) -> bool {
        true
    }
}
