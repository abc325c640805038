use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use tierstone_base::SeededRandom;

/// The index next to a plain set.
struct Pair {
    index: OrderedIndex,
    model: BTreeSet<Vec<u8>>,
}

/// Keys with shared prefixes, prefixes of each other, zero bytes, the empty key, long keys.
fn draw(random: &mut SeededRandom) -> Vec<u8> {
    let alphabet: &[u8] = if random.chance(0.5) { b"ab" } else { &[0, 1, 0xff, b'x'] };
    let length = if random.chance(0.01) { random.below(3000) } else { random.below(14) };
    let mut key = Vec::new();
    if random.chance(0.3) {
        key.extend_from_slice(b"a:common:prefix:");
    }
    key.extend((0..length).map(|_| alphabet[random.below(alphabet.len() as u64) as usize]));
    key
}

impl Pair {
    fn new() -> Self {
        Pair { index: OrderedIndex::new(u64::MAX), model: BTreeSet::new() }
    }

    fn step(&mut self, inserts: f64, random: &mut SeededRandom) {
        let key = draw(random);
        if random.chance(inserts) {
            assert_eq!(self.index.insert(&key).unwrap(), self.model.insert(key));
        } else {
            let near = random.chance(0.8);
            let from = self.model.range(key.clone()..).next().filter(|_| near).cloned().unwrap_or(key);
            assert_eq!(self.index.remove(&from), self.model.remove(&from));
        }
        let key = draw(random);
        assert_eq!(self.index.contains(&key), self.model.contains(&key));
    }

    fn check_range(&self, random: &mut SeededRandom) {
        let (mut from, mut to) = (draw(random), draw(random));
        if from > to {
            std::mem::swap(&mut from, &mut to);
        }
        let bound = |key: &[u8], random: &mut SeededRandom| match random.below(4) {
            0 => Bound::Unbounded,
            1 => Bound::Excluded(key.to_vec()),
            _ => Bound::Included(key.to_vec()),
        };
        let (from, to) = (bound(&from, random), bound(&to, random));
        let limit = random.below(200) as usize;
        let within = |key: &Vec<u8>| {
            !is_short_of(key, from.as_ref().map(Vec::as_slice))
                && !is_past(key, to.as_ref().map(Vec::as_slice))
        };
        let mut expected: Vec<Vec<u8>> = self.model.iter().filter(|key| within(key)).cloned().collect();
        for direction in [Direction::Forward, Direction::Backward] {
            let mut got = Vec::new();
            let (from, to) = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
            let shown = self.index.range(from, to, limit, direction, |key| {
                got.push(key.to_vec());
                true
            });
            assert_eq!(got[..], expected[..expected.len().min(limit)]);
            assert_eq!(shown, got.len());
            expected.reverse();
        }
    }

    fn check(&self, random: &mut SeededRandom) {
        assert_eq!(self.index.len(), self.model.len() as u64);
        assert_eq!(self.index.is_empty(), self.model.is_empty());
        let mut bytes = 0;
        let mut separators = self.index.leaves.keys().skip(1);
        for (separator, leaf) in &self.index.leaves {
            let next = separators.next();
            bytes += PLACE_BYTES + (separator.len() + leaf.memory_bytes()) as u64;
            leaf.for_each(&mut Vec::new(), |key| {
                assert!(key >= &separator[..] && next.is_none_or(|next| key < &next[..]));
                true
            });
        }
        assert_eq!(bytes, self.index.memory_bytes());
        for _ in 0..20 {
            self.check_range(random);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn random_work_agrees_with_a_map(seed: u64, inserts in 0.2f64..1.0, steps in 1usize..4000) {
        let mut random = SeededRandom::new(seed);
        let mut pair = Pair::new();
        for _ in 0..steps {
            pair.step(inserts, &mut random);
        }
        pair.check(&mut random);
        for _ in 0..steps {
            pair.step(0.1, &mut random);
        }
        pair.check(&mut random);
    }
}

#[test]
fn an_emptied_index_gives_its_memory_back() {
    let mut index = OrderedIndex::new(u64::MAX);
    let empty = index.memory_bytes();
    let keys: Vec<Vec<u8>> = (0..20_000u64).map(|n| format!("user:{n:08}").into_bytes()).collect();
    for key in &keys {
        index.insert(key).unwrap();
    }
    let full = index.memory_bytes();
    assert!(full < 20_000 * 9, "{full} bytes for keys with long common prefixes");
    for key in &keys[..15_000] {
        index.remove(key);
    }
    assert!(index.memory_bytes() < full * 4 / 10);
    for key in &keys[15_000..] {
        index.remove(key);
    }
    assert!(index.is_empty() && index.memory_bytes() < empty + 2048);
}

#[test]
fn at_the_limit_new_keys_are_refused_and_old_ones_work() {
    let limit = 100_000;
    let mut index = OrderedIndex::new(limit);
    let mut random = SeededRandom::new(4);
    let mut keys = Vec::new();
    loop {
        let mut key = vec![0; 5 + random.below(40) as usize];
        random.fill(&mut key);
        match index.insert(&key) {
            Ok(_) => keys.push(key),
            Err(IndexFull) => break,
        }
        assert!(index.memory_bytes() <= limit);
    }
    for key in &keys {
        assert_eq!(index.insert(key), Ok(false));
    }
    for key in &keys {
        assert!(index.remove(key) && !index.remove(key));
        assert!(index.memory_bytes() <= limit);
    }
    assert_eq!(index.insert(b"again"), Ok(true));
}

#[test]
fn a_discarded_index_is_empty_and_works() {
    let mut index = OrderedIndex::new(u64::MAX);
    let empty = index.memory_bytes();
    for number in 0..5_000u32 {
        index.insert(&number.wrapping_mul(0x9e37_79b9).to_be_bytes()).unwrap();
    }
    let mut steps = 1;
    while !index.discard(3) {
        steps += 1;
    }
    assert!(steps > 5, "{steps} steps");
    assert_eq!((index.len(), index.memory_bytes(), index.contains(&[0; 4])), (0, empty, false));
    assert_eq!(index.insert(b"again"), Ok(true));
}

#[test]
fn a_visitor_may_stop_a_range() {
    let mut index = OrderedIndex::new(u64::MAX);
    for raw in 0..100u8 {
        index.insert(&[raw]).unwrap();
    }
    for (direction, third) in [(Direction::Forward, 2), (Direction::Backward, 97)] {
        let mut seen = Vec::new();
        let shown = index.range(Bound::Unbounded, Bound::Unbounded, 50, direction, |key| {
            seen.push(key[0]);
            seen.len() < 3
        });
        assert_eq!((shown, seen[2]), (3, third));
    }
    let none = index.range(Bound::Unbounded, Bound::Unbounded, 0, Direction::Forward, |_| true);
    assert_eq!(none, 0);
}
