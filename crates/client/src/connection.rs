//! One connection: commands out, replies in, each matched with its command by order.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use tierstone_base::{Error, ErrorKind, Result};
use tierstone_wire::resp::Value;

use crate::halves::{Receiver, Sender, network_error};
use crate::pipeline::Pipeline;
use crate::settings::{ConnectionSettings, timeout};
use crate::stream::Stream;
use crate::tls::{Tls, host_of};
use crate::unix::{self, unix_path};

/// A connection to a server that speaks the Redis protocol.
#[derive(Debug)]
pub struct Connection {
    sender: Sender,
    receiver: Receiver,
    /// Commands sent whose replies have not been received.
    outstanding: usize,
    pushes: VecDeque<Value>,
    push_queue_max: usize,
}

impl Connection {
    /// Connects to `address`, with `timeout` for connecting, reading and writing alike (zero: for ever).
    ///
    /// Errors: `InvalidInput` for what is no address, `Retry` where nobody answers or the name cannot be looked up.
    pub fn connect(address: impl ToSocketAddrs, timeout: Duration) -> Result<Self> {
        Self::connect_with(address, &ConnectionSettings::with_timeout(timeout))
    }

    /// Connects to the first of the addresses behind `address` that answers.
    pub fn connect_with(address: impl ToSocketAddrs, settings: &ConnectionSettings) -> Result<Self> {
        // Only what is no address at all is told apart: who cannot be asked for a name now may be later.
        let addresses = address
            .to_socket_addrs()
            .map_err(|error| network_error("look up the server's address", &error))?;
        let mut last = Error::new(ErrorKind::InvalidInput, "the server's name has no address");
        for address in addresses {
            match open(&address, settings) {
                Ok(socket) => return Self::over(socket, settings),
                Err(error) => last = network_error(&format!("connect to {address}"), &error),
            }
        }
        Err(last)
    }

    /// The same as [`Connection::connect_with`] for `address` as `HOST:PORT`, or, as [`unix_path`] reads it, the path of a
    /// Unix socket; with `tls` the connection is encrypted, and the server's certificate must name the host.
    ///
    /// Errors: besides those, `InvalidInput` where the certificate is not good, or the server speaks no TLS, or is asked
    /// for TLS over a Unix socket.
    pub fn connect_over(address: &str, settings: &ConnectionSettings, tls: Option<&Tls>) -> Result<Self> {
        if let Some(path) = unix_path(address) {
            return match tls {
                None => Self::through(Stream::plain(unix::open(path, settings)?), settings),
                Some(_) => Err(Error::new(
                    ErrorKind::InvalidInput,
                    format!(
                        "TLS needs HOST:PORT, since the server's certificate names the host: {address} has none"
                    ),
                )),
            };
        }
        let connection = Self::connect_with(address, settings)?;
        let Some(tls) = tls else { return Ok(connection) };
        let socket = connection.socket().try_clone().map_err(|error| network_error("set up TLS", &error))?;
        let stream = Stream::encrypted(socket, tls, host_of(address))
            .map_err(|error| network_error(&format!("agree on TLS with {address}"), &error))?;
        Self::through(stream, settings)
    }

    /// Uses a socket that is connected and on which nothing has been said. Sets its options.
    pub fn over(socket: TcpStream, settings: &ConnectionSettings) -> Result<Self> {
        Self::through(Stream::plain(socket), settings)
    }

    fn through(stream: Stream, settings: &ConnectionSettings) -> Result<Self> {
        unix::send_at_once(stream.socket()).map_err(|error| network_error("set up a connection", &error))?;
        let mut connection = Connection {
            sender: Sender::new(stream.clone(), None),
            receiver: Receiver::new(stream, settings.reply_limits),
            outstanding: 0,
            pushes: VecDeque::new(),
            push_queue_max: settings.push_queue_max,
        };
        connection.set_read_timeout(timeout(settings.read_timeout_ms))?;
        connection.sender.set_write_timeout(timeout(settings.write_timeout_ms))?;
        Ok(connection)
    }

    /// Sends a command and waits for its reply. A server's error is a value ([`Value::Error`]).
    ///
    /// Errors: `InvalidInput` while replies to earlier commands are outstanding (as after a timeout:
    /// receive them first), else those of [`Receiver::receive`].
    pub fn command(&mut self, arguments: &[&[u8]]) -> Result<Value> {
        self.sender.check()?;
        self.check_idle()?;
        self.send_only(arguments)?;
        self.receive_one()
    }

