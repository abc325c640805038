//! What is hostile, too much or wrong: malformed requests, too many or too slow peers, a full store,
//! wrong settings. Each is answered clearly, and others are served meanwhile.

use crate::common;
use crate::common::{Folder, PATIENCE, Server, ask, program, spawn};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Stdio;
use std::time::Duration;

const SMALL: [&str; 6] = ["--segment-size", "128KiB", "--capacity", "8MiB", "--memory", "32MiB"];

fn small<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SMALL.iter().copied().chain(more.iter().copied()).collect()
}

/// A connection without a client on top.
fn plain(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).expect("the server takes a connection");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
    socket
}

/// Sends `request` and reads until the server ends the connection.
fn last_words(address: SocketAddr, request: &[u8]) -> String {
    let mut socket = plain(address);
    // The server may end the connection before it has taken all.
    let _ = socket.write_all(request);
    let mut answer = Vec::new();
    // A connection that is reset has said what it had to say.
    let _ = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn malformed_requests_are_answered_as_redis_does_and_end_the_connection() {
    let folder = Folder::new();
    let server = Server::start(&folder, &small(&["--shards", "2"]));
    let long = vec![b'x'; 70_000];
    let cases: [(&[u8], &str); 12] = [
        (b"*1\r\n!4\r\nPING\r\n", "-ERR Protocol error: expected '$', got '!'\r\n"),
        (b"*x\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*2000000000\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*99999999999999999999\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*1\r\n$-5\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n$x\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n$99999999999999999999\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$536870913\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"GET \"abc\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"),
        (&long, "-ERR Protocol error: too big inline request\r\n"),
        // What came before is answered, what comes after is not.
        (b"PING\r\n*1\r\n!\r\nPING\r\n", "+PONG\r\n-ERR Protocol error: expected '$', got '!'\r\n"),
        // Nothing is wrong here: empty requests are skipped.
        (b"\r\n*0\r\n*-1\r\n\nPING\r\nQUIT\r\n", "+PONG\r\n+OK\r\n"),
    ];
    for (request, expected) in cases {
        let shown = String::from_utf8_lossy(&request[..request.len().min(40)]).into_owned();
        assert_eq!(last_words(server.address, request), expected, "to {shown:?}");
    }
    assert_eq!(ask(&mut server.connect(), &[b"PING"]).bytes(), Some(&b"PONG"[..]));
    server.stop();
}

/// Resident memory of the process in bytes.
fn resident_bytes(process: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).expect("the process runs");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it has memory");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") << 10
}

#[test]
fn declared_lengths_cost_no_memory() {
    let folder = Folder::new();
    let server = Server::start(&folder, &small(&["--shards", "1"]));
    let process = server.info("process_id").to_string();
    let before = resident_bytes(&process);
    let mut held = Vec::new();
    for number in 0..300 {
        let mut socket = plain(server.address);
        let header: &[u8] = match number % 3 {
            0 => b"*1048576\r\n$300\r\n",
            1 => b"*1048576\r\n$3\r\nSET\r\n$20000\r\n",
            _ => b"*2\r\n$20000\r\n",
        };
        socket.write_all(header).expect("it is sent");
        socket.write_all(&[b'x'; 100][..number % 100]).expect("it is sent");
        held.push(socket);
    }
    wait_for_clients(&server, 300);
    let grown = resident_bytes(&process).saturating_sub(before);
    assert!(grown < 64 << 20, "gigabytes were declared, 25 KB sent, and {grown} bytes taken");
    server.stop();
}

/// Room for many sockets in this process.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .expect("the limit is raised");
}

#[test]
fn a_thousand_idle_connections_do_not_hinder_others() {
    raise_descriptor_limit();
    for driver in common::drivers() {
        let folder = Folder::new();
        let server = Server::start(&folder, &small(&["--shards", "2", "--driver", driver]));
        let mut idle: Vec<TcpStream> = (0..1_000).map(|_| plain(server.address)).collect();
        let mut working = server.connect();
        for number in 0..500u32 {
            let key = number.to_string();
            assert!(ask(&mut working, &[b"SET", key.as_bytes(), b"value"]).is_ok());
            assert_eq!(ask(&mut working, &[b"GET", key.as_bytes()]).bytes(), Some(&b"value"[..]));
        }
        for socket in &mut idle {
            socket.write_all(b"PING\r\n").expect("it is sent");
        }
        for socket in &mut idle {
            let mut answer = [0; 7];
            socket.read_exact(&mut answer).expect("it is answered");
            assert_eq!(&answer, b"+PONG\r\n");
        }
        server.stop();
    }
}

