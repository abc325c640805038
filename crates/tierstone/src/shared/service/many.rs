//! Gets of many keys of one shard: answered when all values are there.

use super::{Attempt, Parked, Service};
use crate::lane::{FETCH_ROUNDS, never_held};
use crate::plain::{prefetch, value_of};
use crate::scan::{Entry, Page};
use crate::shared::answer::Reply;
use crate::shared::gate::Ready;
use crate::shared::message::OwnedKey;
use tierstone_base::{Error, Seq};
use tierstone_engine::{Engine, Key, Lookup, PREFETCHED_KEYS};

/// A get of many whose values are not all there.
#[derive(Debug)]
pub(super) struct Many {
    keys: Vec<OwnedKey>,
    values: Vec<Option<Vec<u8>>>,
    pub missing: usize,
    observed: Seq,
    failure: Option<Error>,
    pub purpose: Purpose,
}

/// What the values are for.
#[derive(Debug)]
pub(super) enum Purpose {
    Values(Reply<Vec<Option<Vec<u8>>>>),
    Page { reply: Reply<Page>, page: Page, expiries: Vec<u64> },
}

impl Service {
    /// Looks all of `keys` up; those that are on the device only are fetched.
    pub(super) fn get_many(&mut self, keys: Vec<OwnedKey>, purpose: Purpose) {
        let number = self.number();
        let values = vec![None; keys.len()];
        let count = keys.len();
        let mut many = Many { keys, values, missing: count, observed: 0, failure: None, purpose };
        for place in 0..count {
            if place.is_multiple_of(PREFETCHED_KEYS) {
                prefetch(&mut self.engine, many.keys[place..].iter().map(OwnedKey::view));
            }
            self.find(number, &mut many, place, Attempt::default());
        }
        if many.missing == 0 {
            self.finish_many(many);
        } else {
            self.many.insert(number, many);
        }
    }

    /// One key of many: takes its value, or fetches its record.
    pub(super) fn find(&mut self, number: u64, many: &mut Many, place: usize, attempt: Attempt) {
        let key: Key<'_> = many.keys[place].view();
        let found = match self.engine.lookup(self.now, key) {
            Lookup::Found(record) => {
                many.observed = many.observed.max(record.meta.seq);
                value_of(record).map(|value| Some(value.to_vec()))
            }
            Lookup::Missing => {
                many.observed = many.observed.max(self.engine.applied_seq());
                Ok(None)
            }
            Lookup::Fetch => match attempt.failure {
                Some(error) => Err(error),
                None if attempt.rounds >= FETCH_ROUNDS => Err(never_held()),
                None => {
                    self.next_number += 1;
                    let token = self.next_number;
                    self.engine.fetch(self.now, &[(token, key)]);
                    self.parked.insert(token, Parked::Many { number, place, rounds: attempt.rounds + 1 });
                    return;
                }
            },
        };
        many.missing -= 1;
        match found {
            Ok(value) => many.values[place] = value,
            Err(error) => many.failure = many.failure.take().or(Some(error)),
        }
    }

    /// Gives what was found of all.
    pub(super) fn finish_many(&mut self, many: Many) {
        let Many { keys, values, observed, failure, purpose, .. } = many;
        match purpose {
            Purpose::Values(reply) => {
                let result = failure.map_or(Ok(values), Err);
                self.answer(observed, Ready::Values(reply, result));
            }
            Purpose::Page { reply, mut page, expiries } => {
                page.damaged = page.damaged.or(failure);
                for ((key, value), expiry_ms) in keys.into_iter().zip(values).zip(expiries) {
                    // A key that went between page and value is not shown.
                    page.entries.extend(value.map(|value| Entry::new(key.bytes, value, expiry_ms)));
                }
                // That a key is not in the page was observed as well.
                self.answer(self.engine.applied_seq(), Ready::Page(reply, page));
            }
        }
    }
}
