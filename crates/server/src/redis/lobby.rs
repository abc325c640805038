//! Who answers at a shard's doors while its index is being made: Redis's `-LOADING`, and `INFO` with how far it has come. Who a client
//! is, its protocol and its name are taken as ever ([`Greeter`]), so that libraries find a server that is loading, not one that refuses their password.
//!
//! A shard's thread makes its index before it listens. Clients that come meanwhile would wait in the kernel's queue,
//! for longer than many have patience. So, when an opening takes longer than [`PATIENCE`], the doors of each shard that is
//! not ready are lent to a [`Lobby`]: a driver thread of its own with copies of the listening sockets. What comes
//! before that waits, and is served: a short opening shows no client an error.
//!
//! Invariant: a lobby's thread has ended before its shard listens, so nobody is let in who is not served; its clients
//! are closed, as by a restart, and come again.

use super::service::{PROTECTED, info_of};
use crate::connections::Connections;
use crate::driver::{DriverBuilder, DriverHandle, Parts};
use crate::gate::ReplyQueue;
use crate::listen::Listener;
use crate::reactor::Device;
use crate::service::{ConnectionId, Peer, Received, Service, Want};
use crate::settings::{DriverKind, TransportSettings};
use crate::wake::Waker;
use rustls::ServerConfig;
use std::iter::StepBy;
use std::ops::RangeFrom;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tierstone_base::{Now, Result, Seq, ShardId};
use tierstone_media::{IoCompletion, IoRequest};
use tierstone_redis::control::Flow;
use tierstone_redis::opening::{Greeter, LOADING};
use tierstone_redis::{Args, ServerFacts, Users};
use tierstone_wire::resp::{Arguments, Progress, ReplyWriter, RequestLimits, RequestParser, Version};

/// How long clients wait for the shards before they are told.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// The longest request that is looked at, in bytes; longer ones are answered and closed.
const REQUEST_BYTES_MAX: usize = 256 << 10;
/// What clients' buffers may take, in bytes.
const BUFFER_BYTES_MAX: usize = 8 << 20;

/// What a lobby tells, and whom.
#[derive(Clone, Debug)]
pub(super) struct LobbyFacts {
    pub facts: ServerFacts,
    pub users: Arc<Users>,
    pub databases: u32,
    /// Of how many shards this is one.
    pub shards: u16,
}

/// The lobby of a shard.
#[derive(Debug)]
pub(super) struct Lobby {
    shard: ShardId,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Waiting(Vec<Listener>),
    Open(DriverHandle),
    Closed,
}

impl Lobby {
    /// The lobby of `shard`, with copies of its doors; nobody is let in yet.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn new(shard: ShardId, doors: &[Listener]) -> Result<Lobby> {
        let doors = doors.iter().map(Listener::try_clone).collect::<Result<Vec<_>>>()?;
        Ok(Lobby { shard, state: Mutex::new(State::Waiting(doors)) })
    }

    /// Lets clients in, unless the shard is ready.
    ///
    /// # Errors
    /// When its thread cannot be made; the shard's clients wait then.
    pub fn open(
        &self,
        facts: &LobbyFacts,
        settings: &TransportSettings,
        tls: Option<Arc<ServerConfig>>,
    ) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State::Waiting(doors) = &mut *state else { return Ok(()) };
        let doors = std::mem::take(doors);
        *state = State::Closed;
        let settings = TransportSettings {
            // The doors belong to the shard's ring later: nothing of theirs may be under way in another.
            driver: DriverKind::Epoll,
            input_limit_bytes: REQUEST_BYTES_MAX,
            input_pause_bytes: REQUEST_BYTES_MAX / 4,
            buffer_bytes_max: BUFFER_BYTES_MAX,
            stop_timeout_ms: 100,
            ..settings.clone()
        };
        let LobbyFacts { facts, users, databases, shards } = facts.clone();
        let service = LobbyService {
            greeter: Greeter::new(facts, users, databases),
            names: (u64::from(self.shard) + 1..).step_by(usize::from(shards.max(1))),
        };
        let driver = DriverBuilder::new(format!("lobby-{}", self.shard), settings, Waker::new()?)
            .listeners(doors)
            .tls(tls)
            .spawn(move || Ok(Parts { service, device: Device::None }))?;
        *state = State::Open(driver);
        Ok(())
    }

    /// Ends it: whoever is inside is closed, and nobody is let in any more when this returns.
    pub fn close(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Open(driver) = std::mem::replace(&mut *state, State::Closed) {
            driver.stop_handle().stop();
            if let Err(error) = driver.join() {
                tracing::warn!(shard = self.shard, %error, "the thread that told clients of the opening failed");
            }
        }
    }
}

