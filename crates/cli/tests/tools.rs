//! The tools of the program as processes: `demo`, `doctor`, `load`, `bench`, `completions`, and what
//! `--help` tells.

use crate::common::{Folder, PATIENCE, Server, ask, program, spawn_command};
use rustix::process::{Pid, Signal};
use serde_json::Value as Json;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Output, Stdio};
use tierstone_client::Connection;

/// Runs the program to its end in `folder`.
fn run(folder: &Folder, arguments: &[&str]) -> Output {
    program().args(arguments).current_dir(folder.path("")).output().expect("the program runs")
}

/// What it printed; it must have ended well.
fn told(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    text(&output.stdout)
}

/// The JSON that it printed; it must have ended well.
fn json(output: &Output) -> Json {
    let text = told(output);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("no JSON ({error}): {text}"))
}

/// A tree of `files` files whose contents differ in length and bytes.
fn tree(root: &Path, files: usize) {
    for number in 0..files {
        let directory = root.join(format!("part {}", number % 7));
        std::fs::create_dir_all(&directory).expect("a directory is made");
        let content = format!("file {number}, ").repeat(number * 13 % 900);
        std::fs::write(directory.join(format!("{number}.txt")), content).expect("a file is written");
    }
}

#[test]
fn the_demo_reads_back_what_it_wrote_and_loses_nothing_to_a_kill() {
    let folder = Folder::new();
    tree(&folder.path("tree"), 300);
    let output =
        run(&folder, &["demo", "tree", "--limit", "2MiB", "--memory", "32MiB", "--shards", "2", "--json"]);
    let report = json(&output);
    assert_eq!(report["acknowledged_writes_lost"], 0);
    assert_eq!(report["wrong_reads"], 0);
    assert_eq!(report["records"], 300);
    for phase in ["writes", "reads"] {
        assert_eq!(report[phase]["operations"], 300, "{phase}: {report}");
    }
    assert_eq!(report["verified"], 300);
    let note = report["restart_note"].as_str().expect("a note");
    assert!(note.contains("recovered after a crash"), "it was killed: {note}");
    for number in ["space_amplification", "write_amplification", "index_bytes_a_key"] {
        assert!(report[number].as_f64().is_some_and(|value| value > 0.0), "{number}: {report}");
    }
    let left: Vec<_> = std::fs::read_dir(folder.path("")).expect("it lists").flatten().collect();
    assert_eq!(left.len(), 1, "only the tree is left: {left:?}");
}

#[test]
fn the_demo_leaves_a_folder_that_was_there_alone() {
    let folder = Folder::new();
    tree(&folder.path("tree"), 2);
    std::fs::create_dir_all(folder.data()).expect("a directory is made");
    let output = run(&folder, &["demo", "tree", "--data", "data"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("exists already"));
    assert!(folder.data().is_dir());
}

#[test]
fn the_doctor_tells_what_it_measured_in_each_directory() {
    let folder = Folder::new();
    std::fs::create_dir_all(folder.path("one")).expect("a directory is made");
    let output = run(&folder, &["doctor", "one", "/proc", "--time", "100ms", "--json"]);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("nothing could be measured in /proc\n"), "{complaint}");
    let report: Json = serde_json::from_slice(&output.stdout).expect("JSON");
    let directories = report["directories"].as_array().expect("a list");
    assert_eq!(directories.len(), 2);
    let measured = &directories[0]["measured"];
    assert!(measured["read_alone"]["requests"].as_u64().is_some_and(|count| count > 0), "{measured}");
    assert_eq!(measured["durable"].as_array().map(Vec::len), Some(3));
    assert!(directories[0]["free_bytes"].as_u64().is_some_and(|bytes| bytes > 0));
    assert_eq!(measured["method_used"], measured["durable_method"]["method"]);
    let file_system = tierstone_media::probe::FileSystem::of(&folder.path("one")).expect("it is somewhere");
    assert_eq!(directories[0]["guarantee"], file_system.guarantee().name());
    assert_eq!(directories[1]["guarantee"], "unknown");
    assert!(directories[1]["measured"].is_null());
    let advice = directories[1]["advice"][0].as_str().expect("advice");
    assert!(advice.starts_with("measuring failed"), "{advice}");
    assert!(report["published"].as_array().is_some_and(|list| !list.is_empty()));
    assert_eq!(std::fs::read_dir(folder.path("one")).expect("it lists").count(), 0, "nothing is left behind");
    // What a region there would survive, and how exact emulated ones are.
    assert_eq!(report["regions"][0]["by_lines"]["Ok"]["survives_process_crash"], true);
    assert!(report["regions"][1]["by_lines"]["Err"].is_string());
    assert!(report["memory"]["emulator"]["fit"]["offset_ns"].is_number(), "{}", report["memory"]);
}

