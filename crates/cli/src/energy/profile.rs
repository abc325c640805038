//! `tierstone energy profile`: bandwidth and power of memory, storage and the loopback link over steps of load.
//!
//! The phone method generalised: a large array or file is read repeatedly, each load is held for a while, and power
//! stands beside bandwidth. Without a meter there is bandwidth and no power: the model knows nothing of these devices.

use super::load::{Loads, Subject, drive};
use super::report::{Measured, digits};
use super::{MeterArgs, processors};
use crate::output::{print_json, print_line, table};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use tierstone_base::units::parse_size;
use tierstone_base::{Clock, Error, ErrorKind, Result, SystemClock};
use tierstone_energy::profile::{Line, Point, joules_per_gigabyte, line};
use tierstone_energy::total::{Chosen, choose};
use tierstone_energy::{Label, LaneReport, MeterInfo, Recorder, Sampler, SamplerSettings};

#[derive(Debug, Args)]
pub struct ProfileArgs {
    #[command(flatten)]
    meters: MeterArgs,
    /// The meters that make the total, by name [default: what covers most, nothing twice]
    #[arg(long, value_name = "METER")]
    total: Vec<String>,
    /// What is put under load: memory, storage, link
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "memory,storage,link")]
    what: Vec<Subject>,
    /// Loads in per cent of the time, each held for --seconds
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0,25,50,75,100")]
    loads: Vec<u8>,
    /// Seconds a step; with a meter of coarse steps (a battery) an hour
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    seconds: f64,
    /// Threads that read memory or storage [default: one a processor]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// The array of each thread; more than the caches hold
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    array: String,
    /// Where the file is made that is read, and removed afterwards
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    /// Its size
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    file: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What came of all steps of one subject.
#[derive(Debug, Serialize)]
struct Curve {
    subject: Subject,
    /// How it was done, in words.
    how: String,
    /// Of the bandwidth, and of the power where there is one.
    label: Label,
    points: Vec<Point>,
    joules_per_gigabyte: Vec<Option<f64>>,
    /// Watts over load, by least squares.
    watts_over_load: Option<Line>,
}

#[derive(Debug, Serialize)]
struct Profile {
    meters: Vec<String>,
    covers: String,
    seconds_a_step: f64,
    curves: Vec<Curve>,
}

pub fn run(args: &ProfileArgs) -> Result<()> {
    let wrong = |what: &str| Err(Error::new(ErrorKind::InvalidInput, what));
    if !(0.05..=86_400.0).contains(&args.seconds) {
        return wrong("--seconds takes 0.05 to 86400");
    }
    if args.loads.iter().any(|load| *load > 100) {
        return wrong("--loads are 0 to 100 per cent");
    }
    let threads = args.threads.unwrap_or_else(processors);
    if !(1..=1024).contains(&threads) {
        return wrong("--threads takes 1 to 1024");
    }
    let loads = Loads {
        threads,
        array_bytes: parse_size(&args.array)?.clamp(1 << 16, 1 << 36) as usize,
        folder: args.folder.clone(),
        file_bytes: parse_size(&args.file)?.clamp(1 << 20, 1 << 40),
    };
    let found = args.meters.find()?;
    let meters: Vec<MeterInfo> = found.meters.iter().map(|meter| meter.info().clone()).collect();
    let chosen = choose(&meters, &args.total)?;
    let clock = SystemClock::new();
    let sampler = Sampler::new(found.meters, SamplerSettings::default(), clock.now().monotonic_us);
    let recorder = Recorder::start(sampler, Box::new(clock), false)?;
    // State 0 is what lies between the steps.
    let mut states = 0;
    let mut measured = Vec::new();
    for subject in &args.what {
        let mut load = loads.make(*subject)?;
        let mut steps = Vec::new();
        for percent in &args.loads {
            let part = f64::from(*percent) / 100.0;
            states += 1;
            if !args.json {
                tell!("{}: {percent} % for {} s …", subject.name(), args.seconds);
            }
            recorder.enter(states);
            let (bytes, seconds) = drive(&mut load, part, args.seconds, &clock)?;
            recorder.enter(0);
            steps.push((states, part, bytes as f64 / seconds.max(1e-9)));
        }
        measured.push((*subject, load.iter().map(|load| load.how()).next().unwrap_or_default(), steps));
    }
    let lanes = recorder.finish()?.lanes;
    let curves =
        measured.into_iter().map(|(subject, how, steps)| curve(subject, how, &steps, &lanes, &chosen));
    let profile = Profile {
        meters: chosen.lanes.iter().map(|&lane| meters[lane].name.clone()).collect(),
        covers: chosen.covers.clone(),
        seconds_a_step: args.seconds,
        curves: curves.collect(),
    };
    if args.json { print_json(&profile) } else { print_profile(&profile) }
}

