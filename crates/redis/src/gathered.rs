//! What a coordinator has gathered from the participants of a batch: the records that its commands read.
//!
//! Invariant: a key that was not gathered is told from one that does not exist.

use std::collections::BTreeMap;
use tierstone_base::{KeyspaceId, Now, Seq};
use tierstone_engine::{Key, Lookup, RecordView};
use tierstone_store::Records;
use tierstone_store::message::{OwnedKey, OwnedRecord};

/// Records that were gathered from the participants.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub records: BTreeMap<OwnedKey, Option<OwnedRecord>>,
    /// The key of the lookup in progress; kept for its allocation.
    probe: Option<OwnedKey>,
}

impl Gathered {
    /// Bytes of its values.
    pub fn value_bytes(&self) -> u64 {
        self.records.values().flatten().map(|record| record.value.len() as u64).sum()
    }

    /// When what was gathered of `key` expires, in milliseconds since 1970; 0: never, or it is not there.
    pub fn expiry_ms(&self, key: &OwnedKey) -> u64 {
        self.records.get(key).and_then(Option::as_ref).map_or(0, |record| record.meta.expiry_ms)
    }

    fn probe(&mut self, key: Key<'_>) -> &OwnedKey {
        let mut probe = self.probe.take().unwrap_or_else(|| OwnedKey {
            keyspace: key.keyspace,
            position: key.position,
            bytes: Vec::new(),
        });
        probe.keyspace = key.keyspace;
        probe.position = key.position;
        probe.bytes.clear();
        probe.bytes.extend_from_slice(key.bytes);
        self.probe.insert(probe)
    }
}

impl Records for Gathered {
    fn lookup(&mut self, now: Now, key: Key<'_>) -> Lookup<'_> {
        self.probe(key);
        let Some(probe) = &self.probe else { return Lookup::Fetch };
        match self.records.get(probe) {
            None => Lookup::Fetch,
            Some(None) => Lookup::Missing,
            Some(Some(record)) => {
                let expiry_ms = record.meta.expiry_ms;
                if expiry_ms != 0 && expiry_ms <= now.wall_ms {
                    return Lookup::Missing;
                }
                Lookup::Found(RecordView { meta: record.meta, value: &record.value })
            }
        }
    }

    fn applied_seq(&self) -> Seq {
        0
    }

    fn len(&self, keyspace: KeyspaceId) -> u64 {
        let is_live =
            |(key, record): &(&OwnedKey, &Option<OwnedRecord>)| key.keyspace == keyspace && record.is_some();
        self.records.iter().filter(is_live).count() as u64
    }
}
