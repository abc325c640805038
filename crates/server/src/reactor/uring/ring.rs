//! How the ring is made, and what its completions are called.

use io_uring::IoUring;
use tierstone_base::{Error, ErrorKind, Result};

/// What a completion is about: the top byte of its `user_data`. The rest is an index.
pub(super) const ACCEPT: u8 = 1;
pub(super) const RECEIVE: u8 = 2;
/// A send that is tried once and reports only failure.
pub(super) const QUICK_SEND: u8 = 3;
/// A send that waits for room.
pub(super) const SLOW_SEND: u8 = 4;
pub(super) const WAKE: u8 = 5;
pub(super) const DEVICE_WAKE: u8 = 6;
pub(super) const CANCEL: u8 = 7;
pub(super) const FILES: u8 = 8;

/// Entries of the submission queue: sends of one turn beyond this enter the kernel early.
const QUEUE_ENTRIES: u32 = 1024;
/// Completions that fit without overflowing into the kernel's own memory.
const COMPLETION_ENTRIES: u32 = 8192;
/// What names entry `index` of a kind.
pub(super) fn user_data(kind: u8, index: u32) -> u64 {
    u64::from(kind) << 56 | u64::from(index)
}

/// Whether an entry into the kernel that failed in this way may go well the next time.
pub(super) fn is_passing(error: &std::io::Error) -> bool {
    let passing = [libc::ETIME, libc::EINTR, libc::EAGAIN, libc::EBUSY, libc::ENOMEM];
    error.raw_os_error().is_some_and(|errno| passing.contains(&errno))
}

/// A ring with what this reactor needs (Linux 6.1).
pub(super) fn make_ring() -> Result<IoUring> {
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_cqsize(COMPLETION_ENTRIES)
        .setup_clamp()
        .setup_submit_all()
        .dontfork()
        .build(QUEUE_ENTRIES)
        .map_err(|error| {
            Error::new(ErrorKind::Unsupported, format!("the kernel refuses io_uring ({error}); use epoll"))
        })?;
    let features = ring.params();
    if features.is_feature_nodrop()
        && features.is_feature_ext_arg()
        && features.is_feature_skip_cqe_on_success()
    {
        Ok(ring)
    } else {
        Err(Error::new(ErrorKind::Unsupported, "the kernel's io_uring is too old; use epoll"))
    }
}