/// What answers in a lobby.
#[derive(Debug)]
struct LobbyService {
    greeter: Greeter,
    /// The names of clients, `CLIENT ID`: those of different shards differ.
    names: StepBy<RangeFrom<u64>>,
}

/// What is kept for each client.
struct Guest {
    parser: RequestParser,
    arguments: Arguments,
    name: u64,
}

impl Service for LobbyService {
    type Connection = Guest;

    fn connect(&mut self, now: Now, _: ConnectionId, peer: &Peer) -> std::result::Result<Guest, Vec<u8>> {
        if !peer.is_local() && self.greeter.is_protected() {
            return Err(PROTECTED.to_vec());
        }
        let limits = RequestLimits {
            bulk_size_max_bytes: REQUEST_BYTES_MAX,
            request_size_max_bytes: REQUEST_BYTES_MAX,
            argument_count_max: REQUEST_BYTES_MAX / 16,
            ..RequestLimits::default()
        };
        let name = self.names.next().unwrap_or_default();
        self.greeter.connect(now, name, info_of(peer));
        Ok(Guest { parser: RequestParser::new(limits), arguments: Arguments::new(), name })
    }

    fn too_many_connections(&self) -> &[u8] {
        b"-ERR max number of clients reached\r\n"
    }

    fn receive(
        &mut self,
        now: Now,
        _: ConnectionId,
        guest: &mut Guest,
        input: &[u8],
        output: &mut ReplyQueue,
    ) -> Received {
        let mut consumed = 0;
        loop {
            let rest = &input[consumed..];
            if rest.is_empty() {
                return Received { consumed, want: Want::More { missing: 1 } };
            }
            if output.is_full() {
                return Received { consumed, want: Want::Drain };
            }
            match guest.parser.parse(rest, &mut guest.arguments) {
                Ok(Progress::Complete { consumed: len }) => {
                    consumed += len;
                    let args = Args::Request(guest.arguments.request(rest));
                    let mut flow = Flow::Done;
                    output.push_with(0, |reply| flow = self.greeter.request(now, guest.name, args, reply));
                    if flow == Flow::Close {
                        return Received { consumed, want: Want::Close };
                    }
                }
                Ok(Progress::Skipped { consumed: len }) => consumed += len,
                Ok(Progress::Incomplete { needed_hint }) => {
                    return Received { consumed, want: Want::More { missing: needed_hint } };
                }
                // Too long to be looked at, or no request at all.
                Err(_) => {
                    output.push_with(0, |bytes| ReplyWriter::new(bytes, Version::Resp2).error(LOADING));
                    return Received { consumed, want: Want::Close };
                }
            }
        }
    }

    fn disconnect(&mut self, _: ConnectionId, guest: Guest) {
        self.greeter.disconnect(guest.name);
    }

    fn step(
        &mut self,
        _: Now,
        _: &mut Vec<IoCompletion>,
        _: &mut Vec<IoRequest>,
        _: &mut Connections<Guest>,
    ) {
    }

    fn durable_seq(&self) -> Seq {
        Seq::MAX
    }

    fn next_step_at_us(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
#[path = "lobby_test.rs"]
mod lobby_test;
