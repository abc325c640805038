//! `tierstone backup` and `tierstone restore`: of running servers under load, of closed stores, of what a kill leaves.

use crate::common::{Folder, PATIENCE, Server, ask, drivers, program, spawn_command};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use tierstone::BackupWriter;
use tierstone_client::{Connection, Value};

const SMALL: [&str; 8] =
    ["--segment-size", "512KiB", "--capacity", "128MiB", "--memory", "64MiB", "--password", "pass"];
const WRITERS: usize = 3;
const KEYS: usize = 6;
/// Far from now, whenever this runs.
const FAR_MS: &[u8] = b"8796093022208";

fn run(arguments: &[&str]) -> Output {
    program().args(arguments).output().expect("the program runs")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said} {}", String::from_utf8_lossy(&output.stderr));
    said
}

fn connect(server: &Server) -> Connection {
    connect_to(server.address)
}

fn connect_to(address: SocketAddr) -> Connection {
    let mut connection = Connection::connect(address, PATIENCE).expect("the server takes a connection");
    ask(&mut connection, &[b"AUTH", b"pass"]);
    connection
}

fn large(number: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7) as u8 ^ (at >> 13) as u8 ^ number).collect()
}

/// Values of all lengths in several databases, and keys that expire.
fn fill(connection: &mut Connection) {
    for number in 0..4_000u32 {
        let value = format!("{number:08}").repeat(40);
        ask(connection, &[b"SET", format!("still:{number}").as_bytes(), value.as_bytes()]);
    }
    for (number, len) in [(1u8, 100_000), (2, 300_000), (3, 3 << 20)] {
        ask(connection, &[b"SET", &[b'L', number], &large(number, len)]);
    }
    ask(connection, &[b"SETBIT", b"sparse", b"40000000", b"1"]);
    ask(connection, &[b"SET", b"expiring", b"soon", b"PXAT", FAR_MS]);
    ask(connection, &[b"SET", b"expired", b"gone", b"PX", b"1"]);
    for (database, value) in [(b"6", b"a"), (b"7", b"b")] {
        ask(connection, &[b"SELECT", database]);
        ask(connection, &[b"SET", b"which", value]);
    }
    ask(connection, &[b"SELECT", b"0"]);
}

fn get(connection: &mut Connection, key: &[u8]) -> Option<Vec<u8>> {
    ask(connection, &[b"GET", key]).bytes().map(<[u8]>::to_vec)
}

fn check_still(connection: &mut Connection) {
    for number in 0..4_000u32 {
        let value = get(connection, format!("still:{number}").as_bytes());
        assert_eq!(value, Some(format!("{number:08}").repeat(40).into_bytes()), "{number}");
    }
    for (number, len) in [(1u8, 100_000), (2, 300_000), (3, 3 << 20)] {
        assert!(get(connection, &[b'L', number]) == Some(large(number, len)), "large value {number}");
    }
    assert_eq!(ask(connection, &[b"BITCOUNT", b"sparse"]).integer(), Some(1));
    assert_eq!(ask(connection, &[b"STRLEN", b"sparse"]).integer(), Some(5_000_001));
    let time = ask(connection, &[b"PEXPIRETIME", b"expiring"]).integer();
    assert_eq!(time.map(|time| time.to_string().into_bytes()).as_deref(), Some(FAR_MS));
    assert_eq!(get(connection, b"expired"), None);
    let mut both: Vec<u8> = Vec::new();
    for database in [b"6", b"7"] {
        ask(connection, &[b"SELECT", database]);
        both.extend(get(connection, b"which").into_iter().flatten());
        assert_eq!(ask(connection, &[b"DBSIZE"]).integer(), Some(1));
    }
    ask(connection, &[b"SELECT", b"0"]);
    both.sort();
    assert_eq!(both, b"ab", "half of a SWAPDB");
}

fn name(writer: usize, what: &str, key: usize) -> Vec<u8> {
    format!("{what}:{writer}:{key}").into_bytes()
}