#[test]
fn one_connection_too_many_is_told_so() {
    let folder = Folder::new();
    let server = Server::start(&folder, &small(&["--shards", "1", "--maxclients", "3"]));
    let mut served: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for connection in &mut served {
        ask(connection, &[b"PING"]);
    }
    assert_eq!(last_words(server.address, b""), "-ERR max number of clients reached\r\n");
    drop(served.pop());
    // The place is free as soon as the server has seen the end.
    let is_served =
        (0..10_000).any(|_| last_words(server.address, b"PING\r\nQUIT\r\n") == "+PONG\r\n+OK\r\n");
    assert!(is_served, "the place of a closed connection was not given again");
}

#[test]
fn a_limit_on_silence_closes_nobody_who_listens() {
    for driver in common::drivers() {
        let folder = Folder::new();
        let settings = ["--shards", "2", "--driver", driver, "--idle-timeout", "1"];
        let server = Server::start(&folder, &small(&settings));
        let mut listeners = ["SUBSCRIBE news\r\n", "PSUBSCRIBE n*\r\n", "SSUBSCRIBE news\r\n", "MONITOR\r\n"]
            .map(|asked| {
                let mut socket = plain(server.address);
                socket.write_all(asked.as_bytes()).expect("it is sent");
                socket
            });
        let read = |socket: &mut TcpStream, end: &str| {
            let mut text = Vec::new();
            while !text.ends_with(end.as_bytes()) {
                let mut byte = [0];
                socket.read_exact(&mut byte).unwrap_or_else(|error| panic!("{driver}: {error}"));
                text.push(byte[0]);
            }
        };
        for (socket, end) in listeners.iter_mut().zip([":1\r\n", ":1\r\n", ":1\r\n", "+OK\r\n"]) {
            read(socket, end);
        }
        // Silent after them, and closed: by then the others were silent for as long.
        for _ in 0..2 {
            assert_eq!(last_words(server.address, b"PING\r\n"), "+PONG\r\n");
        }
        let mut speaker = server.connect();
        ask(&mut speaker, &[b"PUBLISH", b"news", b"told"]);
        ask(&mut speaker, &[b"SPUBLISH", b"news", b"told"]);
        for (socket, end) in listeners.iter_mut().zip(["told\r\n", "told\r\n", "told\r\n", "\"told\"\r\n"]) {
            read(socket, end);
        }
        server.stop();
    }
}

/// Asks until the server counts `count` connections besides the one that asks.
fn wait_for_clients(server: &Server, count: u64) {
    let reached = (0..10_000).any(|_| server.info("connected_clients") == count + 1);
    assert!(reached, "{} connections are counted, not {}", server.info("connected_clients"), count + 1);
}

#[test]
fn half_open_and_vanished_peers_are_let_go() {
    for driver in common::drivers() {
        let folder = Folder::new();
        let server = Server::start(&folder, &small(&["--shards", "1", "--driver", driver]));
        // Half of a request, then nothing more: there is nothing to answer.
        let mut socket = plain(server.address);
        socket.write_all(b"*2\r\n$3\r\nGET\r\n$5\r\nab").expect("it is sent");
        socket.shutdown(Shutdown::Write).expect("it is closed for sending");
        let mut answer = Vec::new();
        assert_eq!(socket.read_to_end(&mut answer).expect("the server closes too"), 0);
        // Whole requests before the end of sending are answered.
        let mut socket = plain(server.address);
        socket.write_all(b"SET half open\r\nGET half\r\n").expect("it is sent");
        socket.shutdown(Shutdown::Write).expect("it is closed for sending");
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).expect("the server closes too");
        assert_eq!(String::from_utf8_lossy(&answer), "+OK\r\n$4\r\nopen\r\n", "{driver}");
        // Peers that vanish with a reset, in the middle of requests and of answers.
        for number in 0..50u32 {
            let mut socket = plain(server.address);
            let request: &[u8] = match number % 3 {
                0 => b"*2\r\n$3\r\nGET\r\n$5\r\nab",
                1 => b"SET vanished 1\r\nGET vanished\r\nINCR vanished\r\n",
                _ => b"",
            };
            socket.write_all(request).expect("it is sent");
            rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO))
                .expect("a reset at the end");
        }
        wait_for_clients(&server, 0);
        assert_eq!(ask(&mut server.connect(), &[b"GET", b"half"]).bytes(), Some(&b"open"[..]));
        server.stop();
    }
}

