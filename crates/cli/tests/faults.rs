//! Faults that a real system answers a real server with: a kernel without io_uring, a disk that neither reads nor
//! writes.

use crate::common::{Folder, Server, ask, program, seed, spawn};
use crate::filter::{Refused, refusing};
use crate::load::{Load, Round};
use rustix::process::Signal;
use std::time::Duration;
use tierstone_base::SeededRandom;
use tierstone_client::Connection;

const SMALL: [&str; 6] = ["--segment-size", "1MiB", "--capacity", "64MiB", "--memory", "32MiB"];

fn small<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SMALL.iter().copied().chain(more.iter().copied()).collect()
}

fn error_text(errno: i32) -> String {
    std::io::Error::from_raw_os_error(errno).to_string()
}

#[test]
fn where_io_uring_is_refused_the_server_says_so_and_serves() {
    let setup = Refused { call: libc::SYS_io_uring_setup, from: None };
    // What a container answers that forbids it, and what a kernel that does not have it.
    for errno in [libc::EPERM, libc::ENOSYS] {
        refusing("a server where io_uring is refused", errno, setup, || serve_without_io_uring(errno));
    }
}

fn serve_without_io_uring(errno: i32) {
    let (seed, reason) = (seed(), error_text(errno));
    let mut random = SeededRandom::new(seed);
    let folder = Folder::new();
    let mut load = Load::new(random.next_u64());
    let mut server = Server::start(&folder, &small(&["--shards", "2"]));
    let said = folder.complaints();
    assert!(said.contains("the kernel refuses io_uring") && said.contains(&reason), "{said}");
    let told = server.info_text("server");
    assert!(told.contains(&format!("io_uring:refused ({reason})\r\n")), "{told}");
    load.run(server.address, &Round::killed(&mut random, 3_000), &server.signaller(Signal::KILL));
    server.wait();
    let server = Server::start(&folder, &small(&["--shards", "1"]));
    load.verify(server.address).assert_clean(&format!("seed {seed}, {reason}"));
    server.stop();
    // Where somebody insists, the start is refused and says why.
    for asked in [["--driver", "uring"], ["--backend", "io-uring"]] {
        let before = folder.complaints().len();
        assert_eq!(spawn(&folder, &small(&asked)).refused(), 2, "{asked:?}");
        let said = folder.complaints().split_off(before);
        assert!(said.contains("the kernel refuses io_uring") && said.contains(&reason), "{asked:?}: {said}");
    }
    let output = program().args(["doctor", "--time", "100ms"]).arg(folder.path("")).output();
    let output = output.expect("the program runs");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains(&format!("io_uring: refused ({reason}); threads are used instead")), "{told}");
    assert!(told.contains("back-end: threads"), "{told}");
}

fn key(number: usize) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

