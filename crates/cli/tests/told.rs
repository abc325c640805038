//! What is given to the program and cannot be, or has no effect, is told; and a start that is refused leaves the store as it was.

use crate::common::{Folder, PATIENCE, Server, ask, program, spawn, spawn_command};
use rustix::process::Signal;
use std::net::TcpListener;
use std::path::Path;
use tierstone_base::{Clock, SystemClock};

const SMALL: [&str; 6] = ["--segment-size", "128KiB", "--memory", "32MiB", "--shards", "2"];

fn small<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SMALL.iter().copied().chain(more.iter().copied()).collect()
}

/// The arguments of a server whose data lie in these directories of the folder.
fn on(folder: &Folder, directories: &[&str]) -> Vec<String> {
    let paths: Vec<String> = directories.iter().map(|name| folder.path(name).display().to_string()).collect();
    let all = ["server", "--listen", "127.0.0.1:0", "--data"].into_iter().map(str::to_owned);
    all.chain([paths.join(",")]).chain(SMALL.iter().map(|text| (*text).to_owned())).collect()
}

fn start_on(folder: &Folder, directories: &[&str]) -> Server {
    let mut command = program();
    command.args(on(folder, directories));
    match spawn_command(folder, command).listening() {
        Ok(server) => server,
        Err(status) => panic!("it ended before it listened: {status}\n{}", folder.complaints()),
    }
}

#[test]
fn a_server_that_ends_at_once_does_not_say_that_it_ended_in_good_order() {
    let folder = Folder::new();
    let mut server = Server::start(&folder, &small(&[]));
    // It answers nothing more.
    let _ = server.connect().command(&[b"SHUTDOWN", b"NOSAVE"]);
    assert!(server.wait().success());
    assert_eq!(server.next_line(), "stopped at once: the next start recovers the store");
    let server = Server::start(&folder, &small(&[]));
    assert!(server.greeting.contains("recovered after a crash"), "{}", server.greeting);
    server.stop();
}

/// A reload, which `deploy/tierstone.service` asks for by a signal, ends no server that has nothing to read again.
#[test]
fn a_reload_without_tls_is_told_to_have_no_effect() {
    let folder = Folder::new();
    let server = Server::start(&folder, &small(&[]));
    let clock = SystemClock::new();
    for round in 1..=2 {
        server.signal(Signal::HUP);
        while folder.complaints().matches("SIGHUP has no effect").count() < round {
            assert!(clock.now().monotonic_us < PATIENCE.as_micros() as u64, "nothing is told");
            ask(&mut server.connect(), &[b"PING"]);
        }
    }
    server.stop();
}

#[test]
fn a_limit_on_open_files_below_the_clients_is_told_and_none_above_it_is_taken() {
    let folder = Folder::new();
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -n 500 && exec \"$@\"", "sh"]).arg(program().get_program());
    for (name, _) in program().get_envs() {
        limited.env_remove(name);
    }
    limited.args(on(&folder, &["data"])).args(["--maxclients", "300"]);
    let Ok(server) = spawn_command(&folder, limited).listening() else {
        panic!("it does not start: {}", folder.complaints())
    };
    let said = folder.complaints();
    // The store comes first, with up to half of them.
    assert!(said.contains("the limit on open files is 500: maxclients is 250 instead of 600"), "{said}");
    assert!(said.contains("the store opens up to"), "{said}");
    let mut client = server.connect();
    let most = ask(&mut client, &[b"CONFIG", b"GET", b"maxclients"]);
    assert_eq!(most.items().and_then(|pair| pair[1].bytes()), Some(&b"250"[..]));
    let refused = client.command(&[b"CONFIG", b"SET", b"maxclients", b"251"]).unwrap();
    let error = refused.error().unwrap_or_default().into_owned();
    assert!(error.ends_with("the specified number of clients, try with 250"), "{error}");
    ask(&mut client, &[b"CONFIG", b"SET", b"maxclients", b"249"]);
    server.stop();
}

