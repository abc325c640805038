//! The report: the fleets for the demand, and every scan on every machine.

use super::case::{Case, Format, Machine, Scan, Source};
use super::fleet::{Fleet, fleet};
use super::model::scanned;
use super::profile::{Profile, line, profile};
use super::published::{self, word};
use crate::number::number;
use crate::parts::{Axis, Cell, Plot, Series, Table};
use crate::report::{FORMAT, Fact, Label, Report};
use tierstone_base::{Error, ErrorKind, Result};

/// Arithmetic a tuple that is swept.
const FLOPS: [f64; 11] = [0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 50.0, 100.0, 200.0, 500.0];
/// Ends of the sweep of storage bandwidths, bytes a second, and its points.
const BANDWIDTHS: (f64, f64) = (1e7, 1e10);
const POINTS: u32 = 90;
const SOURCES: [Source; 2] = [Source::Storage, Source::Memory];

/// A fleet of one machine that reads from one source.
struct Candidate<'a> {
    machine: &'a Machine,
    source: Source,
    fleet: std::result::Result<Fleet, String>,
}

/// Works everything out.
pub fn report(case: &Case) -> Result<Report> {
    let fleets: Vec<Candidate<'_>> = case
        .machines
        .iter()
        .flat_map(|machine| {
            SOURCES.map(|source| Candidate { machine, source, fleet: fleet(case, machine, source) })
        })
        .collect();
    let best = best(case, &fleets)?;
    let mut tables = vec![fleet_table(&fleets), scan_table(case), storage_table(case), flops_table(case)];
    let profiles: Vec<Profile> = case.measurements.iter().map(profile).collect();
    if !profiles.is_empty() {
        tables.push(measurement_table(case, &profiles));
    }
    Ok(Report {
        format: FORMAT,
        name: "cells".to_owned(),
        title: case.title.clone(),
        source: "S. Harizopoulos, S. Papadimitriou, A Case for Micro-Cellstores, DaMoN 2011".to_owned(),
        asked: asked(case),
        answer: answer(case, &fleets, best),
        facts: facts(&fleets[best.0], &best.1),
        rows: published::rows(case),
        tables,
        plots: plots(case),
        explanation: explanation(case, &fleets[best.0], &best.1, &profiles),
        notes: notes(case),
    })
}

