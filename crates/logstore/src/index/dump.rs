//! The index as bytes, for checkpoints, and back.
//!
//! A dump is a run of records, one a region, little-endian; of which layout its entries are is said elsewhere:
//!
//! | bytes | what |
//! |---|---|
//! | 8 | first position of the region |
//! | 1 | bits of its prefix, 0 to 44; 46 in the wide layout |
//! | 1 | 1 when an earlier record may hold some of these entries too, else 0 |
//! | 2 | entries in buckets |
//! | 4 | entries of the stash that start in the region |
//! | 7 each | entries: value in the low 35 bits (37), tag in the upper 21 (19) ([`bucket`](super::bucket)) |
//! | 14 each | stash: known position (8), known bits (1), value (5) |
//!
//! The bytes carry no checksum: the checkpoint around them does. Still every field is checked when
//! it is read, and no bytes make [`HashIndex::load`] panic or take more memory than the limit.
//!
//! Invariants:
//! 1. Every entry that exists from the first call of a dump to its last is in the dump, with the
//!    bits that it knew then.
//! 2. Loading what one dump wrote never makes two entries of one.

use super::bucket::{Entry, EntryLayout, HOME_BITS};
use super::hash::HashIndex;
use super::region::{REGION_ENTRIES, pages_for, region_limit};
use super::stash::{StashEntry, last_of, prefix};
use super::value::{IndexFull, IndexValue, ScanProgress};
use tierstone_base::codec::Reader;
use tierstone_base::{Error, ErrorKind, Position, Result};

/// Bytes of a record before its entries.
const HEAD_BYTES: usize = 16;

/// Empty regions that one step of a dump passes at most.
const STEP_VISITS: usize = 4096;
/// Regions in which a load looks for a second copy of an entry. One suffices unless an entry lost
/// dozens of bits while the dump was taken.
const DUPLICATE_REGIONS: usize = 64;

/// What a dump writes instead of the values.
pub trait MapValues {
    /// `value` will be asked for soon: a chance to have memory on its way.
    fn announce(&mut self, value: IndexValue);

    /// What is written for `value`.
    fn map(&mut self, value: IndexValue) -> IndexValue;
}

struct Unmapped;

impl MapValues for Unmapped {
    fn announce(&mut self, _: IndexValue) {}

    fn map(&mut self, value: IndexValue) -> IndexValue {
        value
    }
}

/// A record of a dump as read.
#[derive(Default)]
struct Record {
    start: u64,
    prefix_bits: u32,
    partial: bool,
    entries: Vec<Entry>,
    stash: Vec<StashEntry>,
}

impl Record {
    /// The same for an index of `layout`, which has room for the values.
    fn cut(&mut self, layout: EntryLayout) -> Result<()> {
        if self.prefix_bits > layout.prefix_bits_max() {
            return Err(damaged("a region is too narrow for this index"));
        }
        for entry in &mut self.entries {
            *entry = entry.cut(layout);
            if entry.known_bits() < HOME_BITS {
                return Err(damaged("an entry knows too little of its position for this index"));
            }
        }
        Ok(())
    }
}

fn damaged(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("index checkpoint: {what}"))
}

impl HashIndex {
    /// Appends regions from `cursor` on to `out` until it has grown by `max_bytes` or more (at
    /// least one region), and answers where to go on; start with position 0. The index may change
    /// between the calls.
    pub fn dump_from(&self, cursor: Position, max_bytes: usize, out: &mut Vec<u8>) -> ScanProgress {
        self.dump(cursor, max_bytes, out, &mut Unmapped).0
    }

    /// As [`HashIndex::dump_from`], with every value as `map` gives it, for a caller that must know of
    /// each entry which step has it: each appends exactly the entries of the positions from `cursor` up
    /// to where the next one goes on. `None` when an entry knows too little of its position for that,
    /// which takes many splits or merges in a row; `out` is of no use then.
    pub fn dump_exactly(
        &self,
        cursor: Position,
        max_bytes: usize,
        out: &mut Vec<u8>,
        map: &mut impl MapValues,
    ) -> Option<ScanProgress> {
        if self.stash.has_stale() {
            return None;
        }
        let (progress, exact) = self.dump(cursor, max_bytes, out, map);
        exact.then_some(progress)
    }

