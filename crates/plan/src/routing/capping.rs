//! Capping: when a schedule overloads a feed, servers are held below what they ask for, so that as much as
//! possible is granted in all.
//!
//! The limits see only how much runs on each (active feed, other feed); so servers with the same two are one
//! variable, and the division within them is free: each gets the same part of the way from idle to its
//! request. The answer is as good as with a variable a server.

use super::program::{Outcome, Program};
use super::safety;
use super::schedule::Sides;
use super::wiring::Wiring;
use crate::field::refused;
use std::collections::BTreeMap;
use tierstone_base::Result;

/// The cap of each server, W, from `idle_w` to `request_w`, with the greatest sum for which no feed is
/// overloaded if any one PDU fails.
///
/// # Errors
/// `InvalidInput`: a feed is overloaded even with every server idle; the message names the feed that is
/// short and by how much. `Unsupported`: the solver gave up.
pub fn caps(
    wiring: &Wiring,
    sides: &Sides,
    idle_w: &[f64],
    request_w: &[f64],
    feed_w: &[f64],
) -> Result<Vec<f64>> {
    // A request below idle is a server that draws less than was said; it is granted.
    let floor: Vec<f64> = idle_w.iter().zip(request_w).map(|(idle, request)| idle.min(*request)).collect();
    if let Some(worst) = safety::overloads(wiring, sides, &floor, feed_w).first() {
        return Err(refused(format!("even with every server idle, {}", worst.told())));
    }
    let mut groups: BTreeMap<(usize, bool), (usize, f64, f64)> = BTreeMap::new();
    let mut program = Program::default();
    let scale = request_w.iter().sum::<f64>().max(1.0) / wiring.feeds() as f64;
    for (server, &side) in sides.iter().enumerate() {
        let group = groups.entry((wiring.pair_of[server], side)).or_default();
        group.1 += floor[server];
        group.2 += request_w[server];
    }
    for group in groups.values_mut() {
        group.0 = program.variable(-1.0, group.1 / scale, group.2 / scale);
    }
    let mut loads = vec![Vec::new(); wiring.feeds()];
    let mut taken = vec![Vec::new(); wiring.takeovers.len()];
    for (&(pair, side), &(variable, _, _)) in &groups {
        let [a, b] = wiring.pairs[pair];
        let [to_a, to_b] = wiring.takeover_of[pair];
        loads[if side { b } else { a }].push((variable, 1.0));
        taken[if side { to_a } else { to_b }].push((variable, 1.0));
    }
    for (&(feed, _), taken) in wiring.takeovers.iter().zip(taken) {
        let terms = loads[feed].iter().chain(&taken).copied().collect();
        program.at_most(terms, feed_w[feed] / scale);
    }
    let Outcome::Best(best) = program.solve()? else {
        return Err(refused("no caps from idle to request keep every feed within its capacity"));
    };
    let part = |server: usize| {
        let (variable, floor, request) = groups[&(wiring.pair_of[server], sides[server])];
        if request > floor {
            ((best[variable] * scale - floor) / (request - floor)).clamp(0.0, 1.0)
        } else {
            1.0
        }
    };
    let cap = |server: usize| floor[server] + (request_w[server] - floor[server]) * part(server);
    Ok((0..sides.len()).map(cap).collect())
}
