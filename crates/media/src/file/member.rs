//! One directory of a store: opening, creating and counting its files.
//!
//! Crash: a file is made under a name that ends in `.new`, takes its space, is made durable and is
//! then renamed; so a file with a proper name always has its full size. Files that end in `.new`
//! are removed at the next open. A file that was removed may be there again, until its directory has been flushed.

use super::marker::{FILE_MODE, MARKER_NAME, at, sync_directory};
use super::plan::{Place, segment_of_name};
use super::segment::kind_of;
use super::settings::DirectIo;
use crate::probe::filesystem::FileSystem;
use crate::{BLOCK_BYTES, DeviceError, DeviceErrorKind, IoBuffer};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tierstone_base::{Error, ErrorKind, Result};

/// An opened directory.
#[derive(Debug)]
pub(crate) struct Member {
    pub path: PathBuf,
    /// Whether its files bypass the page cache.
    pub direct: bool,
    pub file_system: FileSystem,
}

/// Why a file was not made.
#[derive(Debug)]
pub(crate) struct NotMade {
    pub error: DeviceError,
    /// Whether another directory may have room for it. Descriptors are missing everywhere.
    pub elsewhere: bool,
    /// Whether it had its name, which may be there again after a crash although it was removed.
    pub is_named: bool,
}

impl Member {
    /// The member in `path`, which holds its marker already.
    pub fn open(path: &Path, direct_io: DirectIo) -> Result<Member> {
        let file_system = FileSystem::of(path)?;
        let direct = match direct_io {
            DirectIo::Off => false,
            DirectIo::Auto => reads_directly(&path.join(MARKER_NAME)).is_ok(),
            DirectIo::On => match reads_directly(&path.join(MARKER_NAME)) {
                Ok(()) => true,
                Err(error) => {
                    let refused = format!(
                        "{} refuses direct input and output ({error}); use direct_io = auto",
                        path.display()
                    );
                    return Err(Error::new(ErrorKind::Unsupported, refused));
                }
            },
        };
        Ok(Member { path: path.to_path_buf(), direct, file_system })
    }

    /// Opens an existing file.
    pub fn open_file(&self, place: Place) -> std::result::Result<File, DeviceError> {
        self.options()
            .open(self.path.join(place.to_string()))
            .map_err(|error| self.error("open", place, error))
    }

    /// Makes a file of exactly `bytes` bytes that read as zeros, durable with its name. It must not
    /// exist; a refusal leaves none. Without a free descriptor it is refused as on a full device. Cost: several
    /// milliseconds (two flushes).
    pub fn create_file(&self, place: Place, bytes: u64) -> std::result::Result<File, NotMade> {
        let fresh = self.path.join(format!("{place}.new"));
        let proper = self.path.join(place.to_string());
        let mut is_named = false;
        let mut make = || {
            // Before anything has a name, so that no descriptor is missing afterwards.
            let directory = File::open(&self.path)?;
            let file = self.options().create(true).truncate(true).open(&fresh)?;
            take_space(&file, bytes)?;
            file.sync_all()?;
            std::fs::rename(&fresh, &proper)?;
            is_named = true;
            directory.sync_all().inspect_err(|_| {
                // It holds nothing, and another directory may get this file later: no start may find it in both. Who
                // makes it there flushes this directory first.
                let _ = std::fs::remove_file(&proper);
            })?;
            Ok(file)
        };
        let made = make();
        made.map_err(|error: std::io::Error| {
            // What cannot be removed now is removed at the next open.
            let _ = std::fs::remove_file(&fresh);
            let (error, is_short) = self.not_made(place, error);
            let elsewhere = error.kind == DeviceErrorKind::Full && !is_short && !is_named;
            NotMade { elsewhere, is_named, error }
        })
    }

    /// Why a file cannot be made, and whether that is for want of descriptors.
    fn not_made(&self, place: Place, error: std::io::Error) -> (DeviceError, bool) {
        let is_short = matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
        let failed = self.error("create", place, error);
        // Nothing is wrong with the device then: there is no room for one more file now, as on a full one.
        let kind = if is_short { DeviceErrorKind::Full } else { failed.kind };
        (DeviceError { kind, ..failed }, is_short)
    }