    fn dump(
        &self,
        cursor: Position,
        max_bytes: usize,
        out: &mut Vec<u8>,
        map: &mut impl MapValues,
    ) -> (ScanProgress, bool) {
        let enough = out.len().saturating_add(max_bytes);
        let mut at = cursor;
        let mut exact = true;
        for _ in 0..STEP_VISITS {
            let region = self.regions.get(self.directory.find(at));
            let last = last_of(region.start(at), region.prefix_bits());
            exact &= self.dump_region(at, at == cursor, out, map);
            let Some(after) = last.checked_add(1) else { return (ScanProgress::End, exact) };
            at = Position(after);
            if out.len() >= enough {
                break;
            }
        }
        (ScanProgress::Next(at), exact)
    }

    /// Appends what the region of `at` holds from `at` on. `first`: what may lie on both sides of
    /// `at` too, since the steps before may have missed it. Whether it is certain of all entries that
    /// they lie at or after `at`.
    fn dump_region(&self, at: Position, first: bool, out: &mut Vec<u8>, map: &mut impl MapValues) -> bool {
        let mut exact = true;
        let region = self.regions.get(self.directory.find(at));
        let (start, prefix_bits) = (region.start(at), region.prefix_bits());
        let mut stash = Vec::new();
        if region.stashed != 0 {
            if first {
                stash.extend(self.stash.straddling(at.0));
            }
            stash.extend(self.stash.starting_in(at.0, last_of(start, prefix_bits)));
        }
        let head = out.len();
        out.extend(start.to_le_bytes());
        out.extend([region.prefix_bits, u8::from(start < at.0)]);
        out.extend([0; 6]);
        let mut count = 0u16;
        region.for_each(&self.arena, |entry| map.announce(entry.value()));
        region.for_each(&self.arena, |entry| {
            let known = prefix_bits + entry.known_bits();
            let first = entry.first_position(start, prefix_bits);
            if last_of(first, known) >= at.0 {
                exact &= first >= at.0;
                let mapped = entry.with_value(map.map(entry.value()));
                out.extend(&mapped.word().to_le_bytes()[..7]);
                count += 1;
            }
        });
        if count == 0 && stash.is_empty() {
            out.truncate(head);
            return exact;
        }
        out[head + 10..head + 12].copy_from_slice(&count.to_le_bytes());
        out[head + 12..head + 16].copy_from_slice(&(stash.len() as u32).to_le_bytes());
        for entry in stash {
            out.extend(entry.first.to_le_bytes());
            out.push(entry.known as u8);
            out.extend(&map.map(entry.value).raw().to_le_bytes()[..5]);
        }
        exact
    }

    /// Adds the entries of records that [`HashIndex::dump_from`] wrote, whole records only, to
    /// this index; returns how many. Into an empty index, in order: about 15 ns an entry.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not such records, `NoMemory` when the limit does not allow
    /// them. Entries before the error stay: throw the index away then.
    pub fn load(&mut self, bytes: &[u8]) -> Result<u64> {
        self.load_with(bytes, self.layout(), &mut |_| true)
    }

    /// As [`HashIndex::load`] of what an index of `layout` wrote, and shows every value to `accept`, which takes none that
    /// this index has no room for.
    ///
    /// # Errors
    /// As [`HashIndex::load`]; `Corrupt` too when `accept` answers false.
    pub fn load_with(
        &mut self,
        bytes: &[u8],
        layout: EntryLayout,
        accept: &mut impl FnMut(IndexValue) -> bool,
    ) -> Result<u64> {
        let before = self.len();
        let mut reader = Reader::new(bytes);
        let mut wide = false;
        let mut result = Ok(());
        let mut record = Record::default();
        while result.is_ok() && !reader.rest().is_empty() {
            result = read_record(&mut reader, layout, &mut record).and_then(|()| {
                let stashed = record.stash.iter().map(|entry| entry.value);
                let mut values = record.entries.iter().map(|entry| entry.value()).chain(stashed);
                if !values.all(|value| self.layout().has_room(value) && accept(value)) {
                    return Err(damaged("an entry points to nowhere"));
                }
                record.cut(self.layout())?;
                wide |= self.load_record(&record)?;
                Ok(())
            });
        }
        if wide {
            self.mark_all();
        }
        result.map(|()| self.len() - before)
    }

