//! Real processes that die: under load, while they start, while they recover, while they are stopped.
//!
//! Oracle: every object's state is one of those between the last that was acknowledged (or shown by a
//! read) and the last that was sent; MSET and EXEC on keys with one hash tag are there whole or not at all. `relaxed` opens the
//! gate that holds replies back until they are durable; the same oracle must then find losses.

use crate::common;
use crate::common::{Folder, PATIENCE, Server, drivers, seed, spawn};
use crate::load::{Load, Round};
use rustix::process::Signal;
use std::time::Duration;
use tierstone_base::{Clock, SeededRandom, SystemClock};

/// Small segments and little space, so that cleaning runs; reads after each start need the device.
const SMALL: [&str; 6] = ["--segment-size", "128KiB", "--capacity", "16MiB", "--memory", "32MiB"];
const SHARDS: [&str; 4] = ["2", "1", "3", "2"];

fn small<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SMALL.iter().copied().chain(more.iter().copied()).collect()
}

#[test]
fn what_was_acknowledged_survives_kills_under_load() {
    for driver in drivers() {
        let seed = seed();
        let mut random = SeededRandom::new(seed);
        let folder = Folder::new();
        let mut load = Load::new(random.next_u64());
        for round in 0..6 {
            let shards = SHARDS[round % SHARDS.len()];
            let mut server = Server::start(&folder, &small(&["--driver", driver, "--shards", shards]));
            let crashed = server.greeting.contains("recovered after a crash");
            assert_eq!(crashed, round > 0, "round {round}: {}", server.greeting);
            load.verify(server.address).assert_clean(&format!("seed {seed}, {driver}, round {round}"));
            let end = Round::killed(&mut random, 3_000);
            load.run(server.address, &end, &server.signaller(Signal::KILL));
            server.wait();
        }
        let server = Server::start(&folder, &small(&["--driver", driver, "--shards", "2"]));
        load.verify(server.address).assert_clean(&format!("seed {seed}, {driver}, after the last kill"));
        load.run(server.address, &Round::whole(16_000), &|| {});
        assert!(server.info_of_any("cleaned_bytes_written") > 0, "cleaning never moved anything");
        assert!(server.info_of_any("device_hits") > 0, "no read came from the device");
        server.stop();
        let server = Server::start(&folder, &small(&["--driver", driver, "--shards", "3"]));
        assert!(!server.greeting.contains("crash"), "after a stop in good order: {}", server.greeting);
        load.verify(server.address).assert_clean(&format!("seed {seed}, {driver}, after the stop"));
    }
}

#[test]
fn with_replies_ungated_the_same_oracle_finds_losses() {
    let seed = seed();
    let mut random = SeededRandom::new(seed);
    let folder = Folder::new();
    let mut load = Load::new(random.next_u64());
    let arguments = small(&["--durability", "relaxed", "--shards", "2"]);
    for round in 0..10 {
        let mut server = Server::start(&folder, &arguments);
        let findings = load.verify(server.address);
        assert!(findings.torn.is_empty(), "seed {seed}, round {round}: {:?}", findings.torn);
        if !findings.lost.is_empty() {
            println!("round {round}: {}", findings.lost[0]);
            return;
        }
        load.run(server.address, &Round::killed(&mut random, 3_000), &server.signaller(Signal::KILL));
        server.wait();
    }
    panic!("seed {seed}: ten kills with ungated replies, and no acknowledged write was missed");
}

#[test]
fn a_kill_while_the_store_is_made_leaves_a_directory_that_opens() {
    let seed = seed();
    let mut random = SeededRandom::new(seed);
    for round in 0..4 {
        let folder = Folder::new();
        // Making a store takes about a second, most of it probing.
        let within = Duration::from_millis(random.below(1_200));
        let listened = spawn(&folder, &small(&["--shards", "2"])).kill_within(within);
        println!("round {round}: killed after {within:?}, listening: {listened}");
        if round % 2 == 0 {
            spawn(&folder, &small(&["--shards", "2"]))
                .kill_within(Duration::from_millis(random.below(1_200)));
        }
        let server = Server::start(&folder, &small(&["--shards", "3"]));
        let mut connection = server.connect();
        assert!(common::ask(&mut connection, &[b"SET", b"key", b"value"]).is_ok());
        assert_eq!(
            common::ask(&mut connection, &[b"DBSIZE"]).integer(),
            Some(1),
            "seed {seed}, round {round}"
        );
    }
}

#[test]
fn kills_during_recovery_lose_nothing() {
    let seed = seed();
    let mut random = SeededRandom::new(seed);
    let folder = Folder::new();
    let mut load = Load::new(random.next_u64());
    let mut server = Server::start(&folder, &small(&["--shards", "2"]));
    load.run(server.address, &Round::killed(&mut random, 4_000), &server.signaller(Signal::KILL));
    server.wait();
    let clock = SystemClock::new();
    let started_us = clock.now().monotonic_us;
    let mut server = Server::start(&folder, &small(&["--shards", "3"]));
    let recovery_us = clock.now().monotonic_us - started_us;
    load.verify(server.address).assert_clean(&format!("seed {seed}, after the first kill"));
    load.run(server.address, &Round::killed(&mut random, 4_000), &server.signaller(Signal::KILL));
    server.wait();
    let mut unfinished = 0;
    for _ in 0..12 {
        let shards = SHARDS[random.below(SHARDS.len() as u64) as usize];
        let within = Duration::from_micros(random.below(recovery_us));
        unfinished += u32::from(!spawn(&folder, &small(&["--shards", shards])).kill_within(within));
    }
    println!("{unfinished} of 12 recoveries were killed before they were done");
    let server = Server::start(&folder, &small(&["--shards", "2"]));
    load.verify(server.address).assert_clean(&format!("seed {seed}, after killed recoveries"));
}

