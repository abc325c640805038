//! A directory below the target folder that goes when its test is over, and stores in it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use tierstone_media::file::{FileBackend, FileStoreSettings, uring_refusal};

static NEXT: AtomicU32 = AtomicU32::new(0);

pub struct TemporaryDirectory {
    path: PathBuf,
}

impl TemporaryDirectory {
    pub fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("media-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).expect("a temporary directory is made");
        TemporaryDirectory { path }
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Small segments in one directory.
pub fn settings(directory: PathBuf, backend: FileBackend) -> FileStoreSettings {
    FileStoreSettings {
        segment_bytes: 128 << 10,
        segment_limit: 16,
        meta_bytes: 16 << 10,
        backend,
        ..FileStoreSettings::new(vec![directory])
    }
}

/// The back-ends that this kernel allows; says so where it allows only one.
pub fn backends() -> Vec<FileBackend> {
    match uring_refusal() {
        None => vec![FileBackend::Threads, FileBackend::IoUring],
        Some(reason) => {
            println!("SKIP: tests of files through io_uring (the kernel refuses it: {reason})");
            vec![FileBackend::Threads]
        }
    }
}
