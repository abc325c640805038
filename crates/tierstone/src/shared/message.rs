//! What callers send to a shard's thread. A message owns its bytes.

use super::Inner;
use super::across::Seat;
use super::answer::Reply;
use super::cut::{Share, Taken};
use super::transfer::{Ask, Told};
use crate::batch::{Batch, Until};
use crate::bulk::Stage;
use crate::range::RangePage;
use crate::scan::{Cursor, Page};
use crate::transfer::drive::Work;
use std::sync::Weak;
use tierstone_base::collections::Set;
use tierstone_base::{KeyspaceId, Now, Position};
use tierstone_engine::{
    BackupCut, BackupSince, BackupStep, EngineStatistics, IndexKind, Key, RangeRequest, SnapshotId,
    ValueKind, Verification, Write, WriteKind,
};
use tierstone_logstore::transfer::MovedRecord;

/// A key with what the caller's thread has worked out about it.
#[derive(Debug)]
pub(super) struct OwnedKey {
    pub keyspace: KeyspaceId,
    pub position: Position,
    pub bytes: Vec<u8>,
}

impl OwnedKey {
    pub fn view(&self) -> Key<'_> {
        Key { keyspace: self.keyspace, position: self.position, bytes: &self.bytes }
    }
}

/// A put, its key and value in one piece. The shard, not the caller, works out when it expires.
#[derive(Debug)]
pub(super) struct OwnedPut {
    pub keyspace: KeyspaceId,
    pub position: Position,
    pub bytes: Vec<u8>,
    pub key_len: usize,
    pub until: Until,
}

impl OwnedPut {
    pub fn key(&self) -> Key<'_> {
        Key { keyspace: self.keyspace, position: self.position, bytes: &self.bytes[..self.key_len] }
    }

    /// What is to be written, by the shard's clocks.
    pub fn view(&self, now: Now) -> Write<'_> {
        let value = &self.bytes[self.key_len..];
        let expiry_ms = self.until.at_ms(now);
        Write { key: self.key(), kind: WriteKind::Put { value, expiry_ms, kind: ValueKind::STRING } }
    }
}

/// A batch with the places of its keys.
#[derive(Debug, Default)]
pub(super) struct OwnedBatch {
    pub batch: Batch,
    /// Keyspace, position and expiry of each change.
    pub places: Vec<(KeyspaceId, Position, Until)>,
}

impl OwnedBatch {
    fn is_in(&self, keyspaces: &Set<KeyspaceId>) -> bool {
        self.places.iter().any(|(id, ..)| keyspaces.contains(id))
    }

    /// What is to be written, by the shard's clocks.
    pub fn view(&self, now: Now) -> Vec<Write<'_>> {
        let changes = self.batch.changes().zip(&self.places);
        changes
            .map(|(change, &(keyspace, position, until))| Write {
                key: Key { keyspace, position, bytes: change.key },
                kind: match change.put {
                    Some((value, _)) => {
                        WriteKind::Put { value, expiry_ms: until.at_ms(now), kind: ValueKind::STRING }
                    }
                    None => WriteKind::Delete,
                },
            })
            .collect()
    }
}

/// A request to one shard.
#[derive(Debug)]
pub(super) enum Message {
    Get {
        key: OwnedKey,
        reply: Reply<Option<Vec<u8>>>,
    },
    GetMany {
        keys: Vec<OwnedKey>,
        reply: Reply<Vec<Option<Vec<u8>>>>,
    },
    Put {
        put: OwnedPut,
        reply: Reply<()>,
    },
    Delete {
        key: OwnedKey,
        reply: Reply<bool>,
    },
    Write {
        batch: OwnedBatch,
        reply: Reply<()>,
    },
    /// Records of a load: answered, with their stage, when they are applied. That they are durable is not said.
    Load {
        stage: Stage,
        reply: Reply<Stage>,
    },
    /// This shard's part of a batch over several.
    Part {
        batch: OwnedBatch,
        seat: Seat,
    },
    Scan {
        keyspace: KeyspaceId,
        cursor: Cursor,
        count: u32,
        reply: Reply<Page>,
    },
    Range {
        request: RangeRequest,
        reply: Reply<RangePage>,
    },
    Snapshot {
        share: Share,
        store: Weak<Inner>,
        reply: Reply<Taken>,
    },
    GetAt {
        snapshot: SnapshotId,
        keys: Vec<OwnedKey>,
        reply: Reply<Vec<Option<Vec<u8>>>>,
    },
    ScanAt {
        snapshot: SnapshotId,
        keyspace: KeyspaceId,
        cursor: Cursor,
        count: u32,
        reply: Reply<Page>,
    },
    Release {
        snapshot: SnapshotId,
    },
    CreateKeyspace {
        id: KeyspaceId,
        index: IndexKind,
        reply: Reply<()>,
    },
    DropKeyspace {
        id: KeyspaceId,
        reply: Reply<()>,
    },
    Len {
        keyspace: KeyspaceId,
        reply: Reply<u64>,
    },
    Statistics {
        reply: Reply<EngineStatistics>,
    },
    /// Tells what a verification has found so far; begins one first if asked to.
    Verify {
        begins: bool,
        reply: Reply<Option<Verification>>,
    },
    /// This shard's part of a backup's cut.
    BeginBackup {
        share: Share,
        since: Option<BackupSince>,
        reply: Reply<BackupCut>,
    },
    /// The next piece of the backup; answered when there is one.
    TakeBackup {
        reply: Reply<BackupStep>,
    },
    /// The backup has ended, or was given up.
    EndBackup,
    /// Something to do for a move or a compaction.
    Work {
        ask: Ask,
        reply: Reply<Told>,
    },
    /// Records of another store's shard, to be written unless their keys were written here since the merge began.
    Ingest {
        records: Vec<MovedRecord>,
        reply: Reply<()>,
    },
    /// A move or a compaction has ended, or was given up.
    EndWork {
        work: Work,
    },
    Sync {
        reply: Reply<()>,
    },
    Close {
        reply: Reply<()>,
    },
}

