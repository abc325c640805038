//! Opening a database: directories, superblock, plans for its shards.
//!
//! [`Database::open`] does what must be done once, before anything is served: it takes the
//! directories, reads (or makes) the superblock, ends the logs of the last opening. The shards are
//! then built by whoever drives them, each on its own thread with its own device handle
//! ([`Database::device`], [`DatabasePlan::build`]).
//!
//! What a crash leaves: see [`mod@tierstone_logstore::open`]. The map of the numbered databases and of
//! keyspaces with names lies in the superblock; its write commits a change ([`Database::change_map`]).

mod place;

pub use self::place::find_files;
use self::place::{new_facts, open_storage, segments_min};
use crate::engine::DatabasePlan;
use crate::nvm;
use crate::redo::{self, RedoOptions, RedoReport};
use crate::storage::{Storage, StorageDevice};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tierstone_base::{Error, ErrorKind, KeyHasher, Result, SeededRandom, Seq};
use tierstone_engine::OpeningProgress;
use tierstone_logstore::format::superblock::{IndexKind, KeyspaceEntry};
use tierstone_logstore::location::{SEGMENT_BYTES_MAX, SEGMENT_COUNT_MAX};
use tierstone_logstore::{Inventory, OpenReport, OpenSettings, ShardSettings, SuperblockWriter};
use tierstone_media::Guarantee;
use tierstone_media::file::{DirectIo, DurableMethod, FileBackend};
use tierstone_media::probe::ProbeReport;
use tierstone_media::region::FlushMethod;
use tierstone_store::DatabaseMap;

/// How a database is opened. Plain data; every field has a default that serves.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DatabaseOptions {
    /// One or several directories, at best one a disk; or the description of a volume, a file that ends in `.toml`
    /// ([`crate::volume`]); or `nvm:` and the source of a region, for a store that lies wholly in persistent memory
    /// ([`crate::nvm`]). Default: `tierstone-data`.
    pub directories: Vec<PathBuf>,
    /// Shards: at best one a core that the store may use. Any number opens any store on files or a volume; one that
    /// lies wholly in persistent memory keeps the number that it was made with. Default 1.
    pub shards: u16,
    /// Memory for indexes and record caches of all shards, in bytes. Default 256 MiB.
    pub memory_bytes: u64,
    /// The most that segment files may take, in bytes; rounded down to whole segments. Default: what
    /// the store takes already and what its disks have free, less 5 % of that, at most 122,880 segments
    /// (3.75 TiB of the largest; a capacity that needs more is refused); worked out anew at each opening. Of a store in persistent memory: the size of its region, where a
    /// file has to be made.
    pub capacity_bytes: Option<u64>,
    /// Size of a segment in bytes, for a new store: 128 KiB to 32 MiB. Default: by the capacity, 1 to 32 MiB,
    /// so that each shard has 64 segments ([`tierstone_logstore::settings::segment_bytes_for`]). The longest value takes a
    /// quarter of a segment ([`Database::value_bytes_max`]). A store keeps the size that it was made with. A volume has its own, and is refused
    /// when that is smaller.
    pub segment_bytes: Option<u64>,
    /// Numbered databases of a new store. Default 16.
    pub databases: u32,
    /// How the numbered databases of a store find their keys. `Hash` takes least memory a key (about 9
    /// bytes); `Ordered` keeps the keys in memory besides, in order, so that ranges can be walked.
    /// `None`: what the store has, hash for a new one. A store keeps the kind that it was made with:
    /// another one is refused. Default `None`.
    pub index: Option<IndexKind>,
    /// Which back-end drives the files.
    pub backend: FileBackend,
    /// Whether files bypass the page cache.
    pub direct_io: DirectIo,
    /// How writes are made durable. `None`: what the store has; for a new one, what probing finds best. A
    /// store keeps the method that it was made with: another one is refused. Default `None`.
    pub durable_method: Option<DurableMethod>,
    /// Make a store if there is none. Default: yes.
    pub create: bool,
    /// Count the processor time of the engine, for [`tierstone_engine::EngineStatistics`]. Cost: some 25 ns a reading of the clock,
    /// two for a write or a call that reads from the device, four for a step. Default: no.
    pub measure_cpu: bool,
    /// Bytes a second that are read in search of rot, by all shards together; 0: none, the default. A
    /// [`crate::SharedStore`] reads whenever it is due; a [`crate::Store`], which has no thread, while it is called.
    /// What was found is in the statistics ([`tierstone_engine::EngineStatistics::scrub`]). 4 MiB/s is a pass over 8 TB
    /// in three weeks. A server goes by its own setting instead.
    pub scrub_bytes_per_second: u64,
    /// Open a store of files or a volume although segments are missing or damaged: of keys whose newest version lay there
    /// older ones are served, or none. Default: no, it is refused.
    pub disk_loss_accepted: bool,
    /// A redo log in persistent memory, so that writes need not wait for the device. `None`: there is none; a store
    /// that was not closed in good order is then refused if it had one. Default `None`.
    pub redo: Option<RedoOptions>,
    /// Take a region of persistent memory that would not survive the loss of power, such as a file that does not lie on
    /// DAX: for the redo log, or for a store that lies wholly in one. Default: no, it is refused.
    pub any_guarantee: bool,
    /// Make regions of persistent memory durable by `msync`: for files that do not lie on DAX, which then survive what
    /// their file system survives. Cost: a system call, and what the device takes, where else there is a fence. Default: no.
    pub msync: bool,
    /// Of a store that lies wholly in persistent memory: ordered indexes hold eight bytes of each key in memory, behind what
    /// neighbours share, and read the rest in place. Less memory, more so for long keys; some more reads of persistent memory.
    /// May change from one opening to the next. Default: no, whole keys.
    pub nvm_partial_keys: bool,
    /// Everything else about a shard; its memory is set from `memory_bytes`.
    #[serde(skip)]
    pub shard: ShardSettings,
    /// Tells any thread that keeps a clone of it how far an opening by these options has come. No setting.
    #[serde(skip)]
    pub progress: OpeningProgress,
}

