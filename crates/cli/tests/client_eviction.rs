//! `maxmemory-clients`: when clients take too much memory together, the one that takes most is closed.

use crate::common;
use crate::common::{Folder, PATIENCE, Server, ask};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use tierstone_client::Connection;

const SMALL: [&str; 6] = ["--segment-size", "128KiB", "--capacity", "8MiB", "--memory", "256MiB"];
const LIMIT: usize = 4 << 20;
/// A message of a channel.
const MESSAGE_BYTES: usize = 60_000;

fn small<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SMALL.iter().copied().chain(more.iter().copied()).collect()
}

/// A connection that speaks protocol 3, says `words`, listens to `channel`, and reads what it is told only when asked.
fn subscriber(server: &Server, words: &str, channel: &str) -> TcpStream {
    let mut socket = TcpStream::connect(server.address).expect("the server takes a connection");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
    let request = format!("HELLO 3\r\n{words}\r\nSUBSCRIBE {channel}\r\n");
    socket.write_all(request.as_bytes()).expect("it is sent");
    let end = format!("{channel}\r\n:1\r\n");
    let mut heard = Vec::new();
    while !heard.ends_with(end.as_bytes()) {
        let mut byte = [0];
        socket.read_exact(&mut byte).expect("it is answered");
        heard.push(byte[0]);
    }
    socket
}

/// Sends messages of `letter` until something is the case; how many.
fn flood(publisher: &mut Connection, channel: &str, letter: u8, until: impl Fn() -> bool) -> usize {
    let message = vec![letter; MESSAGE_BYTES];
    for count in 1..=4_000 {
        ask(publisher, &[b"PUBLISH", channel.as_bytes(), &message]);
        if until() {
            return count;
        }
    }
    panic!("240 MB of messages, and nothing happened");
}

/// What a connection that was not read from has been sent before its end, in bytes.
fn drain(mut socket: TcpStream) -> usize {
    let (mut all, mut buffer) = (0, vec![0; 1 << 20]);
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return all,
            Ok(count) => all += count,
            // Closed with bytes that the server had not read, or was not told to have arrived.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return all,
            Err(error) => panic!("the connection was not closed: {error}"),
        }
    }
}

/// The page of metrics.
fn metrics(door: SocketAddr) -> String {
    let mut socket = TcpStream::connect(door).expect("the door is open");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
    socket
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .expect("it is sent");
    let mut page = String::new();
    socket.read_to_string(&mut page).expect("it is answered");
    page
}

#[test]
fn the_client_that_takes_most_is_closed_and_told_of() {
    for driver in common::drivers() {
        let folder = Folder::new();
        let limit = LIMIT.to_string();
        let more =
            ["--shards", "2", "--driver", driver, "--maxmemory-clients", &limit, "--http", "127.0.0.1:0"];
        let mut server = Server::start(&folder, &small(&more));
        let line = server.next_line();
        let door = line.strip_prefix("metrics on http://").and_then(|rest| rest.strip_suffix("/metrics"));
        let door = door.expect("it tells its door").parse().expect("an address");
        // Some who hold a little: 200 KB each, queued.
        let mut waiting: Vec<Connection> = (0..6).map(|_| server.connect()).collect();
        for (number, connection) in waiting.iter_mut().enumerate() {
            ask(connection, &[b"MULTI"]);
            for part in 0..20u32 {
                ask(connection, &[b"SET", format!("{number}:{part}").as_bytes(), &vec![b'v'; 10_000]]);
            }
        }
        let slow = subscriber(&server, "CLIENT SETNAME slow", "news");
        let mut publisher = server.connect();
        let sent = flood(&mut publisher, "news", b'n', || server.info("evicted_clients") > 0);
        assert!(drain(slow) < sent * MESSAGE_BYTES, "{driver}: it was closed before it had everything");
        for connection in &mut waiting {
            let replies = ask(connection, &[b"EXEC"]);
            assert_eq!(replies.items().map(<[_]>::len), Some(20), "{driver}: smaller ones are served");
        }
        assert_eq!(server.info("evicted_clients"), 1, "{driver}");
        let told = (0..10_000).any(|_| {
            let page = metrics(door);
            let lines = page.lines().filter(|line| line.starts_with("tierstone_evicted_clients_total{"));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum::<u64>() == 1
        });
        assert!(told, "{driver}: the metrics count it");
        ask(&mut publisher, &[b"CONFIG", b"RESETSTAT"]);
        assert_eq!(server.info("evicted_clients"), 0);
        server.stop();
        let log = folder.complaints();
        assert!(log.contains("a client was closed") && log.contains("name=slow"), "{driver}: {log}");
    }
}

