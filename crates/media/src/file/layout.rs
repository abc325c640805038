//! The store of files that all handles of a process share: directories, lock, open files.
//!
//! Invariants:
//! 1. One process at a time: the first directory's `lock` file is held for as long as the store or
//!    any of its handles lives.
//! 2. A segment's file exists in exactly one directory, with exactly `segment_bytes` bytes, and its
//!    name is durable before the first request reaches it.
//! 3. What was removed in one directory is made in another only when the first has been flushed, so that no start after
//!    a crash finds it in both. In the same one the new name takes the place of the old one.
//! 4. Files found at open count as dirty once they are opened: what an earlier process wrote and did
//!    not flush is flushed by the first flush, before anything that was read from it is relied upon.
//!
//! Crash: see `member` for files and `marker` for directories.

use super::housekeeper::{Housekeeper, Job};
use super::marker::at;
use super::member::{Member, NotMade};
use super::open::{self, Opened};
use super::plan::Place;
use super::segment::{Durability, SegmentFile, lock};
use super::settings::{DurableMethod, FileBackend, FileStoreSettings};
use super::{FileDevice, ThreadDevice, UringDevice};
use crate::lock::LockedFile;
use crate::{DeviceError, DeviceErrorKind, Geometry, Guarantee};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tierstone_base::{ErrorKind, Result};

/// A store of files, opened once a process; clones share it.
#[derive(Clone, Debug)]
pub struct FileStore {
    pub(crate) inner: Arc<StoreInner>,
}

/// What a store turned out to be once opened: for `doctor` and `INFO`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStoreProperties {
    /// Drawn at random when the store was created.
    pub store: u64,
    /// What its durable writes survive.
    pub guarantee: Guarantee,
    /// Its directories, the first one first.
    pub members: Vec<MemberProperties>,
}

/// One directory of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberProperties {
    /// Where it is.
    pub directory: PathBuf,
    /// Its file system's name.
    pub file_system: &'static str,
    /// What durable writes to its files survive.
    pub guarantee: Guarantee,
    /// Whether its files bypass the page cache.
    pub direct_io: bool,
    /// Bytes that it can still take.
    pub free_bytes: u64,
    /// How many segments lie in it.
    pub segments: u32,
}

/// Inside of a store, shared by handles, threads and the housekeeper.
#[derive(Debug)]
pub(crate) struct StoreInner {
    pub geometry: Geometry,
    pub durability: Durability,
    store: u64,
    backend: FileBackend,
    queue_depth: u32,
    capacity_bytes: u64,
    members: Vec<Member>,
    meta: Arc<SegmentFile>,
    table: Mutex<BTreeMap<u32, Entry>>,
    /// Held while a segment is made or removed, so that two handles never make the same one. The segments that were removed
    /// from a directory which has not been flushed since: which member it is.
    creation: Mutex<BTreeMap<u32, u16>>,
    housekeeper: Housekeeper,
    /// Last, so that it is released after all files are closed.
    _lock: LockedFile,
}

#[derive(Debug)]
struct Entry {
    member: u16,
    open: Option<Arc<SegmentFile>>,
}

impl FileStore {
    /// Opens the store in `settings.directories`, or creates it.
    ///
    /// # Errors
    /// `Busy` when another process (or this one) has it open, with the holder's process id;
    /// `InvalidInput` for wrong settings, a missing directory, one of another store, or no store; `Incompatible` for
    /// segments without a marker; `Corrupt` for damaged markers and segment files of a wrong size.
    /// Cost: one listing of each directory with one look at each segment file.
    pub fn open(settings: &FileStoreSettings) -> Result<FileStore> {
        settings.check()?;
        let Opened { lock, marker, members } = open::open_members(settings)?;
        let geometry = Geometry {
            meta_bytes: marker.meta_bytes,
            segment_bytes: marker.segment_bytes,
            segment_limit: settings.segment_limit,
        };
        let table = open::find_segments(&members, &geometry)?
            .into_iter()
            .map(|(segment, member)| (segment, Entry { member, open: None }))
            .collect();
        let meta = SegmentFile::new(Place::Meta, members[0].open_file(Place::Meta)?);
        let inner = StoreInner {
            geometry,
            durability: Durability::default(),
            store: marker.store,
            backend: settings.backend,
            queue_depth: settings.queue_depth,
            capacity_bytes: settings.capacity_bytes.unwrap_or(u64::MAX),
            members,
            meta,
            table: Mutex::new(table),
            creation: Mutex::default(),
            housekeeper: Housekeeper::default(),
            _lock: lock,
        };
        inner.durability.written(&inner.meta);
        raise_file_limit(u64::from(settings.segment_limit).saturating_add(256));
        Ok(FileStore { inner: Arc::new(inner) })
    }

