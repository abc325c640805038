use super::super::bucket::{FRESH_BITS, PREFIX_BITS_MAX, fresh_tag};
use super::super::region::REGION_BUCKETS;
use super::*;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use tierstone_base::SeededRandom;
use tierstone_base::position::KeyHasher;

impl HashIndex {
    /// Walks over everything and checks every invariant that the modules state.
    fn validate(&self) {
        let (mut at, mut regions, mut buckets, mut len) = (Position(0), 0, 0, 0);
        loop {
            let region = self.regions.get(self.directory.find(at));
            assert_eq!(region.start(at), at.0, "regions are aligned and do not overlap");
            region.validate();
            (regions, buckets, len) =
                (regions + 1, buckets + region.bucket_count() as u64, len + region.len() as u64);
            let length = 1u128 << (64 - region.prefix_bits());
            for probe in [length / 3, length - 1] {
                let within = Position((u128::from(at.0) + probe) as u64);
                assert!(std::ptr::eq(self.regions.get(self.directory.find(within)), region));
            }
            match u64::try_from(u128::from(at.0) + length) {
                Ok(next) => at = Position(next),
                Err(_) => break,
            }
        }
        assert_eq!((regions, buckets, len), (self.regions.len(), self.bucket_count, self.len));
    }
}

fn location(units: u64) -> Location {
    Location::new(units).unwrap()
}

/// Records by location, and the index.
#[derive(Default)]
struct Model {
    index: HashIndex,
    positions: BTreeMap<Location, Position>,
    next: u64,
    /// Positions that the index asked for.
    asked: Cell<usize>,
}

impl Model {
    fn insert(&mut self, position: Position) -> Location {
        let location = location(self.next);
        self.next += 1;
        let asked = &self.asked;
        let positions = &self.positions;
        self.index.insert(position, location, &|asked_for| {
            asked.set(asked.get() + 1);
            positions[&asked_for]
        });
        self.positions.insert(location, position);
        location
    }

    fn remove(&mut self, location: Location) {
        let position = self.positions.remove(&location).unwrap();
        assert!(self.index.remove(position, location));
        assert!(!self.index.remove(position, location));
    }

    fn replace(&mut self, old: Location) {
        let position = self.positions.remove(&old).unwrap();
        let new = location(self.next);
        self.next += 1;
        assert!(self.index.replace(position, old, new));
        assert!(!self.index.replace(position, old, new));
        self.positions.insert(new, position);
    }

    fn check(&self) {
        self.index.validate();
        assert_eq!(self.index.len(), self.positions.len() as u64);
        for (&location, &position) in &self.positions {
            assert_eq!(self.index.get(position, |found| found == location), Some(location));
        }
    }

    fn any(&self, random: &mut SeededRandom) -> Option<Location> {
        let from = location(random.below(self.next.max(1)));
        self.positions.range(from..).next().map(|(location, _)| *location)
    }

    /// Everything that a scan shows, with `change` between its pages.
    fn scan(&mut self, count: usize, mut change: impl FnMut(&mut Model)) -> BTreeSet<Location> {
        let (mut cursor, mut shown) = (Some(Position(0)), BTreeSet::new());
        while let Some(from) = cursor {
            cursor = self.index.scan(from, count, |location| {
                shown.insert(location);
            });
            assert!(cursor.is_none_or(|next| next > from), "a scan goes forward");
            change(self);
        }
        shown
    }
}

/// How positions are spread.
#[derive(Clone, Copy, Debug)]
enum Spread {
    /// All over.
    Even,
    /// Half of the keys share a hash tag, and so 14 bits.
    Tag,
    /// Hashes keep this many bits.
    Weak(u32),
}

impl Spread {
    fn position(self, random: &mut SeededRandom) -> Position {
        let number = random.next_u64();
        match self {
            Spread::Even => Position(number),
            Spread::Tag if number.is_multiple_of(2) => Position((number >> 14) | (0x1a2 << 54)),
            Spread::Tag => Position(number),
            Spread::Weak(kept) => {
                let key = format!("{{{}}}{number}", number % 3);
                KeyHasher::weakened([1, 2], kept).position(key.as_bytes())
            }
        }
    }
}

