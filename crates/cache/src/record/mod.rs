//! One shard's cache of recently used records: S3-FIFO over two rings of variable-sized frames.
//!
//! The method is that of Yang, Zhang, Qiu, Yue and Vinayak, "FIFO queues are all you need for cache
//! eviction" (SOSP 2023). New records enter a small ring. At its tail, a record that was hit moves
//! to the main ring; others are dropped and their fingerprints remembered by the ghost, and a
//! remembered record that comes back enters the main ring directly. At the main ring's tail, a
//! record that was hit goes round again with its frequency lowered by one.
//!
//! Departures: queues are counted in bytes and are rings of memory, so a move copies the record and
//! gives it a new id; the two parts are fixed, so while the main ring has clear room, the small
//! ring's cold records move on as well (the paper lets the small queue fill the cache); an
//! insertion reinserts only so much, then evicts what it finds, which bounds its time; while the
//! cache shrinks, records that were not hit go round as well as long as there is room for them.
//!
//! Invariants:
//! 1. The cache has no table of keys. The owner's index holds, a key, either a location on the
//!    device or a [`FrameId`]; whenever a frame's id ends (dropped) or changes (moved), the owner is
//!    told before the call that caused it returns.
//! 2. A removed frame is never named to the owner again.
//! 3. A pinned frame is neither dropped nor moved, nor are its bytes reused, until unpinned.
//! 4. No operation allocates, but for the list of islands (see `ring`), which grows with pins.
//!
//! The cache belongs to one shard. A crash loses it; every record in it is also at its location.

mod arena;
mod eviction;
mod frame;
mod ghost;
mod ring;
mod settings;

pub use settings::{RecordCacheSettings, RecordCacheStatistics};

use arena::Arena;
use eviction::{REINSERTED_BYTES_MAX, ReinsertionBudget};
use frame::{FREQUENCY_MAX, Kind, Label, Tag, UNIT_BYTES, frame_bytes};
use ghost::{Ghost, Shade};
use ring::Ring;
use settings::Layout;
use tierstone_base::{Error, ErrorKind, KeyspaceId, Position, Result};

/// While the cache shrinks, an insertion has the tails pass this many times its own bytes.
const SETTLED_BYTES_AN_INSERTED_BYTE: usize = 4;

/// Names a frame of one cache: its place in units of 16 bytes. Fits in 33 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(u64);

impl FrameId {
    /// Bits that hold any id.
    pub const BITS: u32 = 33;

    /// The id as a number below 2^33, for an index that stores it.
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The id that [`FrameId::to_bits`] gave.
    #[inline]
    pub fn from_bits(bits: u64) -> FrameId {
        FrameId(bits)
    }

    #[inline]
    fn at(offset: usize) -> FrameId {
        FrameId((offset / UNIT_BYTES) as u64)
    }

    #[inline]
    fn offset(self) -> usize {
        (self.0 as usize).wrapping_mul(UNIT_BYTES)
    }
}

/// Whoever holds the frame ids: told of every id that ends or changes without its asking.
///
/// Calls arrive while an insertion (or a shrink) makes room, in the middle of it: the owner changes
/// its own index only. A frame of a keyspace that is gone may be named; there is nothing to repoint
/// then.
pub trait FrameOwner {
    /// The frame is gone; the record is at `location`.
    fn evicted(&mut self, keyspace: KeyspaceId, position: Position, frame: FrameId, location: u64);
    /// The frame has another id from now on.
    fn moved(&mut self, keyspace: KeyspaceId, position: Position, from: FrameId, to: FrameId);
    /// One of the two will soon be said of a frame at `position`: what that will touch can be fetched into
    /// the processor's caches meanwhile.
    fn announced(&self, _keyspace: KeyspaceId, _position: Position) {}
}

/// A record to take in.
#[derive(Clone, Copy, Debug)]
pub struct NewFrame<'bytes> {
    /// The position of the record's key.
    pub position: Position,
    /// The keyspace of the record's key.
    pub keyspace: KeyspaceId,
    /// Where the record lies on the device; given back when the frame is evicted.
    pub location: u64,
    /// The record's bytes, in pieces that are put together.
    pub parts: &'bytes [&'bytes [u8]],
}

