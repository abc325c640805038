//! Embedded stores side by side: the same keys, values, operations, threads and durability. One process
//! measures one store and prints one line of JSON for each phase; `bench/embedded` runs them in turn, each
//! within the same memory, and makes the tables.

mod engines;
mod measure;

use clap::{Parser, ValueEnum};
use engines::{Engine, Kind, Limits};
use measure::{Row, Use, lone};
use std::path::PathBuf;
use tierstone_base::units::parse_size;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_workload::target_load::{load, run};
use tierstone_workload::{Distribution, Extent, Mix, Pacing, SizeDistribution, ValueSettings, Workload, Ycsb};

/// What is measured, in the order given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Phase {
    /// Stores all records, many at a time
    Load,
    /// Reads every record once, many at a time, by one thread: caches are warm afterwards
    Warm,
    /// Durable puts of existing keys, one at a time, by one thread
    Put,
    /// Durable batches of 1,000 puts, by one thread
    Batch,
    /// Gets of existing keys by one thread
    Get,
    #[value(name = "ycsb-a")]
    YcsbA,
    #[value(name = "ycsb-b")]
    YcsbB,
    #[value(name = "ycsb-c")]
    YcsbC,
    #[value(name = "ycsb-d")]
    YcsbD,
    #[value(name = "ycsb-e")]
    YcsbE,
    #[value(name = "ycsb-f")]
    YcsbF,
    /// Nine durable puts of existing keys to one get, all keys alike
    #[value(name = "puts-90")]
    Puts90,
}

impl Phase {
    fn ycsb(self) -> Option<Ycsb> {
        match self {
            Phase::YcsbA => Some(Ycsb::A),
            Phase::YcsbB => Some(Ycsb::B),
            Phase::YcsbC => Some(Ycsb::C),
            Phase::YcsbD => Some(Ycsb::D),
            Phase::YcsbE => Some(Ycsb::E),
            Phase::YcsbF => Some(Ycsb::F),
            Phase::Load | Phase::Warm | Phase::Put | Phase::Batch | Phase::Get | Phase::Puts90 => None,
        }
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

#[derive(Debug, Parser)]
#[command(about, version)]
struct Arguments {
    /// The store
    #[arg(long, value_enum)]
    engine: Kind,
    /// Its directory; made if it is not there
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// What to measure, in this order
    #[arg(long, value_enum, value_delimiter = ',', required = true)]
    phases: Vec<Phase>,
    /// Records
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    records: u64,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value_t = 1000)]
    value_size: u32,
    /// Memory for the store's own caches and buffers
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    memory: u64,
    /// The most space that Tierstone's segments take [default: what the disk has]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    capacity: Option<u64>,
    /// Shards of Tierstone's shared handle, which the mixes use [default: one a core, eight at most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    shards: Option<u16>,
    /// Threads of the mixes
    #[arg(long, value_name = "N", default_value_t = 16)]
    threads: usize,
    /// Seconds of each phase but the load
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    seconds: f64,
    /// Seconds before each mix that are not counted
    #[arg(long, value_name = "S", default_value_t = 0.0)]
    warmup: f64,
    /// Operations a second of the mixes, all threads together, in an open loop: times count from when an operation was
    /// due [default: as many as come]
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Nanoseconds of the processor that each call of the store `null` takes
    #[arg(long, value_name = "N", default_value_t = 0)]
    null_ns: u64,
    /// Seed of keys and operations
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

fn size(text: &str) -> std::result::Result<u64, String> {
    parse_size(text).map(|bytes| bytes as u64).map_err(|error| error.to_string())
}

fn main() -> std::process::ExitCode {
    match measure_all(&Arguments::parse()) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn measure_all(arguments: &Arguments) -> Result<()> {
    std::fs::create_dir_all(&arguments.data)?;
    let limits = Limits {
        memory_bytes: arguments.memory,
        capacity_bytes: arguments.capacity,
        shards: arguments.shards,
        null_ns: arguments.null_ns,
    };
    let engine = engines::open(arguments.engine, &arguments.data, limits)?;
    let is_done = arguments.phases.iter().try_for_each(|phase| {
        let row = one(arguments, *phase, engine.as_ref())?;
        println!("{}", serde_json::to_string(&row).map_err(|error| failed(&error))?);
        Ok(())
    });
    engine.close()?;
    is_done
}

fn workload(arguments: &Arguments, ycsb: Ycsb) -> Workload {
    let value = ValueSettings { size: SizeDistribution::Fixed(arguments.value_size), zero_share: 0.0 };
    Workload { value, verify: false, ..Workload::ycsb(ycsb, arguments.records) }
}

fn one(arguments: &Arguments, phase: Phase, engine: &dyn Engine) -> Result<Row> {
    engine.prepare(matches!(phase, Phase::Warm | Phase::Put | Phase::Batch | Phase::Get))?;
    let mut before = Use::now(&arguments.data)?;
    let outcome = match phase {
        Phase::Load => {
            let pacing = Pacing { pipeline: 1_000, timeout_seconds: 600.0, ..pacing(arguments, 1) };
            load(&workload(arguments, Ycsb::C), &pacing, &mut || engine.handle(), &mut |_| go_on())?
        }
        Phase::Warm | Phase::Put | Phase::Batch | Phase::Get => {
            let what = match phase {
                Phase::Warm => lone::What::Warm,
                Phase::Put => lone::What::Put,
                Phase::Batch => lone::What::Batch,
                _ => lone::What::Get,
            };
            let workload = workload(arguments, Ycsb::C);
            let mut handle = engine.lone_handle()?;
            lone::run(what, &workload, arguments.seconds, arguments.seed, &mut *handle)?
        }
        _ => {
            let mixed = match phase.ycsb() {
                Some(ycsb) => workload(arguments, ycsb),
                None => Workload {
                    mix: Mix::puts(0.9),
                    distribution: Distribution::Uniform,
                    ..workload(arguments, Ycsb::C)
                },
            };
            let pacing = pacing(arguments, arguments.threads);
            let mut is_warm = arguments.warmup == 0.0;
            run(&mixed, &pacing, &mut || engine.handle(), &mut |progress| {
                // What the warm-up takes is not that of the operations that count.
                if !is_warm && progress.seconds >= arguments.warmup {
                    is_warm = true;
                    before = Use::so_far(&arguments.data).unwrap_or(before);
                }
                go_on()
            })?
        }
    };
    if let Some(why) = outcome.first_error.as_ref().or(outcome.ended_early.as_ref()) {
        return Err(Error::new(ErrorKind::DeviceFailed, format!("{}: {why}", phase.name())));
    }
    // Records of a crowded end may be inserted by another thread a moment later.
    if outcome.misses > outcome.operations / 1_000 {
        return Err(failed(&format!("{}: {} records were not there", phase.name(), outcome.misses)));
    }
    let used = Use::now(&arguments.data)?.since(&before);
    Ok(Row::new(arguments.engine, phase.name(), &outcome, &used))
}

fn pacing(arguments: &Arguments, threads: usize) -> Pacing {
    Pacing {
        threads,
        extent: Extent::Seconds(arguments.seconds),
        warmup_seconds: arguments.warmup,
        rate: arguments.rate,
        seed: arguments.seed,
        ..Pacing::default()
    }
}

fn go_on() -> std::ops::ControlFlow<()> {
    std::ops::ControlFlow::Continue(())
}

fn failed(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::DeviceFailed, error.to_string())
}