    /// Whether the stash got an entry that may concern several regions.
    fn load_record(&mut self, record: &Record) -> std::result::Result<bool, IndexFull> {
        let filled = !record.partial
            && !self.stash.overlaps(record.start, record.prefix_bits)
            && self.fill_region(record.start, record.prefix_bits, &record.entries)?;
        let once = record.partial || !self.stash.is_empty();
        let mut wide = false;
        if !filled {
            for entry in &record.entries {
                let first = entry.first_position(record.start, record.prefix_bits);
                let known = record.prefix_bits + entry.known_bits();
                if !(once && self.may_contain(first, known, entry.value())) {
                    wide |= self.insert_known(first, known, entry.value())?;
                }
            }
        }
        for entry in &record.stash {
            if !self.may_contain(entry.first, entry.known, entry.value) {
                wide |= self.insert_known(entry.first, entry.known, entry.value)?;
            }
        }
        Ok(wide)
    }

    /// Whether an entry of `value` exists that may be the one that knows `known` bits of `first`.
    /// Looks into [`DUPLICATE_REGIONS`] regions at most.
    fn may_contain(&self, first: u64, known: u32, value: IndexValue) -> bool {
        if self.stash.may_contain(first, known, value) {
            return true;
        }
        let last = last_of(first, known);
        let mut at = Position(first);
        for _ in 0..DUPLICATE_REGIONS {
            let region = self.regions.get(self.directory.find(at));
            let (start, depth) = (region.start(at), region.prefix_bits());
            let mut found = false;
            let mut compare = |entry: Entry| {
                let both = known.min(depth + entry.known_bits());
                let position = entry.first_position(start, depth);
                found |= entry.value() == value && prefix(position, both) == prefix(first, both);
            };
            if known >= depth + HOME_BITS && region.len() > 0 {
                region.for_each_at_home(&self.arena, region.home(at), &mut compare);
            } else {
                region.for_each(&self.arena, &mut compare);
            }
            let region_last = last_of(start, depth);
            if found || region_last >= last {
                return found;
            }
            at = Position(region_last + 1);
        }
        false
    }

    /// Makes the range of `prefix_bits` at `start` a region of `entries`. False when that range
    /// is not an empty part of one empty region.
    pub(super) fn fill_region(
        &mut self,
        start: u64,
        prefix_bits: u32,
        entries: &[Entry],
    ) -> std::result::Result<bool, IndexFull> {
        let position = Position(start);
        let id = self.directory.find(position);
        let region = self.regions.get(id);
        let depth = region.prefix_bits();
        if region.len() > 0 || region.stashed != 0 || depth > prefix_bits {
            return Ok(false);
        }
        let levels = prefix_bits - depth;
        let pages = pages_for(entries.len());
        let mut bytes = u64::from(levels) * self.directory.split_bytes_max();
        if self.regions.free_regions() < levels as usize {
            bytes += self.regions.next_chunk_bytes();
        }
        if self.arena.free_pages() < pages {
            bytes += self.arena.next_chunk_bytes();
        }
        if bytes > 0 {
            self.afford(bytes)?;
        }
        for depth in depth..prefix_bits {
            self.divide(id, position, depth);
        }
        self.change(id, |region, arena| region.rebuild(arena, pages, entries.iter().copied()));
        self.bucketed += entries.len() as u64;
        Ok(true)
    }

