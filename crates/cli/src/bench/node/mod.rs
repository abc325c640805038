//! `tierstone bench node`: which class of work this node is good at, in work a second and work a joule.

mod conclusion;
mod gnu_sort;
mod kv;

use super::energy::{Accounting, EnergyCost, EnergyOptions, Watching};
use crate::child::cpu_us_of;
use crate::energy::processors;
use crate::energy::report::{Measured, digits};
use crate::interrupt::Interrupted;
use crate::output::{print_json, print_line, table};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Mutex;
use tierstone_base::units::parse_size;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_energy::Work as Counters;
use tierstone_workload::node::gensort::{Format, RECORD_BYTES};
use tierstone_workload::node::two_pass::{self, Phase};
use tierstone_workload::node::{self, Watch, Work};

/// A class of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Class {
    /// Strided products of matrices from the first cache to beyond the last.
    Kernel,
    /// SHA-256, by all threads and by one.
    Crypto,
    /// Signatures with RSA, made and verified.
    Rsa,
    /// Many patterns in a text.
    Search,
    /// Records of 100 bytes, in memory.
    Sort,
    /// More records than memory holds, over a device.
    TwoPass,
    /// Reads and writes of small and large values in a store.
    Kv,
}

#[derive(Debug, Args)]
pub struct NodeArgs {
    /// Classes: kernel, crypto, rsa, search, sort, two-pass, kv; only the last two use the device
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "kernel,crypto,rsa,search,sort")]
    class: Vec<Class>,
    /// Threads [default: one a processor]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Seconds for each size of the kernel, each part of crypto and rsa, and each mix of kv
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,
    /// Records to sort in memory; they, the result and keys take 240 bytes each
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    records: usize,
    /// Form of records to sort, as gensort makes them: ascii or binary
    #[arg(long, value_name = "FORM", default_value = "ascii")]
    format: Format,
    /// Bytes to sort in two passes, a multiple of 100; the files take twice as much
    #[arg(long, value_name = "SIZE", default_value = "10GB")]
    size: String,
    /// Memory for the sort in two passes
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    sort_memory: String,
    /// Where two-pass and kv make their files, which are removed at the end
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Sort the same records with GNU sort too; its files take three times the size
    #[arg(long)]
    gnu: bool,
    /// Bytes of values in the store of kv, of each size of value
    #[arg(long, value_name = "SIZE", default_value = "128MiB")]
    kv_data: String,
    /// Memory of the store of kv
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    kv_memory: String,
    /// Text to search
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    text: String,
    /// Patterns to search for
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    patterns: usize,
    /// Seed of text, patterns, and keys of kv
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    energy: EnergyOptions,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One line of the result.
#[derive(Debug, Serialize)]
struct Line {
    #[serde(flatten)]
    work: Work,
    per_second: f64,
    /// Of the machine, by its mean power over the time that the meters cover; `None` without meters.
    per_joule_measured: Option<f64>,
    /// By the model: processor time above idle, and with the idle machine.
    per_active_joule_modelled: Option<f64>,
    per_joule_modelled: Option<f64>,
    energy: EnergyCost,
    /// The part of all processors' time that the process took.
    busy: Option<f64>,
}

/// All of it.
#[derive(Debug, Serialize)]
struct Told {
    lines: Vec<Line>,
    /// What follows for each class of work.
    conclusions: Vec<String>,
}

/// What is run, checked.
struct Plan<'a> {
    args: &'a NodeArgs,
    threads: usize,
    text_bytes: usize,
    two_pass: two_pass::Settings,
    kv: kv::Settings,
    accounting: Accounting,
}

