//! A store of its own for measuring, removed when dropped.

use crate::file::{DurableMethod, FileDevice, FileStore, FileStoreSettings};
use crate::{BlockDevice, DeviceError, IoKind, IoRequest, Wait};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use tierstone_base::{Error, Result};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A temporary store inside a directory.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// Always there until drop.
    store: Option<FileStore>,
}

impl Scratch {
    /// A store below `directory` with segments of `segment_bytes`.
    pub fn new(directory: &Path, segment_bytes: u64, segment_limit: u32) -> Result<Scratch> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("tierstone-probe-{}-{number}", std::process::id()));
        // The directory itself is not made: a measurement of a missing place is a mistake.
        std::fs::create_dir(&path)
            .map_err(|error| Error::from(error).context(&format!("cannot make {}", path.display())))?;
        let settings = FileStoreSettings {
            segment_bytes,
            segment_limit,
            meta_bytes: 8192,
            ..FileStoreSettings::new(vec![path.clone()])
        };
        // Made before the store is opened, so that it is removed when opening fails.
        let mut scratch = Scratch { path, store: None };
        scratch.store = Some(FileStore::open(&settings)?);
        Ok(scratch)
    }

    pub fn store(&self) -> &FileStore {
        match &self.store {
            Some(store) => store,
            None => unreachable!("the store in {} is opened with it", self.path.display()),
        }
    }

    pub fn device(&self, method: DurableMethod) -> Result<FileDevice> {
        self.store().device(method)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.store = None;
        // What cannot be removed is named so that its owner can see what it is.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Does one request and waits for it.
pub(super) fn one(device: &mut FileDevice, request: IoRequest) -> std::result::Result<(), DeviceError> {
    let mut completions = Vec::new();
    device.submit(&mut vec![request]);
    device.complete(Wait::All, &mut completions);
    completions.into_iter().try_for_each(|done| done.result)
}

/// Prepares segment `segment`.
pub(super) fn prepare(device: &mut FileDevice, segment: u32) -> std::result::Result<(), DeviceError> {
    let geometry = device.geometry();
    let kind = IoKind::Prepare { len: geometry.segment_bytes };
    one(device, IoRequest { token: 0, kind, offset: geometry.segment_offset(segment), buffer: None })
}
