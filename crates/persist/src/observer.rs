//! The recovery observer: every state of persistent memory that a failure may leave under a model.
//!
//! A failure is an imaginary processor that reads all persistent memory at once (Pelley 2014, chapter VI). The
//! states that it can see are the downward-closed cuts of the persist order: with a persist, everything before
//! it. [`Observer::enumerate`] gives each cut once; [`Observer::telling`] those that find a missing order between
//! any two persists; [`Observer::sample`] random ones, for traces too long for the first.

use crate::order::{Model, OrderGraph};
use crate::trace::{Event, Kind, Trace};
use tierstone_base::{Error, ErrorKind, Result, SeededRandom};

/// When the failure comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// At any moment of the trace.
    Anywhere,
    /// After its last step: what every sync waited for is there.
    AtEnd,
}

/// What one failure leaves.
#[derive(Debug)]
pub struct State<'a> {
    /// Persistent memory, from address zero.
    pub image: &'a [u8],
    /// For each persist, in the trace's order, whether it is in the image.
    pub survived: &'a [bool],
    /// The first moment at which a failure can leave this: so many steps of the trace were done. What was
    /// acknowledged before it must be there.
    pub done: usize,
}

/// How many states were seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// States given to the visitor.
    pub states: u64,
    /// Whether those are all.
    pub exhausted: bool,
}

/// The observer of one trace under one model.
#[derive(Clone, Debug)]
pub struct Observer {
    persists: Vec<(usize, Event)>,
    /// For each persist those before it, as places in `persists`.
    before: Vec<Vec<usize>>,
    required: Vec<bool>,
    failure: Failure,
    end: usize,
    initial: Vec<u8>,
}

/// What an exploration carries from state to state.
struct Cursor<'a> {
    image: Vec<u8>,
    survived: Vec<bool>,
    /// The moment before each persist that survives, by the cut so far.
    done: Vec<usize>,
    seen: u64,
    limit: u64,
    visit: &'a mut dyn FnMut(&State<'_>) -> Result<()>,
}

impl Observer {
    /// The observer of `trace` under `model`; persistent memory was `initial` before it.
    ///
    /// # Errors
    /// `InvalidInput` when a persist lies outside `initial` or the trace is too long (see [`OrderGraph`]).
    pub fn new(trace: &Trace, model: Model, failure: Failure, initial: Vec<u8>) -> Result<Observer> {
        let events = trace.events();
        let graph = OrderGraph::derive(events, model)?.with_time(events, model);
        let persists: Vec<(usize, Event)> =
            (0..).zip(events.iter().copied()).filter(|(_, event)| event.is_persist()).collect();
        let mut numbers = vec![usize::MAX; events.len()];
        for (number, (place, event)) in persists.iter().enumerate() {
            numbers[*place] = number;
            if event.address + u64::from(event.len) > initial.len() as u64 {
                let message = format!(
                    "event {place} persists at {:#x}, the memory has {} bytes; give the observer all of it",
                    event.address,
                    initial.len()
                );
                return Err(Error::new(ErrorKind::InvalidInput, message));
            }
        }
        let among = |place: usize| -> Vec<usize> {
            graph
                .all_before(place)
                .map(|place| numbers[place])
                .filter(|number| *number != usize::MAX)
                .collect()
        };
        let before = persists.iter().map(|(place, _)| among(*place)).collect();
        let mut required = vec![false; persists.len()];
        if failure == Failure::AtEnd {
            let syncs =
                (0..).zip(events).filter(|(_, event)| event.kind == Kind::Sync || model == Model::Strict);
            for (place, event) in syncs {
                among(place).into_iter().for_each(|number| required[number] = true);
                if event.is_persist() {
                    required[numbers[place]] = true;
                }
            }
        }
        Ok(Observer { persists, before, required, failure, end: events.len(), initial })
    }

    /// How many persists the trace has.
    pub fn persists(&self) -> usize {
        self.persists.len()
    }

