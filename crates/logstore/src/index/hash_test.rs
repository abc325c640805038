use super::super::bucket::{BUCKET_ENTRIES, HOME_BITS};
use super::super::dump::MapValues;
use super::super::sorted::SortedBuilder;
use super::super::stash::{last_of, prefix};
use super::super::value::{ScanProgress, UPPER_FROM};
use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use tierstone_base::{ErrorKind, SeededRandom};

impl HashIndex {
    /// Walks over everything and checks every invariant that the modules state.
    pub(in super::super) fn validate(&self) {
        let (mut at, mut bucketed, mut stale, mut regions) = (0u64, 0u64, 0u64, 0u32);
        let mut histogram = self.lost_histogram.map(|_| 0u32);
        loop {
            let region = self.regions.get(self.directory.find(Position(at)));
            let prefix_bits = region.prefix_bits();
            assert_eq!(region.start(Position(at)), at, "regions are aligned and do not overlap");
            let last = last_of(at, prefix_bits);
            for probe in [last, at | ((last - at) / 3)] {
                assert!(std::ptr::eq(self.region(Position(probe)), region));
            }
            for eighth in 0..8 {
                let start = at | (eighth << (61 - prefix_bits));
                if self.stash.overlaps(start, prefix_bits + 3) {
                    assert!(region.is_stashed(Position(start)), "a region knows what is stashed");
                }
            }
            self.validate_region(region);
            bucketed += region.len() as u64;
            stale += u64::from(region.stale_count);
            histogram[usize::from(region.lost_bits)] += 1;
            regions += 1;
            match last.checked_add(1) {
                Some(next) => at = next,
                None => break,
            }
        }
        assert_eq!((bucketed, stale, histogram), (self.bucketed, self.stale, self.lost_histogram));
        assert_eq!(regions, self.lost_histogram.iter().sum::<u32>());
        assert!(self.memory_bytes() <= self.settings.memory_limit_bytes);
    }

    fn validate_region(&self, region: &Region) {
        let bucket_count = region.bucket_count();
        let mut passed = vec![false; bucket_count];
        let (mut count, mut stale, mut lost) = (0, 0, 0);
        for index in 0..bucket_count {
            for entry in region.bucket(&self.arena, index).entries(self.layout()) {
                assert!(entry.known_bits() >= HOME_BITS);
                count += 1;
                stale += usize::from(entry.lost_bits() > 0);
                lost = lost.max(entry.lost_bits());
                let mut step = entry.home(bucket_count);
                while step != index {
                    passed[step] = true;
                    step = (step + 1) % bucket_count;
                }
            }
        }
        for (index, passed) in passed.iter().enumerate() {
            let bucket = region.bucket(&self.arena, index);
            assert!(!passed || bucket.is_passed(), "a passed bucket says so");
            assert!(!bucket.is_passed() || bucket.count() == BUCKET_ENTRIES);
        }
        assert_eq!((count, stale), (region.len(), usize::from(region.stale_count)));
        assert!(lost <= u32::from(region.lost_bits));
        assert!(stale > 0 || region.lost_bits == 0);
    }

    fn scan_all(&self, max_entries: usize) -> Vec<IndexValue> {
        let (mut out, mut at) = (Vec::new(), Position(0));
        loop {
            match self.scan(at, max_entries, &mut out) {
                ScanProgress::Next(next) => {
                    assert!(next > at);
                    at = next;
                }
                ScanProgress::End => return out,
            }
        }
    }
}

/// The shapes of key sets: how positions are drawn.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Uniform,
    OneSlot,
    FewSlots,
    OneShardOfEight,
    EqualInGroups,
    AllEqual,
    LowBitsOnly,
}

const SHAPES: [Shape; 7] = [
    Shape::Uniform,
    Shape::OneSlot,
    Shape::FewSlots,
    Shape::OneShardOfEight,
    Shape::EqualInGroups,
    Shape::AllEqual,
    Shape::LowBitsOnly,
];

