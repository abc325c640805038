//! The recovery observer: every state of persistent memory that a failure may leave under a model.
//!
//! A failure is an imaginary processor that reads all persistent memory at once (Pelley 2014, chapter VI). The
//! states that it can see are the downward-closed cuts of the persist order: with a persist, everything before
//! it. [`Observer::enumerate`] gives each cut once; for traces too long for that [`Observer::telling`] gives for each
//! persist the least cut and the greatest, [`Observer::sample`] random ones. [`Observer::may_leave`] says of given
//! values whether any cut has them, without trying all.
//!
//! Memory: a sixteenth of the square of the number of persists in bytes, 56 MB for the longest trace, and while it is
//! made the graph of the order, an eighth of the square of the number of steps.

use crate::order::{Model, OrderGraph};
use crate::trace::{Event, Kind, Trace};
use std::collections::BTreeMap;
use std::ops::Range;
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
    /// For each persist those before it, as a row of bits by places in `persists`. Rows are as long as they need be.
    before: Vec<Box<[u64]>>,
    /// The persists that every state has, as bits.
    required: Vec<u64>,
    failure: Failure,
    end: usize,
    initial: Vec<u8>,
}

/// What an exploration carries from state to state.
struct Cursor<'a> {
    image: Vec<u8>,
    survived: Vec<bool>,
    /// The same as bits.
    kept: Vec<u64>,
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
        let persists: Vec<(usize, Event)> =
            (0..).zip(events.iter().copied()).filter(|(_, event)| event.is_persist()).collect();
        for (place, event) in &persists {
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
        let graph = OrderGraph::derive_in_time(events, model)?;
        let among = Among::new(events, &persists);
        let before = persists.iter().map(|(place, _)| among.of(graph.row_before(*place))).collect();
        let required = match failure {
            Failure::Anywhere => vec![0; persists.len().div_ceil(64)],
            Failure::AtEnd => required(events, &persists, &graph, model),
        };
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
        let required = |number: usize| has(&self.required, number);
        self.give(&mut cursor, |_, number| required(number))?;
        for chosen in 0..self.persists.len() {
            let least = |number: usize| number == chosen || has(&self.before[chosen], number);
            self.give(&mut cursor, |_, number| least(number) || required(number))?;
            if !required(chosen) {
                let without = |number: usize| number != chosen && !has(&self.before[number], chosen);
                self.give(&mut cursor, |_, number| without(number) || required(number))?;
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
                let possible = is_subset(&self.before[number], survived);
                has(&self.required, number) || possible && number < moment && random.chance(kept)
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
        let mut wanted: BTreeMap<u64, u64> = BTreeMap::new();
        for &(address, value) in words {
            if wanted.insert(address, value).is_some_and(|other| other != value) {
                return Ok(false);
            }
        }
        let words: Vec<Word> = wanted.into_iter().map(|(address, value)| self.word(address, value)).collect();
        if words.iter().any(|word| word.sources.is_empty()) {
            return Ok(false);
        }
        let mut chosen = vec![0; words.len()];
        loop {
            each_try()?;
            if self.is_least_of(&words, &chosen) {
                return Ok(true);
            }
            let Some(next) = (0..words.len()).find(|&word| chosen[word] + 1 < words[word].sources.len())
            else {
                return Ok(false);
            };
            chosen[next] += 1;
            chosen[..next].fill(0);
        }
    }

    /// What is known of the word at `address` of which `value` is wanted.
    fn word(&self, address: u64, value: u64) -> Word {
        let at = address as usize;
        let mut word = [0; 8];
        word.copy_from_slice(&self.initial[at..at + 8]);
        let mut sources = Vec::from_iter((u64::from_le_bytes(word) == value).then_some(None));
        let mut persists = Vec::new();
        for (number, (_, event)) in
            (0..).zip(&self.persists).filter(|(_, (_, event))| event.word() == address)
        {
            persists.push(number);
            let from = (event.address - address) as usize;
            let len = usize::from(event.len);
            word[from..from + len].copy_from_slice(&event.bytes()[..len]);
            if u64::from_le_bytes(word) == value {
                sources.push(Some(number));
            }
        }
        Word { persists, sources }
    }

    /// Whether the least state that has the chosen source of each word has no later persist to any of them.
    fn is_least_of(&self, words: &[Word], chosen: &[usize]) -> bool {
        let last = || words.iter().zip(chosen).map(|(word, &at)| (word, word.sources[at]));
        let mut kept = self.required.clone();
        for number in last().filter_map(|(_, last)| last) {
            set(&mut kept, number);
            kept.iter_mut().zip(&self.before[number]).for_each(|(kept, earlier)| *kept |= earlier);
        }
        last().all(|(word, last)| {
            word.persists.iter().rev().copied().find(|&number| has(&kept, number)) == last
        })
    }

    fn cursor<'a>(&self, limit: u64, visit: &'a mut dyn FnMut(&State<'_>) -> Result<()>) -> Cursor<'a> {
        let survived = vec![false; self.persists.len()];
        let kept = vec![0; self.required.len()];
        Cursor { image: self.initial.clone(), survived, kept, done: vec![0], seen: 0, limit, visit }
    }

    /// Builds the state of the persists that `keep` keeps, given what is kept before, and gives it.
    fn give(&self, cursor: &mut Cursor<'_>, mut keep: impl FnMut(&[u64], usize) -> bool) -> Result<()> {
        // What the last state had is taken back where it was stored: the whole image may be far larger.
        for (number, (_, event)) in self.persists.iter().enumerate() {
            if cursor.survived[number] {
                cursor.image[bytes_of(event)].copy_from_slice(&self.initial[bytes_of(event)]);
            }
        }
        cursor.kept.fill(0);
        let mut done = 0;
        for number in 0..self.persists.len() {
            let kept = keep(&cursor.kept, number);
            cursor.survived[number] = kept;
            if kept {
                set(&mut cursor.kept, number);
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
        if !has(&self.required, number) {
            all &= self.branch(number + 1, cursor)?;
        }
        if is_subset(&self.before[number], &cursor.kept) {
            let range = bytes_of(event);
            let mut old = [0; 8];
            old[..range.len()].copy_from_slice(&cursor.image[range.clone()]);
            self.apply(number, &mut cursor.image);
            cursor.survived[number] = true;
            set(&mut cursor.kept, number);
            cursor.done.push(place + 1);
            all &= self.branch(number + 1, cursor)?;
            cursor.done.pop();
            cursor.survived[number] = false;
            cursor.kept[number / 64] &= !(1 << (number % 64));
            cursor.image[range.clone()].copy_from_slice(&old[..range.len()]);
        }
        Ok(all)
    }

    fn apply(&self, number: usize, image: &mut [u8]) {
        let event = &self.persists[number].1;
        image[bytes_of(event)].copy_from_slice(&event.bytes()[..usize::from(event.len)]);
    }
}

/// A word of which a value is wanted.
struct Word {
    /// The persists to it, in order.
    persists: Vec<usize>,
    /// Those after which it holds the value, and `None` if it did before all.
    sources: Vec<Option<usize>>,
}

/// Makes rows of bits over persists of rows over all events.
struct Among {
    /// The persists among the events, as bits.
    mask: Vec<u64>,
    /// The number of the first persist in each word of `mask`.
    first: Vec<usize>,
    /// The number of each event that is a persist.
    numbers: Vec<usize>,
}

impl Among {
    fn new(events: &[Event], persists: &[(usize, Event)]) -> Among {
        let mut mask = vec![0; events.len().div_ceil(64)];
        let mut numbers = vec![0; events.len()];
        for (number, (place, _)) in persists.iter().enumerate() {
            set(&mut mask, *place);
            numbers[*place] = number;
        }
        let first = (0..mask.len()).map(|at| persists.partition_point(|(place, _)| *place < 64 * at));
        Among { first: first.collect(), mask, numbers }
    }

    /// The row, as long as it need be.
    fn of(&self, events: &[u64]) -> Box<[u64]> {
        let rows = || (0..).zip(events.iter().zip(&self.mask).map(|(row, mask)| (row & mask, *mask)));
        let last = rows().filter(|(_, (row, _))| *row != 0).last();
        let Some((at, (row, _))) = last else { return Box::default() };
        let highest = self.numbers[64 * at + row.ilog2() as usize];
        let mut all = vec![0; highest / 64 + 1];
        for (at, (mut row, mask)) in rows() {
            if row == mask {
                // All of them, as often: not bit by bit.
                let first = self.first[at];
                set_range(&mut all, first..first + mask.count_ones() as usize);
                continue;
            }
            while row != 0 {
                set(&mut all, self.numbers[64 * at + row.trailing_zeros() as usize]);
                row &= row - 1;
            }
        }
        all.into()
    }
}

/// What syncs waited for by the end of the trace; under strict persistency every persist.
fn required(events: &[Event], persists: &[(usize, Event)], graph: &OrderGraph, model: Model) -> Vec<u64> {
    let mut required = vec![0; persists.len().div_ceil(64)];
    let last_sync = events.iter().rposition(|event| event.kind == Kind::Sync);
    for (number, (place, _)) in persists.iter().enumerate() {
        // In time each sync is before all that comes later, so the last one tells of all.
        if model == Model::Strict || last_sync.is_some_and(|sync| graph.is_before(*place, sync)) {
            set(&mut required, number);
        }
    }
    required
}

/// The bytes of the image that a persist stores to.
fn bytes_of(event: &Event) -> Range<usize> {
    let at = event.address as usize;
    at..at + usize::from(event.len)
}

fn has(row: &[u64], number: usize) -> bool {
    row.get(number / 64).is_some_and(|word| word & (1 << (number % 64)) != 0)
}

fn set(row: &mut [u64], number: usize) {
    row[number / 64] |= 1 << (number % 64);
}

/// Sets bits of which there are 64 at most.
fn set_range(row: &mut [u64], numbers: Range<usize>) {
    if numbers.is_empty() {
        return;
    }
    let bits = u64::MAX >> (64 - numbers.len());
    let (word, shift) = (numbers.start / 64, numbers.start % 64);
    row[word] |= bits << shift;
    if shift > 0 && numbers.end > 64 * (word + 1) {
        row[word + 1] |= bits >> (64 - shift);
    }
}

/// Whether `all` has every bit of `row`.
fn is_subset(row: &[u64], all: &[u64]) -> bool {
    row.iter().zip(all).all(|(row, all)| row & !all == 0)
}

#[cfg(test)]
#[path = "observer_test.rs"]
mod observer_test;
