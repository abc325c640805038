//! Stores that lie wholly in persistent memory: where their region comes from, and what it is.
//!
//! `nvm:` and a region's source ([`RegionSource`]) stand where a directory would: `nvm:/mnt/pmem0/store`,
//! `nvm:emulated:4GiB:dcpmm`. The superblock, the same as on devices, lies at the region's start; behind it the engine
//! of [`tierstone_pmstore`] keeps its segments. `docs/nvm.md` is the guide.
//!
//! Who owns the data: [`NvmStore`], which all handles of the process share, keeps the region mapped.

use crate::database::{DatabaseOptions, facts_of};
use crate::engine::{DatabasePlan, OpenedEngines};
use crate::storage::StoragePlace;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_logstore::OpenSettings;
use tierstone_logstore::bare::{BareStore, forget_torn_making, open_bare};
use tierstone_logstore::check::{CheckProgress, check_bare};
use tierstone_logstore::format::superblock::{META_BYTES, served_keyspaces};
use tierstone_logstore::redo::format::is_redo_region;
use tierstone_media::probe::filesystem::FileSystem;
use tierstone_media::region::{
    FlushMethod, LINE_BYTES, Region, RegionDemand, RegionDevice, RegionReport, RegionSettings, RegionSource,
    SourceRegion,
};
use tierstone_media::{BLOCK_BYTES, BlockDevice, Geometry, Guarantee, IoCompletion, IoRequest, Wait};
use tierstone_pmstore::check::{CheckReport, CheckSettings, DamageKind, Finding};
use tierstone_pmstore::{Geometry as EngineGeometry, Keyspace};

/// What stands before the source of a region, where a directory would stand.
pub const PREFIX: &str = "nvm:";

/// Where the engine's part of the region begins, in bytes; in front of it lies the superblock.
pub const ENGINE_BASE: u64 = 256 << 10;

/// A handle on the bytes of the superblock, for one thread.
pub type NvmDevice = RegionDevice<Arc<SourceRegion>>;

/// The region of a store, opened once a process; clones share it.
#[derive(Clone, Debug)]
pub struct NvmStore {
    place: PathBuf,
    source: RegionSource,
    region: Arc<SourceRegion>,
    is_new: bool,
}

impl NvmStore {
    /// The source among `directories`, if one of them is the place of a region.
    ///
    /// # Errors
    /// `InvalidInput`: it does not stand alone, or names no region.
    pub fn among(directories: &[PathBuf]) -> Result<Option<RegionSource>> {
        let source_of =
            |path: &PathBuf| path.to_str().and_then(|text| text.strip_prefix(PREFIX)).map(str::to_owned);
        match directories.iter().find_map(source_of) {
            None => Ok(None),
            Some(source) if directories.len() == 1 => source.parse().map(Some),
            Some(source) => {
                let message =
                    format!("{PREFIX}{source} is a whole store in persistent memory, which stands alone");
                Err(Error::new(ErrorKind::InvalidInput, message))
            }
        }
    }

    /// Opens the region, or makes it.
    ///
    /// # Errors
    /// `InvalidInput`: no such place, or options that a store in persistent memory has not; `Unsupported`: it would not
    /// survive the loss of power, and that was not accepted. `Busy`: another process has it open.
    pub(crate) fn open(source: RegionSource, options: &DatabaseOptions) -> Result<NvmStore> {
        let wrong = |message: &str| Err(Error::new(ErrorKind::InvalidInput, message));
        if options.redo.as_ref().is_some_and(|redo| !redo.region.is_empty()) {
            return wrong(
                "a store that lies wholly in persistent memory has no redo log beside it; leave that out",
            );
        }
        if options.durable_method.is_some() || options.segment_bytes.is_some() {
            return wrong(
                "durable method and size of segments are of devices; leave them out in persistent memory",
            );
        }
        let is_emulated = matches!(source, RegionSource::Emulated { .. });
        if is_emulated && options.capacity_bytes.is_some() {
            return wrong("the size of an emulated region stands in its name; leave the capacity out");
        }
        refuse_small(&source, options)?;
        refuse_large(&source, options)?;
        let settings = region_settings(&source, options);
        let opened = match (options.create, options.capacity_bytes) {
            (true, Some(bytes)) => source.open_or_create(bytes, &settings),
            _ => source.open(&settings).map(|region| (region, false)),
        };
        let (region, is_new) = opened.map_err(|error| {
            let advice = match (&source, error.kind()) {
                (_, ErrorKind::Unsupported) => {
                    " (accept any guarantee, by --nvm-guarantee any, if it may be lost with the power; msync is --nvm-flush msync)"
                }
                (RegionSource::Path(path), _)
                    if options.create
                        && options.capacity_bytes.is_none()
                        && path.symlink_metadata().is_err()
                        && !path.starts_with("/dev") =>
                {
                    " (to make it, say how large: give a capacity)"
                }
                _ => "",
            };
            Error::new(error.kind(), format!("{PREFIX}{source}: {}{advice}", error.message()))
        })?;
        let place = PathBuf::from(format!("{PREFIX}{source}"));
        if !is_new && matches!(&source, RegionSource::Path(path) if path.is_file()) {
            refuse_another_size(&place, region.report().bytes, options.capacity_bytes)?;
        }
        Ok(NvmStore { place, source, region: Arc::new(region), is_new })
    }