#[test]
fn a_limit_out_of_its_range_is_named_as_it_was_given() {
    let folder = Folder::new();
    for (setting, value, told) in [
        ("--maxclients", "0", "maxclients: 1 to 1000000"),
        ("--output-limit", "1KiB", "output-limit: 0 for none, or at least output-pause"),
        ("--output-pause", "0", "output-pause: at least 1 byte"),
        ("--input-limit", "1", "input-limit: at least 65536 bytes"),
        ("--tcp-keepalive", "40000", "tcp-keepalive: 0 to 32767 s"),
    ] {
        let output = program().args(on(&folder, &["data"])).args([setting, value]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(told), "{setting} {value}: {said}");
    }
}

#[test]
fn a_variable_that_is_no_setting_is_told_and_the_server_starts() {
    let folder = Folder::new();
    let mut command = program();
    command.args(on(&folder, &["data"]));
    for (name, value) in [
        ("TIERSTONE_MEMROY", "1GiB"),
        ("TIERSTONE_SEED", "7"),
        ("TIERSTONE_PASSWORD", "secret"),
        ("TIERSTONE_PORT", "tcp://10.0.0.1:6379"),
    ] {
        command.env(name, value);
    }
    let Ok(server) = spawn_command(&folder, command).listening() else {
        panic!("it does not start: {}", folder.complaints())
    };
    let said = folder.complaints();
    assert!(
        said.contains("TIERSTONE_MEMROY is no setting") && said.contains("TIERSTONE_MEMORY meant"),
        "{said}"
    );
    assert_eq!(said.matches("is no setting").count(), 1, "{said}");
    server.stop();
}

#[test]
fn a_capacity_below_the_least_is_refused_with_the_least_and_that_one_serves() {
    let folder = Folder::new();
    assert_eq!(spawn(&folder, &["--memory", "32MiB", "--shards", "2", "--capacity", "1"]).refused(), 2);
    let said = folder.complaints();
    assert!(said.contains("a capacity of 1 bytes") && said.contains("14 MiB at least"), "{said}");
    assert!(!folder.data().exists(), "nothing is made");
    let least = (14 * (128 << 10)).to_string();
    let less = (14 * (128 << 10) - 1).to_string();
    assert_eq!(spawn(&folder, &small(&["--capacity", &less])).refused(), 2);
    Server::start(&folder, &small(&["--capacity", &least])).stop();
    // The store's own segments count, and a start that is refused leaves it closed in good order.
    let more = ["--memory", "32MiB", "--segment-size", "256KiB", "--capacity", &least];
    assert_eq!(spawn(&folder, &[&more[..], &["--shards", "3"]].concat()).refused(), 2);
    let server = Server::start(&folder, &[&more[..], &["--shards", "2"]].concat());
    assert!(!server.greeting.contains("after a crash"), "{}", server.greeting);
    let said = folder.complaints();
    assert!(said.contains("segment-size has no effect") && said.contains("segments of 128 KiB"), "{said}");
    server.stop();
}

#[test]
fn directories_that_a_store_has_not_yet_are_told_when_they_are_added() {
    let folder = Folder::new();
    start_on(&folder, &["a"]).stop();
    start_on(&folder, &["a"]).stop();
    assert!(!folder.complaints().contains("added"), "{}", folder.complaints());
    let mut command = program();
    command.args(on(&folder, &["a", "b"]));
    let mut server = spawn_command(&folder, command).listening().expect("it starts");
    // The last line before the address is of the store; that of the directory came before it.
    let added = folder.path("b").display().to_string();
    let said = folder.complaints();
    assert!(said.contains("added to the store") && said.contains(&added), "{said}");
    ask(&mut server.connect(), &[b"SET", b"key", b"value"]);
    server.kill();
    server.wait();
    let mut alone = program();
    alone.args(on(&folder, &["a"]));
    assert_eq!(spawn_command(&folder, alone).refused(), 2);
    start_on(&folder, &["b", "a"]).stop();
    // It may be moved.
    std::fs::rename(folder.path("b"), folder.path("c")).expect("it is moved");
    start_on(&folder, &["a", "c"]).stop();
    assert_eq!(folder.complaints().matches("added to the store").count(), 1, "{}", folder.complaints());
    let loaded = folder.path("some.ndjson");
    std::fs::write(&loaded, "{\"key\":\"loaded\",\"value\":\"one\"}\n").expect("written");
    let all = ["a", "c", "d"].map(|name| folder.path(name).display().to_string()).join(",");
    let output = program().arg("load").arg(&loaded).args(["--data", &all]).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("added") && said.contains("/d to the store"), "{said}");
}

