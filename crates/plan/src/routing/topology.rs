//! Which pairs of PDUs feed the servers at a place of the floor.
//!
//! A zone is a part of the floor whose racks reach the same busses; its pairs are dealt out to servers in
//! turn, and one that stands twice gets twice as many. Islands are copies that share no PDU.

use crate::field::refused;
use std::collections::BTreeSet;
use tierstone_base::Result;

/// How PDUs reach the floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Clusters in a ring, each with its own PDU and the next: the common practice.
    Wrapped,
    /// A checkerboard: one bus from the north and one from the west at each zone.
    CrossRoads,
    /// Busses bend back along a second row, so that four lie beside each row: every PDU is paired with the
    /// two before and the two after it.
    Serpentine,
    /// Every PDU at every rack: a bound, not a thing to build at size.
    Full,
}

impl Kind {
    /// All, from the least to the most connected.
    pub const ALL: [Kind; 4] = [Kind::Wrapped, Kind::CrossRoads, Kind::Serpentine, Kind::Full];

    /// Its name in descriptions.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Wrapped => "wrapped",
            Kind::CrossRoads => "x-y",
            Kind::Serpentine => "serpentine",
            Kind::Full => "full",
        }
    }
}

/// Zones with their pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// For people.
    pub name: String,
    /// PDUs in all.
    pub pdus: usize,
    /// A zone: the pairs of PDUs there, each with the smaller number first.
    pub zones: Vec<Vec<(usize, usize)>>,
}

impl Topology {
    /// `islands` copies of a topology of `pdus` PDUs each.
    ///
    /// # Errors
    /// `InvalidInput`: too few PDUs for the kind, an odd number for x-y, no island, or more than 10,000 PDUs.
    pub fn new(kind: Kind, pdus: usize, islands: usize) -> Result<Topology> {
        let least = match kind {
            Kind::Wrapped => 3,
            Kind::CrossRoads => 4,
            Kind::Serpentine => 5,
            Kind::Full => 2,
        };
        if pdus < least || islands == 0 || pdus.saturating_mul(islands) > 10_000 {
            return Err(refused(format!(
                "`topology`: {} has {pdus} PDUs in each of {islands} islands; it needs at least {least} and one island, at most 10,000 PDUs in all",
                kind.name()
            )));
        }
        if kind == Kind::CrossRoads && pdus % 2 == 1 {
            return Err(refused(format!(
                "`topology.pdus` is {pdus}, but x-y needs an even number: half north, half west"
            )));
        }
        let one = zones(kind, pdus);
        let shifted = |island: usize| {
            let shift = island * pdus;
            one.iter().map(move |zone| zone.iter().map(|&(a, b)| (a + shift, b + shift)).collect())
        };
        let zones = (0..islands).flat_map(shifted).collect();
        let name = match islands {
            1 => kind.name().to_owned(),
            more => format!("{more} islands, {}", kind.name()),
        };
        Ok(Topology { name, pdus: pdus * islands, zones })
    }

    /// A topology of one's own.
    ///
    /// # Errors
    /// `InvalidInput`: no zone, a zone without pairs, a pair of one PDU with itself, a number that is no
    /// PDU, or a PDU that no zone uses.
    pub fn custom(pdus: usize, zones: &[Vec<(usize, usize)>]) -> Result<Topology> {
        let mut used = BTreeSet::new();
        let mut ordered = Vec::new();
        for (number, zone) in zones.iter().enumerate() {
            if zone.is_empty() {
                return Err(refused(format!("`topology.zones`: zone {number} has no pair of PDUs")));
            }
            for &(a, b) in zone {
                if a == b || a >= pdus || b >= pdus {
                    return Err(refused(format!(
                        "`topology.zones`: zone {number} pairs PDU {a} with {b}; a pair is two different ones of 0 to {}",
                        pdus.saturating_sub(1)
                    )));
                }
                used.extend([a, b]);
            }
            ordered.push(zone.iter().map(|&(a, b)| (a.min(b), a.max(b))).collect());
        }
        if let Some(unused) = (0..pdus.min(10_001)).find(|pdu| !used.contains(pdu)) {
            return Err(refused(format!("`topology.zones`: PDU {unused} of {pdus} feeds no zone")));
        }
        Ok(Topology { name: "custom".to_owned(), pdus, zones: ordered })
    }

    /// How many PDUs take over the load of the PDU for which they are fewest.
    pub fn connectivity(&self) -> usize {
        let mut others = vec![BTreeSet::new(); self.pdus];
        for &(a, b) in self.zones.iter().flatten() {
            others[a].insert(b);
            others[b].insert(a);
        }
        others.iter().map(BTreeSet::len).min().unwrap_or(0)
    }

    /// The least capacity, over the load, with which every PDU may fail if all is balanced: (c + 1) / c.
    pub fn reserve_factor(&self) -> f64 {
        let connectivity = self.connectivity().max(1) as f64;
        (connectivity + 1.0) / connectivity
    }
}

fn zones(kind: Kind, pdus: usize) -> Vec<Vec<(usize, usize)>> {
    let pair = |a: usize, b: usize| {
        let (a, b) = (a % pdus, b % pdus);
        (a.min(b), a.max(b))
    };
    match kind {
        Kind::Wrapped => (0..pdus).map(|zone| vec![pair(zone, zone + 1)]).collect(),
        Kind::CrossRoads => {
            let half = pdus / 2;
            (0..half * half).map(|zone| vec![(zone / half, half + zone % half)]).collect()
        }
        // Of the four busses at a row the inner two are a pair; the outer ones are paired with those one
        // further in. The inner pair comes twice, so that neighbours and next neighbours share alike.
        Kind::Serpentine => (0..pdus)
            .map(|row| {
                let inner = pair(row + 1, row + 2);
                vec![inner, pair(row, row + 2), inner, pair(row + 1, row + 3)]
            })
            .collect(),
        Kind::Full => {
            let all = (0..pdus).flat_map(|a| (a + 1..pdus).map(move |b| (a, b)));
            vec![all.collect()]
        }
    }
}
