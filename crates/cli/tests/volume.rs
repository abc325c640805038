//! Servers on volumes, as real processes: killed at random moments under load, with members that are cut, destroyed
//! and replaced; and the subcommands that make, examine and repair volumes.

use crate::common::{Folder, Server, ask, program, seed, spawn_command};
use crate::load::{Load, Round};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Output;
use tierstone_base::SeededRandom;
use tierstone_base::checksum::{checksum, salt};

/// Small segments, so that cleaning runs; reads after each start need the device.
const SMALL: [&str; 4] = ["--memory", "32MiB", "--shards", "2"];

/// A volume of a test.
struct Disks {
    folder: Folder,
}

impl Disks {
    /// A volume of `level` over `count` new files, made with `more` arguments.
    fn new(level: &str, count: usize, more: &[&str]) -> Disks {
        let disks = Disks { folder: Folder::new() };
        let made = disks.create(level, count, more);
        assert_eq!(made.status.code(), Some(0), "{}", text(&made));
        disks
    }

    fn create(&self, level: &str, count: usize, more: &[&str]) -> Output {
        let mut command = program();
        command.args(["volume", "create"]).arg(self.description());
        command.args((0..count).map(|index| self.member(index)));
        command.args(["--level", level, "--segment-size", "128KiB"]).args(more);
        if !more.contains(&"--size") {
            command.args(["--size", "24MiB"]);
        }
        command.output().expect("the program runs")
    }

    fn description(&self) -> PathBuf {
        self.folder.path("volume.toml")
    }

    fn member(&self, index: usize) -> PathBuf {
        self.folder.path(&format!("disk-{index}"))
    }

    /// `tierstone volume COMMAND` on it.
    fn volume(&self, command: &str, more: &[&str]) -> Output {
        let mut program = program();
        program.args(["volume", command]).arg(self.description()).args(more);
        program.output().expect("the program runs")
    }