const SPREADS: [Spread; 5] = [Spread::Even, Spread::Tag, Spread::Weak(12), Spread::Weak(3), Spread::Weak(0)];

#[test]
fn random_operations_agree_with_a_map() {
    for (seed, spread) in SPREADS.into_iter().enumerate() {
        println!("seed {seed}, {spread:?}");
        let mut random = SeededRandom::new(seed as u64);
        let mut model = Model::default();
        for round in 0..12 {
            // Grows, shrinks and stays in turn.
            let inserts = [0.9, 0.25, 0.5][round % 3];
            for _ in 0..1500 {
                if random.chance(inserts) {
                    model.insert(spread.position(&mut random));
                } else if let Some(location) = model.any(&mut random) {
                    if random.chance(0.3) { model.replace(location) } else { model.remove(location) }
                }
                let absent = spread.position(&mut random);
                assert_eq!(model.index.get(absent, |_| false), None);
            }
            model.check();
        }
        let all: BTreeSet<Location> = model.positions.keys().copied().collect();
        assert_eq!(model.scan(10, |_| {}), all);
        for location in all {
            model.remove(location);
        }
        model.check();
        assert_eq!((model.index.bucket_count, model.index.regions.len()), (0, 1));
        assert_eq!(model.index.directory.node_count(), 0);
    }
}

#[test]
fn a_scan_shows_what_is_there_throughout_whatever_grows_and_shrinks() {
    for (seed, spread) in SPREADS.into_iter().take(4).enumerate() {
        for count in [1, 50, 1000] {
            println!("seed {seed}, {spread:?}, pages of {count}");
            let mut random = SeededRandom::new(seed as u64);
            let mut model = Model::default();
            let throughout: BTreeSet<Location> =
                (0..2000).map(|_| model.insert(spread.position(&mut random))).collect();
            let mut fleeting = Vec::new();
            let mut pages = 0;
            let shown = model.scan(count, |model| {
                pages += 1;
                if pages % 40 < 20 {
                    let positions = (0..60).map(|_| spread.position(&mut random));
                    fleeting.extend(positions.map(|position| model.insert(position)).collect::<Vec<_>>());
                } else {
                    fleeting.drain(..fleeting.len().min(90)).for_each(|location| model.remove(location));
                }
            });
            assert!(throughout.is_subset(&shown));
        }
    }
}

#[test]
fn a_page_of_a_scan_is_bounded_and_in_the_order_of_positions() {
    let mut random = SeededRandom::new(7);
    let mut model = Model::default();
    (0..20_000).for_each(|_| {
        model.insert(Spread::Even.position(&mut random));
    });
    let (mut cursor, mut last) = (Some(Position(0)), Position(0));
    while let Some(from) = cursor {
        let mut page = Vec::new();
        cursor = model.index.scan(from, 10, |location| page.push(model.positions[&location]));
        assert!(page.len() < 10 + 40, "a bucket's worth beyond what was asked for");
        assert!(page.iter().all(|position| cursor.is_none_or(|next| *position < next)));
        assert!(page.iter().all(|position| *position >= last));
        last = cursor.unwrap_or_default();
    }
    // A keyspace that had many keys and has few: empty regions are passed over, a bounded number a page.
    assert_eq!(HashIndex::new().scan(Position(5), 10, |_| {}), None);
}

#[test]
fn a_key_takes_twelve_bytes_at_most_and_ten_and_a_half_on_average() {
    let mut random = SeededRandom::new(3);
    let mut model = HashIndex::new();
    let (mut size, mut sum, mut samples, mut most) = (10_000, 0.0, 0, 0.0f64);
    while size < 1_000_000 {
        while model.len() < size {
            let units = model.len();
            // Locations hold the upper part of the position, which is all that is ever asked for.
            let upper = random.next_u64() >> 24;
            model.insert(
                Position((upper << 24) | (units & 0xff_ffff)),
                location(upper),
                &|asked: Location| Position(asked.units() << 24),
            );
        }
        let bytes = model.memory_bytes() as f64 / size as f64;
        (sum, samples, most) = (sum + bytes, samples + 1, most.max(bytes));
        size += size / 10;
    }
    let mean = sum / f64::from(samples);
    println!("mean {mean:.2}, most {most:.2} bytes a key");
    assert!(mean <= 10.5 && most <= 12.0, "mean {mean:.2}, most {most:.2} bytes a key");
}

