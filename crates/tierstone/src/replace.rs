//! Small files that are replaced as a whole, and files for their owner alone: settings, users, backups.
//!
//! Crash: the new file is written beside the old one, made durable, and takes its name: one of them is there,
//! whole.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use tierstone_base::{Error, Result};

/// Gives the file at `path`, which is there, other bytes, all or none; durable when this returns. Who may read it stays.
///
/// # Errors
/// What kept the file from being written; it is whole then.
pub fn replace_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let path = path.canonicalize()?;
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    let fresh = path.with_file_name(name);
    write_beside(&path, &fresh, bytes).map_err(|error| {
        // What cannot be removed is removed by the next try.
        let _ = std::fs::remove_file(&fresh);
        Error::from(error)
    })
}

/// A new file that only its owner reads and writes, in the place of one that a crash has left, or that somebody has put
/// there: neither the bytes of that one nor its rights are taken over, and no link is followed.
///
/// # Errors
/// What the file system says; `AlreadyExists` where somebody puts another file there at this moment.
pub(crate) fn create_private(path: &Path) -> std::io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // O_EXCL follows no link.
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

fn write_beside(path: &Path, fresh: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let permissions = std::fs::metadata(path)?.permissions();
    let mut file = create_private(fresh)?;
    file.write_all(bytes)?;
    // Nobody could read it until here: a password may be among the bytes.
    file.set_permissions(permissions)?;
    file.sync_all()?;
    // After a crash here the old file is whole, and a file that ends in .new lies beside it.
    std::fs::rename(fresh, path)?;
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "replace_test.rs"]
mod replace_test;
