//! A store that is nearly full: what cleaning costs, beside an LSM-tree.

use super::persistency::value;
use crate::experiment::{Experiment, Kind, Rule, Size};
use crate::peers::LsmTree;
use crate::result::{Axis, Plot, Series, Table};
use crate::run::Run;
use crate::scratch::Scratch;
use crate::target::{SharedTarget, records};
use rustix::fs::statvfs;
use std::path::Path;
use tierstone::{DatabaseOptions, SharedStore};
use tierstone_base::Result;
use tierstone_workload::{Distribution, Extent, Mix, Outcome, Pacing, Target, Workload};

const VALUE_BYTES: u32 = 1_000;
/// What a record takes with its key and what the store keeps beside it.
const RECORD_BYTES: u64 = 1_090;
/// The published number of threads.
const CALLERS: usize = 16;
/// The published rate of the run whose latencies are looked at.
const RATE: f64 = 25_000.0;
/// Live bytes of the space: with room to spare, and nearly full.
const SOME: f64 = 0.25;
const FULL: f64 = 0.85;
/// Windows of each part; a rate and percentiles are taken of each.
const WINDOWS: u32 = 12;
/// Windows of updates that are not counted: what is spare is written over in them.
const SETTLING: usize = 4;
/// Files in memory, where the machine has them.
const MEMORY_FOLDER: &str = "/dev/shm";

const LESS: &str = "Tierstone: updates of a full store, less than its load";
const LESS_LSM: &str = "LSM-tree: updates of a full store, less than its load";
const TAIL: &str = "p99.9 of 25,000 updates a second: Tierstone's, of the LSM-tree's";
const SKEW: &str = "Tierstone: p99.9 of skewed updates, of uniform ones";

/// Figure 5.9 of the dissertation.
pub const EXPERIMENT: Experiment = Experiment {
    name: "near-full",
    title: "Cleaning a store that is nearly full, beside an LSM-tree",
    source: "Lersch 2020 (TU Dresden), Figure 5.9, section 5.6",
    measures: "Values of 1,000 B, every write durable before the next of its caller. 16 callers insert until a quarter of the \
               space is live, update at random, insert until 85 % is live, update again: rates over time, and what full \
               costs. Then one caller updates 25,000 times a second, uniformly and by Zipf: latencies from when an \
               update was due. Tierstone lies wholly in memory that stands for persistent memory, at this machine's own \
               speed; the LSM-tree is fjall with its files in memory, and may take more space than Tierstone (it is told \
               how much). Published: a server behind a network, 16 GB of Optane, RocksDB with leveled compaction; here \
               the callers are in the process, so that cleaning is a larger part of what an update costs.",
    kind: Kind::Measured,
    published: &[
        value(
            LESS,
            0.07,
            "share",
            "section 5.6: RStore drops by 7 %",
            "published behind a network, which hides a part: up to twice that agrees",
            Rule::AtMost(0.14),
        ),
        value(
            LESS_LSM,
            0.38,
            "share",
            "section 5.6: RocksDB, leveled, drops by 38 %",
            "another LSM-tree, without a bound of its space: half of that agrees",
            Rule::AtLeast(0.19),
        ),
        value(
            TAIL,
            1.0,
            "ratio",
            "Figure 5.9a: RStore has the lower tail latency",
            "published is only that it is below 1",
            Rule::AtMost(1.0),
        ),
        value(
            SKEW,
            1.0,
            "ratio",
            "Figure 5.9a: RStore's tail latency is unaffected by skew",
            "published is only that they are alike",
            Rule::Between(0.5, 2.0),
        ),
    ],
    series: &[],
    space_bytes: |size| if memory_has(lsm_bytes(size)) { 0 } else { lsm_bytes(size) },
    run,
};

/// The space of Tierstone.
fn space_bytes(size: Size) -> u64 {
    match size {
        Size::Tiny => 64 << 20,
        Size::Quick => 256 << 20,
        Size::Full => 2 << 30,
    }
}

/// What the LSM-tree may come to take.
fn lsm_bytes(size: Size) -> u64 {
    3 * space_bytes(size) + (1 << 30)
}

