//! The marker of one directory of a store: the small text file `member.tier`.
//!
//! Invariants:
//! 1. The marker of member 0 is the truth about the whole store: how many members it has, how many
//!    of them are ready, and the geometry. The others say only which store and place they belong to.
//! 2. A directory without a marker is taken as member `n` only while `n >= ready`: an empty mount
//!    point can never stand in for a disk that once held data.
//!
//! Crash: a marker is written beside its place, made durable, then renamed over it, so that it is
//! whole, old or new. A store is created, and grows by directories, in three steps: member 0 names
//! the new count, the others are marked, member 0 says that they are ready. After a crash between
//! them the next open does the rest.

use rustix::fs::fsync;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use tierstone_base::checksum::checksum;
use tierstone_base::{Error, ErrorKind, Result};

/// The marker's name in its directory.
pub(crate) const MARKER_NAME: &str = "member.tier";

/// Who may read and write the files of a store: their owner. Whoever can open its `lock` can lock it.
pub(crate) const FILE_MODE: u32 = 0o600;
/// Who may look into a directory that is made for a store: its owner. One that is there stays as it is.
pub(crate) const DIRECTORY_MODE: u32 = 0o700;

const TITLE: &str = "tierstone member, format 1";
/// The longest marker that is read; a real one has about 160 bytes.
const LONGEST_BYTES: usize = 4096;

/// What a marker says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Marker {
    /// Drawn at random when the store was created.
    pub store: u64,
    /// The directory's place in the store, from zero.
    pub index: u16,
    /// How many directories the store has.
    pub members: u16,
    /// How many of them have been marked and may hold data.
    pub ready: u16,
    /// The size of a segment file in bytes.
    pub segment_bytes: u64,
    /// The size of the superblock file in bytes.
    pub meta_bytes: u64,
}

impl Marker {
    /// The marker as text, with a checksum line at its end.
    pub fn encode(&self) -> String {
        let body = format!(
            "{TITLE}\nstore {:016x}\nindex {}\nmembers {}\nready {}\nsegment_bytes {}\nmeta_bytes {}\n",
            self.store, self.index, self.members, self.ready, self.segment_bytes, self.meta_bytes
        );
        let sum = checksum(0, body.as_bytes());
        format!("{body}checksum {sum:016x}\n")
    }

    /// Reads what [`Marker::encode`] wrote; anything else is refused with the reason.
    pub fn decode(bytes: &[u8]) -> std::result::Result<Marker, &'static str> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not text")?;
        let (body, sum) = text.rsplit_once("checksum ").ok_or("it has no checksum line")?;
        if !body.starts_with(TITLE) {
            return Err("it is no marker of this format");
        }
        let sum = u64::from_str_radix(sum.trim_end(), 16).map_err(|_| "its checksum is no number")?;
        if sum != checksum(0, body.as_bytes()) {
            return Err("its checksum does not fit its text");
        }
        let mut lines = body.lines().skip(1);
        let mut field = |name: &str, radix: u32| {
            let line = lines.next()?.strip_prefix(name)?.strip_prefix(' ')?;
            u64::from_str_radix(line, radix).ok()
        };
        let mut decoded = || {
            Some(Marker {
                store: field("store", 16)?,
                index: field("index", 10)?.try_into().ok()?,
                members: field("members", 10)?.try_into().ok()?,
                ready: field("ready", 10)?.try_into().ok()?,
                segment_bytes: field("segment_bytes", 10)?,
                meta_bytes: field("meta_bytes", 10)?,
            })
        };
        let marker = decoded().ok_or("a line is missing or wrong")?;
        if marker.index >= marker.members || marker.ready > marker.members {
            return Err("its numbers contradict each other");
        }
        Ok(marker)
    }

    /// What holds of a marker whatever bytes it is read from: reading never panics, and what can be read
    /// comes back when it is written and read again.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn check(data: &[u8]) {
        // With the checksum that fits, so that what is behind it is read too.
        let summed = |body: &[u8]| {
            let sum = checksum(0, body);
            [body, format!("checksum {sum:016x}\n").as_bytes()].concat()
        };
        let titled = [format!("{TITLE}\n").as_bytes(), data].concat();
        for bytes in [data.to_vec(), summed(data), summed(&titled)] {
            if let Ok(marker) = Marker::decode(&bytes) {
                assert!(marker.index < marker.members && marker.ready <= marker.members);
                assert_eq!(Marker::decode(marker.encode().as_bytes()), Ok(marker));
            }
        }
    }

    /// The marker of `directory`; `None` when there is none.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] when there is one that cannot be understood; [`ErrorKind::InvalidInput`] when it is no directory.
    pub fn read(directory: &Path) -> Result<Option<Marker>> {
        let path = directory.join(MARKER_NAME);
        let bytes = match std::fs::metadata(&path).map(|metadata| metadata.len()) {
            Ok(length) if length > LONGEST_BYTES as u64 => vec![0; 1],
            Ok(_) => std::fs::read(&path).map_err(|error| at(error, "cannot read", &path))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
                return Err(no_directory(directory));
            }
            Err(error) => return Err(at(error, "cannot read", &path)),
        };
        match Marker::decode(&bytes) {
            Ok(marker) => Ok(Some(marker)),
            Err(reason) => Err(Error::new(
                ErrorKind::Corrupt,
                format!("the marker {} is damaged: {reason}; restore it from a backup", path.display()),
            )),
        }
    }

    /// Puts the marker into `directory`, whole and durable.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let path = directory.join(MARKER_NAME);
        let fresh = directory.join("member.tier.new");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(FILE_MODE);
        let written = options.open(&fresh).and_then(|mut file| {
            file.write_all(self.encode().as_bytes())?;
            file.sync_all()
        });
        written.map_err(|error| at(error, "cannot write", &fresh))?;
        std::fs::rename(&fresh, &path).map_err(|error| at(error, "cannot put in place", &path))?;
        sync_directory(directory)
    }
}

/// Makes the names in `directory` durable.
pub(crate) fn sync_directory(directory: &Path) -> Result<()> {
    File::open(directory)
        .and_then(|opened| Ok(fsync(&opened)?))
        .map_err(|error| at(error, "cannot make the names durable in", directory))
}

/// Makes the name of `path` itself durable, in the directory above it. Nothing where that cannot be read or written, or
/// knows no flush: then the name was made by others.
pub(crate) fn sync_parent(path: &Path) -> std::io::Result<()> {
    use std::io::ErrorKind::{InvalidInput, PermissionDenied, ReadOnlyFilesystem};
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match File::open(parent).and_then(|opened| opened.sync_all()) {
        Err(error) if matches!(error.kind(), InvalidInput | PermissionDenied | ReadOnlyFilesystem) => Ok(()),
        flushed => flushed,
    }
}

/// What is wrong with a directory that is none, or would lie below something that is none.
pub(crate) fn no_directory(directory: &Path) -> Error {
    let file = directory.ancestors().find(|path| path.symlink_metadata().is_ok()).unwrap_or(directory);
    let message = format!("{} is no directory: the data of a store lie in directories", file.display());
    Error::new(ErrorKind::InvalidInput, message)
}

/// An input/output error with what was being done, and to what.
pub(crate) fn at(error: impl Into<std::io::Error>, doing: &str, path: &Path) -> Error {
    Error::from(error.into()).context(&format!("{doing} {}", path.display()))
}

#[cfg(test)]
#[path = "marker_test.rs"]
mod marker_test;
