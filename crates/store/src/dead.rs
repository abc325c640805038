//! Values that no map names any more, in the order in which they died.
//!
//! Invariant: each is here once, and is free if nobody holds it: whoever holds a value or lets it go says so here.
//!
//! Cost: a few steps of trees of all of them, wherever one is searched. A request may delete any number of large values.

use crate::large::{LargeMap, ValueId};
use crate::view_large::Place;
use std::collections::{BTreeMap, BTreeSet};
use tierstone_base::collections::Map;

/// A value whose chunks are to be deleted.
#[derive(Debug)]
pub(crate) struct Dead {
    pub place: Place,
    pub map: LargeMap,
    /// The next chunk to be deleted.
    pub next: u64,
    /// Whether only chunks that the map has are there; of an upload that a crash ended any may be.
    pub is_map_whole: bool,
}

impl Dead {
    /// One whose chunks are those that its map has.
    pub fn whole(place: Place, map: LargeMap) -> Dead {
        Dead { place, map, next: 0, is_map_whole: true }
    }
}

/// All dead values of a shard.
#[derive(Debug, Default)]
pub(crate) struct DeadValues {
    /// By when they died.
    all: BTreeMap<u64, Dead>,
    numbers: Map<ValueId, u64>,
    /// Those that nobody holds.
    free: BTreeSet<u64>,
    next: u64,
}

impl DeadValues {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub fn contains(&self, id: ValueId) -> bool {
        self.numbers.contains_key(&id)
    }

    pub fn push(&mut self, dead: Dead, is_held: bool) {
        let id = dead.map.id;
        self.remove(id);
        self.numbers.insert(id, self.next);
        self.all.insert(self.next, dead);
        if !is_held {
            self.free.insert(self.next);
        }
        self.next += 1;
    }

    /// It has got a name again, or nothing is left of it.
    pub fn remove(&mut self, id: ValueId) {
        if let Some(number) = self.numbers.remove(&id) {
            self.all.remove(&number);
            self.free.remove(&number);
        }
    }

    /// Somebody holds `id` from now on, or nobody does.
    pub fn note_held(&mut self, id: ValueId, is_held: bool) {
        match self.numbers.get(&id) {
            Some(number) if is_held => drop(self.free.remove(number)),
            Some(number) => drop(self.free.insert(*number)),
            None => {}
        }
    }

    pub fn retain(&mut self, lives: impl Fn(&Place) -> bool) {
        let gone = self.all.values().filter(|dead| !lives(&dead.place)).map(|dead| dead.map.id);
        let gone: Vec<ValueId> = gone.collect();
        gone.into_iter().for_each(|id| self.remove(id));
    }

    /// The oldest that nobody holds, by number.
    pub fn free(&self) -> impl ExactSizeIterator<Item = u64> {
        self.free.iter().copied()
    }

    /// Takes one out for as long as something of it is being deleted: [`DeadValues::put_back`] follows.
    pub fn take(&mut self, number: u64) -> Option<Dead> {
        self.all.remove(&number)
    }

    /// What was taken out is back.
    pub fn put_back(&mut self, number: u64, dead: Dead) {
        self.all.insert(number, dead);
    }

    /// A mark for [`DeadValues::since`].
    pub fn mark(&self) -> u64 {
        self.next
    }

    /// Those that have died since `mark` was taken.
    pub fn since(&self, mark: u64) -> impl Iterator<Item = &Dead> {
        self.all.range(mark..).map(|(_, dead)| dead)
    }
}

#[cfg(test)]
#[path = "dead_test.rs"]
mod dead_test;
