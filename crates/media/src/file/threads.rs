//! A device whose requests are done by a small pool of threads: for where io_uring is refused.
//!
//! Prepare and Discard, which change which files there are, go to the store's housekeeper instead.

use super::housekeeper::{Job, Work};
use super::layout::{FileStore, StoreInner};
use super::plan::{Part, Place, check, parts};
use super::pool::{Pool, Worker};
use super::segment::SegmentFile;
use super::settings::DurableMethod;
use super::transfer::{read_all, write_all};
use crate::{
    BlockDevice, DeviceError, DeviceErrorKind, DurableWriteScope, Geometry, Guarantee, IoBuffer,
    IoCompletion, IoKind, IoRequest, Wait,
};
use std::os::fd::RawFd;
use std::sync::Arc;
use tierstone_base::Result;

/// [`BlockDevice`] on files through threads.
pub struct ThreadDevice {
    pool: Pool<CallingThread>,
}

/// Does requests in the thread that calls, one at a time: for those who would only wait for a device. Clones are
/// for many threads at once, beside devices of the same store.
#[derive(Clone)]
pub struct CallingThread {
    store: Arc<StoreInner>,
    method: DurableMethod,
}

impl std::fmt::Debug for CallingThread {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "CallingThread({:?})", self.method)
    }
}

impl std::fmt::Debug for ThreadDevice {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "ThreadDevice({:?})", self.pool)
    }
}

impl ThreadDevice {
    /// A device over `store` that does up to `queue_depth` requests (64 at most) at a time.
    ///
    /// # Errors
    /// `Retry` when the system gives no thread.
    pub fn new(store: &FileStore, method: DurableMethod, queue_depth: u32) -> Result<Self> {
        Ok(ThreadDevice { pool: Pool::new(CallingThread::new(store, method), queue_depth as usize)? })
    }

    /// See [`crate::file::FileDevice::wake_descriptor`].
    pub fn wake_descriptor(&self) -> Option<RawFd> {
        self.pool.completions.wake_descriptor()
    }

    /// What does a request without the pool.
    pub(super) fn calling_thread(&self) -> &CallingThread {
        &self.pool.worker
    }

    fn housework(&self, request: IoRequest, work: Work) {
        let finished = self.pool.completions.finished().clone();
        let IoRequest { token, kind, offset, buffer } = request;
        let reply = Box::new(move |result| {
            finished.put(IoCompletion { token, kind, offset, buffer, result });
        });
        self.calling_thread().store.do_later(Job { work, reply });
    }

    fn start(&mut self, request: IoRequest) {
        self.pool.completions.owe();
        if let Err(error) = check(&self.calling_thread().store.geometry, &request) {
            return self.pool.completions.finished().put(refused(request, error));
        }
        match request.kind {
            IoKind::Prepare { len } => self.housework_unless_failed(request, len),
            IoKind::Discard { len } => {
                let offset = request.offset;
                self.housework(request, Work::Discard { offset, len });
            }
            _ => self.pool.hand_on(request),
        }
    }

    fn housework_unless_failed(&self, request: IoRequest, len: u64) {
        match self.calling_thread().store.durability.failure() {
            Some(failure) => self.pool.completions.finished().put(refused(request, failure.clone())),
            None => {
                let offset = request.offset;
                self.housework(request, Work::Prepare { offset, len });
            }
        }
    }
}

/// The completion of a request that was not begun.
pub(super) fn refused(request: IoRequest, error: DeviceError) -> IoCompletion {
    let IoRequest { token, kind, offset, buffer } = request;
    IoCompletion { token, kind, offset, buffer, result: Err(error) }
}

impl Worker for CallingThread {
    fn perform(&self, request: IoRequest) -> IoCompletion {
        let IoRequest { token, kind, offset, mut buffer } = request;
        let result = match (kind, &mut buffer) {
            (IoKind::Read, Some(buffer)) => self.read(offset, buffer),
            (IoKind::Write, Some(buffer)) => self.write(offset, buffer, false),
            (IoKind::WriteDurable, Some(buffer)) => self.write(offset, buffer, true),
            (IoKind::Flush, _) => self.flush(),
            (kind, _) => unreachable!("{kind:?} is checked and sorted before"),
        };
        IoCompletion { token, kind, offset, buffer, result }
    }
}

impl CallingThread {
    /// One whose durable writes use `method`.
    pub fn new(store: &FileStore, method: DurableMethod) -> Self {
        CallingThread { store: store.inner.clone(), method }
    }

