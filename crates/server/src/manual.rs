//! A driver without a kernel: its owner moves the bytes, says what time it is and when a turn is taken.
//!
//! The simulation drives whole nodes with it. Everything above the reactor is the code of a driver
//! thread: the bookkeeping of connections, the gates of replies, the service.
//!
//! Invariants:
//! 1. Nothing happens between two calls; the same calls give the same bytes.
//! 2. A connection that the service has closed keeps its place until its owner has taken its last
//!    output, so an index never names two connections at once.
//!
//! The driver owns service, device and buffers; dropping it is the death of the process.

use crate::reactor::{Reactor, Sending};
use crate::service::{Peer, Service};
use crate::settings::TransportSettings;
use crate::turn::{Admission, Flow, Turn};
use std::sync::Arc;
use tierstone_base::{Now, Result};
use tierstone_media::{BlockDevice, IoCompletion, IoRequest, Wait};

/// The server's end of one connection in memory.
#[derive(Debug, Default)]
struct Socket {
    sent: Vec<u8>,
    /// What a client that does not read has not taken.
    under_way: Option<Vec<u8>>,
    is_stalled: bool,
    is_receiving: bool,
    is_closed: bool,
}

/// Says whether the machine has lost its power.
#[derive(Clone)]
struct Power(Arc<dyn Fn() -> bool + Send + Sync>);

impl std::fmt::Debug for Power {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(if (self.0)() { "off" } else { "on" })
    }
}

/// Sockets in memory and a device that is polled.
#[derive(Debug)]
struct ManualReactor<D> {
    device: D,
    sockets: Vec<Option<Socket>>,
    power: Option<Power>,
}

impl<D: BlockDevice> ManualReactor<D> {
    fn socket(&mut self, index: u32) -> Option<&mut Socket> {
        self.sockets.get_mut(index as usize)?.as_mut()
    }
}

impl<D: BlockDevice> Reactor for ManualReactor<D> {
    fn wait(&mut self, _timeout_us: Option<u64>) -> Result<()> {
        Ok(())
    }

    fn dispatch<S: Service>(&mut self, turn: &mut Turn<S>) {
        self.device.complete(Wait::Poll, &mut turn.completions);
        for (index, socket) in (0..).zip(&mut self.sockets) {
            if let Some(socket) = socket
                && !socket.is_stalled
                && let Some(buffer) = socket.under_way.take()
            {
                socket.sent.extend_from_slice(&buffer);
                turn.sent(index, buffer);
            }
        }
    }

    fn send(&mut self, index: u32, buffer: Vec<u8>) -> Sending {
        let is_off = self.power.as_ref().is_some_and(|power| (power.0)());
        let Some(socket) = self.socket(index).filter(|socket| !is_off && !socket.is_closed) else {
            return Sending::Broken;
        };
        if socket.is_stalled {
            socket.under_way = Some(buffer);
            return Sending::UnderWay;
        }
        socket.sent.extend_from_slice(&buffer);
        Sending::Done(buffer)
    }

    fn resume_receive(&mut self, index: u32) {
        if let Some(socket) = self.socket(index) {
            socket.is_receiving = true;
        }
    }

    fn close(&mut self, index: u32) {
        if let Some(socket) = self.socket(index) {
            socket.is_closed = true;
            socket.under_way = None;
        }
    }

    fn stop_listening(&mut self) {}

    fn submit(&mut self, requests: &mut Vec<IoRequest>, _completions: &mut Vec<IoCompletion>) {
        self.device.submit(requests);
    }
}

/// One driver that is moved by hand.
pub struct ManualDriver<S: Service, D> {
    turn: Turn<S>,
    reactor: ManualReactor<D>,
    inputs: u64,
}

impl<S: Service, D: BlockDevice> ManualDriver<S, D> {
    /// A driver of `service`, whose device requests go to `device`.
    ///
    /// # Errors
    /// `InvalidInput` for wrong settings.
    pub fn new(service: S, device: D, settings: TransportSettings, now: Now) -> Result<Self> {
        settings.check()?;
        let reactor = ManualReactor { device, sockets: Vec::new(), power: None };
        Ok(ManualDriver { turn: Turn::new(service, settings, now), reactor, inputs: 0 })
    }

