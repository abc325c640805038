//! A server whose redo log lies in a region's file: killed under load it loses nothing, without the region it says what
//! is lost, and it claims no more than the file gives.
//!
//! The files lie on an ordinary file system here: what a store to them survives is the death of the process.

use crate::common::{Folder, Server, ask, drivers, program, seed, spawn};
use crate::load::{Load, Round};
use rustix::process::Signal;
use tierstone_base::SeededRandom;
use tierstone_client::Value;

const SMALL: [&str; 8] =
    ["--segment-size", "128KiB", "--capacity", "16MiB", "--memory", "32MiB", "--nvm-guarantee", "any"];

/// The arguments of a server with its region in the folder.
fn with_region(folder: &Folder, more: &[&str]) -> Vec<String> {
    let region = folder.path("redo.region").display().to_string();
    let nvm = ["--nvm".to_owned(), region, "--nvm-size".to_owned(), "4MiB".to_owned()];
    let usual = SMALL.iter().chain(more).map(|text| (*text).to_owned());
    usual.chain(nvm).collect()
}

fn start(folder: &Folder, arguments: &[String]) -> Server {
    Server::start(folder, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn what_was_acknowledged_after_a_fence_survives_kills_under_load() {
    for driver in drivers() {
        let seed = seed();
        let mut random = SeededRandom::new(seed);
        let folder = Folder::new();
        let mut load = Load::new(random.next_u64());
        for (round, shards) in ["2", "1", "3", "2", "2"].into_iter().enumerate() {
            let arguments = with_region(&folder, &["--driver", driver, "--shards", shards]);
            let mut server = start(&folder, &arguments);
            load.verify(server.address).assert_clean(&format!("seed {seed}, {driver}, round {round}"));
            let end = Round::killed(&mut random, 3_000);
            load.run(server.address, &end, &server.signaller(Signal::KILL));
            server.wait();
        }
        let server = start(&folder, &with_region(&folder, &["--driver", driver, "--shards", "2"]));
        load.verify(server.address).assert_clean(&format!("seed {seed}, {driver}, after the last kill"));
        load.run(server.address, &Round::whole(4_000), &|| {});
        let info = server.info_text("persistence");
        assert!(info.contains("redo_log:on\r\n") && info.contains("redo_log_lost:0\r\n"), "{info}");
        assert!(server.info_of_any("redo_fences") > 0, "nothing was answered for by the region");
        server.stop();
        // A stop in good order leaves nothing in the region.
        let server = Server::start(&folder, &SMALL[..6]);
        load.verify(server.address).assert_clean(&format!("seed {seed}, {driver}, without the region"));
        assert!(server.info_text("persistence").contains("redo_log:off\r\n"));
        server.stop();
    }
}

#[test]
fn a_stop_without_time_for_its_end_leaves_the_store_to_the_next_start() {
    let folder = Folder::new();
    let value = [7; 300];
    let key = |round: u32, number: u32| format!("key:{round}:{number}");
    let (rounds, keys) = (3, 500);
    for round in 0..rounds {
        let mut server = start(&folder, &with_region(&folder, &["--shards", "2", "--stop-timeout", "0"]));
        let mut connection = server.connect();
        for number in 0..keys {
            let answer = ask(&mut connection, &[b"SET", key(round, number).as_bytes(), &value]);
            assert!(answer.is_ok(), "{answer:?}");
        }
        server.signal(Signal::TERM);
        let code = server.wait().code();
        let said = folder.complaints();
        assert_eq!(code == Some(1), said.contains("left as by a kill"), "{code:?}: {said}");
        assert!(matches!(code, Some(0 | 1)), "{code:?}: {said}");
    }
    let server = start(&folder, &with_region(&folder, &["--shards", "2"]));
    let mut connection = server.connect();
    for (round, number) in (0..rounds).flat_map(|round| (0..keys).map(move |number| (round, number))) {
        let answer = ask(&mut connection, &[b"GET", key(round, number).as_bytes()]);
        assert_eq!(answer, Value::Bulk(value.to_vec()), "{}", key(round, number));
    }
    server.stop();
}

#[test]
fn a_killed_server_starts_without_its_region_only_when_the_loss_is_accepted() {
    let folder = Folder::new();
    let mut server = start(&folder, &with_region(&folder, &["--shards", "1"]));
    assert!(ask(&mut server.connect(), &[b"SET", b"key", b"value"]).is_ok());
    server.kill();
    server.wait();
    let checked = program().arg("check").arg(folder.data()).output().expect("the program runs");
    let table = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success() && table.contains("newest writes, in the redo log"), "{table}");
    assert_eq!(spawn(&folder, &SMALL[..6]).refused(), 2);
    let said = folder.complaints();
    assert!(
        said.contains("redo log in persistent memory") && said.contains("accepting their loss"),
        "{said}"
    );
    let accepts: Vec<&str> = SMALL.iter().copied().chain(["--shards", "1", "--nvm-loss", "accept"]).collect();
    let server = Server::start(&folder, &accepts);
    let info = server.info_text("persistence");
    assert!(info.contains("redo_log:off\r\n") && info.contains("redo_log_lost:1\r\n"), "{info}");
    server.stop();
}

/// Damage of what was durable in the region of a killed server: found by a check, refused at the start, and counted where
/// the loss is accepted.
#[test]
fn rot_in_the_region_of_a_killed_server_is_found_by_a_check_refused_and_accepted_when_told() {
    let folder = Folder::new();
    let path = folder.path("redo.region");
    let check = || {
        let mut checked = program();
        checked.args(["check", "--nvm"]).arg(&path).arg(folder.data());
        let output = checked.output().expect("the program runs");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    };
    let value = |number: u8, turn: u8| [&[turn; 8][..], &[number; 200]].concat();
    let records_of = |said: &str| -> Option<u64> {
        let line = said.lines().find(|line| line.contains("records in the redo log"))?;
        line.split_whitespace().last()?.parse().ok()
    };
    // Until the process dies before the device has what came last, which takes it half a second.
    let turn = (1..=50).find(|&turn| {
        let mut server = start(&folder, &with_region(&folder, &["--shards", "1"]));
        let mut client = server.connect();
        for number in 1..=60 {
            assert!(ask(&mut client, &[b"SET", &[b'k', number], &value(number, turn)]).is_ok());
        }
        server.kill();
        server.wait();
        let (code, said) = check();
        assert_eq!(code, Some(0), "{said}");
        records_of(&said).is_some_and(|records| records > 1)
    });
    let turn = turn.expect("a server that dies at once");
    let whole = std::fs::read(&path).expect("the region can be read");
    check();
    assert!(std::fs::read(&path).expect("the region can be read") == whole, "a check changed the region");
    // Nobody speaks for the last write.
    let wanted = value(59, turn);
    let at = whole.windows(208).rposition(|bytes| bytes == wanted).expect("it is in the region");
    let mut damaged = whole.clone();
    damaged[at + 77] ^= 16;
    std::fs::write(&path, &damaged).expect("the region can be written");
    let (code, said) = check();
    assert!(code == Some(3) && said.contains("records of shard 0, at byte"), "{said}");
    let arguments = with_region(&folder, &["--shards", "1"]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    assert_eq!(spawn(&folder, &arguments).refused(), 3);
    let said = folder.complaints();
    assert!(said.contains("is damaged: records of shard 0") && said.contains("--nvm-loss accept"), "{said}");
    let accepts = [arguments.as_slice(), &["--nvm-loss", "accept"]].concat();
    let mut server = Server::start(&folder, &accepts);
    let info = server.info_text("persistence");
    assert!(info.contains("redo_log:on\r\n") && info.contains("redo_log_lost:1\r\n"), "{info}");
    assert!(server.info_of_any("nvm_lost_bytes") > 200, "{info}");
    let mut client = server.connect();
    for number in 1..=60u8 {
        let expected = if number == 59 { 0 } else { 1 };
        assert_eq!(ask(&mut client, &[b"EXISTS", &[b'k', number]]), Value::Integer(expected), "{number}");
    }
    // It is over: nothing is damaged any more.
    server.kill();
    server.wait();
    assert_eq!(check().0, Some(0));
    start(&folder, &with_region(&folder, &["--shards", "1"])).stop();
}

#[test]
fn a_region_that_would_not_survive_the_loss_of_power_is_refused_unless_told_otherwise() {
    let folder = Folder::new();
    let region = folder.path("redo.region").display().to_string();
    assert_eq!(spawn(&folder, &["--memory", "32MiB", "--shards", "1", "--nvm", &region]).refused(), 2);
    let said = folder.complaints();
    assert!(said.contains("DAX") && said.contains("loss of power"), "{said}");
    assert!(!folder.path("redo.region").exists(), "what cannot be used is not left behind");
}

#[test]
fn a_region_that_was_damaged_cut_or_is_in_use_is_refused_in_words_and_the_right_one_serves_again() {
    let folder = Folder::new();
    let arguments = with_region(&folder, &["--shards", "1"]);
    let mut server = start(&folder, &arguments);
    assert!(ask(&mut server.connect(), &[b"SET", b"key", b"value"]).is_ok());
    let (path, kept) = (folder.path("redo.region"), folder.path("kept.region"));
    // In use: by this server, and another one whose data lie elsewhere wants it.
    let other = Folder::new();
    let mut taken = with_region(&other, &["--shards", "1"]);
    for argument in &mut taken {
        if argument.ends_with("redo.region") {
            *argument = path.display().to_string();
        }
    }
    let refused = |folder: &Folder, arguments: &[String], word: &str| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        assert_ne!(spawn(folder, &arguments).refused(), 0, "{word}");
        let said = folder.complaints();
        assert!(said.lines().last().is_some_and(|line| line.contains(word)), "{word}: {said}");
    };
    refused(&other, &taken, "another process");
    server.kill();
    server.wait();
    std::fs::copy(&path, &kept).expect("the region is copied");
    let whole = std::fs::read(&kept).expect("the region is read");
    let damaged = |word: &str, damage: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        damage(&mut bytes);
        std::fs::write(&path, bytes).expect("the region is written");
        refused(&folder, &arguments, word);
    };
    damaged("no region", &|bytes| bytes[..8].copy_from_slice(b"elsewise"));
    damaged("version 9", &|bytes| bytes[8] = 9);
    damaged("torn or damaged", &|bytes| bytes[16..32].fill(7));
    damaged("empty header", &|bytes| bytes[..32].fill(0));
    damaged("cut or stretched", &|bytes| bytes.truncate(1 << 20));
    damaged("cut or stretched", &|bytes| bytes.extend([0; 4096]));
    // A region of which nothing is left: the newest writes are not there.
    damaged("accepting their loss", &|bytes| bytes[4096..].fill(0));
    std::fs::copy(&kept, &path).expect("the region is put back");
    let larger: Vec<String> =
        arguments.iter().map(|word| if word == "4MiB" { "8MiB".into() } else { word.clone() }).collect();
    let server = start(&folder, &larger);
    assert_eq!(ask(&mut server.connect(), &[b"GET", b"key"]).bytes(), Some(&b"value"[..]));
    assert!(folder.complaints().contains("keeps the size"), "{}", folder.complaints());
    server.stop();
}

