//! The bytes of the map of ranges: what is cold, and which pairs' hot rows lie away. Drawn in
//! `docs/formats/volume.md`.

use super::ranges::{COLD_MAX, Runs};
use tierstone_base::checksum::{checksum, salt};
use tierstone_base::codec::Reader;
use tierstone_media::{BLOCK_BYTES, IoBuffer};

const MAGIC: &[u8; 8] = b"TIERRANG";
const SALT: u64 = 0x7261_6e67_656d_6170;
/// Bytes of one of the two slots.
pub(crate) const SLOT_BYTES: usize = 2 * BLOCK_BYTES;
const HEAD_BYTES: usize = 64;
const COLD_BYTES: usize = 16;
const GUEST_BYTES: usize = 24;
/// Most pairs of a volume.
const GUESTS_MAX: usize = crate::MEMBERS_MAX / 2;

const _: () = assert!(
    HEAD_BYTES + COLD_MAX * COLD_BYTES + GUESTS_MAX * GUEST_BYTES + 8 <= SLOT_BYTES,
    "all ranges and guests fit a slot"
);

/// Hot rows of a pair that lie on another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GuestEntry {
    pub pair: u32,
    pub host: u32,
    /// The first row there.
    pub base: u64,
    /// How many: all hot rows of the pair, in their order.
    pub rows: u64,
}

/// The content of a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeMap {
    pub sequence: u64,
    /// Runs of cold chunks of the volume.
    pub cold: Runs,
    pub guests: Vec<GuestEntry>,
}

impl RangeMap {
    pub(crate) fn encode(&self, volume: u128) -> IoBuffer {
        let mut bytes = Vec::with_capacity(SLOT_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        for count in [self.cold.len(), self.guests.len()] {
            bytes.extend_from_slice(&(count as u32).to_le_bytes());
        }
        bytes.resize(HEAD_BYTES, 0);
        for (first, end) in &self.cold {
            bytes.extend_from_slice(&first.to_le_bytes());
            bytes.extend_from_slice(&end.to_le_bytes());
        }
        for guest in &self.guests {
            bytes.extend_from_slice(&guest.pair.to_le_bytes());
            bytes.extend_from_slice(&guest.host.to_le_bytes());
            bytes.extend_from_slice(&guest.base.to_le_bytes());
            bytes.extend_from_slice(&guest.rows.to_le_bytes());
        }
        bytes.resize(SLOT_BYTES - 8, 0);
        let sum = checksum(salt(SALT ^ volume as u64, self.sequence), &bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        IoBuffer::from_slice(&bytes)
    }

    /// The map in one slot, if it is whole and of this volume.
    pub(crate) fn decode(volume: u128, slot: &[u8]) -> Option<RangeMap> {
        let slot = slot.get(..SLOT_BYTES)?;
        let mut reader = Reader::new(slot);
        if reader.bytes(8)? != MAGIC {
            return None;
        }
        let sequence = reader.u64()?;
        let (cold, guests) = (reader.u32()? as usize, reader.u32()? as usize);
        let sum = Reader::new(&slot[SLOT_BYTES - 8..]).u64()?;
        if cold > COLD_MAX
            || guests > GUESTS_MAX
            || sum != checksum(salt(SALT ^ volume as u64, sequence), &slot[..SLOT_BYTES - 8])
        {
            return None;
        }
        let mut reader = Reader::new(&slot[HEAD_BYTES..]);
        let cold = (0..cold).map(|_| Some((reader.u64()?, reader.u64()?))).collect::<Option<Runs>>()?;
        let mut guest = || {
            Some(GuestEntry {
                pair: reader.u32()?,
                host: reader.u32()?,
                base: reader.u64()?,
                rows: reader.u64()?,
            })
        };
        let guests = (0..guests).map(|_| guest()).collect::<Option<Vec<_>>>()?;
        let rises = cold.iter().all(|run| run.0 < run.1) && cold.windows(2).all(|two| two[0].1 < two[1].0);
        rises.then_some(RangeMap { sequence, cold, guests })
    }

    /// The newer whole map of a member's two slots, and which slot.
    pub(crate) fn newest(volume: u128, slots: &[u8]) -> Option<(usize, RangeMap)> {
        let whole = slots.chunks_exact(SLOT_BYTES).enumerate();
        let whole = whole.filter_map(|(at, slot)| Some((at, RangeMap::decode(volume, slot)?)));
        whole.max_by_key(|(_, map)| map.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(sequence: u64) -> RangeMap {
        let guests = vec![GuestEntry { pair: 2, host: 0, base: 90, rows: 7 }];
        RangeMap { sequence, cold: vec![(3, 9), (12, 800)], guests }
    }

    #[test]
    fn the_newer_whole_map_counts_and_no_flipped_bit_passes() {
        let mut slots = sample(5).encode(7).to_vec();
        slots.extend_from_slice(&sample(6).encode(7));
        assert_eq!(RangeMap::newest(7, &slots), Some((1, sample(6))));
        assert_eq!(RangeMap::newest(8, &slots), None, "of another volume");
        slots[SLOT_BYTES + BLOCK_BYTES + 77] ^= 1;
        assert_eq!(RangeMap::newest(7, &slots), Some((0, sample(5))), "a torn one leaves the one before");
        for byte in 0..SLOT_BYTES {
            let mut damaged = sample(5).encode(7);
            damaged[byte] ^= 1 << (byte % 8);
            assert_eq!(RangeMap::decode(7, &damaged), None, "byte {byte}");
        }
        let full = RangeMap {
            sequence: 1,
            cold: (0..COLD_MAX as u64).map(|at| (2 * at, 2 * at + 1)).collect(),
            guests: vec![sample(1).guests[0]; GUESTS_MAX],
        };
        assert_eq!(RangeMap::decode(7, &full.encode(7)), Some(full));
    }

    proptest::proptest! {
        #[test]
        fn hostile_maps_never_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..17_000)) {
            let mut bytes = bytes;
            let head = MAGIC.len().min(bytes.len());
            bytes[..head].copy_from_slice(&MAGIC[..head]);
            let _ = RangeMap::newest(1, &bytes);
        }
    }
}
