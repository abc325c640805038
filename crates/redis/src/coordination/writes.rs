//! What a batch over several shards tells each of them, writes there, and what takes it back.

use super::Coordination;
use crate::control::Output;
use crate::executor::Executor;
use crate::remote::Message;
use std::collections::BTreeSet;
use tierstone_base::{Position, ShardId};
use tierstone_engine::{Engine, WriteKind};
use tierstone_store::large::parse_key;
use tierstone_store::message::{OwnedKey, OwnedWrite, ShardMessage};
use tierstone_store::{Overlay, ValueIds};

impl<E: Engine> Executor<E> {
    /// Tells a participant about a batch.
    pub(super) fn send_batch(&mut self, to: ShardId, message: ShardMessage) {
        self.host.outputs.push(Output::Send { to, message: Message::Batch(message) });
    }
}

/// Splits the writes by shards, with what undoes them; the keys whose old records are not known.
///
/// Chunks of new values need no undoing: with their map they lose their name, and are reclaimed.
pub(super) fn plan_writes(
    coordination: &mut Coordination,
    overlay: &Overlay,
    count: u16,
    is_new: impl Fn(&OwnedKey) -> bool,
) -> BTreeSet<OwnedKey> {
    let mut missing = BTreeSet::new();
    let mut restored: BTreeSet<OwnedKey> = BTreeSet::new();
    coordination.writes.clear();
    coordination.undo.clear();
    for write in overlay.iter() {
        let key = OwnedKey {
            keyspace: write.key.keyspace,
            position: write.key.position,
            bytes: write.key.bytes.to_vec(),
        };
        let shard = shard_of(key.position, count);
        let value = match write.kind {
            WriteKind::Put { value, expiry_ms, kind } => Some((value.to_vec(), expiry_ms, kind)),
            WriteKind::Delete => None,
        };
        match coordination.gathered.records.get(&key) {
            None if is_new(&key) => {}
            None => {
                missing.insert(key.clone());
            }
            Some(old) if restored.insert(key.clone()) => {
                let value = old.as_ref().map(|old| (old.value.clone(), old.meta.expiry_ms, old.meta.kind));
                let undo = coordination.undo.entry(shard).or_default();
                undo.push(OwnedWrite { key: key.clone(), value });
            }
            Some(_) => {}
        }
        coordination.writes.entry(shard).or_default().push(OwnedWrite { key, value });
    }
    missing
}

/// Whether `key` is a chunk of a value that has got its id since `mark`.
pub(super) fn is_new_chunk(key: &OwnedKey, ids: &ValueIds, mark: u64) -> bool {
    key.keyspace.is_chunks() && parse_key(&key.bytes).is_some_and(|(id, _)| ids.is_since(mark, id))
}

fn shard_of(position: Position, count: u16) -> ShardId {
    position.shard(count)
}