    /// What stands where directories would.
    pub fn place(&self) -> &Path {
        &self.place
    }

    pub(crate) fn storage_place(&self) -> StoragePlace {
        let file_system = match &self.source {
            RegionSource::Emulated { .. } => "emulated memory",
            RegionSource::Path(path) => FileSystem::of(path).map_or("unknown", |system| system.name),
        };
        StoragePlace { path: self.place.clone(), file_system, guarantee: self.guarantee(), direct_io: false }
    }

    /// Where the region comes from.
    pub fn source(&self) -> &RegionSource {
        &self.source
    }

    /// What the region was found to be.
    pub fn report(&self) -> &RegionReport {
        self.region.report()
    }

    /// What an acknowledged write survives.
    pub fn guarantee(&self) -> Guarantee {
        self.region.guarantee()
    }

    pub(crate) fn region(&self) -> Arc<dyn Region + Send + Sync> {
        Arc::clone(&self.region) as Arc<dyn Region + Send + Sync>
    }

    /// A handle on the superblock.
    ///
    /// # Errors
    /// `InvalidInput`: the region is too small for one.
    pub fn device(&self) -> Result<NvmDevice> {
        RegionDevice::new(Arc::clone(&self.region), 0, self.geometry())
    }

    /// Before a store may be made: as if the making of one that power cut off had never begun.
    pub(crate) fn forget_torn_making(&self) -> Result<()> {
        forget_torn(&self.region(), &mut self.device()?)
    }

    pub(crate) fn geometry(&self) -> Geometry {
        superblock_geometry()
    }
}

/// Refuses what is to be made and can hold no store, before anything is made.
fn refuse_small(source: &RegionSource, options: &DatabaseOptions) -> Result<()> {
    let bytes = match source {
        RegionSource::Emulated { bytes, .. } => Some(*bytes),
        RegionSource::Path(path) => options.capacity_bytes.filter(|_| options.create && !path.exists()),
    };
    let shards = options.shards.max(1);
    let least = tierstone_pmstore::least_region_bytes(EngineGeometry::default(), shards, ENGINE_BASE);
    match bytes {
        Some(bytes) if bytes < least => {
            let message = format!(
                "{PREFIX}{source}: a region of {bytes} bytes is too small for a store of {shards} shards: give it {least} \
                 bytes at least, or use fewer shards"
            );
            Err(Error::new(ErrorKind::InvalidInput, message))
        }
        _ => Ok(()),
    }
}

/// Refuses a size, written out, of which no store can use all, before anything is made. Of a region that is there the store uses its
/// first part.
fn refuse_large(source: &RegionSource, options: &DatabaseOptions) -> Result<()> {
    let bytes = match source {
        RegionSource::Emulated { bytes, .. } => Some(*bytes),
        RegionSource::Path(path) => options.capacity_bytes.filter(|_| options.create && !path.is_file()),
    };
    let most = tierstone_pmstore::largest_region_bytes(ENGINE_BASE);
    match bytes {
        Some(bytes) if bytes > most => {
            let message = format!(
                "{PREFIX}{source}: {bytes} bytes are more than a store in persistent memory can use: {most} at most; several \
                 stores hold more"
            );
            Err(Error::new(ErrorKind::InvalidInput, message))
        }
        _ => Ok(()),
    }
}

