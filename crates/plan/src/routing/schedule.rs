//! Scheduling: on which of its two feeds each server runs.
//!
//! A linear program over pairs of feeds divides each pair's power so that the feed with the least spare has
//! as much as possible, with any one PDU failing; then whole servers are dealt to the sides.
//!
//! The printed constraint B.2 has a slip of an index (x_ij stands inside the sum over l; it must be x_il),
//! and the text calls Slack the "maximum unallocated" power; it is the least spare of any feed, made as
//! large as possible. Both are built in the repaired form. Same-PDU pairs do not exist here, and
//! x_ij^j is written as Power_ij - x_ij^i, so that a pair is one variable.

use super::program::{Outcome, Program};
use super::wiring::{Island, PHASES, Wiring};
use crate::field::refused;
use tierstone_base::{Error, Result};

/// What each feed may carry and how evenly.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Capacity of each feed, W, less what cannot be controlled.
    pub feed_w: Vec<f64>,
    /// The most that two phases of a PDU may differ by, as a part of a phase's capacity (B.3).
    pub phase_skew: f64,
}

impl Limits {
    /// A total divided evenly.
    pub fn even(total_w: f64, feeds: usize, phase_skew: f64) -> Limits {
        Limits { feed_w: vec![total_w / feeds as f64; feeds], phase_skew }
    }
}

/// Power of each pair on its first feed, W, and how much the least spare feed spares.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// For each pair.
    pub first_w: Vec<f64>,
    /// The least spare, W; below zero even fractions of servers need caps.
    pub slack_w: f64,
}

/// Power of each pair: the sum of its servers.
pub fn pair_power(wiring: &Wiring, demand_w: &[f64]) -> Vec<f64> {
    let mut power = vec![0.0; wiring.pairs.len()];
    for (&pair, &watts) in wiring.pair_of.iter().zip(demand_w) {
        power[pair] += watts;
    }
    power
}

/// Linear forms over the pairs' first shares: constant and terms.
#[derive(Clone, Default)]
struct Form {
    constant: f64,
    terms: Vec<(usize, f64)>,
}

impl Form {
    fn first(&mut self, pair: usize) {
        self.terms.push((pair, 1.0));
    }

    fn second(&mut self, pair: usize, power: f64) {
        self.terms.push((pair, -1.0));
        self.constant += power;
    }
}

/// Load of each feed, and what each takeover adds, over the pairs' first shares.
fn forms(wiring: &Wiring, power: &[f64]) -> (Vec<Form>, Vec<Form>) {
    let mut loads = vec![Form::default(); wiring.feeds()];
    let mut taken = vec![Form::default(); wiring.takeovers.len()];
    for (pair, &[a, b]) in wiring.pairs.iter().enumerate() {
        let [to_a, to_b] = wiring.takeover_of[pair];
        loads[a].first(pair);
        loads[b].second(pair, power[pair]);
        taken[to_a].second(pair, power[pair]);
        taken[to_b].first(pair);
    }
    (loads, taken)
}

