//! The end of a reactor: the kernel lets go of every buffer first, or the buffers stay for ever.

use super::ring::{ACCEPT, CANCEL, DEVICE_WAKE, FILES, RECEIVE, SLOW_SEND, WAKE, is_passing, user_data};
use super::{UringFile, UringReactor};
use crate::reactor::Reactor;
use io_uring::types::Timespec;
use io_uring::{cqueue, opcode};
use std::mem::ManuallyDrop;
use tierstone_base::{Clock, SystemClock};

/// How long dropping waits for the kernel before it leaks. By the clock: each completion ends a wait, and there may be
/// thousands of them.
const DROP_PATIENCE_US: u64 = 5_000_000;

impl Drop for UringReactor {
    fn drop(&mut self) {
        let is_quiet = self.quiesce();
        // SAFETY: nothing uses these fields after this; each is dropped once, the ring first.
        unsafe {
            ManuallyDrop::drop(&mut self.ring);
            if is_quiet {
                ManuallyDrop::drop(&mut self.buffers);
            }
            // A device with a mechanism of its own has nothing in this ring; what lies behind it wants to be closed.
            if is_quiet || matches!(&*self.device, UringFile::Own(_)) {
                ManuallyDrop::drop(&mut self.device);
            }
        }
        if !is_quiet {
            for socket in &mut self.sockets {
                std::mem::forget(socket.sending.take());
            }
        }
    }
}

impl UringReactor {
    /// Cancels everything of ours and waits until the kernel is done; false when it takes too long, or the kernel is not
    /// entered any more.
    fn quiesce(&mut self) -> bool {
        for index in 0..self.sockets.len() as u32 {
            self.close(index);
        }
        if self.is_listening {
            self.stop_listening();
        }
        self.end_polls();
        let clock = SystemClock::new();
        let until_us = clock.now().monotonic_us + DROP_PATIENCE_US;
        // An entry that was dropped has no completion.
        while self.failure.is_none() && clock.now().monotonic_us < until_us {
            let expected = match &*self.device {
                UringFile::Shared(files) => files.expected(),
                _ => 0,
            };
            if self.under_way + expected == 0 && self.ring.submission().is_empty() {
                return true;
            }
            let span = Timespec::new().nsec(100_000_000);
            // Unless it refuses for good, completions are looked at, and the loop is bounded.
            if self.enter(1, Some(&span)).is_err_and(|error| !is_passing(&error)) {
                return false;
            }
            self.collect();
            if self.seen.is_empty() {
                // A poll whose descriptor becomes ready as it is removed may stay armed, whatever the removal says.
                self.end_polls();
                // And a receive may not hear that its socket was shut.
                (0..self.sockets.len() as u32).for_each(|index| self.cancel_receive(index));
            }
            for entry in std::mem::take(&mut self.seen) {
                match (entry.user_data() >> 56) as u8 {
                    FILES => {
                        if let UringFile::Shared(files) = &mut *self.device {
                            files.completed(&entry);
                        }
                    }
                    ACCEPT | RECEIVE | SLOW_SEND | WAKE | DEVICE_WAKE if !cqueue::more(entry.flags()) => {
                        self.under_way -= 1;
                    }
                    _ => {}
                }
            }
        }
        false
    }

    pub(super) fn end_polls(&mut self) {
        for kind in [WAKE, DEVICE_WAKE] {
            let entry = opcode::PollRemove::new(user_data(kind, 0)).build();
            self.push(entry.user_data(user_data(CANCEL, 0)));
        }
    }
}
