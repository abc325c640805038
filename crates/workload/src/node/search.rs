//! Search for many patterns: a rolling hash over fixed windows and a Bloom filter in front of an exact comparison,
//! held against an exact automaton (Aho-Corasick, from the crate of that name).
//!
//! The filter's error has one side: it may let a place through that is no match (and the comparison drops it), never
//! the other way. So what it lets through is a superset of the matches, and what is left after comparing is exactly
//! them. Its memory is some bits a pattern where the automaton takes states for all their bytes.

use super::{Result, Watch, Work, in_threads, timed, wrong};
use aho_corasick::AhoCorasick;
use std::collections::BTreeMap;
use tierstone_base::{Error, ErrorKind, SeededRandom};

/// Bytes of a window: no pattern is shorter.
pub const WINDOW_BYTES: usize = 8;
/// Bits of the filter a pattern, at least.
const BITS_A_PATTERN: usize = 16;
/// Odd, so that a power of it never vanishes modulo 2^64.
const BASE: u64 = 0x9e37_79b9_7f4a_7c15 | 1;

/// Patterns, ready to be looked for.
#[derive(Clone, Debug)]
pub struct Searcher {
    patterns: Vec<Vec<u8>>,
    /// Numbers of patterns by the hash of their first window.
    by_hash: BTreeMap<u64, Vec<u32>>,
    filter: Vec<u64>,
    mask: u64,
    /// The factor of the byte that leaves the window.
    leaving: u64,
}

/// What a search found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Places that the filter let through.
    pub candidates: u64,
    /// Patterns found, overlapping ones too.
    pub matches: u64,
}