fn draw(shape: Shape, random: &mut SeededRandom) -> Position {
    let any = random.next_u64();
    Position(match shape {
        Shape::Uniform => any,
        Shape::OneSlot => (5461 << 50) | (any >> 14),
        Shape::FewSlots => ((random.below(5) * 3001) << 50) | (any >> 14),
        Shape::OneShardOfEight => (3 << 61) | (any >> 3),
        Shape::EqualInGroups => random.below(6).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        Shape::AllEqual => 0xdead_beef_0bad_cafe,
        Shape::LowBitsOnly => random.below(1 << 24),
    })
}

fn settings(layout: EntryLayout) -> HashIndexSettings {
    HashIndexSettings { layout, ..HashIndexSettings::default() }
}

/// An index next to a plain map of what it must hold.
struct Pair {
    index: HashIndex,
    model: BTreeMap<u64, Position>,
    next_value: u64,
    out: Candidates,
}

impl Pair {
    /// Empty, of one layout or the other.
    fn new(random: &mut SeededRandom) -> Self {
        Pair::of(if random.chance(0.5) { EntryLayout::WIDE } else { EntryLayout::NARROW })
    }

    fn of(layout: EntryLayout) -> Self {
        let index = HashIndex::new(settings(layout));
        Pair { index, model: BTreeMap::new(), next_value: 1, out: Candidates::new() }
    }

    /// A value that no other entry has, from all over those that the layout has room for.
    fn value(&mut self) -> u64 {
        let lower = self.index.layout().lower_values();
        // Distinct, since the factor is odd.
        let spread =
            self.next_value.wrapping_mul(0x2_545f_4915) % (lower + (IndexValue::MAX_RAW + 1 - UPPER_FROM));
        self.next_value += 1;
        if spread < lower { spread } else { UPPER_FROM + (spread - lower) }
    }

    fn insert(&mut self, position: Position) {
        let raw = self.value();
        self.index.insert(position, IndexValue::new(raw)).unwrap();
        self.model.insert(raw, position);
    }

    fn any(&self, random: &mut SeededRandom) -> Option<(u64, Position)> {
        let from = random.next_u64() & IndexValue::MAX_RAW;
        let found = self.model.range(from..).next().or_else(|| self.model.iter().next());
        found.map(|(&raw, &position)| (raw, position))
    }

    fn remove(&mut self, random: &mut SeededRandom) {
        if let Some((raw, position)) = self.any(random) {
            assert!(self.index.remove(position, IndexValue::new(raw)));
            assert!(!self.index.contains(position, IndexValue::new(raw)));
            self.model.remove(&raw);
        }
    }

    fn replace(&mut self, random: &mut SeededRandom) {
        if let Some((raw, position)) = self.any(random) {
            let to = self.value();
            assert!(self.index.replace(position, IndexValue::new(raw), IndexValue::new(to)));
            self.model.remove(&raw);
            self.model.insert(to, position);
        }
    }

    fn check_one(&mut self, random: &mut SeededRandom) {
        if let Some((raw, position)) = self.any(random) {
            assert!(self.index.contains(position, IndexValue::new(raw)), "an entry was missed");
        }
    }

    fn check_all(&mut self) {
        self.index.validate();
        assert_eq!(self.index.len(), self.model.len() as u64);
        let mut by_position: BTreeMap<Position, BTreeSet<u64>> = BTreeMap::new();
        for (&raw, &position) in &self.model {
            by_position.entry(position).or_default().insert(raw);
        }
        for (position, raws) in by_position {
            self.index.candidates(position, &mut self.out);
            let found: BTreeSet<u64> = self.out.iter().map(|value| value.raw()).collect();
            assert!(found.is_superset(&raws), "an entry was missed");
            assert_eq!(found.len(), self.out.len(), "an entry was doubled");
            assert_eq!(self.out.iter().next(), self.index.first_candidate(position));
            assert!(found.iter().all(|raw| self.model.contains_key(raw)));
        }
        let mut scanned: Vec<u64> = self.index.scan_all(10).iter().map(|v| v.raw()).collect();
        scanned.sort_unstable();
        // Stashed entries may come twice, at the cursor that lies within what is known of them.
        scanned.dedup();
        assert!(scanned.iter().eq(self.model.keys()));
    }

    fn step(&mut self, shape: Shape, inserts: f64, random: &mut SeededRandom) {
        if random.chance(inserts) {
            let position = draw(shape, random);
            self.insert(position);
        } else if random.chance(0.7) {
            self.remove(random);
        } else {
            self.replace(random);
        }
        self.check_one(random);
    }
}