    /// Nothing is sent any more from the moment at which `is_off` says so, in the middle of a turn too: the code runs
    /// on to the turn's end, the machine does not.
    pub fn cut_off_when(&mut self, is_off: impl Fn() -> bool + Send + Sync + 'static) {
        self.reactor.power = Some(Power(Arc::new(is_off)));
    }

    /// A client comes; gives the index of its connection.
    ///
    /// # Errors
    /// The last words to a client that is turned away.
    pub fn connect(&mut self, now: Now, peer: &Peer) -> std::result::Result<u32, Vec<u8>> {
        self.turn.now = now;
        let sockets = &mut self.reactor.sockets;
        let free = sockets.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            sockets.push(None);
            sockets.len() - 1
        });
        match self.turn.accepted(index as u32, peer, false) {
            Admission::Open => {
                sockets[index] = Some(Socket { is_receiving: true, ..Socket::default() });
                Ok(index as u32)
            }
            Admission::Refuse(farewell) => Err(farewell),
        }
    }

    /// Whether the driver takes bytes of this connection now; if not, they stay in the network.
    pub fn is_receiving(&self, index: u32) -> bool {
        let socket = self.reactor.sockets.get(index as usize).and_then(Option::as_ref);
        socket.is_some_and(|socket| socket.is_receiving && !socket.is_closed)
    }

    /// These bytes of a client will arrive before the next turn, and lie then where they lie now: what a reactor says that
    /// has heard several clients. Whether it goes on with the next.
    pub fn foresee(&mut self, index: u32, bytes: &[u8]) -> bool {
        self.turn.foresee(index, bytes)
    }

    /// Bytes of a client arrive. Every other time the service is told before.
    pub fn receive(&mut self, now: Now, index: u32, bytes: &[u8]) {
        self.turn.now = now;
        self.inputs += 1;
        if self.inputs.is_multiple_of(2) {
            self.turn.foresee(index, bytes);
        }
        let flow = self.turn.received(index, bytes);
        if let Some(socket) = self.reactor.socket(index) {
            socket.is_receiving = flow == Flow::Go;
        }
    }

    /// The client has closed its sending half.
    pub fn end_input(&mut self, now: Now, index: u32) {
        self.turn.now = now;
        self.turn.input_ended(index);
    }

    /// The connection breaks.
    pub fn reset(&mut self, now: Now, index: u32) {
        self.turn.now = now;
        self.turn.broken(index);
    }

    /// The client stops reading, or reads again.
    pub fn set_stalled(&mut self, index: u32, is_stalled: bool) {
        if let Some(socket) = self.reactor.socket(index) {
            socket.is_stalled = is_stalled;
        }
    }

    /// One turn of the loop: what the device has finished, the step, what follows from it.
    pub fn turn(&mut self, now: Now) {
        self.turn.now = now;
        self.turn.connections.report.turns += 1;
        self.reactor.dispatch(&mut self.turn);
        self.turn.finish(&mut self.reactor);
    }

    /// Appends what was sent to the client of `index` since the last call; false when the connection
    /// has ended, and its index is free.
    pub fn take_output(&mut self, index: u32, output: &mut Vec<u8>) -> bool {
        let Some(socket) = self.reactor.socket(index) else { return false };
        output.append(&mut socket.sent);
        let is_open = !socket.is_closed;
        if !is_open {
            self.reactor.sockets[index as usize] = None;
        }
        is_open
    }

    /// Whether another turn is wanted at once.
    pub fn has_work(&self) -> bool {
        self.turn.has_work()
    }

    /// The monotonic time in microseconds of the next turn that is wanted even if nothing happens.
    pub fn next_turn_at_us(&self) -> Option<u64> {
        self.turn.next_turn_at_us()
    }

    /// Begins to stop in good order; turns go on until [`ManualDriver::is_done`].
    pub fn stop(&mut self, now: Now) {
        self.turn.now = now;
        self.turn.stop();
    }

    /// Whether a driver that stops has ended.
    pub fn is_done(&self) -> bool {
        self.turn.connections.is_empty() && self.turn.service.is_quiet()
    }

    /// The service, for what a test says to it.
    #[cfg(test)]
    pub(crate) fn service_mut(&mut self) -> &mut S {
        &mut self.turn.service
    }

    /// The service.
    pub fn service(&self) -> &S {
        &self.turn.service
    }
}

impl<S: Service, D> std::fmt::Debug for ManualDriver<S, D> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ManualDriver").field("connections", &self.turn.connections.len()).finish()
    }
}
