//! The description of a plant as TOML, and the plant that follows from it.

use super::air::{AirHandlers, FlowBasis};
use super::chiller::{Chiller, capacity_factor};
use super::conditioning::{Basis, Conditioning, Losses};
use super::plant::{Operation, Plant};
use super::servers::Curve;
use crate::field::{positive, refused, within};
use serde::Deserialize;
use tierstone_base::Result;

/// A whole description. Nothing in it has a default but the lists that may be empty.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The report's heading.
    pub title: String,
    /// `pelley-appendix-a`, if the report shall stand beside that source's values.
    pub compare: Option<String>,
    /// How large it is.
    pub size: Size,
    /// Servers.
    pub servers: Servers,
    /// PDUs.
    pub pdu: Pdu,
    /// The UPS.
    pub ups: Ups,
    /// Air.
    pub air: Air,
    /// Chiller.
    pub chiller: Cooling,
    /// Network, pumps and lights, as a part of the total at peak.
    pub fixed_fraction_of_peak: f64,
    /// The state for which the plant was built, at full utilisation.
    pub design: Design,
    /// The first state.
    pub operation: State,
    /// Further states, each a change of the one before.
    #[serde(default, rename = "scenario")]
    pub scenarios: Vec<Scenario>,
    /// Ranges of one part of the first state.
    #[serde(default, rename = "sweep")]
    pub sweeps: Vec<Sweep>,
    /// What a site has measured.
    #[serde(default, rename = "measured")]
    pub measured: Vec<Measured>,
}

/// How large the plant is: one of both.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// This many servers.
    pub servers: Option<f64>,
    /// As many as draw this in all in the first state at full load, kW.
    pub total_at_peak_kw: Option<f64>,
}

/// One kind of servers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Servers {
    /// Power at full load, W.
    pub peak_w: Option<f64>,
    /// Idle power as a part of it.
    pub idle_fraction: Option<f64>,
    /// Instead of both: W at 0, 10, ... 100 % load.
    pub curve_w: Option<Vec<f64>>,
    /// Air without load, cubic feet a minute.
    pub air_idle_cfm: f64,
    /// Air at full load, cubic feet a minute.
    pub air_peak_cfm: f64,
}

/// PDUs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pdu {
    /// Servers at one.
    pub servers_each: f64,
    /// Loss at peak, %.
    pub loss_at_peak_percent: f64,
    /// Part of that loss that does not depend on load.
    pub loss_fixed_fraction: f64,
}

/// The UPS.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ups {
    /// Loss at peak, %.
    pub loss_at_peak_percent: f64,
    /// Part of that loss that does not depend on load.
    pub loss_fixed_fraction: f64,
    /// What percentages of loss are of, here and at PDUs.
    pub loss_basis: Basis,
    /// Whether its heat goes to the chiller.
    pub in_cooled_room: bool,
}

/// Air handlers and limits of the air.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Air {
    /// The most that one handler moves, cubic feet a minute.
    pub handler_flow_max_cfm: f64,
    /// Its fan at full speed, kW.
    pub handler_fan_kw: f64,
    /// What it draws besides, kW.
    pub handler_idle_kw: f64,
    /// E of A.8.
    pub exchange_effectiveness: f64,
    /// Which flow A.8 means.
    pub exchange_flow: FlowBasis,
    /// Flow beyond what the servers need at full load, %.
    pub spare_percent: f64,
    /// The warmest air that servers may take in, °F.
    pub inlet_max_f: f64,
    /// Set point of the supply, °F.
    pub supply_f: f64,
}

/// The chiller.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cooling {
    /// Power for a kW of heat at the rating.
    pub power_per_heat: f64,
    /// Rating beyond the heat at full load, %.
    pub spare_percent: f64,
    /// Set point of the water, °F.
    pub water_f: f64,
    /// The warmest water it can be set to, °F.
    pub water_max_f: f64,
    /// The coldest condenser it is run with, °F.
    pub condenser_min_f: f64,
    /// The most that it is loaded to, as a part of its capacity at the moment.
    pub part_load_max: f64,
}