#[test]
fn the_doctor_refuses_what_is_not_there_before_it_says_anything() {
    let folder = Folder::new();
    std::fs::write(folder.path("empty"), b"").expect("a file is made");
    std::fs::write(folder.path("foreign"), [7; 8192]).expect("a file is made");
    let data = format!("nvm:{}", folder.path("").display());
    for (place, code, words) in [
        ("nope", 2, "nope"),
        ("nvm:nope", 2, "nope"),
        ("nvm:emulated", 2, "emulated:SIZE"),
        (data.as_str(), 2, "is a directory"),
        ("/dev/null", 2, "no DAX device"),
        ("empty", 2, "too few for the header"),
        ("nvm:foreign", 2, "no region"),
        ("/etc/passwd", 2, "name another file"),
    ] {
        for more in [&[][..], &["--json"]] {
            let output = run(&folder, &[&["doctor", place, "--time", "100ms"], more].concat());
            let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(code), "{place}: {complaint}");
            assert!(output.stdout.is_empty() && !complaint.contains("measuring"), "{place}: {complaint}");
            assert!(complaint.contains(words), "{place}: {complaint}");
        }
    }
}

#[test]
fn the_doctor_takes_a_region_by_the_name_that_a_store_has_for_it() {
    let folder = Folder::new();
    let settings = tierstone_media::region::RegionSettings::default();
    tierstone_media::region::MappedRegion::create(&folder.path("store.pm"), 1 << 20, &settings)
        .expect("a region is made");
    let by_name = json(&run(&folder, &["doctor", "nvm:store.pm", "--json"]));
    let by_path = json(&run(&folder, &["doctor", "store.pm", "--json"]));
    assert_eq!(by_name["regions"], by_path["regions"]);
    assert_eq!(by_name["regions"][0]["by_lines"]["Ok"]["survives_process_crash"], true);
    assert_eq!(by_name["directories"].as_array().map(Vec::len), Some(0));
    let preset = &by_name["memory"]["emulator"]["presets"][0];
    assert!(preset["preset"] == "dcpmm" && preset["is_kept"].is_boolean(), "{preset}");
    let emulated = told(&run(&folder, &["doctor", "nvm:emulated:1GiB:dcpmm"]));
    assert!(emulated.contains("on anonymous, no MAP_SYNC: lost with the process"), "{emulated}");
    assert!(!emulated.contains("guarantee: "), "no directory was asked for: {emulated}");
}

#[test]
fn the_doctor_shows_measured_beside_published_numbers() {
    let folder = Folder::new();
    let text = told(&run(&folder, &["doctor", "--time", "100ms", "--durable-method", "write-then-flush"]));
    assert!(text.contains("\nguarantee: ") && text.contains("durable writes by write and flush"), "{text}");
    let mut lines = text.lines().skip_while(|line| !line.starts_with("quantity"));
    let head = lines.next().expect("a table");
    let columns = ["unit", "measured here", "how", "published", "of device"];
    let places: Vec<usize> = columns.map(|name| head.find(name).expect(name)).to_vec();
    assert!(places.is_sorted(), "{head}");
    // The first quantity: what was measured and what was published, each in its column, with a source.
    let row: Vec<char> = lines.nth(1).expect("a row").chars().collect();
    let cell = |from: usize, to: usize| row[from..to].iter().collect::<String>().trim().to_owned();
    assert_eq!(cell(places[0], places[1]), "us");
    assert!(cell(places[1], places[2]).parse::<f64>().is_ok(), "{row:?}");
    assert_eq!(cell(places[3], places[4]), "10000");
    assert_eq!(cell(places[4], row.len()), "[1]");
    assert!(text.contains("\n  [1] WD VelociRaptor 300 GB, disk, 10,000 rpm: Pelley, "), "{text}");
    for words in [
        "byte-addressable regions\n",
        "survives a process crash",
        "instructions that write lines back",
        "emulated delays (measured)",
    ] {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }
    assert_eq!(run(&folder, &["doctor", "--durable-method", "hope"]).status.code(), Some(2));
}

/// Loads `path` into `server`; the summary.
fn load(folder: &Folder, server: &Server, path: &str, more: &[&str]) -> Json {
    let address = server.address.to_string();
    let mut arguments = vec!["load", path, "--address", address.as_str(), "--json"];
    arguments.extend(more);
    json(&run(folder, &arguments))
}

