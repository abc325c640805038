//! Making the file of a region: under a name of its own, until it is whole.
//!
//! Crash: what was not whole lies under the name of [`unfinished`], which nobody opens as a region; the next making takes it
//! over. Under the region's own name there is a whole one, or nothing.

use super::header::{Header, REGION_HEADER_BYTES};
use super::mapped::lock;
use crate::lock::LockedFile;
use rustix::fs::{CWD, FallocateFlags, RenameFlags, fallocate, renameat_with};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tierstone_base::{Error, ErrorKind, Result};

/// Where the file of the region `path` lies while it is being made: beside it.
pub(super) fn unfinished(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".tierstone-unfinished");
    path.with_file_name(name)
}

/// Makes the file `path` of a region of so many bytes of zeros, whole and durable with its name, and locks it.
pub(super) fn make(path: &Path, region_bytes: u64) -> Result<LockedFile> {
    let name = path.display().to_string();
    let failed = |error: std::io::Error| Error::from(error).context(&format!("cannot create region {name}"));
    if path.symlink_metadata().is_ok() {
        return Err(failed(rustix::io::Errno::EXIST.into()));
    }
    let fresh = unfinished(path);
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&fresh);
    let mut file = lock(file.map_err(failed)?, &name)?;
    let made = (|| {
        // Whoever has finished it since it was opened here has given it its name: it is a region in use.
        let is_still = fresh.symlink_metadata().map(|found| (found.dev(), found.ino()));
        let own = file.metadata().map(|own| (own.dev(), own.ino())).map_err(failed)?;
        if !is_still.is_ok_and(|found| found == own) {
            let message = format!("{name} has just been made by another process; open it");
            return Err(Error::new(ErrorKind::Retry, message));
        }
        fill(&mut file, region_bytes).map_err(failed)?;
        name_it(&fresh, path).and_then(|()| sync_directory_of(path)).map_err(failed)
    })();
    match made {
        Ok(()) => Ok(file),
        Err(error) => {
            if error.kind() != ErrorKind::Retry {
                // Nothing was put into it yet: what cannot be used is not left behind.
                let _ = std::fs::remove_file(&fresh);
            }
            Err(error)
        }
    }
}

/// Takes the space, of zeros, then says that it is a region.
fn fill(file: &mut File, region_bytes: u64) -> std::io::Result<()> {
    file.set_len(0)?;
    fallocate(&*file, FallocateFlags::empty(), 0, region_bytes + REGION_HEADER_BYTES)?;
    file.sync_all()?;
    // crash here [region-without-header]: the header is zeros, and the file has not got its name
    file.write_all(&Header { region_bytes }.encode())?;
    file.sync_all()
}

/// Gives a whole file its name, if nothing has that name.
fn name_it(fresh: &Path, path: &Path) -> std::io::Result<()> {
    match renameat_with(CWD, fresh, CWD, path, RenameFlags::NOREPLACE) {
        // Not every file system can look and rename at once; others of this program wait for the lock.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) if path.symlink_metadata().is_err() => {
            std::fs::rename(fresh, path)
        }
        renamed => Ok(renamed?),
    }
}

/// Makes the name of a new file durable.
fn sync_directory_of(path: &Path) -> std::io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
#[path = "making_test.rs"]
mod making_test;
