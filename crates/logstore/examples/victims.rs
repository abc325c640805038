//! What cleaning moves, in a model: segments, a hot log that small groups fill with padding, a dense cold log for what is
//! moved, so many segments kept free, and victims by the benefit over the cost with an exponent of the age. Prints Markdown:
//! `cargo run --release -p tierstone-logstore --example victims [RECORDS]`, with so many records a segment. The figures are in
//! `docs/decisions/045-cleaning-begins-late.md`; they are modelled, and counted.

use tierstone_base::SeededRandom;

/// Segments of the store, and records of each as a rule.
const SEGMENTS: usize = 160;
const RECORDS: usize = 2_000;
/// Writes before and while counting, as parts of the capacity.
const SETTLED_AFTER: usize = 4;
const COUNTED: usize = 3;
/// A denser segment is no victim.
const LIVE_MAX: f64 = 0.97;
/// Theta of the uneven rows.
const THETA: f64 = 0.99;

#[derive(Clone, Default)]
struct Segment {
    keys: Vec<u32>,
    /// Records and padding.
    used: usize,
    live: usize,
    /// Writes before it was opened.
    opened: u64,
    is_held: bool,
}

/// What is asked of the model.
#[derive(Clone, Copy)]
struct Setting {
    /// Records that fit into a segment.
    records: usize,
    /// Live records of all that fit.
    fill: f64,
    /// Records' worth of padding behind each that is written; what is moved lies dense.
    padding: f64,
    /// The part of all segments that is kept free.
    free: f64,
    /// Of the age.
    exponent: f64,
    is_even: bool,
}

struct Model {
    setting: Setting,
    segments: Vec<Segment>,
    free: Vec<usize>,
    /// In which segment a key's record lies.
    place: Vec<Option<u32>>,
    hot: Option<usize>,
    cold: Option<usize>,
    written: u64,
    moved: u64,
}

impl Model {
    fn new(setting: Setting) -> Model {
        let keys = ((SEGMENTS * setting.records) as f64 * setting.fill) as usize;
        Model {
            setting,
            segments: vec![Segment::default(); SEGMENTS],
            free: (0..SEGMENTS).collect(),
            place: vec![None; keys],
            hot: None,
            cold: None,
            written: 0,
            moved: 0,
        }
    }

    /// Puts a record of `key`, with so much padding, into the segment `open`, or into a new one.
    fn put(&mut self, open: Option<usize>, key: u32, padding: usize) -> Option<usize> {
        let fits = |number: &usize| {
            self.segments
                .get(*number)
                .is_some_and(|segment| segment.used + 1 + padding <= self.setting.records)
        };
        let number = match open.filter(fits) {
            Some(number) => number,
            None => self.free.pop()?,
        };
        let opened = self.written;
        let segment = self.segments.get_mut(number)?;
        if !segment.is_held {
            *segment = Segment { opened, is_held: true, ..Segment::default() };
        }
        segment.keys.push(key);
        segment.used += 1 + padding;
        segment.live += 1;
        *self.place.get_mut(key as usize)? = u32::try_from(number).ok();
        Some(number)
    }

    fn segment_of(&mut self, key: u32) -> Option<&mut Segment> {
        let number = (*self.place.get(key as usize)?)?;
        self.segments.get_mut(number as usize)
    }

    /// A user's write. `None`: there was no room for it, or for what was moved.
    fn write(&mut self, key: u32, padding: usize) -> Option<()> {
        self.written += 1;
        if let Some(old) = self.segment_of(key) {
            old.live -= 1;
        }
        self.hot = Some(self.put(self.hot, key, padding)?);
        let wanted = ((SEGMENTS as f64 * self.setting.free) as usize).max(4);
        while self.free.len() < wanted && self.clean().is_some() {}
        Some(())
    }

    fn clean(&mut self) -> Option<()> {
        let worth = |segment: &Segment| {
            let live = segment.live as f64 / self.setting.records as f64;
            let age = (self.written - segment.opened) as f64 + 1.0;
            (1.0 - live) * age.powf(self.setting.exponent) / (1.0 + live)
        };
        let is_open = |number: usize| self.hot == Some(number) || self.cold == Some(number);
        let may_clean = |segment: &Segment| {
            segment.is_held && segment.live as f64 <= LIVE_MAX * self.setting.records as f64
        };
        let found = self.segments.iter().enumerate();
        let found = found.filter(|(number, segment)| !is_open(*number) && may_clean(segment));
        let (victim, _) = found.max_by(|(_, one), (_, other)| worth(one).total_cmp(&worth(other)))?;
        for key in std::mem::take(&mut self.segments.get_mut(victim)?.keys) {
            if self.place.get(key as usize).copied().flatten() == u32::try_from(victim).ok() {
                self.cold = Some(self.put(self.cold, key, 0)?);
                self.moved += 1;
            }
        }
        self.segments.get_mut(victim)?.is_held = false;
        self.free.insert(0, victim);
        Some(())
    }

    /// Records moved for each that is written, when it has settled.
    fn run(mut self) -> Option<f64> {
        let keys = self.place.len();
        let capacity = SEGMENTS * self.setting.records;
        let mut random = SeededRandom::new(1);
        let mut names: Vec<u32> = (0..keys as u32).collect();
        for last in (1..keys).rev() {
            names.swap(last, random.below(last as u64 + 1) as usize);
        }
        let mut sum = 0.0;
        let parts: Vec<f64> = (1..=keys)
            .map(|rank| {
                sum += (rank as f64).powf(-THETA);
                sum
            })
            .collect();
        (0..keys as u32).try_for_each(|key| self.write(key, 0))?;
        let mut owed = 0.0;
        for write in 0..capacity * (SETTLED_AFTER + COUNTED) {
            if write == capacity * SETTLED_AFTER {
                self.moved = 0;
            }
            let rank = if self.setting.is_even {
                random.below(keys as u64) as usize
            } else {
                let at = random.unit() * sum;
                parts.partition_point(|part| *part < at)
            };
            owed += self.setting.padding;
            let padding = owed as usize;
            owed -= padding as f64;
            self.write(*names.get(rank)?, padding)?;
        }
        Some(self.moved as f64 / (capacity * COUNTED) as f64)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let records = std::env::args().nth(1).map_or(Ok(RECORDS), |text| text.parse())?;
    println!("{SEGMENTS} segments of {records} records; records moved for each that is written.\n");
    println!(
        "| writes | live | padding a record | kept free | by the age | by its root | by free space alone |"
    );
    println!("|---|---|---|---|---|---|---|");
    for is_even in [true, false] {
        for (fill, padding) in [(0.5, 0.0), (0.5, 1.7), (0.78, 0.0), (0.78, 1.7), (0.88, 0.0)] {
            for free in [0.15, 0.08, 0.04] {
                let row = [1.0, 0.5, 0.0].map(|exponent| {
                    let moved = Model::new(Setting { records, fill, padding, free, exponent, is_even }).run();
                    moved.map_or("no room".to_owned(), |moved| format!("{moved:.2}"))
                });
                let law = if is_even { "uniform" } else { "Zipf 0.99" };
                println!("| {law} | {fill} | {padding} | {free} | {} |", row.join(" | "));
            }
        }
    }
    Ok(())
}
