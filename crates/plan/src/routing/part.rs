//! Islands as rooms of their own. They share no PDU, so what they need and what they meet is found one by one:
//! a room of 100,000 servers is a hundred of 1,000, and a short feed moves only the servers of its island.

use super::schedule::Limits;
use super::trace::Trace;
use super::wiring::{PHASES, Wiring};
use tierstone_base::Result;

/// One island of a room.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its cords; PDUs are numbered from 0.
    pub wiring: Wiring,
    /// The room's PDUs, in the order of their numbers here.
    pub pdus: Vec<usize>,
    /// The room's servers, likewise.
    pub servers: Vec<usize>,
}

impl Part {
    /// The islands of a room. Cost: servers × logarithm of an island's PDUs.
    ///
    /// # Errors
    /// As [`Wiring::new`].
    pub fn all(room: &Wiring) -> Result<Vec<Part>> {
        let mut island_of = vec![0; room.pairs.len()];
        for (number, island) in room.islands.iter().enumerate() {
            for &pair in &island.pairs {
                island_of[pair] = number;
            }
        }
        let mut servers = vec![Vec::new(); room.islands.len()];
        for (server, &pair) in room.pair_of.iter().enumerate() {
            servers[island_of[pair]].push(server);
        }
        let part = |(island, servers): (&super::wiring::Island, Vec<usize>)| {
            let local = |feed: usize| {
                let pdu = island.pdus.binary_search(&(feed / PHASES)).unwrap_or_default();
                pdu * PHASES + feed % PHASES
            };
            let feeds: Vec<[usize; 2]> =
                servers.iter().map(|&server| room.pairs[room.pair_of[server]].map(local)).collect();
            let wiring = Wiring::new(island.pdus.len(), &feeds)?;
            Ok(Part { wiring, pdus: island.pdus.clone(), servers })
        };
        room.islands.iter().zip(servers).map(part).collect()
    }

    /// What its servers have of `of`, which has a value for each server of the room.
    pub fn values(&self, of: &[f64]) -> Vec<f64> {
        self.servers.iter().map(|&server| of[server]).collect()
    }

    /// The trace of its servers.
    pub fn trace(&self, room: &Trace) -> Trace {
        room.of(&self.servers)
    }

    /// Its feeds' limits.
    pub fn limits(&self, room: &Limits) -> Limits {
        let of = |pdu: &usize| (pdu * PHASES..(pdu + 1) * PHASES).map(|feed| room.feed_w[feed]);
        Limits { feed_w: self.pdus.iter().flat_map(of).collect(), phase_skew: room.phase_skew }
    }

    /// Its name for refusals, which number PDUs from 0 in it.
    pub fn told(&self) -> String {
        let first = self.pdus.first().copied().unwrap_or_default();
        format!("in the island from PDU {first}, counted from there")
    }
}
