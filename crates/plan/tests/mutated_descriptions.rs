//! Shipped descriptions with mistakes put into them: a plan answers with a report of finite numbers, or says
//! what is wrong.

use crate::common;
use tierstone_base::{ErrorKind, SeededRandom};
use tierstone_plan::{Description, Report, html, scenario};

/// Values that people and programs put where others belong.
const WRONG: &[&str] = &[
    "0",
    "-1",
    "nan",
    "inf",
    "1e300",
    "\"\"",
    "\"0 W\"",
    "\"-5 $\"",
    "\"1e21 B\"",
    "\"1e-8 W\"",
    "\"1e-8 $\"",
    "\"1e21 queries/s\"",
    "\"1e-300 queries/s\"",
    "\"1e20 years\"",
    "\"1 ms\"",
    "\"1e21 $/kWh\"",
    "\"1 B\"",
    "\"1e9 GB\"",
    "\"0.001 queries/s\"",
    "1e20",
    "1e-20",
    "1",
    "true",
    "[]",
    "\"nan W\"",
    "\"<script>\"",
    "\"1 GHz\"",
    "\"1e-9 Hz\"",
    "\"1e21 Hz\"",
    "\"1e21 B/s\"",
    "\"1 B/s\"",
];

/// How many mutations of a scenario are planned: fewer where one plan takes longer.
fn mutations(scenario: &scenario::Scenario) -> u64 {
    match scenario.plan {
        "routing" if scenario.name == "routing-published" => 12,
        "routing" => 60,
        "mirrors" => 60,
        _ => 400,
    }
}

/// Numbers far from those that are meant.
const FAR: &[&str] = &["0", "1e-9", "0.001", "1", "7", "1e6", "1e12", "1e18", "1e21"];

/// `value` with another number before its unit.
fn far(value: &str, number: &str) -> String {
    let bare = value.trim_start_matches('"');
    let unit = bare.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    let quote = if bare.len() < value.len() { "\"" } else { "" };
    format!("{quote}{number}{unit}")
}

/// `text` with one to three lines changed, doubled or left out.
fn mutated(text: &str, random: &mut SeededRandom) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for _ in 0..=random.below(3) {
        let line = random.below(lines.len() as u64) as usize;
        let wrong = WRONG[random.below(WRONG.len() as u64) as usize];
        let number = FAR[random.below(FAR.len() as u64) as usize];
        match (random.below(8), lines[line].split_once(" = ")) {
            (0, _) => {
                lines.remove(line);
            }
            (1, _) => lines.insert(line, lines[line].clone()),
            (2..6, Some((field, value))) => lines[line] = format!("{field} = {}", far(value, number)),
            (_, Some((field, _))) => lines[line] = format!("{field} = {wrong}"),
            (_, None) => {
                let mut cells: Vec<&str> = lines[line].split(',').collect();
                let cell = random.below(cells.len() as u64) as usize;
                let far = far(cells[cell], number);
                cells[cell] = if random.below(2) == 0 { wrong.trim_matches('"') } else { &far };
                lines[line] = cells.join(",");
            }
        }
    }
    lines.join("\n")
}

#[test]
fn a_plan_of_a_mutated_description_is_finite_or_refused() {
    let (mut planned, mut refused) = (0, 0);
    for scenario in scenario::all() {
        let (plan, shipped) = (common::plan(scenario.plan), common::short(scenario));
        for seed in 0..mutations(scenario) {
            let mut random = SeededRandom::new(seed);
            let text = mutated(&shipped, &mut random);
            let description = Description { text, ..scenario.description() };
            match plan(&description) {
                Ok(report) => {
                    planned += 1;
                    // Numbers that are not finite become null in JSON, and null is no number on the way back.
                    let json = serde_json::to_string(&report).unwrap();
                    let back = serde_json::from_str::<Report>(&json);
                    assert!(back.is_ok(), "{} seed {seed}: {:?}", scenario.name, back.err());
                    let page = html::page(&report);
                    assert!(page.is_ok(), "{} seed {seed}: {:?}", scenario.name, page.err());
                }
                Err(error) => {
                    refused += 1;
                    let context = format!("{} seed {seed}: {error}", scenario.name);
                    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{context}");
                    assert!(error.message().starts_with(scenario.name), "{context}");
                }
            }
        }
    }
    assert!(planned > 100 && refused > 100, "{planned} planned, {refused} refused");
}
