//! The catalogue is whole: every work, every experiment, no line twice, nothing that reads wrongly.

use super::*;
use crate::experiments::ALL;
use std::collections::{BTreeMap, BTreeSet};

/// The last number in each chapter ("" where a work does not number by chapter); each begins with 1.
type Last = &'static [(&'static str, u32)];

/// A publication and all that it numbers, counted from its captions and lists, not from the catalogue.
struct Numbers {
    author: &'static str,
    tables: Last,
    figures: Last,
    algorithms: Last,
}

const PUBLISHED: [Numbers; 12] = [
    Numbers {
        author: "Vasudevan",
        tables: &[("2.", 2), ("4.", 2), ("5.", 3), ("6.", 2)],
        figures: &[("2.", 5), ("4.", 6), ("5.", 2), ("6.", 7), ("7.", 14), ("8.", 3), ("9.", 1)],
        algorithms: &[],
    },
    Numbers {
        author: "Lersch",
        tables: &[("2.", 6), ("3.", 2), ("4.", 4), ("5.", 1)],
        figures: &[("1.", 1), ("2.", 15), ("3.", 14), ("4.", 11), ("5.", 19), ("A.", 2)],
        algorithms: &[("3.", 1), ("4.", 1)],
    },
    Numbers {
        author: "Pelley",
        tables: &[("2.", 1), ("3.", 1), ("4.", 2), ("5.", 6), ("8.", 1), ("A.", 3)],
        figures: &[("3.", 4), ("4.", 3), ("5.", 7), ("6.", 1), ("7.", 4), ("8.", 3), ("A.", 10), ("B.", 10)],
        algorithms: &[],
    },
    Numbers { author: "Kannan", tables: &[("", 2)], figures: &[("", 15)], algorithms: &[("", 1)] },
    // Known here by its abstract alone.
    Numbers { author: "Qureshi", tables: &[], figures: &[], algorithms: &[] },
    Numbers { author: "Ye", tables: &[("", 2)], figures: &[("", 13)], algorithms: &[] },
    Numbers { author: "Bhattacharjee", tables: &[("", 1)], figures: &[("", 9)], algorithms: &[] },
    Numbers { author: "Muehe", tables: &[("", 3)], figures: &[("", 12)], algorithms: &[] },
    Numbers { author: "Sadoghi", tables: &[("", 3)], figures: &[("", 6)], algorithms: &[] },
    Numbers { author: "Sompolski", tables: &[], figures: &[("", 5)], algorithms: &[("", 5)] },
    Numbers { author: "Snyder", tables: &[("", 2)], figures: &[("", 14)], algorithms: &[] },
    Numbers { author: "Harizopoulos", tables: &[("", 3)], figures: &[("", 6)], algorithms: &[] },
];

impl Numbers {
    fn items(&self) -> BTreeSet<String> {
        let of = |kind: &str, last: Last| -> Vec<String> {
            let chapter = |&(chapter, last)| (1..=last).map(move |number| format!("{chapter}{number}"));
            last.iter().flat_map(chapter).map(|number| format!("{kind} {number}")).collect()
        };
        [of("Table", self.tables), of("Figure", self.figures), of("Algorithm", self.algorithms)]
            .concat()
            .into_iter()
            .collect()
    }
}

#[test]
fn every_numbered_table_figure_and_algorithm_has_a_line_and_no_other() {
    let entries = catalogue().unwrap();
    let mut lines: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for entry in &entries {
        lines.entry(&entry.work).or_default().extend(entry.items.iter().map(String::as_str));
    }
    assert_eq!(lines.len(), PUBLISHED.len(), "{:?}", lines.keys());
    for published in &PUBLISHED {
        let author = |work: &str| work.split([' ', ',']).any(|word| word == published.author);
        let mut listed: Vec<&str> =
            lines.iter().filter(|(work, _)| author(work)).flat_map(|(_, items)| items).copied().collect();
        // One figure of it stands in two lines: an experiment for each half.
        if let Some(again) =
            listed.iter().rposition(|&item| published.author == "Vasudevan" && item == "Figure 4.6")
        {
            listed.remove(again);
        }
        let set: BTreeSet<String> = listed.iter().map(|&item| item.to_owned()).collect();
        let all = published.items();
        let missing: Vec<_> = all.difference(&set).collect();
        let unknown: Vec<_> = set.difference(&all).collect();
        assert!(missing.is_empty() && unknown.is_empty(), "{}: {missing:?}, {unknown:?}", published.author);
        assert_eq!(set.len(), listed.len(), "{}: one stands in two lines", published.author);
    }
}

#[test]
fn a_place_is_taken_apart_and_what_is_in_no_order_is_refused() {
    let items = |place: &str| parse_place(place).unwrap();
    assert_eq!(items("Figure 4.6, split"), ["Figure 4.6"]);
    assert_eq!(
        items("Figures B.5, B.9 to B.11, Table 2"),
        ["Figure B.5", "Figure B.9", "Figure B.10", "Figure B.11", "Table 2"]
    );
    assert_eq!(items("Algorithms 1 to 3").len(), 3);
    for words in ["abstract", "Section 4.2.1", "Section 5.8, mixes"] {
        assert!(items(words).is_empty(), "{words}");
    }
    for wrong in
        ["Figure", "Figure x", "Tables 2.3 to 2.1", "Figures 2.1 to 3.2", "Figures 1 to", "Table 2.1, 2."]
    {
        assert!(parse_place(wrong).is_err(), "{wrong}");
    }
    assert!(parse("= A\nFigures 2 to 1 | what | not yet").unwrap_err().message().contains("line 2"));
}

#[test]
fn the_summary_counts_each_table_and_figure_once() {
    let entries = parse(
        "= A\nFigures 1 to 3 | what | not a result: drawing\nFigure 4 | what | runs: endurance\n\
         Figure 4, again | what | not yet\nabstract | what | not yet\n= B\nFigure 1, Table 1 | what | not yet",
    );
    assert_eq!(
        summary(&entries.unwrap()),
        "6 tables, figures and algorithms: 1 run by experiments, 0 by other commands, 2 not yet, \
         0 not reproducible, 3 no results (drawings, code, machines); besides, in text alone: 1"
    );
    let all: usize = PUBLISHED.iter().map(|published| published.items().len()).sum();
    assert!(summary(&catalogue().unwrap()).starts_with(&format!("{all} tables")));
}

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
    assert_eq!(shown(State::NotAResult("drawing".into())), "not a result: drawing");
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
    refused("= A\nplace | what | not a result", "its reason is missing");
    refused("= A\nplace | what | soon", "no state");
    assert_eq!(parse("# only\n\n").unwrap(), []);
    assert_eq!(parse("= A\np | w | not yet: a reason").unwrap()[0].state, State::NotYet("a reason".into()));
}
