//! What an operator wants of a volume that serves: a member taken out, another put in its place.
//!
//! Preparing the new member (making a file, looking at what is there, naming it in the description) takes long, so a
//! thread of its own does it; the volume goes on meanwhile. One order at a time.
//!
//! Crash: as with `tierstone volume replace`. The description names the new member before it holds anything: the other
//! way round an opening could take the old one, whose old bytes would count as filled. Filling goes on at the next
//! opening from where the superblocks say.

use super::description::Description;
use super::member::{MemberTerms, take_member};
use crate::replace_file;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_volume::inspect::MemberFacts;

use super::part::VolumePart;

/// What is to be done with a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeOrder {
    /// Take it out, as if it had failed.
    Fail {
        /// Its number, from 0.
        member: usize,
    },
    /// Put another in the place of one that has failed; it is filled beside the traffic.
    Replace {
        /// Its number, from 0.
        member: usize,
        /// The absolute path of the new one; `None`: what has the old one's name now. A file that does not exist is
        /// made; what exists must hold zeros in its first and last MiB, or be the old member.
        path: Option<PathBuf>,
    },
}

/// How far the newest order is. Plain data.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct OrderReport {
    /// Which it is, from 1; 0: there was none.
    pub number: u64,
    /// `none`, `under-way`, `done` or `refused`.
    pub state: &'static str,
    /// What was done, or why not.
    pub text: String,
}

/// A new member that can be used.
#[derive(Debug)]
pub(super) struct Prepared {
    pub member: usize,
    pub path: PathBuf,
    pub device: VolumePart,
    pub wake: Option<RawFd>,
}

/// Opens or makes the new member, and names it in the description.
///
/// # Errors
/// As [`take_member`]; what kept the description from being written.
pub(super) fn prepare(
    description: &Path,
    facts: &MemberFacts,
    member: usize,
    path: Option<&Path>,
) -> Result<Prepared> {
    let mut described = Description::read(description)?;
    let Some(old) = described.members.get(member) else {
        let message = format!("the volume has {} members, from number 0", described.members.len());
        return Err(Error::new(ErrorKind::InvalidInput, message));
    };
    let old = Description::resolve(description, old);
    let path = path.map_or_else(|| old.clone(), Path::to_path_buf);
    if !path.is_absolute() && path != old {
        let message = format!("{}: give an absolute path, the server may run elsewhere", path.display());
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    let own = (path == old).then_some((facts.volume, member as u32));
    let terms = MemberTerms {
        bytes: Some(facts.bytes_needed),
        flag: "its size",
        force: false,
        discards: described.discards,
        own,
    };
    let device = take_member(&path, terms)?.device;
    if path != old {
        described.members[member] = path.clone();
        let text = described.text()?;
        Description::parse(&text)?;
        replace_file(description, text.as_bytes())?;
    }
    // What a crash leaves here, the subcommand's may leave too: a new member that holds no superblock and does not count.
    let wake = device.wake_descriptor();
    Ok(Prepared { member, path, device: device.into(), wake })
}
