//! Where a database lies: its storage, opened or made, and what a new one is made with.

use super::{DatabaseFacts, DatabaseOptions};
use crate::nvm::NvmStore;
use crate::storage::Storage;
use crate::volume::Description;
use rustix::fs::statvfs;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tierstone_base::units::format_size;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_logstore::format::superblock::META_BYTES;
use tierstone_logstore::location::{SEGMENT_BYTES_MAX, SEGMENT_COUNT_MAX};
use tierstone_logstore::settings::segment_bytes_for;
use tierstone_media::file::{
    DurableMethod, FileBackend, FileStore, FileStoreSettings, FoundStore, find_store,
};
use tierstone_media::probe::durable_method;
use tierstone_store::DatabaseMap;

/// Opens the region, the volume, or the files.
pub(super) fn open_storage(options: &DatabaseOptions) -> Result<Storage> {
    if let Some(source) = NvmStore::among(&options.directories)? {
        return NvmStore::open(source, options).map(Storage::Nvm);
    }
    match Description::among(&options.directories)? {
        None => open_files(options).map(Storage::Files),
        Some(description) => open_volume(options, description),
    }
}

/// Opens a volume, which has its space, its segments and its way of durable writes from the beginning.
fn open_volume(options: &DatabaseOptions, description: &Path) -> Result<Storage> {
    let wrong = |what: &str| {
        let message = format!("{}: {what}", description.display());
        Err(Error::new(ErrorKind::InvalidInput, message))
    };
    if options.capacity_bytes.is_some() {
        return wrong("the capacity of a volume is what its members hold; leave capacity out");
    }
    if options.backend == FileBackend::IoUring {
        return wrong("members of volumes are driven by threads; leave the back-end out");
    }
    if options.durable_method == Some(DurableMethod::WriteThenFlush) {
        return wrong("members of volumes are written by durable writes; leave the durable method out");
    }
    let storage = Storage::open_volume(description, options.direct_io)?;
    let has = storage.geometry().segment_bytes;
    match options.segment_bytes {
        Some(wanted) if wanted > has => {
            wrong(&format!("the volume was made for segments of {has} bytes, {wanted} are wanted"))
        }
        _ => Ok(storage),
    }
}

/// Opens the files twice at most: how many segments there may be depends on what is there.
pub(super) fn open_files(options: &DatabaseOptions) -> Result<FileStore> {
    // Before anything is made. A store whose making was cut off has its size of segments, too, and is judged by the second look.
    let segment_bytes = new_segment_bytes(options)?;
    let kept = find_store(&options.directories)?.map(|found| found.segment_bytes);
    refuse_capacity(options, kept.unwrap_or(segment_bytes))?;
    let widest = FileStoreSettings {
        segment_bytes,
        segment_limit: SEGMENT_COUNT_MAX,
        meta_bytes: META_BYTES,
        backend: options.backend,
        direct_io: options.direct_io,
        create: options.create,
        ..FileStoreSettings::new(options.directories.clone())
    };
    let files = FileStore::open(&widest)?;
    let segment_limit = segment_limit(options, &files)?;
    if segment_limit == SEGMENT_COUNT_MAX {
        return Ok(files);
    }
    drop(files);
    FileStore::open(&FileStoreSettings { segment_limit, ..widest })
}

/// The size of segments of a store that is made now. One that is there keeps its own.
fn new_segment_bytes(options: &DatabaseOptions) -> Result<u64> {
    if let Some(bytes) = options.segment_bytes {
        return Ok(bytes);
    }
    let capacity = match options.capacity_bytes {
        Some(bytes) => bytes,
        None => {
            let mut of_disk = BTreeMap::new();
            for directory in &options.directories {
                let there = directory.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
                let (disk, space) = (std::fs::metadata(there).map_err(Error::from)?.dev(), statvfs(there));
                let space = space.map_err(|error| Error::from(std::io::Error::from(error)))?;
                of_disk.insert(disk, space.f_bavail.saturating_mul(space.f_frsize));
            }
            of_disk.into_values().fold(0, u64::saturating_add)
        }
    };
    Ok(segment_bytes_for(capacity, options.shards))
}

