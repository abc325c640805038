//! A file system without room under a real server, and limits that look like one: writes are refused and say why,
//! reads and deletions go on, and with room again writes do too.

use crate::common;
use crate::common::{Folder, PATIENCE, Server, ask, program, spawn_command};
use crate::disk::SmallDisk;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::path::Path;
use std::time::Duration;
use tierstone_base::{Clock, SystemClock};
use tierstone_client::Connection;

fn key(number: usize) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

fn value(number: usize) -> Vec<u8> {
    let mut value = vec![number as u8; 8_000];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

/// More capacity than the file systems of these tests have room.
const ROOMY: [&str; 8] =
    ["--segment-size", "1MiB", "--capacity", "256MiB", "--memory", "16MiB", "--shards", "2"];

/// Sets keys in pipelines until one is refused; how many were taken, of which each has its number as a key.
fn fill(server: &Server, from: usize) -> Vec<usize> {
    let mut connection = server.connect();
    let mut taken = Vec::new();
    for first in (from..from + 32_768).step_by(32) {
        let mut pipeline = connection.pipeline();
        for number in first..first + 32 {
            pipeline.command(&[b"SET", &key(number), &value(number)]);
        }
        let replies = pipeline.execute().expect("the server answers");
        let mut is_full = false;
        for (number, reply) in (first..).zip(replies) {
            match reply.error() {
                None => taken.push(number),
                Some(error) => {
                    assert!(error.contains("no space left on the device"), "{error}");
                    assert!(error.contains("No space left on device"), "the cause is not named: {error}");
                    is_full = true;
                }
            }
        }
        if is_full {
            return taken;
        }
    }
    panic!("256 MB were written and nothing was full");
}

fn check_all(server: &Server, numbers: &[usize]) {
    let mut connection = server.connect();
    for number in numbers {
        let reply = ask(&mut connection, &[b"GET", &key(*number)]);
        assert!(reply.bytes() == Some(&value(*number)[..]), "key {number}: {reply:?}");
    }
    assert_eq!(ask(&mut connection, &[b"DBSIZE"]).integer(), Some(numbers.len() as i64));
}

/// Writes until one is taken again; the server looks for room once a second.
fn set_when_there_is_room(connection: &mut Connection, number: usize) {
    let taken = (0..1_000_000).any(|_| {
        let reply = connection.command(&[b"SET", &key(number), &value(number)]).expect("an answer");
        reply.is_ok()
    });
    assert!(taken, "writes do not go on although there is room");
}

/// Starts a server whose data lie on a disk of its own.
fn start_on(disk: &SmallDisk, folder: &Folder, data: &Path, driver: &str) -> Server {
    start_with(disk, folder, data, &[&ROOMY[..], &["--driver", driver]].concat())
}

fn start_with(disk: &SmallDisk, folder: &Folder, data: &Path, settings: &[&str]) -> Server {
    let mut command = program();
    command.args(["server", "--listen", "127.0.0.1:0"]).arg("--data").arg(data).args(settings);
    let started = spawn_command(folder, disk.enter(&command)).listening();
    started.unwrap_or_else(|status| panic!("{status}: {}", folder.complaints()))
}

#[test]
fn a_full_file_system_refuses_writes_only_and_goes_on_when_there_is_room() {
    let folder = Folder::new();
    let Some(disk) = SmallDisk::new(&folder.path("disk"), 48 << 20) else { return };
    for driver in common::drivers() {
        let data = disk.inside(driver);
        let start = || start_on(&disk, &folder, &data, driver);
        let ballast = disk.outside("ballast");
        std::fs::write(&ballast, vec![1; 16 << 20]).expect("there is room for the ballast");
        let mut server = start();
        let mut taken = fill(&server, 0);
        assert!(taken.len() > 1_500, "{driver}: only {} of 30 MB were taken", taken.len() * 8_000);
        assert!(server.info_text("persistence").contains("device_health:ok"));
        check_all(&server, &taken);
        // Deletions are taken, and give room for other keys although the file system has none.
        let mut connection = server.connect();
        for number in taken.drain(..taken.len() / 2) {
            assert_eq!(ask(&mut connection, &[b"DEL", &key(number)]).integer(), Some(1), "{driver}");
        }
        for number in 100_000..100_000 + taken.len() / 2 {
            set_when_there_is_room(&mut connection, number);
            taken.push(number);
        }
        check_all(&server, &taken);
        taken.extend(fill(&server, 200_000));
        // With room again, writes go on without a restart, for more than there was room before.
        std::fs::remove_file(&ballast).expect("the ballast goes");
        for number in 300_000..301_500 {
            set_when_there_is_room(&mut connection, number);
            taken.push(number);
        }
        check_all(&server, &taken);
        server.kill();
        let mut server = start();
        check_all(&server, &taken);
        // Full again when it starts, and nothing is lost by it.
        taken.extend(fill(&server, 400_000));
        server.kill();
        let server = start();
        check_all(&server, &taken);
        server.stop();
        std::fs::remove_dir_all(disk.outside(driver)).expect("the store goes");
    }
}

/// Each shard writes into segments of its own. Where the file system has none for them, what their cleaners move waits for
/// room, and must be read meanwhile.
#[test]
fn records_that_the_cleaner_moves_on_a_full_file_system_are_read() {
    let folder = Folder::new();
    let Some(disk) = SmallDisk::new(&folder.path("disk"), 160 << 20) else { return };
    let data = disk.inside("data");
    let start = |shards| {
        let settings =
            ["--capacity", "2GiB", "--segment-size", "4MiB", "--memory", "64MiB", "--shards", shards];
        start_with(&disk, &folder, &data, &settings)
    };
    let mut server = start("1");
    let mut connection = server.connect();
    for number in 0..60 {
        assert!(ask(&mut connection, &[b"SET", &key(number), &value(number)]).is_ok());
    }
    let ballast = disk.outside("ballast");
    let is_over = std::fs::write(&ballast, vec![1; 200 << 20]).expect_err("200 MB do not fit into 160");
    assert_eq!(is_over.kind(), std::io::ErrorKind::StorageFull, "{is_over}");
    // The same keys again and again, so that there is something to clean.
    let numbers = 100..400;
    let mut is_full = false;
    for number in numbers.clone().cycle().take(20_000) {
        let reply = connection.command(&[b"SET", &key(number), &value(number)]).expect("an answer");
        is_full = reply.is_error();
        if is_full {
            break;
        }
    }
    assert!(is_full, "160 MB went into no more than there are segments already");
    server.kill();
    let server = start("4");
    let clock = SystemClock::new();
    // All move on as far as they come, before anything is read: what is read comes into the cache, and is not missed.
    let mut moved = 0;
    let mut still_until_us = u64::MAX;
    while clock.now().monotonic_us < still_until_us {
        let now = server.info_of_any("cleaned_bytes_written");
        if now > moved {
            (moved, still_until_us) = (now, clock.now().monotonic_us + 2_000_000);
        }
        assert!(clock.now().monotonic_us < PATIENCE.as_micros() as u64, "cleaning does not come to an end");
    }
    let all: Vec<usize> = (0..60).chain(numbers).collect();
    check_all(&server, &all);
    std::fs::remove_file(&ballast).expect("the ballast goes");
    set_when_there_is_room(&mut server.connect(), 0);
    check_all(&server, &all);
    server.stop();
}

/// The keys of batch `number`: one hash tag, or any shards.
fn batch_keys(number: usize) -> [String; 3] {
    [0, 1, 2].map(|part| match number % 2 {
        0 => format!("{{batch:{number}}}:{part}"),
        _ => format!("batch:{number}:{part}"),
    })
}

/// Sends a batch, by MSET or by EXEC; whether it was taken.
fn batch(connection: &mut Connection, number: usize) -> bool {
    let (keys, value) = (batch_keys(number), value(number));
    let full = |error: &str| assert!(error.contains("no space left on the device"), "{error}");
    if number % 4 < 2 {
        let pairs = keys.iter().flat_map(|key| [key.as_bytes(), &value[..]]);
        let arguments: Vec<&[u8]> = std::iter::once(&b"MSET"[..]).chain(pairs).collect();
        let reply = connection.command(&arguments).expect("an answer");
        reply.error().inspect(|error| full(error));
        return reply.is_ok();
    }
    assert!(ask(connection, &[b"MULTI"]).is_ok());
    for key in &keys {
        ask(connection, &[b"SET", key.as_bytes(), &value]);
    }
    let reply = connection.command(&[b"EXEC"]).expect("an answer");
    let errors = || reply.items().into_iter().flatten().filter_map(tierstone_client::Value::error);
    reply.error().into_iter().chain(errors()).for_each(|error| full(&error));
    let refused = errors().count();
    assert!(refused == 0 || refused == 3, "batch {number}: {refused} of 3 were refused");
    !reply.is_error() && refused == 0
}

/// Every batch is whole, or nothing of it is there; those of `taken` are.
fn check_batches(server: &Server, taken: &[usize], last: usize) {
    let mut connection = server.connect();
    for number in 0..last {
        let keys = batch_keys(number);
        let arguments: Vec<&[u8]> =
            std::iter::once(&b"MGET"[..]).chain(keys.iter().map(|key| key.as_bytes())).collect();
        let reply = ask(&mut connection, &arguments);
        let expected = value(number);
        let items = reply.items().expect("an array");
        let there = items.iter().filter(|item| item.bytes() == Some(&expected[..])).count();
        let missing = items.iter().filter(|item| item.bytes().is_none()).count();
        let is_taken = taken.contains(&number);
        assert!(
            if is_taken { there == 3 } else { missing == 3 },
            "batch {number}, taken: {is_taken}: {there} of 3"
        );
    }
}

#[test]
fn a_batch_that_meets_the_end_of_the_disk_is_taken_whole_or_refused_whole() {
    let folder = Folder::new();
    let Some(disk) = SmallDisk::new(&folder.path("disk"), 24 << 20) else { return };
    for driver in common::drivers() {
        let data = disk.inside(driver);
        let start = || start_on(&disk, &folder, &data, driver);
        let mut server = start();
        let mut connection = server.connect();
        let (mut taken, mut refused, mut last) = (Vec::new(), 0, 0);
        while refused < 8 {
            assert!(last < 4_000, "{driver}: 96 MB were taken by 24 MiB");
            if batch(&mut connection, last) {
                taken.push(last)
            } else {
                refused += 1
            }
            last += 1;
        }
        assert!(taken.len() > 200, "{driver}: only {} batches were taken", taken.len());
        check_batches(&server, &taken, last);
        server.kill();
        let server = start();
        check_batches(&server, &taken, last);
        server.stop();
        std::fs::remove_dir_all(disk.outside(driver)).expect("the store goes");
    }
}

#[test]
fn a_limit_on_the_length_of_files_is_a_full_device_and_not_the_end() {
    for driver in common::drivers() {
        let folder = Folder::new();
        let mut server = Server::start(&folder, &[&ROOMY[..], &["--driver", driver]].concat());
        let limit = |bytes| {
            let process = Pid::from_raw(server.process_id() as i32).expect("a process");
            let limit = Rlimit { current: bytes, maximum: None };
            prlimit(Some(process), Resource::Fsize, limit).expect("the limit is set");
        };
        let mut connection = server.connect();
        let mut taken: Vec<usize> = (0..200).collect();
        for number in &taken {
            assert!(ask(&mut connection, &[b"SET", &key(*number), &value(*number)]).is_ok());
        }
        limit(Some(64 << 10));
        // A write under way may have to wait for room; others are refused, or wait too.
        let waiting = (1_000..1_100).find(|&number| {
            connection.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout is set");
            connection.send_only(&[b"SET", &key(number), &value(number)]).expect("it is sent");
            match connection.receive_one() {
                Ok(reply) => {
                    match reply.error() {
                        Some(error) => assert!(error.contains("no space left on the device"), "{error}"),
                        None => taken.push(number),
                    }
                    false
                }
                Err(_) => true,
            }
        });
        assert!(server.info_text("persistence").contains("device_health:ok"), "{driver}");
        limit(None);
        connection.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
        if let Some(number) = waiting {
            assert!(connection.receive_one().expect("an answer").is_ok(), "what waited is taken");
            taken.push(number);
        }
        set_when_there_is_room(&mut connection, 2_000);
        taken.push(2_000);
        check_all(&server, &taken);
        server.kill();
        check_all(&Server::start(&folder, &ROOMY), &taken);
    }
}
