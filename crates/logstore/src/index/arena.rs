//! The memory of buckets: pages of four buckets, from chunks of 128 pages.
//!
//! Invariants:
//! 1. A page in use belongs to one region; what is in a page that is handed out is undefined.
//! 2. The lowest free page is handed out first, so that the upper chunks drain when the index
//!    shrinks; a chunk without a page in use goes back to the allocator.
//! 3. No chunk is taken when the caller's budget does not allow it.
//! 4. While the epoch is the same, a page that was in use still is, by the same region; no other arena, nor this
//!    one later, has that epoch.

use super::bucket::{Bucket, EntryLayout};
use std::sync::atomic::{AtomicU64, Ordering};

/// The epoch of the next arena, or of one that gives a page back.
static NEXT_EPOCH: AtomicU64 = AtomicU64::new(1);

fn next_epoch() -> u64 {
    NEXT_EPOCH.fetch_add(1, Ordering::Relaxed)
}

/// Buckets of a page.
pub const PAGE_BUCKETS: usize = 4;
const CHUNK_PAGES: usize = 128;
/// Bytes of a chunk: small, because at 100,000 keys an unused one would be a third of a byte a key.
const CHUNK_BYTES: u64 = (CHUNK_PAGES * size_of::<Page>()) as u64;

/// Four neighbouring buckets.
pub type Page = [Bucket; PAGE_BUCKETS];
type Chunk = Box<[Page; CHUNK_PAGES]>;

/// All pages of one index.
pub struct PageArena {
    epoch: u64,
    layout: EntryLayout,
    chunks: Vec<Option<Chunk>>,
    /// One bit a page, set when it is free in a chunk that exists.
    free: Vec<u128>,
    /// One bit a chunk, set when it has a free page.
    chunks_with_free: Vec<u64>,
    /// No word of `chunks_with_free` before this one has a bit.
    first_word: usize,
    vacant_chunks: Vec<u32>,
    free_page_count: usize,
    chunk_count: u64,
}

impl PageArena {
    /// An empty one for entries of `layout`.
    pub fn new(layout: EntryLayout) -> Self {
        PageArena {
            epoch: next_epoch(),
            layout,
            chunks: Vec::new(),
            free: Vec::new(),
            chunks_with_free: Vec::new(),
            first_word: 0,
            vacant_chunks: Vec::new(),
            free_page_count: 0,
            chunk_count: 0,
        }
    }

    /// How the entries of its buckets are cut.
    pub fn layout(&self) -> EntryLayout {
        self.layout
    }

    /// Another one whenever a page was given back.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Pages that can be had without another chunk.
    pub fn free_pages(&self) -> usize {
        self.free_page_count
    }

    pub fn bytes(&self) -> u64 {
        let table_bytes = self.chunks.capacity() * size_of::<Option<Chunk>>()
            + self.free.capacity() * size_of::<u128>()
            + self.chunks_with_free.capacity() * 8
            + self.vacant_chunks.capacity() * 4;
        self.chunk_count * CHUNK_BYTES + table_bytes as u64
    }

    /// The most bytes that another chunk adds.
    pub fn next_chunk_bytes(&self) -> u64 {
        let full = self.chunks.len() == self.chunks.capacity();
        let tables = if full { self.chunks.len().max(4) * 32 } else { 0 };
        CHUNK_BYTES + tables as u64
    }

    /// A page. Cost: amortised a few nanoseconds; a new chunk of 32 KiB at times.
    pub fn allocate(&mut self) -> u32 {
        if self.free_page_count == 0 {
            self.add_chunk();
        }
        while self.chunks_with_free[self.first_word] == 0 {
            self.first_word += 1;
        }
        let word = self.chunks_with_free[self.first_word];
        let chunk = self.first_word * 64 + word.trailing_zeros() as usize;
        let page = self.free[chunk].trailing_zeros() as usize;
        self.free[chunk] &= self.free[chunk] - 1;
        if self.free[chunk] == 0 {
            self.chunks_with_free[self.first_word] &= word - 1;
        }
        self.free_page_count -= 1;
        (chunk * CHUNK_PAGES + page) as u32
    }

    /// Gives a page back.
    pub fn release(&mut self, page: u32) {
        let (chunk, within) = (page as usize / CHUNK_PAGES, page as usize % CHUNK_PAGES);
        debug_assert!(self.free[chunk] & (1 << within) == 0);
        self.epoch = next_epoch();
        self.free[chunk] |= 1 << within;
        self.free_page_count += 1;
        if self.free[chunk] == u128::MAX {
            self.free[chunk] = 0;
            self.free_page_count -= CHUNK_PAGES;
            self.chunks[chunk] = None;
            self.chunk_count -= 1;
            self.vacant_chunks.push(chunk as u32);
            self.chunks_with_free[chunk / 64] &= !(1 << (chunk % 64));
        } else {
            self.chunks_with_free[chunk / 64] |= 1 << (chunk % 64);
            self.first_word = self.first_word.min(chunk / 64);
        }
    }

    #[inline]
    pub fn page(&self, page: u32) -> &Page {
        match &self.chunks[page as usize / CHUNK_PAGES] {
            Some(chunk) => &chunk[page as usize % CHUNK_PAGES],
            None => unreachable!("page {page} lies in a chunk that was given back"),
        }
    }

    #[inline]
    pub fn page_mut(&mut self, page: u32) -> &mut Page {
        match &mut self.chunks[page as usize / CHUNK_PAGES] {
            Some(chunk) => &mut chunk[page as usize % CHUNK_PAGES],
            None => unreachable!("page {page} lies in a chunk that was given back"),
        }
    }

    fn add_chunk(&mut self) {
        let pages = vec![[Bucket::EMPTY; PAGE_BUCKETS]; CHUNK_PAGES].into_boxed_slice();
        let Ok(chunk) = Chunk::try_from(pages) else { unreachable!("a chunk has {CHUNK_PAGES} pages") };
        let index = match self.vacant_chunks.pop() {
            Some(index) => index as usize,
            None => {
                self.chunks.push(None);
                self.free.push(0);
                if self.chunks.len() > self.chunks_with_free.len() * 64 {
                    self.chunks_with_free.push(0);
                }
                self.chunks.len() - 1
            }
        };
        self.chunks[index] = Some(chunk);
        self.free[index] = u128::MAX;
        self.chunks_with_free[index / 64] |= 1 << (index % 64);
        self.first_word = self.first_word.min(index / 64);
        self.free_page_count += CHUNK_PAGES;
        self.chunk_count += 1;
    }
}