impl NodeArgs {
    fn plan(&self) -> Result<Plan<'_>> {
        let threads = self.threads.unwrap_or_else(processors);
        let wrong = |what: &str| Err(Error::new(ErrorKind::InvalidInput, what));
        if !(1..=1024).contains(&threads) {
            return wrong("--threads takes 1 to 1024");
        }
        if !(0.01..=3_600.0).contains(&self.seconds) {
            return wrong("--seconds takes 0.01 to 3600");
        }
        if self.patterns == 0 || self.patterns > 10_000_000 {
            return wrong("--patterns takes 1 to 10000000");
        }
        let bytes = parse_size(&self.size)?;
        if bytes == 0 || !bytes.is_multiple_of(RECORD_BYTES as u64) {
            return wrong("--size takes a multiple of 100 bytes above 0");
        }
        if self.gnu && (self.format != Format::Ascii || !self.class.contains(&Class::TwoPass)) {
            return wrong("--gnu needs --class two-pass and lines: --format ascii");
        }
        Ok(Plan {
            args: self,
            threads,
            text_bytes: parse_size(&self.text)?.clamp(1 << 10, 1 << 36) as usize,
            two_pass: two_pass::Settings {
                directory: self.directory.clone(),
                records: bytes / RECORD_BYTES as u64,
                memory_bytes: parse_size(&self.sort_memory)?,
                threads,
                format: self.format,
            },
            kv: kv::Settings {
                directory: self.directory.clone(),
                data_bytes: parse_size(&self.kv_data)?,
                memory_bytes: parse_size(&self.kv_memory)?,
                threads,
                seconds: self.seconds,
                seed: self.seed,
            },
            accounting: self.energy.accounting()?,
        })
    }
}

impl Plan<'_> {
    /// The lines of a class.
    fn run(&self, class: Class, lines: &mut Vec<Line>) -> Result<()> {
        let (args, threads) = (self.args, self.threads);
        let mut measure = |work: &mut dyn FnMut(&mut dyn Watch) -> Result<Work>| {
            lines.push(self.measure(work)?);
            Ok(())
        };
        match class {
            Class::Kernel => node::kernel::SIZES_BYTES.into_iter().try_for_each(|bytes| {
                measure(&mut |watch| node::kernel::run(bytes, threads, args.seconds, watch))
            }),
            Class::Crypto => {
                measure(&mut |watch| node::crypto::run(threads, args.seconds, watch))?;
                if threads == 1 {
                    return Ok(());
                }
                measure(&mut |watch| node::crypto::run(1, args.seconds, watch))
            }
            Class::Rsa => node::rsa::run(threads, args.seconds, measure),
            Class::Kv => kv::run(&self.kv, &Interrupted::watch()?, measure),
            Class::Search => {
                let size = (self.text_bytes, args.patterns);
                measure(&mut |watch| node::search::run(size, threads, args.seed, watch))
            }
            Class::Sort => measure(&mut |watch| node::sort::run(args.records, threads, args.format, watch)),
            Class::TwoPass => {
                let interrupted = Interrupted::watch()?;
                measure(&mut |watch| sort_in_two_passes(&self.two_pass, &interrupted, watch))?;
                if args.gnu {
                    let (work, counters) = gnu_sort::run(&self.two_pass, &interrupted)?;
                    lines.push(self.line(work, None, Some(counters)));
                }
                Ok(())
            }
        }
    }

    /// Runs one class between two looks at meters and processor time.
    fn measure(&self, work: &mut dyn FnMut(&mut dyn Watch) -> Result<Work>) -> Result<Line> {
        let mut looks =
            Looks { accounting: &self.accounting, watching: None, measured: None, cpu_us: (None, None) };
        let work = work(&mut looks)?;
        let device = work.device.clone().unwrap_or_default();
        let counters = looks.cpu_us.0.zip(looks.cpu_us.1).map(|(from, to)| Counters {
            seconds: work.seconds,
            processors: processors() as f64,
            cpu_seconds: to.saturating_sub(from) as f64 / 1e6,
            reads: device.reads,
            writes: device.writes,
            flushes: device.flushes,
            bytes_read: device.bytes_read,
            bytes_written: device.bytes_written,
        });
        Ok(self.line(work, looks.measured, counters))
    }

    fn line(&self, work: Work, measured: Option<Measured>, counters: Option<Counters>) -> Line {
        let energy = EnergyCost::new(1, measured, (&self.accounting.model, counters.as_ref()));
        let per =
            |joules: Option<f64>| joules.filter(|joules| *joules > 0.0).map(|joules| work.amount / joules);
        Line {
            per_second: work.amount / work.seconds.max(1e-9),
            per_joule_measured: per(energy.measured_joules_per_operation),
            per_active_joule_modelled: per(energy.modelled_active_joules_per_operation),
            per_joule_modelled: per(energy.modelled_joules_per_operation),
            busy: counters
                .filter(|counters| counters.seconds > 0.0)
                .map(|counters| counters.cpu_seconds / counters.seconds / counters.processors.max(1.0)),
            energy,
            work,
        }
    }
}

