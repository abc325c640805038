//! What each member says about itself and the volume: one block, in two slots that take turns.
//!
//! The block with the highest generation among all members decides what is true of every member; the
//! bytes are drawn in `docs/formats/volume.md`.
//!
//! Invariants:
//! 1. A member that missed an acknowledged write is named failed (or behind, see `sleep`) by a durable
//!    superblock of every other member before that write is acknowledged.
//! 2. A torn superblock leaves the one before it; a whole one of a newer version is refused, whatever lies in the other slot.
//! 3. Magic, version, generation and checksum stay where they are in all versions, and what the checksum covers and is salted
//!    with: so a newer superblock is told from a torn one, and from one whose version rotted.

use crate::layout::{Layout, Redundancy};
use tierstone_base::checksum::{checksum, salt};
use tierstone_base::codec::Reader;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::{BLOCK_BYTES, Geometry, IoBuffer};

/// The first bytes of a superblock.
const MAGIC: &[u8; 8] = b"TIERVOLU";
/// The version of the format.
const VERSION: u32 = 1;
/// Of a volume with spare rows: programs that do not know them would read hot rows at home that lie on another pair.
const VERSION_SPARE: u32 = 2;
const SALT: u64 = 0x766f_6c75_6d65_7362;
/// Bytes before the states of the members.
const HEAD_BYTES: usize = 128;
const STATE_BYTES: usize = 9;

/// Which of two slots of a block holds what counts on a member; the other is written next, so that a torn
/// write never costs the whole one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot(pub usize);

impl Slot {
    /// Where the next write goes, from the start of the two slots.
    pub(crate) fn next(self) -> u64 {
        (1 - self.0) as u64 * BLOCK_BYTES as u64
    }

    /// That write has ended.
    pub(crate) fn taken(&mut self, is_good: bool) {
        if is_good {
            self.0 = 1 - self.0;
        }
    }
}

/// What is true of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It holds everything.
    InSync,
    /// It missed writes, or is not there; nothing on it counts.
    Failed,
    /// A new member: rows before this one are as in [`Health::InSync`].
    Rebuilding {
        /// The first row that does not count yet.
        row: u64,
    },
    /// The second disk of a sleeping mirror: the flash buffer holds what it lacks.
    Behind,
}

/// The content of a superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub volume: u128,
    pub index: u32,
    pub generation: u64,
    pub clean: bool,
    pub layout: Layout,
    pub geometry: Geometry,
    pub region_bytes: u64,
    pub journal_slots: u32,
    /// The flash buffer that holds what members behind lack; 0 for none.
    pub buffer: u128,
    /// Rows at the end of each member for hot data of pairs that sleep whole.
    pub spare_rows: u32,
    pub states: Vec<Health>,
}

