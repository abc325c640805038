//! Waiting through epoll, edge-triggered: a read and a write for each connection that is heard.
//!
//! Invariants:
//! 1. A socket that may have more to read is in `ready` or paused, so no edge is ever lost.
//! 2. One read a turn for each connection, so that a busy one does not starve the others.

use super::{Device, Reactor, Sending, WakingDevice};
use crate::listen::{Accepted, Listener, peer_of};
use crate::service::Service;
use crate::settings::TransportSettings;
use crate::turn::{Admission, Flow, Turn};
use crate::wake::Waker;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;
use tierstone_base::Result;
use tierstone_media::{IoCompletion, IoRequest, Wait};

const WAKE: Token = Token(usize::MAX - 1);
const DEVICE: Token = Token(usize::MAX - 2);
const LISTENERS: usize = usize::MAX / 2;
/// Events of one wait; the others are told by the next one.
const EVENTS: usize = 1024;
/// Clients accepted in one turn from one listener.
const ACCEPTS: usize = 256;
/// Bytes of one read while memory is short.
const SHORT_READ_BYTES: usize = 16 << 10;

struct EpollSocket {
    socket: OwnedFd,
    is_paused: bool,
    is_ready: bool,
    /// The peer has closed: a short read does not mean that there is nothing left to learn.
    is_hung: bool,
    /// What the kernel has not taken of a send, and how much it has.
    unsent: Option<(Vec<u8>, usize)>,
}

pub(crate) struct EpollReactor {
    poll: Poll,
    events: Events,
    sockets: Vec<Option<EpollSocket>>,
    free: Vec<u32>,
    /// Sockets to read from.
    ready: Vec<u32>,
    listeners: Vec<Listener>,
    is_listener_ready: Vec<bool>,
    device: Option<Box<dyn WakingDevice>>,
    scratch: Vec<u8>,
    /// Keeps the descriptor that epoll watches alive.
    _waker: Waker,
}

impl EpollReactor {
    pub fn new(
        settings: &TransportSettings,
        listeners: Vec<Listener>,
        waker: Waker,
        device: Device,
    ) -> Result<Self> {
        let poll = Poll::new()?;
        let registry = poll.registry();
        for (index, listener) in listeners.iter().enumerate() {
            listener.set_nonblocking(true)?;
            let fd = listener.as_raw_fd();
            registry.register(&mut SourceFd(&fd), Token(LISTENERS + index), Interest::READABLE)?;
        }
        let wake = waker.descriptor().as_raw_fd();
        registry.register(&mut SourceFd(&wake), WAKE, Interest::READABLE)?;
        let device: Option<Box<dyn WakingDevice>> = match device {
            Device::None => None,
            Device::Own(device) => Some(device),
            Device::Files { store, method } => Some(Box::new(store.device(method)?)),
        };
        if let Some(fd) = device.as_ref().and_then(|device| device.wake_descriptor()) {
            registry.register(&mut SourceFd(&fd), DEVICE, Interest::READABLE)?;
        }
        let is_listener_ready = vec![false; listeners.len()];
        Ok(EpollReactor {
            poll,
            events: Events::with_capacity(EVENTS),
            sockets: Vec::new(),
            free: Vec::new(),
            ready: Vec::new(),
            listeners,
            is_listener_ready,
            device,
            scratch: vec![0; (settings.receive_buffer_bytes as usize).max(64 << 10)],
            _waker: waker,
        })
    }

    fn socket(&mut self, index: u32) -> Option<&mut EpollSocket> {
        self.sockets.get_mut(index as usize)?.as_mut()
    }

    fn make_ready(&mut self, index: u32) {
        if let Some(socket) = self.socket(index)
            && !socket.is_ready
            && !socket.is_paused
        {
            socket.is_ready = true;
            self.ready.push(index);
        }
    }

    fn accept_all<S: Service>(&mut self, listener: usize, turn: &mut Turn<S>) {
        for _ in 0..ACCEPTS {
            let Some(from) = self.listeners.get_mut(listener) else { return };
            match from.accept() {
                Accepted::Socket(socket) => {
                    let is_sealed = from.is_sealed();
                    self.welcome(socket, is_sealed, turn);
                }
                Accepted::Again => {}
                Accepted::Nobody => {
                    self.is_listener_ready[listener] = false;
                    return;
                }
            }
        }
        self.is_listener_ready[listener] = true;
    }

    fn welcome<S: Service>(&mut self, socket: OwnedFd, is_sealed: bool, turn: &mut Turn<S>) {
        let Some(peer) = peer_of(&socket) else { return };
        let index = match self.free.last() {
            Some(index) => *index,
            None => self.sockets.len() as u32,
        };
        let fd = socket.as_raw_fd();
        let interest = Interest::READABLE | Interest::WRITABLE;
        let token = Token(index as usize);
        if self.poll.registry().register(&mut SourceFd(&fd), token, interest).is_err() {
            return;
        }
        match turn.accepted(index, &peer, is_sealed) {
            Admission::Open => {
                let socket =
                    EpollSocket { socket, is_paused: false, is_ready: false, is_hung: false, unsent: None };
                if self.free.pop().is_some() {
                    self.sockets[index as usize] = Some(socket);
                } else {
                    self.sockets.push(Some(socket));
                }
            }
            Admission::Refuse(farewell) => {
                // As far as it goes: the client is not wanted.
                let _ = rustix::net::send(&socket, &farewell, rustix::net::SendFlags::NOSIGNAL);
            }
        }
    }

