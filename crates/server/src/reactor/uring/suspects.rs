//! Receives that the kernel may have forgotten.
//!
//! A client that was reset with more to read than a multishot receive takes at once (32 buffers) was never heard of again
//! (seen in an audit, with Linux 6.18): as it seems, the receive had taken what there was, and waited for a wake-up that had
//! come before. It happens to whoever is paused in the middle of an upload and gives up. So a receive that was started, or
//! has brought something, is suspect until its socket was seen with nothing to read and whole: from then on it waits, and what
//! comes wakes it. Sockets that are seen to be broken have their receive cancelled, whose end starts another one, of one
//! buffer at a time: these end well.
//!
//! Invariants:
//! 1. An index is in the queue once, if its socket is marked, and not otherwise.
//! 2. Nobody wakes up for this: it is done in turns that happen anyway, and there is one a second as long as a client is
//!    there. Where nothing is suspect it costs nothing.

use super::{UringReactor, UringSocket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;

/// How often suspects are looked at, in microseconds.
const LOOK_INTERVAL_US: u64 = 1_000_000;
/// The most sockets that are looked at in one turn.
const LOOKS_A_TURN: usize = 1_024;

#[derive(Default)]
pub(super) struct Suspects {
    queue: VecDeque<u32>,
    /// How many of the queue's front this round has not looked at yet.
    left: usize,
    next_round_us: u64,
}

impl Suspects {
    /// The receive of `socket`, which is called `index`, is started, or goes on.
    #[inline]
    pub fn add(&mut self, index: u32, socket: &mut UringSocket) {
        if !socket.is_suspect && !socket.is_broken {
            socket.is_suspect = true;
            self.queue.push_back(index);
        }
    }

    /// Whether none is suspect.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Those that are looked at now.
    fn take(&mut self, now_us: u64) -> Vec<u32> {
        if self.left == 0 && now_us >= self.next_round_us && !self.queue.is_empty() {
            self.left = self.queue.len();
            self.next_round_us = now_us + LOOK_INTERVAL_US;
        }
        let count = self.left.min(LOOKS_A_TURN);
        self.left -= count;
        self.queue.drain(..count).collect()
    }
}

impl UringReactor {
    /// Looks at some of the suspects, if it is time. Cost: a system call.
    pub(super) fn look_at_suspects(&mut self, now_us: u64) {
        let taken = self.suspects.take(now_us);
        let mut polled = Vec::with_capacity(taken.len());
        for index in taken {
            let Some(socket) = self.sockets.get_mut(index as usize) else { continue };
            socket.is_suspect = false;
            // The end of a cancelled one starts the next, if any.
            if socket.is_receiving && !socket.is_cancelled {
                polled.push(index);
            }
        }
        if polled.is_empty() {
            return;
        }
        for (index, seen) in self.poll(&polled) {
            if seen.intersects(PollFlags::HUP | PollFlags::ERR) {
                if let Some(socket) = self.sockets.get_mut(index as usize) {
                    socket.is_broken = true;
                }
                self.cancel_receive(index);
            } else if seen.contains(PollFlags::IN)
                && let Some(socket) = self.sockets.get_mut(index as usize)
            {
                self.suspects.add(index, socket);
            }
        }
    }

    /// What the kernel says of each of these sockets now.
    fn poll(&self, indexes: &[u32]) -> Vec<(u32, PollFlags)> {
        let sockets = indexes.iter().filter_map(|index| {
            let socket = self.sockets.get(*index as usize)?.socket.as_ref()?;
            Some((*index, PollFd::new(socket, PollFlags::IN)))
        });
        let (indexes, mut polls): (Vec<u32>, Vec<PollFd<'_>>) = sockets.unzip();
        if poll(&mut polls, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_err() {
            // As if there were something to read: they are looked at again.
            return indexes.into_iter().map(|index| (index, PollFlags::IN)).collect();
        }
        indexes.into_iter().zip(polls.iter().map(PollFd::revents)).collect()
    }
}