/// Ends the writers, also where the test fails.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Counts its keys up, one after the other, each when the one before was answered; then two sets of keys in any shards,
/// each at once. Large values and databases change as well.
fn write(address: SocketAddr, writer: usize, stop: &AtomicBool) {
    let mut connection = connect_to(address);
    let mut round = 0u64;
    while !stop.load(Ordering::Relaxed) {
        round += 1;
        let value = format!("{round:09}{}", "x".repeat(500)).into_bytes();
        for key in 0..KEYS {
            ask(&mut connection, &[b"SET", &name(writer, "one", key), &value]);
        }
        let keys: Vec<Vec<u8>> = (0..3).map(|key| name(writer, "mset", key)).collect();
        ask(&mut connection, &[b"MSET", &keys[0], &value, &keys[1], &value, &keys[2], &value]);
        ask(&mut connection, &[b"MULTI"]);
        for key in 0..2 {
            ask(&mut connection, &[b"SET", &name(writer, "exec", key), &value]);
        }
        ask(&mut connection, &[b"EXEC"]);
        if round.is_multiple_of(16) {
            ask(&mut connection, &[b"SET", &name(writer, "large", 0), &large(round as u8, 200_000)]);
            ask(&mut connection, &[b"SELECT", b"9"]);
            ask(&mut connection, &[b"SET", &value[..9], b"1"]);
            ask(&mut connection, &[b"FLUSHDB"]);
            ask(&mut connection, &[b"SELECT", b"0"]);
            ask(&mut connection, &[b"SWAPDB", b"6", b"7"]);
        }
    }
}

/// The counters of each writer are those of one moment, and none is older than `at_least`.
fn check_moment(connection: &mut Connection, at_least: &[u64]) {
    for (writer, at_least) in at_least.iter().enumerate() {
        let mut counts = |what: &str, keys: usize| -> Vec<u64> {
            let value = |key| get(connection, &name(writer, what, key));
            let number =
                |value: Vec<u8>| String::from_utf8_lossy(&value[..9]).parse::<u64>().expect("a number");
            (0..keys).map(value).map(|value| value.map_or(0, number)).collect()
        };
        let (one, mset, exec) = (counts("one", KEYS), counts("mset", 3), counts("exec", 2));
        assert!(one.is_sorted_by(|one, other| one >= other), "writer {writer}: {one:?}");
        assert!(mset.iter().all(|count| *count == mset[0]), "writer {writer}: half of an MSET, {mset:?}");
        assert!(exec.iter().all(|count| *count == exec[0]), "writer {writer}: half of an EXEC, {exec:?}");
        let (last, first) = (one[KEYS - 1], one[0]);
        assert!(last >= mset[0] && mset[0] >= exec[0], "writer {writer}: {one:?}, {mset:?}, {exec:?}");
        assert!(first <= exec[0] + 1, "writer {writer}: {one:?}, {mset:?}, {exec:?}");
        assert!(exec[0] >= *at_least, "writer {writer}: {exec:?}, {at_least} was answered before");
        let value = get(connection, &name(writer, "large", 0));
        let is_whole = value.is_none_or(|value| (0..=255).any(|number| large(number, 200_000) == value));
        assert!(is_whole, "writer {writer}: a large value is mixed");
    }
}

/// Where a store lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    Device,
    Region,
}

impl Medium {
    fn place(self, folder: &Folder) -> String {
        match self {
            Medium::Device => text(&folder.data()).to_owned(),
            Medium::Region => format!("nvm:{}", text(&folder.path("region"))),
        }
    }

    /// What a store there is made with.
    fn options(self) -> &'static [&'static str] {
        match self {
            Medium::Device => &["--capacity", "128MiB"],
            Medium::Region => &["--capacity", "128MiB", "--nvm-guarantee", "any"],
        }
    }

    fn serve(self, folder: &Folder, more: &[&str]) -> Server {
        let place = self.place(folder);
        let common = ["server", "--data", &place, "--listen", "127.0.0.1:0", "--memory", "64MiB"];
        let mut command = program();
        command.args(common).args(["--password", "pass"]).args(self.options()).args(more);
        match spawn_command(folder, command).listening() {
            Ok(server) => server,
            Err(status) => panic!("the server ended before it listened: {status}\n{}", folder.complaints()),
        }
    }
}

#[test]
fn a_backup_of_a_server_under_load_is_one_moment_and_is_restored_with_any_number_of_shards() {
    backups_under_load((Medium::Device, &["--segment-size", "512KiB"]), Medium::Device);
}

#[test]
fn a_backup_of_a_store_in_persistent_memory_under_load_is_restored_there_and_on_devices() {
    backups_under_load((Medium::Region, &[]), Medium::Device);
    backups_under_load((Medium::Region, &[]), Medium::Region);
}