/// What the last variable of the program is.
enum Goal<'a> {
    /// The least spare beside these capacities.
    Spare(&'a Limits),
    /// The capacity of every feed.
    Capacity(f64),
    /// The least part of a phase's capacity by which phases differ.
    Skew(&'a Limits),
}

/// Solves an island: the first shares of its pairs, and the last variable.
fn solve(
    wiring: &Wiring,
    island: &Island,
    power: &[f64],
    forms: &(Vec<Form>, Vec<Form>),
    goal: &Goal,
) -> Result<(Vec<f64>, f64)> {
    let (loads, taken) = forms;
    let sum: f64 = island.pairs.iter().map(|&pair| power[pair]).sum();
    let scale = sum.max(1.0) / (island.pdus.len() * PHASES) as f64;
    let mut program = Program::default();
    for &pair in &island.pairs {
        program.variable(0.0, 0.0, power[pair] / scale);
    }
    let last = match goal {
        Goal::Spare(_) => program.variable(-1.0, f64::NEG_INFINITY, f64::INFINITY),
        Goal::Capacity(_) | Goal::Skew(_) => program.variable(1.0, 0.0, f64::INFINITY),
    };
    // Pairs of an island rise, so a pair's variable is its place.
    let variable = |pair: usize| island.pairs.binary_search(&pair).unwrap_or_default();
    let terms = |form: &Form, sign: f64| -> Vec<(usize, f64)> {
        form.terms.iter().map(|&(pair, factor)| (variable(pair), sign * factor)).collect()
    };
    for &takeover in &island.takeovers {
        let feed = wiring.takeovers[takeover].0;
        let (load, taken) = (&loads[feed], &taken[takeover]);
        let mut row = terms(load, 1.0);
        row.extend(terms(taken, 1.0));
        let constant = (load.constant + taken.constant) / scale;
        match goal {
            Goal::Spare(limits) => {
                row.push((last, 1.0));
                program.at_most(row, limits.feed_w[feed] / scale - constant);
            }
            Goal::Capacity(_) => {
                row.push((last, -1.0));
                program.at_most(row, -constant);
            }
            Goal::Skew(_) => {}
        }
    }
    for a in island.pdus.iter().flat_map(|pdu| pdu * PHASES..(pdu + 1) * PHASES) {
        for b in (a / PHASES * PHASES..(a / PHASES + 1) * PHASES).filter(|&b| b != a) {
            let mut row = terms(&loads[a], 1.0);
            row.extend(terms(&loads[b], -1.0));
            let constant = (loads[a].constant - loads[b].constant) / scale;
            match goal {
                Goal::Spare(limits) => {
                    let phase = limits.feed_w[a].min(limits.feed_w[b]) / scale;
                    program.at_most(row, limits.phase_skew * phase - constant);
                }
                Goal::Capacity(skew) => {
                    row.push((last, -skew));
                    program.at_most(row, -constant);
                }
                Goal::Skew(limits) => {
                    row.push((last, -limits.feed_w[a].min(limits.feed_w[b]) / scale));
                    program.at_most(row, -constant);
                }
            }
        }
    }
    match program.solve()? {
        Outcome::Best(mut best) => {
            let last = best.pop().unwrap_or_default() * scale;
            Ok((best.into_iter().map(|share| share * scale).collect(), last))
        }
        Outcome::None(_) => Err(uneven(wiring, island, power, forms, goal)?),
    }
}

/// The refusal of a load whose phases cannot be kept even: how even they can be.
fn uneven(
    wiring: &Wiring,
    island: &Island,
    power: &[f64],
    forms: &(Vec<Form>, Vec<Form>),
    goal: &Goal,
) -> Result<Error> {
    let Goal::Spare(limits) = goal else {
        return Ok(refused("the program of the least capacity has no answer"));
    };
    let (_, scaled) = solve(wiring, island, power, forms, &Goal::Skew(limits))?;
    let sum: f64 = island.pairs.iter().map(|&pair| power[pair]).sum();
    let least = scaled / (sum.max(1.0) / (island.pdus.len() * PHASES) as f64);
    Ok(refused(format!(
        "however the load is divided, the phases of some PDU of {} to {} differ by {:.1} % of a phase's capacity, and \
         `phase_skew_percent` allows {:.1}: spread the servers of each pair of PDUs over the phases, or allow more",
        island.pdus.first().copied().unwrap_or_default(),
        island.pdus.last().copied().unwrap_or_default(),
        100.0 * least,
        100.0 * limits.phase_skew
    )))
}

/// Solves every island and puts the shares together; gives the last variable of each.
fn solve_all(wiring: &Wiring, power: &[f64], goal: &Goal) -> Result<(Vec<f64>, Vec<f64>)> {
    let forms = forms(wiring, power);
    let (mut first_w, mut lasts) = (vec![0.0; wiring.pairs.len()], Vec::new());
    for island in &wiring.islands {
        let (shares, last) = solve(wiring, island, power, &forms, goal)?;
        for (&pair, share) in island.pairs.iter().zip(shares) {
            first_w[pair] = share;
        }
        lasts.push(last);
    }
    Ok((first_w, lasts))
}

/// The division of every pair's power that leaves most spare on the tightest feed. Cost: for each
/// island a linear program with a variable a pair of its feeds; islands are exact, since they share nothing.
///
/// # Errors
/// `InvalidInput`: phases cannot be kept even. `Unsupported`: the solver gave up.
pub fn split(wiring: &Wiring, power: &[f64], limits: &Limits) -> Result<Split> {
    let (first_w, spares) = solve_all(wiring, power, &Goal::Spare(limits))?;
    Ok(Split { first_w, slack_w: spares.into_iter().fold(f64::INFINITY, f64::min) })
}

/// The least capacity of all equal feeds together with which fractions of servers could be divided, W: a bound
/// for every schedule of this wiring.
///
/// # Errors
/// As [`split`].
pub fn least_capacity(wiring: &Wiring, power: &[f64], phase_skew: f64) -> Result<(Split, f64)> {
    let (first_w, capacities) = solve_all(wiring, power, &Goal::Capacity(phase_skew))?;
    let capacity = capacities.into_iter().fold(0.0, f64::max);
    Ok((Split { first_w, slack_w: 0.0 }, capacity * wiring.feeds() as f64))
}

/// On which side each server runs: `false` the pair's first feed, `true` its second.
pub type Sides = Vec<bool>;

/// What feeds carry, with and without a failure.
#[derive(Clone, Debug, PartialEq)]
pub struct Loads {
    /// Load of each feed, W.
    pub feed_w: Vec<f64>,
    /// What each takeover adds, W.
    pub taken_w: Vec<f64>,
}

impl Loads {
    /// Of nothing.
    pub fn none(wiring: &Wiring) -> Loads {
        Loads { feed_w: vec![0.0; wiring.feeds()], taken_w: vec![0.0; wiring.takeovers.len()] }
    }

    /// Of `watts` a server on `sides`.
    pub fn of(wiring: &Wiring, sides: &Sides, watts: &[f64]) -> Loads {
        let mut loads = Loads::none(wiring);
        for (server, &watts) in watts.iter().enumerate() {
            loads.add(wiring, wiring.pair_of[server], sides[server], watts);
        }
        loads
    }

    /// Adds power of a pair to a side.
    pub fn add(&mut self, wiring: &Wiring, pair: usize, side: bool, watts: f64) {
        let [a, b] = wiring.pairs[pair];
        let [to_a, to_b] = wiring.takeover_of[pair];
        let (active, takeover) = if side { (b, to_a) } else { (a, to_b) };
        self.feed_w[active] += watts;
        self.taken_w[takeover] += watts;
    }

    /// For each feed its load and the worst takeover, W.
    pub fn needs(&self, wiring: &Wiring) -> Vec<f64> {
        let mut worst = vec![0.0f64; self.feed_w.len()];
        for (&(feed, _), &taken) in wiring.takeovers.iter().zip(&self.taken_w) {
            worst[feed] = worst[feed].max(taken);
        }
        worst.iter().zip(&self.feed_w).map(|(taken, load)| taken + load).collect()
    }
}

/// Whole servers for a division, and how many were left over by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rounded {
    /// The side of each server.
    pub sides: Sides,
    /// For each pair: servers that fitted on no side (never above one).
    pub pending: Vec<u32>,
}

