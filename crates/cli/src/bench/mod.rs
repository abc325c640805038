//! `tierstone bench`: YCSB and single mixes against any Redis server, this one by default.

mod embedded;
mod energy;
mod node;
mod null_server;
mod records;
mod report;

use crate::child::ServerProcess;
use crate::connect::ConnectArgs;
use crate::interrupt::tidy_folder;
use crate::values::parse_index;
use clap::{Args, Subcommand};
use energy::{Accounting, EnergyCost, EnergyOptions, Watching};
use indicatif::{ProgressBar, ProgressStyle};
use report::{BenchReport, ServerCost};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tierstone_base::units::parse_size;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_workload::redis_load::{self, Plan, Server};
use tierstone_workload::value::ValueSettings;
use tierstone_workload::{Distribution, Extent, Mix, Pacing, Progress, SizeDistribution, Workload, Ycsb};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: Option<BenchCommand>,
    #[command(flatten)]
    load: LoadArgs,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Run a server that answers and stores nothing: what sockets and processor can do at best
    NullServer(null_server::NullServerArgs),
    /// Run small kernels that tell which class of work this node is good at, a second and a joule
    Node(Box<node::NodeArgs>),
    /// Write records of the sort benchmark, byte for byte as its generator gensort does
    Gensort(records::GensortArgs),
    /// Tell whether records of 100 bytes are in order, and their sum, as the sort benchmark's valsort does
    Valsort(records::ValsortArgs),
}

/// What is asked, of whom, how fast.
#[derive(Debug, Args)]
struct LoadArgs {
    /// The server, a host and the port of Redis clients, or unix:PATH [default: one of its own in a new folder here,
    /// removed at the end]
    #[arg(long, value_name = "ADDR:PORT")]
    address: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    /// YCSB a to f, or get (reads only), set (overwrites only), puts:SHARE (overwrites with that share, 0 to 1, else
    /// reads), cache (reads, and writes of what was not found)
    #[arg(long, value_name = "NAME", default_value = "a")]
    workload: String,
    /// Records that are loaded first
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    records: u64,
    /// Operations to measure [default: as many as come in ten seconds]
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    operations: Option<u64>,
    /// Seconds to measure [default: 10]
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Bytes of a value [default: 1000 for YCSB, else 128]
    #[arg(long, value_name = "N")]
    value_size: Option<u32>,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 50, conflicts_with = "embedded")]
    connections: usize,
    /// Operations under way on a connection at the same time
    #[arg(long, value_name = "N", default_value_t = 1)]
    pipeline: usize,
    /// Threads of the generator
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Open loop: so many operations a second, sent whether answers come or not; latencies count from
    /// the intended time [default: closed loop]
    #[arg(long, value_name = "R")]
    rate: Option<f64>,
    /// Which records: uniform, zipf:0.99, scrambled-zipf:0.99, latest:0.99, self-similar:0.2,
    /// hotspot:0.2:0.8, sequential [default: the workload's own; uniform for get and set]
    #[arg(long, value_name = "NAME")]
    distribution: Option<Distribution>,
    /// The records are there already
    #[arg(long, requires = "address")]
    no_load: bool,
    /// Check the content of every value read, and of every record at the end
    #[arg(long)]
    verify: bool,
    /// Seed of keys, operations, values and arrivals
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Memory of the own server
    #[arg(long, value_name = "SIZE", default_value = "256MiB", conflicts_with = "address")]
    memory: String,
    /// Shards of the own server [default: the server's own default]
    #[arg(long, value_name = "N", conflicts_with = "address")]
    shards: Option<u16>,
    /// Durability of the own server: sync, group:MS, relaxed [default: sync]
    #[arg(long, value_name = "MODE", conflicts_with = "address")]
    durability: Option<String>,
    /// How the own server finds keys: hash or ordered [default: hash]
    #[arg(long, value_name = "KIND", conflicts_with = "address")]
    index: Option<String>,
    /// Measure the library in this process instead of a server: a thread a shard, callers as many as
    /// --threads. With --index ordered, workload e walks ranges; else it reads keys one by one
    #[arg(long, conflicts_with = "address")]
    embedded: bool,
    /// Where the own server keeps its data; it must not exist yet [default: a new folder here]
    #[arg(long, value_name = "DIR", conflicts_with = "address")]
    data: Option<PathBuf>,
    #[command(flatten)]
    energy: EnergyOptions,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// The share of `puts:SHARE`.
