//! Overflow blocks: where the long part of a value lies, once, for the log record and the storage record both.
//!
//! A value takes runs of units in segments of one of four classes, of 2 KiB, 16 KiB, 64 KiB and a whole segment where
//! segments have 2 MiB. What is taken is known in memory only: recovery marks what records name.
//!
//! Invariants:
//! 1. Units are given out once, until they are freed.
//! 2. They are freed when the record that names them counts no more, whatever a crash takes.

use crate::blocks::Maker;
use crate::format::{Entry, Extent, SegmentKind};
use std::collections::BTreeMap;
use tierstone_base::{Error, ErrorKind, Result};

/// Classes of units.
const CLASSES: usize = 4;
/// Units of the two small classes that a run may have: the next class has units of about so many.
const RUN_UNITS: u64 = 8;

/// The overflow blocks of one shard.
#[derive(Debug)]
pub(crate) struct OverflowBlocks {
    maker: Maker,
    /// Of each class its segments, each with a bit for every unit that is taken.
    classes: [BTreeMap<u32, Vec<u64>>; CLASSES],
    /// Bytes of units that are taken.
    taken_bytes: u64,
}

impl OverflowBlocks {
    pub fn new(maker: Maker) -> Self {
        OverflowBlocks { maker, classes: Default::default(), taken_bytes: 0 }
    }

    /// Bytes of a unit.
    fn unit(&self, class: usize) -> u64 {
        unit_bytes(self.maker.layout.geometry.segment_bytes, class)
    }

    fn units(&self, class: usize) -> u64 {
        self.maker.layout.geometry.segment_bytes / self.unit(class)
    }

    /// The class for a run of `bytes` bytes, less than a segment.
    fn class_of(&self, bytes: u64) -> usize {
        (0..2).find(|&class| bytes <= self.unit(class) * RUN_UNITS).unwrap_or(2)
    }

    /// Segments that it has.
    pub fn segment_count(&self) -> u64 {
        self.classes.iter().map(|segments| segments.len() as u64).sum()
    }

    /// Bytes that are taken.
    pub fn taken_bytes(&self) -> u64 {
        self.taken_bytes
    }

    /// Takes room for `bytes` bytes. No barrier.
    ///
    /// # Errors
    /// `NoSpace`: nothing is taken. When the region fails.
    pub fn take(&mut self, bytes: u64, kept: u32) -> Result<Vec<Extent>> {
        let segment_bytes = self.maker.layout.geometry.segment_bytes;
        let mut extents = Vec::new();
        let mut left = bytes;
        while left > 0 {
            let part = left.min(segment_bytes);
            let Some(offset) = self.take_run(part, kept) else {
                self.free(&extents)?;
                let full = "the persistent memory is full: it has no room for a long value; delete keys, or restore a backup into a larger region";
                return Err(Error::new(ErrorKind::NoSpace, full));
            };
            extents.push(Extent { offset, len: part as u32 });
            left -= part;
        }
        Ok(extents)
    }

    fn take_run(&mut self, bytes: u64, kept: u32) -> Option<u64> {
        let class = if bytes == self.maker.layout.geometry.segment_bytes { 3 } else { self.class_of(bytes) };
        let (unit, units) = (self.unit(class), self.units(class));
        let wanted = bytes.div_ceil(unit);
        let found = self.classes[class]
            .iter()
            .find_map(|(&segment, bits)| run(bits, units, wanted).map(|first| (segment, first)));
        let (segment, first) = match found {
            Some(found) => found,
            None if self.maker.space.free_for(self.maker.shard) <= kept => return None,
            None => {
                let segment = self.maker.space.claim(self.maker.shard)?;
                let kind = SegmentKind::Overflow(class as u8);
                // Durable with the value, which no record names before that.
                self.maker.space.name(segment, Entry { kind, device: self.maker.shard, logical: 0 });
                self.adopt(segment, class as u8);
                (segment, 0)
            }
        };
        let offset = self.maker.layout.segment(segment) + first * unit;
        self.mark(class, segment, first, wanted);
        Some(offset)
    }

