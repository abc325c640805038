//! Too much of something that the machine has: connections, descriptors, packets, memory, and a disk that is too
//! slow. A real server serves on, within its bounds, and says what is wrong.

use crate::common;
use crate::common::{Folder, PATIENCE, Server, ask, program, seed, spawn_command};
use crate::group::Group;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Duration;
use tierstone_base::{Clock, SystemClock};
use tierstone_client::Connection;
use tierstone_workload::SizeDistribution;
use tierstone_workload::soak::{End, Pace, Soak, SoakSettings};

const MIB: u64 = 1 << 20;

fn plain(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).expect("the kernel takes a connection");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
    socket
}

/// A number of bytes that the kernel says of the process: `VmRSS`, `VmHWM`.
fn memory_bytes(server: &Server, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", server.process_id()));
    let text = text.expect("the process runs");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("it is told");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") << 10
}

/// The command of a server on the folder's data.
fn server_command(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = program();
    command.args(["server", "--listen", "127.0.0.1:0", "--data"]).arg(folder.data()).args(arguments);
    command
}

fn start(folder: &Folder, command: Command) -> Server {
    let started = spawn_command(folder, command).listening();
    started.unwrap_or_else(|status| panic!("{status}: {}", folder.complaints()))
}

#[test]
fn ten_thousand_connections_are_served_within_their_bound_of_memory() {
    const CONNECTIONS: usize = 10_000;
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < CONNECTIONS as u64 + 500) {
        println!("SKIP: ten thousand connections (at most {:?} files may be open)", limit.maximum);
        return;
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .expect("the limit is raised");
    let folder = Folder::new();
    let arguments = ["--capacity", "64MiB", "--segment-size", "1MiB", "--memory", "64MiB"];
    let more = ["--shards", "2", "--maxclients", "12000"];
    let server = start(&folder, server_command(&folder, &[&arguments[..], &more].concat()));
    let mut sockets: Vec<TcpStream> = (0..CONNECTIONS).map(|_| plain(server.address)).collect();
    // All of them ask at once.
    for (number, socket) in sockets.iter_mut().enumerate() {
        let request = format!("SET key:{number} value:{number}\r\nGET key:{number}\r\n");
        socket.write_all(request.as_bytes()).expect("it is sent");
    }
    for (number, socket) in sockets.iter_mut().enumerate() {
        let value = format!("value:{number}");
        let expected = format!("+OK\r\n${}\r\n{value}\r\n", value.len());
        let mut answer = vec![0; expected.len()];
        socket.read_exact(&mut answer).expect("it is answered");
        assert_eq!(String::from_utf8_lossy(&answer), expected, "connection {number}");
    }
    let peak = memory_bytes(&server, "VmHWM");
    println!("{} MiB at most with {CONNECTIONS} connections", peak / MIB);
    // What docs/design/memory.md says: the budget, 64 MiB, and 48 KiB for each connection.
    assert!(peak < (64 + 64) * MIB + CONNECTIONS as u64 * (48 << 10), "{} MiB", peak / MIB);
    drop(sockets);
    let is_empty = (0..100_000).any(|_| server.info_of_any("connected_clients") <= 1);
    assert!(is_empty, "connections that were closed are still counted");
    server.stop();
}

/// Files and sockets that the server may have open in the test of descriptors.
const FILES_MAX: usize = 80;

/// `command`, where no more than [`FILES_MAX`] files may be open.
fn with_few_files(command: &Command) -> Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n \"$0\" && exec \"$@\"", &FILES_MAX.to_string()]);
    limited.arg(command.get_program()).args(command.get_args());
    for (name, _) in command.get_envs() {
        limited.env_remove(name);
    }
    limited.stdin(std::process::Stdio::null());
    limited
}