fn put_share(name: &str) -> Option<f64> {
    let share = name.strip_prefix("puts:")?.parse::<f64>().ok()?;
    (0.0..=1.0).contains(&share).then_some(share)
}

impl LoadArgs {
    fn plan(&self, address: String) -> Result<Plan> {
        let mut workload = match self.workload.to_ascii_lowercase().as_str() {
            "get" => Workload { records: self.records, mix: Mix::GET, ..Workload::default() },
            "set" => Workload { records: self.records, mix: Mix::SET, ..Workload::default() },
            "cache" => Workload {
                records: self.records,
                mix: Mix::READ_THROUGH,
                distribution: Distribution::SCRAMBLED_ZIPF,
                ..Workload::default()
            },
            name => match (name.parse::<Ycsb>(), put_share(name)) {
                (Ok(ycsb), _) => Workload::ycsb(ycsb, self.records),
                (Err(_), Some(share)) => {
                    Workload { records: self.records, mix: Mix::puts(share), ..Workload::default() }
                }
                (Err(_), None) => {
                    let message = format!(
                        "workload '{name}': write a, b, c, d, e, f, get, set, cache, or puts:SHARE with a share from 0 to 1"
                    );
                    return Err(Error::new(ErrorKind::InvalidInput, message));
                }
            },
        };
        if let Some(size) = self.value_size {
            workload.value = ValueSettings { size: SizeDistribution::Fixed(size), ..workload.value };
        }
        workload.distribution = self.distribution.unwrap_or(workload.distribution);
        workload.verify = self.verify;
        let pacing = Pacing {
            threads: self.threads,
            pipeline: self.pipeline,
            rate: self.rate,
            extent: match self.operations {
                Some(operations) => Extent::Operations(operations),
                None => Extent::Seconds(self.seconds.unwrap_or(10.0)),
            },
            seed: self.seed,
            ..Pacing::default()
        };
        let server = Server {
            address,
            username: self.connect.user(),
            password: if self.address.is_some() { self.connect.password()? } else { None },
            tls: self.connect.files(),
            ..Server::default()
        };
        let plan = Plan { server, connections: self.connections, workload, pacing, ..Plan::default() };
        plan.validate()?;
        Ok(plan)
    }
}

pub fn run(args: BenchArgs) -> Result<()> {
    match &args.command {
        Some(BenchCommand::NullServer(args)) => return null_server::run(args),
        Some(BenchCommand::Node(args)) => return node::run(args),
        Some(BenchCommand::Gensort(args)) => return records::generate(args),
        Some(BenchCommand::Valsort(args)) => return records::validate(args),
        None => {}
    }
    let args = args.load;
    // Before anything is started, so that a wrong setting costs nothing.
    args.plan(args.address.clone().unwrap_or_default())?;
    if args.address.is_none() {
        args.connect.needs("--address")?;
        // Beside flags that conflict with --address clap does not ask for it.
        if args.no_load {
            return Err(Error::new(ErrorKind::InvalidInput, "--no-load needs --address"));
        }
    }
    let accounting = args.energy.accounting()?;
    parse_size(&args.memory)?;
    args.index.as_deref().map(parse_index).transpose()?;
    let report = match &args.address {
        Some(address) => measure(&args, (address.clone(), None), &accounting)?,
        None if args.embedded => {
            with_folder(&args, |args, folder| embedded::measure(args, folder, &accounting))?
        }
        None => with_folder(&args, |args, folder| serve_and_measure(args, folder, &accounting))?,
    };
    report.print(args.json)?;
    judge(&report)
}

/// A run with answers that were errors or wrong did not measure what it says.
fn judge(report: &BenchReport) -> Result<()> {
    let outcomes =
        || [Some(&report.run), report.load.as_ref(), report.verified.as_ref()].into_iter().flatten();
    let wrong: u64 = outcomes().map(|outcome| outcome.verification_failures).sum();
    let missing = report.verified.as_ref().map_or(0, |verified| verified.misses);
    if wrong + missing > 0 {
        let message = format!("{wrong} values were wrong and {missing} records missing");
        return Err(Error::new(ErrorKind::Corrupt, message));
    }
    match outcomes().find(|outcome| !outcome.is_clean()) {
        None => Ok(()),
        Some(outcome) => {
            let why = outcome.first_error.clone().or_else(|| outcome.ended_early.clone()).unwrap_or_default();
            let message = format!(
                "{} operations failed, {} were not answered: {why}",
                outcome.errors, outcome.unanswered
            );
            Err(Error::new(ErrorKind::Retry, message))
        }
    }
}

