//! A region: one aligned power-of-two range of positions and the buckets of its entries.
//!
//! Order of buckets is order of positions. An entry that finds its home bucket full goes to the
//! next one that is not, around the end of the region if need be; it never leaves its region. Its
//! tag tells its home, so that a scan still gives each entry with its home bucket.
//!
//! Invariants:
//! 1. An entry lies in its home bucket, or every bucket from its home up to its place is full and
//!    marked "passed". (Linear probing by buckets, Knuth vol. 3, 6.4; with removal by moving
//!    entries back, so that there are no tombstones.)
//! 2. Every entry knows at least [`HOME_BITS`](super::bucket::HOME_BITS) bits after the prefix.
//! 3. `count` is the number of entries, `stale_count` that of those that know fewer bits than a fresh one,
//!    `lost_bits` at least the most bits that one of them lacks, zero when there is none.

use super::arena::{PAGE_BUCKETS, PageArena};
use super::bucket::{BUCKET_ENTRIES, Bucket, Entry, home_of};
use super::value::IndexValue;
use tierstone_base::Position;
use tierstone_base::prefetch::prefetch_read;

/// Pages of a region at most. Fourteen page numbers and eight more bytes fill one cache line.
pub const REGION_PAGES: usize = 14;
/// Entries of a page.
pub const PAGE_ENTRIES: usize = PAGE_BUCKETS * BUCKET_ENTRIES;
/// Share of the places, in percent, that may be taken before a region grows.
const LOAD_PERCENT: usize = 89;

/// Entries that a region of `pages` pages takes.
pub const fn region_limit(pages: usize) -> usize {
    pages * PAGE_ENTRIES * LOAD_PERCENT / 100
}

/// Entries that a region takes at most.
pub const REGION_ENTRIES: usize = region_limit(REGION_PAGES);

/// Pages for `count` entries.
pub const fn pages_for(count: usize) -> usize {
    let mut pages = 0;
    while region_limit(pages) < count {
        pages += 1;
    }
    pages
}

/// The head of a region; one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct Region {
    pages: [u32; REGION_PAGES],
    pub count: u16,
    pub stale_count: u16,
    page_count: u8,
    pub prefix_bits: u8,
    pub lost_bits: u8,
    /// One bit for each eighth of the range: whether the stash may hold entries of it. So that
    /// one stashed entry does not send every lookup of the region to the stash.
    pub stashed: u8,
}

const _: () = assert!(size_of::<Region>() == 64 && REGION_ENTRIES < u16::MAX as usize);

/// Where an entry lies: bucket of the region, place in the bucket.
pub type Place = (usize, usize);

impl Region {
    pub fn new(prefix_bits: u32) -> Self {
        Region {
            pages: [0; REGION_PAGES],
            count: 0,
            stale_count: 0,
            page_count: 0,
            prefix_bits: prefix_bits as u8,
            lost_bits: 0,
            stashed: 0,
        }
    }

    pub fn prefix_bits(&self) -> u32 {
        u32::from(self.prefix_bits)
    }

    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    pub fn page_count(&self) -> usize {
        usize::from(self.page_count)
    }

    pub fn bucket_count(&self) -> usize {
        self.page_count() * PAGE_BUCKETS
    }

    /// Where the range of the region of `position` starts.
    pub fn start(&self, position: Position) -> u64 {
        super::stash::prefix(position.0, self.prefix_bits())
    }