/// For what the plant was built.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Design {
    /// Outside, °F.
    pub outside_f: f64,
    /// κ.
    pub containment: f64,
}

/// A state.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Its name.
    pub name: String,
    /// Work, as a part of what all servers can do.
    pub utilisation: f64,
    /// Outside, °F.
    pub outside_f: f64,
    /// l.
    pub load_balance: f64,
    /// κ.
    pub containment: f64,
    /// Whether the water is as warm as possible.
    pub optimal_cooling: bool,
}

/// A change of the state before.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// See [`State`].
    pub utilisation: Option<f64>,
    /// See [`State`].
    pub outside_f: Option<f64>,
    /// See [`State`].
    pub load_balance: Option<f64>,
    /// See [`State`].
    pub containment: Option<f64>,
    /// See [`State`].
    pub optimal_cooling: Option<bool>,
    /// Servers of the same peak with another idle power.
    pub idle_fraction: Option<f64>,
}

/// What a sweep or a sensitivity changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Over {
    /// Work.
    Utilisation,
    /// Outside.
    OutsideF,
    /// l.
    LoadBalance,
    /// κ.
    Containment,
    /// Idle power of servers.
    IdleFraction,
    /// Set point of the water.
    WaterF,
}

impl Over {
    /// Its name as a field.
    pub fn name(self) -> &'static str {
        match self {
            Over::Utilisation => "utilisation",
            Over::OutsideF => "outside_f",
            Over::LoadBalance => "load_balance",
            Over::Containment => "containment",
            Over::IdleFraction => "idle_fraction",
            Over::WaterF => "water_f",
        }
    }
}

/// A range of one part of the first state.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// What changes.
    pub over: Over,
    /// Its first value.
    pub from: f64,
    /// Its last value.
    pub to: f64,
    /// Steps between them.
    pub steps: u32,
}

/// What a site measured in one state: those components that it has meters for, kW.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// See [`State`].
    pub utilisation: f64,
    /// See [`State`].
    pub outside_f: f64,
    /// Servers.
    pub servers_kw: Option<f64>,
    /// Losses of PDUs.
    pub pdu_kw: Option<f64>,
    /// Losses of the UPS.
    pub ups_kw: Option<f64>,
    /// Air handlers.
    pub air_kw: Option<f64>,
    /// Chiller.
    pub chiller_kw: Option<f64>,
    /// Network, pumps and lights.
    pub fixed_kw: Option<f64>,
    /// Everything.
    pub total_kw: Option<f64>,
}

/// A state with its name and its plant, which differs from the first one's in its servers at most.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// The plant.
    pub plant: Plant,
    /// The state.
    pub at: Operation,
}

impl Description {
    /// Reads a description.
    ///
    /// # Errors
    /// `InvalidInput`: no TOML, or a field that is missing, unknown, of the wrong type or out of its range.
    pub fn read(text: &crate::Description) -> Result<Description> {
        let description: Description = text.parse()?;
        description.check().map_err(|error| text.wrong(error))?;
        Ok(description)
    }

