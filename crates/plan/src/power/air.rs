//! Air between servers and air handlers (CRAHs): containment, the limit at the inlets, heat exchange.
//!
//! One containment index stands for the whole room: of the air that a server takes in, the part κ comes from
//! the air handlers and the rest from its own exhaust; of what the air handlers take in, the part κ comes
//! from the servers. So the flow through both is the same, and the flow of the air handlers follows from
//! the servers'.

use crate::field::refused;
use serde::{Deserialize, Serialize};
use tierstone_base::Result;

/// Heat that standard air (0.075 lb/ft³, 0.24 BTU/lb °F) carries: kW a cubic foot a minute and °F.
pub const HEAT_KW: f64 = 1.08 / 3412.142;

/// Which flow of air stands before the bracket of A.8; the source leaves it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlowBasis {
    /// The flow of the moment.
    Actual,
    /// The most that the fans move.
    Maximum,
}

/// The air handlers of a plant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AirHandlers {
    /// How many.
    pub count: f64,
    /// The most that one moves, cubic feet a minute.
    pub flow_max_cfm: f64,
    /// Its fan at full speed, kW.
    pub fan_kw: f64,
    /// What it draws besides, kW.
    pub idle_kw: f64,
    /// Effectiveness of heat exchange.
    pub effectiveness: f64,
    /// The flow of A.8.
    pub basis: FlowBasis,
}

impl AirHandlers {
    /// The part of their greatest flow that moves `flow_cfm`.
    ///
    /// # Errors
    /// `InvalidInput`: it is more than all of it; the message says by how much.
    pub fn fraction(&self, flow_cfm: f64) -> Result<f64> {
        let most = self.count * self.flow_max_cfm;
        // Sums of the same numbers in another order may differ in the last bits.
        if flow_cfm > most * (1.0 + 1e-9) {
            return Err(refused(format!(
                "the servers move {flow_cfm:.0} CFM of air, the air handlers at most {most:.0}: {:.0} CFM \
                 ({:.1} %) are missing; add air handlers or lower the servers' flow",
                flow_cfm - most,
                100.0 * (flow_cfm / most - 1.0),
            )));
        }
        Ok((flow_cfm / most).min(1.0))
    }

    /// Power at a fraction of the flow, kW (A.9).
    pub fn power(&self, fraction: f64) -> f64 {
        self.count * (self.idle_kw + self.fan_kw * fraction.powi(3))
    }

    /// Heat taken out for each °F between the air that comes in and the water, kW (A.8).
    pub fn exchange(&self, fraction: f64, containment: f64) -> f64 {
        let most = self.count * self.flow_max_cfm;
        let flow = match self.basis {
            FlowBasis::Actual => most * fraction,
            FlowBasis::Maximum => most,
        };
        self.effectiveness * containment * flow * HEAT_KW * fraction.powf(0.7)
    }
}

/// Temperatures of the loop, °F.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loop {
    /// What the air handlers give (T_ac).
    pub supply_f: f64,
    /// What servers take in: the supply mixed with their own exhaust.
    pub inlet_f: f64,
    /// What servers give (T_ah).
    pub exhaust_f: f64,
    /// What air handlers take in: exhaust and supply mixed, warmed by the losses of the room.
    pub return_f: f64,
}

impl Loop {
    /// The loop that carries `servers_kw` from the servers and `other_kw` from whatever else warms the air,
    /// at a flow and containment, with the supply at `supply_f` (A.6, A.7).
    pub fn balance(supply_f: f64, flow_cfm: f64, containment: f64, servers_kw: f64, other_kw: f64) -> Loop {
        let carries = flow_cfm * HEAT_KW;
        let exhaust_f = supply_f + servers_kw / (containment * carries);
        let inlet_f = containment * supply_f + (1.0 - containment) * exhaust_f;
        let return_f = containment * exhaust_f + (1.0 - containment) * supply_f + other_kw / carries;
        Loop { supply_f, inlet_f, exhaust_f, return_f }
    }
}

/// The warmest supply with which inlets stay at `inlet_max_f`, °F.
pub fn supply_limit(inlet_max_f: f64, flow_cfm: f64, containment: f64, servers_kw: f64) -> f64 {
    inlet_max_f - (1.0 - containment) * servers_kw / (containment * flow_cfm * HEAT_KW)
}