/// Refuses a capacity that the file of a store does not have: it keeps the size that it was made with.
fn refuse_another_size(place: &Path, bytes: u64, capacity: Option<u64>) -> Result<()> {
    match capacity {
        Some(capacity) if capacity.next_multiple_of(LINE_BYTES) != bytes => {
            let message = format!(
                "{}: the region has {bytes} bytes, and a capacity of {capacity} is asked for: it keeps the size it was made \
                 with; leave the capacity out, or restore a backup of the store into a new region of that size",
                place.display()
            );
            Err(Error::new(ErrorKind::InvalidInput, message))
        }
        _ => Ok(()),
    }
}

/// The shape of the superblock's space: one block behind it belongs to nobody.
pub fn superblock_geometry() -> Geometry {
    Geometry { meta_bytes: META_BYTES, segment_bytes: BLOCK_BYTES as u64, segment_limit: 1 }
}

/// How a region is opened that has to be durable, unless any guarantee will do: whoever writes `emulated` knows what that is.
pub(crate) fn region_settings(source: &RegionSource, options: &DatabaseOptions) -> RegionSettings {
    let is_emulated = matches!(source, RegionSource::Emulated { .. });
    let demand =
        if options.any_guarantee || is_emulated { RegionDemand::AnyGuarantee } else { RegionDemand::Durable };
    let flush = (options.msync && !is_emulated).then_some(FlushMethod::Msync);
    RegionSettings { demand, flush, ..RegionSettings::default() }
}

/// Opens superblock and engine in the region of `store`. A file that was made for a store that cannot be is removed.
pub(crate) fn open_shards(
    store: &NvmStore,
    device: &mut dyn BlockDevice,
    settings: &OpenSettings,
    partial_keys: bool,
) -> Result<OpenedEngines> {
    let engine = EngineChoices { partial_keys, ..EngineChoices::default() };
    open_in_region(store.region(), device, settings, engine).map_err(|error| {
        if let (true, RegionSource::Path(path)) = (store.is_new, &store.source)
            && std::fs::metadata(path).is_ok_and(|found| found.is_file())
        {
            // One that cannot be removed is told of by the next opening.
            let _ = std::fs::remove_file(path);
        }
        error.context(&format!(
            "{}, of which {ENGINE_BASE} bytes are for the superblock",
            store.place.display()
        ))
    })
}

/// Makes the superblock blank again that power lost in the making of a store has torn. An engine that is there says that the
/// region is a store's; that no shard has begun a log, that none ever served.
fn forget_torn(region: &Arc<dyn Region + Send + Sync>, device: &mut dyn BlockDevice) -> Result<()> {
    match tierstone_pmstore::is_untouched(Arc::clone(region), ENGINE_BASE) {
        true => forget_torn_making(device),
        false => Ok(()),
    }
}

/// Refuses, before anything is written, a region that holds something else than a store, and a store of which superblock or
/// engine is gone: one of them alone is never what a crash in the making leaves, but for an engine to which nothing was written.
fn refuse_foreign(region: &Arc<dyn Region + Send + Sync>, device: &mut dyn BlockDevice) -> Result<()> {
    let engine = || Arc::clone(region);
    let (is_blank, is_whole) = tierstone_logstore::bare::look(device)?;
    let is_engine_blank = tierstone_pmstore::is_blank(engine(), ENGINE_BASE);
    let lost = |what: &str| {
        let message = format!(
            "{what} of the store in this region is zeros, and the rest is there: restore the region from a copy"
        );
        Err(Error::new(ErrorKind::Corrupt, message))
    };
    let foreign = |what: &str| {
        let message = format!("the region holds {what}, no store: nothing was changed; name another one");
        Err(Error::new(ErrorKind::Incompatible, message))
    };
    match (is_blank, is_engine_blank) {
        (true, false) if tierstone_pmstore::is_in_use(engine(), ENGINE_BASE) => lost("the superblock"),
        (false, true) if is_whole => lost("the engine's header"),
        (false, _) if is_redo_region(|place| region.load_word(place)) => {
            foreign("a redo log (as --nvm names it)")
        }
        (false, true) => foreign("something else"),
        _ => Ok(()),
    }
}

/// What of the engine in a region is chosen at its opening.
#[derive(Clone, Copy, Debug, Default)]
pub struct EngineChoices {
    /// How a new store divides the region.
    pub geometry: EngineGeometry,
    /// Ordered indexes hold a part of each key ([`DatabaseOptions::nvm_partial_keys`]).
    pub partial_keys: bool,
}