#[test]
fn where_descriptors_are_few_the_store_has_its_part_and_clients_the_rest() {
    for driver in common::drivers() {
        let folder = Folder::new();
        let arguments =
            ["--capacity", "64MiB", "--segment-size", "256KiB", "--memory", "16MiB", "--shards", "1"];
        let command = server_command(&folder, &[&arguments[..], &["--driver", driver]].concat());
        let mut server = start(&folder, with_few_files(&command));
        let mut served = server.connect();
        ask(&mut served, &[b"SET", b"before", b"value"]);
        // More clients than descriptors: those that the store may want are not theirs.
        let mut sockets: Vec<TcpStream> = (0..2 * FILES_MAX).map(|_| plain(server.address)).collect();
        let (mut answered, mut told) = (0, 0);
        for socket in &mut sockets {
            let mut answer = [0; 7];
            let _ = socket.write_all(b"PING\r\n");
            if socket.read_exact(&mut answer).is_ok() {
                answered += usize::from(&answer == b"+PONG\r\n");
                told += usize::from(&answer == b"-ERR ma");
            }
        }
        assert_eq!(answered, FILES_MAX / 2 - 1, "{driver}: one is there already");
        assert!(told > FILES_MAX, "{driver}: {told} were told that there are too many");
        let said = folder.complaints();
        let lowered = format!("maxclients is {} instead of 10000", FILES_MAX / 2);
        assert!(said.contains(&lowered), "{driver}: {said}");
        assert!(said.contains("the store opens up to"), "{driver}: {said}");
        assert!(said.lines().count() < 12, "{driver}: a line for each client: {said}");
        // Who was there is served, until a segment needs a file: then writes are refused, and say so.
        let value = vec![b'v'; 8_000];
        let mut taken = Vec::new();
        let mut is_refused = false;
        for number in 0..2_000u32 {
            let key = format!("key:{number}");
            let reply = served.command(&[b"SET", key.as_bytes(), &value]).expect("an answer");
            assert_eq!(ask(&mut served, &[b"GET", b"before"]).bytes(), Some(&b"value"[..]), "{driver}");
            match reply.error() {
                None => taken.push(key),
                Some(error) => {
                    assert!(error.contains("no space left on the device"), "{driver}: {error}");
                    assert!(error.contains("raise the limit on open files"), "{driver}: {error}");
                    is_refused = true;
                    break;
                }
            }
        }
        assert!(is_refused, "{driver}: 16 MB went into as many segments as there are descriptors for");
        assert!(taken.len() > 60, "{driver}: clients took what the store needs: {}", taken.len());
        assert!(server_health(&mut served).contains("device_health:ok"), "{driver}");
        // With descriptors again, clients come in and writes go on, without a restart.
        drop(sockets);
        let is_back = (0..100_000).any(|_| {
            let mut socket = plain(server.address);
            let mut answer = [0; 7];
            socket.write_all(b"PING\r\n").is_ok() && socket.read_exact(&mut answer).is_ok()
        });
        assert!(is_back, "{driver}: nobody comes in although others have gone");
        let is_taken =
            (0..1_000_000).any(|_| served.command(&[b"SET", b"after", &value]).expect("an answer").is_ok());
        assert!(is_taken, "{driver}: writes do not go on although files can be opened");
        server.kill();
        let server = start(&folder, server_command(&folder, &arguments));
        let mut connection = server.connect();
        for key in taken.iter().map(String::as_str).chain(["after"]) {
            let reply = ask(&mut connection, &[b"GET", key.as_bytes()]);
            assert!(reply.bytes() == Some(&value[..]), "{driver}: {key} is lost");
        }
        server.stop();
    }
}

/// The section of INFO that tells of the device, over a connection that is there already.
fn server_health(connection: &mut Connection) -> String {
    let reply = ask(connection, &[b"INFO", b"persistence"]);
    String::from_utf8_lossy(reply.bytes().expect("INFO gives text")).into_owned()
}

