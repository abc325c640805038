//! A connected socket, in the clear or encrypted: what a connection's two halves, and load generators, read and write.
//!
//! Encryption is a state machine of rustls between the socket and the caller. It works on sockets that block and on
//! those that do not, and for one thread in each direction at the same time.
//!
//! Invariants:
//! 1. Bytes are sent in the order in which they were sealed: who seals holds `sending` until they are sent or kept.
//! 2. No lock that the other direction needs is held during a system call: a thread that waits in a send does not
//!    keep another from receiving, which is what the server may wait for.
//! 3. A read that gives less than it was offered has left nothing behind that could be given without the socket.

use crate::tls::Tls;
use rustls::ClientConnection;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that are sealed at a time.
const SEAL_BYTES: usize = 64 << 10;
/// Sealed bytes that are read at a time.
const READ_BYTES: usize = 32 << 10;

/// A connected socket. Clones are the same socket.
#[derive(Clone, Debug)]
pub struct Stream {
    socket: Arc<TcpStream>,
    sealed: Option<Arc<Sealed>>,
}

/// What an encrypted connection has.
#[derive(Debug)]
struct Sealed {
    session: Mutex<ClientConnection>,
    sending: Mutex<Unsent>,
    receiving: Mutex<Unopened>,
}

/// Sealed bytes that the socket has not taken.
#[derive(Debug, Default)]
struct Unsent {
    bytes: Vec<u8>,
    sent: usize,
}

/// Sealed bytes that have come.
#[derive(Debug)]
struct Unopened {
    bytes: Vec<u8>,
    front: usize,
    back: usize,
}

impl Stream {
    /// A socket in the clear.
    pub fn plain(socket: TcpStream) -> Stream {
        Stream { socket: Arc::new(socket), sealed: None }
    }

    /// Agrees with the server on keys, on a socket that blocks; what it waits for obeys the socket's timeouts.
    ///
    /// # Errors
    /// What the socket says; `InvalidData` where one side does not believe the other's certificate, or the other does
    /// not speak TLS.
    pub(crate) fn encrypted(socket: TcpStream, tls: &Tls, host: &str) -> io::Result<Stream> {
        let mut session = tls.session(host)?;
        while session.is_handshaking() {
            session.complete_io(&mut &socket)?;
        }
        let unopened = Unopened { bytes: vec![0; READ_BYTES], front: 0, back: 0 };
        let sealed = Sealed {
            session: Mutex::new(session),
            sending: Mutex::default(),
            receiving: Mutex::new(unopened),
        };
        Ok(Stream { socket: Arc::new(socket), sealed: Some(Arc::new(sealed)) })
    }

    /// The socket, for its options and addresses. Reading or writing through it breaks the connection.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Whether it is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.sealed.is_some()
    }

    /// Reads into `into` at least one byte; 0: the server has closed the connection, or `into` is empty. When it gives
    /// less than `into` holds, nothing more is there until the socket has something.
    ///
    /// # Errors
    /// Those of the socket; `InvalidData` for bytes that are not of the server that was agreed with.
    pub fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        match &self.sealed {
            None => (&*self.socket).read(into),
            Some(sealed) => sealed.read(&self.socket, into),
        }
    }

    /// Writes some of `bytes`; how many. Of those an encrypted connection may keep some until [`Stream::flush`].
    ///
    /// # Errors
    /// Those of the socket: nothing of `bytes` was taken.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.sealed {
            None => (&*self.socket).write(bytes),
            Some(sealed) => sealed.write(&self.socket, bytes),
        }
    }

    /// Sends what [`Stream::write`] has kept.
    ///
    /// # Errors
    /// Those of the socket: call again when it takes bytes.
    pub fn flush(&self) -> io::Result<()> {
        match &self.sealed {
            None => Ok(()),
            Some(sealed) => sealed.flush(&self.socket),
        }
    }

    /// Whether [`Stream::write`] has kept something.
    pub fn has_unsent(&self) -> bool {
        self.unsent_bytes() > 0
    }

    /// How many sealed bytes [`Stream::write`] has kept.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.sealed.as_ref().map_or(0, |sealed| lock(&sealed.sending).len())
    }

    /// Sends all of `bytes`, on a socket that blocks.
    ///
    /// # Errors
    /// Those of the socket; some may have been sent.
    pub fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        if self.sealed.is_none() {
            return (&*self.socket).write_all(bytes);
        }
        while !bytes.is_empty() {
            match self.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.flush()
    }
}

