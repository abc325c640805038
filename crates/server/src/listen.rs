//! Listening sockets: one for each address and driver thread.
//!
//! With several threads each has its own TCP socket on the same port (`SO_REUSEPORT`), and the kernel
//! spreads clients over them. A Unix socket belongs to the first thread. `TCP_NODELAY` and keepalive
//! are set on the listening socket; Linux gives them to each accepted one without a system call.

use crate::service::Peer;
use crate::settings::TransportSettings;
use rustix::net::SocketFlags;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tierstone_base::{Error, ErrorKind, Result};

/// Descriptors that a process needs beside its clients, at the very least.
pub(crate) const DESCRIPTORS_SPARE: u64 = 32;

/// How often, and how long in between, an address that is taken is tried again.
const FREE_TRIES: u32 = 80;
const FREE_PAUSE: Duration = Duration::from_millis(25);

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ListenAddress {
    /// A TCP address; port 0 takes a free one.
    Tcp(SocketAddr),
    /// The path of a Unix socket. A dead socket file at the path is replaced.
    Unix(PathBuf),
}

/// A socket that listens. A Unix socket's file goes with it.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    path: Option<PathBuf>,
    /// Whether its clients speak TLS.
    is_sealed: bool,
    /// Given up to accept one client, and turn it away, when the process has no descriptor left.
    reserve: Option<OwnedFd>,
    /// Clients turned away for want of a descriptor.
    turned_away: u64,
}

/// What accepting gave.
pub(crate) enum Accepted {
    Socket(OwnedFd),
    /// Nobody waits.
    Nobody,
    /// This one failed or was turned away; try again.
    Again,
}

impl Listener {
    /// Listens on each of `addresses` for `threads` driver threads; one list for each thread.
    ///
    /// # Errors
    /// `Busy` when an address is in use, `InvalidInput` when it cannot be listened on.
    pub fn bind(
        addresses: &[ListenAddress],
        threads: usize,
        settings: &TransportSettings,
    ) -> Result<Vec<Vec<Listener>>> {
        let mut lists: Vec<Vec<Listener>> = (0..threads.max(1)).map(|_| Vec::new()).collect();
        for address in addresses {
            match address {
                ListenAddress::Tcp(address) => {
                    let mut address = *address;
                    let shares_port = lists.len() > 1;
                    let free = if address.port() == 0 { Ok(()) } else { wait_until_free(address) };
                    free.map_err(|error| cannot_listen(&address.to_string(), error))?;
                    for list in &mut lists {
                        let listener = bind_tcp(address, shares_port, settings)
                            .map_err(|error| cannot_listen(&address.to_string(), error))?;
                        if let Some(bound) = listener.local_address() {
                            address.set_port(bound.port());
                        }
                        list.push(listener);
                    }
                }
                ListenAddress::Unix(path) => {
                    let listener = bind_unix(path, settings)
                        .map_err(|error| cannot_listen(&path.display().to_string(), error))?;
                    if let Some(first) = lists.first_mut() {
                        first.push(listener);
                    }
                }
            }
        }
        Ok(lists)
    }

    /// Another handle on the same socket: clients that come are taken by whichever accepts first. Does the socket have a
    /// file, it stays with this one.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub(crate) fn try_clone(&self) -> Result<Listener> {
        let socket = self.socket.try_clone()?;
        let reserve = reserve_descriptor();
        Ok(Listener { socket, path: None, is_sealed: self.is_sealed, reserve, turned_away: 0 })
    }

    /// Takes clients that speak TLS.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        self.is_sealed = true;
        self
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// The TCP address that it is bound to; `None` for a Unix socket.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()?.as_socket()
    }

    pub(crate) fn set_nonblocking(&self, is_nonblocking: bool) -> Result<()> {
        Ok(self.socket.set_nonblocking(is_nonblocking)?)
    }

    /// Accepts one client; the listener must not block.
    pub(crate) fn accept(&mut self) -> Accepted {
        use rustix::io::Errno;
        if self.reserve.is_none() {
            self.reserve = reserve_descriptor();
        }
        match rustix::net::accept_with(&self.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok(socket) => Accepted::Socket(socket),
            Err(Errno::AGAIN) => Accepted::Nobody,
            Err(Errno::MFILE | Errno::NFILE) => {
                if self.turn_one_away() {
                    Accepted::Again
                } else {
                    Accepted::Nobody
                }
            }
            // The client has gone, or memory is short: the next try finds out.
            Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO | Errno::PERM) => Accepted::Again,
            Err(_) => Accepted::Nobody,
        }
    }

    /// Without a free descriptor a waiting client would keep the listener ready for ever: the reserve
    /// makes room to accept it. Its socket, shut down, is the next reserve: closed, its place could be taken by
    /// a thread that opens a file, and nobody be turned away until somebody leaves. Returns whether one was turned away.
    pub(crate) fn turn_one_away(&mut self) -> bool {
        self.reserve = None;
        let is_ready = self.set_nonblocking(true).is_ok();
        let accept = || rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC).ok();
        let accepted = is_ready.then(accept).flatten();
        let was_there = accepted.is_some();
        if let Some(socket) = &accepted {
            // The client may have gone by itself.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
        self.reserve = accepted.or_else(reserve_descriptor);
        self.turned_away += u64::from(was_there);
        // Told ever more seldom: a flood of clients must not become one of lines.
        if was_there && self.turned_away.is_power_of_two() {
            tracing::warn!(
                clients = self.turned_away,
                "no file descriptor was left: clients were turned away; raise the limit on open files \
                 (LimitNOFILE, ulimit -n), or lower --maxclients"
            );
        }
        was_there
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Gone already, perhaps; then there is nothing to tidy.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Who is at the other end of `socket`; `None` when it has gone.
pub(crate) fn peer_of(socket: impl AsFd) -> Option<Peer> {
    let socket = socket2::SockRef::from(&socket);
    let local = socket.local_addr().ok()?;
    if local.is_unix() {
        return Some(Peer::Unix);
    }
    Some(Peer::Tcp { address: socket.peer_addr().ok()?.as_socket()?, local: local.as_socket()? })
}

/// Lets the process have at least `wanted` descriptors, as far as its hard limit goes. Returns how many
/// it may have.
pub fn raise_descriptor_limit(wanted: u64) -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let (soft, hard) = (limit.current.unwrap_or(u64::MAX), limit.maximum.unwrap_or(u64::MAX));
    if soft >= wanted {
        return soft;
    }
    let raised = wanted.min(hard);
    match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum }) {
        Ok(()) => raised,
        Err(_) => soft,
    }
}

