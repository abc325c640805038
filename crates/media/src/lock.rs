//! Locks on whole files, so that one process at a time uses what lies in them.
//!
//! Invariant: the lock ends with its holder. Closing the file would not do: a child process that was just made holds the
//! same lock until it has become another program, and an opening in that moment would find the store in use. A copy of the
//! holder in a process that was forked ends nothing.

use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};

/// A file whose lock is held.
#[derive(Debug)]
pub(crate) struct LockedFile {
    file: File,
    /// The process that took the lock: a copy of it ends nothing.
    owner: u32,
}

impl LockedFile {
    /// Locks `file`, if nobody else has it locked; gives it back, with `None` for the error, where somebody has.
    ///
    /// # Errors
    /// The second: what the system says where locks cannot be had.
    pub fn lock(file: File) -> Result<LockedFile, (File, Option<io::Error>)> {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(LockedFile { file, owner: std::process::id() }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err((file, None)),
            Err(error) => Err((file, Some(error.into()))),
        }
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl DerefMut for LockedFile {
    fn deref_mut(&mut self) -> &mut File {
        &mut self.file
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        if self.owner == std::process::id() {
            // Where it fails the closing that follows ends the lock, or the end of the process.
            let _ = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("tierstone-lock-{name}-{}", std::process::id()))
    }

    fn open(path: &Path) -> File {
        File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
    }

    #[test]
    fn a_lock_ends_with_its_holder_although_a_copy_of_the_file_is_open_elsewhere() {
        let path = path("holder");
        let held = LockedFile::lock(open(&path)).unwrap();
        assert!(LockedFile::lock(open(&path)).is_err_and(|(_, error)| error.is_none()), "locked twice");
        // As a child process has it between its making and its program.
        let copy = held.try_clone().unwrap();
        drop(held);
        let again = LockedFile::lock(open(&path)).unwrap();
        drop(copy);
        assert!(LockedFile::lock(open(&path)).is_err(), "what holds no lock took one away");
        drop(again);
        std::fs::remove_file(&path).unwrap();
    }
    #[test]
    fn a_copy_of_the_holder_in_another_process_ends_no_lock() {
        let path = path("copy");
        let mut inherited = LockedFile::lock(open(&path)).unwrap();
        let kept = inherited.try_clone().unwrap();
        inherited.owner += 1;
        drop(inherited);
        assert!(LockedFile::lock(open(&path)).is_err(), "a copy has ended the lock of its original");
        drop(kept);
        LockedFile::lock(open(&path)).unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