/// Whether files in memory have so much room.
fn memory_has(bytes: u64) -> bool {
    statvfs(MEMORY_FOLDER).is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= bytes)
}

/// A part of a run: its end in seconds from the beginning of the course, and what was seen.
struct Window {
    end_s: f64,
    outcome: Outcome,
}

/// What a store has copied in order to clean, and what was written into it: bytes so far.
type Copied = (u64, u64);

/// One store, as the course needs it.
struct Entrant<'a, T> {
    name: &'static str,
    /// Gives a caller its handle.
    open: &'a mut dyn FnMut() -> Result<T>,
    /// `None` where it cannot be told.
    copied: &'a dyn Fn() -> Result<Option<Copied>>,
}

/// What one store did.
struct Course {
    name: &'static str,
    load: Vec<Window>,
    some: Vec<Window>,
    full: Vec<Window>,
    uniform: Vec<Window>,
    skewed: Vec<Window>,
    /// Bytes copied for each byte written, updates of a full store.
    copies: Option<f64>,
    /// What it takes at the end.
    bytes: u64,
}

fn run(run: &mut Run<'_>) -> Result<()> {
    run.expect_steps(13);
    let size = run.pick(Size::Tiny, Size::Quick, Size::Full);
    let space = space_bytes(size);
    let shards = std::thread::available_parallelism().map_or(1, usize::from).clamp(1, CALLERS) as u16;
    run.set("space of Tierstone, bytes", space);
    run.set("callers", CALLERS);
    run.set("shards of Tierstone", shards);
    run.set("value bytes", VALUE_BYTES);
    let own = DatabaseOptions {
        shards,
        memory_bytes: 64 << 20,
        databases: 1,
        ..DatabaseOptions::new(format!("nvm:emulated:{space}"))
    };
    let store = SharedStore::open(&own)?;
    let room = store.statistics()?.space_capacity_bytes;
    run.set("room for records in it, bytes", room);
    let copied = || {
        let counts = store.statistics()?;
        Ok(Some((counts.cleaned_bytes_written, counts.record_bytes_written)))
    };
    let open = &mut || Ok(SharedTarget(store.clone()));
    let mut tierstone = course(run, room, &mut Entrant { name: "Tierstone", open, copied: &copied })?;
    tierstone.bytes = space;
    store.close()?;
    let needed = lsm_bytes(size);
    let in_memory =
        if memory_has(needed) { Some(Scratch::new(Path::new(MEMORY_FOLDER), needed)?) } else { None };
    if in_memory.is_none() {
        run.note(format!("{MEMORY_FOLDER} has no room: the LSM-tree's files are on the disk of --data"));
    }
    let folder = in_memory.as_ref().map_or(run.folder(), Scratch::path).join("lsm-tree");
    let tree = LsmTree::create(&folder, 32 << 20, (space / 16).clamp(4 << 20, 64 << 20))?;
    let open = &mut || Ok(tree.clone());
    let mut lsm = course(run, room, &mut Entrant { name: "LSM-tree", open, copied: &|| Ok(None) })?;
    lsm.bytes = folder_bytes(&folder)?;
    drop(tree);
    run.step("comparing")?;
    compare(run, &tierstone, &lsm)?;
    report(run, &[tierstone, lsm]);
    Ok(())
}

/// The bytes of the files below `folder`.
fn folder_bytes(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let facts = entry.metadata()?;
        bytes += if facts.is_dir() { folder_bytes(&entry.path())? } else { facts.len() };
    }
    Ok(bytes)
}

