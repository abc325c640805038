use super::{check_prefixes, overlap};
use crate::context::Halt;
use std::collections::BTreeSet;
use tierstone_base::SeededRandom;

fn prefixes(random: &mut SeededRandom, count_max: u64) -> Vec<Vec<u8>> {
    let count = random.below(count_max);
    (0..count).map(|_| (0..random.below(5)).map(|_| b'a' + random.below(3) as u8).collect()).collect()
}

/// What comparing all pairs says.
fn compared(old: &BTreeSet<Vec<u8>>, new: &[&[u8]]) -> Option<String> {
    for (index, prefix) in new.iter().enumerate() {
        let existing =
            old.iter().find(|other| overlap(prefix, other)).map(|other| ("an existing", &other[..]));
        let later = || new[index + 1..].iter().find(|other| overlap(prefix, other));
        let found = existing.or_else(|| later().map(|other| ("another provided", *other)));
        if let Some((which, other)) = found {
            let text = String::from_utf8_lossy;
            let (prefix, other) = (text(prefix), text(other));
            return Some(format!("ERR Prefix '{prefix}' overlaps with {which} prefix '{other}'."));
        }
    }
    None
}

#[test]
fn overlapping_prefixes_are_those_that_comparing_all_pairs_finds() {
    let mut random = SeededRandom::new(1);
    let mut found = 0;
    for _ in 0..20_000 {
        // As a client comes to them: none begins with another, but for the empty one, which is not checked.
        let mut old = BTreeSet::new();
        for prefix in prefixes(&mut random, 5) {
            if compared(&old, &[&prefix]).is_none() {
                old.insert(prefix);
            }
        }
        if random.chance(0.2) {
            old.insert(Vec::new());
        }
        let new = prefixes(&mut random, 6);
        let new: Vec<&[u8]> = new.iter().map(Vec::as_slice).collect();
        let expected = compared(&old, &new);
        found += u32::from(expected.is_some());
        match (check_prefixes(&old, &new), expected) {
            (Ok(()), None) => {}
            (Err(Halt::Error(text)), Some(expected)) if text.starts_with(&expected) => {}
            (got, expected) => panic!("{old:?} and {new:?}: {got:?} instead of {expected:?}"),
        }
    }
    assert!(found > 5_000 && found < 19_000, "{found}");
}