    fn check(&self) -> Result<()> {
        if let Some(compare) = self.compare.as_deref().filter(|compare| *compare != "pelley-appendix-a") {
            return Err(refused(format!("`compare` is \"{compare}\"; known is \"pelley-appendix-a\"")));
        }
        positive("servers.air_peak_cfm", self.servers.air_peak_cfm, 1e4, "CFM")?;
        within("servers.air_idle_cfm", self.servers.air_idle_cfm, 0.0, self.servers.air_peak_cfm, "CFM")?;
        positive("pdu.servers_each", self.pdu.servers_each, 1e6, "")?;
        within("pdu.loss_at_peak_percent", self.pdu.loss_at_peak_percent, 0.0, 50.0, "%")?;
        within("pdu.loss_fixed_fraction", self.pdu.loss_fixed_fraction, 0.0, 1.0, "")?;
        within("ups.loss_at_peak_percent", self.ups.loss_at_peak_percent, 0.0, 50.0, "%")?;
        within("ups.loss_fixed_fraction", self.ups.loss_fixed_fraction, 0.0, 1.0, "")?;
        positive("air.handler_flow_max_cfm", self.air.handler_flow_max_cfm, 1e6, "CFM")?;
        within("air.handler_fan_kw", self.air.handler_fan_kw, 0.0, 1e3, "kW")?;
        within("air.handler_idle_kw", self.air.handler_idle_kw, 0.0, 1e3, "kW")?;
        positive("air.exchange_effectiveness", self.air.exchange_effectiveness, 1.0, "")?;
        within("air.spare_percent", self.air.spare_percent, -50.0, 500.0, "%")?;
        within("air.inlet_max_f", self.air.inlet_max_f, 50.0, 130.0, "F")?;
        within("air.supply_f", self.air.supply_f, 40.0, 130.0, "F")?;
        positive("chiller.power_per_heat", self.chiller.power_per_heat, 2.0, "")?;
        within("chiller.spare_percent", self.chiller.spare_percent, -50.0, 500.0, "%")?;
        within("chiller.water_f", self.chiller.water_f, 33.0, 80.0, "F")?;
        within("chiller.water_max_f", self.chiller.water_max_f, self.chiller.water_f, 80.0, "F")?;
        within("chiller.condenser_min_f", self.chiller.condenser_min_f, 40.0, 100.0, "F")?;
        positive("chiller.part_load_max", self.chiller.part_load_max, 1.5, "")?;
        within("fixed_fraction_of_peak", self.fixed_fraction_of_peak, 0.0, 0.5, "")?;
        for sweep in &self.sweeps {
            within(
                &format!("sweep over {}: steps", sweep.over.name()),
                f64::from(sweep.steps),
                1.0,
                1000.0,
                "",
            )?;
        }
        Ok(())
    }

    fn curve(&self) -> Result<Curve> {
        match (&self.servers.curve_w, self.servers.peak_w, self.servers.idle_fraction) {
            (Some(watts), None, None) => Curve::table("servers.curve_w", watts),
            (None, Some(peak), Some(idle)) => Curve::linear(peak, idle),
            (None, None, _) => {
                Err(refused("`servers.peak_w` is missing (or `servers.curve_w` in its place)"))
            }
            (None, _, None) => Err(refused("`servers.idle_fraction` is missing")),
            (Some(_), _, _) => Err(refused(
                "`servers.curve_w` stands beside `servers.peak_w` or `servers.idle_fraction`: give one or the other",
            )),
        }
    }

    /// The plant that is described, with its chiller, air handlers and losses made for full load.
    ///
    /// # Errors
    /// `InvalidInput`: a part is missing or given twice, or full load cannot be held.
    pub fn plant(&self) -> Result<Plant> {
        match (self.size.servers, self.size.total_at_peak_kw) {
            (Some(servers), None) => self.plant_of(positive("size.servers", servers, 1e8, "")?),
            (None, Some(total)) => {
                positive("size.total_at_peak_kw", total, 1e7, "kW")?;
                // Everything grows with the number of servers, so one plant gives the scale of all.
                let small = self.plant_of(1_000.0)?;
                let draw = small.draw(&self.peak_operation())?;
                self.plant_of(1_000.0 * total / draw.total_kw())
            }
            (Some(_), Some(_)) => Err(refused("`size` has both `servers` and `total_at_peak_kw`: give one")),
            (None, None) => {
                Err(refused("`size.servers` is missing (or `size.total_at_peak_kw` in its place)"))
            }
        }
    }

    /// Full load under the conditions of the design.
    pub fn design_operation(&self) -> Operation {
        Operation {
            utilisation: 1.0,
            outside_f: self.design.outside_f,
            load_balance: 1.0,
            containment: self.design.containment,
            optimal_cooling: false,
        }
    }

    /// The first state at full load.
    pub fn peak_operation(&self) -> Operation {
        Operation { utilisation: 1.0, ..self.first_operation() }
    }

    fn first_operation(&self) -> Operation {
        let first = &self.operation;
        Operation {
            utilisation: first.utilisation,
            outside_f: first.outside_f,
            load_balance: first.load_balance,
            containment: first.containment,
            optimal_cooling: first.optimal_cooling,
        }
    }

