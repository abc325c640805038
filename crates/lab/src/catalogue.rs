//! Every published table and figure of the works that Tierstone stands on, with its state: runs, not yet, or why not.
//!
//! The data is `catalogue.txt`, read and checked here; a line that is wrong is an error that names it.

use crate::experiments::find;
use serde::Serialize;
use std::fmt;
use tierstone_base::{Error, ErrorKind, Result};

const TEXT: &str = include_str!("catalogue.txt");

/// A published table or figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Author, year and title or place.
    pub work: String,
    /// Tables and figures.
    pub place: String,
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
}

impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            State::Runs(name) => write!(formatter, "runs: tierstone lab run {name}"),
            State::Elsewhere(command) => write!(formatter, "runs: {command}"),
            State::NotYet(why) if why.is_empty() => formatter.write_str("not yet"),
            State::NotYet(why) => write!(formatter, "not yet: {why}"),
            State::NotReproducible(why) => write!(formatter, "not reproducible: {why}"),
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
        entries.push(Entry { work: work.to_owned(), place: place.to_owned(), what: what.to_owned(), state });
    }
    Ok(entries)
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
        _ => Err(wrong(format!("'{text}' is no state, or its reason is missing"))),
    }
}

#[cfg(test)]
#[path = "catalogue_test.rs"]
mod catalogue_test;
