//! Waking a driver thread from another one.
//!
//! Invariants:
//! 1. A wake-up that began after the driver announced its sleep ends that sleep; one that began before
//!    keeps it from sleeping. None is lost.
//! 2. Waking a thread that is awake costs one atomic exchange; only a sleeping one costs a system call,
//!    and only the first of several wakers pays it.

use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tierstone_base::Result;

const AWAKE: u8 = 0;
const SLEEPING: u8 = 1;
const NOTIFIED: u8 = 2;

/// Wakes one driver thread; clones wake the same one.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: AtomicU8,
    descriptor: OwnedFd,
}

impl Waker {
    /// A waker for a driver that is built later.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn new() -> Result<Self> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| tierstone_base::Error::from(std::io::Error::from(error)))?;
        Ok(Waker { shared: Arc::new(Shared { state: AtomicU8::new(AWAKE), descriptor }) })
    }

    /// Makes the driver take another turn soon.
    pub fn wake(&self) {
        // Release: what was published before is seen by the turn that follows.
        if self.shared.state.swap(NOTIFIED, Ordering::AcqRel) == SLEEPING {
            // Fails only when the counter is full, and then the descriptor is readable already.
            let _ = rustix::io::write(&self.shared.descriptor, &1u64.to_ne_bytes());
        }
    }

    /// Announces a sleep; false when there was a wake-up, and the driver must not sleep.
    pub(crate) fn prepare_sleep(&self) -> bool {
        self.shared.state.compare_exchange(AWAKE, SLEEPING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Ends the sleep, or takes the wake-up that prevented it. What wakers published is seen from now on.
    pub(crate) fn awake(&self) {
        self.shared.state.swap(AWAKE, Ordering::AcqRel);
    }

    /// Becomes readable with each wake-up of a sleeping driver. It is never read: reactors watch it for
    /// edges.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.shared.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_before_the_sleep_prevents_it() {
        let waker = Waker::new().unwrap();
        waker.clone().wake();
        assert!(!waker.prepare_sleep());
        waker.awake();
        assert!(waker.prepare_sleep());
        waker.wake();
        waker.wake();
        let mut counter = [0u8; 8];
        rustix::io::read(waker.descriptor(), &mut counter).unwrap();
        assert_eq!(u64::from_ne_bytes(counter), 1, "only the first waker pays");
    }
}
