//! A backup in a directory, or in one stream: writing it down, reading it back.
//!
//! A directory holds two files: the frames as they came, and the manifest. A stream is both, one behind the other.
//!
//! What a crash leaves: without the manifest, no backup. It gets its name when its bytes, and the file with the
//! frames, are durable.

use super::{BackupProgress, BackupReport};
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_store::backup::{BackupReader, FrameHeader, HEADER_BYTES, Taken};

const FRAMES_FILE: &str = "backup.frames";
const MANIFEST_FILE: &str = "backup.manifest";
const NEW_MANIFEST_FILE: &str = "backup.manifest.new";

/// Bytes of frames after which the file is made durable: a disk that has all of it to write at once makes others wait.
const SYNC_BYTES: usize = 16 << 20;

/// Writes a backup down, frame by frame. Each is checked before it is written.
pub struct BackupWriter {
    reader: BackupReader,
    target: Target,
}

enum Target {
    Directory { path: PathBuf, frames: BufWriter<File>, unsynced_bytes: usize },
    Stream(Box<dyn Write + Send>),
}

impl std::fmt::Debug for BackupWriter {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("BackupWriter").field("reader", &self.reader).finish_non_exhaustive()
    }
}

impl BackupWriter {
    /// Into `directory`, which is made if there is none.
    ///
    /// # Errors
    /// `InvalidInput`: there is a backup in it, whole or not. Others: what the file system says.
    pub fn create(directory: impl AsRef<Path>) -> Result<BackupWriter> {
        let path = directory.as_ref().to_path_buf();
        std::fs::create_dir_all(&path)?;
        if [FRAMES_FILE, MANIFEST_FILE].iter().any(|name| path.join(name).exists()) {
            let message = format!("there is a backup in {} already, or a part of one", path.display());
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        let frames = File::options().write(true).create_new(true).open(path.join(FRAMES_FILE))?;
        let target = Target::Directory { path, frames: BufWriter::new(frames), unsynced_bytes: 0 };
        Ok(BackupWriter { reader: BackupReader::default(), target })
    }

    /// Into `stream`. That it is durable is the caller's to see to.
    pub fn stream(stream: impl Write + Send + 'static) -> BackupWriter {
        BackupWriter { reader: BackupReader::default(), target: Target::Stream(Box::new(stream)) }
    }

    /// Writes the next frame.
    ///
    /// # Errors
    /// `Corrupt`: it is not whole, or not the one that follows. Others: what the file system says.
    pub fn frame(&mut self, frame: &[u8]) -> Result<()> {
        self.reader.take_whole(frame)?;
        match &mut self.target {
            Target::Directory { frames, unsynced_bytes, .. } => {
                frames.write_all(frame)?;
                *unsynced_bytes += frame.len();
                if *unsynced_bytes >= SYNC_BYTES {
                    *unsynced_bytes = 0;
                    frames.flush()?;
                    frames.get_ref().sync_data()?;
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
            Target::Stream(stream) => {
                stream.write_all(&manifest)?;
                stream.flush()?;
            }
            Target::Directory { path, frames, .. } => {
                frames.flush()?;
                frames.get_ref().sync_all()?;
                // crash here [backup_without_manifest]: there is no manifest, and so no backup.
                let new = path.join(NEW_MANIFEST_FILE);
                let mut file = File::create(&new)?;
                file.write_all(&manifest)?;
                file.sync_all()?;
                std::fs::rename(&new, path.join(MANIFEST_FILE))?;
                File::open(&*path)?.sync_all()?;
            }
        }
        self.reader.take_whole(&manifest)?;
        Ok(BackupReport::of(&self.reader))
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

/// Checks every byte of the backup at `path`, a directory or a file that has a stream, without making a store of it.
///
/// # Errors
/// `Corrupt`: it is damaged, or not complete. `Incompatible`: a newer program made it. `InvalidInput`: there is none.
pub fn verify_backup(
    path: impl AsRef<Path>,
    progress: &mut dyn FnMut(BackupProgress),
) -> Result<BackupReport> {
    verify_backup_stream(&mut *open(path.as_ref())?, progress)
}

/// The same of one that comes as a stream.
///
/// # Errors
/// As [`verify_backup`].
pub fn verify_backup_stream(
    source: &mut dyn Read,
    progress: &mut dyn FnMut(BackupProgress),
) -> Result<BackupReport> {
    let reader = read(source, |reader, _| {
        progress(BackupProgress::of(reader));
        Ok(())
    })?;
    Ok(BackupReport::of(&reader))
}
