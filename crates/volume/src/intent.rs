//! Which regions of a mirrored volume may differ between members: the answer to a crash in the middle
//! of a write that one member has and the other has not.
//!
//! One block with a bit a region, in two slots that take turns on each member. Opening after a crash
//! copies the regions named there from one member to the others, before anything is read.
//!
//! Invariants:
//! 1. A region's bit is durable on every member in sync before a write to it is sent to any.
//! 2. A bit is cleared only when every write to its region is durable on all of them.

use std::collections::BTreeMap;
use tierstone_base::checksum::{checksum, salt};
use tierstone_base::codec::Reader;
use tierstone_media::{BLOCK_BYTES, IoBuffer};

/// Most regions of a volume.
pub(crate) const REGIONS_MAX: u64 = (BITMAP_BYTES * 8) as u64;
const BITMAP_BYTES: usize = 3840;
const MAGIC: &[u8; 8] = b"TIERINTE";
const SALT: u64 = 0x696e_7465_6e74_7331;
/// Regions at rest that stay marked, so that writes which come back to them need not mark them again.
const KEPT: usize = 16;

#[derive(Clone, Copy, Debug, Default)]
struct Region {
    in_flight: u32,
    /// Writes since, that no flush has covered.
    undurable: bool,
    /// A write failed on every member: nobody knows what they hold.
    stuck: bool,
    /// When it was last written, in writes.
    used: u64,
}

/// The regions that are marked, and why.
#[derive(Debug, Default)]
pub(crate) struct Intents {
    regions: BTreeMap<u64, Region>,
    /// Of the block written last.
    pub sequence: u64,
    writes: u64,
}

impl Intents {
    /// A write to `region` begins; whether the marks must be written first.
    pub(crate) fn begin(&mut self, region: u64) -> bool {
        self.writes += 1;
        let is_new = !self.regions.contains_key(&region);
        let entry = self.regions.entry(region).or_default();
        entry.in_flight += 1;
        entry.used = self.writes;
        if is_new {
            self.forget_some();
        }
        is_new
    }

    /// A write to `region` has ended on all members; `durable` says how, `good` whether any has it.
    pub(crate) fn end(&mut self, region: u64, durable: bool, good: bool) {
        if let Some(entry) = self.regions.get_mut(&region) {
            entry.in_flight = entry.in_flight.saturating_sub(1);
            entry.undurable |= !durable;
            entry.stuck |= !good;
        }
    }

    /// What members hold of `region` is unknown: it stays marked.
    pub(crate) fn keep(&mut self, region: u64) {
        self.regions.entry(region).or_default().stuck = true;
    }

    /// Whether so many regions wait for nothing but a flush that one should be made for them.
    pub(crate) fn wants_flush(&self) -> bool {
        let waits = |region: &&Region| region.in_flight == 0 && region.undurable && !region.stuck;
        self.regions.values().filter(waits).count() > KEPT
    }

    /// The regions whose writes have all ended: what a flush that begins now covers.
    pub(crate) fn settled(&self) -> Vec<(u64, u64)> {
        let ended = |(_, region): &(&u64, &Region)| region.in_flight == 0;
        self.regions.iter().filter(ended).map(|(&at, region)| (at, region.used)).collect()
    }

    /// A flush that began when `covered` was settled has ended on all members.
    pub(crate) fn flushed(&mut self, covered: &[(u64, u64)]) {
        for (at, used) in covered {
            if let Some(region) = self.regions.get_mut(at)
                && region.used == *used
            {
                region.undurable = false;
            }
        }
    }

    /// Clears what is durable, but for the regions used last.
    fn forget_some(&mut self) {
        let mut at_rest: Vec<(u64, u64)> = self.at_rest().collect();
        at_rest.sort_unstable();
        let spare = at_rest.len().saturating_sub(KEPT);
        for (_, region) in &at_rest[..spare] {
            self.regions.remove(region);
        }
    }

    fn at_rest(&self) -> impl Iterator<Item = (u64, u64)> {
        let rests = |region: &Region| region.in_flight == 0 && !region.undurable && !region.stuck;
        self.regions.iter().filter(move |(_, region)| rests(region)).map(|(&at, region)| (region.used, at))
    }

