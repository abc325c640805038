//! Scans of a sorted array, of an index in DRAM over a log, and of the same with the records to come prefetched.

use crate::experiment::{Experiment, Kind, Published, Rule};
use crate::result::{Axis, Plot, Series, Table};
use crate::run::Run;
use std::hint::black_box;
use std::ops::Bound;
use tierstone_base::prefetch::prefetch_bytes;
use tierstone_base::{Error, ErrorKind, Result, SeededRandom};
use tierstone_pmstore::index::{KeyMode, KeyRange, KeySource, Location, OrderedIndex, PREFETCH_AHEAD};

const KEY_BYTES: usize = 24;
/// Keys and values of the published measurements: 24 and 100 bytes.
const RECORD_BYTES: usize = KEY_BYTES + 100;
/// The published length of a scan.
const SCAN_RECORDS: usize = 100;
/// Cache lines of a record, wherever it begins.
const RECORD_LINES: usize = 3;
/// Scans that are timed as one, since a clock of microseconds is too coarse for one.
const BATCH: usize = 50;
/// Records prefetched ahead; 0 and the one that ranges use are what is compared.
const AHEAD: [usize; 9] = [0, PREFETCH_AHEAD, 1, 2, 4, 16, 24, 32, 64];

const SORTED: [&str; 2] = [
    "copying: index and log with prefetching, of a sorted array",
    "with a predicate: index and log with prefetching, of a sorted array",
];
const PREFETCHED: [&str; 2] =
    ["copying: index and log, prefetched of not", "with a predicate: index and log, prefetched of not"];
const GAP: &str = "index and log with prefetching, of a sorted array: with a predicate, of copying";

const fn more_than_one(name: &'static str) -> Published {
    Published {
        name,
        value: 1.0,
        unit: "ratio",
        place: "Figure 5.6: a sorted array is fastest",
        because: "published is only that it is more than 1",
        rule: Rule::AtLeast(1.0),
    }
}

const fn less_than_one(name: &'static str) -> Published {
    Published {
        name,
        value: 1.0,
        unit: "ratio",
        place: "Figure 5.6: with prefetching is faster than without",
        because: "published is only that it is less than 1; on slower memory, where there is more to gain",
        rule: Rule::AtMost(1.0),
    }
}

/// Figure 5.6 of the dissertation.
pub const EXPERIMENT: Experiment = Experiment {
    name: "scan-variants",
    title: "Scans of a sorted array, of index and log, and with prefetching",
    source: "Lersch 2020 (TU Dresden), Figure 5.6 and section 5.4: scans of 100 records",
    measures: "Scans of 100 records of 124 bytes from random keys, each copied, or copied if a predicate over its value \
               holds: from an array in the order of keys, and by an ordered index of partial keys from a log in random \
               order. Medians of batches of 50 scans, a batch of each variant in turn. Published is DCPMM; here the log \
               lies in DRAM, so that only the order is compared. The copy of as many bytes in one piece is the limit.",
    kind: Kind::Measured,
    published: &[
        more_than_one(SORTED[0]),
        more_than_one(SORTED[1]),
        less_than_one(PREFETCHED[0]),
        less_than_one(PREFETCHED[1]),
        Published {
            name: GAP,
            value: 1.0,
            unit: "ratio",
            place: "Figure 5.6: the gap is narrower with a predicate",
            because: "published is only that it is less than 1; a predicate that is hard to foretell keeps a processor \
                      from reading ahead by itself, which a log in random order needs more than an array",
            rule: Rule::AtMost(1.0),
        },
    ],
    series: &[],
    space_bytes: |_| 0,
    run: measure,
};

/// Records side by side; a location is a record's number.
struct Log(Vec<u8>);

impl Log {
    /// The records of `keys` in this order. Values are random, so that no predicate is foretold.
    fn new<'a>(keys: impl Iterator<Item = &'a [u8; KEY_BYTES]>, random: &mut SeededRandom) -> Self {
        let mut bytes = Vec::new();
        for key in keys {
            let mut value = [0; RECORD_BYTES - KEY_BYTES];
            random.fill(&mut value);
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(&value);
        }
        Log(bytes)
    }

    fn records(&self) -> &[[u8; RECORD_BYTES]] {
        self.0.as_chunks().0
    }
}

impl KeySource for Log {
    type Key<'a> = &'a [u8];

    fn key(&self, location: Location) -> &[u8] {
        &self.records()[location.units() as usize][..KEY_BYTES]
    }

    #[inline]
    fn prefetch(&self, location: Location) {
        prefetch_bytes(&self.records()[location.units() as usize], RECORD_LINES);
    }
}

/// What a scan reads.
#[derive(Clone, Copy, PartialEq)]
enum Source {
    /// The bytes of as many records in one piece.
    Piece,
    SortedArray,
    /// Index and log, with so many records prefetched ahead.
    IndexAndLog(usize),
}

struct Data {
    keys: Vec<[u8; KEY_BYTES]>,
    sorted: Log,
    scattered: Log,
    index: OrderedIndex,
}

impl Data {
    fn new(count: usize, random: &mut SeededRandom) -> Result<Self> {
        let mut keys = Vec::with_capacity(count);
        for _ in 0..count {
            let text = format!("user:{:019}", random.next_u64() >> 1);
            keys.extend(text.as_bytes().first_chunk::<KEY_BYTES>());
        }
        let in_log: Vec<[u8; KEY_BYTES]> = keys.clone();
        keys.sort_unstable();
        let sorted = Log::new(keys.iter(), random);
        let scattered = Log::new(in_log.iter(), random);
        let mut index = OrderedIndex::new(KeyMode::Partial);
        for (at, key) in in_log.iter().enumerate() {
            let location = Location::new(at as u64)
                .ok_or_else(|| Error::new(ErrorKind::Unsupported, "more records than locations"))?;
            index.insert(key, location, &scattered);
        }
        Ok(Data { keys, sorted, scattered, index })
    }

