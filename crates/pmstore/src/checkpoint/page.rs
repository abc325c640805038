//! Pages of a checkpoint: items of 16 bytes in free blocks of the shard, each page naming the next one.
//!
//! A page lies behind the first line of its block, which says that the block is free and is not touched. Its bytes are
//! described in `docs/formats/pm-store.md`. What a chain says is believed when all of it is whole and says its totals.

use crate::blocks::Maker;
use crate::format::{Layout, RECORD_BYTES, RecordHead, word_at};
use std::collections::BTreeMap;
use tierstone_base::checksum::{checksum, salt};
use tierstone_base::collections::Map;
use tierstone_base::{KeyspaceId, Seq};
use tierstone_media::region::LINE_BYTES;

/// Bytes of a page before its items.
const HEAD_BYTES: usize = 64;
const ITEM_BYTES: usize = 16;

/// What a page's items are. Pages follow each other in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Blocks = 1,
    Keys = 2,
    Tombstones = 3,
    End = 4,
}

impl Kind {
    fn of(number: u8) -> Option<Kind> {
        [Kind::Blocks, Kind::Keys, Kind::Tombstones, Kind::End].into_iter().find(|kind| *kind as u8 == number)
    }
}

/// Two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item(pub u64, pub u64);

/// Bits of a place, in steps of 8 bytes, and of a length, in the same.
const PLACE_BITS: u32 = 40;
const LEN_BITS: u32 = 16;
const FLAG_OVERFLOW: u64 = 1 << (PLACE_BITS + LEN_BITS);
const FLAG_EXPIRES: u64 = 2 << (PLACE_BITS + LEN_BITS);

impl Item {
    /// Where a record lies, and what an opening wants to know of it.
    pub fn record(place: u64, head: &RecordHead) -> Item {
        let mut word = (place / 8) | (u64::from(head.len / 8) << PLACE_BITS);
        word |= if head.is_overflow() { FLAG_OVERFLOW } else { 0 };
        word |= if head.expiry_ms != 0 { FLAG_EXPIRES } else { 0 };
        Item(head.position, word)
    }

    pub fn place(self) -> u64 {
        (self.1 & ((1 << PLACE_BITS) - 1)) * 8
    }

    pub fn len(self) -> u32 {
        (self.1 >> PLACE_BITS & ((1 << LEN_BITS) - 1)) as u32 * 8
    }

    pub fn is_overflow(self) -> bool {
        self.1 & FLAG_OVERFLOW != 0
    }

    pub fn expires(self) -> bool {
        self.1 & FLAG_EXPIRES != 0
    }
}

/// What the end of a checkpoint says of all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub blocks: u64,
    pub keys: u64,
    pub tombstones: u64,
    /// The longest record, with key and value, in bytes.
    pub longest_bytes: u64,
    /// The last sequence that was written before its end.
    pub applied: Seq,
}

impl Totals {
    pub fn items(&self) -> [Item; 3] {
        [Item(self.blocks, self.keys), Item(self.tombstones, self.longest_bytes), Item(self.applied, 0)]
    }

    pub fn of(items: &[Item]) -> Option<Totals> {
        let &[Item(blocks, keys), Item(tombstones, longest_bytes), Item(applied, 0)] = items else {
            return None;
        };
        Some(Totals { blocks, keys, tombstones, longest_bytes, applied })
    }
}

/// What distinguishes a checkpoint from every other one of the store.
pub(crate) fn id(store: u64, shard: u16, opening: u64, serial: u32) -> u64 {
    salt(store ^ u64::from(shard).rotate_left(48), opening << 24 ^ u64::from(serial)) | 1
}

fn items_max(block_bytes: u64) -> usize {
    (block_bytes - LINE_BYTES) as usize / ITEM_BYTES - HEAD_BYTES / ITEM_BYTES
}

/// How many pages a checkpoint takes, about: tombstones are not known.
pub(crate) fn pages_for(layout: &Layout, blocks: u64, keys: u64, keyspaces: u64) -> u64 {
    let most = items_max(layout.geometry.block_bytes) as u64;
    blocks.div_ceil(most) + keys.div_ceil(most) + keyspaces + 2
}

