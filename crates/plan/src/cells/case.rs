//! What is asked: the description's fields, and the same checked and in base units.

use crate::description::{Description, Note};
use crate::field::{at_most, refused};
use crate::quantity::{
    Bandwidth, Charge, Duration, Energy, EnergyPrice, Frequency, HOUR, Money, Number, Power, Rate, Size,
    Voltage,
};
use serde::Deserialize;
use tierstone_base::{Error, Result};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    title: String,
    source: String,
    demand: DemandFile,
    cost: Option<CostFile>,
    #[serde(default)]
    machine: Vec<MachineFile>,
    #[serde(default)]
    scan: Vec<ScanFile>,
    #[serde(default)]
    projection: Vec<ProjectionFile>,
    #[serde(default)]
    measurement: Vec<MeasurementFile>,
    #[serde(default)]
    residency: Vec<ResidencyFile>,
    #[serde(default)]
    published: Vec<PublishedFile>,
    #[serde(default)]
    note: Vec<Note>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct DemandFile {
    data: Size,
    scan: String,
    within: Duration,
    scans: Rate,
    /// 1: twice the machines, twice the speed; less: that power of the number of machines.
    scale_out: Number,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CostFile {
    electricity: EnergyPrice,
    lifetime: Duration,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct MachineFile {
    name: String,
    kind: String,
    idle: Power,
    peak: Power,
    storage_power: Power,
    clock: Frequency,
    cores: Number,
    storage: Option<Size>,
    memory: Size,
    storage_bandwidth: Bandwidth,
    memory_bandwidth: Option<Bandwidth>,
    link: Option<Bandwidth>,
    row_tuple_cycles: Number,
    row_byte_cycles: Number,
    column_value_cycles: Number,
    column_byte_cycles: Number,
    storage_byte_cycles: Number,
    flop_cycles: Number,
    battery: Option<Energy>,
    hub_machines: Option<Number>,
    hub_power: Option<Power>,
    hub_price: Option<Money>,
    price: Option<Money>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScanFile {
    name: String,
    format: Format,
    width: Size,
    flops: Number,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProjectionFile {
    bandwidth: Bandwidth,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MeasurementFile {
    name: String,
    step: Charge,
    steps: Number,
    voltage: Voltage,
    time: Duration,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResidencyFile {
    measurement: String,
    clock: Frequency,
    time: Duration,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PublishedFile {
    measure: Measure,
    machine: String,
    scan: String,
    from: Source,
    bandwidth: Option<Bandwidth>,
    flops: Option<Number>,
    over_machine: Option<String>,
    over_from: Option<Source>,
    value: Option<Number>,
    at_least: Option<Number>,
    at_most: Option<Number>,
    says: String,
    place: String,
}

/// How tuples lie in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    Row,
    Column,
}

/// Where a scan reads from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    Storage,
    Memory,
}

/// What a published statement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Joules a gigabyte.
    Energy,
    /// Watts while scanning.
    Power,
    /// How busy the processor is, of 1.
    CpuBusy,
    /// How many times as efficient as `over-machine`, or as the same from `over-from`.
    Gain,
}

/// A checked description, in watts, joules, seconds, bytes, hertz and dollars.
#[derive(Clone, Debug)]
pub struct Case {
    pub title: String,
    pub source: String,
    pub demand: Demand,
    pub cost: Option<CostTerms>,
    pub machines: Vec<Machine>,
    pub scans: Vec<Scan>,
    pub projections: Vec<f64>,
    pub measurements: Vec<Measurement>,
    pub published: Vec<Published>,
    pub notes: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    pub bytes: f64,
    pub scan: usize,
    pub seconds: f64,
    pub scans_a_second: f64,
    pub scale_out: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostTerms {
    /// Dollars a kilowatt-hour.
    pub electricity: f64,
    pub hours: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    pub name: String,
    pub kind: String,
    pub idle: f64,
    pub peak: f64,
    pub storage_power: f64,
    /// Cycles a second of all cores.
    pub cycles: f64,
    pub storage: Option<f64>,
    pub memory: f64,
    pub storage_bandwidth: f64,
    pub memory_bandwidth: Option<f64>,
    pub link: Option<f64>,
    /// Cycles a tuple and a byte of it.
    pub row: (f64, f64),
    /// Cycles a value and a byte of it.
    pub column: (f64, f64),
    /// Cycles for a byte to come from storage.
    pub storage_byte: f64,
    pub flop: f64,
    pub battery: Option<f64>,
    pub hub: Option<Hub>,
    pub price: Option<f64>,
}

/// What so many machines share: power supply, hub, router.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hub {
    pub machines: f64,
    pub power: f64,
    pub price: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Scan {
    pub name: String,
    pub format: Format,
    pub width: f64,
    pub flops: f64,
}

/// A run on a battery whose gauge counts in steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    pub name: String,
    /// Coulombs a step.
    pub step: f64,
    pub steps: f64,
    pub volts: f64,
    pub seconds: f64,
    /// Hertz and seconds at them.
    pub residency: Vec<(f64, f64)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    pub measure: Measure,
    pub machine: usize,
    pub scan: usize,
    pub from: Source,
    pub bandwidth: Option<f64>,
    pub flops: Option<f64>,
    pub over: Option<(usize, Source)>,
    /// The number in print, where it is no end of the range in which ours agrees.
    pub value: Option<f64>,
    pub at_least: Option<f64>,
    pub at_most: Option<f64>,
    pub says: String,
    pub place: String,
}

/// Reads and checks a description.
pub fn read(description: &Description) -> Result<Case> {
    description.checked(check)
}

fn check(file: File) -> Result<Case> {
    for (list, count) in [("machine", file.machine.len()), ("scan", file.scan.len())] {
        if count == 0 {
            return Err(refused(format!("there is no [[{list}]]: give at least one")));
        }
    }
    for (list, count) in [
        ("machine", file.machine.len()),
        ("scan", file.scan.len()),
        ("projection", file.projection.len()),
        ("measurement", file.measurement.len()),
    ] {
        at_most(list, count)?;
    }
    let cost = file.cost.map(|cost| {
        let hours = cost.lifetime.positive("cost.lifetime")? / HOUR;
        Ok::<_, Error>(CostTerms { electricity: cost.electricity.get(), hours })
    });
    let cost = cost.transpose()?;
    let machines: Vec<Machine> =
        file.machine.iter().map(|machine| self::machine(machine, cost.is_some())).collect::<Result<_>>()?;
    let scans: Vec<Scan> = file.scan.iter().map(scan).collect::<Result<_>>()?;
    once(machines.iter().map(|machine| machine.name.as_str()), "machine")?;
    once(scans.iter().map(|scan| scan.name.as_str()), "scan")?;
    let names = Names { machines: &machines, scans: &scans };
    let published = file.published.into_iter().map(|of| published(of, &names)).collect::<Result<_>>()?;
    let demand = demand(&file.demand, &names)?;
    let projections = file.projection.iter().map(|of| of.bandwidth.positive("projection.bandwidth"));
    let projections = projections.collect::<Result<_>>()?;
    Ok(Case {
        title: file.title,
        source: file.source,
        demand,
        cost,
        projections,
        measurements: measurements(&file.measurement, &file.residency)?,
        published,
        notes: Note::texts(file.note),
        machines,
        scans,
    })
}

fn once<'a>(names: impl Iterator<Item = &'a str>, list: &str) -> Result<()> {
    let mut names: Vec<&str> = names.collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(refused(format!("two [[{list}]] are called '{}'", pair[0]))),
        None => Ok(()),
    }
}

struct Names<'a> {
    machines: &'a [Machine],
    scans: &'a [Scan],
}

impl Names<'_> {
    fn machine(&self, name: &str) -> Result<usize> {
        let found = self.machines.iter().position(|machine| machine.name == name);
        found.ok_or_else(|| refused(format!("there is no [[machine]] called '{name}'")))
    }

    fn scan(&self, name: &str) -> Result<usize> {
        let found = self.scans.iter().position(|scan| scan.name == name);
        found.ok_or_else(|| refused(format!("there is no [[scan]] called '{name}'")))
    }
}

