//! Open files of a store, and which of them hold writes that no flush covers yet.
//!
//! Invariants:
//! 1. A plain write counts as dirty before its completion is handed to the caller, so that a flush
//!    submitted afterwards, by any handle, finds its file.
//! 2. A file leaves the list only when a flush that began after its last write has succeeded: two
//!    handles that flush at the same time both do the work.
//! 3. After one failed flush or durable write every later one fails with the same error. The
//!    kernel reports such a failure once and drops the pages; asking again would prove nothing.

use super::plan::Place;
use crate::{DeviceError, DeviceErrorKind};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// One open file. It stays open until the last request that uses it is done, even if discarded.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub place: Place,
    pub file: File,
    /// Plain writes that have completed.
    written: AtomicU64,
    /// The value of `written` that the last successful flush covers.
    flushed: AtomicU64,
    /// Whether the file is in the list of dirty files.
    listed: AtomicBool,
    /// Set when the file has lost its name: whoever still holds it must look the segment up again.
    discarded: AtomicBool,
}

impl SegmentFile {
    pub fn new(place: Place, file: File) -> Arc<Self> {
        Arc::new(SegmentFile {
            place,
            file,
            written: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            listed: AtomicBool::new(false),
            discarded: AtomicBool::new(false),
        })
    }

    pub fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    pub fn is_discarded(&self) -> bool {
        self.discarded.load(SeqCst)
    }

    pub fn set_discarded(&self) {
        self.discarded.store(true, SeqCst);
    }

    /// The error that `errno` stands for, with what was being done to this file, and where.
    pub fn error(&self, errno: i32, doing: &str, offset: u64) -> DeviceError {
        let cause = std::io::Error::from_raw_os_error(errno);
        DeviceError::new(kind_of(errno), format!("cannot {doing} {} at {offset}: {cause}", self.place))
    }
}

/// What the operating system's error number means for the caller of a device.
pub(crate) fn kind_of(errno: i32) -> DeviceErrorKind {
    match errno {
        // No room on the file system, for this user, or for files of this length.
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => DeviceErrorKind::Full,
        _ => DeviceErrorKind::Failed,
    }
}

/// Takes a lock; a panic elsewhere leaves these tables whole, because each change is one step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a file that lives is known by.
fn address(file: &Arc<SegmentFile>) -> usize {
    Arc::as_ptr(file).addr()
}

/// The files with writes that no flush covers, and whether a flush has ever failed.
#[derive(Debug, Default)]
pub(crate) struct Durability {
    /// By their addresses: after an opening every file of the store is here, and each that is flushed is taken out.
    dirty: Mutex<BTreeMap<usize, Arc<SegmentFile>>>,
    failure: OnceLock<DeviceError>,
}

/// A file to flush, and the writes that a flush begun now will cover.
#[derive(Debug)]
pub(crate) struct FlushTask {
    pub file: Arc<SegmentFile>,
    pub covers: u64,
}

impl Durability {
    /// Notes that a plain write to `file` has completed. Cost: two atomic operations when the file
    /// is dirty already.
    pub fn written(&self, file: &Arc<SegmentFile>) {
        file.written.fetch_add(1, SeqCst);
        if !file.listed.swap(true, SeqCst) {
            lock(&self.dirty).insert(address(file), file.clone());
        }
    }

    /// What a flush has to do.
    pub fn flush_tasks(&self) -> Vec<FlushTask> {
        let dirty = lock(&self.dirty);
        let task = |file: &Arc<SegmentFile>| {
            let covers = file.written.load(SeqCst);
            (covers > file.flushed.load(SeqCst)).then(|| FlushTask { file: file.clone(), covers })
        };
        dirty.values().filter_map(task).collect()
    }

    /// Notes that `file` has been flushed up to `covers`.
    pub fn flushed(&self, file: &Arc<SegmentFile>, covers: u64) {
        file.flushed.fetch_max(covers, SeqCst);
        let mut dirty = lock(&self.dirty);
        if dirty.remove(&address(file)).is_none() {
            return;
        }
        // Unlist first, look second: a write between the two lists the file again by itself.
        file.listed.store(false, SeqCst);
        if file.written.load(SeqCst) > file.flushed.load(SeqCst) && !file.listed.swap(true, SeqCst) {
            dirty.insert(address(file), file.clone());
        }
    }

    /// Forgets a file that is gone.
    pub fn forget(&self, file: &Arc<SegmentFile>) {
        lock(&self.dirty).remove(&address(file));
    }

    /// Notes that durability can no longer be promised, if `error` means that.
    pub fn note_failure(&self, error: &DeviceError) {
        if error.kind == DeviceErrorKind::Failed {
            let detail = format!("an earlier flush or durable write failed: {}", error.detail);
            // The first cause stays.
            let _ = self.failure.set(DeviceError::new(DeviceErrorKind::Failed, detail));
        }
    }

    /// The failure after which nothing is durable any more.
    pub fn failure(&self) -> Option<&DeviceError> {
        self.failure.get()
    }
}

#[cfg(test)]
#[path = "segment_test.rs"]
mod segment_test;