fn page_checksum(id: u64, number: u32, page: &[u8]) -> u64 {
    checksum(salt(id, u64::from(number)), &page[8..])
}

/// Makes the pages of a checkpoint.
#[derive(Debug)]
pub(crate) struct PageWriter {
    id: u64,
    /// The blocks that have been taken for pages; the last one's is being made.
    pub pages: Vec<u32>,
    page: Vec<u8>,
    what: Option<(Kind, KeyspaceId)>,
    items: u32,
    items_max: u32,
}

impl PageWriter {
    pub fn new(id: u64, block_bytes: u64) -> Self {
        let page = vec![0; (block_bytes - LINE_BYTES) as usize];
        PageWriter {
            id,
            pages: Vec::new(),
            page,
            what: None,
            items: 0,
            items_max: items_max(block_bytes) as u32,
        }
    }

    /// Whether the page that is being made takes another item of this kind.
    pub fn fits(&self, kind: Kind, keyspace: KeyspaceId) -> bool {
        self.what == Some((kind, keyspace)) && self.items < self.items_max
    }

    /// Adds an item to the page; it fits.
    pub fn put(&mut self, item: Item) {
        let at = HEAD_BYTES + self.items as usize * ITEM_BYTES;
        self.page[at..at + 8].copy_from_slice(&item.0.to_le_bytes());
        self.page[at + 8..at + 16].copy_from_slice(&item.1.to_le_bytes());
        self.items += 1;
    }

    /// Stores the page that was being made, and begins one in `block`.
    pub fn turn(&mut self, maker: &Maker, block: u32, kind: Kind, keyspace: KeyspaceId) {
        if self.what.is_some() {
            self.store(maker, u64::from(block) + 1);
        }
        self.pages.push(block);
        (self.what, self.items) = (Some((kind, keyspace)), 0);
    }

    /// Stores the last page. Durable after the next fence.
    pub fn finish(&mut self, maker: &Maker) {
        self.store(maker, 0);
    }

    fn store(&mut self, maker: &Maker, next: u64) {
        let (Some((kind, keyspace)), Some(&block)) = (self.what, self.pages.last()) else { return };
        let words = [0, self.id, next, u64::from(self.items) | (kind as u64) << 32, u64::from(keyspace.0)];
        for (place, word) in self.page.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.page[HEAD_BYTES + self.items as usize * ITEM_BYTES..].fill(0);
        let sum = page_checksum(self.id, self.pages.len() as u32, &self.page);
        self.page[..8].copy_from_slice(&sum.to_le_bytes());
        maker.memory.stream(maker.layout.block(block) + LINE_BYTES, &self.page);
    }
}

/// A whole page.
#[derive(Debug)]
pub(crate) struct Page {
    pub kind: Kind,
    pub keyspace: KeyspaceId,
    pub items: Vec<Item>,
    next: u64,
    id: u64,
}

impl Page {
    /// Reads page `number` (from one on) of a checkpoint from `block`; `id`: of the page before.
    fn read(maker: &Maker, block: u32, number: u32, id: Option<u64>) -> Option<Page> {
        let bytes = maker.layout.geometry.block_bytes - LINE_BYTES;
        let page = maker.memory.bytes(maker.layout.block(block) + LINE_BYTES, bytes as usize);
        let own = word_at(&page, 8);
        let is_whole =
            id.is_none_or(|id| id == own) && page_checksum(own, number, &page) == word_at(&page, 0);
        let (count, keyspace) = (word_at(&page, 24), word_at(&page, 32));
        let kind = Kind::of((count >> 32) as u8)?;
        let count = count as u32 as usize;
        if !is_whole || count > items_max(maker.layout.geometry.block_bytes) {
            return None;
        }
        let items = page[HEAD_BYTES..].chunks_exact(ITEM_BYTES).take(count);
        Some(Page {
            kind,
            keyspace: KeyspaceId(keyspace as u32),
            items: items.map(|item| Item(word_at(item, 0), word_at(item, 8))).collect(),
            next: word_at(&page, 16),
            id: own,
        })
    }
}