impl Searcher {
    /// For `patterns`, each of at least [`WINDOW_BYTES`] bytes.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for shorter ones, and for none.
    pub fn new(patterns: Vec<Vec<u8>>) -> Result<Searcher> {
        if patterns.is_empty() || patterns.iter().any(|pattern| pattern.len() < WINDOW_BYTES) {
            let message = format!("patterns need {WINDOW_BYTES} bytes each, and there has to be one");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        let bits = (patterns.len() * BITS_A_PATTERN).next_power_of_two().max(64);
        let leaving = BASE.wrapping_pow(WINDOW_BYTES as u32 - 1);
        let mut searcher = Searcher {
            by_hash: BTreeMap::new(),
            filter: vec![0; bits / 64],
            mask: bits as u64 - 1,
            leaving,
            patterns: Vec::new(),
        };
        for (number, pattern) in patterns.iter().enumerate() {
            let hash = hash(&pattern[..WINDOW_BYTES]);
            searcher.by_hash.entry(hash).or_default().push(number as u32);
            for bit in searcher.bits(hash) {
                searcher.filter[(bit / 64) as usize] |= 1 << (bit % 64);
            }
        }
        searcher.patterns = patterns;
        Ok(searcher)
    }

    /// The filter's bytes.
    pub fn filter_bytes(&self) -> usize {
        self.filter.len() * 8
    }

    /// The two bits of a hash. The low bits of a polynomial modulo 2^64 are poor, so both come from a mix of all.
    fn bits(&self, hash: u64) -> [u64; 2] {
        let mixed = (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        [mixed >> 32 & self.mask, (mixed ^ mixed >> 15) & self.mask]
    }

    fn may_begin(&self, hash: u64) -> bool {
        self.bits(hash).iter().all(|bit| self.filter[(bit / 64) as usize] >> (bit % 64) & 1 == 1)
    }

    /// Hands each place of `text` that the filter lets through to `each`, with its hash.
    pub fn candidates(&self, text: &[u8], mut each: impl FnMut(usize, u64)) {
        let Some(first) = text.get(..WINDOW_BYTES) else { return };
        let mut hash = hash(first);
        for place in 0..=text.len() - WINDOW_BYTES {
            if self.may_begin(hash) {
                each(place, hash);
            }
            if let Some(next) = text.get(place + WINDOW_BYTES) {
                let without = hash.wrapping_sub(u64::from(text[place]).wrapping_mul(self.leaving));
                hash = without.wrapping_mul(BASE).wrapping_add(u64::from(*next));
            }
        }
    }

    /// What begins in the first `own` bytes of `text`.
    pub fn count(&self, text: &[u8], own: usize) -> Found {
        let mut found = Found::default();
        self.candidates(text, |place, hash| {
            if place >= own {
                return;
            }
            found.candidates += 1;
            let of_hash = self.by_hash.get(&hash).map_or(&[][..], Vec::as_slice);
            let begins = |number: &&u32| text[place..].starts_with(&self.patterns[**number as usize]);
            found.matches += of_hash.iter().filter(begins).count() as u64;
        });
        found
    }

    /// The longest pattern.
    fn longest(&self) -> usize {
        self.patterns.iter().map(Vec::len).max().unwrap_or(0)
    }
}

fn hash(window: &[u8]) -> u64 {
    window.iter().fold(0u64, |hash, byte| hash.wrapping_mul(BASE).wrapping_add(u64::from(*byte)))
}

/// How many patterns an exact automaton finds in `text`, overlapping ones too.
///
/// # Errors
/// [`ErrorKind::NoMemory`] when the patterns are too many for an automaton.
pub fn exact(patterns: &[Vec<u8>], text: &[u8]) -> Result<u64> {
    let automaton = AhoCorasick::new(patterns).map_err(|error| {
        Error::new(ErrorKind::NoMemory, format!("no automaton for these patterns: {error}"))
    })?;
    Ok(automaton.find_overlapping_iter(text).count() as u64)
}

/// Text of words and different phrases out of the same alphabet, some of which occur in it.
pub fn corpus(seed: u64, bytes: usize, patterns: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut random = SeededRandom::new(seed);
    let letter = |random: &mut SeededRandom| b"etaoinshrdlucmfw"[random.below(16) as usize];
    let mut text = Vec::with_capacity(bytes + 16);
    while text.len() < bytes {
        for _ in 0..random.below(8) + 2 {
            text.push(letter(&mut random));
        }
        text.push(b' ');
    }
    text.truncate(bytes);
    let mut phrases = std::collections::BTreeSet::new();
    while phrases.len() < patterns {
        let length = WINDOW_BYTES + random.below(24) as usize;
        // Every fourth is taken from the text, so that there is something to find.
        let from_text = random.chance(0.25) && bytes > length;
        let phrase: Vec<u8> = if from_text {
            let place = random.below((bytes - length) as u64) as usize;
            text[place..place + length].to_vec()
        } else {
            (0..length).map(|_| letter(&mut random)).collect()
        };
        phrases.insert(phrase);
    }
    (text, phrases.into_iter().collect())
}

/// Searches `bytes` of text for `patterns` phrases in `threads` threads, each over its part.
///
/// # Errors
/// A count that differs from the automaton's, or a thread that died.
pub fn run(
    (bytes, patterns): (usize, usize),
    threads: usize,
    seed: u64,
    watch: &mut dyn Watch,
) -> Result<Work> {
    let (text, patterns) = corpus(seed, bytes, patterns);
    let searcher = Searcher::new(patterns)?;
    let part = text.len().div_ceil(threads.max(1)).max(1);
    let reach = searcher.longest();
    // A part sees as far beyond its end as a pattern can reach.
    let cut = |start: usize| (&text[start..(start + part + reach).min(text.len())], part);
    let mut parts: Vec<(&[u8], usize)> = (0..text.len()).step_by(part).map(cut).collect();
    let (found, seconds) = timed(watch, || in_threads(&mut parts, |(text, own)| searcher.count(text, *own)))?;
    let matches: u64 = found.iter().map(|found| found.matches).sum();
    let candidates: u64 = found.iter().map(|found| found.candidates).sum();
    let (expected, exact_seconds) = timed(&mut (), || exact(&searcher.patterns, &text))?;
    if matches != expected {
        return Err(wrong(format!("{matches} matches were found, an exact automaton finds {expected}")));
    }
    Ok(Work {
        name: format!("search for {} patterns in {} MiB", searcher.patterns.len(), bytes >> 20),
        unit: "byte",
        amount: text.len() as f64,
        seconds,
        note: format!(
            "{threads} threads; {matches} matches, as an exact automaton finds them ({exact_seconds:.2} s in one \
             thread, building it included); the filter of {} KiB let {candidates} places through",
            searcher.filter_bytes() >> 10
        ),
        device: None,
    })
}

#[cfg(test)]
#[path = "search_test.rs"]
mod search_test;
