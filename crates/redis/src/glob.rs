//! Redis's glob patterns in bounded time.
//!
//! A pattern without stars fits or not at once. Of one with stars the stretch before the first one must be the text's
//! beginning, and that behind the last one its end; what stands between two is searched from where the stretch before it
//! ended, and the first place where it fits is as good as any other. So no choice is ever taken back but the place of one
//! stretch: a hostile pattern costs at most its length × the text's length steps, and where that would be many the stretch
//! is searched at 64 places at once ([`search`]).
//!
//! [`matches`] is for a pattern that is used once or twice, [`Pattern`] for one that many texts are compared with: of that
//! the classes are read once.

mod search;

use search::find;
use std::ops::Range;

/// Whether `text` matches `pattern`: `*`, `?`, `[abc]`, `[^a-z]`, `\x`.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_counted(pattern, text, &mut 0)
}

/// As [`matches`]; adds to `work` what it has cost, in units of about a nanosecond.
pub fn matches_counted(pattern: &[u8], text: &[u8], work: &mut u64) -> bool {
    *work += PATTERN_WORK;
    if text.is_empty() {
        // Redis looks at no pattern then: only one that stands for everything is known before.
        return pattern.is_empty() || pattern == b"*";
    }
    let mut steps = Steps { left: STEPS_EACH * (pattern.len() + text.len()) + STEPS_ANYHOW, taken: 0 };
    let found = matches_quickly(pattern, text, &mut steps);
    *work += steps.taken as u64;
    found.unwrap_or_else(|| Pattern::new(pattern, false, text.len()).matches(text, work))
}

/// The work of coming to a pattern at all.
const PATTERN_WORK: u64 = 10;

/// Steps for each byte of pattern and text, and beside them, after which it is worth its while to read the pattern first.
const STEPS_EACH: usize = 4;
const STEPS_ANYHOW: usize = 256;

/// How many steps are taken, and how many more may be.
struct Steps {
    left: usize,
    taken: usize,
}

impl Steps {
    /// Whether so many more may be taken.
    fn take(&mut self, steps: usize) -> bool {
        self.taken += steps;
        let may = steps <= self.left;
        self.left = self.left.saturating_sub(steps);
        may
    }
}

/// Without reading the pattern first; `None`: that takes too many steps.
fn matches_quickly(pattern: &[u8], text: &[u8], steps: &mut Steps) -> Option<bool> {
    let (mut at, mut read) = (0, 0);
    // The pattern behind the newest star, and the text that the star has swallowed.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(at) == Some(&b'*') {
            while pattern.get(at) == Some(&b'*') {
                at += 1;
            }
            if at == pattern.len() {
                return Some(true);
            }
            retry = Some((at, read));
            continue;
        }
        let step = match (text.get(read), at < pattern.len()) {
            (Some(&byte), true) => {
                let (fits, used) = one(&pattern[at..], byte);
                if !steps.take(used) {
                    return None;
                }
                fits.then_some(used)
            }
            (None, false) => return Some(true),
            (None, true) => return Some(false),
            (Some(_), false) => None,
        };
        match (step, retry) {
            (Some(used), _) => {
                at += used;
                read += 1;
            }
            (None, Some((behind_star, swallowed))) => {
                at = behind_star;
                read = swallowed + 1;
                retry = Some((behind_star, read));
            }
            (None, None) => return Some(false),
        }
    }
}

/// Whether one byte fits the element at the start of `pattern`, and the element's length.
fn one(pattern: &[u8], byte: u8) -> (bool, usize) {
    match pattern {
        [b'?', ..] => (true, 1),
        [b'[', rest @ ..] => {
            let (class, used) = Class::read(rest, false);
            (class.has(byte), used + 1)
        }
        [b'\\', literal, ..] => (*literal == byte, 2),
        [literal, ..] => (*literal == byte, 1),
        [] => (false, 0),
    }
}

/// A set of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Class([u64; 4]);

impl Class {
    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte / 64)] >> (byte % 64) & 1 == 1
    }

    /// Adds `low..=high`, which may be empty.
    fn add(&mut self, low: u8, high: u8) {
        for (word, first) in self.0.iter_mut().zip([0u8, 64, 128, 192]) {
            let (low, high) = (low.max(first), high.min(first + 63));
            if low <= high {
                *word |= (u64::MAX >> (63 - (high - low))) << (low - first);
            }
        }
    }

    /// The class whose inside begins `rest`, and how many bytes it takes with its end. One that is never closed ends with
    /// the pattern, as in Redis.
    fn read(rest: &[u8], ignore_case: bool) -> (Class, usize) {
        let fold = |byte: u8| if ignore_case { byte.to_ascii_lowercase() } else { byte };
        let is_negated = rest.first() == Some(&b'^');
        let mut at = usize::from(is_negated);
        let mut class = Class::default();
        loop {
            match &rest[at..] {
                [] => break,
                [b']', ..] => {
                    at += 1;
                    break;
                }
                [b'\\', literal, ..] => {
                    class.add(fold(*literal), fold(*literal));
                    at += 2;
                }
                [low, b'-', high, ..] => {
                    class.add(fold(*low.min(high)), fold(*low.max(high)));
                    at += 3;
                }
                [literal, ..] => {
                    class.add(fold(*literal), fold(*literal));
                    at += 1;
                }
            }
        }
        if ignore_case {
            // A byte is in it if its lower case is.
            for upper in b'A'..=b'Z' {
                let (word, bit) = (usize::from(upper / 64), 1 << (upper % 64));
                class.0[word] &= !bit;
                if class.has(upper.to_ascii_lowercase()) {
                    class.0[word] |= bit;
                }
            }
        }
        if is_negated {
            class.0.iter_mut().for_each(|word| *word = !*word);
        }
        (class, at)
    }
}

