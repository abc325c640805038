use super::super::leaf::LEAF_ENTRIES;
use super::super::range::KeyRange;
use super::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Bound;
use tierstone_base::SeededRandom;
use tierstone_engine::Direction;

/// Keys by location: a log that is never cleaned.
#[derive(Default)]
pub struct Records {
    keys: Vec<Vec<u8>>,
    reads: Cell<usize>,
}

impl KeySource for Records {
    type Key<'a> = &'a [u8];

    fn key(&self, location: Location) -> &[u8] {
        self.reads.set(self.reads.get() + 1);
        &self.keys[location.units() as usize]
    }
}

impl Records {
    pub fn add(&mut self, key: &[u8]) -> Location {
        self.keys.push(key.to_vec());
        Location::new(self.keys.len() as u64 - 1).unwrap()
    }
}

impl OrderedIndex {
    /// Checks every invariant that the modules state.
    pub fn validate(&self, source: &Records) {
        let (mut leaves, mut bytes) = (Vec::new(), 0);
        let inners =
            self.validate_node(self.root, self.height, (None, None), source, &mut leaves, &mut bytes);
        assert_eq!((leaves.len(), inners), (self.leaves.len(), self.inners.len()));
        assert_eq!(bytes, self.node_bytes);
        for (at, id) in leaves.iter().enumerate() {
            let node = self.leaves.get(*id);
            let neighbour = |at: usize| leaves.get(at).copied().unwrap_or(NONE);
            assert_eq!((node.previous, node.next), (neighbour(at.wrapping_sub(1)), neighbour(at + 1)));
        }
        let len: usize = leaves.iter().map(|id| self.leaves.get(*id).leaf.len()).sum();
        assert_eq!(len as u64, self.len);
    }

    fn validate_node(
        &self,
        id: u32,
        height: usize,
        (low, high): (Option<&[u8]>, Option<&[u8]>),
        source: &Records,
        leaves: &mut Vec<u32>,
        bytes: &mut u64,
    ) -> usize {
        if height == 0 {
            leaves.push(id);
            let leaf = &self.leaves.get(id).leaf;
            *bytes += leaf.bytes() as u64;
            let Some((first, last)) = leaf.validate(source) else {
                assert_eq!(self.len, 0, "only an empty tree has an empty leaf");
                return 0;
            };
            assert!(leaf.len() <= LEAF_ENTRIES);
            assert!(low.is_none_or(|low| *low <= *first) && high.is_none_or(|high| *last < *high));
            return 0;
        }
        let inner = self.inners.get(id);
        *bytes += inner.bytes() as u64;
        assert_eq!(inner.children.len(), inner.separators.len() + 1);
        assert!(height < self.height || inner.children.len() > 1, "a root of one child goes");
        let separators: Vec<Box<[u8]>> =
            (0..inner.separators.len()).map(|at| inner.separators.key(at)).collect();
        let mut count = 1;
        for (at, child) in inner.children.iter().enumerate() {
            let low = at.checked_sub(1).map_or(low, |at| Some(&*separators[at]));
            let high = separators.get(at).map_or(high, |key| Some(key));
            count += self.validate_node(*child, height - 1, (low, high), source, leaves, bytes);
        }
        count
    }
}

/// A tree of each kind beside a map.
struct Model {
    records: Records,
    trees: [OrderedIndex; 2],
    map: BTreeMap<Vec<u8>, Location>,
}

impl Model {
    fn new() -> Self {
        let trees = [OrderedIndex::new(KeyMode::Whole), OrderedIndex::new(KeyMode::Partial)];
        Model { records: Records::default(), trees, map: BTreeMap::new() }
    }

    fn insert(&mut self, key: &[u8]) {
        let location = self.records.add(key);
        let old = self.map.insert(key.to_vec(), location);
        for tree in &mut self.trees {
            assert_eq!(tree.insert(key, location, &self.records), old);
        }
    }