    /// Scans [`SCAN_RECORDS`] records from key `start`.
    fn scan(&self, source: Source, predicate: bool, start: usize, into: &mut Vec<u8>) {
        into.clear();
        let key = &self.keys[start];
        let mut take = |record: &[u8; RECORD_BYTES]| {
            let holds = || record[KEY_BYTES..].iter().filter(|byte| **byte > 128).count() >= 50;
            if !predicate || holds() {
                into.extend_from_slice(record);
            }
        };
        match source {
            Source::Piece => {
                let bytes = start * RECORD_BYTES..(start + SCAN_RECORDS) * RECORD_BYTES;
                into.extend_from_slice(&self.sorted.0[bytes]);
            }
            Source::SortedArray => {
                let records = self.sorted.records();
                let low = records.partition_point(|record| record[..KEY_BYTES] < key[..]);
                records[low..].iter().take(SCAN_RECORDS).for_each(take);
            }
            Source::IndexAndLog(ahead) => {
                let range = KeyRange { low: Bound::Included(key), limit: SCAN_RECORDS, ..KeyRange::all() };
                self.index.range_ahead(&range, ahead, &self.scattered, |location| {
                    take(&self.scattered.records()[location.units() as usize]);
                    true
                });
            }
        }
        black_box(&into);
    }
}

fn measure(run: &mut Run<'_>) -> Result<()> {
    let count = run.pick(5_000, 300_000, 2_000_000);
    let batches = run.pick(3, 40, 400);
    run.set("records", count);
    run.set("batches of 50 scans", batches);
    run.expect_steps(3);
    run.step("records and index")?;
    let data = Data::new(count, &mut SeededRandom::new(run.next_seed()))?;
    run.set("bytes a key of the index", format!("{:.1}", data.index.memory_bytes() as f64 / count as f64));
    let mut sources = vec![Source::Piece, Source::SortedArray];
    sources.extend(AHEAD.map(Source::IndexAndLog));
    run.step("scans that copy")?;
    let copying = medians(run, &data, &sources, false, batches)?;
    run.step("scans with a predicate")?;
    let choosing = medians(run, &data, &sources, true, batches)?;
    for (number, times) in [&copying, &choosing].into_iter().enumerate() {
        // As in `sources`: the piece, the array, not ahead, ahead.
        run.compare(SORTED[number], times[3] / times[1], &detail(times[3], times[1]))?;
        run.compare(PREFETCHED[number], times[3] / times[2], &detail(times[3], times[2]))?;
    }
    let (copy_gap, choice_gap) = (copying[3] / copying[1], choosing[3] / choosing[1]);
    run.compare(GAP, choice_gap / copy_gap, &format!("{choice_gap:.2} and {copy_gap:.2}"))?;
    report(run, &sources, &copying, &choosing);
    Ok(())
}

fn detail(one: f64, other: f64) -> String {
    format!("{one:.1} and {other:.1} ns a record")
}

/// The median of each source in nanoseconds a record.
fn medians(
    run: &mut Run<'_>,
    data: &Data,
    sources: &[Source],
    predicate: bool,
    batches: usize,
) -> Result<Vec<f64>> {
    let mut random = SeededRandom::new(run.next_seed());
    let mut into = Vec::with_capacity(SCAN_RECORDS * RECORD_BYTES);
    let mut times = vec![Vec::with_capacity(batches); sources.len()];
    for batch in 0..batches {
        for (&source, times) in sources.iter().zip(&mut times) {
            let starts = [(); BATCH].map(|()| random.below((data.keys.len() - SCAN_RECORDS) as u64) as usize);
            let began_us = run.now_us();
            starts.iter().for_each(|start| data.scan(source, predicate, *start, &mut into));
            times.push((run.now_us() - began_us) as f64 * 1000.0 / (BATCH * SCAN_RECORDS) as f64);
        }
        run.go_on((batch + 1) as f64 / batches as f64)?;
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_unstable_by(f64::total_cmp);
        times[times.len() / 2]
    };
    Ok(times.iter_mut().map(median).collect())
}

fn report(run: &mut Run<'_>, sources: &[Source], copying: &[f64], choosing: &[f64]) {
    let mut table = Table::new(
        "scans",
        "Scans of 100 records, medians",
        &["from", "copied, ns a record (measured)", "with a predicate, ns a record (measured)"],
    );
    let mut by_distance = [Vec::new(), Vec::new()];
    for ((source, &copied), &chosen) in sources.iter().zip(copying).zip(choosing) {
        let name = match source {
            Source::Piece => "one piece of memory, no predicate: the limit".to_owned(),
            Source::SortedArray => "a sorted array".to_owned(),
            Source::IndexAndLog(ahead) => {
                by_distance[0].push((*ahead as f64, copied));
                by_distance[1].push((*ahead as f64, chosen));
                format!("index and log, {ahead} records prefetched ahead")
            }
        };
        table.push([name.into(), copied.into(), chosen.into()]);
    }
    run.table(table);
    by_distance.iter_mut().for_each(|points| points.sort_unstable_by(|one, other| one.0.total_cmp(&other.0)));
    let [copied, chosen] = by_distance;
    run.plot(Plot {
        name: "distance".to_owned(),
        title: "Scans of index and log by how far ahead records are prefetched".to_owned(),
        x: Axis::linear("records prefetched ahead"),
        y: Axis::linear("ns a record"),
        series: vec![Series::new("copied", copied), Series::new("with a predicate", chosen)],
    });
}