#[test]
fn a_region_in_the_memory_of_the_process_is_never_called_durable() {
    let folder = Folder::new();
    let small = ["--memory", "32MiB", "--shards", "1", "--segment-size", "128KiB"];
    let with =
        |region: &'static str| -> Vec<&str> { small.iter().copied().chain(["--nvm", region]).collect() };
    let server = Server::start(&folder, &with("emulated:4MiB:dcpmm"));
    assert!(ask(&mut server.connect(), &[b"SET", b"key", b"value"]).is_ok());
    let info = server.info_text("persistence");
    assert!(info.contains("redo_log_guarantee:emulated\r\n"), "{info}");
    let guarantee = info.lines().find(|line| line.starts_with("durability_guarantee:")).expect("a guarantee");
    assert!(guarantee.contains("emulated"), "{guarantee}");
    server.stop();
    // Too small for a redo log: the device answers, and INFO says why.
    let server = Server::start(&folder, &with("emulated:16KiB"));
    assert!(ask(&mut server.connect(), &[b"SET", b"key", b"other"]).is_ok());
    let info = server.info_text("persistence");
    assert!(info.contains("redo_log:too-small\r\n") && info.contains("are needed"), "{info}");
    server.stop();
    assert_eq!(spawn(&folder, &with("emulated:4MiB:bubble")).refused(), 2);
    assert!(folder.complaints().contains("preset"), "{}", folder.complaints());
}
