//! How batches begin, and begin anew: because of keys that were not foreseen, or because the databases have changed.

use super::{ATTEMPTS_MAX, Gathered, Phase, Work};
use crate::executor::Executor;
use tierstone_base::{Now, ShardId};
use tierstone_engine::Engine;
use tierstone_store::TaskId;
use tierstone_store::message::{BatchId, ShardMessage};

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
        coordination.participants = self.participants(coordination, task.db);
        self.batches.insert(number, id);
        self.tasks.insert(id, task);
        self.lock_next(now, id);
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