/// Some connections that send requests byte by byte, each in a packet of its own, and then read all answers.
fn flood(address: SocketAddr, thread: usize) {
    const REQUESTS: usize = 60;
    let mut floods: Vec<(TcpStream, String, String)> = (0..12)
        .map(|socket| {
            let (mut requests, mut expected) = (String::new(), String::new());
            for number in 0..REQUESTS {
                let (key, value) = (format!("k:{thread}:{socket:02}"), format!("{thread}:{number}"));
                requests
                    .push_str(&format!("*3\r\n$3\r\nSET\r\n$6\r\n{key}\r\n${}\r\n{value}\r\n", value.len()));
                requests.push_str(&format!("GET {key}\r\n"));
                expected.push_str(&format!("+OK\r\n${}\r\n{value}\r\n", value.len()));
            }
            let socket = plain(address);
            socket.set_nodelay(true).expect("packets leave at once");
            (socket, requests, expected)
        })
        .collect();
    let longest = floods.iter().map(|(_, requests, _)| requests.len()).max().unwrap_or(0);
    for at in 0..longest {
        for (socket, requests, _) in &mut floods {
            if let Some(byte) = requests.as_bytes().get(at) {
                socket.write_all(&[*byte]).expect("a byte is sent");
            }
        }
    }
    for (socket, _, expected) in &mut floods {
        let mut answer = vec![0; expected.len()];
        socket.read_exact(&mut answer).expect("it is answered");
        assert_eq!(String::from_utf8_lossy(&answer), *expected);
    }
}

#[test]
fn floods_of_one_byte_packets_are_answered_and_others_served_meanwhile() {
    for driver in common::drivers() {
        let folder = Folder::new();
        let arguments = ["--capacity", "64MiB", "--memory", "32MiB", "--shards", "2", "--driver", driver];
        let server = start(&folder, server_command(&folder, &arguments));
        let before = memory_bytes(&server, "VmRSS");
        let address = server.address;
        std::thread::scope(|scope| {
            let floods: Vec<_> = (0..4).map(|thread| scope.spawn(move || flood(address, thread))).collect();
            let mut working = server.connect();
            let mut served = 0;
            while served < 200 || !floods.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                let number = served.to_string();
                assert!(ask(&mut working, &[b"SET", b"other", number.as_bytes()]).is_ok());
                assert_eq!(ask(&mut working, &[b"GET", b"other"]).bytes(), Some(number.as_bytes()));
                served += 1;
            }
        });
        let grown = memory_bytes(&server, "VmHWM").saturating_sub(before);
        assert!(grown < 64 * MIB, "{driver}: {} MiB more", grown / MIB);
        server.stop();
    }
}

#[test]
fn a_bound_on_memory_by_the_kernel_is_kept_under_load() {
    const MEMORY_MIB: u64 = 32;
    let bound = (MEMORY_MIB + 64) * MIB;
    let text = bound.to_string();
    let files = ["memory.limit_in_bytes", "memory.max"];
    let Some(group) = Group::new("a bound on memory by the kernel", "memory", files, [&text, &text]) else {
        return;
    };
    let seed = seed();
    let folder = Folder::new();
    let memory = format!("{MEMORY_MIB}MiB");
    let arguments = ["--capacity", "96MiB", "--segment-size", "1MiB", "--shards", "1", "--memory", &memory];
    let mut server = start(&folder, group.enter(&server_command(&folder, &arguments)));
    assert!(group.holds(server.process_id()), "the server is not in its group");
    // More data than memory, deep pipelines, and values that come in pieces.
    let sizes = SizeDistribution::Uniform { min: 200, max: 2_000 };
    let settings = SoakSettings { objects: 40_000, connections: 32, pipeline: 64, sizes, page: 500, seed };
    let mut soak = Soak::new(settings).expect("settings in range");
    let address = server.address.to_string();
    soak.run(&address, Pace::Closed(64), End::Filled, &mut |_| {}).expect("it is filled");
    let whole = soak.run(&address, Pace::Closed(64), End::After(3.0), &mut |_| {}).expect("it goes on");
    let large = vec![b'l'; 4 << 20];
    let mut connection = server.connect();
    for _ in 0..4 {
        assert!(ask(&mut connection, &[b"SET", b"large", &large]).is_ok());
        assert!(ask(&mut connection, &[b"GET", b"large"]).bytes() == Some(&large[..]));
    }
    let peak = memory_bytes(&server, "VmHWM");
    println!("{} MiB of {} at most, {} operations", peak / MIB, bound / MIB, whole.latency.count);
    assert!(peak <= bound, "{} MiB", peak / MIB);
    ask(&mut connection, &[b"DEL", b"large"]);
    server.kill();
    let server = start(&folder, group.enter(&server_command(&folder, &arguments)));
    soak.verify(&server.address.to_string()).expect("everything can be read");
    assert_eq!(soak.findings().faults, 0, "seed {seed}: {:?}", soak.findings().texts);
    assert!(memory_bytes(&server, "VmHWM") <= bound, "after the restart");
    server.stop();
}