    /// The most files that the store holds open at a time: one for each segment that it has room for, and those of its
    /// superblock and its lock.
    pub fn files_max(&self) -> u64 {
        let room = self.inner.capacity_bytes / self.inner.geometry.segment_bytes.max(1);
        room.min(u64::from(self.inner.geometry.segment_limit)) + 2
    }

    /// A handle for one thread; its durable writes use `method`.
    ///
    /// # Errors
    /// `Unsupported` when io_uring was asked for and the kernel refuses it; `Retry` and `NoMemory`
    /// when threads or the ring cannot be made.
    pub fn device(&self, method: DurableMethod) -> Result<FileDevice> {
        let uring = |store: &FileStore| UringDevice::new(store, method, self.inner.queue_depth);
        let threads = |store: &FileStore| ThreadDevice::new(store, method, self.inner.queue_depth);
        match self.inner.backend {
            FileBackend::Threads => Ok(FileDevice::Threads(Box::new(threads(self)?))),
            FileBackend::IoUring => Ok(FileDevice::Uring(Box::new(uring(self)?))),
            FileBackend::Auto => match uring(self) {
                Ok(device) => Ok(FileDevice::Uring(Box::new(device))),
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    Ok(FileDevice::Threads(Box::new(threads(self)?)))
                }
                Err(error) => Err(error),
            },
        }
    }

    /// The shape of the space. Segment and superblock sizes are those of the store, not those of
    /// the settings it was opened with.
    pub fn geometry(&self) -> Geometry {
        self.inner.geometry
    }

    /// What durable writes survive: what the weakest of the directories gives.
    pub fn guarantee(&self) -> Guarantee {
        self.inner.guarantee()
    }

    /// Every segment that has a file, in order. A segment without one reads as zeros.
    pub fn existing_segments(&self) -> Vec<u32> {
        lock(&self.inner.table).keys().copied().collect()
    }

    /// Bytes that new segments can still take: what the disks have free, within the capacity.
    /// Two directories on one disk count that disk twice. Cost: one system call a directory.
    pub fn free_bytes(&self) -> u64 {
        let used = self.inner.used_bytes();
        let free = self.inner.members.iter().map(Member::free_bytes).fold(0, u64::saturating_add);
        free.min(self.inner.capacity_bytes.saturating_sub(used))
    }

    /// What the store turned out to be.
    pub fn properties(&self) -> FileStoreProperties {
        let counts = self.inner.segments_per_member();
        let member = |(member, segments): (&Member, u32)| MemberProperties {
            directory: member.path.clone(),
            file_system: member.file_system.name,
            guarantee: member.file_system.guarantee(),
            direct_io: member.direct,
            free_bytes: member.free_bytes(),
            segments,
        };
        FileStoreProperties {
            store: self.inner.store,
            guarantee: self.guarantee(),
            members: self.inner.members.iter().zip(counts).map(member).collect(),
        }
    }

    /// The failed flush or durable write after which this store answers no write any more.
    pub fn failure(&self) -> Option<DeviceError> {
        self.inner.durability.failure().cloned()
    }
}

impl StoreInner {
    pub fn guarantee(&self) -> Guarantee {
        let weakest = self.members.iter().map(|member| member.file_system.guarantee()).min();
        weakest.unwrap_or(Guarantee::Unknown)
    }

    /// The open file of `place`; `None` for a segment that has none. Opens it when needed.
    pub fn lookup(&self, place: Place) -> std::result::Result<Option<Arc<SegmentFile>>, DeviceError> {
        let Place::Segment(segment) = place else { return Ok(Some(self.meta.clone())) };
        let mut table = lock(&self.table);
        let Some(entry) = table.get_mut(&segment) else { return Ok(None) };
        if let Some(file) = &entry.open {
            return Ok(Some(file.clone()));
        }
        let opened = self.members[usize::from(entry.member)].open_file(place)?;
        let file = SegmentFile::new(place, opened);
        // Invariant 4: nobody knows whether an earlier process flushed it.
        self.durability.written(&file);
        entry.open = Some(file.clone());
        Ok(Some(file))
    }

