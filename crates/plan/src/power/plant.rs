//! A whole plant and what it draws in one state: the components of the model put together.

use super::air::{self, AirHandlers, Loop};
use super::chiller::{self, Chiller};
use super::conditioning::Conditioning;
use super::servers::{self, Curve, Spread};
use crate::field::{refused, within};
use tierstone_base::Result;

/// A plant as it was built. All servers are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Plant {
    /// How many servers; a fraction when it follows from a power.
    pub servers: f64,
    /// Power of one.
    pub curve: Curve,
    /// Air through one without load, cubic feet a minute.
    pub air_idle_cfm: f64,
    /// The same at full load; straight between.
    pub air_peak_cfm: f64,
    /// Losses.
    pub conditioning: Conditioning,
    /// Whether the UPS stands in the cooled room.
    pub ups_in_room: bool,
    /// Air handlers.
    pub air_handlers: AirHandlers,
    /// The warmest air that servers may take in, °F.
    pub inlet_max_f: f64,
    /// The supply's set point where cooling is not optimal, °F.
    pub supply_f: f64,
    /// The chiller.
    pub chiller: Chiller,
    /// The water's set point where cooling is not optimal, °F.
    pub water_f: f64,
    /// The warmest water that the chiller may be set to, °F.
    pub water_max_f: f64,
    /// The coldest water that condensers are run with, °F; outside it may be colder.
    pub condenser_min_f: f64,
    /// The most that the chiller is loaded to, as a part of its capacity at the moment.
    pub part_load_max: f64,
    /// Network, pumps and lights, kW.
    pub fixed_kw: f64,
}

/// A state of a plant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operation {
    /// Work, as a part of what all servers can do.
    pub utilisation: f64,
    /// Outside, as the tower's water, °F.
    pub outside_f: f64,
    /// l: 0 packs work on few servers, 1 spreads it over all.
    pub load_balance: f64,
    /// κ.
    pub containment: f64,
    /// Whether the water is as warm as the air handlers allow.
    pub optimal_cooling: bool,
}

impl Operation {
    /// Whether every part lies in its range.
    ///
    /// # Errors
    /// `InvalidInput`: one does not; the message names it and says by how much.
    pub fn check(&self) -> Result<()> {
        within("utilisation", self.utilisation, 0.0, 1.0, "")?;
        within("outside_f", self.outside_f, -60.0, 130.0, "F")?;
        within("load_balance", self.load_balance, 0.0, 1.0, "")?;
        if !(self.containment > 0.0 && self.containment <= 1.0) {
            return Err(refused(format!(
                "`containment` is {}, but the part of the air that comes from the air handlers is above 0 and at most 1",
                self.containment
            )));
        }
        Ok(())
    }
}

/// What a plant draws in a state, kW, and the temperatures and parts behind it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// Servers that are on, and how busy one is.
    pub spread: Spread,
    /// Servers.
    pub servers_kw: f64,
    /// Losses of PDUs.
    pub pdu_kw: f64,
    /// Losses of the UPS.
    pub ups_kw: f64,
    /// Air handlers.
    pub air_kw: f64,
    /// The chiller.
    pub chiller_kw: f64,
    /// Network, pumps and lights.
    pub fixed_kw: f64,
    /// Heat that the chiller carries away.
    pub heat_kw: f64,
    /// Air through the servers and the air handlers, cubic feet a minute.
    pub flow_cfm: f64,
    /// Part of the air handlers' greatest flow.
    pub flow_part: f64,
    /// The air's temperatures.
    pub air: Loop,
    /// The water's temperature, °F.
    pub water_f: f64,
    /// Part of the chiller's capacity at these temperatures.
    pub part_load: f64,
}

impl Draw {
    /// The whole, kW.
    pub fn total_kw(&self) -> f64 {
        self.servers_kw + self.pdu_kw + self.ups_kw + self.air_kw + self.chiller_kw + self.fixed_kw
    }

    /// Losses of PDUs and the UPS, kW.
    pub fn conditioning_kw(&self) -> f64 {
        self.pdu_kw + self.ups_kw
    }

    /// Air handlers and chiller, kW.
    pub fn cooling_kw(&self) -> f64 {
        self.air_kw + self.chiller_kw
    }

    /// The whole over the servers' power; `None` where they draw nothing.
    pub fn pue(&self) -> Option<f64> {
        (self.servers_kw > 0.0).then(|| self.total_kw() / self.servers_kw)
    }
}

/// The parts of [`Draw`] that the chiller does not change.
struct Inside {
    spread: Spread,
    servers_kw: f64,
    pdu_kw: f64,
    ups_kw: f64,
    flow_cfm: f64,
    flow_part: f64,
    air_kw: f64,
    heat_kw: f64,
}

impl Plant {
    fn inside(&self, at: &Operation) -> Result<Inside> {
        at.check()?;
        let spread = servers::spread(at.utilisation, at.load_balance);
        let live = self.servers * spread.live;
        let servers_kw = live * self.curve.watts(spread.utilisation) / 1_000.0;
        let pdu_kw = self.conditioning.pdu_loss(servers_kw);
        let ups_kw = self.conditioning.ups_loss(servers_kw + pdu_kw);
        let each = self.air_idle_cfm + (self.air_peak_cfm - self.air_idle_cfm) * spread.utilisation;
        let flow_cfm = live * each;
        if flow_cfm <= 0.0 {
            return Err(refused(
                "`utilisation` and `load_balance` are both 0: no server is on, so no air moves and nothing is cooled",
            ));
        }
        let flow_part = self.air_handlers.fraction(flow_cfm)?;
        let air_kw = self.air_handlers.power(flow_part);
        let ups_heat = if self.ups_in_room { ups_kw } else { 0.0 };
        let heat_kw = servers_kw + pdu_kw + ups_heat + air_kw;
        Ok(Inside { spread, servers_kw, pdu_kw, ups_kw, flow_cfm, flow_part, air_kw, heat_kw })
    }

