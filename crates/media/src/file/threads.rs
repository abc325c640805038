//! A device whose requests are done by a small pool of threads: for where io_uring is refused.
//!
//! Invariants:
//! 1. A request is moved to one thread, done there from beginning to end, and moved back.
//! 2. The pool grows with the requests in flight up to `queue_depth` threads (64 at most) and ends
//!    with the device, after the last request is done.

use super::housekeeper::{Job, Work, no_thread};
use super::layout::{FileStore, StoreInner};
use super::plan::{Part, Place, check, parts};
use super::segment::SegmentFile;
use super::settings::DurableMethod;
use crate::{
    BLOCK_BYTES, BlockDevice, DeviceError, DeviceErrorKind, DurableWriteScope, Geometry, Guarantee, IoBuffer,
    IoCompletion, IoKind, IoRequest, Wait,
};
use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, ReadWriteFlags, pread, pwritev2};
use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use tierstone_base::{Error, ErrorKind, Result};

const MOST_THREADS: usize = 64;
/// Tries after interruptions before a request is given up.
const TRIES: u8 = 100;

/// [`BlockDevice`] on files through threads.
pub struct ThreadDevice {
    work: Option<Sender<IoRequest>>,
    queue: Receiver<IoRequest>,
    finished: Finished,
    done: Receiver<IoCompletion>,
    threads: Vec<JoinHandle<()>>,
    most_threads: usize,
    in_flight: usize,
    shared: CallingThread,
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

/// Where completions go, with a descriptor that wakes an event loop once somebody asked for it.
#[derive(Clone)]
struct Finished {
    sender: Sender<IoCompletion>,
    wake: Arc<OnceLock<OwnedFd>>,
}

impl Finished {
    fn put(&self, completion: IoCompletion) {
        // Nobody listens any more when the device is gone; nobody misses it then.
        let _ = self.sender.send(completion);
        if let Some(wake) = self.wake.get() {
            let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
        }
    }
}

impl std::fmt::Debug for ThreadDevice {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "ThreadDevice({} in flight, {} threads)", self.in_flight, self.threads.len())
    }
}

impl ThreadDevice {
    /// A device over `store` that does up to `queue_depth` requests (64 at most) at a time.
    ///
    /// # Errors
    /// `Retry` when the system gives no thread.
    pub fn new(store: &FileStore, method: DurableMethod, queue_depth: u32) -> Result<Self> {
        let (work, queue) = unbounded();
        let (sender, done) = unbounded();
        let mut device = ThreadDevice {
            work: Some(work),
            queue,
            finished: Finished { sender, wake: Arc::new(OnceLock::new()) },
            done,
            threads: Vec::new(),
            most_threads: (queue_depth as usize).clamp(1, MOST_THREADS),
            in_flight: 0,
            shared: CallingThread::new(store, method),
        };
        // The first thread now, so that a refusal shows early; later refusals leave fewer threads.
        device.grow().map_err(|error| Error::new(ErrorKind::Retry, no_thread(&error).detail))?;
        Ok(device)
    }

    /// See [`crate::file::FileDevice::wake_descriptor`].
    pub fn wake_descriptor(&self) -> Option<RawFd> {
        if self.finished.wake.get().is_none() {
            let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
            // Only this thread sets it.
            let _ = self.finished.wake.set(wake);
            if self.in_flight > 0 {
                // What finished before the descriptor was there must wake too.
                let _ = rustix::io::write(self.finished.wake.get()?, &1u64.to_ne_bytes());
            }
        }
        self.finished.wake.get().map(|wake| wake.as_raw_fd())
    }

    /// What does a request without the pool.
    pub(super) fn calling_thread(&self) -> &CallingThread {
        &self.shared
    }

    fn grow(&mut self) -> std::io::Result<()> {
        let (queue, finished, shared) = (self.queue.clone(), self.finished.clone(), self.shared.clone());
        let builder = std::thread::Builder::new().name("tierstone-io".to_string());
        let thread = builder.spawn(move || {
            while let Ok(request) = queue.recv() {
                finished.put(shared.perform(request));
            }
        })?;
        self.threads.push(thread);
        Ok(())
    }

    fn housework(&self, request: IoRequest, work: Work) {
        let finished = self.finished.clone();
        let IoRequest { token, kind, offset, buffer } = request;
        let reply = Box::new(move |result| {
            finished.put(IoCompletion { token, kind, offset, buffer, result });
        });
        self.shared.store.do_later(Job { work, reply });
    }

    fn start(&mut self, request: IoRequest) {
        self.in_flight += 1;
        if let Err(error) = check(&self.shared.store.geometry, &request) {
            let IoRequest { token, kind, offset, buffer } = request;
            return self.finished.put(IoCompletion { token, kind, offset, buffer, result: Err(error) });
        }
        match request.kind {
            IoKind::Prepare { len } => self.housework_unless_failed(request, len),
            IoKind::Discard { len } => {
                let offset = request.offset;
                self.housework(request, Work::Discard { offset, len });
            }
            _ => {
                if let Some(work) = &self.work
                    && let Err(refused) = work.send(request)
                {
                    unreachable!("the queue lives as long as the device: {refused}");
                }
            }
        }
    }

