//! A report as one page: no script, no font, no picture from elsewhere; its plots are part of it.
//!
//! Invariant: every text of the report is escaped, and the page forbids itself scripts and loading.

use crate::drawing;
use crate::number::number;
use crate::parts::{Cell, Row, Table, Verdict};
use crate::report::{Fact, Report};
use std::fmt::Write;
use tierstone_base::Result;

const STYLE: &str = "\
body{font:16px/1.5 system-ui,sans-serif;color:#1b1b1b;background:#fff;margin:2rem auto;max-width:64rem;padding:0 1rem}\
h1{font-size:1.7rem;line-height:1.2}h2{font-size:1.2rem;margin-top:2.2rem;border-bottom:1px solid #ccc}\
table{border-collapse:collapse;font-size:.9rem}\
.wide{overflow-x:auto}th,td{padding:.25rem .7rem;border-bottom:1px solid #ddd;text-align:left;vertical-align:top}\
th{background:#f2f2f2}td.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\
.answer{background:#eef5fb;border-left:4px solid #0072b2;padding:.5rem 1rem}.answer p{margin:.3rem 0}\
.differs{color:#b04a00;font-weight:600}.small{color:#555;font-size:.9rem}\
figure{margin:1rem 0}svg{max-width:100%;height:auto}\
@media print{body{margin:0;max-width:none}h2{break-after:avoid}figure,tr{break-inside:avoid}}";

/// What each label means, for readers of any report.
pub const LABELS: &str = "Measured: by a meter or a clock, here. Modelled: worked out from the description. \
Published: taken from the source. Numbers of tables and plots are modelled where their heads say nothing else.";

/// The page of `report`.
///
/// # Errors
/// When a plot cannot be drawn.
pub fn page(report: &Report) -> Result<String> {
    let title = escape(&report.title);
    let mut text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n\
         <p class=\"small\">Plan <code>{}</code>. Models: {}</p>\n",
        escape(&report.name),
        escape(&report.source)
    );
    list(&mut text, "What was asked", "ul", &report.asked);
    if !report.answer.is_empty() {
        text.push_str("<h2>Answer</h2>\n<div class=\"answer\">\n");
        report.answer.iter().for_each(|line| push(&mut text, &format!("<p>{}</p>\n", escape(line))));
        text.push_str("</div>\n");
    }
    facts(&mut text, &report.facts);
    rows(&mut text, &report.rows);
    for plot in &report.plots {
        push(
            &mut text,
            &format!("<h2>{}</h2>\n<figure>\n{}</figure>\n", escape(&plot.title), drawing::svg(plot)?),
        );
    }
    report.tables.iter().for_each(|of| table(&mut text, of));
    list(&mut text, "How the figures were come to", "ol", &report.explanation);
    list(&mut text, "Notes", "ul", &report.notes);
    push(&mut text, &format!("<p class=\"small\">{LABELS}</p>\n</body>\n</html>\n"));
    Ok(text)
}

fn push(text: &mut String, more: &str) {
    text.push_str(more);
}

fn list(text: &mut String, head: &str, element: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    // Writing to a string does not fail.
    let _ = write!(text, "<h2>{head}</h2>\n<{element}>\n");
    for line in lines {
        let _ = writeln!(text, "<li>{}</li>", escape(line));
    }
    let _ = writeln!(text, "</{element}>");
}

fn begin_table(text: &mut String, title: &str, columns: &mut dyn Iterator<Item = String>) {
    let _ = write!(text, "<h2>{title}</h2>\n<div class=\"wide\"><table>\n<thead><tr>");
    columns.for_each(|column| push(text, &format!("<th>{column}</th>")));
    text.push_str("</tr></thead>\n<tbody>\n");
}

const END_TABLE: &str = "</tbody>\n</table></div>\n";

fn facts(text: &mut String, facts: &[Fact]) {
    if facts.is_empty() {
        return;
    }
    begin_table(
        text,
        "In numbers",
        &mut ["what", "value", "unit", "label"].iter().map(|&head| head.to_owned()),
    );
    for fact in facts {
        let _ = writeln!(
            text,
            "<tr><td>{}</td><td class=\"number\">{}</td><td>{}</td><td>{}</td></tr>",
            escape(&fact.name),
            number(fact.value),
            escape(&fact.unit),
            fact.label.name()
        );
    }
    text.push_str(END_TABLE);
}

fn rows(text: &mut String, rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    let heads = ["value", "published", "here (modelled)", "unit", "verdict", "where published", "why"];
    begin_table(text, "Published values beside those here", &mut heads.iter().map(|&head| head.to_owned()));
    for row in rows {
        let verdict = match row.verdict {
            Verdict::Agrees => "<td>agrees</td>",
            Verdict::Differs => "<td class=\"differs\">differs</td>",
        };
        let _ = writeln!(
            text,
            "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td>{}</td>{verdict}\
             <td>{}</td><td>{}</td></tr>",
            escape(&row.name),
            number(row.published),
            number(row.here),
            escape(&row.unit),
            escape(&row.place),
            escape(&row.because)
        );
    }
    text.push_str(END_TABLE);
}

fn table(text: &mut String, table: &Table) {
    begin_table(text, &escape(&table.title), &mut table.columns.iter().map(|column| escape(column)));
    for row in &table.rows {
        text.push_str("<tr>");
        for cell in row {
            let _ = match cell {
                Cell::Number(value) => write!(text, "<td class=\"number\">{}</td>", number(*value)),
                Cell::Text(words) => write!(text, "<td>{}</td>", escape(words)),
            };
        }
        text.push_str("</tr>\n");
    }
    text.push_str(END_TABLE);
}

/// Text that stays text in a page.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(letter),
        }
    }
    escaped
}
