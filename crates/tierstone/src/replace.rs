//! Small files that are replaced as a whole: settings, users.
//!
//! Crash: the new file is written beside the old one, made durable, and takes its name: one of them is there,
//! whole.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use tierstone_base::{Error, Result};

/// Gives the file at `path`, which is there, other bytes, all or none; durable when this returns.
///
/// # Errors
/// What kept the file from being written; it is whole then.
pub fn replace_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let path = path.canonicalize()?;
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    let fresh = path.with_file_name(name);
    write_beside(&path, &fresh, bytes).map_err(|error| {
        // What cannot be removed is replaced by the next try.
        let _ = std::fs::remove_file(&fresh);
        Error::from(error)
    })
}

fn write_beside(path: &Path, fresh: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let permissions = std::fs::metadata(path)?.permissions();
    let mut file = File::create(fresh)?;
    // Before the bytes come: a password may be among them.
    file.set_permissions(permissions)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    // After a crash here the old file is whole, and a file that ends in .new lies beside it.
    std::fs::rename(fresh, path)?;
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}