    /// Makes sure that the file of `place`, which was removed here, does not come back, also not after a crash. What is to
    /// be made elsewhere is made afterwards. Cost: a flush.
    ///
    /// # Errors
    /// Of those with `is_named` a flush has failed; the others may be tried again.
    pub fn forget_name(&self, place: Place) -> std::result::Result<(), NotMade> {
        let refused =
            |error, is_named| NotMade { error: self.not_made(place, error).0, elsewhere: false, is_named };
        match std::fs::remove_file(self.path.join(place.to_string())) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(refused(error, false)),
            _ => {}
        }
        let directory = File::open(&self.path).map_err(|error| refused(error, false))?;
        directory.sync_all().map_err(|error| refused(error, true))
    }

    /// Removes a file; its space comes back when the last request in flight on it is done. The directory is not flushed.
    pub fn remove_file(&self, place: Place) -> std::result::Result<(), DeviceError> {
        std::fs::remove_file(self.path.join(place.to_string()))
            .map_err(|error| self.error("remove", place, error))
    }

    /// Bytes that this directory can still take.
    pub fn free_bytes(&self) -> u64 {
        rustix::fs::statvfs(&self.path).map_or(0, |numbers| numbers.f_bavail.saturating_mul(numbers.f_frsize))
    }

    /// The segments whose files lie here; leftovers of unfinished creations are removed.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] when a segment file has not exactly `segment_bytes` bytes.
    pub fn list_segments(&self, segment_bytes: u64) -> Result<Vec<u32>> {
        let mut segments = Vec::new();
        let entries = std::fs::read_dir(&self.path).map_err(|error| at(error, "cannot list", &self.path))?;
        for entry in entries {
            let entry = entry.map_err(|error| at(error, "cannot list", &self.path))?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.strip_suffix(".new").and_then(segment_of_name).is_some() {
                std::fs::remove_file(entry.path())
                    .map_err(|error| at(error, "cannot remove", &entry.path()))?;
            }
            let Some(segment) = segment_of_name(name) else { continue };
            let metadata = entry.metadata().map_err(|error| at(error, "cannot look at", &entry.path()))?;
            if !metadata.is_file() || metadata.len() != segment_bytes {
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    format!(
                        "{} has {} bytes and not the {segment_bytes} of this store's segments; restore it",
                        entry.path().display(),
                        metadata.len()
                    ),
                ));
            }
            segments.push(segment);
        }
        Ok(segments)
    }

    /// Whether the directory holds files that only a store makes.
    pub fn holds_store_files(path: &Path) -> Result<bool> {
        let entries = std::fs::read_dir(path).map_err(|error| at(error, "cannot list", path))?;
        for entry in entries {
            let name = entry.map_err(|error| at(error, "cannot list", path))?.file_name();
            let known = |name: &str| segment_of_name(name).is_some() || name == Place::Meta.to_string();
            if name.to_str().is_some_and(known) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes the names in this directory durable.
    pub fn sync(&self) -> Result<()> {
        sync_directory(&self.path)
    }

    fn options(&self) -> OpenOptions {
        let direct = if self.direct { libc::O_DIRECT } else { 0 };
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(FILE_MODE).custom_flags(direct | libc::O_NOFOLLOW);
        options
    }

    fn error(&self, doing: &str, place: Place, error: std::io::Error) -> DeviceError {
        let errno = error.raw_os_error().unwrap_or(libc::EIO);
        let advice = if matches!(errno, libc::EMFILE | libc::ENFILE) {
            " (raise the limit on open files: one a segment is needed)"
        } else {
            ""
        };
        let detail =
            format!("cannot {doing} {}: {error}{advice}", self.path.join(place.to_string()).display());
        DeviceError::new(kind_of(errno), detail)
    }
}

/// Gives `file` its size and, where the file system can, its space.
pub(super) fn take_space(file: &File, bytes: u64) -> std::io::Result<()> {
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(bytes),
        Err(error) => Err(error.into()),
    }
}

/// Tries direct input on a file; the file may be shorter than a block.
pub(super) fn reads_directly(path: &Path) -> std::io::Result<()> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path)?;
    let mut buffer = IoBuffer::zeroed(BLOCK_BYTES);
    file.read_at(&mut buffer, 0).map(|_| ())
}