/// Takes one store through all parts; `room` is what records may take.
fn course<T: Target + Send>(run: &mut Run<'_>, room: u64, store: &mut Entrant<'_, T>) -> Result<Course> {
    let name = store.name;
    let count = |share: f64| (room as f64 * share / RECORD_BYTES as f64) as u64;
    let began_us = run.now_us();
    // Inserts are numbered on from records that are there.
    let first = CALLERS as u64;
    let mut workload = Workload { mix: Mix { insert: 1.0, ..Mix::default() }, ..records(first, VALUE_BYTES) };
    let seconds = run.pick(0.02, 0.5, 3.0);
    let many = Pacing { threads: CALLERS, ..Pacing::default() };
    run.step(format!("{name}: loading to {:.0} %", SOME * 100.0))?;
    run.load(&workload, 0..first, CALLERS, &mut (store.open)()?)?;
    let mut load = Vec::new();
    insert(run, &mut workload, count(SOME), &many, store.open, began_us, &mut load)?;
    run.step(format!("{name}: updates at {:.0} %", SOME * 100.0))?;
    let updates = Pacing { extent: Extent::Seconds(seconds), ..many };
    let some = windows(run, &update(&workload, Distribution::Uniform), &updates, store.open, began_us)?;
    run.step(format!("{name}: loading to {:.0} %", FULL * 100.0))?;
    insert(run, &mut workload, count(FULL), &many, store.open, began_us, &mut load)?;
    run.step(format!("{name}: updates at {:.0} %", FULL * 100.0))?;
    let before = (store.copied)()?;
    let full = windows(run, &update(&workload, Distribution::Uniform), &updates, store.open, began_us)?;
    let copies = before.zip((store.copied)()?).map(|((copied, written), (copied_now, written_now))| {
        (copied_now - copied) as f64 / (written_now - written).max(1) as f64
    });
    let paced = Pacing { threads: 1, rate: Some(RATE), ..updates };
    run.step(format!("{name}: uniform updates at a rate"))?;
    let uniform = windows(run, &update(&workload, Distribution::Uniform), &paced, store.open, began_us)?;
    run.step(format!("{name}: skewed updates at a rate"))?;
    let skewed =
        windows(run, &update(&workload, Distribution::SCRAMBLED_ZIPF), &paced, store.open, began_us)?;
    Ok(Course { name, load, some, full, uniform, skewed, copies, bytes: 0 })
}

fn update(workload: &Workload, distribution: Distribution) -> Workload {
    Workload { mix: Mix::SET, distribution, ..workload.clone() }
}

/// Inserts until there are `count` records or a few less.
fn insert<T: Target + Send>(
    run: &mut Run<'_>,
    workload: &mut Workload,
    count: u64,
    pacing: &Pacing,
    open: &mut dyn FnMut() -> Result<T>,
    began_us: u64,
    seen: &mut Vec<Window>,
) -> Result<()> {
    // Callers insert in turn: only a multiple of them leaves no gap.
    let callers = CALLERS as u64;
    let step = (count - workload.records) / u64::from(WINDOWS) / callers * callers;
    for _ in 0..WINDOWS {
        let some = Pacing { extent: Extent::Operations(step), ..*pacing };
        let outcome = run.drive_shared(workload, &some, open)?;
        workload.records += step;
        seen.push(Window { end_s: (run.now_us() - began_us) as f64 / 1e6, outcome });
    }
    Ok(())
}

fn windows<T: Target + Send>(
    run: &mut Run<'_>,
    workload: &Workload,
    pacing: &Pacing,
    open: &mut dyn FnMut() -> Result<T>,
    began_us: u64,
) -> Result<Vec<Window>> {
    let mut seen = Vec::new();
    for _ in 0..WINDOWS {
        let outcome = run.drive_shared(workload, pacing, open)?;
        seen.push(Window { end_s: (run.now_us() - began_us) as f64 / 1e6, outcome });
    }
    Ok(seen)
}

/// Operations a second of all windows together.
fn rate(windows: &[Window]) -> f64 {
    let operations: u64 = windows.iter().map(|window| window.outcome.operations).sum();
    operations as f64 / windows.iter().map(|window| window.outcome.seconds).sum::<f64>()
}

/// The windows of updates that count.
fn settled(windows: &[Window]) -> &[Window] {
    &windows[SETTLING.min(windows.len())..]
}