#[test]
fn where_nobody_says_how_much_memory_a_bound_by_the_kernel_is_gone_by() {
    const BOUND: u64 = 128 * MIB;
    let text = BOUND.to_string();
    let files = ["memory.limit_in_bytes", "memory.max"];
    let what = "memory by default within a bound by the kernel";
    let Some(group) = Group::new(what, "memory", files, [&text, &text]) else { return };
    let folder = Folder::new();
    let arguments = ["--capacity", "384MiB", "--segment-size", "1MiB", "--shards", "1"];
    let server = start(&folder, group.enter(&server_command(&folder, &arguments)));
    assert!(group.holds(server.process_id()), "the server is not in its group");
    assert!(server.greeting.contains(" 64 MiB of memory"), "{}", server.greeting);
    // More than the kernel grants it, all of which would be cached where there is memory.
    let sizes = SizeDistribution::Uniform { min: 4_000, max: 6_000 };
    let settings =
        SoakSettings { objects: 40_000, connections: 32, pipeline: 64, sizes, page: 500, seed: seed() };
    let mut soak = Soak::new(settings).expect("settings in range");
    let address = server.address.to_string();
    soak.run(&address, Pace::Closed(64), End::Filled, &mut |_| {}).expect("it is filled");
    soak.verify(&address).expect("everything can be read");
    let peak = memory_bytes(&server, "VmHWM");
    println!("{} MiB of {} at most", peak / MIB, BOUND / MIB);
    assert!(peak <= BOUND, "{} MiB", peak / MIB);
    server.stop();
    assert!(!folder.complaints().contains("control group"), "{}", folder.complaints());
    // Who asks for more is told, and served.
    let more = server_command(&folder, &[&arguments[..], &["--memory", "65MiB"]].concat());
    start(&folder, group.enter(&more)).stop();
    let told =
        "memory is 65 MiB, and some 64 MiB come to it, but the control group of this process has 128 MiB";
    assert!(folder.complaints().contains(told), "{}", folder.complaints());
}

