//! What can go wrong besides the loss of power.

use crate::device::IoKind;
use std::ops::Range;
use tierstone_crash::Choices;

/// A fault armed on a medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which requests it concerns.
    pub target: FaultTarget,
    /// Only requests that touch these bytes; flushes touch all.
    pub range: Range<u64>,
    /// Which of them it strikes.
    pub when: FaultWhen,
    /// What happens.
    pub effect: FaultEffect,
}

/// The requests that a fault concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultTarget {
    /// Reads.
    Read,
    /// Writes, plain and durable.
    Write,
    /// Flushes.
    Flush,
    /// Flushes and durable writes: what others rely on.
    Durability,
    /// Prepares and discards.
    Space,
}

/// Which of the requests concerned a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultWhen {
    /// All of them, until [`super::SimMedium::clear_faults`].
    Always,
    /// The `n`-th, counted from zero since the fault was armed, and no other.
    Nth(u64),
    /// Those that the choices name, at most `limit`; sampling names one in `one_in`.
    Chosen {
        /// Mean distance when sampling.
        one_in: u64,
        /// Most strikes.
        limit: u64,
    },
}

/// What happens to a request that a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultEffect {
    /// It fails. A failed write may have landed or not (the choices say); a failed flush leaves
    /// what it was to make durable in doubt for ever: read back as if all were well, surviving or
    /// not, whatever is flushed later.
    Fail,
    /// It fails for want of space; nothing was done.
    Full,
    /// It completes well and makes nothing durable.
    Lie,
    /// A write that completes well and lands at another offset. A durable one is durable there.
    Misdirect {
        /// Where it lands; what does not fit the device's end is lost.
        to: u64,
    },
    /// A write that completes well and never lands.
    Lose,
}

impl Fault {
    /// Every request of `target`, everywhere, for ever.
    pub fn new(target: FaultTarget, effect: FaultEffect) -> Self {
        Fault { target, range: 0..u64::MAX, when: FaultWhen::Always, effect }
    }

    /// Every flush and durable write completes and makes nothing durable: for negative tests.
    pub fn lying_flush() -> Self {
        Self::new(FaultTarget::Durability, FaultEffect::Lie)
    }

    /// The same for requests that touch `range` only.
    #[must_use]
    pub fn within(mut self, range: Range<u64>) -> Self {
        self.range = range;
        self
    }

    /// The same for the requests that `when` names.
    #[must_use]
    pub fn when(mut self, when: FaultWhen) -> Self {
        self.when = when;
        self
    }
}

/// A fault and how often it was asked and struck.
#[derive(Debug)]
pub(super) struct Armed {
    fault: Fault,
    matched: u64,
    struck: u64,
}

impl Armed {
    pub(super) fn new(fault: Fault) -> Self {
        Armed { fault, matched: 0, struck: 0 }
    }

    fn concerns(&self, kind: IoKind, offset: u64, len: u64) -> bool {
        let kind_matches = match self.fault.target {
            FaultTarget::Read => kind == IoKind::Read,
            FaultTarget::Write => matches!(kind, IoKind::Write | IoKind::WriteDurable),
            FaultTarget::Flush => kind == IoKind::Flush,
            FaultTarget::Durability => matches!(kind, IoKind::Flush | IoKind::WriteDurable),
            FaultTarget::Space => matches!(kind, IoKind::Prepare { .. } | IoKind::Discard { .. }),
        };
        let touches = offset < self.fault.range.end && offset + len > self.fault.range.start;
        kind_matches && (kind == IoKind::Flush || touches)
    }

    /// What the fault does to this request, if anything.
    pub(super) fn strike(
        &mut self,
        choices: &Choices,
        kind: IoKind,
        offset: u64,
        len: u64,
    ) -> Option<FaultEffect> {
        if !self.concerns(kind, offset, len) {
            return None;
        }
        let strikes = match self.fault.when {
            FaultWhen::Always => true,
            FaultWhen::Nth(n) => self.matched == n,
            FaultWhen::Chosen { one_in, limit } => self.struck < limit && choices.rarely(one_in, "fault"),
        };
        self.matched += 1;
        self.struck += u64::from(strikes);
        strikes.then_some(self.fault.effect)
    }
}
