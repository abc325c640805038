//! Making room: how the tails of the two rings pass frames, in insertions and while the cache shrinks.
//!
//! Invariants:
//! 1. An insertion reinserts at most [`REINSERTED_FRAMES_MAX`] frames and (to one frame)
//!    [`REINSERTED_BYTES_MAX`] bytes; what the tail finds afterwards is evicted.
//! 2. A shrink drops what is above the new capacity, records that were not hit first; the others are copied
//!    to where they may stay. So it costs one turn of the rings, in steps, but drops little more than is
//!    given up.

use super::frame::{Kind, Tag, UNIT_BYTES, frame_bytes};
use super::ghost::Shade;
use super::ring::Ring;
use super::{FrameId, FrameOwner, RecordCache};

/// Most frames, and most bytes of frames (to one frame), that one insertion gives another turn of
/// the main ring: some tens of microseconds.
const REINSERTED_FRAMES_MAX: usize = 256;
pub(super) const REINSERTED_BYTES_MAX: usize = 256 << 10;

/// What is left of the work that one call may spend on giving frames another turn.
pub(super) struct ReinsertionBudget {
    frames: usize,
    bytes: usize,
}

impl ReinsertionBudget {
    pub(super) fn new() -> Self {
        ReinsertionBudget { frames: REINSERTED_FRAMES_MAX, bytes: REINSERTED_BYTES_MAX }
    }

    fn take(&mut self, bytes: usize) -> bool {
        if self.frames == 0 || self.bytes == 0 {
            return false;
        }
        self.frames -= 1;
        self.bytes = self.bytes.saturating_sub(bytes);
        true
    }
}

/// Why a tail moves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Somebody needs the place.
    Insertion,
    /// The end of the ring is given up.
    Shrink,
}

impl RecordCache {
    /// Does up to about `bytes` bytes of the moves and evictions that a shrink still needs; says whether none
    /// are left. A pinned frame above the new capacity holds the shrink up until it is unpinned.
    pub fn settle<O: FrameOwner>(&mut self, bytes: usize, owner: &mut O) -> bool {
        let mut budget = ReinsertionBudget { frames: usize::MAX, bytes };
        let mut passed = 0;
        self.small.take_in_islands(&mut self.arena);
        self.main.take_in_islands(&mut self.arena);
        while passed < bytes && self.small.is_shrinking() && self.small.used() > 0 {
            passed += self.evict_from_small(Cause::Shrink, &mut budget, owner);
        }
        while passed < bytes && self.main.is_shrinking() && self.main.used() > 0 {
            passed += self.evict_from_main(Cause::Shrink, &mut budget, owner);
        }
        self.small.set_target(&mut self.arena, self.layout.small_bytes);
        self.main.set_target(&mut self.arena, self.layout.main_bytes);
        !self.small.is_shrinking() && !self.main.is_shrinking()
    }

    /// A place for `bytes` bytes at the small ring's head.
    pub(super) fn room_in_small<O: FrameOwner>(
        &mut self,
        bytes: usize,
        budget: &mut ReinsertionBudget,
        owner: &mut O,
    ) -> Option<usize> {
        if Self::is_mostly_pinned(&self.small) {
            return None;
        }
        let passed_max = 2 * self.small.capacity();
        let mut passed = 0;
        loop {
            if let Some(offset) = self.small.reserve(&mut self.arena, bytes) {
                return Some(offset);
            }
            if passed > passed_max || self.small.used() == 0 {
                return None;
            }
            passed += self.evict_from_small(Cause::Insertion, budget, owner);
            self.announce(&self.small, owner);
        }
    }

    /// A place for `bytes` bytes at the main ring's head.
    pub(super) fn room_in_main<O: FrameOwner>(
        &mut self,
        bytes: usize,
        budget: &mut ReinsertionBudget,
        owner: &mut O,
    ) -> Option<usize> {
        if Self::is_mostly_pinned(&self.main) {
            return None;
        }
        let passed_max = 2 * self.main.capacity() + REINSERTED_BYTES_MAX;
        let mut passed = 0;
        loop {
            if let Some(offset) = self.main.reserve(&mut self.arena, bytes) {
                return Some(offset);
            }
            if passed > passed_max || self.main.used() == 0 {
                return None;
            }
            passed += self.evict_from_main(Cause::Insertion, budget, owner);
            self.announce(&self.main, owner);
        }
    }

    /// Saves turning a ring in vain; the few frames of a batch never come near it.
    fn is_mostly_pinned(ring: &Ring) -> bool {
        ring.pinned_bytes > ring.capacity() / 4 * 3
    }