impl DatabaseOptions {
    /// The defaults, in one directory.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        DatabaseOptions { directories: vec![directory.into()], ..Self::default() }
    }
}

impl DatabaseOptions {
    /// Bytes a second that each shard reads in search of rot.
    pub(crate) fn scrub_rate(&self) -> u64 {
        self.scrub_bytes_per_second.div_ceil(u64::from(self.shards.max(1)))
    }
}

impl Default for DatabaseOptions {
    fn default() -> Self {
        DatabaseOptions {
            directories: vec![PathBuf::from("tierstone-data")],
            shards: 1,
            memory_bytes: 256 << 20,
            capacity_bytes: None,
            segment_bytes: None,
            databases: 16,
            index: None,
            backend: FileBackend::Auto,
            direct_io: DirectIo::Auto,
            durable_method: None,
            create: true,
            measure_cpu: false,
            scrub_bytes_per_second: 0,
            disk_loss_accepted: false,
            redo: None,
            any_guarantee: false,
            msync: false,
            nvm_partial_keys: false,
            shard: ShardSettings::default(),
            progress: OpeningProgress::default(),
        }
    }
}

/// How often the superblock is to list the segments in use ([`Database::note_segments`]).
pub const NOTED_EVERY: Duration = Duration::from_secs(30);

/// What the superblock keeps for this layer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DatabaseFacts {
    /// The numbered databases.
    pub map: DatabaseMap,
    /// How keyspaces find their keys.
    pub index: IndexKind,
    /// How writes are made durable.
    pub durable_method: DurableMethod,
    /// What probing found when the store was made; `None` when the method was given.
    pub probe: Option<ProbeReport>,
    /// It is being made of a backup or of what a repair saves, and not all of that is there: nothing opens the store.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_being_restored: bool,
}

/// An opened database whose shards have not been built.
#[derive(Debug)]
pub struct Database {
    storage: Storage,
    superblock: SuperblockWriter,
    device: StorageDevice,
    plans: Vec<DatabasePlan>,
    report: OpenReport,
    hasher: KeyHasher,
    value_bytes_max: u64,
    facts: DatabaseFacts,
    redo: Option<RedoReport>,
    inventory: Option<Arc<Inventory>>,
}

/// Reads the facts of a superblock.
pub(crate) fn facts_of(bytes: &[u8]) -> Result<DatabaseFacts> {
    serde_json::from_slice(bytes).map_err(|error| {
        Error::new(ErrorKind::Corrupt, format!("the superblock's facts are not readable: {error}"))
    })
}

