//! A sort of more records than memory holds, in two passes over a device: as much as memory takes is read, sorted and
//! written as a run; then all runs are read at once and merged. Reading and writing go on beside sorting.
//!
//! Pieces of whole records and whole blocks are the unit of everything. Two chunks of memory take turns: one is read while
//! the other is sorted (the pass that makes runs); a thread writes what others have gathered. In the merge each run has
//! two pieces, one that is merged and one that is read, and one thread merges.
//!
//! Invariants:
//! 1. Each byte is read twice and written twice; the result takes the input's place, so that the files take twice
//!    the input's room.
//! 2. No more memory is taken than [`Settings::memory_bytes`], but for some hundred KiB.
//! 3. What is verified is what comes back from the device, after the time that counts.
//!
//! The files lie in a folder `tierstone-probe-*` of their own, which is removed at the end, however it comes, but for the
//! death of the process: then it can be deleted by hand.

mod layout;
mod merge;
mod runs;
mod streams;

use super::gensort::{Format, Generator, RECORD_BYTES};
use super::valsort::Summary;
use super::{Bound, DeviceWork, Result, Watch, Work, timed};
use layout::Layout;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Mutex;
use streams::{Disk, Region};
use tierstone_base::units::format_size;
use tierstone_base::{Error, ErrorKind};

/// What to sort, and with what.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the files are made.
    pub directory: PathBuf,
    /// How many records, from the benchmark's first on.
    pub records: u64,
    /// Memory for records and keys.
    pub memory_bytes: u64,
    /// Threads that make, order and gather records; two more wait for the device.
    pub threads: usize,
    /// What records look like.
    pub format: Format,
}

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The device's bandwidth is measured.
    Measuring,
    /// The input is made.
    Making,
    /// Runs are made.
    Sorting,
    /// Runs are merged.
    Merging,
    /// The result is read back.
    Verifying,
}

/// Who is told how far it is, as a part of the phase; a break ends the sort, and its files are removed.
pub type Progress<'a> = &'a (dyn Fn(Phase, f64) -> ControlFlow<()> + Sync);

/// Told, and gone on unless it says otherwise.
fn tell(progress: Progress<'_>, phase: Phase, done: u64, total: u64) -> Result<()> {
    match progress(phase, done as f64 / total.max(1) as f64) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::new(ErrorKind::Retry, "interrupted; the files are removed")),
    }
}

/// Room beside the files' own bytes that is asked for, in bytes.
const SPARE_BYTES: u64 = 64 << 20;

/// Sorts, verifies, and removes everything.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for settings that do not fit two passes, [`ErrorKind::NoSpace`] before anything is
/// written, the device's errors, an interruption, a wrong order or sum.
pub fn run(settings: &Settings, progress: Progress<'_>, watch: &mut dyn Watch) -> Result<Work> {
    let layout = Layout::new(settings.records, settings.memory_bytes, settings.threads)?;
    let needed = layout.file_bytes() + SPARE_BYTES;
    let free = free_bytes(&settings.directory)?;
    if free < needed {
        let message = format!(
            "{} has {} free; sorting {} in two passes takes {}",
            settings.directory.display(),
            format_size(free),
            format_size(settings.records * RECORD_BYTES as u64),
            format_size(needed)
        );
        return Err(Error::new(ErrorKind::NoSpace, message));
    }
    let disk = Disk::new(&settings.directory, &layout)?;
    let input = make(&disk, settings, progress)?;
    let mut rates = streams::Rates::default();
    disk.measure(&mut rates, progress)?;
    let ((), seconds) = timed(watch, || {
        runs::make(&disk, settings.threads, progress)?;
        merge::merge(&disk, progress)
    })?;
    disk.measure(&mut rates, progress)?;
    let output = verify(&disk, progress)?;
    output.judge(&input)?;
    Ok(told(settings, &layout, seconds, (&rates, &output)))
}

/// Bytes free for this user.
fn free_bytes(directory: &std::path::Path) -> Result<u64> {
    let space = rustix::fs::statvfs(directory).map_err(|error| {
        Error::from(std::io::Error::from(error)).context(&directory.display().to_string())
    })?;
    Ok(space.f_bavail.saturating_mul(space.f_frsize))
}

/// Writes the input; its sum.
fn make(disk: &Disk, settings: &Settings, progress: Progress<'_>) -> Result<Summary> {
    let layout = disk.layout();
    let input = Mutex::new(Summary::default());
    let writer = disk.writer(Region::Input, 2 * settings.threads + 2)?;
    writer.write_pieces(0..layout.pieces(), settings.threads, |piece, buffer| {
        let records = &mut buffer[..layout.records_of(piece) * RECORD_BYTES];
        Generator::new(settings.format, piece * layout.per_piece as u64).fill(records);
        let summary = Summary::of(records);
        // Their order does not matter: only number and sum are looked at.
        input.lock().unwrap_or_else(std::sync::PoisonError::into_inner).append(&summary);
        tell(progress, Phase::Making, piece, layout.pieces())
    })?;
    writer.finish()?;
    Ok(input.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// What the device has in the result's place.
fn verify(disk: &Disk, progress: Progress<'_>) -> Result<Summary> {
    let layout = disk.layout();
    let mut reader = disk.reader(Region::Input)?;
    let mut summary = Summary::default();
    reader.read_in_order(0..layout.pieces(), |piece, buffer| {
        summary.take(&buffer[..layout.records_of(piece) * RECORD_BYTES]);
        tell(progress, Phase::Verifying, piece, layout.pieces())
    })?;
    Ok(summary)
}

fn told(
    settings: &Settings,
    layout: &Layout,
    seconds: f64,
    (rates, output): (&streams::Rates, &Summary),
) -> Work {
    let bytes = 2 * layout.pieces_bytes();
    let bound_seconds = bytes as f64 / rates.read() + bytes as f64 / rates.write();
    let requests = 2 * layout.pieces();
    Work {
        name: format!("sort of {} records of 100 bytes in two passes", settings.records),
        unit: "record",
        amount: settings.records as f64,
        seconds,
        note: format!(
            "{} threads, {} of memory, {} runs; gensort's {:?} records, order and sum {:x} verified from the device; {:.1} s, the \
             device's bandwidth (read {:.0}, written {:.0} MB/s, measured before and after) allows {:.1} s: {:.0} % of the bound",
            settings.threads,
            format_size(settings.memory_bytes),
            layout.runs(),
            settings.format,
            output.checksum,
            seconds,
            rates.read() / 1e6,
            rates.write() / 1e6,
            bound_seconds,
            100.0 * bound_seconds / seconds.max(1e-9),
        ),
        device: Some(DeviceWork {
            reads: requests,
            writes: requests,
            flushes: 1,
            bytes_read: bytes,
            bytes_written: bytes,
            bound: Some(Bound {
                read_bytes_per_second: rates.read(),
                write_bytes_per_second: rates.write(),
                seconds: bound_seconds,
                part: bound_seconds / seconds.max(1e-9),
            }),
        }),
    }
}

#[cfg(test)]
#[path = "two_pass_test.rs"]
mod two_pass_test;
