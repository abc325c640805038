use super::*;
use crate::Connection;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::Duration;
use tierstone_base::ErrorKind;

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("tierstone-client-{}-{name}.sock", std::process::id()))
}

fn connect_to(address: &str, patience: Duration) -> Result<Connection> {
    Connection::connect_over(address, &ConnectionSettings::with_timeout(patience), None)
}

#[test]
fn addresses_of_unix_sockets_are_told_from_hosts() {
    assert_eq!(unix_path("unix:/run/a.sock"), Some(Path::new("/run/a.sock")));
    assert_eq!(unix_path("unix:a.sock"), Some(Path::new("a.sock")));
    assert_eq!(unix_path("/run/a.sock"), Some(Path::new("/run/a.sock")));
    for host in ["127.0.0.1:6379", "[::1]:6379", "localhost:1", "a/b:1"] {
        assert_eq!(unix_path(host), None, "{host}");
    }
}

#[test]
fn commands_go_over_a_unix_socket_and_its_timeouts_hold() {
    let path = scratch("commands");
    let listener = UnixListener::bind(&path).unwrap();
    let address = format!("unix:{}", path.display());
    let mut connection = connect_to(&address, Duration::from_millis(50)).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    connection.send_only(&[b"PING"]).unwrap();
    let mut asked = [0; 14];
    server.read_exact(&mut asked).unwrap();
    assert_eq!(&asked, b"*1\r\n$4\r\nPING\r\n");
    assert_eq!(connection.receive_one().unwrap_err().kind(), ErrorKind::Retry, "nothing is answered");
    server.write_all(b"+PONG\r\n").unwrap();
    assert!(connection.receive_one().is_ok());
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_unix_socket_where_nobody_listens_or_nobody_accepts_is_an_error_in_time() {
    let path = scratch("nobody");
    let address = path.to_str().unwrap();
    let missing = connect_to(address, Duration::from_secs(5)).unwrap_err();
    assert!(missing.kind() == ErrorKind::Retry && missing.message().contains(address), "{missing}");
    // One place in the queue; the second who comes finds it full, sooner or later.
    let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let mut waiting = Vec::new();
    let refused = loop {
        match connect_to(address, Duration::from_millis(50)) {
            Ok(connection) => waiting.push(connection),
            Err(error) => break error,
        }
        assert!(waiting.len() < 100, "the queue is without bound");
    };
    assert!(refused.kind() == ErrorKind::Retry && refused.message().contains("time is up"), "{refused}");
    std::fs::remove_file(&path).unwrap();
    let long = format!("/{}", "a".repeat(200));
    let refused = connect_to(&long, Duration::from_secs(5)).unwrap_err();
    assert!(refused.message().contains(&long), "{refused}");
}
