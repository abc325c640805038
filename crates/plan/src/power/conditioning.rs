//! Losses of power distribution: PDUs (A.4) and the UPS (A.5).
//!
//! The source prints the forms but not the constants; it says "typically 3 % of input" for PDUs, "9 % of
//! input" for the UPS, and "12 % of server power" for both at peak. The first two compound to 13.3 %, so
//! the basis of the percentages is asked for.

use serde::{Deserialize, Serialize};

/// What a percentage of loss is taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// Of what goes in: 3 % and 9 % make 13.3 % of the servers' power.
    Input,
    /// Of the servers' power: 3 % and 9 % make 12 %.
    Servers,
}

/// Constants of losses for a whole plant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditioning {
    /// PDUs; all are on and evenly loaded.
    pub pdus: f64,
    /// Loss of one PDU without load, kW.
    pub pdu_idle_kw: f64,
    /// Loss of one PDU a kW² of load, 1/kW.
    pub pdu_square: f64,
    /// Loss of the UPS without load, kW.
    pub ups_idle_kw: f64,
    /// Loss of the UPS a kW of what it gives.
    pub ups_linear: f64,
}

/// What losses are at the design load, from which the constants follow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Losses {
    /// PDUs' losses at peak, as a fraction.
    pub pdu: f64,
    /// Part of it that does not depend on load.
    pub pdu_fixed: f64,
    /// The UPS's loss at peak, as a fraction.
    pub ups: f64,
    /// Part of it that does not depend on load.
    pub ups_fixed: f64,
    /// What the fractions are of.
    pub basis: Basis,
}

impl Conditioning {
    /// The constants with which `losses` come out at `servers_kw` over `pdus`.
    pub fn at_design(servers_kw: f64, pdus: f64, losses: &Losses) -> Conditioning {
        let of = |fraction: f64, given: f64| match losses.basis {
            Basis::Input => given * fraction / (1.0 - fraction),
            Basis::Servers => servers_kw * fraction,
        };
        let pdu = of(losses.pdu, servers_kw);
        let given = servers_kw + pdu;
        let ups = of(losses.ups, given);
        let each = servers_kw / pdus;
        Conditioning {
            pdus,
            pdu_idle_kw: pdu * losses.pdu_fixed / pdus,
            pdu_square: pdu * (1.0 - losses.pdu_fixed) / pdus / (each * each),
            ups_idle_kw: ups * losses.ups_fixed,
            ups_linear: ups * (1.0 - losses.ups_fixed) / given,
        }
    }

    /// Loss of all PDUs at a power of the servers, kW (A.4).
    pub fn pdu_loss(&self, servers_kw: f64) -> f64 {
        let each = servers_kw / self.pdus;
        self.pdus * (self.pdu_idle_kw + self.pdu_square * each * each)
    }

    /// Loss of the UPS at what the PDUs take in, kW (A.5).
    pub fn ups_loss(&self, pdu_input_kw: f64) -> f64 {
        self.ups_idle_kw + self.ups_linear * pdu_input_kw
    }
}
