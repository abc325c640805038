//! Order in every file: lengths, first lines, unfinished work, whitespace, sizes, foreign paths.
//!
//! What has a number is a [`Measure`] and goes through the ratchet; the rest is absolute.

use crate::Finding;
use crate::comments::comments;
use crate::modules::Modules;
use crate::ratchet::Measure;
use crate::tree::{CONTENT_LIMIT_BYTES, Tree};

/// Lines of a file that ships.
pub const FILE_LINES: u64 = 600;
/// Lines of a file of tests, benchmarks or fuzz bodies.
pub const TEST_FILE_LINES: u64 = 1000;
/// Lines of a function: one screen.
pub const FUNCTION_LINES: u64 = 70;

/// Directories of build machines; a committed file that names one works on that machine only.
const MACHINE_PATHS: &[&str] = &[concat!("/", "work/"), concat!("/", "root/"), concat!("/", "farm/")];

/// The numbers of all files, for the ratchet.
pub fn measures(tree: &Tree, modules: &Modules) -> Vec<Measure> {
    let mut measures = Vec::new();
    for (path, text) in tree.rust() {
        let limit = if modules.is_test(path) { TEST_FILE_LINES } else { FILE_LINES };
        let value = text.lines().count() as u64;
        let advice = "split the file by what its parts are for";
        measures.push(Measure { rule: "file_lines", subject: path.into(), line: 0, value, limit, advice });
    }
    for (path, source) in &modules.sources {
        for function in &source.functions {
            measures.push(Measure {
                rule: "function_lines",
                subject: format!("{path}::{}", function.name),
                line: function.line,
                value: function.lines as u64,
                limit: FUNCTION_LINES,
                advice: "give its parts names of their own",
            });
        }
    }
    longest_of_each_subject(measures)
}

/// Two functions of one name (under different conditions) share a line of the ratchet.
fn longest_of_each_subject(mut measures: Vec<Measure>) -> Vec<Measure> {
    measures.sort_by(|a, b| (a.rule, &a.subject, b.value).cmp(&(b.rule, &b.subject, a.value)));
    measures.dedup_by(|later, first| later.rule == first.rule && later.subject == first.subject);
    measures
}

/// Everything about order that has no number.
pub fn findings(tree: &Tree, modules: &Modules) -> Vec<Finding> {
    let mut findings = modules.unparsed.clone();
    for path in modules.dead() {
        findings.push(Finding::new(path, 0, "no `mod` names this file: hook it in or remove it"));
    }
    for (path, text) in tree.texts() {
        spaces(path, text, &mut findings);
        machine_paths(path, text, &mut findings);
    }
    for (path, text) in tree.rust() {
        if path.contains("/src/") && !modules.is_test(path) && !text.starts_with("//!") {
            findings.push(Finding::new(path, 1, "begin with `//!`: purpose, invariants, who owns the data"));
        }
        reasonless_todos(path, text, &mut findings);
    }
    unfinished(tree, modules, &mut findings);
    for (path, file) in tree.files.iter().filter(|(_, file)| file.size > CONTENT_LIMIT_BYTES) {
        let message =
            format!("{} bytes; at most {CONTENT_LIMIT_BYTES} belong into the repository", file.size);
        findings.push(Finding::new(path.as_str(), 0, message));
    }
    if !tree.text("LICENSE").is_some_and(|text| text.contains("Apache License")) {
        findings.push(Finding::new("LICENSE", 0, "must hold the text of the Apache License"));
    }
    findings
}

fn spaces(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let rust = path.ends_with(".rs");
    for (index, line) in text.split('\n').enumerate() {
        if line.ends_with([' ', '\t', '\r']) {
            findings.push(Finding::new(path, index + 1, "trailing whitespace"));
        }
        if rust && line.contains('\t') {
            findings.push(Finding::new(path, index + 1, "a tab; indent with spaces, write \\t in strings"));
        }
    }
    if !text.is_empty() && !text.ends_with('\n') {
        findings.push(Finding::new(path, 0, "the last line does not end"));
    }
}

fn machine_paths(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for (index, line) in text.lines().enumerate() {
        let starts_a_path = |at: usize| {
            let before = line[..at].chars().next_back();
            !before.is_some_and(|before| before.is_alphanumeric() || "._-})*/".contains(before))
        };
        for needle in MACHINE_PATHS {
            if line.match_indices(needle).any(|(at, _)| starts_a_path(at)) {
                let message = format!("names {needle}, a directory of one machine");
                findings.push(Finding::new(path, index + 1, message));
            }
        }
    }
}

/// A postponed task carries its reason in parentheses right behind the word.
fn reasonless_todos(path: &str, text: &str, findings: &mut Vec<Finding>) {
    for comment in comments(text) {
        for (index, line) in comment.text.lines().enumerate() {
            for word in ["TODO", "FIXME"] {
                for (at, _) in line.match_indices(word) {
                    let inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'`';
                    let before = at.checked_sub(1).and_then(|at| line.as_bytes().get(at).copied());
                    let after = &line[at + word.len()..];
                    if before.is_some_and(inside) || after.bytes().next().is_some_and(inside) {
                        continue;
                    }
                    let reason = after.strip_prefix('(').and_then(|rest| rest.split_once(')'));
                    if reason.is_none_or(|(reason, _)| reason.trim().is_empty()) {
                        let message = format!("{word} without a reason: write {word}(why it waits)");
                        findings.push(Finding::new(path, comment.line + index, message));
                    }
                }
            }
        }
    }
}

/// Unfinished code and skipped tests need a line with `owner:` and the file's path in the status.
fn unfinished(tree: &Tree, modules: &Modules, findings: &mut Vec<Finding>) {
    let status = tree.text("docs/status.md").unwrap_or("");
    for (path, source) in &modules.sources {
        if status.lines().any(|line| line.contains(path.as_str()) && line.contains("owner:")) {
            continue;
        }
        let patterns: [&[&str]; 3] = [&["todo", "!"], &["unimplemented", "!"], &["#", "[", "ignore"]];
        for pattern in patterns {
            for line in source.lines_of(pattern) {
                let message = format!("`{}` without a line `owner:` in docs/status.md", pattern.concat());
                findings.push(Finding::new(path.as_str(), line, message));
            }
        }
    }
}

#[cfg(test)]
#[path = "tidy_test.rs"]
mod tidy_test;
