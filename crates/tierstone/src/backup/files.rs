//! The files of a backup in a directory, as the steps that make them durable.
//!
//! The writer gives the order of the steps ([`super::directory`]); what each of them promises is written here. Tests put
//! files in their place that lose power. A backup holds everything: only the owner reads what is made for it.

use super::directory::{FRAMES_FILE, MANIFEST_FILE, NEW_MANIFEST_FILE};
use crate::replace::create_private;
use std::fs::{DirBuilder, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tierstone_base::{Error, ErrorKind, Result};

/// The steps. Until one says that something is durable, a loss of power may take it back, or leave a part of it.
pub(super) trait BackupFiles {
    /// Appends to the file with the frames.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;

    /// What was appended is durable, but for the file's name.
    fn sync_frames(&mut self) -> Result<()>;

    /// Writes the manifest beside its name.
    fn write_manifest(&mut self, bytes: &[u8]) -> Result<()>;

    /// What was written of it is durable.
    fn sync_manifest(&mut self) -> Result<()>;

    /// Gives the manifest its name, at once or not at all.
    fn name_manifest(&mut self) -> Result<()>;

    /// The names in the directory are durable.
    fn sync_names(&mut self) -> Result<()>;

    /// The directory's own name is, and those of the directories that were made for it.
    fn sync_place(&mut self) -> Result<()>;
}

/// Files of the file system.
#[derive(Debug)]
pub(super) struct DirectoryFiles {
    path: PathBuf,
    /// Directories that got a name with this one: the one that holds it, and those above that were made too.
    holders: Vec<PathBuf>,
    frames: BufWriter<File>,
}

impl DirectoryFiles {
    /// Refuses `path` for a new backup if there is one.
    ///
    /// # Errors
    /// `InvalidInput`: there is a backup in it, whole or not.
    pub fn check_new(path: &Path) -> Result<()> {
        if [FRAMES_FILE, MANIFEST_FILE].iter().any(|name| path.join(name).exists()) {
            let message = format!("there is a backup in {} already, or a part of one", path.display());
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        Ok(())
    }

    /// In `path`, which is made if there is none, as are the directories above it; those that are there keep their rights.
    ///
    /// # Errors
    /// `InvalidInput`: there is a backup in it, whole or not. Others: what the file system says.
    pub fn create(path: &Path) -> Result<DirectoryFiles> {
        let is_there = |path: &&Path| path.as_os_str().is_empty() || path.exists();
        let made: Vec<&Path> = path.ancestors().take_while(|path| !is_there(path)).collect();
        let holder_of = |path: &Path| match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let holders = made.into_iter().map(holder_of).collect();
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        Self::check_new(path)?;
        let mut options = File::options();
        let frames = options.write(true).create_new(true).mode(0o600).open(path.join(FRAMES_FILE))?;
        Ok(DirectoryFiles { path: path.to_path_buf(), holders, frames: BufWriter::new(frames) })
    }
}

impl BackupFiles for DirectoryFiles {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.frames.write_all(bytes)?)
    }

    fn sync_frames(&mut self) -> Result<()> {
        self.frames.flush()?;
        Ok(self.frames.get_ref().sync_all()?)
    }

    fn write_manifest(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(create_private(&self.path.join(NEW_MANIFEST_FILE))?.write_all(bytes)?)
    }

    fn sync_manifest(&mut self) -> Result<()> {
        Ok(File::open(self.path.join(NEW_MANIFEST_FILE))?.sync_all()?)
    }

    fn name_manifest(&mut self) -> Result<()> {
        Ok(std::fs::rename(self.path.join(NEW_MANIFEST_FILE), self.path.join(MANIFEST_FILE))?)
    }

    fn sync_names(&mut self) -> Result<()> {
        Ok(File::open(&self.path)?.sync_all()?)
    }

    fn sync_place(&mut self) -> Result<()> {
        self.holders.iter().try_for_each(|holder| Ok(File::open(holder)?.sync_all()?))
    }
}

#[cfg(test)]
#[path = "files_test.rs"]
mod files_test;