    /// Adds an entry of which the first `known` bits of the position are known. Whether it went
    /// into the stash and may concern several regions, which are not marked yet.
    pub(super) fn insert_known(
        &mut self,
        first: u64,
        known: u32,
        value: IndexValue,
    ) -> std::result::Result<bool, IndexFull> {
        let position = Position(first);
        loop {
            let id = self.directory.find(position);
            let region = self.regions.get(id);
            let depth = region.prefix_bits();
            let placed = known >= depth + HOME_BITS;
            if placed && region.len() < region_limit(region.page_count()) {
                let layout = self.layout();
                let tag = layout.partial_tag(first, known, depth);
                self.change(id, |region, arena| region.add(arena, Entry::new(layout, tag, value)));
                self.bucketed += 1;
                return Ok(false);
            }
            if !placed || !self.grow(id, position)? {
                self.afford(super::stash::STASH_ENTRY_BYTES)?;
                self.stash.insert(first, known, value);
                self.mark_stash(id, prefix(first, depth));
                return Ok(known < depth);
            }
        }
    }

    /// Marks every region that the stash concerns.
    fn mark_all(&mut self) {
        let mut at = Position(0);
        loop {
            let id = self.directory.find(at);
            let region = self.regions.get(id);
            let (start, prefix_bits) = (region.start(at), region.prefix_bits());
            self.mark_stash(id, start);
            match last_of(start, prefix_bits).checked_add(1) {
                Some(next) => at = Position(next),
                None => return,
            }
        }
    }
}

fn read_record(reader: &mut Reader<'_>, layout: EntryLayout, record: &mut Record) -> Result<()> {
    if reader.rest().len() < HEAD_BYTES {
        return Err(damaged("a record is cut off"));
    }
    let (Some(start), Some(prefix_bits), Some(partial), Some(count), Some(stash_count)) =
        (reader.u64(), reader.u8(), reader.u8(), reader.u16(), reader.u32())
    else {
        return Err(damaged("a record is cut off"));
    };
    let prefix_bits = u32::from(prefix_bits);
    if prefix_bits > layout.prefix_bits_max() || prefix(start, prefix_bits) != start {
        return Err(damaged("a region does not start where a region can start"));
    }
    if usize::from(count) > REGION_ENTRIES || partial > 1 {
        return Err(damaged("a region holds more than a region can"));
    }
    let bytes = reader.bytes(usize::from(count) * 7).ok_or_else(|| damaged("entries are cut off"))?;
    record.entries.clear();
    for entry in bytes.as_chunks::<7>().0 {
        let mut word = [0u8; 8];
        word[..7].copy_from_slice(entry);
        let entry = Entry::from_word(layout, u64::from_le_bytes(word))
            .filter(|entry| entry.known_bits() >= HOME_BITS)
            .ok_or_else(|| damaged("an entry knows too little of its position"))?;
        record.entries.push(entry);
    }
    (record.start, record.prefix_bits, record.partial) = (start, prefix_bits, partial == 1);
    record.stash = read_stash(reader, stash_count)?;
    Ok(())
}

fn read_stash(reader: &mut Reader<'_>, count: u32) -> Result<Vec<StashEntry>> {
    let bytes = (count as usize)
        .checked_mul(14)
        .and_then(|length| reader.bytes(length))
        .ok_or_else(|| damaged("stashed entries are cut off"))?;
    let mut stash = Vec::with_capacity(count as usize);
    for entry in bytes.as_chunks::<14>().0 {
        let mut reader = Reader::new(entry);
        let (Some(first), Some(known), Some(low), Some(high)) =
            (reader.u64(), reader.u8(), reader.u32(), reader.u8())
        else {
            return Err(damaged("stashed entries are cut off"));
        };
        let (known, value) = (u32::from(known), u64::from(low) | u64::from(high) << 32);
        if known > 64 || prefix(first, known) != first || value > IndexValue::MAX_RAW {
            return Err(damaged("a stashed entry is out of range"));
        }
        stash.push(StashEntry { first, known, value: IndexValue::new(value) });
    }
    Ok(stash)
}
