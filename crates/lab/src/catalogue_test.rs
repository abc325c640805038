//! The catalogue is whole: every work, every experiment, no line twice, nothing that reads wrongly.

use super::*;
use crate::experiments::ALL;
use std::collections::BTreeSet;

#[test]
fn every_work_and_every_experiment_has_its_lines() {
    let entries = catalogue().unwrap();
    let places: BTreeSet<(&str, &str)> =
        entries.iter().map(|entry| (entry.work.as_str(), entry.place.as_str())).collect();
    assert_eq!(places.len(), entries.len(), "a place is there twice");
    assert!(entries.iter().all(|entry| !entry.place.is_empty() && !entry.what.is_empty()));
    for author in [
        "Vasudevan",
        "Lersch",
        "Pelley",
        "Kannan",
        "Qureshi",
        "Ye",
        "Bhattacharjee",
        "Muehe",
        "Sadoghi",
        "Sompolski",
        "Snyder",
        "Harizopoulos",
    ] {
        assert!(entries.iter().any(|entry| entry.work.contains(author)), "{author}");
    }
    for experiment in ALL {
        let state = State::Runs(experiment.name.to_owned());
        let mut own = entries.iter().filter(|entry| entry.state == state);
        let of_its_work = |entry: &Entry| {
            let author = entry.work.split(' ').next().unwrap_or_default();
            experiment.source.contains(author)
        };
        assert!(own.next().is_some_and(of_its_work), "{} has no line of its source", experiment.name);
        assert!(own.all(of_its_work), "{}", experiment.name);
    }
}

#[test]
fn commands_of_the_catalogue_are_ours_and_states_are_told_in_words() {
    for entry in catalogue().unwrap() {
        let State::Elsewhere(command) = &entry.state else { continue };
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../").to_owned() + command;
        let is_script = command.starts_with("bench/") && std::path::Path::new(&script).is_file();
        assert!(
            is_script || command.starts_with("tierstone ") || command.starts_with("cargo test "),
            "{command}"
        );
    }
    let shown = |state: State| state.to_string();
    assert_eq!(shown(State::Runs("endurance".into())), "runs: tierstone lab run endurance");
    assert_eq!(shown(State::NotYet(String::new())), "not yet");
    assert_eq!(shown(State::NotReproducible("no disk".into())), "not reproducible: no disk");
}

#[test]
fn lines_that_are_wrong_are_named() {
    let refused = |text: &str, why: &str| {
        let error = parse(text).unwrap_err();
        assert!(error.message().contains(why), "{error}");
    };
    refused("= A\n\nplace | what", "line 3: three fields");
    refused("place | what | not yet", "a work has to come first");
    refused("= A\nplace | what | runs: nothing-of-the-kind", "no experiment 'nothing-of-the-kind'");
    refused("= A\nplace | what | not reproducible", "its reason is missing");
    refused("= A\nplace | what | soon", "no state");
    assert_eq!(parse("# only\n\n").unwrap(), []);
    assert_eq!(parse("= A\np | w | not yet: a reason").unwrap()[0].state, State::NotYet("a reason".into()));
}
