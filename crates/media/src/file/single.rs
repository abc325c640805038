//! A device that is one file, or one block device: what volumes are made of.
//!
//! Invariants:
//! 1. One process at a time: the file is locked as long as its [`SingleFile`] or a handle lives. A block device
//!    that the system uses (mounted, or part of something else) is refused.
//! 2. The file has its full length and its space from the beginning; it is neither grown nor cut. One that somebody
//!    else cut takes no write any more: what a write beyond its end left behind would read as zeros.
//! 3. After a failed durable write or flush no write is answered well any more.
//!
//! Prepare does nothing: the space is there. Discard does nothing either unless the settings say so and what is below
//! can do it; then the space is given back and reads as zeros ([`Discards`]). Crash: whatever writes and discards had
//! reached the file.

use super::completions::Completions;
use super::marker::at;
use super::member::{reads_directly, take_space};
use super::plan::check;
use super::pool::{Pool, Worker};
use super::segment::{Reports, kind_of};
use super::settings::DirectIo;
use super::threads::refused;
use super::transfer::{read_all, write_all};
use crate::lock::LockedFile;
use crate::probe::filesystem::FileSystem;
use crate::{
    BLOCK_BYTES, BlockDevice, DeviceError, DeviceErrorKind, DurableWriteScope, Geometry, Guarantee, IoBuffer,
    IoCompletion, IoKind, IoRequest, Wait,
};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::fd::RawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_crash::Mutations;

/// Bytes of the superblock area: two slots.
const META_BYTES: u64 = 2 * BLOCK_BYTES as u64;
/// Bytes of a segment: the granularity of the device's length.
const SEGMENT_BYTES: u64 = 64 << 10;

/// Whether discarded space is given back to what is below (TRIM).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Discards {
    /// Never.
    Never,
    /// Of block devices that leave zeros: they lose nothing by it.
    #[default]
    Devices,
    /// Of files too, as holes. Others may take that space, and writes fail when it is gone.
    Always,
}

/// How a single file is opened. Plain data.
#[derive(Clone, Debug)]
pub struct SingleFileSettings {
    /// Whether it bypasses the page cache.
    pub direct_io: DirectIo,
    /// Requests that are done at the same time for one handle, 1 to 64: so many threads at most.
    pub queue_depth: u32,
    /// Whether discarded space is given back. Default: never.
    pub discards: Discards,
    /// Rules that tests switch off.
    pub mutations: Mutations,
}

impl Default for SingleFileSettings {
    fn default() -> Self {
        let (direct_io, discards) = (DirectIo::Auto, Discards::Never);
        SingleFileSettings { direct_io, queue_depth: 16, discards, mutations: Mutations::none() }
    }
}

/// An open file or block device; clones share it.
#[derive(Clone, Debug)]
pub struct SingleFile {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    file: LockedFile,
    geometry: Geometry,
    guarantee: Guarantee,
    is_block_device: bool,
    direct: bool,
    /// Whether discards give space back and leave zeros.
    discards: bool,
    queue_depth: usize,
    /// The first failed durable write or flush.
    failure: OnceLock<DeviceError>,
    reports: Reports,
    mutations: Mutations,
}

/// One handle on a [`SingleFile`], for one thread.
#[derive(Debug)]
pub struct SingleFileDevice {
    pool: Pool<SingleFile>,
}

impl SingleFile {
    /// Makes a file of `bytes` bytes, or up to 64 KiB more, so that all are used. They read as zeros; space is taken and the
    /// name durable. It is not opened.
    ///
    /// # Errors
    /// `InvalidInput` when there is something of that name; `NoSpace` without room.
    pub fn create(path: &Path, bytes: u64) -> Result<()> {
        let file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(|error| {
                match error.kind() {
                    std::io::ErrorKind::AlreadyExists => {
                        let there = format!("{} exists already", path.display());
                        Error::new(ErrorKind::InvalidInput, there)
                    }
                    _ => at(error, "cannot make", path),
                }
            })?;
        let segments_bytes = bytes.saturating_sub(META_BYTES).checked_next_multiple_of(SEGMENT_BYTES);
        let bytes = META_BYTES.saturating_add(segments_bytes.unwrap_or(u64::MAX));
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let made = take_space(&file, bytes)
            .and_then(|()| file.sync_all())
            .and_then(|()| File::open(parent)?.sync_all());
        made.map_err(|error| {
            // What is left of it is of no use to anybody.
            let _ = std::fs::remove_file(path);
            at(error, "cannot make", path)
        })
    }

