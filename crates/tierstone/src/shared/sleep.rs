//! One sleep for two things: messages of callers and completions of the device.
//!
//! Invariants:
//! 1. A wake-up that began after the thread announced its sleep ends that sleep; one that began before
//!    keeps it from sleeping. None is lost.
//! 2. Waking a thread that is awake costs one atomic exchange; only a sleeping one costs a system call,
//!    and only the first of several callers pays it.

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tierstone_base::{Error, Result};

const AWAKE: u8 = 0;
const SLEEPING: u8 = 1;
const NOTIFIED: u8 = 2;
const MESSAGES: Token = Token(0);
const COMPLETIONS: Token = Token(1);

/// Wakes one shard's thread.
#[derive(Debug)]
pub(crate) struct Waker {
    state: AtomicU8,
    descriptor: mio::Waker,
}

impl Waker {
    /// Makes the thread look for messages soon.
    pub fn wake(&self) {
        // Release: the message that was sent before is seen by the look that follows.
        if self.state.swap(NOTIFIED, Ordering::AcqRel) == SLEEPING {
            // It fails only when a wake-up is pending already.
            let _ = self.descriptor.wake();
        }
    }
}

/// The sleeping end: belongs to the shard's thread.
#[derive(Debug)]
pub(crate) struct Sleeper {
    poll: Poll,
    events: Events,
    waker: Arc<Waker>,
}

impl Sleeper {
    /// A sleeper that nothing but its waker wakes yet.
    pub fn new() -> Result<(Self, Arc<Waker>)> {
        let poll = Poll::new().map_err(Error::from)?;
        let descriptor = mio::Waker::new(poll.registry(), MESSAGES).map_err(Error::from)?;
        let waker = Arc::new(Waker { state: AtomicU8::new(AWAKE), descriptor });
        Ok((Sleeper { poll, events: Events::with_capacity(4), waker: Arc::clone(&waker) }, waker))
    }

    /// Wakes for completions too: `descriptor` becomes readable with each.
    pub fn watch(&mut self, descriptor: impl AsRawFd) -> Result<()> {
        let descriptor = descriptor.as_raw_fd();
        let mut source = SourceFd(&descriptor);
        self.poll.registry().register(&mut source, COMPLETIONS, Interest::READABLE).map_err(Error::from)
    }

    /// Sleeps until a message or a completion has come or `timeout` is over; not at all when a message
    /// came since the last sleep.
    pub fn sleep(&mut self, timeout: Option<Duration>) -> Result<()> {
        let state = &self.waker.state;
        let quiet = state.compare_exchange(AWAKE, SLEEPING, Ordering::AcqRel, Ordering::Acquire).is_ok();
        let slept = if quiet { self.poll.poll(&mut self.events, timeout) } else { Ok(()) };
        state.swap(AWAKE, Ordering::AcqRel);
        match slept {
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => Err(Error::from(error)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_before_the_sleep_prevents_it_and_one_during_it_ends_it() {
        let (mut sleeper, waker) = Sleeper::new().unwrap();
        waker.wake();
        sleeper.sleep(None).unwrap();
        let thread = std::thread::Builder::new().spawn(move || waker.wake()).unwrap();
        sleeper.sleep(None).unwrap();
        thread.join().unwrap();
        sleeper.sleep(Some(Duration::from_millis(1))).unwrap();
    }
}
