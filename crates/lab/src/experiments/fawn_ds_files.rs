//! FAWN-DS, semi-random writes: one stream of inserts over 1 to 256 logs.

use crate::experiment::{Experiment, Kind, Published, Rule, Size};
use crate::raw::{RawDevice, probe};
use crate::result::{Axis, Plot, Series, Table};
use crate::run::Run;
use crate::target::{KEY_BYTES, LocalTarget, StoreChoice, records};
use tierstone::DurableMethod;
use tierstone_base::Result;
use tierstone_base::units::format_size;

const MIB: u64 = 1 << 20;
const VALUE_BYTES: u32 = 1024;
/// Requests of the raw device.
const REQUEST_BYTES: u64 = 64 << 10;
/// Bytes that are made durable together: what a large write cache of the published system would hold.
const COMMIT_BYTES: u64 = 8 * MIB;

const STORE: &str = "inserts into the most logs, of inserts into one";
const DEVICE: &str = "raw appends at the most places, of appends at one";

/// Figure 4.4 of the dissertation.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fawn-ds-files",
    title: "FAWN-DS: inserts spread over 1 to 256 logs",
    source: "Vasudevan 2011 (CMU-CS-11-131), Figure 4.4",
    measures: "One stream of records of 1 KB in random key order, put into a store of 1 to 256 shards on one \
               device. A shard stands for the published datastore file: it appends to a log of its own. Every \
               8 MiB are made durable together. Beside it the raw device: durable writes of 64 KiB appended \
               at as many places in turn, 4 in flight. The figure's curves are not in the text: published is \
               that Intel X25-M and X25-E stay flat to 256 files, and that CompactFlash, Mtron Mobi and \
               Memoright GT slow down.",
    kind: Kind::Measured,
    published: &[
        Published {
            name: STORE,
            value: 1.0,
            unit: "ratio",
            place: "Figure 4.4, section 4.2.1: X25-M and X25-E \"retain high performance with up to 256\"",
            because: "whether this store keeps its rate on this device, as FAWN-DS does on the good devices",
            rule: Rule::AtLeast(0.7),
        },
        Published {
            name: DEVICE,
            value: 1.0,
            unit: "ratio",
            place: "Figure 4.4: flat for X25-M and X25-E",
            because: "whether this device is one of the good ones",
            rule: Rule::AtLeast(0.7),
        },
    ],
    series: &[],
    space_bytes,
    run,
};

fn total_bytes(size: Size) -> u64 {
    match size {
        Size::Tiny => 2 * MIB,
        Size::Quick => 128 * MIB,
        Size::Full => 2048 * MIB,
    }
}

fn files(size: Size) -> &'static [u16] {
    match size {
        Size::Tiny => &[1, 4],
        Size::Quick => &[1, 4, 16, 64, 256],
        Size::Full => &[1, 2, 4, 8, 16, 32, 64, 128, 256],
    }
}

fn segment_bytes(size: Size) -> u64 {
    match size {
        Size::Tiny => 128 << 10,
        Size::Quick => 512 << 10,
        Size::Full => MIB,
    }
}

/// Every shard has a segment under way, one ahead and its reserve.
fn store_space_bytes(size: Size) -> u64 {
    total_bytes(size) * 5 / 4 + u64::from(files(size)[files(size).len() - 1]) * 12 * segment_bytes(size)
}

fn space_bytes(size: Size) -> u64 {
    store_space_bytes(size) + 64 * MIB
}

/// One number of logs.
struct Point {
    files: u16,
    store: f64,
    groups: u64,
    written_of_user: f64,
    raw: f64,
}

fn run(run: &mut Run<'_>) -> Result<()> {
    let size = run.pick(Size::Tiny, Size::Quick, Size::Full);
    run.expect_steps(2 + 2 * files(size).len() as u32);
    run.step("probing how writes become durable")?;
    let method = probe(run)?.method;
    run.set("bytes put", format_size(total_bytes(size)));
    run.set("segment", format_size(segment_bytes(size)));
    run.set("durable together", format_size(COMMIT_BYTES));
    run.step("writing files for the raw device")?;
    let folder = run.folder().join("raw");
    let span = run.pick(16 * MIB, 128 * MIB, 1024 * MIB);
    let mut device = RawDevice::fill(run, &folder, span, method)?;
    let mut raw = Vec::new();
    for &count in files(size) {
        run.step(format!("raw appends, places: {count}"))?;
        raw.push(device.append(run, u64::from(count), REQUEST_BYTES, 4, total_bytes(size))?);
    }
    drop(device);
    std::fs::remove_dir_all(&folder)?;
    let mut points = Vec::new();
    for (&count, raw) in files(size).iter().zip(raw) {
        run.step(format!("inserts, logs: {count}"))?;
        points.push(measure(run, size, count, raw, method)?);
    }
    report(run, &points)
}

fn measure(run: &mut Run<'_>, size: Size, count: u16, raw: f64, method: DurableMethod) -> Result<Point> {
    let record_bytes = u64::from(VALUE_BYTES) + KEY_BYTES;
    let inserts = total_bytes(size) / record_bytes;
    let choice = StoreChoice {
        capacity_bytes: Some(store_space_bytes(size)),
        segment_bytes: segment_bytes(size),
        ..StoreChoice::with_cache(64 * MIB, inserts, count, method)
    };
    let folder = run.folder().join("store");
    let mut target = LocalTarget::open(&choice, &folder)?;
    let batch = (COMMIT_BYTES / record_bytes) as usize;
    let outcome = run.load(&records(inserts, VALUE_BYTES), 0..inserts, batch, &mut target)?;
    let statistics = target.store().statistics();
    drop(target);
    std::fs::remove_dir_all(&folder)?;
    Ok(Point {
        files: count,
        store: (inserts * record_bytes) as f64 / outcome.seconds.max(1e-6),
        groups: statistics.groups,
        written_of_user: statistics.device.bytes_written as f64 / statistics.user_bytes_written.max(1) as f64,
        raw,
    })
}

fn report(run: &mut Run<'_>, points: &[Point]) -> Result<()> {
    let (first, last) = (&points[0], &points[points.len() - 1]);
    let detail = |of: fn(&Point) -> f64| {
        format!("here {:.0} MB/s at {}, {:.0} MB/s at one", of(last) / 1e6, last.files, of(first) / 1e6)
    };
    run.compare(
        STORE,
        last.store / first.store,
        &format!(
            "{}; each shard writes its own groups: {} in place of {}",
            detail(|p| p.store),
            last.groups,
            first.groups
        ),
    )?;
    run.compare(DEVICE, last.raw / first.raw, &detail(|point| point.raw))?;
    let mut table = Table::new(
        "bandwidth",
        "Write bandwidth by the number of logs",
        &["logs", "MB/s of keys and values", "groups", "bytes written a byte put", "raw MB/s"],
    );
    for point in points {
        table.push([
            u64::from(point.files).into(),
            (point.store / 1e6).into(),
            point.groups.into(),
            point.written_of_user.into(),
            (point.raw / 1e6).into(),
        ]);
    }
    run.table(table);
    let series = |name: &str, of: fn(&Point) -> f64| {
        Series::new(name, points.iter().map(|point| (f64::from(point.files), of(point) / 1e6)))
    };
    run.plot(Plot {
        name: "bandwidth".to_owned(),
        title: "Write bandwidth by the number of logs".to_owned(),
        x: Axis::logarithmic("logs"),
        y: Axis::linear("MB/s"),
        series: vec![
            series("records of 1 KB put", |point| point.store),
            series("raw appends", |point| point.raw),
        ],
    });
    Ok(())
}