/// Nothing that is guarded is left half done by a panic of the other direction.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Unsent {
    fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes what the session has sealed.
    fn take(&mut self, session: &mut ClientConnection) -> io::Result<()> {
        while session.wants_write() {
            session.write_tls(&mut self.bytes)?;
        }
        Ok(())
    }

    fn send(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        while !self.is_empty() {
            match socket.write(&self.bytes[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        self.sent = 0;
        Ok(())
    }
}

impl Sealed {
    fn write(&self, socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        let mut unsent = lock(&self.sending);
        unsent.send(socket)?;
        let bytes = &bytes[..bytes.len().min(SEAL_BYTES)];
        {
            let mut session = lock(&self.session);
            session.writer().write_all(bytes)?;
            unsent.take(&mut session)?;
        }
        match unsent.send(socket) {
            // They are sealed, and kept.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            other => other?,
        }
        Ok(bytes.len())
    }

    fn flush(&self, socket: &TcpStream) -> io::Result<()> {
        let mut unsent = lock(&self.sending);
        unsent.take(&mut lock(&self.session))?;
        unsent.send(socket)
    }

    /// Sends what TLS itself wants to say, unless a sender is at work, who will.
    fn flush_own(&self, socket: &TcpStream) {
        if let Ok(mut unsent) = self.sending.try_lock() {
            let taken = unsent.take(&mut lock(&self.session));
            // Who sends next meets the same error.
            let _ = taken.and_then(|()| unsent.send(socket));
        }
    }

    fn read(&self, socket: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
        let mut unopened = lock(&self.receiving);
        let mut filled = 0;
        loop {
            match self.open(&mut unopened, &mut into[filled..]) {
                Ok(Opened::Bytes(count)) => {
                    filled += count;
                    if filled == into.len() {
                        return Ok(filled);
                    }
                }
                Ok(Opened::End) => return Ok(filled),
                Ok(Opened::Something) => {}
                Ok(Opened::Nothing) => {
                    self.flush_own_if_wanted(socket);
                    if filled > 0 {
                        return Ok(filled);
                    }
                    let count = (&*socket).read(&mut unopened.bytes)?;
                    if count == 0 {
                        return Ok(0);
                    }
                    (unopened.front, unopened.back) = (0, count);
                }
                Err(error) => {
                    // The other side is told why, if it still listens.
                    self.flush_own(socket);
                    return if filled > 0 { Ok(filled) } else { Err(error) };
                }
            }
        }
    }

    fn flush_own_if_wanted(&self, socket: &TcpStream) {
        let wants = lock(&self.session).wants_write();
        if wants {
            self.flush_own(socket);
        }
    }

    /// Opens a piece of what has come.
    fn open(&self, unopened: &mut Unopened, into: &mut [u8]) -> io::Result<Opened> {
        let mut session = lock(&self.session);
        match session.reader().read(into) {
            Ok(0) => return Ok(if into.is_empty() { Opened::Bytes(0) } else { Opened::End }),
            Ok(count) => return Ok(Opened::Bytes(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if unopened.front == unopened.back {
            return Ok(Opened::Nothing);
        }
        let mut rest = &unopened.bytes[unopened.front..unopened.back];
        unopened.front += session.read_tls(&mut rest)?;
        match session.process_new_packets() {
            Ok(_) => Ok(Opened::Something),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
    }
}

/// What opening a piece gave.
enum Opened {
    /// So many bytes for the caller.
    Bytes(usize),
    /// No byte for the caller yet, but there is more to open.
    Something,
    /// There is nothing to open.
    Nothing,
    /// The server has said that nothing more comes.
    End,
}
