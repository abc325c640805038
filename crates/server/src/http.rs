//! A small HTTP door for machines: `/metrics` (Prometheus text), `/live`, `/ready`.
//!
//! It is a [`Service`] on a driver thread of its own, so that idle timeouts, limits and slow clients are
//! handled as everywhere, and a scrape never disturbs a shard's thread. Only `GET` and `HEAD` without a
//! body; HTTP/1.0 and 1.1, pipelined or not.

use crate::connections::Connections;
use crate::driver::{DriverBuilder, DriverHandle, Parts};
use crate::gate::ReplyQueue;
use crate::listen::{ListenAddress, Listener};
use crate::reactor::Device;
use crate::service::{ConnectionId, Peer, Received, Service, Want};
use crate::settings::{DriverKind, OutputLimits, TransportSettings};
use crate::wake::Waker;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use tierstone_base::{Now, Result, Seq};
use tierstone_media::{IoCompletion, IoRequest};

/// The longest request head, in bytes.
const HEAD_BYTES: usize = 8 << 10;
/// How long a request head may take from its first byte on, and the first one of a connection from its beginning on, in
/// microseconds: who holds connections with halves of requests keeps others from coming in.
const HEAD_PATIENCE_US: u64 = 5_000_000;
/// How long a client may leave a part of its answers untaken, in milliseconds.
const ANSWER_PATIENCE_MS: u64 = 10_000;
/// The most header lines of a request.
const HEADERS: usize = 64;
const PLAIN_TEXT: &str = "text/plain; charset=utf-8";
const METRICS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// All metrics in Prometheus's text format.
    Metrics,
    /// Whether the process should go on living; if not, it is to be restarted.
    Live,
    /// Whether it can serve clients now.
    Ready,
}

/// What a page says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All is well; the text of the page.
    Fine(String),
    /// It is not; the text says why.
    Unavailable(String),
}

/// Gives the pages, from a snapshot that other threads keep up to date; called on the HTTP thread.
pub type Provider = Box<dyn Fn(Page) -> Answer + Send>;

/// A running HTTP door.
#[derive(Debug)]
pub struct HttpServer {
    /// The addresses that it listens on.
    pub addresses: Vec<SocketAddr>,
    /// Its thread.
    pub driver: DriverHandle,
}

/// Listens, and starts the door's thread.
///
/// # Errors
/// When an address cannot be listened on.
pub fn serve(addresses: &[ListenAddress], provider: Provider) -> Result<HttpServer> {
    serve_on(listen(addresses)?, provider)
}

/// Listens on `addresses`; whoever comes waits until [`serve_on`] takes the listeners.
///
/// # Errors
/// When an address cannot be listened on.
pub fn listen(addresses: &[ListenAddress]) -> Result<Vec<Listener>> {
    Ok(Listener::bind(addresses, 1, &settings())?.into_iter().flatten().collect())
}

fn settings() -> TransportSettings {
    TransportSettings {
        driver: DriverKind::Epoll,
        connections_max: 256,
        idle_timeout_s: 60,
        input_limit_bytes: 64 << 10,
        input_pause_bytes: 16 << 10,
        // Who does not take his answers keeps others from coming in: any rest of them counts.
        output: OutputLimits {
            full_bytes: 64 << 10,
            soft_bytes: 1,
            soft_ms: ANSWER_PATIENCE_MS,
            ..OutputLimits::default()
        },
        stop_timeout_ms: 1_000,
        ..TransportSettings::default()
    }
}

/// Starts the door's thread on listeners of [`listen`].
///
/// # Errors
/// When the thread cannot be started.
pub fn serve_on(listeners: Vec<Listener>, provider: Provider) -> Result<HttpServer> {
    let addresses = listeners.iter().filter_map(Listener::local_address).collect();
    let driver = DriverBuilder::new("http", settings(), Waker::new()?)
        .listeners(listeners)
        .spawn(move || Ok(Parts { service: HttpService::new(provider), device: Device::None }))?;
    Ok(HttpServer { addresses, driver })
}

struct HttpService {
    provider: Provider,
    /// Connections whose request heads are awaited, by when those must be there.
    awaited: BTreeMap<(u64, ConnectionId), ()>,
}

/// What is kept for a connection: by when its request head must be there, if one is awaited.
#[derive(Debug)]
struct HttpConnection {
    head_due_us: Option<u64>,
}

/// One answer, before it is written.
struct Reply<'a> {
    status: &'static str,
    content_type: &'static str,
    body: &'a str,
    is_head_only: bool,
    closes: bool,
}

impl Reply<'_> {
    fn refusal(status: &'static str) -> Self {
        Reply { status, content_type: PLAIN_TEXT, body: "", is_head_only: false, closes: true }
    }

    fn write(&self, output: &mut ReplyQueue) {
        let connection = if self.closes { "close" } else { "keep-alive" };
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: {connection}\r\n\r\n",
            self.status,
            self.content_type,
            self.body.len()
        );
        output.push(0, head.as_bytes());
        if !self.is_head_only {
            output.push(0, self.body.as_bytes());
        }
    }
}

impl HttpService {
    fn new(provider: Provider) -> Self {
        HttpService { provider, awaited: BTreeMap::new() }
    }