impl DatabaseFacts {
    /// Whether everything is there that the store was made of: a backup, or what a repair has saved.
    pub(crate) fn check_restored(&self) -> Result<()> {
        if !self.is_being_restored {
            return Ok(());
        }
        let message = "the making of this store, by a restore or a repair, was broken off: it lacks keys; remove it, and \
                       restore the backup, or repair the damaged store, into an empty directory";
        Err(Error::new(ErrorKind::Corrupt, message))
    }
}

impl Database {
    /// Opens the database in `options.directories`, or makes it. Cost: two block reads a segment and
    /// the walk of those that were open at a crash; a new store is probed for about a second.
    ///
    /// # Errors
    /// `Busy`: another process has it open. `InvalidInput`: wrong options, or no store. `Corrupt`,
    /// `Incompatible`: see [`mod@tierstone_logstore::open`].
    pub fn open(options: &DatabaseOptions) -> Result<Database> {
        check(options)?;
        let storage = open_storage(options)?;
        let facts = new_facts(options, &storage)?;
        if facts.is_none() {
            refuse_other_choices(options, &storage)?;
        }
        Self::open_in(options, storage, facts, (0, 0))
    }

    /// Makes a database with the keyspaces of another, whose sequences begin above `first_seq` and whose
    /// expiry goes by no earlier time than `past_ms`.
    ///
    /// # Errors
    /// `InvalidInput`: there is a store already. Others: as [`Database::open`].
    pub(crate) fn create_like(
        options: &DatabaseOptions,
        facts: DatabaseFacts,
        (first_seq, past_ms): (Seq, u64),
    ) -> Result<Database> {
        check(options)?;
        let storage = open_storage(options)?;
        let Some(own) = new_facts(options, &storage)? else {
            return Err(Error::new(ErrorKind::InvalidInput, "there is a store in the target already"));
        };
        // What was probed belongs to the device, not to the data.
        let facts = DatabaseFacts { durable_method: own.durable_method, probe: own.probe, ..facts };
        Self::open_in(options, storage, Some(facts), (first_seq, past_ms))
    }

    /// `facts`: of the store to be made; `None`: there is one.
    fn open_in(
        options: &DatabaseOptions,
        storage: Storage,
        facts: Option<DatabaseFacts>,
        (first_seq, past_ms): (Seq, u64),
    ) -> Result<Database> {
        options.progress.begin();
        // Write and flush works everywhere; the shards' own handles use what the superblock says.
        let mut device = storage.device(DurableMethod::WriteThenFlush)?;
        let encoded = match &facts {
            Some(facts) => encode(facts)?,
            None => Vec::new(),
        };
        let keyspaces = facts.as_ref().map(keyspace_entries).unwrap_or_default();
        let (redo, region) =
            options.redo.as_ref().map_or(Ok(None), |redo| redo::open(redo, options))?.unzip();
        let settings = OpenSettings {
            redo,
            loss_accepted: options.disk_loss_accepted,
            redo_loss_accepted: options.redo.as_ref().is_some_and(|redo| redo.loss_accepted),
            shard_count: options.shards.max(1),
            shard: ShardSettings {
                memory_bytes: options.memory_bytes / u64::from(options.shards.max(1)),
                ..options.shard.clone()
            },
            create: facts.is_some(),
            keyspaces,
            facts: encoded,
            existing_segments: storage.existing_segments(),
            first_seq,
            past_ms,
            seed: SeededRandom::system_seed()?,
            progress: options.progress.clone(),
            ..OpenSettings::default()
        };
        let opened = match &storage {
            Storage::Nvm(region) => {
                nvm::open_shards(region, &mut device, &settings, options.nvm_partial_keys)?
            }
            Storage::Files(_) | Storage::Volume(_) => {
                tierstone_logstore::open(&mut device, &settings)?.into()
            }
        };
        let value_bytes_max = opened.value_bytes_max.unwrap_or_else(|| storage.value_bytes_max());
        let is_new = facts.is_some();
        let facts: DatabaseFacts = facts_of(&opened.superblock.superblock.facts)?;
        if !is_new {
            facts.check_restored()?;
        }
        check_index(options, &facts)?;
        check_method(options, &facts)?;
        Ok(Database {
            storage,
            superblock: opened.superblock,
            inventory: opened.inventory,
            device,
            plans: opened.plans,
            redo: redo::report(options.redo.as_ref(), region, &opened.report),
            report: opened.report,
            hasher: opened.hasher,
            value_bytes_max,
            facts,
        })
    }