/// What one byte of a text must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    Any,
    Byte(u8),
    /// One of the pattern's classes.
    Class(u32),
}

/// A pattern that was read.
#[derive(Clone, Debug)]
pub struct Pattern {
    elements: Vec<Element>,
    classes: Vec<Class>,
    /// What stands before, between and behind the stars.
    stretches: Vec<Range<usize>>,
    ignore_case: bool,
    /// Whether it wants more bytes than any text has.
    is_too_long: bool,
    fits_empty: bool,
    /// What reading it has cost.
    work: u64,
}

impl Pattern {
    /// Reads `pattern` for texts of up to `text_len_max` bytes; letters match in either case when `ignore_case`.
    /// Memory: some 50 bytes for each byte that a text must have, at most.
    pub fn new(pattern: &[u8], ignore_case: bool, text_len_max: usize) -> Pattern {
        let mut read = Pattern {
            elements: Vec::new(),
            classes: Vec::new(),
            stretches: Vec::new(),
            ignore_case,
            is_too_long: false,
            fits_empty: pattern.is_empty() || pattern == b"*",
            work: 0,
        };
        let (mut at, mut start) = (0, 0);
        while at < pattern.len() {
            let element = match &pattern[at..] {
                [b'*', ..] => {
                    read.stretches.push(start..read.elements.len());
                    start = read.elements.len();
                    while pattern.get(at) == Some(&b'*') {
                        at += 1;
                    }
                    continue;
                }
                [b'?', ..] => Element::Any,
                [b'[', rest @ ..] => {
                    let (class, used) = Class::read(rest, ignore_case);
                    at += used;
                    read.classes.push(class);
                    Element::Class(read.classes.len() as u32 - 1)
                }
                [b'\\', literal, ..] => {
                    at += 1;
                    read.literal(*literal)
                }
                [literal, ..] => read.literal(*literal),
                [] => break,
            };
            at += 1;
            if read.elements.len() == text_len_max {
                read.is_too_long = true;
                break;
            }
            read.elements.push(element);
        }
        read.stretches.push(start..read.elements.len());
        read.work = at as u64;
        read
    }

    fn literal(&self, byte: u8) -> Element {
        Element::Byte(if self.ignore_case { byte.to_ascii_lowercase() } else { byte })
    }

    /// What reading it has cost, in units of about a nanosecond.
    pub fn work(&self) -> u64 {
        self.work
    }

    /// Whether `text` matches it; adds to `work` what that has cost, in units of about a nanosecond.
    pub fn matches(&self, text: &[u8], work: &mut u64) -> bool {
        if text.is_empty() {
            return self.fits_empty;
        }
        let [first, between @ .., last] = self.stretches.as_slice() else {
            return !self.is_too_long && self.is_all(text, work);
        };
        if self.is_too_long || text.len() < self.elements.len() {
            return false;
        }
        let (begin, end) = (first.len(), text.len() - last.len());
        *work += (first.len() + last.len()) as u64;
        if !self.fits(first, &text[..begin]) || !self.fits(last, &text[end..]) {
            return false;
        }
        let mut at = begin;
        for stretch in between {
            match find(self, stretch, &text[at..end], work) {
                Some(place) => at += place + stretch.len(),
                None => return false,
            }
        }
        true
    }

    /// Whether `text` is what a pattern without stars says.
    fn is_all(&self, text: &[u8], work: &mut u64) -> bool {
        *work += 1 + text.len().min(self.elements.len()) as u64;
        text.len() == self.elements.len() && self.fits(&(0..text.len()), text)
    }

    /// Whether the bytes of `text` are those that `stretch` says, which is as long.
    fn fits(&self, stretch: &Range<usize>, text: &[u8]) -> bool {
        self.elements[stretch.clone()].iter().zip(text).all(|(element, byte)| self.takes(*element, *byte))
    }

    fn takes(&self, element: Element, byte: u8) -> bool {
        match element {
            Element::Any => true,
            Element::Byte(literal) if self.ignore_case => literal == byte.to_ascii_lowercase(),
            Element::Byte(literal) => literal == byte,
            Element::Class(number) => self.classes[number as usize].has(byte),
        }
    }
}

#[cfg(test)]
#[path = "glob_test.rs"]
mod glob_test;
