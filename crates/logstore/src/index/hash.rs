//! The hash index: from positions to values in about 8.5 bytes a key.
//!
//! Positions are cut by a radix trie ([`directory`](super::directory)) into regions of up to 448
//! entries ([`region`](super::region)) in 64-byte buckets ([`bucket`](super::bucket)). A region
//! grows by one page of four buckets and splits in two when it has 14; each step moves the entries
//! of one region only.
//!
//! An entry knows 20 bits of its position (18 in the wide layout) beyond its region's prefix when it is inserted; about 5
//! of them choose the bucket and 15 tell neighbours apart (14 in the largest regions). Each split
//! costs an entry one of them; [`HashIndex::replace`] and [`HashIndex::refresh`] bring them back.
//! An entry knows how many it has, so a lookup compares what is known and misses nothing.
//!
//! Invariants:
//! 1. A lookup finds every entry inserted under its position and not removed.
//! 2. Buckets and stash together hold exactly `len` entries.
//! 3. `replace`, `remove` and `refresh` succeed whatever the memory limit.
//! 4. [`HashIndex::memory_bytes`] stays within the limit.

use super::arena::PageArena;
use super::bucket::{BUCKET_ENTRIES, Entry, EntryLayout, KNOWN_BITS_MAX};
use super::directory::Directory;
use super::region::{Region, RegionTable, region_limit};
use super::stash::Stash;
use super::value::{Candidates, HashIndexSettings, IndexFull, IndexValue};
use tierstone_base::Position;
use tierstone_base::prefetch::prefetch_read;

/// Where [`HashIndex::locate_in`] has found an entry.
#[derive(Clone, Copy, Debug)]
pub struct Spot {
    position: Position,
    epoch: u64,
    entry: Entry,
    page: u32,
    /// In the page.
    place: u32,
}

impl Spot {
    /// What it was located for.
    #[inline]
    pub fn position(&self) -> Position {
        self.position
    }

    /// The value that lay there.
    #[inline]
    pub fn value(&self) -> IndexValue {
        self.entry.value()
    }
}

/// See the [module](self).
pub struct HashIndex {
    pub(super) settings: HashIndexSettings,
    pub(super) directory: Directory,
    pub(super) regions: RegionTable,
    pub(super) arena: PageArena,
    pub(super) stash: Stash,
    pub(super) bucketed: u64,
    /// Entries in buckets that know fewer bits than a fresh one.
    pub(super) stale: u64,
    /// Regions by `lost_bits`.
    pub(super) lost_histogram: [u32; KNOWN_BITS_MAX as usize + 1],
    /// Room for the entries of a region that is rebuilt, so that no rebuild allocates.
    pub(super) scratch: Vec<Entry>,
}

impl HashIndex {
    /// An empty index. Takes about 100 KiB with its first key.
    pub fn new(settings: HashIndexSettings) -> Self {
        let mut regions = RegionTable::default();
        let root = regions.add(Region::new(0));
        let mut lost_histogram = [0; KNOWN_BITS_MAX as usize + 1];
        lost_histogram[0] = 1;
        HashIndex {
            settings,
            directory: Directory::new(root),
            regions,
            arena: PageArena::new(settings.layout),
            stash: Stash::default(),
            bucketed: 0,
            stale: 0,
            lost_histogram,
            scratch: Vec::new(),
        }
    }

