//! Descriptions in CSV, as spreadsheets write them: the same table that TOML would give.
//!
//! A row whose first cell is `[name]` or `[[name]]` begins a table; its other cells name fields, and each following
//! row whose first cell is empty is one element (`[name]` has exactly one). A dotted name is a table within a table.
//! Fields outside of tables stand under `[]`. A cell is a number, `true`, `false`, text, or in TOML's own brackets a
//! list or a table, in its quotes a text that looks like a number. Empty cells are fields that are not given; empty rows and rows that begin with `#` are left out.
//!
//! Invariant: tables are at most [`DEEPEST`] deep, so that reading one takes bounded memory and time.

use tierstone_base::{Error, ErrorKind, Result};
use toml::{Table, Value};

/// Most parts of a table's name.
const DEEPEST: usize = 4;

/// The table that the rows being read belong to.
struct Section {
    name: String,
    many: bool,
    fields: Vec<String>,
    rows: usize,
    line: u64,
}

/// The table that a description in CSV is.
///
/// # Errors
/// `InvalidInput`: the line, and what is wrong with it.
pub(super) fn table(text: &str) -> Result<Table> {
    let wrong = |line: u64, why: String| Error::new(ErrorKind::InvalidInput, format!("line {line}: {why}"));
    let mut reader = ::csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .comment(Some(b'#'))
        .trim(::csv::Trim::All)
        .from_reader(text.trim_start_matches('\u{feff}').as_bytes());
    let mut table = Table::new();
    let mut section: Option<Section> = None;
    for record in reader.records() {
        let record = record.map_err(|error| Error::new(ErrorKind::InvalidInput, error.to_string()))?;
        let line = record.position().map_or(0, ::csv::Position::line);
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
    let Some(section) = section else { return Ok(()) };
    let fail = |why: String| (section.line, why);
    if section.rows == 0 && !section.many {
        return Err(fail(format!("the table [{}] has no row of values", section.name)));
    }
    if section.many {
        let (parent, name) = parent(table, &section.name).map_err(fail)?;
        parent.entry(name).or_insert_with(|| Value::Array(Vec::new()));
    }
    Ok(())
}

/// The table in which the last part of a dotted name stands, and that part.
fn parent<'a>(table: &'a mut Table, name: &str) -> std::result::Result<(&'a mut Table, String), String> {
    let mut parts: Vec<&str> = name.split('.').collect();
    if parts.iter().any(|part| part.is_empty()) && !name.is_empty() {
        return Err(format!("'[{name}]' names no table"));
    }
    if parts.len() > DEEPEST {
        return Err(format!("[{name}] is more than {DEEPEST} tables deep"));
    }
    let last = parts.pop().unwrap_or_default().to_owned();
    let mut place = table;
    for part in parts {
        let inner = place.entry(part.to_owned()).or_insert_with(|| Value::Table(Table::new()));
        let Value::Table(inner) = inner else { return Err(format!("{part} is no table, as [{name}] asks")) };
        place = inner;
    }
    Ok((place, last))
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
    let full = &section.name;
    let given = |table: &mut Table, key: String, value: Value| match table.insert(key.clone(), value) {
        Some(_) => Err(format!("{key} is given twice")),
        None => Ok(()),
    };
    if section.rows > 1 && !section.many {
        return Err(format!("[{full}] has one row; write [[{full}]] for several"));
    }
    if full.is_empty() {
        return element.into_iter().try_for_each(|(key, value)| given(table, key, value));
    }
    let (parent, name) = parent(table, full)?;
    if section.many {
        let list = parent.entry(name).or_insert_with(|| Value::Array(Vec::new()));
        let Value::Array(list) = list else { return Err(format!("{full} is given twice")) };
        list.push(Value::Table(element));
        return Ok(());
    }
    // Its own tables may stand before it.
    if let Some(Value::Table(begun)) = parent.get_mut(&name) {
        return element.into_iter().try_for_each(|(key, value)| given(begun, key, value));
    }
    given(parent, name, Value::Table(element))
}

/// A cell as TOML would have it: a whole number, a number, `true`, `false`, what TOML reads within its own brackets
/// or quotes, or text.
fn value(cell: &str) -> Value {
    if let Ok(number) = cell.parse::<i64>() {
        return Value::Integer(number);
    }
    if cell.starts_with(['[', '{', '"']) {
        let read = toml::from_str::<Table>(&format!("cell = {cell}"));
        let read = read.ok().filter(|table| table.len() == 1).and_then(|mut table| table.remove("cell"));
        return read.unwrap_or_else(|| Value::String(cell.to_owned()));
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
