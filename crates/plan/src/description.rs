//! Descriptions: what a plan is asked, as TOML, or as CSV of a spreadsheet.
//!
//! Invariants:
//! 1. Fields that no plan knows are errors: a misspelt one is not silently left out of the money.
//! 2. A description has at most [`LONGEST`] bytes, so that reading one takes a bounded time.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::Path;
use tierstone_base::{Error, ErrorKind, Result};

/// The longest description, in bytes.
pub const LONGEST: usize = 4 << 20;

mod csv;
mod renamed;

/// A remark that a description has for its readers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Note {
    text: String,
}

impl Note {
    /// The remarks as the report has them.
    pub(crate) fn texts(notes: Vec<Note>) -> Vec<String> {
        notes.into_iter().map(|note| note.text).collect()
    }
}

/// What a description is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// TOML.
    Toml,
    /// CSV.
    Csv,
}

impl Form {
    /// The ending of its files.
    pub fn ending(self) -> &'static str {
        match self {
            Form::Toml => "toml",
            Form::Csv => "csv",
        }
    }
}

/// The text of a plan's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Where it is from, for error messages: a file's name, or a scenario's.
    pub origin: String,
    /// What it is written in.
    pub form: Form,
    /// The text.
    pub text: String,
}

impl Description {
    /// A TOML text that is called `origin` in error messages.
    pub fn toml(origin: &str, text: &str) -> Description {
        Description { origin: origin.to_owned(), form: Form::Toml, text: text.to_owned() }
    }

    /// A CSV text that is called `origin` in error messages.
    pub fn csv(origin: &str, text: &str) -> Description {
        Description { origin: origin.to_owned(), form: Form::Csv, text: text.to_owned() }
    }

    /// Reads a file; its ending, `.toml` or `.csv`, says what it is written in.
    ///
    /// # Errors
    /// `InvalidInput`: another ending, more than [`LONGEST`] bytes, no UTF-8; and when it cannot be read.
    pub fn read(file: &Path) -> Result<Description> {
        let origin = file.display().to_string();
        let form = match file.extension().and_then(|ending| ending.to_str()) {
            Some("toml") => Form::Toml,
            Some("csv") => Form::Csv,
            _ => {
                let message = format!("{origin}: a description's name ends in .toml or .csv");
                return Err(Error::new(ErrorKind::InvalidInput, message));
            }
        };
        let text = String::from_utf8(read_at_most(file, LONGEST)?)
            .map_err(|_| Error::new(ErrorKind::InvalidInput, format!("{origin} is no UTF-8 text")))?;
        Ok(Description { origin, form, text })
    }

    /// The description as a `T`, which denies unknown fields.
    ///
    /// # Errors
    /// `InvalidInput`: what is wrong, in which line (TOML) or which field (CSV).
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        if self.text.len() > LONGEST {
            return Err(self.wrong(format!("longer than {LONGEST} bytes")));
        }
        match self.form {
            Form::Toml => toml::from_str(&self.text)
                .map_err(|error| self.wrong(format!("{error}{}", renamed::advice(error.message())))),
            Form::Csv => {
                let table = csv::table(&self.text).map_err(|error| self.wrong(error))?;
                T::deserialize(table).map_err(|error: toml::de::Error| {
                    self.wrong(format!("{error}{}", renamed::advice(error.message())))
                })
            }
        }
    }

    /// The description as `check` makes it of the fields.
    ///
    /// # Errors
    /// As [`Description::parse`], and what `check` refuses, with the description's origin before it.
    pub fn checked<T: DeserializeOwned, C>(&self, check: impl FnOnce(T) -> Result<C>) -> Result<C> {
        check(self.parse()?).map_err(|error| self.wrong(error))
    }

    /// An error about this description.
    pub fn wrong(&self, why: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::InvalidInput, format!("{}: {why}", self.origin))
    }
}

/// The bytes of `file`.
///
/// # Errors
/// `InvalidInput` when there are more than `most`; and when it cannot be read.
pub fn read_at_most(file: &Path, most: usize) -> Result<Vec<u8>> {
    use std::io::Read;
    let name = file.display();
    let failed = |error: std::io::Error| Error::from(error).context(&format!("cannot read {name}"));
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file).map_err(failed)?;
    opened.take(most as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > most {
        return Err(Error::new(ErrorKind::InvalidInput, format!("{name} is longer than {most} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
#[path = "description_test.rs"]
mod description_test;
