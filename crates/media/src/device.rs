//! The block device trait: a batch of requests in, completions out.

use crate::buffer::IoBuffer;
use serde::{Deserialize, Serialize};
use std::fmt;
use tierstone_base::Token;

/// What a request does. Offsets and lengths are whole blocks ([`crate::BLOCK_BYTES`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoKind {
    /// Fills the whole buffer from `offset`.
    Read,
    /// Writes the whole buffer at `offset`; durable after a later [`IoKind::Flush`].
    Write,
    /// Writes the whole buffer at `offset` and makes it durable, by whatever means the device's
    /// probing found best. What else it makes durable: see [`DurableWriteScope`].
    WriteDurable,
    /// Makes durable every write that completed before this request was submitted.
    Flush,
    /// Makes `offset .. offset + len` ready for cheap overwriting (file made, space taken, zeros
    /// written). A crash may leave any part of the range as zeros.
    Prepare {
        /// Bytes to prepare.
        len: u64,
    },
    /// Gives the space of `offset .. offset + len` back; it then reads as zeros or as what it was.
    Discard {
        /// Bytes to give back.
        len: u64,
    },
}

/// One request of a submission.
#[derive(Debug)]
pub struct IoRequest {
    /// Handed back with the completion.
    pub token: Token,
    /// What to do.
    pub kind: IoKind,
    /// Where, in bytes from the start of the device's space.
    pub offset: u64,
    /// The bytes, for reads and writes.
    pub buffer: Option<IoBuffer>,
}

impl IoRequest {
    /// A read that fills `buffer` from `offset`.
    pub fn read(token: Token, offset: u64, buffer: IoBuffer) -> Self {
        IoRequest { token, kind: IoKind::Read, offset, buffer: Some(buffer) }
    }

    /// A write of `buffer` at `offset` that some later flush makes durable.
    pub fn write(token: Token, offset: u64, buffer: IoBuffer) -> Self {
        IoRequest { token, kind: IoKind::Write, offset, buffer: Some(buffer) }
    }

    /// A write of `buffer` at `offset` that is durable when it completes.
    pub fn write_durable(token: Token, offset: u64, buffer: IoBuffer) -> Self {
        IoRequest { token, kind: IoKind::WriteDurable, offset, buffer: Some(buffer) }
    }

    /// A flush of all completed writes.
    pub fn flush(token: Token) -> Self {
        IoRequest { token, kind: IoKind::Flush, offset: 0, buffer: None }
    }
}

/// One finished request.
#[derive(Debug)]
pub struct IoCompletion {
    /// The request's token.
    pub token: Token,
    /// The request's kind.
    pub kind: IoKind,
    /// The request's offset.
    pub offset: u64,
    /// The request's buffer, filled if it was a read that succeeded.
    pub buffer: Option<IoBuffer>,
    /// Whether the whole request was done.
    pub result: Result<(), DeviceError>,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceError {
    /// What it means for the caller.
    pub kind: DeviceErrorKind,
    /// What the operating system or the simulation said, with the device's name.
    pub detail: String,
}

/// What a failed request means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceErrorKind {
    /// The bytes could not be read or written (EIO and its kin). For writes and flushes: what is
    /// on the medium is unknown, and asking again would prove nothing.
    Failed,
    /// The device has no space left for this write.
    Full,
    /// Offset, length or buffer do not fit the device: a mistake of the caller.
    OutOfBounds,
    /// The simulated power is off. Nothing was or will be done.
    PowerLost,
}

impl DeviceError {
    /// An error of `kind` with its cause in words.
    pub fn new(kind: DeviceErrorKind, detail: impl Into<String>) -> Self {
        DeviceError { kind, detail: detail.into() }
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.detail)
    }
}

impl std::error::Error for DeviceError {}

impl From<DeviceError> for tierstone_base::Error {
    fn from(error: DeviceError) -> Self {
        use tierstone_base::ErrorKind;
        let kind = match error.kind {
            DeviceErrorKind::Failed | DeviceErrorKind::PowerLost => ErrorKind::DeviceFailed,
            DeviceErrorKind::Full => ErrorKind::NoSpace,
            DeviceErrorKind::OutOfBounds => ErrorKind::InvalidInput,
        };
        tierstone_base::Error::new(kind, error.detail)
    }
}

