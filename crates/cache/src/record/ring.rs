//! A ring of frames of any size inside a part of the arena: inserted at the head, evicted at the
//! tail.
//!
//! Invariants:
//! 1. From the tail to the head (around the limit) frames tile the ring; `used` is their sum. The
//!    rest is free, except for islands.
//! 2. An *island* is a pinned frame that the tail has passed: it stays where it is, and the head,
//!    when it arrives, fills the gap before it and takes the island in again, as if just inserted,
//!    even when it was unpinned or removed meanwhile; the tail decides when it comes by.
//!    Islands are kept in the order in which the tail passed them, which is the order in which the
//!    head meets them.
//! 3. `head` and `tail` are below `limit`; `used == 0` tells an empty ring from a full one when
//!    they are equal.
//! 4. The limit changes only while the used part does not wrap, so that frames always tile up to
//!    the limit at which the head wrapped.

use super::arena::Arena;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
struct Island {
    offset: usize,
    bytes: usize,
}

/// What ends a run of free bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunEnd {
    Tail,
    Limit,
    Island,
}

/// Offsets are those of the arena. See the module's words.
#[derive(Debug)]
pub(super) struct Ring {
    start: usize,
    limit: usize,
    target: usize,
    /// Above the limit, up to here, memory may be resident that nothing needs.
    resident_end: usize,
    head: usize,
    tail: usize,
    used: usize,
    islands: VecDeque<Island>,
    island_bytes: usize,
    /// Bytes of pinned frames, in the used part and as islands.
    pub pinned_bytes: usize,
    /// Bytes of live frames, in the used part and as islands.
    pub live_bytes: usize,
}

impl Ring {
    /// An empty ring over `bytes` bytes from `start`.
    pub(super) fn new(start: usize, bytes: usize) -> Ring {
        let limit = start + bytes;
        Ring {
            start,
            limit,
            target: limit,
            resident_end: limit,
            head: start,
            tail: start,
            used: 0,
            islands: VecDeque::new(),
            island_bytes: 0,
            pinned_bytes: 0,
            live_bytes: 0,
        }
    }

    pub(super) fn start(&self) -> usize {
        self.start
    }

    pub(super) fn tail(&self) -> usize {
        self.tail
    }

    /// Bytes between tail and head: live, dead and filled.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Bytes that hold frames or gaps, islands among them.
    pub(super) fn occupied(&self) -> usize {
        self.used + self.island_bytes
    }

    /// Bytes that the ring may hold now. Above its target while it shrinks.
    pub(super) fn capacity(&self) -> usize {
        self.limit - self.start
    }

    /// Whether frames still lie above the target.
    pub(super) fn is_shrinking(&self) -> bool {
        self.limit > self.target
    }

    /// Whether a frame of `bytes` put at the head now would lie below the target.
    pub(super) fn keeps_to_target(&self, bytes: usize) -> bool {
        !self.is_shrinking() || self.head + bytes <= self.target
    }

    /// Whether a live frame of `bytes` may stay while the ring shrinks: below the target there is room for it,
    /// and if it is not `hot`, for all live frames.
    pub(super) fn may_keep(&self, bytes: usize, is_hot: bool) -> bool {
        self.keeps_to_target(bytes) && (is_hot || self.live_bytes <= self.target - self.start)
    }

    /// Whether there is clearly more room than what evicting frame for frame leaves over: the ring
    /// is filling up for the first time, or much was removed.
    pub(super) fn is_roomy(&self, bytes: usize) -> bool {
        let free = self.capacity().saturating_sub(self.occupied());
        !self.is_shrinking() && free > bytes + self.capacity() / 64
    }

    /// Takes `bytes` contiguous bytes at the head, or says that the tail must move first. Gaps
    /// that are too small are filled with skip frames. Cost: constant, plus the islands passed.
    pub(super) fn reserve(&mut self, arena: &mut Arena, bytes: usize) -> Option<usize> {
        if self.used == 0 && self.islands.is_empty() {
            self.head = self.start;
            self.tail = self.start;
            self.approach_target();
        }
        if bytes > self.capacity() { None } else { self.advance_to_run(arena, bytes) }
    }

    /// When only islands are left, takes them in, so that the tail meets them again.
    pub(super) fn take_in_islands(&mut self, arena: &mut Arena) {
        if self.used == 0 && !self.islands.is_empty() {
            // No run is that long: the head goes all the way to the tail.
            let _ = self.advance_to_run(arena, usize::MAX);
        }
    }

