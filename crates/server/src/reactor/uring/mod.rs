//! Waiting through io_uring: one system call a turn carries all sends and file requests of the turn
//! before and waits for what comes next.
//!
//! Accepting and receiving are multishot; received bytes lie in buffers that the ring's connections
//! share. A send is tried at once inside the submission and reports only failure; so when a submission
//! is through and nothing was said, it is done, and no completion wakes the thread for it.
//!
//! Invariants:
//! 1. A buffer in a send, and every receive buffer, stays where it is until the kernel is done with it;
//!    dropping the reactor waits for that, and leaks the memory if it does not come about.
//! 2. A quick send is judged only after an entry into the kernel took all of the queue and every
//!    completion of it was seen.
//! 3. A socket is closed, and its index free, when neither its receive nor a send is under way.
//! 4. While memory is short a receive takes one buffer and ends. A multishot one fills dozens of buffers for
//!    one connection before the turn hears of the first, and so before it can be paused.
//! 5. A receive that was started, or brought something and goes on, is looked after until its socket was seen with nothing to
//!    receive: the kernel forgets some (`suspects.rs`).

mod accepts;
mod buffers;
mod ring;
mod sends;
mod suspects;
mod teardown;

use super::{Device, Reactor, Sending, WakingDevice};
use crate::listen::Listener;
use crate::service::Service;
use crate::settings::TransportSettings;
use crate::turn::{Flow, Turn};
use crate::wake::Waker;
use accepts::ACCEPT_REST_US;
use buffers::{GROUP, ReceiveBuffers};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use ring::{
    ACCEPT, CANCEL, DEVICE_WAKE, FILES, QUICK_SEND, RECEIVE, SLOW_SEND, WAKE, is_passing, make_ring,
    user_data,
};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use suspects::Suspects;
use tierstone_base::{Error, Result};
use tierstone_media::file::UringFiles;
use tierstone_media::{IoCompletion, IoRequest, Wait};

const POLL_IN: u32 = libc::POLLIN as u32;
#[derive(Default)]
struct UringSocket {
    socket: Option<OwnedFd>,
    /// A multishot receive is under way.
    is_receiving: bool,
    /// It has been asked to end.
    is_cancelled: bool,
    is_paused: bool,
    /// In `rearm`.
    is_rearming: bool,
    /// In `suspects`.
    is_suspect: bool,
    /// Seen to be broken: what is left to receive is taken one buffer at a time.
    is_broken: bool,
    is_closing: bool,
    /// The buffer that is being sent, and how much of it the kernel has taken for sure.
    sending: Option<(Vec<u8>, usize)>,
    /// The quick send of `sending` has failed or fallen short.
    is_slow: bool,
}

enum UringFile {
    None,
    Shared(Box<UringFiles>),
    Own(Box<dyn WakingDevice>),
}

pub(crate) struct UringReactor {
    ring: ManuallyDrop<IoUring>,
    buffers: ManuallyDrop<ReceiveBuffers>,
    sockets: Vec<UringSocket>,
    free: Vec<u32>,
    listeners: Vec<Listener>,
    is_listening: bool,
    device: ManuallyDrop<UringFile>,
    /// Sockets whose quick send entered the queue since the last judgement.
    quick: Vec<u32>,
    /// Sockets whose receive has to be started.
    rearm: Vec<u32>,
    /// The same of those that found no buffer: they come first.
    starved: Vec<u32>,
    /// Memory is short (invariant 4).
    is_sparing: bool,
    /// Listeners whose accept has to be started.
    rearm_accept: Vec<u32>,
    /// The same of those that rest, and until when; or until a socket is closed.
    resting_accept: Vec<u32>,
    accept_at_us: u64,
    /// Completions copied out of the ring.
    seen: Vec<cqueue::Entry>,
    /// Our own entries (not quick sends, not cancellations) whose last completion has not come.
    under_way: usize,
    waker: Waker,
    /// Sockets whose receive is looked after (invariant 5).
    suspects: Suspects,
    /// Why an entry was dropped: nothing goes on after it.
    failure: Option<Error>,
    /// The kernel is not entered any more, as if it refused.
    #[cfg(test)]
    is_entering_refused: bool,
}

