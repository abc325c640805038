//! Crash marks: a comment `// crash here [name]: what is left` names a point at which losing power
//! leaves something a reader would worry about; a test that crashes there mentions the name.

use crate::Finding;
use crate::comments::comments;
use crate::modules::Modules;
use crate::tree::Tree;
use std::collections::BTreeMap;

const MARK: &str = "crash here";

/// Marks without a name or an explanation, with a name used twice, or that no test mentions.
pub fn findings(tree: &Tree, modules: &Modules) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for (path, text) in tree.rust().filter(|(path, _)| !modules.is_test(path)) {
        for comment in comments(text) {
            let is_mark = comment.text.starts_with(MARK) && !comment.documents;
            if !is_mark || modules.sources.get(path).is_some_and(|source| source.is_test_line(comment.line)) {
                continue;
            }
            let mut refuse = |message: String| findings.push(Finding::new(path, comment.line, message));
            let Some(name) = name_of(&comment.text) else {
                refuse(format!("write `// {MARK} [a_name]: what a crash leaves here`"));
                continue;
            };
            let place = format!("{path}:{}", comment.line);
            if let Some(other) = seen.insert(name.to_string(), place) {
                refuse(format!("the crash mark [{name}] is also at {other}"));
            } else if !is_tested(tree, modules, name) {
                refuse(format!("no test mentions the crash mark [{name}]"));
            }
        }
    }
    findings
}

/// The name of a mark that has a name and says something behind the colon.
fn name_of(comment: &str) -> Option<&str> {
    let (name, rest) = comment.strip_prefix(MARK)?.trim_start().strip_prefix('[')?.split_once(']')?;
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    let explained = !rest.strip_prefix(':')?.trim().is_empty();
    (!name.is_empty() && name.bytes().all(fits) && explained).then_some(name)
}

/// Whether a test names the mark, as it is or, with `_` for `-`, as a word of an identifier.
fn is_tested(tree: &Tree, modules: &Modules, name: &str) -> bool {
    let identifier = name.replace('-', "_");
    let mentions = |line: &str| contains_word(line, name) || contains_word(line, &identifier);
    tree.rust().any(|(path, text)| {
        let source = modules.sources.get(path);
        let in_tests = |index: usize| {
            modules.is_test(path) || source.is_some_and(|source| source.is_test_line(index + 1))
        };
        text.lines().enumerate().any(|(index, line)| in_tests(index) && mentions(line))
    })
}

/// Whether `word` occurs with no letter or digit next to it; underscores may join it to others.
fn contains_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

#[cfg(test)]
#[path = "crash_marks_test.rs"]
mod crash_marks_test;
