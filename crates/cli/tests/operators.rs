//! What operators see of a real server: slow commands, the commands of all clients, keys that go by themselves.

use crate::common::{Folder, PATIENCE, Server, ask, program, spawn_command};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use tierstone_client::Connection;

const SMALL: [&str; 8] =
    ["--segment-size", "128KiB", "--capacity", "16MiB", "--memory", "32MiB", "--shards", "2"];

/// A connection on which lines are read, and whose first request is this one.
fn listen(server: &Server, request: &str) -> BufReader<TcpStream> {
    let mut socket = TcpStream::connect(server.address).expect("the server takes a connection");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
    socket.write_all(format!("{request}\r\n").as_bytes()).expect("it is sent");
    BufReader::new(socket)
}

fn line(socket: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    socket.read_line(&mut line).expect("a line comes");
    line.trim_end().to_owned()
}

fn text_of(connection: &mut Connection, request: &[&[u8]]) -> String {
    String::from_utf8_lossy(ask(connection, request).bytes().expect("a text")).into_owned()
}

#[test]
fn slow_commands_of_all_shards_are_listed_with_their_times() {
    let folder = Folder::new();
    let server = Server::start(&folder, &[&SMALL[..], &["--slowlog-log-slower-than", "10000"]].concat());
    let mut clients: Vec<Connection> = (0..8).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert!(ask(client, &[b"DEBUG", b"SLEEP", b"0.02"]).is_ok());
    }
    let list = ask(&mut clients[3], &[b"SLOWLOG", b"GET", b"-1"]);
    let entries = list.items().expect("a list");
    assert!(entries.len() >= 8, "{list:?}");
    for (index, entry) in entries.iter().enumerate() {
        let fields = entry.items().expect("an entry");
        let number = |index: usize| fields[index].integer().expect("a number");
        assert_eq!(number(0), (entries.len() - 1 - index) as i64);
        assert!(number(1) > 1_700_000_000 && number(2) >= 10_000, "{entry:?}");
    }
    for client in &mut clients {
        assert_eq!(ask(client, &[b"SLOWLOG", b"LEN"]).integer(), Some(entries.len() as i64));
    }
    // Histograms are of all shards, whoever is asked.
    let sleeps = text_of(&mut clients[0], &[b"INFO", b"latencystats"]);
    assert!(sleeps.contains("latency_percentiles_usec_debug|sleep:p50=2"), "{sleeps}");
    server.stop();
}

#[test]
fn a_watcher_that_does_not_read_is_cut_off_and_others_are_not() {
    let folder = Folder::new();
    let server = Server::start(&folder, &[&SMALL[..], &["--output-limit", "2MiB"]].concat());
    let (mut slow, mut quick) = (listen(&server, "MONITOR"), listen(&server, "MONITOR"));
    assert_eq!((line(&mut slow), line(&mut quick)), ("+OK".into(), "+OK".into()));
    let mut client = server.connect();
    let watchers =
        |client: &mut Connection| text_of(client, &[b"CLIENT", b"LIST"]).matches("flags=O").count();
    assert_eq!(watchers(&mut client), 2);
    let argument = vec![b'x'; 60_000];
    let mut requests = 0;
    while watchers(&mut client) == 2 {
        ask(&mut client, &[b"ECHO", &argument]);
        // Both requests of this turn.
        while !line(&mut quick).contains("] \"ECHO\"") {}
        requests += 1;
        assert!(requests < 5_000, "300 MB of lines were kept for who does not read");
    }
    assert_eq!(watchers(&mut client), 1);
    ask(&mut client, &[b"ECHO", b"end"]);
    while !line(&mut quick).ends_with("\"ECHO\" \"end\"") {}
    server.stop();
    let log = folder.complaints();
    assert!(log.contains("client-output-buffer-limit"), "the operator is not told: {log}");
}

