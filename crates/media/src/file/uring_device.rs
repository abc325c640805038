//! A device with a ring of its own.
//!
//! Invariants:
//! 1. The ring belongs to the thread that used it last. Where the kernel accepts it, it is made with
//!    a single issuer and deferred task work, which binds it to that thread; when an idle device
//!    is used by another thread, the ring is made anew there.
//! 2. Dropping the device waits until the kernel has let go of all buffers.

use super::layout::FileStore;
use super::settings::DurableMethod;
use super::threads::CallingThread;
use super::uring::UringFiles;
use crate::{BlockDevice, DurableWriteScope, Geometry, Guarantee, IoCompletion, IoRequest, Wait};
use io_uring::IoUring;
use rustix::event::{EventfdFlags, eventfd};
use std::cell::OnceCell;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::thread::ThreadId;
use tierstone_base::{Error, ErrorKind, Result};

/// Entries of ours in the device's own ring; nobody else puts any there.
const TAG: u8 = 1;

/// How a ring does the kernel's part of finished work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskWork {
    /// Inside the owner's calls only (Linux 6.1).
    Deferred,
    /// At the owner's next entry into the kernel (Linux 5.19).
    Cooperative,
    /// By interrupting the owner.
    Interrupting,
}

/// [`BlockDevice`] on files through io_uring.
pub struct UringDevice {
    ring: IoUring,
    task_work: TaskWork,
    entries: u32,
    owner: Option<ThreadId>,
    files: UringFiles,
    calling_thread: CallingThread,
    wake: OnceCell<OwnedFd>,
}

impl std::fmt::Debug for UringDevice {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "UringDevice({:?}, {:?})", self.task_work, self.files)
    }
}

/// Why this process cannot use io_uring; `None` when it can. Cost: makes and drops a ring.
pub fn uring_refusal() -> Option<String> {
    make_ring(8).err().map(|error| error.to_string())
}

