//! Requests on files as io_uring submissions, over a ring that belongs to somebody else.
//!
//! A server can so drive sockets and files with one ring: it tags its own entries with other tag
//! bytes in the top 8 bits of `user_data`, hands completions with this tag to
//! [`UringFiles::completed`], and calls [`UringFiles::push`] before it enters the kernel.
//! [`crate::file::UringDevice`] is the owner for those who want a device of its own.
//!
//! Invariants:
//! 1. A buffer whose address the kernel knows stays in its slot until all completions of the
//!    entries that name it have come; if this value is dropped before, the buffers are leaked.
//! 2. Each entry carries the generation of its slot; a completion that does not fit is ignored.
//! 3. A write and the flush behind it are pushed together or not at all, so that the link holds.
//!
//! Who owns the data: requests and their buffers live here from `submit` to `take`.

use super::housekeeper::{Job, Work};
use super::layout::FileStore;
use super::plan::{Part, Place, check, parts};
use super::registered::RegisteredBuffers;
use super::segment::SegmentFile;
use super::settings::DurableMethod;
use super::slots::Slots;
use crate::{BLOCK_BYTES, DeviceError, DeviceErrorKind, IoBuffer, IoCompletion, IoKind, IoRequest};
use crossbeam_channel::{Receiver, Sender, unbounded};
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{Submitter, cqueue, opcode, squeue};
use rustix::fs::OFlags;
use std::collections::VecDeque;
use std::io::{PipeReader, PipeWriter};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Weak};
use tierstone_base::collections::Map;
use tierstone_base::{Result, Token};

/// The most that one entry transfers: the kernel stops at 2 GiB less a page.
const ENTRY_BYTES: u64 = 1 << 30;
/// Tries after interruptions before a request is given up.
const TRIES: u8 = 100;
/// The slot number of the housekeeper's wake-up.
const WAKE_SLOT: u32 = u32::MAX;

const PHASE_DATA: u64 = 0;
const PHASE_FLUSH: u64 = 1;

/// A request that has not been handed back.
struct Request {
    token: Token,
    kind: IoKind,
    offset: u64,
    buffer: Option<IoBuffer>,
    /// Parts not done.
    left: u32,
    result: std::result::Result<(), DeviceError>,
}

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Read,
    Write,
    WriteDurable,
    Flush { covers: u64 },
}

/// One part of a request on one file, in the kernel or on its way.
struct Operation {
    request: u32,
    file: Arc<SegmentFile>,
    action: Action,
    file_offset: u64,
    start: usize,
    len: usize,
    tries: u8,
    /// Completions still to come, a bit a phase, and what came: the data's and the flush's result.
    awaited: u8,
    data: i32,
    flush: i32,
}

/// A part that waits for its segment's file.
struct Parked {
    request: u32,
    part: Part,
}

/// One or two entries that must enter the kernel together.
struct Pending {
    first: Entry,
    linked: Option<Entry>,
}

/// Whom the housekeeper's answer is for.
#[derive(Clone, Copy)]
enum Asker {
    /// The writes that wait for this segment.
    Segment(u32),
    /// The request in this slot.
    Request(u32),
}

type HouseworkDone = (Asker, std::result::Result<(), DeviceError>);

/// Files of one store, driven over a borrowed ring by one thread.
pub struct UringFiles {
    store: FileStore,
    method: DurableMethod,
    tag: u64,
    requests: Slots<Request>,
    operations: Slots<Operation>,
    pending: VecDeque<Pending>,
    registered: RegisteredBuffers,
    ready: VecDeque<IoCompletion>,
    /// Entries in the ring whose completions will come.
    expected: usize,
    /// Files used before. Weak, so that a discarded file gives its space back at once.
    files: Map<u32, Weak<SegmentFile>>,
    parked: Map<u32, Vec<Parked>>,
    /// Wakes the ring when the housekeeper has answered; a read of it is armed while it works. A
    /// pipe and not an eventfd: the ring's owner may wait on an eventfd registered with the ring,
    /// and a kernel cannot signal one eventfd at once from inside the wake-up of another (seen on
    /// Linux 6.18: the second such signal never came).
    wake: Arc<PipeWriter>,
    wake_reader: PipeReader,
    wake_bytes: IoBuffer,
    wake_armed: bool,
    wake_generation: u16,
    housework: usize,
    done_sender: Sender<HouseworkDone>,
    done: Receiver<HouseworkDone>,
}

impl std::fmt::Debug for UringFiles {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "UringFiles({} in flight)", self.in_flight())
    }
}