#[test]
fn directories_ndjson_and_csv_are_loaded() {
    let folder = Folder::new();
    let server = Server::start(&folder, &["--shards", "2", "--memory", "32MiB", "--segment-size", "128KiB"]);
    let mut connection = server.connect();
    let mut get = |key: &str| {
        let value = ask(&mut connection, &[b"GET", key.as_bytes()]);
        value.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    };

    tree(&folder.path("tree"), 40);
    let summary = load(&folder, &server, "tree", &["--prefix", "t:"]);
    assert_eq!((&summary["records"], &summary["errors"]), (&40.into(), &0.into()), "{summary}");
    let file = std::fs::read_to_string(folder.path("tree/part 3/10.txt")).expect("it is there");
    assert_eq!(get("t:part 3/10.txt").as_deref(), Some(file.as_str()));

    let lines = "{\"key\":\"a\",\"value\":\"one\"}\n\n{\"key\":\"b\",\"value\":{\"x\": [1, 2]}}\n";
    std::fs::write(folder.path("lines.ndjson"), lines).expect("a file is written");
    let summary = load(&folder, &server, "lines.ndjson", &["--prefix", "n:"]);
    assert_eq!((&summary["records"], &summary["errors"]), (&2.into(), &0.into()), "{summary}");
    assert_eq!(get("n:a").as_deref(), Some("one"));
    assert_eq!(get("n:b").as_deref(), Some("{\"x\": [1, 2]}"));

    std::fs::write(folder.path("rows.csv"), "id,name,note\n1,Ada,\"a, b\"\n2,Bob,\n").expect("it is written");
    let summary = load(&folder, &server, "rows.csv", &["--prefix", "c:", "--value-column", "note"]);
    assert_eq!((&summary["records"], &summary["errors"]), (&2.into(), &0.into()), "{summary}");
    assert_eq!(get("c:1").as_deref(), Some("a, b"));
    assert_eq!(get("c:2").as_deref(), Some(""));
    load(&folder, &server, "rows.csv", &["--prefix", "r:"]);
    let row: Json = serde_json::from_str(&get("r:1").expect("a row")).expect("a JSON object");
    assert_eq!(row, serde_json::json!({"id": "1", "name": "Ada", "note": "a, b"}));

    load(&folder, &server, "lines.ndjson", &["--database", "3"]);
    let mut connection = server.connect();
    assert_eq!(ask(&mut connection, &[b"EXISTS", b"a"]).integer(), Some(0), "it is in database 0");
    ask(&mut connection, &[b"SELECT", b"3"]);
    assert_eq!(ask(&mut connection, &[b"DBSIZE"]).integer(), Some(2));
    // What would be ignored, and a database that is not there, are refused before anything is written.
    let address = server.address.to_string();
    for wrong in [["--database", "99"], ["--shards", "2"], ["--memory", "1GiB"], ["--capacity", "1GiB"]]
        .into_iter()
        .chain([["--nvm-guarantee", "any"], ["--nvm-flush", "msync"]])
    {
        let arguments = [&["load", "lines.ndjson", "--address", &address][..], &wrong].concat();
        assert_eq!(run(&folder, &arguments).status.code(), Some(2), "{wrong:?}");
    }
    for wrong in [&["bench", "--memory", "64MiB", "--no-load"][..], &["bench", "--embedded", "--no-load"]] {
        assert_eq!(run(&folder, wrong).status.code(), Some(2), "{wrong:?}");
    }
    let backup = ["backup", "--server", &address, "--out", "b", "--base", "nowhere"];
    assert_eq!(run(&folder, &backup).status.code(), Some(2));
    server.stop();
}