fn backups_under_load((medium, options): (Medium, &[&str]), new: Medium) {
    for driver in drivers() {
        for (shards, new_shards) in [("2", "3"), ("1", "2")] {
            let folder = Folder::new();
            let more = ["--driver", driver, "--shards", shards];
            let server = medium.serve(&folder, &[options, &more].concat());
            let mut connection = connect(&server);
            fill(&mut connection);
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for writer in 0..WRITERS {
                    let (address, stop) = (server.address, &stop);
                    scope.spawn(move || write(address, writer, stop));
                }
                let _stop = Stop(&stop);
                for round in 0..3 {
                    let exec = |writer| get(&mut connection, &name(writer, "exec", 0));
                    let number = |value: Vec<u8>| String::from_utf8_lossy(&value[..9]).parse().unwrap_or(0);
                    let before: Vec<u64> =
                        (0..WRITERS).map(exec).map(|value| value.map_or(0, number)).collect();
                    let out = folder.path(&format!("backup {round}"));
                    let address = server.address.to_string();
                    let arguments =
                        ["--server", &address, "--password", "pass", "--out", text(&out), "--json"];
                    let said = succeeded(&run(&[&["backup"], &arguments[..]].concat()));
                    assert!(said.contains("\"records\""), "{said}");
                    assert_eq!(succeeded(&run(&["backup", "--verify", text(&out), "--json"])), said);
                    check_restored(new, &out, (round, new_shards), &before);
                }
            });
            server.stop();
            let out = folder.path("closed");
            succeeded(&run(&["backup", "--data", &medium.place(&folder), "--out", text(&out)]));
            check_restored(new, &out, (3, new_shards), &[]);
        }
    }
}

fn check_restored(medium: Medium, backup: &Path, (round, shards): (u32, &str), at_least: &[u64]) {
    let new = Folder::new();
    let place = medium.place(&new);
    let arguments = ["restore", "--from", text(backup), "--data", &place, "--shards", shards];
    let arguments = [&arguments[..], medium.options()].concat();
    let said = succeeded(&run(&arguments));
    let filled = said.lines().find_map(|line| line.strip_prefix("shards of the new store")).map(str::trim);
    assert!(filled == Some(shards) && said.contains("shards of the store that it is of"), "{said}");
    let restored = medium.serve(&new, &["--shards", shards]);
    let mut connection = connect(&restored);
    check_still(&mut connection);
    check_moment(&mut connection, at_least);
    // New large values do not take the ids of old ones.
    for number in 0..20u8 {
        ask(&mut connection, &[b"SET", &[b'N', number], &large(number, 150_000)]);
    }
    check_still(&mut connection);
    restored.stop();
    let refused = run(&arguments);
    assert_eq!(refused.status.code(), Some(2), "round {round}: {refused:?}");
}

#[test]
fn a_kill_of_the_server_leaves_a_backup_that_nobody_takes_for_whole() {
    let folder = Folder::new();
    let mut server = Server::start(&folder, &[&SMALL[..], &["--shards", "2"]].concat());
    let mut connection = connect(&server);
    fill(&mut connection);
    let out = folder.path("backup");
    let mut writer = BackupWriter::create(&out).expect("a directory is made");
    let start = ask(&mut connection, &[b"DEBUG", b"BACKUP", b"START"]);
    writer.frame(start.bytes().expect("a frame")).expect("it is written");
    for _ in 0..3 {
        let frame = ask(&mut connection, &[b"DEBUG", b"BACKUP", b"NEXT"]);
        writer.frame(frame.bytes().expect("a frame")).expect("it is written");
    }
    server.kill();
    assert!(connection.command(&[b"DEBUG", b"BACKUP", b"NEXT"]).is_err());
    drop(writer);
    let verified = run(&["backup", "--verify", text(&out)]);
    assert_eq!(verified.status.code(), Some(3), "{verified:?}");
    assert!(String::from_utf8_lossy(&verified.stderr).contains("not complete"), "{verified:?}");
    let new = folder.path("new");
    let restored = run(&["restore", "--from", text(&out), "--data", text(&new)]);
    assert_eq!(restored.status.code(), Some(3), "{restored:?}");
    let unreachable = server.address.to_string();
    let refused = run(&["backup", "--server", &unreachable, "--out", text(&folder.path("other"))]);
    assert!(refused.status.code().is_some_and(|code| code != 0), "{refused:?}");
    let server = Server::start(&folder, &[&SMALL[..], &["--shards", "3"]].concat());
    check_still(&mut connect(&server));
}