#[test]
fn random_work_on_every_shape_agrees_with_a_map() {
    for (seed, shape) in SHAPES.into_iter().enumerate() {
        println!("seed {seed} {shape:?}");
        let mut random = SeededRandom::new(seed as u64);
        let mut pair = Pair::new(&mut random);
        for inserts in [0.9, 0.6, 0.1, 0.95, 0.3] {
            for _ in 0..4000 {
                pair.step(shape, inserts, &mut random);
            }
            pair.check_all();
        }
    }
}

/// The places of entries, asked for again after any changes and of any index.
#[derive(Default)]
struct Spots {
    kept: Vec<Spot>,
    good: u32,
    gone: u32,
}

impl Spots {
    fn locate(&mut self, index: &HashIndex, position: Position) {
        let Some(spot) = index.locate_in(index.prefetch_head(position), position) else { return };
        assert_eq!((spot.position(), Some(spot.value())), (position, index.first_candidate(position)));
        assert_eq!(index.value_at(&spot), Some(spot.value()));
        self.kept.push(spot);
    }

    /// What a spot gives is a candidate of its position. Half of them are not asked for again.
    fn check(&mut self, index: &HashIndex, other: &HashIndex, random: &mut SeededRandom) {
        for spot in &self.kept {
            match index.value_at(spot) {
                Some(value) => {
                    assert_eq!(value, spot.value());
                    assert!(index.contains(spot.position(), value), "a spot gives what does not fit");
                    self.good += 1;
                }
                None => self.gone += 1,
            }
            assert_eq!(other.value_at(spot), None, "a spot of another index");
        }
        self.kept.retain(|_| random.chance(0.5));
    }
}

#[test]
fn a_spot_gives_what_fits_or_nothing() {
    for (seed, shape) in SHAPES.into_iter().enumerate() {
        println!("seed {seed} {shape:?}");
        let mut random = SeededRandom::new(100 + seed as u64);
        let (mut pair, mut other) = (Pair::new(&mut random), Pair::new(&mut random));
        let mut spots = Spots::default();
        // The last part gives chunks of buckets back.
        for inserts in [0.9, 0.4, 0.8, 0.1] {
            for _ in 0..6000 {
                pair.step(shape, inserts, &mut random);
                other.step(shape, inserts, &mut random);
                if let Some((_, position)) = pair.any(&mut random) {
                    spots.locate(&pair.index, position);
                }
                if random.chance(0.05) {
                    spots.check(&pair.index, &other.index, &mut random);
                }
            }
        }
        while !pair.model.is_empty() {
            pair.remove(&mut random);
        }
        spots.check(&pair.index, &other.index, &mut random);
        println!("{} good, {} gone", spots.good, spots.gone);
        assert!(spots.good > 1_000 && spots.gone > 50);
    }
}

#[test]
fn an_index_that_is_emptied_gives_its_memory_back() {
    for shape in [Shape::Uniform, Shape::OneSlot, Shape::FewSlots] {
        let mut random = SeededRandom::new(11);
        let mut pair = Pair::new(&mut random);
        for _ in 0..60_000 {
            let position = draw(shape, &mut random);
            pair.insert(position);
        }
        let full = pair.index.memory_bytes();
        for (count, (raw, position)) in pair.model.clone().into_iter().enumerate() {
            assert!(pair.index.remove(position, IndexValue::new(raw)));
            if count == 30_000 {
                pair.index.validate();
                assert!(pair.index.memory_bytes() < full * 7 / 10, "{shape:?}");
            }
        }
        pair.index.validate();
        assert_eq!(pair.index.len(), 0);
        assert!(pair.index.memory_bytes() < full / 3, "{shape:?}");
    }
}