    /// Opens the file or block device at `path`, for reading and writing.
    ///
    /// # Errors
    /// `Busy` when another process has it open as such, or the system uses it; `InvalidInput` for what is neither file
    /// nor block device, or too small; `Unsupported` when direct input and output was asked for and is refused.
    pub fn open(path: &Path, settings: &SingleFileSettings) -> Result<SingleFile> {
        let wrong =
            |what: &str| Err(Error::new(ErrorKind::InvalidInput, format!("{} {what}", path.display())));
        let kind = std::fs::metadata(path).map_err(|error| at(error, "cannot open", path))?.file_type();
        let is_block_device = kind.is_block_device();
        if !is_block_device && !kind.is_file() {
            return wrong("is neither a file nor a block device");
        }
        let direct = match (settings.direct_io, reads_directly(path)) {
            (DirectIo::Off, _) | (DirectIo::Auto, Err(_)) => false,
            (DirectIo::Auto | DirectIo::On, Ok(())) => true,
            (DirectIo::On, Err(error)) => {
                let refused = format!("{} refuses direct input and output: {error}", path.display());
                return Err(Error::new(ErrorKind::Unsupported, refused));
            }
        };
        // Of a block device, exclusive means: not mounted, and no part of anything.
        let flags = if direct { libc::O_DIRECT } else { 0 } | if is_block_device { libc::O_EXCL } else { 0 };
        let opened = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
        let file = opened.map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => {
                Error::new(ErrorKind::Busy, format!("{} is in use by the system", path.display()))
            }
            _ => at(error, "cannot open", path),
        })?;
        let mut file = LockedFile::lock(file).map_err(|(_, error)| match error {
            None => Error::new(ErrorKind::Busy, format!("another process has {} open", path.display())),
            Some(error) => at(error, "cannot lock", path),
        })?;
        let bytes = file.seek(SeekFrom::End(0)).map_err(|error| at(error, "cannot measure", path))?;
        let segments = bytes.saturating_sub(META_BYTES) / SEGMENT_BYTES;
        if segments == 0 {
            return wrong(&format!("has {bytes} bytes: at least {} are needed", META_BYTES + SEGMENT_BYTES));
        }
        let guarantee =
            if is_block_device { Guarantee::PowerFail } else { FileSystem::of(path)?.guarantee() };
        let geometry = Geometry {
            meta_bytes: META_BYTES,
            segment_bytes: SEGMENT_BYTES,
            segment_limit: u32::try_from(segments).unwrap_or(u32::MAX),
        };
        let discards = match (settings.discards, is_block_device) {
            (Discards::Never, _) | (Discards::Devices, false) => false,
            (_, true) => device_leaves_zeros(&file),
            // Beyond the end there is nothing to lose.
            (Discards::Always, false) => {
                punch(&file, bytes.next_multiple_of(SEGMENT_BYTES), SEGMENT_BYTES).is_ok()
            }
        };
        let inner = Inner {
            path: path.to_path_buf(),
            file,
            geometry,
            guarantee,
            is_block_device,
            direct,
            discards,
            queue_depth: settings.queue_depth.clamp(1, 64) as usize,
            failure: OnceLock::new(),
            reports: Reports::default(),
            mutations: settings.mutations.clone(),
        };
        Ok(SingleFile { inner: Arc::new(inner) })
    }

    /// A handle for one thread.
    ///
    /// # Errors
    /// `Retry` when the system gives no thread.
    pub fn device(&self) -> Result<SingleFileDevice> {
        Ok(SingleFileDevice { pool: Pool::new(self.clone(), self.inner.queue_depth)? })
    }

    /// The bytes that are used.
    pub fn bytes(&self) -> u64 {
        self.inner.geometry.end()
    }

    /// Whether it is a block device.
    pub fn is_block_device(&self) -> bool {
        self.inner.is_block_device
    }

    /// Whether it bypasses the page cache.
    pub fn is_direct(&self) -> bool {
        self.inner.direct
    }

    /// Reads `len` bytes, whole blocks, in the thread that calls.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn read_now(&self, offset: u64, len: usize) -> Result<IoBuffer> {
        let done = self.perform(IoRequest::read(0, offset, IoBuffer::zeroed(len)));
        done.result?;
        done.buffer.ok_or_else(|| Error::new(ErrorKind::DeviceFailed, "a read lost its buffer"))
    }

    fn error(&self, errno: i32, doing: &str, offset: u64) -> DeviceError {
        let cause = std::io::Error::from_raw_os_error(errno);
        let detail = format!("cannot {doing} {} at {offset}: {cause}", self.inner.path.display());
        DeviceError::new(kind_of(errno), detail)
    }

    fn read(&self, offset: u64, buffer: &mut IoBuffer) -> std::result::Result<(), DeviceError> {
        read_all(&self.inner.file, buffer, offset).map_err(|(errno, offset)| match errno {
            None => self.error(libc::EIO, "read beyond the end of", offset),
            Some(errno) => self.error(errno, "read", offset),
        })
    }

    fn write(&self, offset: u64, bytes: &[u8], durable: bool) -> std::result::Result<(), DeviceError> {
        self.check_whole()?;
        let written = write_all(&self.inner.file, bytes, offset, durable);
        written.map_err(|(errno, offset)| self.error(errno, "write", offset))
    }

    fn flush(&self) -> std::result::Result<(), DeviceError> {
        self.check_whole()?;
        rustix::fs::fdatasync(&*self.inner.file).map_err(|error| self.error(error.raw_os_error(), "flush", 0))
    }

    /// Gives space back, if that leaves zeros.
    fn discard(&self, offset: u64, len: u64) -> std::result::Result<(), DeviceError> {
        if !self.inner.discards || len == 0 {
            return Ok(());
        }
        self.check_whole()?;
        match punch(&self.inner.file, offset, len) {
            Ok(()) => Ok(()),
            // It was said to be possible, and the zeros are relied on.
            Err(rustix::io::Errno::OPNOTSUPP) => self.write_zeros(offset, len),
            Err(error) => Err(self.error(error.raw_os_error(), "give space back in", offset)),
        }
    }

    fn write_zeros(&self, offset: u64, len: u64) -> std::result::Result<(), DeviceError> {
        let zeros = IoBuffer::zeroed(len.min(1 << 20) as usize);
        for at in (0..len).step_by(zeros.len()) {
            let take = (len - at).min(zeros.len() as u64) as usize;
            self.write(offset + at, &zeros[..take], false)?;
        }
        Ok(())
    }

    /// Invariant 2. Cost: one system call, of files only.
    fn check_whole(&self) -> std::result::Result<(), DeviceError> {
        let (inner, expected) = (&self.inner, self.inner.geometry.end());
        if inner.is_block_device || inner.mutations.is_on("no_length_check") {
            return Ok(());
        }
        match inner.file.metadata().map(|metadata| metadata.len()) {
            Ok(bytes) if bytes >= expected => Ok(()),
            Ok(bytes) => {
                let path = inner.path.display();
                let detail = format!("{path} was cut: it has {bytes} bytes, {expected} are in use");
                Err(DeviceError::new(DeviceErrorKind::Failed, detail))
            }
            Err(error) => Err(self.error(error.raw_os_error().unwrap_or(libc::EIO), "look at", 0)),
        }
    }
}

