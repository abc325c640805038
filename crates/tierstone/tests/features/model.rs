//! What a store must hold: plain maps.

use super::Shown;
use super::handle::{Handle, Space, Wanted};
use std::collections::BTreeMap;
use std::ops::Bound;
use tierstone_base::SeededRandom;

pub type Map = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Default)]
pub struct Model {
    maps: BTreeMap<Space, Map>,
    /// Of keyspaces with names: whether they are ordered, and how many of the name came before.
    named: BTreeMap<Space, (bool, u32)>,
}

impl Model {
    pub fn map(&mut self, space: Space) -> &mut Map {
        self.maps.entry(space).or_default()
    }

    pub fn spaces(&self) -> impl Iterator<Item = Space> {
        self.maps.keys().copied()
    }

    pub fn has(&self, space: Space) -> bool {
        self.maps.contains_key(&space)
    }

    pub fn add(&mut self, space: Space, ordered: bool) {
        let before = self.named.get(&space).map_or(0, |(_, number)| *number);
        self.named.insert(space, (ordered, before + 1));
        self.map(space);
    }

    pub fn remove(&mut self, space: Space) {
        self.maps.remove(&space);
    }

    pub fn is_ordered(&self, space: Space) -> bool {
        self.named[&space].0
    }

    /// Whether `earlier` has the very same keyspace.
    pub fn is_same(&self, space: Space, earlier: &Model) -> bool {
        self.has(space) && earlier.has(space) && self.named.get(&space) == earlier.named.get(&space)
    }

    /// What lies where `stays` says so, and the rest.
    pub fn parted(&self, stays: impl Fn(&[u8]) -> bool) -> (Model, Model) {
        let (mut here, mut there) = (self.clone(), self.clone());
        here.maps.values_mut().for_each(|map| map.retain(|key, _| stays(key)));
        there.maps.values_mut().for_each(|map| map.retain(|key, _| !stays(key)));
        (here, there)
    }

    pub fn range(&self, space: Space, wanted: &Wanted) -> Shown {
        let (from, to) = &wanted.bounds;
        let is_behind = |key: &Vec<u8>| match from {
            Bound::Unbounded => true,
            Bound::Included(from) => key >= from,
            Bound::Excluded(from) => key > from,
        };
        let is_before = |key: &Vec<u8>| match to {
            Bound::Unbounded => true,
            Bound::Included(to) => key <= to,
            Bound::Excluded(to) => key < to,
        };
        let all = self.maps[&space].iter().filter(|(key, _)| is_behind(key) && is_before(key));
        let mut shown: Shown = all.map(|(key, value)| (key.clone(), value.clone())).collect();
        if wanted.backward {
            shown.reverse();
        }
        shown.truncate(wanted.limit as usize);
        shown
    }

    pub fn compare_keys(&self, space: Space, keys: &[Vec<u8>], found: Vec<Option<Vec<u8>>>) {
        for (key, value) in keys.iter().zip(found) {
            let wanted = self.maps[&space].get(key);
            let lens = (value.as_ref().map(Vec::len), wanted.map(Vec::len));
            assert!(value.as_ref() == wanted, "{key:?} of {space:?}: values of {lens:?} bytes");
        }
    }

    pub fn compare_map(&self, space: Space, found: &Map) {
        let wanted = &self.maps[&space];
        let differs = |key: &&Vec<u8>| found.get(*key) != wanted.get(*key);
        let keys: Vec<&Vec<u8>> = found.keys().chain(wanted.keys()).filter(differs).take(5).collect();
        assert!(
            keys.is_empty(),
            "{space:?}: {} keys where {} should be; {keys:?} differ",
            found.len(),
            wanted.len()
        );
    }

    pub fn compare(&self, handle: &mut Handle) {
        for space in self.spaces() {
            let found = super::unless_lost(handle.scan(space));
            found.into_iter().for_each(|found| self.compare_map(space, &found));
        }
        let names: Vec<String> =
            self.spaces().filter(|space| matches!(space, Space::Named(_))).map(Space::name).collect();
        assert_eq!(handle.names(), names);
    }
}

/// Some of 250 keys: short and long, with tags, of bytes that are no text, and the empty one.
pub fn key(random: &mut SeededRandom) -> Vec<u8> {
    let number = random.below(250);
    match number % 11 {
        0 => format!("{{tag {}}}{number}", number % 3).into_bytes(),
        1 => [vec![0xff; (number % 7) as usize], vec![number as u8]].concat(),
        2 => [vec![b'p'; 200 + 3 * number as usize], number.to_be_bytes().to_vec()].concat(),
        3 => vec![0; (number % 20) as usize],
        _ => format!("key:{number:05}").into_bytes(),
    }
}

/// Short values, empty ones and long ones, all different.
pub fn value(random: &mut SeededRandom, stamp: u64, bytes_max: u64) -> Vec<u8> {
    let len = match random.below(40) {
        0 => random.below(45_000),
        1..=3 => random.below(20_000),
        // Around what a read brings at first.
        4 | 5 => 15_000 + random.below(7_000),
        6..=8 => 0,
        _ => random.below(300),
    };
    let mut value: Vec<u8> = (0..len.min(bytes_max)).map(|at| (at * 31 + stamp) as u8).collect();
    value.iter_mut().zip(stamp.to_le_bytes()).for_each(|(byte, other)| *byte = other);
    value
}

pub fn bounds(random: &mut SeededRandom) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    let mut bound = || match random.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(key(random)),
        _ => Bound::Excluded(key(random)),
    };
    (bound(), bound())
}