    /// The same, which must succeed.
    fn well(&self, command: &str, more: &[&str]) -> String {
        let output = self.volume(command, more);
        assert_eq!(output.status.code(), Some(0), "{command}: {}", text(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn server(&self, more: &[&str]) -> Server {
        let mut command = program();
        command.arg("server").arg("--data").arg(self.description());
        command.args(["--listen", "127.0.0.1:0"]).args(SMALL).args(more);
        match spawn_command(&self.folder, command).listening() {
            Ok(server) => server,
            Err(status) => panic!("the server ended before it listened: {status}"),
        }
    }

    /// Cuts a member to its first MiB.
    fn cut(&self, index: usize) {
        let file = std::fs::File::options().write(true).open(self.member(index)).expect("a member is opened");
        file.set_len(1 << 20).expect("it is cut");
    }

    fn remove(&self, index: usize) {
        std::fs::remove_file(self.member(index)).expect("a member is removed");
    }
}

/// Everything that a program has said.
fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn what_was_acknowledged_on_a_volume_survives_kills_under_load() {
    for (level, count) in [("1", 2), ("10", 4), ("5", 3)] {
        let seed = seed();
        let mut random = SeededRandom::new(seed);
        let disks = Disks::new(level, count, &[]);
        let mut load = Load::new(random.next_u64());
        for round in 0..3 {
            let mut server = disks.server(&[]);
            load.verify(server.address).assert_clean(&format!("seed {seed}, level {level}, round {round}"));
            load.run(server.address, &Round::killed(&mut random, 1_500), &server.signaller(Signal::KILL));
            server.wait();
        }
        let server = disks.server(&[]);
        load.verify(server.address).assert_clean(&format!("seed {seed}, level {level}, after the last kill"));
        let info = server.info_text("volume");
        assert!(info.contains("volume_state:whole\r\n"), "{info}");
        server.stop();
        let compared = disks.well("check", &[]);
        assert!(compared.contains(" 0 differ"), "seed {seed}, level {level}: {compared}");
    }
}

#[test]
fn a_member_lost_while_the_server_is_down_is_said_and_replaced() {
    let seed = seed();
    let mut random = SeededRandom::new(seed);
    for (level, count, lost) in [("1", 2, 0), ("10", 4, 3), ("5", 3, 1)] {
        let disks = Disks::new(level, count, &[]);
        let mut load = Load::new(random.next_u64());
        let mut server = disks.server(&[]);
        load.run(server.address, &Round::killed(&mut random, 1_000), &server.signaller(Signal::KILL));
        server.wait();
        match level {
            "1" => disks.cut(lost),
            "10" => disks.remove(lost),
            // Its records are gone, the rest is as it was.
            _ => {
                let file = std::fs::File::options().write(true).open(disks.member(lost)).expect("opened");
                file.write_all_at(&[0xa5; 16 << 10], 0).expect("overwritten");
            }
        }
        assert_eq!(disks.volume("status", &[]).status.code(), Some(4));
        let server = disks.server(&[]);
        let when = format!("seed {seed}, level {level}, degraded");
        load.verify(server.address).assert_clean(&when);
        let info = server.info_text("volume");
        assert!(info.contains("volume_state:degraded\r\n") && info.contains("volume_failed:1\r\n"), "{info}");
        let said = disks.folder.complaints();
        assert!(said.contains(&format!("member {lost}")) && said.contains("degraded"), "{when}: {said}");
        load.run(server.address, &Round::whole(500), &|| {});
        server.stop();
        let fresh = disks.folder.path("fresh");
        let fresh = fresh.to_str().expect("a path that is text");
        disks.well("replace", &[&lost.to_string(), fresh]);
        assert!(disks.well("check", &[]).contains(" 0 differ"), "{when}");
        assert!(disks.well("status", &[]).contains("whole"), "{when}");
        // It holds by itself what the other has lost now.
        disks.cut(if level == "10" { 2 } else { (lost + 1) % count });
        let server = disks.server(&[]);
        load.verify(server.address).assert_clean(&format!("seed {seed}, level {level}, from the new member"));
    }
}

#[test]
fn a_member_that_fails_while_the_server_serves_is_left_out_and_the_server_goes_on() {
    let seed = seed();
    let mut random = SeededRandom::new(seed);
    for (level, count) in [("1", 2), ("5", 3)] {
        let disks = Disks::new(level, count, &[]);
        let mut load = Load::new(random.next_u64());
        let server = disks.server(&["--http", "127.0.0.1:0"]);
        load.run(server.address, &Round::whole(500), &|| {});
        let cut = random.below(count as u64) as usize;
        let round = Round::whole(2_000).signalled_at(200);
        load.run(server.address, &round, &|| disks.cut(cut));
        let when = format!("seed {seed}, level {level}, member {cut} cut");
        load.verify(server.address).assert_clean(&when);
        let info = server.info_text("volume");
        assert!(info.contains(&format!("volume_member_{cut}:state=failed")), "{when}: {info}");
        let said = disks.folder.complaints();
        assert!(said.contains("has failed and is left out"), "{when}: {said}");
        let metrics = metrics(server);
        assert!(metrics.contains("tierstone_volume_members{state=\"failed\"} 1"), "{when}: {metrics}");
        disks.remove(cut);
        disks.well("replace", &[&cut.to_string()]);
        let mut server = disks.server(&[]);
        load.verify(server.address).assert_clean(&format!("{when}, replaced"));
        load.run(server.address, &Round::killed(&mut random, 500), &server.signaller(Signal::KILL));
        server.wait();
        let server = disks.server(&[]);
        load.verify(server.address).assert_clean(&format!("{when}, replaced and killed"));
        assert!(server.info_text("volume").contains("volume_state:whole"), "{when}");
    }
}

/// What the HTTP door says; the server is stopped.
fn metrics(mut server: Server) -> String {
    let address = loop {
        let line = server.next_line();
        if let Some(rest) = line.strip_prefix("metrics on http://") {
            break rest.trim_end_matches("/metrics").to_owned();
        }
    };
    let mut stream = std::net::TcpStream::connect(&address).expect("the door is open");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    server.stop();
    answer
}

#[test]
fn a_member_is_filled_while_the_server_serves() {
    let disks = Disks::new("1", 2, &[]);
    let server = disks.server(&[]);
    let mut connection = server.connect();
    for number in 0..200u32 {
        ask(&mut connection, &[b"SET", number.to_string().as_bytes(), &[7; 4_000]]);
    }
    server.stop();
    disks.well("fail", &["1"]);
    disks.well("replace", &["1", "--no-fill"]);
    let server = disks.server(&[]);
    let mut connection = server.connect();
    // Requests wait for steps of filling, so that it ends within some of them.
    let mut asked = 0;
    while !server.info_text("volume").contains("volume_state:whole") {
        asked += 1;
        assert!(asked < 100_000, "it is never filled: {}", server.info_text("volume"));
        ask(&mut connection, &[b"SET", b"meanwhile", asked.to_string().as_bytes()]);
    }
    assert!(disks.folder.complaints().contains("degraded"), "{}", disks.folder.complaints());
    server.stop();
    assert!(disks.well("check", &[]).contains(" 0 differ"));
    disks.cut(0);
    let server = disks.server(&[]);
    assert_eq!(ask(&mut server.connect(), &[b"DBSIZE"]).integer().map(|count| count >= 200), Some(true));
}

/// Waits until the volume is whole, with requests meanwhile.
fn filled(server: &Server) {
    let mut connection = server.connect();
    let mut asked = 0;
    while !server.info_text("volume").contains("volume_state:whole") {
        asked += 1;
        assert!(asked < 100_000, "it is never filled: {}", server.info_text("volume"));
        ask(&mut connection, &[b"SET", b"meanwhile", asked.to_string().as_bytes()]);
    }
}

/// Sets how fast members are filled.
fn fill_at(disks: &Disks, rate: &str) {
    let description = std::fs::read_to_string(disks.description()).expect("it is read");
    std::fs::write(disks.description(), format!("fill_rate = '{rate}'\n{description}"))
        .expect("it is written");
}

#[test]
fn a_member_is_replaced_while_the_server_serves_and_a_kill_in_the_middle_goes_on_after_the_restart() {
    let seed = seed();
    let mut random = SeededRandom::new(seed);
    for (level, count) in [("1", 2), ("5", 3)] {
        let disks = Disks::new(level, count, &[]);
        // So slow that the kill comes while it is filled: minutes for the whole.
        fill_at(&disks, "64KiB");
        let when = format!("seed {seed}, level {level}");
        let mut load = Load::new(random.next_u64());
        let mut server = disks.server(&[]);
        let address = server.address.to_string();
        load.run(server.address, &Round::whole(500), &|| {});
        let online = |command: &str, more: &[&str]| {
            let more: Vec<&str> = more.iter().copied().chain(["--server", &address]).collect();
            disks.volume(command, &more)
        };
        let fresh = disks.folder.path("fresh").display().to_string();
        let refused = online("replace", &["1", &fresh]);
        assert_eq!(refused.status.code(), Some(2), "{when}: {}", text(&refused));
        assert!(text(&refused).contains("only a failed one is replaced"), "{when}: {}", text(&refused));
        assert!(!disks.folder.path("fresh").exists(), "nothing was made");
        let failed = online("fail", &["1"]);
        assert!(
            failed.status.success() && text(&failed).contains("the volume is degraded"),
            "{}",
            text(&failed)
        );
        // What holds something is not taken over, and what is not there is made.
        let taken = disks.folder.path("taken");
        std::fs::write(&taken, vec![7; 2 << 20]).expect("it is written");
        let refused = online("replace", &["1", &taken.display().to_string()]);
        assert_eq!(refused.status.code(), Some(2), "{when}: {}", text(&refused));
        let replaced = online("replace", &["1", &fresh, "--no-fill"]);
        assert!(
            replaced.status.success() && text(&replaced).contains("is being filled"),
            "{}",
            text(&replaced)
        );
        let info = server.info_text("volume");
        assert!(
            info.contains("volume_filling:1") && info.contains("filled=") && info.contains("/fresh"),
            "{info}"
        );
        load.run(server.address, &Round::killed(&mut random, 1_000), &server.signaller(Signal::KILL));
        server.wait();
        let described = std::fs::read_to_string(disks.description()).expect("it is read");
        assert!(described.contains("fresh"), "{when}: {described}");
        let described = described.replace("64KiB", "1GiB");
        std::fs::write(disks.description(), described).expect("it is written");
        let server = disks.server(&[]);
        load.verify(server.address).assert_clean(&when);
        filled(&server);
        server.stop();
        assert!(disks.well("check", &[]).contains(" 0 differ"), "{when}");
        // The new one counts: the others may go.
        disks.cut(0);
        let server = disks.server(&[]);
        load.verify(server.address).assert_clean(&when);
    }
}

#[test]
fn a_replacement_beside_the_traffic_waits_until_it_is_filled_and_wrong_servers_are_refused() {
    let disks = Disks::new("1", 2, &[]);
    let server = disks.server(&[]);
    let address = server.address.to_string();
    disks.well("fail", &["0", "--server", &address]);
    let said = disks.well("replace", &["0", "--server", &address]);
    assert!(said.contains("is replaced by") && said.contains("the volume is whole"), "{said}");
    let json = disks.well("fail", &["1", "--server", &address, "--json"]);
    let told: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!(told["state"], "degraded", "{json}");
    let other = Disks::new("1", 2, &[]);
    let refused = other.volume("fail", &["1", "--server", &address]);
    assert!(!refused.status.success() && text(&refused).contains("not that of"), "{}", text(&refused));
    let wrong = disks.volume("replace", &["1", "--server", &address, "--force"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong));
    let answer = server.connect().command(&[b"DEBUG", b"VOLUME", b"PAINT", b"1"]).expect("it is answered");
    assert!(answer.error().is_some_and(|error| error.contains("syntax")), "{answer:?}");
    let answer = server.connect().command(&[b"DEBUG", b"VOLUME", b"REPLACE", b"-1"]).expect("it is answered");
    assert!(answer.error().is_some_and(|error| error.contains("not an integer")), "{answer:?}");
}

#[test]
fn a_store_on_a_volume_is_checked_backed_up_and_restored() {
    let disks = Disks::new("5", 3, &[]);
    let server = disks.server(&[]);
    let mut connection = server.connect();
    for number in 0..300u32 {
        ask(&mut connection, &[b"SET", number.to_string().as_bytes(), &number.to_le_bytes().repeat(200)]);
    }
    // The volume is one server's.
    assert_eq!(disks.volume("status", &[]).status.code(), Some(2));
    server.stop();
    let run = |arguments: &[&str]| {
        let output = program().args(arguments).output().expect("the program runs");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output));
        text(&output)
    };
    let description = disks.description().display().to_string();
    let backup = disks.folder.path("backup").display().to_string();
    assert!(run(&["check", &description, "--json"]).contains("\"live_keys\": 300"));
    assert!(run(&["doctor", &description, "--time", "100ms"]).contains("raid5"));
    run(&["backup", "--data", &description, "--out", &backup]);
    let other = Disks::new("10", 4, &[]);
    run(&["restore", "--from", &backup, "--data", &other.description().display().to_string()]);
    let server = other.server(&[]);
    let mut connection = server.connect();
    for number in 0..300u32 {
        let value = ask(&mut connection, &[b"GET", number.to_string().as_bytes()]);
        assert_eq!(value.bytes(), Some(&number.to_le_bytes().repeat(200)[..]), "key {number}");
    }
}

#[test]
fn members_that_hold_something_are_refused_and_nothing_is_left_behind() {
    let disks = Disks { folder: Folder::new() };
    std::fs::write(disks.member(1), [vec![0; 300_000], vec![1; 24 << 20]].concat()).expect("written");
    let refused = disks.create("1", 2, &[]);
    let said = text(&refused);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("disk-1 holds data in its first MiB, at byte 300000"), "{said}");
    assert!(!disks.member(0).exists() && !disks.description().exists(), "what was made is removed again");
    let forced = disks.create("1", 2, &["--force"]);
    assert_eq!(forced.status.code(), Some(0), "{}", text(&forced));
    assert!(disks.well("check", &[]).contains(" 0 differ"), "members that were no zeros are filled");
    let server = disks.server(&[]);
    assert!(server.greeting.contains("new store"), "{}", server.greeting);
    ask(&mut server.connect(), &[b"SET", b"key", b"value"]);
    server.stop();
    let server = disks.server(&[]);
    assert!(ask(&mut server.connect(), &[b"GET", b"key"]).bytes().is_some());
    server.stop();
    std::fs::remove_file(disks.description()).expect("removed");
    let said = text(&disks.create("1", 2, &[]));
    assert!(said.contains("is member 0 of a volume"), "{said}");
}

