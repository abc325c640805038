//! The shipped scenarios in every form: each can be written as CSV and gives the same report; each page opens without a
//! network.

use crate::common;
use tierstone_plan::description::{Description, Form};
use tierstone_plan::{html, scenario};
use toml::{Table, Value};

/// A cell of CSV: text that looks like something else in TOML's quotes, lists and tables in its brackets.
fn cell(value: &Value) -> String {
    match value {
        Value::String(text) if text.parse::<f64>().is_err() && !text.starts_with(['[', '{', '"']) => {
            text.clone()
        }
        other => other.to_string(),
    }
}

fn is_list_of_tables(value: &Value) -> bool {
    matches!(value, Value::Array(list) if list.first().is_some_and(Value::is_table))
}

fn rows(out: &mut Vec<Vec<String>>, head: &str, elements: &[&Table]) {
    let mut fields: Vec<&String> = elements.iter().flat_map(|table| table.keys()).collect();
    fields.sort();
    fields.dedup();
    out.push(
        std::iter::once(head).chain(fields.iter().map(|field| field.as_str())).map(str::to_owned).collect(),
    );
    for table in elements {
        let cells = fields.iter().map(|field| table.get(*field).map_or(String::new(), cell));
        out.push(std::iter::once(String::new()).chain(cells).collect());
    }
}

/// The tables of `table`, which is called `name`, as a spreadsheet has them.
fn spread(out: &mut Vec<Vec<String>>, name: &str, table: &Table) {
    let own: Table = table
        .iter()
        .filter(|(_, value)| !value.is_table() && !is_list_of_tables(value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if !own.is_empty() {
        rows(out, &format!("[{name}]"), &[&own]);
    }
    for (key, value) in table {
        let full = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
        match value {
            Value::Table(inner) => spread(out, &full, inner),
            Value::Array(list) if is_list_of_tables(value) => {
                let elements: Vec<&Table> = list.iter().filter_map(Value::as_table).collect();
                rows(out, &format!("[[{full}]]"), &elements);
            }
            _ => {}
        }
    }
}

fn as_csv(toml: &str) -> String {
    let mut out = Vec::new();
    spread(&mut out, "", &toml.parse::<Table>().unwrap());
    let mut writer = csv::WriterBuilder::new().flexible(true).from_writer(Vec::new());
    out.iter().for_each(|row| writer.write_record(row).unwrap());
    String::from_utf8(writer.into_inner().unwrap()).unwrap()
}

#[test]
fn every_scenario_can_be_written_as_csv_and_its_page_loads_nothing() {
    let mut written = 0;
    for scenario in scenario::all() {
        let plan = common::plan(scenario.plan);
        let text = common::short(scenario);
        let report = plan(&Description { text: text.clone(), ..scenario.description() }).unwrap();
        if scenario.form == Form::Toml {
            let description = Description { form: Form::Csv, text: as_csv(&text), ..scenario.description() };
            let from_csv = plan(&description).unwrap_or_else(|error| panic!("{}: {error}", scenario.name));
            assert_eq!(from_csv, report, "{}", scenario.name);
            written += 1;
        }
        let page = html::page(&report).unwrap();
        for word in ["<script", "<link", "<iframe", "<img", "src=", "href=", "@import", "url("] {
            assert!(!page.contains(word), "the page of {} has {word}", scenario.name);
        }
        assert!(page.contains("default-src 'none'"), "{}", scenario.name);
    }
    assert!(written >= 10, "{written}");
}

#[test]
fn no_number_of_a_shipped_scenario_stands_without_a_unit_but_counts_and_ratios() {
    // Whatever number a file has: given a unit that its field cannot have, or none where it had one, it is refused.
    let mut tried = 0;
    for scenario in scenario::all().filter(|scenario| scenario.form == Form::Toml) {
        let plan = common::plan(scenario.plan);
        let lines: Vec<&str> = scenario.text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let Some((field, value)) = line.split_once(" = \"") else { continue };
            let number: String =
                value.chars().take_while(|letter| letter.is_ascii_digit() || *letter == '.').collect();
            let is_quantity = value[number.len()..].starts_with(' ') && number.parse::<f64>().is_ok();
            let known = ["title", "name", "source", "place", "says", "text"].contains(&field.trim());
            if !is_quantity || known || line.starts_with('#') || field.contains('{') {
                continue;
            }
            let bare = format!("{field} = {number}");
            let mut changed = lines.clone();
            changed[at] = &bare;
            let description = Description { text: changed.join("\n"), ..scenario.description() };
            let Err(refusal) = plan(&description) else { panic!("{}: {bare} is taken", scenario.name) };
            assert!(refusal.message().contains("has no unit"), "{}: {bare}: {refusal}", scenario.name);
            tried += 1;
        }
    }
    assert!(tried > 200, "{tried}");
}
