//! Every published table and figure of the works that Tierstone stands on, with its state: runs, not yet, or why not.
//!
//! The data is `catalogue.txt`, read and checked here; a line that is wrong is an error that names it. Drawings and code
//! are in it too, so that whether it is whole can be told by the numbers of each work.

use crate::experiments::find;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use tierstone_base::{Error, ErrorKind, Result};

const TEXT: &str = include_str!("catalogue.txt");

/// What works number.
const KINDS: [&str; 3] = ["Table", "Figure", "Algorithm"];

/// A line: a published table or figure, several of them, or a result that stands in text only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Author, year and title or place.
    pub work: String,
    /// Tables and figures.
    pub place: String,
    /// Each table, figure and algorithm that the place names, by itself; none for a result in text.
    pub items: Vec<String>,
    /// What they show.
    pub what: String,
    /// Whether it can be seen here.
    pub state: State,
}

/// Whether a published result can be seen here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// This experiment runs it.
    Runs(String),
    /// Another command does.
    Elsewhere(String),
    /// No code yet; why, or what there is instead, or nothing.
    NotYet(String),
    /// Never here, and why.
    NotReproducible(String),
    /// There is nothing to run, and what it is instead: a drawing, code, a machine.
    NotAResult(String),
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Runs(name) => write!(formatter, "runs: tierstone lab run {name}"),
            State::Elsewhere(command) => write!(formatter, "runs: {command}"),
            State::NotYet(why) if why.is_empty() => formatter.write_str("not yet"),
            State::NotYet(why) => write!(formatter, "not yet: {why}"),
            State::NotReproducible(why) => write!(formatter, "not reproducible: {why}"),
            State::NotAResult(kind) => write!(formatter, "not a result: {kind}"),
        }
    }
}

/// All entries, in the order of the file.
///
/// # Errors
/// `Corrupt` when the file is wrong, with the line.
pub fn catalogue() -> Result<Vec<Entry>> {
    parse(TEXT)
}

fn parse(text: &str) -> Result<Vec<Entry>> {
    let (mut work, mut entries) = ("", Vec::new());
    for (number, line) in text.lines().enumerate() {
        let wrong = |what: &str| {
            Error::new(
                ErrorKind::Corrupt,
                format!("the catalogue of published results, line {}: {what}", number + 1),
            )
        };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix("= ") {
            work = name;
            continue;
        }
        let fields: Vec<&str> = line.split(" | ").collect();
        let &[place, what, state] = &fields[..] else {
            return Err(wrong("three fields are needed: place | what | state"));
        };
        if work.is_empty() {
            return Err(wrong("a work has to come first"));
        }
        let state = parse_state(state).map_err(|error| wrong(error.message()))?;
        let items = parse_place(place).map_err(|error| wrong(error.message()))?;
        let [work, place, what] = [work, place, what].map(str::to_owned);
        entries.push(Entry { work, place, items, what, state });
    }
    Ok(entries)
}

/// How many of all tables, figures and algorithms are in which state, in a sentence. One that several lines name counts
/// once, with the state of the first.
pub fn summary(entries: &[Entry]) -> String {
    let mut seen = BTreeSet::new();
    let [mut runs, mut elsewhere, mut not_yet, mut not_reproducible, mut no_results] = [0usize; 5];
    for entry in entries {
        let new = entry.items.iter().filter(|item| seen.insert((entry.work.as_str(), item.as_str()))).count();
        let count = match entry.state {
            State::Runs(_) => &mut runs,
            State::Elsewhere(_) => &mut elsewhere,
            State::NotYet(_) => &mut not_yet,
            State::NotReproducible(_) => &mut not_reproducible,
            State::NotAResult(_) => &mut no_results,
        };
        *count += new;
    }
    let in_text = entries.iter().filter(|entry| entry.items.is_empty()).count();
    format!(
        "{} tables, figures and algorithms: {runs} run by experiments, {elsewhere} by other commands, {not_yet} not yet, \
         {not_reproducible} not reproducible, {no_results} no results (drawings, code, machines); besides, in text alone: {in_text}",
        seen.len()
    )
}

/// "Figures 2.1, 2.3 to 2.5, Table 2.1" one by one. Words that name none of [`KINDS`] are left out.
fn parse_place(place: &str) -> Result<Vec<String>> {
    let wrong = |part: &str| {
        Error::new(ErrorKind::Corrupt, format!("'{part}' is no number, nor a range within a chapter"))
    };
    let (mut kind, mut items) = (None, Vec::new());
    for part in place.split(", ") {
        let (word, rest) = part.split_once(' ').unwrap_or((part, ""));
        let numbers = match KINDS.iter().find(|&&kind| word.strip_suffix('s').unwrap_or(word) == kind) {
            Some(named) => {
                kind = Some(named);
                rest
            }
            None if word.contains(char::is_lowercase) => continue,
            None => part,
        };
        let Some(kind) = kind else { continue };
        let (from, to) = numbers.split_once(" to ").unwrap_or((numbers, numbers));
        let (chapter, first) = split_number(from).ok_or_else(|| wrong(part))?;
        let (end, last) = split_number(to).ok_or_else(|| wrong(part))?;
        if end != chapter || last < first {
            return Err(wrong(part));
        }
        items.extend((first..=last).map(|number| format!("{kind} {chapter}{number}")));
    }
    Ok(items)
}

/// "B.10" as "B." and 10, "3" as "" and 3.
fn split_number(text: &str) -> Option<(&str, u32)> {
    let (chapter, number) = text.split_at(text.rfind('.').map_or(0, |at| at + 1));
    number.parse().ok().map(|number| (chapter, number))
}

fn parse_state(text: &str) -> Result<State> {
    let wrong = |what: String| Error::new(ErrorKind::Corrupt, what);
    let (name, more) = text.split_once(": ").unwrap_or((text, ""));
    let more = more.to_owned();
    match (name, more.is_empty()) {
        ("runs", false) if find(&more).is_some() => Ok(State::Runs(more)),
        ("runs", _) => Err(wrong(format!("there is no experiment '{more}'"))),
        ("elsewhere", false) => Ok(State::Elsewhere(more)),
        ("not yet", _) => Ok(State::NotYet(more)),
        ("not reproducible", false) => Ok(State::NotReproducible(more)),
        ("not a result", false) => Ok(State::NotAResult(more)),
        _ => Err(wrong(format!("'{text}' is no state, or its reason is missing"))),
    }
}

#[cfg(test)]
#[path = "catalogue_test.rs"]
mod catalogue_test;
