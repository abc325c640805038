//! `tierstone persist`: litmus tests, a real recording imported, its states and its cost, and what is refused.

use crate::common::{Folder, program};
use serde_json::Value as Json;
use std::os::unix::fs::MetadataExt;
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
    assert!(code == Some(2) && told.matches("wrong.litmus").count() == 1, "{told}");
    std::fs::write(&file, [0xff; 9]).expect("a file is written");
    let (code, told) = refused(&persist(&["litmus", &shown(&file)]));
    assert!(code == Some(2) && told.matches("wrong.litmus").count() == 1, "{told}");
    let (code, told) = refused(&persist(&["litmus", "nowhere.litmus"]));
    assert!(code == Some(2) && told.matches("nowhere.litmus").count() == 1, "{told}");
    assert_eq!(persist(&["litmus"]).status.code(), Some(2));
}

#[test]
fn a_recording_of_valgrind_is_imported_observed_and_timed() {
    let folder = Folder::new();
    let (recorded, map) = (shown(&fixture("publish.lackey")), shown(&fixture("publish.map")));
    let trace = shown(&folder.path("trace"));
    let imported = json(&persist(&["import", &recorded, "--map", &map, "--out", &trace, "--json"]));
    let rights = std::fs::metadata(&trace).expect("it is there").mode() & 0o7777;
    assert_eq!(rights, 0o600, "a trace has what was stored");
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

/// Three threads of eight stores: more executions than are ever tried. And words of which more states are possible than
/// are ever tried, about which claims are right all the same.
#[test]
fn a_litmus_test_without_bounds_is_refused_and_one_of_many_states_is_decided() {
    let folder = Folder::new();
    let file = folder.path("many.litmus");
    let stores = |name: &str| (1..=8).map(|value| format!("store {name} {value}\n")).collect::<String>();
    let threads: String = ["a", "b", "c"].map(|name| format!("thread {name}\n{}", stores(name))).concat();
    let text = format!("litmus many\npersistent a b c\n{threads}under epoch\nforbidden a=9\n");
    std::fs::write(&file, text).expect("a file is written");
    let (code, told) = refused(&persist(&["litmus", &shown(&file)]));
    assert!(code == Some(2) && told.contains("more than 1000000 executions and states"), "{told}");

    let names: Vec<String> = (0..30).map(|word| format!("a{word}")).collect();
    let stores: String = names.iter().map(|name| format!("store {name} 1\n")).collect();
    for (claim, code) in [("allowed a0=1 a29=0", 0), ("forbidden a0=1", 1), ("forbidden a29=2", 0)] {
        let text =
            format!("litmus words\npersistent {}\nthread 1\n{stores}under epoch\n{claim}\n", names.join(" "));
        std::fs::write(&file, text).expect("a file is written");
        assert_eq!(persist(&["litmus", &shown(&file)]).status.code(), Some(code), "{claim}");
    }
}

#[test]
fn a_litmus_test_that_cannot_be_run_hides_nothing_of_the_others() {
    let folder = Folder::new();
    let file = |name: &str, text: &str| {
        std::fs::write(folder.path(name), text).expect("a file is written");
        shown(&folder.path(name))
    };
    let small = "persistent a b\nthread 1\nstore a 1\nstore b 1\nunder epoch\n";
    let (fine, fails) = (
        file("fine.litmus", &format!("litmus fine\n{small}allowed b=1 a=0\n")),
        file("fails.litmus", &format!("litmus wrong\n{small}forbidden b=1 a=0\n")),
    );
    let stores = "store a 1\n".repeat(9);
    let threads: String = (1..=3).map(|number| format!("thread {number}\n{stores}")).collect();
    let many =
        file("many.litmus", &format!("litmus many\npersistent a\n{threads}under epoch\nforbidden a=9\n"));
    for arguments in [[&many, &fine, "nowhere.litmus", &fails], [&fine, &fails, &many, "nowhere.litmus"]] {
        let output = persist(&[&["litmus"], &arguments[..]].concat());
        let (code, told) = refused(&output);
        assert!(code == Some(2) && told.contains("many.litmus") && told.contains("1000000"), "{told}");
        assert_eq!(told.matches("nowhere.litmus").count(), 1, "{told}");
        let table = String::from_utf8_lossy(&output.stdout);
        assert!(table.contains("\nfine ") && table.contains("FAILS: wrong, line 7"), "{table}");
        let output = persist(&[&["litmus", "--json"], &arguments[..]].concat());
        let holds: Vec<Json> =
            json(&output).as_array().expect("a list").iter().map(|test| test["holds"].clone()).collect();
        assert!(output.status.code() == Some(2) && holds == [true, false], "{holds:?}");
    }
    let output = persist(&["litmus", "--json", &many]);
    assert!(output.status.code() == Some(2) && output.stdout.is_empty());
}

#[test]
fn a_sweep_tells_its_own_latencies_and_refuses_a_value_for_what_it_sweeps() {
    let folder = Folder::new();
    let trace = folder.path("trace");
    std::fs::write(&trace, "persist-trace 1\n0 store p:0x40 8 0x7\nend 1\n").expect("a file is written");
    let trace = shown(&trace);
    for (flag, sweep) in [("--atomic", "atomic"), ("--tracking", "tracking"), ("--latency-ns", "latency")] {
        let (code, told) = refused(&persist(&["timing", &trace, flag, "64", "--sweep", sweep]));
        assert!(code == Some(2) && told.contains(flag) && told.contains("of no use"), "{told}");
        let other = if sweep == "atomic" { "tracking" } else { "atomic" };
        assert!(persist(&["timing", &trace, flag, "64", "--sweep", other]).status.success());
    }
    let last = |arguments: &[&str]| {
        let output = persist(&[&["timing", &trace], arguments].concat());
        String::from_utf8_lossy(&output.stdout).lines().last().expect("a line").to_owned()
    };
    let swept = last(&["--sweep", "latency"]);
    assert!(swept.contains("the latency of each row a persist") && !swept.contains("500"), "{swept}");
    assert!(last(&["--sweep", "atomic"]).contains("with 500 ns a persist"));
    assert!(last(&["--latency-ns", "70"]).contains("with 70 ns a persist"));
}

#[test]
fn observing_no_states_and_a_seed_without_a_sample_are_refused() {
    let folder = Folder::new();
    let trace = folder.path("trace");
    std::fs::write(&trace, "persist-trace 1\n0 store p:0x40 8 0x7\nend 1\n").expect("a file is written");
    let trace = shown(&trace);
    for (arguments, cause) in
        [(["--sample", "0"], "--sample"), (["--limit", "0"], "--limit"), (["--seed", "7"], "--sample")]
    {
        let (code, told) = refused(&persist(&[&["observe", &trace], &arguments[..]].concat()));
        assert!(code == Some(2) && told.contains(cause), "{arguments:?}: {told}");
    }
    for arguments in [vec!["--sample", "3"], vec!["--sample", "3", "--seed", "7"], vec!["--limit", "1"]] {
        let observed = json(&persist(&[&["observe", &trace, "--json"], &arguments[..]].concat()));
        assert!(observed["states"].as_u64().is_some_and(|states| states > 0), "{arguments:?}: {observed}");
    }
}

#[test]
fn a_recording_that_does_not_tell_its_threads_needs_a_word_for_it() {
    let folder = Folder::new();
    let (map, silent, out) =
        (shown(&fixture("publish.map")), folder.path("silent"), shown(&folder.path("out")));
    let text = std::fs::read_to_string(fixture("publish.lackey")).expect("the recording");
    let kept: Vec<&str> = text.lines().filter(|line| !line.contains("SCHED")).collect();
    std::fs::write(&silent, kept.join("\n") + "\n").expect("a file is written");
    let silent = shown(&silent);
    let arguments = ["import", &silent, "--map", &map, "--out", &out, "--json"];
    let (code, told) = refused(&persist(&arguments));
    assert!(code == Some(2) && told.contains("--trace-sched=yes") && told.contains("--one-thread"), "{told}");
    let imported = json(&persist(&[&arguments[..], &["--one-thread"]].concat()));
    assert_eq!(imported["threads"], 1, "{imported}");
}

/// What is no trace is named with the forms that are read; a directory is wrong input, no device that failed.
#[test]
fn files_that_are_no_traces_are_named_with_what_is_read() {
    let folder = Folder::new();
    let (random, long, map) = (folder.path("random"), folder.path("long"), shown(&fixture("publish.map")));
    std::fs::write(&random, [0x80, 0xff, 0, 7, 9]).expect("a file is written");
    std::fs::write(&long, "persist-trace 1\n0 store p:0x40 8 0x7\nend 1\n0 barrier\n")
        .expect("a file is written");
    let (here, out) = (shown(&folder.path(".")), shown(&folder.path("out")));
    let (random, long) = (shown(&random), shown(&long));
    let file = |name: &str, bytes: &[u8]| {
        std::fs::write(folder.path(name), bytes).expect("a file is written");
        shown(&folder.path(name))
    };
    let foreign = file("foreign", b"persist-trace 1\n0 store p:0x40 8 0x7\n0 barrier # \xff\nend 2\n");
    let letter =
        file("letter", "persist-trace 1\n0 barrier # \u{e9}".as_bytes().split_last().expect("bytes").1);
    let part = file("part", b"persist-trace 1\n0 store p:0x40 8 0x7\n0 store p:0x");
    for command in ["timing", "observe"] {
        let (code, told) = refused(&persist(&[command, &random]));
        let names = told.matches(&random).count() == 1
            && told.contains("persist-trace 1")
            && told.contains("TSPTRACE");
        assert!(code == Some(3) && names, "{told}");
        let (code, told) = refused(&persist(&[command, &here]));
        assert!(code == Some(2) && told.contains("is a directory"), "{told}");
        let (code, told) = refused(&persist(&[command, &long]));
        assert!(code == Some(2) && told.contains("line 4") && told.contains("behind 'end'"), "{told}");
        let (code, told) = refused(&persist(&[command, &foreign]));
        assert!(code == Some(2) && told.contains("line 3 is no UTF-8 text"), "{told}");
        for cut in [&part, &letter] {
            let (code, told) = refused(&persist(&[command, cut]));
            assert!(code == Some(3) && told.contains("the trace is cut"), "{told}");
        }
    }
    for arguments in [
        vec!["litmus", &here],
        vec!["import", &here, "--map", &map, "--out", &out],
        vec!["import", &random, "--map", &here, "--out", &out],
    ] {
        let (code, told) = refused(&persist(&arguments));
        assert!(code == Some(2) && told.contains("is a directory"), "{arguments:?}: {told}");
    }
}

#[test]
fn values_are_wanted_of_words_that_the_trace_persists_to_and_help_promises_what_telling_shows() {
    let folder = Folder::new();
    let trace = folder.path("trace");
    let text = "persist-trace 1\n0 store p:0x40 8 0x7\n0 store p:0x80 8 0x7\n0 store v:0x100 8 0x7\nend 3\n";
    std::fs::write(&trace, text).expect("a file is written");
    let trace = shown(&trace);
    assert_eq!(json(&persist(&["observe", &trace, "--where", "0x40=7", "--json"]))["matching"], 2);
    for wanted in ["0x48=0", "0x100=7", "0xfffffffffffffff8=0"] {
        let (code, told) = refused(&persist(&["observe", &trace, "--where", wanted]));
        assert!(code == Some(2) && told.contains("never persists to that word"), "{told}");
        assert!(told.contains("2 words from 0x40 to 0x80"), "{told}");
    }
    // A seed draws nothing there.
    let (code, told) = refused(&persist(&["observe", &trace, "--telling", "--seed", "3"]));
    assert!(code == Some(2) && told.contains("--telling"), "{told}");
    let help = persist(&["observe", "--help"]);
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(!help.contains("any one missing order") && help.contains("use --sample"), "{help}");
}

/// Memory is bounded however many words an outcome has: here of four thousand words.
#[test]
fn outcomes_of_many_words_are_kept_as_far_as_memory_is_meant_for_them() {
    let folder = Folder::new();
    let trace = folder.path("trace");
    let stores: String = (0..4_000).map(|word| format!("0 store p:{:#x} 8 0x1\n", word * 8)).collect();
    std::fs::write(&trace, format!("persist-trace 1\n{stores}end 4000\n")).expect("a file is written");
    let output = persist(&["observe", &shown(&trace), "--limit", "1100", "--show", "1"]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("1100 states tried (not all"), "{told:.500}");
    assert_eq!(told.lines().next_back(), Some("1047 more outcomes, and others that were not kept"));
}

/// What is there of it would be refused as no trace, and would be in the way.
#[test]
fn a_trace_that_does_not_fit_its_disk_leaves_nothing() {
    let folder = Folder::new();
    let (own, map, out) = (folder.path("own"), folder.path("map"), folder.path("out"));
    let stores = "0 store v:0x40 8 0x7\n".repeat(400);
    std::fs::write(&own, format!("persist-trace 1\n{stores}end 400\n")).expect("a file is written");
    std::fs::write(&map, "persist-map 1\npersistent 0 0x1000\n").expect("a file is written");
    let (own, map, out_text) = (shown(&own), shown(&map), shown(&out));
    let arguments = ["persist", "import", &own, "--map", &map, "--out", &out_text];
    let mut limited = std::process::Command::new("sh");
    // Writing a byte more is an error, as where the disk is full.
    limited.args(["-c", "trap '' XFSZ; ulimit -f 4; exec \"$0\" \"$@\""]);
    limited.arg(program().get_program()).args(arguments);
    let (code, told) = refused(&limited.output().expect("the program runs"));
    assert!(code.is_some_and(|code| code > 0) && told.contains("cannot write"), "{code:?}: {told}");
    assert!(!out.exists());
    assert!(program().args(arguments).status().expect("the program runs").success() && out.exists());
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
