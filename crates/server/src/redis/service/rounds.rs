//! What a shard's service sees to from time to time: its end, the numbers that it tells, and that it turns.

use super::super::mail::ToNode;
use super::super::metrics::ShardSnapshot;
use super::{RedisConnection, RedisService};
use crate::connections::Connections;
use crate::driver::DriverReport;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tierstone_base::Now;
use tierstone_engine::{Engine, Health};
use tierstone_redis::control::Transport;

/// How often a shard tells its numbers, in microseconds.
const SNAPSHOT_INTERVAL_US: u64 = 250_000;
/// How often a stopping shard looks whether the others have ended their connections, in microseconds.
const STOP_CHECK_INTERVAL_US: u64 = 500;

/// How often a shard's thread turns at least where somebody looks at its heartbeat, in microseconds.
pub const HEARTBEAT_INTERVAL_US: u64 = 1_000_000;

/// Counts the turns of a shard's thread, which turns once in [`HEARTBEAT_INTERVAL_US`] at least.
#[derive(Clone, Debug, Default)]
pub struct Heartbeat(Arc<AtomicU64>);

impl Heartbeat {
    /// How many turns there were; 0 before the shard serves.
    pub fn turns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// One more turn. Only the shard's own thread writes.
    pub fn beat(&self) {
        self.0.store(self.turns() + 1, Ordering::Relaxed);
    }
}

/// A shard's place among those that have connections, or are not stopping: given up once, when it has none any more, or its
/// thread ends before.
#[derive(Debug)]
pub(in super::super) struct Serving {
    all: Arc<AtomicUsize>,
    has_left: bool,
}

impl Serving {
    /// The place of one of those that `all` counts already.
    pub fn new(all: Arc<AtomicUsize>) -> Self {
        Serving { all, has_left: false }
    }

    /// Gives the place up.
    pub fn leave(&mut self) {
        if !self.has_left {
            self.has_left = true;
            self.all.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whether some shard may still have connections.
    pub fn is_anybody_there(&self) -> bool {
        self.all.load(Ordering::Acquire) > 0
    }

    /// What it is a place among, which goes on counting it.
    pub fn pass_on(mut self) -> Arc<AtomicUsize> {
        self.has_left = true;
        Arc::clone(&self.all)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<E: Engine> RedisService<E> {
    /// Shuts the engine of a stopping shard when nobody needs it any more.
    pub(super) fn go_on_stopping(&mut self, now: Now, is_deserted: bool) {
        let Some(stop_by_us) = self.stop_by_us else { return };
        self.stop_check_due_us = now.monotonic_us + STOP_CHECK_INTERVAL_US;
        // A shut engine refuses to take back its part of a refused batch; the part would never be decided.
        let has_batches = self.executor.has_batches();
        if is_deserted && !has_batches {
            self.serving.leave();
        }
        // Where somebody is there, it may be this one.
        let is_needed = has_batches || self.serving.is_anybody_there();
        if !self.shut && (!is_needed || now.monotonic_us >= stop_by_us) {
            self.shut = true;
            self.executor.shard_mut().engine_mut().shut();
        }
    }

    pub(super) fn tell_numbers(&mut self, now: Now, connections: &Connections<RedisConnection>) {
        if now.monotonic_us >= self.snapshot_due_us {
            self.snapshot_due_us = now.monotonic_us + SNAPSHOT_INTERVAL_US;
            self.told_commands = self.executor.counters().commands;
            self.snapshots.tell(ShardSnapshot::of(self.shard, &self.executor, connections));
        }
        let findings = self.executor.shard_mut().engine_mut().take_scrub_findings();
        if !findings.is_empty() {
            self.tell_node(ToNode::Rot { shard: self.shard, findings });
        }
        if !self.told_failure
            && let Health::Failed(error) = self.executor.health()
        {
            self.told_failure = true;
            self.tell_node(ToNode::Failed { shard: self.shard, error });
        }
    }
}

/// What the executor is told of the connections.
pub(super) fn transport_of(report: &DriverReport) -> Transport {
    Transport {
        refused: report.connections_refused,
        over_input_limit: report.connections_over_input_limit,
        over_output_limit: report.connections_over_output_limit,
        bytes_received: report.bytes_received,
        bytes_sent: report.bytes_sent,
    }
}
