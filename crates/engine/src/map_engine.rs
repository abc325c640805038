//! The oracle: an ordered map that answers everything from memory and loses everything at a crash.
//!
//! It is the model that every engine is compared with, and the engine of tests that are not about
//! durability. Writes become durable at the next [`Engine::step`], so that a caller that forgets to
//! gate its replies is seen.

use crate::batch::BatchTicket;
use crate::contract::{
    Admission, Commit, Durability, Engine, EngineStatistics, Event, Health, Key, Lookup, RecordMeta,
    RecordView, ScanEntry, ScanRequest, Write, WriteKind, WriteReceipt,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Now, Position, Result, Seq, Token};
use tierstone_media::{IoCompletion, IoRequest};

type MapKey = (KeyspaceId, Position, Vec<u8>);

/// An engine over a `BTreeMap`.
#[derive(Debug, Default)]
pub struct MapEngine {
    records: BTreeMap<MapKey, (RecordMeta, Vec<u8>)>,
    applied: Seq,
    durable: Seq,
    durability: Durability,
    fetched: Vec<Token>,
    scans: Vec<ScanRequest>,
    user_bytes: u64,
    parts: Vec<Part>,
}

/// A part of a batch that is not decided.
#[derive(Debug)]
struct Part {
    first: Seq,
    is_durable: bool,
    is_undone: bool,
    batch: Arc<BatchTicket>,
}

impl Part {
    fn is_decided(&self) -> bool {
        self.is_durable && (self.is_undone || self.batch.is_decided())
    }
}

impl MapEngine {
    /// An empty engine whose first write has a sequence above `last`.
    pub fn new(last: Seq) -> Self {
        MapEngine { applied: last, durable: last, ..MapEngine::default() }
    }

    fn page(&self, request: ScanRequest) -> Event {
        let start = (request.keyspace, request.cursor, Vec::new());
        let mut entries = Vec::new();
        let mut last = None;
        for ((keyspace, position, key), (meta, _)) in self.records.range(start..) {
            if *keyspace != request.keyspace {
                break;
            }
            if entries.len() >= request.count.max(1) as usize && last != Some(*position) {
                return Event::Scanned { token: request.token, entries, next: Some(*position), error: None };
            }
            last = Some(*position);
            entries.push(ScanEntry { key: key.clone(), meta: *meta });
        }
        Event::Scanned { token: request.token, entries, next: None, error: None }
    }
}

fn map_key(key: Key<'_>) -> MapKey {
    (key.keyspace, key.position, key.bytes.to_vec())
}

impl Engine for MapEngine {
    fn lookup(&mut self, now: Now, key: Key<'_>) -> Lookup<'_> {
        match self.records.get(&map_key(key)) {
            Some((meta, _)) if meta.expiry_ms != 0 && meta.expiry_ms <= now.wall_ms => Lookup::Missing,
            Some((meta, value)) => Lookup::Found(RecordView { meta: *meta, value }),
            None => Lookup::Missing,
        }
    }

    fn fetch(&mut self, _now: Now, keys: &[(Token, Key<'_>)]) {
        self.fetched.extend(keys.iter().map(|(token, _)| *token));
    }

    fn release(&mut self, _token: Token) {}

    fn write(&mut self, _now: Now, writes: &[Write<'_>]) -> Result<WriteReceipt> {
        for write in writes {
            self.applied += 1;
            self.user_bytes += write.key.bytes.len() as u64;
            match write.kind {
                WriteKind::Put { value, expiry_ms, kind } => {
                    let meta = RecordMeta { seq: self.applied, expiry_ms, kind };
                    self.user_bytes += value.len() as u64;
                    self.records.insert(map_key(write.key), (meta, value.to_vec()));
                }
                WriteKind::Delete => {
                    self.records.remove(&map_key(write.key));
                }
            }
        }
        let commit = match self.durability {
            Durability::Sync => Commit::Durable,
            Durability::Group { .. } => Commit::Grouped,
            Durability::Relaxed => Commit::Relaxed,
        };
        Ok(WriteReceipt { seq: self.applied, commit })
    }

    fn admit(&mut self, _now: Now, _writes: &[Write<'_>]) -> Result<()> {
        Ok(())
    }

    fn write_part(
        &mut self,
        now: Now,
        writes: &[Write<'_>],
        batch: &Arc<BatchTicket>,
    ) -> Result<WriteReceipt> {
        if writes.is_empty() {
            return Err(Error::new(ErrorKind::InvalidInput, "a part of a batch has at least one write"));
        }
        let first = self.applied + 1;
        self.parts.push(Part { first, is_durable: false, is_undone: false, batch: Arc::clone(batch) });
        self.write(now, writes)
    }

    fn undo_part(
        &mut self,
        now: Now,
        writes: &[Write<'_>],
        batch: &Arc<BatchTicket>,
    ) -> Result<WriteReceipt> {
        let receipt = self.write(now, writes)?;
        let own = self.parts.iter_mut().filter(|part| Arc::ptr_eq(&part.batch, batch));
        own.for_each(|part| part.is_undone = true);
        Ok(receipt)
    }

    fn scan(&mut self, _now: Now, request: ScanRequest) {
        self.scans.push(request);
    }

    fn drop_keyspace(&mut self, keyspace: KeyspaceId) {
        self.records.retain(|key, _| key.0 != keyspace);
    }

    fn len(&self, keyspace: KeyspaceId) -> u64 {
        let start = (keyspace, Position(0), Vec::new());
        self.records.range(start..).take_while(|(key, _)| key.0 == keyspace).count() as u64
    }

    fn step(&mut self, _now: Now, _completions: &mut Vec<IoCompletion>, events: &mut Vec<Event>) {
        self.durable = self.applied;
        for part in self.parts.iter_mut().filter(|part| !part.is_durable) {
            part.is_durable = true;
            part.batch.note_durable();
        }
        // Nothing here survives a crash, so that there is nothing to be marked.
        self.parts.retain(|part| {
            let is_decided = part.is_decided();
            if is_decided {
                part.batch.note_marked();
            }
            !is_decided
        });
        for token in self.fetched.drain(..) {
            events.push(Event::Fetched { token, result: Ok(()), cost: Default::default() });
        }
        for request in std::mem::take(&mut self.scans) {
            events.push(self.page(request));
        }
    }

    fn take_requests(&mut self, _requests: &mut Vec<IoRequest>) {}

    fn next_step_at_us(&self) -> Option<u64> {
        let quiet = self.fetched.is_empty() && self.scans.is_empty() && self.parts.is_empty();
        let idle = self.durable == self.applied && quiet;
        (!idle).then_some(0)
    }

    fn durable_seq(&self) -> Seq {
        self.durable
    }

    fn decided_seq(&self) -> Seq {
        let open = self.parts.iter().find(|part| !part.is_decided());
        open.map_or(self.durable, |part| self.durable.min(part.first - 1))
    }

    fn applied_seq(&self) -> Seq {
        self.applied
    }

    fn flush(&mut self, _now: Now) {}

    fn set_durability(&mut self, durability: Durability) {
        self.durability = durability;
    }

    fn health(&self) -> Health {
        Health::Good
    }

    fn admission(&self) -> Admission {
        Admission::Open
    }

    fn statistics(&self) -> EngineStatistics {
        EngineStatistics {
            keys: self.records.len() as u64,
            user_bytes_written: self.user_bytes,
            ..EngineStatistics::default()
        }
    }
}