/// A log or a pipe that takes nothing more ends neither a server nor a load in its midst.
#[test]
fn words_that_nobody_takes_end_nothing() {
    let folder = Folder::new();
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("it is there");
    let mut command = program();
    command.args(["server", "--listen", "127.0.0.1:0", "--log-level", "info", "--shards", "2"]);
    command.arg("--data").arg(folder.data()).args(["--capacity", "64MiB", "--memory", "32MiB"]);
    let mut child = command.stdout(Stdio::piped()).stderr(full()).spawn().expect("it starts");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let listening = |line: String| line.strip_prefix("listening on ").map(str::to_owned);
    let address = lines.map_while(Result::ok).find_map(listening).expect("it listens");
    let mut connection = Connection::connect(address.as_str(), PATIENCE).expect("a connection");
    // Each of these is an event.
    for number in 1..20 {
        let value = number.to_string();
        let answer = ask(&mut connection, &[b"CONFIG", b"SET", b"slowlog-max-len", value.as_bytes()]);
        assert!(answer.is_ok(), "{answer:?}");
    }

    let rows: String = (0..2_000).map(|row| if row % 10 == 0 { "k,v\n" } else { "k,v,w\n" }).collect();
    std::fs::write(folder.path("rows.csv"), format!("a,b\n{rows}")).expect("it is written");
    let mut load = program();
    load.args(["load", "rows.csv", "--address", &address]).current_dir(folder.path(""));
    assert_eq!(load.stderr(full()).status().expect("it runs").code(), Some(1));
    assert_eq!(ask(&mut connection, &[b"DBSIZE"]).integer(), Some(1), "what is right is loaded");
    for arguments in [&["check", "nowhere"][..], &["workload", "describe", "nowhere"], &["doctor", "nowhere"]]
    {
        let status = program().args(arguments).stderr(full()).status().expect("it runs");
        assert_eq!(status.code(), Some(2), "{arguments:?}");
    }
    // The answer is the end of the connection.
    let _ = connection.command(&[b"SHUTDOWN"]);
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

/// Runs the program until something whose name begins with `made` is in the folder, ends it with `signal`; what it left there.
fn left_by(arguments: &[&str], made: &str, signal: Signal) -> Vec<String> {
    let folder = Folder::new();
    let mut command = program();
    command.args(arguments).current_dir(folder.path("")).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let names = || {
        let entries = std::fs::read_dir(folder.path("")).expect("the folder is there");
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
    };
    while !names().any(|name| name.starts_with(made)) {
        assert_eq!(child.try_wait().expect("its state"), None, "{arguments:?} ended by itself");
        std::thread::yield_now();
    }
    let process = Pid::from_raw(child.id() as i32).expect("a process");
    rustix::process::kill_process(process, signal).expect("the signal is sent");
    // A server that lived on would keep this pipe open for ever.
    let mut said = String::new();
    child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("its end");
    let status = child.wait().expect("it ends");
    // A store that is being made may find its folder gone, and say so first.
    assert!(matches!(status.code(), Some(1..=4)), "{status}: {said}");
    names().filter(|name| name.starts_with("tierstone-")).collect()
}

/// Whether this process, and so what it starts, was started so that `signal` does nothing: in the background of a script,
/// or by nohup.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells it");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("it is told");
    let mask = u64::from_str_radix(mask.trim(), 16).expect("a mask");
    let is_ignored = mask >> (signal.as_raw() - 1) & 1 != 0;
    if is_ignored {
        println!("SKIP: {signal:?}, which this process was started to ignore");
    }
    is_ignored
}

#[test]
fn what_is_ended_by_a_signal_leaves_neither_a_server_nor_a_folder() {
    let bench = ["bench", "--records", "1000", "--seconds", "600"];
    for signal in [Signal::TERM, Signal::HUP, Signal::INT].into_iter().filter(|signal| !is_ignored(*signal)) {
        assert_eq!(left_by(&bench, "tierstone-bench", signal), [""; 0], "bench, {signal:?}");
    }
    let embedded = ["bench", "--embedded", "--records", "1000", "--seconds", "600"];
    assert_eq!(left_by(&embedded, "tierstone-bench", Signal::TERM), [""; 0]);
    let signal = if is_ignored(Signal::INT) { Signal::TERM } else { Signal::INT };
    assert_eq!(left_by(&["doctor", "--time", "60s"], "tierstone-probe", signal), [""; 0]);
}

