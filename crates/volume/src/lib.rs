//! Volumes: block devices made of block devices.
//!
//! RAID 0, 1, 5, 10 and 50 over anything that implements `BlockDevice`; a volume implements it too, so
//! that a store can lie on it. Each member holds a superblock with the volume's identity, its own place
//! and a generation, so that members that are mixed up, missing, foreign or stale are refused in words.
//! A member that fails is left out at once and durably; the volume serves on from the others while a new
//! one is filled in bounded steps.
//!
//! Invariants:
//! 1. A write is acknowledged only when every member that missed it is durably named failed: no crash
//!    and no order of failures brings an older version back.
//! 2. After an opening, mirrors agree wherever they were written, and parity fits its data.
//! 3. A durable write or a flush that has completed survives the loss of power and, with redundancy, of
//!    a member of each group.
//!
//! What a crash leaves: a superblock generation on some members (the highest counts), marked regions in
//! which mirrors may differ (copied at the opening), journalled rows of parity groups that are in place
//! in part (written again at the opening). `docs/design/volume.md` is the guide, `docs/formats/volume.md`
//! draws the bytes.

mod core;
mod discards;
pub mod disks;
pub mod inspect;
mod intent;
mod journal;
mod judge;
pub mod layout;
mod members;
pub mod open;
mod parity;
pub mod partial;
pub mod policy;
mod reads;
mod rebuild;
mod records;
mod resync;
pub mod sleep;
mod superblock;
mod torn;
pub mod volume;
mod writes;

pub use layout::{Layout, Level, Place, Redundancy};
pub use open::{OpenSettings, Recovery, SLEEPING_BYTES_MAX, SleepSetup, VolumeSettings};
pub use partial::{PartialPair, RangeClass, RangeStatus};
pub use policy::{Advice, CycleBudget, PairHistory, SleepPolicy, WholeHistory, WholePolicy};
pub use sleep::{BufferSettings, FlashBuffer, KeepTurning, PairState, SleepSettings, Spindle};
pub use superblock::Health;
pub use volume::{Status, Volume};

/// Most members of a volume: their states fit one block.
pub const MEMBERS_MAX: usize = 256;