#[test]
fn slow_readers_cost_bounded_memory_while_others_work() {
    const ANSWERS: usize = 4_000;
    for driver in common::drivers() {
        let folder = Folder::new();
        let server = Server::start(&folder, &small(&["--shards", "1", "--driver", driver]));
        let process = server.info("process_id").to_string();
        let mut working = server.connect();
        let value = vec![b'v'; 20_000];
        assert!(ask(&mut working, &[b"SET", b"large", &value]).is_ok());
        let before = resident_bytes(&process);
        let mut slow: Vec<TcpStream> = (0..4).map(|_| plain(server.address)).collect();
        for socket in &mut slow {
            socket.write_all(&b"GET large\r\n".repeat(ANSWERS)).expect("the requests fit into the buffers");
        }
        for number in 0..300u32 {
            assert!(ask(&mut working, &[b"SET", b"small", number.to_string().as_bytes()]).is_ok());
        }
        let grown = resident_bytes(&process).saturating_sub(before);
        assert!(grown < 100 << 20, "{driver}: 320 MB of unread answers took {grown} bytes");
        // Half of them wake up and get everything; the others are cut off by the end of the server.
        for socket in &mut slow[..2] {
            let mut expected = b"$20000\r\n".to_vec();
            expected.extend_from_slice(&value);
            expected.extend_from_slice(b"\r\n");
            let mut answer = vec![0; expected.len()];
            for number in 0..ANSWERS {
                socket.read_exact(&mut answer).expect("it is answered");
                assert!(answer == expected, "{driver}: answer {number} is wrong");
            }
        }
        slow.truncate(2);
        wait_for_clients(&server, 3);
        server.stop();
    }
}

#[test]
fn a_client_that_never_reads_does_not_spoil_the_stop() {
    let folder = Folder::new();
    let server = Server::start(&folder, &small(&["--shards", "2"]));
    let value = vec![b'v'; 20_000];
    assert!(ask(&mut server.connect(), &[b"SET", b"large", &value]).is_ok());
    let mut stuck = plain(server.address);
    stuck.write_all(&b"GET large\r\n".repeat(4_000)).expect("the requests fit into the buffers");
    let mut answer = [0; 8];
    stuck.read_exact(&mut answer).expect("answers come");
    server.stop();
    let server = Server::start(&folder, &small(&["--shards", "1"]));
    assert!(!server.greeting.contains("crash"), "{}", server.greeting);
    assert_eq!(ask(&mut server.connect(), &[b"GET", b"large"]).bytes(), Some(&value[..]));
}

fn fill_value(number: usize) -> Vec<u8> {
    vec![number as u8; 4_000]
}

/// Sets keys until writes are refused; the numbers of those that were stored.
fn fill(server: &Server) -> Vec<usize> {
    let mut connection = server.connect();
    let mut stored = Vec::new();
    let mut refused = 0;
    for first in (0..4_096).step_by(64) {
        let mut pipeline = connection.pipeline();
        let numbers = first..first + 64;
        for number in numbers.clone() {
            pipeline.command(&[b"SET", format!("fill:{number}").as_bytes(), &fill_value(number)]);
        }
        let replies = pipeline.execute().expect("the server answers");
        for (number, reply) in numbers.zip(replies) {
            match reply.error() {
                None => stored.push(number),
                Some(error) => {
                    assert!(
                        error.contains("the device is full"),
                        "an error that does not name the cause: {error}"
                    );
                    refused += 1;
                }
            }
        }
        if refused >= 64 {
            return stored;
        }
    }
    panic!("16 MB went into 8 MiB");
}