    /// Gives every legal state to `visit`, each cut once, up to `limit` of them.
    ///
    /// # Errors
    /// The first error of `visit`.
    pub fn enumerate(&self, limit: u64, mut visit: impl FnMut(&State<'_>) -> Result<()>) -> Result<Seen> {
        let mut cursor = self.cursor(limit, &mut visit);
        let exhausted = self.branch(0, &mut cursor)?;
        Ok(Seen { states: cursor.seen, exhausted })
    }

    /// For each persist the least state that has it and the greatest that has it not: if any two persists lack
    /// an order that recovery needs, one of these shows it.
    ///
    /// # Errors
    /// The first error of `visit`.
    pub fn telling(&self, mut visit: impl FnMut(&State<'_>) -> Result<()>) -> Result<Seen> {
        let mut cursor = self.cursor(u64::MAX, &mut visit);
        self.give(&mut cursor, |_, number| self.required[number])?;
        for chosen in 0..self.persists.len() {
            let least = |number: usize| number == chosen || self.before[chosen].contains(&number);
            self.give(&mut cursor, |_, number| least(number) || self.required[number])?;
            if !self.required[chosen] {
                self.give(&mut cursor, |_, number| {
                    number != chosen && !self.before[number].contains(&chosen) || self.required[number]
                })?;
            }
        }
        Ok(Seen { states: cursor.seen, exhausted: false })
    }

    /// Gives `count` random legal states: each with its own share of persists that are kept.
    ///
    /// # Errors
    /// The first error of `visit`.
    pub fn sample(
        &self,
        seed: u64,
        count: u64,
        mut visit: impl FnMut(&State<'_>) -> Result<()>,
    ) -> Result<Seen> {
        let mut random = SeededRandom::new(seed);
        let mut cursor = self.cursor(u64::MAX, &mut visit);
        for _ in 0..count {
            // Half of the samples fail at some moment, before which most is durable.
            let kept = random.unit();
            let moment = if random.chance(0.5) {
                random.below(self.persists.len() as u64 + 1) as usize
            } else {
                usize::MAX
            };
            self.give(&mut cursor, |survived, number| {
                let possible = self.before[number].iter().all(|&earlier| survived[earlier]);
                self.required[number] || possible && number < moment && random.chance(kept)
            })?;
        }
        Ok(Seen { states: cursor.seen, exhausted: false })
    }

    fn cursor<'a>(&self, limit: u64, visit: &'a mut dyn FnMut(&State<'_>) -> Result<()>) -> Cursor<'a> {
        let survived = vec![false; self.persists.len()];
        Cursor { image: self.initial.clone(), survived, done: vec![0], seen: 0, limit, visit }
    }

    /// Builds the state of the persists that `keep` keeps, given what is kept before, and gives it.
    fn give(&self, cursor: &mut Cursor<'_>, mut keep: impl FnMut(&[bool], usize) -> bool) -> Result<()> {
        cursor.image.copy_from_slice(&self.initial);
        let mut done = 0;
        for number in 0..self.persists.len() {
            let kept = keep(&cursor.survived[..number], number);
            cursor.survived[number] = kept;
            if kept {
                self.apply(number, &mut cursor.image);
                done = self.persists[number].0 + 1;
            }
        }
        cursor.done.push(done);
        self.show(cursor)?;
        cursor.done.pop();
        Ok(())
    }

    fn show(&self, cursor: &mut Cursor<'_>) -> Result<()> {
        let last = cursor.done.last().copied().unwrap_or(0);
        let done = if self.failure == Failure::AtEnd { self.end } else { last };
        cursor.seen += 1;
        (cursor.visit)(&State { image: &cursor.image, survived: &cursor.survived, done })
    }

    /// Tries both fates of persist `number` and of all later ones; whether all were tried.
    fn branch(&self, number: usize, cursor: &mut Cursor<'_>) -> Result<bool> {
        if cursor.seen >= cursor.limit {
            return Ok(false);
        }
        let Some((place, event)) = self.persists.get(number) else {
            self.show(cursor)?;
            return Ok(true);
        };
        let mut all = true;
        if !self.required[number] {
            all &= self.branch(number + 1, cursor)?;
        }
        if self.before[number].iter().all(|&earlier| cursor.survived[earlier]) {
            let range = event.address as usize..event.address as usize + usize::from(event.len);
            let mut old = [0; 8];
            old[..range.len()].copy_from_slice(&cursor.image[range.clone()]);
            self.apply(number, &mut cursor.image);
            cursor.survived[number] = true;
            cursor.done.push(place + 1);
            all &= self.branch(number + 1, cursor)?;
            cursor.done.pop();
            cursor.survived[number] = false;
            cursor.image[range.clone()].copy_from_slice(&old[..range.len()]);
        }
        Ok(all)
    }

    fn apply(&self, number: usize, image: &mut [u8]) {
        let event = &self.persists[number].1;
        let at = event.address as usize;
        image[at..at + usize::from(event.len)].copy_from_slice(&event.bytes()[..usize::from(event.len)]);
    }
}

#[cfg(test)]
#[path = "observer_test.rs"]
mod observer_test;
