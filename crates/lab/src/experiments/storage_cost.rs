//! What the memory of key-value stores costs: the published prices of five systems, what follows from them, and ours.

use super::persistency::value;
use crate::experiment::{Experiment, Kind, Rule, Size};
use crate::raw::probe;
use crate::result::{Axis, Plot, Series, Table};
use crate::run::Run;
use crate::target::{LocalTarget, StoreChoice, records};
use tierstone::{DurableMethod, RedoOptions};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_workload::{KeyFormat, Workload};

/// Published prices: dollars a GB, from modules of 128 GB.
const DRAM_PRICE: f64 = 1500.0 / 128.0;
const NVM_PRICE: f64 = 695.0 / 128.0;
const GB: f64 = 1e9;
/// Keys of about 20 bytes behind a prefix of 4.
const KEY_BYTES: f64 = 24.0;
/// What an entry of RStore's index has besides its key.
const POINTER_BYTES: f64 = 8.0;
/// RocksDB's block cache.
const BLOCK_CACHE_GB: f64 = 6.0;

/// A published size of values, with the number of records that make 16 GB of them.
#[derive(Clone, Copy, Debug)]
struct Load {
    value_bytes: u32,
    records: f64,
    /// Table 5.1, in the order of [`SYSTEMS`].
    published: [f64; 5],
}

const LOADS: [Load; 2] = [
    Load { value_bytes: 1_000, records: 16e6, published: [98.0, 207.0, 200.0, 160.0, 195.0] },
    Load { value_bytes: 100, records: 160e6, published: [227.0, 335.0, 361.0, 187.0, 342.0] },
];

/// The five systems: where their records lie, and what is printed of their other memory.
const SYSTEMS: [(&str, System); 5] = [
    ("RStore", System::IndexAndNvm),
    ("memcached", System::Dram),
    ("Redis", System::Dram),
    ("RocksDB", System::CacheAndNvm),
    ("FASTER", System::Dram),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    /// Everything in DRAM.
    Dram,
    /// Records in NVM, keys and pointers in DRAM.
    IndexAndNvm,
    /// Records in NVM, a block cache in DRAM.
    CacheAndNvm,
}

impl System {
    /// DRAM and NVM in GB that follow from what is printed: the bytes of keys and values where they lie, an index of keys
    /// and pointers, the block cache. What a system needs besides is not printed, so this is a lower bound.
    fn footprint_gb(self, load: &Load) -> (f64, f64) {
        let raw = load.records * (KEY_BYTES + f64::from(load.value_bytes)) / GB;
        match self {
            System::Dram => (raw, 0.0),
            System::IndexAndNvm => (load.records * (KEY_BYTES + POINTER_BYTES) / GB, raw),
            System::CacheAndNvm => (BLOCK_CACHE_GB, raw),
        }
    }

    /// Dollars a GB of where the records lie.
    fn price(self) -> f64 {
        if self == System::Dram { DRAM_PRICE } else { NVM_PRICE }
    }
}

/// Dollars for GB of both memories.
fn cost(dram_gb: f64, nvm_gb: f64) -> f64 {
    dram_gb * DRAM_PRICE + nvm_gb * NVM_PRICE
}

const OURS: [&str; 2] = [
    "1000 B: cost of 16 million records in Tierstone, of RStore's",
    "100 B: cost of 160 million records in Tierstone, of RStore's",
];
const ORDER: [&str; 2] = [
    "1000 B: cost of Tierstone, of the cheapest system that is all in DRAM",
    "100 B: cost of Tierstone, of the cheapest system that is all in DRAM",
];
const ROCKSDB: [&str; 2] =
    ["1000 B: RocksDB by formula from printed sizes", "100 B: RocksDB by formula from printed sizes"];
const RSTORE: [&str; 2] =
    ["1000 B: RStore by formula from printed sizes", "100 B: RStore by formula from printed sizes"];
const BOUND: &str = "published is the whole, the formula has what is printed: it must not be above";

