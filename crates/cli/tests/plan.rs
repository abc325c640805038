//! `tierstone plan`: plans the shipped scenarios, prints and writes, refuses.

use crate::common::{Folder, program};
use std::process::Output;

fn plan(arguments: &[&str]) -> Output {
    program().arg("plan").args(arguments).output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The shipped scenarios: plan, name and form.
fn scenarios() -> Vec<(String, String, String)> {
    let listed = plan(&["scenarios", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("the list is JSON");
    let word = |entry: &serde_json::Value, field: &str| entry[field].as_str().expect("a word").to_owned();
    let list = listed.as_array().expect("a list").iter();
    list.map(|entry| (word(entry, "plan"), word(entry, "name"), word(entry, "form"))).collect()
}

#[test]
fn every_shipped_scenario_is_planned_and_written_as_files() {
    let scenarios = scenarios();
    for plan in ["nodes", "cells", "power", "routing", "mirrors"] {
        assert!(scenarios.iter().any(|(of, _, _)| of == plan), "{scenarios:?}");
    }
    for (of, name, _) in &scenarios {
        let folder = Folder::new();
        let out = folder.path("plans");
        let planned = plan(&[of, "--scenario", name, "--json", "--out", &out.display().to_string()]);
        assert!(planned.status.success(), "{name}: {}", text(&planned.stderr));
        let printed: serde_json::Value = serde_json::from_slice(&planned.stdout).expect("the report is JSON");
        assert_eq!(printed["name"].as_str(), Some(of.as_str()));
        let written = std::fs::read(out.join(of).join("report.json")).expect("the report is written");
        assert_eq!(printed, serde_json::from_slice::<serde_json::Value>(&written).expect("it is JSON"));
        let page = std::fs::read_to_string(out.join(of).join("report.html")).expect("the page is written");
        assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
        for plot in printed["plots"].as_array().expect("plots") {
            for ending in ["svg", "png"] {
                let file = format!("{}.{ending}", plot["name"].as_str().expect("a name"));
                assert!(out.join(of).join(&file).is_file(), "{name}: {file} is not there");
            }
        }
    }
}

#[test]
fn a_printed_scenario_is_a_file_to_start_from() {
    let folder = Folder::new();
    for (of, name, form) in scenarios() {
        let printed = plan(&["scenarios", "--print", &name]);
        assert!(printed.status.success());
        let file = folder.path(&format!("{name}.{form}"));
        std::fs::write(&file, &printed.stdout).expect("a file is written");
        let file = file.display().to_string();
        let (by_file, by_name) =
            (plan(&[&of, &file, "--explain"]), plan(&[&of, "--scenario", &name, "--explain"]));
        assert!(by_file.status.success(), "{}", text(&by_file.stderr));
        assert_eq!(text(&by_file.stdout), text(&by_name.stdout));
    }
}

#[test]
fn the_published_nodes_are_explained_beside_their_table() {
    let brief = text(&plan(&["nodes", "--scenario", "fawn-2009"]).stdout);
    for words in
        ["Cheapest: 313 nodes of FAWN+SSD", "known misprint, not reproduced", "agrees", "modelled", "10.5"]
    {
        assert!(brief.contains(words), "{words} is not in\n{brief}");
    }
    assert!(!brief.contains("how the figures were come to"));
    let explained = text(&plan(&["nodes", "--scenario", "fawn-2009", "--explain"]).stdout);
    assert!(explained.contains("A watt costs 2.63 $ over the life"), "{explained}");
    assert!(explained.contains("Table 2.2") && explained.contains("notes:"), "{explained}");
}

#[test]
fn cells_are_planned_from_a_changed_description() {
    let folder = Folder::new();
    let file = folder.path("mine.toml");
    let shipped = text(&plan(&["scenarios", "--print", "phones-boards-servers"]).stdout);
    // Half the time, twice the phones.
    std::fs::write(&file, shipped.replace("within = \"60 s\"", "within = \"30 s\""))
        .expect("a file is written");
    let planned = text(&plan(&["cells", &file.display().to_string()]).stdout);
    assert!(planned.contains("Least energy: 140 of Nexus S"), "{planned}");
    let wrong = shipped.replace("idle = \"0.2 W\"", "idle = \"20 W\"");
    std::fs::write(&file, wrong).expect("a file is written");
    let refused = plan(&["cells", &file.display().to_string()]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("the machine 'Nexus S': 20 W idle"), "{}", text(&refused.stderr));
}

#[test]
fn what_is_no_description_ends_with_the_code_of_wrong_usage() {
    let folder = Folder::new();
    let file = folder.path("mine.toml");
    let path = file.display().to_string();
    let shipped = text(&plan(&["scenarios", "--print", "fawn-2009"]).stdout);
    for (text_of_file, words) in [
        (shipped.replace("\"0.10 $/kWh\"", "0.10"), "0.1 has no unit; write for example \"0.10 $/kWh\""),
        (shipped.replace("lifetime =", "lifetme ="), "unknown field `lifetme`"),
        (String::from("title = \"x"), "mine.toml"),
    ] {
        std::fs::write(&file, text_of_file).expect("a file is written");
        let refused = plan(&["nodes", &path]);
        assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
        assert!(text(&refused.stderr).contains(words), "{}", text(&refused.stderr));
        assert!(refused.stdout.is_empty());
    }
    for arguments in [
        &["nodes"][..],
        &["nodes", "--scenario", "no-such"],
        &["nodes", "no-such-file.toml"],
        &["nodes", "plan.yaml"],
        &["nodes", "a.toml", "--scenario", "fawn-2009"],
        &["scenarios", "--print", "no-such"],
    ] {
        let refused = plan(arguments);
        assert_ne!(refused.status.code(), Some(0), "{arguments:?}");
        assert!(!refused.stderr.is_empty() && refused.stdout.is_empty(), "{arguments:?}");
    }
    let unknown = plan(&["nodes", "--scenario", "no-such"]);
    assert!(
        text(&unknown.stderr).contains("it has fawn-2009, fawn-2009-cooled"),
        "{}",
        text(&unknown.stderr)
    );
}
