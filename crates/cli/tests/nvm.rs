//! Servers whose store lies wholly in a region, as real processes: killed at random moments under load they lose nothing,
//! and they claim no more than the region gives.
//!
//! The files lie on an ordinary file system here: what a store in them survives is the death of the process.

#![expect(clippy::expect_used, reason = "test code")]

mod common;
mod load;

use common::{Folder, Server, ask, drivers, program, seed, spawn_command};
use load::{Load, Round};
use rustix::process::Signal;
use tierstone_base::SeededRandom;

/// The place of a store in the folder.
fn place(folder: &Folder) -> String {
    format!("nvm:{}", folder.path("store.region").display())
}

fn starting(folder: &Folder, data: &str, more: &[&str]) -> common::Starting {
    let mut command = program();
    command.args(["server", "--data", data, "--listen", "127.0.0.1:0", "--memory", "32MiB"]).args(more);
    spawn_command(folder, command)
}

fn start(folder: &Folder, more: &[&str]) -> Server {
    let file = ["--capacity", "128MiB", "--nvm-guarantee", "any"];
    let all: Vec<&str> = file.iter().chain(more).copied().collect();
    match starting(folder, &place(folder), &all).listening() {
        Ok(server) => server,
        Err(status) => panic!("the server ended before it listened: {status}\n{}", folder.complaints()),
    }
}

#[test]
fn what_was_acknowledged_survives_kills_under_load() {
    for driver in drivers() {
        let seed = seed();
        let mut random = SeededRandom::new(seed);
        let folder = Folder::new();
        let mut load = Load::new(random.next_u64());
        for round in 0..5 {
            let mut server = start(&folder, &["--driver", driver, "--shards", "2"]);
            load.verify(server.address).assert_clean(&format!("seed {seed}, {driver}, round {round}"));
            let end = Round::killed(&mut random, 3_000);
            load.run(server.address, &end, &server.signaller(Signal::KILL));
            server.wait();
        }
        let server = start(&folder, &["--driver", driver, "--shards", "2"]);
        load.verify(server.address).assert_clean(&format!("seed {seed}, {driver}, after the last kill"));
        load.run(server.address, &Round::whole(4_000), &|| {});
        let info = server.info_text("persistence");
        let guarantee =
            info.lines().find(|line| line.starts_with("durability_guarantee:")).expect("a guarantee");
        assert!(guarantee.contains("process"), "{guarantee}");
        server.stop();
        let server = start(&folder, &["--driver", driver, "--shards", "2"]);
        load.verify(server.address)
            .assert_clean(&format!("seed {seed}, {driver}, after a stop in good order"));
        server.stop();
    }
}

#[test]
fn emulated_memory_is_never_called_durable() {
    let folder = Folder::new();
    let more = ["--shards", "1"];
    let server = match starting(&folder, "nvm:emulated:64MiB:dcpmm", &more).listening() {
        Ok(server) => server,
        Err(status) => panic!("the server ended before it listened: {status}\n{}", folder.complaints()),
    };
    assert!(ask(&mut server.connect(), &[b"SET", b"key", b"value"]).is_ok());
    let info = server.info_text("persistence");
    let guarantee = info.lines().find(|line| line.starts_with("durability_guarantee:")).expect("a guarantee");
    assert!(guarantee.contains("emulated"), "{guarantee}");
    server.stop();
}

#[test]
fn what_such_a_store_cannot_be_is_refused_in_words() {
    let folder = Folder::new();
    let data = place(&folder);
    let refused = |data: &str, more: &[&str], word: &str| {
        assert_eq!(starting(&folder, data, more).refused(), 2, "{data} {more:?}");
        let said = folder.complaints();
        let last = said.lines().last().unwrap_or_default();
        assert!(last.contains(word), "{data} {more:?}: {said}");
    };
    refused(&data, &["--nvm-guarantee", "any"], "capacity");
    refused(&data, &["--capacity", "128MiB"], "DAX");
    assert!(!folder.path("store.region").exists(), "what cannot be used is not left behind");
    refused(&data, &["--capacity", "1MiB", "--nvm-guarantee", "any"], "give the store");
    assert!(!folder.path("store.region").exists(), "what is too small is not left behind");
    refused("nvm:emulated:64MiB", &["--nvm", "emulated:4MiB"], "redo log");
    refused("nvm:emulated:64MiB", &["--segment-size", "1MiB"], "segments");
    refused("nvm:emulated:64MiB:bubble", &[], "preset");
    refused("nvm:emulated:64MiB,elsewhere", &[], "alone");
    let checked = program().args(["check", "nvm:emulated:64MiB"]).output().expect("the program runs");
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(!checked.status.success() && said.contains("verified when it is read"), "{said}");
}

#[test]
fn a_region_has_one_server_at_a_time() {
    let folder = Folder::new();
    let server = start(&folder, &["--shards", "1"]);
    let more = ["--capacity", "128MiB", "--nvm-guarantee", "any", "--shards", "1"];
    assert_ne!(starting(&folder, &place(&folder), &more).refused(), 0);
    server.stop();
}
