//! What a phase came to, and what it took from processor, memory and device.

pub mod lone;

use crate::engines::Kind;
use serde::Serialize;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_workload::Outcome;

/// One phase of one store. All figures are measured.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    engine: Kind,
    phase: String,
    operations: u64,
    seconds: f64,
    /// Operations a second.
    rate: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    max_us: f64,
    /// At a rate: of the calls themselves, counted from the call and not from when it was due.
    call_p99_us: Option<f64>,
    call_p999_us: Option<f64>,
    /// The longest time without any answer.
    longest_gap_us: u64,
    /// Of the whole process, generator included.
    cpu_us_per_operation: f64,
    /// Of the whole device, as the kernel counts sectors.
    written_bytes_per_operation: f64,
    read_bytes_per_operation: f64,
    flushes_per_operation: f64,
    /// The largest resident memory of the process so far.
    resident_max_bytes: u64,
}

impl Row {
    pub fn new(engine: Kind, phase: String, outcome: &Outcome, used: &Use) -> Row {
        let each = |number: u64| number as f64 / outcome.operations.max(1) as f64;
        let latency = &outcome.latency;
        Row {
            engine,
            phase,
            operations: outcome.operations,
            seconds: outcome.seconds,
            rate: outcome.rate,
            p50_us: latency.p50_us as f64,
            p99_us: latency.p99_us as f64,
            p999_us: latency.p999_us as f64,
            max_us: latency.max_us as f64,
            call_p99_us: outcome.call_latency.map(|latency| latency.p99_us as f64),
            call_p999_us: outcome.call_latency.map(|latency| latency.p999_us as f64),
            longest_gap_us: outcome.longest_gap_us,
            cpu_us_per_operation: each(used.cpu_us),
            written_bytes_per_operation: each(used.written_bytes),
            read_bytes_per_operation: each(used.read_bytes),
            flushes_per_operation: each(used.flushes),
            resident_max_bytes: used.resident_max_bytes,
        }
    }
}

/// Counters of the process and of the device under a directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Use {
    cpu_us: u64,
    written_bytes: u64,
    read_bytes: u64,
    flushes: u64,
    resident_max_bytes: u64,
}

impl Use {
    /// As of now, everything written by then counted.
    pub fn now(directory: &Path) -> Result<Use> {
        rustix::fs::sync();
        Use::so_far(directory)
    }

    /// As of now, while others go on.
    pub fn so_far(directory: &Path) -> Result<Use> {
        let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let [read_bytes, written_bytes, flushes] = device_counters(directory)?;
        Ok(Use {
            cpu_us: cpu.tv_sec as u64 * 1_000_000 + cpu.tv_nsec as u64 / 1_000,
            written_bytes,
            read_bytes,
            flushes,
            resident_max_bytes: resident_max_bytes()?,
        })
    }

    pub fn since(&self, before: &Use) -> Use {
        Use {
            cpu_us: self.cpu_us - before.cpu_us,
            written_bytes: self.written_bytes - before.written_bytes,
            read_bytes: self.read_bytes - before.read_bytes,
            flushes: self.flushes - before.flushes,
            resident_max_bytes: self.resident_max_bytes,
        }
    }
}

/// The largest resident memory of this process so far.
fn resident_max_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
    kib.map(|kib: u64| kib * 1024)
        .ok_or_else(|| Error::new(ErrorKind::Corrupt, "/proc/self/status is not as known"))
}

/// Bytes read, bytes written and flushes of the block device that a directory lies on; zeros where it
/// lies on none.
fn device_counters(directory: &Path) -> Result<[u64; 3]> {
    let device = std::fs::metadata(directory)?.dev();
    let (major, minor) = (rustix::fs::major(device).to_string(), rustix::fs::minor(device).to_string());
    let all = std::fs::read_to_string("/proc/diskstats")?;
    let line = all.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let Some(fields) = line.into_iter().find(|words| words.starts_with(&[major.as_str(), minor.as_str()]))
    else {
        return Ok([0; 3]);
    };
    let field = |place: usize| {
        let text = fields.get(place).copied().unwrap_or("0");
        text.parse::<u64>().map_err(|_| Error::new(ErrorKind::Corrupt, "/proc/diskstats is not as known"))
    };
    // Sectors are 512 bytes here whatever the device has.
    Ok([field(5)? * 512, field(9)? * 512, field(18)?])
}
