//! How batches gather and begin, and begin anew: because of keys that were not foreseen, or because the databases have changed.

use super::{ATTEMPTS_MAX, Coordination, Gathered, Phase, Work};
use crate::executor::Executor;
use std::collections::BTreeSet;
use tierstone_base::{Now, Result, ShardId};
use tierstone_engine::Engine;
use tierstone_store::TaskId;
use tierstone_store::message::{BatchId, OwnedKey, OwnedRecord, ShardMessage};

impl Coordination {
    /// Notes what participant `from` has gathered.
    fn note_gathered(&mut self, from: ShardId, records: Result<Vec<Option<OwnedRecord>>>) {
        let participant = self.participants.iter().find(|(shard, _)| *shard == from);
        match (records, participant) {
            (Ok(records), Some((_, keys))) => {
                self.gathered.records.extend(keys.iter().cloned().zip(records));
            }
            (Err(error), _) => self.error = Some(error),
            (Ok(_), None) => {}
        }
    }

    /// Whether `key`, which lies on `shard`, can be gathered under the locks that are held: a chunk, whose value's key is locked.
    fn keeps(&self, key: &OwnedKey, shard: ShardId) -> bool {
        // What was asked for once and is still missing is nothing that asking again would bring.
        key.keyspace.is_chunks()
            && !self.gathered.records.contains_key(key)
            && self.participants.iter().any(|(participant, _)| *participant == shard)
    }
}

impl<E: Engine> Executor<E> {
    /// Begins a batch, or begins it anew.
    pub(crate) fn coordinate(&mut self, now: Now, id: TaskId) {
        let number = self.shard.next_id();
        let batch = BatchId { coordinator: self.shard.index(), number };
        let map_version = self.shard.map().version;
        let Some(mut task) = self.tasks.remove(&id) else { return };
        let Work::Coordinated(coordination) = &mut task.work else { return };
        if coordination.map_version != map_version {
            // What was found out may be of keyspaces that are no more.
            coordination.extra.clear();
            (coordination.map_version, coordination.attempts, coordination.makings) = (map_version, 0, 0);
        }
        coordination.batch = batch;
        coordination.attempts += 1;
        coordination.phase = Phase::Locking(0);
        coordination.gathered = Gathered::default();
        coordination.unasked.clear();
        // What kept an earlier attempt from its keys may not be so any more.
        coordination.error = None;
        coordination.participants = self.participants(coordination, task.db);
        self.batches.insert(number, id);
        self.tasks.insert(id, task);
        self.lock_next(now, id);
    }

    /// A participant holds its locks, and has gathered.
    pub(super) fn gathered(
        &mut self,
        now: Now,
        id: TaskId,
        from: ShardId,
        records: Result<Vec<Option<OwnedRecord>>>,
        is_dirty: bool,
    ) {
        let Some(coordination) = self.coordination(id) else { return };
        coordination.is_dirty |= is_dirty;
        match coordination.phase {
            Phase::Locking(index) => {
                coordination.note_gathered(from, records);
                coordination.phase = Phase::Locking(index + 1);
                self.lock_next(now, id);
            }
            Phase::Gathering => {
                coordination.note_gathered(from, records);
                self.gather_next(now, id);
            }
            Phase::Preparing => {}
        }
    }

    /// Goes on with keys that the run has shown to be missing. Where chunks are all that is missing they are gathered under the
    /// locks, so that however often others replace large values meanwhile the batch ends: each time it has chunks that it
    /// had not, of values that stay. For other keys it begins anew; the chunks that values have then are found out then.
    pub(super) fn gather_missing(&mut self, now: Now, id: TaskId, missing: BTreeSet<OwnedKey>) {
        let count = self.shard.count();
        let Some(coordination) = self.coordination(id) else { return };
        let is_kept = |key: &OwnedKey| coordination.keeps(key, key.position.shard(count));
        if missing.is_empty() || !missing.iter().all(is_kept) {
            coordination.extra.extend(missing.into_iter().filter(|key| !key.keyspace.is_chunks()));
            return self.begin_anew(now, id);
        }
        for key in missing {
            coordination.unasked.entry(key.position.shard(count)).or_default().push(key);
        }
        self.gather_next(now, id);
    }

    /// Has the next participant gather chunks, or runs the commands again when all have.
    fn gather_next(&mut self, now: Now, id: TaskId) {
        let Some(coordination) = self.coordination(id) else { return };
        let Some((shard, chunks)) = coordination.unasked.pop_first() else {
            return self.run_by_its_map(now, id);
        };
        let batch = coordination.batch;
        coordination.phase = Phase::Gathering;
        let participant = coordination.participants.iter_mut().find(|(participant, _)| *participant == shard);
        if let Some((_, keys)) = participant {
            keys.extend(chunks.iter().cloned());
        }
        self.send_batch(shard, ShardMessage::Gather { batch, chunks });
    }

    /// Lets everything go and begins the batch again, with the keys that were missing.
    pub(super) fn begin_anew(&mut self, now: Now, id: TaskId) {
        self.begin_anew_by(now, id, 0);
    }

    /// The same when this shard's map of databases is at least the one of `map_version`.
    pub(super) fn begin_anew_by(&mut self, now: Now, id: TaskId, map_version: u64) {
        self.drop_made(id);
        let own_version = self.shard.map().version;
        let Some(coordination) = self.coordination(id) else { return };
        let batch = coordination.batch;
        let is_last = coordination.attempts >= ATTEMPTS_MAX && coordination.map_version == own_version;
        let shards: Vec<ShardId> = coordination.participants.iter().map(|(shard, _)| *shard).collect();
        for shard in shards {
            self.send_batch(shard, ShardMessage::Decide { batch, undo: Vec::new() });
        }
        self.batches.remove(&batch.number);
        if own_version < map_version {
            self.awaiting_map.insert((map_version, id));
        } else if is_last {
            self.finish(now, id, b"-ERR the keys of the command could not be gathered\r\n", 0, false);
        } else {
            self.coordinate(now, id);
        }
    }

    /// Everything is gathered: runs the commands, if this shard still has the map by which it was.
    pub(super) fn run_by_its_map(&mut self, now: Now, id: TaskId) {
        let own_version = self.shard.map().version;
        match self.coordination(id).is_some_and(|coordination| coordination.map_version != own_version) {
            true => self.begin_anew(now, id),
            false => self.run_gathered(now, id),
        }
    }

    /// Begins the batches anew that have waited for the map that this shard has now.
    pub(super) fn begin_awaited(&mut self, now: Now) {
        let own_version = self.shard.map().version;
        while let Some((map_version, id)) = self.awaiting_map.first().copied()
            && map_version <= own_version
        {
            self.awaiting_map.remove(&(map_version, id));
            self.coordinate(now, id);
        }
    }
}
