//! What is asked: the description's fields, and the same checked and in base units.

use super::catalogue::Catalogue;
use crate::description::{Description, Note};
use crate::field::refused;
use crate::quantity::{
    Bandwidth, Duration, EnergyPrice, HOUR, LEAST, Money, Number, Power, PowerPrice, Rate, Size,
};
use serde::Deserialize;
use std::collections::BTreeSet;
use tierstone_base::Result;

/// Most nodes of a catalogue, and most parts of all together.
const NODES: usize = 64;
const PARTS: usize = 256;
/// Bytes of a gigabyte.
pub const GB: f64 = 1e9;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    title: String,
    source: String,
    lifetime: Duration,
    electricity: EnergyPrice,
    demand: DemandFile,
    map: MapFile,
    cooling: Option<CoolingFile>,
    infrastructure: Option<InfrastructureFile>,
    network: Option<NetworkFile>,
    #[serde(default)]
    node: Vec<NodeFile>,
    #[serde(default)]
    part: Vec<PartFile>,
    #[serde(default)]
    published: Vec<PublishedFile>,
    #[serde(default)]
    boundary: Vec<BoundaryFile>,
    #[serde(default)]
    note: Vec<Note>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct DemandFile {
    data: Size,
    rate: Rate,
    working_set: Option<Size>,
    unit: Option<Size>,
    unit_within: Option<Duration>,
    unit_ways: Option<Number>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct MapFile {
    data_from: Size,
    data_to: Size,
    rate_from: Rate,
    rate_to: Rate,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CoolingFile {
    pue: Number,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InfrastructureFile {
    price: PowerPrice,
    generations: Number,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkFile {
    ports: Number,
    price: Money,
    power: Power,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeFile {
    name: String,
    /// An item of the catalogue of present hardware that fills in what is not given.
    catalogue: Option<String>,
    price: Option<Money>,
    power: Option<Power>,
    capacity: Option<Size>,
    rate: Option<Rate>,
    memory: Option<Size>,
    speed: Option<Bandwidth>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PartFile {
    node: String,
    name: String,
    count: Number,
    /// As a node's.
    catalogue: Option<String>,
    price: Option<Money>,
    power: Option<Power>,
    capacity: Option<Size>,
    rate: Option<Rate>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedFile {
    node: String,
    measure: Measure,
    value: String,
    place: String,
    misprint: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BoundaryFile {
    below: String,
    above: String,
    value: String,
    place: String,
}

/// What a published value of a node is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    Price,
    Power,
    Rate,
    QueriesPerJoule,
    GbPerWatt,
    CostPerGb,
    CostPerRate,
}

/// A checked description, in dollars, watts, gigabytes, queries a second and hours.
#[derive(Clone, Debug)]
pub struct Case {
    pub title: String,
    pub source: String,
    pub terms: Terms,
    pub demand: Demand,
    pub map: Map,
    pub nodes: Vec<Node>,
    /// The names of parts; [`Part::kind`] counts in them.
    pub kinds: Vec<String>,
    pub published: Vec<Published>,
    pub boundaries: Vec<Boundary>,
    /// Whether a node or part names an item of the catalogue of present hardware.
    pub from_catalogue: bool,
    pub notes: Vec<String>,
}

/// What is paid for besides nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    pub hours: f64,
    /// Dollars a kilowatt-hour.
    pub electricity: f64,
    /// Power at the meter for each watt of the nodes and switches; 1 when cooling is left out.
    pub pue: f64,
    /// Dollars a watt that one generation of nodes pays for power and cooling infrastructure.
    pub infrastructure: f64,
    pub network: Option<Network>,
}

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Nodes a switch.
    pub ports: f64,
    pub price: f64,
    pub power: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    pub gb: f64,
    pub rate: f64,
    /// Memory that every node needs, in gigabytes.
    pub working_set_gb: Option<f64>,
    pub unit: Option<Unit>,
}

/// A piece of work that has to be done in time, in at most so many parts side by side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    pub bytes: f64,
    pub seconds: f64,
    pub ways: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Map {
    pub gb: (f64, f64),
    pub rate: (f64, f64),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub name: String,
    pub price: f64,
    pub power: f64,
    pub gb: f64,
    pub rate: Option<f64>,
    pub parts: Vec<Part>,
    /// Why it is out of question, if it is.
    pub refused: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub kind: usize,
    pub count: f64,
    pub price: f64,
    pub power: f64,
    pub gb: f64,
    pub rate: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    pub node: usize,
    pub measure: Measure,
    pub value: String,
    pub place: String,
    pub misprint: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Boundary {
    pub below: usize,
    pub above: usize,
    pub value: String,
    pub place: String,
}

/// Reads and checks a description.
pub fn read(description: &Description) -> Result<Case> {
    description.checked(check)
}

fn check(file: File) -> Result<Case> {
    let from_catalogue =
        file.node.iter().map(|node| &node.catalogue).chain(file.part.iter().map(|part| &part.catalogue));
    let from_catalogue = from_catalogue.flatten().next().is_some();
    let kinds: BTreeSet<String> = file.part.iter().map(|part| part.name.clone()).collect();
    let kinds: Vec<String> = kinds.into_iter().collect();
    let demand = demand(&file.demand)?;
    let nodes = nodes(&file.node, &file.part, &kinds, &demand)?;
    let index = |name: &str, list: &str| {
        let found = nodes.iter().position(|node| node.name == name);
        found.ok_or_else(|| {
            refused(format!("a [[{list}]] names the node '{name}', which is not in the catalogue"))
        })
    };
    let published = file.published.into_iter().map(|of| {
        let node = index(&of.node, "published")?;
        Ok(Published { node, measure: of.measure, value: of.value, place: of.place, misprint: of.misprint })
    });
    let published = published.collect::<Result<_>>()?;
    let boundaries = file.boundary.into_iter().map(|of| {
        let (below, above) = (index(&of.below, "boundary")?, index(&of.above, "boundary")?);
        Ok(Boundary { below, above, value: of.value, place: of.place })
    });
    let boundaries = boundaries.collect::<Result<_>>()?;
    let terms = Terms {
        hours: file.lifetime.positive("lifetime")? / HOUR,
        electricity: file.electricity.get(),
        pue: file.cooling.map_or(Ok(1.0), |cooling| cooling.pue.within("cooling.pue", 1.0, 10.0))?,
        infrastructure: infrastructure(file.infrastructure)?,
        network: file.network.map(network).transpose()?,
    };
    Ok(Case {
        title: file.title,
        source: file.source,
        terms,
        demand,
        map: map(&file.map)?,
        nodes,
        kinds,
        published,
        boundaries,
        from_catalogue,
        notes: Note::texts(file.note),
    })
}

fn infrastructure(file: Option<InfrastructureFile>) -> Result<f64> {
    file.map_or(Ok(0.0), |file| {
        Ok(file.price.get() / file.generations.within("infrastructure.generations", 1.0, 100.0)?)
    })
}

fn network(file: NetworkFile) -> Result<Network> {
    let ports = file.ports.within("network.ports", 1.0, 1e6)?;
    if ports.fract() != 0.0 {
        return Err(refused(format!("network.ports is {ports}, it must be a whole number")));
    }
    Ok(Network { ports, price: file.price.get(), power: file.power.get() })
}

fn demand(file: &DemandFile) -> Result<Demand> {
    let unit = match (file.unit, file.unit_within, file.unit_ways) {
        (None, None, None) => None,
        (Some(unit), Some(within), Some(ways)) => Some(Unit {
            bytes: unit.positive("demand.unit")?,
            seconds: within.positive("demand.unit-within")?,
            ways: ways.within("demand.unit-ways", 1.0, 1e9)?,
        }),
        _ => return Err(refused("demand.unit, demand.unit-within and demand.unit-ways go together")),
    };
    Ok(Demand {
        gb: file.data.positive("demand.data")? / GB,
        rate: file.rate.positive("demand.rate")?,
        working_set_gb: file.working_set.map(|size| size.get() / GB),
        unit,
    })
}

fn map(file: &MapFile) -> Result<Map> {
    let gb = (file.data_from.positive("map.data-from")? / GB, file.data_to.get() / GB);
    let rate = (file.rate_from.positive("map.rate-from")?, file.rate_to.get());
    for (name, (from, to)) in [("data", gb), ("rate", rate)] {
        if to < from * 1.1 || to > from * 1e15 {
            return Err(refused(format!("map.{name}-to must be from 1.1 to 1e15 times map.{name}-from")));
        }
    }
    Ok(Map { gb, rate })
}

fn nodes(nodes: &[NodeFile], parts: &[PartFile], kinds: &[String], demand: &Demand) -> Result<Vec<Node>> {
    if nodes.is_empty() {
        return Err(refused("the catalogue is empty: give at least one [[node]]"));
    }
    if nodes.len() > NODES || parts.len() > PARTS {
        return Err(refused(format!("a catalogue has at most {NODES} nodes and {PARTS} parts")));
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = nodes.iter().find(|node| !names.insert(node.name.as_str())) {
        return Err(refused(format!("two nodes are called '{}'", twice.name)));
    }
    if let Some(part) = parts.iter().find(|part| !names.contains(part.node.as_str())) {
        let message = format!("the part '{}' is of the node '{}', which is not there", part.name, part.node);
        return Err(refused(message));
    }
    let all: Vec<Node> = nodes
        .iter()
        .map(|node| {
            let own: Vec<&PartFile> = parts.iter().filter(|part| part.node == node.name).collect();
            self::node(node, &own, kinds, demand)
        })
        .collect::<Result<_>>()?;
    if all.iter().all(|node| node.refused.is_some()) {
        let whys: Vec<&str> = all.iter().filter_map(|node| node.refused.as_deref()).collect();
        return Err(refused(format!("no node meets the demand: {}", whys.join("; "))));
    }
    Ok(all)
}

fn node(file: &NodeFile, parts: &[&PartFile], kinds: &[String], demand: &Demand) -> Result<Node> {
    let name = &file.name;
    let shelf = Catalogue::shipped()?;
    let (place, item) = (format!("the node '{name}'"), file.catalogue.as_deref());
    let part = |part: &&PartFile| {
        let count = part.count.within(&format!("count of the part '{}'", part.name), 1.0, 1e6)?;
        let kind = kinds.iter().position(|kind| *kind == part.name).unwrap_or(0);
        let (place, item) = (format!("the part '{}'", part.name), part.catalogue.as_deref());
        Ok(Part {
            kind,
            count,
            price: shelf.needed(&place, "price", part.price, item)?,
            power: shelf.needed(&place, "power", part.power, item)?,
            gb: shelf.needed(&place, "capacity", part.capacity, item)? / GB,
            rate: shelf.figure(&place, "rate", part.rate, item)?,
        })
    };
    let node = Node {
        name: name.clone(),
        price: shelf.needed(&place, "price", file.price, item)?,
        power: shelf.needed(&place, "power", file.power, item)?,
        gb: shelf.figure(&place, "capacity", file.capacity, item)?.map_or(0.0, |bytes| bytes / GB),
        rate: shelf.figure(&place, "rate", file.rate, item)?,
        parts: parts.iter().map(part).collect::<Result<_>>()?,
        refused: refusal(file, demand)?,
    };
    let has_rate = node.rate.is_some() || node.parts.iter().any(|part| part.rate.is_some());
    let has_capacity = file.capacity.is_some() || !parts.is_empty();
    for (what, value, is_given) in [
        ("price", node.total_price(), true),
        ("power", node.total_power(), true),
        ("capacity", node.total_gb(), has_capacity),
        ("rate", node.total_rate(), has_rate),
    ] {
        if !(value >= LEAST && value.is_finite()) {
            let message = match is_given {
                true if !value.is_finite() => format!("the {what} of the node '{name}' is out of range"),
                true => {
                    format!("the node '{name}': its {what}, with that of its parts, must be more than zero")
                }
                false => format!("the node '{name}' has no {what}, neither itself nor by its parts"),
            };
            return Err(refused(message));
        }
    }
    Ok(node)
}

/// Why a node cannot do what is asked of every single node.
fn refusal(file: &NodeFile, demand: &Demand) -> Result<Option<String>> {
    let (name, missing) = (&file.name, |field: &str, because: &str| {
        refused(format!("the node '{}' has no {field}, which {because} asks for", file.name))
    });
    if let Some(needed) = demand.working_set_gb {
        let memory = file.memory.ok_or_else(|| missing("memory", "demand.working-set"))?.get() / GB;
        if memory < needed {
            return Ok(Some(format!("{name}: {memory} GB of memory for a working set of {needed} GB")));
        }
    }
    if let Some(unit) = demand.unit {
        let speed = file.speed.ok_or_else(|| missing("speed", "demand.unit"))?.positive("speed")?;
        let seconds = unit.bytes / (unit.ways * speed);
        if seconds > unit.seconds {
            let (most, ways) = (unit.seconds, unit.ways);
            return Ok(Some(format!(
                "{name}: {seconds:.3} s for a unit of work in {ways} parts, which has {most} s"
            )));
        }
    }
    Ok(None)
}

impl Node {
    fn sum(&self, own: f64, of: impl Fn(&Part) -> f64) -> f64 {
        own + self.parts.iter().map(|part| part.count * of(part)).sum::<f64>()
    }

    /// Its price with its parts, in dollars.
    pub fn total_price(&self) -> f64 {
        self.sum(self.price, |part| part.price)
    }

    /// Its power with its parts, in watts.
    pub fn total_power(&self) -> f64 {
        self.sum(self.power, |part| part.power)
    }

    /// What it stores, in gigabytes.
    pub fn total_gb(&self) -> f64 {
        self.sum(self.gb, |part| part.gb)
    }

    /// Queries a second: those of its parts, or what the node itself can do if that is less; 0 if neither is given.
    pub fn total_rate(&self) -> f64 {
        let rated = self.parts.iter().filter_map(|part| Some(part.count * part.rate?));
        let parts = rated.reduce(|sum, rate| sum + rate);
        match (self.rate, parts) {
            (Some(own), Some(parts)) => own.min(parts),
            (own, parts) => own.or(parts).unwrap_or(0.0),
        }
    }
}
