//! The bytes on the buffer device: the map, the records of the staging log, the units of the extents.
//! Drawn in `docs/formats/volume.md`.

use crate::superblock::refuse_newer;
use tierstone_base::Result;
use tierstone_base::checksum::{checksum, checksum_parts, salt};
use tierstone_base::codec::Reader;
use tierstone_media::{BLOCK_BYTES, IoBuffer};

pub(crate) const MAP_MAGIC: &[u8; 8] = b"TIERBUFF";
const BATCH_MAGIC: &[u8; 8] = b"TIERSTAG";
const VERSION: u32 = 1;
/// Of a map whose staging logs lie in a memory of their own.
const VERSION_STAGED: u32 = 2;
const SALT: u64 = 0x6275_6666_6572_6d31;
const MAP_HEAD_BYTES: usize = 80;
const BATCH_HEAD_BYTES: usize = 80;
/// Most blocks of a batch: their addresses fit its first block.
pub(crate) const BATCH_BLOCKS_MAX: usize = (BLOCK_BYTES - BATCH_HEAD_BYTES) / 8;

/// Who owns an extent, and in which life it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExtentEntry {
    /// 0 for free, else the volume's number and one.
    pub owner: u32,
    /// Rises with each owner, so that what an earlier one left does not count.
    pub life: u32,
}

/// A volume that uses the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VolumeEntry {
    /// Its identity; 0 for none.
    pub volume: u128,
    /// The unit that is being staged.
    pub unit: u64,
    /// The sequence of its next block.
    pub sequence: u64,
}

/// What must survive besides the data: extents, volumes, and how far each pair is flushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BufferMap {
    pub id: u128,
    pub sequence: u64,
    pub extent_bytes: u64,
    pub unit_blocks: u32,
    /// Epoch of the memory that holds the staging logs; 0 when they lie on the flash.
    pub staging: u64,
    pub pairs_a_volume: u32,
    pub extents: Vec<ExtentEntry>,
    pub volumes: Vec<VolumeEntry>,
    /// Blocks of a pair up to this sequence are on both of its disks.
    pub flushed: Vec<u64>,
}

impl BufferMap {
    /// Bytes of one of the two slots.
    pub(crate) fn slot_bytes(extents: usize, volumes: usize, pairs: usize) -> u64 {
        let bytes = MAP_HEAD_BYTES + 8 * extents + 32 * volumes + 8 * pairs + 8;
        bytes.next_multiple_of(BLOCK_BYTES) as u64
    }

    pub(crate) fn own_slot_bytes(&self) -> u64 {
        Self::slot_bytes(self.extents.len(), self.volumes.len(), self.flushed.len())
    }