/// The rules of `docs/operations.md` for a user that takes backups, but for the name and the password.
fn rules_for_backups() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let rules = page.lines().find_map(|line| line.strip_prefix("ACL SETUSER backup on >PASSWORD "));
    rules.expect("the page has the rules").split(' ').map(str::to_owned).collect()
}

#[test]
fn a_user_with_the_least_rights_takes_backups_and_checks_and_nothing_else() {
    let folder = Folder::new();
    let server = Server::start(&folder, &SMALL);
    let mut operator = connect(&server);
    ask(&mut operator, &[b"SET", b"key", b"value"]);
    let rules = rules_for_backups();
    let mut words: Vec<&[u8]> = vec![b"ACL", b"SETUSER", b"backup", b"on", b">word"];
    words.extend(rules.iter().map(String::as_bytes));
    ask(&mut operator, &words);
    let address = server.address.to_string();
    let as_backup = ["--server", &address, "--user", "backup", "--password", "word"];
    let out = folder.path("backup");
    succeeded(&run(&[&["backup"], &as_backup[..], &["--out", text(&out)]].concat()));
    succeeded(&run(&["backup", "--verify", text(&out)]));
    succeeded(&run(&[&["check"], &as_backup[..]].concat()));
    // Nobody was refused anything on the way.
    assert_eq!(ask(&mut operator, &[b"ACL", b"LOG"]), Value::Array(Vec::new()));
    let mut connection =
        Connection::connect(server.address, PATIENCE).expect("the server takes a connection");
    ask(&mut connection, &[b"AUTH", b"backup", b"word"]);
    let others: [&[&[u8]]; 5] = [
        &[b"GET", b"key"],
        &[b"DEBUG", b"SLEEP", b"0"],
        &[b"DEBUG", b"FLUSHALL"],
        &[b"CONFIG", b"GET", b"*"],
        &[b"ACL", b"WHOAMI"],
    ];
    for words in others {
        let answer = connection.command(words).expect("it is answered");
        assert!(answer.error().is_some_and(|error| error.starts_with("NOPERM")), "{words:?}: {answer:?}");
    }
    server.stop();
}

#[test]
fn one_connection_has_the_backup_and_it_ends_with_it() {
    let folder = Folder::new();
    let server = Server::start(&folder, &[&SMALL[..], &["--shards", "2"]].concat());
    let (mut one, mut other) = (connect(&server), connect(&server));
    fill(&mut one);
    let refused = |connection: &mut Connection, words: &[&[u8]]| {
        let answer = connection.command(words).expect("the server answers");
        answer.error().map(|text| text.into_owned())
    };
    assert!(refused(&mut one, &[b"DEBUG", b"BACKUP", b"NEXT"]).is_some());
    assert!(refused(&mut one, &[b"DEBUG", b"BACKUP", b"RESTART"]).is_some());
    ask(&mut one, &[b"DEBUG", b"BACKUP", b"START"]);
    for _ in 0..8 {
        // Connections come to shards by chance: whichever coordinates says so.
        let error = refused(&mut connect(&server), &[b"DEBUG", b"BACKUP", b"START"]);
        assert!(error.as_ref().is_some_and(|text| text.contains("under way")), "{error:?}");
    }
    assert!(refused(&mut other, &[b"DEBUG", b"BACKUP", b"NEXT"]).is_some());
    ask(&mut other, &[b"SET", b"still:1", b"later"]);
    ask(&mut one, &[b"DEBUG", b"BACKUP", b"END"]);
    ask(&mut other, &[b"DEBUG", b"BACKUP", b"START"]);
    drop(other);
    let begins = |connection: &mut Connection| {
        (0..100_000).any(|_| refused(connection, &[b"DEBUG", b"BACKUP", b"START"]).is_none())
    };
    assert!(begins(&mut one), "the backup outlasted its connection");
    let without = run(&["backup", "--server", &server.address.to_string(), "--out", text(&folder.path("x"))]);
    assert_eq!(without.status.code(), Some(2), "{without:?}");
    assert!(String::from_utf8_lossy(&without.stderr).contains("NOAUTH"), "{without:?}");
    assert!(!folder.path("x").exists(), "a refused backup made a directory");
    ask(&mut one, &[b"DEBUG", b"BACKUP", b"END"]);
    let mut frames = 0;
    ask(&mut one, &[b"DEBUG", b"BACKUP", b"START"]);
    while let Value::Bulk(_) = ask(&mut one, &[b"DEBUG", b"BACKUP", b"NEXT"]) {
        frames += 1;
    }
    assert!(frames > 4, "{frames} frames");
}

