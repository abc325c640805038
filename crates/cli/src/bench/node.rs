//! `tierstone bench node`: which class of work this node is good at, in work a second and work a joule.

use super::energy::{EnergyCost, Watching};
use crate::child::cpu_us_of;
use crate::energy::processors;
use crate::energy::report::{Measured, digits};
use crate::output::{print_json, print_line, table};
use clap::{Args, ValueEnum};
use serde::Serialize;
use tierstone_base::units::parse_size;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_energy::Work as Counters;
use tierstone_workload::node::{self, Watch, Work};

/// A class of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Class {
    /// Strided products of matrices from the first cache to beyond the last.
    Kernel,
    /// SHA-256.
    Crypto,
    /// Many patterns in a text.
    Search,
    /// Records of 100 bytes, in memory.
    Sort,
}

#[derive(Debug, Args)]
pub struct NodeArgs {
    /// Classes: kernel, crypto, search, sort
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "kernel,crypto,search,sort")]
    class: Vec<Class>,
    /// Threads [default: one a processor]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Seconds for each size of the kernel, and for SHA-256
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,
    /// Records to sort; they and the result take 216 bytes each
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    records: usize,
    /// Text to search
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    text: String,
    /// Patterns to search for
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    patterns: usize,
    /// Seed of records, text and patterns
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
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
    /// Of the machine; `None` without meters.
    per_joule_measured: Option<f64>,
    /// By the model: processor time above idle, and with the idle machine.
    per_active_joule_modelled: Option<f64>,
    per_joule_modelled: Option<f64>,
    energy: EnergyCost,
}

pub fn run(args: &NodeArgs) -> Result<()> {
    let threads = args.threads.unwrap_or_else(processors);
    let wrong = |what: &str| Err(Error::new(ErrorKind::InvalidInput, what));
    if !(1..=1024).contains(&threads) {
        return wrong("--threads takes 1 to 1024");
    }
    if !(0.01..=3_600.0).contains(&args.seconds) {
        return wrong("--seconds takes 0.01 to 3600");
    }
    if args.patterns == 0 || args.patterns > 10_000_000 {
        return wrong("--patterns takes 1 to 10000000");
    }
    let text_bytes = parse_size(&args.text)?.clamp(1 << 10, 1 << 36) as usize;
    let mut lines = Vec::new();
    for class in &args.class {
        match class {
            Class::Kernel => {
                for bytes in node::kernel::SIZES_BYTES {
                    lines.push(measure(|watch| node::kernel::run(bytes, threads, args.seconds, watch))?);
                }
            }
            Class::Crypto => lines.push(measure(|watch| node::crypto::run(threads, args.seconds, watch))?),
            Class::Search => {
                let size = (text_bytes, args.patterns);
                lines.push(measure(|watch| node::search::run(size, threads, args.seed, watch))?);
            }
            Class::Sort => {
                lines.push(measure(|watch| node::sort::run(args.records, threads, args.seed, watch))?)
            }
        }
    }
    if args.json { print_json(&lines) } else { print_lines(&lines) }
}

/// Meters and processor time of the part that counts.
#[derive(Default)]
struct Looks {
    watching: Option<Watching>,
    measured: Option<Measured>,
    cpu_us: (Option<u64>, Option<u64>),
}

impl Watch for Looks {
    fn begin(&mut self) -> Result<()> {
        self.watching = Some(Watching::start()?);
        self.cpu_us.0 = cpu_us_of("self");
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.cpu_us.1 = cpu_us_of("self");
        self.measured = self.watching.take().map_or(Ok(None), Watching::end)?;
        Ok(())
    }
}

/// Runs one class between two looks at meters and processor time.
fn measure(work: impl FnOnce(&mut dyn Watch) -> Result<Work>) -> Result<Line> {
    let mut looks = Looks::default();
    let work = work(&mut looks)?;
    let counters = looks.cpu_us.0.zip(looks.cpu_us.1).map(|(from, to)| Counters {
        seconds: work.seconds,
        processors: processors() as f64,
        cpu_seconds: to.saturating_sub(from) as f64 / 1e6,
        ..Counters::default()
    });
    let energy = EnergyCost::new(1, looks.measured, counters.as_ref())?;
    let per = |joules: Option<f64>| joules.filter(|joules| *joules > 0.0).map(|joules| work.amount / joules);
    Ok(Line {
        per_second: work.amount / work.seconds.max(1e-9),
        per_joule_measured: per(energy.measured_joules_per_operation),
        per_active_joule_modelled: per(energy.modelled_active_joules_per_operation),
        per_joule_modelled: per(energy.modelled_joules_per_operation),
        energy,
        work,
    })
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
    }
    Ok(())
}
