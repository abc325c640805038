//! How much capacity a room needs: bounds, without routing, and with it.

use super::control::{Control, simulate};
use super::part::Part;
use super::schedule::{Limits, Loads, Sides, least_capacity, pair_power, round};
use super::trace::Trace;
use super::wiring::Wiring;
use crate::field::refused;
use tierstone_base::{ErrorKind, Result};

/// The least capacity, W, for which no schedule of fractions of servers, chosen anew for every sample, would
/// have to throttle. All feeds are equal, so the neediest island decides. Cost: for each island a program for the
/// few samples that could raise its need.
///
/// # Errors
/// As [`least_capacity`].
pub fn bound(wiring: &Wiring, trace: &Trace, phase_skew: f64) -> Result<f64> {
    if wiring.islands.len() < 2 {
        return island_bound(wiring, trace, phase_skew);
    }
    let mut each_w = 0.0f64;
    for part in Part::all(wiring)? {
        let bound = island_bound(&part.wiring, &part.trace(trace), phase_skew)?;
        each_w = each_w.max(bound / part.wiring.feeds() as f64);
    }
    Ok(each_w * wiring.feeds() as f64)
}

fn island_bound(wiring: &Wiring, trace: &Trace, phase_skew: f64) -> Result<f64> {
    let mut most = 0.0f64;
    let mut shares: Vec<f64> = vec![0.5; wiring.pairs.len()];
    for sample in by_total(trace) {
        let power = pair_power(wiring, &trace.sample(sample));
        // A division that is at hand bounds the sample from above; most samples end here.
        if fractional_need(wiring, &power, &shares, phase_skew) <= most {
            continue;
        }
        let (division, capacity) = least_capacity(wiring, &power, phase_skew)?;
        most = most.max(capacity);
        for ((share, first), power) in shares.iter_mut().zip(&division.first_w).zip(&power) {
            *share = if *power > 0.0 { first / power } else { 0.5 };
        }
    }
    Ok(most)
}

/// Samples from the one with the greatest total.
fn by_total(trace: &Trace) -> Vec<usize> {
    let mut order: Vec<(usize, f64)> = trace.totals().into_iter().enumerate().collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    order.into_iter().map(|(sample, _)| sample).collect()
}

/// The capacity that fixed shares of each pair need, W.
fn fractional_need(wiring: &Wiring, power: &[f64], shares: &[f64], phase_skew: f64) -> f64 {
    let mut loads = Loads::none(wiring);
    for (pair, &power) in power.iter().enumerate() {
        loads.add(wiring, pair, false, power * shares[pair]);
        loads.add(wiring, pair, true, power * (1.0 - shares[pair]));
    }
    let need = loads.needs(wiring).into_iter().fold(0.0, f64::max);
    let skew = loads.feed_w.chunks(super::wiring::PHASES).map(|phases| {
        let most = phases.iter().copied().fold(0.0, f64::max);
        most - phases.iter().copied().fold(f64::INFINITY, f64::min)
    });
    // Phases may differ by a part of the capacity: a greater skew needs a greater capacity.
    let skew = skew.fold(0.0, f64::max);
    let by_skew = if skew > 0.0 { skew / phase_skew } else { 0.0 };
    need.max(by_skew) * wiring.feeds() as f64
}

/// Feeds chosen once so that the mean power of each PDU is level, as the source says: the heaviest mean first,
/// to whichever of its PDUs carries less. What PDUs would take over is left to chance.
pub fn sides_by_means(wiring: &Wiring, trace: &Trace) -> Sides {
    let mean = trace.means();
    let mut order: Vec<usize> = (0..mean.len()).collect();
    order.sort_by(|&a, &b| mean[b].total_cmp(&mean[a]));
    let mut pdu_w = vec![0.0; wiring.pdus];
    let mut sides = vec![false; mean.len()];
    for server in order {
        let [a, b] = wiring.pairs[wiring.pair_of[server]].map(|feed| feed / super::wiring::PHASES);
        sides[server] = pdu_w[b] < pdu_w[a];
        pdu_w[if sides[server] { b } else { a }] += mean[server];
    }
    sides
}

