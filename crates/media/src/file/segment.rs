//! Open files of a store, and which of them hold writes that no flush covers yet.
//!
//! Invariants:
//! 1. A plain write counts as dirty before its completion is handed to the caller, so that a flush
//!    submitted afterwards, by any handle, finds its file.
//! 2. A file leaves the list only when a flush that began after its last write has succeeded: two
//!    handles that flush at the same time both do the work.
//! 3. After one failed flush or durable write every later one fails with the same error. The
//!    kernel reports such a failure once and drops the pages; asking again would prove nothing.
//! 4. Nor does what another call was told at the same time: of calls on one open file the kernel tells one. So a flush
//!    that has ended well is answered so only after those that were under way beside it have noted what they were told
//!    ([`Reports`]), as far as threads make them. A ring looks for failures that are noted when it hands its answers
//!    back; one that another ring has not looked up yet is not known to it.

use super::plan::Place;
use crate::{DeviceError, DeviceErrorKind, IoCompletion, IoKind};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

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
    pub reports: Reports,
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
            reports: Reports::default(),
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

/// Calls under way that the kernel may tell that bytes of an open file are lost: it tells that to one of them only.
#[derive(Debug, Default)]
pub(crate) struct Reports(RwLock<()>);

impl Reports {
    /// Makes such a call and notes what it was told. Cost: two atomic operations, unless somebody waits.
    pub fn during<T>(&self, call: impl FnOnce() -> T) -> T {
        let _under_way = self.0.read().unwrap_or_else(PoisonError::into_inner);
        call()
    }

    /// Waits until the calls that are under way now have noted what they were told.
    pub fn wait(&self) {
        drop(self.0.write().unwrap_or_else(PoisonError::into_inner));
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
        if !file.listed.load(SeqCst) {
            let mut dirty = lock(&self.dirty);
            // First into the list: who finds the file listed relies on it.
            dirty.insert(address(file), file.clone());
            file.listed.store(true, SeqCst);
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
        // Unlist first, look second: a write between the two lists the file again by itself, when the list is free.
        file.listed.store(false, SeqCst);
        if file.written.load(SeqCst) > file.flushed.load(SeqCst) {
            dirty.insert(address(file), file.clone());
            file.listed.store(true, SeqCst);
        }
    }

    /// Forgets a file that is gone.
    pub fn forget(&self, file: &Arc<SegmentFile>) {
        lock(&self.dirty).remove(&address(file));
    }

    /// Makes the call that makes bytes of `file` durable; its failure is noted before any flush beside it ends well.
    pub fn report(
        &self,
        file: &SegmentFile,
        call: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        file.reports.during(|| call().inspect_err(|error| self.note_failure(error)))
    }

    /// Whether a flush of `file` that has ended well proves anything. Cost: what is under way there is waited for.
    ///
    /// # Errors
    /// The failure that another was told of.
    pub fn confirm(&self, file: &SegmentFile) -> Result<(), DeviceError> {
        file.reports.wait();
        self.check()
    }

    /// # Errors
    /// The failure after which nothing is durable any more.
    pub fn check(&self) -> Result<(), DeviceError> {
        self.failure().map_or(Ok(()), |failure| Err(failure.clone()))
    }

    /// Makes failures of flushes and durable writes that are being answered well, if any has failed: whoever was told of it,
    /// these prove nothing.
    pub fn void(&self, answers: &mut [IoCompletion]) {
        let Some(failure) = self.failure() else { return };
        let relies = |done: &&mut IoCompletion| matches!(done.kind, IoKind::Flush | IoKind::WriteDurable);
        for done in answers.iter_mut().filter(relies).filter(|done| done.result.is_ok()) {
            done.result = Err(failure.clone());
        }
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
