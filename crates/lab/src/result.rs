//! What a run gives: the format of `result.json`, version 1.
//!
//! Invariant: every number in it is finite, so that it survives JSON.

use crate::experiment::{Kind, Size};
use crate::machine::Machine;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
pub use tierstone_plan::parts::{Axis, Cell, Plot, Row, Scale, Series, Table, Verdict};

/// The version of the format; it rises when a field changes its meaning.
pub const FORMAT: u32 = 1;

/// Everything that came of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExperimentResult {
    /// [`FORMAT`].
    pub format: u32,
    /// The experiment.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// The work, its tables and figures.
    pub source: String,
    /// What is measured.
    pub measures: String,
    /// Measured or modelled.
    pub kind: Kind,
    /// How much was measured.
    pub size: Size,
    /// The program and its version.
    pub program: String,
    /// When the run began: UTC, `2026-11-22T01:30:00Z`.
    pub started: String,
    /// How long it took.
    pub seconds: f64,
    /// Where it ran.
    pub machine: Machine,
    /// What was chosen for this run: sizes, depths, seeds.
    pub settings: BTreeMap<String, String>,
    /// Published values and ours.
    pub rows: Vec<Row>,
    /// Everything measured.
    pub tables: Vec<Table>,
    /// The names of those that the terminal shows too.
    #[serde(default)]
    pub shown: Vec<String>,
    /// The same in pictures.
    pub plots: Vec<Plot>,
    /// What a reader has to know to judge the numbers.
    pub notes: Vec<String>,
    /// What was done, in order, and how long it took.
    pub steps: Vec<StepTime>,
}

impl ExperimentResult {
    /// The tables that the terminal shows.
    pub fn shown_tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.iter().filter(|table| self.shown.contains(&table.name))
    }
}

/// One step of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepTime {
    /// What was done.
    pub doing: String,
    /// How long it took.
    pub seconds: f64,
}
