//! The bytes of a record of the parity journal; drawn in `docs/formats/volume.md`.

use crate::layout::Layout;
use tierstone_base::checksum::{checksum_parts, salt};
use tierstone_base::codec::Reader;
use tierstone_media::{BLOCK_BYTES, IoBuffer};

const MAGIC: &[u8; 8] = b"TIERJOUR";
const SALT: u64 = 0x6a6f_7572_6e61_6c31;
const HEAD_BYTES: usize = 56;
const PIECE_BYTES: usize = 12;

/// New bytes of one member in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Which member of the group.
    pub member: u32,
    /// The first byte within its chunk.
    pub within: u32,
    /// Whole blocks.
    pub bytes: Vec<u8>,
}

/// Everything that a write changes in one row, parity included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub group: u32,
    pub row: u64,
    /// How many rows from `row` on become zeros, parity too; 0 of a write, which has pieces.
    pub rows: u64,
    pub sequence: u64,
    /// All records up to this one are in place.
    pub done_through: u64,
    pub pieces: Vec<Piece>,
}

impl Record {
    /// A block of places, then the bytes of the pieces.
    pub(crate) fn encode(&self, volume: u128) -> IoBuffer {
        let payload: usize = self.pieces.iter().map(|piece| piece.bytes.len()).sum();
        let mut bytes = IoBuffer::zeroed(BLOCK_BYTES + payload);
        let mut head = Vec::with_capacity(BLOCK_BYTES);
        head.extend_from_slice(MAGIC);
        for word in [self.sequence, self.done_through, self.row] {
            head.extend_from_slice(&word.to_le_bytes());
        }
        head.extend_from_slice(&self.group.to_le_bytes());
        head.extend_from_slice(&(self.pieces.len() as u32).to_le_bytes());
        head.extend_from_slice(&[0; 8]);
        head.extend_from_slice(&self.rows.to_le_bytes());
        let mut at = BLOCK_BYTES;
        for piece in &self.pieces {
            for word in [piece.member, piece.within, piece.bytes.len() as u32] {
                head.extend_from_slice(&word.to_le_bytes());
            }
            bytes[at..at + piece.bytes.len()].copy_from_slice(&piece.bytes);
            at += piece.bytes.len();
        }
        bytes[..head.len()].copy_from_slice(&head);
        let sum = sum_of(volume, self.sequence, &bytes[..BLOCK_BYTES + payload]);
        bytes[40..48].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The record at the start of `bytes`, if one of this volume and layout is whole there.
    pub(crate) fn decode(volume: u128, layout: &Layout, bytes: &[u8]) -> Option<Record> {
        let mut reader = Reader::new(bytes.get(..BLOCK_BYTES)?);
        if reader.bytes(8)? != MAGIC {
            return None;
        }
        let (sequence, done_through, row) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (group, count) = (reader.u32()?, reader.u32()?);
        let sum = reader.u64()?;
        let rows = reader.u64()?;
        if count as usize > (BLOCK_BYTES - HEAD_BYTES) / PIECE_BYTES {
            return None;
        }
        let mut pieces = Vec::new();
        let mut at = BLOCK_BYTES;
        for _ in 0..count {
            let (member, within, len) = (reader.u32()?, reader.u32()?, reader.u32()?);
            let end = at.checked_add(len as usize)?;
            let fits = member < layout.width && u64::from(within) + u64::from(len) <= layout.chunk_bytes;
            pieces.push(Piece { member, within, bytes: bytes.get(at..end).filter(|_| fits)?.to_vec() });
            at = end;
        }
        let is_whole = sum_of(volume, sequence, bytes.get(..at)?) == sum;
        let last = row.checked_add(rows.max(1))?;
        let fits = group < layout.groups && last <= layout.rows && (rows == 0 || pieces.is_empty());
        (is_whole && fits).then_some(Record { group, row, rows, sequence, done_through, pieces })
    }
}

/// Of everything but the checksum's own place.
fn sum_of(volume: u128, sequence: u64, bytes: &[u8]) -> u64 {
    checksum_parts(salt(SALT ^ volume as u64, sequence), &[&bytes[..40], &bytes[48..]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Redundancy;

    const LAYOUT: Layout =
        Layout { redundancy: Redundancy::Parity, groups: 2, width: 3, chunk_bytes: 8192, rows: 10 };

    fn sample() -> Record {
        let piece = |member, within, len| Piece { member, within, bytes: vec![member as u8 + 1; len] };
        Record {
            group: 1,
            row: 9,
            rows: 0,
            sequence: 77,
            done_through: 70,
            pieces: vec![piece(0, 0, 8192), piece(2, 4096, 4096)],
        }
    }

    #[test]
    fn a_record_comes_back_only_when_it_is_whole_and_of_this_volume() {
        let bytes = sample().encode(5);
        assert_eq!(bytes.len(), 4096 * 4);
        assert_eq!(Record::decode(5, &LAYOUT, &bytes), Some(sample()));
        assert_eq!(Record::decode(6, &LAYOUT, &bytes), None);
        for byte in (0..bytes.len()).step_by(97) {
            let mut damaged = bytes.clone();
            damaged[byte] ^= 4;
            assert_eq!(Record::decode(5, &LAYOUT, &damaged), None, "byte {byte}");
        }
        assert_eq!(Record::decode(5, &Layout { rows: 9, ..LAYOUT }, &bytes), None);
        let zeros = Record { row: 7, rows: 3, pieces: Vec::new(), ..sample() };
        assert_eq!(Record::decode(5, &LAYOUT, &zeros.encode(5)), Some(zeros.clone()));
        let beyond = Record { rows: 4, ..zeros };
        assert_eq!(Record::decode(5, &LAYOUT, &beyond.encode(5)), None);
    }

    proptest::proptest! {
        #[test]
        fn hostile_records_never_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 4096..9000)) {
            let mut bytes = bytes;
            bytes[..8].copy_from_slice(MAGIC);
            let _ = Record::decode(5, &LAYOUT, &bytes);
        }
    }
}
