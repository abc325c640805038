//! The description of a room as TOML.

use super::control::{Budget, Control};
use super::cost::Terms;
use super::synthetic::{Class, Shape, generate};
use super::topology::{Kind, Topology};
use super::trace::Trace;
use super::wiring::{self, Cords, Placement, Racks};
use crate::field::{at_most, refused, within};
use crate::power::servers::Curve;
use crate::quantity::{DAY, Duration, Percent, Power, PowerPrice};
use serde::Deserialize;
use tierstone_base::Result;

/// Seconds of a year of 365 days.
const YEAR: f64 = 365.0 * DAY;

/// A whole description.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Description {
    /// The report's heading.
    pub title: String,
    /// `pelley-appendix-b`, if the report shall stand beside that source's values.
    pub compare: Option<String>,
    /// Of the synthetic trace; needed where no trace is given, and by a study.
    pub seed: Option<u64>,
    /// Length of the synthetic trace, which has a sample a minute; as the seed.
    pub length: Option<Duration>,
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
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
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
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
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
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FeedLimits {
    /// The most that two phases of a PDU may differ by, of a phase's capacity.
    pub phase_skew: Percent,
    /// Of each feed: the most that loads draw that cannot be controlled.
    pub uncontrolled_per_feed: Power,
}

/// The controller.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Loop {
    /// What a desired budget is taken from.
    pub budget: Budget,
    /// Samples that it looks back over.
    pub window_samples: usize,
}

/// Capacity: one of both.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Capacity {
    /// All PDUs together.
    pub total: Option<Power>,
    /// The least without throttling.
    pub find_least: Option<bool>,
}

/// What capacity costs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Cost {
    /// Price of critical power.
    pub price: PowerPrice,
    /// How long it is paid off.
    pub term: Duration,
    /// Interest a year.
    pub interest: Percent,
}

/// A class of like servers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ClassOf {
    /// Its name.
    pub name: String,
    /// How many.
    pub servers: usize,
    /// The power that is printed on one.
    pub nameplate: Power,
    /// Power at full load.
    pub peak: Option<Power>,
    /// Idle power as a part of it.
    pub idle_fraction: Option<f64>,
    /// Instead of both: at 0, 10, ... 100 % load.
    pub curve: Option<Vec<Power>>,
    /// How busy it is in the synthetic trace; as the seed.
    pub activity: Option<Shape>,
}

/// Further rooms of as many PDUs, to compare.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
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
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Mix {
    /// Its name.
    pub name: String,
    /// Servers of each class.
    pub servers: Vec<usize>,
    /// Servers of the same peaks, linear from this part of it.
    pub idle_fraction: Option<f64>,
}

impl Study {
    fn check(&self, classes: usize) -> Result<()> {
        at_most("study.mix", self.mixes.len())?;
        at_most("study.topologies", self.topologies.len())?;
        at_most("study.full-pdus", self.full_pdus.len())?;
        at_most("study.short-fractions", self.short_fractions.len())?;
        for mix in &self.mixes {
            let (name, count) = (&mix.name, mix.servers.len());
            if count != classes {
                return Err(refused(format!(
                    "study mix {name}: `servers` has {count} numbers for {classes} classes"
                )));
            }
            if let Some(idle) = mix.idle_fraction {
                within(&format!("study mix {name}: idle-fraction"), idle, 0.0, 1.0, "")?;
            }
        }
        for &part in &self.short_fractions {
            within("study.short-fractions", part, 0.1, 1.0, "")?;
        }
        self.topologies.iter().try_for_each(|name| kind(name).map(|_| ()))
    }
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
    fn check(&self) -> Result<()> {
        let place = format!("class {}", self.name);
        within(&format!("{place}.servers"), self.servers as f64, 0.0, 1e7, "")?;
        self.nameplate.positive(&format!("{place}.nameplate"))?;
        self.nameplate.within(&format!("{place}.nameplate"), 0.0, 1e5)?;
        if let Some(activity) = &self.activity {
            activity.check(&place)?;
        }
        self.power().map(|_| ())
    }