/// Killed again and again while it starts, at moments up to some time after it serves.
#[test]
fn a_crash_loop_ends_in_an_open_store_that_lost_nothing_and_takes_no_more_space() {
    const KILLS: u32 = 40;
    let seed = seed();
    let mut random = SeededRandom::new(seed);
    let folder = Folder::new();
    let mut load = Load::new(random.next_u64());
    let mut server = Server::start(&folder, &small(&["--shards", "2"]));
    load.run(server.address, &Round::killed(&mut random, 4_000), &server.signaller(Signal::KILL));
    server.wait();
    let clock = SystemClock::new();
    let started_us = clock.now().monotonic_us;
    let server = Server::start(&folder, &small(&["--shards", "2"]));
    let recovery_us = clock.now().monotonic_us - started_us;
    load.verify(server.address).assert_clean(&format!("seed {seed}, before the loop"));
    let used_before = server.info("space_used_bytes");
    drop(server);
    let mut unfinished = 0;
    for _ in 0..KILLS {
        let within = Duration::from_micros(random.below(recovery_us * 3 / 2));
        unfinished += u32::from(!spawn(&folder, &small(&["--shards", "2"])).kill_within(within));
    }
    println!("{unfinished} of {KILLS} starts were killed before they were done");
    let server = Server::start(&folder, &small(&["--shards", "2"]));
    load.verify(server.address).assert_clean(&format!("seed {seed}, after {KILLS} kills"));
    // What a start leaves is a segment of each log at most, which the next one finds empty.
    let used_after = server.info("space_used_bytes");
    let logs = 2 * 2;
    assert!(
        used_after <= used_before + logs * (128 << 10),
        "seed {seed}: {used_before} bytes in use before {KILLS} kills, {used_after} after them"
    );
    let mut connection = server.connect();
    assert!(common::ask(&mut connection, &[b"SET", b"after", b"all"]).is_ok(), "seed {seed}");
    server.stop();
}

#[test]
fn a_frozen_server_keeps_its_clients_waiting_and_goes_on() {
    let seed = seed();
    let mut random = SeededRandom::new(seed);
    let folder = Folder::new();
    let mut load = Load::new(random.next_u64());
    let mut server = Server::start(&folder, &small(&["--shards", "2"]));
    let (freeze, thaw) = (server.signaller(Signal::STOP), server.signaller(Signal::CONT));
    for _ in 0..3 {
        let mut waiting = server.connect();
        let address = server.address;
        std::thread::scope(|scope| {
            let (load, freeze) = (&mut load, &freeze);
            let round = Round::whole(600).signalled_at(100 + random.below(300));
            let running = scope.spawn(move || load.run(address, &round, freeze));
            // The load froze the server, which answers nobody until it is thawed.
            end_of_answers(&mut waiting);
            thaw();
            assert_eq!(waiting.receive_one().expect("an answer after the thaw").bytes(), Some(&b"late"[..]));
            running.join().expect("the load ended well");
        });
        load.verify(server.address).assert_clean(&format!("seed {seed}, thawed"));
    }
    // Frozen with requests in flight, then killed without another instruction.
    load.run_frozen(server.address, &freeze);
    server.kill();
    let server = Server::start(&folder, &small(&["--shards", "1"]));
    load.verify(server.address).assert_clean(&format!("seed {seed}, killed while frozen"));
}

/// Asks for echoes until one is not answered within a while; that answer is still to come.
fn end_of_answers(connection: &mut tierstone_client::Connection) {
    connection.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout is set");
    loop {
        connection.send_only(&[b"ECHO", b"late"]).expect("it is sent");
        if connection.receive_one().is_err() {
            break;
        }
    }
    connection.set_read_timeout(Some(PATIENCE)).expect("a timeout is set");
}

#[test]
fn a_stop_under_load_ends_in_good_order_and_loses_nothing() {
    let seed = seed();
    let mut random = SeededRandom::new(seed);
    let folder = Folder::new();
    let mut load = Load::new(random.next_u64());
    for (round, signal) in [Signal::TERM, Signal::INT, Signal::TERM].into_iter().enumerate() {
        let shards = SHARDS[round % SHARDS.len()];
        let mut server = Server::start(&folder, &small(&["--shards", shards]));
        assert!(!server.greeting.contains("crash"), "round {round}: {}", server.greeting);
        load.verify(server.address).assert_clean(&format!("seed {seed}, round {round}"));
        load.run(server.address, &Round::killed(&mut random, 2_000), &server.signaller(signal));
        let status = server.wait();
        assert!(status.success(), "seed {seed}, round {round}: {status}\n{}", folder.complaints());
    }
    let server = Server::start(&folder, &small(&[]));
    assert!(!server.greeting.contains("crash"), "{}", server.greeting);
    load.verify(server.address).assert_clean(&format!("seed {seed}, at the end"));
}
