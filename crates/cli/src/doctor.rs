//! `tierstone doctor`: what the devices below some directories guarantee and give, and what byte-addressable regions do.
//!
//! What was measured here and what was published about other devices stand in one table, in columns of
//! their own: a published number is never put where a measured one is missing, nor the other way round.

use crate::interrupt::{Tidied, repeat, tidy_by};
use crate::output::{print_json, print_line, table};
use clap::Args;
use rustix::process::{Resource, getrlimit};
use std::path::{Path, PathBuf};
use tierstone::nvm::PREFIX;
use tierstone::volume::{Description, newest, probe_members};
use tierstone_base::units::{format_size, parse_duration_us};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::file::{DirectIo, DurableMethod};
use tierstone_media::probe::doctor::Measured;
use tierstone_media::probe::{
    DaxReport, DirectoryReport, DoctorReport, DoctorSettings, EmulatorReport, MemoryReport, PresetBandwidth,
    PresetWait, PublishedProfile, Rate, RegionPlaceReport, examine,
};

/// Columns of the tables and lists that are printed.
const WIDTH: usize = 100;

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Directories to examine, each of which must exist; or the description of a closed volume (a file that ends in
    /// .toml), of which the directories of its member files are measured; of files of regions, of DAX devices and of
    /// nvm:REGION, as a store names it, only what the region guarantees is told
    #[arg(default_value = ".", value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Time for measuring each directory
    #[arg(long, value_name = "TIME", default_value = "5s")]
    time: String,
    /// How the measured writes are made durable: auto (as a new store would, by probing), durable-write or
    /// write-then-flush
    #[arg(long, value_name = "METHOD", default_value = "auto")]
    durable_method: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &DoctorArgs) -> Result<()> {
    let budget_ms = parse_duration_us(&args.time)? / 1_000;
    let durable_method = parse_durable_method(&args.durable_method)?;
    let (regions, places) = named_regions(&args.directories);
    let directories = match Description::among(&places)? {
        Some(description) => below_volume(description, args.json)?,
        None => places,
    };
    let settings = DoctorSettings { regions, budget_ms, durable_method, ..DoctorSettings::new(directories) };
    settings.check()?;
    if !args.json && !settings.directories.is_empty() {
        tell!("measuring for about {} in each directory …", args.time);
    }
    let _tidied =
        settings.directories.iter().map(|place| tidy_probes(place.clone())).collect::<Result<Vec<_>>>()?;
    let report = examine(&settings)?;
    if args.json {
        print_json(&report)?
    } else {
        print_report(&report)?
    }
    let unmeasured: Vec<String> = report
        .directories
        .iter()
        .filter(|found| found.measured.is_none())
        .map(|found| found.directory.display().to_string())
        .collect();
    match unmeasured.is_empty() {
        true => Ok(()),
        false => {
            let message = format!("nothing could be measured in {}", unmeasured.join(", "));
            Err(Error::new(ErrorKind::Retry, message))
        }
    }
}

/// What this process makes in `directory` to measure it goes with it.
fn tidy_probes(directory: PathBuf) -> Result<Tidied> {
    let names = ["", "region-"].map(|kind| format!("tierstone-probe-{kind}{}-", std::process::id()));
    let remove = move || {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if names.iter().any(|begin| name.to_string_lossy().starts_with(begin)) {
                // Nobody is left to be told.
                let _ = std::fs::remove_dir_all(entry.path()).or_else(|_| std::fs::remove_file(entry.path()));
            }
        }
    };
    tidy_by(move || repeat(&remove))
}

/// The names of regions, without what stands before them, and the other places.
fn named_regions(places: &[PathBuf]) -> (Vec<String>, Vec<PathBuf>) {
    let region = |path: &PathBuf| path.to_str()?.strip_prefix(PREFIX).map(str::to_owned);
    let regions = places.iter().filter_map(region).collect();
    (regions, places.iter().filter(|path| region(path).is_none()).cloned().collect())
}

