//! What results and plans consist of: comparisons with published values, tables and plots.
//!
//! Invariant: every number in them is finite, so that it survives JSON.

use crate::number::number;
use serde::{Deserialize, Serialize};

/// A published value and ours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What it is of.
    pub name: String,
    /// The published value.
    pub published: f64,
    /// Ours.
    pub here: f64,
    /// The unit of both.
    pub unit: String,
    /// Where it was published.
    pub place: String,
    /// Whether they agree, by a rule fixed before the run.
    pub verdict: Verdict,
    /// The rule, what is compared, and what else explains it.
    pub because: String,
}

impl Row {
    /// A value that agrees or not by a rule that `why` says.
    pub fn judged(
        name: &str,
        published: f64,
        here: f64,
        unit: &str,
        place: &str,
        agrees: bool,
        why: &str,
    ) -> Row {
        Row {
            name: name.to_owned(),
            published,
            here,
            unit: unit.to_owned(),
            place: place.to_owned(),
            verdict: if agrees { Verdict::Agrees } else { Verdict::Differs },
            because: why.to_owned(),
        }
    }

    /// A value that agrees from one number to another, both included; `why` says what else explains it.
    pub fn ranged(
        name: &str,
        published: f64,
        here: f64,
        unit: &str,
        place: &str,
        (low, high): (f64, f64),
        why: &str,
    ) -> Row {
        let rule = format!("rule: {} to {}; {why}", number(low), number(high));
        Row::judged(name, published, here, unit, place, (low..=high).contains(&here), &rule)
    }
}

/// Whether a value agrees with the published one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It does.
    Agrees,
    /// It does not.
    Differs,
}

/// A table; also written as CSV.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Its file's name, without ending.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// The heads of the columns, with units.
    pub columns: Vec<String>,
    /// As many cells a row as there are columns.
    pub rows: Vec<Vec<Cell>>,
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// A number.
    Number(f64),
    /// Words.
    Text(String),
}

impl From<f64> for Cell {
    fn from(number: f64) -> Cell {
        if number.is_finite() { Cell::Number(number) } else { Cell::Text("-".to_owned()) }
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Cell {
        Cell::Number(number as f64)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::Text(text)
    }
}

impl Table {
    /// An empty table.
    pub fn new(name: &str, title: &str, columns: &[&str]) -> Table {
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        Table { name: name.to_owned(), title: title.to_owned(), columns, rows: Vec::new() }
    }

    /// Adds a row of as many cells as there are columns.
    pub fn push<const COLUMNS: usize>(&mut self, cells: [Cell; COLUMNS]) {
        debug_assert_eq!(COLUMNS, self.columns.len(), "{}", self.name);
        self.rows.push(cells.to_vec());
    }
}

/// A picture of lines and filled areas; also written as SVG and PNG.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    /// Its files' name, without ending.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines and areas; areas lie below all lines.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// What it shows, with its unit.
    pub label: String,
    /// How numbers become places.
    pub scale: Scale,
}

impl Axis {
    /// Equal distances, from zero.
    pub fn linear(label: &str) -> Axis {
        Axis { label: label.to_owned(), scale: Scale::Linear }
    }

    /// Equal ratios; what is not above zero is left out of the picture.
    pub fn logarithmic(label: &str) -> Axis {
        Axis { label: label.to_owned(), scale: Scale::Logarithmic }
    }
}

/// How numbers become places on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Equal distances.
    Linear,
    /// Equal ratios.
    Logarithmic,
}

/// One line of a plot, or one filled area.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// The points of its line, in order.
    pub points: Vec<(f64, f64)>,
    /// The rectangles that its area consists of, each by two opposite corners.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub area: Vec<[(f64, f64); 2]>,
}

impl Series {
    /// A line through those of `points` that are finite.
    pub fn new(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
        let points = points.into_iter().filter(is_finite).collect();
        Series { name: name.to_owned(), points, area: Vec::new() }
    }

    /// The area of those of `rectangles` whose corners are finite.
    pub fn area(name: &str, rectangles: impl IntoIterator<Item = [(f64, f64); 2]>) -> Series {
        let area = rectangles.into_iter().filter(|corners| corners.iter().all(is_finite)).collect();
        Series { name: name.to_owned(), points: Vec::new(), area }
    }
}

fn is_finite((x, y): &(f64, f64)) -> bool {
    x.is_finite() && y.is_finite()
}
