//! How the hash index grows and shrinks: one region, or two siblings, at a time.
//!
//! Invariants:
//! 1. Each step checks that memory suffices before it changes anything.
//! 2. A step moves the entries of at most two regions: some microseconds.
//! 3. Growing needs another page at a load of 89 %; a page is given back only when the rest would
//!    then be below 93 % of that, and regions merge below 45 % of what splits them: no single
//!    insert and remove in turn make the index reshape for ever.

use super::bucket::{Entry, HOME_BITS, PREFIX_BITS_MAX};
use super::hash::HashIndex;
use super::region::{REGION_ENTRIES, REGION_PAGES, Region, pages_for, region_limit};
use super::stash::STASH_ENTRY_BYTES;
use super::value::IndexFull;
use tierstone_base::Position;

/// Two siblings with at most this many entries become one region.
const MERGE_ENTRIES: usize = REGION_ENTRIES * 45 / 100;
/// A region of more pages does not look at its sibling.
const MERGE_PAGES: usize = pages_for(MERGE_ENTRIES);

/// Pages after which a region of `page_count` pages with `count` entries should be left.
fn shrunk_pages(page_count: usize, count: usize) -> usize {
    let mut pages = page_count;
    while pages > 0 && count <= region_limit(pages - 1) * 93 / 100 {
        pages -= 1;
    }
    pages
}

impl HashIndex {
    /// Makes room in the full region `id` of `position`. False when it is full of entries that
    /// cannot be told from a new one at `position`.
    pub(super) fn grow(&mut self, id: u32, position: Position) -> Result<bool, IndexFull> {
        let page_count = self.regions.get(id).page_count();
        if page_count == REGION_PAGES {
            return self.split(id, position);
        }
        self.reserve_pages(1)?;
        self.gather(id);
        let entries = std::mem::take(&mut self.scratch);
        self.change(id, |region, arena| {
            region.rebuild(arena, page_count + 1, entries.iter().copied());
        });
        self.scratch = entries;
        Ok(true)
    }

    fn reserve_pages(&self, pages: usize) -> Result<(), IndexFull> {
        if self.arena.free_pages() >= pages {
            return Ok(());
        }
        self.afford(self.arena.next_chunk_bytes())
    }

    /// Copies the entries of a region into the scratch.
    fn gather(&mut self, id: u32) {
        self.scratch.clear();
        let region = self.regions.get(id);
        region.for_each(&self.arena, |entry| self.scratch.push(entry));
    }

    /// Levels by which the gathered entries of a region must descend until one of them parts from
    /// `position`; `None` when none ever does.
    fn levels_to_part(&self, query: u64) -> Option<u32> {
        let all = self.scratch.iter().fold(0, |all, entry| all | entry.difference(query));
        (all != 0).then(|| all.leading_zeros() - (64 - self.layout().tag_bits()) + 1)
    }

    /// Splits a region at the first bit in which its entries and `position` differ. Empty regions
    /// take the other side of the bits before.
    fn split(&mut self, id: u32, position: Position) -> Result<bool, IndexFull> {
        let prefix_bits = self.regions.get(id).prefix_bits();
        self.gather(id);
        let Some(levels) = self.levels_to_part(self.layout().fresh_tag(position, prefix_bits)) else {
            return Ok(false);
        };
        if prefix_bits + levels > self.layout().prefix_bits_max() {
            return Ok(false);
        }
        self.afford_split(levels)?;
        let mut siblings = [0; PREFIX_BITS_MAX as usize + 1];
        for depth in prefix_bits..prefix_bits + levels {
            siblings[depth as usize] = self.divide(id, position, depth);
        }
        let depth = prefix_bits + levels - 1;
        self.distribute(id, siblings[depth as usize], position, prefix_bits, levels);
        for depth in prefix_bits..prefix_bits + levels {
            let sibling = siblings[depth as usize];
            self.mark_stash(sibling, across(position, depth + 1));
        }
        self.mark_stash(id, position.0);
        Ok(true)
    }

    fn afford_split(&self, levels: u32) -> Result<(), IndexFull> {
        // Two halves may need two pages more than the whole; the pages of the whole may have been
        // the last of their chunk.
        let chunks = if self.arena.free_pages() >= 2 { 0 } else { self.arena.next_chunk_bytes() };
        let few = self.regions.free_regions() < levels as usize;
        let regions = if few { self.regions.next_chunk_bytes() } else { 0 };
        let stash_entries = self.scratch.iter().filter(|entry| stays_out(**entry, levels)).count();
        self.afford(
            chunks
                + regions
                + stash_entries as u64 * STASH_ENTRY_BYTES
                + u64::from(levels) * self.directory.split_bytes_max(),
        )
    }

    /// Makes `id` the half with `position` and returns a new empty region for the other half.
    pub(super) fn divide(&mut self, id: u32, position: Position, prefix_bits: u32) -> u32 {
        let sibling = self.regions.add(Region::new(prefix_bits + 1));
        self.lost_histogram[0] += 1;
        self.regions.get_mut(id).prefix_bits = prefix_bits as u8 + 1;
        let (lower, upper) = if is_upper(position, prefix_bits + 1) { (sibling, id) } else { (id, sibling) };
        self.directory.split(position, prefix_bits, lower, upper);
        sibling
    }