/// Shows the pages of the chain that begins in `block`, as long as `show` gives something: the blocks with pages, if all
/// are whole, in their order, and no block twice. `may_hold` says where pages may lie.
pub(crate) fn read_chain(
    maker: &Maker,
    block: u32,
    may_hold: impl Fn(u32) -> bool,
    mut show: impl FnMut(Page) -> Option<()>,
) -> Option<Vec<u32>> {
    let (mut blocks, mut seen) = (Vec::new(), std::collections::BTreeSet::new());
    let (mut block, mut id, mut last) = (block, None, Kind::Blocks);
    loop {
        if !may_hold(block) || !seen.insert(block) {
            return None;
        }
        blocks.push(block);
        let page = Page::read(maker, block, blocks.len() as u32, id)?;
        let next = page.next;
        let is_end = page.kind == Kind::End;
        if page.kind < last || is_end != (next == 0) {
            return None;
        }
        (id, last) = (Some(page.id), page.kind);
        show(page)?;
        if is_end {
            return Some(blocks);
        }
        block = u32::try_from(next - 1).ok()?;
    }
}

/// What is known of a checkpoint of which every page is whole and says what can be.
#[derive(Debug)]
pub(crate) struct Checked {
    pub pages: Vec<u32>,
    pub totals: Totals,
    /// Keys of each keyspace.
    pub keys: BTreeMap<KeyspaceId, u64>,
}

/// Reads a checkpoint through, and holds it against the layout; `has_segment` says which segments hold the shard's
/// blocks. `None`: something does not fit.
pub(crate) fn check(maker: &Maker, first: u32, has_segment: impl Fn(u32) -> bool) -> Option<Checked> {
    let layout = &maker.layout;
    let is_own = |block: u32| has_segment(block / layout.blocks_per_segment());
    let mut ends: Map<u32, u32> = Map::default();
    let (mut counted, mut said, mut keys) = (Totals::default(), None, BTreeMap::new());
    let pages = read_chain(maker, first, is_own, |page| {
        let count = page.items.len() as u64;
        match page.kind {
            Kind::Blocks => {
                counted.blocks += count;
                for Item(word, life) in page.items {
                    let (number, end) = (word as u32, (word >> 32) as u32);
                    let fits = u64::from(end) <= layout.geometry.block_bytes && u64::from(end) >= LINE_BYTES;
                    // Segments may have been given back since: what was listed there has ended.
                    let is_block = number < layout.segments * layout.blocks_per_segment();
                    let is_new = ends.insert(number, end).is_none();
                    (fits && is_block && is_new && life != 0).then_some(())?;
                }
            }
            Kind::Keys | Kind::Tombstones => {
                let is_key = page.kind == Kind::Keys;
                *(if is_key { &mut counted.keys } else { &mut counted.tombstones }) += count;
                if is_key {
                    *keys.entry(page.keyspace).or_default() += count;
                }
                page.items.iter().all(|item| lies_in(layout, &ends, item)).then_some(())?;
            }
            Kind::End => said = Totals::of(&page.items),
        }
        Some(())
    })?;
    let totals = said?;
    counted.longest_bytes = totals.longest_bytes;
    counted.applied = totals.applied;
    (counted == totals).then_some(Checked { pages, totals, keys })
}

/// Whether a record can lie there, in a listed block.
fn lies_in(layout: &Layout, ends: &Map<u32, u32>, item: &Item) -> bool {
    let (place, len) = (item.place(), u64::from(item.len()));
    if place < layout.data_start() || place >= layout.end() || len < RECORD_BYTES as u64 {
        return false;
    }
    let number = layout.block_of(place);
    let at = place - layout.block(number);
    at >= LINE_BYTES && ends.get(&number).is_some_and(|&end| at + len <= u64::from(end))
}