    fn power(&self) -> Result<Curve> {
        let place = format!("class {}", self.name);
        Curve::of(&place, self.peak, self.idle_fraction, self.curve.as_deref())
    }
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
        if let Some(compare) = self.compare.as_deref().filter(|compare| *compare != "pelley-appendix-b") {
            return Err(refused(format!("`compare` is \"{compare}\"; known is \"pelley-appendix-b\"")));
        }
        if let Some(length) = self.length {
            length.within("length", 60.0, 6e7)?;
        }
        within("placement.servers-per-rack", self.placement.servers_per_rack as f64, 1.0, 1e4, "")?;
        self.limits.phase_skew.within("limits.phase-skew", 0.1, 100.0)?;
        self.limits.uncontrolled_per_feed.within("limits.uncontrolled-per-feed", 0.0, 1e7)?;
        within("control.window-samples", self.control.window_samples as f64, 1.0, 10_000.0, "")?;
        self.cost.price.positive("cost.price")?;
        self.cost.price.within("cost.price", 0.0, 1e4)?;
        self.cost.term.positive("cost.term")?;
        self.cost.term.within("cost.term", 0.0, 100.0 * YEAR)?;
        self.cost.interest.within("cost.interest", 0.0, 100.0)?;
        match (self.capacity.total, self.capacity.find_least) {
            (Some(total), None) => {
                total.positive("capacity.total")?;
                total.within("capacity.total", 0.0, 1e10)?;
            }
            (None, Some(true)) => {}
            _ => {
                return Err(refused(
                    "`capacity` must have either `total` or `find-least = true`: how much power there is decides all",
                ));
            }
        }
        at_most("class", self.classes.len())?;
        self.classes.iter().try_for_each(ClassOf::check)?;
        self.study.as_ref().map_or(Ok(()), |study| study.check(self.classes.len()))
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
                curve: class.power()?,
                shape: class.activity.clone(),
            });
        }
        if classes.iter().all(|class| class.servers == 0) {
            return Err(refused("`[[class]]`: there is no server"));
        }
        Ok(classes)
    }

    /// The synthetic trace of `classes`, and its seed.
    ///
    /// # Errors
    /// `InvalidInput`: `seed`, `length` or the activity of a class is missing.
    pub fn synthetic(&self, classes: &[Class]) -> Result<(Trace, u64)> {
        let missing = |field: &str| {
            refused(format!("`{field}` is missing: a synthetic trace needs it (or give a trace)"))
        };
        let seed = self.seed.ok_or_else(|| missing("seed"))?;
        let minutes = (self.length.ok_or_else(|| missing("length"))?.get() / 60.0).round() as usize;
        if let Some(class) = self.classes.iter().find(|class| class.activity.is_none()) {
            return Err(missing(&format!("activity` of class `{}", class.name)));
        }
        Ok((generate(classes, minutes, seed)?, seed))
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
                class.curve = Curve::linear(&mix.name, class.curve.peak_w(), idle)?;
            }
        }
        Ok(classes)
    }

    /// How servers are placed.
    pub fn floor(&self) -> Placement {
        let floor = &self.placement;
        Placement { servers_per_rack: floor.servers_per_rack, cords: floor.cords, racks: floor.racks }
    }

    /// How far phases of a PDU may differ, as a part of a phase's capacity.
    pub fn phase_skew(&self) -> f64 {
        self.limits.phase_skew.get() / 100.0
    }

    /// The controller.
    pub fn controller(&self) -> Control {
        Control { budget: self.control.budget, window: self.control.window_samples }
    }

    /// The loan.
    pub fn terms(&self) -> Terms {
        let cost = &self.cost;
        Terms {
            dollars_per_w: cost.price.get(),
            years: cost.term.get() / YEAR,
            interest: cost.interest.get() / 100.0,
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