    /// Begins a pipeline: many commands, one write, all replies.
    pub fn pipeline(&mut self) -> Pipeline<'_> {
        Pipeline::new(self)
    }

    /// Sends a command whose reply the caller fetches with [`Self::receive_one`].
    ///
    /// A caller that sends much must receive in between: else both sides may wait for each other.
    pub fn send_only(&mut self, arguments: &[&[u8]]) -> Result<()> {
        self.sender.send(arguments)?;
        self.outstanding += 1;
        Ok(())
    }

    /// Sends a command that the server answers with push messages only (`SUBSCRIBE` in protocol 3), or
    /// not at all.
    pub fn send_unanswered(&mut self, arguments: &[&[u8]]) -> Result<()> {
        self.sender.send(arguments)
    }

    /// Waits for the reply to the oldest command whose reply is outstanding. Push messages that come
    /// first are kept for [`Self::take_push`].
    ///
    /// With nothing outstanding it waits too: for the messages of `MONITOR`, or of `SUBSCRIBE` in
    /// protocol 2, which look like replies.
    pub fn receive_one(&mut self) -> Result<Value> {
        loop {
            match self.receiver.receive()? {
                push @ Value::Push(_) => keep_push(&mut self.pushes, self.push_queue_max, push)?,
                value => {
                    self.outstanding = self.outstanding.saturating_sub(1);
                    return Ok(value);
                }
            }
        }
    }

    /// Commands sent whose replies have not been received.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Asks for a protocol version (2 or 3); the server's description of itself, or its error.
    pub fn hello(&mut self, version: u8) -> Result<Value> {
        self.command(&[b"HELLO", version.to_string().as_bytes()])
    }

    /// The oldest push message received so far; does not wait.
    pub fn take_push(&mut self) -> Option<Value> {
        self.pushes.pop_front()
    }

    /// The oldest push message; waits for one. Errors: `InvalidInput` while replies are outstanding,
    /// `Incompatible` when something else comes.
    pub fn receive_push(&mut self) -> Result<Value> {
        if let Some(push) = self.pushes.pop_front() {
            return Ok(push);
        }
        self.check_idle()?;
        match self.receiver.receive()? {
            push @ Value::Push(_) => Ok(push),
            other => Err(Error::new(
                ErrorKind::Incompatible,
                format!("a push message was expected, and the server sent {other:?}"),
            )),
        }
    }

    /// Changes how long to wait without a byte of a reply arriving; `None` waits for ever.
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) -> Result<()> {
        self.receiver.set_read_timeout(timeout)
    }

    /// Changes how long to wait without the server taking a byte; `None` waits for ever.
    pub fn set_write_timeout(&mut self, timeout: Option<Duration>) -> Result<()> {
        self.sender.set_write_timeout(timeout)
    }

    /// The socket, for its options and addresses. Reading or writing through it breaks the connection.
    pub fn socket(&self) -> &TcpStream {
        self.sender.socket()
    }

    /// The stream under it, for who goes on with bytes of his own. Errors: `InvalidInput` while replies are outstanding
    /// or pushes were not taken.
    pub fn into_stream(self) -> Result<Stream> {
        Ok(self.split()?.0.into_stream())
    }

    /// The two directions apart, for a thread each. Errors: `InvalidInput` while replies are outstanding
    /// or pushes were not taken, since the halves keep neither.
    pub fn split(self) -> Result<(Sender, Receiver)> {
        self.check_idle()?;
        if !self.pushes.is_empty() {
            return Err(Error::new(ErrorKind::InvalidInput, "push messages were not taken"));
        }
        Ok((self.sender, self.receiver))
    }

    pub(crate) fn take_storage(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.sender.encoded)
    }

    /// Sends `count` encoded commands and receives their replies.
    pub(crate) fn exchange(&mut self, encoded: Vec<u8>, count: usize) -> Result<Vec<Value>> {
        self.sender.check()?;
        self.check_idle()?;
        let Connection { sender, receiver, outstanding, pushes, push_queue_max } = self;
        // Before anything is sent: whatever fails on the way, what was sent is answered.
        *outstanding = count;
        let mut replies = Vec::with_capacity(count);
        let sent = sender.send_while_receiving(&encoded, receiver, &mut |value| match value {
            push @ Value::Push(_) => keep_push(pushes, *push_queue_max, push),
            _ if *outstanding == 0 => Err(Error::new(
                ErrorKind::Incompatible,
                format!("the server sent more than {count} replies to {count} commands"),
            )),
            value => {
                *outstanding -= 1;
                replies.push(value);
                Ok(())
            }
        });
        sender.keep(encoded);
        sent?;
        while self.outstanding > 0 {
            replies.push(self.receive_one()?);
        }
        Ok(replies)
    }

    fn check_idle(&self) -> Result<()> {
        match self.outstanding {
            0 => Ok(()),
            count => Err(Error::new(
                ErrorKind::InvalidInput,
                format!("{count} replies to earlier commands are outstanding: receive them first"),
            )),
        }
    }
}

fn keep_push(pushes: &mut VecDeque<Value>, most: usize, push: Value) -> Result<()> {
    if pushes.len() >= most {
        return Err(Error::new(
            ErrorKind::NoMemory,
            format!("{} push messages wait to be taken; one more was dropped", pushes.len()),
        ));
    }
    pushes.push_back(push);
    Ok(())
}

fn open(address: &SocketAddr, settings: &ConnectionSettings) -> std::io::Result<TcpStream> {
    match timeout(settings.connect_timeout_ms) {
        Some(timeout) => TcpStream::connect_timeout(address, timeout),
        None => TcpStream::connect(address),
    }
}

#[cfg(test)]
#[path = "connection_test.rs"]
mod connection_test;