#[test]
fn the_status_of_a_volume_that_is_served_says_who_tells_it() {
    let disks = Disks::new("1", 2, &[]);
    let server = disks.server(&[]);
    let output = disks.volume("status", &[]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("a server tells its own state of the volume: INFO volume"), "{said}");
    server.stop();
}

#[test]
fn segments_that_would_leave_a_part_of_the_volume_unused_are_refused() {
    let disks = Disks { folder: Folder::new() };
    // It takes no space.
    std::fs::File::create(disks.member(0)).unwrap().set_len(16 << 30).unwrap();
    let refused = disks.create("0", 1, &["--no-fill"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
    assert!(
        text(&refused).contains("of 128 KiB that is 15 GiB of the volume's 16 GiB: give larger ones"),
        "{}",
        text(&refused)
    );
    assert!(!disks.description().exists());
}

#[test]
fn a_volume_that_a_newer_program_wrote_is_called_neither_whole_nor_damaged() {
    let disks = Disks::new("1", 2, &[]);
    let path = disks.member(1);
    let mut bytes = std::fs::read(&path).expect("reads");
    let block = &mut bytes[..4096];
    block[8..12].copy_from_slice(&9u32.to_le_bytes());
    let generation = u64::from_le_bytes(block[32..40].try_into().expect("8"));
    let sum = checksum(salt(0x766f_6c75_6d65_7362, generation), &block[..4088]);
    block[4088..].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(&path, &bytes).expect("written");
    for command in ["status", "check", "fill", "fail", "replace"] {
        let more = if matches!(command, "fail" | "replace") { &["1"][..] } else { &[] };
        let output = disks.volume(command, more);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(3), "{command}: {said}");
        assert!(said.contains("format version 9") && said.contains("newer program"), "{command}: {said}");
    }
    assert!(std::fs::read(&path).expect("reads") == bytes, "something was written");
}

#[test]
fn wrong_usage_of_volumes_says_what_is_wrong() {
    let disks = Disks::new("1", 2, &[]);
    for (command, more, code, part) in [
        ("create", &["x", "y", "--level", "1"][..], 2, "exists already"),
        ("replace", &["1"], 2, "has not failed"),
        ("replace", &["7"], 2, "2 members"),
        ("fail", &["7"], 2, "the volume has 2 members, from number 0"),
        ("fail", &["1"], 0, "member 1 is taken out"),
        ("fail", &["0"], 2, "cannot be spared: no other member"),
    ] {
        let output = disks.volume(command, more);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(code), "{command}: {said}");
        assert!(said.contains(part), "{command}: {said}");
    }
    let other = Disks { folder: Folder::new() };
    for (level, count, more, part) in [
        ("1", 1, &[][..], "give two members"),
        ("10", 3, &[], "even number"),
        ("5", 3, &["--buffer", "flash"], "only pairs of mirrors"),
        ("1", 2, &["--size", "1"], "at least 73728 are needed"),
        ("1", 2, &["--buffer", "flash"], "--buffer-size"),
    ] {
        let output = other.create(level, count, more);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(2), "{level}, {more:?}: {said}");
        assert!(said.contains(part), "{level}, {more:?}: {said}");
        assert!(!other.member(0).exists(), "{level}, {more:?}: what was made is removed again");
    }
    std::fs::write(disks.description(), "members = ['disk-0', 'disk-1']\nlevel = 1\n").expect("written");
    let said = text(&disks.volume("status", &[]));
    assert!(said.contains("unknown field `level`"), "{said}");
    // Each says of itself which place it has.
    std::fs::write(disks.description(), "members = ['disk-1', 'disk-0']\n").expect("written");
    let said = text(&disks.volume("check", &[]));
    assert!(said.contains("give the devices in their order"), "{said}");
}