/// The directories of a volume's member files, each once. Block devices are not measured: that would write to them.
fn below_volume(description: &Path, json: bool) -> Result<Vec<PathBuf>> {
    let members = Description::read(description)?;
    let probed = probe_members(description, &members, DirectIo::Auto)?;
    let facts = newest(&probed)?;
    let mut directories = Vec::new();
    for member in &probed {
        let directory = member.path.parent().unwrap_or(Path::new("/")).to_path_buf();
        let is_file = member.file.as_ref().is_ok_and(|file| !file.is_block_device());
        if is_file && !directories.contains(&directory) {
            directories.push(directory);
        }
    }
    if !json {
        let (level, count) = (facts.layout.level_name(), probed.len());
        let lost = probed.iter().filter(|member| member.file.is_err()).count();
        print_line(&format!("volume: {level}, {count} members, {lost} of them cannot be used"))?;
    }
    Ok(directories)
}

/// `auto`, `durable-write` or `write-then-flush`; `None` for the first.
pub fn parse_durable_method(text: &str) -> Result<Option<DurableMethod>> {
    let methods = [DurableMethod::DurableWrite, DurableMethod::WriteThenFlush];
    match methods.into_iter().find(|method| method.name() == text) {
        None if text != "auto" => {
            let message = format!("durable method '{text}': write auto, durable-write or write-then-flush");
            Err(Error::new(ErrorKind::InvalidInput, message))
        }
        found => Ok(found),
    }
}

fn print_report(report: &DoctorReport) -> Result<()> {
    match &report.io_uring_refusal {
        None => print_line("io_uring: available")?,
        Some(why) => {
            print_line(&format!("io_uring: refused ({why}); threads are used instead"))?;
            let limit = getrlimit(Resource::Memlock).current;
            if let Some(advice) = of_locked_memory(why, limit) {
                print_line(&advice)?;
            }
        }
    }
    for directory in &report.directories {
        print_directory(directory, &report.published)?;
    }
    if !report.directories.is_empty() {
        for line in sources(&report.published) {
            print_line(&line)?;
        }
    }
    print_line("\nbyte-addressable regions")?;
    for place in &report.regions {
        for line in region_lines(place) {
            print_line(&line)?;
        }
    }
    for line in memory_lines(&report.memory) {
        print_line(&line)?;
    }
    Ok(())
}

/// What to do where the kernel has no memory for rings: it counts them as locked, and a process may lock so many bytes.
fn of_locked_memory(why: &str, limit_bytes: Option<u64>) -> Option<String> {
    let limit = format_size(limit_bytes?);
    why.contains("os error 12").then(|| {
        format!(
            "* rings count as locked memory, of which this process may have {limit}: raise that limit (ulimit -l; LimitMEMLOCK= \
             for systemd, --ulimit memlock=-1 for a container)"
        )
    })
}

/// What is really guaranteed of a region at one place.
fn region_lines(place: &RegionPlaceReport) -> Vec<String> {
    let path = place.path.display();
    match (&place.by_lines, &place.by_msync) {
        (Ok(by_lines), None) => vec![format!("{path}: {}", by_lines.text())],
        (Ok(by_lines), Some(by_msync)) => {
            vec![format!("{path}: {}", by_lines.text()), format!("{path}: {}", by_msync.text())]
        }
        (Err(why), _) => vec![format!("{path}: no region: {why}")],
    }
}

fn memory_lines(memory: &MemoryReport) -> Vec<String> {
    let instructions = match memory.instructions.join(", ") {
        none if none.is_empty() => "none; regions use msync".to_owned(),
        some => some,
    };
    let domain = memory
        .persistence_domain
        .map_or("not known: the kernel names no persistent memory", |domain| domain.text());
    let mut lines = vec![
        format!("instructions that write lines back: {instructions}"),
        format!("persistence domain: {domain}"),
    ];
    lines.extend(memory.dax_devices.iter().map(dax_line));
    lines.extend(emulator_lines(&memory.emulator));
    lines
}

fn dax_line(device: &DaxReport) -> String {
    let size = device.bytes.map_or("size not known".to_owned(), format_size);
    let promise =
        device.promise.as_ref().map_or_else(|why| format!("no region: {why}"), |found| found.text());
    format!("{}, {size}: {promise}", device.path.display())
}