    fn advance_to_run(&mut self, arena: &mut Arena, bytes: usize) -> Option<usize> {
        loop {
            let (run_end, stop) = self.run();
            let run = run_end - self.head;
            if bytes <= run {
                let offset = self.head;
                self.advance_head(bytes);
                return Some(offset);
            }
            if stop == RunEnd::Tail {
                return None;
            }
            if run > 0 {
                arena.set_skip(self.head, run);
                self.advance_head(run);
            }
            if stop == RunEnd::Island
                && let Some(island) = self.islands.pop_front()
            {
                self.island_bytes -= island.bytes;
                self.advance_head(island.bytes);
            }
        }
    }

    /// Moves the tail over a frame of `bytes` bytes, which becomes free. Its bytes stay as
    /// they are until the next `pass`, but for what a `reserve` in between gives out.
    pub(super) fn pass(&mut self, arena: &mut Arena, bytes: usize) {
        self.release_surplus(arena);
        self.tail += bytes;
        self.used -= bytes;
        if self.tail == self.limit {
            self.tail = self.start;
            self.approach_target();
        }
    }

    /// Moves the tail over a pinned frame of `bytes` bytes, which stays as an island.
    pub(super) fn pass_island(&mut self, arena: &mut Arena, bytes: usize) {
        self.islands.push_back(Island { offset: self.tail, bytes });
        self.island_bytes += bytes;
        self.pass(arena, bytes);
    }

    /// Asks for another capacity. Growth takes effect when the used part does not wrap; shrinking
    /// when, besides, nothing lies above the target.
    pub(super) fn set_target(&mut self, arena: &mut Arena, bytes: usize) {
        self.target = self.start + bytes;
        self.approach_target();
        self.release_surplus(arena);
    }

    /// Forgets every frame. Nothing may be pinned.
    pub(super) fn clear(&mut self, arena: &mut Arena) {
        self.islands.clear();
        self.island_bytes = 0;
        self.live_bytes = 0;
        self.used = 0;
        self.head = self.start;
        self.tail = self.start;
        self.approach_target();
        self.release_surplus(arena);
    }

    fn wraps(&self) -> bool {
        self.used > 0 && self.head <= self.tail
    }

    /// The end of the free run at the head, and what ends it.
    fn run(&self) -> (usize, RunEnd) {
        let (bound, stop) =
            if self.wraps() { (self.tail, RunEnd::Tail) } else { (self.limit, RunEnd::Limit) };
        match self.islands.front() {
            Some(island) if (self.head..bound).contains(&island.offset) => (island.offset, RunEnd::Island),
            _ => (bound, stop),
        }
    }

    fn advance_head(&mut self, bytes: usize) {
        self.head += bytes;
        self.used += bytes;
        if self.head == self.limit {
            self.head = self.start;
        }
    }

    fn approach_target(&mut self) {
        if self.wraps() {
            return;
        }
        let islands_end = self.islands.iter().map(|island| island.offset + island.bytes).max();
        let occupied_end = self.head.max(islands_end.unwrap_or(self.start));
        self.limit = self.target.max(occupied_end);
        self.resident_end = self.resident_end.max(self.limit);
        if self.head == self.limit {
            self.head = self.start;
            if self.used == 0 {
                self.tail = self.start;
            }
        }
    }

    fn release_surplus(&mut self, arena: &mut Arena) {
        if self.resident_end > self.limit {
            arena.release(self.limit..self.resident_end);
            self.resident_end = self.limit;
        }
    }

    /// Every frame and gap with its offset, islands first; asserts that they tile the ring.
    #[cfg(test)]
    pub(super) fn frames(&self, arena: &Arena) -> Vec<(usize, super::frame::Tag)> {
        let islands = self.islands.iter().map(|island| (island.offset, arena.tag(island.offset)));
        let mut frames: Vec<_> = islands.collect();
        let (mut offset, mut left) = (self.tail, self.used);
        while left > 0 {
            let tag = arena.tag(offset);
            assert!(tag.units > 0 && tag.bytes() <= left, "{tag:?} at {offset} with {left} bytes left");
            frames.push((offset, tag));
            left -= tag.bytes();
            offset += tag.bytes();
            assert!(offset <= self.limit);
            if offset == self.limit {
                offset = self.start;
            }
        }
        assert_eq!(offset, self.head);
        frames
    }
}