/// The crash point `replaced_by_name_only`: the description names the new member, which holds nothing yet.
#[test]
fn a_replacement_that_was_broken_off_leaves_the_old_member_out_and_is_begun_again() {
    let disks = Disks::new("1", 2, &[]);
    disks.well("fail", &["1"]);
    let fresh = std::fs::File::create(disks.folder.path("fresh")).expect("a file is made");
    fresh.set_len(25 << 20).expect("it has its length");
    let description = std::fs::read_to_string(disks.description()).expect("it is read");
    std::fs::write(disks.description(), description.replace("disk-1", "fresh")).expect("it is written");
    let server = disks.server(&[]);
    assert!(ask(&mut server.connect(), &[b"SET", b"key", b"value"]).is_ok());
    assert!(server.info_text("volume").contains("volume_member_1:state=failed"));
    server.stop();
    disks.well("replace", &["1"]);
    disks.cut(0);
    let server = disks.server(&[]);
    assert_eq!(ask(&mut server.connect(), &[b"GET", b"key"]).bytes(), Some(&b"value"[..]));
}

#[test]
fn a_foreign_file_system_under_the_name_of_a_failed_member_is_not_written_over() {
    let disks = Disks::new("1", 2, &[]);
    disks.well("fail", &["1"]);
    // As of a btrfs: 64 KiB of zeros, then what says so.
    let file = std::fs::File::options().write(true).open(disks.member(1)).expect("a member is opened");
    file.write_all_at(&[0; 64 << 10], 0).expect("it is written");
    file.write_all_at(b"_BHRfS_M", (64 << 10) + 64).expect("it is written");
    let before = std::fs::read(disks.member(1)).expect("it is read");
    let refused = disks.volume("replace", &["1"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused));
    assert!(text(&refused).contains("holds data in its first MiB"), "{}", text(&refused));
    assert!(std::fs::read(disks.member(1)).expect("it is read") == before, "it was written to");
    disks.well("replace", &["1", "--force"]);
}

