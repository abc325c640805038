//! A backup in a directory, or in one stream: writing it down, reading it back.
//!
//! A directory holds two files: the frames as they came, and the manifest. A stream is both, one behind the other.
//!
//! What a crash leaves: without the manifest, no backup. It gets its name when its bytes, and the file with the
//! frames, are durable.

use super::apart::check_apart_from_store;
use super::chain::{backup_base, find, read_chain};
use super::files::{BackupFiles, DirectoryFiles};
use super::{BackupProgress, BackupReport, keys_of};
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_store::backup::since::BackupBase;
use tierstone_store::backup::{BackupReader, FrameHeader, HEADER_BYTES, Taken};

pub(super) const FRAMES_FILE: &str = "backup.frames";
pub(super) const MANIFEST_FILE: &str = "backup.manifest";
pub(super) const NEW_MANIFEST_FILE: &str = "backup.manifest.new";

/// Bytes of frames after which the file is made durable: a disk that has all of it to write at once makes others wait.
const SYNC_BYTES: usize = 16 << 20;

/// Writes a backup down, frame by frame. Each is checked before it is written.
pub struct BackupWriter {
    reader: BackupReader,
    target: Target,
    base: Option<BackupBase>,
    /// Keys of users that have come.
    keys: u64,
}

enum Target {
    /// A directory in which nothing was made yet.
    New(PathBuf),
    Directory {
        files: Box<dyn BackupFiles + Send>,
        unsynced_bytes: usize,
    },
    Stream(Box<dyn Write + Send>),
}

impl Target {
    fn of(files: impl BackupFiles + Send + 'static) -> Target {
        Target::Directory { files: Box::new(files), unsynced_bytes: 0 }
    }
}

impl std::fmt::Debug for BackupWriter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("BackupWriter").field("reader", &self.reader).finish_non_exhaustive()
    }
}

impl BackupWriter {
    /// Into `directory`, which is made if there is none: with the first frame, so that a backup that is refused leaves nothing.
    ///
    /// # Errors
    /// `InvalidInput`: there is a backup in it, whole or not.
    pub fn create(directory: impl AsRef<Path>) -> Result<BackupWriter> {
        let path = directory.as_ref().to_path_buf();
        DirectoryFiles::check_new(&path)?;
        Ok(BackupWriter { reader: BackupReader::default(), target: Target::New(path), base: None, keys: 0 })
    }

    /// Into `files`, which are new.
    #[cfg(test)]
    pub(super) fn over(files: impl BackupFiles + Send + 'static) -> BackupWriter {
        let target = Target::of(files);
        BackupWriter { reader: BackupReader::default(), target, base: None, keys: 0 }
    }

    /// The same, made since `base`.
    pub(super) fn on(self, base: Option<BackupBase>) -> BackupWriter {
        BackupWriter { base, ..self }
    }

    /// Into `stream`. That it is durable is the caller's to see to.
    pub fn stream(stream: impl Write + Send + 'static) -> BackupWriter {
        let target = Target::Stream(Box::new(stream));
        BackupWriter { reader: BackupReader::default(), target, base: None, keys: 0 }
    }

    /// Into `directory`, which is made if there is none, and without what the backup in `base` holds: an
    /// earlier one of the same store, itself whole or made since another one. To be of use this one needs `base`, and
    /// all that it was made since.
    ///
    /// # Errors
    /// As [`BackupWriter::create`]. `InvalidInput`: there is no backup in `base`, or one since which none can be made.
    /// `Corrupt`: that one is damaged, or not complete.
    pub fn create_since(directory: impl AsRef<Path>, base: impl AsRef<Path>) -> Result<BackupWriter> {
        Self::create_on(directory, Some(backup_base(base)?))
    }

    /// The same with a base that was read before ([`backup_base`](super::backup_base)); without one, a whole one.
    ///
    /// # Errors
    /// As [`BackupWriter::create`].
    pub fn create_on(directory: impl AsRef<Path>, base: Option<BackupBase>) -> Result<BackupWriter> {
        Ok(Self::create(directory)?.on(base))
    }