#[test]
fn thousands_of_equal_positions_all_stay() {
    let mut pair = Pair::of(EntryLayout::WIDE);
    let mut random = SeededRandom::new(3);
    for number in 0..6000 {
        let shape = if number % 3 == 0 { Shape::Uniform } else { Shape::AllEqual };
        let position = draw(shape, &mut random);
        pair.insert(position);
    }
    pair.index.validate();
    let mut out = Candidates::new();
    pair.index.candidates(draw(Shape::AllEqual, &mut random), &mut out);
    let found: BTreeSet<u64> = out.iter().map(|value| value.raw()).collect();
    let equal = draw(Shape::AllEqual, &mut random);
    assert!(pair.model.iter().filter(|(_, p)| **p == equal).all(|(raw, _)| found.contains(raw)));
    while !pair.model.is_empty() {
        pair.remove(&mut random);
    }
    pair.index.validate();
    assert!(pair.index.is_empty());
}

#[test]
fn equal_entries_are_kept_apart() {
    let mut index = HashIndex::new(HashIndexSettings::default());
    let (position, value) = (Position(77), IndexValue::new(5));
    for _ in 0..1000 {
        index.insert(position, value).unwrap();
    }
    assert_eq!(index.len(), 1000);
    for left in (0..1000).rev() {
        assert!(index.remove(position, value));
        assert_eq!(index.len(), left);
    }
    assert!(!index.remove(position, value));
    index.validate();
}

/// Entries that exist all the time are seen by a scan during which the index grows and shrinks.
fn scan_while_changing(seed: u64, shape: Shape, lasting: usize, churn: usize) {
    println!("seed {seed} {shape:?} {lasting} {churn}");
    let mut random = SeededRandom::new(seed);
    let mut pair = Pair::new(&mut random);
    for _ in 0..lasting {
        let position = draw(shape, &mut random);
        pair.insert(position);
    }
    let mut waiting: BTreeSet<u64> = pair.model.keys().copied().collect();
    let mut passing: Vec<(Position, IndexValue)> = Vec::new();
    let (mut at, mut out, mut growing) = (Position(0), Vec::new(), true);
    loop {
        out.clear();
        let progress = pair.index.scan(at, 20, &mut out);
        out.iter().for_each(|value| {
            waiting.remove(&value.raw());
        });
        let ScanProgress::Next(next) = progress else { break };
        at = next;
        for number in 0..random.below(churn as u64) {
            if growing {
                let position = draw(shape, &mut random);
                let value = IndexValue::new((1 << 34) + (pair.next_value + number) % (1 << 33));
                if !pair.index.contains(position, value) {
                    pair.index.insert(position, value).unwrap();
                    passing.push((position, value));
                }
            } else if let Some((position, value)) = passing.pop() {
                assert!(pair.index.remove(position, value));
            }
            if random.chance(0.05)
                && let Some((raw, position)) = pair.any(&mut random)
            {
                pair.index.refresh(position, IndexValue::new(raw));
            }
        }
        pair.next_value += churn as u64;
        if passing.is_empty() || random.chance(0.04) {
            growing = passing.is_empty() || !growing;
        }
    }
    assert!(waiting.is_empty(), "{} entries were missed", waiting.len());
    pair.index.validate();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_scan_returns_what_lasts_while_regions_come_and_go(
        seed: u64, shape in 0..SHAPES.len(), lasting in 1usize..3000, churn in 1usize..3000,
    ) {
        scan_while_changing(seed, SHAPES[shape], lasting, churn);
    }

    #[test]
    fn short_random_runs_agree_with_a_map(
        seed: u64, shape in 0..SHAPES.len(), inserts in 0.3f64..1.0, steps in 1usize..3000,
    ) {
        let mut random = SeededRandom::new(seed);
        let mut pair = Pair::new(&mut random);
        for _ in 0..steps {
            pair.step(SHAPES[shape], inserts, &mut random);
        }
        pair.check_all();
    }

    #[test]
    fn a_dump_loads_to_the_same_entries(
        seed: u64, shape in 0..SHAPES.len(), count in 0usize..6000, max_bytes in 1usize..20_000,
    ) {
        let mut random = SeededRandom::new(seed);
        let mut pair = Pair::new(&mut random);
        for _ in 0..count {
            let position = draw(SHAPES[shape], &mut random);
            pair.insert(position);
        }
        let (mut loaded, mut at) = (HashIndex::new(settings(pair.index.layout())), Position(0));
        loop {
            let mut bytes = Vec::new();
            let progress = pair.index.dump_from(at, max_bytes, &mut bytes);
            loaded.load(&bytes).unwrap();
            let ScanProgress::Next(next) = progress else { break };
            at = next;
        }
        prop_assert_eq!(loaded.stale_entries(), pair.index.stale_entries());
        pair.index = loaded;
        pair.check_all();
    }

    #[test]
    fn hostile_bytes_never_panic_a_load(
        mut head in prop::collection::vec(any::<u8>(), 0..200), seed: u64, flips in 0usize..20,
    ) {
        let mut random = SeededRandom::new(seed);
        for layout in [EntryLayout::NARROW, EntryLayout::WIDE] {
            let mut index = HashIndex::new(HashIndexSettings { memory_limit_bytes: 1 << 20, layout });
            let _ = index.load(&head);
            index.validate();
        }
        let mut pair = Pair::new(&mut random);
        for _ in 0..1500 {
            let position = draw(SHAPES[(seed % 7) as usize], &mut random);
            pair.insert(position);
        }
        head.clear();
        let mut at = Position(0);
        while let ScanProgress::Next(next) = pair.index.dump_from(at, usize::MAX, &mut head) {
            at = next;
        }
        for _ in 0..flips {
            let place = random.below(head.len() as u64) as usize;
            head[place] = random.next_u64() as u8;
        }
        let layout = pair.index.layout();
        let mut index = HashIndex::new(HashIndexSettings { memory_limit_bytes: 1 << 20, layout });
        let result = index.load(&head);
        prop_assert!(flips > 0 || result.is_ok());
        index.validate();
    }

    #[test]
    fn a_sorted_build_equals_inserts(seed: u64, shape in 0..SHAPES.len(), count in 0usize..8000) {
        let mut random = SeededRandom::new(seed);
        let mut pair = Pair::new(&mut random);
        for _ in 0..count {
            let position = draw(SHAPES[shape], &mut random);
            pair.insert(position);
        }
        let mut sorted: Vec<(Position, IndexValue)> =
            pair.model.iter().map(|(&raw, &position)| (position, IndexValue::new(raw))).collect();
        sorted.sort_unstable();
        if count > 100 {
            sorted.swap(17, 60);
        }
        let mut builder = SortedBuilder::new(settings(pair.index.layout()));
        for (position, value) in sorted {
            builder.push(position, value).unwrap();
        }
        pair.index = builder.finish().unwrap();
        pair.check_all();
        for _ in 0..500 {
            pair.step(SHAPES[shape], 0.5, &mut random);
        }
        pair.check_all();
    }
}

