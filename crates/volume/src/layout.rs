//! Where the bytes of a volume lie on its members. Pure.
//!
//! A volume is a row of *groups*; a group is one member (RAID 0), a set of mirrors (RAID 1, 10) or a
//! parity set (RAID 5, 50). Chunks of the volume go round the groups. Within a group of one member or
//! of mirrors, chunks follow each other on each member; within a parity group, a *row* is one chunk of
//! each member, one of them parity, which moves back by one member from row to row (left-symmetric).
//!
//! Invariant: the map from bytes of the volume to (group, data position, byte) is injective, and with
//! the capacity of [`Layout::data_bytes`] also onto.

use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::BLOCK_BYTES;

/// How members of a group stand in for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redundancy {
    /// Not at all: one member a group.
    None,
    /// Each member holds everything of its group.
    Mirror,
    /// Any one member can be computed from the others by XOR.
    Parity,
}

/// The usual names of layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Chunks go round the members; none may fail.
    Raid0,
    /// Every member holds everything; all but one may fail.
    Raid1,
    /// Rotating parity over all members; one may fail.
    Raid5,
    /// Chunks go round pairs of mirrors; one of each pair may fail.
    Raid10,
    /// Chunks go round so many parity groups of equal width; one of each may fail.
    Raid50 {
        /// How many parity groups; the number of members must be a multiple.
        groups: u32,
    },
}

impl Level {
    /// Groups and members a group of `members` members.
    ///
    /// # Errors
    /// When the number of members does not fit the level.
    pub fn shape(self, members: usize) -> Result<(Redundancy, u32, u32)> {
        let count = members as u32;
        let refuse = |what: &str| {
            let message = format!("{self:?} over {members} members: {what}");
            Err(Error::new(ErrorKind::InvalidInput, message))
        };
        match self {
            _ if members > crate::MEMBERS_MAX => refuse("too many members"),
            Level::Raid0 if count >= 1 => Ok((Redundancy::None, count, 1)),
            Level::Raid0 => refuse("give one member at least"),
            Level::Raid1 if count >= 2 => Ok((Redundancy::Mirror, 1, count)),
            Level::Raid1 => refuse("give two members at least"),
            Level::Raid5 if count >= 3 => Ok((Redundancy::Parity, 1, count)),
            Level::Raid5 => refuse("give three members at least"),
            Level::Raid10 if count >= 2 && count.is_multiple_of(2) => Ok((Redundancy::Mirror, count / 2, 2)),
            Level::Raid10 => refuse("give an even number of members"),
            Level::Raid50 { groups }
                if groups >= 1 && count.is_multiple_of(groups) && count / groups >= 3 =>
            {
                Ok((Redundancy::Parity, groups, count / groups))
            }
            Level::Raid50 { .. } => refuse("give each group the same number of members, three at least"),
        }
    }
}

/// The shape of a volume's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// What a group survives.
    pub redundancy: Redundancy,
    /// How many groups chunks go round.
    pub groups: u32,
    /// Members a group.
    pub width: u32,
    /// Bytes of a chunk, whole blocks.
    pub chunk_bytes: u64,
    /// Chunks of data (or parity) on each member.
    pub rows: u64,
}

/// A part of a request that lies in one chunk, or in several that follow each other on their member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which group.
    pub group: u32,
    /// The row of its first chunk.
    pub row: u64,
    /// Which of the row's data chunks; 0 unless the group has parity.
    pub position: u32,
    /// The first byte within that chunk.
    pub within: u64,
    /// The first byte within the request.
    pub at: u64,
    /// How many bytes.
    pub len: u64,
}

impl Layout {
    /// Data chunks a row of a group.
    pub fn positions(&self) -> u32 {
        match self.redundancy {
            Redundancy::Parity => self.width - 1,
            Redundancy::None | Redundancy::Mirror => 1,
        }
    }

    /// Bytes of data that fit.
    pub fn data_bytes(&self) -> u64 {
        u64::from(self.groups) * u64::from(self.positions()) * self.rows * self.chunk_bytes
    }

    /// The member of a group that holds the parity of `row`.
    pub fn parity_member(&self, row: u64) -> u32 {
        self.width - 1 - (row % u64::from(self.width)) as u32
    }

    /// The member of a group that holds data chunk `position` of `row`.
    pub fn data_member(&self, row: u64, position: u32) -> u32 {
        match self.redundancy {
            Redundancy::Parity => (self.parity_member(row) + 1 + position) % self.width,
            Redundancy::None | Redundancy::Mirror => 0,
        }
    }

    /// The members of `group`, as indexes of the volume's members.
    pub fn members(&self, group: u32) -> std::ops::Range<usize> {
        let first = (group * self.width) as usize;
        first..first + self.width as usize
    }

    /// The group of member `index`.
    pub fn group_of(&self, index: usize) -> u32 {
        index as u32 / self.width
    }

    /// Where the chunk of `place` begins on its member, from the start of the member's data.
    pub fn member_offset(&self, place: &Place) -> u64 {
        place.row * self.chunk_bytes + place.within
    }

    /// The places of `offset .. offset + len` of the volume, in its order. Cost: one step a chunk.
    pub fn places(&self, offset: u64, len: u64) -> Vec<Place> {
        let mut places: Vec<Place> = Vec::new();
        let mut done = 0;
        while done < len {
            let chunk = (offset + done) / self.chunk_bytes;
            let within = (offset + done) % self.chunk_bytes;
            let take = (self.chunk_bytes - within).min(len - done);
            let (group, index) = (chunk % u64::from(self.groups), chunk / u64::from(self.groups));
            let positions = u64::from(self.positions());
            let place = Place {
                group: group as u32,
                row: index / positions,
                position: (index % positions) as u32,
                within,
                at: done,
                len: take,
            };
            done += take;
            match places.last_mut() {
                // One group of whole copies: what follows in the volume follows on the member.
                Some(last) if self.groups == 1 && self.redundancy != Redundancy::Parity => last.len += take,
                _ => places.push(place),
            }
        }
        places
    }

    /// For each group that `offset .. offset + len` touches, the one range of each of its members that
    /// holds it, from the start of the member's data. Not for parity.
    pub fn spans(&self, offset: u64, len: u64) -> Vec<(u32, u64, u64)> {
        let mut spans: Vec<(u32, u64, u64)> = Vec::new();
        for place in self.places(offset, len) {
            let start = self.member_offset(&place);
            match spans.iter_mut().find(|(group, ..)| *group == place.group) {
                Some((_, _, len)) => *len += place.len,
                None => spans.push((place.group, start, place.len)),
            }
        }
        spans
    }

    /// Checks that sizes are whole blocks and not zero.
    ///
    /// # Errors
    /// Names what does not fit.
    pub fn check(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::new(ErrorKind::InvalidInput, what));
        if self.chunk_bytes == 0 || !self.chunk_bytes.is_multiple_of(BLOCK_BYTES as u64) {
            return refuse(format!(
                "a chunk of {} bytes is not whole blocks of {BLOCK_BYTES}",
                self.chunk_bytes
            ));
        }
        if self.rows == 0 {
            return refuse("the smallest member has no room for one chunk: give larger members".into());
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "layout_test.rs"]
mod layout_test;