impl Worker for SingleFile {
    fn perform(&self, request: IoRequest) -> IoCompletion {
        let failure = self.inner.failure.get().filter(|_| request.kind != IoKind::Read);
        if let Some(failure) = failure {
            return refused(request, failure.clone());
        }
        let IoRequest { token, kind, offset, mut buffer } = request;
        let mut result = match kind {
            IoKind::Read => self.carry_out(kind, offset, &mut buffer),
            _ => self.inner.reports.during(|| {
                let result = self.carry_out(kind, offset, &mut buffer);
                if let Err(error) = &result
                    && error.kind == DeviceErrorKind::Failed
                {
                    // The first one stays.
                    let _ = self.inner.failure.set(error.clone());
                }
                result
            }),
        };
        if kind == IoKind::Flush && result.is_ok() {
            // Of a failure the kernel tells one of those that are under way.
            self.inner.reports.wait();
        }
        if matches!(kind, IoKind::Flush | IoKind::WriteDurable)
            && result.is_ok()
            && let Some(failure) = self.inner.failure.get()
        {
            result = Err(failure.clone());
        }
        IoCompletion { token, kind, offset, buffer, result }
    }
}

impl SingleFile {
    fn carry_out(
        &self,
        kind: IoKind,
        offset: u64,
        buffer: &mut Option<IoBuffer>,
    ) -> std::result::Result<(), DeviceError> {
        match (kind, buffer) {
            (IoKind::Read, Some(buffer)) => self.read(offset, buffer),
            (IoKind::Write, Some(buffer)) => self.write(offset, buffer, false),
            (IoKind::WriteDurable, Some(buffer)) => self.write(offset, buffer, true),
            (IoKind::Flush, _) => self.flush(),
            (IoKind::Prepare { .. }, _) => Ok(()),
            (IoKind::Discard { len }, _) => self.discard(offset, len),
            (IoKind::Read | IoKind::Write | IoKind::WriteDurable, None) => {
                unreachable!("{kind:?} without a buffer is refused before")
            }
        }
    }
}

