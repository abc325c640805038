//! Reads and writes of small and large values in the library's store, on the device of a directory.

use crate::bench::embedded::{Caller, numbers};
use crate::interrupt::Interrupted;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use tierstone::{DatabaseOptions, SharedStore};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_workload::node::{DeviceWork, Watch, Work};
use tierstone_workload::value::ValueSettings;
use tierstone_workload::{Extent, Mix, Pacing, Progress, SizeDistribution, Workload, target_load};

/// Bytes of small and large values: a text post as in the FAWN study, and four blocks of a device.
pub const VALUE_BYTES: [u32; 2] = [256, 16 << 10];
/// Shares of writes.
pub const PUTS: [f64; 3] = [0.0, 0.5, 1.0];
/// Calls under way at a time, a thread.
const PIPELINE: usize = 16;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Settings {
    pub directory: PathBuf,
    pub data_bytes: u64,
    pub memory_bytes: u64,
    pub threads: usize,
    pub seconds: f64,
    pub seed: u64,
}

/// A store in a folder of its own, which is removed with it.
struct Store {
    store: Option<SharedStore>,
    folder: PathBuf,
}

impl Store {
    fn new(settings: &Settings, value_bytes: u32) -> Result<Store> {
        let folder = settings.directory.join(format!("tierstone-kv-{}-{value_bytes}", std::process::id()));
        if folder.exists() {
            return Err(Error::new(ErrorKind::InvalidInput, format!("{} exists already", folder.display())));
        }
        let mut options = DatabaseOptions::new(&folder);
        options.memory_bytes = settings.memory_bytes;
        options.shards = settings.threads.min(8) as u16;
        // Before it is opened, so that half a store is removed too.
        let mut store = Store { store: None, folder };
        store.store = Some(SharedStore::open(&options)?);
        Ok(store)
    }

    fn get(&self) -> Result<&SharedStore> {
        self.store.as_ref().ok_or_else(|| Error::new(ErrorKind::Busy, "the store is closed"))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(store) = self.store.take()
            && let Err(error) = store.close()
        {
            tell!("tierstone: {}: {error}", self.folder.display());
        }
        remove(&self.folder);
    }
}

fn remove(folder: &Path) {
    if let Err(error) = std::fs::remove_dir_all(folder)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tell!("tierstone: {} was not removed: {error}", folder.display());
    }
}

/// Runs every mix over values of each size.
pub fn run(
    settings: &Settings,
    interrupted: &Interrupted,
    mut measure: impl FnMut(&mut dyn FnMut(&mut dyn Watch) -> Result<Work>) -> Result<()>,
) -> Result<()> {
    for value_bytes in VALUE_BYTES {
        let store = Store::new(settings, value_bytes)?;
        let records = (settings.data_bytes / u64::from(value_bytes)).max(1);
        let value = ValueSettings { size: SizeDistribution::Fixed(value_bytes), ..ValueSettings::default() };
        let workload =
            |puts| Workload { records, value: value.clone(), mix: Mix::puts(puts), ..Workload::default() };
        let pacing = Pacing {
            threads: settings.threads,
            pipeline: PIPELINE,
            extent: Extent::Seconds(settings.seconds),
            seed: settings.seed,
            ..Pacing::default()
        };
        let mut open = || Ok(Caller { store: store.get()?.clone(), is_ordered: false });
        let mut go_on = |_: Progress| match interrupted.has_come() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let loading = Pacing { pipeline: 64, ..pacing };
        clean(&target_load::load(&workload(0.0), &loading, &mut open, &mut go_on)?)?;
        for puts in PUTS {
            interrupted.check()?;
            measure(&mut |watch| {
                let before = numbers(&store.get()?.statistics()?);
                watch.begin()?;
                let outcome = target_load::run(&workload(puts), &pacing, &mut open, &mut go_on);
                watch.end()?;
                let outcome = outcome?;
                interrupted.check()?;
                clean(&outcome)?;
                let after = numbers(&store.get()?.statistics()?);
                let passed = |name: &str| {
                    let number = |numbers: &std::collections::BTreeMap<String, u64>| {
                        numbers.get(name).copied().unwrap_or(0)
                    };
                    number(&after).saturating_sub(number(&before))
                };
                Ok(Work {
                    name: format!("KV, {} % puts, {value_bytes} B", puts * 100.0),
                    unit: "operation",
                    amount: outcome.operations as f64,
                    seconds: outcome.seconds,
                    note: format!(
                        "{} threads, {PIPELINE} at a time each, {records} records, uniform, durable; values verified; p50 {} us, p99 {} us",
                        settings.threads, outcome.latency.p50_us, outcome.latency.p99_us
                    ),
                    device: Some(DeviceWork {
                        reads: passed("tierstone_device_reads_total"),
                        writes: passed("tierstone_device_writes_total"),
                        flushes: passed("tierstone_device_flushes_total"),
                        bytes_read: passed("tierstone_device_read_bytes_total"),
                        bytes_written: passed("tierstone_device_written_bytes_total"),
                        bound: None,
                    }),
                })
            })?;
        }
    }
    Ok(())
}

/// A run with errors, or with records missing, did not measure what it says.
fn clean(outcome: &tierstone_workload::Outcome) -> Result<()> {
    if outcome.is_clean() && outcome.misses == 0 {
        return Ok(());
    }
    let why = outcome.first_error.clone().or_else(|| outcome.ended_early.clone()).unwrap_or_default();
    let message = format!(
        "{} errors, {} wrong values, {} records missing: {why}",
        outcome.errors, outcome.verification_failures, outcome.misses
    );
    Err(Error::new(ErrorKind::Corrupt, message))
}