/// How exact emulated memories are; all measured.
fn emulator_lines(emulator: &EmulatorReport) -> Vec<String> {
    let fit = &emulator.fit;
    let kept = |bytes: u64| emulator.bandwidth_kept(bytes).unwrap_or_default() / 1e9;
    let bandwidth = match emulator.threshold_ns {
        None => "not kept by any transfer that was tried: the machine is too busy, or too slow".to_owned(),
        Some(ns) => format!(
            "kept from transfers of {ns} ns on: {:.2} GB/s in lines of 64 B, {:.2} GB/s in granules of 256 B",
            kept(64),
            kept(256)
        ),
    };
    vec![
        format!(
            "emulated delays (measured): right to {:.1} ns from 100 ns on (medians); a turn of the loop is {:.1} ns; {:.1} ns are subtracted \
             (slope {:.4}, R² {:.5}, residual {:.1} ns)",
            emulator.worst_error_ns,
            emulator.step_ns,
            fit.offset_ns,
            fit.slope,
            fit.r_squared,
            fit.worst_residual_ns
        ),
        format!("emulated bandwidth (measured, {} threads): {bandwidth}", emulator.threads),
        preset_line(&emulator.presets),
        wait_line(&emulator.waits),
    ]
}

/// Which presets wait for less than the machine can.
fn wait_line(waits: &[PresetWait]) -> String {
    let told = |wait: &PresetWait| {
        format!("{} {} ({:.0} ns take {:.0} ns)", wait.preset, wait.what, wait.asked_ns, wait.measured_ns)
    };
    let missed: Vec<String> = waits.iter().filter(|wait| !wait.is_kept).map(told).collect();
    match missed.is_empty() {
        true => "waits of presets: all are kept here".to_owned(),
        false => format!("waits of presets that are longer here: {}", missed.join(", ")),
    }
}

/// Which presets are faster than the machine can share.
fn preset_line(presets: &[PresetBandwidth]) -> String {
    let told = |preset: &PresetBandwidth| {
        let from = match preset.kept_from_bytes {
            None => "by no call".to_owned(),
            Some(bytes) => format!("only by calls of {} and more", format_size(bytes)),
        };
        format!(
            "{} {} ({:.1} ns for {} B; kept {from})",
            preset.preset, preset.direction, preset.granule_ns, preset.granule_bytes
        )
    };
    let missed: Vec<String> = presets.iter().filter(|preset| !preset.is_kept).map(told).collect();
    match missed.is_empty() {
        true => "bandwidth of presets: all is kept here".to_owned(),
        false => format!("bandwidth of presets that is not kept here: {}", missed.join(", ")),
    }
}

fn print_directory(report: &DirectoryReport, published: &[PublishedProfile]) -> Result<()> {
    print_line(&format!(
        "\n{}: {}, {} free of {}, direct I/O {}",
        report.directory.display(),
        report.file_system,
        format_size(report.free_bytes),
        format_size(report.total_bytes),
        match (&report.measured, report.direct_io) {
            (None, _) => "not known",
            (Some(_), true) => "yes",
            (Some(_), false) => "no",
        },
    ))?;
    match &report.measured {
        None => {
            let guarantee = report.guarantee.text();
            print_line(&format!(
                "guarantee: not tried, nothing could be measured; by its kind: {guarantee}"
            ))?;
        }
        Some(measured) => {
            print_line(&format!("guarantee: {}", report.guarantee.text()))?;
            let (backend, method) = (&measured.backend, measured.method_used.text());
            print_line(&format!("back-end: {backend}; durable writes by {method}"))?;
        }
    }
    print_line(&table(&comparison(report.measured.as_ref(), published)))?;
    for advice in &report.advice {
        print_line(&format!("* {advice}"))?;
    }
    Ok(())
}

/// What can be measured here and is published of other devices.
struct Quantity {
    name: &'static str,
    unit: &'static str,
    /// How it is measured here.
    measured_how: &'static str,
    measured: fn(&Measured) -> Option<f64>,
    published: fn(&PublishedProfile) -> Option<f64>,
}

/// The durable writes that were measured with `depth` in flight.
fn durable(measured: &Measured, depth: u32) -> Option<&Rate> {
    measured.durable.iter().find(|rate| rate.depth == depth)
}