    /// Clears everything that is durable.
    pub(crate) fn forget_all(&mut self) {
        let at_rest: Vec<u64> = self.at_rest().map(|(_, at)| at).collect();
        for region in at_rest {
            self.regions.remove(&region);
        }
    }

    /// The next block to write.
    pub(crate) fn encode(&mut self, volume: u128) -> IoBuffer {
        self.sequence += 1;
        let mut block = IoBuffer::zeroed(BLOCK_BYTES);
        block[..8].copy_from_slice(MAGIC);
        block[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        for region in self.regions.keys() {
            block[64 + (region / 8) as usize] |= 1 << (region % 8);
        }
        let sum = checksum(salt(SALT ^ volume as u64, self.sequence), &block[..BLOCK_BYTES - 8]);
        block[BLOCK_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
        block
    }

    /// The newer whole block of a member's two slots: its sequence, which slot, and the regions it names.
    pub(crate) fn decode(volume: u128, slots: &[u8]) -> Option<(u64, usize, Vec<u64>)> {
        let newest = slots.chunks_exact(BLOCK_BYTES).enumerate().filter_map(|(slot, block)| {
            let mut reader = Reader::new(block);
            let magic = reader.bytes(8)?;
            let sequence = reader.u64()?;
            let sum = Reader::new(&block[BLOCK_BYTES - 8..]).u64()?;
            let is_whole = checksum(salt(SALT ^ volume as u64, sequence), &block[..BLOCK_BYTES - 8]) == sum;
            (magic == MAGIC && is_whole).then_some((sequence, slot, block))
        });
        let (sequence, slot, block) = newest.max_by_key(|(sequence, ..)| *sequence)?;
        let marked = |region: &u64| block[64 + (region / 8) as usize] & (1 << (region % 8)) != 0;
        Some((sequence, slot, (0..REGIONS_MAX).filter(marked).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_come_back_from_the_newer_slot_and_torn_ones_do_not_count() {
        let mut intents = Intents::default();
        assert!(intents.begin(3) && intents.begin(9) && !intents.begin(3));
        let mut slots = vec![0; 2 * BLOCK_BYTES];
        for at in [BLOCK_BYTES, 0] {
            let block = intents.encode(7);
            slots[at..at + BLOCK_BYTES].copy_from_slice(&block);
            intents.begin(100);
        }
        assert_eq!(Intents::decode(7, &slots), Some((2, 0, vec![3, 9, 100])));
        assert_eq!(Intents::decode(8, &slots), None, "of another volume");
        slots[300] ^= 1;
        assert_eq!(Intents::decode(7, &slots), Some((1, 1, vec![3, 9])));
    }

    #[test]
    fn a_mark_goes_only_when_its_writes_are_durable() {
        let mut intents = Intents::default();
        intents.begin(1);
        intents.end(1, false, true);
        intents.forget_all();
        assert!(!intents.begin(1), "not flushed yet");
        let covered = intents.settled();
        intents.end(1, false, true);
        intents.flushed(&covered);
        intents.forget_all();
        assert!(!intents.begin(1), "written after the flush began");
        intents.end(1, true, true);
        intents.flushed(&intents.settled());
        intents.forget_all();
        assert!(intents.begin(1));
        intents.end(1, true, false);
        intents.forget_all();
        assert!(!intents.begin(1), "what a failed write left is unknown");
    }

    #[test]
    fn a_flush_is_wanted_for_many_regions_that_wait_for_nothing_else() {
        let mut intents = Intents::default();
        for region in 0..KEPT as u64 + 1 {
            assert!(!intents.wants_flush(), "{region}");
            intents.begin(region);
            intents.end(region, false, true);
        }
        assert!(intents.wants_flush());
        intents.keep(3);
        assert!(!intents.wants_flush(), "a flush would not help that one");
        intents.flushed(&intents.settled());
        intents.begin(100);
        assert!(!intents.wants_flush() && intents.regions.len() <= KEPT + 2);
    }

    #[test]
    fn old_marks_go_when_there_are_many() {
        let mut intents = Intents::default();
        for region in 0..100 {
            intents.begin(region);
            intents.end(region, true, true);
        }
        assert!(intents.regions.len() <= KEPT + 1, "{}", intents.regions.len());
        assert!(!intents.begin(99) && intents.begin(5));
    }
}
