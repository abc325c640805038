//! `tierstone energy`, and joules in `INFO`, metrics and benchmarks. A machine without meters is the usual case;
//! machines with meters are folders.

use crate::common::{Folder, Server, ask, program};
use serde_json::Value as Json;
use std::process::{Output, Stdio};

/// Runs `tierstone energy` with `arguments` on the machine `machine` of the folder.
fn energy(folder: &Folder, arguments: &[&str]) -> Output {
    let (command, rest) = arguments.split_first().expect("a subcommand");
    let mut program = program();
    program.arg("energy").arg(command);
    if ["record", "meters", "profile"].contains(command) {
        program.args(["--root", "machine"]);
    }
    // No tool of this machine's is found there.
    program.args(rest).env("PATH", "/usr/bin:/bin").current_dir(folder.path(""));
    program.output().expect("the program runs")
}

/// What it said on standard error, where the result of a recording goes.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Json {
    serde_json::from_str(&said(output)).unwrap_or_else(|error| panic!("no JSON ({error}): {}", said(output)))
}

fn put(folder: &Folder, path: &str, text: &str) {
    let path = folder.path("machine").join(path);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory is made");
    // In one step: the program must not see half of it.
    let new = path.with_extension("new");
    std::fs::write(&new, format!("{text}\n")).expect("a file is written");
    std::fs::rename(&new, &path).expect("it is renamed");
}

fn zone(folder: &Folder, uj: u64) {
    let package = "sys/class/powercap/intel-rapl:0";
    put(folder, &format!("{package}/name"), "package-0");
    put(folder, &format!("{package}/max_energy_range_uj"), "262143328850");
    // So much that no short test looks like a jump.
    put(folder, &format!("{package}/constraint_0_max_power_uw"), "10000000000");
    put(folder, &format!("{package}/energy_uj"), &uj.to_string());
}