/// The shape of a device's space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes at the start that hold superblocks; always there, never discarded.
    pub meta_bytes: u64,
    /// Size of a segment: the unit of Prepare and Discard, and of the files of file devices.
    pub segment_bytes: u64,
    /// How many segments the device may have at most; segment `n` lies at
    /// `meta_bytes + n * segment_bytes`.
    pub segment_limit: u32,
}

impl Geometry {
    /// The first byte of segment `segment`.
    pub fn segment_offset(&self, segment: u32) -> u64 {
        self.meta_bytes + u64::from(segment) * self.segment_bytes
    }

    /// The end of the device's space.
    pub fn end(&self) -> u64 {
        self.segment_offset(self.segment_limit)
    }
}

/// What a completed durable write survives: the truth that `doctor` and `INFO` report. In their order, the
/// weakest first, so that the guarantee of several is the least of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Guarantee {
    /// Nothing: the medium is emulated in memory.
    Emulated,
    /// The crash of the process, not that of the machine.
    ProcessCrash,
    /// The crash of the process. Whether the loss of power too is decided where nobody here can look:
    /// on another machine, in another process, in a layer of a container.
    Unknown,
    /// The loss of power, as far as the device keeps its word.
    PowerFail,
}

impl Guarantee {
    /// Its short name, as settings and reports write it.
    pub fn name(self) -> &'static str {
        match self {
            Guarantee::Emulated => "emulated",
            Guarantee::ProcessCrash => "process-crash",
            Guarantee::Unknown => "unknown",
            Guarantee::PowerFail => "power-fail",
        }
    }

    /// Whether durable bytes survive the crash of the process.
    pub fn survives_process_crash(self) -> bool {
        self != Guarantee::Emulated
    }

    /// Whether durable bytes survive the loss of power; `None`: nobody here can know.
    pub fn survives_power_loss(self) -> Option<bool> {
        match self {
            Guarantee::Emulated | Guarantee::ProcessCrash => Some(false),
            Guarantee::Unknown => None,
            Guarantee::PowerFail => Some(true),
        }
    }

    /// What it means, for a person.
    pub fn text(self) -> &'static str {
        match self {
            Guarantee::Emulated => "emulated: nothing survives",
            Guarantee::ProcessCrash => {
                "process-crash durable: what was written lies in memory, in files there or in the page cache"
            }
            Guarantee::Unknown => {
                "process-crash durable; what a loss of power leaves is not known: another machine, process or \
                 layer decides it"
            }
            Guarantee::PowerFail => "power-fail durable, as far as the device keeps its word",
        }
    }
}

/// What a completed [`IoKind::WriteDurable`] has made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurableWriteScope {
    /// Its own sectors only.
    OwnSectors,
    /// Its own sectors and every write that completed before it was submitted.
    WholeDevice,
}

/// How long [`BlockDevice::complete`] may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    Poll,
    /// Until at least one request has completed; returns at once when none is in flight.
    One,
    /// Until every request in flight has completed.
    All,
}

/// A block device. One owner, one thread; several handles may share the medium.
pub trait BlockDevice {
    /// The shape of its space.
    fn geometry(&self) -> Geometry;

    /// What its durable writes survive.
    fn guarantee(&self) -> Guarantee;

    /// What else a durable write makes durable.
    fn durable_write_scope(&self) -> DurableWriteScope;

    /// Whether a discard that has completed well leaves zeros. Default: not said, so what was there may be read as well.
    fn discards_to_zeros(&self) -> bool {
        false
    }

    /// Starts all `requests` as one submission and leaves the vector empty. Wrong requests (bounds,
    /// alignment, missing buffer) complete with [`DeviceErrorKind::OutOfBounds`].
    fn submit(&mut self, requests: &mut Vec<IoRequest>);

    /// Appends finished requests to `completions`, in the order in which they finished, after
    /// waiting as `wait` says. Returns how many were appended.
    fn complete(&mut self, wait: Wait, completions: &mut Vec<IoCompletion>) -> usize;

    /// [`BlockDevice::submit`] by a thread that then waits until a request has completed, of these or of earlier
    /// ones: it may do a request itself. Returns how many completions were appended.
    fn carry_out(&mut self, requests: &mut Vec<IoRequest>, completions: &mut Vec<IoCompletion>) -> usize {
        self.submit(requests);
        self.complete(Wait::One, completions)
    }

    /// How many submitted requests have not been handed back yet.
    fn in_flight(&self) -> usize;
}