#[test]
fn growth_reads_at_most_64_positions_a_call_and_few_a_key() {
    let mut random = SeededRandom::new(11);
    let mut model = Model::default();
    let mut most = 0;
    let total = 400_000;
    for _ in 0..total {
        let before = model.asked.get();
        model.insert(Spread::Even.position(&mut random));
        most = most.max(model.asked.get() - before);
    }
    assert!(most <= 64, "{most} positions were read for one insert");
    assert!(model.asked.get() < total / 2, "{} positions were read for {total} keys", model.asked.get());
    // And the entries know enough: of lookups that miss, few are shown a candidate.
    let mut candidates = 0;
    for _ in 0..100_000 {
        model.index.get(Spread::Even.position(&mut random), |_| {
            candidates += 1;
            false
        });
    }
    assert!(candidates < 5_000, "{candidates} false candidates for 100,000 lookups");
}

#[test]
fn old_entries_are_read_again_before_their_home_is_unknown() {
    // A region's first keys differ from all others in their last bits only, so that it is split as often as it
    // can be, each time with all of its entries on one side.
    let mut model = Model::default();
    for number in 0..5000u64 {
        model.insert(Position((0x5555 << 48) | (number * 0x1234_5677)));
    }
    assert!(model.asked.get() > 0);
    model.check();
    let deepest = model.index.directory.find(Position(0x5555 << 48));
    assert!(model.index.regions.get(deepest).prefix_bits() > 20);
}

#[test]
fn keys_that_share_a_position_take_one_long_region_and_leave_it_again() {
    let mut model = Model::default();
    let position = Position(0x0123_4567_89ab_cdef);
    let shared: Vec<Location> = (0..3000).map(|_| model.insert(position)).collect();
    let region = model.index.regions.get(model.index.directory.find(position));
    assert!(region.bucket_count() > REGION_BUCKETS);
    let other = model.insert(Position(position.0 ^ 1));
    model.check();
    assert_eq!(model.scan(1, |_| {}).len(), 3001);
    shared.into_iter().for_each(|location| model.remove(location));
    assert_eq!(model.scan(1, |_| {}), BTreeSet::from([other]));
    assert!(model.index.bucket_count <= 2);
}

#[test]
fn an_entry_is_never_taken_for_another_than_its_position_as_far_as_it_knows() {
    let mut random = SeededRandom::new(5);
    for _ in 0..2000 {
        let position = Position(random.next_u64());
        let mut prefix_bits = random.below(u64::from(PREFIX_BITS_MAX)) as u32;
        let mut entry = Entry::new(position, prefix_bits, Location::MAX);
        assert_eq!(entry.known_bits(), FRESH_BITS);
        for _ in 0..random.below(60) {
            let upper = |bits: u32| (position.0 << bits) >> 63 == 1;
            if random.chance(0.6) && entry.known_bits() > HOME_BITS && prefix_bits < PREFIX_BITS_MAX {
                assert_eq!(entry.is_upper(), upper(prefix_bits));
                entry = entry.descended();
                prefix_bits += 1;
            } else if prefix_bits > 0 {
                prefix_bits -= 1;
                entry = entry.ascended(upper(prefix_bits));
            }
            let known = entry.known_bits();
            for bit in prefix_bits..64 {
                let other = Position(position.0 ^ 1 << (63 - bit));
                let differs = entry.difference(fresh_tag(other, prefix_bits)) != 0;
                assert_eq!(
                    differs,
                    bit < prefix_bits + known,
                    "bit {bit}, {known} known after {prefix_bits}"
                );
            }
            assert_eq!(
                (entry.difference(fresh_tag(position, prefix_bits)), entry.location()),
                (0, Location::MAX)
            );
        }
    }
}

#[test]
fn locations_have_forty_bits() {
    assert_eq!(Location::new((1 << 40) - 1), Some(Location::MAX));
    assert_eq!(Location::new(1 << 40), None);
}