/// The fleet with the least cost where prices are given, else with the least energy a day.
fn best(case: &Case, fleets: &[Candidate<'_>]) -> Result<(usize, Fleet)> {
    let weight = |fleet: &Fleet| fleet.dollars.unwrap_or(fleet.joules_a_day);
    let possible =
        fleets.iter().enumerate().filter_map(|(place, of)| Some((place, *of.fleet.as_ref().ok()?)));
    possible.min_by(|a, b| weight(&a.1).total_cmp(&weight(&b.1))).ok_or_else(|| {
        let whys: Vec<String> = fleets
            .iter()
            .filter_map(|of| {
                Some(format!("{} from {}: {}", of.machine.name, word(of.source), of.fleet.as_ref().err()?))
            })
            .collect();
        let scan = &case.scans[case.demand.scan].name;
        let message = format!("no machine meets the demand for the scan '{scan}': {}", whys.join("; "));
        Error::new(ErrorKind::InvalidInput, message)
    })
}

fn asked(case: &Case) -> Vec<String> {
    let demand = &case.demand;
    let mut lines = vec![
        format!(
            "{} GB scanned ({}) within {} s, {} times a day",
            number(demand.bytes / 1e9),
            case.scans[demand.scan].name,
            number(demand.seconds),
            number(demand.scans_a_second * 86_400.0)
        ),
        if demand.scale_out < 1.0 {
            format!("n machines are n to the power of {} as fast as one", number(demand.scale_out))
        } else {
            "n machines are n times as fast as one".to_owned()
        },
    ];
    lines.push(match case.cost {
        None => "energy in operation only; prices left out".to_owned(),
        Some(terms) => format!(
            "a life of {} hours, electricity at {} $/kWh",
            number(terms.hours),
            number(terms.electricity)
        ),
    });
    lines.push(format!("figures of the machines: {}", case.source));
    lines
}

fn kwh(joules: f64) -> f64 {
    joules / 3.6e6
}

fn answer(case: &Case, fleets: &[Candidate<'_>], (place, best): (usize, Fleet)) -> Vec<String> {
    let of = &fleets[place];
    let by = if case.cost.is_some() { "Cheapest" } else { "Least energy" };
    let mut lines = vec![format!(
        "{by}: {} of {} that read from {}: {} kWh a day, {} kJ a scan of {} s.",
        number(best.machines),
        of.machine.name,
        word(of.source),
        number(kwh(best.joules_a_day)),
        number(best.joules_a_scan / 1e3),
        number(best.seconds)
    )];
    if let Some(dollars) = best.dollars {
        lines.push(format!("They cost {} $ over their life, electricity included.", number(dollars)));
    }
    let others = fleets.iter().filter(|other| other.machine.kind != of.machine.kind);
    let next = others
        .filter_map(|other| Some((other, *other.fleet.as_ref().ok()?)))
        .min_by(|a, b| a.1.joules_a_day.total_cmp(&b.1.joules_a_day));
    if let Some((other, fleet)) = next {
        lines.push(format!(
            "The least energy of another kind ({}): {} of {} from {}, {} times the energy a day.",
            other.machine.kind,
            number(fleet.machines),
            other.machine.name,
            word(other.source),
            number(fleet.joules_a_day / best.joules_a_day)
        ));
    }
    lines
}

fn facts(of: &Candidate<'_>, fleet: &Fleet) -> Vec<Fact> {
    let fact = |name: &str, value: f64, unit: &str| Fact {
        name: name.to_owned(),
        value,
        unit: unit.to_owned(),
        label: Label::Modelled,
    };
    let mut facts = vec![
        fact(&format!("machines ({})", of.machine.name), fleet.machines, "machines"),
        fact("time of a scan", fleet.seconds, "s"),
        fact("energy of a scan", fleet.joules_a_scan / 1e3, "kJ"),
        fact("energy a day, idle time included", kwh(fleet.joules_a_day), "kWh"),
        fact("power while scanning", fleet.watts, "W"),
        fact("power while idle", fleet.idle_watts, "W"),
    ];
    let optional = [
        ("hubs", (fleet.hubs > 0.0).then_some(fleet.hubs), "hubs"),
        ("time to load the data over the machines' links", fleet.load_seconds, "s"),
        ("time that batteries carry a scan", fleet.battery_seconds.map(|seconds| seconds / 3_600.0), "h"),
        ("cost over the life", fleet.dollars, "$"),
    ];
    facts.extend(optional.into_iter().filter_map(|(name, value, unit)| Some(fact(name, value?, unit))));
    facts
}

fn fleet_table(fleets: &[Candidate<'_>]) -> Table {
    let mut table = Table::new(
        "fleets",
        "Machines that meet the demand",
        &[
            "machine",
            "kind",
            "reads from",
            "machines",
            "hubs",
            "decided by",
            "scan (s)",
            "scan (kJ)",
            "a day (kWh)",
            "scanning (W)",
            "idle (W)",
            "load (s)",
            "battery (h)",
            "cost ($)",
            "remark",
        ],
    );
    let or_not = |value: Option<f64>| value.unwrap_or(f64::NAN);
    for of in fleets {
        let head = [of.machine.name.as_str(), of.machine.kind.as_str(), word(of.source)];
        let mut row: Vec<Cell> = head.into_iter().map(Into::into).collect();
        match &of.fleet {
            Ok(fleet) => {
                row.extend([fleet.machines, fleet.hubs].map(Into::into));
                row.push(if fleet.bound_by_time { "time" } else { "data" }.into());
                row.extend(
                    [
                        fleet.seconds,
                        fleet.joules_a_scan / 1e3,
                        kwh(fleet.joules_a_day),
                        fleet.watts,
                        fleet.idle_watts,
                        or_not(fleet.load_seconds),
                        or_not(fleet.battery_seconds) / 3_600.0,
                        or_not(fleet.dollars),
                    ]
                    .map(Into::into),
                );
                row.push("".into());
            }
            Err(why) => {
                row.extend((head.len()..table.columns.len() - 1).map(|_| "-".into()));
                row.push(why.as_str().into());
            }
        }
        table.rows.push(row);
    }
    table
}

fn scan_table(case: &Case) -> Table {
    let mut table = Table::new(
        "scans",
        "Every scan on one machine",
        &[
            "machine",
            "scan",
            "reads from",
            "MB/s",
            "ns a tuple",
            "power (W)",
            "processor busy (of 1)",
            "J/GB",
            "tuples a joule",
            "scans of 1 GB/(h W)",
        ],
    );
    for machine in &case.machines {
        for scan in &case.scans {
            for source in SOURCES {
                let run = scanned(machine, scan, source, None);
                table.push([
                    machine.name.as_str().into(),
                    scan.name.as_str().into(),
                    word(source).into(),
                    (run.bandwidth() / 1e6).into(),
                    (run.seconds * 1e9).into(),
                    run.watts.into(),
                    run.cpu_busy.into(),
                    run.joules_a_gb().into(),
                    (1.0 / run.joules()).into(),
                    (3_600.0 / run.joules_a_gb()).into(),
                ]);
            }
        }
    }
    table
}

/// The scan with the widest tuples, which storage decides most.
fn widest(case: &Case) -> &Scan {
    let widest = case.scans.iter().max_by(|a, b| a.width.total_cmp(&b.width));
    widest.unwrap_or(&case.scans[0])
}

/// From which storage bandwidth in MB/s on `machine` needs at most `joules` a gigabyte; words if its own is enough, or
/// none that is looked at.
fn crossover(machine: &Machine, scan: &Scan, joules: f64) -> Cell {
    let at = |bandwidth: f64| scanned(machine, scan, Source::Storage, Some(bandwidth)).joules_a_gb();
    let (mut slow, mut fast) = (machine.storage_bandwidth, BANDWIDTHS.1);
    if at(slow) <= joules {
        return "already as good".into();
    }
    if slow >= fast || at(fast) > joules {
        return "never as good".into();
    }
    for _ in 0..80 {
        let middle = (slow * fast).sqrt();
        if at(middle) <= joules { fast = middle } else { slow = middle }
    }
    (fast / 1e6).into()
}

fn storage_table(case: &Case) -> Table {
    let scan = widest(case);
    let reference = &case.machines[most_efficient(case, scan)];
    let joules = scanned(reference, scan, Source::Storage, None).joules_a_gb();
    let mut columns = vec!["machine".to_owned(), "own storage (J/GB)".to_owned()];
    columns
        .extend(case.projections.iter().map(|rate| format!("projected {} MB/s (J/GB)", number(rate / 1e6))));
    columns.push("memory (J/GB)".to_owned());
    columns.push(format!("as {} on its own storage from (MB/s)", reference.name));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let title = format!("What faster storage would change: {}", scan.name);
    let mut table = Table::new("storage", &title, &columns);
    for machine in &case.machines {
        let at = |source, bandwidth| Cell::from(scanned(machine, scan, source, bandwidth).joules_a_gb());
        // What is no faster than its own changes nothing for the better.
        let projected = |&rate: &f64| match rate > machine.storage_bandwidth {
            true => at(Source::Storage, Some(rate)),
            false => "-".into(),
        };
        let mut row = vec![machine.name.as_str().into(), at(Source::Storage, None)];
        row.extend(case.projections.iter().map(projected));
        row.push(at(Source::Memory, None));
        let is_reference = machine.name == reference.name;
        row.push(if is_reference { "-".into() } else { crossover(machine, scan, joules) });
        table.rows.push(row);
    }
    table
}

fn most_efficient(case: &Case, scan: &Scan) -> usize {
    let joules = |place: &usize| scanned(&case.machines[*place], scan, Source::Storage, None).joules();
    (0..case.machines.len()).min_by(|a, b| joules(a).total_cmp(&joules(b))).unwrap_or(0)
}

fn with_flops(scan: &Scan, flops: f64) -> Scan {
    Scan { flops, ..scan.clone() }
}

fn flops_table(case: &Case) -> Table {
    let scan = widest(case);
    let mut columns = vec!["flops a tuple".to_owned()];
    for machine in &case.machines {
        columns.extend(SOURCES.map(|source| format!("{} from {} (J/GB)", machine.name, word(source))));
    }
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let title = format!("What arithmetic costs: {}", scan.name);
    let mut table = Table::new("arithmetic", &title, &columns);
    for flops in FLOPS {
        let scan = with_flops(scan, flops);
        let mut row = vec![flops.into()];
        for machine in &case.machines {
            row.extend(SOURCES.map(|source| scanned(machine, &scan, source, None).joules_a_gb().into()));
        }
        table.rows.push(row);
    }
    table
}

fn measurement_table(case: &Case, profiles: &[Profile]) -> Table {
    let mut table = Table::new(
        "measurements",
        "Power by a battery's gauge, from the readings that are given",
        &["measurement", "energy (Wh)", "power (W)", "off by at most (%)", "mean clock (MHz)"],
    );
    for (of, profile) in case.measurements.iter().zip(profiles) {
        table.push([
            of.name.as_str().into(),
            (profile.joules / 3_600.0).into(),
            profile.watts.into(),
            (profile.error * 100.0).into(),
            profile.hertz.map_or(f64::NAN, |hertz| hertz / 1e6).into(),
        ]);
    }
    table
}

fn plots(case: &Case) -> Vec<Plot> {
    let scan = widest(case);
    let (from, to) = BANDWIDTHS;
    let rates = || (0..=POINTS).map(|point| from * (to / from).powf(f64::from(point) / f64::from(POINTS)));
    let by_storage = |machine: &Machine| {
        let at = |rate| (rate / 1e6, scanned(machine, scan, Source::Storage, Some(rate)).joules_a_gb());
        Series::new(&machine.name, rates().map(at))
    };
    let by_flops = |machine: &Machine| {
        SOURCES.map(|source| {
            let at = |flops| (flops, scanned(machine, &with_flops(scan, flops), source, None).joules_a_gb());
            Series::new(&format!("{}, {}", machine.name, word(source)), FLOPS.map(at))
        })
    };
    let by_width = |machine: &Machine| {
        SOURCES.map(|source| {
            let at = |scan: &Scan| (scan.width, 1.0 / scanned(machine, scan, source, None).joules());
            let mut points: Vec<(f64, f64)> = case.scans.iter().map(at).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Series::new(&format!("{}, {}", machine.name, word(source)), points)
        })
    };
    vec![
        Plot {
            name: "energy-by-storage".to_owned(),
            title: format!("Energy over the bandwidth of storage ({})", scan.name),
            x: Axis::logarithmic("storage (MB/s)"),
            y: Axis::logarithmic("J/GB"),
            series: case.machines.iter().map(by_storage).collect(),
        },
        Plot {
            name: "energy-by-arithmetic".to_owned(),
            title: format!("Energy over arithmetic ({})", scan.name),
            x: Axis::linear("flops a tuple"),
            y: Axis::logarithmic("J/GB"),
            series: case.machines.iter().flat_map(by_flops).collect(),
        },
        Plot {
            name: "efficiency-by-width".to_owned(),
            title: "Efficiency over the width of tuples".to_owned(),
            x: Axis::logarithmic("width (bytes)"),
            y: Axis::logarithmic("tuples a joule"),
            series: case.machines.iter().flat_map(by_width).collect(),
        },
    ]
}

fn explanation(case: &Case, of: &Candidate<'_>, fleet: &Fleet, profiles: &[Profile]) -> Vec<String> {
    let (machine, scan) = (of.machine, &case.scans[case.demand.scan]);
    let run = scanned(machine, scan, of.source, None);
    let (a_tuple, a_byte) = if scan.format == Format::Row { machine.row } else { machine.column };
    let arriving = if of.source == Source::Storage { machine.storage_byte } else { 0.0 };
    let mut lines = vec![
        format!(
            "A tuple of {} bytes costs {} cycles, {} a byte, {} a byte that comes from storage and {} a flop: at {} \
             GHz of all cores, with {} flops, {} ns.",
            number(scan.width),
            number(a_tuple),
            number(a_byte),
            number(arriving),
            number(machine.flop),
            number(machine.cycles / 1e9),
            number(scan.flops),
            number(
                (a_tuple + (a_byte + arriving) * scan.width + machine.flop * scan.flops) / machine.cycles
                    * 1e9
            )
        ),
        format!(
            "Read and processed side by side it takes {} ns: {} MB/s, with the processor busy {} of 1.",
            number(run.seconds * 1e9),
            number(run.bandwidth() / 1e6),
            number(run.cpu_busy)
        ),
        format!(
            "Power: {} W idle, up to {} W of storage, and the processor's up to {} W by how busy it is: {} W; {} J/GB.",
            number(machine.idle),
            number(machine.storage_power),
            number(machine.peak - machine.idle - machine.storage_power),
            number(run.watts),
            number(run.joules_a_gb())
        ),
        format!(
            "{} decides the number: {} of {} machines are needed, {} W while scanning and {} W while idle.",
            if fleet.bound_by_time { "Time" } else { "Data" },
            number(fleet.machines),
            machine.name,
            number(fleet.watts),
            number(fleet.idle_watts)
        ),
        "Every machine was reckoned so, from storage and from memory.".to_owned(),
    ];
    if let Some((at_zero, a_gigahertz)) = line(profiles) {
        lines.push(format!(
            "The measurements lie about {} W + {} W/GHz of mean clock (least squares).",
            number(at_zero),
            number(a_gigahertz)
        ));
    }
    lines
}

fn notes(case: &Case) -> Vec<String> {
    let mut notes = vec![
        "Scans that need no network between machines; loading, housing, cooling and spare machines are left out.".to_owned(),
    ];
    let unknown = case.machines.iter().filter(|machine| machine.memory_bandwidth.is_none());
    notes.extend(unknown.map(|machine| {
        format!(
            "The memory bandwidth of {} is not given: from memory its processor alone sets the pace.",
            machine.name
        )
    }));
    notes.extend(case.notes.iter().cloned());
    notes
}