fn demand(file: &DemandFile, names: &Names<'_>) -> Result<Demand> {
    Ok(Demand {
        bytes: file.data.positive("demand.data")?,
        scan: names.scan(&file.scan)?,
        seconds: file.within.positive("demand.within")?,
        scans_a_second: file.scans.positive("demand.scans")?,
        scale_out: file.scale_out.within("demand.scale-out", 0.1, 1.0)?,
    })
}

fn machine(file: &MachineFile, priced: bool) -> Result<Machine> {
    let name = &file.name;
    let named = |error: Error| error.context(&format!("the machine '{name}'"));
    let (idle, peak, storage_power) =
        (file.idle.get(), file.peak.positive("peak").map_err(named)?, file.storage_power.get());
    if idle + storage_power > peak {
        let message =
            format!("{idle} W idle and {storage_power} W of storage are more than the peak, {peak} W");
        return Err(named(refused(message)));
    }
    if priced && file.price.is_none() {
        return Err(named(refused("has no price, which [cost] asks for")));
    }
    let hub = match (file.hub_machines, file.hub_power) {
        (None, None) if file.hub_price.is_none() => None,
        (Some(machines), Some(power)) => Some(Hub {
            machines: machines.within("hub-machines", 1.0, 1e6).map_err(named)?.floor(),
            power: power.get(),
            price: file.hub_price.map(|price| price.get()),
        }),
        _ => return Err(named(refused("hub-machines and hub-power go together"))),
    };
    if priced && hub.is_some_and(|hub| hub.price.is_none()) {
        return Err(named(refused("its hub has no hub-price, which [cost] asks for")));
    }
    let cores = file.cores.within("cores", 1.0, 1e4).map_err(named)?;
    Ok(Machine {
        name: name.clone(),
        kind: file.kind.clone(),
        idle,
        peak,
        storage_power,
        cycles: file.clock.positive("clock").map_err(named)? * cores,
        storage: file.storage.map(|of| of.positive("storage")).transpose().map_err(named)?,
        memory: file.memory.positive("memory").map_err(named)?,
        storage_bandwidth: file.storage_bandwidth.positive("storage-bandwidth").map_err(named)?,
        memory_bandwidth: file
            .memory_bandwidth
            .map(|of| of.positive("memory-bandwidth"))
            .transpose()
            .map_err(named)?,
        link: file.link.map(|of| of.positive("link")).transpose().map_err(named)?,
        row: (file.row_tuple_cycles.get(), file.row_byte_cycles.get()),
        column: (file.column_value_cycles.get(), file.column_byte_cycles.get()),
        storage_byte: file.storage_byte_cycles.get(),
        flop: file.flop_cycles.get(),
        battery: file.battery.map(|energy| energy.get()),
        hub,
        price: file.price.map(|price| price.get()),
    })
}

