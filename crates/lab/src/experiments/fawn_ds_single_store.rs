//! FAWN-DS, one store: random gets by the size of the store, bulk load, and the raw device below.

use crate::experiment::{Experiment, Kind, Published, PublishedSeries, Rule, Size};
use crate::raw::{RawDevice, RawLoad, probe};
use crate::result::{Axis, Plot, Series, Table};
use crate::run::Run;
use crate::target::{KEY_BYTES, LocalTarget, StoreChoice, records};
use tierstone::DurableMethod;
use tierstone_base::Result;
use tierstone_base::units::format_size;
use tierstone_media::IoKind;
use tierstone_media::probe::Rate;
use tierstone_workload::{Extent, Pacing, Workload};

/// The published node's memory.
const NODE_MEMORY: u64 = 256 << 20;
const MIB: u64 = 1 << 20;
/// The published sizes of the store.
const SIZES: [(&str, u64); 7] = [
    ("10 KB", 10 << 10),
    ("125 MB", 125 * MIB),
    ("250 MB", 250 * MIB),
    ("500 MB", 500 * MIB),
    ("1 GB", 1024 * MIB),
    ("2 GB", 2048 * MIB),
    ("3.5 GB", 3584 * MIB),
];
/// Bytes of the load that are made durable together.
const COMMIT_BYTES: u64 = 8 * MIB;
/// Gets that are under way together in the second measurement.
const TOGETHER: u32 = 32;

/// Tables 4.1 and 4.2 of the dissertation.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fawn-ds-single-store",
    title: "FAWN-DS on one node: random gets by the size of the store",
    source: "Vasudevan 2011 (CMU-CS-11-131), Tables 4.1 and 4.2, section 4.2.1",
    measures: "Gets of random keys by one local caller, one after the other as published (and 32 together), \
               against stores from 10 KB to 14 times the memory; the rate of a bulk load; and the same device \
               without a store. Memory stands for the published 256 MB: it is the record cache, the index is \
               on top of it; sizes are scaled with it. The store reads whole blocks of 4 KiB, so the raw \
               reads are of 4 KiB too. Unlike the published store, every 8 MiB of the load are durable \
               when they are acknowledged, and checksums are verified.",
    kind: Kind::Measured,
    published: &[
        Published {
            name: "gets of 1 KB from the largest store, of raw random reads",
            value: 0.808,
            unit: "ratio",
            place: "Tables 4.1, 4.2: 1,150 of 1,424 a second",
            because: "what the store keeps of the device's random reads, one at a time",
            rule: Rule::AtLeast(0.8),
        },
        Published {
            name: "gets of 256 B from the largest store, of raw random reads",
            value: 0.893,
            unit: "ratio",
            place: "Table 4.2, section 4.2.1: 1,298 of 1,454 a second",
            because: "what the store keeps of the device's random reads, one at a time",
            rule: Rule::AtLeast(0.8),
        },
        Published {
            name: "gets of 1 KB at twice the memory, of those at half of it",
            value: 0.0388,
            unit: "ratio",
            place: "Table 4.2: 2,016 (500 MB) of 51,968 (125 MB) a second",
            because: "the cliff where the store outgrows memory",
            rule: Rule::AtMost(0.2),
        },
        Published {
            name: "gets of 256 B at twice the memory, of those at half of it",
            value: 0.0374,
            unit: "ratio",
            place: "Table 4.2: 2,449 (500 MB) of 65,412 (125 MB) a second",
            because: "the cliff where the store outgrows memory",
            rule: Rule::AtMost(0.2),
        },
        Published {
            name: "bulk load of 1 KB, of raw sequential writes",
            value: 0.96,
            unit: "ratio",
            place: "section 4.2.1: 23.2 MB/s is 96 % of raw (Table 4.1: 24 MB/s)",
            because: "keys and values a second, of durable writes in order of 256 KiB on prepared files",
            rule: Rule::AtLeast(0.9),
        },
        Published {
            name: "bulk load of 1 KB, of raw random writes",
            value: 218.0,
            unit: "ratio",
            place: "Table 4.1, section 4.2.1: 24,000 entries of 110 writes a second",
            because: "what a log wins over writing in place: records a second, of durable random writes one at \
                      a time",
            rule: Rule::AtLeast(10.0),
        },
        Published {
            name: "raw random writes, of raw random reads",
            value: 0.077,
            unit: "ratio",
            place: "Table 4.1: 110 of 1,424 a second",
            because: "the premise of the design, a property of the device: how slow small durable writes in \
                      place are",
            rule: Rule::AtMost(0.25),
        },
    ],
    series: &[
        PublishedSeries {
            name: "1 KB, published",
            place: "Table 4.2",
            x: "store ÷ memory (256 MB)",
            y: "gets/s",
            points: &[
                (0.000_038_1, 72_352.0),
                (0.488, 51_968.0),
                (0.977, 6_824.0),
                (1.95, 2_016.0),
                (4.0, 1_595.0),
                (8.0, 1_446.0),
                (14.0, 1_150.0),
            ],
        },
        PublishedSeries {
            name: "256 B, published",
            place: "Table 4.2",
            x: "store ÷ memory (256 MB)",
            y: "gets/s",
            points: &[
                (0.000_038_1, 85_012.0),
                (0.488, 65_412.0),
                (0.977, 5_902.0),
                (1.95, 2_449.0),
                (4.0, 1_964.0),
                (8.0, 1_613.0),
                (14.0, 1_298.0),
            ],
        },
    ],
    space_bytes,
    run,
};