#[test]
fn rows_that_differ_are_found() {
    let disks = Disks::new("1", 2, &[]);
    let file = std::fs::File::options().write(true).open(disks.member(1)).expect("a member is opened");
    file.write_all_at(&[9; 4096], 5 << 20).expect("it is written");
    let output = disks.volume("check", &["--json"]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("\"differing\": [\n    [\n      0,"), "{said}");
    disks.well("fail", &["1"]);
    disks.well("replace", &["1"]);
    assert!(disks.well("check", &[]).contains(" 0 differ"));
}

#[test]
fn a_server_with_disks_that_sleep_loses_nothing_in_kills() {
    let seed = seed();
    let mut random = SeededRandom::new(seed);
    // Staged on the flash, and in a region's file, which survives kills.
    for is_staged in [false, true] {
        let disks = Disks { folder: Folder::new() };
        let [flash, region] = ["flash", "region"].map(|name| disks.folder.path(name).display().to_string());
        let mut more = vec!["--buffer", &flash, "--buffer-size", "64MiB"];
        if is_staged {
            more.extend(["--staging", &region, "--staging-any-guarantee"]);
        }
        sleeps_through_kills(&disks, &more, seed, &mut random);
    }
}

#[test]
fn a_staging_memory_that_no_kill_spares_costs_a_whole_copy_and_loses_nothing() {
    let disks = Disks { folder: Folder::new() };
    let flash = disks.folder.path("flash").display().to_string();
    let weak = disks.folder.path("weak").display().to_string();
    let buffer = ["--buffer", &flash, "--buffer-size", "64MiB", "--staging"];
    let with = |staging| buffer.iter().copied().chain([staging]).collect::<Vec<&str>>();
    let refused = disks.create("1", 2, &with(&weak));
    assert!(
        !refused.status.success() && text(&refused).contains("staging_any_guarantee"),
        "{}",
        text(&refused)
    );
    for name in ["weak", "flash", "disk-0", "volume.toml"] {
        assert!(!disks.folder.path(name).exists(), "{name} is left behind");
    }
    let made = disks.create("1", 2, &with("emulated:4MiB"));
    assert!(made.status.success(), "{}", text(&made));
    sleeps_soon(&disks);
    let mut server = disks.server(&[]);
    assert!(
        server.info_text("volume").contains("volume_staging:emulated:4194304"),
        "{}",
        server.info_text("volume")
    );
    let mut load = Load::new(seed());
    falls_asleep(&server);
    load.run(server.address, &Round::whole(300), &|| {});
    falls_asleep(&server);
    server.signaller(Signal::KILL)();
    server.wait();
    let server = disks.server(&[]);
    load.verify(server.address).assert_clean("the staging memory is gone");
    let said = disks.folder.complaints();
    assert!(said.contains("no disk sleeps") && said.contains("staging memory"), "{said}");
    filled(&server);
    server.stop();
    let server = disks.server(&[]);
    assert!(disks.folder.complaints().contains("made anew"), "{}", disks.folder.complaints());
    falls_asleep(&server);
    load.verify(server.address).assert_clean("the buffer is made anew");
    server.stop();
    assert!(disks.well("check", &[]).contains(" 0 differ"));
}

