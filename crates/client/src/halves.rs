//! The two directions of a connection, which may live on two threads.
//!
//! Invariants:
//! 1. After a failed or partial write nothing more is sent: the server could take the rest of one
//!    command for the beginning of another.
//! 2. A receive that times out loses nothing: the next call goes on where it stopped.

use std::io;
use std::net::TcpStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use tierstone_base::clock::{Clock, SystemClock};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_wire::resp::{
    ReplyLimits, ReplyParser, ReplyProgress, ReplySkimmer, SkimProgress, Skimmed, Value, encode_command,
};

use crate::stream::Stream;

/// Free bytes that a read is offered at least.
const READ_SIZE_BYTES: usize = 16 << 10;
/// Buffer that stays allocated when all replies in it have been taken.
const KEPT_BUFFER_BYTES: usize = 1 << 20;
/// A write up to this size cannot block for want of our reading.
const PLAIN_WRITE_MAX_BYTES: usize = 16 << 10;

/// The direction towards the server.
#[derive(Debug)]
pub struct Sender {
    stream: Stream,
    /// Encoded commands; empty between calls, kept for its storage.
    pub(crate) encoded: Vec<u8>,
    failure: Option<Error>,
    write_timeout: Option<Duration>,
}

/// The direction from the server.
#[derive(Debug)]
pub struct Receiver {
    stream: Stream,
    buffer: Vec<u8>,
    /// What has arrived and is not consumed: `buffer[front..back]`.
    front: usize,
    back: usize,
    parser: ReplyParser,
    skimmer: ReplySkimmer,
}

impl Sender {
    pub(crate) fn new(stream: Stream, write_timeout: Option<Duration>) -> Self {
        Sender { stream, encoded: Vec::new(), failure: None, write_timeout }
    }

    /// Sends one command. Cost: one system call; allocates only for a command longer than any before.
    pub fn send(&mut self, arguments: &[&[u8]]) -> Result<()> {
        let mut encoded = std::mem::take(&mut self.encoded);
        encode_command(arguments, &mut encoded);
        let result = self.send_encoded(&encoded);
        self.keep(encoded);
        result
    }

    /// Sends commands that the caller has encoded ([`encode_command`]).
    pub fn send_encoded(&mut self, bytes: &[u8]) -> Result<()> {
        self.check()?;
        match self.stream.write_all(bytes) {
            Ok(()) => Ok(()),
            Err(error) => Err(self.fail(network_error("send a command", &error))),
        }
    }

    /// Tells the server that nothing more will be sent.
    pub fn finish(&mut self) -> Result<()> {
        self.failure = Some(Error::new(ErrorKind::InvalidInput, "this direction was finished"));
        self.socket()
            .shutdown(std::net::Shutdown::Write)
            .map_err(|error| network_error("finish sending", &error))
    }

    /// The socket, for its options and addresses. Reading or writing through it breaks the connection.
    pub fn socket(&self) -> &TcpStream {
        self.stream.socket()
    }

    pub(crate) fn into_stream(self) -> Stream {
        self.stream
    }

    /// Sends `bytes` and gives `take` what the server answers meanwhile: a server that stops reading until
    /// its answers are taken would otherwise wait for us as we wait for it.
    pub(crate) fn send_while_receiving(
        &mut self,
        bytes: &[u8],
        receiver: &mut Receiver,
        take: &mut dyn FnMut(Value) -> Result<()>,
    ) -> Result<()> {
        if bytes.len() <= PLAIN_WRITE_MAX_BYTES {
            return self.send_encoded(bytes);
        }
        self.check()?;
        let switch = |is_nonblocking| {
            self.socket()
                .set_nonblocking(is_nonblocking)
                .map_err(|error| network_error("change a socket's mode", &error))
        };
        let sent = switch(true).and_then(|()| self.send_by_turns(bytes, receiver, take));
        sent.and(switch(false)).map_err(|error| self.fail(error))
    }

