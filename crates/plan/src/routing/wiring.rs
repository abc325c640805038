//! Placement: servers into racks, racks into zones, the two cords of each server into feeds.
//!
//! A feed is one phase of one PDU: feed `3 p + f` is phase f of PDU p. Servers of one kind share racks; racks
//! come to zones so that all have about the same peak power; within a zone pairs of PDUs go
//! to racks (or to servers), and phases to the servers of a pair, in turn, so that each combination gets as
//! many servers as any other.

use super::topology::Topology;
use crate::field::refused;
use std::collections::BTreeMap;
use tierstone_base::Result;

/// Phases of a PDU.
pub const PHASES: usize = 3;

/// The servers' cords, and what follows from them for every schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wiring {
    /// PDUs.
    pub pdus: usize,
    /// Every pair of feeds that some server hangs on, the smaller first.
    pub pairs: Vec<[usize; 2]>,
    /// The pair of each server.
    pub pair_of: Vec<usize>,
    /// The servers of each pair.
    pub servers_of: Vec<Vec<usize>>,
    /// Every (feed, other PDU) where the feed takes servers over when the PDU fails, sorted.
    pub takeovers: Vec<(usize, usize)>,
    /// For each pair: where the first feed takes over from the second's PDU, and the other way round.
    pub takeover_of: Vec<[usize; 2]>,
    /// Parts that share no PDU: each is scheduled by a program of its own.
    pub islands: Vec<Island>,
}

/// A part of the room that shares no PDU with the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Island {
    /// Its PDUs.
    pub pdus: Vec<usize>,
    /// Its pairs of feeds.
    pub pairs: Vec<usize>,
    /// Its takeovers.
    pub takeovers: Vec<usize>,
}

/// The islands of a room, in the order of their first PDU.
fn islands(pdus: usize, pairs: &[[usize; 2]], takeovers: &[(usize, usize)]) -> Vec<Island> {
    // Each PDU points to one of smaller number in its island; the smallest points to itself.
    let mut first: Vec<usize> = (0..pdus).collect();
    let root = |first: &mut Vec<usize>, mut pdu: usize| {
        while first[pdu] != pdu {
            first[pdu] = first[first[pdu]];
            pdu = first[pdu];
        }
        pdu
    };
    for &[a, b] in pairs {
        let (a, b) = (root(&mut first, a / PHASES), root(&mut first, b / PHASES));
        first[a.max(b)] = a.min(b);
    }
    let mut islands: BTreeMap<usize, Island> = BTreeMap::new();
    for pdu in 0..pdus {
        islands.entry(root(&mut first, pdu)).or_default().pdus.push(pdu);
    }
    for (pair, &[a, _]) in pairs.iter().enumerate() {
        islands.entry(root(&mut first, a / PHASES)).or_default().pairs.push(pair);
    }
    for (takeover, &(feed, _)) in takeovers.iter().enumerate() {
        islands.entry(root(&mut first, feed / PHASES)).or_default().takeovers.push(takeover);
    }
    // A PDU without servers has nothing to schedule.
    islands.into_values().filter(|island| !island.pairs.is_empty()).collect()
}

impl Wiring {
    /// The wiring of servers whose feeds are given.
    ///
    /// # Errors
    /// `InvalidInput`: both cords of a server at one PDU, or a feed that is none.
    pub fn new(pdus: usize, feeds: &[[usize; 2]]) -> Result<Wiring> {
        let mut numbers: BTreeMap<[usize; 2], usize> = BTreeMap::new();
        let mut takeovers = Vec::new();
        for (server, &[a, b]) in feeds.iter().enumerate() {
            if a / PHASES == b / PHASES || a.max(b) >= pdus * PHASES {
                return Err(refused(format!(
                    "server {server} hangs on feeds {a} and {b}; they must belong to two of the {pdus} PDUs"
                )));
            }
            numbers.insert([a.min(b), a.max(b)], 0);
        }
        let pairs: Vec<[usize; 2]> = numbers.keys().copied().collect();
        for (number, place) in numbers.values_mut().enumerate() {
            *place = number;
        }
        for &[a, b] in &pairs {
            takeovers.extend([(a, b / PHASES), (b, a / PHASES)]);
        }
        takeovers.sort_unstable();
        takeovers.dedup();
        let place = |of: (usize, usize)| takeovers.binary_search(&of).unwrap_or_default();
        let takeover_of =
            pairs.iter().map(|&[a, b]| [place((a, b / PHASES)), place((b, a / PHASES))]).collect();
        let pair_of: Vec<usize> = feeds
            .iter()
            .map(|&[a, b]| numbers.get(&[a.min(b), a.max(b)]).copied().unwrap_or_default())
            .collect();
        let mut servers_of = vec![Vec::new(); pairs.len()];
        for (server, &pair) in pair_of.iter().enumerate() {
            servers_of[pair].push(server);
        }
        let islands = islands(pdus, &pairs, &takeovers);
        Ok(Wiring { pdus, pairs, pair_of, servers_of, takeovers, takeover_of, islands })
    }

    /// Feeds.
    pub fn feeds(&self) -> usize {
        self.pdus * PHASES
    }