    fn socket_event<S: Service>(&mut self, event: &mio::event::Event, turn: &mut Turn<S>) {
        let index = event.token().0 as u32;
        let Some(socket) = self.socket(index) else { return };
        if event.is_error() || (event.is_read_closed() && event.is_write_closed()) {
            socket.is_hung = true;
            if socket.is_paused {
                // Nobody would read, and so nobody would learn.
                turn.broken(index);
                return;
            }
        }
        socket.is_hung |= event.is_read_closed();
        if event.is_writable() && socket.unsent.is_some() {
            self.go_on_sending(index, turn);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            self.make_ready(index);
        }
    }

    fn go_on_sending<S: Service>(&mut self, index: u32, turn: &mut Turn<S>) {
        let Some(socket) = self.socket(index) else { return };
        let Some((buffer, mut sent)) = socket.unsent.take() else { return };
        match write_some(&socket.socket, &buffer, &mut sent) {
            Ok(true) => turn.sent(index, buffer),
            Ok(false) => socket.unsent = Some((buffer, sent)),
            Err(_) => turn.broken(index),
        }
    }

    /// One read; returns whether another one may give something.
    fn read<S: Service>(&mut self, index: u32, turn: &mut Turn<S>) -> bool {
        let Some(socket) = self.sockets.get_mut(index as usize).and_then(Option::as_mut) else {
            return false;
        };
        // Whoever has to wait for memory has had one read already, which so is a small one.
        let most = if turn.is_memory_short() { SHORT_READ_BYTES } else { self.scratch.len() };
        match rustix::io::read(&socket.socket, &mut self.scratch[..most]) {
            Ok(0) => {
                turn.input_ended(index);
                false
            }
            Ok(count) => {
                let data = &self.scratch[..count];
                if turn.received(index, data) == Flow::Pause {
                    socket.is_paused = true;
                    return false;
                }
                count == most || socket.is_hung
            }
            Err(Errno::AGAIN) => false,
            Err(Errno::INTR) => true,
            Err(_) => {
                turn.broken(index);
                false
            }
        }
    }
}

impl Reactor for EpollReactor {
    fn wait(&mut self, timeout_us: Option<u64>) -> Result<()> {
        let has_more = !self.ready.is_empty() || self.is_listener_ready.contains(&true);
        let timeout = if has_more { Some(Duration::ZERO) } else { timeout_us.map(Duration::from_micros) };
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn dispatch<S: Service>(&mut self, turn: &mut Turn<S>) {
        let events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        for event in &events {
            match event.token() {
                WAKE => {}
                // Polled below, whoever woke us.
                DEVICE => {}
                Token(token) if token >= LISTENERS => {
                    if let Some(ready) = self.is_listener_ready.get_mut(token - LISTENERS) {
                        *ready = true;
                    }
                }
                Token(_) => self.socket_event(event, turn),
            }
        }
        self.events = events;
        if let Some(device) = &mut self.device
            && device.in_flight() > 0
        {
            device.complete(Wait::Poll, &mut turn.completions);
        }
        let mut ready = std::mem::take(&mut self.ready);
        ready.retain(|&index| {
            let may_have_more = self.read(index, turn);
            if let Some(socket) = self.socket(index) {
                socket.is_ready = may_have_more;
            }
            may_have_more
        });
        self.ready = ready;
        for listener in 0..self.is_listener_ready.len() {
            if self.is_listener_ready[listener] {
                self.accept_all(listener, turn);
            }
        }
    }

    fn send(&mut self, index: u32, buffer: Vec<u8>) -> Sending {
        let Some(socket) = self.socket(index) else { return Sending::Broken };
        let mut sent = 0;
        match write_some(&socket.socket, &buffer, &mut sent) {
            Ok(true) => Sending::Done(buffer),
            Ok(false) => {
                socket.unsent = Some((buffer, sent));
                Sending::UnderWay
            }
            Err(_) => Sending::Broken,
        }
    }

    fn resume_receive(&mut self, index: u32) {
        if let Some(socket) = self.socket(index) {
            socket.is_paused = false;
            self.make_ready(index);
        }
    }

    fn close(&mut self, index: u32) {
        if let Some(place) = self.sockets.get_mut(index as usize)
            && let Some(socket) = place.take()
        {
            if socket.is_ready {
                self.ready.retain(|&ready| ready != index);
            }
            self.free.push(index);
        }
    }

    fn stop_listening(&mut self) {
        self.listeners.clear();
        self.is_listener_ready.clear();
    }

    fn submit(&mut self, requests: &mut Vec<IoRequest>, completions: &mut Vec<IoCompletion>) {
        match &mut self.device {
            Some(device) => {
                device.submit(requests);
                // What finished at once does not wake.
                device.complete(Wait::Poll, completions);
            }
            None => unreachable!("a service without a device made {} requests", requests.len()),
        }
    }
}

/// Writes until all is written (true) or the socket is full (false).
fn write_some(socket: &OwnedFd, buffer: &[u8], sent: &mut usize) -> rustix::io::Result<bool> {
    while *sent < buffer.len() {
        match rustix::net::send(socket, &buffer[*sent..], rustix::net::SendFlags::NOSIGNAL) {
            Ok(count) => *sent += count,
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