    #[inline]
    pub fn bucket<'a>(&self, arena: &'a PageArena, bucket: usize) -> &'a Bucket {
        &arena.page(self.pages[bucket / PAGE_BUCKETS])[bucket % PAGE_BUCKETS]
    }

    /// The page of `bucket` and which of its buckets that is.
    pub fn page_of(&self, bucket: usize) -> (u32, usize) {
        (self.pages[bucket / PAGE_BUCKETS], bucket % PAGE_BUCKETS)
    }

    fn bucket_mut<'a>(&self, arena: &'a mut PageArena, bucket: usize) -> &'a mut Bucket {
        &mut arena.page_mut(self.pages[bucket / PAGE_BUCKETS])[bucket % PAGE_BUCKETS]
    }

    /// The bucket after `bucket`, around the end.
    pub fn next(&self, bucket: usize) -> usize {
        if bucket + 1 == self.bucket_count() { 0 } else { bucket + 1 }
    }

    /// The bit of `stashed` that speaks for `position`.
    pub fn eighth(&self, position: Position) -> u8 {
        1 << ((position.0 << self.prefix_bits) >> 61)
    }

    /// Whether the stash may hold entries of `position`.
    pub fn is_stashed(&self, position: Position) -> bool {
        self.stashed & self.eighth(position) != 0
    }

    pub fn home(&self, position: Position) -> usize {
        home_of(position, self.prefix_bits(), self.bucket_count())
    }

    /// Shows each entry whose known bits fit `position` until `visit` answers true; whether it did.
    #[inline]
    pub fn find(
        &self,
        arena: &PageArena,
        position: Position,
        mut visit: impl FnMut(Place, Entry) -> bool,
    ) -> bool {
        let bucket_count = self.bucket_count();
        if bucket_count == 0 {
            return false;
        }
        let layout = arena.layout();
        let query = layout.fresh_tag(position, self.prefix_bits());
        let mut index = self.home(position);
        // Two lookups in five go on to the next bucket: let it come while the first one does.
        prefetch_read(self.bucket(arena, self.next(index)));
        for _ in 0..bucket_count {
            let bucket = self.bucket(arena, index);
            let mut matches = bucket.matches(layout, query);
            while matches != 0 {
                let place = matches.trailing_zeros() as usize;
                if visit((index, place), bucket.get(layout, place)) {
                    return true;
                }
                matches &= matches - 1;
            }
            if !bucket.is_passed() {
                return false;
            }
            index = self.next(index);
        }
        false
    }

    /// The place of the entry that fits `position` and holds `value`.
    pub fn place_of(
        &self,
        arena: &PageArena,
        position: Position,
        value: IndexValue,
    ) -> Option<(Place, Entry)> {
        let mut found = None;
        self.find(arena, position, |place, entry| {
            let hit = entry.value() == value;
            if hit {
                found = Some((place, entry));
            }
            hit
        });
        found
    }

    /// Adds an entry; there is a free place.
    pub fn add(&mut self, arena: &mut PageArena, entry: Entry) {
        let mut index = entry.home(self.bucket_count());
        loop {
            let bucket = self.bucket_mut(arena, index);
            if bucket.push(entry) {
                break;
            }
            bucket.set_passed(true);
            index = self.next(index);
        }
        self.count += 1;
        let lost = entry.lost_bits();
        if lost > 0 {
            self.stale_count += 1;
            self.lost_bits = self.lost_bits.max(lost as u8);
        }
    }

    fn forget_stale(&mut self, entry: Entry) {
        if entry.lost_bits() > 0 {
            self.stale_count -= 1;
            if self.stale_count == 0 {
                self.lost_bits = 0;
            }
        }
    }

    /// Writes a fresh entry of the same position over the one at `place`.
    pub fn overwrite(&mut self, arena: &mut PageArena, place: Place, old: Entry, fresh: Entry) {
        self.forget_stale(old);
        self.bucket_mut(arena, place.0).set(place.1, fresh);
    }

    /// Takes the entry at `place` out.
    pub fn remove(&mut self, arena: &mut PageArena, place: Place, old: Entry) {
        self.forget_stale(old);
        self.count -= 1;
        self.bucket_mut(arena, place.0).swap_remove(place.1);
        self.fill_hole(arena, place.0);
    }

    /// Moves entries back over a freed place until no chain runs across a bucket with room.
    fn fill_hole(&self, arena: &mut PageArena, mut hole: usize) {
        while self.bucket(arena, hole).is_passed() {
            let Some((index, place)) = self.find_displaced(arena, hole) else {
                self.bucket_mut(arena, hole).set_passed(false);
                return;
            };
            let entry = self.bucket(arena, index).get(arena.layout(), place);
            let moved = self.bucket_mut(arena, hole).push(entry);
            debug_assert!(moved, "the hole has room");
            self.bucket_mut(arena, index).swap_remove(place);
            hole = index;
        }
    }

    /// An entry beyond bucket `hole` that passed it.
    fn find_displaced(&self, arena: &PageArena, hole: usize) -> Option<Place> {
        let bucket_count = self.bucket_count();
        let mut index = self.next(hole);
        for steps in 1..bucket_count {
            let bucket = self.bucket(arena, index);
            for (place, entry) in bucket.entries(arena.layout()).enumerate() {
                let home = entry.home(bucket_count);
                let moved = if index >= home { index - home } else { index + bucket_count - home };
                if moved >= steps {
                    return Some((index, place));
                }
            }
            if !bucket.is_passed() {
                return None;
            }
            index = self.next(index);
        }
        None
    }

    /// Shows each entry, in no order.
    pub fn for_each(&self, arena: &PageArena, mut visit: impl FnMut(Entry)) {
        for &page in &self.pages[..self.page_count()] {
            for bucket in arena.page(page) {
                bucket.entries(arena.layout()).for_each(&mut visit);
            }
        }
    }

    /// Shows the entries whose home is bucket `home`.
    pub fn for_each_at_home(&self, arena: &PageArena, home: usize, mut visit: impl FnMut(Entry)) {
        let bucket_count = self.bucket_count();
        let mut index = home;
        for _ in 0..bucket_count {
            let bucket = self.bucket(arena, index);
            for entry in bucket.entries(arena.layout()) {
                if entry.home(bucket_count) == home {
                    visit(entry);
                }
            }
            if !bucket.is_passed() {
                return;
            }
            index = self.next(index);
        }
    }

    /// Gives all pages back; the entries go with them.
    pub fn release_pages(&mut self, arena: &mut PageArena) {
        for &page in &self.pages[..self.page_count()] {
            arena.release(page);
        }
        self.page_count = 0;
        (self.count, self.stale_count, self.lost_bits) = (0, 0, 0);
    }

    /// Takes pages until there are `page_count`, and holds `entries` only.
    ///
    /// The buckets are filled side by side on the stack first: scattered pages cost a lookup each.
    pub fn rebuild(
        &mut self,
        arena: &mut PageArena,
        page_count: usize,
        entries: impl Iterator<Item = Entry>,
    ) {
        for place in self.page_count()..page_count {
            self.pages[place] = arena.allocate();
        }
        self.page_count = page_count as u8;
        (self.count, self.stale_count, self.lost_bits) = (0, 0, 0);
        let mut room = [Bucket::EMPTY; REGION_PAGES * PAGE_BUCKETS];
        let buckets = &mut room[..page_count * PAGE_BUCKETS];
        for entry in entries {
            let mut index = entry.home(buckets.len());
            while !buckets[index].push(entry) {
                buckets[index].set_passed(true);
                index = if index + 1 == buckets.len() { 0 } else { index + 1 };
            }
            let lost = entry.lost_bits();
            self.count += 1;
            self.stale_count += u16::from(lost > 0);
            self.lost_bits = self.lost_bits.max(lost as u8);
        }
        let (pages, _) = buckets.as_chunks::<PAGE_BUCKETS>();
        for (&page, buckets) in self.pages.iter().zip(pages) {
            *arena.page_mut(page) = *buckets;
        }
    }
}

