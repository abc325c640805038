//! Documents keep their word: every path that one names in backticks, and every relative link,
//! leads to something; every crate of the workspace has its row in `ARCHITECTURE.md`.

use crate::Finding;
use crate::layers::Member;
use crate::modules::normalised;
use crate::tree::Tree;

/// First components by which a backticked word is known as a path of this repository.
const TOP_DIRECTORIES: &[&str] =
    &["crates/", "docs/", "checks/", "fuzz/", "bench/", "scripts/", "deploy/", ".ci/"];

/// Every path and link to something that is not there.
pub fn findings(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| is_document(path)) {
        let mut fenced = false;
        for (index, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
                continue;
            }
            if fenced {
                continue;
            }
            let mut refuse = |name: &str| {
                findings.push(Finding::new(path, index + 1, format!("names {name}, which is not there")));
            };
            for word in line.split('`').skip(1).step_by(2).flat_map(str::split_whitespace) {
                let named = path_in(word);
                if TOP_DIRECTORIES.iter().any(|top| named.starts_with(top)) && !tree.has(named) {
                    refuse(named);
                }
            }
            for link in links(line) {
                let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
                if !tree.has(&normalised(&format!("{directory}/{link}"))) {
                    refuse(link);
                }
            }
        }
    }
    findings
}

/// Every crate without a row in `ARCHITECTURE.md`.
pub fn unnamed_crates(tree: &Tree, members: &[Member]) -> Vec<Finding> {
    let text = tree.text("ARCHITECTURE.md").unwrap_or("");
    let unnamed = members.iter().filter(|member| !text.contains(&format!("`{}`", member.directory)));
    unnamed
        .map(|member| Finding::new("ARCHITECTURE.md", 0, format!("has no row for `{}`", member.directory)))
        .collect()
}

fn is_document(path: &str) -> bool {
    path.ends_with(".md") && (!path.contains('/') || path.starts_with("docs/") || path.starts_with("crates/"))
}

/// The path in a word such as `crates/base/src/ids.rs:12,` or `crates/base/src/ids.rs::Token`.
fn path_in(word: &str) -> &str {
    let word = word.trim_matches(|end: char| ",;()\"'".contains(end)).trim_end_matches('.');
    word.split([':', '#']).next().unwrap_or(word)
}

/// The targets of links to files of this repository.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let files = targets.filter(|target| !target.contains("://") && !target.starts_with(['#', '<']));
    files
        .filter(|target| !target.starts_with("mailto:"))
        .map(|target| target.split('#').next().unwrap_or(target))
}

#[cfg(test)]
#[path = "documents_test.rs"]
mod documents_test;