fn value(number: usize) -> Vec<u8> {
    let mut value = vec![number as u8; 8_000];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

/// How a write came to its end.
enum Outcome {
    Acknowledged,
    Refused(String),
    /// The device failed while it was under way.
    Unanswered,
}

/// Sets a key; gives up when no answer comes and the server says that its device has failed.
fn set(server: &Server, connection: &mut Connection, number: usize) -> Outcome {
    connection.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout is set");
    connection.send_only(&[b"SET", &key(number), &value(number)]).expect("it is sent");
    loop {
        match connection.receive_one() {
            Ok(reply) => {
                return reply
                    .error()
                    .map_or(Outcome::Acknowledged, |text| Outcome::Refused(text.into_owned()));
            }
            Err(_) if server.info_text("persistence").contains("device_health:failed") => {
                return Outcome::Unanswered;
            }
            Err(_) => {}
        }
    }
}

/// Every key up to `acknowledged` has its value; the one after it may have been stored.
fn check(server: &Server, acknowledged: usize) {
    let mut connection = server.connect();
    for number in 0..acknowledged {
        let reply = ask(&mut connection, &[b"GET", &key(number)]);
        assert!(reply.bytes() == Some(&value(number)[..]), "key {number} of {acknowledged}: {reply:?}");
    }
    let keys = ask(&mut connection, &[b"DBSIZE"]).integer().expect("a number");
    assert!((0..=1).contains(&(keys - acknowledged as i64)), "{keys} keys, {acknowledged} were acknowledged");
}

/// A server on threads writes until the disk fails, answers nobody any more, and has everything after a restart.
fn write_until_the_disk_fails(method: &str, refused: Refused) {
    let folder = Folder::new();
    let arguments =
        ["--shards", "1", "--backend", "threads", "--segment-size", "256KiB", "--capacity", "64MiB"];
    let first = [&arguments[..], &["--durable-method", method, "--memory", "8MiB"]].concat();
    let outcome = refusing("a disk that does not write", libc::EIO, refused, || {
        let mut server = Server::start(&folder, &first);
        let mut connection = server.connect();
        let mut acknowledged = 0;
        loop {
            match set(&server, &mut connection, acknowledged) {
                Outcome::Acknowledged => acknowledged += 1,
                Outcome::Unanswered => break,
                Outcome::Refused(text) => panic!("{text}, and the failed write itself was answered"),
            }
            assert!(acknowledged < 8_000, "the disk never failed");
        }
        // Others are told, at once and why; what was acknowledged can be read.
        let told = server.info_text("persistence");
        assert!(told.contains("device_health:failed") && told.contains(&error_text(libc::EIO)), "{told}");
        let mut other = server.connect();
        for _ in 0..3 {
            let reply = other.command(&[b"SET", b"other", b"value"]).expect("an answer");
            let error = reply.error().expect("nothing is taken any more");
            assert!(error.starts_with("MISCONF the device failed"), "{error}");
            assert!(error.contains(&error_text(libc::EIO)), "{error}");
        }
        let reply = other.command(&[b"DEL", &key(0)]).expect("an answer");
        assert!(reply.is_error(), "a deletion neither: {reply:?}");
        let reply = ask(&mut other, &[b"GET", &key(acknowledged - 1)]);
        assert!(reply.bytes() == Some(&value(acknowledged - 1)[..]), "{reply:?}");
        assert!(folder.complaints().contains("acknowledges nothing any more"), "{}", folder.complaints());
        // Nothing comes late.
        assert!(connection.receive_one().is_err(), "a write was answered after the failure");
        server.kill();
        acknowledged
    });
    let Some(acknowledged) = outcome else { return };
    assert!(acknowledged > 10, "{method}: only {acknowledged} writes before the failure");
    let server = Server::start(&folder, &[&arguments[..], &["--memory", "8MiB"]].concat());
    check(&server, acknowledged);
    assert!(ask(&mut server.connect(), &[b"SET", b"other", b"value"]).is_ok());
    server.stop();
}

#[test]
fn a_disk_that_fails_a_durable_write_ends_acknowledgements_and_loses_nothing() {
    // Writes into the second half of a segment fail.
    let refused = Refused { call: libc::SYS_pwritev2, from: Some((3, 128 << 10)) };
    write_until_the_disk_fails("durable-write", refused);
}

#[test]
fn a_disk_that_fails_a_write_before_its_flush_ends_acknowledgements_and_loses_nothing() {
    let refused = Refused { call: libc::SYS_pwritev2, from: Some((3, 128 << 10)) };
    write_until_the_disk_fails("write-then-flush", refused);
}

#[test]
fn a_disk_that_fails_a_flush_ends_acknowledgements_and_loses_nothing() {
    // Files that are opened late cannot be flushed: those of segments that the log comes to in time.
    let refused = Refused { call: libc::SYS_fdatasync, from: Some((0, 64)) };
    write_until_the_disk_fails("write-then-flush", refused);
}

/// Of two shards one meets a failed write: every connection is told, whichever shard it came to. The device takes no
/// more writes then, so that the other shard stops with its next one.
#[test]
fn a_disk_that_fails_one_of_two_shards_is_told_to_every_connection() {
    let folder = Folder::new();
    let arguments = ["--shards", "2", "--backend", "threads", "--segment-size", "256KiB"];
    let arguments = [&arguments[..], &["--capacity", "64MiB", "--memory", "32MiB"]].concat();
    let first = [&arguments[..], &["--durable-method", "durable-write"]].concat();
    let refused = Refused { call: libc::SYS_pwritev2, from: Some((3, 128 << 10)) };
    // Keys of one tag lie on one shard, which alone writes so far into its segment.
    let key = |tag: &str, number: usize| format!("{{{tag}}}:{number}").into_bytes();
    let done = refusing("a disk that fails one shard", libc::EIO, refused, || {
        let mut server = Server::start(&folder, &first);
        let mut connections: Vec<Connection> = (0..8).map(|_| server.connect()).collect();
        let told = |connection: &mut Connection, line: &str| {
            let text = ask(connection, &[b"INFO", b"persistence"]);
            let text = String::from_utf8_lossy(text.bytes().expect("a text")).into_owned();
            assert!(text.contains(line), "{line} is not in {text}, {}", folder.complaints());
            text
        };
        for connection in &mut connections {
            told(connection, "device_health:ok\r\ndevice_failed_shards:0\r\n");
        }
        let mut writer = server.connect();
        writer.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout is set");
        let mut acknowledged = 0;
        'writing: loop {
            writer.send_only(&[b"SET", &key("a", acknowledged), &value(acknowledged)]).expect("it is sent");
            loop {
                match writer.receive_one() {
                    Ok(reply) if !reply.is_error() => break,
                    Ok(reply) => panic!("{reply:?}, and the failed write itself was answered"),
                    Err(_) if server.info_text("persistence").contains("device_health:failed") => {
                        break 'writing;
                    }
                    Err(_) => {}
                }
            }
            acknowledged += 1;
            assert!(acknowledged < 8_000, "the disk never failed");
        }
        for connection in &mut connections {
            let text = told(connection, "device_health:failed");
            assert!(
                !text.contains("device_failed_shards:0") && text.contains(&error_text(libc::EIO)),
                "{text}"
            );
            let doctor = ask(connection, &[b"MEMORY", b"DOCTOR"]);
            let doctor = String::from_utf8_lossy(doctor.bytes().expect("a text")).into_owned();
            assert!(doctor.contains("has failed") && doctor.contains("restart"), "{doctor}");
            let reply = connection.command(&[b"SET", &key("a", acknowledged), b"late"]).expect("an answer");
            let error = reply.error().expect("the shard takes nothing any more");
            assert!(error.starts_with("MISCONF the device failed"), "{error}");
            let reply = ask(connection, &[b"GET", &key("a", 0)]);
            assert!(reply.bytes() == Some(&value(0)[..]), "{reply:?}");
        }
        server.kill();
        acknowledged
    });
    let Some(acknowledged) = done else { return };
    let server = Server::start(&folder, &arguments);
    let mut connection = server.connect();
    for number in 0..acknowledged {
        let reply = ask(&mut connection, &[b"GET", &key("a", number)]);
        assert!(reply.bytes() == Some(&value(number)[..]), "key {number} of {acknowledged}: {reply:?}");
    }
    server.stop();
}