/// How many segments the store may have.
fn segment_limit(options: &DatabaseOptions, files: &FileStore) -> Result<u32> {
    let segment_bytes = files.geometry().segment_bytes;
    refuse_capacity(options, segment_bytes)?;
    let existing = files.existing_segments();
    let needed = existing.last().map_or(0, |highest| u64::from(*highest) + 1);
    let wanted = match options.capacity_bytes {
        Some(bytes) => bytes / segment_bytes,
        None => {
            let free = disks_free_bytes(files)?;
            // A full disk hurts others than the store.
            needed.max(existing.len() as u64 + (free - free / 20) / segment_bytes)
        }
    };
    let limit = wanted.clamp(u64::from(segments_min(options)), u64::from(SEGMENT_COUNT_MAX));
    if limit < needed {
        let message = format!(
            "a capacity of {limit} segments of {segment_bytes} bytes is too small: the store has segments up to \
             number {}, which need {} bytes",
            needed - 1,
            needed * segment_bytes
        );
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    Ok(limit as u32)
}

/// What to say of a capacity that no store with such segments has.
fn too_large(capacity_bytes: u64, segment_bytes: u64) -> String {
    let more = match segment_bytes {
        SEGMENT_BYTES_MAX => "several stores hold more",
        _ => "larger segments of a new store allow more",
    };
    format!(
        "a capacity of {} is too large: a store has at most {SEGMENT_COUNT_MAX} segments, of {} here, which is {}; {more}",
        format_size(capacity_bytes),
        format_size(segment_bytes),
        format_size(u64::from(SEGMENT_COUNT_MAX) * segment_bytes)
    )
}

/// Refuses a capacity with which a shard could not clean, and one that has more segments than a store can name.
fn refuse_capacity(options: &DatabaseOptions, segment_bytes: u64) -> Result<()> {
    let least = u64::from(segments_min(options)) * segment_bytes;
    match options.capacity_bytes {
        Some(bytes) if bytes < least => {
            let message = format!(
                "a capacity of {bytes} bytes is too small: {} shards with segments of {} need {} at least; fewer shards need \
                 less, and so do smaller segments of a new store",
                options.shards,
                format_size(segment_bytes),
                format_size(least)
            );
            Err(Error::new(ErrorKind::InvalidInput, message))
        }
        Some(bytes) if bytes / segment_bytes > u64::from(SEGMENT_COUNT_MAX) => {
            Err(Error::new(ErrorKind::InvalidInput, too_large(bytes, segment_bytes)))
        }
        _ => Ok(()),
    }
}

/// What directories say of the store in them, before it is opened, and which of them would be added to it for good. `None`: there
/// is none yet, or it is a volume or lies in persistent memory. Cost: one small file a directory is read.
///
/// # Errors
/// As [`find_store`].
pub fn find_files(directories: &[PathBuf]) -> Result<Option<FoundStore>> {
    if NvmStore::among(directories)?.is_some() || Description::among(directories)?.is_some() {
        return Ok(None);
    }
    find_store(directories)
}

/// What the store's disks have free, in bytes; directories on one disk count once.
fn disks_free_bytes(files: &FileStore) -> Result<u64> {
    let mut of_disk: BTreeMap<u64, u64> = BTreeMap::new();
    for member in files.properties().members {
        let disk = std::fs::metadata(&member.directory).map_err(Error::from)?.dev();
        of_disk.insert(disk, member.free_bytes);
    }
    Ok(of_disk.values().fold(0, |sum, free| sum.saturating_add(*free)))
}

/// Below this many segments a shard could not clean.
pub(super) fn segments_min(options: &DatabaseOptions) -> u32 {
    u32::from(options.shards).saturating_mul(options.shard.reserved_segments.saturating_add(4))
}

/// The facts of a store that has to be made; `None` when there is one or none may be made.
pub(super) fn new_facts(options: &DatabaseOptions, storage: &Storage) -> Result<Option<DatabaseFacts>> {
    let has_segments = storage.existing_segments().is_some_and(|segments| !segments.is_empty());
    if let (true, Storage::Nvm(region)) = (options.create, storage) {
        region.forget_torn_making()?;
    }
    if !options.create || has_segments || has_superblock(storage)? {
        return Ok(None);
    }
    let directory = &options.directories[0];
    let probe = match options.durable_method {
        None if matches!(storage, Storage::Files(_)) => Some(durable_method(directory)?),
        _ => None,
    };
    let method = options.durable_method.or(probe.as_ref().map(|probe| probe.method)).unwrap_or_default();
    Ok(Some(DatabaseFacts {
        map: DatabaseMap::new(options.databases),
        index: options.index.unwrap_or_default(),
        durable_method: method,
        probe,
        is_being_restored: false,
    }))
}

fn has_superblock(storage: &Storage) -> Result<bool> {
    use tierstone_media::{BLOCK_BYTES, BlockDevice, IoBuffer, IoRequest, Wait};
    let mut device = storage.device(DurableMethod::WriteThenFlush)?;
    let slot = META_BYTES / 2;
    let mut requests = vec![
        IoRequest::read(0, 0, IoBuffer::zeroed(BLOCK_BYTES)),
        IoRequest::read(1, slot, IoBuffer::zeroed(BLOCK_BYTES)),
    ];
    let mut completions = Vec::new();
    device.submit(&mut requests);
    device.complete(Wait::All, &mut completions);
    let mut found = false;
    for completion in completions {
        completion.result?;
        found |= completion.buffer.is_some_and(|buffer| buffer.iter().any(|&byte| byte != 0));
    }
    Ok(found)
}
