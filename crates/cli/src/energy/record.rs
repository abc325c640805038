//! `tierstone energy record`: a command between two looks at the meters.

use super::child::{self, exit_code};
use super::report::{Measured, Recorded, ReportedMeter, modelled};
use super::{MeterArgs, load_model, processors};
use clap::Args;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tierstone_base::units::parse_duration_us;
use tierstone_base::{Clock, Error, ErrorKind, Result, SystemClock};
use tierstone_energy::cpufreq::Residency;
use tierstone_energy::total::choose;
use tierstone_energy::{MeterInfo, Reading, Recorder, Recording, Sampler, SamplerSettings, Work, presets};

#[derive(Debug, Args)]
pub struct RecordArgs {
    #[command(flatten)]
    meters: MeterArgs,
    /// The meters that make the total, by name [default: what covers most, nothing twice]
    #[arg(long, value_name = "METER")]
    total: Vec<String>,
    /// Time between two looks at a meter; longer where a look takes long
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    interval: String,
    /// Measure the machine before the command for so many seconds, and tell joules above that too
    #[arg(long, value_name = "SECONDS")]
    idle: Option<f64>,
    /// The model for what no meter covers: cloud, desktop-2009, atom-2009 or a TOML file
    #[arg(long, value_name = "NAME|FILE", default_value = presets::NAMES[0])]
    model: String,
    /// Write every answer of the meters to a file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the result to a file [default: standard error]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The result as JSON
    #[arg(long)]
    json: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the command; `Ok` with its exit code even where the meters failed.
pub fn run(args: &RecordArgs) -> Result<ExitCode> {
    let model = load_model(&args.model)?;
    let interval_us = parse_duration_us(&args.interval)?;
    let idle = args.idle.filter(|seconds| *seconds > 0.0);
    if args.idle.is_some_and(|seconds| !(0.0..=86_400.0).contains(&seconds)) {
        return Err(Error::new(ErrorKind::InvalidInput, "--idle takes 0 to 86400 seconds"));
    }
    // Before the command runs, which may take hours.
    let mut output = args.output.as_deref().map(open_early).transpose()?;
    let mut samples = args.csv.as_deref().map(open_early).transpose()?;
    let found = args.meters.find()?;
    let meters: Vec<MeterInfo> = found.meters.iter().map(|meter| meter.info().clone()).collect();
    let chosen = choose(&meters, &args.total)?;
    let clock = SystemClock::new();
    let settings = SamplerSettings { interval_us: interval_us.max(1_000), ..SamplerSettings::default() };
    let sampler = Sampler::new(found.meters, settings, clock.now().monotonic_us);
    let recorder = Recorder::start(sampler, Box::new(clock), args.csv.is_some())?;
    // State 0 is the idle machine where there is a baseline; the command's is the last.
    let state = usize::from(idle.is_some());
    if let Some(seconds) = idle {
        wait_until(&clock, clock.now().monotonic_us + (seconds * 1e6) as u64);
        recorder.enter(state);
    }
    let residency = Residency::read(&args.meters.root).unwrap_or(None);
    let begun_us = clock.now().monotonic_us;
    let process = match child::start(&args.command) {
        Ok(process) => process,
        Err(error) => {
            tell!("tierstone: {}: {error}", args.command[0].to_string_lossy());
            let is_missing = error.kind() == std::io::ErrorKind::NotFound;
            return Ok(ExitCode::from(if is_missing { 127 } else { 126 }));
        }
    };
    let (status, usage) = child::wait(process)?;
    let ended_us = clock.now().monotonic_us;
    let clocks = match (residency, Residency::read(&args.meters.root)) {
        (Some(before), Ok(Some(after))) => after.since(&before),
        _ => Vec::new(),
    };
    let recording = recorder.finish()?;
    let seconds = ended_us.saturating_sub(begun_us) as f64 / 1e6;
    let work = Work {
        seconds,
        processors: processors() as f64,
        cpu_seconds: usage.cpu_seconds,
        bytes_read: usage.bytes_read.unwrap_or(0),
        bytes_written: usage.bytes_written.unwrap_or(0),
        ..Work::default()
    };
    let report = Recorded {
        command: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        exit_code: exit_code(status),
        seconds,
        processors: processors(),
        cpu_seconds: usage.cpu_seconds,
        device_bytes_read: usage.bytes_read,
        device_bytes_written: usage.bytes_written,
        clocks,
        meters: recording.lanes.iter().map(|lane| ReportedMeter::new(lane, state)).collect(),
        total: Measured::of(&recording.lanes, &chosen, state),
        modelled: modelled(&model, &work),
        absent: found.absent,
    };
    tell_samples(args, samples.as_mut(), &recording);
    tell(args, output.as_mut(), &report)?;
    Ok(ExitCode::from(report.exit_code))
}

/// The file at `path`, as it is until something is written.
fn open_early(path: &Path) -> Result<File> {
    let file = File::options().write(true).create(true).truncate(false).open(path);
    file.map_err(|error| Error::new(ErrorKind::InvalidInput, format!("{}: {error}", path.display())))
}

/// What could not be written is told; the result is still to come.
fn tell_samples(args: &RecordArgs, file: Option<&mut File>, recording: &Recording) {
    if let (Some(file), Some(path)) = (file, &args.csv)
        && let Err(error) = write_samples(file, recording)
    {
        tell!("tierstone: {}: {error}", path.display());
    }
}

/// What stood in a file is gone; what is none, a pipe perhaps, has no end to be set.
fn begin(file: &File) -> std::io::Result<()> {
    if file.metadata()?.is_file() { file.set_len(0) } else { Ok(()) }
}

/// Where there is no file, or none that takes it, on the standard error output: the other is the command's.
fn tell(args: &RecordArgs, output: Option<&mut File>, report: &Recorded) -> Result<()> {
    let text = if args.json {
        serde_json::to_string_pretty(report)
            .map_err(|error| Error::new(ErrorKind::InvalidInput, format!("the result is no JSON: {error}")))?
    } else {
        report.text()
    };
    if let (Some(file), Some(path)) = (output, &args.output) {
        match begin(file).and_then(|()| writeln!(file, "{text}")) {
            Ok(()) => return Ok(()),
            Err(error) => tell!("tierstone: {}: {error}", path.display()),
        }
    }
    tell!("{text}");
    Ok(())
}

fn wait_until(clock: &SystemClock, until_us: u64) {
    loop {
        let now_us = clock.now().monotonic_us;
        if now_us >= until_us {
            return;
        }
        // Waking early only means another look at the clock.
        std::thread::park_timeout(Duration::from_micros(until_us - now_us));
    }
}

/// Every answer: seconds since the start, meter, what it is, value.
fn write_samples(file: &mut File, recording: &Recording) -> Result<()> {
    let wrong = |error: csv::Error| Error::new(ErrorKind::Retry, error.to_string());
    begin(file)?;
    let mut file = csv::Writer::from_writer(file);
    file.write_record(["seconds", "meter", "quantity", "value"]).map_err(wrong)?;
    for sample in &recording.samples {
        let seconds = sample.at_us.saturating_sub(recording.start_us) as f64 / 1e6;
        let (quantity, value) = match sample.reading {
            Reading::Counter { uj } => ("joules counted", uj as f64 / 1e6),
            Reading::Power { uw } => ("watts", uw as f64 / 1e6),
            Reading::Stored { uj } => ("joules left", uj as f64 / 1e6),
            Reading::Charge { uah, .. } => ("ampere-hours left", uah as f64 / 1e6),
        };
        let name = recording.lanes[sample.lane].meter.name.as_str();
        let (seconds, value) = (format!("{seconds:.6}"), format!("{value:.6}"));
        file.write_record([seconds.as_str(), name, quantity, value.as_str()]).map_err(wrong)?;
    }
    file.flush()?;
    Ok(())
}
