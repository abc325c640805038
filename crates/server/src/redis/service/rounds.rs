//! What a shard's service sees to from time to time: its end, the numbers that it tells, and that it turns.

use super::super::mail::ToNode;
use super::super::metrics::ShardSnapshot;
use super::{RedisConnection, RedisService};
use crate::connections::Connections;
use crate::driver::DriverReport;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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

impl<E: Engine> RedisService<E> {
    /// Shuts the engine of a stopping shard when nobody needs it any more.
    pub(super) fn go_on_stopping(&mut self, now: Now, is_deserted: bool) {
        let Some(stop_by_us) = self.stop_by_us else { return };
        self.stop_check_due_us = now.monotonic_us + STOP_CHECK_INTERVAL_US;
        // A shut engine refuses to take back its part of a refused batch; the part would never be decided.
        let has_batches = self.executor.has_batches();
        if is_deserted && !has_batches && !self.has_left {
            self.has_left = true;
            self.serving.fetch_sub(1, Ordering::AcqRel);
        }
        let is_needed = !self.has_left || has_batches || self.serving.load(Ordering::Acquire) > 0;
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