#[test]
fn a_closed_store_is_backed_up_and_nothing_is_written_over() {
    let folder = Folder::new();
    let server = Server::start(&folder, &SMALL);
    fill(&mut connect(&server));
    let (data, out) = (folder.data(), folder.path("backup"));
    let in_use = run(&["backup", "--data", text(&data), "--out", text(&out)]);
    assert_eq!(in_use.status.code(), Some(2), "{in_use:?}");
    server.stop();
    for inside in [data.clone(), data.join("backup"), folder.path(".")] {
        let refused = run(&["backup", "--data", text(&data), "--out", text(&inside)]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.contains("lies apart"), "{said}");
    }
    assert!(!data.join("backup").exists(), "nothing is made");
    succeeded(&run(&["backup", "--data", text(&data), "--out", text(&out)]));
    let again = run(&["backup", "--data", text(&data), "--out", text(&out)]);
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    let nowhere = run(&["backup", "--data", text(&data), "--out", "/proc/no-backup"]);
    let said = String::from_utf8_lossy(&nowhere.stderr);
    assert!(nowhere.status.code() == Some(2) && said.contains("/proc/no-backup: "), "{said}");
    let twice = ["r5", "./r5"].map(|name| folder.path(name).display().to_string()).join(",");
    let refused = run(&["restore", "--from", text(&out), "--data", &twice]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("named twice"), "{said}");
    assert!(!folder.path("r5").exists(), "nothing is made");
    check_restored(Medium::Device, &out, (0, "2"), &[]);
    assert_eq!(run(&["backup", "--out", text(&out)]).status.code(), Some(2));
    assert_eq!(run(&["backup", "--data", text(&data)]).status.code(), Some(2));
    assert_eq!(run(&["backup", "--verify", text(&folder.path("none"))]).status.code(), Some(2));
}

/// Takes a backup of a server, since `base` if there is one; gives what is said.
fn back_up(server: &Server, out: &Path, base: Option<&Path>) -> Output {
    let address = server.address.to_string();
    let mut arguments =
        vec!["backup", "--server", &address, "--password", "pass", "--out", text(out), "--json"];
    if let Some(base) = base {
        arguments.extend(["--since", text(base)]);
    }
    run(&arguments)
}

/// The bytes of the files of a backup.
fn bytes_of(backup: &Path) -> u64 {
    let files = std::fs::read_dir(backup).expect("a directory is read").flatten();
    files.map(|file| file.metadata().expect("a file is there").len()).sum()
}