impl UringReactor {
    /// Makes the ring on the thread that will drive it.
    ///
    /// # Errors
    /// `Unsupported` when the kernel refuses the ring or one of its features.
    pub fn new(
        settings: &TransportSettings,
        listeners: Vec<Listener>,
        waker: Waker,
        device: Device,
    ) -> std::result::Result<Self, (Error, Vec<Listener>, Device)> {
        let made = make_ring().and_then(|ring| {
            let bytes = settings.receive_buffer_bytes as usize;
            let buffers = ReceiveBuffers::new(&ring, settings.receive_buffers, bytes)?;
            Ok((ring, buffers))
        });
        let (ring, buffers) = match made {
            Ok(made) => made,
            Err(error) => return Err((error, listeners, device)),
        };
        let device = match device {
            Device::None => UringFile::None,
            Device::Own(device) => UringFile::Own(device),
            Device::Files { store, method } => match UringFiles::new(&store, method, FILES) {
                Ok(files) => UringFile::Shared(Box::new(files)),
                Err(error) => return Err((error, listeners, Device::Files { store, method })),
            },
        };
        let mut reactor = UringReactor {
            ring: ManuallyDrop::new(ring),
            buffers: ManuallyDrop::new(buffers),
            sockets: Vec::new(),
            free: Vec::new(),
            rearm_accept: (0..listeners.len() as u32).collect(),
            resting_accept: Vec::new(),
            accept_at_us: 0,
            listeners,
            is_listening: true,
            device: ManuallyDrop::new(device),
            quick: Vec::new(),
            rearm: Vec::new(),
            starved: Vec::new(),
            is_sparing: false,
            seen: Vec::new(),
            under_way: 0,
            waker,
            suspects: Suspects::default(),
            failure: None,
            #[cfg(test)]
            is_entering_refused: false,
        };
        for listener in &reactor.listeners {
            // A listener that does not block would make the kernel answer "nobody there".
            let _ = listener.set_nonblocking(false);
        }
        reactor.watch(WAKE, reactor.waker.descriptor().as_raw_fd());
        if let UringFile::Own(device) = &*reactor.device
            && let Some(descriptor) = device.wake_descriptor()
        {
            reactor.watch(DEVICE_WAKE, descriptor);
        }
        reactor.start_accepts();
        Ok(reactor)
    }

    /// Reports each edge of a descriptor's readiness, without reading it.
    fn watch(&mut self, kind: u8, descriptor: RawFd) {
        let entry = opcode::PollAdd::new(Fd(descriptor), POLL_IN).multi(true).build();
        self.under_way += 1;
        self.push(entry.user_data(user_data(kind, 0)));
    }

    /// Hands the kernel what is queued, and waits for `wanted` completions, for `span` at most.
    fn enter(&self, wanted: usize, span: Option<&Timespec>) -> std::io::Result<usize> {
        #[cfg(test)]
        if self.is_entering_refused {
            return Err(std::io::Error::from_raw_os_error(libc::EPERM));
        }
        match span {
            None => self.ring.submitter().submit_and_wait(wanted),
            Some(span) => self.ring.submitter().submit_with_args(wanted, &SubmitArgs::new().timespec(span)),
        }
    }

    /// Queues an entry; enters the kernel first when the queue is full. Where that fails for good the entry is dropped, and
    /// the next wait tells why.
    fn push(&mut self, entry: squeue::Entry) {
        loop {
            // SAFETY: what the entry points to (a buffer of `sending`, nothing otherwise) stays in
            // place until its completion or the judgement of quick sends (invariant 1).
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
            match self.enter(0, None) {
                Ok(_) => {}
                Err(error) if is_passing(&error) => self.collect(),
                Err(error) => {
                    self.failure.get_or_insert_with(|| Error::from(error).context("io_uring_enter"));
                    return;
                }
            }
        }
    }