/// How many of `descriptors` clients may take beside a store that opens up to `files`. The store comes first: a segment
/// without one is a write refused. But where its files would take more than half, clients have half.
pub(crate) fn descriptors_for_clients(descriptors: u64, files: u64) -> u64 {
    let store = files.saturating_add(DESCRIPTORS_SPARE).min((descriptors / 2).max(DESCRIPTORS_SPARE));
    descriptors.saturating_sub(store).max(1)
}

/// The most descriptors that the process can have: its hard limit.
pub(crate) fn descriptors_max() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

fn reserve_descriptor() -> Option<OwnedFd> {
    std::fs::File::open("/dev/null").ok().map(OwnedFd::from)
}

/// Waits for an address that is taken, for two seconds: the kernel takes the sockets of a process that used io_uring from it a
/// moment after its end, and who restarts a server is sooner. Sockets that share a port with each other share it with any
/// process of the same user, too, so that the kernel would give another server a part of the clients: they look here first.
///
/// # Errors
/// `AddrInUse`: another server has it. Others: it cannot be listened on.
fn wait_until_free(address: SocketAddr) -> std::io::Result<()> {
    let mut tries = FREE_TRIES;
    loop {
        match try_alone(address) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && tries > 0 => tries -= 1,
            found => return found,
        }
        std::thread::park_timeout(FREE_PAUSE);
    }
}

/// Binds a socket that shares with nobody, and lets it go.
fn try_alone(address: SocketAddr) -> std::io::Result<()> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // Connections that a former server has left do not count.
    socket.set_reuse_address(true)?;
    socket.bind(&SockAddr::from(address))
}

fn bind_tcp(
    address: SocketAddr,
    shares_port: bool,
    settings: &TransportSettings,
) -> std::io::Result<Listener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // So that 0.0.0.0 and :: can be listened on side by side.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shares_port)?;
    socket.set_tcp_nodelay(true)?;
    if settings.keepalive_s > 0 {
        let idle = Duration::from_secs(u64::from(settings.keepalive_s));
        let keepalive = TcpKeepalive::new().with_time(idle).with_retries(3);
        socket.set_tcp_keepalive(&keepalive.with_interval((idle / 3).max(Duration::from_secs(1))))?;
    }
    socket.bind(&SockAddr::from(address))?;
    listen(socket, None, settings)
}

fn bind_unix(path: &Path, settings: &TransportSettings) -> std::io::Result<Listener> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(std::io::ErrorKind::AddrInUse.into());
        }
        std::fs::remove_file(path)?;
    }
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    listen(socket, Some(path.to_path_buf()), settings)
}

fn listen(socket: Socket, path: Option<PathBuf>, settings: &TransportSettings) -> std::io::Result<Listener> {
    socket.listen(settings.backlog as i32)?;
    Ok(Listener { socket, path, is_sealed: false, reserve: reserve_descriptor(), turned_away: 0 })
}

fn cannot_listen(address: &str, error: std::io::Error) -> Error {
    let kind = match error.kind() {
        std::io::ErrorKind::AddrInUse => ErrorKind::Busy,
        _ => ErrorKind::InvalidInput,
    };
    Error::new(kind, format!("cannot listen on {address}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any_port() -> ListenAddress {
        ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    #[test]
    fn threads_share_a_port_and_a_second_server_is_refused() {
        let settings = TransportSettings::default();
        let lists = Listener::bind(&[any_port()], 3, &settings).unwrap();
        let ports: Vec<_> = lists.iter().map(|list| list[0].local_address().unwrap()).collect();
        assert!(ports[0] == ports[1] && ports[1] == ports[2] && ports[0].port() != 0);
        for threads in [1, 2] {
            let again = Listener::bind(&[ListenAddress::Tcp(ports[0])], threads, &settings);
            assert_eq!(again.unwrap_err().kind(), ErrorKind::Busy, "{threads} threads");
        }
        drop(lists);
        assert!(Listener::bind(&[ListenAddress::Tcp(ports[0])], 2, &settings).is_ok());
    }

    #[test]
    fn a_dead_unix_socket_is_replaced_and_a_living_one_is_not() {
        let path = std::env::temp_dir().join(format!("tierstone-listen-{}.sock", std::process::id()));
        let settings = TransportSettings::default();
        let addresses = [ListenAddress::Unix(path.clone())];
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "std leaves the file behind");
        let living = Listener::bind(&addresses, 2, &settings).unwrap();
        assert_eq!((living[0].len(), living[1].len()), (1, 0));
        assert_eq!(Listener::bind(&addresses, 1, &settings).unwrap_err().kind(), ErrorKind::Busy);
        drop(living);
        assert!(!path.exists());
    }
}
