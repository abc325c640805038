//! FAWN-DS beside structures that write in place: a B-tree and a hash table on the same device.

use crate::experiment::{Experiment, Kind, Published, Rule, Size};
use crate::peers::{BTree, HashFile, HashFileSettings};
use crate::raw::probe;
use crate::result::{Axis, Plot, Series, Table};
use crate::run::Run;
use crate::target::{KEY_BYTES, LocalTarget, StoreChoice, records};
use tierstone::DurableMethod;
use tierstone_base::Result;
use tierstone_base::units::format_size;
use tierstone_workload::{Extent, Mix, Pacing, Target, Workload};

const MIB: u64 = 1 << 20;
/// As published: 200 bytes an entry, key included here.
const VALUE_BYTES: u32 = 180;
/// The published data are 5.9 times the node's memory (1.5 GB of 256 MB).
const DATA_OF_MEMORY: u64 = 6;
/// Records of a batch: one durable commit each.
const BATCH: usize = 1_000;
/// Parts of the load whose rates are drawn.
const PARTS: u64 = 10;

const B_TREE: &str = "inserts, of a B-tree's";
const HASH: &str = "inserts, of a hash table's";

/// The comparison with BerkeleyDB in section 4.2.1 of the dissertation.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fawn-ds-vs-structures",
    title: "FAWN-DS beside a B-tree and a hash table",
    source: "Vasudevan 2011 (CMU-CS-11-131), section 4.2.1, comparison with BerkeleyDB",
    measures: "Records of 200 B in random key order, six times the memory, inserted in batches of 1,000; every \
               batch is one durable commit. Then random gets one at a time, random overwrites in \
               batches, and lone durable overwrites. Peers in place of BerkeleyDB: redb (a copy-on-write \
               B-tree) and a hash table updated in place, both with the same memory for their caches (the \
               store's includes its index) and without the kernel's cache. The hash table has no log and so \
               promises less than the others at a crash; the published BerkeleyDB ran without transactions.",
    kind: Kind::Measured,
    published: &[
        Published {
            name: B_TREE,
            value: 331.0,
            unit: "ratio",
            place: "section 4.2.1: 23.2 MB/s of 0.07 MB/s (6 hours for 7 M entries of 200 B)",
            because: "records a second in random key order beyond memory",
            rule: Rule::AtLeast(10.0),
        },
        Published {
            name: HASH,
            value: 1_611.0,
            unit: "ratio",
            place: "section 4.2.1: 23.2 MB/s of 0.0144 MB/s (27 hours for 7 M entries of 200 B)",
            because: "records a second in random key order beyond memory",
            rule: Rule::AtLeast(10.0),
        },
    ],
    series: &[],
    space_bytes,
    run,
};

fn memory_bytes(size: Size) -> u64 {
    match size {
        Size::Tiny => 2 * MIB,
        Size::Quick => 4 * MIB,
        Size::Full => 40 * MIB,
    }
}

fn record_count(size: Size) -> u64 {
    let of_memory = memory_bytes(size) * DATA_OF_MEMORY / (u64::from(VALUE_BYTES) + KEY_BYTES);
    // The tiny one is not beyond memory.
    if size == Size::Tiny { 4_000 } else { of_memory }
}

fn space_bytes(size: Size) -> u64 {
    // A copy-on-write tree takes a few times its data while it grows.
    memory_bytes(size) * DATA_OF_MEMORY * 8 + 512 * MIB
}

/// What one structure did.
struct Seen {
    name: &'static str,
    load: f64,
    parts: Vec<(f64, f64)>,
    load_bytes_a_record: f64,
    gets: f64,
    get_p50_us: u64,
    get_p99_us: u64,
    overwrites: f64,
    overwrite_bytes_a_record: f64,
    lone: f64,
    lone_p99_us: u64,
}

fn run(run: &mut Run<'_>) -> Result<()> {
    let size = run.pick(Size::Tiny, Size::Quick, Size::Full);
    run.expect_steps(1 + 3 * 4);
    run.step("probing how writes become durable")?;
    let method = probe(run)?.method;
    let count = record_count(size);
    run.set("records", count);
    run.set("memory of each", format_size(memory_bytes(size)));
    run.set("records of a batch", BATCH);
    let mut log_target = open_log(run, size, method)?;
    let log = measure(run, size, "Tierstone (log)", &mut log_target, &mut |target, run| target.settle(run))?;
    drop(log_target);
    let tree_file = run.folder().join("b-tree");
    let mut tree_target = BTree::create(&tree_file, memory_bytes(size))?;
    let tree = measure(run, size, "redb (B-tree)", &mut tree_target, &mut |_, _| Ok(()))?;
    drop(tree_target);
    std::fs::remove_file(&tree_file)?;
    let table_settings = HashFileSettings {
        records: count,
        key_bytes: KEY_BYTES as usize,
        value_bytes: VALUE_BYTES as usize,
        memory_bytes: memory_bytes(size),
        method,
    };
    let mut table = HashFile::create(&run.folder().join("hash"), table_settings)?;
    let hash = measure(run, size, "hash table in place", &mut table, &mut |_, _| Ok(()))?;
    report(run, &[log, tree, hash])
}