    /// Copies completions out of the ring.
    fn collect(&mut self) {
        self.seen.extend(self.ring.completion());
    }

    fn start_receive(&mut self, index: u32) {
        let Some(socket) = self.sockets.get_mut(index as usize) else { return };
        socket.is_rearming = false;
        if socket.is_receiving || socket.is_closing || socket.is_paused {
            return;
        }
        let Some(fd) = socket.socket.as_ref().map(AsRawFd::as_raw_fd) else { return };
        socket.is_receiving = true;
        socket.is_cancelled = false;
        self.under_way += 1;
        self.suspects.add(index, socket);
        let entry = if self.is_sparing || socket.is_broken {
            let len = self.buffers.buffer_bytes() as u32;
            let one = opcode::Recv::new(Fd(fd), std::ptr::null_mut(), len).buf_group(GROUP);
            one.build().flags(squeue::Flags::BUFFER_SELECT)
        } else {
            opcode::RecvMulti::new(Fd(fd), GROUP).build()
        };
        self.push(entry.user_data(user_data(RECEIVE, index)));
    }

    fn rearm(&mut self, index: u32, is_starved: bool) {
        if let Some(socket) = self.sockets.get_mut(index as usize)
            && !socket.is_rearming
        {
            socket.is_rearming = true;
            if is_starved { self.starved.push(index) } else { self.rearm.push(index) }
        }
    }

    /// Turns to receives of one buffer when memory gets short, and back when there is enough (invariant 4).
    fn note_memory<S: Service>(&mut self, turn: &Turn<S>) {
        if self.is_sparing {
            self.is_sparing = !turn.has_ample_memory();
        } else if turn.is_memory_short() {
            self.is_sparing = true;
            // The end of a cancelled receive starts the next one.
            (0..self.sockets.len() as u32).for_each(|index| self.cancel_receive(index));
        }
    }

    fn pause_receive(&mut self, index: u32) {
        if let Some(socket) = self.sockets.get_mut(index as usize) {
            socket.is_paused = true;
            self.cancel_receive(index);
        }
    }

    fn cancel_receive(&mut self, index: u32) {
        let Some(socket) = self.sockets.get_mut(index as usize) else { return };
        if socket.is_receiving && !socket.is_cancelled {
            socket.is_cancelled = true;
            let entry = opcode::AsyncCancel::new(user_data(RECEIVE, index)).build();
            self.push(entry.user_data(user_data(CANCEL, index)));
        }
    }

    fn received<S: Service>(&mut self, entry: &cqueue::Entry, turn: &mut Turn<S>) {
        let index = entry.user_data() as u32;
        let result = entry.result();
        let is_last = !cqueue::more(entry.flags());
        let Some(socket) = self.sockets.get_mut(index as usize) else { return };
        if is_last {
            self.under_way -= 1;
            socket.is_receiving = false;
        }
        let is_closing = socket.is_closing;
        let buffer = cqueue::buffer_select(entry.flags());
        if result > 0
            && let Some(id) = buffer
        {
            let flow = if is_closing {
                Flow::Go
            } else {
                turn.received(index, self.buffers.bytes(id, result as usize))
            };
            self.buffers.give(id);
            if !is_last && let Some(socket) = self.sockets.get_mut(index as usize) {
                self.suspects.add(index, socket);
            }
            match flow {
                Flow::Pause => self.pause_receive(index),
                // It came before the cancellation of a receive that is wanted again by now.
                // Its end, or that of this one, starts the next, behind those that starved.
                Flow::Go => {
                    if let Some(socket) = self.sockets.get_mut(index as usize) {
                        socket.is_paused = false;
                    }
                }
            }
            if is_last && !is_closing {
                self.rearm(index, false);
            }
        } else {
            if let Some(id) = buffer {
                self.buffers.give(id);
            }
            if is_last && !is_closing {
                self.receive_ended(index, result, turn);
            }
        }
        if is_closing {
            self.let_go(index);
        }
    }

