//! Stores on volumes: RAID and sleeping mirrors over files or block devices, instead of directories.
//!
//! A description ([`Description`], a file that ends in `.toml`) stands where a directory would. The volume lives on a
//! thread of its own ([`VolumeHost`]); shards have handles on it. `docs/volume.md` is the guide.

pub mod description;
mod host;
mod member;
mod open;
mod orders;
mod part;
mod report;
mod stopping;

pub use description::{Degraded, Description, Sleeping};
pub use host::{VolumeCaller, VolumeDevice, VolumeHost, VolumeTeller, Watcher};
pub use member::{MemberTerms, NewMember, take_member};
pub use open::{
    MemberPlace, OpenedVolume, Probed, newest, open_volume, open_volume_without, probe, probe_members,
};
pub use orders::{OrderReport, VolumeOrder};
pub use part::{StagingMemory, UNIT_BLOCKS, VolumePart};
pub use report::{MemberReport, PairReport, VolumeEvent, VolumeReport, state_name};
pub use stopping::DiskStopping;

#[cfg(test)]
mod volume_test;