/// The record cache.
fn memory_bytes(size: Size) -> u64 {
    match size {
        Size::Tiny => MIB,
        Size::Quick => 16 * MIB,
        Size::Full => NODE_MEMORY,
    }
}

fn largest_bytes(size: Size) -> u64 {
    SIZES[SIZES.len() - 1].1 / (NODE_MEMORY / memory_bytes(size))
}

fn space_bytes(size: Size) -> u64 {
    // One store at a time, with headers and what is prepared ahead; or the raw files.
    largest_bytes(size) * 2 + 512 * MIB
}

/// Gets a second of one store at one size.
struct Point {
    label: &'static str,
    store_bytes: u64,
    alone: f64,
    p50_us: u64,
    p99_us: u64,
    together: f64,
    from_device: f64,
}

/// One value size.
struct Column {
    value_bytes: u32,
    points: Vec<Point>,
    load_bytes_per_second: f64,
    load_records_per_second: f64,
}

/// The device without a store.
struct Raw {
    read_alone: Rate,
    read_together: Rate,
    write_alone: Rate,
    read_in_order: Rate,
    write_in_order: Rate,
}

fn run(run: &mut Run<'_>) -> Result<()> {
    run.expect_steps(7 + 2 * SIZES.len() as u32);
    run.step("probing how writes become durable")?;
    let method = probe(run)?.method;
    let memory = run.pick(Size::Tiny, Size::Quick, Size::Full);
    run.set("memory for records", format_size(memory_bytes(memory)));
    run.set("largest store", format_size(largest_bytes(memory)));
    let raw = measure_raw(run, memory, method)?;
    let kilobyte = measure_store(run, memory, 1024, method)?;
    let quarter = measure_store(run, memory, 256, method)?;
    report(run, &raw, &[kilobyte, quarter])
}

fn measure_raw(run: &mut Run<'_>, size: Size, method: DurableMethod) -> Result<Raw> {
    run.step("writing files for the raw device")?;
    let folder = run.folder().join("raw");
    let mut raw = RawDevice::fill(run, &folder, largest_bytes(size), method)?;
    let budget_us = run.pick(20_000, 700_000, 5_000_000);
    let mut measure = |run: &mut Run<'_>, what: &str, kind, request_bytes, random, depth| {
        run.step(format!("raw device: {what}"))?;
        raw.measure(run, &RawLoad { kind, request_bytes, random, depth, budget_us })
    };
    let measured = Raw {
        read_alone: measure(run, "random reads", IoKind::Read, 4096, true, 1)?,
        read_together: measure(run, "random reads, 32 in flight", IoKind::Read, 4096, true, TOGETHER)?,
        write_alone: measure(run, "random writes", IoKind::WriteDurable, 4096, true, 1)?,
        read_in_order: measure(run, "reads in order", IoKind::Read, 256 << 10, false, 2)?,
        write_in_order: measure(run, "writes in order", IoKind::WriteDurable, 256 << 10, false, 2)?,
    };
    drop(raw);
    std::fs::remove_dir_all(&folder)?;
    Ok(measured)
}

