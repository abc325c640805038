//! What a store may hold after a crash: acknowledged present, unacknowledged all-or-nothing,
//! nothing else.
//!
//! Invariants:
//! 1. Batches take effect in the order in which they were submitted.
//! 2. A batch is there whole or not at all; an acknowledged one is there.
//! 3. A key that no batch ever wrote is absent.

use crate::violation::Violation;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

/// Names a submitted batch.
pub type BatchId = u64;

/// Which unacknowledged batches may survive together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurableOrder {
    /// A prefix of what was submitted: one log in order.
    Prefix,
    /// Any of them: several shards, each with its own log.
    Any,
}

/// The history of a key-value store, kept by a scenario, checked after each recovery.
#[derive(Clone, Debug)]
pub struct Oracle<K, V> {
    order: DurableOrder,
    base: BTreeMap<K, V>,
    batches: Vec<Batch<K, V>>,
    next_id: BatchId,
}

#[derive(Clone, Debug)]
struct Batch<K, V> {
    id: BatchId,
    changes: BTreeMap<K, Option<V>>,
    acknowledged: bool,
}

impl<K: Ord + Clone + Debug, V: Eq + Clone + Debug> Oracle<K, V> {
    /// The history of an empty store.
    pub fn new(order: DurableOrder) -> Self {
        Oracle { order, base: BTreeMap::new(), batches: Vec::new(), next_id: 1 }
    }

    /// A batch is about to be handed to the store: call it before the store can write a byte of
    /// it. `None` deletes. Of several changes of one key the last counts.
    pub fn submit(&mut self, changes: impl IntoIterator<Item = (K, Option<V>)>) -> BatchId {
        let id = self.next_id;
        self.next_id += 1;
        let changes = changes.into_iter().collect();
        self.batches.push(Batch { id, changes, acknowledged: false });
        id
    }

    /// A batch of one `key`.
    pub fn submit_one(&mut self, key: K, value: Option<V>) -> BatchId {
        self.submit([(key, value)])
    }

    /// The store has said that the batch is durable. A batch that the store refused without
    /// touching the medium is [`Oracle::refuse`]d; one that failed otherwise stays in doubt.
    ///
    /// # Panics
    /// When the batch is unknown or already settled: a mistake of the scenario.
    pub fn acknowledge(&mut self, id: BatchId) {
        let at = self.position(id);
        self.batches[at].acknowledged = true;
        self.settle_front();
    }

    /// The store has said that it did nothing of the batch, and never will.
    ///
    /// # Panics
    /// When the batch is unknown or acknowledged.
    pub fn refuse(&mut self, id: BatchId) {
        let at = self.position(id);
        assert!(!self.batches[at].acknowledged, "batch {id} was acknowledged");
        self.batches.remove(at);
        self.settle_front();
    }

    fn position(&self, id: BatchId) -> usize {
        match self.batches.iter().position(|batch| batch.id == id) {
            Some(at) => at,
            None => panic!("batch {id} was never submitted, or is settled already"),
        }
    }

    /// Acknowledged batches with nothing in doubt before them are history.
    fn settle_front(&mut self) {
        let settled = self.batches.iter().take_while(|batch| batch.acknowledged).count();
        for batch in self.batches.drain(..settled) {
            apply(&mut self.base, &batch.changes);
        }
    }

    /// What every batch submitted so far has made: what the running store answers.
    pub fn latest(&self) -> BTreeMap<K, V> {
        let mut contents = self.base.clone();
        self.batches.iter().for_each(|batch| apply(&mut contents, &batch.changes));
        contents
    }

    /// The keys that the history names.
    pub fn keys(&self) -> BTreeSet<&K> {
        let changed = self.batches.iter().flat_map(|batch| batch.changes.keys());
        self.base.keys().chain(changed).collect()
    }