#[test]
fn a_dump_taken_while_the_index_changes_holds_every_lasting_entry_once() {
    for (seed, shape) in SHAPES.into_iter().enumerate() {
        println!("seed {seed} {shape:?}");
        let mut random = SeededRandom::new(seed as u64);
        let mut pair = Pair::new(&mut random);
        for _ in 0..4000 {
            let position = draw(shape, &mut random);
            pair.insert(position);
        }
        let lasting: BTreeMap<u64, Position> =
            pair.model.iter().step_by(3).map(|(&raw, &position)| (raw, position)).collect();
        pair.model.retain(|raw, _| !lasting.contains_key(raw));
        let (mut bytes, mut at, mut growing) = (Vec::new(), Position(0), false);
        while let ScanProgress::Next(next) = pair.index.dump_from(at, 1, &mut bytes) {
            at = next;
            for _ in 0..400 {
                if growing {
                    let position = draw(shape, &mut random);
                    pair.insert(position);
                } else {
                    pair.remove(&mut random);
                }
            }
            if let Some((&raw, &position)) = lasting.range(random.next_u64() >> 29..).next() {
                pair.index.refresh(position, IndexValue::new(raw));
            }
            growing = if growing { pair.model.len() < 6000 } else { pair.model.len() < 500 };
        }
        let mut loaded = HashIndex::new(settings(pair.index.layout()));
        loaded.load(&bytes).unwrap();
        loaded.validate();
        for (&raw, &position) in &lasting {
            assert!(loaded.remove(position, IndexValue::new(raw)), "a lasting entry is missing");
            assert!(!loaded.contains(position, IndexValue::new(raw)), "an entry was doubled");
        }
    }
}

struct Plain;

impl MapValues for Plain {
    fn announce(&mut self, _: IndexValue) {}

    fn map(&mut self, value: IndexValue) -> IndexValue {
        value
    }
}

