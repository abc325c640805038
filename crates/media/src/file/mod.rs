//! Devices made of files: one store over one or several directories, driven through io_uring or
//! through threads.
//!
//! The flat space of the trait lies in files: the superblock area is `superblock.tier` in the first
//! directory, segment `n` is `segment-00000n.tier` in one of the directories. The bytes and names
//! are drawn in `docs/formats/file-store.md`, what was measured stands in `docs/design/media.md`.
//!
//! Who owns what: a process opens a [`FileStore`] once; it owns the lock, the directories and the
//! table of open files. Each shard's thread owns one [`FileDevice`] made from it.
//!
//! A crash at any point leaves whole segment files (see `member`), markers that are old or new
//! (see `marker`), and in the files whatever their writes had reached.

pub mod completions;
mod housekeeper;
pub mod layout;
mod marker;
mod member;
mod open;
pub(crate) mod plan;
mod pool;
mod registered;
mod segment;
pub mod settings;
pub mod single;
mod slots;
pub mod threads;
mod transfer;
pub mod uring;
mod uring_device;

pub use completions::{Completions, Finished};
pub use layout::{FileStore, FileStoreProperties, MemberProperties};
pub use open::{FoundStore, find_store};
pub use settings::{DirectIo, DurableMethod, FileBackend, FileStoreSettings};
pub use single::{Discards, SingleFile, SingleFileSettings};
pub use threads::{CallingThread, ThreadDevice};
pub use uring::UringFiles;
pub use uring_device::{UringDevice, uring_refusal};

use crate::{BlockDevice, DurableWriteScope, Geometry, Guarantee, IoCompletion, IoRequest, Wait};
use std::os::fd::RawFd;

/// What holds of the marker of a store's directory, whatever bytes it is read from; for `fuzz/`.
#[cfg(feature = "fuzzing")]
pub fn check_marker(data: &[u8]) {
    marker::Marker::check(data);
}

/// One handle on a [`FileStore`], for one thread. It may be moved to another thread while nothing
/// is in flight.
#[derive(Debug)]
pub enum FileDevice {
    /// Driven by a ring of its own.
    Uring(Box<UringDevice>),
    /// Driven by a pool of threads of its own.
    Threads(Box<ThreadDevice>),
}

impl FileDevice {
    /// Which back-end drives this handle; never [`FileBackend::Auto`].
    pub fn backend(&self) -> FileBackend {
        match self {
            FileDevice::Uring(_) => FileBackend::IoUring,
            FileDevice::Threads(_) => FileBackend::Threads,
        }
    }

    /// A descriptor that becomes readable when a request that was in flight has finished: for an
    /// event loop that waits on sockets too. [`BlockDevice::complete`] resets it. Requests that
    /// finish inside [`BlockDevice::submit`] (wrong ones, reads of absent segments) do not wake:
    /// poll once after each submission. The first call makes the descriptor; from then on a
    /// completion costs one more system call at most. It is valid as long as the device. `None` when
    /// the kernel refuses to make one.
    pub fn wake_descriptor(&self) -> Option<RawFd> {
        match self {
            FileDevice::Uring(device) => device.wake_descriptor(),
            FileDevice::Threads(device) => device.wake_descriptor(),
        }
    }
}

impl FileDevice {
    fn calling_thread(&self) -> &CallingThread {
        match self {
            FileDevice::Uring(device) => device.calling_thread(),
            FileDevice::Threads(device) => device.calling_thread(),
        }
    }
}

impl BlockDevice for FileDevice {
    fn geometry(&self) -> Geometry {
        match self {
            FileDevice::Uring(device) => device.geometry(),
            FileDevice::Threads(device) => device.geometry(),
        }
    }

    fn guarantee(&self) -> Guarantee {
        match self {
            FileDevice::Uring(device) => device.guarantee(),
            FileDevice::Threads(device) => device.guarantee(),
        }
    }

    fn durable_write_scope(&self) -> DurableWriteScope {
        match self {
            FileDevice::Uring(device) => device.durable_write_scope(),
            FileDevice::Threads(device) => device.durable_write_scope(),
        }
    }

    fn submit(&mut self, requests: &mut Vec<IoRequest>) {
        match self {
            FileDevice::Uring(device) => device.submit(requests),
            FileDevice::Threads(device) => device.submit(requests),
        }
    }

    fn complete(&mut self, wait: Wait, completions: &mut Vec<IoCompletion>) -> usize {
        match self {
            FileDevice::Uring(device) => device.complete(wait, completions),
            FileDevice::Threads(device) => device.complete(wait, completions),
        }
    }

    fn carry_out(&mut self, requests: &mut Vec<IoRequest>, completions: &mut Vec<IoCompletion>) -> usize {
        let is_alone = self.in_flight() == 0 && requests.len() == 1;
        match requests.pop_if(|request| is_alone && CallingThread::does(request.kind)) {
            // Without the way through a ring's worker or a thread of the pool.
            Some(request) => completions.push(self.calling_thread().carry_out(request)),
            None => {
                self.submit(requests);
                return self.complete(Wait::One, completions);
            }
        }
        1
    }

    fn in_flight(&self) -> usize {
        match self {
            FileDevice::Uring(device) => device.in_flight(),
            FileDevice::Threads(device) => device.in_flight(),
        }
    }
}

#[cfg(test)]
mod failure_test;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod wake_test;