fn scan(file: &ScanFile) -> Result<Scan> {
    let width = file.width.get();
    if !(1.0..=1e6).contains(&width) {
        return Err(refused(format!(
            "the scan '{}' is {width} bytes wide, it must be from 1 to 1e6",
            file.name
        )));
    }
    let flops = file.flops.within("flops", 0.0, 1e9)?;
    Ok(Scan { name: file.name.clone(), format: file.format, width, flops })
}

fn measurements(files: &[MeasurementFile], residencies: &[ResidencyFile]) -> Result<Vec<Measurement>> {
    once(files.iter().map(|file| file.name.as_str()), "measurement")?;
    if let Some(lost) = residencies.iter().find(|of| !files.iter().any(|file| file.name == of.measurement)) {
        return Err(refused(format!(
            "a [[residency]] is of the measurement '{}', which is not there",
            lost.measurement
        )));
    }
    let one = |file: &MeasurementFile| {
        let named = |error: Error| error.context(&format!("the measurement '{}'", file.name));
        let seconds = file.time.positive("time").map_err(named)?;
        let own = residencies.iter().filter(|of| of.measurement == file.name);
        let residency: Vec<(f64, f64)> = own.map(|of| (of.clock.get(), of.time.get())).collect();
        let sum: f64 = residency.iter().map(|(_, seconds)| seconds).sum();
        if !residency.is_empty() && (sum - seconds).abs() > seconds * 0.01 {
            let message =
                format!("its residencies sum to {sum:.0} s of {seconds:.0} s; they must agree within 1 %");
            return Err(named(refused(message)));
        }
        Ok(Measurement {
            name: file.name.clone(),
            step: file.step.positive("step").map_err(named)? * 3_600.0,
            steps: file.steps.within("steps", 1.0, 1e9).map_err(named)?,
            volts: file.voltage.positive("voltage").map_err(named)?,
            seconds,
            residency,
        })
    };
    files.iter().map(one).collect()
}

fn published(file: PublishedFile, names: &Names<'_>) -> Result<Published> {
    let machine = names.machine(&file.machine)?;
    let over = match (file.measure, &file.over_machine, file.over_from) {
        (Measure::Gain, None, None) => {
            return Err(refused("a published gain needs over-machine or over-from"));
        }
        (Measure::Gain, other, from) => {
            let other = other.as_deref().map_or(Ok(machine), |name| names.machine(name))?;
            Some((other, from.unwrap_or(file.from)))
        }
        (_, None, None) => None,
        _ => return Err(refused("over-machine and over-from are for the measure gain only")),
    };
    if file.at_least.is_none() && file.at_most.is_none() {
        return Err(refused("a [[published]] needs at-least, at-most, or both"));
    }
    Ok(Published {
        measure: file.measure,
        machine,
        scan: names.scan(&file.scan)?,
        from: file.from,
        bandwidth: file.bandwidth.map(|of| of.positive("published.bandwidth")).transpose()?,
        flops: file.flops.map(|of| of.get()),
        over,
        value: file.value.map(|of| of.get()),
        at_least: file.at_least.map(|of| of.get()),
        at_most: file.at_most.map(|of| of.get()),
        says: file.says,
        place: file.place,
    })
}
