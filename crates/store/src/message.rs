//! What shards tell each other about batches that touch several of them: plain data, carried by the
//! caller in batches, in order between two shards.
//!
//! One batch: its coordinator sends [`ShardMessage::Lock`] to each participant in the order of the
//! shards, waiting for [`ShardMessage::Locked`] each time. With all records gathered it runs the
//! commands, sends [`ShardMessage::Prepare`] to all, and when every participant has answered
//! [`ShardMessage::Prepared`] it answers its client and sends [`ShardMessage::Decide`].
//!
//! Invariants:
//! 1. From lock to decision nobody else reads or writes the positions of the batch: all of it is
//!    seen together.
//! 2. `Prepared` without an error is sent when the participant's records, and everything that the
//!    batch has observed there, are durable (at once in relaxed mode).
//! 3. A batch of reads only is released when it is prepared and is not decided.
//! 4. What is gathered was gathered by one map of databases: a participant with a later one than the batch says so
//!    ([`ShardMessage::Stale`]), and one with an earlier one waits for it. The batch then counts as one from before
//!    all later changes of the databases, also where a participant learns of one before it has the batch's writes.
//! 5. Participants that write hold one ticket, which their engines put into the records: after a crash
//!    all of the batch is there or none, and what was answered is there.
//!
//! In relaxed mode locks are let go before a batch is durable. A crash that loses the batch then may
//! leave a later write that read from it.

use std::sync::Arc;
use tierstone_base::{Error, KeyspaceId, Position, ShardId};
use tierstone_engine::{BatchTicket, RecordMeta, ValueKind};

use crate::watch::WatcherId;

/// A batch over several shards; never used twice in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId {
    /// The shard that coordinates it.
    pub coordinator: ShardId,
    /// The coordinator's number for it.
    pub number: u64,
}

impl BatchId {
    /// The ticket for a batch that writes on `parts` shards; `None` where one shard can do without.
    pub fn ticket(self, parts: usize) -> Option<Arc<BatchTicket>> {
        let parts = u16::try_from(parts).unwrap_or(u16::MAX);
        (parts > 1).then(|| BatchTicket::new(u64::from(self.coordinator) << 48 | self.number, parts))
    }
}

/// A key of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnedKey {
    /// Its keyspace.
    pub keyspace: KeyspaceId,
    /// Its position.
    pub position: Position,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A record of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedRecord {
    /// Sequence, expiry and kind.
    pub meta: RecordMeta,
    /// The value's bytes.
    pub value: Vec<u8>,
}

/// A write of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedWrite {
    /// The key.
    pub key: OwnedKey,
    /// Value, expiry and kind; `None` deletes.
    pub value: Option<(Vec<u8>, u64, ValueKind)>,
}

/// One message between two shards.
#[derive(Clone, Debug)]
pub enum ShardMessage {
    /// Lock the positions of `keys` and `watched` and give the records of `keys`.
    Lock {
        /// The batch.
        batch: BatchId,
        /// The version of the map of databases that gave the keys their keyspaces ([`crate::DatabaseMap::version`]).
        map_version: u64,
        /// The keys whose records are wanted.
        keys: Vec<OwnedKey>,
        /// Who must not have been disturbed.
        watcher: Option<WatcherId>,
        /// Whether reading the records is a use of them ([`tierstone_engine::Engine::peek`]).
        is_use: bool,
    },
    /// Give the records of these keys as well, and those of before, under the locks that are held: these are chunks of values
    /// whose own keys are locked, so that nobody else changes them ([`crate::large`]).
    Gather {
        /// The batch.
        batch: BatchId,
        /// The keys of chunks that are wanted besides.
        chunks: Vec<OwnedKey>,
    },
    /// The locks are held.
    Locked {
        /// The batch.
        batch: BatchId,
        /// The records, in the order of the keys, those of chunks that were asked for later behind the others; or why there are
        /// none.
        records: Result<Vec<Option<OwnedRecord>>, Error>,
        /// Whether something that the watcher watches has changed.
        is_dirty: bool,
    },
    /// The locks are held, but the databases have changed: what the batch names is not what it means any more.
    Stale {
        /// The batch.
        batch: BatchId,
        /// The version of the participant's map.
        map_version: u64,
    },
    /// Apply these writes (perhaps none), still under the locks.
    Prepare {
        /// The batch.
        batch: BatchId,
        /// All shards that have writes of this batch.
        participants: Vec<ShardId>,
        /// This shard's writes in order.
        writes: Vec<OwnedWrite>,
        /// What the engines of the participants share; `None` when there is one, or none.
        ticket: Option<Arc<BatchTicket>>,
        /// Whose copies stay as they are ([`crate::TrackTable::set_writer`]).
        writer: Option<WatcherId>,
        /// Whether the batch is taken back, and begins anew, where it might wait for another one that waits for it.
        yields: bool,
    },
    /// The writes are durable, or were refused and not applied.
    Prepared {
        /// The batch.
        batch: BatchId,
        /// Why they were refused, if so.
        error: Option<Error>,
    },
    /// The batch is decided: let the locks go, after applying `undo` if it was taken back.
    Decide {
        /// The batch.
        batch: BatchId,
        /// Writes that restore what was there before; empty when the batch is committed.
        undo: Vec<OwnedWrite>,
    },
}
