//! Pairs that sleep whole while their hot data lies on another pair, in the simulator: the published design
//! of partial on-line mirrors, by the policy that the volume runs.
//!
//! What the model decides: the first `hot_gib` of the addresses are hot and go evenly round the pairs; pair
//! 0 is the host; rows are copied in the idle time of the disks concerned, evenly among pairs that move, so
//! that requests do not wait for them; a stripe that was written since the last copy costs a position and its
//! transfer, a first copy only its transfer.

use super::simulate::{Simulation, State};
use std::collections::BTreeSet;
use tierstone_base::histogram::LatencyHistogram;
use tierstone_volume::{Advice, WholeHistory, WholePolicy};

/// The pair that stays awake for the others.
pub(super) const HOST: usize = 0;
/// Where copies begin on the host: behind everything of its own.
const COPIES_START: u64 = 1 << 50;
const COPY_BYTES: u64 = 1 << 44;

/// Hot data, and when pairs sleep whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole {
    pub hot_bytes: u64,
    pub spare_bytes: u64,
    pub policy: WholePolicy,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum First {
    #[default]
    Turning,
    Stopping {
        until: u64,
    },
    Standing {
        since: u64,
    },
    Starting {
        until: u64,
    },
}

#[derive(Debug, Default)]
pub(super) struct WholePair {
    first: First,
    history: WholeHistory,
    /// Whether its hot data counts on the host.
    is_away: bool,
    is_moving: bool,
    /// Bytes that were never copied, and stripes that were written since.
    uncopied: u64,
    differing: BTreeSet<u64>,
    was_cold: bool,
    starts: u64,
    down_ns: u64,
    /// Time that its two disks spent copying.
    background_ns: [u64; 2],
}

/// What whole sleep gave.
#[derive(Clone, Debug, Default)]
pub struct WholeOutcome {
    /// Starts of first disks: of the mean one and of the one with most.
    pub starts: (f64, u64),
    /// Requests that found both disks of a pair standing, or their start under way.
    pub cold_waits: u64,
    /// GiB copied to the host and home.
    pub copied_gib: f64,
    /// Of requests for hot data only.
    pub hot_response: LatencyHistogram,
}

impl WholePair {
    pub(super) fn new(hot_bytes: u64) -> WholePair {
        WholePair { uncopied: hot_bytes, ..WholePair::default() }
    }

    /// Whether hot data is away or on its way: the pair does not fall asleep anew.
    pub(super) fn is_needed(&self) -> bool {
        self.is_away || self.is_moving
    }

    pub(super) fn stands(&self) -> bool {
        matches!(self.first, First::Standing { .. })
    }

    /// Time that its disks worked beside requests, and that its first disk stood, by the end of a run.
    pub(super) fn times(&self, end: u64) -> (u64, u64) {
        let down = match self.first {
            First::Standing { since } => end.saturating_sub(since),
            First::Stopping { until } => end.saturating_sub(until),
            _ => 0,
        };
        (self.background_ns.iter().sum(), self.down_ns + down)
    }

    fn advance(&mut self, now: u64) {
        match self.first {
            First::Stopping { until } if until <= now => self.first = First::Standing { since: until },
            First::Starting { until } if until <= now => self.first = First::Turning,
            _ => {}
        }
    }
}

