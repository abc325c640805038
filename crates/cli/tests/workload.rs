//! `tierstone workload` and `tierstone lab what-if`: from a server's own traffic to a comparison of memories.

use crate::common::{Folder, PATIENCE, Server, ask, program};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value as Json;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Output, Stdio};
use tierstone_base::{Clock, SystemClock};
use tierstone_client::{Connection, Value};

fn run(arguments: &[&str]) -> Output {
    program().args(arguments).output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Json {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

/// Waits until some other connection of the server watches.
fn await_watcher(connection: &mut Connection) {
    let clock = SystemClock::new();
    loop {
        let list = ask(connection, &[b"CLIENT", b"LIST"]);
        if text(list.bytes().expect("a text")).contains("flags=O") {
            return;
        }
        assert!(u128::from(clock.now().monotonic_us) < PATIENCE.as_micros(), "nobody watches");
        std::thread::yield_now();
    }
}

/// What the clients do: three keys that only are read, twenty that are written and read, some other commands.
fn drive(connection: &mut Connection) {
    for key in 0..20 {
        let (key, value) = (format!("key{key}"), vec![b'v'; 50 + key]);
        ask(connection, &[b"SET", key.as_bytes(), &value, b"EX", b"600"]);
        ask(connection, &[b"GET", key.as_bytes()]);
    }
    for key in ["secret1", "secret2", "secret3"] {
        ask(connection, &[b"GET", key.as_bytes()]);
    }
    ask(connection, &[b"INCR", b"counter"]);
    ask(connection, &[b"COPY", b"counter", b"counted"]);
    ask(connection, &[b"PING"]);
    ask(connection, &[b"DEL", b"key0", b"key1"]);
}

/// Records what [`drive`] does into `trace`, until an interrupt.
fn record(folder: &Folder, trace: &Path, more: &[&str]) -> (Json, String) {
    let server = Server::start(folder, &["--memory", "64MiB", "--shards", "1"]);
    let mut connection = server.connect();
    for (key, bytes) in [("secret1", 10), ("secret2", 20), ("secret3", 30)] {
        ask(&mut connection, &[b"SET", key.as_bytes(), &vec![b's'; bytes]]);
    }
    let recording = program()
        .args(["workload", "record", "--seconds", "600", "--json", "--address", &server.address.to_string()])
        .arg("--output")
        .arg(trace)
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    await_watcher(&mut connection);
    // The watcher of the test sees the last line about when the recording does, which goes on for a tenth of a second.
    let mut watcher = server.connect();
    ask(&mut watcher, &[b"MONITOR"]);
    drive(&mut connection);
    let is_last =
        |line: Value| matches!(line, Value::Simple(line) if line.windows(5).any(|part| part == b"\"DEL\""));
    while !is_last(watcher.receive_one().expect("a line comes")) {}
    kill_process(Pid::from_child(&recording), Signal::INT).expect("the signal is sent");
    let ended = recording.wait_with_output().expect("the program ends");
    assert_eq!(ended.status.code(), Some(1), "{}", text(&ended.stderr));
    (serde_json::from_slice(&ended.stdout).expect("it prints JSON"), text(&ended.stderr))
}

#[test]
fn a_servers_traffic_is_recorded_described_replayed_and_compared() {
    let folder = Folder::new();
    let trace = folder.path("load.trace");
    let (recorded, said) = record(&folder, &trace, &["--ask-sizes"]);
    assert!(said.contains("interrupted; what was heard until then is in the file"), "{said}");
    let operations = &recorded["counts"]["operations"];
    for (name, count) in [("write", 20), ("read", 23), ("update", 1), ("delete", 2), ("copy", 1)] {
        assert_eq!(operations[name], count, "{name} of {operations}");
    }
    assert_eq!(recorded["sizes"], 4, "three keys that were only read, and the counter");
    let file = trace.to_str().expect("a plain path");

    let described = json(&run(&["workload", "describe", file, "--json"]));
    assert_eq!((&described["operations"], &described["is_cut"]), (&47.into(), &false.into()));
    assert!(text(&run(&["workload", "describe", file]).stdout).contains("skew of popularity"));

    let data = folder.path("disk");
    std::fs::create_dir(&data).expect("a folder is made");
    let disk = data.to_str().expect("a plain path");
    let small = ["--set", "memory=32MiB", "--set", "shards=1", "--set", "capacity=256MiB", "--data", disk];
    let replayed = json(&run(&[
        &["workload", "replay", file, "--closed", "--json", "--nvm", "emulated:20MiB:pcm"],
        &small[..],
    ]
    .concat()));
    assert_eq!((&replayed["plan"]["operations"], &replayed["plan"]["loaded_keys"]), (&46.into(), &4.into()));
    assert_eq!(replayed["plan"]["loaded_of_assumed_size"], 0);
    assert_eq!(replayed["plan"]["not_replayed"]["copy"], 1);
    assert_eq!(replayed["run"]["outcome"]["misses"], 0);
    assert_eq!(
        (&replayed["run"]["reads"]["count"], &replayed["run"]["writes"]["count"]),
        (&23.into(), &23.into())
    );
    assert!(replayed["cost"]["redo_fences"].as_u64().expect("a number") > 0);
    let shown = run(&[&["workload", "replay", file, "--speed", "1000"], &small[..]].concat());
    assert!(
        text(&shown.stdout).contains("1 commands could not be replayed (copy 1)"),
        "{}",
        text(&shown.stdout)
    );

    let out = folder.path("results");
    let place = out.to_str().expect("a plain path");
    let what_if =
        ["lab", "what-if", file, "--presets", "dram,pcm", "--rounds", "1", "--closed", "--nvm-size", "20MiB"];
    let compared = run(&[&what_if, &small[..], &["--out", place]].concat());
    assert!(compared.status.success(), "{}", text(&compared.stderr));
    let shown = text(&compared.stdout);
    for words in ["flash alone", "dram", "pcm", "Measured on emulated memory", "writes p99 µs"] {
        assert!(shown.contains(words), "{words} is not in\n{shown}");
    }
    for name in
        ["README.md", "result.json", "what-if.csv", "rounds.csv", "trace.csv", "writes.svg", "reads.png"]
    {
        assert!(out.join("what-if").join(name).exists(), "{name} is not there");
    }
    assert_eq!(std::fs::read_dir(&data).expect("the disk is there").count(), 0, "the stores are gone");
}

#[test]
fn an_anonymous_recording_tells_no_key_and_replays_all_the_same() {
    let folder = Folder::new();
    let trace = folder.path("load.trace");
    let (recorded, _) = record(&folder, &trace, &["--anonymous"]);
    assert_eq!(recorded["trace"]["is_anonymous"], true);
    let bytes = std::fs::read(&trace).expect("the trace is there");
    for word in [&b"secret"[..], b"key", b"counter", b"vvvv"] {
        assert!(!bytes.windows(word.len()).any(|window| window == word), "{}", text(word));
    }
    let file = trace.to_str().expect("a plain path");
    let data = folder.path("");
    let replayed = json(&run(&[
        "workload",
        "replay",
        file,
        "--closed",
        "--json",
        "--set",
        "capacity=256MiB",
        "--set",
        "shards=1",
        "--data",
        data.to_str().expect("a plain path"),
    ]));
    assert_eq!(replayed["run"]["outcome"]["misses"], 0);
    assert_eq!(replayed["plan"]["loaded_of_assumed_size"], 4, "nobody asked for sizes");
}

#[test]
fn texts_are_imported_cuts_are_told_and_what_is_wrong_is_refused() {
    let folder = Folder::new();
    let path = |name: &str| folder.path(name).display().to_string();
    let monitor = "OK\n1700000000.000001 [0 127.0.0.1:50000] \"SET\" \"a\" \"12\"\nnonsense\n\
        1700000001.500001 [0 127.0.0.1:50000] \"GET\" \"a\"\n";
    std::fs::write(path("monitor.txt"), monitor).expect("a file is written");
    let imported =
        json(&run(&["workload", "import", &path("monitor.txt"), "--output", &path("m.trace"), "--json"]));
    let rights = std::fs::metadata(path("m.trace")).expect("it is there").mode() & 0o7777;
    assert_eq!(rights, 0o600, "a trace has keys");
    assert_eq!((&imported["records"], &imported["refused"]), (&2.into(), &1.into()));
    assert_eq!(imported["trace"]["began_ms"], 1_700_000_000_000u64);
    std::fs::write(path("cache.csv"), "0,abcd,4,100,1,set,60\n1,abcd,4,100,2,get,0\n")
        .expect("a file is written");
    let arguments =
        ["workload", "import", &path("cache.csv"), "--from", "cache-csv", "--output", &path("c.trace")];
    assert!(run(&arguments).status.success());
    assert_eq!(run(&arguments).status.code(), Some(2), "the file is there already");

    let mut bytes = std::fs::read(path("m.trace")).expect("the trace is there");
    bytes.truncate(bytes.len() - 10);
    std::fs::write(path("cut.trace"), &bytes).expect("a file is written");
    let described = json(&run(&["workload", "describe", &path("cut.trace"), "--json"]));
    assert_eq!((&described["is_cut"], &described["operations"]), (&true.into(), &1.into()));
    bytes[52] ^= 4;
    std::fs::write(path("damaged.trace"), &bytes).expect("a file is written");
    for (arguments, code, words) in [
        (vec!["workload", "describe", &path("damaged.trace")], 3, "record 1 of the trace is damaged"),
        (vec!["workload", "describe", &path("cache.csv")], 2, "no recorded workload"),
        (
            vec!["workload", "replay", &path("m.trace"), "--set", "listen=1"],
            2,
            "'listen' is no setting of a store",
        ),
        (vec!["workload", "replay", &path("m.trace"), "--speed", "0"], 2, "the speed"),
        (
            vec!["workload", "replay", &path("m.trace"), "--nvm", &path("log"), "--data", &path("")],
            2,
            "by --set nvm-guarantee=any",
        ),
        (vec!["lab", "what-if", &path("m.trace"), "--presets", "optane"], 2, "there is no memory 'optane'"),
        (vec!["lab", "what-if", &path("m.trace"), "--set", "nvm=x"], 2, "chooses nvm itself"),
        (vec!["workload", "import", &path("m.trace"), "--output", &path("x.trace")], 2, "nothing in it"),
        (
            vec!["workload", "record", "--address", "127.0.0.1:1", "--seconds", "0", "--output", "x"],
            2,
            "--seconds",
        ),
    ] {
        let refused = run(&arguments);
        assert_eq!(refused.status.code(), Some(code), "{arguments:?}: {}", text(&refused.stderr));
        assert!(text(&refused.stderr).contains(words), "{arguments:?}: {}", text(&refused.stderr));
    }
}