    /// Refuses `directory` for a backup of the closed store in `store` (as in [`DatabaseOptions`](crate::DatabaseOptions)) if it is one of its places,
    /// lies in one or contains one. Nothing is changed.
    ///
    /// # Errors
    /// `InvalidInput`, with both paths.
    pub fn check_apart(directory: impl AsRef<Path>, store: &[PathBuf]) -> Result<()> {
        check_apart_from_store(store, &[directory.as_ref().to_path_buf()])
    }

    /// The backup since which this one is made.
    pub fn base(&self) -> Option<&BackupBase> {
        self.base.as_ref()
    }

    /// Writes the next frame.
    ///
    /// # Errors
    /// `Corrupt`: it is not whole, or not the one that follows. `InvalidInput`: it was not made since the base, or somebody
    /// has made a backup in the directory meanwhile. Others: what the file system says.
    pub fn frame(&mut self, frame: &[u8]) -> Result<()> {
        self.keys += keys_of(&self.reader.take_whole(frame)?);
        if self.reader.start().and_then(|start| start.base) != self.base.as_ref().map(|base| base.name) {
            let message = "what comes was not made since the backup that was named";
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        if let Target::New(path) = &self.target {
            let files = DirectoryFiles::create(path)
                .map_err(|error| error.context(&format!("make a backup in {}", path.display())))?;
            self.target = Target::of(files);
        }
        match &mut self.target {
            Target::New(_) => unreachable!("it was made just now"),
            Target::Directory { files, unsynced_bytes } => {
                files.append(frame)?;
                *unsynced_bytes += frame.len();
                if *unsynced_bytes >= SYNC_BYTES {
                    *unsynced_bytes = 0;
                    files.sync_frames()?;
                }
            }
            Target::Stream(stream) => stream.write_all(frame)?,
        }
        Ok(())
    }

    /// What was written so far.
    pub fn progress(&self) -> BackupProgress {
        BackupProgress::of(&self.reader)
    }

    /// What has come of each shard.
    pub fn totals(&self) -> &[tierstone_store::backup::ShardTotals] {
        self.reader.shards()
    }

    /// Everything has come: completes the backup, durably if it is in a directory.
    ///
    /// # Errors
    /// `InvalidInput`: nothing has come, or it is complete. Others: what the file system says.
    pub fn complete(&mut self) -> Result<BackupReport> {
        let manifest = self.reader.manifest()?;
        match &mut self.target {
            Target::New(_) => unreachable!("a manifest comes behind frames"),
            Target::Stream(stream) => {
                stream.write_all(&manifest)?;
                stream.flush()?;
            }
            Target::Directory { files, .. } => {
                files.sync_frames()?;
                // crash here [backup_without_manifest]: there is no manifest, and so no backup.
                files.write_manifest(&manifest)?;
                files.sync_manifest()?;
                files.name_manifest()?;
                files.sync_names()?;
                // crash here [backup_without_place]: the directory itself may be gone, and nobody was told of the backup.
                files.sync_place()?;
            }
        }
        self.reader.take_whole(&manifest)?;
        Ok(BackupReport::of(&self.reader, self.keys))
    }
}

/// The frames of the backup at `path`: a directory, or a file that has a stream.
pub(super) fn open(path: &Path) -> Result<Box<dyn Read>> {
    let of_file = |path: PathBuf| {
        File::open(&path).map_err(|error| Error::from(error).context(&path.display().to_string()))
    };
    if !path.is_dir() {
        return Ok(Box::new(BufReader::new(of_file(path.to_path_buf())?)));
    }
    let (frames, manifest) = (path.join(FRAMES_FILE), path.join(MANIFEST_FILE));
    if frames.exists() && !manifest.exists() {
        let message = format!(
            "the backup in {} is not complete: it has no manifest, so its making was broken off or goes on still",
            path.display()
        );
        return Err(Error::new(ErrorKind::Corrupt, message));
    }
    if !frames.exists() {
        let message = format!("there is no backup in {}", path.display());
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    Ok(Box::new(BufReader::new(of_file(frames)?).chain(of_file(manifest)?)))
}

/// Reads a backup to its end; `take` gets every frame that is whole, and what has come before and with it.
pub(super) fn read(
    source: &mut dyn Read,
    mut take: impl FnMut(&BackupReader, &Taken<'_>) -> Result<()>,
) -> Result<BackupReader> {
    let mut reader = BackupReader::default();
    let mut payload = Vec::new();
    loop {
        payload.clear();
        source.take(HEADER_BYTES as u64).read_to_end(&mut payload)?;
        if payload.is_empty() && reader.is_complete() {
            return Ok(reader);
        }
        let Ok(head) = <[u8; HEADER_BYTES]>::try_from(payload.as_slice()) else { return Err(too_short()) };
        let len = FrameHeader::decode(&head)?.len;
        payload.clear();
        source.take(len as u64).read_to_end(&mut payload)?;
        if payload.len() < len {
            return Err(too_short());
        }
        let taken = reader.take(&head, &payload)?;
        take(&reader, &taken)?;
    }
}

fn too_short() -> Error {
    Error::new(ErrorKind::Corrupt, "the backup ends too early: it is not complete")
}

/// Checks every byte of the backup at `path`, a directory or a file that has a stream, without making a store of it; and
/// of those that it was made since, which lie in directories beside it.
///
/// # Errors
/// `Corrupt`: it is damaged, or not complete, or one of those is. `Incompatible`: a newer program made it. `InvalidInput`:
/// there is none, or one is missing that it was made since.
pub fn verify_backup(
    path: impl AsRef<Path>,
    progress: &mut dyn FnMut(BackupProgress),
) -> Result<BackupReport> {
    verify_backup_with(path, &[], progress)
}

/// The same, where those that it was made since lie in directories among `bases`, or beside it.
///
/// # Errors
/// As [`verify_backup`].
pub fn verify_backup_with(
    path: impl AsRef<Path>,
    bases: &[PathBuf],
    progress: &mut dyn FnMut(BackupProgress),
) -> Result<BackupReport> {
    let path = path.as_ref();
    if !is_since(path)? {
        return verify_backup_stream(&mut *open(path)?, progress);
    }
    read_chain(&find(path, bases)?, progress, |_| Ok(()))
}

/// Whether the backup at `path` was made since another one.
pub(super) fn is_since(path: &Path) -> Result<bool> {
    let mut source = open(path)?;
    let mut payload = Vec::new();
    source.by_ref().take(HEADER_BYTES as u64).read_to_end(&mut payload)?;
    let Ok(head) = <[u8; HEADER_BYTES]>::try_from(payload.as_slice()) else { return Err(too_short()) };
    let len = FrameHeader::decode(&head)?.len;
    payload.clear();
    source.take(len as u64).read_to_end(&mut payload)?;
    let mut reader = BackupReader::default();
    reader.take(&head, &payload)?;
    Ok(reader.start().is_some_and(|start| start.base.is_some()))
}

/// The same of one that comes as a stream.
///
/// # Errors
/// As [`verify_backup`]; `InvalidInput`: it was made since another one, which a stream does not have.
pub fn verify_backup_stream(
    source: &mut dyn Read,
    progress: &mut dyn FnMut(BackupProgress),
) -> Result<BackupReport> {
    let mut keys = 0;
    let reader = read(source, |reader, taken| {
        progress(BackupProgress::of(reader));
        keys += keys_of(taken);
        check_alone(reader)
    })?;
    Ok(BackupReport::of(&reader, keys))
}

/// A backup that is read alone is a whole one.
pub(super) fn check_alone(reader: &BackupReader) -> Result<()> {
    match reader.start().and_then(|start| start.base) {
        Some(base) => {
            let message = format!(
                "the backup was made since the one with the id {:016x}: it is read from its directory, together with that",
                base.id
            );
            Err(Error::new(ErrorKind::InvalidInput, message))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "directory_test.rs"]
mod directory_test;