impl Superblock {
    pub(crate) fn encode(&self) -> IoBuffer {
        let mut bytes = Vec::with_capacity(BLOCK_BYTES);
        bytes.extend_from_slice(MAGIC);
        let redundancy = match self.layout.redundancy {
            Redundancy::None => 0u8,
            Redundancy::Mirror => 1,
            Redundancy::Parity => 2,
        };
        let version = if self.spare_rows == 0 { VERSION } else { VERSION_SPARE };
        bytes.extend_from_slice(&version.to_le_bytes());
        bytes.extend_from_slice(&[redundancy, u8::from(self.clean), 0, 0]);
        bytes.extend_from_slice(&self.volume.to_le_bytes());
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        for word in [self.index, self.layout.groups, self.layout.width, self.journal_slots] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for word in [
            self.layout.chunk_bytes,
            self.layout.rows,
            self.geometry.meta_bytes,
            self.geometry.segment_bytes,
            u64::from(self.geometry.segment_limit),
            self.region_bytes,
        ] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&(self.states.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.buffer.to_le_bytes());
        bytes.extend_from_slice(&self.spare_rows.to_le_bytes());
        bytes.resize(HEAD_BYTES, 0);
        for state in &self.states {
            let (tag, row) = match *state {
                Health::InSync => (0u8, 0),
                Health::Failed => (1, 0),
                Health::Rebuilding { row } => (2, row),
                Health::Behind => (3, 0),
            };
            bytes.push(tag);
            bytes.extend_from_slice(&row.to_le_bytes());
        }
        bytes.resize(BLOCK_BYTES - 8, 0);
        let sum = checksum(salt(SALT, self.generation), &bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        IoBuffer::from_slice(&bytes)
    }

    /// The superblock in `block`; `None` when there is none that is whole, or one of another version.
    pub(crate) fn decode(block: &[u8]) -> Option<Superblock> {
        let mut reader = Reader::new(block.get(..BLOCK_BYTES - 8)?);
        if reader.bytes(8)? != MAGIC || !matches!(reader.u32()?, VERSION | VERSION_SPARE) || !is_whole(block)
        {
            return None;
        }
        let redundancy = match reader.u8()? {
            0 => Redundancy::None,
            1 => Redundancy::Mirror,
            2 => Redundancy::Parity,
            _ => return None,
        };
        let clean = reader.bytes(3)?.first()? == &1;
        let volume = u128::from(reader.u64()?) | u128::from(reader.u64()?) << 64;
        let generation = reader.u64()?;
        let (index, groups, width, journal_slots) =
            (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        let layout = Layout { redundancy, groups, width, chunk_bytes: reader.u64()?, rows: reader.u64()? };
        let geometry = Geometry {
            meta_bytes: reader.u64()?,
            segment_bytes: reader.u64()?,
            segment_limit: u32::try_from(reader.u64()?).ok()?,
        };
        let region_bytes = reader.u64()?;
        let count = reader.u32()? as usize;
        let buffer = u128::from(reader.u64()?) | u128::from(reader.u64()?) << 64;
        let spare_rows = reader.u32()?;
        if count > crate::MEMBERS_MAX || count != (groups as usize).checked_mul(width as usize)? {
            return None;
        }
        let mut states = Reader::new(&block[HEAD_BYTES..]);
        let mut state = || match (states.u8()?, states.u64()?) {
            (0, _) => Some(Health::InSync),
            (1, _) => Some(Health::Failed),
            (2, row) => Some(Health::Rebuilding { row }),
            (3, _) => Some(Health::Behind),
            _ => None,
        };
        let states = (0..count).map(|_| state()).collect::<Option<Vec<_>>>()?;
        let has_room_to_spare =
            spare_rows == 0 || redundancy == Redundancy::Mirror && u64::from(spare_rows) < layout.rows;
        let is_sound =
            layout.check().is_ok() && region_bytes > 0 && (index as usize) < count && has_room_to_spare;
        is_sound.then_some(Superblock {
            volume,
            index,
            generation,
            clean,
            layout,
            geometry,
            region_bytes,
            journal_slots,
            buffer,
            spare_rows,
            states,
        })
    }
}

/// Where the version is.
const VERSION_AT: usize = 8;
/// Where the generation is.
const GENERATION_AT: usize = 32;

/// Whether the checksum of a block fits; the same in all versions.
fn is_whole(block: &[u8]) -> bool {
    let word = |at: usize| Reader::new(block.get(at..)?).u64();
    let sum = word(GENERATION_AT)
        .and_then(|generation| Some(checksum(salt(SALT, generation), block.get(..BLOCK_BYTES - 8)?)));
    sum.is_some() && sum == word(BLOCK_BYTES - 8)
}

/// What a block that begins like a superblock says of its version.
fn version_in(block: &[u8]) -> Option<u32> {
    let rest = block.starts_with(MAGIC).then(|| block.get(VERSION_AT..)).flatten()?;
    Reader::new(rest).u32()
}

/// The version of a superblock of a newer program in the slots that a device begins with. One whose checksum does not fit is
/// none: its writing was cut off, or its version rotted.
pub(crate) fn newer(start: &[u8]) -> Option<u32> {
    let whole = start.chunks(BLOCK_BYTES).filter(|block| is_whole(block));
    whole.filter_map(version_in).filter(|&version| version > VERSION_SPARE).max()
}

/// Whether a block, which holds a superblock with spare rows, lets programs open the volume that do not know them.
pub(crate) fn is_unmarked(block: &[u8]) -> bool {
    version_in(block) == Some(VERSION)
}

/// What is said of a device that begins with a superblock of this newer version, in words that follow its name.
pub(crate) fn newer_text(version: u32) -> String {
    format!(
        "holds a superblock of format version {version}, written by a newer program: this one knows versions up to \
         {VERSION_SPARE}, open the volume with that one"
    )
}

/// Refuses what a newer program wrote; `what` names it and its version.
pub(crate) fn refuse_newer<T>(what: String) -> Result<T> {
    Err(Error::new(ErrorKind::Incompatible, what))
}

/// Why no superblock can be used of a device that begins with `start`, in words that follow its name; `None` where nothing of a
/// superblock is there.
pub(crate) fn unusable(start: &[u8]) -> Option<String> {
    let is_one = |block: &&[u8]| block.starts_with(MAGIC) && Superblock::decode(block).is_none();
    let whys = start.chunks(BLOCK_BYTES).filter(is_one).map(|block| {
        let said = match version_in(block) {
            Some(version) if !matches!(version, VERSION | VERSION_SPARE) => {
                format!(", it says format version {version}")
            }
            _ => String::new(),
        };
        match is_whole(block) {
            true => format!("holds a superblock that says what cannot be{said}"),
            false => format!("holds a damaged superblock: its checksum does not fit{said}"),
        }
    });
    whys.max()
}

const _: () =
    assert!(HEAD_BYTES + crate::MEMBERS_MAX * STATE_BYTES <= BLOCK_BYTES - 8, "all states fit a block");

#[cfg(test)]
#[path = "superblock_test.rs"]
mod superblock_test;