/// A record in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameView<'cache> {
    /// As given when it was taken in.
    pub position: Position,
    /// As given when it was taken in.
    pub keyspace: KeyspaceId,
    /// As given when it was taken in, or by `set_location` or `replace` since.
    pub location: u64,
    /// The record's bytes.
    pub bytes: &'cache [u8],
}

/// See the module's words.
#[derive(Debug)]
pub struct RecordCache {
    arena: Arena,
    small: Ring,
    main: Ring,
    ghost: Ghost,
    settings: RecordCacheSettings,
    layout: Layout,
    statistics: RecordCacheStatistics,
}

impl RecordCache {
    /// Bytes that a frame takes besides its record; the sum is rounded up to 16 bytes.
    pub const FRAME_HEADER_BYTES: usize = frame::HEADER_BYTES;

    /// An empty cache. Cost: two mappings; memory becomes resident as it is used.
    ///
    /// # Errors
    /// `InvalidInput` for a setting out of range, `NoMemory` when the mapping is refused.
    pub fn new(settings: RecordCacheSettings) -> Result<RecordCache> {
        settings.check()?;
        let largest = settings.layout(settings.capacity_bytes.max(settings.capacity_max_bytes));
        let layout = settings.layout(settings.capacity_bytes);
        let mut arena = Arena::zeroed(largest.small_bytes + largest.main_bytes, settings.huge_pages)?;
        let mut small = Ring::new(0, largest.small_bytes);
        let mut main = Ring::new(largest.small_bytes, largest.main_bytes);
        small.set_target(&mut arena, layout.small_bytes);
        main.set_target(&mut arena, layout.main_bytes);
        Ok(RecordCache {
            ghost: Ghost::new(largest.ghost_slots, settings.huge_pages)?,
            arena,
            small,
            main,
            settings,
            layout,
            statistics: RecordCacheStatistics::default(),
        })
    }

    /// Copies a record in. `None` when it is longer than [`RecordCache::record_max_bytes`], or when
    /// so much is pinned that there is no room.
    ///
    /// An older frame of the same key must have been removed (or is forgotten by the owner, who
    /// then ignores what it is told of it).
    ///
    /// Cost: the copy, and evictions of as many bytes; at most 256 KiB of other copies.
    pub fn insert<O: FrameOwner>(&mut self, entry: NewFrame<'_>, owner: &mut O) -> Option<FrameId> {
        let length = entry.parts.iter().map(|part| part.len()).sum();
        let bytes = frame_bytes(length);
        if self.small.is_shrinking() || self.main.is_shrinking() {
            // Faster than insertions move the heads, or a shrink would never end.
            let settled = bytes.unwrap_or(0).min(REINSERTED_BYTES_MAX) * SETTLED_BYTES_AN_INSERTED_BYTE;
            self.settle(settled, owner);
        }
        let Some(bytes) = bytes.filter(|&bytes| bytes <= self.layout.frame_max_bytes) else {
            self.statistics.refusals += 1;
            return None;
        };
        let remembered = self.ghost.recall(Shade::of(entry.keyspace, entry.position));
        let mut budget = ReinsertionBudget::new();
        let room = if remembered {
            self.room_in_main(bytes, &mut budget, owner)
        } else {
            self.room_in_small(bytes, &mut budget, owner)
        };
        let Some(offset) = room else {
            self.statistics.refusals += 1;
            return None;
        };
        let units = (bytes / UNIT_BYTES) as u32;
        let (position, keyspace, location) = (entry.position, entry.keyspace, entry.location);
        self.arena.set_tag(offset, Tag { units, kind: Kind::Live, frequency: 0, pins: 0 });
        self.arena.set_label(offset, Label { position, location, keyspace, length: length as u32 });
        self.arena.set_record(offset, length, entry.parts);
        self.statistics.inserts += 1;
        self.statistics.ghost_hits += u64::from(remembered);
        self.statistics.frames += 1;
        self.statistics.main_frames += u64::from(remembered);
        self.ring_of(offset).live_bytes += bytes;
        Some(FrameId::at(offset))
    }