const QUANTITIES: [Quantity; 9] = [
    Quantity {
        name: "random read, time",
        unit: "us",
        measured_how: "4 KiB, alone, p50",
        measured: |found| Some(found.read_alone.p50_us as f64),
        published: |profile| profile.random_read_us,
    },
    Quantity {
        name: "random read, time",
        unit: "us",
        measured_how: "4 KiB, alone, p99",
        measured: |found| Some(found.read_alone.p99_us as f64),
        published: |_| None,
    },
    Quantity {
        name: "random reads",
        unit: "1/s",
        measured_how: "4 KiB, 32 in flight",
        measured: |found| Some(found.read_parallel.per_second),
        published: |profile| profile.random_reads_per_second,
    },
    Quantity {
        name: "reading in order",
        unit: "MB/s",
        measured_how: "1 MiB, 4 in flight",
        measured: |found| Some(found.sequential_read_bytes_per_second / 1e6),
        published: |profile| profile.sequential_read_bytes_per_second.map(|bytes| bytes / 1e6),
    },
    Quantity {
        name: "writing in order",
        unit: "MB/s",
        measured_how: "1 MiB, 4 in flight",
        measured: |found| Some(found.sequential_write_bytes_per_second / 1e6),
        published: |profile| profile.sequential_write_bytes_per_second.map(|bytes| bytes / 1e6),
    },
    Quantity {
        name: "durable write, time",
        unit: "us",
        measured_how: "4 KiB, alone, p50",
        measured: |found| durable(found, 1).map(|rate| rate.p50_us as f64),
        published: |profile| profile.durable_write_us,
    },
    Quantity {
        name: "durable write, time",
        unit: "us",
        measured_how: "4 KiB, alone, p99",
        measured: |found| durable(found, 1).map(|rate| rate.p99_us as f64),
        published: |_| None,
    },
    Quantity {
        name: "durable writes",
        unit: "1/s",
        measured_how: "4 KiB, 4 in flight",
        measured: |found| durable(found, 4).map(|rate| rate.per_second),
        published: |_| None,
    },
    Quantity {
        name: "small writes",
        unit: "1/s",
        measured_how: "4 KiB, durable, 16 in flight",
        measured: |found| durable(found, 16).map(|rate| rate.per_second),
        published: |profile| profile.writes_per_second,
    },
];

/// One line a quantity with what was measured; each published number of it on a line, with the number of its source.
fn comparison(measured: Option<&Measured>, profiles: &[PublishedProfile]) -> Vec<Vec<String>> {
    let number = |value: f64| if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") };
    let head = ["quantity", "unit", "measured here", "how", "published", "of device"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for quantity in &QUANTITIES {
        let here = measured.and_then(|found| (quantity.measured)(found)).map_or("-".to_owned(), number);
        let mut cells = [quantity.name, quantity.unit, &here, quantity.measured_how].map(str::to_owned);
        let mut published = profiles.iter().zip(1..).filter_map(|(profile, source)| {
            Some([number((quantity.published)(profile)?), format!("[{source}]")])
        });
        let first = published.next().unwrap_or_else(|| ["-".to_owned(), String::new()]);
        rows.push(cells.iter().cloned().chain(first).collect());
        // What was measured is written once; the name and the unit hold for every line.
        (cells[2], cells[3]) = (String::new(), String::new());
        rows.extend(published.map(|other| cells.iter().cloned().chain(other).collect()));
    }
    rows
}

/// The devices of the published numbers, and where those stand, under their numbers.
fn sources(profiles: &[PublishedProfile]) -> Vec<String> {
    let mut lines = vec!["\ndevices of the published numbers, none of which were measured here".to_owned()];
    for (profile, number) in profiles.iter().zip(1..) {
        let note = if profile.note.is_empty() { String::new() } else { format!(" ({})", profile.note) };
        let text = format!("{}, {}: {}{note}", profile.device, profile.class, profile.source);
        let begin = format!("{:>5} ", format!("[{number}]"));
        lines.extend(wrapped(&begin, &text));
    }
    lines
}

/// The words of `text` behind `begin`, on lines of at most [`WIDTH`] columns that begin where the first one does.
fn wrapped(begin: &str, text: &str) -> Vec<String> {
    let blank = " ".repeat(begin.chars().count());
    let (mut lines, mut line) = (Vec::new(), begin.to_owned());
    let mut is_empty = true;
    for word in text.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(std::mem::replace(&mut line, blank.clone()));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    lines.push(line);
    lines
}

#[cfg(test)]
#[path = "doctor_test.rs"]
mod doctor_test;
