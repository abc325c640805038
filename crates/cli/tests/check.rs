//! `tierstone check` on a running store: the server verifies itself beside its traffic.

use crate::common::{Folder, Server, ask, program};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use tierstone_base::clock::{Clock, SystemClock};
use tierstone_client::Value;

const PATIENCE_US: u64 = 60_000_000;

fn value(number: u32) -> Vec<u8> {
    format!("{number:08}").repeat(60).into_bytes()
}

fn check(arguments: &[&str]) -> Output {
    program().arg("check").args(arguments).output().expect("the program runs")
}

/// Every file below `directory`.
fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory is read").flatten() {
        let path = entry.path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// Flips a bit in the middle of the place where `value` lies.
fn rot(directory: &Path, value: &[u8]) {
    let mut all = Vec::new();
    files(directory, &mut all);
    for path in all {
        let bytes = std::fs::read(&path).expect("a file is read");
        if let Some(place) = bytes.windows(value.len()).position(|window| window == value) {
            let at = place + value.len() / 2;
            let file = std::fs::File::options().write(true).open(&path).expect("a file is opened");
            return file.write_all_at(&[bytes[at] ^ 4], at as u64).expect("a file is written");
        }
    }
    panic!("the value is in no file");
}

#[test]
fn a_running_store_is_checked_and_its_rot_found() {
    let folder = Folder::new();
    let arguments = [
        "--segment-size",
        "128KiB",
        "--capacity",
        "16MiB",
        "--memory",
        "32MiB",
        "--shards",
        "2",
        "--password",
        "pass",
    ];
    let mut server = Server::start(&folder, &arguments);
    let mut connection = server.connect();
    ask(&mut connection, &[b"AUTH", b"pass"]);
    for number in 0..1_000u32 {
        ask(&mut connection, &[b"SET", number.to_string().as_bytes(), &value(number)]);
    }
    assert_eq!(ask(&mut connection, &[b"DEBUG", b"VERIFY", b"STATUS"]), Value::Null);
    let address = server.address.to_string();
    let with_password = ["--server", address.as_str(), "--password", "pass", "--json"];

    let whole = check(&with_password);
    let said = String::from_utf8_lossy(&whole.stdout);
    assert_eq!(whole.status.code(), Some(0), "{said} {}", String::from_utf8_lossy(&whole.stderr));
    assert!(said.contains("\"live_records\": 1000") && said.contains("\"lost_keys\": 0"), "{said}");

    rot(&folder.data(), &value(500));
    let rotten = check(&with_password[..4]);
    let said = String::from_utf8_lossy(&rotten.stdout);
    assert!(said.contains("damaged: record") && said.contains("is damaged"), "{said}");
    let refused = check(&["--server", &address]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("NOAUTH"), "{refused:?}");

    // The closed form sees the same, with the same exit status.
    server.kill();
    server.wait();
    let data = folder.data();
    let closed = check(&[data.to_str().expect("a path in UTF-8")]);
    assert!(rotten.status.code().is_some_and(|code| code != 0));
    assert_eq!(closed.status.code(), rotten.status.code(), "{}", String::from_utf8_lossy(&closed.stderr));
}

/// Answers two connections in another protocol.
fn answer_otherwise(listener: &TcpListener) {
    for _ in 0..2 {
        let (mut stream, _) = listener.accept().expect("a client comes");
        let _ = stream.read(&mut [0; 64]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    }
}

#[test]
fn an_address_of_something_else_is_no_damage() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let folder = Folder::new();
    let out = folder.path("backup").display().to_string();
    let tools = [&["check", "--server", &address][..], &["backup", "--server", &address, "--out", &out]];
    std::thread::scope(|scope| {
        scope.spawn(|| answer_otherwise(&listener));
        for arguments in tools {
            let output = program().args(arguments).output().expect("the program runs");
            let said = String::from_utf8_lossy(&output.stderr);
            let is_told = said.contains("is not the address of such a server");
            assert!(output.status.code() == Some(2) && is_told, "{said}");
        }
    });
}

