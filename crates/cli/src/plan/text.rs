//! A report as plain text.

use crate::output::table;
use tierstone_plan::number::number;
use tierstone_plan::parts::{Cell, Row, Verdict};
use tierstone_plan::{Fact, Report, html};

/// The report; how its figures were come to only where `explain` asks for it.
pub fn text(report: &Report, explain: bool) -> String {
    let mut text = format!("{}\n", report.title);
    list(&mut text, "asked", &report.asked);
    list(&mut text, "answer", &report.answer);
    section(&mut text, "in numbers", facts(&report.facts));
    section(&mut text, "published values beside those here (modelled)", rows(&report.rows, explain));
    for of in &report.tables {
        let mut rows = vec![of.columns.clone()];
        rows.extend(of.rows.iter().map(|row| row.iter().map(cell).collect()));
        section(&mut text, &of.title, rows);
    }
    if explain {
        list(&mut text, "how the figures were come to", &report.explanation);
        list(&mut text, "notes", &report.notes);
    }
    text.push_str(&format!("\nModels: {}\n{}\n", report.source, html::LABELS));
    text
}

fn list(text: &mut String, head: &str, lines: &[String]) {
    if !lines.is_empty() {
        text.push_str(&format!("\n{head}:\n"));
        lines.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
    }
}

/// A table below its heading, unless it has nothing but its head.
fn section(text: &mut String, head: &str, rows: Vec<Vec<String>>) {
    if rows.len() > 1 {
        text.push_str(&format!("\n{head}:\n{}", table(&rows)));
    }
}

fn cell(cell: &Cell) -> String {
    match cell {
        Cell::Number(value) => number(*value),
        Cell::Text(words) => words.clone(),
    }
}

fn facts(facts: &[Fact]) -> Vec<Vec<String>> {
    let mut rows = vec![["what", "value", "unit", "label"].map(str::to_owned).to_vec()];
    rows.extend(facts.iter().map(|fact| {
        vec![fact.name.clone(), number(fact.value), fact.unit.clone(), fact.label.name().to_owned()]
    }));
    rows
}

/// Where each value was published stands there only with `explain`: lines are long enough.
fn rows(rows: &[Row], explain: bool) -> Vec<Vec<String>> {
    let columns = if explain { 7 } else { 6 };
    let heads = ["value", "published", "here", "unit", "verdict", "why", "where published"];
    let mut lines = vec![heads.map(str::to_owned).to_vec()];
    lines.extend(rows.iter().map(|row| {
        let verdict = if row.verdict == Verdict::Agrees { "agrees" } else { "differs" };
        vec![
            row.name.clone(),
            number(row.published),
            number(row.here),
            row.unit.clone(),
            verdict.to_owned(),
            row.because.clone(),
            row.place.clone(),
        ]
    }));
    lines.iter_mut().for_each(|line| line.truncate(columns));
    lines
}