    fn housework_unless_failed(&self, request: IoRequest, len: u64) {
        match self.shared.store.durability.failure() {
            Some(failure) => {
                let IoRequest { token, kind, offset, buffer } = request;
                let result = Err(failure.clone());
                self.finished.put(IoCompletion { token, kind, offset, buffer, result });
            }
            None => {
                let offset = request.offset;
                self.housework(request, Work::Prepare { offset, len });
            }
        }
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
        let IoRequest { token, kind, offset, buffer } = request;
        IoCompletion { token, kind, offset, buffer, result: Err(refusal) }
    }

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
            let written = self.write_part(&file, part, bytes, durable);
            if durable {
                written.inspect_err(|error| self.store.durability.note_failure(error))?;
            } else {
                written?;
                self.store.durability.written(&file);
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
        let flags = if with_write { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
        let (mut done, mut tries) = (0, 0);
        while done < bytes.len() {
            let offset = part.file_offset + done as u64;
            match pwritev2(&file.file, &[IoSlice::new(&bytes[done..])], offset, flags) {
                // Direct transfers go on at whole blocks; the bytes of a broken block are done again.
                Ok(count) if whole_blocks(count) > 0 => done += whole_blocks(count),
                Ok(_) | Err(Errno::INTR | Errno::AGAIN) if tries < TRIES => tries += 1,
                Ok(_) => return Err(file.error(libc::EIO, "write", offset)),
                Err(error) => return Err(file.error(error.raw_os_error(), "write", offset)),
            }
        }
        if durable && !with_write {
            let flushed = rustix::fs::fdatasync(&file.file);
            return flushed.map_err(|error| file.error(error.raw_os_error(), "flush", part.file_offset));
        }
        Ok(())
    }

    fn flush(&self) -> std::result::Result<(), DeviceError> {
        if let Some(failure) = self.store.durability.failure() {
            return Err(failure.clone());
        }
        for task in self.store.durability.flush_tasks() {
            if let Err(error) = rustix::fs::fdatasync(&task.file.file) {
                let error = task.file.error(error.raw_os_error(), "flush", 0);
                self.store.durability.note_failure(&error);
                return Err(error);
            }
            self.store.durability.flushed(&task.file, task.covers);
        }
        Ok(())
    }
}

fn whole_blocks(count: usize) -> usize {
    count - count % BLOCK_BYTES
}

fn read_part(file: &SegmentFile, part: Part, bytes: &mut [u8]) -> std::result::Result<(), DeviceError> {
    let (mut done, mut tries) = (0, 0);
    while done < bytes.len() {
        let offset = part.file_offset + done as u64;
        match pread(&file.file, &mut bytes[done..], offset) {
            Ok(count) if whole_blocks(count) > 0 => done += whole_blocks(count),
            Ok(count) if count > 0 && tries < TRIES => tries += 1,
            Err(Errno::INTR | Errno::AGAIN) if tries < TRIES => tries += 1,
            Ok(_) => return Err(file.error(libc::EIO, "read beyond the end of", offset)),
            Err(error) => return Err(file.error(error.raw_os_error(), "read", offset)),
        }
    }
    Ok(())
}

impl BlockDevice for ThreadDevice {
    fn geometry(&self) -> Geometry {
        self.shared.store.geometry
    }

    fn guarantee(&self) -> Guarantee {
        self.shared.store.guarantee()
    }

    fn durable_write_scope(&self) -> DurableWriteScope {
        DurableWriteScope::OwnSectors
    }

    fn submit(&mut self, requests: &mut Vec<IoRequest>) {
        for request in requests.drain(..) {
            self.start(request);
        }
        while self.threads.len() < self.in_flight.min(self.most_threads) {
            if self.grow().is_err() {
                // The threads that are there do all the work.
                self.most_threads = self.threads.len();
            }
        }
    }

    fn complete(&mut self, wait: Wait, completions: &mut Vec<IoCompletion>) -> usize {
        if let Some(wake) = self.finished.wake.get() {
            // Reset first, so that what finishes from now on wakes again. Empty means EAGAIN.
            let _ = rustix::io::read(wake, &mut [0u8; 8]);
        }
        let before = completions.len();
        loop {
            completions.extend(self.done.try_iter());
            let taken = completions.len() - before;
            let left = self.in_flight - taken;
            let enough = match wait {
                Wait::Poll => true,
                Wait::One => taken > 0 || left == 0,
                Wait::All => left == 0,
            };
            if enough {
                self.in_flight = left;
                return taken;
            }
            match self.done.recv() {
                Ok(completion) => completions.push(completion),
                Err(error) => unreachable!("this device holds a sender itself: {error}"),
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl Drop for ThreadDevice {
    fn drop(&mut self) {
        // Wait for all: the housekeeper's answers too, so that the store can be opened again.
        if self.in_flight > 0 {
            self.complete(Wait::All, &mut Vec::new());
        }
        self.work = None;
        for thread in self.threads.drain(..) {
            // A panic of the thread has been printed already; here there is nobody to tell.
            let _ = thread.join();
        }
    }
}
