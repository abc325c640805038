//! The check that any one PDU may fail, by going through all of them server by server.

use super::schedule::Sides;
use super::wiring::{PHASES, Wiring};

/// A feed that would carry too much.
#[derive(Clone, Debug, PartialEq)]
pub struct Overload {
    /// The PDU that failed; none if all work.
    pub failed: Option<usize>,
    /// The feed.
    pub feed: usize,
    /// What it would carry, W.
    pub load_w: f64,
    /// What it may carry, W.
    pub capacity_w: f64,
}

impl Overload {
    /// By how much, W.
    pub fn excess_w(&self) -> f64 {
        self.load_w - self.capacity_w
    }

    /// In words.
    pub fn told(&self) -> String {
        let when = match self.failed {
            Some(pdu) => format!("when PDU {pdu} fails"),
            None => "with all PDUs working".to_owned(),
        };
        format!(
            "{} is short by {:.0} W {when}: it would carry {:.0} W and may carry {:.0} W",
            Wiring::feed_name(self.feed),
            self.excess_w(),
            self.load_w,
            self.capacity_w
        )
    }
}

/// Every feed that `watts` a server on `sides` overload, for no failure and for each PDU failing; the worst
/// first. Cost: servers × PDUs.
pub fn overloads(wiring: &Wiring, sides: &Sides, watts: &[f64], feed_w: &[f64]) -> Vec<Overload> {
    let mut found = Vec::new();
    let failures = std::iter::once(None).chain((0..wiring.pdus).map(Some));
    for failed in failures {
        let mut loads = vec![0.0; wiring.feeds()];
        for (server, &watts) in watts.iter().enumerate() {
            let [a, b] = wiring.pairs[wiring.pair_of[server]];
            let (active, other) = if sides[server] { (b, a) } else { (a, b) };
            let feed = if failed == Some(active / PHASES) { other } else { active };
            loads[feed] += watts;
        }
        for (feed, (&load_w, &capacity_w)) in loads.iter().zip(feed_w).enumerate() {
            // A program's answer keeps its rows within about 1e-8 of them.
            if load_w > capacity_w + 1e-6 * capacity_w.abs().max(1.0) && failed != Some(feed / PHASES) {
                found.push(Overload { failed, feed, load_w, capacity_w });
            }
        }
    }
    found.sort_by(|a, b| b.excess_w().total_cmp(&a.excess_w()));
    found
}
