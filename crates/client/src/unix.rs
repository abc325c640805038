//! Unix sockets: how their addresses are written, and how they are connected to.
//!
//! They are handed on as the standard library's TCP sockets, which read, write, wait and shut down with the same system calls.
//! What is of TCP alone is not asked of them: [`send_at_once`].

use std::io;
use std::net::TcpStream;
use std::path::Path;

use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_domain};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tierstone_base::Result;

use crate::halves::network_error;
use crate::settings::{ConnectionSettings, timeout};

/// The path, if `address` is that of a Unix socket: `unix:PATH`, or a path that begins with `/`.
pub fn unix_path(address: &str) -> Option<&Path> {
    match address.strip_prefix("unix:") {
        Some(path) => Some(Path::new(path)),
        None => address.starts_with('/').then(|| Path::new(address)),
    }
}

/// Connects to the socket at `path`.
///
/// # Errors
/// `InvalidInput`: the path is none of a socket. `Retry`: nobody listens there.
pub(crate) fn open(path: &Path, settings: &ConnectionSettings) -> Result<TcpStream> {
    open_within(path, settings)
        .map_err(|error| network_error(&format!("connect to {}", path.display()), &error))
}

fn open_within(path: &Path, settings: &ConnectionSettings) -> io::Result<TcpStream> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // A server that takes nobody lets its queue grow full; the kernel then waits as long as it would for room to send.
    set_socket_timeout(&socket, Timeout::Send, timeout(settings.connect_timeout_ms))?;
    connect(&socket, &address)?;
    Ok(TcpStream::from(socket))
}

/// Sees to it that what is sent does not wait for more. Unix sockets never do, and know no such option.
pub(crate) fn send_at_once(socket: &TcpStream) -> io::Result<()> {
    match socket_domain(socket)? {
        AddressFamily::UNIX => Ok(()),
        _ => socket.set_nodelay(true),
    }
}

#[cfg(test)]
#[path = "unix_test.rs"]
mod unix_test;
