//! The description of a room as TOML.

use super::control::{Budget, Control};
use super::cost::Terms;
use super::synthetic::{Class, Shape};
use super::topology::{Kind, Topology};
use super::wiring::{self, Cords, Placement, Racks};
use crate::field::{positive, refused, within};
use crate::power::servers::Curve;
use serde::Deserialize;
use tierstone_base::Result;

/// A whole description.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// The report's heading.
    pub title: String,
    /// `pelley-appendix-b`, if the report shall stand beside that source's values.
    pub compare: Option<String>,
    /// Of the synthetic trace.
    pub seed: u64,
    /// Length of the synthetic trace, minutes.
    pub minutes: usize,
    /// PDUs and how they reach the floor.
    pub topology: Wires,
    /// Servers on the floor.
    pub placement: Floor,
    /// What feeds may carry.
    pub limits: FeedLimits,
    /// The controller.
    pub control: Loop,
    /// How much there is, or that the least is looked for.
    pub capacity: Capacity,
    /// What capacity costs.
    pub cost: Cost,
    /// Servers, in the order of their numbers.
    #[serde(rename = "class")]
    pub classes: Vec<ClassOf>,
    /// Further rooms to compare.
    pub study: Option<Study>,
}

/// PDUs and how they reach the floor.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wires {
    /// `wrapped`, `x-y`, `serpentine`, `full` or `custom`.
    pub kind: String,
    /// PDUs of an island.
    pub pdus: usize,
    /// Copies that share no PDU.
    pub islands: usize,
    /// Of `custom`: for each zone its pairs of PDUs.
    pub zones: Option<Vec<Vec<(usize, usize)>>>,
}

/// Servers on the floor.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Floor {
    /// Servers of a full rack.
    pub servers_per_rack: usize,
    /// What hangs on one pair of PDUs.
    pub cords: Cords,
    /// In which order racks come to zones.
    pub racks: Racks,
}

/// What feeds may carry.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedLimits {
    /// The most that two phases of a PDU may differ by, % of a phase's capacity.
    pub phase_skew_percent: f64,
    /// Of each feed: the most that loads draw that cannot be controlled, W.
    pub uncontrolled_w_per_feed: f64,
}

/// The controller.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loop {
    /// What a desired budget is taken from.
    pub budget: Budget,
    /// Samples that it looks back over.
    pub window_samples: usize,
}

/// Capacity: one of both.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// All PDUs together, kW.
    pub total_kw: Option<f64>,
    /// The least without throttling.
    pub find_least: Option<bool>,
}

/// What capacity costs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Price of a critical watt, dollars.
    pub dollars_per_w: f64,
    /// Years of payment.
    pub years: f64,
    /// Interest a year, %.
    pub interest_percent: f64,
}

/// A class of like servers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassOf {
    /// Its name.
    pub name: String,
    /// How many.
    pub servers: usize,
    /// What is printed on one, W.
    pub nameplate_w: f64,
    /// Power at full load, W.
    pub peak_w: Option<f64>,
    /// Idle power as a part of it.
    pub idle_fraction: Option<f64>,
    /// Instead of both: W at 0, 10, ... 100 % load.
    pub curve_w: Option<Vec<f64>>,
    /// How busy it is.
    pub activity: Shape,
}

/// Further rooms of as many PDUs, to compare.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// Kinds of topologies.
    pub topologies: Vec<String>,
    /// Counts of PDUs, fully connected, with the first mix.
    #[serde(default)]
    pub full_pdus: Vec<usize>,
    /// Parts of the least capacity at which the described room is run too short.
    #[serde(default)]
    pub short_fractions: Vec<f64>,
    /// Mixes of the classes.
    #[serde(rename = "mix")]
    pub mixes: Vec<Mix>,
}

/// Other numbers of servers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// Its name.
    pub name: String,
    /// Servers of each class.
    pub servers: Vec<usize>,
    /// Servers of the same peaks, linear from this part of it.
    pub idle_fraction: Option<f64>,
}

/// The kind of this name.
///
/// # Errors
/// `InvalidInput`: there is none.
pub fn kind(name: &str) -> Result<Kind> {
    let found = Kind::ALL.into_iter().find(|kind| kind.name() == name);
    found.ok_or_else(|| {
        refused(format!("topology \"{name}\" is unknown; known are wrapped, x-y, serpentine, full and, with `zones`, custom"))
    })
}