/// A ring with the best task work that the kernel accepts.
fn make_ring(entries: u32) -> std::io::Result<(IoUring, TaskWork)> {
    let mut deferred = IoUring::builder();
    // Disabled at first, so that the thread that enables it becomes the single issuer.
    deferred.setup_r_disabled().setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
    let mut cooperative = IoUring::builder();
    cooperative.setup_coop_taskrun().setup_taskrun_flag();
    let attempts = [
        (deferred, TaskWork::Deferred),
        (cooperative, TaskWork::Cooperative),
        (IoUring::builder(), TaskWork::Interrupting),
    ];
    let mut last = std::io::Error::from_raw_os_error(libc::ENOSYS);
    for (mut builder, task_work) in attempts {
        builder.setup_clamp().setup_cqsize(entries.saturating_mul(4)).dontfork();
        match builder.build(entries) {
            Ok(ring) if ring.params().is_feature_nodrop() => return Ok((ring, task_work)),
            Ok(_) => {}
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl UringDevice {
    /// A device over `store` whose ring takes `queue_depth` entries at a time.
    ///
    /// # Errors
    /// `Unsupported` when the kernel refuses rings (forbidden, too old, out of locked memory).
    pub fn new(store: &FileStore, method: DurableMethod, queue_depth: u32) -> Result<Self> {
        let files = UringFiles::new(store, method, TAG)?;
        let entries = queue_depth.next_power_of_two();
        let (ring, task_work) = make_ring(entries).map_err(|error| {
            Error::new(ErrorKind::Unsupported, format!("the kernel refuses io_uring ({error}); use threads"))
        })?;
        let calling_thread = CallingThread::new(store, method);
        Ok(UringDevice {
            ring,
            task_work,
            entries,
            owner: None,
            files,
            calling_thread,
            wake: OnceCell::new(),
        })
    }

    /// What does a request without the ring.
    pub(super) fn calling_thread(&self) -> &CallingThread {
        &self.calling_thread
    }

    /// See [`crate::file::FileDevice::wake_descriptor`].
    pub fn wake_descriptor(&self) -> Option<RawFd> {
        if let Some(wake) = self.wake.get() {
            return Some(wake.as_raw_fd());
        }
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
        self.ring.submitter().register_eventfd(wake.as_raw_fd()).ok()?;
        if self.files.in_flight() > 0 {
            // What finished before the descriptor was there must wake too.
            let _ = rustix::io::write(&wake, &1u64.to_ne_bytes());
        }
        Some(self.wake.get_or_init(|| wake).as_raw_fd())
    }

    /// Makes the calling thread the ring's owner.
    fn own(&mut self) {
        let here = std::thread::current().id();
        if self.owner == Some(here) {
            return;
        }
        if self.owner.is_some() && self.task_work == TaskWork::Deferred {
            assert!(
                self.files.expected() == 0,
                "a device with requests in flight was moved to another thread"
            );
            match make_ring(self.entries) {
                Ok((ring, task_work)) => {
                    (self.ring, self.task_work) = (ring, task_work);
                    self.files.ring_replaced();
                }
                Err(error) => panic!("the ring cannot be made anew on another thread: {error}"),
            }
            if let Some(wake) = self.wake.get()
                && let Err(error) = self.ring.submitter().register_eventfd(wake.as_raw_fd())
            {
                panic!("the new ring refuses its wake descriptor: {error}");
            }
        }
        if self.task_work == TaskWork::Deferred
            && let Err(error) = self.ring.submitter().register_enable_rings()
        {
            panic!("the ring cannot be enabled: {error}");
        }
        self.owner = Some(here);
    }

    /// Enters the kernel: submits what is queued and waits for `want` completions.
    fn enter(&mut self, want: usize) {
        match self.ring.submit_and_wait(want) {
            Ok(_) => {}
            Err(error) => match error.raw_os_error() {
                // Interrupted, or short of memory or completion space: the caller reaps and returns.
                Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {}
                _ => panic!("io_uring_enter: {error}"),
            },
        }
    }

    /// Whether entering the kernel would neither submit anything nor bring a completion.
    fn nothing_to_enter_for(&mut self) -> bool {
        let queue = self.ring.submission();
        queue.is_empty() && !queue.taskrun() && !queue.cq_overflow()
    }

    /// Moves waiting entries into the queue, as many as it takes; whether these were all.
    fn push(&mut self) -> bool {
        let (submitter, mut queue, _) = self.ring.split();
        self.files.push(&submitter, &mut queue)
    }

    /// Moves waiting entries into the kernel, as many as it takes.
    fn flush_queue(&mut self) {
        loop {
            let all = self.push();
            if all || self.ring.submission().is_empty() {
                break;
            }
            self.enter(0);
            if self.ring.submission().is_full() {
                // The kernel takes none now; completions must be reaped first.
                break;
            }
        }
        if !self.ring.submission().is_empty() {
            self.enter(0);
        }
    }

    /// Takes what is in the completion queue; gives how many there were.
    fn reap(&mut self) -> usize {
        let mut count = 0;
        for entry in self.ring.completion() {
            self.files.completed(&entry);
            count += 1;
        }
        count
    }

    /// Resets the wake descriptor. What it told of until now must be in the completion queue
    /// afterwards: the kernel signals only the first of several pieces of deferred work, and would
    /// not signal those again that are left undone.
    fn reset_wake(&mut self) {
        let Some(wake) = self.wake.get() else { return };
        // An empty descriptor answers EAGAIN, which is what is wanted.
        let _ = rustix::io::read(wake, &mut [0u8; 8]);
        enter_while_flagged(
            self,
            |device| device.ring.submission().taskrun(),
            |device| {
                device.enter(0);
                device.reap()
            },
        );
    }
}

/// Entries in a row that bring nothing before the flag of deferred work is called stale.
const BARREN_ENTRIES_MAX: usize = 2;

/// Enters the kernel while it says that there is deferred work (`is_flagged`), as long as entries bring completions.
///
/// The flag alone is no end: who adds work from another processor raises it a moment behind, and when the owner has done
/// that work in between, the flag stays up with nothing behind it until more work comes. With nothing else in flight that
/// is never, and the completions that the caller waits for would lie in the queue unread.
fn enter_while_flagged<T>(
    device: &mut T,
    is_flagged: impl Fn(&mut T) -> bool,
    enter: impl Fn(&mut T) -> usize,
) {
    let mut barren = 0;
    while barren < BARREN_ENTRIES_MAX && is_flagged(device) {
        barren = if enter(device) == 0 { barren + 1 } else { 0 };
    }
}

impl BlockDevice for UringDevice {
    fn geometry(&self) -> Geometry {
        self.files.store().geometry()
    }

    fn guarantee(&self) -> Guarantee {
        self.files.store().guarantee()
    }

    fn durable_write_scope(&self) -> DurableWriteScope {
        DurableWriteScope::OwnSectors
    }

    fn submit(&mut self, requests: &mut Vec<IoRequest>) {
        self.own();
        self.files.submit(requests);
        self.flush_queue();
    }

    fn complete(&mut self, wait: Wait, completions: &mut Vec<IoCompletion>) -> usize {
        self.own();
        self.reset_wake();
        let mut taken = 0;
        let mut polled = false;
        loop {
            self.reap();
            taken += self.files.take(completions);
            let done = match wait {
                Wait::Poll => polled || taken > 0,
                Wait::One => taken > 0 || self.files.in_flight() == 0,
                Wait::All => self.files.in_flight() == 0,
            };
            self.push();
            if done {
                break;
            }
            let want = match wait {
                Wait::Poll => 0,
                Wait::One => 1,
                Wait::All => self.files.expected().min(self.entries as usize),
            };
            if wait == Wait::Poll && self.nothing_to_enter_for() {
                break;
            }
            polled = true;
            self.enter(want);
        }
        if !self.ring.submission().is_empty() {
            self.enter(0);
        }
        taken
    }

    fn in_flight(&self) -> usize {
        self.files.in_flight()
    }
}

impl Drop for UringDevice {
    fn drop(&mut self) {
        let elsewhere = self.owner.is_some_and(|owner| owner != std::thread::current().id());
        if elsewhere && self.files.expected() > 0 {
            // Its owner is gone with requests in flight: the buffers are leaked by `UringFiles`.
            return;
        }
        if self.files.in_flight() > 0 {
            self.complete(Wait::All, &mut Vec::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_of_deferred_work_that_stays_up_ends() {
        let mut entries = 0;
        enter_while_flagged(
            &mut entries,
            |_| true,
            |entries| {
                *entries += 1;
                0
            },
        );
        assert_eq!(entries, BARREN_ENTRIES_MAX);
    }

    #[test]
    fn deferred_work_is_done_to_its_end_in_as_many_entries_as_it_takes() {
        let mut pieces = vec![20, 20, 0, 7];
        let mut done = 0;
        enter_while_flagged(
            &mut (&mut pieces, &mut done),
            |(pieces, _)| !pieces.is_empty(),
            |(pieces, done)| {
                let piece = pieces.remove(0);
                **done += piece;
                piece
            },
        );
        assert_eq!((pieces.len(), done), (0, 47));
    }
}
