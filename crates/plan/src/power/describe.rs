//! The description of a plant as TOML, and the plant that follows from it.

use super::air::{AirHandlers, FlowBasis};
use super::chiller::{Chiller, capacity_factor};
use super::conditioning::{Basis, Conditioning, Losses};
use super::plant::{Operation, Plant};
use super::servers::Curve;
use crate::field::{at_most, positive, refused, within};
use crate::quantity::{AirFlow, Given, Percent, Power, Temperature};
use serde::Deserialize;
use tierstone_base::Result;

/// A whole description. Nothing in it has a default but the lists that may be empty.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
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
    /// Network, pumps and lights, as a part of the peak.
    pub fixed_fraction_of_peak: f64,
    /// Of which peak.
    pub fixed_basis: Peak,
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
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Size {
    /// This many servers.
    pub servers: Option<f64>,
    /// As many as draw this in all in the first state at full load.
    pub total_at_peak: Option<Power>,
}

/// One kind of servers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Servers {
    /// Power at full load.
    pub peak: Option<Power>,
    /// Idle power as a part of it.
    pub idle_fraction: Option<f64>,
    /// Instead of both: at 0, 10, ... 100 % load.
    pub curve: Option<Vec<Power>>,
    /// Air without load.
    pub air_idle: AirFlow,
    /// Air at full load.
    pub air_peak: AirFlow,
}

/// PDUs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Pdu {
    /// Servers at one.
    pub servers_each: f64,
    /// Loss at peak.
    pub loss_at_peak: Percent,
    /// Part of that loss that does not depend on load.
    pub loss_fixed_fraction: f64,
}

/// The UPS.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Ups {
    /// Loss at peak.
    pub loss_at_peak: Percent,
    /// Part of that loss that does not depend on load.
    pub loss_fixed_fraction: f64,
    /// What percentages of loss are of, here and at PDUs.
    pub loss_basis: Basis,
    /// Whether its heat goes to the chiller.
    pub in_cooled_room: bool,
}

/// Air handlers and limits of the air.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Air {
    /// The most that one handler moves.
    pub handler_flow_max: AirFlow,
    /// Its fan at full speed.
    pub handler_fan: Power,
    /// What it draws besides.
    pub handler_idle: Power,
    /// E of A.8.
    pub exchange_effectiveness: f64,
    /// Which flow A.8 means.
    pub exchange_flow: FlowBasis,
    /// Flow beyond what the servers need at full load.
    pub spare: Percent,
    /// The warmest air that servers may take in.
    pub inlet_max: Temperature,
    /// Set point of the supply.
    pub supply: Temperature,
}

/// The chiller.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Cooling {
    /// Power for a kW of heat at the rating.
    pub power_per_heat: f64,
    /// Rating beyond the heat at full load.
    pub spare: Percent,
    /// Set point of the water.
    pub water: Temperature,
    /// The warmest water it can be set to.
    pub water_max: Temperature,
    /// The coldest condenser it is run with.
    pub condenser_min: Temperature,
    /// The most that it is loaded to, as a part of its capacity at the moment.
    pub part_load_max: f64,
}

/// For what the plant was built.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Design {
    /// Outside.
    pub outside: Temperature,
    /// κ.
    pub containment: f64,
}

/// A state.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct State {
    /// Its name.
    pub name: String,
    /// Work, as a part of what all servers can do.
    pub utilisation: f64,
    /// Outside.
    pub outside: Temperature,
    /// l.
    pub load_balance: f64,
    /// κ.
    pub containment: f64,
    /// Whether the water is as warm as possible.
    pub optimal_cooling: bool,
}

/// A change of the state before.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// See [`State`].
    pub utilisation: Option<f64>,
    /// See [`State`].
    pub outside: Option<Temperature>,
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
#[serde(rename_all = "kebab-case")]
pub enum Over {
    /// Work.
    Utilisation,
    /// Outside.
    Outside,
    /// l.
    LoadBalance,
    /// κ.
    Containment,
    /// Idle power of servers.
    IdleFraction,
    /// Set point of the water.
    Water,
}

impl Over {
    /// Its name as a field.
    pub fn name(self) -> &'static str {
        match self {
            Over::Utilisation => "utilisation",
            Over::Outside => "outside",
            Over::LoadBalance => "load-balance",
            Over::Containment => "containment",
            Over::IdleFraction => "idle-fraction",
            Over::Water => "water",
        }
    }

    /// Its unit in tables and pictures, if it has one.
    pub fn unit(self) -> &'static str {
        match self {
            Over::Outside | Over::Water => "F",
            Over::Utilisation | Over::LoadBalance | Over::Containment | Over::IdleFraction => "",
        }
    }

    /// Its name with its unit.
    pub fn head(self) -> String {
        [self.name(), self.unit()].join(" ").trim_end().to_owned()
    }

    /// The value that is given for it, °F or without a unit.
    fn value(self, field: &str, given: &Given) -> Result<f64> {
        let field = format!("sweep over {}: {field}", self.name());
        match self {
            Over::Outside | Over::Water => given.quantity::<crate::quantity::TemperatureUnits>(&field),
            _ => given.number(&field),
        }
    }
}