impl Message {
    /// Whether any thread may have it handled: those of callers that concern one shard and need nothing but the
    /// engine.
    pub fn may_be_carried_in(&self) -> bool {
        matches!(
            self,
            Message::Get { .. }
                | Message::GetMany { .. }
                | Message::Put { .. }
                | Message::Delete { .. }
                | Message::Write { .. }
                | Message::Scan { .. }
                | Message::Range { .. }
                | Message::GetAt { .. }
                | Message::ScanAt { .. }
                | Message::Release { .. }
                | Message::Len { .. }
        )
    }

    /// Whether a step of the engine is to follow, whatever it says.
    pub fn wants_step(&self) -> bool {
        !matches!(self, Message::Get { .. } | Message::GetMany { .. } | Message::Len { .. })
    }

    /// Whether it is about one of `keyspaces`.
    pub fn is_in(&self, keyspaces: &Set<KeyspaceId>) -> bool {
        match self {
            Message::Get { key, .. } | Message::Delete { key, .. } => keyspaces.contains(&key.keyspace),
            Message::GetMany { keys, .. } => keys.iter().any(|key| keyspaces.contains(&key.keyspace)),
            Message::Put { put, .. } => keyspaces.contains(&put.keyspace),
            Message::Write { batch, .. } => batch.is_in(keyspaces),
            Message::Load { stage, .. } => keyspaces.contains(&stage.keyspace()),
            Message::Part { batch, .. } => batch.is_in(keyspaces),
            Message::Scan { keyspace, .. } | Message::Len { keyspace, .. } => keyspaces.contains(keyspace),
            Message::Range { request, .. } => {
                request.snapshot.is_none() && keyspaces.contains(&request.keyspace)
            }
            Message::Ingest { records, .. } => {
                records.iter().any(|record| keyspaces.contains(&record.keyspace))
            }
            // A snapshot goes on showing keyspaces that were dropped.
            Message::Snapshot { .. }
            | Message::GetAt { .. }
            | Message::ScanAt { .. }
            | Message::Release { .. }
            | Message::CreateKeyspace { .. }
            | Message::DropKeyspace { .. }
            | Message::Statistics { .. }
            | Message::Verify { .. }
            | Message::BeginBackup { .. }
            | Message::TakeBackup { .. }
            | Message::EndBackup
            | Message::Work { .. }
            | Message::EndWork { .. }
            | Message::Sync { .. }
            | Message::Close { .. } => false,
        }
    }

    /// Answers with an error.
    pub fn refuse(self, error: tierstone_base::Error) {
        // Whoever has dropped the answer does not want it.
        match self {
            Message::Get { reply, .. } => drop(reply.send(Err(error))),
            Message::GetMany { reply, .. } | Message::GetAt { reply, .. } => drop(reply.send(Err(error))),
            Message::Put { reply, .. }
            | Message::Write { reply, .. }
            | Message::CreateKeyspace { reply, .. }
            | Message::DropKeyspace { reply, .. }
            | Message::Ingest { reply, .. }
            | Message::Sync { reply }
            | Message::Close { reply } => drop(reply.send(Err(error))),
            Message::Load { reply, .. } => drop(reply.send(Err(error))),
            Message::Part { seat, .. } => drop(seat.refuse(error)),
            Message::Delete { reply, .. } => drop(reply.send(Err(error))),
            Message::Scan { reply, .. } | Message::ScanAt { reply, .. } => drop(reply.send(Err(error))),
            Message::Snapshot { reply, .. } => drop(reply.send(Err(error))),
            Message::Work { reply, .. } => drop(reply.send(Err(error))),
            Message::BeginBackup { reply, .. } => drop(reply.send(Err(error))),
            Message::TakeBackup { reply } => drop(reply.send(Err(error))),
            Message::Release { .. } | Message::EndWork { .. } | Message::EndBackup => {}
            Message::Range { reply, .. } => drop(reply.send(Err(error))),
            Message::Len { reply, .. } => drop(reply.send(Err(error))),
            Message::Statistics { reply } => drop(reply.send(Err(error))),
            Message::Verify { reply, .. } => drop(reply.send(Err(error))),
        }
    }
}