    /// The file of `segment`, made when there is none. Cost when made: milliseconds.
    pub fn create(&self, segment: u32) -> std::result::Result<Arc<SegmentFile>, DeviceError> {
        let place = Place::Segment(segment);
        let mut removed = lock(&self.creation);
        if let Some(file) = self.lookup(place)? {
            return Ok(file);
        }
        let wanted = self.used_bytes().saturating_add(self.geometry.segment_bytes);
        if wanted > self.capacity_bytes {
            let detail =
                format!("cannot create {place}: the capacity of {} bytes is used", self.capacity_bytes);
            return Err(DeviceError::new(DeviceErrorKind::Full, detail));
        }
        let mut last = None;
        for member in self.members_by_free_space() {
            self.forget_removed(&mut removed, segment, member)?;
            match self.members[usize::from(member)].create_file(place, self.geometry.segment_bytes) {
                Ok(made) => {
                    // Its making has flushed all names there.
                    removed.retain(|_, at| *at != member);
                    let file = SegmentFile::new(place, made);
                    lock(&self.table).insert(segment, Entry { member, open: Some(file.clone()) });
                    return Ok(file);
                }
                Err(NotMade { error, elsewhere: true, .. }) => last = Some(error),
                Err(NotMade { error, is_named, .. }) => {
                    if is_named {
                        removed.insert(segment, member);
                    }
                    return Err(error);
                }
            }
        }
        Err(last.unwrap_or_else(|| DeviceError::new(DeviceErrorKind::Full, format!("no room for {place}"))))
    }

    /// Invariant 3, before `segment` is made in `member`. One flush is for all that was removed in a directory; there is
    /// none when a segment is made where it was, as in a store of one directory.
    fn forget_removed(
        &self,
        removed: &mut BTreeMap<u32, u16>,
        segment: u32,
        member: u16,
    ) -> std::result::Result<(), DeviceError> {
        let Some(&at) = removed.get(&segment).filter(|at| **at != member) else { return Ok(()) };
        let forgotten = self.members[usize::from(at)].forget_name(Place::Segment(segment));
        forgotten.map_err(|NotMade { error, is_named, .. }| {
            if is_named {
                self.durability.note_failure(&error);
            }
            error
        })?;
        removed.retain(|_, other| *other != at);
        Ok(())
    }

    /// Removes the file of `segment`; nothing happens when there is none. Cost: no flush, see invariant 3.
    pub fn remove(&self, segment: u32) -> std::result::Result<(), DeviceError> {
        let mut removed = lock(&self.creation);
        let mut table = lock(&self.table);
        let Some(entry) = table.get(&segment) else { return Ok(()) };
        let member = entry.member;
        self.members[usize::from(member)].remove_file(Place::Segment(segment))?;
        if self.members.len() > 1 {
            removed.insert(segment, member);
        }
        if let Some(file) = table.remove(&segment).and_then(|entry| entry.open) {
            file.set_discarded();
            self.durability.forget(&file);
        }
        Ok(())
    }

    /// Puts another file in the place of a segment's, so that tests can make requests fail.
    #[cfg(test)]
    pub fn replace_file(&self, segment: u32, file: std::fs::File) {
        let open = Some(SegmentFile::new(Place::Segment(segment), file));
        lock(&self.table).insert(segment, Entry { member: 0, open });
    }

    /// Gives `job` to the housekeeper.
    pub fn do_later(self: &Arc<Self>, job: Job) {
        self.housekeeper.take(self.clone(), job);
    }

    fn used_bytes(&self) -> u64 {
        (lock(&self.table).len() as u64).saturating_mul(self.geometry.segment_bytes)
    }

    fn segments_per_member(&self) -> Vec<u32> {
        let mut counts = vec![0; self.members.len()];
        for entry in lock(&self.table).values() {
            counts[usize::from(entry.member)] += 1;
        }
        counts
    }

    /// All members, the one to take first: by free space in whole tenths of what the emptiest has,
    /// then by the fewest segments, so that equal disks and one shared disk are filled evenly.
    fn members_by_free_space(&self) -> Vec<u16> {
        let counts = self.segments_per_member();
        let free: Vec<u64> = self.members.iter().map(Member::free_bytes).collect();
        let tenth = free.iter().max().map_or(1, |most| most / 10 + 1);
        let mut order: Vec<u16> = (0..self.members.len() as u16).collect();
        order.sort_by_key(|&member| {
            let index = usize::from(member);
            (std::cmp::Reverse(free[index] / tenth), counts[index], member)
        });
        order
    }
}

/// Lets this process hold `wanted` files open, as far as the hard limit goes. A failure shows when
/// a file cannot be opened, with that advice.
fn raise_file_limit(wanted: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current else { return };
    let reachable = limit.maximum.map_or(wanted, |maximum| wanted.min(maximum));
    if reachable > current {
        let raised = Rlimit { current: Some(reachable), maximum: limit.maximum };
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

/// An error of opening, in the words of the crate's errors.
pub(crate) fn cannot_open(error: std::io::Error, path: &std::path::Path) -> tierstone_base::Error {
    at(error, "cannot open", path)
}
