//! Slow work beside the requests: making, preparing and discarding segments, on one thread a store.
//!
//! Invariants:
//! 1. Preparing goes in steps of 512 KiB; between two steps all quick jobs that have come are done,
//!    so that a write that waits for its new segment waits milliseconds, never for a whole segment.
//! 2. A job lets go of the store before it answers, so that who has all answers can close the store
//!    and open it again.
//!
//! Crash: a prepared range is zeros up to some place and whatever it was behind it. The answer comes
//! only after the zeros, the file and its name are durable.

use super::layout::StoreInner;
use super::plan::{Part, Parts, Place, parts};
use super::segment::{SegmentFile, lock};
use crate::{DeviceError, DeviceErrorKind, IoBuffer};
use crossbeam_channel::{Receiver, Sender, TryRecvError, unbounded};
use rustix::fs::{FallocateFlags, fallocate};
use std::collections::VecDeque;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

/// How much is zeroed at a time, in bytes.
const STEP_BYTES: usize = 512 << 10;

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Make the file of this segment.
    Create { segment: u32 },
    /// Make the files of a range and fill it with zeros.
    Prepare { offset: u64, len: u64 },
    /// Give a range back.
    Discard { offset: u64, len: u64 },
}

/// How a job answers.
pub(crate) type Reply = Box<dyn FnOnce(Result<(), DeviceError>) + Send>;

/// Work with its answer.
pub(crate) struct Job {
    pub work: Work,
    pub reply: Reply,
}

/// A job for one store.
type Errand = (Arc<StoreInner>, Job);

/// The thread's mailbox; the thread starts with the first job and ends with the store.
#[derive(Debug, Default)]
pub(crate) struct Housekeeper {
    mailbox: Mutex<Option<Sender<Errand>>>,
}

impl Housekeeper {
    /// Takes `job`; answers with an error when no thread can be made.
    pub fn take(&self, store: Arc<StoreInner>, job: Job) {
        let sender = match self.sender() {
            Ok(sender) => sender,
            Err(error) => return (job.reply)(Err(no_thread(&error))),
        };
        if let Err(refused) = sender.send((store, job)) {
            let (_, job) = refused.into_inner();
            (job.reply)(Err(DeviceError::new(DeviceErrorKind::Failed, "the thread for files has ended")));
        }
    }

    fn sender(&self) -> std::io::Result<Sender<Errand>> {
        let mut mailbox = lock(&self.mailbox);
        if let Some(sender) = mailbox.as_ref() {
            return Ok(sender.clone());
        }
        let (sender, receiver) = unbounded();
        let thread = std::thread::Builder::new().name("tierstone-files".to_string());
        thread.spawn(move || work_off(&receiver))?;
        *mailbox = Some(sender.clone());
        Ok(sender)
    }
}

/// The error of a thread that the system does not give.
pub(crate) fn no_thread(error: &std::io::Error) -> DeviceError {
    DeviceError::new(DeviceErrorKind::Failed, format!("cannot start a thread for files: {error}"))
}

/// A range being prepared.
struct Preparing {
    store: Arc<StoreInner>,
    parts: Parts,
    current: Option<(Part, Arc<SegmentFile>)>,
    reply: Reply,
}

/// The thread.
fn work_off(mailbox: &Receiver<Errand>) {
    let mut preparing: VecDeque<Preparing> = VecDeque::new();
    let zeros = IoBuffer::zeroed(STEP_BYTES);
    loop {
        let next = if preparing.is_empty() {
            mailbox.recv().map_err(|_| TryRecvError::Disconnected)
        } else {
            mailbox.try_recv()
        };
        match next {
            Ok((store, job)) => {
                if let Some(long) = begin(store, job) {
                    preparing.push_back(long);
                }
                continue;
            }
            Err(TryRecvError::Empty) => {}
            // Only a store that no job holds can have gone, so nothing is being prepared.
            Err(TryRecvError::Disconnected) => return,
        }
        let Some(mut long) = preparing.pop_front() else { continue };
        match long.step(&zeros) {
            Ok(true) => long.answer(Ok(())),
            Ok(false) => preparing.push_front(long),
            Err(error) => long.answer(Err(error)),
        }
    }
}

/// Does a quick job, or hands back a long one.
fn begin(store: Arc<StoreInner>, job: Job) -> Option<Preparing> {
    let result = match job.work {
        Work::Create { segment } => store.create(segment).map(|_| ()),
        Work::Discard { offset, len } => discard(&store, offset, len),
        Work::Prepare { offset, len } => {
            let parts = parts(&store.geometry, offset, len);
            return Some(Preparing { store, parts, current: None, reply: job.reply });
        }
    };
    drop(store);
    (job.reply)(result);
    None
}

/// Whole segments lose their files, pieces become holes.
fn discard(store: &StoreInner, offset: u64, len: u64) -> Result<(), DeviceError> {
    for part in parts(&store.geometry, offset, len) {
        let Place::Segment(segment) = part.place else { continue };
        if part.len == store.geometry.segment_bytes {
            store.remove(segment)?;
        } else if let Some(file) = store.lookup(part.place)? {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            match fallocate(&file.file, hole, part.file_offset, part.len) {
                // A file system without holes keeps the space and what it held, as the trait allows.
                Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
                Err(error) => {
                    return Err(file.error(error.raw_os_error(), "punch a hole into", part.file_offset));
                }
            }
        }
    }
    Ok(())
}

impl Preparing {
    /// One piece of zeros, or the flush at the end of a file; true when all is done.
    fn step(&mut self, zeros: &[u8]) -> Result<bool, DeviceError> {
        let Some((part, file)) = &mut self.current else {
            let Some(part) = self.parts.next() else { return Ok(true) };
            let file = match part.place {
                Place::Segment(segment) => self.store.create(segment)?,
                Place::Meta => match self.store.lookup(Place::Meta)? {
                    Some(file) => file,
                    None => unreachable!("{} is always open", Place::Meta),
                },
            };
            self.current = Some((part, file));
            return Ok(false);
        };
        let failed = |error: std::io::Error| {
            file.error(error.raw_os_error().unwrap_or(libc::EIO), "prepare", part.file_offset)
        };
        if part.len == 0 {
            self.store.durability.report(file, || file.file.sync_all().map_err(failed))?;
            self.current = None;
            return Ok(false);
        }
        let piece = part.len.min(zeros.len() as u64);
        file.file.write_all_at(&zeros[..piece as usize], part.file_offset).map_err(failed)?;
        part.file_offset += piece;
        part.len -= piece;
        Ok(false)
    }

    fn answer(self, result: Result<(), DeviceError>) {
        let Preparing { store, current, reply, .. } = self;
        drop((store, current));
        reply(result);
    }
}