    /// Moves the small ring's tail over one frame; gives the bytes passed.
    fn evict_from_small<O: FrameOwner>(
        &mut self,
        cause: Cause,
        budget: &mut ReinsertionBudget,
        owner: &mut O,
    ) -> usize {
        let offset = self.small.tail();
        let tag = self.arena.tag(offset);
        if tag.pins > 0 {
            self.small.pass_island(&mut self.arena, tag.bytes());
            return tag.bytes();
        }
        if tag.kind == Kind::Live {
            let label = self.arena.label(offset);
            let bytes = frame_bytes(label.length as usize).unwrap_or(tag.bytes());
            let is_hot = tag.frequency >= self.settings.promotion_hits;
            if cause == Cause::Shrink && self.small.may_keep(tag.bytes(), is_hot) {
                return self.keep_in_small(offset, tag, owner);
            }
            let destination = if is_hot {
                self.room_in_main(bytes, budget, owner)
            } else if self.main.is_roomy(bytes) {
                self.main.reserve(&mut self.arena, bytes)
            } else {
                None
            };
            self.forget(offset, tag);
            if let Some(to) = destination {
                self.copy_frame(offset, to, bytes, 0);
                self.statistics.promotions += 1;
                owner.moved(label.keyspace, label.position, FrameId::at(offset), FrameId::at(to));
            } else {
                self.ghost.follow(self.statistics.main_frames as usize);
                self.ghost.remember(Shade::of(label.keyspace, label.position));
                self.statistics.small_evictions += 1;
                owner.evicted(label.keyspace, label.position, FrameId::at(offset), label.location);
            }
        }
        self.small.pass(&mut self.arena, tag.bytes());
        tag.bytes()
    }

    /// Moves the small ring's tail over a frame that stays in the ring; gives the bytes passed.
    fn keep_in_small<O: FrameOwner>(&mut self, offset: usize, tag: Tag, owner: &mut O) -> usize {
        self.forget(offset, tag);
        let label = self.arena.label(offset);
        // As in `evict_from_main`.
        self.small.pass(&mut self.arena, tag.bytes());
        match self.small.reserve(&mut self.arena, tag.bytes()) {
            Some(to) => {
                self.copy_frame(offset, to, tag.bytes(), tag.frequency);
                self.statistics.reinsertions += 1;
                if to != offset {
                    owner.moved(label.keyspace, label.position, FrameId::at(offset), FrameId::at(to));
                }
            }
            None => {
                self.statistics.small_evictions += 1;
                owner.evicted(label.keyspace, label.position, FrameId::at(offset), label.location);
            }
        }
        tag.bytes()
    }

    /// Announces the ring's next eviction, and fetches the header of the one behind it: both miss the
    /// processor's caches, and an insertion's work of other kinds hides that.
    #[inline]
    fn announce<O: FrameOwner>(&self, ring: &Ring, owner: &O) {
        if ring.used() == 0 {
            return;
        }
        let offset = ring.tail();
        let tag = self.arena.tag(offset);
        self.arena.prefetch(offset + tag.bytes(), 1);
        if tag.kind == Kind::Live {
            let label = self.arena.label(offset);
            owner.announced(label.keyspace, label.position);
        }
    }

    /// Moves the main ring's tail over one frame; gives the bytes passed.
    fn evict_from_main<O: FrameOwner>(
        &mut self,
        cause: Cause,
        budget: &mut ReinsertionBudget,
        owner: &mut O,
    ) -> usize {
        let offset = self.main.tail();
        let tag = self.arena.tag(offset);
        if tag.pins > 0 {
            self.main.pass_island(&mut self.arena, tag.bytes());
            return tag.bytes();
        }
        if tag.kind != Kind::Live {
            self.main.pass(&mut self.arena, tag.bytes());
            return tag.bytes();
        }
        let label = self.arena.label(offset);
        let bytes = frame_bytes(label.length as usize).unwrap_or(tag.bytes());
        let is_hot = tag.frequency > 0;
        let is_kept = cause == Cause::Shrink && self.main.may_keep(tag.bytes(), is_hot);
        self.forget(offset, tag);
        // Free from here on, but not overwritten before it is copied: see `copy_frame`.
        self.main.pass(&mut self.arena, tag.bytes());
        let stays = is_kept
            || cause == Cause::Insertion && is_hot && self.main.keeps_to_target(bytes) && budget.take(bytes);
        let destination = if stays { self.main.reserve(&mut self.arena, bytes) } else { None };
        if let Some(to) = destination {
            let frequency = if is_kept { tag.frequency } else { tag.frequency - 1 };
            self.copy_frame(offset, to, bytes, frequency);
            self.statistics.reinsertions += 1;
            if to != offset {
                owner.moved(label.keyspace, label.position, FrameId::at(offset), FrameId::at(to));
            }
        } else {
            self.statistics.main_evictions += 1;
            owner.evicted(label.keyspace, label.position, FrameId::at(offset), label.location);
        }
        tag.bytes()
    }

    /// Copies a frame of `bytes` bytes to `to`, unpinned, and counts it there.
    ///
    /// A frame that its ring's tail has just passed is still whole here but for its tag, where it is copied
    /// inside the ring: the free run that ends at the new tail holds the frame's own place, so `reserve`
    /// finds room there at the latest, and the gaps that it filled before start at or before the
    /// frame's start (a gap's tag is all that it writes). The two places may overlap.
    fn copy_frame(&mut self, from: usize, to: usize, bytes: usize, frequency: u8) {
        self.arena.copy_within(from..from + bytes, to);
        let units = (bytes / UNIT_BYTES) as u32;
        self.arena.set_tag(to, Tag { units, kind: Kind::Live, frequency, pins: 0 });
        self.statistics.frames += 1;
        self.statistics.main_frames += u64::from(self.is_in_main(to));
        self.ring_of(to).live_bytes += bytes;
    }
}