/// Pairs sleep after 10 ms, however busy they are.
fn sleeps_soon(disks: &Disks) {
    let mut description = std::fs::read_to_string(disks.description()).expect("it is read");
    for (name, value) in [("spin_down_utilisation", "1.0"), ("spin_down_epochs", "1"), ("epoch_ms", "10")] {
        let line = description.lines().find(|line| line.starts_with(name)).expect("the setting is there");
        description = description.replace(line, &format!("{name} = {value}"));
    }
    std::fs::write(disks.description(), description).expect("it is written");
}

fn falls_asleep(server: &Server) {
    let mut asked = 0;
    while !server.info_text("volume").contains("state=asleep") {
        asked += 1;
        assert!(asked < 100_000, "no disk sleeps: {}", server.info_text("volume"));
    }
}

/// A server with disks that sleep, killed under load.
fn sleeps_through_kills(disks: &Disks, more: &[&str], seed: u64, random: &mut SeededRandom) {
    let made = disks.create("10", 4, more);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made));
    sleeps_soon(disks);
    let mut load = Load::new(random.next_u64());
    for round in 0..3 {
        let mut server = disks.server(&[]);
        let info = server.info_text("volume");
        assert!(
            info.contains("volume_spindle:no disk is stopped") && info.contains("volume_staging:"),
            "{info}"
        );
        load.verify(server.address).assert_clean(&format!("seed {seed}, sleeping, round {round}"));
        load.run(server.address, &Round::killed(random, 1_500), &server.signaller(Signal::KILL));
        server.wait();
    }
    let server = disks.server(&[]);
    load.verify(server.address).assert_clean(&format!("seed {seed}, sleeping, after the last kill"));
    load.run(server.address, &Round::whole(1_000), &|| {});
    falls_asleep(&server);
    server.stop();
    assert!(disks.well("check", &[]).contains(" 0 differ"), "seed {seed}");
}

