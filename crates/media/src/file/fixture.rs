//! For tests: a small store in a directory that goes with it, and the back-ends that can be tested.

use super::{FileBackend, FileStore, FileStoreSettings, uring_refusal};
use std::path::PathBuf;

pub(super) struct Fixture {
    pub path: PathBuf,
    pub store: FileStore,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

pub(super) fn fixture(name: &str, backend: FileBackend) -> Fixture {
    let path = std::env::temp_dir().join(format!("tierstone-{name}-{backend:?}-{}", std::process::id()));
    let settings = FileStoreSettings {
        segment_bytes: 64 << 10,
        segment_limit: 8,
        backend,
        ..FileStoreSettings::new(vec![path.clone()])
    };
    let store = FileStore::open(&settings).expect("a new store opens");
    Fixture { path, store }
}

/// The back-ends that this kernel allows; says so where it allows only one.
pub(super) fn backends() -> Vec<FileBackend> {
    match uring_refusal() {
        None => vec![FileBackend::Threads, FileBackend::IoUring],
        Some(reason) => {
            println!("SKIP: tests of files through io_uring (the kernel refuses it: {reason})");
            vec![FileBackend::Threads]
        }
    }
}