#[test]
fn evicted_and_expired_keys_are_told_by_their_names() {
    let folder = Folder::new();
    let policy = ["--maxmemory-policy", "allkeys-lru", "--notify-keyspace-events", "Eex"];
    let server = Server::start(&folder, &[&SMALL[..], &policy].concat());
    let mut listener = listen(&server, "PSUBSCRIBE __keyevent@0__:*");
    let mut client = server.connect();
    for first in (0..8_000).step_by(64) {
        let mut pipeline = client.pipeline();
        for number in first..first + 64 {
            pipeline.command(&[b"SET", format!("key:{number}").as_bytes(), &[number as u8; 4_000]]);
        }
        for reply in pipeline.execute().expect("the server answers") {
            assert!(reply.is_ok(), "{:?}", reply.error());
        }
    }
    // The store may be as full as it can be when evicting ends: the keys written last make room.
    assert!(ask(&mut client, &[b"CONFIG", b"SET", b"maxmemory-policy", b"noeviction"]).is_ok());
    let last: Vec<String> = (7_800..8_000).map(|number| format!("key:{number}")).collect();
    let mut request: Vec<&[u8]> = vec![b"DEL"];
    request.extend(last.iter().map(String::as_bytes));
    assert!(ask(&mut client, &request).integer() > Some(0));
    assert!(ask(&mut client, &[b"SET", b"short", b"1", b"PX", b"1"]).is_ok());
    let mut told = BTreeSet::new();
    // The other shard may learn of the policy, and the keys it evicted last may be counted, a moment later.
    let mut has_expired = false;
    while !has_expired || (told.len() as u64) < server.info("evicted_keys") {
        let text = line(&mut listener);
        has_expired |= text == "short";
        if text.starts_with("key:") {
            assert!(told.insert(text.clone()), "{text} was told twice");
        }
    }
    assert!(told.len() > 1_000, "{} keys were evicted", told.len());
    for key in told.iter().take(200) {
        assert_eq!(ask(&mut client, &[b"EXISTS", key.as_bytes()]).integer(), Some(0), "{key}");
    }
    assert_eq!(server.info("untold_expirations"), 0);
    server.stop();
}

/// Clients keep cursors as signed numbers or doubles.
#[test]
fn cursors_of_every_engine_fit_in_a_double_and_lead_to_every_key_once() {
    for place in [&["--index", "hash"][..], &["--index", "ordered"], &["--data", "nvm:emulated:64MiB"]] {
        for shards in ["1", "3"] {
            let folder = Folder::new();
            let mut command = program();
            command
                .args(["server", "--listen", "127.0.0.1:0", "--memory", "32MiB", "--shards", shards])
                .args(place);
            if !place.contains(&"--data") {
                command.arg("--data").arg(folder.data()).args(["--capacity", "64MiB"]);
            }
            let Ok(server) = spawn_command(&folder, command).listening() else {
                panic!("{place:?}: {}", folder.complaints())
            };
            let mut client = server.connect();
            let mut expected = BTreeSet::new();
            let mut pipeline = client.pipeline();
            for number in 0..3_000 {
                let key = if number % 3 == 0 { format!("{{tag}}{number}") } else { format!("key:{number}") };
                pipeline.command(&[b"SET", key.as_bytes(), b"value"]);
                expected.insert(key);
            }
            pipeline.execute().expect("the server answers");
            for count in ["1", "10", "100"] {
                let (mut found, mut cursor) = (Vec::new(), 0_u64);
                loop {
                    let text = cursor.to_string();
                    let page = ask(&mut client, &[b"SCAN", text.as_bytes(), b"COUNT", count.as_bytes()]);
                    let items = page.items().expect("a page");
                    let text =
                        |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.expect("a text")).into_owned();
                    found.extend(items[1].items().expect("keys").iter().map(|key| text(key.bytes())));
                    let next: u64 = text(items[0].bytes()).parse().expect("a number");
                    assert!(
                        next < 1 << 53 && (next == 0 || next > cursor),
                        "{place:?}: {next} behind {cursor}"
                    );
                    cursor = next;
                    if cursor == 0 {
                        break;
                    }
                }
                assert_eq!(
                    found.len(),
                    expected.len(),
                    "{place:?} {shards} {count}: given twice, or not at all"
                );
                assert_eq!(
                    found.into_iter().collect::<BTreeSet<_>>(),
                    expected,
                    "{place:?} {shards} {count}"
                );
            }
            server.stop();
        }
    }
}