#[test]
fn files_of_tls_without_an_address_for_it_are_refused_and_an_address_without_them_too() {
    for (arguments, word) in [
        (&["--tls-cert-file", "cert.pem"][..], "tls-cert-file needs tls-listen"),
        (&["--tls-key-file", "key.pem"], "tls-key-file needs tls-listen"),
        (&["--tls-ca-cert-file", "ca.pem"], "tls-ca-cert-file needs tls-listen"),
        (&["--tls-auth-clients", "no"], "tls-auth-clients needs tls-listen"),
        (&["--tls-listen", "127.0.0.1:0"], "tls-listen needs tls-cert-file"),
        (&["--tls-listen", "127.0.0.1:0", "--tls-cert-file", "cert.pem"], "tls-listen needs tls-key-file"),
    ] {
        let folder = Folder::new();
        assert_eq!(spawn(&folder, &small(arguments)).refused(), 2, "{arguments:?}");
        assert!(folder.complaints().contains(word), "{arguments:?}: {}", folder.complaints());
        assert!(!folder.data().exists(), "{arguments:?}");
    }
}

#[test]
fn another_number_of_databases_than_the_store_has_is_told() {
    let wholly = |folder: &Folder| format!("nvm:{}", folder.path("region").display());
    let files = |folder: &Folder| folder.path("store").display().to_string();
    for place in [&wholly as &dyn Fn(&Folder) -> String, &files] {
        let folder = Folder::new();
        let data = place(&folder);
        let said_with = |more: &[&str]| {
            let mut command = program();
            command.args(["server", "--listen", "127.0.0.1:0", "--data", &data, "--capacity", "64MiB"]);
            command.args(["--memory", "32MiB", "--shards", "1", "--nvm-guarantee", "any"]).args(more);
            let Ok(server) = spawn_command(&folder, command).listening() else {
                panic!("{more:?}: {}", folder.complaints())
            };
            server.stop();
            folder.complaints().matches("databases has no effect: the store was made with 3").count()
        };
        // What is said stands one below the other.
        assert_eq!(said_with(&["--databases", "3"]), 0);
        assert_eq!(said_with(&["--databases", "3"]), 0);
        assert_eq!(said_with(&[]), 0, "nothing was asked for");
        assert_eq!(said_with(&["--databases", "16"]), 1, "a default that is given is asked for");
        assert_eq!(said_with(&[]), 1);
    }
}

