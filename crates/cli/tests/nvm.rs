//! Servers whose store lies wholly in a region, as real processes: killed at random moments under load they lose nothing,
//! and they claim no more than the region gives.
//!
//! The files lie on an ordinary file system here: what a store in them survives is the death of the process.

use crate::common;
use crate::common::{Folder, PATIENCE, Server, ask, drivers, program, seed, spawn_command};
use crate::load::{Load, Round};
use rustix::process::Signal;
use std::os::unix::fs::FileExt;
use tierstone_base::{Clock, SeededRandom, SystemClock};
use tierstone_client::Value;

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
fn a_store_opens_with_its_own_number_of_shards_when_none_is_given() {
    let folder = Folder::new();
    let more = ["--index", "ordered", "--shards", "3"];
    let server = start(&folder, &more);
    assert!(ask(&mut server.connect(), &[b"SET", b"key", b"value"]).is_ok());
    server.stop();
    let server = start(&folder, &["--nvm-keys", "part"]);
    assert_eq!(ask(&mut server.connect(), &[b"GET", b"key"]).bytes(), Some(&b"value"[..]));
    let info = server.info_text("server");
    assert!(info.lines().any(|line| line == "shards:3"), "{info}");
    let info = server.info_text("persistence");
    let region = info.lines().find(|line| line.starts_with("nvm_region:")).expect("what the region is");
    assert!(region.contains("MAP_SYNC") && region.contains("process crash"), "{region}");
    server.stop();
    let capacity = ["--capacity", "256MiB", "--nvm-guarantee", "any"];
    assert_eq!(starting(&folder, &place(&folder), &capacity).refused(), 2);
    assert!(folder.complaints().contains("keeps the size"), "{}", folder.complaints());
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
    refused(&data, &["--capacity", "1MiB", "--nvm-guarantee", "any"], "give it");
    assert!(!folder.path("store.region").exists(), "what is too small is not left behind");
    refused("nvm:emulated:64MiB", &["--nvm", "emulated:4MiB"], "redo log");
    refused("nvm:emulated:64MiB", &["--segment-size", "1MiB"], "segments");
    refused("nvm:emulated:4KiB", &[], "give it");
    refused(&folder.path("files").display().to_string(), &["--nvm-keys", "part"], "nvm:");
    refused("nvm:emulated:64MiB:bubble", &[], "preset");
    refused("nvm:emulated:64MiB,elsewhere", &[], "alone");
    let checked = program().args(["check", "nvm:emulated:64MiB"]).output().expect("the program runs");
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(!checked.status.success() && said.contains("no store"), "{said}");
    let target = folder.path("repaired").display().to_string();
    let repair = program().args(["check", "nvm:emulated:64MiB", "--repair", &target]).output();
    let said = String::from_utf8_lossy(&repair.expect("the program runs").stderr).into_owned();
    assert!(said.contains("nor repaired"), "{said}");
}

#[test]
fn a_region_has_one_server_at_a_time() {
    let folder = Folder::new();
    let server = start(&folder, &["--shards", "1"]);
    let more = ["--capacity", "128MiB", "--nvm-guarantee", "any", "--shards", "1"];
    assert_ne!(starting(&folder, &place(&folder), &more).refused(), 0);
    server.stop();
}

/// Flips a bit of every copy of `value` in the region's file.
fn rot(folder: &Folder, value: &[u8]) -> usize {
    let path = folder.path("store.region");
    let bytes = std::fs::read(&path).expect("the region is read");
    let file = std::fs::File::options().write(true).open(&path).expect("the region is opened");
    let windows = bytes.windows(value.len()).enumerate();
    let places: Vec<usize> = windows.filter(|(_, window)| *window == value).map(|(at, _)| at + 3).collect();
    for &at in &places {
        file.write_all_at(&[bytes[at] ^ 4], at as u64).expect("a byte is written");
    }
    places.len()
}

