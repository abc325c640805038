//! Time, power and energy of one machine that scans.

use super::case::{Format, Machine, Scan, Source};

/// A scan on one machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scanned {
    /// Seconds a tuple.
    pub seconds: f64,
    /// Watts meanwhile.
    pub watts: f64,
    /// How busy the processor is, of 1.
    pub cpu_busy: f64,
    /// Bytes a tuple.
    pub width: f64,
}

impl Scanned {
    /// Joules a gigabyte read.
    pub fn joules_a_gb(&self) -> f64 {
        self.joules() / self.width * 1e9
    }

    /// Joules a tuple.
    pub fn joules(&self) -> f64 {
        self.watts * self.seconds
    }

    /// Bytes a second.
    pub fn bandwidth(&self) -> f64 {
        self.width / self.seconds
    }
}

/// `scan` on `machine`; its storage reads `bandwidth` bytes a second, or what the machine's does.
pub fn scanned(machine: &Machine, scan: &Scan, source: Source, bandwidth: Option<f64>) -> Scanned {
    let (a_tuple, a_byte) = match scan.format {
        Format::Row => machine.row,
        Format::Column => machine.column,
    };
    let from_storage = source == Source::Storage;
    let arriving = if from_storage { machine.storage_byte } else { 0.0 };
    let cycles = a_tuple + (a_byte + arriving) * scan.width + machine.flop * scan.flops;
    let cpu = cycles / machine.cycles;
    let read = match source {
        Source::Storage => scan.width / bandwidth.unwrap_or(machine.storage_bandwidth),
        Source::Memory => machine.memory_bandwidth.map_or(0.0, |bandwidth| scan.width / bandwidth),
    };
    // A scan that takes no time at all cannot be: without any cost it reads at a cycle a tuple.
    let seconds = cpu.max(read).max(1.0 / machine.cycles);
    let cpu_busy = if from_storage { (cpu / seconds).min(1.0) } else { 1.0 };
    let storage_busy = if from_storage { (read / seconds).min(1.0) } else { 0.0 };
    let processor = machine.peak - machine.idle - machine.storage_power;
    let watts = machine.idle + machine.storage_power * storage_busy + processor * cpu_busy;
    Scanned { seconds, watts, cpu_busy, width: scan.width }
}
