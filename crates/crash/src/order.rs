//! Which stores of several processors come before which, where each processor's accesses are in order (buffered strict
//! persistency): a clock of store numbers for each processor, store and loaded word.
//!
//! Only what passes through the memory is seen. What processors tell each other otherwise (a lock in volatile memory)
//! orders nothing here: more may be left than the model allows, never less.

use std::collections::{BTreeMap, BTreeSet};

/// Of each processor the number of its last store that comes before; none where it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clock(BTreeMap<u32, u64>);

impl Clock {
    fn join(&mut self, other: &Clock) {
        for (&processor, &number) in &other.0 {
            let mine = self.0.entry(processor).or_default();
            *mine = number.max(*mine);
        }
    }

    fn of(&self, processor: u32) -> u64 {
        self.0.get(&processor).copied().unwrap_or_default()
    }
}

/// The order of what is not durable yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreOrder {
    processors: BTreeMap<u32, Clock>,
    /// Of each store that is not durable who made it, and what comes before it and itself.
    stores: BTreeMap<u64, (u32, Clock)>,
    /// Of each word what comes before its loads: a later store to it comes after that.
    loaded: BTreeMap<usize, Clock>,
}

impl StoreOrder {
    /// `processor` makes store `number` to `word`, after store `previous` to the same unit.
    pub fn store(&mut self, processor: u32, number: u64, word: usize, previous: Option<u64>) {
        self.observe(processor, previous);
        let clock = self.processors.entry(processor).or_default();
        if let Some(loaded) = self.loaded.get(&word) {
            clock.join(loaded);
        }
        clock.0.insert(processor, number);
        self.stores.insert(number, (processor, clock.clone()));
    }

    /// `processor` loads `word`, which store `last` wrote.
    pub fn load(&mut self, processor: u32, word: usize, last: Option<u64>) {
        self.observe(processor, last);
        if let Some(clock) = self.processors.get(&processor) {
            self.loaded.entry(word).or_default().join(clock);
        }
    }

    /// What `processor` does next comes after store `number`.
    pub fn observe(&mut self, processor: u32, number: Option<u64>) {
        if let Some((_, before)) = number.and_then(|number| self.stores.get(&number)) {
            self.processors.entry(processor).or_default().join(before);
        }
    }

    /// Whether store `number` comes before what `processor` does next.
    pub fn is_before(&self, number: u64, processor: u32) -> bool {
        let Some((by, _)) = self.stores.get(&number) else { return false };
        self.processors.get(&processor).is_some_and(|clock| number <= clock.of(*by))
    }

    /// Store `number` is durable: it decides nothing any more.
    pub fn forget(&mut self, number: u64) {
        self.stores.remove(&number);
        if self.stores.is_empty() {
            *self = StoreOrder::default();
        }
    }

    /// The processors are one from now on, the first.
    pub fn end_threads(&mut self) {
        let mut all = Clock::default();
        self.processors.values().for_each(|clock| all.join(clock));
        self.processors = BTreeMap::from([(0, all)]);
    }

    /// The numbers of the stores that are left: of each processor a prefix of its own, picked by `choose` among so many
    /// options, and with each store all that come before it. Every such set can be picked in one way.
    pub fn cut(&self, mut choose: impl FnMut(u64) -> u64) -> BTreeSet<u64> {
        let mut rows: BTreeMap<u32, Vec<(u64, &Clock)>> = BTreeMap::new();
        for (&number, (processor, clock)) in &self.stores {
            rows.entry(*processor).or_default().push((number, clock));
        }
        // Of each processor the last store that is left.
        let mut last: BTreeMap<u32, u64> = BTreeMap::new();
        let mut needed = Clock::default();
        for (&processor, row) in &rows {
            let least = row.partition_point(|(number, _)| *number <= needed.of(processor));
            let is_possible = |clock: &Clock| {
                rows.range(..processor).all(|(earlier, _)| {
                    let before = clock.of(*earlier);
                    let left = last.get(earlier).copied().unwrap_or_default();
                    before <= left || !self.stores.contains_key(&before)
                })
            };
            let most = row.partition_point(|(_, clock)| is_possible(clock));
            let kept = least + choose((most - least) as u64 + 1) as usize;
            if let Some((number, clock)) = kept.checked_sub(1).and_then(|place| row.get(place)) {
                needed.join(clock);
                last.insert(processor, *number);
            }
        }
        let is_left = |by: &u32, number: u64| last.get(by).is_some_and(|&last| number <= last);
        let left = self.stores.iter().filter(|&(&number, (by, _))| is_left(by, number));
        left.map(|(&number, _)| number).collect()
    }
}

#[cfg(test)]
#[path = "order_test.rs"]
mod order_test;