/// Table 5.1 of the dissertation.
pub const EXPERIMENT: Experiment = Experiment {
    name: "storage-cost",
    title: "Cost of memory: five published systems, and Tierstone",
    source: "Lersch 2020 (TU Dresden), Table 5.1, section 5.8.7",
    measures: "Cost = DRAM x 1500/128 $/GB + NVM x 695/128 $/GB, with the published prices. The published footprints are \
               drawn, not printed: each published cost is held against the formula with what is printed (keys of 24 \
               bytes, values, RStore's pointers of 8 bytes, RocksDB's cache of 6 GB), and the rest is given as bytes a \
               record. Tierstone is measured with fewer records: memory of its index, buffers and cache, and the \
               segments of its files after loading, with a redo log in emulated persistent memory. Its costs are worked \
               out for the published number of records, index and segments a record, buffers, cache and redo region as \
               they are. Its records lie in files, which are priced here as if they were NVM; no price of flash is \
               printed.",
    kind: Kind::Modelled,
    published: &[
        value(
            OURS[0],
            1.0,
            "ratio",
            "Table 5.1: 98 $",
            "whether an index without keys and a log cost no more than RStore",
            Rule::AtMost(1.1),
        ),
        value(OURS[1], 1.0, "ratio", "Table 5.1: 227 $", "the same", Rule::AtMost(1.1)),
        value(
            ORDER[0],
            98.0 / 195.0,
            "ratio",
            "Table 5.1: RStore 98 $, FASTER 195 $",
            "whether records in NVM halve the cost",
            Rule::AtMost(0.6),
        ),
        value(
            ORDER[1],
            227.0 / 335.0,
            "ratio",
            "Table 5.1: RStore 227 $, memcached 335 $",
            "whether records in NVM are cheaper with small values too",
            Rule::AtMost(0.8),
        ),
        value(ROCKSDB[0], 160.0, "$", "Table 5.1", BOUND, Rule::Between(150.0, 160.0)),
        value(ROCKSDB[1], 187.0, "$", "Table 5.1", BOUND, Rule::Between(150.0, 187.0)),
        value(RSTORE[0], 98.0, "$", "Table 5.1", BOUND, Rule::Between(90.0, 98.0)),
        value(RSTORE[1], 227.0, "$", "Table 5.1", BOUND, Rule::Between(120.0, 227.0)),
    ],
    series: &[],
    space_bytes: |size| match size {
        Size::Tiny => 256 << 20,
        Size::Quick => 1 << 30,
        Size::Full => 4 << 30,
    },
    run,
};

/// What was measured of our store.
#[derive(Clone, Copy, Debug)]
struct Footprint {
    records: u64,
    index_bytes: u64,
    buffer_bytes: u64,
    cache_bytes: u64,
    region_bytes: u64,
    live_bytes: u64,
    used_bytes: u64,
}

impl Footprint {
    /// DRAM and NVM in GB for another number of records.
    fn for_records(&self, records: f64) -> (f64, f64) {
        let scale = records / self.records as f64;
        let dram = self.index_bytes as f64 * scale + (self.buffer_bytes + self.cache_bytes) as f64;
        let nvm = self.used_bytes as f64 * scale + self.region_bytes as f64;
        (dram / GB, nvm / GB)
    }
}

fn run(run: &mut Run<'_>) -> Result<()> {
    run.expect_steps(2 + 2 * LOADS.len() as u32);
    run.step("probing how writes become durable")?;
    let method = probe(run)?.method;
    let mut found = Vec::new();
    for load in &LOADS {
        found.push(measure(run, load, method)?);
    }
    run.step("comparing")?;
    for (number, (load, ours)) in LOADS.iter().zip(&found).enumerate() {
        let (dram, nvm) = ours.for_records(load.records);
        let here = cost(dram, nvm);
        let detail = format!("{here:.0} $: {dram:.2} GB of DRAM, {nvm:.1} GB of NVM");
        run.compare(OURS[number], here / load.published[0], &detail)?;
        let in_dram = (0..SYSTEMS.len()).filter(|&system| SYSTEMS[system].1 == System::Dram);
        let cheapest = in_dram.map(|system| load.published[system]).fold(f64::INFINITY, f64::min);
        run.compare(ORDER[number], here / cheapest, "")?;
        for (name, system) in [(ROCKSDB[number], System::CacheAndNvm), (RSTORE[number], System::IndexAndNvm)]
        {
            let (dram, nvm) = system.footprint_gb(load);
            run.compare(name, cost(dram, nvm), &format!("{dram:.2} GB of DRAM, {nvm:.2} GB of NVM"))?;
        }
    }
    report(run, &found);
    run.note("That a rest is given as bytes a record does not say what they are: it is arithmetic on a printed cost.");
    Ok(())
}

/// Loads our store and looks at what it takes.
fn measure(run: &mut Run<'_>, load: &Load, method: DurableMethod) -> Result<Footprint> {
    const REGION_BYTES: u64 = 20 << 20;
    const CACHE_BYTES: u64 = 16 << 20;
    let large = load.value_bytes >= 1_000;
    let count = match large {
        true => run.pick(2_000, 50_000, 500_000),
        false => run.pick(5_000, 200_000, 2_000_000),
    };
    run.set(&format!("records of {} B", load.value_bytes), count);
    run.step(format!("{} B: loading", load.value_bytes))?;
    let choice = StoreChoice {
        redo: Some(RedoOptions::new("emulated:20MiB")),
        segment_bytes: run.pick(1 << 20, 8 << 20, 8 << 20),
        ..StoreChoice::with_cache(CACHE_BYTES, count, 1, method)
    };
    let folder = run.folder().join("store");
    let key = KeyFormat { prefix: "user".to_owned(), ..records(count, load.value_bytes).key };
    let workload = Workload { key, ..records(count, load.value_bytes) };
    let mut target = LocalTarget::open(&choice, &folder)?;
    run.load(&workload, 0..count, 1_024, &mut target)?;
    run.step(format!("{} B: settling", load.value_bytes))?;
    target.settle(run)?;
    let statistics = target.store().statistics();
    drop(target);
    std::fs::remove_dir_all(&folder)?;
    if statistics.keys != count {
        let message = format!("{} of {count} records are in the store; run again", statistics.keys);
        return Err(Error::new(ErrorKind::Corrupt, message));
    }
    Ok(Footprint {
        records: count,
        index_bytes: statistics.index_bytes,
        buffer_bytes: statistics.buffer_bytes,
        cache_bytes: statistics.cache_bytes,
        region_bytes: REGION_BYTES,
        live_bytes: statistics.space_live_bytes,
        used_bytes: statistics.space_used_bytes,
    })
}

