//! Stores in directories that go when their test is over.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use tierstone::DatabaseOptions;
use tierstone_media::file::{DurableMethod, FileBackend, uring_refusal};

static NEXT: AtomicU32 = AtomicU32::new(0);

pub struct TemporaryDirectory {
    path: PathBuf,
}

impl TemporaryDirectory {
    pub fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tierstone-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).unwrap();
        TemporaryDirectory { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A small store in this directory.
    pub fn options(&self, backend: FileBackend) -> DatabaseOptions {
        DatabaseOptions {
            segment_bytes: Some(256 << 10),
            capacity_bytes: Some(64 << 20),
            memory_bytes: 4 << 20,
            durable_method: Some(DurableMethod::DurableWrite),
            backend,
            ..DatabaseOptions::new(self.path.join("store"))
        }
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// The back-ends that this kernel allows; says so where it allows only one.
pub fn backends() -> Vec<FileBackend> {
    match uring_refusal() {
        None => vec![FileBackend::Threads, FileBackend::IoUring],
        Some(reason) => {
            println!("SKIP on io_uring: the kernel refuses it: {reason}");
            vec![FileBackend::Threads]
        }
    }
}