#[test]
fn what_a_disk_does_not_read_is_an_error_and_the_rest_is_served() {
    const KEYS: usize = 1_500;
    let folder = Folder::new();
    let arguments = ["--shards", "1", "--backend", "threads", "--memory", "4MiB"];
    let arguments = [&arguments[..], &["--segment-size", "1MiB", "--capacity", "64MiB"]].concat();
    // The second half of every segment cannot be read.
    let refused = Refused { call: libc::SYS_pread64, from: Some((3, 512 << 10)) };
    let done = refusing("a disk that does not read", libc::EIO, refused, || {
        let mut server = Server::start(&folder, &arguments);
        let mut connection = server.connect();
        for number in 0..KEYS {
            assert!(ask(&mut connection, &[b"SET", &key(number), &value(number)]).is_ok());
        }
        let mut failed = 0;
        for number in 0..KEYS {
            let reply = connection.command(&[b"GET", &key(number)]).expect("an answer");
            match reply.error() {
                Some(error) => {
                    assert!(error.contains("could not be read"), "{error}");
                    assert!(error.contains(&error_text(libc::EIO)), "{error}");
                    failed += 1;
                }
                None => assert!(reply.bytes() == Some(&value(number)[..]), "key {number}: {reply:?}"),
            }
        }
        assert!((KEYS / 10..KEYS * 9 / 10).contains(&failed), "{failed} of {KEYS} reads failed");
        assert!(server.info("failed_reads") >= failed as u64);
        assert!(server.info_text("persistence").contains("device_health:ok"));
        assert!(ask(&mut connection, &[b"SET", &key(KEYS), &value(KEYS)]).is_ok(), "writes go on");
        server.kill();
    });
    if done.is_some() {
        check(&Server::start(&folder, &arguments), KEYS + 1);
    }
}

#[test]
fn a_shard_whose_thread_ends_takes_the_server_with_it_and_a_restart_has_everything() {
    const CLIENTS: usize = 120;
    if !crate::common::drivers().contains(&"uring") {
        println!("SKIP: a shard whose thread ends (there is no io_uring)");
        return;
    }
    let folder = Folder::new();
    let arguments = small(&["--shards", "2", "--driver", "uring"]);
    // The kernel refuses an entry that carries much: what one client asks for is not.
    let refused = Refused { call: libc::SYS_io_uring_enter, from: Some((1, 25)) };
    let done = refusing("a shard whose thread ends", libc::EPERM, refused, || {
        let mut server = Server::start(&folder, &arguments);
        let mut connections: Vec<_> = (0..CLIENTS)
            .map(|number| {
                let mut connection = server.connect();
                assert!(ask(&mut connection, &[b"SET", &key(number), &value(number)]).is_ok());
                connection
            })
            .collect();
        // All of them ask before the server looks.
        server.signal(Signal::STOP);
        for connection in &mut connections {
            connection.send_only(&[b"PING"]).expect("it is sent");
        }
        server.signal(Signal::CONT);
        // Of a kind after which it is started again.
        assert_eq!(server.wait().code(), Some(1), "{}", folder.complaints());
        let said = folder.complaints();
        assert!(said.contains("a shard's thread has ended: the others are stopped"), "{said}");
        assert!(said.contains("io_uring_enter") && !said.contains("panicked"), "{said}");
    });
    if done.is_some() {
        let server = Server::start(&folder, &arguments);
        check(&server, CLIENTS);
        server.stop();
    }
}
