//! Key patterns of a selector, looked up together: what stands for itself and what ends in its only star are searched in order,
//! the others are tried one after the other.

use crate::glob;
use std::collections::BTreeSet;

/// Work of a search, and of a pattern that is tried beside its steps, in units of about a nanosecond.
const SEARCH: u64 = 100;
pub(super) const TRY: u64 = 10;

#[derive(Debug, Default)]
pub(super) struct KnownPatterns<'a> {
    literals: BTreeSet<&'a [u8]>,
    /// None is the beginning of another.
    prefixes: BTreeSet<&'a [u8]>,
    others: Vec<&'a [u8]>,
}

impl<'a> KnownPatterns<'a> {
    pub fn new(patterns: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut known = KnownPatterns::default();
        let is_plain = |bytes: &[u8]| !bytes.iter().any(|byte| b"*?[\\".contains(byte));
        let mut prefixes = BTreeSet::new();
        for pattern in patterns {
            match pattern {
                _ if is_plain(pattern) => drop(known.literals.insert(pattern)),
                [prefix @ .., b'*'] if is_plain(prefix) => drop(prefixes.insert(prefix)),
                _ => known.others.push(pattern),
            }
        }
        // In order: a beginning comes right before what begins with it.
        let mut last = None;
        for prefix in prefixes {
            if last.is_none_or(|last| !prefix.starts_with(last)) {
                known.prefixes.insert(prefix);
                last = Some(prefix);
            }
        }
        known
    }

    /// Whether one of them fits `key`; adds to `work` what that has cost.
    pub fn fit(&self, key: &[u8], work: &mut u64) -> bool {
        *work += SEARCH;
        // Between a prefix of the key and the key there is nothing but what begins with that prefix.
        let nearest = self.prefixes.range(..=key).next_back();
        self.literals.contains(key)
            || nearest.is_some_and(|prefix| key.starts_with(prefix))
            || self.others.iter().any(|pattern| {
                *work += TRY;
                glob::matches_counted(pattern, key, work)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierstone_base::SeededRandom;

    #[test]
    fn what_is_looked_up_together_fits_as_one_after_the_other() {
        let mut random = SeededRandom::new(9);
        let mut word = |letters: &[u8], len: u64| -> Vec<u8> {
            (0..random.below(len)).map(|_| letters[random.below(letters.len() as u64) as usize]).collect()
        };
        for _ in 0..2_000 {
            let mut patterns: Vec<Vec<u8>> = (0..4).map(|_| word(b"aab*", 5)).collect();
            patterns.extend((0..3).map(|_| [word(b"ab", 5), b"*".to_vec()].concat()));
            patterns.push(word(b"ab*?[]^\\", 6));
            let known = KnownPatterns::new(patterns.iter().map(Vec::as_slice));
            for _ in 0..20 {
                let key = word(b"ab*", 6);
                let fits = patterns.iter().any(|pattern| glob::matches(pattern, &key));
                assert_eq!(known.fit(&key, &mut 0), fits, "{patterns:?} and {key:?}");
            }
        }
    }
}
