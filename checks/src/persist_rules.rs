//! The table of rules of order in persistent memory is whole: every rule that a test can switch off has a row, and every
//! row names a rule and a test that switches it off. How many rows and rules there are stands above the table, and is
//! counted here.

use crate::Finding;
use crate::modules::Modules;
use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// The page.
pub const PAGE: &str = "docs/persist-rules.md";

/// Where structures in persistent memory live; a new room has its line here.
const STRUCTURES: &[&str] = &[
    "crates/persist/src/",
    "crates/logstore/src/redo",
    "crates/logstore/src/stream/redo",
    "crates/pmstore/src/",
];

/// Rules of the redo log have this in front of their names, wherever they are asked for.
const REDO: &str = "redo_";

/// What asks whether a rule is switched off: the name of the rule is the first string behind it.
const ASKS: &[&str] = &["is_on(", "breaks(", "barrier(", "observe_head("];

/// Rules without a row, rows without a rule, rows whose test does not name it, and counts that are wrong.
pub fn findings(tree: &Tree, modules: &Modules) -> Vec<Finding> {
    let Some(page) = tree.text(PAGE) else {
        return vec![Finding::new(PAGE, 0, "the page of rules is missing")];
    };
    let rules = rules(tree, modules);
    let (mut findings, mut rows, mut count) = (Vec::new(), BTreeSet::new(), 0);
    for (number, line) in (1..).zip(page.lines()) {
        let Some((rule, made_by)) = row(line) else { continue };
        rows.insert(rule);
        count += 1;
        let mut refuse = |message: String| findings.push(Finding::new(PAGE, number, message));
        if !rules.contains_key(rule) {
            refuse(format!("no structure has the rule '{rule}': remove the row"));
        }
        let mut names = made_by.split('`').skip(1).step_by(2);
        let (file, test) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
        let text = tree.text(file).unwrap_or_default();
        if !text.contains(&format!("#[test]\nfn {test}()")) {
            refuse(format!("there is no test `{test}` in {file}"));
        } else if !text.contains(&format!("\"{rule}\"")) {
            refuse(format!("{file} does not name the rule '{rule}'"));
        }
    }
    for (rule, (path, line)) in &rules {
        if !rows.contains(rule.as_str()) {
            findings.push(Finding::new(*path, *line, format!("the rule '{rule}' has no row in {PAGE}")));
        }
    }
    findings.extend(miscounted(page, (count, rows.len())));
    findings
}

/// What is wrong with the sentence above the table, given how many rows and rules there are.
fn miscounted(page: &str, counted: (usize, usize)) -> Option<Finding> {
    let (rows, rules) = counted;
    let right = format!("in each of the {rows} rows** below: {rules} rules");
    match (1..).zip(page.lines()).find(|(_, line)| line.contains(" rows** below: ")) {
        None => {
            Some(Finding::new(PAGE, 0, format!("the page does not say how many it has: write '{right}'")))
        }
        Some((_, line)) if line.contains(&right) => None,
        Some((number, _)) => Some(Finding::new(PAGE, number, format!("counted, it is '{right}'"))),
    }
}

/// Every rule that code outside tests asks for, and where.
fn rules<'a>(tree: &'a Tree, modules: &Modules) -> BTreeMap<String, (&'a str, usize)> {
    let mut rules = BTreeMap::new();
    let is_structure = |path: &str| STRUCTURES.iter().any(|place| path.starts_with(place));
    for (path, text) in tree.rust().filter(|(path, _)| path.starts_with("crates/") && !modules.is_test(path))
    {
        let in_tests = |line| modules.sources.get(path).is_some_and(|source| source.is_test_line(line));
        for (number, line) in (1..).zip(text.lines()).filter(|(number, _)| !in_tests(*number)) {
            let code = line.trim_start();
            if code.starts_with("//") {
                continue;
            }
            for asks in ASKS {
                for behind in code.split(asks).skip(1) {
                    let rule = behind.split('"').nth(1).filter(|_| behind.matches('"').count() > 1);
                    if let Some(rule) = rule.filter(|rule| is_structure(path) || rule.starts_with(REDO)) {
                        rules.entry(rule.to_owned()).or_insert((path, number));
                    }
                }
            }
        }
    }
    rules
}

/// The rule and the test of a row of a table that is no head.
fn row(line: &str) -> Option<(&str, &str)> {
    let mut cells = line.strip_prefix('|')?.split(" | ");
    let (first, rule, made_by) = (cells.next()?.trim(), cells.next()?.trim(), cells.next()?);
    (first != "structure" && !first.starts_with("---")).then_some((rule, made_by))
}

#[cfg(test)]
#[path = "persist_rules_test.rs"]
mod persist_rules_test;
