//! Rooms measured against each other: what each topology needs, with and without routing.

use super::capacity::{bound, routed, sides_by_means, sides_in_order, unrouted, unrouted_sides};
use super::control::Control;
use super::describe::{Description, idle_w, kind, kinds};
use super::synthetic::Class;
use super::topology::{Kind, Topology};
use super::trace::Trace;
use super::wiring::{Wiring, place};
use tierstone_base::Result;

/// What a room needs so that nothing is throttled, W.
#[derive(Clone, Debug, PartialEq)]
pub struct Needs {
    /// The topology's name.
    pub topology: String,
    /// PDUs.
    pub pdus: usize,
    /// PDUs that take over for one.
    pub connectivity: usize,
    /// The greatest total times (c + 1) / c: perfectly balanced.
    pub balanced_w: f64,
    /// The bound of the linear program for this wiring.
    pub bound_w: f64,
    /// With feeds chosen once, by known means, reserves level too.
    pub unrouted_w: f64,
    /// With feeds chosen once, by known means of PDUs alone, as the source says.
    pub by_means_w: f64,
    /// The same, kinds as far apart as level means allow.
    pub in_order_w: f64,
    /// With power routing.
    pub routed_w: f64,
}

impl Needs {
    /// The same for feeds of which loads draw `watts` in all that cannot be controlled.
    #[must_use]
    pub fn beside(mut self, watts: f64) -> Needs {
        for need in [
            &mut self.balanced_w,
            &mut self.bound_w,
            &mut self.unrouted_w,
            &mut self.by_means_w,
            &mut self.in_order_w,
            &mut self.routed_w,
        ] {
            *need += watts;
        }
        self
    }

    /// What routing saves in the same topology, as a part.
    pub fn saved(&self) -> f64 {
        1.0 - self.routed_w / self.unrouted_w
    }
}

/// A room with its trace.
#[derive(Clone, Debug)]
pub struct Room {
    /// Where servers hang.
    pub topology: Topology,
    /// Their cords.
    pub wiring: Wiring,
    /// Their idle power, W.
    pub idle_w: Vec<f64>,
}

impl Room {
    /// Places the classes.
    ///
    /// # Errors
    /// As [`place`].
    pub fn new(topology: Topology, classes: &[Class], description: &Description) -> Result<Room> {
        let wiring = place(&topology, &kinds(classes), description.floor())?;
        Ok(Room { topology, wiring, idle_w: idle_w(classes) })
    }

    /// What the room needs for a trace. Cost: programs for the samples near the greatest total, and about
    /// ten runs of the control loop.
    ///
    /// # Errors
    /// As [`bound`] and [`routed`].
    pub fn needs(&self, trace: &Trace, control: Control, phase_skew: f64) -> Result<Needs> {
        let (_, most, _) = trace.summary();
        let bound_w = bound(&self.wiring, trace, phase_skew)?;
        let sides = unrouted_sides(&self.wiring, trace, phase_skew)?;
        Ok(Needs {
            topology: self.topology.name.clone(),
            pdus: self.topology.pdus,
            connectivity: self.topology.connectivity(),
            balanced_w: self.topology.reserve_factor() * most,
            bound_w,
            unrouted_w: unrouted(&self.wiring, &sides, trace),
            by_means_w: unrouted(&self.wiring, &sides_by_means(&self.wiring, trace), trace),
            in_order_w: unrouted(&self.wiring, &sides_in_order(&self.wiring, trace), trace),
            routed_w: routed(&self.wiring, &self.idle_w, trace, control, phase_skew, bound_w)?,
        })
    }
}

/// A mix of the study.
#[derive(Clone, Debug)]
pub struct MixNeeds {
    /// Its name.
    pub name: String,
    /// Mean, greatest and deviation of the total, W.
    pub summary: (f64, f64, f64),
    /// What each topology needs.
    pub needs: Vec<Needs>,
}

/// The study's mixes under each topology, and the first mix under each count of PDUs, fully connected.
///
/// # Errors
/// As [`Room::needs`].
pub fn run(description: &Description) -> Result<(Vec<MixNeeds>, Vec<Needs>)> {
    let Some(study) = &description.study else { return Ok(Default::default()) };
    let (control, skew) = (description.controller(), description.phase_skew());
    let (mut mixes, mut counts) = (Vec::new(), Vec::new());
    for (number, mix) in study.mixes.iter().enumerate() {
        let classes = description.mixed(mix)?;
        let (trace, _) = description.synthetic(&classes)?;
        let of =
            |topology: Topology| Room::new(topology, &classes, description)?.needs(&trace, control, skew);
        let mut needs = Vec::new();
        for name in &study.topologies {
            needs.push(of(Topology::new(kind(name)?, description.topology.pdus, 1)?)?);
        }
        if number == 0 {
            for &pdus in &study.full_pdus {
                counts.push(of(Topology::new(Kind::Full, pdus, 1)?)?);
            }
        }
        mixes.push(MixNeeds { name: mix.name.clone(), summary: trace.summary(), needs });
    }
    Ok((mixes, counts))
}
