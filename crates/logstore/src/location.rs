//! Where a record lies, in 34 bits: a segment and an offset in it, in units.

use crate::index::IndexValue;

/// Bytes a unit: every record begins at a multiple of this in its segment.
pub const UNIT_BYTES: usize = 32;
/// Bits of a location that hold the offset in the segment, in units.
const OFFSET_BITS: u32 = 20;
/// Bits of a location that hold the segment.
const SEGMENT_BITS: u32 = 14;
/// The largest segment that locations can address, in bytes: 32 MiB.
pub const SEGMENT_BYTES_MAX: u64 = (1 << OFFSET_BITS) * UNIT_BYTES as u64;
/// The most segments that locations can address: 16,384, so 512 GiB a store.
pub const SEGMENT_COUNT_MAX: u32 = 1 << SEGMENT_BITS;
/// Marks an index value that holds a cache frame instead of a location.
const FRAME_FLAG: u64 = 1 << (OFFSET_BITS + SEGMENT_BITS);

/// The place of a record on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location(u64);

impl Location {
    /// The place `unit` units into `segment`.
    pub fn new(segment: u32, unit: u32) -> Self {
        debug_assert!(segment < SEGMENT_COUNT_MAX && unit < 1 << OFFSET_BITS);
        Location((u64::from(segment) << OFFSET_BITS) | u64::from(unit))
    }

    /// A location from the number that [`Location::raw`] gave.
    pub fn from_raw(raw: u64) -> Self {
        Location(raw & (FRAME_FLAG - 1))
    }

    /// The location as a number below 2^34.
    pub fn raw(self) -> u64 {
        self.0
    }

    /// The segment.
    pub fn segment(self) -> u32 {
        (self.0 >> OFFSET_BITS) as u32
    }

    /// The offset in the segment, in units.
    pub fn unit(self) -> u32 {
        (self.0 & ((1 << OFFSET_BITS) - 1)) as u32
    }

    /// The offset in the segment, in bytes.
    pub fn offset(self) -> usize {
        self.unit() as usize * UNIT_BYTES
    }
}

/// What an index entry of this engine points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A record in the cache, by its frame's number.
    Frame(u64),
    /// A record on the device.
    Device(Location),
}

impl Target {
    /// The target that an index value stands for.
    pub fn unpack(value: IndexValue) -> Target {
        let raw = value.raw();
        if raw & FRAME_FLAG != 0 {
            Target::Frame(raw & (FRAME_FLAG - 1))
        } else {
            Target::Device(Location(raw))
        }
    }

    /// The index value that stands for this target.
    pub fn pack(self) -> IndexValue {
        match self {
            Target::Frame(frame) => IndexValue::new(FRAME_FLAG | frame),
            Target::Device(location) => IndexValue::new(location.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_pack_into_index_values() {
        let location = Location::new(SEGMENT_COUNT_MAX - 1, (1 << OFFSET_BITS) - 1);
        for target in [Target::Frame(0), Target::Frame((1 << 34) - 1), Target::Device(location)] {
            assert_eq!(Target::unpack(target.pack()), target);
        }
        assert_eq!(location.offset(), SEGMENT_BYTES_MAX as usize - UNIT_BYTES);
    }
}