impl UringFiles {
    /// Files of `store` over a ring whose entries with `tag` in the top byte of `user_data` are
    /// ours. Durable writes use `method`.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn new(store: &FileStore, method: DurableMethod, tag: u8) -> Result<Self> {
        let (wake_reader, wake) = std::io::pipe()?;
        // A full pipe wakes its reader anyway; the housekeeper must never wait for one.
        rustix::fs::fcntl_setfl(&wake, OFlags::NONBLOCK).map_err(std::io::Error::from)?;
        let (done_sender, done) = unbounded();
        Ok(UringFiles {
            store: store.clone(),
            method,
            tag: u64::from(tag) << 56,
            requests: Slots::new(),
            operations: Slots::new(),
            pending: VecDeque::new(),
            registered: RegisteredBuffers::new(),
            ready: VecDeque::new(),
            expected: 0,
            files: Map::default(),
            parked: Map::default(),
            wake: Arc::new(wake),
            wake_reader,
            wake_bytes: IoBuffer::zeroed(BLOCK_BYTES),
            wake_armed: false,
            wake_generation: 0,
            housework: 0,
            done_sender,
            done,
        })
    }

    /// The store.
    pub fn store(&self) -> &FileStore {
        &self.store
    }

    /// How many requests have not been handed back.
    pub fn in_flight(&self) -> usize {
        self.requests.used() + self.ready.len()
    }

    /// How many completions of the ring are still to come for what has been pushed.
    pub fn expected(&self) -> usize {
        self.expected
    }

    /// Whether a completion with this `user_data` is ours.
    pub fn owns(&self, user_data: u64) -> bool {
        user_data >> 56 == self.tag >> 56
    }

    /// Takes all `requests`. They enter the kernel with the owner's next `push` and enter. Cost: no
    /// system call, except when a segment is touched for the first time.
    pub fn submit(&mut self, requests: &mut Vec<IoRequest>) {
        for request in requests.drain(..) {
            self.start(request);
        }
    }

    /// Moves waiting entries into the ring's queue; false when it is full and some still wait:
    /// enter the kernel and push again. `submitter` and `queue` are of the same ring, always the same one
    /// unless [`UringFiles::ring_replaced`] was called between.
    pub fn push(&mut self, submitter: &Submitter<'_>, queue: &mut squeue::SubmissionQueue<'_>) -> bool {
        if queue.is_empty() {
            self.registered.all_entered();
        }
        self.registered.register(submitter);
        while let Some(pending) = self.pending.front() {
            let pushed = match &pending.linked {
                // SAFETY: the entry names a buffer and a descriptor that its slot keeps until the
                // completion has come (invariant 1).
                None => unsafe { queue.push(&pending.first) },
                // SAFETY: as above.
                Some(linked) => unsafe { queue.push_multiple(&[pending.first.clone(), linked.clone()]) },
            };
            if pushed.is_err() {
                return false;
            }
            self.expected += 1 + usize::from(pending.linked.is_some());
            self.pending.pop_front();
        }
        self.registered.all_moved();
        true
    }

    /// The owner has made a new ring, with nothing under way, that will be used from now on.
    pub fn ring_replaced(&mut self) {
        self.registered.forget();
        // Entries that wait may name slots of the old ring: they are made anew.
        for pending in std::mem::take(&mut self.pending) {
            match pending.first.get_user_data() as u32 {
                WAKE_SLOT => self.pending.push_back(pending),
                slot => self.issue(slot),
            }
        }
    }

    /// How many transfers used a buffer that the kernel keeps pinned.
    pub fn registered_transfers(&self) -> u64 {
        self.registered.transfers()
    }

    /// Takes a completion of the ring whose `user_data` is [ours](UringFiles::owns). It may leave
    /// new entries to push (the rest of a short write).
    pub fn completed(&mut self, entry: &cqueue::Entry) {
        let user_data = entry.user_data();
        let (slot, generation) = (user_data as u32, (user_data >> 32) as u16);
        if slot == WAKE_SLOT {
            return self.housework_done(generation);
        }
        if !self.operations.is_live(slot, generation) {
            return;
        }
        let phase = (user_data >> 48) & 0xff;
        let operation = self.operations.get(slot);
        let bit = 1u8.checked_shl(phase as u32).unwrap_or(0);
        if operation.awaited & bit == 0 {
            return;
        }
        self.expected -= 1;
        operation.awaited &= !bit;
        match phase {
            PHASE_FLUSH => operation.flush = entry.result(),
            _ => operation.data = entry.result(),
        }
        if operation.awaited == 0 {
            self.advance(slot);
        }
    }

    /// Hands back finished requests in the order in which they finished.
    pub fn take(&mut self, completions: &mut Vec<IoCompletion>) -> usize {
        let before = completions.len();
        completions.extend(self.ready.drain(..));
        self.store.inner.durability.void(&mut completions[before..]);
        completions.len() - before
    }

    fn start(&mut self, request: IoRequest) {
        let kind = request.kind;
        let refused = match check(&self.store.inner.geometry, &request) {
            Err(error) => Err(error),
            Ok(_) if matches!(kind, IoKind::Read | IoKind::Discard { .. }) => Ok(()),
            Ok(_) => self.store.inner.durability.failure().map_or(Ok(()), |failure| Err(failure.clone())),
        };
        let IoRequest { token, offset, buffer, .. } = request;
        if let Err(error) = refused {
            self.ready.push_back(IoCompletion { token, kind, offset, buffer, result: Err(error) });
            return;
        }
        let bytes = buffer.as_ref().map_or(0, |buffer| buffer.len() as u64);
        let slot = self.requests.insert(Request { token, kind, offset, buffer, left: 1, result: Ok(()) });
        match kind {
            IoKind::Read => self.start_parts(slot, offset, bytes, Action::Read),
            IoKind::Write => self.start_parts(slot, offset, bytes, Action::Write),
            IoKind::WriteDurable => self.start_parts(slot, offset, bytes, Action::WriteDurable),
            IoKind::Flush => {
                for task in self.store.inner.durability.flush_tasks() {
                    self.requests.get(slot).left += 1;
                    let part = Part { place: task.file.place, file_offset: 0, start: 0, len: 0 };
                    self.operate(slot, task.file, Action::Flush { covers: task.covers }, part);
                }
            }
            IoKind::Prepare { len } => self.start_housework(slot, Work::Prepare { offset, len }),
            IoKind::Discard { len } => self.start_housework(slot, Work::Discard { offset, len }),
        }
        // The one part that stood for the starting itself.
        self.part_done(slot, Ok(()));
    }

    fn start_parts(&mut self, request: u32, offset: u64, len: u64, action: Action) {
        let geometry = self.store.inner.geometry;
        for part in parts(&geometry, offset, len) {
            self.requests.get(request).left += 1;
            match self.file(part.place) {
                Ok(Some(file)) => self.operate(request, file, action, part),
                Ok(None) if action == Action::Read => {
                    let range = part.start as usize..(part.start + part.len) as usize;
                    if let Some(buffer) = &mut self.requests.get(request).buffer {
                        buffer[range].fill(0);
                    }
                    self.part_done(request, Ok(()));
                }
                Ok(None) => self.park(request, part),
                Err(error) => self.part_done(request, Err(error)),
            }
        }
    }

    /// The file of `place`, from this handle's own table while it is valid.
    fn file(&mut self, place: Place) -> std::result::Result<Option<Arc<SegmentFile>>, DeviceError> {
        let Place::Segment(segment) = place else { return self.store.inner.lookup(place) };
        if let Some(file) = self.files.get(&segment).and_then(Weak::upgrade)
            && !file.is_discarded()
        {
            return Ok(Some(file));
        }
        let file = self.store.inner.lookup(place)?;
        match &file {
            Some(file) => drop(self.files.insert(segment, Arc::downgrade(file))),
            None => drop(self.files.remove(&segment)),
        }
        Ok(file)
    }

    /// Makes one entry after another until the part is done.
    fn operate(&mut self, request: u32, file: Arc<SegmentFile>, action: Action, part: Part) {
        let operation = Operation {
            request,
            file,
            action,
            file_offset: part.file_offset,
            start: part.start as usize,
            len: part.len as usize,
            tries: 0,
            awaited: 0,
            data: 0,
            flush: 0,
        };
        let slot = self.operations.insert(operation);
        self.issue(slot);
    }

    /// Puts the entries for what is left of an operation into the queue.
    fn issue(&mut self, slot: u32) {
        let generation = u64::from(self.operations.generation(slot));
        let user_data = self.tag | generation << 32 | u64::from(slot);
        let operation = self.operations.get(slot);
        let descriptor = Fd(operation.file.descriptor());
        let flush = || {
            let entry = opcode::Fsync::new(descriptor).flags(FsyncFlags::DATASYNC).build();
            entry.user_data(user_data | PHASE_FLUSH << 48)
        };
        let (offset, len) = (operation.file_offset, (operation.len as u64).min(ENTRY_BYTES) as u32);
        let (address, slot) = match &mut self.requests.get(operation.request).buffer {
            // The range lies in the buffer: `parts` cut it out of the buffer's length.
            Some(buffer) => (buffer[operation.start..].as_mut_ptr(), self.registered.slot_of(buffer)),
            None => (std::ptr::null_mut(), None),
        };
        let chained =
            operation.action == Action::WriteDurable && self.method == DurableMethod::WriteThenFlush;
        let durable = operation.action == Action::WriteDurable && !chained;
        let flags = if durable { libc::RWF_DSYNC } else { 0 };
        let first = match (operation.action, slot) {
            (Action::Flush { .. }, _) => flush(),
            (Action::Read, None) => opcode::Read::new(descriptor, address, len).offset(offset).build(),
            (Action::Read, Some(slot)) => {
                opcode::ReadFixed::new(descriptor, address, len, slot).offset(offset).build()
            }
            (_, None) => opcode::Write::new(descriptor, address, len).offset(offset).rw_flags(flags).build(),
            (_, Some(slot)) => {
                let write = opcode::WriteFixed::new(descriptor, address, len, slot);
                write.offset(offset).rw_flags(flags).build()
            }
        };
        let first = match operation.action {
            Action::Flush { .. } => first,
            _ if chained => first.user_data(user_data | PHASE_DATA << 48).flags(Flags::IO_LINK),
            _ => first.user_data(user_data | PHASE_DATA << 48),
        };
        operation.awaited = match operation.action {
            Action::Flush { .. } => 1 << PHASE_FLUSH,
            _ if chained => 1 << PHASE_DATA | 1 << PHASE_FLUSH,
            _ => 1 << PHASE_DATA,
        };
        let linked = chained.then(flush);
        self.pending.push_back(Pending { first, linked });
    }

    /// Goes on with an operation whose completions have all come.
    fn advance(&mut self, slot: u32) {
        let flush_only = matches!(self.operations.get(slot).action, Action::Flush { .. });
        let step = if flush_only { self.flush_step(slot) } else { self.data_step(slot) };
        let result = match step {
            Ok(false) => return self.issue(slot),
            Ok(true) => Ok(()),
            Err(error) => Err(error),
        };
        let operation = self.operations.remove(slot);
        if let Err(error) = &result
            && matches!(operation.action, Action::Flush { .. } | Action::WriteDurable)
        {
            self.store.inner.durability.note_failure(error);
        }
        if result.is_ok() && operation.action == Action::Write {
            self.store.inner.durability.written(&operation.file);
        }
        self.part_done(operation.request, result);
    }

    /// A flush came back; it is never tried again, whatever it says.
    fn flush_step(&mut self, slot: u32) -> std::result::Result<bool, DeviceError> {
        let store = self.store.inner.clone();
        let operation = self.operations.get(slot);
        if operation.flush < 0 {
            return Err(operation.file.error(-operation.flush, "flush", 0));
        }
        if let Action::Flush { covers } = operation.action {
            store.durability.flushed(&operation.file, covers);
        }
        Ok(true)
    }

    /// A read or write came back: true when its part is whole.
    fn data_step(&mut self, slot: u32) -> std::result::Result<bool, DeviceError> {
        let chained = self.method == DurableMethod::WriteThenFlush;
        let operation = self.operations.get(slot);
        let doing = if operation.action == Action::Read { "read" } else { "write" };
        let offset = operation.file_offset;
        if operation.data < 0 {
            let errno = -operation.data;
            operation.tries += 1;
            if matches!(errno, libc::EINTR | libc::EAGAIN) && operation.tries < TRIES {
                return Ok(false);
            }
            return Err(operation.file.error(errno, doing, offset));
        }
        let done = operation.data as usize;
        if done < operation.len {
            if done == 0 {
                operation.tries += 1;
            }
            if operation.tries >= TRIES || (done == 0 && operation.action == Action::Read) {
                return Err(operation.file.error(
                    libc::EIO,
                    "do more than a part of the transfer of",
                    offset,
                ));
            }
            // Direct transfers go on at whole blocks; the bytes of a broken block are done again.
            let whole = done - done % BLOCK_BYTES;
            if whole == 0 && done > 0 {
                operation.tries += 1;
            }
            operation.file_offset += whole as u64;
            operation.start += whole;
            operation.len -= whole;
            return Ok(false);
        }
        if chained && operation.action == Action::WriteDurable && operation.flush < 0 {
            return Err(operation.file.error(-operation.flush, "flush", offset));
        }
        Ok(true)
    }

    /// One part of a request is done; the last one finishes it.
    fn part_done(&mut self, slot: u32, result: std::result::Result<(), DeviceError>) {
        let request = self.requests.get(slot);
        request.left -= 1;
        if let Err(error) = result
            && request.result.is_ok()
        {
            request.result = Err(error);
        }
        if request.left == 0 {
            let Request { token, kind, offset, buffer, result, .. } = self.requests.remove(slot);
            self.ready.push_back(IoCompletion { token, kind, offset, buffer, result });
        }
    }

    /// Keeps a write until its segment's file has been made.
    fn park(&mut self, request: u32, part: Part) {
        let Place::Segment(segment) = part.place else {
            unreachable!("{} is never absent", part.place);
        };
        let waiting = self.parked.entry(segment).or_default();
        waiting.push(Parked { request, part });
        if waiting.len() == 1 {
            self.ask_housekeeper(Asker::Segment(segment), Work::Create { segment });
        }
    }

    fn start_housework(&mut self, request: u32, work: Work) {
        self.requests.get(request).left += 1;
        self.ask_housekeeper(Asker::Request(request), work);
    }

    fn ask_housekeeper(&mut self, asker: Asker, work: Work) {
        let (sender, wake) = (self.done_sender.clone(), Arc::downgrade(&self.wake));
        let reply = Box::new(move |result| {
            // Nobody listens any more when the handle is gone.
            let _ = sender.send((asker, result));
            if let Some(wake) = wake.upgrade() {
                let _ = rustix::io::write(&*wake, &[1]);
            }
        });
        self.housework += 1;
        self.arm_wake();
        self.store.inner.do_later(Job { work, reply });
    }

    /// Lets the ring complete an entry when the housekeeper answers.
    fn arm_wake(&mut self) {
        if self.wake_armed || self.housework == 0 {
            return;
        }
        let (address, len) = (self.wake_bytes.as_mut_ptr(), self.wake_bytes.len() as u32);
        // Pipes have no position; all ones mean the current one.
        let entry =
            opcode::Read::new(Fd(self.wake_reader.as_raw_fd()), address, len).offset(u64::MAX).build();
        let generation = u64::from(self.wake_generation);
        let entry = entry.user_data(self.tag | generation << 32 | u64::from(WAKE_SLOT));
        self.pending.push_back(Pending { first: entry, linked: None });
        self.wake_armed = true;
    }

    fn housework_done(&mut self, generation: u16) {
        if !self.wake_armed || generation != self.wake_generation {
            return;
        }
        self.wake_generation = self.wake_generation.wrapping_add(1);
        self.expected -= 1;
        self.wake_armed = false;
        while let Ok((asker, result)) = self.done.try_recv() {
            self.housework -= 1;
            match asker {
                Asker::Request(request) => self.part_done(request, result),
                Asker::Segment(segment) => self.unpark(segment, &result),
            }
        }
        self.arm_wake();
    }

    /// Starts the writes that waited for `segment`, or fails them with what its creation said.
    fn unpark(&mut self, segment: u32, created: &std::result::Result<(), DeviceError>) {
        for Parked { request, part } in self.parked.remove(&segment).unwrap_or_default() {
            let action = match self.requests.get(request).kind {
                IoKind::WriteDurable => Action::WriteDurable,
                _ => Action::Write,
            };
            match created.clone().and_then(|()| self.file(part.place)) {
                Ok(Some(file)) => self.operate(request, file, action, part),
                Ok(None) => {
                    let detail = format!("{} was discarded while it was written", part.place);
                    self.part_done(request, Err(DeviceError::new(DeviceErrorKind::Failed, detail)));
                }
                Err(error) => self.part_done(request, Err(error)),
            }
        }
    }
}

impl Drop for UringFiles {
    fn drop(&mut self) {
        if self.expected > 0 {
            // The kernel may still write to these buffers (invariant 1): better lost than reused.
            std::mem::forget(std::mem::replace(&mut self.requests, Slots::new()));
            std::mem::forget(std::mem::replace(&mut self.operations, Slots::new()));
            std::mem::forget(std::mem::replace(&mut self.wake_bytes, IoBuffer::zeroed(1)));
        }
    }
}

#[cfg(test)]
#[path = "uring_test.rs"]
mod uring_test;