/// Which peak the part of network, pumps and lights is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Peak {
    /// All that the first state draws at full load.
    Total,
    /// Servers at full load.
    Servers,
}

/// A range of one part of the first state.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Sweep {
    /// What changes.
    pub over: Over,
    /// Its first value.
    pub from: Given,
    /// Its last value.
    pub to: Given,
    /// Steps between them.
    pub steps: u32,
}

impl Sweep {
    /// The first and the last value, °F or without a unit.
    ///
    /// # Errors
    /// `InvalidInput`: a unit is missing, wrong, or one too many.
    pub fn range(&self) -> Result<(f64, f64)> {
        Ok((self.over.value("from", &self.from)?, self.over.value("to", &self.to)?))
    }
}

/// What a site measured in one state: those components that it has meters for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Measured {
    /// See [`State`].
    pub utilisation: f64,
    /// See [`State`].
    pub outside: Temperature,
    /// Servers.
    pub servers: Option<Power>,
    /// Losses of PDUs.
    pub pdu: Option<Power>,
    /// Losses of the UPS.
    pub ups: Option<Power>,
    /// Air handlers.
    pub air: Option<Power>,
    /// Chiller.
    pub chiller: Option<Power>,
    /// Network, pumps and lights.
    pub fixed: Option<Power>,
    /// Everything.
    pub total: Option<Power>,
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
        text.checked(|description: Description| description.check().map(|()| description))
    }

    fn check(&self) -> Result<()> {
        if let Some(compare) = self.compare.as_deref().filter(|compare| *compare != "pelley-appendix-a") {
            return Err(refused(format!("`compare` is \"{compare}\"; known is \"pelley-appendix-a\"")));
        }
        at_most("scenario", self.scenarios.len())?;
        at_most("sweep", self.sweeps.len())?;
        at_most("measured", self.measured.len())?;
        self.check_air()?;
        positive("pdu.servers-each", self.pdu.servers_each, 1e6, "")?;
        self.pdu.loss_at_peak.within("pdu.loss-at-peak", 0.0, 50.0)?;
        within("pdu.loss-fixed-fraction", self.pdu.loss_fixed_fraction, 0.0, 1.0, "")?;
        self.ups.loss_at_peak.within("ups.loss-at-peak", 0.0, 50.0)?;
        within("ups.loss-fixed-fraction", self.ups.loss_fixed_fraction, 0.0, 1.0, "")?;
        let chiller = &self.chiller;
        positive("chiller.power-per-heat", chiller.power_per_heat, 2.0, "")?;
        chiller.spare.within("chiller.spare", -50.0, 500.0)?;
        chiller.water.within("chiller.water", 33.0, 80.0)?;
        chiller.water_max.within("chiller.water-max", chiller.water.get(), 80.0)?;
        chiller.condenser_min.within("chiller.condenser-min", 40.0, 100.0)?;
        positive("chiller.part-load-max", chiller.part_load_max, 1.5, "")?;
        within("fixed-fraction-of-peak", self.fixed_fraction_of_peak, 0.0, 0.5, "")?;
        for sweep in &self.sweeps {
            let steps = format!("sweep over {}: steps", sweep.over.name());
            within(&steps, f64::from(sweep.steps), 1.0, 1000.0, "")?;
            sweep.range()?;
        }
        Ok(())
    }

    fn check_air(&self) -> Result<()> {
        let (servers, air) = (&self.servers, &self.air);
        servers.air_peak.positive("servers.air-peak")?;
        servers.air_peak.within("servers.air-peak", 0.0, 1e4)?;
        servers.air_idle.within("servers.air-idle", 0.0, servers.air_peak.get())?;
        air.handler_flow_max.positive("air.handler-flow-max")?;
        air.handler_flow_max.within("air.handler-flow-max", 0.0, 1e6)?;
        air.handler_fan.within("air.handler-fan", 0.0, 1e6)?;
        air.handler_idle.within("air.handler-idle", 0.0, 1e6)?;
        positive("air.exchange-effectiveness", air.exchange_effectiveness, 1.0, "")?;
        air.spare.within("air.spare", -50.0, 500.0)?;
        air.inlet_max.within("air.inlet-max", 50.0, 130.0)?;
        air.supply.within("air.supply", 40.0, 130.0)?;
        Ok(())
    }

    /// The plant that is described, with its chiller, air handlers and losses made for full load.
    ///
    /// # Errors
    /// `InvalidInput`: a part is missing or given twice, or full load cannot be held.
    pub fn plant(&self) -> Result<Plant> {
        match (self.size.servers, self.size.total_at_peak) {
            (Some(servers), None) => self.plant_of(positive("size.servers", servers, 1e8, "")?),
            (None, Some(total)) => {
                total.positive("size.total-at-peak")?;
                let total = total.within("size.total-at-peak", 0.0, 1e10)? / 1_000.0;
                // Everything grows with the number of servers, so one plant gives the scale of all.
                let small = self.plant_of(1_000.0)?;
                let draw = small.draw(&self.peak_operation())?;
                self.plant_of(1_000.0 * total / draw.total_kw())
            }
            (Some(_), Some(_)) => Err(refused("`size` has both `servers` and `total-at-peak`: give one")),
            (None, None) => Err(refused("`size.servers` is missing (or `size.total-at-peak` in its place)")),
        }
    }

    /// Full load under the conditions of the design.
    pub fn design_operation(&self) -> Operation {
        Operation {
            utilisation: 1.0,
            outside_f: self.design.outside.get(),
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
            outside_f: first.outside.get(),
            load_balance: first.load_balance,
            containment: first.containment,
            optimal_cooling: first.optimal_cooling,
        }
    }

    fn plant_of(&self, servers: f64) -> Result<Plant> {
        let servers_of = &self.servers;
        let curve =
            Curve::of("servers", servers_of.peak, servers_of.idle_fraction, servers_of.curve.as_deref())?;
        let peak_kw = servers * curve.peak_w() / 1_000.0;
        let losses = Losses {
            pdu: self.pdu.loss_at_peak.get() / 100.0,
            pdu_fixed: self.pdu.loss_fixed_fraction,
            ups: self.ups.loss_at_peak.get() / 100.0,
            ups_fixed: self.ups.loss_fixed_fraction,
            basis: self.ups.loss_basis,
        };
        let flow = servers * self.servers.air_peak.get() * (1.0 + self.air.spare.get() / 100.0);
        let mut plant = Plant {
            servers,
            curve,
            air_idle_cfm: self.servers.air_idle.get(),
            air_peak_cfm: self.servers.air_peak.get(),
            conditioning: Conditioning::at_design(peak_kw, servers / self.pdu.servers_each, &losses),
            ups_in_room: self.ups.in_cooled_room,
            air_handlers: AirHandlers {
                count: flow / self.air.handler_flow_max.get(),
                flow_max_cfm: self.air.handler_flow_max.get(),
                fan_kw: self.air.handler_fan.get() / 1_000.0,
                idle_kw: self.air.handler_idle.get() / 1_000.0,
                effectiveness: self.air.exchange_effectiveness,
                basis: self.air.exchange_flow,
            },
            inlet_max_f: self.air.inlet_max.get(),
            supply_f: self.air.supply.get(),
            chiller: Chiller { heat_kw: 1.0, power_kw: 1.0 },
            water_f: self.chiller.water.get(),
            water_max_f: self.chiller.water_max.get(),
            condenser_min_f: self.chiller.condenser_min.get(),
            part_load_max: self.chiller.part_load_max,
            fixed_kw: 0.0,
        };
        let design = self.design_operation();
        let heat_kw = plant.heat_kw(&design)? * (1.0 + self.chiller.spare.get() / 100.0);
        let condenser_f = design.outside_f.max(self.chiller.condenser_min.get());
        let factor = capacity_factor(self.chiller.water.get(), condenser_f);
        within(
            "chiller: capacity at the temperatures of the design over the rated one",
            factor,
            0.1,
            10.0,
            "",
        )?;
        plant.chiller =
            Chiller::made_for(heat_kw, self.chiller.power_per_heat, self.chiller.water.get(), condenser_f);
        plant.draw(&design).map_err(|error| error.context("at full load, as designed"))?;
        let draw = plant.draw(&self.peak_operation());
        let draw = draw.map_err(|error| error.context("the first state at full load"))?;
        let fraction = self.fixed_fraction_of_peak;
        plant.fixed_kw = match self.fixed_basis {
            Peak::Total => draw.total_kw() * fraction / (1.0 - fraction),
            Peak::Servers => peak_kw * fraction,
        };
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
            case.at.outside_f = scenario.outside.map_or(case.at.outside_f, Temperature::get);
            case.at.load_balance = scenario.load_balance.unwrap_or(case.at.load_balance);
            case.at.containment = scenario.containment.unwrap_or(case.at.containment);
            case.at.optimal_cooling = scenario.optimal_cooling.unwrap_or(case.at.optimal_cooling);
            if let Some(fraction) = scenario.idle_fraction {
                within(&format!("scenario {}: idle-fraction", scenario.name), fraction, 0.0, 1.0, "")?;
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