impl Simulation<'_> {
    /// Hot bytes of each pair.
    pub(super) fn hot_bytes_a_pair(&self) -> u64 {
        self.machine.whole.map_or(0, |whole| whole.hot_bytes.div_ceil(self.pairs.len() as u64))
    }

    /// The pair and place that serve a piece; a disk that stands is started for it.
    pub(super) fn whereabouts(
        &mut self,
        now: u64,
        pair: usize,
        at: u64,
        is_hot: bool,
        is_write: bool,
    ) -> (usize, u64) {
        let stripe = self.machine.stripe;
        let Some(whole) = self.whole.get_mut(pair).filter(|_| pair != HOST) else { return (pair, at) };
        if is_hot && is_write {
            whole.differing.insert(at / stripe);
        }
        if is_hot && whole.is_away {
            return (HOST, COPIES_START + pair as u64 * COPY_BYTES + at);
        }
        whole.was_cold |= !is_hot;
        whole.advance(now);
        if whole.first != First::Turning {
            self.cold_waits += 1;
            self.start_first(pair, now);
        }
        (pair, at)
    }

    /// The first disk of a pair starts, unless it turns or starts already; its queue goes on when it turns.
    pub(super) fn start_first(&mut self, index: usize, now: u64) {
        let spin_up_ns = self.machine.spin_up_ns;
        let Some(whole) = self.whole.get_mut(index) else { return };
        whole.advance(now);
        let from = match whole.first {
            First::Standing { since } => {
                whole.down_ns += now.saturating_sub(since);
                now
            }
            First::Stopping { until } => until,
            First::Starting { .. } | First::Turning => return,
        };
        let until = from + spin_up_ns;
        whole.first = First::Starting { until };
        let disk = &mut self.pairs[index].disks[0];
        disk.free_ns = disk.free_ns.max(until);
    }

    fn stop_first(&mut self, index: usize, now: u64) {
        let until = now.max(self.pairs[index].disks[0].free_ns) + self.machine.spin_down_ns;
        let whole = &mut self.whole[index];
        whole.first = First::Stopping { until };
        whole.starts += 1;
    }

    /// An epoch of a pair has ended; `shares` are the utilisations of its disks, `kept` that of the host.
    pub(super) fn end_whole_epoch(&mut self, index: usize, now: u64, shares: [f64; 2], kept: f64) {
        let Some(settings) = self.machine.whole else { return };
        if index == HOST {
            return;
        }
        let hot_bytes = self.hot_bytes_a_pair();
        let sleep = self.machine.policy;
        let hours = now as f64 / 3.6e12;
        let state = self.pairs[index].state;
        let whole = &mut self.whole[index];
        whole.advance(now);
        let was_cold = std::mem::take(&mut whole.was_cold);
        if state != State::Low {
            whole.history.between();
            // Out turns back; home waits until the second disk has what it missed.
            whole.is_moving = whole.is_away && state == State::High;
            if whole.is_moving && self.copy(index, shares, kept) {
                (self.whole[index].is_away, self.whole[index].is_moving) = (false, false);
            }
            return;
        }
        if whole.is_moving {
            if self.copy(index, shares, kept) {
                (self.whole[index].is_away, self.whole[index].is_moving) = (true, false);
                self.stop_first(index, now);
            }
            return;
        }
        if whole.first != First::Turning {
            if whole.history.whole(&sleep, kept) == Advice::Wake {
                self.wake(index, now);
            }
            return;
        }
        let carried = kept + shares[0];
        if whole.history.turning(&settings.policy, sleep.cycles, was_cold, carried, hours) != Advice::Sleep {
            return;
        }
        if whole.is_away || hot_bytes == 0 {
            self.stop_first(index, now);
        } else {
            let taken = self.whole.iter().filter(|pair| pair.is_away || pair.is_moving).count() as u64;
            self.whole[index].is_moving = (taken + 1).saturating_mul(hot_bytes) <= settings.spare_bytes;
        }
    }

    /// Copies what the idle time of an epoch allows; whether nothing is left.
    fn copy(&mut self, index: usize, shares: [f64; 2], kept: f64) -> bool {
        let machine = self.machine;
        let movers = self.whole.iter().filter(|pair| pair.is_moving).count().max(1) as f64;
        let busy = shares[0].max(shares[1]).max(kept).min(1.0);
        let mut left_ns = (1.0 - busy) * machine.epoch_ns as f64 / movers;
        let stripe_ns = machine.position_ns as f64 + machine.stripe as f64 * machine.ns_per_byte;
        let whole = &mut self.whole[index];
        let before_ns = left_ns;
        let bytes = ((left_ns / machine.ns_per_byte) as u64).min(whole.uncopied);
        whole.uncopied -= bytes;
        left_ns -= bytes as f64 * machine.ns_per_byte;
        let mut copied = bytes;
        while left_ns >= stripe_ns && whole.uncopied == 0 && whole.differing.pop_first().is_some() {
            left_ns -= stripe_ns;
            copied += machine.stripe;
        }
        let is_home = whole.is_away;
        let is_done = whole.uncopied == 0 && whole.differing.is_empty();
        let spent = (before_ns - left_ns) as u64;
        // One disk is read at the source, both are written at the target.
        let ends = [(index, [true, is_home]), (HOST, [true, !is_home])];
        for (pair, disks) in ends {
            for (spent_ns, _) in
                self.whole[pair].background_ns.iter_mut().zip(disks).filter(|(_, is_used)| *is_used)
            {
                *spent_ns += spent;
            }
        }
        self.copied += copied;
        is_done
    }

    pub(super) fn whole_outcome(&mut self) -> Option<WholeOutcome> {
        self.machine.whole.filter(|_| self.sleeps)?;
        let starts: Vec<u64> = self.whole.iter().skip(1).map(|pair| pair.starts).collect();
        let mean = starts.iter().sum::<u64>() as f64 / starts.len().max(1) as f64;
        Some(WholeOutcome {
            starts: (mean, starts.into_iter().max().unwrap_or(0)),
            cold_waits: self.cold_waits,
            copied_gib: self.copied as f64 / (1u64 << 30) as f64,
            hot_response: std::mem::take(&mut self.hot_response),
        })
    }
}