    fn remove(&mut self, key: &[u8]) {
        let old = self.map.remove(key);
        for tree in &mut self.trees {
            assert_eq!(tree.remove(key, &self.records), old);
        }
    }

    fn replace(&mut self, key: &[u8]) {
        let new = self.records.add(key);
        let old = self.map.get_mut(key).map(|location| std::mem::replace(location, new));
        for tree in &mut self.trees {
            assert!(!tree.replace(key, new, new, &self.records));
            if let Some(old) = old {
                assert!(tree.replace(key, old, new, &self.records));
            }
        }
    }

    fn check_range(&self, range: &KeyRange<'_>) {
        let bounds = (range.low, range.high);
        let valid = match bounds {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => true,
            (Bound::Included(low), Bound::Included(high)) => low <= high,
            (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => {
                low < high
            }
        };
        let within = valid.then(|| self.map.range::<[u8], _>(bounds));
        let mut expected: Vec<Location> = within.into_iter().flatten().map(|(_, at)| *at).collect();
        if range.direction == Direction::Backward {
            expected.reverse();
        }
        expected.truncate(range.limit);
        for tree in &self.trees {
            let mut found = Vec::new();
            tree.range(range, &self.records, |location| {
                found.push(location);
                true
            });
            assert_eq!(found, expected, "{range:?}");
        }
    }

    fn check(&self) {
        for tree in &self.trees {
            tree.validate(&self.records);
            for (key, location) in &self.map {
                assert_eq!(tree.get(key, &self.records), Some(*location));
            }
        }
        self.check_range(&KeyRange::all());
        self.check_range(&KeyRange { direction: Direction::Backward, ..KeyRange::all() });
    }
}

/// Kinds of keys that are hard on prefixes and partial keys.
fn key(kind: usize, random: &mut SeededRandom) -> Vec<u8> {
    let many = random.below(20) as usize;
    let mut bytes = |length: u64, letters: u64| -> Vec<u8> {
        (0..random.below(length + 1)).map(|_| random.below(letters) as u8).collect()
    };
    match kind {
        // Zeros at the end, which a partial key does not tell from the key's end.
        0 => bytes(12, 2),
        1 => bytes(4, 256),
        // More in common than eight bytes, and ends that differ.
        2 => [b"a prefix that all of them share/".to_vec(), bytes(10, 3)].concat(),
        // Groups of ties: each key begins with 0, 20 or 40 equal bytes.
        3 => [vec![7; many / 7 * 20], format!("{:06}", random.below(3000)).into_bytes()].concat(),
        4 => format!("user:{:012}", random.below(100_000)).into_bytes(),
        // More in common than a leaf's prefix holds.
        5 => [vec![b'x'; 300], bytes(3, 20)].concat(),
        // The bytes of the greatest numbers.
        _ => [vec![255; many], bytes(2, 3)].concat(),
    }
}

#[test]
fn random_operations_agree_with_a_map() {
    for kind in 0..7 {
        let seed = 100 + kind as u64;
        println!("seed {seed}");
        let mut random = SeededRandom::new(seed);
        let mut model = Model::new();
        for round in 0..9 {
            let inserts = [0.9, 0.4, 0.15][round % 3];
            for _ in 0..1000 {
                let key = key(kind, &mut random);
                let known = model.map.range(key.clone()..).next().map(|(key, _)| key.clone());
                match known {
                    Some(known) if !random.chance(inserts) => {
                        if random.chance(0.2) {
                            model.replace(&known)
                        } else {
                            model.remove(&known)
                        }
                    }
                    _ if random.chance(0.1) => model.remove(&key),
                    _ => model.insert(&key),
                }
            }
            model.check();
            for _ in 0..200 {
                let (low, high) = (key(kind, &mut random), key(kind, &mut random));
                let bound = |key, which| match which {
                    0 => Bound::Unbounded,
                    1 => Bound::Excluded(key),
                    _ => Bound::Included(key),
                };
                let low = bound(low.as_slice(), random.below(4));
                let high = bound(high.as_slice(), random.below(4));
                let limit = [0, 1, 10, usize::MAX][random.below(4) as usize];
                for direction in [Direction::Forward, Direction::Backward] {
                    model.check_range(&KeyRange { low, high, direction, limit });
                }
            }
        }
        let keys: Vec<Vec<u8>> = model.map.keys().cloned().collect();
        for key in keys {
            model.remove(&key);
        }
        model.check();
        assert!(
            model.trees.iter().all(|tree| (tree.height, tree.leaves.len(), tree.inners.len()) == (0, 1, 0))
        );
    }
}

#[test]
fn keys_of_zero_to_65535_bytes_live_side_by_side() {
    let mut random = SeededRandom::new(21);
    let mut model = Model::new();
    let lengths = [0, 1, 7, 8, 9, 255, 256, 257, 4096, 65_534, 65_535];
    for _ in 0..400 {
        let length = lengths[random.below(lengths.len() as u64) as usize];
        let mut key = vec![b'k'; length];
        for _ in 0..random.below(3) {
            if length > 0 {
                key[random.below(length as u64) as usize] = random.below(256) as u8;
            }
        }
        model.insert(&key);
    }
    model.check();
    // Of 65,535 bytes that differ at their very end, the leaf of partial keys holds a bounded part.
    let partial = model.trees[1].leaves.get(model.trees[1].edge_leaf(false));
    assert!(partial.leaf.bytes() < 256 + 80 * 16);
    let keys: Vec<Vec<u8>> = model.map.keys().cloned().collect();
    keys.iter().step_by(2).for_each(|key| model.remove(key));
    model.check();
}

#[test]
fn a_lookup_of_partial_keys_reads_one_record_where_eight_bytes_tell_and_none_for_others() {
    let mut model = Model::new();
    for number in 0..20_000 {
        model.insert(format!("user:{:012}", number * 7).as_bytes());
    }
    let [whole, partial] = &model.trees;
    for (tree, reads) in [(whole, 0), (partial, 1)] {
        model.records.reads.set(0);
        for number in 0..1000 {
            assert!(tree.get(format!("user:{:012}", number * 91).as_bytes(), &model.records).is_some());
            assert!(tree.get(format!("user:{:012}", number * 91 + 1).as_bytes(), &model.records).is_none());
        }
        assert_eq!(model.records.reads.get(), 1000 * reads);
    }
    assert!(partial.memory_bytes() < whole.memory_bytes());
}

#[test]
fn ascending_keys_fill_memory_as_well_as_others() {
    let mut model = Model::new();
    for number in 0..50_000u32 {
        model.insert(format!("{number:024}").as_bytes());
    }
    let bytes = model.trees[1].memory_bytes() as f64 / 50_000.0;
    println!("{bytes:.1} bytes a key");
    assert!(bytes <= 24.0, "{bytes:.1} bytes a key");
}

#[test]
fn a_source_that_answers_other_keys_makes_nothing_panic() {
    let mut random = SeededRandom::new(31);
    let mut model = Model::new();
    let keys: Vec<Vec<u8>> = (0..3000).map(|_| key(2, &mut random)).collect();
    keys.iter().for_each(|key| model.insert(key));
    for key in &mut model.records.keys {
        let length = random.below(key.len() as u64 + 1) as usize;
        key.truncate(length);
        random.fill(key);
    }
    for key in &keys {
        let [_, tree] = &mut model.trees;
        let mut longer = key.clone();
        longer.extend_from_slice(b"more");
        let location = model.records.add(b"");
        tree.insert(&longer, location, &model.records);
        tree.get(key, &model.records);
        let (low, high) = (Bound::Included(key.as_slice()), Bound::Included(longer.as_slice()));
        for direction in [Direction::Forward, Direction::Backward] {
            tree.range(&KeyRange { low, high, direction, limit: 100 }, &model.records, |_| true);
        }
        if random.chance(0.5) {
            tree.remove(key, &model.records);
        }
    }
}
