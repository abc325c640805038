//! A plant fitted to what a site measured: one factor for each component that has a meter.

use super::describe::Measured;
use super::plant::{Draw, Operation, Plant};
use crate::field::refused;
use crate::quantity::Power;
use tierstone_base::Result;

/// One component's factor.
#[derive(Clone, Debug, PartialEq)]
pub struct Factor {
    /// The component.
    pub component: &'static str,
    /// Measured over modelled, by least squares over all points.
    pub factor: f64,
    /// Points with a meter for it.
    pub points: usize,
    /// Root of the mean square of measured less modelled before, kW.
    pub error_before_kw: f64,
    /// The same after.
    pub error_after_kw: f64,
}

struct Component {
    name: &'static str,
    measured: fn(&Measured) -> Option<Power>,
    modelled: fn(&Draw) -> f64,
    scale: fn(&mut Plant, f64),
}

/// In the order in which power flows: a later component's model needs the earlier ones right.
const COMPONENTS: [Component; 6] = [
    Component {
        name: "servers",
        measured: |point| point.servers,
        modelled: |draw| draw.servers_kw,
        scale: |plant, factor| plant.curve = plant.curve.scaled(factor),
    },
    Component {
        name: "PDUs",
        measured: |point| point.pdu,
        modelled: |draw| draw.pdu_kw,
        scale: |plant, factor| {
            plant.conditioning.pdu_idle_kw *= factor;
            plant.conditioning.pdu_square *= factor;
        },
    },
    Component {
        name: "UPS",
        measured: |point| point.ups,
        modelled: |draw| draw.ups_kw,
        scale: |plant, factor| {
            plant.conditioning.ups_idle_kw *= factor;
            plant.conditioning.ups_linear *= factor;
        },
    },
    Component {
        name: "air handlers",
        measured: |point| point.air,
        modelled: |draw| draw.air_kw,
        scale: |plant, factor| {
            plant.air_handlers.fan_kw *= factor;
            plant.air_handlers.idle_kw *= factor;
        },
    },
    Component {
        name: "chiller",
        measured: |point| point.chiller,
        modelled: |draw| draw.chiller_kw,
        scale: |plant, factor| plant.chiller.power_kw *= factor,
    },
    Component {
        name: "network, pumps, lights",
        measured: |point| point.fixed,
        modelled: |draw| draw.fixed_kw,
        scale: |plant, factor| plant.fixed_kw *= factor,
    },
];

/// The plant with each metered component scaled to `points`, and the factors. Load balance, containment and
/// the way of cooling are those of `at`. Totals are not fitted: they show how well the parts add up.
///
/// # Errors
/// `InvalidInput`: a point that the plant cannot hold, a power below zero, or no component with a meter.
pub fn calibrate(plant: &Plant, at: &Operation, points: &[Measured]) -> Result<(Plant, Vec<Factor>)> {
    let mut plant = plant.clone();
    let mut factors = Vec::new();
    for component in &COMPONENTS {
        let pairs = pairs(&plant, at, points, component)?;
        if pairs.is_empty() {
            continue;
        }
        let products: f64 = pairs.iter().map(|(measured, modelled)| measured * modelled).sum();
        let squares: f64 = pairs.iter().map(|(_, modelled)| modelled * modelled).sum();
        if squares <= 0.0 || products <= 0.0 {
            return Err(refused(format!(
                "measured {}: the model or every measurement is zero, so there is no factor between them",
                component.name
            )));
        }
        let factor = products / squares;
        (component.scale)(&mut plant, factor);
        factors.push(Factor {
            component: component.name,
            factor,
            points: pairs.len(),
            error_before_kw: error(&pairs, 1.0),
            error_after_kw: error(&pairs, factor),
        });
    }
    if factors.is_empty() {
        return Err(refused(
            "`[[measured]]` has no component (`servers`, `chiller`, ...): totals alone do not say which part of the model is wrong",
        ));
    }
    Ok((plant, factors))
}

/// The state in which `point` was measured.
pub fn operation(at: &Operation, point: &Measured) -> Operation {
    Operation { utilisation: point.utilisation, outside_f: point.outside.get(), ..*at }
}

fn pairs(plant: &Plant, at: &Operation, points: &[Measured], of: &Component) -> Result<Vec<(f64, f64)>> {
    let mut pairs = Vec::new();
    for (number, point) in points.iter().enumerate() {
        if let Some(measured) = (of.measured)(point) {
            let place = format!("measured point {}", number + 1);
            let measured = measured.within(&format!("{place}: {}", of.name), 0.0, 1e10)? / 1_000.0;
            let draw = plant.draw(&operation(at, point)).map_err(|error| error.context(&place))?;
            pairs.push((measured, (of.modelled)(&draw)));
        }
    }
    Ok(pairs)
}

fn error(pairs: &[(f64, f64)], factor: f64) -> f64 {
    let sum: f64 = pairs.iter().map(|(measured, modelled)| (measured - factor * modelled).powi(2)).sum();
    (sum / pairs.len() as f64).sqrt()
}
