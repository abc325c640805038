//! Free segments that belong to no shard: any shard takes from here when it needs one, and gives back
//! what it does not need. One that finds none asks the others to look whether they can free some.
//!
//! Invariants:
//! 1. A segment in the pool holds no records: its header is blank, or a free one that is durable. So what
//!    is durable names no owner; the header of the shard that opens it will. A crash puts it back.
//! 2. A segment is in the pool or in the table of one shard, never both: whoever clears its bit owns it.
//! 3. At least as many bits are set as `free` says, besides those that claims under way will clear: a
//!    claim that has lowered `free` finds its segments.
//! 4. While the device gives no space, segments that take none yet are withheld: nobody may claim them, and they
//!    count neither as free nor as segments of the store. So the store works as one of the segments that it has,
//!    and its reserve is one that it can write to. A crash makes them free again.
//! 5. A question is answered when every other shard has looked since it was asked and can gain nothing: so the
//!    store is called full only when all its shards say so.
//!
//! 6. A shard whose cleaner has a victim and no segment to go on with says so ([`SegmentPool::starve`]): until it has
//!    one, who writes leaves one in the pool for it, and who has more than one lends it one.
//!
//! Words are changed atomically, nobody waits for anybody, but for what is told of a shortage. With one thread the order of
//! the steps alone decides who gets what; segments are taken in order of their numbers.

use crate::inventory::Inventory;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tierstone_base::ShardId;

/// The free segments of a store that no shard owns.
#[derive(Debug, Default)]
pub(crate) struct SegmentPool {
    /// Segments whose space has been written before, a bit each.
    ready: Box<[AtomicU64]>,
    /// Segments that take no space on the device yet.
    raw: Box<[AtomicU64]>,
    /// Segments that take no space, while the device gives none.
    withheld: Box<[AtomicU64]>,
    withheld_count: AtomicU32,
    is_short: AtomicBool,
    /// What the device said when it gave no space last: it may lack something else, as descriptors for files.
    refusal: Mutex<String>,
    /// Segments that may be claimed.
    free: AtomicU32,
    /// Of these, about, ready ones.
    ready_free: AtomicU32,
    /// Segments of the store.
    total: u32,
    /// Questions for space so far, and those of which somebody still waits for the answer.
    asks: AtomicU64,
    waiting: AtomicU32,
    /// Shards whose cleaners cannot go on without a free segment.
    starving: AtomicU32,
    lookouts: Box<[Lookout]>,
    inventory: Arc<Inventory>,
}

/// What a shard has last said of the space that it could free.
#[derive(Debug, Default)]
struct Lookout {
    /// The newest question that it knew then.
    seen: AtomicU64,
    can_gain: AtomicBool,
    /// Whether it has more free segments than its cleaner needs.
    can_lend: AtomicBool,
}

impl SegmentPool {
    /// An empty pool of a store with `total` segments and so many shards.
    pub fn new(total: u32, shards: u16) -> Self {
        let words = || (0..total.div_ceil(u64::BITS)).map(|_| AtomicU64::new(0)).collect();
        SegmentPool {
            ready: words(),
            raw: words(),
            withheld: words(),
            total,
            lookouts: (0..shards).map(|_| Lookout::default()).collect(),
            ..SegmentPool::default()
        }
    }

    /// Which segments hold records.
    pub fn inventory(&self) -> &Arc<Inventory> {
        &self.inventory
    }