/// Whether an answer has come already.
fn is_answered(socket: &TcpStream) -> bool {
    socket.set_nonblocking(true).expect("the socket is set");
    let peeked = socket.peek(&mut [0; 1]);
    socket.set_nonblocking(false).expect("the socket is set");
    match peeked {
        Ok(count) => count > 0,
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_slow_disk_makes_writes_wait_and_nobody_else_and_loses_nothing() {
    const WRITES: u32 = 10;
    let folder = Folder::new();
    let device = std::fs::metadata(folder.path("")).expect("a directory").dev();
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let files = ["blkio.throttle.write_iops_device", "io.max"];
    // So many writes a second, in the words of both versions.
    let bounds = [format!("{device} 20"), format!("{device} wiops=20")];
    let Some(group) = Group::new("a slow disk", "blkio", files, [&bounds[0], &bounds[1]]) else { return };
    let arguments = ["--capacity", "16MiB", "--segment-size", "1MiB", "--memory", "16MiB", "--shards", "1"];
    // Made and probed at the disk's own speed.
    start(&folder, server_command(&folder, &arguments)).stop();
    let mut server = start(&folder, group.enter(&server_command(&folder, &arguments)));
    let (mut writer, mut reader) = (plain(server.address), server.connect());
    assert!(ask(&mut reader, &[b"SET", b"hot", b"value"]).is_ok());
    let mut waited = 0;
    let clock = SystemClock::new();
    let started_us = clock.now().monotonic_us;
    for number in 0..WRITES {
        let request = format!("SET key:{number} value:{number}\r\n");
        writer.write_all(request.as_bytes()).expect("it is sent");
        // Others are answered while it waits.
        for _ in 0..3 {
            assert_eq!(ask(&mut reader, &[b"GET", b"hot"]).bytes(), Some(&b"value"[..]));
        }
        waited += u32::from(!is_answered(&writer));
        let mut answer = [0; 5];
        writer.read_exact(&mut answer).expect("it is answered in the end");
        assert_eq!(&answer, b"+OK\r\n");
    }
    let took_ms = (clock.now().monotonic_us - started_us) / 1_000;
    if took_ms < 20 * u64::from(WRITES) {
        println!(
            "SKIP: a slow disk ({WRITES} writes took {took_ms} ms: this file system does not go by the bound)"
        );
        return;
    }
    assert!(
        waited > WRITES / 2,
        "reads were answered before {waited} of {WRITES} writes only, in {took_ms} ms"
    );
    assert!(server.info_text("persistence").contains("device_health:ok"));
    // Killed with a write on its slow way: it may be there, and what was acknowledged is.
    writer.write_all(b"SET last value\r\n").expect("it is sent");
    server.kill();
    let server = start(&folder, server_command(&folder, &arguments));
    let mut connection = server.connect();
    for number in 0..WRITES {
        let reply = ask(&mut connection, &[b"GET", format!("key:{number}").as_bytes()]);
        assert_eq!(reply.bytes(), Some(format!("value:{number}").as_bytes()));
    }
    server.stop();
}

/// What the HTTP door answers to a question for life, within a while.
fn life(address: &str) -> Option<String> {
    let mut socket = TcpStream::connect(address).ok()?;
    socket.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout is set");
    socket.write_all(b"GET /live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it is sent");
    let mut answer = Vec::new();
    while !answer.ends_with(b"live\n") {
        let mut part = [0; 512];
        match socket.read(&mut part) {
            Ok(0) | Err(_) => return None,
            Ok(count) => answer.extend_from_slice(&part[..count]),
        }
    }
    Some(String::from_utf8_lossy(&answer).into_owned())
}

#[test]
fn a_frozen_server_fails_the_question_for_life_until_it_goes_on() {
    let folder = Folder::new();
    let arguments = ["--capacity", "16MiB", "--memory", "16MiB", "--shards", "1", "--http", "127.0.0.1:0"];
    let mut server = start(&folder, server_command(&folder, &arguments));
    let line = server.next_line();
    let http = line.strip_prefix("metrics on http://").and_then(|rest| rest.strip_suffix("/metrics"));
    let http = http.unwrap_or_else(|| panic!("{line}")).to_owned();
    let is_live = |answer: Option<String>| answer.is_some_and(|answer| answer.starts_with("HTTP/1.1 200"));
    assert!((0..100).any(|_| is_live(life(&http))), "it lives");
    server.signal(Signal::STOP);
    let is_silent = (0..100).any(|_| life(&http).is_none());
    assert!(is_silent, "a frozen process answers");
    server.signal(Signal::CONT);
    assert!((0..100).any(|_| is_live(life(&http))), "it lives again");
    let mut connection: Connection = server.connect();
    assert!(ask(&mut connection, &[b"SET", b"key", b"value"]).is_ok());
    server.stop();
}
