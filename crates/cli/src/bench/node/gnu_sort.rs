//! GNU sort over the same records, from file to file, as a measure.
//!
//! Its input is out of the page cache before it starts, and its output on the device before the time ends: so much as the
//! sort in two passes does.

use crate::bench::records;
use crate::energy::{child, processors};
use crate::interrupt::Interrupted;
use rustix::fs::{Advice, fadvise};
use std::ffi::OsString;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use tierstone_base::units::format_size;
use tierstone_base::{Clock, Error, ErrorKind, Result, SystemClock};
use tierstone_energy::Work as Counters;
use tierstone_workload::node::Work;
use tierstone_workload::node::gensort::RECORD_BYTES;
use tierstone_workload::node::two_pass::Settings;

/// A folder, removed with what is in it.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tell!("tierstone: {} was not removed: {error}", self.0.display());
        }
    }
}

/// Makes the records, sorts them with the program `sort` and verifies what it made; what it took.
pub fn run(settings: &Settings, interrupted: &Interrupted) -> Result<(Work, Counters)> {
    let bytes = settings.records * RECORD_BYTES as u64;
    let space = rustix::fs::statvfs(&settings.directory).map_err(std::io::Error::from)?;
    if space.f_bavail.saturating_mul(space.f_frsize) < 3 * bytes + (64 << 20) {
        let message = format!("GNU sort of {0} takes three times {0} of room", format_size(bytes));
        return Err(Error::new(ErrorKind::NoSpace, message));
    }
    let folder = Folder(settings.directory.join(format!("tierstone-gnu-sort-{}", std::process::id())));
    std::fs::create_dir(&folder.0)
        .map_err(|error| Error::from(error).context(&folder.0.display().to_string()))?;
    let (input, output) = (folder.0.join("input"), folder.0.join("output"));
    let mut file = File::create(&input)?;
    let expected =
        records::write(&mut BufWriter::new(&mut file), settings.format, (0, settings.records), interrupted)?;
    forget(&file)?;
    let clock = SystemClock::new();
    let begun_us = clock.now().monotonic_us;
    let (status, usage) = child::wait(child::start(&command(settings, &input, &output))?)?;
    interrupted.check()?;
    if !status.success() {
        return Err(Error::new(ErrorKind::Retry, format!("sort, or env before it, failed: {status}")));
    }
    let mut file = File::open(&output)?;
    file.sync_all()?;
    let seconds = clock.now().monotonic_us.saturating_sub(begun_us) as f64 / 1e6;
    records::summarise(&mut file, interrupted)?.judge(&expected)?;
    let counters = Counters {
        seconds,
        processors: processors() as f64,
        cpu_seconds: usage.cpu_seconds,
        bytes_read: usage.bytes_read.unwrap_or(0),
        bytes_written: usage.bytes_written.unwrap_or(0),
        ..Counters::default()
    };
    let work = Work {
        name: format!("GNU sort of {} records of 100 bytes", settings.records),
        unit: "record",
        amount: settings.records as f64,
        seconds,
        note: format!(
            "sort -s -k1.1,1.10 --parallel={} -S {}, file to file; {seconds:.1} s, processor time {:.1} s; order and sum verified",
            settings.threads,
            format_size(settings.memory_bytes),
            usage.cpu_seconds
        ),
        device: None,
    };
    Ok((work, counters))
}

/// Brings a file to the device and out of the page cache.
fn forget(file: &File) -> Result<()> {
    file.sync_all()?;
    fadvise(file, 0, None, Advice::DontNeed).map_err(|error| Error::from(std::io::Error::from(error)))
}

/// Bytes are compared as bytes, equal keys stay in order, and everything else is as it comes.
fn command(settings: &Settings, input: &Path, output: &Path) -> Vec<OsString> {
    let words = [
        "env".to_owned(),
        "LC_ALL=C".to_owned(),
        "sort".to_owned(),
        "-s".to_owned(),
        "-k1.1,1.10".to_owned(),
    ];
    let sizes = [
        format!("--parallel={}", settings.threads),
        "-S".to_owned(),
        format!("{}K", settings.memory_bytes >> 10),
    ];
    let mut command: Vec<OsString> = words.into_iter().chain(sizes).map(OsString::from).collect();
    // Its own files lie beside, so that they go with the folder if it is killed.
    let beside = output.parent().unwrap_or(&settings.directory);
    for (option, path) in [("-T", beside), ("-o", output)] {
        command.extend([option.into(), path.into()]);
    }
    command.push(input.into());
    command
}
