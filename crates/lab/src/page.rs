//! A result as a Markdown page.

use crate::machine::Machine;
use crate::result::{Cell, ExperimentResult, Row, Table, Verdict};
use std::fmt::Write;
use tierstone_plan::number::number;

/// The page of one result.
pub fn page(result: &ExperimentResult) -> String {
    let mut text = format!("# {}\n\n", result.title);
    let mut line = |what: &str, value: &str| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "* {what}: {value}");
    };
    line("source", &result.source);
    line("what", &result.measures);
    line("numbers here", &format!("{}, size `{}`", kinds(result), result.size));
    line("machine", &result.machine.summary());
    line("run", &format!("{}, {:.0} s, {}", result.started, result.seconds, result.program));
    if !result.rows.is_empty() {
        text.push_str("\n## Beside the published values\n\n");
        text.push_str(&rows(&result.rows));
    }
    for plot in &result.plots {
        let _ = write!(text, "\n![{}]({}.svg)\n", escape(&plot.title), plot.name);
    }
    for table in &result.tables {
        let _ = write!(text, "\n## {}\n\n{}", escape(&table.title), of_table(table));
    }
    if !result.notes.is_empty() {
        text.push_str("\n## Notes\n\n");
        result.notes.iter().for_each(|note| {
            let _ = writeln!(text, "* {}", escape(note));
        });
    }
    text.push_str("\n## Settings\n\n| setting | value |\n|---|---|\n");
    for (name, value) in &result.settings {
        let _ = writeln!(text, "| {} | {} |", escape(name), escape(value));
    }
    text.push_str("\n## Steps\n\n| step | s |\n|---|---|\n");
    for step in &result.steps {
        let _ = writeln!(text, "| {} | {:.1} |", escape(&step.doing), step.seconds);
    }
    text
}

/// Where the numbers come from: what the experiment is, and what its tables and plots say of some beside that.
fn kinds(result: &ExperimentResult) -> String {
    let in_tables = result.tables.iter().flat_map(|table| {
        let cells = table.rows.iter().flatten().filter_map(|cell| match cell {
            Cell::Text(words) => Some(words),
            Cell::Number(_) => None,
        });
        table.columns.iter().chain([&table.title]).chain(cells)
    });
    let in_plots = result.plots.iter().flat_map(|plot| {
        let names = plot.series.iter().map(|series| &series.name);
        names.chain([&plot.title, &plot.x.label, &plot.y.label])
    });
    let words: Vec<String> = in_tables.chain(in_plots).map(|words| words.to_lowercase()).collect();
    let own = result.kind.to_string();
    let is_said = |kind: &&str| *kind != own && words.iter().any(|words| words.contains(*kind));
    let others: Vec<&str> = ["measured", "modelled", "published"].into_iter().filter(is_said).collect();
    match others.is_empty() {
        true => own,
        false => format!("{own}, but for those said to be {}", others.join(" or ")),
    }
}

/// The index of several results, of one run or of several; `unread` are folders whose results cannot be read.
pub fn index(results: &[ExperimentResult], unread: &[String]) -> String {
    let mut text = String::from("# Published experiments, run here\n\n");
    // Runs on other machines may be among them: each is told once, with what its first run met.
    let mut machines: Vec<Machine> = Vec::new();
    for result in results {
        let machine = Machine { load_average: 0.0, ..result.machine.clone() };
        if !machines.contains(&machine) {
            let _ = writeln!(text, "* {}", result.machine.summary());
            machines.push(machine);
        }
    }
    if !unread.is_empty() {
        let _ = writeln!(text, "* not listed, for their results cannot be read: {}", unread.join(", "));
    }
    text.push_str(
        "\n| experiment | source | begun | numbers | agree | differ | s |\n|---|---|---|---|---|---|---|\n",
    );
    for result in results {
        let agreeing = result.rows.iter().filter(|row| row.verdict == Verdict::Agrees).count();
        let _ = writeln!(
            text,
            "| [{}]({}/README.md) | {} | {} | {} | {agreeing} | {} | {:.0} |",
            escape(&result.title),
            result.name,
            escape(&result.source),
            result.started,
            kinds(result),
            result.rows.len() - agreeing,
            result.seconds
        );
    }
    text.push_str("\n## Every comparison\n\n");
    // What a user's own workload gave has no published values.
    for result in results.iter().filter(|result| !result.rows.is_empty()) {
        let _ = write!(text, "### {}\n\n{}\n", escape(&result.title), rows(&result.rows));
    }
    text
}

fn rows(rows: &[Row]) -> String {
    let mut text =
        String::from("| value | published | here | unit | verdict | because |\n|---|---|---|---|---|---|\n");
    for row in rows {
        let _ = writeln!(
            text,
            "| {} | {} ({}) | {} | {} | {} | {} |",
            escape(&row.name),
            number(row.published),
            escape(&row.place),
            number(row.here),
            escape(&row.unit),
            verdict(row.verdict),
            escape(&row.because)
        );
    }
    text
}

/// A verdict as a word.
pub fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Agrees => "agrees",
        Verdict::Differs => "**differs**",
    }
}

fn of_table(table: &Table) -> String {
    let cells = |cells: &mut dyn Iterator<Item = String>| {
        let mut line = cells.fold(String::from("|"), |line, cell| format!("{line} {cell} |"));
        line.push('\n');
        line
    };
    let mut text = cells(&mut table.columns.iter().map(|column| escape(column)));
    text.push_str(&cells(&mut table.columns.iter().map(|_| "---".to_owned())));
    for row in &table.rows {
        text.push_str(&cells(&mut row.iter().map(|cell| match cell {
            Cell::Number(value) => number(*value),
            Cell::Text(words) => escape(words),
        })));
    }
    text
}

/// Text that stays in its cell.
fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
