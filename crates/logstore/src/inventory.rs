//! Which segments hold records, as the superblock says: so that one that is not there any more is missed.
//!
//! A segment without a header looks as if it had never been used, and one whose file is gone does not look at all. What
//! the superblock lists ([`crate::format::superblock::Superblock::in_use`]) must have a header at the next opening:
//! of a log, if the store was closed in good order, else of a log or a free one, as it may have been freed since.
//!
//! Rules, with the mutations that break them:
//! 1. A segment is listed only while a durable group of it is there (`listed_early`).
//! 2. What it lists after a close in good order has the lives that it had then: a segment that was put back from an
//!    older copy has another (`lives_not_compared`).
//! 3. Space that a slot of the superblock may list is not given back to the device, for its header goes with it: first
//!    both slots are written without it (`listed_discarded`).
//!
//! The list is written with the number of an opening, where the store is closed, and now and then while it is
//! open ([`crate::SuperblockWriter::note_segments`]). What was used for the first time since is listed nowhere: should
//! it go missing in a crash, nothing tells of it.

use crate::format::superblock::Superblock;
use crate::io::StreamId;
use crate::segments::Role;
use crate::shard::LogShard;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tierstone_base::checksum::checksum;

/// A list of segments in use that has so much room left, in bytes, was not cut short: the next run would have had room.
const ROOM_OF_A_RUN: usize = 16;

/// A set of segments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Bits(Vec<u64>);

impl Bits {
    fn has(&self, segment: u32) -> bool {
        let word = self.0.get(segment as usize / 64).copied().unwrap_or(0);
        word >> (segment % 64) & 1 != 0
    }

    fn insert(&mut self, segment: u32) {
        let place = segment as usize / 64;
        if place >= self.0.len() {
            self.0.resize(place + 1, 0);
        }
        self.0[place] |= 1 << (segment % 64);
    }
}

/// Segments in a row: the first, and how many.
pub type Run = (u32, u32);

/// The segments of `runs`, in their order.
pub fn segments_of(runs: &[Run]) -> impl Iterator<Item = u32> {
    runs.iter().flat_map(|&(first, count)| first..first.saturating_add(count))
}

/// `segments`, which ascend, in runs.
pub(crate) fn runs_of(segments: impl Iterator<Item = u32>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for segment in segments {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == segment => *count += 1,
            _ => runs.push((segment, 1)),
        }
    }
    runs
}

/// Whether `superblock`, of a store that was closed in good order, lists every segment that holds records: it was written by a
/// program that lists them, and the list was not cut short for want of room.
pub(crate) fn are_all_listed(superblock: &Superblock) -> bool {
    let slot = superblock.encode(0).unwrap_or_default();
    let room = slot.iter().rev().take_while(|&&byte| byte == 0).count();
    !superblock.in_use.is_empty() && room >= ROOM_OF_A_RUN
}

/// What is told of a segment in one life; that of several is XORed.
pub(crate) fn life_mark(segment: u32, generation: u64) -> u64 {
    checksum(generation, &segment.to_le_bytes())
}

/// What is in use, and what the superblock says of it. Shards change it, whoever writes the superblock reads it.
#[derive(Debug, Default)]
pub struct Inventory {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Segments with durable groups, each with its life; `None`: nobody knows it, for its header is damaged.
    in_use: BTreeMap<u32, Option<u64>>,
    /// What one slot of the superblock or the other may list.
    listed: Bits,
    /// Since it was written last something has changed that it should say.
    is_due: bool,
}

impl Inventory {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Each change is one step: nothing is left half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As an opening finds it: one slot may list `before`, the other lists `in_use`, each with its life if that is known.
    pub(crate) fn opened(&self, before: &[Run], in_use: impl Iterator<Item = (u32, Option<u64>)>) {
        let mut inner = self.lock();
        segments_of(before).for_each(|segment| inner.listed.insert(segment));
        for (segment, generation) in in_use {
            inner.in_use.insert(segment, generation);
            inner.listed.insert(segment);
        }
    }

    /// A group of `segment`, in its life `generation`, is durable. Cost: a lock, and a search among those in use.
    pub(crate) fn used(&self, segment: u32, generation: u64) {
        let mut inner = self.lock();
        if let Entry::Vacant(vacant) = inner.in_use.entry(segment) {
            vacant.insert(Some(generation));
            inner.is_due = true;
        }
    }

    /// The marks of all that is in use, XORed; zero where one is not known.
    pub(crate) fn lives(&self) -> u64 {
        let inner = self.lock();
        let mark =
            |all: u64, (&segment, life): (&u32, &Option<u64>)| Some(all ^ life_mark(segment, (*life)?));
        inner.in_use.iter().try_fold(0, mark).unwrap_or(0)
    }

    /// `segment` is about to be made free.
    pub(crate) fn freed(&self, segment: u32) {
        self.lock().in_use.remove(&segment);
    }

    /// Whether the space of `segment`, which is free, may be given back now; if not, it may be when the superblock has been
    /// written.
    pub(crate) fn may_be_discarded(&self, segment: u32) -> bool {
        let mut inner = self.lock();
        let is_listed = inner.listed.has(segment);
        inner.is_due |= is_listed;
        !is_listed
    }

    /// Whether the superblock should be written: it lacks segments, or lists some whose space is to be given back.
    pub fn is_due(&self) -> bool {
        self.lock().is_due
    }

    /// What the superblock is to list now: it may from here on.
    pub(crate) fn begin_note(&self) -> Vec<Run> {
        let mut inner = self.lock();
        let runs = runs_of(inner.in_use.keys().copied());
        segments_of(&runs).for_each(|segment| inner.listed.insert(segment));
        inner.is_due = false;
        runs
    }

    /// Both slots list `runs` and nothing else.
    pub(crate) fn end_note(&self, runs: &[Run]) {
        let mut listed = Bits::default();
        segments_of(runs).for_each(|segment| listed.insert(segment));
        self.lock().listed = listed;
    }

    /// What is in use.
    pub fn in_use(&self) -> Vec<Run> {
        runs_of(self.lock().in_use.keys().copied())
    }
}

impl LogShard {
    /// Groups of `stream` may have become durable.
    pub(crate) fn note_used(&mut self, stream: StreamId) {
        let listed_early = self.identity.mutations.is_on("listed_early");
        let told = self.stream(stream);
        let open = if listed_early { told.taking_segment() } else { None };
        let Some(segment) = open.or_else(|| told.newly_used()) else { return };
        // A group that became durable before does not keep what is being freed.
        let entry = self.segments.get(segment);
        if matches!(entry.role, Role::Open | Role::Sealed | Role::Cleaning) {
            self.segments.pool().inventory().used(segment, entry.generation);
        }
    }
}

#[cfg(test)]
#[path = "inventory_test.rs"]
mod inventory_test;