/// Makes a hole: of a block device, this discards and leaves zeros, or is refused.
fn punch(file: &File, offset: u64, len: u64) -> std::result::Result<(), rustix::io::Errno> {
    fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)
}

/// Whether the kernel says that a block device writes zeros without being given them.
fn device_leaves_zeros(device: &File) -> bool {
    let Ok(facts) = device.metadata() else { return false };
    let (major, minor) = (rustix::fs::major(facts.rdev()), rustix::fs::minor(facts.rdev()));
    // A partition has no queue of its own.
    let most = ["queue", "../queue"].iter().find_map(|queue| {
        let path = format!("/sys/dev/block/{major}:{minor}/{queue}/write_zeroes_max_bytes");
        std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
    });
    most.is_some_and(|bytes| bytes > 0)
}

impl SingleFileDevice {
    /// See [`crate::file::FileDevice::wake_descriptor`].
    pub fn wake_descriptor(&self) -> Option<RawFd> {
        self.completions().wake_descriptor()
    }

    fn completions(&self) -> &Completions {
        &self.pool.completions
    }
}

impl BlockDevice for SingleFileDevice {
    fn geometry(&self) -> Geometry {
        self.pool.worker.inner.geometry
    }

    fn guarantee(&self) -> Guarantee {
        self.pool.worker.inner.guarantee
    }

    fn durable_write_scope(&self) -> DurableWriteScope {
        DurableWriteScope::OwnSectors
    }

    fn discards_to_zeros(&self) -> bool {
        self.pool.worker.inner.discards
    }

    fn submit(&mut self, requests: &mut Vec<IoRequest>) {
        for request in requests.drain(..) {
            self.pool.completions.owe();
            match check(&self.pool.worker.inner.geometry, &request) {
                Ok(_) => self.pool.hand_on(request),
                Err(error) => self.completions().finished().put(refused(request, error)),
            }
        }
        self.pool.keep_up();
    }

    fn complete(&mut self, wait: Wait, completions: &mut Vec<IoCompletion>) -> usize {
        self.pool.completions.complete(wait, completions)
    }

    fn in_flight(&self) -> usize {
        self.completions().in_flight()
    }
}

#[cfg(test)]
#[path = "single_test.rs"]
mod single_test;
