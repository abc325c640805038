//! Position locks: who may touch a position while somebody else's command waits.
//!
//! Invariants:
//! 1. A position's waiters are served in the order in which they came.
//! 2. A task asks for all its positions of this shard in one call, so that within a shard nobody
//!    waits in a circle. Across shards, coordinators ask in the order of the shards.
//! 3. An empty table costs its users one comparison.

use std::collections::VecDeque;
use tierstone_base::Position;
use tierstone_base::collections::Map;

/// One waiting command of one shard; never used twice in a process.
pub type TaskId = u64;

/// What a lock keeps out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Other writers. Readers pass and see the value from before.
    Intent,
    /// Writers and readers: what lies here may still be taken back.
    Exclusive,
}

#[derive(Debug)]
struct Waiter {
    positions: Vec<Position>,
    /// Positions at which others are before it.
    blocked: usize,
}

/// The locks of one shard.
#[derive(Debug, Default)]
pub struct LockTable {
    queues: Map<Position, VecDeque<(TaskId, LockMode)>>,
    tasks: Map<TaskId, Waiter>,
}

impl LockTable {
    /// Whether nothing is locked.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// How many tasks hold or wait.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether a new writer of `position` would have to wait.
    #[inline]
    pub fn blocks_writer(&self, position: Position) -> bool {
        !self.is_empty() && self.queues.contains_key(&position)
    }

    /// Whether a new reader of `position` would have to wait.
    #[inline]
    pub fn blocks_reader(&self, position: Position) -> bool {
        !self.is_empty()
            && self
                .queues
                .get(&position)
                .and_then(VecDeque::front)
                .is_some_and(|(_, mode)| *mode == LockMode::Exclusive)
    }

    /// Puts `task` into the queues of `positions`; true when it holds them all now, else it will be
    /// named by a later [`LockTable::leave`]. A task enters once.
    pub fn enter(&mut self, task: TaskId, mut positions: Vec<Position>, mode: LockMode) -> bool {
        positions.sort_unstable();
        positions.dedup();
        let mut blocked = 0;
        for position in &positions {
            let queue = self.queues.entry(*position).or_default();
            blocked += usize::from(!queue.is_empty());
            queue.push_back((task, mode));
        }
        let previous = self.tasks.insert(task, Waiter { positions, blocked });
        assert!(previous.is_none(), "task {task} entered the lock table twice");
        blocked == 0
    }

    /// Lets go of everything that `task` holds or waits for. Appends the tasks that hold all their
    /// positions because of that to `granted`, in the order of positions.
    pub fn leave(&mut self, task: TaskId, granted: &mut Vec<TaskId>) {
        let Some(waiter) = self.tasks.remove(&task) else { return };
        for position in waiter.positions {
            let Some(queue) = self.queues.get_mut(&position) else { continue };
            let was_first = queue.front().is_some_and(|(first, _)| *first == task);
            queue.retain(|(other, _)| *other != task);
            let next = queue.front().map(|(next, _)| *next);
            if queue.is_empty() {
                self.queues.remove(&position);
            }
            if !was_first {
                continue;
            }
            if let Some(next) = next
                && let Some(waiter) = self.tasks.get_mut(&next)
            {
                waiter.blocked -= 1;
                if waiter.blocked == 0 {
                    granted.push(next);
                }
            }
        }
    }
}

#[cfg(test)]
#[path = "lock_test.rs"]
mod lock_test;