#[test]
fn what_has_changed_since_a_backup_is_taken_from_a_server_and_restored_with_it() {
    let folder = Folder::new();
    let arguments = [&SMALL[..], &["--shards", "2"]].concat();
    let mut server = Server::start(&folder, &arguments);
    let mut connection = connect(&server);
    fill(&mut connection);
    let paths = ["one", "two", "three", "four"].map(|name| folder.path(name));
    succeeded(&back_up(&server, &paths[0], None));
    for number in 0..10u32 {
        ask(&mut connection, &[b"SET", format!("new:{number}").as_bytes(), &large(4, 1_000)]);
    }
    ask(&mut connection, &[b"DEL", &[b'L', 3]]);
    ask(&mut connection, &[b"SELECT", b"6"]);
    ask(&mut connection, &[b"FLUSHDB"]);
    let said = succeeded(&back_up(&server, &paths[1], Some(&paths[0])));
    // How many backups it needs, and what they show together, is known when they have been read.
    assert!(
        said.contains("\"since\"") && !said.contains("\"bases\"") && !said.contains("\"shown\""),
        "{said}"
    );
    assert!(bytes_of(&paths[1]) * 20 < bytes_of(&paths[0]), "{} bytes", bytes_of(&paths[1]));
    // What is deleted comes back in no restored store, whatever became of the server.
    server.kill();
    server.wait();
    let server = Server::start(&folder, &arguments);
    let mut connection = connect(&server);
    ask(&mut connection, &[b"SET", &[b'L', 4], &large(9, 200_000)]);
    ask(&mut connection, &[b"PERSIST", b"expiring"]);
    ask(&mut connection, &[b"DEL", b"new:7"]);
    succeeded(&back_up(&server, &paths[2], Some(&paths[1])));
    let said = succeeded(&run(&["backup", "--verify", text(&paths[2]), "--json"]));
    assert!(said.contains("\"bases\": 2") && said.contains("\"shown\""), "{said}");
    // A base of another time, or none, makes nothing.
    let missing = back_up(&server, &paths[3], Some(&folder.path("none")));
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
    assert!(!paths[3].exists());
    let bad = connection.command(&[b"DEBUG", b"BACKUP", b"START", b"nonsense"]).expect("an answer");
    assert!(bad.error().is_some_and(|text| text.contains("makes no sense")), "{bad:?}");
    let bad = connection.command(&[b"DEBUG", b"BACKUP", b"NEXT", b"more"]).expect("an answer");
    assert!(bad.error().is_some(), "{bad:?}");
    server.stop();
    // A store that is closed has the shards of the base for it.
    let closed =
        ["backup", "--data", text(&folder.data()), "--since", text(&paths[2]), "--out"].map(str::to_owned);
    let closed: Vec<&str> = closed.iter().map(String::as_str).collect();
    let said = succeeded(&run(&[&closed[..], &[text(&folder.path("closed"))]].concat()));
    assert!(said.contains("since the backup in"), "{said}");
    let other = Folder::new();
    let server = Server::start(&other, &arguments);
    let foreign = back_up(&server, &paths[3], Some(&paths[2]));
    assert_eq!(foreign.status.code(), Some(2), "{foreign:?}");
    assert!(String::from_utf8_lossy(&foreign.stderr).contains("another store"), "{foreign:?}");
    assert!(!paths[3].exists());
    server.stop();
    check_restored_chain(&folder, &paths);
}

/// Restores the third of these backups, with the second one elsewhere.
fn check_restored_chain(folder: &Folder, paths: &[PathBuf]) {
    let new = Folder::new();
    let data = new.data();
    let restored = [
        "restore",
        "--from",
        text(&paths[2]),
        "--data",
        text(&data),
        "--shards",
        "3",
        "--capacity",
        "128MiB",
    ];
    // Moved away, it is found where it is said to be.
    std::fs::create_dir(folder.path("away")).expect("a directory is made");
    std::fs::rename(&paths[1], folder.path("away").join("two")).expect("it is moved");
    let missing = run(&restored);
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
    assert!(String::from_utf8_lossy(&missing.stderr).contains("--base"), "{missing:?}");
    let away = folder.path("away").join("two");
    succeeded(&run(&[&restored[..], &["--base", text(&away)]].concat()));
    let server = Server::start(&new, &[&SMALL[..], &["--shards", "3"]].concat());
    let mut connection = connect(&server);
    for number in (0..4_000u32).step_by(7) {
        let value = format!("{number:08}").repeat(40);
        assert_eq!(get(&mut connection, format!("still:{number}").as_bytes()), Some(value.into_bytes()));
    }
    for (number, len) in [(1u8, Some(100_000)), (2, Some(300_000)), (3, None), (4, None)] {
        let wanted = if number == 4 { Some(large(9, 200_000)) } else { len.map(|len| large(number, len)) };
        assert!(get(&mut connection, &[b'L', number]) == wanted, "large value {number}");
    }
    assert_eq!(get(&mut connection, b"new:6"), Some(large(4, 1_000)));
    assert_eq!(get(&mut connection, b"new:7"), None);
    assert_eq!(ask(&mut connection, &[b"PTTL", b"expiring"]), Value::Integer(-1));
    ask(&mut connection, &[b"SELECT", b"6"]);
    assert_eq!(get(&mut connection, b"which"), None);
    ask(&mut connection, &[b"SELECT", b"7"]);
    assert_eq!(get(&mut connection, b"which"), Some(b"b".to_vec()));
    server.stop();
}