fn curve(
    subject: Subject,
    how: String,
    steps: &[(usize, f64, f64)],
    lanes: &[LaneReport],
    chosen: &Chosen,
) -> Curve {
    let points: Vec<Point> = steps
        .iter()
        .map(|&(state, load, bytes_per_second)| {
            let measured = Measured::of(lanes, chosen, state);
            Point {
                load,
                bytes_per_second,
                watts_quantisation: measured.as_ref().map(|_| quantisation(lanes, chosen, state)),
                watts: measured.map(|measured| measured.watts),
            }
        })
        .collect();
    let powered: Option<Vec<(f64, f64)>> =
        points.iter().map(|point| point.watts.map(|watts| (point.load, watts))).collect();
    Curve {
        subject,
        how,
        label: Label::Measured,
        joules_per_gigabyte: points
            .iter()
            .map(|point| joules_per_gigabyte(point.watts?, point.bytes_per_second))
            .collect(),
        watts_over_load: powered.and_then(|powered| line(&powered)),
        points,
    }
}

/// Most that steps of the chosen meters can make of an error in state `state`, in watts.
fn quantisation(lanes: &[LaneReport], chosen: &Chosen, state: usize) -> f64 {
    let of = |lane: &LaneReport| {
        let covered = lane.states.get(state).map_or(0.0, |state| state.covered_us as f64 / 1e6);
        lane.quantisation_joules_of(state) / covered.max(1e-6)
    };
    chosen.lanes.iter().map(|&lane| of(&lanes[lane])).sum()
}

fn print_profile(profile: &Profile) -> Result<()> {
    let has_power = profile.curves.iter().flat_map(|curve| &curve.points).any(|point| point.watts.is_some());
    let mut rows = vec![vec!["what".to_owned(), "load, %".into(), "MB/s (measured)".into()]];
    if has_power {
        let more = ["W (measured)", "step error, W", "J/GB (measured)"];
        rows[0].extend(more.map(str::to_owned));
    }
    let told = |value: Option<f64>| value.map_or("-".to_owned(), digits);
    for curve in &profile.curves {
        for (point, joules) in curve.points.iter().zip(&curve.joules_per_gigabyte) {
            let mut row = vec![
                curve.subject.name().to_owned(),
                format!("{:.0}", point.load * 100.0),
                format!("{:.0}", point.bytes_per_second / 1e6),
            ];
            if has_power {
                row.extend([told(point.watts), told(point.watts_quantisation), told(*joules)]);
            }
            rows.push(row);
        }
    }
    print_line(table(&rows).trim_end())?;
    for curve in &profile.curves {
        print_line(&format!("{}: {}", curve.subject.name(), curve.how))?;
        if let Some(line) = &curve.watts_over_load {
            print_line(&format!(
                "{}: {:.3} W + {:.3} W · load, no point further off than {:.3} W",
                curve.subject.name(),
                line.intercept,
                line.slope,
                line.residual_max
            ))?;
        }
    }
    match has_power {
        true => print_line(&format!("power covers {}", profile.covers)),
        false => print_line("no meter: bandwidth only, power is not stated (tierstone energy meters)"),
    }
}
