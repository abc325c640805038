//! What a file store is opened with: plain data.

use crate::BLOCK_BYTES;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tierstone_base::{Error, ErrorKind, Result};

/// Which back-end drives the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileBackend {
    /// io_uring where the kernel allows it, threads elsewhere.
    #[default]
    Auto,
    /// io_uring, or an error.
    IoUring,
    /// A small pool of threads a handle. More CPU a request; works everywhere.
    Threads,
}

/// Whether files bypass the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectIo {
    /// Where the file system allows it.
    #[default]
    Auto,
    /// Always, or an error.
    On,
    /// Never: the page cache holds a second copy of what the store caches itself.
    Off,
}

/// How a durable write is made durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DurableMethod {
    /// One write with `RWF_DSYNC`: forced unit access where the device has it, a flush elsewhere.
    #[default]
    DurableWrite,
    /// A write, then `fdatasync` of its file.
    WriteThenFlush,
}

impl DurableMethod {
    /// Its name in settings and reports.
    pub fn name(self) -> &'static str {
        match self {
            DurableMethod::DurableWrite => "durable-write",
            DurableMethod::WriteThenFlush => "write-then-flush",
        }
    }

    /// What it does, for a person.
    pub fn text(self) -> &'static str {
        match self {
            DurableMethod::DurableWrite => "durable write (RWF_DSYNC)",
            DurableMethod::WriteThenFlush => "write and flush (fdatasync)",
        }
    }
}

/// How to open or create a [`crate::file::FileStore`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStoreSettings {
    /// One or several directories, at best one a disk. Segments are spread over them by free space.
    /// A later open may name them in another order, and may add new ones when `create` is set.
    pub directories: Vec<PathBuf>,
    /// Size of a segment and of its file in bytes: whole blocks, 64 KiB to 16 GiB. Large segments
    /// mean fewer files and longer steps of cleaning. Fixed when the store is created; an existing
    /// store keeps its own.
    pub segment_bytes: u64,
    /// The highest number of segments, 1 to 2^32 - 1: the end of the device's space.
    pub segment_limit: u32,
    /// How many bytes of segment files may exist at the same time; beyond it writes to new
    /// segments fail as on a full disk. `None`: what the disks hold.
    pub capacity_bytes: Option<u64>,
    /// Size of the superblock area in bytes: whole blocks, at least two, at most 1 GiB. Fixed when
    /// the store is created; an existing store keeps its own.
    pub meta_bytes: u64,
    /// Which back-end drives the files.
    pub backend: FileBackend,
    /// Whether files bypass the page cache.
    pub direct_io: DirectIo,
    /// Requests that the kernel (or the pool: threads, at most 64) works on at the same time for
    /// one handle, 1 to 4096. More requests may be submitted; they wait.
    pub queue_depth: u32,
    /// Whether to create the store, or to add directories to it, when there is none yet.
    pub create: bool,
}

impl FileStoreSettings {
    /// Segments of 64 MiB, at most 16 TiB of them, in `directories`; created when missing.
    pub fn new(directories: Vec<PathBuf>) -> Self {
        FileStoreSettings {
            directories,
            segment_bytes: 64 << 20,
            segment_limit: 1 << 18,
            capacity_bytes: None,
            meta_bytes: 64 << 10,
            backend: FileBackend::Auto,
            direct_io: DirectIo::Auto,
            queue_depth: 128,
            create: true,
        }
    }

    /// # Errors
    /// [`ErrorKind::InvalidInput`] that names the setting and its range.
    pub fn check(&self) -> Result<()> {
        let blocks = |bytes: u64| bytes.is_multiple_of(BLOCK_BYTES as u64);
        let wrong = if self.directories.is_empty() || self.directories.len() > 1024 {
            "directories: name 1 to 1024 of them"
        } else if !blocks(self.segment_bytes) || !(64 << 10..=16 << 30).contains(&self.segment_bytes) {
            "segment_bytes: whole blocks of 4096 bytes, 64 KiB to 16 GiB"
        } else if self.segment_limit == 0 || self.segment_limit == u32::MAX {
            "segment_limit: 1 to 4294967294"
        } else if !blocks(self.meta_bytes) || !(8192..=1 << 30).contains(&self.meta_bytes) {
            "meta_bytes: whole blocks of 4096 bytes, 8 KiB to 1 GiB"
        } else if !(1..=4096).contains(&self.queue_depth) {
            "queue_depth: 1 to 4096"
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::InvalidInput, wrong))
    }
}
