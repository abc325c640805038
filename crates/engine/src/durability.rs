//! When a write may be acknowledged, and what an engine promises of one that it has accepted.

use crate::cost::Cost;
#[cfg(doc)]
use crate::statistics::EngineStatistics;
use serde::{Deserialize, Serialize};
use tierstone_base::Seq;

/// What the engine promises about a write that it has accepted; the weakest is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Commit {
    /// Acknowledge when the durable sequence has reached it.
    Durable,
    /// The same; commits gather for some time first.
    Grouped,
    /// May be acknowledged at once; a crash may lose it within the stated bound.
    Relaxed,
}

/// The answer to an accepted batch of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteReceipt {
    /// The sequence of the last write of the batch.
    pub seq: Seq,
    /// When it may be acknowledged.
    pub commit: Commit,
    /// What applying the batch cost. Its bytes are those of its records in the log; the device write that makes
    /// them durable is their group's, shared by all in it, and counted in [`EngineStatistics::device`] only.
    pub cost: Cost,
}

/// When a write may be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Durability {
    /// When it is durable. Groups form only from what arrives while a group is being written.
    #[default]
    Sync,
    /// When it is durable; groups gather for up to this long first. Nothing acknowledged is lost.
    Group {
        /// The longest time a write waits for company, in milliseconds.
        interval_ms: u32,
    },
    /// At once, as long as what a crash would lose was written within
    /// [`RELAXED_BOUND_MS`](Durability::RELAXED_BOUND_MS); while the device is further behind, when it is
    /// durable.
    Relaxed,
}

impl Durability {
    /// The longest span of time whose acknowledged writes a crash may take in `relaxed`, in
    /// milliseconds.
    pub const RELAXED_BOUND_MS: u64 = 1_000;

    /// The longest span of time whose acknowledged writes a crash may take, in milliseconds; zero: none
    /// is taken.
    pub fn loss_bound_ms(self) -> u64 {
        if self == Durability::Relaxed { Self::RELAXED_BOUND_MS } else { 0 }
    }
}