fn check_filled(server: &Server, stored: &[usize]) {
    let mut connection = server.connect();
    for number in stored {
        let reply = ask(&mut connection, &[b"GET", format!("fill:{number}").as_bytes()]);
        assert!(reply.bytes() == Some(&fill_value(*number)[..]), "fill:{number}: {reply:?}");
    }
    assert_eq!(ask(&mut connection, &[b"DBSIZE"]).integer(), Some(stored.len() as i64));
}

#[test]
fn a_full_store_reads_and_deletes_and_takes_writes_again_after_deletes() {
    let folder = Folder::new();
    let mut server = Server::start(&folder, &small(&["--shards", "2"]));
    let stored = fill(&server);
    assert!(stored.len() > 800, "only {} of 8 MiB were filled", stored.len() * 4_000);
    check_filled(&server, &stored);
    let mut connection = server.connect();
    let (deleted, kept): (Vec<usize>, Vec<usize>) = stored.iter().partition(|number| **number % 2 == 0);
    for number in &deleted {
        let reply = ask(&mut connection, &[b"DEL", format!("fill:{number}").as_bytes()]);
        assert_eq!(reply.integer(), Some(1), "a delete in a full store");
    }
    check_filled(&server, &kept);
    // Deletes have made room for most of what they took away.
    let mut again = 0;
    for number in &deleted[..deleted.len() / 2] {
        let key = format!("fill:{number}");
        let reply = connection.command(&[b"SET", key.as_bytes(), &fill_value(*number)]).expect("an answer");
        assert!(reply.is_ok(), "after {again} writes: {:?}", reply.error());
        again += 1;
    }
    let mut present = kept;
    present.extend_from_slice(&deleted[..again]);
    check_filled(&server, &present);
    server.kill();
    let server = Server::start(&folder, &small(&["--shards", "3"]));
    check_filled(&server, &present);
    server.stop();
    let server = Server::start(&folder, &small(&["--shards", "1"]));
    check_filled(&server, &present);
}

#[test]
fn a_full_store_that_evicts_takes_new_keys_in_the_place_of_old_ones() {
    let folder = Folder::new();
    let mut server = Server::start(&folder, &small(&["--shards", "2"]));
    let mut connection = server.connect();
    let stored = fill(&server);
    let policy = [&b"CONFIG"[..], b"SET", b"maxmemory-policy"];
    assert!(ask(&mut connection, &[policy[0], policy[1], policy[2], b"allkeys-lru"]).is_ok());
    for number in 0..3_000 {
        let key = format!("more:{number}");
        let reply = connection.command(&[b"SET", key.as_bytes(), &fill_value(number)]).expect("an answer");
        assert!(reply.is_ok(), "after {number} writes: {:?}", reply.error());
    }
    assert!(server.info("evicted_keys") > stored.len() as u64 / 2, "{} keys", server.info("evicted_keys"));
    assert_eq!(ask(&mut connection, &[b"GET", b"more:2999"]).bytes(), Some(&fill_value(2_999)[..]));
    // What is gone stays gone.
    let gone = |connection: &mut tierstone_client::Connection| {
        let keys = stored.iter().map(|number| format!("fill:{number}"));
        let keys = keys.chain((0..3_000).map(|number| format!("more:{number}")));
        keys.filter(|key| ask(connection, &[b"EXISTS", key.as_bytes()]).integer() == Some(0))
            .collect::<Vec<_>>()
    };
    assert!(ask(&mut connection, &[policy[0], policy[1], policy[2], b"noeviction"]).is_ok());
    let before = gone(&mut connection);
    let old = before.iter().filter(|key| key.starts_with("fill")).count();
    assert!(old > stored.len() * 9 / 10, "{old} of the {} oldest keys are gone", stored.len());
    server.kill();
    let server = Server::start(&folder, &small(&["--shards", "2", "--maxmemory-policy", "allkeys-lru"]));
    let mut connection = server.connect();
    let after = gone(&mut connection);
    assert!(before.iter().all(|key| after.contains(key)), "an evicted key came back");
    let memory = ask(&mut connection, &[b"INFO", b"memory"]);
    let text = String::from_utf8_lossy(memory.bytes().expect("INFO gives text")).into_owned();
    assert!(text.contains("maxmemory_policy:allkeys-lru"), "{text}");
}