/// The published costs beside the formula.
fn published_table(run: &mut Run<'_>) {
    let mut published = Table::new(
        "published",
        "Table 5.1 beside the formula with what is printed (modelled, a lower bound)",
        &[
            "value, B",
            "system",
            "published, $",
            "DRAM printed, GB",
            "NVM printed, GB",
            "by formula, $",
            "rest, $",
            "rest as bytes a record where records lie",
        ],
    );
    for load in &LOADS {
        for ((name, system), cost_published) in SYSTEMS.into_iter().zip(load.published) {
            let (dram, nvm) = system.footprint_gb(load);
            let rest = cost_published - cost(dram, nvm);
            published.push([
                u64::from(load.value_bytes).into(),
                name.into(),
                cost_published.into(),
                dram.into(),
                nvm.into(),
                cost(dram, nvm).into(),
                rest.into(),
                (rest / system.price() * GB / load.records).into(),
            ]);
        }
    }
    run.table(published);
}

fn report(run: &mut Run<'_>, found: &[Footprint]) {
    published_table(run);
    let mut ours = Table::new(
        "tierstone",
        "Tierstone: bytes a record (measured), and the published number of records (modelled from them)",
        &[
            "value, B",
            "records loaded",
            "index, B a record",
            "live on the device, B a record",
            "segments in use, B a record",
            "buffers and cache, MB",
            "redo region, MB",
            "DRAM, GB",
            "NVM, GB",
            "cost, $",
        ],
    );
    for (load, found) in LOADS.iter().zip(found) {
        let each = |bytes: u64| bytes as f64 / found.records as f64;
        let (dram, nvm) = found.for_records(load.records);
        ours.push([
            u64::from(load.value_bytes).into(),
            found.records.into(),
            each(found.index_bytes).into(),
            each(found.live_bytes).into(),
            each(found.used_bytes).into(),
            ((found.buffer_bytes + found.cache_bytes) as f64 / 1e6).into(),
            (found.region_bytes as f64 / 1e6).into(),
            dram.into(),
            nvm.into(),
            cost(dram, nvm).into(),
        ]);
    }
    run.table(ours);
    let line = |system: usize| {
        let points = LOADS.iter().map(|load| (f64::from(load.value_bytes), load.published[system]));
        Series::new(&format!("{}, published", SYSTEMS[system].0), points)
    };
    let points = LOADS.iter().zip(found).map(|(load, found)| {
        let (dram, nvm) = found.for_records(load.records);
        (f64::from(load.value_bytes), cost(dram, nvm))
    });
    let here = Series::new("Tierstone, here", points);
    run.plot(Plot {
        name: "cost".to_owned(),
        title: "Cost of 16 GB of values in memory (modelled)".to_owned(),
        x: Axis::logarithmic("value, B"),
        y: Axis::linear("$"),
        series: (0..SYSTEMS.len()).map(line).chain([here]).collect(),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_follow_the_printed_prices() {
        assert_eq!(cost(128.0, 0.0), 1500.0);
        assert_eq!(cost(0.0, 128.0), 695.0);
        let (dram, nvm) = System::CacheAndNvm.footprint_gb(&LOADS[0]);
        assert!((dram - 6.0).abs() < 1e-9 && (nvm - 16.384).abs() < 1e-9);
        assert!((cost(dram, nvm) - 159.27).abs() < 0.01, "{}", cost(dram, nvm));
    }

    #[test]
    fn no_published_cost_is_below_what_its_printed_bytes_cost() {
        for load in &LOADS {
            for ((name, system), published) in SYSTEMS.into_iter().zip(load.published) {
                let (dram, nvm) = system.footprint_gb(load);
                assert!(cost(dram, nvm) <= published, "{name}, {}: {}", load.value_bytes, cost(dram, nvm));
            }
        }
    }

    #[test]
    fn only_what_a_record_takes_grows_with_their_number() {
        let found = Footprint {
            records: 1_000,
            index_bytes: 10_000,
            buffer_bytes: 500,
            cache_bytes: 500,
            region_bytes: 7_000,
            live_bytes: 90_000,
            used_bytes: 100_000,
        };
        let (dram, nvm) = found.for_records(2_000.0);
        assert!((dram * GB - 21_000.0).abs() < 1e-3 && (nvm * GB - 207_000.0).abs() < 1e-3);
    }
}