/// Measures in a folder that is made for it and removed afterwards.
fn with_folder(
    args: &LoadArgs,
    measure: impl FnOnce(&LoadArgs, &Path) -> Result<BenchReport>,
) -> Result<BenchReport> {
    let directory = match &args.data {
        Some(directory) => directory.clone(),
        None => PathBuf::from(format!("tierstone-bench-{}", std::process::id())),
    };
    if directory.exists() {
        return Err(Error::new(ErrorKind::InvalidInput, format!("{} exists already", directory.display())));
    }
    let _tidied = tidy_folder(directory.clone())?;
    let outcome = measure(args, &directory);
    // This run made the folder itself.
    if let (Ok(_), Err(error)) = (&outcome, std::fs::remove_dir_all(&directory)) {
        tell!("tierstone: {} was not removed: {error}", directory.display());
    }
    outcome
}

fn serve_and_measure(args: &LoadArgs, directory: &Path, accounting: &Accounting) -> Result<BenchReport> {
    let (durability, index) = (args.durability.as_deref(), args.index.as_deref());
    let mut server = ServerProcess::start(directory, &args.memory, args.shards, durability, index)
        .map_err(|error| error.context("starting a server to measure"))?;
    let report = measure(args, (server.address().to_string(), Some(&server)), accounting)?;
    server.stop()?;
    Ok(report)
}

fn measure(
    args: &LoadArgs,
    (address, own): (String, Option<&ServerProcess>),
    accounting: &Accounting,
) -> Result<BenchReport> {
    let plan = args.plan(address)?;
    let load = match args.no_load {
        true => None,
        false => Some(with_bar("loading", |progress| redis_load::load(&plan, progress))?),
    };
    let before = match own {
        // The metrics first: fetching them takes processor time too.
        Some(server) => Some((server.metrics_settled()?, server.cpu_us())),
        None => None,
    };
    let watching = Watching::start(accounting)?;
    let run = with_bar("measuring", |progress| redis_load::run(&plan, progress))?;
    let measured = watching.end()?;
    let (cost, work) = match (own, before) {
        (Some(server), Some((before, cpu_before))) => {
            let cpu = cpu_before.zip(server.cpu_us());
            let after = server.metrics_settled()?;
            let cost = ServerCost::new(run.operations, cpu, &before, &after);
            (Some(cost), energy::work(run.seconds, cpu, &before, &after))
        }
        _ => (None, None),
    };
    let energy = EnergyCost::new(run.operations, measured, (&accounting.model, work.as_ref()));
    let verified = match args.verify {
        false => None,
        true => Some(with_bar("verifying", |progress| redis_load::verify(&plan, progress))?),
    };
    Ok(BenchReport {
        workload: args.workload.clone(),
        is_own_server: own.is_some(),
        plan,
        load,
        run,
        server: cost,
        energy,
        verified,
    })
}

fn with_bar<T>(
    what: &'static str,
    work: impl FnOnce(&mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<T>,
) -> Result<T> {
    let bar = ProgressBar::new(0);
    let style = ProgressStyle::with_template("{prefix:10} [{bar:40}] {percent:>3} % {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar.set_prefix(what);
    let result = work(&mut |progress| {
        let (done, total) = match (progress.operations_total, progress.seconds_total) {
            (Some(total), _) => (progress.operations, total),
            (None, total) => ((progress.seconds * 1e3) as u64, (total.unwrap_or(0.0) * 1e3) as u64),
        };
        bar.set_length(total);
        bar.set_position(done);
        bar.set_message(format!("{:.0} a second", progress.operations as f64 / progress.seconds.max(1e-3)));
        ControlFlow::Continue(())
    });
    bar.finish_and_clear();
    result
}

#[cfg(test)]
#[path = "bench_test.rs"]
mod bench_test;