#[test]
fn each_step_of_an_exact_dump_is_what_the_index_held_there_and_then() {
    let mut whole = 0;
    for (seed, shape) in (0u64..).zip(SHAPES.into_iter().cycle().take(21)) {
        println!("seed {seed} {shape:?}");
        let mut random = SeededRandom::new(seed);
        let mut pair = Pair::new(&mut random);
        for _ in 0..200 + random.below(4000) {
            let position = draw(shape, &mut random);
            pair.insert(position);
        }
        let mut expected: BTreeMap<u64, Position> = BTreeMap::new();
        let (mut bytes, mut at) = (Vec::new(), Position(0));
        let growing = random.unit();
        while let Some(progress) = pair.index.dump_exactly(at, 1, &mut bytes, &mut Plain) {
            let end = match progress {
                ScanProgress::Next(next) => next.0 - 1,
                ScanProgress::End => u64::MAX,
            };
            let here = |position: &Position| (at.0..=end).contains(&position.0);
            expected.extend(pair.model.iter().filter(|(_, position)| here(position)));
            if end == u64::MAX {
                whole += 1;
                let mut loaded = HashIndex::new(settings(pair.index.layout()));
                assert_eq!(loaded.load(&bytes).unwrap(), expected.len() as u64);
                loaded.validate();
                for (&raw, &position) in &expected {
                    assert!(loaded.remove(position, IndexValue::new(raw)), "an entry is missing");
                }
                break;
            }
            at = Position(end + 1);
            for _ in 0..300 {
                pair.step(shape, growing, &mut random);
            }
        }
    }
    println!("{whole} of 21 dumps came to their end");
    assert!(whole >= 10);
}

#[test]
fn refreshed_entries_know_their_whole_tag_again() {
    for shape in [Shape::Uniform, Shape::OneSlot] {
        let mut random = SeededRandom::new(5);
        let mut pair = Pair::new(&mut random);
        for _ in 0..100_000 {
            let position = draw(shape, &mut random);
            pair.insert(position);
        }
        assert!(pair.index.stale_tag_bits() >= 7);
        assert!(pair.index.stale_entries() > 10_000);
        // A third is not fed; a value that is not there changes nothing.
        for (number, (&raw, &position)) in pair.model.iter().enumerate() {
            if number % 3 != 0 {
                pair.index.refresh(position, IndexValue::new(raw));
            }
        }
        pair.index.refresh(Position(1), IndexValue::new(2));
        pair.check_all();
        for (&raw, &position) in &pair.model {
            pair.index.refresh(position, IndexValue::new(raw));
        }
        assert_eq!((pair.index.stale_tag_bits(), pair.index.stale_entries()), (0, 0));
        pair.check_all();
    }
}

#[test]
fn at_the_limit_new_keys_are_refused_and_old_ones_work() {
    for shape in [Shape::Uniform, Shape::OneSlot, Shape::AllEqual] {
        let mut random = SeededRandom::new(9);
        let limit = 600_000;
        let mut pair = Pair::new(&mut random);
        pair.index.set_memory_limit_bytes(limit);
        let mut refused = 0;
        while refused < 100 {
            let position = draw(shape, &mut random);
            let raw = pair.next_value;
            pair.next_value += 1;
            match pair.index.insert(position, IndexValue::new(raw)) {
                Ok(()) => {
                    pair.model.insert(raw, position);
                }
                Err(IndexFull) => refused += 1,
            }
        }
        assert!(pair.index.memory_bytes() <= limit);
        pair.check_all();
        for _ in 0..2000 {
            pair.replace(&mut random);
        }
        for _ in 0..pair.model.len() / 2 {
            pair.remove(&mut random);
            pair.replace(&mut random);
        }
        pair.check_all();
        let position = draw(shape, &mut random);
        pair.insert(position);
    }
    let error = tierstone_base::Error::from(IndexFull);
    assert_eq!(error.kind(), ErrorKind::NoMemory);
}

