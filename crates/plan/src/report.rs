//! What every plan gives: one form for text, JSON, pictures and a page that opens without a network.

use crate::parts::{Plot, Row, Table};
use serde::{Deserialize, Serialize};

pub use tierstone_base::Label;

/// The version of the format of [`Report`] as JSON; it rises when a field changes its meaning.
pub const FORMAT: u32 = 1;

/// One number of the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// What it is of.
    pub name: String,
    /// The number.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// Where it comes from.
    pub label: Label,
}

/// A plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// The plan: `nodes`, `power`, ...; also its files' folder.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// The works its models come from, with sections.
    pub source: String,
    /// What was asked, in words: sizes, rates, scenarios.
    pub asked: Vec<String>,
    /// The answer in words, first the decision.
    pub answer: Vec<String>,
    /// The answer in numbers.
    pub facts: Vec<Fact>,
    /// Published values beside ours, where the description is a published one.
    pub rows: Vec<Row>,
    /// Everything worked out.
    pub tables: Vec<Table>,
    /// The same in pictures.
    pub plots: Vec<Plot>,
    /// How the figures were come to, step by step (`--explain`).
    pub explanation: Vec<String>,
    /// What a reader has to know to judge the numbers: assumptions, known misprints of sources.
    pub notes: Vec<String>,
}