#[test]
fn a_closed_store_is_loaded_without_a_server_that_then_serves_it() {
    let folder = Folder::new();
    let data = folder.data().display().to_string();
    tree(&folder.path("tree"), 40);
    let filled = ["load", "tree", "--data", &data, "--shards", "3", "--memory", "32MiB", "--json"];
    let summary = json(&run(&folder, &filled));
    assert_eq!((&summary["records"], &summary["errors"]), (&40.into(), &0.into()), "{summary}");
    // A value that no record holds is told; the others go in.
    std::fs::write(folder.path("tree/long"), vec![b'x'; 20 << 20]).expect("a file is written");
    let more =
        run(&folder, &["load", "tree", "--data", &data, "--prefix", "again:", "--database", "1", "--json"]);
    assert_eq!(more.status.code(), Some(1));
    let summary: Json = serde_json::from_slice(&more.stdout).expect("a summary all the same");
    assert_eq!((&summary["records"], &summary["errors"]), (&40.into(), &1.into()), "{summary}");
    assert!(
        summary["first_errors"][0]["place"].as_str().is_some_and(|place| place.ends_with("long")),
        "{summary}"
    );

    let server = Server::start(&folder, &["--shards", "2", "--memory", "32MiB"]);
    let refused = run(&folder, &["load", "tree", "--data", &data]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("open"), "{}", told(&refused));
    assert!(!refused.status.success());
    let mut connection = server.connect();
    let file = std::fs::read_to_string(folder.path("tree/part 3/10.txt")).expect("it is there");
    assert_eq!(ask(&mut connection, &[b"GET", b"part 3/10.txt"]).bytes(), Some(file.as_bytes()));
    assert_eq!(ask(&mut connection, &[b"DBSIZE"]).integer(), Some(40));
    ask(&mut connection, &[b"SELECT", b"1"]);
    assert_eq!(ask(&mut connection, &[b"DBSIZE"]).integer(), Some(40));
    server.stop();
    // A flag that would be ignored is refused.
    assert_eq!(run(&folder, &["load", "tree", "--shards", "2"]).status.code(), Some(2));
}

#[test]
fn a_large_value_in_a_closed_store_ends_a_load_that_names_its_key() {
    let folder = Folder::new();
    let server = Server::start(&folder, &["--memory", "32MiB", "--shards", "1", "--capacity", "64MiB"]);
    ask(&mut server.connect(), &[b"SET", b"la\"rge", &vec![b'x'; 300_000]]);
    server.stop();
    let lines = "{\"key\":\"small\",\"value\":\"1\"}\n{\"key\":\"la\\\"rge\",\"value\":\"2\"}\n";
    std::fs::write(folder.path("some.ndjson"), lines).expect("a file is written");
    let data = folder.data().display().to_string();
    let output = run(&folder, &["load", "some.ndjson", "--data", &data, "--shards", "1"]);
    let said = String::from_utf8_lossy(&output.stderr);
    let is_told =
        said.contains("the key \"la\\\"rge\" holds a large value") && said.contains("records in the store");
    assert!(output.status.code() == Some(2) && is_told, "{said}");
    let server = Server::start(&folder, &["--memory", "32MiB", "--shards", "1", "--capacity", "64MiB"]);
    let value = ask(&mut server.connect(), &[b"GET", b"la\"rge"]);
    assert_eq!(value.bytes().map(<[u8]>::len), Some(300_000));
    server.stop();
}

#[test]
fn what_cannot_be_loaded_is_told_with_its_line_and_the_rest_is_loaded() {
    let folder = Folder::new();
    let server = Server::start(&folder, &["--shards", "1", "--memory", "32MiB", "--segment-size", "128KiB"]);
    std::fs::write(
        folder.path("bad.ndjson"),
        "{\"key\":\"a\",\"value\":1}\n{nonsense\n{\"key\":\"c\",\"value\":3}\n",
    )
    .expect("a file is written");
    let address = server.address.to_string();
    let output = run(&folder, &["load", "bad.ndjson", "--address", &address, "--json"]);
    assert_eq!(output.status.code(), Some(1), "an error is an error");
    let summary: Json = serde_json::from_slice(&output.stdout).expect("a summary all the same");
    assert_eq!((&summary["records"], &summary["errors"]), (&2.into(), &1.into()), "{summary}");
    assert_eq!(summary["first_errors"][0]["line"], 2);
    assert!(String::from_utf8_lossy(&output.stderr).contains("bad.ndjson:2"));
    assert_eq!(ask(&mut server.connect(), &[b"GET", b"c"]).bytes(), Some(&b"3"[..]));
    server.stop();
}

#[test]
fn a_tiny_benchmark_verifies_what_it_wrote() {
    let folder = Folder::new();
    let output = run(
        &folder,
        &[
            "bench",
            "--workload",
            "a",
            "--records",
            "200",
            "--operations",
            "400",
            "--value-size",
            "100",
            "--connections",
            "2",
            "--shards",
            "1",
            "--memory",
            "32MiB",
            "--verify",
            "--json",
        ],
    );
    let report = json(&output);
    assert_eq!(report["load"]["operations"], 200);
    assert_eq!(report["run"]["operations"], 400);
    assert_eq!(report["run"]["errors"], 0);
    assert_eq!(report["verified"]["verification_failures"], 0);
    assert_eq!(report["verified"]["operations"], 200);
    assert!(report["server"]["device_written_bytes_per_operation"].as_f64().is_some_and(|bytes| bytes > 0.0));
    assert_eq!(std::fs::read_dir(folder.path("")).expect("it lists").count(), 0, "its store is removed");
}