    fn plant_of(&self, servers: f64) -> Result<Plant> {
        let curve = self.curve()?;
        let peak_kw = servers * curve.peak_w() / 1_000.0;
        let losses = Losses {
            pdu: self.pdu.loss_at_peak_percent / 100.0,
            pdu_fixed: self.pdu.loss_fixed_fraction,
            ups: self.ups.loss_at_peak_percent / 100.0,
            ups_fixed: self.ups.loss_fixed_fraction,
            basis: self.ups.loss_basis,
        };
        let flow = servers * self.servers.air_peak_cfm * (1.0 + self.air.spare_percent / 100.0);
        let mut plant = Plant {
            servers,
            curve,
            air_idle_cfm: self.servers.air_idle_cfm,
            air_peak_cfm: self.servers.air_peak_cfm,
            conditioning: Conditioning::at_design(peak_kw, servers / self.pdu.servers_each, &losses),
            ups_in_room: self.ups.in_cooled_room,
            air_handlers: AirHandlers {
                count: flow / self.air.handler_flow_max_cfm,
                flow_max_cfm: self.air.handler_flow_max_cfm,
                fan_kw: self.air.handler_fan_kw,
                idle_kw: self.air.handler_idle_kw,
                effectiveness: self.air.exchange_effectiveness,
                basis: self.air.exchange_flow,
            },
            inlet_max_f: self.air.inlet_max_f,
            supply_f: self.air.supply_f,
            chiller: Chiller { heat_kw: 1.0, power_kw: 1.0 },
            water_f: self.chiller.water_f,
            water_max_f: self.chiller.water_max_f,
            condenser_min_f: self.chiller.condenser_min_f,
            part_load_max: self.chiller.part_load_max,
            fixed_kw: 0.0,
        };
        let design = self.design_operation();
        let heat_kw = plant.heat_kw(&design)? * (1.0 + self.chiller.spare_percent / 100.0);
        let condenser_f = design.outside_f.max(self.chiller.condenser_min_f);
        let factor = capacity_factor(self.chiller.water_f, condenser_f);
        within(
            "chiller: capacity at the temperatures of the design over the rated one",
            factor,
            0.1,
            10.0,
            "",
        )?;
        plant.chiller =
            Chiller::made_for(heat_kw, self.chiller.power_per_heat, self.chiller.water_f, condenser_f);
        plant.draw(&design).map_err(|error| error.context("at full load, as designed"))?;
        let draw = plant.draw(&self.peak_operation());
        let draw = draw.map_err(|error| error.context("the first state at full load"))?;
        plant.fixed_kw = draw.total_kw() * self.fixed_fraction_of_peak / (1.0 - self.fixed_fraction_of_peak);
        Ok(plant)
    }

    /// The first state and all that follow, each with its plant.
    ///
    /// # Errors
    /// As [`Description::plant`]; and a state out of its range.
    pub fn cases(&self) -> Result<Vec<Case>> {
        let plant = self.plant()?;
        let mut case = Case { name: self.operation.name.clone(), plant, at: self.first_operation() };
        let mut cases = vec![case.clone()];
        for scenario in &self.scenarios {
            case.name.clone_from(&scenario.name);
            case.at.utilisation = scenario.utilisation.unwrap_or(case.at.utilisation);
            case.at.outside_f = scenario.outside_f.unwrap_or(case.at.outside_f);
            case.at.load_balance = scenario.load_balance.unwrap_or(case.at.load_balance);
            case.at.containment = scenario.containment.unwrap_or(case.at.containment);
            case.at.optimal_cooling = scenario.optimal_cooling.unwrap_or(case.at.optimal_cooling);
            if let Some(fraction) = scenario.idle_fraction {
                within(&format!("scenario {}: idle_fraction", scenario.name), fraction, 0.0, 1.0, "")?;
                case.plant.curve = case.plant.curve.with_idle_fraction(fraction);
            }
            cases.push(case.clone());
        }
        for case in &cases {
            case.at.check().map_err(|error| error.context(&format!("scenario {}", case.name)))?;
        }
        Ok(cases)
    }
}