    /// Checks what one key holds after recovery; batches as wholes are not looked at.
    ///
    /// # Errors
    /// A violation that names the key, the value seen and those allowed.
    pub fn check(&self, key: &K, observed: Option<&V>) -> Result<(), Violation> {
        let mut allowed = vec![self.base.get(key)];
        for batch in &self.batches {
            let Some(value) = batch.changes.get(key) else { continue };
            if batch.acknowledged {
                allowed.clear();
            }
            allowed.push(value.as_ref());
        }
        Violation::unless(allowed.contains(&observed), || {
            format!("key {key:?} holds {observed:?} after recovery, allowed are {allowed:?}")
        })
    }

    /// Checks everything that the store holds after recovery. Cost: the changes in doubt, once for
    /// each batch of them under [`DurableOrder::Prefix`].
    ///
    /// # Errors
    /// A violation that names the first key found wrong, or the batch that is there in part.
    pub fn check_contents(&self, observed: &BTreeMap<K, V>) -> Result<(), Violation> {
        for key in self.keys() {
            self.check(key, observed.get(key))?;
        }
        if let Some((key, value)) = observed.iter().find(|(key, _)| !self.keys().contains(key)) {
            return Err(Violation::new(format!("key {key:?} holds {value:?} and was never written")));
        }
        match self.order {
            DurableOrder::Prefix => self.check_prefix(observed),
            DurableOrder::Any => self.check_any(observed),
        }
    }

    fn check_prefix(&self, observed: &BTreeMap<K, V>) -> Result<(), Violation> {
        let certain = self.batches.iter().rposition(|batch| batch.acknowledged).map_or(0, |last| last + 1);
        let mut contents = self.base.clone();
        for (at, batch) in self.batches.iter().enumerate() {
            if at >= certain && contents == *observed {
                return Ok(());
            }
            apply(&mut contents, &batch.changes);
        }
        Violation::unless(contents == *observed, || {
            format!(
                "no prefix of the {} batches in doubt gives what recovery found: {observed:?}, history {self:?}",
                self.batches.len() - certain
            )
        })
    }

    /// Newest first, a batch is taken as present whenever the keys that no newer batch decides
    /// hold its values. Taking it only ever frees older batches, so this finds a choice of batches
    /// if there is one.
    fn check_any(&self, observed: &BTreeMap<K, V>) -> Result<(), Violation> {
        let mut decided = BTreeSet::new();
        for batch in self.batches.iter().rev() {
            let mut open = batch.changes.iter().filter(|(key, _)| !decided.contains(key));
            let differs = open.find(|(key, value)| observed.get(*key) != value.as_ref());
            match differs {
                None => decided.extend(batch.changes.keys()),
                Some((key, value)) if batch.acknowledged => {
                    return Err(Violation::new(format!(
                        "acknowledged batch {} is not whole: key {key:?} holds {:?}, written was {value:?}",
                        batch.id,
                        observed.get(key)
                    )));
                }
                Some(_) => {}
            }
        }
        let open = self
            .keys()
            .into_iter()
            .find(|key| !decided.contains(key) && self.base.get(*key) != observed.get(*key));
        match open {
            None => Ok(()),
            Some(key) => Err(Violation::new(format!(
                "a batch is there in part: key {key:?} holds {:?}, and no whole batch explains it",
                observed.get(key)
            ))),
        }
    }

    /// Recovery has ended and served `observed`: that is the history now, and nothing is in doubt.
    /// Call it after [`Oracle::check_contents`], and only when the recovered store answers from
    /// durable state; the next crash must find the same.
    pub fn settle(&mut self, observed: BTreeMap<K, V>) {
        self.base = observed;
        self.batches.clear();
    }
}

fn apply<K: Ord + Clone, V: Clone>(contents: &mut BTreeMap<K, V>, changes: &BTreeMap<K, Option<V>>) {
    for (key, value) in changes {
        match value {
            Some(value) => drop(contents.insert(key.clone(), value.clone())),
            None => drop(contents.remove(key)),
        }
    }
}

#[cfg(test)]
#[path = "oracle_test.rs"]
mod oracle_test;