    /// What the chiller has to carry away in a state, kW.
    ///
    /// # Errors
    /// As [`Plant::draw`], for what lies before the chiller.
    pub fn heat_kw(&self, at: &Operation) -> Result<f64> {
        Ok(self.inside(at)?.heat_kw)
    }

    /// Temperatures of air and water.
    ///
    /// With set points, they must hold the inlets' limit and the air handlers must be able to pass the
    /// heat on to the water. With optimal cooling the supply is as warm as the limit allows and the water
    /// as warm as the air handlers then allow, up to the chiller's own limit.
    fn cool(&self, at: &Operation, inside: &Inside) -> Result<(Loop, f64)> {
        let limit = air::supply_limit(self.inlet_max_f, inside.flow_cfm, at.containment, inside.servers_kw);
        let supply_f = if at.optimal_cooling { limit } else { self.supply_f };
        let other = inside.heat_kw - inside.servers_kw;
        let air = Loop::balance(supply_f, inside.flow_cfm, at.containment, inside.servers_kw, other);
        if supply_f > limit + 1e-9 {
            return Err(refused(format!(
                "servers take in air of {:.1} F, the limit is {:.1} F: {:.1} F too warm at containment {}; \
                 the supply would have to be {limit:.1} F instead of {supply_f:.1} F, or containment better",
                air.inlet_f,
                self.inlet_max_f,
                air.inlet_f - self.inlet_max_f,
                at.containment,
            )));
        }
        let exchange = self.air_handlers.exchange(inside.flow_part, at.containment);
        let needed_f = air.return_f - inside.heat_kw / exchange;
        let water_f = if at.optimal_cooling {
            self.water_optimal(needed_f.min(self.water_max_f), inside.heat_kw, self.condenser_f(at))
        } else {
            self.water_f
        };
        if water_f > needed_f + 1e-9 {
            let passed = exchange * (air.return_f - water_f);
            return Err(refused(format!(
                "the air handlers pass {passed:.0} kW to water of {water_f:.1} F, but {:.0} kW have to go: {:.0} kW \
                 are missing; water of {needed_f:.1} F or colder, warmer supply air or more air handlers would do",
                inside.heat_kw,
                inside.heat_kw - passed,
            )));
        }
        if water_f < 33.0 {
            return Err(refused(format!(
                "the inlets' limit of {:.1} F needs water of {water_f:.1} F, {:.1} F below what does not freeze (33 F)",
                self.inlet_max_f,
                33.0 - water_f,
            )));
        }
        Ok((air, water_f))
    }

    fn condenser_f(&self, at: &Operation) -> f64 {
        at.outside_f.max(self.condenser_min_f)
    }

    /// The water from 33 °F to `warmest_f` with which the chiller draws least, °F: the warmest, unless the
    /// chiller's capacity there is too small. Looked for in steps of a quarter, since the published curves
    /// turn back outside their range.
    fn water_optimal(&self, warmest_f: f64, heat_kw: f64, condenser_f: f64) -> f64 {
        let steps = ((warmest_f - 33.0) * 4.0).max(0.0) as u32;
        let candidates = (0..=steps).map(|step| warmest_f - 0.25 * f64::from(step));
        let held = candidates.filter(|&water| {
            (0.0..=self.part_load_max).contains(&self.chiller.part_load(heat_kw, water, condenser_f))
        });
        let power = |water: f64| self.chiller.power(heat_kw, water, condenser_f);
        held.min_by(|a, b| power(*a).total_cmp(&power(*b))).unwrap_or(warmest_f)
    }

    /// What the plant draws in a state. Cost: constant.
    ///
    /// # Errors
    /// `InvalidInput`: a part of the state is out of its range, or the plant cannot hold the state: too
    /// little air, inlets too warm, air handlers or chiller too small. The message says by how much.
    pub fn draw(&self, at: &Operation) -> Result<Draw> {
        let inside = self.inside(at)?;
        let (air, water_f) = self.cool(at, &inside)?;
        let condenser_f = self.condenser_f(at);
        let part_load = self.chiller.part_load(inside.heat_kw, water_f, condenser_f);
        if !(0.0..=self.part_load_max * (1.0 + 1e-9)).contains(&part_load) {
            let most =
                self.part_load_max * self.chiller.heat_kw * chiller::capacity_factor(water_f, condenser_f);
            return Err(refused(format!(
                "the chiller has to carry {:.0} kW away, but at water of {water_f:.1} F and condensers at \
                 {condenser_f:.1} F it carries {most:.0} kW: {:.0} kW are missing",
                inside.heat_kw,
                inside.heat_kw - most,
            )));
        }
        Ok(Draw {
            spread: inside.spread,
            servers_kw: inside.servers_kw,
            pdu_kw: inside.pdu_kw,
            ups_kw: inside.ups_kw,
            air_kw: inside.air_kw,
            chiller_kw: self.chiller.power(inside.heat_kw, water_f, condenser_f),
            fixed_kw: self.fixed_kw,
            heat_kw: inside.heat_kw,
            flow_cfm: inside.flow_cfm,
            flow_part: inside.flow_part,
            air,
            water_f,
            part_load,
        })
    }
}