    /// The record in `frame`; the use is counted for its replacement.
    ///
    /// Cost: the cache misses of the frame itself.
    ///
    /// # Panics
    /// As all calls with a frame, when `frame` is seen not to be a live or pinned frame: the owner's
    /// index is wrong then, and what it says cannot be trusted.
    #[inline]
    pub fn get(&mut self, frame: FrameId) -> FrameView<'_> {
        self.touch(frame);
        self.view(frame)
    }

    /// Counts a use of `frame`.
    #[inline]
    pub fn touch(&mut self, frame: FrameId) {
        let tag = self.tag(frame);
        // Written only when it changes, so that hot frames' lines stay clean.
        if tag.frequency < FREQUENCY_MAX {
            self.arena.set_frequency(frame.offset(), tag.frequency + 1);
        }
    }

    /// Whether a use of `frame` was counted since it was last passed over: it would get another turn.
    #[inline]
    pub fn is_touched(&self, frame: FrameId) -> bool {
        self.tag(frame).frequency > 0
    }

    /// The record in `frame`, without counting the use.
    #[inline]
    pub fn peek(&self, frame: FrameId) -> FrameView<'_> {
        let _ = self.tag(frame);
        self.view(frame)
    }

    /// Has the processor fetch the first `lines` cache lines of `frame` while the caller does something
    /// else; for batches. The first holds the frame's header and the record's first 32 bytes. Harmless for any id.
    #[inline]
    pub fn prefetch(&self, frame: FrameId, lines: usize) {
        self.arena.prefetch(frame.offset(), lines);
    }

    /// Where the record of `frame` lies, if `frame` still is what it was: of an old id it may be anything. For hints.
    #[inline]
    pub fn location_hint(&self, frame: FrameId) -> Option<u64> {
        self.arena.location_hint(frame.offset())
    }

    /// The record's bytes, to be changed in place; holders of pins see the change.
    pub fn bytes_mut(&mut self, frame: FrameId) -> &mut [u8] {
        let _ = self.tag(frame);
        let length = self.arena.label(frame.offset()).length as usize;
        let start = frame.offset() + frame::HEADER_BYTES;
        &mut self.arena[start..start + length]
    }

    /// The record lies at `location` from now on.
    pub fn set_location(&mut self, frame: FrameId, location: u64) {
        let _ = self.tag(frame);
        self.arena.set_location(frame.offset(), location);
    }

    /// Overwrites the record in its place, and says whether it did: false when the new bytes do not
    /// fit where the frame's first bytes were put, or when the frame is pinned. Counts as a use.
    pub fn replace(&mut self, frame: FrameId, parts: &[&[u8]], location: u64) -> bool {
        let tag = self.tag(frame);
        let length = parts.iter().map(|part| part.len()).sum();
        if tag.pins > 0 || frame_bytes(length).is_none_or(|bytes| bytes > tag.bytes()) {
            return false;
        }
        let label = Label { location, length: length as u32, ..self.arena.label(frame.offset()) };
        self.arena.set_label(frame.offset(), label);
        self.arena.set_record(frame.offset(), length, parts);
        self.touch(frame);
        true
    }

    /// The record is of no use any more. The owner is told nothing; the space is free when the tail
    /// passes it. Pins stay good.
    pub fn remove(&mut self, frame: FrameId) {
        let tag = self.tag(frame);
        if tag.kind != Kind::Live {
            return;
        }
        self.arena.set_tag(frame.offset(), Tag { kind: Kind::Dead, ..tag });
        self.statistics.removals += 1;
        self.forget(frame.offset(), tag);
    }

    /// Keeps `frame` where it is, with its bytes, until as many calls of [`RecordCache::unpin`].
    /// Meant for the few frames that a batch is working on.
    pub fn pin(&mut self, frame: FrameId) {
        let tag = self.tag(frame);
        assert!(tag.pins < u16::MAX, "frame {frame:?} is pinned {} times", tag.pins);
        if tag.pins == 0 {
            self.ring_of(frame.offset()).pinned_bytes += tag.bytes();
        }
        self.arena.set_tag(frame.offset(), Tag { pins: tag.pins + 1, ..tag });
    }

    /// Takes one pin back.
    pub fn unpin(&mut self, frame: FrameId) {
        let tag = self.tag(frame);
        assert!(tag.pins > 0, "frame {frame:?} is not pinned");
        if tag.pins == 1 {
            self.ring_of(frame.offset()).pinned_bytes -= tag.bytes();
        }
        self.arena.set_tag(frame.offset(), Tag { pins: tag.pins - 1, ..tag });
    }

    /// Asks for another capacity, in bytes, up to the largest that the settings name. Takes effect
    /// as the rings turn: growth within one turn, a shrink as insertions evict what lies too high;
    /// [`RecordCache::settle`] hurries it, and drops about what is given up, the hottest records last.
    ///
    /// # Errors
    /// `InvalidInput` when the capacity is larger than what was reserved.
    pub fn resize(&mut self, capacity_bytes: u64) -> Result<()> {
        let reserved = self.settings.capacity_bytes.max(self.settings.capacity_max_bytes);
        if capacity_bytes > reserved {
            let message = format!("a record cache of {reserved} bytes cannot grow to {capacity_bytes}");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        self.layout = self.settings.layout(capacity_bytes);
        self.small.set_target(&mut self.arena, self.layout.small_bytes);
        self.main.set_target(&mut self.arena, self.layout.main_bytes);
        Ok(())
    }

    /// Forgets every frame without telling the owner, whose index must hold none; and the ghost.
    /// False, and nothing is done, while anything is pinned.
    pub fn clear(&mut self) -> bool {
        if self.small.pinned_bytes + self.main.pinned_bytes > 0 {
            return false;
        }
        self.small.clear(&mut self.arena);
        self.main.clear(&mut self.arena);
        self.ghost.clear();
        self.statistics.frames = 0;
        self.statistics.main_frames = 0;
        true
    }

    /// The longest record that is taken in, in bytes; `None` when the cache is too small for any.
    pub fn record_max_bytes(&self) -> Option<usize> {
        let longest = self.layout.frame_max_bytes / UNIT_BYTES * UNIT_BYTES;
        let longest = longest.checked_sub(frame::HEADER_BYTES)?;
        Some(longest.min(self.settings.record_max_bytes as usize))
    }

    /// What the cache holds and did. Cost: a copy.
    pub fn statistics(&self) -> RecordCacheStatistics {
        let occupied = (self.small.occupied() + self.main.occupied()) as u64;
        let live_bytes = (self.small.live_bytes + self.main.live_bytes) as u64;
        RecordCacheStatistics {
            live_bytes,
            capacity_bytes: (self.small.capacity() + self.main.capacity()) as u64,
            dead_bytes: occupied - live_bytes,
            pinned_bytes: (self.small.pinned_bytes + self.main.pinned_bytes) as u64,
            ghost_bytes: self.ghost.memory_bytes() as u64,
            ..self.statistics
        }
    }

    #[inline]
    fn tag(&self, frame: FrameId) -> Tag {
        let tag = self.arena.header(frame.offset()).tag();
        if !(tag.kind == Kind::Live || (tag.kind == Kind::Dead && tag.pins > 0)) {
            is_stale(frame, tag)
        }
        tag
    }

    #[inline]
    fn view(&self, frame: FrameId) -> FrameView<'_> {
        let label = self.arena.label(frame.offset());
        FrameView {
            position: label.position,
            keyspace: label.keyspace,
            location: label.location,
            bytes: self.arena.record(frame.offset(), label.length),
        }
    }

    fn is_in_main(&self, offset: usize) -> bool {
        offset >= self.main.start()
    }

    fn ring_of(&mut self, offset: usize) -> &mut Ring {
        if self.is_in_main(offset) { &mut self.main } else { &mut self.small }
    }

    /// Takes a live frame out of the counts.
    fn forget(&mut self, offset: usize, tag: Tag) {
        self.statistics.frames -= 1;
        self.statistics.main_frames -= u64::from(self.is_in_main(offset));
        self.ring_of(offset).live_bytes -= tag.bytes();
    }
}

/// Apart, so that the tag need not lie in memory for what the message says of it.
#[cold]
#[inline(never)]
fn is_stale(frame: FrameId, tag: Tag) -> ! {
    panic!("frame {frame:?} is stale: {tag:?}")
}

#[cfg(test)]
#[path = "record_test.rs"]
mod record_test;