const CHUNK_REGIONS: usize = 256;
/// Bytes of the chunks in which the heads of regions are allocated.
const REGION_CHUNK_BYTES: u64 = (CHUNK_REGIONS * size_of::<Region>()) as u64;

/// The heads of all regions, by number. In chunks, because to copy all of them when their array
/// grows would take milliseconds.
#[derive(Default)]
pub struct RegionTable {
    chunks: Vec<Box<[Region; CHUNK_REGIONS]>>,
    used: usize,
    vacant: Vec<u32>,
}

impl RegionTable {
    pub fn bytes(&self) -> u64 {
        let table = self.chunks.capacity() * 8 + self.vacant.capacity() * 4;
        self.chunks.len() as u64 * REGION_CHUNK_BYTES + table as u64
    }

    /// The most bytes that another chunk adds.
    pub fn next_chunk_bytes(&self) -> u64 {
        let full = self.chunks.len() == self.chunks.capacity();
        let table = if full { self.chunks.len().max(4) * 8 } else { 0 };
        REGION_CHUNK_BYTES + table as u64
    }

    /// Regions that can be had without another chunk.
    pub fn free_regions(&self) -> usize {
        self.chunks.len() * CHUNK_REGIONS - self.used + self.vacant.len()
    }

    pub fn add(&mut self, region: Region) -> u32 {
        if let Some(id) = self.vacant.pop() {
            *self.get_mut(id) = region;
            return id;
        }
        if self.used == self.chunks.len() * CHUNK_REGIONS {
            let regions = vec![Region::new(0); CHUNK_REGIONS].into_boxed_slice();
            let Ok(chunk) = regions.try_into() else { unreachable!("a chunk has {CHUNK_REGIONS} regions") };
            self.chunks.push(chunk);
        }
        let id = self.used as u32;
        self.used += 1;
        *self.get_mut(id) = region;
        id
    }

    pub fn remove(&mut self, id: u32) {
        self.vacant.push(id);
    }

    #[inline]
    pub fn get(&self, id: u32) -> &Region {
        &self.chunks[id as usize / CHUNK_REGIONS][id as usize % CHUNK_REGIONS]
    }

    #[inline]
    pub fn get_mut(&mut self, id: u32) -> &mut Region {
        &mut self.chunks[id as usize / CHUNK_REGIONS][id as usize % CHUNK_REGIONS]
    }
}