/// Feeds chosen once so that the mean power of each PDU is level, with kinds as far apart as that allows: servers in
/// the order of their numbers, each at the first of its PDUs until that carries its share, then at the other. The source
/// prints that means are level, not which of the many ways to level them it took; this one bounds them from above.
pub fn sides_in_order(wiring: &Wiring, trace: &Trace) -> Sides {
    let mean = trace.means();
    let share = mean.iter().sum::<f64>() / wiring.pdus as f64;
    let mut pdu_w = vec![0.0; wiring.pdus];
    let mut sides = vec![false; mean.len()];
    for (server, watts) in mean.iter().enumerate() {
        let [a, b] = wiring.pairs[wiring.pair_of[server]].map(|feed| feed / super::wiring::PHASES);
        let first = if b < a { (b, true) } else { (a, false) };
        let other = if b < a { (a, false) } else { (b, true) };
        let is_full = pdu_w[first.0] + watts > share && pdu_w[other.0] < pdu_w[first.0];
        let (pdu, side) = if is_full { other } else { first };
        sides[server] = side;
        pdu_w[pdu] += watts;
    }
    sides
}

/// Feeds chosen once, by each server's mean power over the whole trace, so that loads with their reserves are
/// level on every phase: as well as one can without routing, since the mean is known beforehand.
///
/// # Errors
/// As [`least_capacity`].
pub fn unrouted_sides(wiring: &Wiring, trace: &Trace, phase_skew: f64) -> Result<Sides> {
    let mean = trace.means();
    let (division, capacity) = least_capacity(wiring, &pair_power(wiring, &mean), phase_skew)?;
    let limits = Limits::even(capacity, wiring.feeds(), phase_skew);
    Ok(round(wiring, &mean, &division, &limits).sides)
}

/// The least capacity of equal feeds for fixed sides, W: the worst need of any feed in any sample, for every
/// feed.
pub fn unrouted(wiring: &Wiring, sides: &Sides, trace: &Trace) -> f64 {
    let needs = |sample| Loads::of(wiring, sides, &trace.sample(sample)).needs(wiring);
    let most = (0..trace.samples()).map(|sample| needs(sample).into_iter().fold(0.0, f64::max));
    most.fold(0.0, f64::max) * wiring.feeds() as f64
}

/// The least capacity, W, with which the control loop throttles no sample, by bisection to a thousandth from
/// `bound_w` (see [`bound`]) upwards. Islands are taken one by one: where the feeds that the ones before need are
/// enough, one run of the loop shows it. More is not always enough, since whole servers are dealt anew: after a
/// rise all islands are run again, until none needs more.
///
/// # Errors
/// As [`simulate`].
pub fn routed(
    wiring: &Wiring,
    idle_w: &[f64],
    trace: &Trace,
    control: Control,
    phase_skew: f64,
    bound_w: f64,
) -> Result<f64> {
    if wiring.islands.len() < 2 {
        return Loaded { wiring, idle_w, trace, control, phase_skew }.least(bound_w);
    }
    let (mut each_w, mut held) = (bound_w / wiring.feeds() as f64, 0);
    let parts = Part::all(wiring)?;
    for part in parts.iter().cycle() {
        if held == parts.len() {
            break;
        }
        let (idle_w, trace, feeds) = (&part.values(idle_w), &part.trace(trace), part.wiring.feeds() as f64);
        let island = Loaded { wiring: &part.wiring, idle_w, trace, control, phase_skew };
        if island.holds(each_w * feeds)? {
            held += 1;
        } else {
            each_w = island.least(each_w * feeds)? / feeds;
            held = 1;
        }
    }
    Ok(each_w * wiring.feeds() as f64)
}

/// A room under its load.
struct Loaded<'a> {
    wiring: &'a Wiring,
    idle_w: &'a [f64],
    trace: &'a Trace,
    control: Control,
    phase_skew: f64,
}

impl Loaded<'_> {
    /// Whether `capacity_w` throttles nothing.
    fn holds(&self, capacity_w: f64) -> Result<bool> {
        let limits = Limits::even(capacity_w, self.wiring.feeds(), self.phase_skew);
        match simulate(self.wiring, &limits, self.idle_w, self.trace, self.control, true) {
            Ok(seen) => Ok(seen.throttled_samples == 0),
            // Too little even for idle servers is too little.
            Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The least that holds, from `bound_w` upwards.
    fn least(&self, bound_w: f64) -> Result<f64> {
        let (mut low, mut step) = (bound_w * (1.0 - 1e-9), 0.02);
        let mut high = bound_w * (1.0 + step);
        while !self.holds(high)? {
            if step > 1_000.0 {
                return Err(refused(format!(
                    "even {:.0} kW throttle servers: the trace or the wiring is broken",
                    high / 1e3
                )));
            }
            low = high;
            step *= 2.0;
            high = bound_w * (1.0 + step);
        }
        while high - low > 0.001 * bound_w {
            let middle = 0.5 * (low + high);
            if self.holds(middle)? { high = middle } else { low = middle }
        }
        Ok(high)
    }
}
