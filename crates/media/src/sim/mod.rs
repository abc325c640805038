//! A block device in memory that keeps exactly what a real one promises, and no more.
//!
//! [`SimMedium`] is the medium with its volatile cache, its requests in flight, its power switch
//! and its faults; [`SimDevice`] is a handle on it that implements [`crate::BlockDevice`]. Every
//! open question (which request completes next, whether power is lost here, which sectors survive)
//! goes to the medium's [`tierstone_crash::Choices`], so one seed or path gives one run.
//!
//! Invariants:
//! 1. A request completes exactly once, also when power is lost, and its buffer comes back.
//! 2. What [`crate::IoKind::WriteDurable`] and [`crate::IoKind::Flush`] have completed survives
//!    every loss of power, unless a fault says otherwise; of anything else, in flight or
//!    completed, any sectors may survive.
//! 3. A write takes effect when it completes; a read sees the writes completed before it. (A real
//!    device may mix old and new in a read that overlaps a write in flight; that is not modelled.)
//! 4. A handle from before a loss of power (or the end of a process) never touches the medium again.
//! 5. The same settings, choices and calls give the same [`SimMedium::trace`], byte for byte.
//!
//! [`SimRegion`] is persistent memory; [`SimMachine`] puts it beside devices, behind one power switch.
//!
//! Handles may go to any thread, as the shards that hold them may; one thread at a time does something.

mod device;
mod fault;
mod killed;
mod lives;
mod machine;
mod medium;
pub(crate) mod power;
mod powered;
mod region;
mod settings;
mod shared;
mod state;
pub(crate) mod trace;

pub use device::SimDevice;
pub use fault::{Fault, FaultEffect, FaultTarget, FaultWhen};
pub use killed::{Killed, until_killed};
pub use machine::{LineMachine, MachineLife, SimMachine, SimMachineSettings, WordMachine};
pub use medium::{Counters, SimMedium};
pub use powered::Powered;
pub use region::{LineRegion, SimPersistency, SimRegion, WordRegion, set_processor};
pub use settings::{CompletionOrder, CutPoints, Latency, PowerCut, SimSettings, StaleRange};

#[cfg(test)]
mod device_test;
#[cfg(test)]
mod durability_test;
#[cfg(test)]
mod fault_test;
#[cfg(test)]
mod two_media_example_test;
#[cfg(test)]
mod worked_example_test;