    /// Entries in the index.
    pub fn len(&self) -> u64 {
        self.bucketed + self.stash.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory taken: buckets (free ones too), heads of regions, directory, stash.
    pub fn memory_bytes(&self) -> u64 {
        self.arena.bytes() + self.regions.bytes() + self.directory.bytes() + self.stash.bytes()
    }

    /// Of these, bytes of buckets that no region uses: the index takes no more memory while it has them.
    pub fn free_bytes(&self) -> u64 {
        (self.arena.free_pages() * size_of::<super::arena::Page>()) as u64
    }

    /// The limit that was set.
    pub fn settings(&self) -> HashIndexSettings {
        self.settings
    }

    /// Sets another memory limit. Below what is in use it frees nothing; it stops growth.
    pub fn set_memory_limit_bytes(&mut self, memory_limit_bytes: u64) {
        self.settings.memory_limit_bytes = memory_limit_bytes;
    }

    /// How its entries are cut.
    pub fn layout(&self) -> EntryLayout {
        self.arena.layout()
    }

    /// An entry of `region` that knows its whole `position`.
    fn fresh(&self, position: Position, region: &Region, value: IndexValue) -> Entry {
        let layout = self.layout();
        Entry::new(layout, layout.fresh_tag(position, region.prefix_bits()), value)
    }

    fn region(&self, position: Position) -> &Region {
        self.regions.get(self.directory.find(position))
    }

    /// Shows the values that fit `position` until `visit` answers true; whether it did.
    #[inline]
    fn visit(&self, position: Position, mut visit: impl FnMut(IndexValue) -> bool) -> bool {
        let region = self.region(position);
        region.find(&self.arena, position, |_, entry| visit(entry.value()))
            || (region.is_stashed(position) && self.stash.fitting(position).any(visit))
    }

    /// Puts the values of all entries that may belong to `position` into `out`, which is cleared.
    ///
    /// Cost: the cache lines of directory, region and one bucket, the next bucket too for about
    /// two keys in five.
    pub fn candidates(&self, position: Position, out: &mut Candidates) {
        out.clear();
        self.visit(position, |value| {
            out.push(value);
            false
        });
    }

    /// The first of [`HashIndex::candidates`], which is nearly always the only one. When it turns
    /// out to be another key's, ask for `candidates` and go on after the first.
    pub fn first_candidate(&self, position: Position) -> Option<IndexValue> {
        let mut first = None;
        self.visit(position, |value| {
            first = Some(value);
            true
        });
        first
    }

    /// Asks for the head of the region of `position` and names the region, until the next change of the index.
    #[inline]
    pub fn prefetch_head(&self, position: Position) -> u32 {
        let id = self.directory.find(position);
        prefetch_read(self.regions.get(id));
        id
    }

    /// As [`HashIndex::prefetch`] for a position whose region is `id`.
    #[inline]
    pub fn prefetch_in(&self, id: u32, position: Position) {
        let region = self.regions.get(id);
        if region.bucket_count() > 0 {
            let home = region.home(position);
            prefetch_read(region.bucket(&self.arena, home));
            prefetch_read(region.bucket(&self.arena, region.next(home)));
        }
    }

    /// The same as [`HashIndex::first_candidate`] for a position whose region is `id`, and where it lies, so that it can be
    /// had again without a search. Of the stash nothing is told.
    #[inline]
    pub fn locate_in(&self, id: u32, position: Position) -> Option<Spot> {
        let region = self.regions.get(id);
        let mut spot = None;
        region.find(&self.arena, position, |(bucket, place), entry| {
            let (page, bucket) = region.page_of(bucket);
            let place = (bucket * BUCKET_ENTRIES + place) as u32;
            spot = Some(Spot { position, epoch: self.arena.epoch(), entry, page, place });
            true
        });
        spot
    }

    /// The candidate of the spot's position that was located there, if it still is; nothing is said of others. Any
    /// spot of any index may be asked for. Cost: the line of the bucket.
    #[inline]
    pub fn value_at(&self, spot: &Spot) -> Option<IndexValue> {
        let (bucket, place) = (spot.place as usize / BUCKET_ENTRIES, spot.place as usize % BUCKET_ENTRIES);
        // In the same epoch the page is the region's, and the region has its prefix: the entry fits.
        let is_there =
            spot.epoch == self.arena.epoch() && self.arena.page(spot.page)[bucket].holds(place, spot.entry);
        is_there.then(|| spot.entry.value())
    }

    /// Whether there is an entry that fits `position` and holds `value`.
    pub fn contains(&self, position: Position, value: IndexValue) -> bool {
        self.visit(position, |found| found == value)
    }

    /// Asks for the head of the region of `position`, which [`HashIndex::prefetch`] reads.
    pub fn prefetch_region(&self, position: Position) {
        self.prefetch_head(position);
    }

    /// Asks for the buckets that a lookup of `position` will touch. For batches: prefetch all, then look up
    /// all.
    pub fn prefetch(&self, position: Position) {
        self.prefetch_in(self.directory.find(position), position);
    }

    /// Adds an entry. Never replaces one: several may have the same position and value.
    ///
    /// Cost: one or two cache misses; for one insert in thirty a region is rebuilt besides (2 to
    /// 8 µs; some 40 µs when 448 entries of one place go to the stash).
    ///
    /// # Errors
    /// [`IndexFull`] when the memory limit does not allow the growth that the entry needs; nothing
    /// has changed then.
    pub fn insert(&mut self, position: Position, value: IndexValue) -> Result<(), IndexFull> {
        loop {
            let id = self.directory.find(position);
            let region = self.regions.get_mut(id);
            if region.len() < region_limit(region.page_count()) {
                let layout = self.arena.layout();
                let tag = layout.fresh_tag(position, region.prefix_bits());
                region.add(&mut self.arena, Entry::new(layout, tag, value));
                self.bucketed += 1;
                return Ok(());
            }
            if !self.grow(id, position)? {
                return self.insert_into_stash(id, position, value);
            }
        }
    }

    /// For an entry whose region is full of entries that cannot be told from it.
    fn insert_into_stash(&mut self, id: u32, position: Position, value: IndexValue) -> Result<(), IndexFull> {
        self.afford(super::stash::STASH_ENTRY_BYTES)?;
        self.stash.insert(position.0, 64, value);
        let region = self.regions.get_mut(id);
        region.stashed |= region.eighth(position);
        Ok(())
    }

    /// Whether `bytes` more are within the limit.
    pub(super) fn afford(&self, bytes: u64) -> Result<(), IndexFull> {
        let after = self.memory_bytes().saturating_add(bytes);
        if after <= self.settings.memory_limit_bytes { Ok(()) } else { Err(IndexFull) }
    }

    /// Applies `change` to a region and keeps the counts of stale entries.
    pub(super) fn change<T>(&mut self, id: u32, change: impl FnOnce(&mut Region, &mut PageArena) -> T) -> T {
        let region = self.regions.get_mut(id);
        let (stale, lost) = (region.stale_count, region.lost_bits);
        let result = change(region, &mut self.arena);
        self.stale = self.stale - u64::from(stale) + u64::from(region.stale_count);
        self.lost_histogram[usize::from(lost)] -= 1;
        self.lost_histogram[usize::from(region.lost_bits)] += 1;
        result
    }

    /// Gives the entry that fits `position` and holds `from` the value `to`; whether there was
    /// one. The entry then knows its position afresh, so `from` must have been checked to be
    /// `position`'s. Needs no memory.
    pub fn replace(&mut self, position: Position, from: IndexValue, to: IndexValue) -> bool {
        let id = self.directory.find(position);
        let region = self.regions.get(id);
        if let Some((place, old)) = region.place_of(&self.arena, position, from) {
            let fresh = self.fresh(position, region, to);
            self.change(id, |region, arena| region.overwrite(arena, place, old, fresh));
            return true;
        }
        region.is_stashed(position) && self.stash.replace(position, from, to)
    }

    /// Removes one entry that fits `position` and holds `value`; whether there was one. Needs no
    /// memory; gives some back when a region becomes too empty (a few µs then).
    pub fn remove(&mut self, position: Position, value: IndexValue) -> bool {
        let id = self.directory.find(position);
        let region = self.regions.get(id);
        if let Some((place, old)) = region.place_of(&self.arena, position, value) {
            self.change(id, |region, arena| region.remove(arena, place, old));
            self.bucketed -= 1;
            self.shrink(id, position);
            return true;
        }
        region.is_stashed(position) && self.stash.remove(position, value)
    }

    /// The caller has read in a segment's summary that `value` belongs to the whole `position`:
    /// the entry learns the bits that it lost. Does nothing when there is no such entry, or when
    /// it knows them. May be called for any entries, in any order, at any time. Cost: a lookup.
    pub fn refresh(&mut self, position: Position, value: IndexValue) {
        let id = self.directory.find(position);
        let region = self.regions.get(id);
        if region.stale_count > 0 {
            let mut found = None;
            region.find(&self.arena, position, |place, entry| {
                let hit = entry.value() == value && entry.lost_bits() > 0;
                found = hit.then_some((place, entry));
                hit
            });
            if let Some((place, old)) = found {
                let fresh = self.fresh(position, region, value);
                self.change(id, |region, arena| region.overwrite(arena, place, old, fresh));
                return;
            }
        }
        if self.regions.get(id).is_stashed(position)
            && self.stash.remove_stale(position, value)
            && self.insert(position, value).is_err()
        {
            // Its bucket has no room within the limit: stay in the stash, with all bits known.
            self.stash.insert(position.0, 64, value);
            let id = self.directory.find(position);
            let region = self.regions.get_mut(id);
            region.stashed |= region.eighth(position);
        }
    }

    /// The most bits that an entry lacks: 0 to those that a fresh one knows. Above about 8, false candidates begin to show,
    /// and the caller should feed [`HashIndex::refresh`] from the summaries. An upper bound: it
    /// falls when the last stale entry of a region is gone or refreshed. Cost: none to speak of.
    pub fn stale_tag_bits(&self) -> u32 {
        if self.stash.has_stale() {
            return self.layout().known_bits();
        }
        self.lost_histogram.iter().rposition(|&regions| regions > 0).unwrap_or(0) as u32
    }

    /// Entries that know less of their position than a fresh one.
    pub fn stale_entries(&self) -> u64 {
        self.stale + self.stash.stale_len()
    }
}

#[cfg(test)]
#[path = "hash_test.rs"]
mod hash_test;