fn measure_store(run: &mut Run<'_>, size: Size, value_bytes: u32, method: DurableMethod) -> Result<Column> {
    let record_bytes = u64::from(value_bytes) + KEY_BYTES;
    let records_max = largest_bytes(size) / record_bytes;
    let choice = StoreChoice {
        segment_bytes: run.pick(MIB, 8 * MIB, 32 * MIB),
        ..StoreChoice::with_cache(memory_bytes(size), records_max, 1, method)
    };
    let folder = run.folder().join("store");
    let mut target = LocalTarget::open(&choice, &folder)?;
    let mut workload = records(1, value_bytes);
    let mut column =
        Column { value_bytes, points: Vec::new(), load_bytes_per_second: 0.0, load_records_per_second: 0.0 };
    let mut loaded = 0;
    let mut load_seconds = 0.0;
    for (label, published_bytes) in SIZES {
        run.step(format!("values of {value_bytes} B, store of {label} on the published scale"))?;
        let scaled = published_bytes / (NODE_MEMORY / memory_bytes(size));
        let store_bytes = if published_bytes < MIB { published_bytes } else { scaled };
        workload.records = (store_bytes / record_bytes).max(loaded + 1);
        let batch = ((COMMIT_BYTES / record_bytes) as usize).max(1);
        load_seconds += run.load(&workload, loaded..workload.records, batch, &mut target)?.seconds;
        loaded = workload.records;
        column.points.push(measure_gets(run, &workload, &mut target, label, loaded * record_bytes)?);
    }
    column.load_records_per_second = loaded as f64 / load_seconds.max(1e-6);
    column.load_bytes_per_second = column.load_records_per_second * record_bytes as f64;
    drop(target);
    std::fs::remove_dir_all(&folder)?;
    Ok(column)
}

fn measure_gets(
    run: &mut Run<'_>,
    workload: &Workload,
    target: &mut LocalTarget,
    label: &'static str,
    store_bytes: u64,
) -> Result<Point> {
    let seconds = run.pick(0.02, 0.4, 5.0);
    let alone = Pacing { extent: Extent::Seconds(seconds), ..Pacing::default() };
    let together = Pacing { pipeline: TOGETHER as usize, ..alone };
    target.settle(run)?;
    // What the cache holds becomes what gets ask for, not what was loaded last.
    run.drive(workload, &Pacing { pipeline: 256, ..alone }, target)?;
    let before = target.store().statistics();
    let one = run.drive(workload, &alone, target)?;
    let after = target.store().statistics();
    let many = run.drive(workload, &together, target)?;
    let from_device = (after.device_hits - before.device_hits) as f64;
    Ok(Point {
        label,
        store_bytes,
        alone: one.rate,
        p50_us: one.latency.p50_us,
        p99_us: one.latency.p99_us,
        together: many.rate,
        from_device: from_device / one.operations.max(1) as f64,
    })
}

fn report(run: &mut Run<'_>, raw: &Raw, columns: &[Column; 2]) -> Result<()> {
    let raw_read = raw.read_alone.per_second;
    let raw_write = raw.write_in_order.per_second * f64::from(256 << 10);
    for column in columns {
        let of = if column.value_bytes == 1024 { "1 KB" } else { "256 B" };
        let rate = |label: &str| {
            column.points.iter().find(|point| point.label == label).map_or(f64::NAN, |point| point.alone)
        };
        let detail = format!("here {:.0} of {raw_read:.0} a second", rate("3.5 GB"));
        let name = format!("gets of {of} from the largest store, of raw random reads");
        run.compare(&name, rate("3.5 GB") / raw_read, &detail)?;
        let detail = format!("here {:.0} of {:.0} a second", rate("500 MB"), rate("125 MB"));
        let name = format!("gets of {of} at twice the memory, of those at half of it");
        run.compare(&name, rate("500 MB") / rate("125 MB"), &detail)?;
    }
    let load = &columns[0];
    run.compare(
        "bulk load of 1 KB, of raw sequential writes",
        load.load_bytes_per_second / raw_write,
        &format!(
            "here {:.0} of {:.0} MB/s; the store also zeroes each segment before its first use, so that later \
             writes are cheap",
            load.load_bytes_per_second / 1e6,
            raw_write / 1e6
        ),
    )?;
    run.compare(
        "bulk load of 1 KB, of raw random writes",
        load.load_records_per_second / raw.write_alone.per_second,
        &format!("here {:.0} of {:.0} a second", load.load_records_per_second, raw.write_alone.per_second),
    )?;
    run.compare(
        "raw random writes, of raw random reads",
        raw.write_alone.per_second / raw_read,
        &format!("here {:.0} of {raw_read:.0} a second", raw.write_alone.per_second),
    )?;
    tables(run, raw, columns);
    plots(run, raw, columns);
    Ok(())
}