#[test]
fn ranges_of_a_volume_are_declared_cold_and_hot_again() {
    let disks = Disks { folder: Folder::new() };
    let flash = disks.folder.path("flash").display().to_string();
    let made = disks.create("10", 6, &["--buffer", &flash, "--buffer-size", "64MiB", "--spare", "1MiB"]);
    assert_eq!(made.status.code(), Some(0), "{}", text(&made));
    let ranges =
        || -> serde_json::Value { serde_json::from_str(&disks.well("ranges", &["--json"])).expect("JSON") };
    let all = ranges();
    assert!(all.as_array().is_some_and(|runs| runs.len() == 1) && all[0]["class"] == "hot", "{all}");
    assert!(disks.well("declare", &["cold", "1MiB", "2MiB"]).contains("cold"));
    let three = ranges();
    assert!(
        three[1]["class"] == "cold" && three[1]["start"] == 1 << 20 && three[1]["end"] == 2 << 20,
        "{three}"
    );
    // It stays so, under a server too, and nothing needs a start while all disks turn.
    disks.server(&[]).stop();
    assert_eq!(ranges(), three);
    assert!(
        three.as_array().is_some_and(|runs| runs.iter().all(|run| run["needs_start"] == false)),
        "{three}"
    );
    disks.well("declare", &["hot", "0", "4MiB"]);
    assert_eq!(ranges(), all);
    for wrong in [["cold", "2MiB", "1MiB"], ["cold", "0", "1000TiB"]] {
        let refused = disks.volume("declare", &wrong);
        assert!(
            refused.status.code() == Some(2) && text(&refused).contains("no range"),
            "{}",
            text(&refused)
        );
    }
}
