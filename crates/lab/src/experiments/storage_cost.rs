//! What the memory of key-value stores costs: the published prices of five systems, what follows from them, and ours.

use super::persistency::value;
use crate::experiment::{Experiment, Kind, Rule, Size};
use crate::raw::probe;
use crate::result::{Axis, Cell, Plot, Series, Table};
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
               record. Tierstone is measured with fewer records, after loading: the store wholly in (emulated) persistent \
               memory, which is what RStore is compared with, by the memory of its index and the blocks of its region that are in \
               use; beside it, compared with nothing, the store in files with a redo log in persistent memory, by index, \
               buffers and cache, and the segments in use, as if its files were NVM too (no price of flash is printed). \
               Costs are worked out for the published number of records: what grows with them a record, the rest as it is.",
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

/// Where our store lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Wholly in persistent memory.
    Nvm,
    /// In files, with a redo log in persistent memory.
    Files,
}

const PLACES: [Place; 2] = [Place::Nvm, Place::Files];

impl Place {
    fn name(self) -> &'static str {
        match self {
            Place::Nvm => "all of it in NVM",
            Place::Files => "files as if NVM, redo log in NVM",
        }
    }
}

/// Bytes of blocks in persistent memory for which the store keeps a byte in DRAM: a bit for each 32. No statistic counts it.
const BLOCK_BYTES_A_BYTE: u64 = 256;

/// What was measured of our store.
#[derive(Clone, Copy, Debug)]
struct Footprint {
    place: Place,
    records: u64,
    index_bytes: u64,
    /// Of DRAM, growing with what is used: which records of its blocks count.
    bits_bytes: u64,
    /// Of DRAM, however many records there are: buffers and cache.
    buffer_bytes: u64,
    /// Of NVM, however many records there are: logs and header, or the redo log's region.
    fixed_bytes: u64,
    live_bytes: u64,
    used_bytes: u64,
}

impl Footprint {
    /// DRAM and NVM in GB for another number of records.
    fn for_records(&self, records: f64) -> (f64, f64) {
        let scale = records / self.records as f64;
        let dram = (self.index_bytes + self.bits_bytes) as f64 * scale + self.buffer_bytes as f64;
        let nvm = self.used_bytes as f64 * scale + self.fixed_bytes as f64;
        (dram / GB, nvm / GB)
    }
}