    /// The plans of the shards, in their order; once.
    pub fn take_plans(&mut self) -> Vec<DatabasePlan> {
        let mut plans = std::mem::take(&mut self.plans);
        if self.facts.durable_method == DurableMethod::WriteThenFlush {
            plans.iter_mut().for_each(DatabasePlan::durable_writes_flush);
        }
        plans
    }

    /// A device handle for one shard's thread.
    ///
    /// # Errors
    /// When the handle cannot be made.
    pub fn device(&self) -> Result<StorageDevice> {
        self.storage.device(self.facts.durable_method)
    }

    /// What it lies on, for drivers that make handles of their own kind.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The name of the way that makes writes durable: the method of the files, or a fence in persistent memory, or `msync`.
    pub fn durable_method(&self) -> &'static str {
        match self.storage.nvm().map(|region| region.report().flush) {
            None => self.facts.durable_method.name(),
            Some(FlushMethod::Msync) => FlushMethod::Msync.name(),
            Some(_) => "fence",
        }
    }

    /// The redo log in persistent memory, if one was asked for.
    pub fn redo(&self) -> Option<&RedoReport> {
        self.redo.as_ref()
    }

    /// What an acknowledged write survives: the least of what files and redo log give.
    pub fn guarantee(&self) -> Guarantee {
        let files = self.storage.guarantee();
        self.redo.as_ref().and_then(RedoReport::guarantee).map_or(files, |redo| redo.min(files))
    }

    /// What opening found.
    pub fn report(&self) -> &OpenReport {
        &self.report
    }

    /// Gives keys their positions.
    pub fn hasher(&self) -> KeyHasher {
        self.hasher
    }

    /// The longest value, in bytes, beside a key of up to 1 KiB; a longer one takes of it. On devices it is a quarter of a segment
    /// less some 6 KiB: 250 KiB in a store of 128 MiB, 4,090 KiB in one of 2 GiB, 8,186 KiB from 4 GiB on, by the default for one or
    /// two shards. In persistent memory it is 8 MiB less 5 KiB, but in small regions.
    pub fn value_bytes_max(&self) -> u64 {
        self.value_bytes_max
    }

    /// What the superblock says of databases and durability.
    pub fn facts(&self) -> &DatabaseFacts {
        &self.facts
    }

    /// Makes `map` the durable map of numbered databases and names; it counts when this returns. Cost: two
    /// durable writes.
    ///
    /// # Errors
    /// `InvalidInput`: there is no room for more keyspaces or longer names, and nothing has changed. When the device fails: the
    /// old map or the new one is found at the next opening.
    pub fn change_map(&mut self, map: DatabaseMap) -> Result<()> {
        let facts = DatabaseFacts { map, ..self.facts.clone() };
        let mut superblock = self.superblock.superblock.clone();
        superblock.keyspaces = keyspace_entries(&facts);
        let used = superblock.keyspaces.iter().map(|keyspace| keyspace.id.0.saturating_add(1));
        superblock.next_keyspace = used.max().unwrap_or(0).max(superblock.next_keyspace);
        superblock.facts = encode(&facts)?;
        let old = &self.superblock.superblock;
        if superblock.keyspaces.len() > old.keyspaces.len() || superblock.facts.len() > old.facts.len() {
            superblock.check_room()?;
        }
        self.superblock.write_both(&mut self.device, superblock)?;
        self.facts = facts;
        Ok(())
    }

    /// Everything that it is made of is there, durably: the store may be opened from now on. Cost: two durable writes.
    ///
    /// # Errors
    /// When the device fails; the next opening then refuses the store, or finds it whole.
    pub(crate) fn end_restore(&mut self) -> Result<()> {
        self.facts.is_being_restored = false;
        let mut superblock = self.superblock.superblock.clone();
        superblock.facts = encode(&self.facts)?;
        self.superblock.write_both(&mut self.device, superblock)
    }

    /// Lists the segments in use in the superblock, if that has changed: so that one that goes missing is missed, and the space
    /// of others can be given back. To be called every [`NOTED_EVERY`]. Cost: two durable writes, or none.
    ///
    /// # Errors
    /// When the device fails.
    pub fn note_segments(&mut self) -> Result<()> {
        match &self.inventory {
            Some(inventory) => self.superblock.note_segments(&mut self.device, inventory),
            None => Ok(()),
        }
    }

    /// Notes that every shard was shut in good order. Cost: one durable write.
    ///
    /// # Errors
    /// When the device fails; the next opening then finds a store that was not closed.
    pub fn close(mut self) -> Result<()> {
        self.superblock.close(&mut self.device, self.inventory.as_deref())
    }
}

