//! How a simulated device behaves. Plain data.

use crate::device::{DurableWriteScope, Geometry};
use tierstone_crash::{SECTOR_BYTES, SurvivorSettings};

/// The settings of a [`super::SimMedium`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimSettings {
    /// The shape of the device's space.
    pub geometry: Geometry,
    /// What a durable write makes durable besides its own sectors. Default: nothing.
    pub durable_write_scope: DurableWriteScope,
    /// Which request completes next. Default: the oldest.
    pub order: CompletionOrder,
    /// Where power is lost. Default: nowhere.
    pub power_cut: PowerCut,
    /// Most cuts that `power_cut` causes in a run; 2 tries crashes inside recovery. Default 1.
    pub cut_limit: u32,
    /// Cuts after a life that ended with power on, in [`super::SimMedium::run_lives`]: the first
    /// ends the workload, a second shows that recovery itself is durable. Default 1.
    pub end_cuts: u32,
    /// Which sectors survive.
    pub survivors: SurvivorSettings,
    /// The atomic unit of the medium in bytes. Default 512. 4096 makes exploring cheaper and
    /// proves less: a torn block is then never seen.
    pub sector_bytes: usize,
    /// What a prepared or discarded range holds. Default: zeros.
    pub stale_range: StaleRange,
    /// Segments that there is space for; more are [`crate::DeviceErrorKind::Full`]. A segment takes
    /// space when it is first written or prepared, and gives it back when all of it is discarded.
    /// Default: as many as the geometry names.
    pub capacity_segments: u32,
    /// How long requests take under [`CompletionOrder::Timed`].
    pub latency: Latency,
    /// Lines of trace that are kept, the newest. Default 4,096; zero saves the time to write them.
    pub trace_limit_lines: usize,
}

impl SimSettings {
    /// A device of that shape that never fails, loses power only when told to, and completes in
    /// order.
    pub fn new(geometry: Geometry) -> Self {
        SimSettings {
            geometry,
            durable_write_scope: DurableWriteScope::OwnSectors,
            order: CompletionOrder::InOrder,
            power_cut: PowerCut::Never,
            cut_limit: 1,
            end_cuts: 1,
            survivors: SurvivorSettings::default(),
            sector_bytes: SECTOR_BYTES,
            stale_range: StaleRange::Zeros,
            capacity_segments: geometry.segment_limit,
            latency: Latency::default(),
            trace_limit_lines: 4096,
        }
    }

    /// The same with everything open that exploring asks about: any order of completion, power
    /// lost at any point, stale ranges of either kind.
    pub fn exploring(geometry: Geometry) -> Self {
        SimSettings {
            order: CompletionOrder::Chosen,
            power_cut: PowerCut::Anywhere { points: CutPoints::BeforeDurable, one_in: 32 },
            stale_range: StaleRange::Chosen,
            ..Self::new(geometry)
        }
    }
}

/// Which of a handle's requests in flight completes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionOrder {
    /// The oldest. A poll completes one.
    InOrder,
    /// Any, as the choices say. A poll completes any number; two polls in a row that complete
    /// nothing do not occur.
    Chosen,
    /// By simulated time. A poll completes what is due at [`super::SimMedium::now_us`]; waiting
    /// moves the time forward. Polling does not, so whoever polls in a loop also calls
    /// [`super::SimMedium::advance_to`].
    Timed,
}

/// Where power is lost, besides [`super::SimMedium::cut_power`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerCut {
    /// Nowhere.
    Never,
    /// Before event `n`, counted from zero over the life of the medium: a submission (a whole
    /// batch is one) or a completion.
    AtEvent(u64),
    /// Each cut point asks the choices; sampling says yes once in `one_in` times.
    Anywhere {
        /// Which points ask.
        points: CutPoints,
        /// Mean distance of cuts when sampling.
        one_in: u64,
    },
    /// One question at the start of each life: at which of the next `points` cut points, or (zero)
    /// nowhere. Samples evenly when the length of a life is known.
    Within {
        /// Which points count.
        points: CutPoints,
        /// The last point at which power may be lost.
        last: u64,
    },
}

/// The points at which power may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutPoints {
    /// Before every submission and every completion.
    Every,
    /// Before the completion of each flush and durable write only. Nothing else takes states
    /// away from what may survive: whatever a cut at another point could leave, a cut at the next
    /// of these points (or at the end of the life) can leave too, with at least as much
    /// acknowledged. Hence exhaustive exploring needs no others, provided that a life ends with a
    /// cut ([`super::SimMedium::run_lives`] sees to it) and that code acknowledges only on
    /// completions.
    BeforeDurable,
}

/// What a range holds after [`crate::IoKind::Prepare`] or [`crate::IoKind::Discard`]; a loss of
/// power before the next flush may leave either in any of its sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleRange {
    /// Zeros.
    Zeros,
    /// What it held.
    Keeps,
    /// One or the other, as the choices say, where the range holds anything.
    Chosen,
}

/// A simple model of time: each request waits for its latency, then its bytes pass through one
/// pipe shared by all. Defaults: a data-centre flash drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// Of a read, in microseconds.
    pub read_us: u64,
    /// Of a write into the device's cache, in microseconds.
    pub write_us: u64,
    /// Of a durable write, in microseconds.
    pub durable_us: u64,
    /// Of a flush, in microseconds.
    pub flush_us: u64,
    /// Bytes a second through the pipe; zero for no limit.
    pub bytes_per_second: u64,
    /// Each latency grows by a pseudo-random part of this many microseconds.
    pub jitter_us: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Latency {
            read_us: 80,
            write_us: 15,
            durable_us: 30,
            flush_us: 60,
            bytes_per_second: 3_000_000_000,
            jitter_us: 0,
        }
    }
}