#[test]
fn without_a_meter_joules_are_modelled_and_say_so() {
    let folder = Folder::new();
    let output = energy(&folder, &["record", "--", "sh", "-c", "echo out; exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "out\n");
    let text = said(&output);
    assert!(text.contains("modelled") && text.contains("no meter gave a total"), "{text}");
    assert!(!text.contains("measured"), "{text}");
    let told = json(&energy(&folder, &["record", "--json", "--", "true"]));
    assert_eq!((&told["total"], &told["modelled"]["label"]), (&Json::Null, &Json::from("modelled")));
    assert_eq!(told["meters"], Json::Array(Vec::new()));
    let parts = ["idle_joules", "cpu_joules", "device_joules"].map(|part| told["modelled"][part].as_f64());
    let sum: f64 = parts.iter().map(|part| part.expect("a number")).sum();
    assert!((sum - told["modelled"]["joules"].as_f64().expect("a number")).abs() < 1e-9, "{told}");
}

#[test]
fn a_result_that_no_file_takes_is_refused_before_the_command_or_told_after_it() {
    let folder = Folder::new();
    for flag in ["--output", "--csv"] {
        let output = energy(&folder, &["record", flag, "nowhere/x", "--", "sh", "-c", "echo ran; exit 7"]);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{}", said(&output));
        assert!(said(&output).contains("nowhere/x"), "{}", said(&output));
        let output = energy(&folder, &["record", flag, "/dev/full", "--", "sh", "-c", "exit 7"]);
        assert_eq!(output.status.code(), Some(7), "{}", said(&output));
        assert!(said(&output).contains("joules") && said(&output).contains("/dev/full"), "{}", said(&output));
    }
    std::fs::write(folder.path("result"), "x".repeat(100_000)).expect("a file is written");
    let output = energy(&folder, &["record", "--json", "--output", "result", "--", "true"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let result = std::fs::read(folder.path("result")).expect("the result");
    assert!(serde_json::from_slice::<Json>(&result).is_ok(), "what stood there before is gone");
}

#[test]
fn a_counter_of_the_machine_is_measured_by_difference() {
    let folder = Folder::new();
    zone(&folder, 262_142_328_850);
    // The command draws 5 J, over the counter's wrap.
    let script =
        "echo 4000000 > machine/new && mv machine/new machine/sys/class/powercap/intel-rapl:0/energy_uj";
    let output = energy(&folder, &["record", "--json", "--csv", "samples.csv", "--", "sh", "-c", script]);
    assert!(output.status.success(), "{}", said(&output));
    let told = json(&output);
    assert_eq!(told["meters"][0]["name"], "rapl:intel-rapl:0:package-0");
    let joules = told["total"]["joules"].as_f64().expect("a number");
    assert!((joules - 5.0).abs() < 1e-6 && told["meters"][0]["wraps"] == 1, "{told}");
    assert_eq!(told["meters"][0]["label"], "measured");
    assert_eq!(told["modelled"]["label"], "modelled");
    let samples = std::fs::read_to_string(folder.path("samples.csv")).expect("it is there");
    assert!(samples.starts_with("seconds,meter,quantity,value\n"), "{samples}");
    assert!(samples.contains("rapl:intel-rapl:0:package-0,joules counted,262142.328850"), "{samples}");
}

#[test]
fn a_meter_that_vanishes_is_reported_and_not_bridged() {
    let folder = Folder::new();
    zone(&folder, 5);
    let output = energy(&folder, &["record", "--", "rm", "-r", "machine/sys/class/powercap/intel-rapl:0"]);
    assert!(output.status.success(), "{}", said(&output));
    let text = said(&output);
    assert!(text.contains("are not covered") && text.contains("times no answer"), "{text}");
}

#[test]
fn a_command_as_a_meter_gives_power_and_the_idle_baseline_is_told() {
    let folder = Folder::new();
    let arguments = ["--meter-command", "echo 12.5 W", "--meter-timeout", "100ms", "--idle", "1", "--json"];
    let mut all = vec!["record"];
    all.extend(arguments);
    all.extend(["--", "sleep", "1"]);
    let output = energy(&folder, &all);
    assert!(output.status.success(), "{}", said(&output));
    let told = json(&output);
    let meter = &told["meters"][0];
    assert_eq!((&meter["name"], &meter["covers"]), (&Json::from("command"), &Json::from("system")));
    let number = |field: &str| meter[field].as_f64().unwrap_or_else(|| panic!("{field}: {told}"));
    assert!((number("watts") - 12.5).abs() < 1e-6, "{told}");
    assert!((number("joules") - 12.5 * number("covered_seconds")).abs() < 1e-3, "{told}");
    // Half a step of 1 uW for the command's own time, without that of the idle machine.
    let step_error = number("quantisation_joules");
    assert!((step_error - 0.5e-6 * number("covered_seconds")).abs() < 1e-9, "{told}");
    assert!((number("idle_watts") - 12.5).abs() < 1e-6 && number("joules_above_idle").abs() < 1e-3, "{told}");
}

#[test]
fn meters_that_hang_or_talk_rubbish_do_not_hold_the_recording_up() {
    let folder = Folder::new();
    for (command, why) in [("sleep 1000", "was killed"), ("echo bananas", "has no number")] {
        let arguments =
            ["record", "--meter-command", command, "--meter-timeout", "50ms", "--", "sleep", "0.3"];
        let text = said(&energy(&folder, &arguments));
        assert!(text.contains(why) && text.contains("modelled"), "{command}: {text}");
    }
}

#[test]
fn what_cannot_be_run_has_the_shells_exit_code() {
    let folder = Folder::new();
    let output = energy(&folder, &["record", "--", "/no/such/program"]);
    assert_eq!(output.status.code(), Some(127), "{}", said(&output));
    let output = energy(&folder, &["record", "--", "/"]);
    assert_eq!(output.status.code(), Some(126), "{}", said(&output));
    let output = energy(&folder, &["record", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(output.status.code(), Some(137), "{}", said(&output));
    let output = energy(&folder, &["record", "--total", "wall", "--", "true"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("no meter is named 'wall'"), "{}", said(&output));
}

#[test]
fn what_meters_there_are_is_listed_and_why_others_are_not() {
    let folder = Folder::new();
    let output = energy(&folder, &["meters"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("no meter: joules of this machine are modelled"), "{text}");
    for way in ["rapl", "hwmon", "battery", "nvidia", "ipmi", "command"] {
        assert!(text.lines().any(|line| line.starts_with(way)), "{way}: {text}");
    }
    zone(&folder, 5);
    let output = energy(&folder, &["meters", "--json"]);
    let told: Json = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(told["total"], Json::from(vec!["rapl:intel-rapl:0:package-0"]));
}

#[test]
fn a_model_of_ones_own_needs_units_and_sources() {
    let folder = Folder::new();
    let constant =
        |name: &str, unit: &str| format!("{name} = {{ value = 2, unit = \"{unit}\", source = \"mine\" }}\n");
    let names = ["cpu_second", "read", "write", "flush", "byte_read", "byte_written"];
    let energies: String = names.iter().map(|name| constant(name, "nJ")).collect();
    let write = |name: &str, text: String| std::fs::write(folder.path(name), text).expect("it is written");
    write("good.toml", format!("name = \"mine\"\n{}{energies}", constant("idle_per_processor", "W")));
    write("bad.toml", format!("name = \"mine\"\n{}{energies}", constant("idle_per_processor", "J")));
    let output = energy(&folder, &["model", "./good.toml"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("modelled, not measured") && text.contains("2.000e-9"), "{text}");
    let output = energy(&folder, &["model", "./bad.toml"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("bad.toml: idle_per_processor: unit 'J'"), "{}", said(&output));
    assert_eq!(energy(&folder, &["model", "abacus"]).status.code(), Some(2));
}

#[test]
fn info_tells_joules_with_their_label() {
    let folder = Folder::new();
    let server = Server::start(&folder, &["--shards", "2", "--energy-meters", "none"]);
    let text = server.info_text("energy");
    for start in ["energy_label:modelled", "energy_model:cloud", "energy_modelled_uj_per_request:"] {
        assert!(text.lines().any(|line| line.starts_with(start)), "{start}: {text}");
    }
    assert!(!text.contains("energy_measured"), "{text}");
    let requests = |text: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix("energy_requests:")).expect("a line");
        line.trim().parse().expect("a number")
    };
    ask(&mut server.connect(), &[b"CONFIG", b"RESETSTAT"]);
    assert!(
        requests(&server.info_text("energy")) > requests(&text),
        "joules count since the start, so do these"
    );
}

#[test]
fn info_tells_what_the_machines_meters_measure() {
    let folder = Folder::new();
    zone(&folder, 1_000_000);
    let machine = folder.path("machine");
    let machine = machine.to_str().expect("a path");
    let server = Server::start(&folder, &["--shards", "1", "--energy-meters", machine]);
    let text = server.info_text("energy");
    assert!(text.contains("energy_label:measured\r\n"), "{text}");
    assert!(text.contains("name=rapl:intel-rapl:0:package-0"), "{text}");
    // Joules a request come with the second answer, a second later.
    let text = loop {
        let text = server.info_text("energy");
        if text.contains("energy_measured_uj_per_request:") {
            break text;
        }
    };
    let number = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("{name}: {text}")).trim().parse().expect("a number")
    };
    let all_uj = number("energy_measured_mean_uw") * number("energy_uptime_us") / 1e6;
    let each_uj = number("energy_measured_uj_per_request");
    assert!((each_uj - all_uj / number("energy_requests")).abs() <= 1.0, "{text}");
}

#[test]
fn without_a_meter_the_profiler_tells_bandwidth_and_no_power() {
    let folder = Folder::new();
    let arguments = [
        "profile",
        "--seconds",
        "0.1",
        "--loads",
        "0,100",
        "--array",
        "1MiB",
        "--file",
        "1MiB",
        "--threads",
        "2",
    ];
    let output = energy(&folder, &arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", said(&output));
    assert!(text.contains("bandwidth only, power is not stated") && !text.contains("J/GB"), "{text}");
    let left: Vec<_> = std::fs::read_dir(folder.path("")).expect("it lists").flatten().collect();
    assert!(left.is_empty(), "the file is gone: {left:?}");
}

#[test]
fn with_a_meter_the_profiler_tells_power_over_load() {
    let folder = Folder::new();
    let arguments = [
        ["profile", "--meter-command"].as_slice(),
        &["echo 20 W", "--meter-timeout", "25ms", "--seconds", "1", "--loads", "0,100", "--what", "memory"],
        &["--array", "1MiB", "--json"],
    ]
    .concat();
    let output = energy(&folder, &arguments);
    let told: Json = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
    let points = told["curves"][0]["points"].as_array().expect("points");
    assert_eq!(points[0]["bytes_per_second"], 0.0);
    assert!(points[1]["bytes_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{told}");
    for point in points {
        // A machine under load may keep the command from answering twice within a step.
        let watts = &point["watts"];
        assert!(watts.is_null() || watts.as_f64().is_some_and(|watts| (watts - 20.0).abs() < 1e-6), "{told}");
    }
}

/// Runs `tierstone bench` and gives its JSON.
fn bench(folder: &Folder, arguments: &[&str]) -> Json {
    let output = program()
        .arg("bench")
        .args(arguments)
        .current_dir(folder.path(""))
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{}", said(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn a_benchmark_tells_joules_an_operation_with_their_label() {
    let folder = Folder::new();
    let load = ["--records", "200", "--operations", "500", "--memory", "32MiB", "--shards", "1", "--json"];
    for more in [["--connections", "4"].as_slice(), &["--embedded"]] {
        let told = bench(&folder, &[&load, more].concat());
        let energy = &told["energy"];
        assert_eq!(energy["modelled"]["label"], "modelled", "{told}");
        assert!(
            energy["modelled_joules_per_operation"].as_f64().is_some_and(|joules| joules > 0.0),
            "{told}"
        );
        assert!(energy["measured"].is_null() || energy["measured"]["label"] == "measured", "{told}");
    }
}

#[test]
fn the_kernels_of_a_node_are_verified_and_have_work_a_joule() {
    let folder = Folder::new();
    let sizes = [
        ["--seconds", "0.05", "--records", "200000", "--text", "1MiB", "--patterns", "100", "--threads", "2"]
            .as_slice(),
        &[
            "--kv-data",
            "1MiB",
            "--kv-memory",
            "32MiB",
            "--energy-model",
            "atom-2009",
            "--meter-timeout",
            "1s",
        ],
    ]
    .concat();
    let classes = ["node", "--class", "crypto,rsa,search,sort,kv", "--json"].as_slice();
    let told = bench(&folder, &[classes, &sizes].concat());
    let lines = told["lines"].as_array().expect("lines");
    let units: Vec<&str> = lines.iter().filter_map(|line| line["unit"].as_str()).collect();
    let mut expected = vec!["byte", "byte", "signature", "verification", "byte", "record"];
    expected.extend(["operation"; 6]);
    assert_eq!(units, expected);
    for line in lines {
        assert!(line["per_joule_modelled"].as_f64().is_some_and(|work| work > 0.0), "{line}");
        let modelled = &line["energy"]["modelled"];
        assert_eq!(
            (&modelled["label"], &modelled["model"]),
            (&Json::from("modelled"), &Json::from("atom-2009"))
        );
    }
    let conclusions = told["conclusions"].as_array().expect("a list");
    assert_eq!(conclusions.len(), 3, "one thread's deadline, reads at random, search: {told}");
    assert_eq!(std::fs::read_dir(folder.path("")).expect("it lists").count(), 0, "its stores are removed");
}

#[test]
fn a_benchmark_takes_a_meter_and_a_model_of_ones_own() {
    let folder = Folder::new();
    let load = ["--records", "200", "--seconds", "1", "--memory", "32MiB", "--shards", "1"];
    let meter = ["--meter-command", "echo 50 W", "--meter-timeout", "200ms", "--energy-model", "atom-2009"];
    let told = bench(&folder, &[load.as_slice(), &meter, &["--embedded", "--json"]].concat());
    let energy = &told["energy"];
    assert_eq!(energy["modelled"]["model"], "atom-2009", "{told}");
    assert_eq!(
        (&energy["measured"]["label"], &energy["measured"]["meters"][0]),
        (&"measured".into(), &"command".into())
    );
    assert!(energy["measured"]["watts"].as_f64().is_some_and(|watts| (watts - 50.0).abs() < 1e-6), "{told}");
    assert!(energy["measured_joules_per_operation"].as_f64().is_some_and(|joules| joules > 0.0), "{told}");
    for wrong in [["--energy-model", "abacus"], ["--meter-timeout", "0s"]] {
        let output =
            program().arg("bench").args(wrong).current_dir(folder.path("")).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    }
}

#[test]
fn joules_an_operation_are_for_all_the_time_however_little_of_it_the_meter_covers() {
    let (folder, other) = (Folder::new(), Folder::new());
    // It takes a tenth of a second, so it is asked once a second, and what is behind its last answer is a gap.
    let arguments = [
        ["--records", "200", "--seconds", "6", "--memory", "32MiB", "--shards", "1", "--embedded"].as_slice(),
        &["--meter-command", "sleep 0.1; echo 100 W", "--json"],
    ]
    .concat();
    let mut text = program();
    text.arg("bench").args(&arguments[..arguments.len() - 1]).current_dir(other.path(""));
    let text = text.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program runs");
    let told = bench(&folder, &arguments);
    let measured = &told["energy"]["measured"];
    let number = |of: &Json| of.as_f64().unwrap_or_else(|| panic!("{told}"));
    let (covered, seconds) = (number(&measured["covered_seconds"]), number(&measured["seconds"]));
    assert!(covered < seconds * 0.99 && (5.9..30.0).contains(&seconds), "{told}");
    let joules =
        number(&told["energy"]["measured_joules_per_operation"]) * number(&told["run"]["operations"]);
    assert!((joules - 100.0 * seconds).abs() < 1e-3 * joules, "{joules} J in {seconds} s: {told}");
    assert!((number(&measured["joules"]) - 100.0 * covered).abs() < 1e-3 * joules, "{told}");
    let output = text.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("of that the meters cover, s"), "{text}");
}

#[test]
fn a_server_reads_a_command_and_goes_on_when_it_vanishes_or_talks_rubbish() {
    let folder = Folder::new();
    put(&folder, "nothing", "");
    let start = |command: &str| {
        let machine = folder.path("machine").display().to_string();
        let meters = ["--energy-meters", &machine, "--energy-command", command, "--energy-tools", "true"];
        Server::start(&folder, &[["--shards", "1"].as_slice(), &meters].concat())
    };
    let field = |text: &str, name: &str| -> u64 {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("energy_meter0:"))
            .unwrap_or_else(|| panic!("{text}"));
        let value = line.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_else(|| panic!("{line}")).parse().expect("a number")
    };
    let told_when = |server: &Server, name: &str| loop {
        // It answers all the time.
        let text = server.info_text("energy");
        if field(&text, name) > 0 {
            break text;
        }
    };
    std::fs::write(folder.path("watts"), "20 W\n").expect("a file is written");
    let server = start(&format!("cat {}", folder.path("watts").display()));
    let text = told_when(&server, "covered_us");
    assert!(text.contains("energy_label:measured\r\n") && field(&text, "faults") == 0, "{text}");
    std::fs::remove_file(folder.path("watts")).expect("it is removed");
    told_when(&server, "faults");
    server.stop();
    let server = start("echo bananas");
    let text = told_when(&server, "faults");
    assert!(text.contains("energy_label:modelled\r\n") && !text.contains("energy_measured_uj:"), "{text}");
    server.stop();
}

#[test]
fn a_sort_in_two_passes_is_verified_beside_gnu_sort_and_leaves_nothing() {
    let folder = Folder::new();
    let sizes = ["--size", "30000000", "--sort-memory", "10MiB", "--threads", "2", "--gnu", "--json"];
    let told = bench(&folder, &[["node", "--class", "two-pass"].as_slice(), &sizes].concat());
    let (ours, gnu) = (&told["lines"][0], &told["lines"][1]);
    assert!(
        told["conclusions"][0].as_str().is_some_and(|text| text.starts_with("I/O-bound, in order")),
        "{told}"
    );
    assert_eq!((&ours["amount"], &gnu["amount"]), (&Json::from(300_000.0), &Json::from(300_000.0)));
    let device = &ours["device"];
    assert!(device["bytes_written"].as_f64().is_some_and(|bytes| bytes >= 6e7), "{told}");
    assert!(device["bound"]["seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{told}");
    assert!(
        ours["energy"]["modelled"]["device_joules"].as_f64().is_some_and(|joules| joules > 0.0),
        "{told}"
    );
    assert_eq!(std::fs::read_dir(folder.path("")).expect("it lists").count(), 0, "its files are removed");
}

#[test]
fn an_interrupted_sort_removes_its_files() {
    let folder = Folder::new();
    let mut sort = program()
        .args(["bench", "node", "--class", "two-pass", "--size", "2000000000", "--sort-memory", "256MiB"])
        .current_dir(folder.path(""))
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the program runs");
    let files = || std::fs::read_dir(folder.path("")).expect("it lists").count();
    // Its folder is there: it is at work.
    while files() == 0 {
        assert!(sort.try_wait().expect("it is ours").is_none(), "it ended before it began");
        std::thread::yield_now();
    }
    let id = rustix::process::Pid::from_child(&sort);
    rustix::process::kill_process(id, rustix::process::Signal::INT).expect("it is there");
    let output = sort.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("interrupted"), "{}", said(&output));
    assert_eq!(files(), 0);
}

#[test]
fn records_of_the_sort_benchmark_are_made_and_judged() {
    let folder = Folder::new();
    let run = |arguments: &[&str]| {
        let mut program = program();
        program.arg("bench").args(arguments).current_dir(folder.path("")).output().expect("the program runs")
    };
    let made = run(&["gensort", "2000", "whole", "--checksum"]);
    assert!(made.status.success(), "{}", said(&made));
    for (first, name) in [("0", "a"), ("1000", "b")] {
        assert!(run(&["gensort", "1000", name, "--first", first]).status.success());
    }
    let read = |name: &str| std::fs::read(folder.path(name)).expect("it is there");
    assert_eq!([read("a"), read("b")].concat(), read("whole"));
    assert!(read("whole").starts_with(b"AsfAGHM5om  0"));
    let judged = run(&["valsort", "whole"]);
    assert_eq!(judged.status.code(), Some(1));
    let text = String::from_utf8_lossy(&judged.stdout).into_owned();
    assert!(text.starts_with("First unordered record is record 2\nRecords: 2000\nChecksum: "), "{text}");
    assert!(text.contains(said(&made).trim()), "{text} and {}", said(&made));
    let mut records: Vec<&[u8]> = Vec::new();
    let whole = read("whole");
    records.extend(whole.chunks(100));
    records.sort_unstable();
    std::fs::write(folder.path("sorted"), records.concat()).expect("it is written");
    let judged = run(&["valsort", "sorted", "--json"]);
    let told: Json = serde_json::from_slice(&judged.stdout).expect("JSON");
    assert_eq!((&told["unordered"], &told["checksum"]), (&Json::from(0), &Json::from(said(&made).trim())));
    std::fs::write(folder.path("half"), &whole[..150]).expect("it is written");
    for (file, why) in [("half", "50 bytes behind"), ("missing", "No such file")] {
        let refused = run(&["valsort", file]);
        assert!(!refused.status.success() && said(&refused).contains(why), "{}", said(&refused));
    }
}
