//! Whether an engine still takes work, and how much.

use tierstone_base::Error;

/// Whether an engine still does its work.
#[derive(Clone, Debug)]
pub enum Health {
    /// All is well.
    Good,
    /// The device failed a write or flush: reads go on, nothing is acknowledged any more.
    Failed(Error),
}

/// Whether the engine wants more work now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Yes.
    Open,
    /// It has enough in hand: the caller should stop taking requests until the next step, so that
    /// memory stays bounded and cleaning keeps up.
    Throttled,
}
