//! Making the file of a region: under a name of its own, until it is whole.
//!
//! Invariants:
//! 1. A making begins with a file that it has made itself, so that nobody else has a handle on it, a name for it or a say in its mode.
//! 2. Only who holds the lock of what lies under the name of [`unfinished`] removes it or gives it the region's name.
//!
//! Crash: what was not whole lies under the name of [`unfinished`], which nobody opens as a region; the next making, or opening of
//! a region that has its name by then, removes it. Under the region's own name there is a whole one, or nothing.

use super::header::{Header, REGION_HEADER_BYTES};
use crate::lock::LockedFile;
use rustix::fs::{CWD, FallocateFlags, OFlags, RenameFlags, fallocate, renameat_with};
use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tierstone_base::checksum::checksum;
use tierstone_base::{Error, ErrorKind, Result};

/// How the name of an unfinished file ends.
const UNFINISHED: &str = ".tierstone-unfinished";
/// The longest name that every file system takes, in bytes: eCryptfs, which takes the least, has so many.
const NAME_BYTES_MAX: usize = 143;

/// Where the file of the region `path` lies while it is being made: beside it, under its name or, where that would become too
/// long, a checksum of it.
pub(super) fn unfinished(path: &Path) -> PathBuf {
    let own = path.file_name().unwrap_or_default();
    let mut name = OsString::from(".");
    match own.len() + 1 + UNFINISHED.len() <= NAME_BYTES_MAX {
        true => name.push(own),
        false => name.push(format!("{:016x}", checksum(0, own.as_encoded_bytes()))),
    }
    name.push(UNFINISHED);
    path.with_file_name(name)
}

/// Makes the file `path` of a region of so many bytes of zeros, whole and durable with its name, and locks it.
pub(super) fn make(path: &Path, region_bytes: u64) -> Result<LockedFile> {
    let failed = |error: std::io::Error| {
        Error::from(error).context(&format!("cannot create region {}", path.display()))
    };
    if path.symlink_metadata().is_ok() {
        return Err(failed(rustix::io::Errno::EXIST.into()));
    }
    let fresh = unfinished(path);
    let mut file = begin(&fresh, path)?;
    if let Err(error) = fill(&mut file, region_bytes).and_then(|()| name_it(&fresh, path)) {
        // Nothing was put into it yet: what cannot be used is not left behind.
        let _ = std::fs::remove_file(&fresh);
        return Err(failed(error));
    }
    sync_directory_of(path).map_err(failed)?;
    Ok(file)
}

/// Makes the empty file that becomes the region `path`, and locks it; what an earlier making has left gives way.
fn begin(fresh: &Path, path: &Path) -> Result<LockedFile> {
    let make_new = || {
        let mut options = OpenOptions::new();
        // Neither a file nor a link that is there already is opened.
        options.read(true).write(true).create_new(true).mode(0o600).open(fresh)
    };
    let is_there = |error: &std::io::Error| error.kind() == std::io::ErrorKind::AlreadyExists;
    let file = match make_new() {
        Err(error) if is_there(&error) => {
            remove_leftover(fresh, path)?;
            make_new()
        }
        made => made,
    };
    let file = match file {
        Err(error) if is_there(&error) => return Err(made_by_another(path)),
        made => made.map_err(|error| at(error, "make", fresh, path))?,
    };
    let file = lock(file, fresh, path)?;
    // Until it was locked it looked like a leftover, which gives way.
    if !is_at(&file, fresh) {
        return Err(made_by_another(path));
    }
    if path.symlink_metadata().is_ok() {
        let _ = std::fs::remove_file(fresh);
        return Err(made_by_another(path));
    }
    Ok(file)
}

/// Removes what a making that was cut off has left beside the region `path`, which is whole: it would keep its space for ever.
pub(super) fn tidy(path: &Path) {
    // It is in nobody's way: what is no such leftover, or cannot be removed, stays.
    let _ = remove_leftover(&unfinished(path), path);
}

/// Removes what a making that was cut off has left at `fresh`, if it is there.
///
/// # Errors
/// `InvalidInput` when what is there is no such leftover, `Busy` or `Retry` when another process has it.
fn remove_leftover(fresh: &Path, path: &Path) -> Result<()> {
    let is_gone = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
    let found = match fresh.symlink_metadata() {
        Err(error) if is_gone(&error) => return Ok(()),
        found => found.map_err(|error| at(error, "look at", fresh, path))?,
    };
    if let Some(why) = why_foreign(&found, rustix::process::geteuid().as_raw()) {
        let message = format!(
            "{} {why}, and the region {} is made under that name; see what it is, and move or remove it",
            fresh.display(),
            path.display()
        );
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    // What has come there since is neither followed nor waited for.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = match OpenOptions::new().read(true).write(true).custom_flags(flags).open(fresh) {
        Err(error) if is_gone(&error) => return Ok(()),
        opened => opened.map_err(|error| at(error, "open", fresh, path))?,
    };
    let file = lock(file, fresh, path)?;
    if is_at(&file, fresh) {
        std::fs::remove_file(fresh).map_err(|error| at(error, "remove", fresh, path))?;
    }
    Ok(())
}

/// Why what is found under an unfinished name was not left there by a making of this user's, `own`.
fn why_foreign(found: &Metadata, own: u32) -> Option<String> {
    if !found.is_file() {
        return Some("is no file".to_owned());
    }
    if found.nlink() > 1 {
        return Some("is a file that has another name, too".to_owned());
    }
    (found.uid() != own)
        .then(|| format!("belongs to the user with the number {}, not to that of this process", found.uid()))
}

/// Whether `file` is what lies at `fresh`.
fn is_at(file: &File, fresh: &Path) -> bool {
    let name_of = |found: Metadata| (found.dev(), found.ino());
    let own = file.metadata().map(name_of);
    fresh.symlink_metadata().map(name_of).is_ok_and(|found| own.is_ok_and(|own| own == found))
}

fn lock(file: File, fresh: &Path, path: &Path) -> Result<LockedFile> {
    LockedFile::lock(file).map_err(|(_, error)| match error {
        None => made_by_another(path),
        Some(error) => at(error, "lock", fresh, path),
    })
}

/// Another process makes the region `path`, or has made it.
fn made_by_another(path: &Path) -> Error {
    let name = path.display();
    match path.symlink_metadata() {
        Ok(_) => {
            Error::new(ErrorKind::Retry, format!("{name} has just been made by another process; open it"))
        }
        Err(_) => {
            let message = format!("{name} is being made by another process; wait until that has made it");
            Error::new(ErrorKind::Busy, message)
        }
    }
}

fn at(error: std::io::Error, what: &str, fresh: &Path, path: &Path) -> Error {
    let (fresh, path) = (fresh.display(), path.display());
    Error::from(error)
        .context(&format!("cannot {what} {fresh}, which is what region {path} is called until it is whole"))
}

/// Takes the space, of zeros, then says that it is a region.
fn fill(file: &mut File, region_bytes: u64) -> std::io::Result<()> {
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
