//! What a directory's device is, what it does, and what it promises.
//!
//! [`durable_method`] decides, in less than a second, how a new store makes writes durable.
//! [`doctor`](doctor::examine) measures more and gives advice. Both work on files of their own in the
//! directory and remove them. Published numbers of other devices ([`profiles`]) stand in a table of
//! their own: what was measured and what was published never mix.
//!
//! Crash: a directory or file `tierstone-probe-*` may be left behind; it can be deleted at any time.

pub mod doctor;
pub mod durable;
pub mod emulator;
pub mod filesystem;
pub mod load;
pub mod memory;
pub mod profiles;
mod scratch;
pub mod system;

pub use doctor::{DirectoryReport, DoctorReport, DoctorSettings, examine};
pub use durable::{MethodTimes, ProbeReport, durable_method};
pub use emulator::{EmulatorReport, PresetBandwidth, PresetWait, examine_emulator};
pub use filesystem::FileSystem;
pub use load::Rate;
pub use memory::{
    DaxReport, MemoryReport, RegionPlaceReport, RegionPromise, examine_memory, examine_region, examine_source,
};
pub use profiles::{PublishedProfile, published_profiles};
pub use scratch::Scratch;
pub use system::DeviceFacts;