#[test]
fn completions_of_every_shell_know_the_subcommands() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = told(&run(&folder, &["completions", shell]));
        for word in ["doctor", "completions", "durability"] {
            assert!(script.contains(word), "{shell}: no '{word}'");
        }
    }
    assert_eq!(run(&folder, &["completions", "no-shell"]).status.code(), Some(2));
    // As of `completions bash | head -1`: nobody reads.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let unread = program().args(["completions", "bash"]).stdout(writer).output().expect("the program runs");
    assert!(unread.status.success() && unread.stderr.is_empty(), "{}", told(&unread));
}

#[test]
fn records_that_nobody_reads_any_more_end_well_and_those_that_find_no_room_do_not() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let gensort = ["bench", "gensort", "100000", "-", "--checksum"];
    let unread = program().args(gensort).stdout(writer).output().expect("the program runs");
    assert!(unread.status.success() && unread.stderr.is_empty(), "{}", told(&unread));
    for arguments in [&gensort[..], &["--help"], &["--version"], &["bench", "--help"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("it is there");
        let output = program().args(arguments).stdout(full).output().expect("the program runs");
        assert_eq!(output.status.code(), Some(4), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("No space left"), "{arguments:?}");
    }
}

#[test]
fn a_directory_that_cannot_be_measured_is_said_to_be_none() {
    let output = run(&Folder::new(), &["doctor", "/proc", "--time", "100ms"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.code() == Some(1), "{text}");
    assert!(text.contains("direct I/O not known") && text.contains("nothing could be measured"), "{text}");
}

#[test]
fn help_tells_the_exit_codes() {
    let folder = Folder::new();
    let flowing = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let help = flowing(told(&run(&folder, &["--help"])));
    for code in ["0 done", "1 failed", "2 wrong usage", "3 the store is damaged", "4 the device failed"] {
        assert!(help.contains(code), "{code} is not in {help}");
    }
    let help = flowing(told(&run(&folder, &["check", "--help"])));
    assert!(help.contains("--server") && help.contains("3 damage was found"), "{help}");
    assert_eq!(run(&folder, &["check", "nowhere"]).status.code(), Some(2), "there is no store");
}

/// What is wrong with the place of a store is told by the code that the help promises, and in words.
#[test]
fn places_that_are_no_whole_store_end_with_the_code_of_their_kind() {
    let folder = Folder::new();
    let path = |name: &str| folder.path(name).to_str().expect("a readable path").to_owned();
    let common = ["--listen", "127.0.0.1:0", "--shards", "1", "--memory", "32MiB", "--capacity", "16MiB"];
    for place in [path("whole"), format!("{},{}", path("first"), path("second"))] {
        let mut command = program();
        command.args(["server", "--data", &place, "--segment-size", "128KiB"]).args(common);
        spawn_command(&folder, command).listening().expect("the store is made").stop();
    }
    let check = ["check", &path("first"), &path("second"), &path("whole")];
    let foreign = program().args(check).output().expect("the program runs");
    let told = String::from_utf8_lossy(&foreign.stderr);
    assert!(foreign.status.code() == Some(2) && told.contains("another store"), "{told}");
    std::fs::remove_file(folder.path("whole/superblock.tier")).expect("it is removed");
    std::fs::rename(folder.path("first"), folder.path("away")).expect("it is moved");
    std::fs::write(folder.path("plain"), "somebody's").expect("a file is written");
    let cases = [
        (path("plain"), 2, "plain is no directory"),
        (path("plain/below"), 2, "plain is no directory"),
        (path("whole"), 3, "superblock.tier is missing"),
        (path("second"), 2, "first directory is missing; name all of them"),
        (format!("{},{}", path("first"), path("second")), 2, "is its disk mounted?"),
    ];
    for (place, expected, words) in &cases {
        let mut server = program();
        server.args(["server", "--data", place]).args(common);
        let mut check = program();
        check.args(["check", place]);
        for mut command in [check, server] {
            // What a server makes first is not there for a check.
            let _ = std::fs::create_dir(folder.path("first"));
            let output = command.output().expect("the program runs");
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(told.contains(words), "{place}: {told}");
            assert_eq!(output.status.code(), Some(*expected), "{place}: {told}");
        }
    }
}
