//! Accepting: one multishot entry for each listener, which rests when there is no descriptor for a client.

use super::ring::{ACCEPT, user_data};
use super::{UringReactor, UringSocket};
use crate::listen::{Listener, peer_of};
use crate::service::Service;
use crate::turn::{Admission, Turn};
use io_uring::types::Fd;
use io_uring::{cqueue, opcode};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// How long an accept rests that found no descriptor, and nobody to turn away, in microseconds: the kernel says that none is
/// left whether or not somebody comes, and so as often as it is asked.
pub(super) const ACCEPT_REST_US: u64 = 100_000;

impl UringReactor {
    /// Starts accepts that have to be started.
    pub(super) fn start_accepts(&mut self) {
        while let Some(index) = self.rearm_accept.pop() {
            self.start_accept(index);
        }
    }

    fn start_accept(&mut self, index: u32) {
        let Some(listener) = self.listeners.get(index as usize) else { return };
        let entry = opcode::AcceptMulti::new(Fd(listener.as_raw_fd())).flags(libc::SOCK_CLOEXEC).build();
        self.under_way += 1;
        self.push(entry.user_data(user_data(ACCEPT, index)));
    }

    /// A client has come, or none could.
    pub(super) fn accepted<S: Service>(&mut self, entry: &cqueue::Entry, turn: &mut Turn<S>) {
        let index = entry.user_data() as u32;
        let (result, mut finds_nobody) = (entry.result(), false);
        if result >= 0 {
            // SAFETY: the kernel has just given this descriptor to us alone.
            let socket = unsafe { OwnedFd::from_raw_fd(result) };
            let is_sealed = self.listeners.get(index as usize).is_some_and(Listener::is_sealed);
            self.welcome(socket, is_sealed, turn);
        } else if matches!(-result, libc::EMFILE | libc::ENFILE)
            && let Some(listener) = self.listeners.get_mut(index as usize)
        {
            finds_nobody = !listener.turn_one_away();
            let _ = listener.set_nonblocking(false);
        }
        if cqueue::more(entry.flags()) {
            return;
        }
        self.under_way -= 1;
        if self.is_listening && finds_nobody {
            self.resting_accept.push(index);
            self.accept_at_us = turn.now.monotonic_us + ACCEPT_REST_US;
        } else if self.is_listening {
            self.rearm_accept.push(index);
        }
    }

    pub(super) fn welcome<S: Service>(&mut self, socket: OwnedFd, is_sealed: bool, turn: &mut Turn<S>) {
        let Some(peer) = peer_of(&socket) else { return };
        let index = match self.free.last() {
            Some(index) => *index,
            None => self.sockets.len() as u32,
        };
        match turn.accepted(index, &peer, is_sealed) {
            Admission::Open => {
                let mut socket = UringSocket { socket: Some(socket), ..UringSocket::default() };
                if self.free.pop().is_some() {
                    // The index may still be among the suspects: there it is once.
                    socket.is_suspect = self.sockets[index as usize].is_suspect;
                    self.sockets[index as usize] = socket;
                } else {
                    self.sockets.push(socket);
                }
                self.start_receive(index);
            }
            Admission::Refuse(farewell) => {
                use rustix::net::SendFlags;
                // As far as it goes: the client is not wanted.
                let _ = rustix::net::send(&socket, &farewell, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
            }
        }
    }
}