    fn receive_ended<S: Service>(&mut self, index: u32, result: i32, turn: &mut Turn<S>) {
        match -result {
            0 => turn.input_ended(index),
            // Out of buffers: they come back before the receive is started again.
            libc::ENOBUFS => self.rearm(index, true),
            libc::EINTR | libc::EAGAIN => self.rearm(index, false),
            // Paused, or resumed while the end was on its way; or to take one buffer at a time.
            libc::ECANCELED => self.rearm(index, false),
            _ => turn.broken(index),
        }
    }

    /// Frees the index of a closing socket when the kernel is done with it.
    fn let_go(&mut self, index: u32) {
        let Some(socket) = self.sockets.get_mut(index as usize) else { return };
        if socket.is_closing && !socket.is_receiving && socket.sending.is_none() && socket.socket.is_some() {
            socket.socket = None;
            self.free.push(index);
            self.rearm_accept.append(&mut self.resting_accept);
        }
    }

    /// Moves file requests into the queue.
    fn push_files(&mut self) {
        let UringFile::Shared(files) = &mut *self.device else { return };
        loop {
            let (submitter, mut queue, _) = self.ring.split();
            let all = files.push(&submitter, &mut queue);
            drop(queue);
            // Short of memory or completion space: the next wait takes completions out.
            if all || submitter.submit().is_err() {
                return;
            }
        }
    }

    /// Tells `turn` what the first of these entries bring, before they are dispatched. Gives for how many that was done.
    fn foresee<S: Service>(&self, seen: &[cqueue::Entry], turn: &mut Turn<S>) -> usize {
        let mut inputs =
            seen.iter().enumerate().filter_map(|(place, entry)| Some((place, self.input(entry)?))).peekable();
        while let Some((place, (index, data))) = inputs.next() {
            // The last one is shown right away.
            if place == 0 && inputs.peek().is_none() || !turn.foresee(index, data) {
                return place + 1;
            }
        }
        seen.len()
    }

    /// What has come from which connection, if the entry tells of that.
    #[inline]
    fn input(&self, entry: &cqueue::Entry) -> Option<(u32, &[u8])> {
        if (entry.user_data() >> 56) as u8 != RECEIVE || entry.result() <= 0 {
            return None;
        }
        let id = cqueue::buffer_select(entry.flags())?;
        Some((entry.user_data() as u32, self.buffers.bytes(id, entry.result() as usize)))
    }

    fn dispatch_one<S: Service>(&mut self, entry: &cqueue::Entry, turn: &mut Turn<S>) {
        match (entry.user_data() >> 56) as u8 {
            RECEIVE => self.received(entry, turn),
            SLOW_SEND => self.slow_sent(entry, turn),
            ACCEPT => self.accepted(entry, turn),
            FILES => {
                if let UringFile::Shared(files) = &mut *self.device {
                    files.completed(entry);
                }
            }
            kind @ (WAKE | DEVICE_WAKE) if !cqueue::more(entry.flags()) => {
                self.under_way -= 1;
                let descriptor = match (&*self.device, kind) {
                    (UringFile::Own(device), DEVICE_WAKE) => device.wake_descriptor(),
                    (_, WAKE) => Some(self.waker.descriptor().as_raw_fd()),
                    _ => None,
                };
                if let Some(descriptor) = descriptor {
                    self.watch(kind, descriptor);
                }
            }
            // Quick sends were looked at before; cancellations say nothing that the cancelled does not.
            _ => {}
        }
    }
}