fn check(folder: &Folder) -> (Option<i32>, String, String) {
    let checked = program().args(["check", &place(folder), "--json"]).output().expect("the program runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (checked.status.code(), text(&checked.stdout), text(&checked.stderr))
}

#[test]
fn a_server_verifies_its_region_beside_its_traffic() {
    let folder = Folder::new();
    let server = start(&folder, &["--shards", "2"]);
    let mut client = server.connect();
    for number in 0..500 {
        let (key, value) = (format!("key-{number}"), format!("the value of number {number:04} is this"));
        assert!(ask(&mut client, &[b"SET", key.as_bytes(), value.as_bytes()]).is_ok());
    }
    let address = server.address.to_string();
    let check = || {
        let output =
            program().args(["check", "--server", &address, "--json"]).output().expect("the program runs");
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (output.status.code(), report, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, report, said) = check();
    assert_eq!(code, Some(0), "{report} {said}");
    assert!(report["records"].as_u64() >= Some(500) && report["lost_keys"] == 0, "{report}");
    assert!(rot(&folder, b"the value of number 0040 is this") > 0);
    let (code, report, said) = check();
    assert!(code == Some(3) && said.contains("--nvm-loss accept"), "{report} {said}");
    assert_eq!((&report["lost_keys"], &report["damage"]["record"]), (&1.into(), &1.into()), "{report}");
    // So does scrubbing, which needs nobody to ask.
    ask(&mut client, &[b"CONFIG", b"SET", b"scrub-rate", b"64mb"]);
    let clock = SystemClock::new();
    let until_us = clock.now().monotonic_us + PATIENCE.as_micros() as u64;
    while (0..2).any(|shard| server.info(&format!("scrub_passes_shard_{shard}")) == 0)
        || !folder.complaints().contains("scrubbing has found damage")
    {
        assert!(clock.now().monotonic_us < until_us, "no pass: {}", server.info_text("storage"));
        std::thread::yield_now();
    }
    assert_eq!(server.info("scrub_damaged_records"), 1);
    // All else goes on.
    assert!(ask(&mut client, &[b"SET", b"key-41", b"new"]).is_ok());
    assert_eq!(ask(&mut client, &[b"GET", b"key-41"]).bytes(), Some(&b"new"[..]));
    server.stop();
}

#[test]
fn rot_in_a_region_is_found_by_a_check_refused_at_the_start_and_accepted_when_told() {
    let folder = Folder::new();
    let server = start(&folder, &["--shards", "1"]);
    let mut client = server.connect();
    for number in 0..100 {
        let (key, value) = (format!("key-{number}"), format!("the value of number {number:04} is this"));
        assert!(ask(&mut client, &[b"SET", key.as_bytes(), value.as_bytes()]).is_ok());
    }
    assert!(ask(&mut client, &[b"SET", b"long", &[b'x'; 100_000]]).is_ok());
    let (code, _, said) = check(&folder);
    assert_eq!(code, Some(2), "in use: {said}");
    server.stop();
    let before = std::fs::read(folder.path("store.region")).expect("the region is read");
    let (code, found, said) = check(&folder);
    assert_eq!(code, Some(0), "{found} {said}");
    let report: serde_json::Value = serde_json::from_str(&found).expect("JSON");
    assert!(report["clean"] == true && report["live_keys"].as_u64() >= Some(101), "{found}");
    assert!(
        std::fs::read(folder.path("store.region")).expect("the region is read") == before,
        "it only reads"
    );
    assert!(rot(&folder, b"the value of number 0040 is this") > 0);
    assert!(rot(&folder, &[b'x'; 3_000]) > 0);
    let (code, found, said) = check(&folder);
    assert!(code == Some(3) && said.contains("damaged places"), "{found} {said}");
    let report: serde_json::Value = serde_json::from_str(&found).expect("JSON");
    let findings = report["findings"].as_array().expect("findings");
    // What lies behind the damaged record is served where the loss is accepted: only the two long values are lost.
    assert_eq!(report["lost_keys"], 2, "{found}");
    let of = |kind: &str| findings.iter().find(|finding| finding["kind"] == kind).expect("a finding").clone();
    for kind in ["record", "overflow", "unreachable"] {
        let finding = of(kind);
        assert!(
            finding["shard"] == 0 && finding["segment"].is_u64() && finding["block"].is_u64(),
            "{finding}"
        );
        assert_eq!(finding["key_hash"].as_str().map(str::len), Some(16), "{finding}");
    }
    assert_eq!(starting(&folder, &place(&folder), &["--nvm-guarantee", "any", "--shards", "1"]).refused(), 3);
    let said = folder.complaints();
    assert!(said.contains("shard 0") && said.contains("accepting the loss"), "{said}");
    let server = start(&folder, &["--shards", "1", "--nvm-loss", "accept"]);
    let info = server.info_text("storage");
    let lost = info.lines().find_map(|line| line.strip_prefix("nvm_lost_bytes:")).expect("a count");
    assert!(lost.trim().parse::<u64>().expect("a number") > 0, "{info}");
    let mut client = server.connect();
    for number in (0..100).filter(|number| *number != 40) {
        let answer = ask(&mut client, &[b"GET", format!("key-{number}").as_bytes()]);
        assert!(matches!(answer, Value::Bulk(value) if value.starts_with(b"the value of")), "{number}");
    }
    server.stop();
    let server = start(&folder, &["--shards", "1"]);
    assert!(server.info_text("storage").contains("nvm_lost_bytes:0"));
    server.stop();
}

#[test]
fn records_are_loaded_into_a_region_that_is_opened_as_its_server_opens_it() {
    let folder = Folder::new();
    let (place, records) = (place(&folder), folder.path("records.ndjson"));
    std::fs::write(&records, "{\"key\": \"a\", \"value\": \"1\"}\n{\"key\": \"b\", \"value\": \"2\"}\n")
        .expect("a file is written");
    let load = |more: &[&str]| {
        let mut command = program();
        command.arg("load").arg(&records).args(["--data", &place, "--memory", "32MiB"]).args(more);
        let output = command.output().expect("the program runs");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, told) = load(&["--shards", "2", "--capacity", "128MiB"]);
    assert!(code == Some(2) && told.contains("--nvm-guarantee any"), "{code:?} {told}");
    for more in [
        &["--shards", "2", "--capacity", "128MiB", "--nvm-guarantee", "any"][..],
        // What is there is opened with its own number of shards.
        &["--nvm-flush", "msync"],
    ] {
        let (code, told) = load(more);
        assert_eq!(code, Some(0), "{more:?}: {told}");
    }
    let server = start(&folder, &[]);
    assert_eq!(ask(&mut server.connect(), &[b"GET", b"b"]), Value::Bulk(b"2".to_vec()));
}

/// The file of a region has its name when it is whole, and what is begun in it afterwards is begun anew.
#[test]
fn a_kill_while_a_region_is_made_leaves_a_place_that_opens() {
    let mut random = SeededRandom::new(seed());
    for round in 0..12 {
        let folder = Folder::new();
        let file = ["--capacity", "128MiB", "--nvm-guarantee", "any", "--shards", "2"];
        let within = std::time::Duration::from_micros(random.below(80_000));
        starting(&folder, &place(&folder), &file).kill_within(within);
        let server = start(&folder, &["--shards", "2"]);
        let answer = ask(&mut server.connect(), &[b"SET", b"key", b"value"]);
        assert!(answer.error().is_none(), "round {round}: {answer:?}");
        server.stop();
    }
}