    /// Whether it does requests of this kind: not those that change which files there are.
    pub fn does(kind: IoKind) -> bool {
        !matches!(kind, IoKind::Prepare { .. } | IoKind::Discard { .. })
    }

    /// Does `request` before it returns. Cost: the system calls of the request, and no other.
    pub fn carry_out(&self, request: IoRequest) -> IoCompletion {
        let refusal = match check(&self.store.geometry, &request) {
            Ok(_) if Self::does(request.kind) => return self.perform(request),
            Ok(_) => {
                DeviceError::new(DeviceErrorKind::OutOfBounds, "only a device prepares and discards segments")
            }
            Err(error) => error,
        };
        refused(request, refusal)
    }

    fn read(&self, offset: u64, buffer: &mut IoBuffer) -> std::result::Result<(), DeviceError> {
        for part in parts(&self.store.geometry, offset, buffer.len() as u64) {
            let bytes = &mut buffer[part.start as usize..(part.start + part.len) as usize];
            match self.store.lookup(part.place)? {
                Some(file) => read_part(&file, part, bytes)?,
                None => bytes.fill(0),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, buffer: &IoBuffer, durable: bool) -> std::result::Result<(), DeviceError> {
        if let Some(failure) = self.store.durability.failure() {
            return Err(failure.clone());
        }
        for part in parts(&self.store.geometry, offset, buffer.len() as u64) {
            let bytes = &buffer[part.start as usize..(part.start + part.len) as usize];
            let file = match (self.store.lookup(part.place)?, part.place) {
                (Some(file), _) => file,
                (None, Place::Segment(segment)) => self.store.create(segment)?,
                (None, Place::Meta) => unreachable!("{} is always open", part.place),
            };
            let durability = &self.store.durability;
            if durable {
                durability.report(&file, || self.write_part(&file, part, bytes, true))?;
                durability.check()?;
            } else {
                self.write_part(&file, part, bytes, false)?;
                durability.written(&file);
            }
        }
        Ok(())
    }

    fn write_part(
        &self,
        file: &SegmentFile,
        part: Part,
        bytes: &[u8],
        durable: bool,
    ) -> std::result::Result<(), DeviceError> {
        let with_write = durable && self.method == DurableMethod::DurableWrite;
        write_all(&file.file, bytes, part.file_offset, with_write)
            .map_err(|(errno, offset)| file.error(errno, "write", offset))?;
        if durable && !with_write {
            let flushed = rustix::fs::fdatasync(&file.file);
            return flushed.map_err(|error| file.error(error.raw_os_error(), "flush", part.file_offset));
        }
        Ok(())
    }

    fn flush(&self) -> std::result::Result<(), DeviceError> {
        let durability = &self.store.durability;
        durability.check()?;
        for task in durability.flush_tasks() {
            durability.report(&task.file, || {
                let flushed = rustix::fs::fdatasync(&task.file.file);
                flushed.map_err(|error| task.file.error(error.raw_os_error(), "flush", 0))
            })?;
            durability.confirm(&task.file)?;
            durability.flushed(&task.file, task.covers);
        }
        // Another may have flushed what this one was to flush, and have been told.
        durability.check()
    }
}

fn read_part(file: &SegmentFile, part: Part, bytes: &mut [u8]) -> std::result::Result<(), DeviceError> {
    read_all(&file.file, bytes, part.file_offset).map_err(|(errno, offset)| match errno {
        None => file.error(libc::EIO, "read beyond the end of", offset),
        Some(errno) => file.error(errno, "read", offset),
    })
}

impl BlockDevice for ThreadDevice {
    fn geometry(&self) -> Geometry {
        self.calling_thread().store.geometry
    }

    fn guarantee(&self) -> Guarantee {
        self.calling_thread().store.guarantee()
    }

    fn durable_write_scope(&self) -> DurableWriteScope {
        DurableWriteScope::OwnSectors
    }

    fn submit(&mut self, requests: &mut Vec<IoRequest>) {
        for request in requests.drain(..) {
            self.start(request);
        }
        self.pool.keep_up();
    }

    fn complete(&mut self, wait: Wait, completions: &mut Vec<IoCompletion>) -> usize {
        self.pool.completions.complete(wait, completions)
    }

    fn in_flight(&self) -> usize {
        self.pool.completions.in_flight()
    }
}
