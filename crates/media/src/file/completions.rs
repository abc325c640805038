//! Where requests come back to when other threads do them, and how an event loop hears of it.

use crate::{IoCompletion, Wait};
use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};

/// The end that hands completions in, with a descriptor that wakes an event loop once somebody asked for it.
/// Clones are for many threads.
#[derive(Clone, Debug)]
pub struct Finished {
    sender: Sender<IoCompletion>,
    wake: Arc<OnceLock<OwnedFd>>,
}

impl Finished {
    /// Hands a completion in.
    pub fn put(&self, completion: IoCompletion) {
        // Nobody listens any more when the device is gone; nobody misses it then.
        let _ = self.sender.send(completion);
        if let Some(wake) = self.wake.get() {
            let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
        }
    }
}

/// The end of the device's owner: what is owed, and what has come back.
#[derive(Debug)]
pub struct Completions {
    finished: Finished,
    done: Receiver<IoCompletion>,
    in_flight: usize,
}

impl Default for Completions {
    fn default() -> Self {
        let (sender, done) = unbounded();
        Completions { finished: Finished { sender, wake: Arc::new(OnceLock::new()) }, done, in_flight: 0 }
    }
}

impl Completions {
    /// One more request is owed, and will be [`Finished::put`].
    pub fn owe(&mut self) {
        self.in_flight += 1;
    }

    /// The other end.
    pub fn finished(&self) -> &Finished {
        &self.finished
    }

    /// How many are owed.
    pub fn in_flight(&self) -> usize {
        self.in_flight
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

    /// See [`crate::BlockDevice::complete`].
    pub fn complete(&mut self, wait: Wait, completions: &mut Vec<IoCompletion>) -> usize {
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
                Err(error) => unreachable!("this end holds a sender itself: {error}"),
            }
        }
    }
}