#[test]
fn bytes_a_key_stay_within_the_design() {
    let mut random = SeededRandom::new(21);
    let mut index = HashIndex::new(HashIndexSettings::default());
    let (mut sum, mut samples, mut peak) = (0.0, 0, 0.0f64);
    for count in 1..=400_000u64 {
        index.insert(Position(random.next_u64()), IndexValue::new(count)).unwrap();
        if count >= 100_000 && count % 2000 == 0 {
            let bytes = index.memory_bytes() as f64 / count as f64;
            (sum, samples, peak) = (sum + bytes, samples + 1, peak.max(bytes));
        }
    }
    let mean = sum / f64::from(samples);
    assert!(mean <= 9.0 && peak <= 10.0, "mean {mean:.2}, peak {peak:.2} bytes a key");
}

#[test]
fn false_candidates_are_rare() {
    // So many lookups meet one false candidate at most.
    for (layout, lookups) in [(EntryLayout::NARROW, 200), (EntryLayout::WIDE, 50)] {
        let mut random = SeededRandom::new(22);
        let mut index = HashIndex::new(settings(layout));
        for count in 0..200_000u64 {
            index.insert(Position(random.next_u64()), IndexValue::new(count)).unwrap();
        }
        let misses = 200_000;
        let found =
            (0..misses).filter(|_| index.first_candidate(Position(random.next_u64())).is_some()).count();
        assert!(found < misses / lookups, "{layout:?}: {found} of {misses} absent keys had a candidate");
    }
}

#[test]
fn a_dump_is_loaded_into_an_index_of_the_other_layout() {
    for (seed, shape) in (0u64..).zip(SHAPES.into_iter().cycle().take(14)) {
        println!("seed {seed} {shape:?}");
        let mut random = SeededRandom::new(seed);
        let mut pair = Pair::of(if seed % 2 == 0 { EntryLayout::NARROW } else { EntryLayout::WIDE });
        for value in 0..1_000 + random.below(4_000) {
            let position = draw(shape, &mut random);
            // Both layouts have room for it.
            let raw = if value % 3 == 0 { UPPER_FROM + value } else { value << 20 };
            pair.index.insert(position, IndexValue::new(raw)).unwrap();
            pair.model.insert(raw, position);
        }
        let (mut bytes, mut at) = (Vec::new(), Position(0));
        while let ScanProgress::Next(next) = pair.index.dump_from(at, usize::MAX, &mut bytes) {
            at = next;
        }
        let from = pair.index.layout();
        let to = if from == EntryLayout::WIDE { EntryLayout::NARROW } else { EntryLayout::WIDE };
        let mut loaded = HashIndex::new(settings(to));
        match loaded.load_with(&bytes, from, &mut |_| true) {
            Ok(count) => assert_eq!(count, pair.model.len() as u64),
            // Refused, not guessed, where the other layout cannot tell apart so finely.
            Err(error) => {
                println!("{error}");
                assert!(error.message().contains("for this index"), "{error}");
                assert!(!matches!(shape, Shape::Uniform), "{shape:?}");
                continue;
            }
        }
        pair.index = loaded;
        pair.check_all();
        for _ in 0..2_000 {
            pair.step(shape, 0.5, &mut random);
        }
        pair.check_all();
    }
}

#[test]
fn a_dump_with_values_that_have_no_room_is_refused() {
    let mut wide = HashIndex::new(settings(EntryLayout::WIDE));
    let highest = EntryLayout::NARROW.lower_values() - 1;
    for (raw, fits) in [
        (highest, true),
        (UPPER_FROM, true),
        (IndexValue::MAX_RAW, true),
        (highest + 1, false),
        (UPPER_FROM - 1, false),
    ] {
        wide.insert(Position(raw), IndexValue::new(raw)).unwrap();
        let mut bytes = Vec::new();
        wide.dump_from(Position(0), usize::MAX, &mut bytes);
        let loaded =
            HashIndex::new(settings(EntryLayout::NARROW)).load_with(&bytes, EntryLayout::WIDE, &mut |_| true);
        assert_eq!(loaded.is_ok(), fits, "{raw}");
        assert!(wide.remove(Position(raw), IndexValue::new(raw)));
    }
}

#[test]
fn a_prefix_and_its_last_position_fit_together() {
    assert_eq!((prefix(u64::MAX, 0), last_of(0, 0)), (0, u64::MAX));
    assert_eq!((prefix(u64::MAX, 64), last_of(9, 64)), (u64::MAX, 9));
    assert_eq!((prefix(0xff, 60), last_of(0xf0, 60)), (0xf0, 0xff));
}