    /// Deals the gathered entries, which had `prefix_bits`, out to `id`, the side of `position`,
    /// its sibling and the stash.
    fn distribute(&mut self, id: u32, sibling: u32, position: Position, prefix_bits: u32, levels: u32) {
        let entries = std::mem::take(&mut self.scratch);
        let start = super::stash::prefix(position.0, prefix_bits);
        let stashed = entries.iter().filter(|entry| stays_out(**entry, levels)).map(|entry| {
            let known = prefix_bits + entry.known_bits();
            (entry.first_position(start, prefix_bits), known, entry.value())
        });
        let stashed_before = self.stash.len();
        self.stash.insert_all(stashed);
        self.bucketed -= self.stash.len() - stashed_before;
        self.change(id, |region, arena| region.release_pages(arena));
        let upper = is_upper(position, prefix_bits + levels);
        for (id, upper) in [(id, upper), (sibling, !upper)] {
            let side = || {
                entries
                    .iter()
                    .filter(|entry| !stays_out(**entry, levels))
                    .filter(|entry| entry.is_upper(levels) == upper)
                    .map(|entry| entry.descended(levels))
            };
            let pages = pages_for(side().count());
            self.change(id, |region, arena| region.rebuild(arena, pages, side()));
        }
        self.scratch = entries;
    }

    /// Notes which eighths of region `id`, the one of `position`, the stash concerns.
    pub(super) fn mark_stash(&mut self, id: u32, position: u64) {
        let region = self.regions.get_mut(id);
        region.stashed = 0;
        if self.stash.is_empty() {
            return;
        }
        let prefix_bits = region.prefix_bits();
        let start = super::stash::prefix(position, prefix_bits);
        if !self.stash.overlaps(start, prefix_bits) {
            return;
        }
        for eighth in 0..8 {
            let start = start | (eighth << (61 - prefix_bits));
            if self.stash.overlaps(start, prefix_bits + 3) {
                region.stashed |= 1 << eighth;
            }
        }
    }

    /// Gives pages of a region back when it has too many, and joins it with its sibling when both
    /// are small.
    pub(super) fn shrink(&mut self, id: u32, position: Position) {
        let region = self.regions.get(id);
        let pages = shrunk_pages(region.page_count(), region.len());
        if pages == region.page_count() {
            return;
        }
        self.gather(id);
        self.refill(id, pages);
        let mut id = id;
        while let Some(merged) = self.merge(id, position) {
            id = merged;
        }
    }

    /// Moves the gathered entries into fresh pages, the lowest that are free, so that the upper
    /// chunks of the arena drain.
    fn refill(&mut self, id: u32, pages: usize) {
        let entries = std::mem::take(&mut self.scratch);
        self.change(id, |region, arena| {
            region.release_pages(arena);
            region.rebuild(arena, pages, entries.iter().copied());
        });
        self.scratch = entries;
    }

    fn merge(&mut self, id: u32, position: Position) -> Option<u32> {
        let region = *self.regions.get(id);
        let prefix_bits = region.prefix_bits();
        if prefix_bits == 0 || region.page_count() > MERGE_PAGES {
            return None;
        }
        let sibling_id = self.directory.find(Position(across(position, prefix_bits)));
        let sibling = *self.regions.get(sibling_id);
        let count = region.len() + sibling.len();
        if sibling.prefix_bits() != prefix_bits || count > MERGE_ENTRIES {
            return None;
        }
        let upper = is_upper(position, prefix_bits);
        self.scratch.clear();
        for (region, upper) in [(&region, upper), (&sibling, !upper)] {
            region.for_each(&self.arena, |entry| self.scratch.push(entry.ascended(upper)));
        }
        self.change(sibling_id, |region, arena| region.release_pages(arena));
        self.lost_histogram[0] -= 1;
        self.regions.remove(sibling_id);
        self.directory.merge(position, prefix_bits, id);
        let kept = self.regions.get_mut(id);
        kept.prefix_bits -= 1;
        self.refill(id, pages_for(count));
        if region.stashed | sibling.stashed != 0 {
            self.mark_stash(id, position.0);
        }
        Some(id)
    }
}

/// Whether an entry would know too little of its place after `levels` splits.
fn stays_out(entry: Entry, levels: u32) -> bool {
    entry.known_bits() < levels + HOME_BITS
}

/// The position on the other side of bit number `prefix_bits`, counted from one.
fn across(position: Position, prefix_bits: u32) -> u64 {
    position.0 ^ (1 << (64 - prefix_bits))
}

/// Whether bit number `prefix_bits` of `position`, counted from one, is set.
fn is_upper(position: Position, prefix_bits: u32) -> bool {
    (position.0 >> (64 - prefix_bits)) & 1 == 1
}
