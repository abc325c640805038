//! What a run prints when it ends: of each experiment the tables that it shows, then every comparison.

use crate::output::{print_line, table};
use std::path::Path;
use tierstone_base::Result;
use tierstone_lab::ExperimentResult;
use tierstone_lab::result::{Cell, Row, Table, Verdict};
use tierstone_plan::number::number;

pub fn print_results(results: &[ExperimentResult], out: &Path) -> Result<()> {
    for result in results {
        print_line(&text(result))?;
    }
    if results.is_empty() {
        return Ok(());
    }
    print_line(&format!("tables, plots and reasons: {}", out.join("README.md").display()))
}

/// One result as it stands on the terminal.
fn text(result: &ExperimentResult) -> String {
    let mut text = format!(
        "{}: {}\npublished: {}; here: {}, size {}\n",
        result.name, result.title, result.source, result.kind, result.size
    );
    for shown in result.shown_tables() {
        text.push_str(&format!("\n{}\n{}", shown.title, table(&cells(shown))));
    }
    if !result.rows.is_empty() {
        text.push_str(&format!("\n{}", table(&rows(result))));
    }
    for row in result.rows.iter().filter(|row| row.verdict == Verdict::Differs) {
        text.push_str(&format!("differs: {}: {}\n", row.name, row.because));
    }
    // Notes explain what is shown; without it they belong to the page.
    for note in result.notes.iter().filter(|_| !result.shown.is_empty()) {
        text.push_str(&format!("note: {note}\n"));
    }
    text
}

fn cells(shown: &Table) -> Vec<Vec<String>> {
    let cell = |cell: &Cell| match cell {
        Cell::Number(value) => number(*value),
        Cell::Text(words) => words.clone(),
    };
    let rows = shown.rows.iter().map(|row| row.iter().map(cell).collect());
    std::iter::once(shown.columns.clone()).chain(rows).collect()
}

fn rows(result: &ExperimentResult) -> Vec<Vec<String>> {
    let here = format!("here ({})", result.kind);
    let head = ["value", "published", &here, "unit", "verdict", "published in"].map(str::to_owned);
    let row = |row: &Row| {
        let verdict = if row.verdict == Verdict::Agrees { "agrees" } else { "differs" };
        let (published, here) = (number(row.published), number(row.here));
        vec![row.name.clone(), published, here, row.unit.clone(), verdict.to_owned(), row.place.clone()]
    };
    std::iter::once(head.to_vec()).chain(result.rows.iter().map(row)).collect()
}
