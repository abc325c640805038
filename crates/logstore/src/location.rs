//! Where a record lies, as a number: a segment and an offset in it, in units. What an index entry points to is such a number,
//! or, above all of them, one of a frame of the cache.

use crate::index::{EntryLayout, HashIndexSettings, IndexValue, UPPER_FROM};

/// Bytes a unit: every record begins at a multiple of this in its segment.
pub const UNIT_BYTES: usize = 32;
/// Bits of a location that hold the offset in the segment, in units.
const OFFSET_BITS: u32 = 20;
/// The largest segment that locations can address, in bytes: 32 MiB.
pub const SEGMENT_BYTES_MAX: u64 = (1 << OFFSET_BITS) * UNIT_BYTES as u64;
/// The most segments that locations can address: 122,880, so 3.75 TiB a store.
pub const SEGMENT_COUNT_MAX: u32 = (UPPER_FROM >> OFFSET_BITS) as u32;

/// The most segments whose locations fit the narrow entries of an index: 24,576, or 768 GiB of the largest.
const NARROW_SEGMENTS_MAX: u32 = (EntryLayout::NARROW.lower_values() >> OFFSET_BITS) as u32;

const _: () = assert!(SEGMENT_COUNT_MAX == 122_880 && NARROW_SEGMENTS_MAX == 24_576);

/// Settings of an index, without a limit, that names places in `segments` segments.
pub fn index_settings(segments: u32) -> HashIndexSettings {
    let layout = if segments <= NARROW_SEGMENTS_MAX { EntryLayout::NARROW } else { EntryLayout::WIDE };
    HashIndexSettings { layout, ..HashIndexSettings::default() }
}

/// The place of a record on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location(u64);

impl Location {
    /// The place `unit` units into `segment`.
    pub fn new(segment: u32, unit: u32) -> Self {
        debug_assert!(segment < SEGMENT_COUNT_MAX && unit < 1 << OFFSET_BITS, "{segment}, {unit}");
        Location((u64::from(segment) << OFFSET_BITS) | u64::from(unit))
    }

    /// A location from the number that [`Location::raw`] gave. One that no location gives stands for the last that there
    /// is, where no record begins.
    pub fn from_raw(raw: u64) -> Self {
        Location(raw.min(UPPER_FROM - 1))
    }

    /// The location as a number below 2^37.
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
        if raw >= UPPER_FROM { Target::Frame(raw - UPPER_FROM) } else { Target::Device(Location(raw)) }
    }

    /// The index value that stands for this target.
    pub fn pack(self) -> IndexValue {
        match self {
            Target::Frame(frame) => IndexValue::new(UPPER_FROM + frame),
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
        for target in [
            Target::Frame(0),
            Target::Frame((1 << tierstone_cache::FrameId::BITS) - 1),
            Target::Device(location),
        ] {
            assert_eq!(Target::unpack(target.pack()), target);
        }
        assert_eq!(location.offset(), SEGMENT_BYTES_MAX as usize - UNIT_BYTES);
        assert_eq!(Location::from_raw(location.raw() + 1), location, "a frame is no place");
    }
}