/// The quantile of updates in the settled windows together, in microseconds.
fn quantile_us(windows: &[Window], quantile: f64) -> f64 {
    let histograms = settled(windows).iter().flat_map(|window| window.outcome.kinds.values());
    let mut all = None;
    for kind in histograms {
        match &mut all {
            None => all = Some(kind.histogram.clone()),
            Some(all) => all.merge(&kind.histogram),
        }
    }
    all.map_or(f64::NAN, |all| all.quantile_us(quantile) as f64)
}

fn less(course: &Course) -> f64 {
    1.0 - rate(settled(&course.full)) / rate(&course.load)
}

fn compare(run: &mut Run<'_>, tierstone: &Course, lsm: &Course) -> Result<()> {
    run.compare(LESS, less(tierstone), "")?;
    run.compare(LESS_LSM, less(lsm), "")?;
    let tail = |windows: &[Window]| quantile_us(windows, 0.999).max(1.0);
    run.compare(TAIL, tail(&tierstone.uniform) / tail(&lsm.uniform), "uniform")?;
    run.compare(SKEW, tail(&tierstone.skewed) / tail(&tierstone.uniform), "")
}

fn report(run: &mut Run<'_>, courses: &[Course; 2]) {
    let mut rates = Table::new(
        "rates",
        "16 callers, operations a second",
        &[
            "store",
            "inserts",
            "updates, a quarter full",
            "updates, full",
            "less than inserts",
            "less than a quarter full",
            "copied for each byte written, full",
            "bytes taken",
        ],
    );
    let columns = ["store", "updates", "p50 µs", "p99 µs", "p99.9 µs", "longest µs", "behind the rate"];
    let mut tails = Table::new("tails", "One caller, 25,000 updates a second, full", &columns);
    for course in courses {
        let (some, full) = (rate(settled(&course.some)), rate(settled(&course.full)));
        rates.push([
            course.name.into(),
            rate(&course.load).into(),
            some.into(),
            full.into(),
            less(course).into(),
            (1.0 - full / some).into(),
            course.copies.unwrap_or(f64::NAN).into(),
            course.bytes.into(),
        ]);
        for (what, windows) in [("uniform", &course.uniform), ("skewed", &course.skewed)] {
            let longest = settled(windows).iter().map(|window| window.outcome.latency.max_us).max();
            tails.push([
                course.name.into(),
                what.into(),
                quantile_us(windows, 0.5).into(),
                quantile_us(windows, 0.99).into(),
                quantile_us(windows, 0.999).into(),
                longest.unwrap_or_default().into(),
                (1.0 - rate(settled(windows)) / RATE).into(),
            ]);
        }
    }
    run.table(rates);
    run.table(tails);
    draw(run, courses);
}

fn draw(run: &mut Run<'_>, courses: &[Course; 2]) {
    let course = |course: &Course| -> Vec<(f64, f64)> {
        let parts =
            [&course.load[..WINDOWS as usize], &course.some, &course.load[WINDOWS as usize..], &course.full];
        parts.into_iter().flatten().map(|window| (window.end_s, window.outcome.rate)).collect()
    };
    run.plot(Plot {
        name: "rates".to_owned(),
        title: "Inserts, updates at a quarter, inserts, updates at 85 % full (16 callers)".to_owned(),
        x: Axis::linear("seconds"),
        y: Axis::linear("operations a second"),
        series: courses.iter().map(|seen| Series::new(seen.name, course(seen))).collect(),
    });
    let tail = |windows: &[Window]| -> Vec<(f64, f64)> {
        let begin_s = windows.first().map_or(0.0, |window| window.end_s);
        windows.iter().map(|window| (window.end_s - begin_s, window.outcome.latency.p99_us as f64)).collect()
    };
    run.plot(Plot {
        name: "tails".to_owned(),
        title: "p99 of 25,000 updates a second, full (one caller)".to_owned(),
        x: Axis::linear("seconds"),
        y: Axis::logarithmic("µs"),
        series: courses
            .iter()
            .flat_map(|seen| {
                let name = |what: &str| format!("{}, {what}", seen.name);
                [
                    Series::new(&name("uniform"), tail(&seen.uniform)),
                    Series::new(&name("skewed"), tail(&seen.skewed)),
                ]
            })
            .collect(),
    });
}
