//! Who answers at a shard's doors while its index is being made: Redis's `-LOADING`, and `INFO` with how far it has come.
//!
//! A shard's thread makes its index before it listens. Clients that come meanwhile would wait in the kernel's queue,
//! for longer than many have patience. So, when an opening takes longer than [`PATIENCE`], the doors of each shard that is
//! not ready are lent to a [`Lobby`]: a driver thread of its own with copies of the listening sockets. What comes
//! before that waits, and is served: a short opening shows no client an error.
//!
//! Invariant: a lobby's thread has ended before its shard listens, so nobody is let in who is not served; its clients
//! are closed, as by a restart, and come again.

use crate::connections::Connections;
use crate::driver::{DriverBuilder, DriverHandle, Parts};
use crate::gate::ReplyQueue;
use crate::listen::Listener;
use crate::reactor::Device;
use crate::service::{ConnectionId, Peer, Received, Service, Want};
use crate::settings::{DriverKind, TransportSettings};
use crate::wake::Waker;
use rustls::ServerConfig;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tierstone_base::{Now, Result, Seq, ShardId};
use tierstone_engine::OpeningProgress;
use tierstone_media::{IoCompletion, IoRequest};
use tierstone_redis::opening::{LOADING, loading_fields};
use tierstone_wire::resp::{Arguments, Progress, ReplyWriter, RequestLimits, RequestParser, Version};

/// How long clients wait for the shards before they are told.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// The longest request that is looked at, in bytes; longer ones are answered and closed.
const REQUEST_BYTES_MAX: usize = 256 << 10;
/// What clients' buffers may take, in bytes.
const BUFFER_BYTES_MAX: usize = 8 << 20;

/// What a lobby tells.
#[derive(Clone, Debug)]
pub(super) struct LobbyFacts {
    pub progress: OpeningProgress,
    /// When the opening began.
    pub started: Now,
    /// Versions of Redis, and of this program.
    pub versions: (String, String),
    /// Whether a client has to say who it is before it is told anything else.
    pub needs_authentication: bool,
    /// Whether clients of other machines are kept out.
    pub is_protected: bool,
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
        let facts = facts.clone();
        let driver = DriverBuilder::new(format!("lobby-{}", self.shard), settings, Waker::new()?)
            .listeners(doors)
            .tls(tls)
            .spawn(move || Ok(Parts { service: LobbyService { facts }, device: Device::None }))?;
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
    facts: LobbyFacts,
}

/// What is kept for each client.
struct Guest {
    parser: RequestParser,
    arguments: Arguments,
    may_ask: bool,
}

impl LobbyService {
    /// Answers one request; false when the connection is to be closed after it.
    fn answer(&self, now: Now, may_ask: bool, name: &[u8], output: &mut ReplyQueue) -> bool {
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted.as_bytes());
        let is_last = is("QUIT");
        output.push_with(0, |bytes| {
            let mut reply = ReplyWriter::new(bytes, Version::Resp2);
            if is_last {
                reply.ok();
            } else if is("INFO") && may_ask {
                reply.bulk(self.info(now).as_bytes());
            } else {
                reply.error(LOADING);
            }
        });
        !is_last
    }

    fn info(&self, now: Now) -> String {
        let LobbyFacts { progress, started, versions: (redis, own), .. } = &self.facts;
        let mut text = format!(
            "# Server\r\nredis_version:{redis}\r\nredis_mode:standalone\r\nserver_name:tierstone\r\n\
             tierstone_version:{own}\r\n\r\n# Persistence\r\n"
        );
        if loading_fields(&mut text, progress.seen(), (*started, now)).is_err() {
            unreachable!("writing to a string does not fail");
        }
        text
    }
}

impl Service for LobbyService {
    type Connection = Guest;

    fn connect(&mut self, _: Now, _: ConnectionId, peer: &Peer) -> std::result::Result<Guest, Vec<u8>> {
        let LobbyFacts { needs_authentication, is_protected, .. } = self.facts;
        let limits = RequestLimits {
            bulk_size_max_bytes: REQUEST_BYTES_MAX,
            request_size_max_bytes: REQUEST_BYTES_MAX,
            argument_count_max: REQUEST_BYTES_MAX / 16,
            ..RequestLimits::default()
        };
        let may_ask = !needs_authentication && (peer.is_local() || !is_protected);
        Ok(Guest { parser: RequestParser::new(limits), arguments: Arguments::new(), may_ask })
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
                    let name = guest.arguments.get(0, rest).unwrap_or_default();
                    if !self.answer(now, guest.may_ask, name, output) {
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

    fn disconnect(&mut self, _: ConnectionId, _: Guest) {}

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