/// Deals whole servers to sides: within each pair the heaviest first, to the side that has less of its share
/// so far and can still take it; what fits on none goes, at the end, where more capacity remains.
///
/// Both rooms of a pair together are the power of its servers that are left; so when one fits on no side,
/// what remains after it fits on either: at most one a pair is left over.
pub fn round(wiring: &Wiring, demand_w: &[f64], split: &Split, limits: &Limits) -> Rounded {
    let power = pair_power(wiring, demand_w);
    let mut sides = vec![false; demand_w.len()];
    let mut pending = vec![0; wiring.pairs.len()];
    let mut left = Vec::new();
    let mut loads = Loads::none(wiring);
    for (pair, servers) in wiring.servers_of.iter().enumerate() {
        let mut order = servers.clone();
        order.sort_by(|&a, &b| demand_w[b].total_cmp(&demand_w[a]));
        let shares = [split.first_w[pair], power[pair] - split.first_w[pair]];
        // Sums in another order differ in the last bits.
        let room = |used: f64, side: usize, watts: f64| used + watts <= shares[side] + 1e-9 * power[pair];
        let mut used = [0.0; 2];
        for server in order {
            let watts = demand_w[server];
            let part = |side: usize| used[side] / shares[side].max(f64::MIN_POSITIVE);
            let emptier = usize::from(part(1) < part(0));
            let side = [emptier, 1 - emptier].into_iter().find(|&side| room(used[side], side, watts));
            let Some(side) = side else {
                pending[pair] += 1;
                left.push(server);
                continue;
            };
            used[side] += watts;
            sides[server] = side == 1;
            loads.add(wiring, pair, side == 1, watts);
        }
    }
    left.sort_by(|&a, &b| demand_w[b].total_cmp(&demand_w[a]));
    place_pending(wiring, demand_w, limits, &left, &mut loads, &mut sides);
    Rounded { sides, pending }
}

/// Puts each of `left` where the tighter of its two feeds keeps more.
fn place_pending(
    wiring: &Wiring,
    demand_w: &[f64],
    limits: &Limits,
    left: &[usize],
    loads: &mut Loads,
    sides: &mut Sides,
) {
    let mut needs = loads.needs(wiring);
    for &server in left {
        let (pair, watts) = (wiring.pair_of[server], demand_w[server]);
        let [a, b] = wiring.pairs[pair];
        let [to_a, to_b] = wiring.takeover_of[pair];
        let after = |active: usize, other: usize, takeover: usize| {
            let spare = limits.feed_w[active] - needs[active] - watts;
            let taken = loads.feed_w[other] + loads.taken_w[takeover] + watts;
            spare.min(limits.feed_w[other] - needs[other].max(taken))
        };
        let side = after(b, a, to_a) > after(a, b, to_b);
        let (active, other, takeover) = if side { (b, a, to_a) } else { (a, b, to_b) };
        loads.add(wiring, pair, side, watts);
        needs[active] += watts;
        needs[other] = needs[other].max(loads.feed_w[other] + loads.taken_w[takeover]);
        sides[server] = side;
    }
}