#[test]
fn who_asks_to_be_kept_is_kept_until_he_says_otherwise() {
    for driver in common::drivers() {
        let folder = Folder::new();
        let server = Server::start(&folder, &small(&["--shards", "1", "--driver", driver]));
        let mut publisher = server.connect();
        ask(&mut publisher, &[b"CONFIG", b"SET", b"maxmemory-clients", b"4mb"]);
        let mut kept = subscriber(&server, "CLIENT NO-EVICT on", "one");
        let held = |bytes: usize| server.info("connection_bytes") > bytes as u64;
        let sent = flood(&mut publisher, "one", b'k', || held(2 * LIMIT));
        assert_eq!(server.info("evicted_clients"), 0, "{driver}");
        // It gets all of it.
        let (mut letters, mut buffer) = (0, vec![0; 1 << 20]);
        while letters < sent * MESSAGE_BYTES {
            let count = kept.read(&mut buffer).expect("it is told");
            assert!(count > 0, "{driver}: it was closed");
            letters += buffer[..count].iter().filter(|byte| **byte == b'k').count();
        }
        // What has said that it is not to be kept any more goes as others do.
        kept.write_all(b"CLIENT NO-EVICT off\r\n").expect("it is sent");
        let mut heard = Vec::new();
        while !heard.ends_with(b"+OK\r\n") {
            let count = kept.read(&mut buffer).expect("it is answered");
            heard.extend_from_slice(&buffer[..count]);
        }
        flood(&mut publisher, "one", b'k', || server.info("evicted_clients") == 1);
        drain(kept);
        assert!(!held(LIMIT), "{driver}: its memory is free");
        server.stop();
    }
}

#[test]
fn large_queries_are_closed_until_the_rest_fits() {
    const CLIENTS: usize = 16;
    const QUERY_BYTES: usize = 900_000;
    for driver in common::drivers() {
        let folder = Folder::new();
        let server = Server::start(&folder, &small(&["--shards", "2", "--driver", driver]));
        let mut control = server.connect();
        let mut clients: Vec<TcpStream> = (0..CLIENTS)
            .map(|_| {
                let mut socket = TcpStream::connect(server.address).expect("the server takes a connection");
                socket.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
                socket.write_all(b"*2\r\n$4\r\nECHO\r\n$1000000\r\n").expect("it is sent");
                socket.write_all(&vec![b'q'; QUERY_BYTES]).expect("it is sent");
                socket
            })
            .collect();
        let has_come = |bytes: usize| server.info("connection_bytes") >= bytes as u64;
        assert!((0..10_000).any(|_| has_come(CLIENTS * QUERY_BYTES)), "{driver}: all of it came");
        assert_eq!(server.info("evicted_clients"), 0, "{driver}: there is no bound at first");
        // 3 % of 256 MiB, room for eight of them.
        ask(&mut control, &[b"CONFIG", b"SET", b"maxmemory-clients", b"3%"]);
        let room = (256 << 20) * 3 / 100;
        assert!((0..10_000).any(|_| !has_come(room)), "{driver}: some are closed");
        let mut answered = 0;
        for socket in &mut clients {
            // One that was closed may take it all the same.
            let _ = socket.write_all(&[b'q'; 100_002][..100_000]);
            let _ = socket.write_all(b"\r\n");
            let mut answer = vec![0; 10 + 1_000_000 + 2];
            answered += usize::from(socket.read_exact(&mut answer).is_ok());
        }
        let evicted = server.info("evicted_clients") as usize;
        assert_eq!(answered + evicted, CLIENTS, "{driver}");
        // The shards may not know of each other's at the same moment, and an answer may push out the next.
        assert!((CLIENTS - 8..CLIENTS).contains(&evicted), "{driver}: {evicted} were closed");
        server.stop();
    }
}
