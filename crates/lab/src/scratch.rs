//! The temporary folder of a run.
//!
//! A crash may leave `tierstone-lab-*` behind; it can be deleted at any time.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use tierstone_base::units::format_size;
use tierstone_base::{Error, ErrorKind, Result};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A folder of its own, removed with everything in it when dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A folder below `directory`, on a disk with `needed_bytes` free.
    ///
    /// # Errors
    /// `InvalidInput` when there is no such directory: a name that is wrong would measure another disk than was meant;
    /// `NoSpace` when there is less; others when the folder cannot be made.
    pub fn new(directory: &Path, needed_bytes: u64) -> Result<Scratch> {
        let doing = |what: &str| format!("cannot {what} {}", directory.display());
        refuse_missing(directory)?;
        let disk = rustix::fs::statvfs(directory)
            .map_err(|error| Error::from(std::io::Error::from(error)).context(&doing("look at")))?;
        let free_bytes = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free_bytes < needed_bytes {
            let message = format!(
                "the run needs {} in {}, where {} are free: name another place with --data",
                format_size(needed_bytes),
                directory.display(),
                format_size(free_bytes)
            );
            return Err(Error::new(ErrorKind::NoSpace, message));
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("tierstone-lab-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| Error::from(error).context(&doing("make a folder in")))?;
        Ok(Scratch { path })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Refuses what is no directory.
pub(crate) fn refuse_missing(directory: &Path) -> Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let message =
        format!("there is no directory {}: make it, or name another one with --data", directory.display());
    Err(Error::new(ErrorKind::InvalidInput, message))
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed is named so that its owner can see what it is.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_contents_and_a_full_disk_is_told_before() {
        let parent = std::env::temp_dir();
        let scratch = Scratch::new(&parent, 0).unwrap();
        let path = scratch.path().to_owned();
        std::fs::write(path.join("file"), b"content").unwrap();
        drop(scratch);
        assert!(!path.exists());
        assert_eq!(Scratch::new(&parent, u64::MAX).unwrap_err().kind(), ErrorKind::NoSpace);
    }

    #[test]
    fn a_directory_that_is_not_there_is_refused_and_not_made() {
        let parent = Scratch::new(&std::env::temp_dir(), 0).unwrap();
        let (missing, file) = (parent.path().join("missing"), parent.path().join("file"));
        std::fs::write(&file, b"content").unwrap();
        for wrong in [&missing, &file] {
            let error = Scratch::new(wrong, 0).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.message().contains("there is no directory"), "{error}");
        }
        assert!(!missing.exists());
    }
}