    fn send_by_turns(
        &self,
        bytes: &[u8],
        receiver: &mut Receiver,
        take: &mut dyn FnMut(Value) -> Result<()>,
    ) -> Result<()> {
        let mut rest = bytes;
        let mut stalled = Stalled::default();
        while !rest.is_empty() || self.stream.has_unsent() {
            let sent = match rest.is_empty() {
                true => self.stream.flush().map(|()| 0),
                false => self.stream.write(rest),
            };
            match sent {
                Ok(0) if !rest.is_empty() => return Err(closed()),
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    stalled.note((rest.len(), self.stream.unsent_bytes()));
                    if self.wait(&stalled)?.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                        receiver.take_in_available(take)?;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(network_error("send commands", &error)),
            }
        }
        Ok(())
    }

    /// Waits until the socket can be read or written, but no longer for a server that takes nothing than the timeout says,
    /// whatever it sends.
    fn wait(&self, stalled: &Stalled) -> Result<PollFlags> {
        let failed = |error: io::Error| network_error("wait for the server", &error);
        let left = self.write_timeout.map(|timeout| timeout.saturating_sub(stalled.lasts()));
        let timeout = match left.map(rustix::event::Timespec::try_from) {
            None => None,
            Some(Ok(timeout)) => Some(timeout),
            Some(Err(_)) => return Err(Error::new(ErrorKind::InvalidInput, "the write timeout is too long")),
        };
        let mut sockets = [PollFd::new(self.socket(), PollFlags::IN | PollFlags::OUT)];
        match poll(&mut sockets, timeout.as_ref()) {
            Ok(0) => Err(failed(io::ErrorKind::TimedOut.into())),
            Ok(_) => match sockets[0].revents() {
                found if left == Some(Duration::ZERO) && !found.contains(PollFlags::OUT) => {
                    Err(failed(io::ErrorKind::TimedOut.into()))
                }
                found => Ok(found),
            },
            Err(rustix::io::Errno::INTR) => Ok(PollFlags::empty()),
            Err(error) => Err(failed(error.into())),
        }
    }

    /// Takes the storage of a command or pipeline back, unless it grew very large.
    pub(crate) fn keep(&mut self, mut encoded: Vec<u8>) {
        encoded.clear();
        if encoded.capacity() <= KEPT_BUFFER_BYTES {
            self.encoded = encoded;
        }
    }

    pub(crate) fn set_write_timeout(&mut self, timeout: Option<Duration>) -> Result<()> {
        self.socket().set_write_timeout(timeout).map_err(|error| network_error("set a timeout", &error))?;
        self.write_timeout = timeout;
        Ok(())
    }

    /// Refuses to send anything after a failure.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.failure {
            Some(error) => Err(error.clone().context("the connection failed before")),
            None => Ok(()),
        }
    }

    fn fail(&mut self, error: Error) -> Error {
        self.failure = Some(error.clone());
        error
    }
}

/// Since when the server has taken nothing.
struct Stalled {
    clock: SystemClock,
    since_us: u64,
    /// What was left to be sent then.
    left: Option<(usize, usize)>,
}

impl Default for Stalled {
    fn default() -> Self {
        Stalled { clock: SystemClock::new(), since_us: 0, left: None }
    }
}

impl Stalled {
    /// So much is left to be sent now, and the socket takes nothing.
    fn note(&mut self, left: (usize, usize)) {
        if self.left != Some(left) {
            (self.left, self.since_us) = (Some(left), self.clock.now().monotonic_us);
        }
    }

    fn lasts(&self) -> Duration {
        Duration::from_micros(self.clock.now().monotonic_us.saturating_sub(self.since_us))
    }
}

impl Receiver {
    pub(crate) fn new(stream: Stream, limits: ReplyLimits) -> Self {
        Receiver {
            stream,
            buffer: Vec::new(),
            front: 0,
            back: 0,
            parser: ReplyParser::new(limits),
            skimmer: ReplySkimmer::new(limits),
        }
    }

    /// Waits for the next value that the server sends: a reply, or a [`Value::Push`].
    ///
    /// Errors: `Retry` when the time is up (call again) or the connection is lost (connect again),
    /// `Incompatible` when the bytes are not of this protocol.
    pub fn receive(&mut self) -> Result<Value> {
        if self.skimmer.is_inside_reply() {
            return Err(Error::new(ErrorKind::InvalidInput, "a reply is half skimmed: go on skimming"));
        }
        loop {
            match self.parse()? {
                Some(value) => return Ok(value),
                None => self.fill()?,
            }
        }
    }

