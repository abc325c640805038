//! The seam between sockets and what answers: one [`Service`] a driver thread.
//!
//! A turn of the loop is: the inputs of all connections that were heard ([`Service::receive`] once or
//! a few times each, every call with as many pipelined requests as have come), then one
//! [`Service::step`], then one send for each connection that has something to send. A service that
//! wants to work on the requests of all connections as one batch collects them in `receive` and does
//! the work in `step`.
//!
//! Invariants:
//! 1. A service makes no system call, takes no lock and reads no clock: bytes, completions and time
//!    come in, replies and device requests go out. The same service runs in production and in a
//!    simulation.
//! 2. Between `connect` and `disconnect` of an id its connection's state belongs to the driver, which
//!    lends it out with each call; `disconnect` gives it back.
//! 3. An id whose connection is gone is harmless: it finds nothing, for ever.

use crate::connections::Connections;
use crate::gate::ReplyQueue;
use std::net::SocketAddr;
use tierstone_base::{Error, Now, Seq};
use tierstone_media::{IoCompletion, IoRequest};
use tierstone_redis::clients::BufferSizes;

/// Names one connection of one driver thread, and never another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl ConnectionId {
    /// The id as one number, unique in its thread: for tokens and for `CLIENT ID`.
    pub fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The id that [`ConnectionId::to_u64`] gave `number` for.
    pub fn from_u64(number: u64) -> Self {
        ConnectionId { index: number as u32, generation: (number >> 32) as u32 }
    }
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A TCP client.
    Tcp {
        /// The client's address.
        address: SocketAddr,
        /// The address that it reached.
        local: SocketAddr,
    },
    /// A process of this machine, through a Unix socket.
    Unix,
}

impl Peer {
    /// Whether the client is on this machine, and has come by an address that no other machine reaches.
    pub fn is_local(&self) -> bool {
        match self {
            Peer::Tcp { address, .. } => address.ip().to_canonical().is_loopback(),
            Peer::Unix => true,
        }
    }
}

/// What a service wants of a connection after it was given input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// More input: what was not consumed is an incomplete request.
    More {
        /// How many bytes are missing at least, if known; 0 counts as 1. The service is not called
        /// again before they have come. A promise of the peer: no memory is taken on its word.
        missing: usize,
    },
    /// The output is full ([`ReplyQueue::is_full`]): call again with what was not consumed when the
    /// client has taken some of it.
    Drain,
    /// Nothing until [`Connections::resume`]; then call again with what was not consumed.
    Pause,
    /// Nothing ever again: close when the replies given so far have been sent.
    Close,
}

/// What [`Service::receive`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// How many bytes of the input are done with.
    pub consumed: usize,
    /// What is wanted next.
    pub want: Want,
}

/// What a service holds for one connection, beside its buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionMemory {
    /// Bytes.
    pub bytes: usize,
    /// Whether the connection is not among those that are closed to free memory.
    pub is_kept: bool,
}

/// A state machine that answers the clients of one driver thread.
pub trait Service {
    /// What the service keeps for each connection.
    type Connection;

    /// A client has come.
    ///
    /// # Errors
    /// The bytes to send before the connection is closed at once (as many as the socket takes).
    fn connect(&mut self, now: Now, id: ConnectionId, peer: &Peer) -> Result<Self::Connection, Vec<u8>>;

    /// What a client is told before it is turned away because there are too many.
    fn too_many_connections(&self) -> &[u8] {
        b""
    }

    /// What a client is told before it is closed because its input takes too much memory; empty: nothing.
    fn too_much_input(&self) -> &[u8] {
        b""
    }

    /// Takes the bytes that have come and are not consumed, as many requests as there are; appends
    /// the replies to `output`. Stops with [`Want::Drain`] when the output is full.
    fn receive(
        &mut self,
        now: Now,
        id: ConnectionId,
        connection: &mut Self::Connection,
        input: &[u8],
        output: &mut ReplyQueue,
    ) -> Received;

    /// This input of `connection` is to be shown later in this turn: memory that its requests will need may be asked for
    /// together with what others need. A hint: it may be shown with more, or not at all. Says whether to go on with the next
    /// input.
    fn foresee(&mut self, _connection: &mut Self::Connection, _input: &[u8]) -> bool {
        false
    }

    /// The client has closed its sending half: beyond what has come already, and may still be held, no
    /// input will come. The connection is closed when all of it is consumed and the output is empty, so
    /// reservations that wait for an event must be filled (with nothing, if need be) and pauses ended,
    /// now or in the next step.
    fn end_of_input(&mut self, _now: Now, _connection: &mut Self::Connection, _output: &mut ReplyQueue) {}

    /// The connection is gone, for whatever reason. Its id finds nothing any more.
    fn disconnect(&mut self, id: ConnectionId, connection: Self::Connection);

    /// After the inputs of a turn: takes device completions (leaving the vector empty), appends device
    /// requests, answers through `connections`. Called every turn.
    fn step(
        &mut self,
        now: Now,
        completions: &mut Vec<IoCompletion>,
        requests: &mut Vec<IoRequest>,
        connections: &mut Connections<Self::Connection>,
    );

    /// What the service holds for a connection. Asked whenever the connection's buffers have been looked at, at the
    /// end of a turn, which tells what they hold then.
    fn memory(&self, _connection: &Self::Connection, _sizes: BufferSizes) -> ConnectionMemory {
        ConnectionMemory::default()
    }

    /// Whether it waits for what others say, however long that takes: no silence is too long for it.
    fn is_listening(&self, _connection: &Self::Connection) -> bool {
        false
    }

    /// Whether it may go on, once its client has taken some of its output, when that is full; else it is closed at once.
    fn may_drain(&self, _connection: &Self::Connection) -> bool {
        true
    }

    /// The connection that is to be closed since connections take too much memory, if any. Asked at the end of every
    /// turn, and again until there is none.
    fn evict(&mut self, _now: Now, _connections: &mut Connections<Self::Connection>) -> Option<ConnectionId> {
        None
    }

    /// Replies whose gate is at most this may be sent. Asked once a turn, after the step; must not
    /// fall. A service whose device failed stops raising it.
    fn durable_seq(&self) -> Seq;

    /// The monotonic time at which a step is wanted even if nothing happens, if any.
    fn next_step_at_us(&self) -> Option<u64>;

    /// The driver is stopping: no connection and no input will come. Blocked reservations should be
    /// filled now; open groups should be closed.
    fn stop(&mut self, _now: Now, _connections: &mut Connections<Self::Connection>) {}

    /// Whether the driver, once stopping and without connections, may end: nothing is in flight that
    /// matters after the process's death.
    fn is_quiet(&self) -> bool {
        true
    }

    /// What has failed in it for good, so that it cannot come to its end in good order: asked when the driver stops, whose
    /// end it then is.
    fn failure(&self) -> Option<Error> {
        None
    }
}
