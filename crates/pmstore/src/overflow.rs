//! Overflow blocks: where the long part of a value lies, once, for the log record and the storage record both.
//!
//! A value takes runs of units in segments of one of four classes, of 2 KiB, 16 KiB, 64 KiB and a whole segment where
//! segments have 2 MiB. What is taken is known in memory only, and of each run the block of the record that names it, by
//! which a segment is emptied ([`crate::long_emptying`]): recovery marks what records name.
//!
//! Invariants:
//! 1. Units are given out once, until they are freed.
//! 2. They are freed when the record that names them counts no more, whatever a crash takes.
//! 3. A run that a record of a block names says which block it is; one that is to be freed, and one whose record is not
//!    written yet, say so.

mod class;
mod moves;

use self::class::Class;
pub(crate) use self::moves::Sought;
use self::moves::{Moves, Search};
use crate::blocks::Maker;
use crate::format::{Entry, Extent, SegmentKind};
use std::collections::BTreeSet;
use tierstone_base::{Error, ErrorKind, Result};

/// Classes of units.
const CLASSES: usize = 4;
/// Units of the two small classes that a run may have: the next class has units of about so many.
const RUN_UNITS: u64 = 8;

/// No run begins at the unit.
const NO_RUN: u32 = u32::MAX;
/// The record that names the run is not written yet.
const UNNAMED: u32 = u32::MAX - 1;
/// The record that named the run counts no more: it will be free.
const GOING: u32 = u32::MAX - 2;

/// The overflow blocks of one shard.
#[derive(Debug)]
pub(crate) struct OverflowBlocks {
    maker: Maker,
    /// Of each class its segments.
    classes: [Class; CLASSES],
    /// Bytes of units that are taken.
    taken_bytes: u64,
    /// The segment that is being emptied: nothing is put there.
    moves: Option<Moves>,
    /// Runs that were taken or freed, ever.
    changes: u64,
    /// The search for one.
    search: Option<Search>,
    /// Nothing could be emptied after so many changes, of segments that were so full in percent.
    tried: Option<(u64, u64)>,
    /// Segments that could not be emptied.
    barred: BTreeSet<u32>,
}

impl OverflowBlocks {
    pub fn new(maker: Maker) -> Self {
        let segment = maker.layout.geometry.segment_bytes;
        OverflowBlocks {
            maker,
            classes: std::array::from_fn(|class| Class::new(segment / unit_bytes(segment, class))),
            taken_bytes: 0,
            moves: None,
            search: None,
            changes: 0,
            tried: None,
            barred: BTreeSet::new(),
        }
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
        let wanted = bytes.div_ceil(self.unit(class));
        let (segment, first) = match self.room(class, wanted, 0) {
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
        let offset = self.maker.layout.segment(segment) + first * self.unit(class);
        self.mark(class, segment, first, wanted);
        Some(offset)
    }

    /// The first run of `wanted` free units in the segments from `from` on, that which is being emptied left out.
    fn room(&mut self, class: usize, wanted: u64, from: u32) -> Option<(u32, u64)> {
        let emptying = self.emptying();
        self.classes[class].room(wanted, from, emptying)
    }

    /// Takes in a segment of which nothing is known to be taken.
    pub fn adopt(&mut self, segment: u32, class: u8) {
        self.classes[usize::from(class) % CLASSES].insert(segment);
    }

    fn mark(&mut self, class: usize, segment: u32, first: u64, count: u64) {
        let unit = self.unit(class);
        if self.classes[class].set_run(segment, first, count, true).is_some() {
            self.taken_bytes += count * unit;
            self.changes += 1;
        }
    }

    /// Class, segment, first unit and units of a run. `None`: no run of the segment's class lies there.
    fn place(&self, extent: &Extent) -> Option<(usize, u32, u64, u64)> {
        let layout = &self.maker.layout;
        let segment = layout.segment_of(extent.offset);
        let class = (0..CLASSES).find(|&class| self.classes[class].has(segment))?;
        let unit = self.unit(class);
        let at = extent.offset - layout.segment(segment);
        let (first, count) = (at / unit, u64::from(extent.len).div_ceil(unit));
        (at.is_multiple_of(unit) && first + count <= self.units(class))
            .then_some((class, segment, first, count))
    }

    /// The units of runs, by segment and number.
    pub fn units_of(&self, extents: &[Extent]) -> Vec<(u32, u64)> {
        let places = extents.iter().filter_map(|extent| self.place(extent));
        places
            .flat_map(|(_, segment, first, count)| (first..first + count).map(move |at| (segment, at)))
            .collect()
    }

    /// Whether a unit of these runs is taken.
    pub fn are_taken(&self, extents: &[Extent]) -> bool {
        extents.iter().filter_map(|extent| self.place(extent)).any(|(class, segment, first, count)| {
            let own = self.classes[class].get(segment);
            own.is_some_and(|own| (first..first + count).any(|at| own.is_taken(at)))
        })
    }

    /// Nothing is known to be taken any more.
    pub fn unmark(&mut self) {
        self.classes.iter_mut().for_each(Class::clear);
        self.taken_bytes = 0;
    }

    /// Whether all of these lie in segments of overflow blocks.
    pub fn are_in(&self, extents: &[Extent]) -> bool {
        extents.iter().all(|extent| self.place(extent).is_some())
    }

    /// A record that recovery found in `block` names these: they are taken.
    pub fn mark_named(&mut self, extents: &[Extent], block: u32) {
        for extent in extents {
            if let Some((class, segment, first, count)) = self.place(extent) {
                self.mark(class, segment, first, count);
            }
        }
        self.name(extents, block);
    }

    /// A record of `block` names these from now on.
    pub fn name(&mut self, extents: &[Extent], block: u32) {
        for extent in extents {
            let Some((class, segment, first, _)) = self.place(extent) else { continue };
            self.classes[class].name(segment, first, block);
        }
    }

    /// The record that names these counts no more: they will be freed.
    pub fn note_going(&mut self, extents: &[Extent]) {
        self.name(extents, GOING);
    }

    /// Nobody names these any more. One barrier for each segment that nothing lies in any more.
    pub fn free(&mut self, extents: &[Extent]) -> Result<()> {
        for extent in extents {
            let Some((class, segment, first, count)) = self.place(extent) else { continue };
            let unit = self.unit(class);
            let Some(taken) = self.classes[class].set_run(segment, first, count, false) else { continue };
            // All of the run: what is freed twice is noticed here.
            self.taken_bytes -= count * unit;
            self.changes += 1;
            if taken == 0 {
                self.release(class, segment)?;
            }
        }
        Ok(())
    }

    /// Gives a segment back in which nothing lies. A barrier.
    fn release(&mut self, class: usize, segment: u32) -> Result<()> {
        self.classes[class].remove(segment);
        self.barred.remove(&segment);
        self.maker.space.release(segment, self.maker.shard)?;
        match self.emptying() == Some(segment) {
            true => self.end_emptying(),
            false => Ok(()),
        }
    }

    /// Gives segments back in which nothing lies. A barrier for each.
    pub fn give_back(&mut self) -> Result<()> {
        for class in 0..CLASSES {
            let empty = self.classes[class].iter().filter(|(_, own)| own.taken == 0);
            let empty: Vec<u32> = empty.map(|(segment, _)| segment).collect();
            for segment in empty {
                self.release(class, segment)?;
            }
        }
        Ok(())
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        let of = |class: usize| {
            let units = self.units(class);
            (units.div_ceil(64) * 8 + units * 4) * self.classes[class].len() as u64
        };
        (0..CLASSES).map(of).sum()
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