#[test]
fn a_second_server_on_the_same_data_is_refused() {
    let folder = Folder::new();
    let server = Server::start(&folder, &small(&["--shards", "2"]));
    assert_eq!(spawn(&folder, &small(&["--shards", "2"])).refused(), 2);
    let said = folder.complaints();
    assert!(said.contains("has the store in") && said.contains("open"), "{said}");
    assert_eq!(ask(&mut server.connect(), &[b"PING"]).bytes(), Some(&b"PONG"[..]));
    server.stop();
    Server::start(&folder, &small(&["--shards", "2"])).stop();
}

#[test]
fn wrong_settings_are_refused_with_exit_code_2_before_anything_is_made() {
    let cases: [(&[&str], &str); 13] = [
        (&["--bogus"], "--bogus"),
        (&["--shards", "none"], "--shards"),
        (&["--shards", "0"], "shard"),
        (&["--memory", "lots"], "lots"),
        (&["--capacity", "-1"], "-1"),
        (&["--segment-size", "3"], "segment"),
        (&["--durability", "maybe"], "maybe"),
        (&["--durability", "group:99999999"], "group:99999999"),
        (&["--driver", "magic"], "magic"),
        (&["--index", "magic"], "magic"),
        (&["--listen", "nowhere:at:all"], "nowhere:at:all"),
        (&["--maxclients", "0"], "maxclients: 1 to 1000000"),
        (&["--config", "/nonexistent/settings.toml"], "/nonexistent/settings.toml"),
    ];
    for (arguments, expected) in cases {
        let folder = Folder::new();
        let code = spawn(&folder, arguments).refused();
        let said = folder.complaints();
        assert_eq!(code, 2, "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
        assert!(!folder.data().join("superblock.tier").exists(), "{arguments:?} made a store");
    }
    let status = program().arg("nonsense").stderr(Stdio::null()).status().expect("the program runs");
    assert_eq!(status.code(), Some(2));
}

#[test]
fn a_store_keeps_its_kind_of_index_and_tells_it() {
    let folder = Folder::new();
    let file = folder.path("settings.toml");
    std::fs::write(&file, "index = \"ordered\"\n").expect("a file is written");
    let config = ["--config", file.to_str().expect("a readable path")];
    let server = Server::start(&folder, &small(&config));
    let mut connection = server.connect();
    for number in 0..100 {
        ask(&mut connection, &[b"SET", format!("key:{number:03}").as_bytes(), b"value"]);
    }
    let told = |server: &Server| {
        let answer = ask(&mut server.connect(), &[b"INFO", b"memory"]);
        String::from_utf8_lossy(answer.bytes().expect("INFO gives a text")).into_owned()
    };
    let text = told(&server);
    assert!(text.contains("index:ordered\r\n") && text.contains("index_bytes_per_key:"), "{text}");
    // A flushed database is ordered again.
    ask(&mut connection, &[b"FLUSHALL"]);
    ask(&mut connection, &[b"SET", b"key", b"value"]);
    server.stop();
    assert_eq!(spawn(&folder, &small(&["--index", "hash"])).refused(), 2);
    let said = folder.complaints();
    assert!(said.contains("hash") && said.contains("ordered"), "{said}");
    let server = Server::start(&folder, &SMALL);
    assert!(told(&server).contains("index:ordered\r\n"));
    server.stop();
}

#[test]
fn a_settings_file_is_followed_and_an_unknown_key_in_it_refused() {
    let folder = Folder::new();
    let file = folder.path("settings.toml");
    let name = file.to_str().expect("a readable path").to_owned();
    std::fs::write(&file, "memroy = \"1GiB\"\n").expect("a file is written");
    assert_eq!(spawn(&folder, &["--config", &name]).refused(), 2);
    assert!(folder.complaints().contains("memroy"), "{}", folder.complaints());
    std::fs::write(&file, "shards = 3\nmemory = \"4MiB\"\ncapacity = \"8MiB\"\nsegment-size = \"128KiB\"\n")
        .expect("a file is written");
    let server = Server::start(&folder, &["--config", &name]);
    assert_eq!(server.info("shards"), 3);
    assert!(server.greeting.contains("4 MiB of memory"), "{}", server.greeting);
    server.stop();
    let server = Server::start(&folder, &["--config", &name, "--shards", "1"]);
    assert_eq!(server.info("shards"), 1, "a flag wins over the file");
}

#[test]
fn a_value_of_4_mib_survives_a_kill() {
    let folder = Folder::new();
    let arguments = ["--shards", "2", "--memory", "64MiB", "--capacity", "512MiB"];
    let mut server = Server::start(&folder, &arguments);
    let mut connection = server.connect();
    let value: Vec<u8> =
        (0..4u32 << 20).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    assert!(ask(&mut connection, &[b"SET", b"large", &value]).is_ok());
    assert!(ask(&mut connection, &[b"GET", b"large"]).bytes() == Some(&value[..]), "4 MiB come back");
    server.kill();
    let server = Server::start(&folder, &arguments);
    assert!(
        ask(&mut server.connect(), &[b"GET", b"large"]).bytes() == Some(&value[..]),
        "4 MiB survive a kill"
    );
}

#[test]
fn a_password_is_asked_for_and_bounds_what_strangers_may_send() {
    let folder = Folder::new();
    let server = Server::start(&folder, &small(&["--shards", "2", "--password", "secret"]));
    let mut connection = server.connect();
    let refused = connection.command(&[b"GET", b"key"]).expect("an answer");
    assert!(refused.error().is_some_and(|error| error.starts_with("NOAUTH")), "{refused:?}");
    let refused = connection.command(&[b"AUTH", b"guess"]).expect("an answer");
    assert!(refused.error().is_some_and(|error| error.starts_with("WRONGPASS")), "{refused:?}");
    assert_eq!(
        last_words(server.address, b"*2\r\n$3\r\nGET\r\n$20000\r\n"),
        "-ERR Protocol error: unauthenticated bulk length\r\n"
    );
    assert_eq!(
        last_words(server.address, b"*11\r\n"),
        "-ERR Protocol error: unauthenticated multibulk length\r\n"
    );
    assert!(ask(&mut connection, &[b"AUTH", b"secret"]).is_ok());
    assert!(ask(&mut connection, &[b"SET", b"key", &[b'x'; 20_000]]).is_ok());

    // What comes behind the password in one pipeline is no stranger's any more.
    let mut pipeline = b"AUTH secret\r\n*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$20000\r\n".to_vec();
    pipeline.extend_from_slice(&[b'x'; 20_000]);
    pipeline.extend_from_slice(b"\r\nQUIT\r\n");
    assert_eq!(last_words(server.address, &pipeline), "+OK\r\n+OK\r\n+OK\r\n");
}

/// Requests in all forms, of keys of all shards, with some that wait until those before them are answered; and
/// their answers.
fn mixed_requests() -> Vec<(Vec<u8>, String)> {
    let request = |number: usize| match number % 8 {
        0 => (format!("SET key{number} value\r\n"), "+OK\r\n"),
        1 => ("\r\n*0\r\n".to_owned(), ""),
        2 => (format!("*2\r\n$6\r\nEXISTS\r\n$7\r\nkey{:04}\r\n", number - 2), ":0\r\n"),
        // Refused, and so not before what is under way on another shard.
        3 => ("*1\r\n$3\r\nGET\r\n".to_owned(), "-ERR wrong number of arguments for 'get' command\r\n"),
        4 => (format!("GET key{}\r\n", number - 4), "$5\r\nvalue\r\n"),
        5 => ("*2\r\n$4\r\nECHO\r\n$4\r\n\r\n*1\r\n".to_owned(), "$4\r\n\r\n*1\r\n"),
        6 => (format!("DEL key{}\r\n", number - 6), ":1\r\n"),
        _ => (format!("GET key{}\r\n", number - 7), "$-1\r\n"),
    };
    (0..80).map(request).map(|(request, answer)| (request.into_bytes(), answer.to_owned())).collect()
}

#[test]
fn a_pipeline_is_answered_in_order_however_it_is_cut() {
    let folder = Folder::new();
    let server = Server::start(&folder, &small(&["--shards", "2"]));
    let requests = mixed_requests();
    let whole: Vec<u8> = requests.iter().flat_map(|(request, _)| request.clone()).collect();
    let answers: String = requests.iter().map(|(_, answer)| answer.as_str()).collect();
    for cut in (1..whole.len()).step_by(11) {
        let mut socket = plain(server.address);
        socket.write_all(&whole[..cut]).expect("it is sent");
        let (mut end, mut answered) = (0, 0);
        for (request, answer) in &requests {
            end += request.len();
            answered += if end <= cut { answer.len() } else { 0 };
        }
        // The rest follows when all that is whole has been carried out.
        let mut got = vec![0; answered];
        socket.read_exact(&mut got).expect("what is whole is answered");
        socket.write_all(&whole[cut..]).expect("it is sent");
        got.resize(answers.len(), 0);
        socket.read_exact(&mut got[answered..]).expect("the rest is answered");
        assert_eq!(String::from_utf8_lossy(&got), answers, "cut at {cut}");
    }
    server.stop();
}

#[test]
fn a_unix_socket_is_announced_and_served() {
    let folder = Folder::new();
    let path = folder.path("socket");
    let listen = format!("127.0.0.1:0,unix:{}", path.display());
    let mut server = Server::start(&folder, &small(&["--shards", "1", "--listen", &listen]));
    assert_eq!(server.next_line(), format!("listening on unix:{}", path.display()));
    let mut socket = std::os::unix::net::UnixStream::connect(&path).expect("the socket is there");
    socket.write_all(b"SET by unix\r\nGET by\r\nQUIT\r\n").expect("it is sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("it is answered");
    assert_eq!(answer, "+OK\r\n$4\r\nunix\r\n+OK\r\n");
    server.stop();
}

#[test]
fn a_second_server_at_the_same_port_is_refused_and_makes_nothing() {
    let folder = Folder::new();
    let server = Server::start(&folder, &small(&["--shards", "2"]));
    let other = Folder::new();
    let mut command = program();
    command.args(["server", "--data"]).arg(other.data()).args(["--listen", &server.port()]);
    command.args(small(&["--shards", "2"]));
    assert_eq!(common::spawn_command(&other, command).refused(), 2);
    assert!(other.complaints().contains("cannot listen"), "{}", other.complaints());
    assert!(!other.data().exists(), "a store was made that nobody serves");
    let mut client = server.connect();
    assert!(ask(&mut client, &[b"SET", b"key", b"value"]).is_ok());
    server.stop();
}

/// The kernel forgets receives of sockets that were reset before they were started; the server looks for them.
#[test]
fn clients_that_are_reset_in_the_middle_of_an_upload_are_let_go() {
    const CLIENTS: usize = 8;
    for driver in common::drivers() {
        let folder = Folder::new();
        let arguments = ["--segment-size", "1MiB", "--capacity", "256MiB", "--memory", "8MiB"];
        let server =
            Server::start(&folder, &[&arguments[..], &["--shards", "1", "--driver", driver]].concat());
        let piece = vec![b'v'; 1 << 20];
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for number in 0..CLIENTS {
                    let (mut socket, piece) = (plain(server.address), &piece);
                    scope.spawn(move || {
                        let head = format!("*3\r\n$3\r\nSET\r\n$1\r\n{number}\r\n$67108864\r\n");
                        socket.write_all(head.as_bytes()).expect("it is sent");
                        // So much that each is paused, and has more under way than one receive takes.
                        for _ in 0..12 {
                            if socket.write_all(piece).is_err() {
                                return;
                            }
                        }
                        rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO))
                            .expect("a reset at the end");
                    });
                }
            });
        }
        let reached = (0..1_000_000).any(|_| server.info("connected_clients") == 1);
        assert!(reached, "{driver}: {} connections are counted", server.info("connected_clients"));
        assert_eq!(ask(&mut server.connect(), &[b"DBSIZE"]).integer(), Some(0), "{driver}");
        server.stop();
    }
}
