//! Sends: quick ones, which report only failure, and slow ones, which wait for room.
//!
//! A quick send is neither deferred nor repeated by the kernel (`MSG_DONTWAIT`), and all or nothing
//! counts as success (`MSG_WAITALL`), so that a short one is reported with what it took.

use super::UringReactor;
use super::ring::{QUICK_SEND, SLOW_SEND, user_data};
use crate::reactor::Sending;
use crate::service::Service;
use crate::turn::Turn;
use io_uring::types::Fd;
use io_uring::{cqueue, opcode, squeue};
use std::os::fd::AsRawFd;

/// The most bytes of one entry; the kernel's limit is a little under 2 GiB.
const SEND_BYTES: usize = 1 << 30;

impl UringReactor {
    /// Queues a send: a quick one, unless the buffer is too long for one entry.
    pub(super) fn start_send(&mut self, index: u32, buffer: Vec<u8>) -> Sending {
        let Some(socket) = self.sockets.get_mut(index as usize) else { return Sending::Broken };
        let Some(fd) = socket.socket.as_ref().map(AsRawFd::as_raw_fd) else { return Sending::Broken };
        let len = buffer.len().min(SEND_BYTES) as u32;
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_WAITALL;
        let entry = opcode::Send::new(Fd(fd), buffer.as_ptr(), len).flags(flags).build();
        let is_whole = len as usize == buffer.len();
        socket.sending = Some((buffer, 0));
        socket.is_slow = !is_whole;
        if is_whole {
            self.quick.push(index);
            let entry = entry.flags(squeue::Flags::SKIP_SUCCESS);
            self.push(entry.user_data(user_data(QUICK_SEND, index)));
        } else {
            self.under_way += 1;
            self.push(entry.user_data(user_data(SLOW_SEND, index)));
        }
        Sending::UnderWay
    }

    /// A quick send did not take everything: wait for room with the rest.
    pub(super) fn quick_send_failed<S: Service>(&mut self, entry: &cqueue::Entry, turn: &mut Turn<S>) {
        let index = entry.user_data() as u32;
        let result = entry.result();
        let Some(socket) = self.sockets.get_mut(index as usize) else { return };
        let Some((buffer, sent)) = &mut socket.sending else { return };
        socket.is_slow = true;
        match result {
            0.. => *sent += result as usize,
            _ if matches!(-result, libc::EAGAIN | libc::EINTR) => {}
            _ => {
                let buffer = std::mem::take(buffer);
                self.send_failed(index, buffer, turn);
                return;
            }
        }
        self.go_on_sending(index, turn);
    }

    pub(super) fn slow_sent<S: Service>(&mut self, entry: &cqueue::Entry, turn: &mut Turn<S>) {
        let index = entry.user_data() as u32;
        let result = entry.result();
        self.under_way -= 1;
        let Some(socket) = self.sockets.get_mut(index as usize) else { return };
        let Some((buffer, sent)) = &mut socket.sending else { return };
        match result {
            0.. => *sent += result as usize,
            _ if matches!(-result, libc::EAGAIN | libc::EINTR) => {}
            _ => {
                let buffer = std::mem::take(buffer);
                self.send_failed(index, buffer, turn);
                return;
            }
        }
        self.go_on_sending(index, turn);
    }

    fn send_failed<S: Service>(&mut self, index: u32, buffer: Vec<u8>, turn: &mut Turn<S>) {
        turn.recycle(buffer);
        let Some(socket) = self.sockets.get_mut(index as usize) else { return };
        socket.sending = None;
        if socket.is_closing {
            self.let_go(index);
        } else {
            turn.broken(index);
        }
    }

    fn go_on_sending<S: Service>(&mut self, index: u32, turn: &mut Turn<S>) {
        let Some(socket) = self.sockets.get_mut(index as usize) else { return };
        let Some((buffer, sent)) = &socket.sending else { return };
        let rest = &buffer[(*sent).min(buffer.len())..];
        if rest.is_empty() || socket.is_closing {
            return self.send_done(index, turn);
        }
        let Some(fd) = socket.socket.as_ref().map(AsRawFd::as_raw_fd) else { return };
        let len = rest.len().min(SEND_BYTES) as u32;
        let entry = opcode::Send::new(Fd(fd), rest.as_ptr(), len).flags(libc::MSG_NOSIGNAL).build();
        self.under_way += 1;
        self.push(entry.user_data(user_data(SLOW_SEND, index)));
    }

    fn send_done<S: Service>(&mut self, index: u32, turn: &mut Turn<S>) {
        let Some(socket) = self.sockets.get_mut(index as usize) else { return };
        let Some((buffer, _)) = socket.sending.take() else { return };
        if socket.is_closing {
            turn.recycle(buffer);
            self.let_go(index);
        } else {
            turn.sent(index, buffer);
        }
    }

    /// Quick sends of which nothing was heard are done (invariant 2).
    pub(super) fn judge_quick_sends<S: Service>(&mut self, turn: &mut Turn<S>) {
        let (is_submitted, has_overflow) = {
            let queue = self.ring.submission();
            (queue.is_empty(), queue.cq_overflow())
        };
        if !is_submitted || has_overflow {
            return;
        }
        let mut quick = std::mem::take(&mut self.quick);
        for index in quick.drain(..) {
            if self.sockets.get(index as usize).is_some_and(|socket| !socket.is_slow) {
                self.send_done(index, turn);
            }
        }
        self.quick = quick;
    }
}