    /// A head is awaited until then, or none is.
    fn await_head(&mut self, id: ConnectionId, connection: &mut HttpConnection, due_us: Option<u64>) {
        let old_due_us = std::mem::replace(&mut connection.head_due_us, due_us);
        if old_due_us != due_us {
            old_due_us.map(|due_us| self.awaited.remove(&(due_us, id)));
            due_us.map(|due_us| self.awaited.insert((due_us, id), ()));
        }
    }

    /// Answers the requests that `input` begins with.
    fn answer_all(&self, input: &[u8], output: &mut ReplyQueue) -> Received {
        let mut consumed = 0;
        loop {
            if output.is_full() {
                return Received { consumed, want: Want::Drain };
            }
            let rest = &input[consumed..];
            let mut headers = [httparse::EMPTY_HEADER; HEADERS];
            let mut request = httparse::Request::new(&mut headers);
            match request.parse(&rest[..rest.len().min(HEAD_BYTES)]) {
                Ok(httparse::Status::Complete(len)) => {
                    consumed += len;
                    if !self.answer(&request, output) {
                        return Received { consumed, want: Want::Close };
                    }
                }
                Ok(httparse::Status::Partial) if rest.len() < HEAD_BYTES => {
                    return Received { consumed, want: Want::More { missing: 1 } };
                }
                Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                    Reply::refusal("431 Request Header Fields Too Large").write(output);
                    return Received { consumed, want: Want::Close };
                }
                Err(_) => {
                    Reply::refusal("400 Bad Request").write(output);
                    return Received { consumed, want: Want::Close };
                }
            }
        }
    }

    /// Answers one complete request; false when the connection is to be closed after it.
    fn answer(&self, request: &httparse::Request<'_, '_>, output: &mut ReplyQueue) -> bool {
        let has_body = request.headers.iter().any(|header| {
            header.name.eq_ignore_ascii_case("transfer-encoding")
                || (header.name.eq_ignore_ascii_case("content-length") && header.value != b"0")
        });
        if has_body {
            Reply::refusal("413 Content Too Large").write(output);
            return false;
        }
        let is_head_only = request.method == Some("HEAD");
        if !is_head_only && request.method != Some("GET") {
            Reply::refusal("405 Method Not Allowed").write(output);
            return false;
        }
        // A list, which may be spread over several lines.
        let mut options = (request.headers.iter())
            .filter(|header| header.name.eq_ignore_ascii_case("connection"))
            .flat_map(|header| header.value.split(|byte| *byte == b','));
        let closes = request.version == Some(0)
            || options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"));
        let path = request.path.unwrap_or_default();
        let page = match path.split(['?', '#']).next() {
            Some("/metrics") => Some(Page::Metrics),
            Some("/live") => Some(Page::Live),
            Some("/ready") => Some(Page::Ready),
            _ => None,
        };
        let content_type = if page == Some(Page::Metrics) { METRICS_TEXT } else { PLAIN_TEXT };
        let (status, body) = match page.map(|page| (self.provider)(page)) {
            Some(Answer::Fine(text)) => ("200 OK", text),
            Some(Answer::Unavailable(text)) => ("503 Service Unavailable", text),
            None => ("404 Not Found", "try /metrics, /live or /ready\n".to_owned()),
        };
        Reply { status, content_type, body: &body, is_head_only, closes }.write(output);
        !closes
    }
}

impl Service for HttpService {
    type Connection = HttpConnection;

    fn connect(
        &mut self,
        now: Now,
        id: ConnectionId,
        _: &Peer,
    ) -> std::result::Result<HttpConnection, Vec<u8>> {
        let mut connection = HttpConnection { head_due_us: None };
        self.await_head(id, &mut connection, Some(now.monotonic_us + HEAD_PATIENCE_US));
        Ok(connection)
    }

    fn receive(
        &mut self,
        now: Now,
        id: ConnectionId,
        connection: &mut HttpConnection,
        input: &[u8],
        output: &mut ReplyQueue,
    ) -> Received {
        let received = self.answer_all(input, output);
        let due_us = match received.want {
            // It has begun, and goes on: what comes in small pieces has no more time.
            Want::More { .. } if received.consumed == 0 && connection.head_due_us.is_some() => {
                connection.head_due_us
            }
            Want::More { .. } if received.consumed < input.len() => Some(now.monotonic_us + HEAD_PATIENCE_US),
            _ => None,
        };
        self.await_head(id, connection, due_us);
        received
    }

    fn disconnect(&mut self, id: ConnectionId, mut connection: HttpConnection) {
        self.await_head(id, &mut connection, None);
    }

    fn step(
        &mut self,
        now: Now,
        _: &mut Vec<IoCompletion>,
        _: &mut Vec<IoRequest>,
        connections: &mut Connections<HttpConnection>,
    ) {
        while let Some(late) = self.awaited.first_entry()
            && late.key().0 <= now.monotonic_us
        {
            connections.close(late.remove_entry().0.1);
        }
    }

    fn durable_seq(&self) -> Seq {
        Seq::MAX
    }

    fn next_step_at_us(&self) -> Option<u64> {
        self.awaited.first_key_value().map(|((due_us, _), ())| *due_us)
    }
}

#[cfg(test)]
#[path = "http_test.rs"]
mod http_test;