fn run(run: &mut Run<'_>) -> Result<()> {
    run.expect_steps(2 + (2 * LOADS.len() * PLACES.len()) as u32);
    run.step("probing how writes become durable")?;
    let method = probe(run)?.method;
    let mut found = Vec::new();
    for load in &LOADS {
        found.push([measure(run, load, Place::Nvm, method)?, measure(run, load, Place::Files, method)?]);
    }
    run.step("comparing")?;
    for (number, (load, [ours, _])) in LOADS.iter().zip(&found).enumerate() {
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
    run.note(
        "The store in NVM: its memory is emulated, and only counted here. Which records of a block count takes a bit for each 32 \
         bytes in DRAM, which is worked out; a checkpoint of the index, where one was made, is in the blocks in use",
    );
    run.note("That a rest is given as bytes a record does not say what they are: it is arithmetic on a printed cost.");
    Ok(())
}

/// Loads our store and looks at what it takes.
fn measure(run: &mut Run<'_>, load: &Load, place: Place, method: DurableMethod) -> Result<Footprint> {
    const REDO_BYTES: u64 = 20 << 20;
    const CACHE_BYTES: u64 = 16 << 20;
    let large = load.value_bytes >= 1_000;
    let count = match large {
        true => run.pick(2_000, 50_000, 500_000),
        false => run.pick(5_000, 200_000, 2_000_000),
    };
    run.set(&format!("records of {} B", load.value_bytes), count);
    run.step(format!("{} B, {}: loading", load.value_bytes, place.name()))?;
    let region_bytes = whole_bytes(count, load.value_bytes);
    let usual = StoreChoice {
        segment_bytes: run.pick(1 << 20, 8 << 20, 8 << 20),
        ..StoreChoice::with_cache(CACHE_BYTES, count, 1, method)
    };
    let choice = match place {
        Place::Nvm => StoreChoice { whole: Some(format!("emulated:{region_bytes}B")), ..usual },
        Place::Files => {
            StoreChoice { redo: Some(RedoOptions::new(format!("emulated:{REDO_BYTES}B"))), ..usual }
        }
    };
    let folder = run.folder().join("store");
    let key = KeyFormat { prefix: "user".to_owned(), ..records(count, load.value_bytes).key };
    let workload = Workload { key, ..records(count, load.value_bytes) };
    let mut target = LocalTarget::open(&choice, &folder)?;
    run.load(&workload, 0..count, 1_024, &mut target)?;
    run.step(format!("{} B, {}: settling", load.value_bytes, place.name()))?;
    target.settle(run)?;
    let statistics = target.store().statistics();
    drop(target);
    if place == Place::Files {
        std::fs::remove_dir_all(&folder)?;
    }
    if statistics.keys != count {
        let message = format!("{} of {count} records are in the store; run again", statistics.keys);
        return Err(Error::new(ErrorKind::Corrupt, message));
    }
    let (bits_bytes, fixed_bytes) = match place {
        Place::Nvm => (
            statistics.space_used_bytes / BLOCK_BYTES_A_BYTE,
            region_bytes.saturating_sub(statistics.space_capacity_bytes),
        ),
        Place::Files => (0, REDO_BYTES),
    };
    Ok(Footprint {
        place,
        records: count,
        index_bytes: statistics.index_bytes,
        bits_bytes,
        buffer_bytes: statistics.buffer_bytes + statistics.cache_bytes,
        fixed_bytes,
        live_bytes: statistics.space_live_bytes,
        used_bytes: statistics.space_used_bytes,
    })
}

/// A region in which the records find room without cleaning, and a log.
fn whole_bytes(count: u64, value_bytes: u32) -> u64 {
    const AROUND_BYTES: u64 = 64;
    let record_bytes = KEY_BYTES as u64 + u64::from(value_bytes) + AROUND_BYTES;
    (count * record_bytes * 3 / 2 + (64 << 20)).next_multiple_of(2 << 20)
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

/// What each of our stores takes, and what that costs.
fn own_table(run: &mut Run<'_>, found: &[[Footprint; 2]]) {
    let mut ours = Table::new(
        "tierstone",
        "Tierstone: bytes a record (measured), and the published number of records (modelled from them)",
        &[
            "value, B",
            "where it lies",
            "records loaded",
            "index, B a record",
            "live, B a record",
            "blocks or segments in use, B a record",
            "block bits in DRAM, B a record (worked out)",
            "buffers and cache, MB",
            "logs and header, or redo region, MB",
            "DRAM, GB",
            "NVM, GB",
            "cost, $",
        ],
    );
    for (load, found) in LOADS.iter().zip(found) {
        for found in found {
            let each = |bytes: u64| bytes as f64 / found.records as f64;
            let (dram, nvm) = found.for_records(load.records);
            ours.push([
                u64::from(load.value_bytes).into(),
                found.place.name().into(),
                found.records.into(),
                each(found.index_bytes).into(),
                each(found.live_bytes).into(),
                each(found.used_bytes).into(),
                each(found.bits_bytes).into(),
                (found.buffer_bytes as f64 / 1e6).into(),
                (found.fixed_bytes as f64 / 1e6).into(),
                dram.into(),
                nvm.into(),
                cost(dram, nvm).into(),
            ]);
        }
    }
    run.table(ours);
}

/// The published table beside ours, as the terminal shows it.
fn cost_table(run: &mut Run<'_>, found: &[[Footprint; 2]]) {
    let mut costs = Table::new(
        "cost",
        "Cost of 16 GB of values: published (Table 5.1), by formula from what is printed, and ours modelled from measured bytes",
        &["system", "1000 B: published, $", "modelled, $", "100 B: published, $", "modelled, $"],
    );
    let [large, small] = &LOADS;
    for (number, (name, system)) in SYSTEMS.into_iter().enumerate() {
        let modelled = |load: &Load| {
            let (dram, nvm) = system.footprint_gb(load);
            Cell::from(cost(dram, nvm))
        };
        costs.push([
            name.into(),
            large.published[number].into(),
            modelled(large),
            small.published[number].into(),
            modelled(small),
        ]);
    }
    for place in PLACES {
        let modelled = |number: usize| {
            let found = found[number].iter().find(|found| found.place == place);
            found.map_or(f64::NAN, |found| {
                let (dram, nvm) = found.for_records(LOADS[number].records);
                cost(dram, nvm)
            })
        };
        costs.push([
            format!("Tierstone, {}", place.name()).into(),
            f64::NAN.into(),
            modelled(0).into(),
            f64::NAN.into(),
            modelled(1).into(),
        ]);
    }
    run.show(costs);
}

fn report(run: &mut Run<'_>, found: &[[Footprint; 2]]) {
    published_table(run);
    own_table(run, found);
    cost_table(run, found);
    let line = |system: usize| {
        let points = LOADS.iter().map(|load| (f64::from(load.value_bytes), load.published[system]));
        Series::new(&format!("{}, published", SYSTEMS[system].0), points)
    };
    let points = LOADS.iter().zip(found).map(|(load, [ours, _])| {
        let (dram, nvm) = ours.for_records(load.records);
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
            place: Place::Nvm,
            records: 1_000,
            index_bytes: 8_000,
            bits_bytes: 2_000,
            buffer_bytes: 1_000,
            fixed_bytes: 7_000,
            live_bytes: 90_000,
            used_bytes: 100_000,
        };
        let (dram, nvm) = found.for_records(2_000.0);
        assert!((dram * GB - 21_000.0).abs() < 1e-3 && (nvm * GB - 207_000.0).abs() < 1e-3);
    }
}
