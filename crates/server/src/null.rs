//! A server that understands the Redis protocol and stores nothing: what the machine and the socket
//! path can do at best. Benchmarks show it beside real servers.
//!
//! It answers `+PONG` to PING, a fixed bulk to GET, `+OK` to everything else.

use crate::connections::Connections;
use crate::driver::{DriverBuilder, DriverHandle, Parts};
use crate::gate::ReplyQueue;
use crate::listen::{ListenAddress, Listener, raise_descriptor_limit};
use crate::reactor::Device;
use crate::service::{ConnectionId, Peer, Received, Service, Want};
use crate::settings::TransportSettings;
use crate::wake::Waker;
use std::net::SocketAddr;
use std::time::Duration;
use tierstone_base::{Now, Result, Seq, SystemClock};
use tierstone_media::{IoCompletion, IoRequest};
use tierstone_wire::resp::{Arguments, Progress, ReplyWriter, RequestLimits, RequestParser, Version};

/// The null server's service.
#[derive(Clone, Debug)]
pub struct NullService {
    value: Vec<u8>,
    busy: Duration,
    clock: SystemClock,
}

impl NullService {
    /// One whose GET answers with `value_bytes` bytes.
    pub fn new(value_bytes: usize) -> Self {
        NullService { value: vec![b'x'; value_bytes], busy: Duration::ZERO, clock: SystemClock::new() }
    }

    /// Keeps its processor for so long with each request, by the monotonic clock, that takes some 30 ns to be read: what the
    /// machine makes of a server that takes as much time as another one.
    pub fn busy_for(self, busy: Duration) -> Self {
        NullService { busy, ..self }
    }

    fn answer(&self, name: &[u8], output: &mut ReplyQueue) {
        if !self.busy.is_zero() {
            let until_ns = self.clock.monotonic_ns() + self.busy.as_nanos() as u64;
            while self.clock.monotonic_ns() < until_ns {
                std::hint::spin_loop();
            }
        }
        output.push_with(0, |bytes| {
            let mut reply = ReplyWriter::new(bytes, Version::Resp2);
            if name.eq_ignore_ascii_case(b"GET") {
                reply.bulk(&self.value);
            } else if name.eq_ignore_ascii_case(b"PING") {
                reply.simple("PONG");
            } else {
                reply.ok();
            }
        });
    }
}

/// What is kept for each connection.
#[derive(Debug)]
pub struct NullConnection {
    parser: RequestParser,
    arguments: Arguments,
}

impl Service for NullService {
    type Connection = NullConnection;

    fn connect(&mut self, _: Now, _: ConnectionId, _: &Peer) -> std::result::Result<NullConnection, Vec<u8>> {
        Ok(NullConnection {
            parser: RequestParser::new(RequestLimits::default()),
            arguments: Arguments::new(),
        })
    }

    fn too_many_connections(&self) -> &[u8] {
        b"-ERR max number of clients reached\r\n"
    }

    fn receive(
        &mut self,
        _: Now,
        _: ConnectionId,
        connection: &mut NullConnection,
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
            match connection.parser.parse(rest, &mut connection.arguments) {
                Ok(Progress::Complete { consumed: len }) => {
                    self.answer(connection.arguments.get(0, rest).unwrap_or_default(), output);
                    consumed += len;
                }
                Ok(Progress::Skipped { consumed: len }) => consumed += len,
                Ok(Progress::Incomplete { needed_hint }) => {
                    return Received { consumed, want: Want::More { missing: needed_hint } };
                }
                Err(error) => {
                    output
                        .push_with(0, |bytes| ReplyWriter::new(bytes, Version::Resp2).protocol_error(&error));
                    return Received { consumed, want: Want::Close };
                }
            }
        }
    }

    fn disconnect(&mut self, _: ConnectionId, _: NullConnection) {}

    fn step(
        &mut self,
        _: Now,
        _: &mut Vec<IoCompletion>,
        _: &mut Vec<IoRequest>,
        _: &mut Connections<NullConnection>,
    ) {
    }

    fn durable_seq(&self) -> Seq {
        Seq::MAX
    }

    fn next_step_at_us(&self) -> Option<u64> {
        None
    }
}

/// A null server that runs.
#[derive(Debug)]
pub struct NullServer {
    /// The TCP addresses that it listens on.
    pub addresses: Vec<SocketAddr>,
    /// Its threads.
    pub drivers: Vec<DriverHandle>,
}

/// Starts a null server with `threads` threads on `listen`, each of which answers as `service` does.
///
/// # Errors
/// When an address cannot be listened on, or the kernel refuses the mechanism asked for.
pub fn run(
    listen: &[ListenAddress],
    settings: &TransportSettings,
    threads: usize,
    service: &NullService,
) -> Result<NullServer> {
    raise_descriptor_limit(u64::from(settings.connections_max) * threads.max(1) as u64 + 64);
    let lists = Listener::bind(listen, threads, settings)?;
    let addresses = lists.iter().take(1).flatten().filter_map(Listener::local_address).collect();
    let mut drivers = Vec::new();
    for (thread, listeners) in lists.into_iter().enumerate() {
        let service = service.clone();
        let builder = DriverBuilder::new(format!("null-{thread}"), settings.clone(), Waker::new()?);
        drivers
            .push(builder.listeners(listeners).spawn(move || Ok(Parts { service, device: Device::None }))?);
    }
    Ok(NullServer { addresses, drivers })
}