#[test]
fn what_emulated_memory_cannot_promise_is_refused_to_who_asks_for_it() {
    for arguments in [["--nvm", "emulated:8MiB"], ["--data", "nvm:emulated:64MiB"]] {
        let folder = Folder::new();
        let mut command = program();
        command.args(["server", "--listen", "127.0.0.1:0", "--nvm-guarantee", "power-fail"]).args(arguments);
        if !arguments.contains(&"--data") {
            command.arg("--data").arg(folder.data());
        }
        let output = command.output().expect("the program runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains("emulated memory is gone when the process ends"), "{arguments:?}: {said}");
        assert!(!folder.data().exists(), "{arguments:?}: nothing is made");
    }
}

#[test]
fn settings_without_effect_are_told_and_others_are_not() {
    let region = ["--data", "nvm:emulated:64MiB"];
    let files = |more: &[&'static str]| small(more);
    let wholly = |more: &[&'static str]| -> Vec<&'static str> {
        let memory = ["--memory", "32MiB", "--shards", "1"];
        region.iter().chain(&memory).chain(more).copied().collect()
    };
    for (arguments, told) in [
        (files(&["--nvm-size", "8MiB"]), "nvm-size has no effect"),
        (files(&["--nvm-guarantee", "any"]), "nvm-guarantee has no effect"),
        (files(&["--nvm-flush", "msync"]), "nvm-flush has no effect"),
        (files(&["--output-soft-time", "5"]), "output-soft-time has no effect"),
        (wholly(&["--index", "hash", "--nvm-keys", "part"]), "nvm-keys has no effect"),
        (wholly(&["--backend", "threads"]), "backend has no effect"),
        (wholly(&["--direct-io", "off"]), "direct-io has no effect"),
        (files(&["--output-soft-time", "5", "--output-soft-limit", "1MiB"]), ""),
        (files(&["--nvm", "emulated:8MiB", "--nvm-size", "8MiB"]), "nvm-size has no effect"),
        (files(&["--nvm", "emulated:8MiB", "--nvm-flush", "msync"]), "nvm-flush has no effect"),
        (wholly(&["--nvm-flush", "msync"]), "nvm-flush has no effect"),
        (wholly(&["--nvm-keys", "part"]), "nvm-keys has no effect"),
        (files(&["--nvm", "emulated:8MiB", "--nvm-guarantee", "any"]), ""),
        (wholly(&["--index", "ordered", "--nvm-keys", "part", "--nvm-guarantee", "any"]), ""),
    ] {
        let folder = Folder::new();
        let mut command = program();
        command.args(["server", "--listen", "127.0.0.1:0"]).args(&arguments);
        if !arguments.contains(&"--data") {
            command.arg("--data").arg(folder.data());
        }
        let Ok(server) = spawn_command(&folder, command).listening() else {
            panic!("{arguments:?}: {}", folder.complaints())
        };
        let said = folder.complaints();
        assert!(said.contains(told), "{arguments:?}: {said}");
        assert_eq!(
            said.matches("has no effect").count(),
            usize::from(!told.is_empty()),
            "{arguments:?}: {said}"
        );
        server.stop();
    }
}

#[test]
fn an_http_address_that_is_taken_leaves_the_store_as_it_was_closed() {
    let folder = Folder::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let door = taken.local_addr().expect("it is bound").to_string();
    assert_eq!(spawn(&folder, &small(&["--http", &door])).refused(), 2);
    assert!(folder.complaints().contains(&format!("cannot listen on {door}")), "{}", folder.complaints());
    assert!(!folder.data().exists(), "nothing is made");
    let server = Server::start(&folder, &SMALL);
    ask(&mut server.connect(), &[b"SET", b"key", b"value"]);
    server.stop();
    let clean = |data: &Path| {
        let output = program().arg("check").arg(data).arg("--json").output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).contains("\"clean\": true")
    };
    assert!(clean(&folder.data()));
    assert_eq!(spawn(&folder, &small(&["--http", &door])).refused(), 2);
    assert!(clean(&folder.data()), "it was opened");
    // So do meters that cannot be.
    assert_eq!(spawn(&folder, &small(&["--energy-meters", "none", "--energy-tools", "true"])).refused(), 2);
    assert!(clean(&folder.data()), "it was opened");
    let server = Server::start(&folder, &SMALL);
    assert!(server.greeting.contains("1 records, ready"), "{}", server.greeting);
    server.stop();
}

#[test]
fn pieces_of_large_values_are_told_apart_from_keys() {
    let folder = Folder::new();
    let server = Server::start(&folder, &["--memory", "32MiB", "--shards", "2", "--capacity", "64MiB"]);
    let mut connection = server.connect();
    for key in [&b"one"[..], b"two"] {
        ask(&mut connection, &[b"SET", key, b"short"]);
    }
    ask(&mut connection, &[b"SET", b"large", &vec![b'x'; 1 << 20]]);
    let out = folder.path("copy").display().to_string();
    let run = |words: &[&str]| {
        let output = program().args(words).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said} {}", String::from_utf8_lossy(&output.stderr));
        said
    };
    let row = |said: &str, name: &str| -> u64 {
        let line =
            said.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("no {name}: {said}"));
        line.split_whitespace().last().and_then(|word| word.parse().ok()).expect("a number")
    };
    let target = folder.path("new").display().to_string();
    for words in [
        vec!["backup", "--server", &server.address.to_string(), "--out", &out],
        vec!["backup", "--verify", &out],
        vec!["restore", "--from", &out, "--data", &target],
    ] {
        let said = run(&words);
        assert_eq!(row(&said, "of these keys of databases"), 3, "{said}");
        let pieces = row(&said, "of these pieces of large values");
        assert!(pieces >= 16 && pieces + 3 == row(&said, "records that it shows"), "{said}");
    }
    let json = run(&["backup", "--verify", &out, "--json"]);
    assert!(json.contains("\"keys\": 3"), "{json}");
    server.stop();
    let said = run(&["check", &folder.data().display().to_string()]);
    assert_eq!(row(&said, "keys"), 3, "{said}");
    assert!(row(&said, "pieces of large values") >= 16, "{said}");
}
