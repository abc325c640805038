//! A value for each block of an address space, in pages, with the way to recent pages kept.

use tierstone_base::collections::Map;

const PAGE: usize = 256;
/// Pages whose places are kept.
const RECENT: usize = 64;

/// Values of `T`, all default at first.
#[derive(Debug)]
pub(super) struct Blocks<T> {
    pages: Vec<T>,
    places: Map<u64, usize>,
    /// By page number: the page there, and where it begins.
    recent: [(u64, usize); RECENT],
}

impl<T: Copy + Default> Blocks<T> {
    pub fn new() -> Blocks<T> {
        Blocks { pages: Vec::new(), places: Map::default(), recent: [(u64::MAX, 0); RECENT] }
    }

    /// Where the value of `block` is.
    #[inline]
    pub fn place(&mut self, block: u64) -> usize {
        let page = block / PAGE as u64;
        let inside = (block % PAGE as u64) as usize;
        let (kept, start) = self.recent[page as usize % RECENT];
        if kept == page { start + inside } else { self.page(page) + inside }
    }

    #[inline]
    pub fn at(&mut self, place: usize) -> &mut T {
        &mut self.pages[place]
    }

    #[cold]
    fn page(&mut self, page: u64) -> usize {
        let start = *self.places.entry(page).or_insert_with(|| {
            let start = self.pages.len();
            self.pages.resize(start + PAGE, T::default());
            start
        });
        self.recent[page as usize % RECENT] = (page, start);
        start
    }
}
