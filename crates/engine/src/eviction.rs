//! What is done when memory or space is used up, and what engines do in the background.

use serde::{Deserialize, Serialize};

/// What an engine does when new keys find no memory, or records no space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Eviction {
    /// They are refused.
    #[default]
    None,
    /// Keys are evicted, those first whose records were written longest ago, but for what was asked for lately
    /// as far as the engine knows.
    OldestFirst,
    /// Of the keys that expire those are evicted first whose records were written longest ago, but for what was
    /// asked for lately as far as the engine knows; keys that never expire stay.
    OldestExpiring,
    /// Keys that expire are evicted, those first that expire next, as far as the engine knows; others stay.
    NearestExpiry,
    /// Keys are evicted, those first that were asked for least often lately, as far as the engine knows.
    LeastUsed,
    /// Keys that expire are evicted, those first that were asked for least often lately; others stay.
    LeastUsedExpiring,
    /// Keys are evicted in no order, whether or not they were asked for; those written together may go together.
    Random,
    /// Keys that expire are evicted in no order; others stay.
    RandomExpiring,
}

impl Eviction {
    /// Whether keys that never expire stay.
    pub fn is_of_expiring(self) -> bool {
        matches!(
            self,
            Eviction::OldestExpiring
                | Eviction::LeastUsedExpiring
                | Eviction::NearestExpiry
                | Eviction::RandomExpiring
        )
    }

    /// Whether what was asked for lately goes last.
    pub fn spares_the_asked_for(self) -> bool {
        matches!(self, Eviction::OldestFirst | Eviction::OldestExpiring)
    }

    /// Whether it is counted how often keys are asked for.
    pub fn counts_uses(self) -> bool {
        matches!(self, Eviction::LeastUsed | Eviction::LeastUsedExpiring)
    }
}

/// What an engine does in the background when it is told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Housekeeping {
    /// It evicts keys.
    pub evicts: bool,
    /// It looks for rot.
    pub scrubs: bool,
}