fn check(options: &DatabaseOptions) -> Result<()> {
    let wrong = |message: String| Err(Error::new(ErrorKind::InvalidInput, message));
    if options.directories.is_empty() {
        return wrong("no directory is given".into());
    }
    if options.shards == 0 || options.shards > 1024 {
        return wrong(format!("{} shards: 1 to 1024 are possible", options.shards));
    }
    if options.databases == 0 || options.databases > 1024 {
        return wrong(format!("{} databases: 1 to 1024 are possible", options.databases));
    }
    let sizes = 128 << 10..=SEGMENT_BYTES_MAX;
    if let Some(bytes) = options.segment_bytes.filter(|bytes| !sizes.contains(bytes)) {
        return wrong(format!(
            "segments of {bytes} bytes: {} to {} are possible",
            sizes.start(),
            sizes.end()
        ));
    }
    if segments_min(options) > SEGMENT_COUNT_MAX {
        return wrong(format!(
            "{} shards that keep {} segments each for themselves: a store has {SEGMENT_COUNT_MAX} at most",
            options.shards, options.shard.reserved_segments
        ));
    }
    if options.memory_bytes < (1 << 20) * u64::from(options.shards) {
        return wrong(format!("{} bytes of memory: at least 1 MiB a shard is needed", options.memory_bytes));
    }
    if options.nvm_partial_keys && nvm::NvmStore::among(&options.directories)?.is_none() {
        return wrong(
            "partial keys are of stores wholly in persistent memory (nvm:PATH); leave them out".into(),
        );
    }
    Ok(())
}

/// A store keeps its kind of index.
fn check_index(options: &DatabaseOptions, facts: &DatabaseFacts) -> Result<()> {
    match options.index {
        Some(wanted) if wanted != facts.index => {
            let (wanted, kept) = (wanted.name(), facts.index.name());
            let message = format!(
                "the {wanted} index was asked for, but the store was made with the {kept} index and keeps it: ask \
                 for {kept}, or make a new store"
            );
            Err(Error::new(ErrorKind::InvalidInput, message))
        }
        _ => Ok(()),
    }
}

/// A store keeps its way of making writes durable: what recovery may expect of a crash hangs on it.
fn check_method(options: &DatabaseOptions, facts: &DatabaseFacts) -> Result<()> {
    match options.durable_method {
        Some(wanted) if wanted != facts.durable_method => {
            let (wanted, kept) = (wanted.name(), facts.durable_method.name());
            let message = format!(
                "the durable method {wanted} was asked for, but the store was made with {kept} and keeps it: ask \
                 for {kept}, or make a new store"
            );
            Err(Error::new(ErrorKind::InvalidInput, message))
        }
        _ => Ok(()),
    }
}

/// Refuses what a store was made without before it is opened: one that was closed in good order stays so. What is wrong
/// with the store itself is told by its opening.
fn refuse_other_choices(options: &DatabaseOptions, storage: &Storage) -> Result<()> {
    if options.index.is_none() && options.durable_method.is_none() {
        return Ok(());
    }
    let mut device = storage.device(DurableMethod::WriteThenFlush)?;
    let found = tierstone_logstore::check::check_bare(&mut device).ok();
    match found.and_then(|(superblock, _)| facts_of(&superblock.facts).ok()) {
        Some(facts) => check_index(options, &facts).and_then(|()| check_method(options, &facts)),
        None => Ok(()),
    }
}

fn encode(facts: &DatabaseFacts) -> Result<Vec<u8>> {
    serde_json::to_vec(facts)
        .map_err(|error| Error::new(ErrorKind::InvalidInput, format!("the facts cannot be written: {error}")))
}

/// The superblock's table: numbered databases with their numbers as names, then those with names.
fn keyspace_entries(facts: &DatabaseFacts) -> Vec<KeyspaceEntry> {
    let numbered = facts.map.keyspaces().iter().enumerate().map(|(number, &id)| KeyspaceEntry {
        id,
        name: number.to_string(),
        index: facts.index,
    });
    let named = facts.map.names().map(|(name, named)| KeyspaceEntry {
        id: named.id,
        name: name.to_owned(),
        index: named.index,
    });
    numbered.chain(named).collect()
}

#[cfg(test)]
#[path = "database_test.rs"]
mod database_test;
