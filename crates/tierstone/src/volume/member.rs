//! Files and block devices that are to become members: made, or looked at, so that nothing of anybody's is lost.

use super::open::probe;
use std::path::Path;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::file::single::SingleFileDevice;
use tierstone_media::file::{DirectIo, Discards, SingleFile};
use tierstone_volume::inspect::{Holds, MemberFacts};

/// How much at a member's start and end is looked at for something that is there already.
const LOOKED_AT_BYTES: u64 = 1 << 20;

/// What may be taken. Plain data.
#[derive(Clone, Copy, Debug)]
pub struct MemberTerms<'a> {
    /// How long a file is made that does not exist; `None`: it has to exist.
    pub bytes: Option<u64>,
    /// What says how long it is to be, for the message.
    pub flag: &'a str,
    /// Whether what it holds may be lost.
    pub force: bool,
    /// Whether its device gives discarded space back.
    pub discards: Discards,
    /// The volume and the place in it whose old member may be taken as it is.
    pub own: Option<(u128, u32)>,
}

/// A member to be, open.
#[derive(Debug)]
pub struct NewMember {
    /// Its device.
    pub device: SingleFileDevice,
    /// Whether it was made now, and so holds zeros only.
    pub is_new: bool,
}

/// Opens what is to be a member, or makes it. Cost of one that exists: reading its first and last MiB.
///
/// # Errors
/// `InvalidInput` for what holds something, and for what is not there and may not be made; `Busy` for what is in use.
pub fn take_member(path: &Path, terms: MemberTerms<'_>) -> Result<NewMember> {
    let is_new = !path.exists();
    if is_new {
        let Some(bytes) = terms.bytes else {
            let message =
                format!("{} does not exist: say by {} how long a file to make", path.display(), terms.flag);
            return Err(Error::new(ErrorKind::InvalidInput, message));
        };
        SingleFile::create(path, bytes)?;
    }
    let probed = probe(path.to_path_buf(), DirectIo::Auto, terms.discards);
    let file = probed.file?;
    if !is_new && !terms.force {
        let own = |facts: &MemberFacts| terms.own == Some((facts.volume, facts.index));
        let what = match probed.holds {
            Holds::Member(facts) if own(&facts) => None,
            Holds::Member(facts) => Some(format!("is member {} of a volume", facts.index)),
            Holds::Unusable(why) | Holds::Newer(why) => Some(why),
            Holds::Buffer => Some("is a flash buffer".to_owned()),
            Holds::Something => Some("holds data at its start".to_owned()),
            Holds::Nothing => found_in(&file)?,
        };
        if let Some(what) = what {
            let message = format!("{} {what}: give another, or lose it with --force", path.display());
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
    }
    Ok(NewMember { device: file.device()?, is_new })
}

/// What lies in the first and the last MiB: file systems, partition tables and parts of other arrays do.
fn found_in(file: &SingleFile) -> Result<Option<String>> {
    let len = LOOKED_AT_BYTES.min(file.bytes());
    for (offset, place) in [(0, "first"), (file.bytes() - len, "last")] {
        let bytes = file.read_now(offset, len as usize)?;
        if let Some(at) = bytes.iter().position(|&byte| byte != 0) {
            return Ok(Some(format!("holds data in its {place} MiB, at byte {}", offset + at as u64)));
        }
    }
    Ok(None)
}