impl ClassOf {
    fn curve(&self) -> Result<Curve> {
        let name = &self.name;
        match (&self.curve_w, self.peak_w, self.idle_fraction) {
            (Some(watts), None, None) => Curve::table(&format!("class {name}: curve_w"), watts),
            (None, Some(peak), Some(idle)) => Curve::linear(peak, idle),
            (None, None, _) => {
                Err(refused(format!("class {name}: `peak_w` is missing (or `curve_w` in its place)")))
            }
            (None, _, None) => Err(refused(format!("class {name}: `idle_fraction` is missing"))),
            (Some(_), _, _) => {
                Err(refused(format!("class {name}: `curve_w` stands beside `peak_w` or `idle_fraction`")))
            }
        }
    }
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
        if let Some(compare) = self.compare.as_deref().filter(|compare| *compare != "pelley-appendix-b") {
            return Err(refused(format!("`compare` is \"{compare}\"; known is \"pelley-appendix-b\"")));
        }
        within("minutes", self.minutes as f64, 1.0, 1e6, "min")?;
        within("placement.servers_per_rack", self.placement.servers_per_rack as f64, 1.0, 1e4, "")?;
        within("limits.phase_skew_percent", self.limits.phase_skew_percent, 0.1, 100.0, "%")?;
        within("limits.uncontrolled_w_per_feed", self.limits.uncontrolled_w_per_feed, 0.0, 1e7, "W")?;
        within("control.window_samples", self.control.window_samples as f64, 1.0, 10_000.0, "")?;
        positive("cost.dollars_per_w", self.cost.dollars_per_w, 1e4, "$/W")?;
        positive("cost.years", self.cost.years, 100.0, "years")?;
        within("cost.interest_percent", self.cost.interest_percent, 0.0, 100.0, "%")?;
        match (self.capacity.total_kw, self.capacity.find_least) {
            (Some(total), None) => {
                positive("capacity.total_kw", total, 1e7, "kW")?;
            }
            (None, Some(true)) => {}
            _ => {
                return Err(refused(
                    "`capacity` must have either `total_kw` or `find_least = true`: how much power there is decides all",
                ));
            }
        }
        for class in &self.classes {
            within(&format!("class {}: servers", class.name), class.servers as f64, 0.0, 1e7, "")?;
            positive(&format!("class {}: nameplate_w", class.name), class.nameplate_w, 1e5, "W")?;
            class.activity.check(&class.name)?;
            class.curve()?;
        }
        let Some(study) = &self.study else { return Ok(()) };
        for mix in &study.mixes {
            if mix.servers.len() != self.classes.len() {
                return Err(refused(format!(
                    "study mix {}: `servers` has {} numbers for {} classes",
                    mix.name,
                    mix.servers.len(),
                    self.classes.len()
                )));
            }
            if let Some(idle) = mix.idle_fraction {
                within(&format!("study mix {}: idle_fraction", mix.name), idle, 0.0, 1.0, "")?;
            }
        }
        for &part in &study.short_fractions {
            within("study.short_fractions", part, 0.1, 1.0, "")?;
        }
        study.topologies.iter().try_for_each(|name| kind(name).map(|_| ()))
    }

    /// The topology.
    ///
    /// # Errors
    /// As [`Topology::new`] and [`Topology::custom`].
    pub fn wires(&self) -> Result<Topology> {
        let wires = &self.topology;
        match (wires.kind.as_str(), &wires.zones) {
            ("custom", Some(zones)) => Topology::custom(wires.pdus, zones),
            ("custom", None) => {
                Err(refused("`topology.zones` is missing: a custom topology lists each zone's pairs of PDUs"))
            }
            (_, Some(_)) => Err(refused(format!(
                "`topology.zones` stands beside kind \"{}\"; only custom has zones",
                wires.kind
            ))),
            (name, None) => Topology::new(kind(name)?, wires.pdus, wires.islands),
        }
    }

    /// The classes with their curves.
    ///
    /// # Errors
    /// `InvalidInput`: a curve is missing, or there is no server.
    pub fn class_list(&self) -> Result<Vec<Class>> {
        let mut classes = Vec::new();
        for class in &self.classes {
            classes.push(Class {
                servers: class.servers,
                curve: class.curve()?,
                shape: class.activity.clone(),
            });
        }
        if classes.iter().all(|class| class.servers == 0) {
            return Err(refused("`[[class]]`: there is no server"));
        }
        Ok(classes)
    }

    /// The classes of a mix.
    ///
    /// # Errors
    /// As [`Description::class_list`].
    pub fn mixed(&self, mix: &Mix) -> Result<Vec<Class>> {
        let mut classes = self.class_list()?;
        for (class, &servers) in classes.iter_mut().zip(&mix.servers) {
            class.servers = servers;
            if let Some(idle) = mix.idle_fraction {
                class.curve = Curve::linear(class.curve.peak_w(), idle)?;
            }
        }
        Ok(classes)
    }

    /// How servers are placed.
    pub fn floor(&self) -> Placement {
        let floor = &self.placement;
        Placement { servers_per_rack: floor.servers_per_rack, cords: floor.cords, racks: floor.racks }
    }

    /// The controller.
    pub fn controller(&self) -> Control {
        Control { budget: self.control.budget, window: self.control.window_samples }
    }

    /// The loan.
    pub fn terms(&self) -> Terms {
        let cost = &self.cost;
        Terms {
            dollars_per_w: cost.dollars_per_w,
            years: cost.years,
            interest: cost.interest_percent / 100.0,
        }
    }
}

/// The kinds that placement sees.
pub fn kinds(classes: &[Class]) -> Vec<wiring::Kind> {
    let kind = |class: &Class| wiring::Kind { servers: class.servers, peak_w: class.curve.peak_w() };
    classes.iter().map(kind).collect()
}

/// The idle power of every server, W.
pub fn idle_w(classes: &[Class]) -> Vec<f64> {
    classes.iter().flat_map(|class| std::iter::repeat_n(class.curve.watts(0.0), class.servers)).collect()
}