/// Opens superblock and engine in `region`, or makes them. For drivers that bring
/// a region of their own: the simulation of whole nodes. `device` is a handle on the region's start, of
/// [`superblock_geometry`].
///
/// # Errors
/// As [`open_bare`] and [`tierstone_pmstore::open`].
pub fn open_in_region(
    region: Arc<dyn Region + Send + Sync>,
    device: &mut dyn BlockDevice,
    settings: &OpenSettings,
    choices: EngineChoices,
) -> Result<OpenedEngines> {
    let mut inner = tierstone_pmstore::OpenSettings {
        base: ENGINE_BASE,
        shard_count: settings.shard_count,
        seed: settings.seed,
        first_seq: settings.first_seq,
        create: settings.create,
        loss_accepted: settings.redo_loss_accepted,
        geometry: choices.geometry,
        mutations: settings.mutations.clone(),
        shard: tierstone_pmstore::ShardSettings {
            durability: settings.shard.durability,
            memory_bytes: settings.shard.memory_bytes,
            partial_keys: choices.partial_keys,
            snapshot_table_bytes_max: settings.shard.snapshot_table_bytes_max,
            snapshot_pinned_fraction_max: settings.shard.snapshot_pinned_fraction_max,
            ..Default::default()
        },
        ..Default::default()
    };
    refuse_foreign(&region, device)?;
    // Before the superblock says that the store is open.
    if let Ok(made_with) = tierstone_pmstore::shard_count(Arc::clone(&region), ENGINE_BASE) {
        tierstone_pmstore::refuse_other_shards(made_with, settings.shard_count)?;
    }
    if settings.create {
        if !settings.mutations.is_on("torn_making_kept") {
            forget_torn(&region, device)?;
        }
        // crash here [region-without-superblock]: the region is taken for a new one, the engine's part is found empty
        tierstone_pmstore::open(Arc::clone(&region), &inner)?;
    }
    let BareStore { superblock, mut report } = open_bare(device, settings)?;
    let served = served_keyspaces(&superblock.superblock.keyspaces);
    inner.create = false;
    inner.progress = settings.progress.clone();
    inner.keyspaces = served.iter().map(|entry| Keyspace { id: entry.id, index: entry.index }).collect();
    inner.past_ms = superblock.superblock.past_ms;
    let opened = tierstone_pmstore::open(region, &inner)?;
    report.segments = opened.report.segments;
    report.dropped_records = opened.report.dropped_parts;
    report.damaged_segments = opened.report.damaged_segments;
    let (hasher, shards) = (opened.hasher, settings.shard_count);
    let plans =
        opened.plans.into_iter().map(|plan| DatabasePlan::Memory(Box::new(plan), shards, hasher)).collect();
    let value_bytes_max = Some(opened.value_bytes_max);
    Ok(OpenedEngines { superblock, plans, report, hasher, value_bytes_max, inventory: None })
}

/// Checks superblock and engine of a store that nobody has open. Nothing is written.
pub(crate) fn check(
    store: &NvmStore,
    memory_bytes: u64,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    refuse_foreign(&store.region(), &mut store.device()?)?;
    let (superblock, findings) = check_bare(&mut store.device()?)?;
    let served = served_keyspaces(&superblock.keyspaces);
    let settings = CheckSettings {
        base: ENGINE_BASE,
        keyspaces: Some(served.iter().map(|entry| entry.id.0).collect()),
        memory_bytes,
        ..CheckSettings::default()
    };
    let mut show = |at: tierstone_pmstore::check::CheckProgress| {
        progress(CheckProgress { bytes: at.bytes, bytes_total: at.bytes_total });
    };
    let mut report = tierstone_pmstore::check::check(store.region(), &settings, &mut show)?;
    report.clean = superblock.clean;
    for finding in findings {
        report.note(Finding::new(DamageKind::Header, 0, finding.detail));
    }
    if let Err(error) = facts_of(&superblock.facts).and_then(|facts| facts.check_restored()) {
        report.note(Finding::new(DamageKind::Header, 0, error.message().to_owned()));
    }
    Ok(report)
}

/// Does one request.
pub(crate) fn carry_out(device: &mut NvmDevice, request: IoRequest) -> IoCompletion {
    let (mut requests, mut completions) = (vec![request], Vec::with_capacity(1));
    device.submit(&mut requests);
    device.complete(Wait::All, &mut completions);
    completions.remove(0)
}

#[cfg(test)]
#[path = "nvm_test.rs"]
mod nvm_test;