    pub(crate) fn encode(&self) -> IoBuffer {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(MAP_MAGIC);
        let version = if self.staging == 0 { VERSION } else { VERSION_STAGED };
        bytes.extend_from_slice(&version.to_le_bytes());
        bytes.extend_from_slice(&self.unit_blocks.to_le_bytes());
        bytes.extend_from_slice(&self.id.to_le_bytes());
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        bytes.extend_from_slice(&self.extent_bytes.to_le_bytes());
        for count in
            [self.extents.len(), self.volumes.len(), self.pairs_a_volume as usize, self.flushed.len()]
        {
            bytes.extend_from_slice(&(count as u32).to_le_bytes());
        }
        bytes.extend_from_slice(&self.staging.to_le_bytes());
        bytes.resize(MAP_HEAD_BYTES, 0);
        for extent in &self.extents {
            bytes.extend_from_slice(&extent.owner.to_le_bytes());
            bytes.extend_from_slice(&extent.life.to_le_bytes());
        }
        for volume in &self.volumes {
            bytes.extend_from_slice(&volume.volume.to_le_bytes());
            bytes.extend_from_slice(&volume.unit.to_le_bytes());
            bytes.extend_from_slice(&volume.sequence.to_le_bytes());
        }
        for flushed in &self.flushed {
            bytes.extend_from_slice(&flushed.to_le_bytes());
        }
        bytes.resize(self.own_slot_bytes() as usize - 8, 0);
        let sum = checksum(salt(SALT, self.sequence), &bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        IoBuffer::from_slice(&bytes)
    }

    /// The length of the slot that begins with `block`, if one may begin there; in all versions by the same words.
    pub(crate) fn slot_bytes_in(block: &[u8]) -> Option<u64> {
        let mut reader = Reader::new(block);
        if reader.bytes(8)? != MAP_MAGIC || reader.u32()? == 0 {
            return None;
        }
        reader.bytes(4 + 16 + 8 + 8)?;
        let (extents, volumes, _, pairs) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        (extents <= 1 << 20 && volumes <= 1 << 12 && pairs <= 1 << 20)
            .then(|| Self::slot_bytes(extents as usize, volumes as usize, pairs as usize))
    }

    /// The bytes of a slot whose checksum fits, and its version.
    fn whole(bytes: &[u8]) -> Option<(u32, &[u8])> {
        let bytes = bytes.get(..Self::slot_bytes_in(bytes)? as usize)?;
        let version = Reader::new(bytes.get(8..)?).u32()?;
        let sequence = Reader::new(bytes.get(32..)?).u64()?;
        let (covered, sum) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
        (Reader::new(sum).u64()? == checksum(salt(SALT, sequence), covered)).then_some((version, bytes))
    }

    /// The version of a map of a newer program. One whose checksum does not fit is none: its writing was cut off, or its version
    /// rotted.
    pub(crate) fn newer(bytes: &[u8]) -> Option<u32> {
        Self::whole(bytes).map(|(version, _)| version).filter(|&version| version > VERSION_STAGED)
    }

    /// Refuses a map of a newer program.
    pub(crate) fn refuse_newer(bytes: &[u8]) -> Result<()> {
        let Some(version) = Self::newer(bytes) else { return Ok(()) };
        refuse_newer(format!(
            "the flash buffer has format version {version}, written by a newer program: this one knows versions up to \
             {VERSION_STAGED}, open the volume with that one"
        ))
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<BufferMap> {
        let (version, bytes) = Self::whole(bytes)?;
        if version > VERSION_STAGED {
            return None;
        }
        let mut reader = Reader::new(bytes);
        reader.bytes(8 + 4)?;
        let unit_blocks = reader.u32()?;
        let id = u128::from(reader.u64()?) | u128::from(reader.u64()?) << 64;
        let (sequence, extent_bytes) = (reader.u64()?, reader.u64()?);
        let (extents, volumes, pairs_a_volume, pairs) =
            (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        let staging = reader.u64()?;
        let mut reader = Reader::new(&bytes[MAP_HEAD_BYTES..]);
        let mut extent = || Some(ExtentEntry { owner: reader.u32()?, life: reader.u32()? });
        let extents = (0..extents).map(|_| extent()).collect::<Option<Vec<_>>>()?;
        let mut volume = || {
            let volume = u128::from(reader.u64()?) | u128::from(reader.u64()?) << 64;
            Some(VolumeEntry { volume, unit: reader.u64()?, sequence: reader.u64()? })
        };
        let volumes = (0..volumes).map(|_| volume()).collect::<Option<Vec<_>>>()?;
        let flushed = (0..pairs).map(|_| reader.u64()).collect::<Option<Vec<_>>>()?;
        let is_sound = unit_blocks >= 2
            && unit_blocks as usize <= BATCH_BLOCKS_MAX + 1
            && extent_bytes > 0
            && (version == VERSION_STAGED) == (staging != 0)
            && u64::from(pairs_a_volume).checked_mul(volumes.len() as u64)? == flushed.len() as u64;
        is_sound.then_some(BufferMap {
            id,
            sequence,
            extent_bytes,
            unit_blocks,
            staging,
            pairs_a_volume,
            extents,
            volumes,
            flushed,
        })
    }
}

/// Blocks with their addresses: a record of the staging log, or a unit of an extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Batch {
    pub volume: u32,
    /// Which unit the blocks belong to.
    pub unit: u64,
    /// In the staging log the records of a unit count from 0.
    pub index: u32,
    /// The sequence of the first block; the others follow.
    pub sequence: u64,
    /// Pair and block of its disks.
    pub addresses: Vec<(u32, u32)>,
    /// Of the data.
    pub data_sum: u64,
}

impl Batch {
    /// A block of addresses, then the data. `place` salts it: the staging log, or the life of an extent.
    pub(crate) fn encode(&self, id: u128, place: u64, data: &[&[u8]]) -> IoBuffer {
        let mut bytes = IoBuffer::zeroed(BLOCK_BYTES * (1 + data.len()));
        for (block, data) in bytes[BLOCK_BYTES..].chunks_exact_mut(BLOCK_BYTES).zip(data) {
            block.copy_from_slice(data);
        }
        let mut head = Vec::with_capacity(BLOCK_BYTES);
        head.extend_from_slice(BATCH_MAGIC);
        head.extend_from_slice(&self.volume.to_le_bytes());
        head.extend_from_slice(&self.index.to_le_bytes());
        head.extend_from_slice(&self.unit.to_le_bytes());
        head.extend_from_slice(&self.sequence.to_le_bytes());
        head.extend_from_slice(&(self.addresses.len() as u32).to_le_bytes());
        head.resize(48, 0);
        head.extend_from_slice(&checksum(batch_salt(id, place), &bytes[BLOCK_BYTES..]).to_le_bytes());
        head.resize(BATCH_HEAD_BYTES, 0);
        for (pair, block) in &self.addresses {
            head.extend_from_slice(&pair.to_le_bytes());
            head.extend_from_slice(&block.to_le_bytes());
        }
        head.resize(BLOCK_BYTES, 0);
        let sum = head_sum(id, place, &head);
        head[56..64].copy_from_slice(&sum.to_le_bytes());
        bytes[..BLOCK_BYTES].copy_from_slice(&head);
        bytes
    }

    /// What the first block says; the data is to be held against [`Batch::data_sum`] by [`Batch::fits`].
    pub(crate) fn decode(id: u128, place: u64, head: &[u8]) -> Option<Batch> {
        let head = head.get(..BLOCK_BYTES)?;
        let mut reader = Reader::new(head);
        if reader.bytes(8)? != BATCH_MAGIC {
            return None;
        }
        let (volume, index, unit, sequence) = (reader.u32()?, reader.u32()?, reader.u64()?, reader.u64()?);
        let count = reader.u32()? as usize;
        if count > BATCH_BLOCKS_MAX || Reader::new(&head[56..]).u64()? != head_sum(id, place, head) {
            return None;
        }
        let data_sum = Reader::new(&head[48..]).u64()?;
        let mut reader = Reader::new(&head[BATCH_HEAD_BYTES..]);
        let mut address = || Some((reader.u32()?, reader.u32()?));
        let addresses = (0..count).map(|_| address()).collect::<Option<Vec<_>>>()?;
        Some(Batch { volume, unit, index, sequence, addresses, data_sum })
    }

    /// Whether `data` is what was written with it.
    pub(crate) fn fits(&self, id: u128, place: u64, data: &[u8]) -> bool {
        checksum(batch_salt(id, place), data) == self.data_sum
    }
}

fn batch_salt(id: u128, place: u64) -> u64 {
    salt(SALT ^ id as u64, place)
}

/// Of the first block but for the checksum's own place.
fn head_sum(id: u128, place: u64, head: &[u8]) -> u64 {
    checksum_parts(batch_salt(id, place), &[&head[..56], &head[64..]])
}

/// What a program of another version would write in place of a map.
#[cfg(test)]
pub(super) fn of_version(map: &[u8], version: u32) -> Vec<u8> {
    let mut bytes = map.to_vec();
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    let sequence = Reader::new(&bytes[32..]).u64().unwrap();
    let covered = bytes.len() - 8;
    let sum = checksum(salt(SALT, sequence), &bytes[..covered]);
    bytes[covered..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_and_batches_come_back_and_damage_is_seen() {
        let map = BufferMap {
            id: 3 << 70,
            sequence: 9,
            extent_bytes: 1 << 20,
            unit_blocks: 16,
            staging: 0,
            pairs_a_volume: 2,
            extents: vec![ExtentEntry { owner: 1, life: 4 }, ExtentEntry::default()],
            volumes: vec![VolumeEntry { volume: 7, unit: 8, sequence: 99 }],
            flushed: vec![5, 6],
        };
        let bytes = map.encode();
        assert_eq!(BufferMap::decode(&bytes), Some(map.clone()));
        assert_eq!(bytes[8], 1);
        let staged = BufferMap { staging: 5, ..map };
        assert_eq!((BufferMap::decode(&staged.encode()), staged.encode()[8]), (Some(staged), 2));
        let batch =
            Batch { volume: 1, unit: 2, index: 3, sequence: 4, addresses: vec![(5, 6), (7, 8)], data_sum: 0 };
        let blocks = [vec![1u8; BLOCK_BYTES], vec![2u8; BLOCK_BYTES]];
        let whole = batch.encode(7, 1, &[&blocks[0], &blocks[1]]);
        let back = Batch::decode(7, 1, &whole).expect("whole");
        assert_eq!(Batch { data_sum: 0, ..back.clone() }, batch);
        assert!(back.fits(7, 1, &whole[BLOCK_BYTES..]) && !back.fits(7, 1, &whole[..BLOCK_BYTES]));
        assert_eq!(Batch::decode(7, 2, &whole), None, "of another life");
        for byte in (0..BLOCK_BYTES).step_by(13) {
            let (mut one, mut two) = (bytes.clone(), whole.clone());
            one[byte] ^= 1;
            two[byte] ^= 1;
            assert!(BufferMap::decode(&one).is_none() && Batch::decode(7, 1, &two).is_none(), "byte {byte}");
        }
    }

    proptest::proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..9000)) {
            let mut bytes = bytes;
            for magic in [MAP_MAGIC, BATCH_MAGIC] {
                let head = magic.len().min(bytes.len());
                bytes[..head].copy_from_slice(&magic[..head]);
                let _ = (BufferMap::decode(&bytes), Batch::decode(1, 1, &bytes));
            }
        }
    }
}