    /// The next value of what has arrived, if it is there as a whole.
    fn parse(&mut self) -> Result<Option<Value>> {
        let (consumed, value) = match self.parser.parse(&self.buffer[self.front..self.back])? {
            ReplyProgress::Complete { consumed, value } => (consumed, Some(value)),
            ReplyProgress::Incomplete { consumed, .. } => (consumed, None),
        };
        self.front += consumed;
        Ok(value)
    }

    /// Waits for the end of the next value and tells only its kind: no allocation, and a value of any
    /// size passes through a small buffer. Errors as of [`Self::receive`].
    pub fn skim(&mut self) -> Result<Skimmed> {
        if self.parser.is_inside_reply() {
            return Err(Error::new(ErrorKind::InvalidInput, "a reply is half received: go on receiving"));
        }
        loop {
            match self.skimmer.skim(&self.buffer[self.front..self.back])? {
                SkimProgress::Complete { consumed, kind } => {
                    self.front += consumed;
                    return Ok(kind);
                }
                SkimProgress::Incomplete { consumed } => {
                    self.front += consumed;
                    self.fill()?;
                }
            }
        }
    }

    /// The socket, for its options and addresses. Reading or writing through it breaks the connection.
    pub fn socket(&self) -> &TcpStream {
        self.stream.socket()
    }

    /// Changes how long to wait without a byte arriving; `None` waits for ever.
    pub fn set_read_timeout(&mut self, timeout: Option<Duration>) -> Result<()> {
        self.socket().set_read_timeout(timeout).map_err(|error| network_error("set a timeout", &error))
    }

    /// Reads at least one byte.
    fn fill(&mut self) -> Result<()> {
        loop {
            match self.read() {
                Ok(0) => return Err(closed()),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(network_error("wait for a reply", &error)),
            }
        }
    }

    /// Reads what is there, on a socket that does not block, and gives `take` each value as soon as it is whole: no more
    /// than one lies in the buffer beside what one read brings.
    fn take_in_available(&mut self, take: &mut dyn FnMut(Value) -> Result<()>) -> Result<()> {
        loop {
            while let Some(value) = self.parse()? {
                take(value)?;
            }
            match self.read() {
                Ok(0) => return Err(closed()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(network_error("take in replies", &error)),
            }
        }
    }

    fn read(&mut self) -> io::Result<usize> {
        self.make_room();
        let count = self.stream.read(&mut self.buffer[self.back..])?;
        self.back += count;
        Ok(count)
    }

    /// Bytes of memory for what has come.
    #[cfg(test)]
    pub fn held_bytes(&self) -> usize {
        self.buffer.len()
    }

    fn make_room(&mut self) {
        if self.front == self.back {
            self.front = 0;
            self.back = 0;
            if self.buffer.len() > KEPT_BUFFER_BYTES {
                self.buffer = Vec::new();
            }
        }
        if self.buffer.len() - self.back >= READ_SIZE_BYTES {
            return;
        }
        if self.front >= self.buffer.len() / 2 {
            self.buffer.copy_within(self.front..self.back, 0);
            self.back -= self.front;
            self.front = 0;
        }
        if self.buffer.len() - self.back < READ_SIZE_BYTES {
            // Twofold, so that a long reply is moved O(1) times a byte; as far as bytes really came.
            let size = (self.buffer.len() * 2).max(self.back + READ_SIZE_BYTES);
            self.buffer.resize(size, 0);
        }
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Retry, "the server closed the connection")
}

/// A failed call on a socket, in terms of what the caller can do.
pub(crate) fn network_error(doing: &str, error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            Error::new(ErrorKind::Retry, format!("{doing}: the time is up"))
        }
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            Error::new(ErrorKind::InvalidInput, format!("{doing}: {error}"))
        }
        _ => Error::new(ErrorKind::Retry, format!("{doing}: {error}")),
    }
}