#[test]
fn scrubbing_tells_of_rot_in_info_metrics_and_the_log() {
    let folder = Folder::new();
    let arguments = ["--segment-size", "128KiB", "--capacity", "16MiB", "--memory", "32MiB", "--shards", "2"];
    let server = Server::start(&folder, &arguments);
    let mut connection = server.connect();
    for number in 0..2_000u32 {
        ask(&mut connection, &[b"SET", format!("key:{number}").as_bytes(), &value(number)]);
    }
    // In good order: everything is sealed then.
    server.stop();
    rot(&folder.data(), &value(1_234));
    let server = Server::start(&folder, &[&arguments[..], &["--scrub-rate", "0"]].concat());
    assert_eq!((server.info("scrub_rate"), server.info("scrub_bytes_read")), (0, 0));
    let mut connection = server.connect();
    ask(&mut connection, &[b"CONFIG", b"SET", b"scrub-rate", b"64mb"]);
    let clock = SystemClock::new();
    let until_us = clock.now().monotonic_us + PATIENCE_US;
    while (0..2).any(|shard| server.info(&format!("scrub_passes_shard_{shard}")) == 0) {
        assert!(clock.now().monotonic_us < until_us, "no pass: {}", server.info_text("storage"));
        std::thread::yield_now();
    }
    let found =
        ["records", "old_records", "structures"].map(|kind| server.info(&format!("scrub_damaged_{kind}")));
    assert_eq!(found, [1, 0, 0]);
    assert_eq!(server.info("scrub_rate"), 64 << 20);
    assert!(server.info("scrub_last_pass_bytes") > 2_000 * 480);
    let log = loop {
        let log = folder.complaints();
        if log.contains("scrubbing has found damage") {
            break log;
        }
        assert!(clock.now().monotonic_us < until_us, "the log does not tell of it: {log}");
        std::thread::yield_now();
    };
    assert!(log.contains("key:1234") && log.contains("segment "), "{log}");
}

#[test]
fn tools_log_in_as_users_by_flag_and_environment() {
    let folder = Folder::new();
    let small = ["--segment-size", "128KiB", "--capacity", "16MiB", "--memory", "32MiB", "--shards", "2"];
    let server = Server::start(&folder, &small);
    let mut client = server.connect();
    assert!(ask(&mut client, &[b"SET", b"key", b"value"]).is_ok());
    assert!(
        ask(&mut client, &[b"ACL", b"SETUSER", b"tool", b"on", b">secret", b"~*", b"&*", b"+@all"]).is_ok()
    );
    assert!(ask(&mut client, &[b"ACL", b"SETUSER", b"default", b"resetpass", b">other"]).is_ok());
    let address = server.address.to_string();
    let backup = folder.path("backup").display().to_string();
    let source = folder.path("records.ndjson");
    std::fs::write(&source, "{\"key\":\"loaded\",\"value\":\"1\"}\n").expect("a source is written");
    let source = source.display().to_string();
    let bench = ["bench", "--address", &address, "--workload", "get", "--records", "10", "--seconds", "0.1"];
    let tools: [&[&str]; 4] = [
        &["check", "--server", &address],
        &["backup", "--server", &address, "--out", &backup],
        &["load", &source, "--address", &address],
        &bench,
    ];
    for tool in tools {
        let run = |more: &[&str], variable: Option<&str>| {
            let mut command = program();
            command.args(tool).args(more).envs(variable.map(|password| ("TIERSTONE_PASSWORD", password)));
            command.output().expect("the program runs")
        };
        assert!(!run(&[], None).status.success(), "{tool:?} without a login");
        assert!(!run(&["--user", "tool", "--password", "wrong"], None).status.success(), "{tool:?}");
        assert!(!run(&["--user", "tool"], None).status.success(), "{tool:?} without a password");
        let done = run(&["--user", "tool"], Some("secret"));
        assert!(done.status.success(), "{tool:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    let done = check(&["--server", &address, "--password", "other"]);
    assert!(done.status.success(), "the default user: {}", String::from_utf8_lossy(&done.stderr));
    drop(client);
    server.stop();
}
