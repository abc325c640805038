//! Limits with exceptions that only shrink. A measure above its limit needs an entry in
//! `checks/ratchet.toml` with exactly its present value: above it the change is refused, below it
//! the entry has to be tightened, so that what was won is kept.

use crate::Finding;
use std::collections::{BTreeMap, BTreeSet};

/// The file of exceptions.
pub const RATCHET_PATH: &str = "checks/ratchet.toml";

/// One measured number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measure {
    /// The rule: the table of the ratchet file.
    pub rule: &'static str,
    /// The file, or `file::function`: the key in that table.
    pub subject: String,
    /// The line to look at, from 1; 0 for the whole file.
    pub line: usize,
    /// What was measured.
    pub value: u64,
    /// What the rule allows.
    pub limit: u64,
    /// What to do when it is above the limit.
    pub advice: &'static str,
}

/// The exceptions: rule to subject to value.
pub type Exceptions = BTreeMap<String, BTreeMap<String, u64>>;

/// Reads the ratchet file. Errors: the parser's message.
pub fn parse(text: &str) -> Result<Exceptions, String> {
    toml::from_str(text).map_err(|error| error.to_string())
}

/// Compares what was measured with what is excepted.
pub fn judge(measures: &[Measure], exceptions: &Exceptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut spent: BTreeSet<(&str, &str)> = BTreeSet::new();
    for measure in measures {
        let listed = exceptions.get(measure.rule).and_then(|table| table.get(&measure.subject)).copied();
        if listed.is_some() {
            spent.insert((measure.rule, measure.subject.as_str()));
        }
        let name = format!("{} is {}", measure.rule, measure.value);
        let message = match listed {
            None if measure.value > measure.limit => {
                format!("{name}, at most {} is allowed: {}", measure.limit, measure.advice)
            }
            Some(listed) if measure.value > listed => {
                format!("{name}, it was {listed} and may only shrink: {}", measure.advice)
            }
            Some(_) if measure.value <= measure.limit => {
                format!("{name}, within the limit of {}: remove its line from {RATCHET_PATH}", measure.limit)
            }
            Some(listed) if measure.value < listed => {
                format!("{name}, better than the {listed} of {RATCHET_PATH}: tighten that line")
            }
            _ => continue,
        };
        findings.push(Finding::new(measure.subject.as_str(), measure.line, message));
    }
    for (rule, table) in exceptions {
        for subject in table.keys().filter(|subject| !spent.contains(&(rule.as_str(), subject.as_str()))) {
            let message = format!("nothing is measured under [{rule}] \"{subject}\": remove the line");
            findings.push(Finding::new(RATCHET_PATH, 0, message));
        }
    }
    findings
}

/// Rules whose exceptions grew, in sum or in number, from `before` to `after`.
pub fn loosened(before: &Exceptions, after: &Exceptions) -> Vec<Finding> {
    let size = |exceptions: &Exceptions, rule: &str| -> (u64, usize) {
        exceptions.get(rule).map_or((0, 0), |table| (table.values().sum(), table.len()))
    };
    let mut findings = Vec::new();
    for rule in after.keys() {
        let ((old_sum, old_count), (new_sum, new_count)) = (size(before, rule), size(after, rule));
        if new_sum > old_sum || new_count > old_count {
            let message = format!(
                "[{rule}] grew from {old_count} exceptions (sum {old_sum}) to {new_count} (sum {new_sum}); \
                 it may only shrink"
            );
            findings.push(Finding::new(RATCHET_PATH, 0, message));
        }
    }
    findings
}

#[cfg(test)]
#[path = "ratchet_test.rs"]
mod ratchet_test;
