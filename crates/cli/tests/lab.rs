//! `tierstone lab`: lists, runs, refuses, stops.

use crate::common::{Folder, PATIENCE, program};
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Output, Stdio};
use tierstone_base::{Clock, SystemClock};

fn lab(arguments: &[&str]) -> Output {
    program().arg("lab").args(arguments).output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_list_names_experiments_and_every_published_value_with_its_place() {
    let listed = lab(&["list"]);
    assert!(listed.status.success());
    assert!(text(&listed.stdout).contains("fawn-ds-single-store"), "{}", text(&listed.stdout));
    let published = text(&lab(&["list", "--published"]).stdout);
    for words in [
        "Tables 4.1, 4.2: 1,150 of 1,424 a second",
        "0.808",
        "agrees at 0.8 or more",
        "72352",
        "runs: tierstone lab run emulator-bandwidth",
        "not yet",
        "not reproducible: needs DCPMM",
    ] {
        assert!(published.contains(words), "{words} is not in\n{published}");
    }
    let json: serde_json::Value =
        serde_json::from_slice(&lab(&["list", "--json"]).stdout).expect("the list is JSON");
    assert_eq!(json[0]["kind"], "measured");
    assert!(json[0]["published"][0]["rule"]["at_least"].is_number());
    let json: serde_json::Value =
        serde_json::from_slice(&lab(&["list", "--published", "--json"]).stdout).expect("the list is JSON");
    let runs = json["catalogue"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|entry| entry["state"]["runs"].is_string());
    assert!(runs.count() >= json["experiments"].as_array().expect("a list").len());
}

#[test]
fn a_run_writes_its_files_and_prints_its_result() {
    let folder = Folder::new();
    let out = folder.path("results");
    let out_text = out.display().to_string();
    let ran = lab(&["run", "fawn-ds-put-ratio", "--tiny", "--json", "--out", &out_text]);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let printed: serde_json::Value = serde_json::from_slice(&ran.stdout).expect("the results are JSON");
    let written = std::fs::read(out.join("fawn-ds-put-ratio/result.json")).expect("the result is written");
    let written: serde_json::Value = serde_json::from_slice(&written).expect("the result is JSON");
    assert_eq!(printed[0], written);
    assert!(!text(&ran.stdout).contains(&out_text), "the result names a path");
    let entries = std::fs::read_dir(&out).expect("the results are there");
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into()).collect();
    names.sort();
    assert_eq!(names, ["README.md", "fawn-ds-put-ratio"], "the data is gone");
}

#[test]
fn a_run_prints_the_published_table_beside_ours_and_every_check_of_it() {
    let folder = Folder::new();
    let out = folder.path("results").display().to_string();
    let ran = lab(&["run", "persistency", "--tiny", "--out", &out]);
    assert!(ran.status.success(), "{}", text(&ran.stderr));
    let printed = text(&ran.stdout);
    let line = |start: &str, number: usize| {
        printed.lines().filter(|line| line.starts_with(start)).nth(number).unwrap_or_default()
    };
    for words in ["Pelley 2014", "Table 8.1", "here: modelled, size tiny"] {
        assert!(printed.contains(words), "{words} is not in\n{printed}");
    }
    let head = line("queue ", 0);
    assert_eq!(head.matches("published").count(), 3, "{printed}");
    let cells: Vec<&str> = line("Two-Lock Concurrent ", 1).split_whitespace().collect();
    assert_eq!((cells.len(), cells[4], cells[6], cells[8]), (9, "0.430", "3.40", "22"), "{printed}");
    assert!(printed.contains("M inserts/s (measured"), "{printed}");
    // As many checks as are published, each with its verdict; what differs is told with its reason.
    let checks = printed.lines().filter(|line| line.contains(" ratio ") && line.contains("Table 8.1"));
    let (mut count, mut differing) = (0, 0);
    for check in checks {
        let verdicts = (check.contains(" agrees "), check.contains(" differs "));
        assert!(verdicts.0 != verdicts.1, "{check}");
        (count, differing) = (count + 1, differing + usize::from(verdicts.1));
    }
    assert_eq!(count, 18, "{printed}");
    assert_eq!(printed.lines().filter(|line| line.starts_with("differs: ")).count(), differing, "{printed}");
    let told = ["differs: ", "note: ", "published: ", "tables, plots"];
    let tables = printed.lines().filter(|line| !told.iter().any(|start| line.starts_with(start)));
    assert!(tables.into_iter().all(|line| line.chars().count() <= 120), "{printed}");
}

#[test]
fn unknown_names_and_bad_places_are_refused_before_anything_runs() {
    let unknown = lab(&["run", "fawn-ds-put-ratio", "no-such"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("no experiment 'no-such'"), "{}", text(&unknown.stderr));
    assert_eq!(lab(&["run"]).status.code(), Some(2));
    let folder = Folder::new();
    let file = folder.path("file");
    std::fs::write(&file, b"").expect("a file is written");
    let (below, out) = (file.join("below").display().to_string(), folder.path("out"));
    let (file, out_text) = (file.display().to_string(), out.display().to_string());
    for wrong in [&file, &below] {
        let nowhere = lab(&["all", "--tiny", "--out", wrong]);
        assert_eq!(nowhere.status.code(), Some(2));
        assert!(text(&nowhere.stderr).contains("cannot make"), "{}", text(&nowhere.stderr));
        assert!(text(&nowhere.stderr).contains("--out"), "{}", text(&nowhere.stderr));
    }
    // A name that is wrong is no new directory, which would lie on another disk.
    let missing = folder.path("missing");
    for data in [&missing.display().to_string(), &file] {
        let nowhere = lab(&["run", "fawn-ds-put-ratio", "--tiny", "--out", &out_text, "--data", data]);
        assert_eq!(nowhere.status.code(), Some(2));
        assert!(text(&nowhere.stderr).contains("there is no directory"), "{}", text(&nowhere.stderr));
        assert!(!missing.exists() && !out.exists());
    }
    let replayed = lab(&["what-if", &folder.path(".").display().to_string(), "--out", &out_text]);
    assert_eq!(replayed.status.code(), Some(2));
    assert!(text(&replayed.stderr).contains("is a directory: name a file"), "{}", text(&replayed.stderr));
}

#[test]
fn an_interrupt_ends_a_run_in_good_order() {
    let folder = Folder::new();
    let out = folder.path("results");
    let run = program()
        .args(["lab", "all", "--quick", "--out", &out.display().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let entries = || std::fs::read_dir(&out).map_or(0, Iterator::count);
    let clock = SystemClock::new();
    // The temporary folder is made after the signals are taken.
    while entries() == 0 {
        assert!(u128::from(clock.now().monotonic_us) < PATIENCE.as_micros(), "the run does not begin");
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&run), Signal::INT).expect("the signal is sent");
    let ended = run.wait_with_output().expect("the program ends");
    assert_eq!(ended.status.code(), Some(1), "{}", text(&ended.stderr));
    assert!(text(&ended.stderr).contains("stopped; nothing of the run was kept"), "{}", text(&ended.stderr));
    assert!(ended.stdout.is_empty());
    assert_eq!(entries(), 0, "the data is gone");
}
