//! What a meter is: something that says a number when it is asked.

use serde::Serialize;

/// One answer of a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// Energy since some moment, in microjoules; it rises, and may wrap.
    Counter {
        /// Microjoules.
        uj: u64,
    },
    /// Power now, in microwatts.
    Power {
        /// Microwatts.
        uw: u64,
    },
    /// Energy left in a battery that carries the load, in microjoules; it falls.
    Stored {
        /// Microjoules.
        uj: u64,
    },
    /// Charge left in a battery that carries the load, and its voltage.
    Charge {
        /// Microampere-hours; falls.
        uah: u64,
        /// Microvolts.
        uv: u64,
    },
}

/// By which way a meter is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MeterKind {
    /// Running average power limit, through the kernel's powercap tree.
    Rapl,
    /// A sensor of the kernel's hwmon tree.
    Hwmon,
    /// A battery of the kernel's power_supply tree.
    Battery,
    /// NVIDIA's devices, through `nvidia-smi`.
    Nvidia,
    /// The board's controller, through `ipmitool dcmi`.
    Ipmi,
    /// A command of the user's.
    Command,
}

/// What of the machine a meter covers: which of them may be added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Covers {
    /// The whole machine, or what stands for it.
    System,
    /// A processor package, its cores included.
    Package,
    /// Memory, outside the packages.
    Memory,
    /// Accelerators.
    Accelerator,
    /// A part of something else in the list: shown, never added.
    Part,
    /// A sensor of which nobody says what it covers: shown, never added unless the user says so.
    Unknown,
}

/// What is known of a meter.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeterInfo {
    /// Its name in output: unique; the kernel may number sensors otherwise after a restart.
    pub name: String,
    /// By which way.
    pub kind: MeterKind,
    /// What of the machine.
    pub covers: Covers,
    /// The smallest step of its answers: microjoules of a counter or a battery, microwatts of power.
    pub step: u64,
    /// Who says so.
    pub step_source: &'static str,
    /// Microseconds between two answers that can differ; it is not asked more often.
    pub refresh_us: u64,
    /// The counter goes back to zero after this value, in microjoules; `None` if it does not, or nobody says.
    pub wraps_at_uj: Option<u64>,
    /// No more than this can be true, in microwatts: tells a wrap from a counter that began anew.
    pub power_max_uw: u64,
}

/// What went wrong with a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// It is no longer there.
    Gone,
    /// This process may not read it.
    Denied,
    /// What it says is no number of its kind.
    Rubbish,
    /// It did not answer in its time, and was ended.
    TimedOut,
    /// What it says does not hold now (a battery that is charged).
    NotNow,
}

/// A meter did not answer, or not sensibly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which way.
    pub kind: FaultKind,
    /// What happened, and where.
    pub why: String,
}

impl Fault {
    /// A fault.
    pub fn new(kind: FaultKind, why: impl Into<String>) -> Fault {
        Fault { kind, why: why.into() }
    }
}

/// Something that measures.
pub trait Meter: Send {
    /// What is known of it.
    fn info(&self) -> &MeterInfo;

    /// Asks it at `now_us`, never waiting. `None`: its answer is under way, ask again soon. Cost: one or two reads of
    /// small files, or the start of a process.
    ///
    /// # Errors
    /// The fault; asking again later is allowed and may succeed.
    fn read(&mut self, now_us: u64) -> Result<Option<Reading>, Fault>;
}