    /// Asks all shards to free what they can; gives the number of the question. [`SegmentPool::end_ask`] must follow.
    pub fn ask(&self) -> u64 {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        self.asks.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Who asked has room, or waits no longer.
    pub fn end_ask(&self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }

    /// How many shards wait for others to free space.
    pub fn waiting_count(&self) -> u32 {
        self.waiting.load(Ordering::Acquire)
    }

    /// Whether `shard` has not answered the newest question, or said then that it can gain something.
    pub fn must_answer(&self, shard: ShardId) -> bool {
        let can_gain = |lookout: &Lookout| lookout.can_gain.load(Ordering::Relaxed);
        !self.has_seen_all(shard) || self.lookouts.get(usize::from(shard)).is_some_and(can_gain)
    }

    /// Whether `shard` has looked since the newest question.
    pub fn has_seen_all(&self, shard: ShardId) -> bool {
        let newest = self.asks.load(Ordering::Acquire);
        let lookout = self.lookouts.get(usize::from(shard));
        lookout.is_none_or(|lookout| lookout.seen.load(Ordering::Relaxed) >= newest)
    }

    /// `shard` says what `can_gain` gives; the newest question before that is answered.
    pub fn answer(&self, shard: ShardId, can_gain: impl FnOnce() -> bool) {
        let Some(lookout) = self.lookouts.get(usize::from(shard)) else { return };
        let asks = self.asks.load(Ordering::Acquire);
        lookout.can_gain.store(can_gain(), Ordering::Release);
        lookout.seen.store(asks, Ordering::Release);
    }

    /// Whether all shards but `shard` have looked since question `ask`, and can gain nothing.
    pub fn is_answered(&self, shard: ShardId, ask: u64) -> bool {
        let others = self.lookouts.iter().enumerate().filter(|(number, _)| *number != usize::from(shard));
        others.map(|(_, lookout)| lookout).all(|lookout| {
            lookout.seen.load(Ordering::Acquire) >= ask && !lookout.can_gain.load(Ordering::Acquire)
        })
    }

    /// A shard's cleaner cannot go on without a free segment, or can again.
    pub fn starve(&self, is_starving: bool) {
        if is_starving {
            self.starving.fetch_add(1, Ordering::AcqRel);
        } else {
            self.starving.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// How many shards' cleaners cannot go on without a free segment.
    pub fn starving_count(&self) -> u32 {
        self.starving.load(Ordering::Acquire)
    }

    /// `shard` says whether it has more free segments than its cleaner needs.
    pub fn offer(&self, shard: ShardId, can_lend: bool) {
        if let Some(lookout) = self.lookouts.get(usize::from(shard)) {
            lookout.can_lend.store(can_lend, Ordering::Release);
        }
    }

    /// Whether some shard but `shard` has more free segments than its cleaner needs.
    pub fn has_lender(&self, shard: ShardId) -> bool {
        let others = self.lookouts.iter().enumerate().filter(|(number, _)| *number != usize::from(shard));
        others.map(|(_, lookout)| lookout).any(|lookout| lookout.can_lend.load(Ordering::Acquire))
    }

    /// Segments of the store, in the pool or not, but for those that are withheld.
    pub fn total(&self) -> u32 {
        self.total.saturating_sub(self.withheld_count())
    }

    /// Whether the device gave no space when it was asked last.
    pub fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Acquire)
    }

    /// Notes what the device said when it gave no space.
    pub fn note_refusal(&self, words: &str) {
        let mut refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        words.clone_into(&mut refusal);
    }

    /// What it said last, to be told; empty where it never did.
    pub fn refusal(&self) -> String {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many segments are withheld.
    pub fn withheld_count(&self) -> u32 {
        self.withheld_count.load(Ordering::Acquire)
    }

    /// The device gives no space: segments that take none yet are withheld.
    pub fn withhold(&self) {
        self.is_short.store(true, Ordering::Release);
        while self.free_count() > self.ready_count() {
            // As a claim, so that every other one finds its segments.
            let lowered =
                self.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, |free| free.checked_sub(1));
            if lowered.is_err() {
                return;
            }
            let Some(segment) = take_lowest(&self.raw) else {
                self.free.fetch_add(1, Ordering::AcqRel);
                return;
            };
            self.put_withheld(segment);
        }
    }

    fn put_withheld(&self, segment: u32) {
        if let Some(word) = self.withheld.get((segment / u64::BITS) as usize) {
            word.fetch_or(1 << (segment % u64::BITS), Ordering::AcqRel);
            self.withheld_count.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Takes a segment that is withheld, to ask the device for its space.
    pub fn take_withheld(&self) -> Option<u32> {
        let segment = take_lowest(&self.withheld)?;
        self.withheld_count.fetch_sub(1, Ordering::AcqRel);
        Some(segment)
    }

    /// The device gives space again.
    pub fn end_shortage(&self) {
        self.is_short.store(false, Ordering::Release);
        while let Some(segment) = self.take_withheld() {
            self.put(segment, false);
        }
    }

    /// Segments that may be claimed. Another shard may be quicker.
    pub fn free_count(&self) -> u32 {
        self.free.load(Ordering::Acquire)
    }

    /// Of these, about, those whose space has been written before.
    pub fn ready_count(&self) -> u32 {
        self.ready_free.load(Ordering::Relaxed)
    }

    /// Gives a segment to whoever wants it. `ready`: its space has been written before.
    pub fn put(&self, segment: u32, ready: bool) {
        if !ready && self.is_short() {
            return self.put_withheld(segment);
        }
        let words = if ready { &self.ready } else { &self.raw };
        if let Some(word) = words.get((segment / u64::BITS) as usize) {
            word.fetch_or(1 << (segment % u64::BITS), Ordering::AcqRel);
            if ready {
                self.ready_free.fetch_add(1, Ordering::Relaxed);
            }
            self.free.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Claims `count` segments, or none: false when there are not so many and `left` more. `raw_first`: those whose
    /// space has not been written before are preferred. Each is handed to `take`, with whether it is ready.
    pub fn claim(&self, left: u32, count: u32, raw_first: bool, mut take: impl FnMut(u32, bool)) -> bool {
        let lower = |free: u32| free.checked_sub(count).filter(|&rest| rest >= left);
        if self.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, lower).is_err() {
            return false;
        }
        let mut missing = count;
        while missing > 0 {
            let ready = || take_lowest(&self.ready).map(|segment| (segment, true));
            let raw = || take_lowest(&self.raw).map(|segment| (segment, false));
            // Another shard's claim may be between its two words: then there is a bit in the next round.
            let found = if raw_first { raw().or_else(ready) } else { ready().or_else(raw) };
            if let Some((segment, ready)) = found {
                if ready {
                    self.ready_free.fetch_sub(1, Ordering::Relaxed);
                }
                take(segment, ready);
                missing -= 1;
            }
        }
        true
    }
}

/// Clears the lowest bit that is set and gives its number; `None` when none is.
fn take_lowest(words: &[AtomicU64]) -> Option<u32> {
    words.iter().zip(0u32..).find_map(|(word, place)| {
        let lowest = |bits: u64| (bits != 0).then(|| bits & (bits - 1));
        let before = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, lowest).ok()?;
        Some(place * u64::BITS + before.trailing_zeros())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_segment_is_claimed_once_and_all_or_none() {
        let pool = SegmentPool::new(130, 1);
        for segment in [129, 3, 64] {
            pool.put(segment, segment == 64);
        }
        assert!(!pool.claim(0, 4, false, |_, _| panic!("there are only three")));
        let mut taken = Vec::new();
        assert!(pool.claim(0, 2, false, |segment, ready| taken.push((segment, ready))));
        assert_eq!(taken, [(64, true), (3, false)]);
        assert!(pool.claim(0, 1, true, |segment, ready| taken.push((segment, ready))));
        assert_eq!((taken[2], pool.free_count(), pool.ready_count()), ((129, false), 0, 0));
    }

    #[test]
    fn a_question_is_answered_when_all_others_have_looked_in_vain() {
        let pool = SegmentPool::new(8, 3);
        assert!(!pool.must_answer(1) && !pool.must_answer(2));
        let ask = pool.ask();
        assert_eq!(pool.waiting_count(), 1);
        assert!(pool.must_answer(1) && pool.must_answer(2) && !pool.is_answered(0, ask));
        pool.answer(1, || false);
        assert!(!pool.must_answer(1) && !pool.is_answered(0, ask), "one has not looked");
        pool.answer(2, || true);
        assert!(pool.must_answer(2) && !pool.is_answered(0, ask), "one can gain something");
        pool.answer(2, || false);
        assert!(pool.is_answered(0, ask));
        assert!(!pool.is_answered(0, pool.ask()), "a new question is a new one");
    }

    #[test]
    fn who_writes_leaves_what_starving_cleaners_need() {
        let pool = SegmentPool::new(8, 2);
        [1, 2].into_iter().for_each(|segment| pool.put(segment, true));
        pool.starve(true);
        assert!(!pool.claim(pool.starving_count(), 2, false, |_, _| panic!("one is another's")));
        assert!(pool.claim(pool.starving_count(), 1, false, |_, _| ()));
        assert!(!pool.claim(pool.starving_count(), 1, false, |_, _| panic!("one is another's")));
        assert!(pool.claim(0, 1, false, |_, _| ()), "the cleaner itself leaves nothing");
        pool.starve(false);
        assert_eq!((pool.starving_count(), pool.has_lender(0)), (0, false));
        pool.offer(1, true);
        assert_eq!((pool.has_lender(0), pool.has_lender(1)), (true, false));
    }

    #[test]
    fn what_takes_no_space_is_withheld_while_there_is_none() {
        let pool = SegmentPool::new(130, 1);
        for segment in [129, 3, 64] {
            pool.put(segment, segment == 64);
        }
        pool.withhold();
        assert_eq!((pool.free_count(), pool.total(), pool.withheld_count()), (1, 128, 2));
        assert!(!pool.claim(0, 2, false, |_, _| panic!("there is only one")));
        pool.put(5, false);
        pool.put(6, true);
        assert_eq!((pool.free_count(), pool.total()), (2, 127));
        assert_eq!(pool.take_withheld(), Some(3));
        pool.put(3, true);
        assert_eq!((pool.free_count(), pool.total()), (3, 128));
        pool.end_shortage();
        assert_eq!((pool.free_count(), pool.ready_count(), pool.total()), (5, 3, 130));
        let mut taken = Vec::new();
        assert!(pool.claim(0, 5, true, |segment, _| taken.push(segment)));
        assert_eq!(taken, [5, 129, 3, 6, 64]);
    }

    #[test]
    fn raw_segments_are_preferred_where_they_are_to_be_prepared() {
        let pool = SegmentPool::new(8, 1);
        pool.put(1, true);
        pool.put(2, false);
        let mut taken = Vec::new();
        assert!(pool.claim(0, 1, true, |segment, ready| taken.push((segment, ready))));
        assert_eq!(taken, [(2, false)]);
    }
}
