//! TLS between the bytes of a socket and those that the service sees: a state machine over memory, one a connection.
//!
//! Invariants:
//! 1. Nothing of a reply is sealed before the handshake has ended, and replies pass the same gate as without TLS.
//! 2. What a session holds is bounded: it is given at most one read at a time, what it opens is taken at once, and
//!    what it has to send is sent before more is sealed.
//! 3. Whoever has not ended the handshake after [`HANDSHAKE_MAX_US`], or breaks the protocol, is disconnected; nobody
//!    else notices.

use crate::connections::Phase;
use crate::reactor::Reactor;
use crate::service::Service;
use crate::turn::{Flow, Turn};
use rustls::{ServerConfig, ServerConnection};
use std::io::{Read, Write};
use std::sync::Arc;

/// How long a handshake may take, in microseconds.
const HANDSHAKE_MAX_US: u64 = 10_000_000;
/// What a session takes of memory, about: keys, and one record that has not come as a whole.
pub(crate) const SESSION_BYTES: usize = 16 << 10;
/// What is opened at a time.
const OPEN_BYTES: usize = 16 << 10;

/// The server's side of one encrypted connection.
#[derive(Debug)]
pub(crate) struct TlsSession {
    session: ServerConnection,
    since_us: u64,
    /// The peer broke the protocol: only the alert that tells so is sent.
    is_broken: bool,
    has_said_goodbye: bool,
}

/// What came out of received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opened {
    More,
    /// The peer has said that nothing follows.
    Ended,
    /// The peer broke the protocol.
    Broken,
}

impl TlsSession {
    /// A session whose handshake begins now; `None` when it cannot be made.
    pub fn new(config: &Arc<ServerConfig>, now_us: u64) -> Option<Box<Self>> {
        let mut session = ServerConnection::new(Arc::clone(config)).ok()?;
        // The queue of replies has its own bounds, and gives what the socket takes.
        session.set_buffer_limit(None);
        Some(Box::new(TlsSession { session, since_us: now_us, is_broken: false, has_said_goodbye: false }))
    }

    /// Whether the handshake has not ended in time.
    pub fn is_late(&self, now_us: u64) -> bool {
        self.session.is_handshaking() && now_us.saturating_sub(self.since_us) >= HANDSHAKE_MAX_US
    }

    /// Whether replies may be sealed.
    pub fn is_ready(&self) -> bool {
        !self.session.is_handshaking() && !self.is_broken
    }

    /// Whether something waits to be sent that no reply has brought.
    pub fn wants_send(&self) -> bool {
        self.session.wants_write()
    }

    /// Whether nothing more is to be said to a peer that has got all its replies.
    pub fn is_done(&self) -> bool {
        !self.session.wants_write() && (self.has_said_goodbye || !self.is_ready())
    }

    /// Says that nothing follows.
    pub fn say_goodbye(&mut self) {
        if !self.has_said_goodbye && self.is_ready() {
            self.has_said_goodbye = true;
            self.session.send_close_notify();
        }
    }

    /// Opens the bytes that have come, and appends what they say to `plain`.
    fn open(&mut self, mut data: &[u8], plain: &mut Vec<u8>) -> Opened {
        while !data.is_empty() {
            match self.session.read_tls(&mut data) {
                Ok(0) | Err(_) => return Opened::Broken,
                Ok(_) => {}
            }
            let Ok(state) = self.session.process_new_packets() else {
                self.is_broken = true;
                return Opened::Broken;
            };
            let mut left = state.plaintext_bytes_to_read();
            while left > 0 {
                let start = plain.len();
                plain.resize(start + left.min(OPEN_BYTES), 0);
                let come = self.session.reader().read(&mut plain[start..]).unwrap_or(0);
                plain.truncate(start + come);
                if come == 0 {
                    break;
                }
                left -= come;
            }
            if state.peer_has_closed() {
                return Opened::Ended;
            }
        }
        Opened::More
    }

    /// Seals `replies`, which may be empty, and appends all that is to be sent.
    pub fn seal(&mut self, replies: &[u8], out: &mut Vec<u8>) {
        // Memory takes all that it is given.
        let written = self.session.writer().write_all(replies);
        debug_assert!(written.is_ok(), "a session without a limit takes every reply");
        while self.session.wants_write() {
            let Ok(1..) = self.session.write_tls(out) else { break };
        }
    }
}

impl<S: Service> Turn<S> {
    /// Bytes have come from an encrypted connection: what they say goes the way of other input.
    pub(crate) fn received_sealed(&mut self, index: u32, data: &[u8]) -> Flow {
        let mut plain = std::mem::take(&mut self.opened);
        plain.clear();
        let entry = self.connections.entry(index).filter(|entry| entry.phase == Phase::Open);
        let Some(tls) = entry.and_then(|entry| entry.tls.as_mut()) else { return Flow::Pause };
        let opened = tls.open(data, &mut plain);
        self.connections.note_changed(index);
        let flow = if plain.is_empty() { self.flow(index) } else { self.received_plain(index, &plain) };
        self.opened = plain;
        match opened {
            Opened::More => flow,
            Opened::Ended => {
                self.input_ended(index);
                Flow::Pause
            }
            Opened::Broken => {
                self.connections.report.connections_tls_failed += 1;
                if let Some(entry) = self.connections.entry(index) {
                    entry.phase = entry.phase.max_with(Phase::Closing);
                }
                Flow::Pause
            }
        }
    }

    /// Sends an encrypted connection what may be sent of its replies, and what its session has to say itself; nothing
    /// of it is under way.
    pub(crate) fn settle_sealed(&mut self, index: u32, reactor: &mut impl Reactor) {
        let mut replies = self.spare.pop().unwrap_or_default();
        let mut sealed = self.spare.pop().unwrap_or_default();
        let Some(entry) = self.connections.entry(index) else { return };
        let Some(tls) = &mut entry.tls else { return };
        let mut wants_part = false;
        if tls.is_ready() && entry.output.release(self.durable) {
            entry.output.take(&mut replies);
            wants_part = entry.output.wants_part();
        }
        if entry.phase == Phase::Closing && entry.output.is_empty() {
            tls.seal(&replies, &mut sealed);
            tls.say_goodbye();
            replies.clear();
        }
        tls.seal(&replies, &mut sealed);
        self.recycle(replies);
        if wants_part {
            // The service is asked for it in the next turn, which follows at once.
            self.connections.note_resumed(index);
        }
        self.send(index, sealed, reactor);
    }

    /// Ends those whose handshake takes too long.
    pub(crate) fn end_late_handshakes(&mut self) {
        let now_us = self.now.monotonic_us;
        for index in 0..self.connections.place_count() {
            let Some(entry) = self.connections.entry(index) else { continue };
            if entry.tls.as_ref().is_some_and(|tls| tls.is_late(now_us)) {
                entry.phase = Phase::Aborted;
                self.connections.report.connections_tls_failed += 1;
                self.connections.note_changed(index);
            }
        }
    }
}
