//! `tierstone doctor`: what the devices below some directories guarantee and give.

use crate::output::{print_json, print_line, table};
use clap::Args;
use std::path::PathBuf;
use tierstone_base::Result;
use tierstone_base::units::{format_size, parse_duration_us};
use tierstone_media::probe::{DirectoryReport, DoctorReport, DoctorSettings, Rate, examine};

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Directories to examine; each must exist
    #[arg(default_value = ".", value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Time for measuring each directory
    #[arg(long, value_name = "TIME", default_value = "5s")]
    time: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &DoctorArgs) -> Result<()> {
    let budget_ms = parse_duration_us(&args.time)? / 1_000;
    let settings = DoctorSettings { budget_ms, ..DoctorSettings::new(args.directories.clone()) };
    if !args.json {
        eprintln!("measuring for about {} in each directory …", args.time);
    }
    let report = examine(&settings);
    if args.json { print_json(&report) } else { print_report(&report) }
}

fn print_report(report: &DoctorReport) -> Result<()> {
    match &report.io_uring_refusal {
        None => print_line("io_uring: available")?,
        Some(why) => print_line(&format!("io_uring: refused ({why}); threads are used instead"))?,
    }
    for directory in &report.directories {
        print_directory(directory)?;
    }
    print_line("\nPublished numbers of other devices (not measured here):")?;
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0}"));
    let bandwidth = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{:.0}", value / 1e6));
    let mut rows = vec![
        ["device", "read us", "reads/s", "read MB/s", "write MB/s", "durable us", "writes/s", "source"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for profile in &report.published {
        rows.push(vec![
            format!("{} ({})", profile.class, profile.device),
            number(profile.random_read_us),
            number(profile.random_reads_per_second),
            bandwidth(profile.sequential_read_bytes_per_second),
            bandwidth(profile.sequential_write_bytes_per_second),
            number(profile.durable_write_us),
            number(profile.writes_per_second),
            profile.source.to_owned(),
        ]);
    }
    print_line(&table(&rows))
}

fn print_directory(report: &DirectoryReport) -> Result<()> {
    print_line(&format!(
        "\n{}: {}, {} free of {}, direct I/O {}",
        report.directory.display(),
        report.file_system,
        format_size(report.free_bytes),
        format_size(report.total_bytes),
        if report.direct_io { "yes" } else { "no" },
    ))?;
    if let Some(measured) = &report.measured {
        let rate = |what: &str, rate: &Rate| {
            vec![
                what.to_owned(),
                rate.depth.to_string(),
                format!("{:.0}", rate.per_second),
                rate.p50_us.to_string(),
                rate.p99_us.to_string(),
            ]
        };
        let mut rows =
            vec![["measured here", "in flight", "a second", "p50 us", "p99 us"].map(str::to_owned).to_vec()];
        rows.push(rate("read 4 KiB", &measured.read_alone));
        rows.push(rate("read 4 KiB", &measured.read_parallel));
        rows.extend(measured.durable.iter().map(|durable| rate("durable write 4 KiB", durable)));
        print_line(&table(&rows))?;
        print_line(&format!(
            "in order: read {:.0} MB/s, write {:.0} MB/s ({})",
            measured.sequential_read_bytes_per_second / 1e6,
            measured.sequential_write_bytes_per_second / 1e6,
            measured.backend
        ))?;
        print_line(&format!(
            "durable writes: {:?}; {}",
            measured.durable_method.method, measured.durable_method.reason
        ))?;
    }
    for advice in &report.advice {
        print_line(&format!("* {advice}"))?;
    }
    Ok(())
}
