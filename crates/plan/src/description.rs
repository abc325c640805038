//! Descriptions: what a plan is asked, as TOML, or as CSV of a spreadsheet.
//!
//! A CSV description has the fields of the TOML one. A row whose first cell is `[name]` or `[[name]]`
//! begins a table; its other cells name fields, and each following row whose first cell is empty is
//! one element (`[name]` has exactly one). Fields outside of tables stand under `[]`. Empty cells are
//! fields that are not given; empty rows and rows that begin with `#` are left out.
//!
//! Invariants:
//! 1. Fields that no plan knows are errors: a misspelt one is not silently left out of the money.
//! 2. A description has at most [`LONGEST`] bytes, so that reading one takes a bounded time.

use serde::de::DeserializeOwned;
use std::path::Path;
use tierstone_base::{Error, ErrorKind, Result};
use toml::{Table, Value};

/// The longest description, in bytes.
pub const LONGEST: usize = 4 << 20;

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
            Form::Toml => toml::from_str(&self.text).map_err(|error| self.wrong(error)),
            Form::Csv => {
                let table = table_of_csv(&self.text).map_err(|error| self.wrong(error))?;
                T::deserialize(table).map_err(|error| self.wrong(error))
            }
        }
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

/// The table that the rows being read belong to.
struct Section {
    name: String,
    many: bool,
    fields: Vec<String>,
    rows: usize,
    line: u64,
}

fn table_of_csv(text: &str) -> Result<Table> {
    let wrong = |line: u64, why: String| Error::new(ErrorKind::InvalidInput, format!("line {line}: {why}"));
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .comment(Some(b'#'))
        .trim(csv::Trim::All)
        .from_reader(text.trim_start_matches('\u{feff}').as_bytes());
    let mut table = Table::new();
    let mut section: Option<Section> = None;
    for record in reader.records() {
        let record = record.map_err(|error| Error::new(ErrorKind::InvalidInput, error.to_string()))?;
        let line = record.position().map_or(0, csv::Position::line);
        let mut cells: Vec<&str> = record.iter().collect();
        cells.truncate(cells.iter().rposition(|cell| !cell.is_empty()).map_or(0, |last| last + 1));
        let Some((head, cells)) = cells.split_first() else { continue };
        if !head.is_empty() {
            finish(section.take(), &mut table).map_err(|(line, why)| wrong(line, why))?;
            section = Some(begin(head, cells, line).map_err(|why| wrong(line, why))?);
            continue;
        }
        let Some(section) = &mut section else {
            let why = "values before any table; begin one with [name] or [[name]] in the first cell";
            return Err(wrong(line, why.to_owned()));
        };
        let element = element(&section.fields, cells).map_err(|why| wrong(line, why))?;
        section.rows += 1;
        add(section, element, &mut table).map_err(|why| wrong(line, why))?;
    }
    finish(section, &mut table).map_err(|(line, why)| wrong(line, why))?;
    Ok(table)
}

fn begin(head: &str, fields: &[&str], line: u64) -> std::result::Result<Section, String> {
    let inner =
        |text: &str| text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).map(str::to_owned);
    let Some(name) = inner(head) else {
        return Err(format!("'{head}' in the first cell; a table begins with [name] or [[name]]"));
    };
    let (name, many) = inner(&name).map_or((name, false), |name| (name, true));
    if name.contains(['[', ']']) || (many && name.is_empty()) {
        return Err(format!("'{head}' names no table"));
    }
    if let Some(place) = fields.iter().position(|field| field.is_empty()) {
        return Err(format!("column {} of {head} has no name", place + 2));
    }
    let fields: Vec<String> = fields.iter().map(|&field| field.to_owned()).collect();
    Ok(Section { name, many, fields, rows: 0, line })
}

fn finish(section: Option<Section>, table: &mut Table) -> std::result::Result<(), (u64, String)> {
    match section {
        Some(section) if section.rows == 0 && !section.many => {
            Err((section.line, format!("the table [{}] has no row of values", section.name)))
        }
        Some(section) if section.many => {
            table.entry(section.name).or_insert_with(|| Value::Array(Vec::new()));
            Ok(())
        }
        _ => Ok(()),
    }
}

fn element(fields: &[String], cells: &[&str]) -> std::result::Result<Table, String> {
    if cells.len() > fields.len() {
        return Err(format!("{} values for {} columns", cells.len(), fields.len()));
    }
    let mut element = Table::new();
    for (field, cell) in fields.iter().zip(cells).filter(|(_, cell)| !cell.is_empty()) {
        if element.insert(field.clone(), value(cell)).is_some() {
            return Err(format!("two columns are called {field}"));
        }
    }
    Ok(element)
}

fn add(section: &Section, element: Table, table: &mut Table) -> std::result::Result<(), String> {
    let name = &section.name;
    if section.many {
        let list = table.entry(name.clone()).or_insert_with(|| Value::Array(Vec::new()));
        return match list {
            Value::Array(list) => {
                list.push(Value::Table(element));
                Ok(())
            }
            _ => Err(format!("{name} is given twice")),
        };
    }
    if section.rows > 1 {
        return Err(format!("[{name}] has one row; write [[{name}]] for several"));
    }
    let mut given = |key: String, value: Value| match table.insert(key.clone(), value) {
        Some(_) => Err(format!("{key} is given twice")),
        None => Ok(()),
    };
    if name.is_empty() {
        return element.into_iter().try_for_each(|(key, value)| given(key, value));
    }
    given(name.clone(), Value::Table(element))
}

/// A cell as TOML would have it: a whole number, a number, `true`, `false`, or text.
fn value(cell: &str) -> Value {
    if let Ok(number) = cell.parse::<i64>() {
        return Value::Integer(number);
    }
    match cell {
        "true" => Value::Boolean(true),
        "false" => Value::Boolean(false),
        _ if cell.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first)) => {
            cell.parse::<f64>().map_or_else(|_| Value::String(cell.to_owned()), Value::Float)
        }
        _ => Value::String(cell.to_owned()),
    }
}

#[cfg(test)]
#[path = "description_test.rs"]
mod description_test;