fn open_log(run: &Run<'_>, size: Size, method: DurableMethod) -> Result<LocalTarget> {
    let count = record_count(size);
    let choice = StoreChoice::with_cache(memory_bytes(size), count, 1, method);
    // Equal memory: index and cache share what the others have for their caches.
    let index_bytes = choice.memory_bytes - memory_bytes(size);
    let choice = StoreChoice {
        memory_bytes: memory_bytes(size),
        index_fraction: (index_bytes as f64 / memory_bytes(size) as f64).min(0.9),
        cache_bytes_max: u64::MAX,
        segment_bytes: run.pick(MIB, 4 * MIB, 16 * MIB),
        ..choice
    };
    LocalTarget::open(&choice, &run.folder().join("log"))
}

fn measure<T: Target>(
    run: &mut Run<'_>,
    size: Size,
    name: &'static str,
    target: &mut T,
    settle: &mut dyn FnMut(&mut T, &mut Run<'_>) -> Result<()>,
) -> Result<Seen> {
    let count = record_count(size);
    let workload = records(count, VALUE_BYTES);
    let pacing = Pacing { extent: Extent::Seconds(run.pick(0.05, 1.0, 8.0)), ..Pacing::default() };
    run.step(format!("{name}: inserts"))?;
    let (mut seconds, mut parts, before) = (0.0, Vec::new(), written_bytes());
    for part in 0..PARTS {
        let (from, to) = (count * part / PARTS, count * (part + 1) / PARTS);
        let part_seconds = run.load(&workload, from..to, BATCH, target)?.seconds.max(1e-6);
        parts.push((to as f64 / count as f64, (to - from) as f64 / part_seconds));
        seconds += part_seconds;
    }
    let load_bytes = written_bytes() - before;
    run.step(format!("{name}: gets"))?;
    settle(target, run)?;
    let gets = run.drive(&workload, &pacing, target)?;
    run.step(format!("{name}: overwrites in batches"))?;
    let overwrite = Workload { mix: Mix::SET, ..workload };
    let before = written_bytes();
    let overwrites = run.drive(&overwrite, &Pacing { pipeline: BATCH, ..pacing }, target)?;
    let overwrite_bytes = written_bytes() - before;
    run.step(format!("{name}: lone overwrites"))?;
    let lone = run.drive(&overwrite, &pacing, target)?;
    Ok(Seen {
        name,
        load: count as f64 / seconds,
        parts,
        load_bytes_a_record: load_bytes / count as f64,
        gets: gets.rate,
        get_p50_us: gets.latency.p50_us,
        get_p99_us: gets.latency.p99_us,
        overwrites: overwrites.rate,
        overwrite_bytes_a_record: overwrite_bytes / overwrites.operations.max(1) as f64,
        lone: lone.rate,
        lone_p99_us: lone.latency.p99_us,
    })
}

/// Bytes that this process has had the kernel write to devices so far; not a number where the kernel
/// does not count them.
fn written_bytes() -> f64 {
    let counters = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let bytes = counters.lines().find_map(|line| line.strip_prefix("write_bytes:")?.trim().parse().ok());
    bytes.unwrap_or(f64::NAN)
}

fn report(run: &mut Run<'_>, seen: &[Seen; 3]) -> Result<()> {
    let [log, tree, hash] = seen;
    for (name, peer) in [(B_TREE, tree), (HASH, hash)] {
        let detail = format!(
            "here {:.0} of {:.0} a second, {:.0} of {:.0} bytes written a record; batches of {BATCH} let the peer \
             share one flush and keep many writes in flight, which the published device could not do",
            log.load, peer.load, log.load_bytes_a_record, peer.load_bytes_a_record
        );
        run.compare(name, log.load / peer.load, &detail)?;
    }
    let mut table = Table::new(
        "structures",
        "The same data on the same device",
        &[
            "structure",
            "inserts/s",
            "bytes written a record",
            "gets/s",
            "get p50 µs",
            "get p99 µs",
            "overwrites/s",
            "bytes written an overwrite",
            "lone durable overwrites/s",
            "lone p99 µs",
        ],
    );
    for seen in seen {
        table.push([
            seen.name.into(),
            seen.load.into(),
            seen.load_bytes_a_record.into(),
            seen.gets.into(),
            seen.get_p50_us.into(),
            seen.get_p99_us.into(),
            seen.overwrites.into(),
            seen.overwrite_bytes_a_record.into(),
            seen.lone.into(),
            seen.lone_p99_us.into(),
        ]);
    }
    run.table(table);
    run.plot(Plot {
        name: "inserts".to_owned(),
        title: "Inserts in random key order as the data grow".to_owned(),
        x: Axis::linear("part of the data that is loaded"),
        y: Axis::logarithmic("inserts a second"),
        series: seen.iter().map(|seen| Series::new(seen.name, seen.parts.iter().copied())).collect(),
    });
    Ok(())
}