#[test]
fn an_entry_keeps_what_it_knows_through_splits_and_merges() {
    let mut random = SeededRandom::new(31);
    for layout in [EntryLayout::NARROW, EntryLayout::WIDE].into_iter().cycle().take(4000) {
        let position = random.next_u64() >> random.below(40) << random.below(40);
        let (known_bits, prefix_bits_max) = (layout.known_bits(), layout.prefix_bits_max());
        let prefix_bits = 1 + random.below(u64::from(prefix_bits_max)) as u32;
        let mut values = Pair::of(layout);
        values.next_value = random.next_u64() >> 1;
        let value = IndexValue::new(values.value());
        let start = |bits| prefix(position, bits);
        let fresh = Entry::new(layout, layout.fresh_tag(Position(position), prefix_bits), value);
        assert_eq!((fresh.value(), Entry::from_word(layout, fresh.word())), (value, Some(fresh)));
        let levels = random.below(u64::from((prefix_bits_max - prefix_bits).min(known_bits - 1)) + 1) as u32;
        let split = fresh.descended(levels);
        let knows = prefix(position, prefix_bits + known_bits);
        assert_eq!((split.lost_bits(), split.value()), (levels, value));
        assert_eq!(split.first_position(start(prefix_bits + levels), prefix_bits + levels), knows);
        let tag = layout.partial_tag(position, prefix_bits + known_bits, prefix_bits + levels);
        assert_eq!(split.tag(), tag);
        let merged = fresh.ascended((position >> (64 - prefix_bits)) & 1 == 1);
        assert_eq!((merged.lost_bits(), merged.value()), (0, value));
        assert_eq!(merged.tag(), layout.fresh_tag(Position(position), prefix_bits - 1));
        assert_eq!(split.difference(layout.fresh_tag(Position(position), prefix_bits + levels)), 0);
        let other = position ^ (1 << (63 - prefix_bits - levels));
        let differs = split.difference(layout.fresh_tag(Position(other), prefix_bits + levels)) != 0;
        assert_eq!(differs, levels < known_bits);
        // In the other layout it knows as much as has room there.
        let other = if layout == EntryLayout::WIDE { EntryLayout::NARROW } else { EntryLayout::WIDE };
        if other.has_room(value) && prefix_bits + levels <= other.prefix_bits_max() {
            let known = (known_bits - levels).min(other.known_bits());
            let tag = other.partial_tag(knows, prefix_bits + levels + known, prefix_bits + levels);
            assert_eq!((split.cut(other).tag(), split.cut(other).value()), (tag, value), "{split:?}");
        }
    }
}

#[test]
fn a_stashed_entry_is_found_and_scanned_wherever_it_may_lie() {
    let mut random = SeededRandom::new(12);
    let mut index = HashIndex::new(HashIndexSettings::default());
    for raw in 0..20_000 {
        index.insert(Position(random.next_u64()), IndexValue::new(raw)).unwrap();
    }
    // One record with one stashed entry, of which only the first two bits are known: 01.
    let (first, value) = (1u64 << 62, IndexValue::new(77_777));
    let mut bytes = vec![0; 16];
    bytes[12] = 1;
    bytes.extend(first.to_le_bytes());
    bytes.push(2);
    bytes.extend(&value.raw().to_le_bytes()[..5]);
    assert_eq!(index.load(&bytes).unwrap(), 1);
    assert_eq!(index.load(&bytes).unwrap(), 0, "the same entry again changes nothing");
    index.validate();
    for _ in 0..200 {
        let position = Position(first | (random.next_u64() >> 2));
        assert!(index.contains(position, value));
        let mut out = Vec::new();
        index.scan(position, 1, &mut out);
        assert!(out.contains(&value), "it may lie after the cursor");
        let elsewhere = Position(position.0 ^ (1 << 63));
        assert!(!index.contains(elsewhere, value));
    }
    assert_eq!(index.stale_tag_bits(), KNOWN_BITS_MAX);
    let position = Position(first | 12_345);
    index.refresh(position, value);
    assert!(index.contains(position, value) && !index.contains(Position(first | (1 << 60)), value));
    index.validate();
}