    /// Takes in a segment of which nothing is known to be taken.
    pub fn adopt(&mut self, segment: u32, class: u8) {
        let class = usize::from(class) % CLASSES;
        let words = self.units(class).div_ceil(64) as usize;
        self.classes[class].insert(segment, vec![0; words]);
    }

    fn mark(&mut self, class: usize, segment: u32, first: u64, count: u64) {
        let unit = self.unit(class);
        if let Some(bits) = self.classes[class].get_mut(&segment) {
            for at in first..first + count {
                if let Some(word) = bits.get_mut((at / 64) as usize) {
                    *word |= 1 << (at % 64);
                }
            }
            self.taken_bytes += count * unit;
        }
    }

    fn place(&self, extent: &Extent) -> Option<(usize, u32, u64, u64)> {
        let layout = &self.maker.layout;
        let segment = layout.segment_of(extent.offset);
        let class = (0..CLASSES).find(|&class| self.classes[class].contains_key(&segment))?;
        let unit = self.unit(class);
        let first = (extent.offset - layout.segment(segment)) / unit;
        Some((class, segment, first, u64::from(extent.len).div_ceil(unit)))
    }

    /// Whether all of these lie in segments of overflow blocks.
    pub fn are_in(&self, extents: &[Extent]) -> bool {
        extents.iter().all(|extent| self.place(extent).is_some())
    }

    /// A record names these: they are taken.
    pub fn mark_named(&mut self, extents: &[Extent]) {
        for extent in extents {
            if let Some((class, segment, first, count)) = self.place(extent) {
                self.mark(class, segment, first, count);
            }
        }
    }

    /// Nobody names these any more. One barrier for each segment that nothing lies in any more.
    pub fn free(&mut self, extents: &[Extent]) -> Result<()> {
        for extent in extents {
            let Some((class, segment, first, count)) = self.place(extent) else { continue };
            let unit = self.unit(class);
            let Some(bits) = self.classes[class].get_mut(&segment) else { continue };
            for at in first..first + count {
                if let Some(word) = bits.get_mut((at / 64) as usize) {
                    *word &= !(1 << (at % 64));
                }
            }
            self.taken_bytes -= count * unit;
            if bits.iter().all(|&word| word == 0) {
                self.classes[class].remove(&segment);
                self.maker.space.release(segment, self.maker.shard)?;
            }
        }
        Ok(())
    }

    /// Gives segments back in which nothing lies. A barrier for each.
    pub fn give_back(&mut self) -> Result<()> {
        for class in &mut self.classes {
            let empty: Vec<u32> = class
                .iter()
                .filter(|(_, bits)| bits.iter().all(|&word| word == 0))
                .map(|(segment, _)| *segment)
                .collect();
            for segment in empty {
                class.remove(&segment);
                self.maker.space.release(segment, self.maker.shard)?;
            }
        }
        Ok(())
    }
}

/// Bytes of a unit of a class in segments of `segment` bytes.
pub(crate) fn unit_bytes(segment: u64, class: usize) -> u64 {
    match class {
        0 => (segment >> 10).max(256),
        1 => (segment >> 7).max(512),
        2 => (segment >> 5).max(1024),
        _ => segment,
    }
}

/// The first run of `wanted` units of `units` that are not taken.
fn run(bits: &[u64], units: u64, wanted: u64) -> Option<u64> {
    let (mut first, mut found) = (0, 0);
    for at in 0..units {
        let word = bits.get((at / 64) as usize).copied().unwrap_or(u64::MAX);
        if at % 64 == 0 && word == u64::MAX {
            found = 0;
            first = at + 64;
            continue;
        }
        if word & 1 << (at % 64) != 0 {
            (found, first) = (0, at + 1);
            continue;
        }
        if at < first {
            continue;
        }
        found += 1;
        if found == wanted {
            return Some(first);
        }
    }
    None
}
