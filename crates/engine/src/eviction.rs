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
    /// Keys that expire are evicted, those first that expire next, as far as the engine knows; others stay.
    NearestExpiry,
}

/// What an engine does in the background when it is told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Housekeeping {
    /// It evicts keys.
    pub evicts: bool,
    /// It looks for rot.
    pub scrubs: bool,
}
