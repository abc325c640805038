//! `tierstone persist`: litmus tests, a real recording imported, its states and its cost, and what is refused.

#![expect(clippy::expect_used, reason = "test code")]

mod common;

use common::{Folder, program};
use serde_json::Value as Json;
use std::path::{Path, PathBuf};
use std::process::Output;

fn persist(arguments: &[&str]) -> Output {
    program().arg("persist").args(arguments).output().expect("the program runs")
}

fn json(output: &Output) -> Json {
    let told = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {told}"))
}

/// Its exit code and what it said on standard error.
fn refused(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The recording of a two-thread program that ships with the tests of the library.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../persist/tests/lackey").join(name)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn every_published_litmus_test_holds_and_a_wrong_claim_ends_with_1() {
    let output = persist(&["litmus", "--published", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let told = json(&output);
    let tests = told.as_array().expect("a list");
    assert!(tests.len() >= 15 && tests.iter().all(|test| test["holds"] == true), "{told}");

    let folder = Folder::new();
    let file = folder.path("wrong.litmus");
    let text = "litmus the flag may be alone\npersistent a b\nthread 1\n  store a 1\n  barrier\n  store b 1\n\
                under epoch\n  allowed b=1 a=0\n";
    std::fs::write(&file, text).expect("a file is written");
    let output = persist(&["litmus", &shown(&file)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("FAILS: the flag may be alone, line 8, under epoch")
    );
    std::fs::write(&file, "litmus x\nunder nothing\n").expect("a file is written");
    let (code, told) = refused(&persist(&["litmus", &shown(&file)]));
    assert!(code == Some(2) && told.contains("wrong.litmus"), "{told}");
    assert_eq!(persist(&["litmus"]).status.code(), Some(2));
}

#[test]
fn a_recording_of_valgrind_is_imported_observed_and_timed() {
    let folder = Folder::new();
    let (recorded, map) = (shown(&fixture("publish.lackey")), shown(&fixture("publish.map")));
    let trace = shown(&folder.path("trace"));
    let imported = json(&persist(&["import", &recorded, "--map", &map, "--out", &trace, "--json"]));
    for (field, value) in
        [("steps", 8), ("threads", 2), ("persists", 4), ("marks", 4), ("persistent_bytes", 4096)]
    {
        assert_eq!(imported[field], value, "{imported}");
    }
    // Legal states, and those in which the first slot's flag is there without its value.
    let observed = |trace: &str, model: &str| {
        let told = json(&persist(&["observe", trace, "--model", model, "--where", "0x40=0", "--json"]));
        assert_eq!(told["all"], true);
        let outcomes = told["outcomes"].as_array().expect("a list");
        let alone = outcomes.iter().filter(|words| words["0x0"] != "0x0").count();
        (told["states"].as_u64().expect("a number"), alone)
    };
    // Two slots one after the other, for a sync lies between: each nothing, its value, its value and its flag.
    assert_eq!(observed(&trace, "epoch"), (5, 0));

    // Without its barrier the flag may be there alone; strict persistency would have forgiven it.
    let text =
        std::fs::read_to_string(&map).expect("the map").replace("barrier", "ignore 0x406040 0x406048 #");
    let (loose_map, loose) = (folder.path("map"), shown(&folder.path("loose")));
    std::fs::write(&loose_map, text).expect("a file is written");
    let arguments = ["import", &recorded, "--map", &shown(&loose_map), "--out", &loose, "--form", "text"];
    assert!(persist(&arguments).status.success());
    assert_eq!(observed(&loose, "epoch"), (7, 1));
    assert_eq!(observed(&loose, "strict"), (5, 0));

    let rate = ["--operations", "2", "--instruction-rate", "1e6", "--json"];
    let timed =
        json(&persist(&[&["timing", &trace, "--model", "strict", "--model", "epoch"][..], &rate].concat()));
    let paths = |timed: &Json| -> Vec<u64> {
        timed.as_array().expect("a list").iter().filter_map(|point| point["critical_path"].as_u64()).collect()
    };
    assert_eq!(paths(&timed), [2, 2]);
    assert_eq!(
        (&timed[0]["persist_bound_per_second"], &timed[0]["break_even_ns"]),
        (&2e6.into(), &1e3.into())
    );
    // One block of 512 bytes holds both persists of a slot: strict coalesces them.
    let swept = json(&persist(&["timing", &trace, "--model", "strict", "--sweep", "atomic", "--json"]));
    assert_eq!(paths(&swept), [2, 2, 2, 2, 1, 1, 1]);
    let table = persist(&["timing", &trace, "--sweep", "latency", "--operations", "2"]);
    assert!(table.status.success() && String::from_utf8_lossy(&table.stdout).contains("modelled"));
}

#[test]
fn what_cannot_be_is_refused_with_the_cause_and_the_exit_code() {
    let folder = Folder::new();
    let (recorded, map) = (shown(&fixture("publish.lackey")), shown(&fixture("publish.map")));
    let (out, foreign) = (shown(&folder.path("out")), shown(&folder.path("foreign")));
    std::fs::write(&foreign, "hello\n").expect("a file is written");
    for (arguments, code, cause) in [
        (vec!["timing", &foreign], 3, "no trace"),
        (vec!["observe", "nowhere"], 2, "nowhere"),
        (vec!["timing", &map, "--atomic", "7"], 3, "no trace"),
        (vec!["import", &foreign, "--map", &map, "--out", &out], 2, "line 1"),
        (vec!["import", &recorded, "--map", &foreign, "--out", &out], 3, "no map"),
        (vec!["import", &recorded, "--map", &map, "--out", &out, "--steps", "3"], 2, "more than 3 steps"),
        (vec!["import", &recorded, "--map", &map, "--out", &foreign], 2, "is there already"),
        (vec!["observe", &recorded, "--model", "weak"], 2, "strand"),
        (vec!["observe", &recorded, "--where", "0x1=2"], 2, "multiple of 8"),
    ] {
        let (found, told) = refused(&persist(&arguments));
        assert!(found.is_some_and(|found| found != 0) && told.contains(cause), "{arguments:?}: {told}");
        assert_eq!(found, Some(code), "{arguments:?}: {told}");
    }
    assert_eq!(std::fs::read(&foreign).expect("the file is as it was"), b"hello\n");
    let cut = shown(&folder.path("cut"));
    let text = std::fs::read_to_string(&recorded).expect("the recording");
    std::fs::write(&cut, text.split("==16829== Counted").next().expect("a part")).expect("a file is written");
    let arguments = ["import", &cut, "--map", &map, "--out", &out];
    let (code, told) = refused(&persist(&arguments));
    assert!(code == Some(3) && told.contains("cut"), "{told}");
    assert!(persist(&[&arguments[..], &["--allow-cut"]].concat()).status.success());
}