impl Reactor for UringReactor {
    fn wait(&mut self, timeout_us: Option<u64>) -> Result<()> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        self.push_files();
        // Of those that rested until a socket was closed.
        self.start_accepts();
        let mut timeout_us = timeout_us;
        if !self.resting_accept.is_empty() {
            timeout_us = Some(timeout_us.unwrap_or(u64::MAX).min(ACCEPT_REST_US));
        }
        if !self.seen.is_empty() {
            timeout_us = Some(0);
        }
        loop {
            let span = timeout_us
                .map(|us| Timespec::new().sec(us / 1_000_000).nsec((us % 1_000_000) as u32 * 1_000));
            if let Err(error) = self.enter(1, span.as_ref())
                && !is_passing(&error)
            {
                return Err(Error::from(error).context("io_uring_enter"));
            }
            self.collect();
            // A submission that was cut short goes on, without sleeping on what it left behind.
            if self.ring.submission().is_empty() {
                return Ok(());
            }
            timeout_us = Some(0);
        }
    }

    fn dispatch<S: Service>(&mut self, turn: &mut Turn<S>) {
        // First: what is started in this turn is not with the kernel yet.
        self.look_at_suspects(turn.now.monotonic_us);
        let mut seen = std::mem::take(&mut self.seen);
        for entry in &seen {
            if entry.user_data() >> 56 == u64::from(QUICK_SEND) {
                self.quick_send_failed(entry, turn);
            }
        }
        self.judge_quick_sends(turn);
        let mut foreseen = 0;
        for (place, entry) in seen.iter().enumerate() {
            if place >= foreseen {
                foreseen = place + self.foresee(&seen[place..], turn);
            }
            self.dispatch_one(entry, turn);
        }
        seen.clear();
        // Entries that a full queue made us collect meanwhile stay for the next turn.
        seen.append(&mut self.seen);
        self.seen = seen;
        self.buffers.publish();
        match &mut *self.device {
            UringFile::Shared(files) => {
                files.take(&mut turn.completions);
            }
            UringFile::Own(device) if device.in_flight() > 0 => {
                device.complete(Wait::Poll, &mut turn.completions);
            }
            _ => {}
        }
        self.note_memory(turn);
        let (mut starved, mut rearm) = (std::mem::take(&mut self.starved), std::mem::take(&mut self.rearm));
        for index in starved.drain(..).chain(rearm.drain(..)) {
            self.start_receive(index);
        }
        (self.starved, self.rearm) = (starved, rearm);
        if turn.now.monotonic_us >= self.accept_at_us {
            self.rearm_accept.append(&mut self.resting_accept);
        }
        self.start_accepts();
    }

    fn send(&mut self, index: u32, buffer: Vec<u8>) -> Sending {
        self.start_send(index, buffer)
    }

    fn resume_receive(&mut self, index: u32) {
        if let Some(socket) = self.sockets.get_mut(index as usize) {
            socket.is_paused = false;
            // While the cancelled receive is under way its end starts the new one.
            self.start_receive(index);
        }
    }

    fn close(&mut self, index: u32) {
        let Some(socket) = self.sockets.get_mut(index as usize) else { return };
        if socket.is_closing {
            return;
        }
        socket.is_closing = true;
        if (socket.is_receiving || socket.sending.is_some())
            && let Some(fd) = &socket.socket
        {
            // Ends what is under way; its completions let the index go.
            let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Both);
        }
        self.let_go(index);
    }

    fn stop_listening(&mut self) {
        self.is_listening = false;
        self.rearm_accept.clear();
        self.resting_accept.clear();
        for index in 0..self.listeners.len() as u32 {
            let entry = opcode::AsyncCancel::new(user_data(ACCEPT, index)).build();
            self.push(entry.user_data(user_data(CANCEL, index)));
        }
        // The sockets end with the reactor; refuse whoever comes until then.
        for listener in &self.listeners {
            let _ = rustix::net::shutdown(listener, rustix::net::Shutdown::Both);
        }
    }

    fn submit(&mut self, requests: &mut Vec<IoRequest>, completions: &mut Vec<IoCompletion>) {
        match &mut *self.device {
            UringFile::Shared(files) => {
                files.submit(requests);
                // What was refused, or needs no device, is done already.
                files.take(completions);
            }
            UringFile::Own(device) => {
                device.submit(requests);
                device.complete(Wait::Poll, completions);
            }
            UringFile::None => unreachable!("a service without a device made {} requests", requests.len()),
        }
    }
}

#[cfg(test)]
#[path = "uring_test.rs"]
mod uring_test;