    /// A feed's name for people.
    pub fn feed_name(feed: usize) -> String {
        format!("PDU {} phase {}", feed / PHASES, ["A", "B", "C"][feed % PHASES])
    }
}

/// One kind of servers to be placed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kind {
    /// How many.
    pub servers: usize,
    /// Power of one at full load, W.
    pub peak_w: f64,
}

struct Rack {
    first: usize,
    servers: usize,
    peak_w: f64,
}

/// What hangs on one pair of PDUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cords {
    /// A rack: two strips of sockets, one from each PDU.
    Rack,
    /// A server: strips of every PDU that the zone reaches.
    Server,
}

/// How servers are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Servers of a full rack.
    pub servers_per_rack: usize,
    /// What hangs on one pair.
    pub cords: Cords,
    /// In which order racks come to zones.
    pub racks: Racks,
}

/// In which order racks come to zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Racks {
    /// Kind after kind, each zone up to its share of the peak power: kinds stand together.
    Grouped,
    /// The heaviest first, each to the lightest zone: kinds are mixed.
    Spread,
}

/// Places servers, numbered through in the order of `kinds`. Cost: servers × combinations of a zone.
///
/// # Errors
/// `InvalidInput`: no server, or racks of none.
pub fn place(topology: &Topology, kinds: &[Kind], placement: Placement) -> Result<Wiring> {
    let size = placement.servers_per_rack;
    if size == 0 || kinds.iter().all(|kind| kind.servers == 0) {
        return Err(refused("there is no server to place, or `servers_per_rack` is 0"));
    }
    let mut racks = Vec::new();
    let mut first = 0;
    for kind in kinds {
        let end = first + kind.servers;
        while first < end {
            let servers = size.min(end - first);
            racks.push(Rack { first, servers, peak_w: kind.peak_w * servers as f64 });
            first += servers;
        }
    }
    if placement.racks == Racks::Spread {
        // Stable: racks of one power keep the order of their kinds.
        racks.sort_by(|a, b| b.peak_w.total_cmp(&a.peak_w));
    }
    let share_w = racks.iter().map(|rack| rack.peak_w).sum::<f64>() / topology.zones.len().max(1) as f64;
    let mut placed_w = 0.0;
    let mut zones: Vec<Zone> = topology.zones.iter().map(|pairs| Zone::new(pairs)).collect();
    let mut pdu_w = vec![0.0; topology.pdus];
    let mut feeds = vec![[0, 0]; first];
    for rack in &racks {
        let zone = match placement.racks {
            // The zone in whose share the middle of the rack falls.
            Racks::Grouped => zones.get_mut(((placed_w + 0.5 * rack.peak_w) / share_w) as usize),
            Racks::Spread => zones.iter_mut().min_by(|a, b| a.peak_w.total_cmp(&b.peak_w)),
        };
        let Some(zone) = zone else { return Err(refused("`topology` has no zone")) };
        placed_w += rack.peak_w;
        zone.peak_w += rack.peak_w;
        let each = rack.peak_w / rack.servers as f64;
        let mut slot = zone.lightest(&pdu_w);
        for (number, feeds) in feeds[rack.first..rack.first + rack.servers].iter_mut().enumerate() {
            if number > 0 && placement.cords == Cords::Server {
                slot = zone.lightest(&pdu_w);
            }
            let slot = &mut zone.slots[slot];
            *feeds = slot.deal(each);
            pdu_w[slot.pdus.0] += 0.5 * each;
            pdu_w[slot.pdus.1] += 0.5 * each;
        }
    }
    Wiring::new(topology.pdus, &feeds)
}

/// What a zone was given so far.
struct Zone {
    peak_w: f64,
    slots: Vec<Slot>,
}

/// One pair of PDUs of a zone.
struct Slot {
    pdus: (usize, usize),
    servers: usize,
    peak_w: f64,
}

impl Zone {
    fn new(pairs: &[(usize, usize)]) -> Zone {
        let slots = pairs.iter().map(|&pdus| Slot { pdus, servers: 0, peak_w: 0.0 }).collect();
        Zone { peak_w: 0.0, slots }
    }

    /// The slot with the fewest servers; among those the one whose PDUs carry least.
    fn lightest(&self, pdu_w: &[f64]) -> usize {
        let weight = |slot: &Slot| pdu_w[slot.pdus.0] + pdu_w[slot.pdus.1];
        let order = |a: &&Slot, b: &&Slot| {
            a.servers
                .cmp(&b.servers)
                .then(a.peak_w.total_cmp(&b.peak_w))
                .then(weight(a).total_cmp(&weight(b)))
        };
        let lightest = self.slots.iter().enumerate().min_by(|(_, a), (_, b)| order(a, b));
        lightest.map_or(0, |(slot, _)| slot)
    }
}

impl Slot {
    /// The next server's feeds: phases in turn, the same one at both PDUs. So a pair of feeds has three times
    /// the servers that it would have with all combinations, and whole servers divide it more finely.
    fn deal(&mut self, peak_w: f64) -> [usize; 2] {
        let phase = self.servers % PHASES;
        self.servers += 1;
        self.peak_w += peak_w;
        [self.pdus.0 * PHASES + phase, self.pdus.1 * PHASES + phase]
    }
}
