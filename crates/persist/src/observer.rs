//! The recovery observer: every state of persistent memory that a failure may leave under a model.
//!
//! A failure is an imaginary processor that reads all persistent memory at once (Pelley 2014, chapter VI). The
//! states that it can see are the downward-closed cuts of the persist order: with a persist, everything before
//! it. [`Observer::enumerate`] gives each cut once; for traces too long for that [`Observer::telling`] gives for each
//! persist the least cut and the greatest, [`Observer::sample`] random ones. [`Observer::may_leave`] says of given
//! values whether any cut has them, without trying all.

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
            let end = event.address.checked_add(u64::from(event.len));
            if end.is_none_or(|end| end > initial.len() as u64) {
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

    /// For each persist the least state that has it and the greatest that has it not. These show a missing order of
    /// two persists whose damage is there when the later one survives with as little else as possible, or when the
    /// earlier one is lost with as much else as possible. Damage that needs several to survive and several to be lost
    /// is not among them, nor is what a further persist repairs or hides: for that enumerate a shorter trace, or sample.
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

    /// Whether some legal state has each of `words`, by address, at its value. Exact, and not by trying every state: the
    /// persists to one word are ordered, so the last one that survives says its value; of the states with given last
    /// ones the least has all the values if any has. `each_try` is called before each choice of last ones.
    ///
    /// # Errors
    /// The first error of `each_try`.
    ///
    /// # Panics
    /// When a word is not aligned or not in the memory.
    pub fn may_leave(&self, words: &[(u64, u64)], mut each_try: impl FnMut() -> Result<()>) -> Result<bool> {
        let sources: Vec<Vec<Option<usize>>> =
            words.iter().map(|&(address, value)| self.sources(address, value)).collect();
        if sources.iter().any(Vec::is_empty) {
            return Ok(false);
        }
        let mut chosen = vec![0; words.len()];
        loop {
            each_try()?;
            let last: Vec<Option<usize>> =
                sources.iter().zip(&chosen).map(|(sources, &at)| sources[at]).collect();
            if self.is_least_of(words, &last) {
                return Ok(true);
            }
            let Some(next) = (0..words.len()).find(|&word| chosen[word] + 1 < sources[word].len()) else {
                return Ok(false);
            };
            chosen[next] += 1;
            chosen[..next].fill(0);
        }
    }

    /// The persists after which the word at `address` holds `value`, and `None` if it did before all.
    fn sources(&self, address: u64, value: u64) -> Vec<Option<usize>> {
        let at = address as usize;
        let mut word = [0; 8];
        word.copy_from_slice(&self.initial[at..at + 8]);
        let mut sources = Vec::from_iter((u64::from_le_bytes(word) == value).then_some(None));
        for (number, (_, event)) in
            (0..).zip(&self.persists).filter(|(_, (_, event))| event.word() == address)
        {
            let from = (event.address - address) as usize;
            let len = usize::from(event.len);
            word[from..from + len].copy_from_slice(&event.bytes()[..len]);
            if u64::from_le_bytes(word) == value {
                sources.push(Some(number));
            }
        }
        sources
    }

    /// Whether the least state that has the persists `last` has none behind them to their words.
    fn is_least_of(&self, words: &[(u64, u64)], last: &[Option<usize>]) -> bool {
        let mut kept = self.required.clone();
        for &number in last.iter().flatten() {
            kept[number] = true;
            self.before[number].iter().for_each(|&earlier| kept[earlier] = true);
        }
        let newest = |address: u64| {
            (0..kept.len()).rev().find(|&number| kept[number] && self.persists[number].1.word() == address)
        };
        words.iter().zip(last).all(|(&(address, _), &last)| newest(address) == last)
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
