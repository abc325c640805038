//! The same workloads against the library in this process: no sockets, and ranges where the store has an
//! order.

use super::energy::{self, Accounting, EnergyCost, Watching};
use super::report::{BenchReport, ServerCost};
use super::{LoadArgs, with_bar};
use crate::child::cpu_us_of;
use crate::values::{parse_durability, parse_index};
use std::collections::BTreeMap;
use std::path::Path;
use tierstone::{DatabaseOptions, EngineStatistics, IndexKind, SharedStore};
use tierstone_base::Result;
use tierstone_base::units::parse_size;
use tierstone_workload::redis_load::Plan;
use tierstone_workload::target_load::{self, Target};

/// One thread's handle.
pub struct Caller {
    pub store: SharedStore,
    pub is_ordered: bool,
}

impl Target for Caller {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.store.get(key)?;
        let is_found = found.is_some();
        value.extend(found.unwrap_or_default());
        Ok(is_found)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store.put(key, value)
    }

    fn get_many(&mut self, keys: &[&[u8]], each: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        let values = self.store.get_many(keys)?;
        values.iter().enumerate().for_each(|(place, value)| each(place, value.as_deref()));
        Ok(())
    }

    fn put_many(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        let answers: Vec<_> = records.iter().map(|(key, value)| self.store.put_async(key, value)).collect();
        answers.into_iter().try_for_each(|answer| answer.wait())
    }

    fn scan(&mut self, key: &[u8], count: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Option<Result<()>> {
        let walk = || {
            for entry in self.store.range(key..).take(count) {
                let entry = entry?;
                each(&entry.key, &entry.value);
            }
            Ok(())
        };
        self.is_ordered.then(walk)
    }
}

/// Processor time of this process, in microseconds.
fn own_cpu_us() -> Option<u64> {
    cpu_us_of("self")
}

/// The numbers that a server would tell as metrics.
pub fn numbers(statistics: &EngineStatistics) -> BTreeMap<String, u64> {
    let named = [
        ("tierstone_device_reads_total", statistics.device.reads),
        ("tierstone_device_writes_total", statistics.device.writes),
        ("tierstone_device_flushes_total", statistics.device.flushes),
        ("tierstone_device_read_bytes_total", statistics.device.bytes_read),
        ("tierstone_device_written_bytes_total", statistics.device.bytes_written),
        ("tierstone_index_bytes", statistics.index_bytes),
        ("tierstone_keys", statistics.keys),
    ];
    named.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

pub fn measure(args: &LoadArgs, directory: &Path, accounting: &Accounting) -> Result<BenchReport> {
    let plan = Plan { connections: 0, ..args.plan("embedded".into())? };
    let mut options = DatabaseOptions::new(directory);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    options.shards = args.shards.unwrap_or(cores.min(8) as u16);
    options.memory_bytes = parse_size(&args.memory)?;
    options.index = args.index.as_deref().map(parse_index).transpose()?;
    if let Some(durability) = &args.durability {
        options.shard.durability = parse_durability(durability)?;
    }
    let is_ordered = options.index == Some(IndexKind::Ordered);
    let store = SharedStore::open(&options)?;
    let mut open = || Ok(Caller { store: store.clone(), is_ordered });
    let (workload, pacing) = (&plan.workload, &plan.pacing);
    // Loaded many at a time, whatever is measured afterwards.
    let loading = tierstone_workload::Pacing { pipeline: pacing.pipeline.max(64), ..*pacing };
    let load = with_bar("loading", |progress| target_load::load(workload, &loading, &mut open, progress))?;
    let before = numbers(&store.statistics()?);
    let (watching, cpu_before) = (Watching::start(accounting)?, own_cpu_us());
    let run = with_bar("measuring", |progress| target_load::run(workload, pacing, &mut open, progress))?;
    let (measured, cpu) = (watching.end()?, cpu_before.zip(own_cpu_us()));
    let after = numbers(&store.statistics()?);
    let cost = ServerCost::new(run.operations, None, &before, &after);
    // The whole process: callers and generator, too.
    let work = energy::work(run.seconds, cpu, &before, &after);
    let energy = EnergyCost::new(run.operations, measured, (&accounting.model, work.as_ref()));
    let verified = match args.verify {
        false => None,
        true => Some(with_bar("verifying", |progress| {
            target_load::verify(workload, pacing, &mut open, progress)
        })?),
    };
    store.close()?;
    Ok(BenchReport {
        workload: args.workload.clone(),
        is_own_server: false,
        plan,
        load: Some(load),
        run,
        server: Some(cost),
        energy,
        verified,
    })
}