pub fn run(args: &NodeArgs) -> Result<()> {
    let plan = args.plan()?;
    let mut lines = Vec::new();
    for class in &args.class {
        plan.run(*class, &mut lines)?;
    }
    let seen: Vec<_> =
        lines.iter().map(|line| conclusion::Seen { work: &line.work, busy: line.busy }).collect();
    let conclusions = conclusion::conclude(&seen);
    if args.json {
        return print_json(&Told { lines, conclusions });
    }
    print_lines(&lines)?;
    conclusions.iter().try_for_each(|sentence| print_line(&format!("* {sentence}")))
}

/// With a bar on the terminal, until it is interrupted.
fn sort_in_two_passes(
    settings: &two_pass::Settings,
    interrupted: &Interrupted,
    watch: &mut dyn Watch,
) -> Result<Work> {
    let bar = ProgressBar::new(1_000);
    let style = ProgressStyle::with_template("{prefix:10} [{bar:40}] {percent:>3} %");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    let shown: Mutex<Option<Phase>> = Mutex::new(None);
    let result = two_pass::run(
        settings,
        &|phase, part| {
            let mut shown = shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if *shown != Some(phase) {
                *shown = Some(phase);
                bar.set_prefix(format!("{phase:?}").to_lowercase());
            }
            bar.set_position((1_000.0 * part) as u64);
            if interrupted.has_come() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        },
        watch,
    );
    bar.finish_and_clear();
    result
}

/// Meters and processor time of the part that counts.
struct Looks<'a> {
    accounting: &'a Accounting,
    watching: Option<Watching>,
    measured: Option<Measured>,
    cpu_us: (Option<u64>, Option<u64>),
}

impl Watch for Looks<'_> {
    fn begin(&mut self) -> Result<()> {
        self.watching = Some(Watching::start(self.accounting)?);
        self.cpu_us.0 = cpu_us_of("self");
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.cpu_us.1 = cpu_us_of("self");
        self.measured = self.watching.take().map_or(Ok(None), Watching::end)?;
        Ok(())
    }
}

fn print_lines(lines: &[Line]) -> Result<()> {
    let mut head = vec!["class", "unit", "a second", "per J above idle (modelled)", "per J (modelled)"];
    let has_meter = lines.iter().any(|line| line.per_joule_measured.is_some());
    if has_meter {
        head.push("per J of the machine (measured)");
    }
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    let told = |value: Option<f64>| value.map_or("-".to_owned(), digits);
    for line in lines {
        let mut row = vec![line.work.name.clone(), line.work.unit.to_owned(), digits(line.per_second)];
        row.extend([told(line.per_active_joule_modelled), told(line.per_joule_modelled)]);
        if has_meter {
            row.push(told(line.per_joule_measured));
        }
        rows.push(row);
    }
    print_line(table(&rows).trim_end())?;
    for line in lines {
        print_line(&format!("{}: {}", line.work.name, line.work.note))?;
        if let Some(covered) = line.energy.measured.as_ref().and_then(Measured::coverage) {
            let name = &line.work.name;
            print_line(&format!("{name}: the meters cover {covered} s; the rest is taken to be like it"))?;
        }
    }
    Ok(())
}
