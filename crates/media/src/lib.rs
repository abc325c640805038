//! Block devices behind one vectored trait, byte-addressable regions behind another ([`region`]).
//!
//! A device is one flat space of bytes, read and written in whole blocks. A batch of reads,
//! writes and flushes is one submission ([`BlockDevice::submit`]); completions come back in any
//! order. The store above never learns what is below: files through io_uring, files through
//! threads, or a simulation that loses power.
//!
//! Invariants:
//! 1. A buffer is owned by exactly one side: it moves into the request and comes back with the
//!    completion, also when the request failed.
//! 2. Every submitted request completes exactly once.
//! 3. Requests in flight at the same time are not ordered. Who needs order waits for a completion.
//! 4. A write is durable when it was submitted with [`IoKind::WriteDurable`] and completed, or
//!    when it completed before a [`IoKind::Flush`] was submitted that then completed.

pub mod buffer;
#[doc(hidden)]
pub mod conformance;
pub mod device;
pub mod file;
mod lock;
pub mod probe;
pub mod region;
pub mod sim;

pub use buffer::{BLOCK_BYTES, BufferPool, IoBuffer};
pub use device::{
    BlockDevice, DeviceError, DeviceErrorKind, DurableWriteScope, Geometry, Guarantee, IoCompletion, IoKind,
    IoRequest, Wait,
};
pub use region::{MappedRegion, Region, RegionDevice, SimRegion};
pub use sim::{SimDevice, SimMedium, SimSettings};