fn tables(run: &mut Run<'_>, raw: &Raw, columns: &[Column; 2]) {
    let mut gets = Table::new(
        "gets",
        "Random gets (Table 4.2)",
        &[
            "value B",
            "published size",
            "bytes here",
            "gets/s",
            "p50 µs",
            "p99 µs",
            "gets/s, 32 together",
            "from the device",
        ],
    );
    for column in columns {
        for point in &column.points {
            gets.push([
                u64::from(column.value_bytes).into(),
                point.label.into(),
                point.store_bytes.into(),
                point.alone.into(),
                point.p50_us.into(),
                point.p99_us.into(),
                point.together.into(),
                point.from_device.into(),
            ]);
        }
    }
    run.table(gets);
    let mut device = Table::new(
        "raw",
        "The device without a store (Table 4.1)",
        &["requests", "bytes", "in flight", "a second", "MB/s", "p50 µs", "p99 µs"],
    );
    for (what, bytes, rate) in [
        ("random reads", 4096, &raw.read_alone),
        ("random reads", 4096, &raw.read_together),
        ("random durable writes", 4096, &raw.write_alone),
        ("reads in order", 256 << 10, &raw.read_in_order),
        ("durable writes in order", 256 << 10, &raw.write_in_order),
    ] {
        device.push([
            what.into(),
            f64::from(bytes).into(),
            u64::from(rate.depth).into(),
            rate.per_second.into(),
            (rate.per_second * f64::from(bytes) / 1e6).into(),
            rate.p50_us.into(),
            rate.p99_us.into(),
        ]);
    }
    run.table(device);
    let mut load = Table::new("load", "Bulk load", &["value B", "records/s", "MB/s of keys and values"]);
    for column in columns {
        load.push([
            u64::from(column.value_bytes).into(),
            column.load_records_per_second.into(),
            (column.load_bytes_per_second / 1e6).into(),
        ]);
    }
    run.table(load);
}

fn plots(run: &mut Run<'_>, raw: &Raw, columns: &[Column; 2]) {
    let memory = memory_bytes(run.pick(Size::Tiny, Size::Quick, Size::Full)) as f64;
    let ratio = |point: &Point| point.store_bytes as f64 / memory;
    let mut series = Vec::new();
    for column in columns {
        let of = if column.value_bytes == 1024 { "1 KB" } else { "256 B" };
        let points = column.points.iter().map(|point| (ratio(point), point.alone));
        series.push(Series::new(&format!("{of}, one at a time"), points));
        let points = column.points.iter().map(|point| (ratio(point), point.together));
        series.push(Series::new(&format!("{of}, {TOGETHER} together"), points));
    }
    let ends = [ratio(&columns[0].points[0]), ratio(&columns[0].points[SIZES.len() - 1])];
    series.push(Series::new("raw reads, one at a time", ends.map(|end| (end, raw.read_alone.per_second))));
    series.extend(
        EXPERIMENT
            .series
            .iter()
            .map(|published| Series::new(published.name, published.points.iter().copied())),
    );
    run.plot(Plot {
        name: "gets".to_owned(),
        title: "Random gets by the size of the store".to_owned(),
        x: Axis::logarithmic("store ÷ memory"),
        y: Axis::logarithmic("gets a second"),
        series,
    });
}
