//! What a path is that shall be a region: what cannot be one is refused before it is opened, with what it is.

use super::device;
use std::fs::FileType;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use tierstone_base::{Error, ErrorKind, Result};

/// Refuses what is neither a file, nor a character device, nor absent.
///
/// # Errors
/// `InvalidInput`: a directory, a block device, a pipe, a socket, or a link to what is not there.
pub(super) fn refuse_foreign(path: &Path) -> Result<()> {
    let Ok(found) = std::fs::metadata(path) else {
        return refuse_dangling_link(path);
    };
    match why_foreign(found.file_type()) {
        Some(why) => wrong(format!("{} is {why}", path.display())),
        None => Ok(()),
    }
}

fn why_foreign(found: FileType) -> Option<&'static str> {
    if found.is_dir() {
        return Some("a directory, a region is a file: name one in it, as DIR/region");
    }
    if found.is_block_device() {
        return Some(
            "a block device, which is read and written by blocks and is no byte-addressable memory; name a file on a file \
             system, on DAX where it shall survive a loss of power, or a DAX device (/dev/dax0.0)",
        );
    }
    let is_other = found.is_fifo() || found.is_socket();
    is_other.then_some("a pipe or a socket, which holds no bytes; name a file")
}

fn refuse_dangling_link(path: &Path) -> Result<()> {
    match std::fs::read_link(path) {
        Ok(target) => wrong(format!(
            "{} is a link to {}, which is not there; make that, or remove the link",
            path.display(),
            target.display()
        )),
        // Absent, or not to be looked at: opening tells.
        Err(_) => Ok(()),
    }
}

fn wrong(message: String) -> Result<()> {
    Err(Error::new(ErrorKind::InvalidInput, message))
}

/// Whether nothing is at `path`, so that a region can be made there.
///
/// # Errors
/// As [`refuse_foreign`]; and when the path cannot be looked at.
pub(super) fn is_absent(path: &Path) -> Result<bool> {
    if device::is_character_device(path) {
        return Ok(false);
    }
    refuse_foreign(path)?;
    path.try_exists().map(|exists| !exists).map_err(|error| {
        Error::from(error).context(&format!("cannot look for the region {}", path.display()))
    })
}

#[cfg(test)]
#[path = "place_test.rs"]
mod place_test;
