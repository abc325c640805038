//! Tests that the table of faults names exist: each row of a table in `docs/faults.md` names a file of tests and
//! functions in it, or the row before it by `the same`.

use crate::Finding;
use crate::tree::Tree;

/// The page.
pub const FAULTS: &str = "docs/faults.md";

/// Rows that name no test, and tests that are named and do not exist.
pub fn findings(tree: &Tree) -> Vec<Finding> {
    let Some(text) = tree.text(FAULTS) else {
        return vec![Finding::new(FAULTS, 0, "the page of faults is missing")];
    };
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let Some(cell) = made_by(line) else { continue };
        let mut refuse = |message: String| findings.push(Finding::new(FAULTS, number, message));
        let (mut file, mut names) = (None, 0);
        // What stands in backticks is every second piece.
        for word in cell.split('`').skip(1).step_by(2) {
            if word.ends_with(".rs") {
                file = Some(word);
            } else if word.contains('_') {
                names += 1;
                let source = file.and_then(|file| tree.text(file)).unwrap_or_default();
                if !source.contains(&format!("#[test]\nfn {word}()")) {
                    refuse(format!(
                        "there is no test `{word}` in {}",
                        file.unwrap_or("a file named before it")
                    ));
                }
            }
        }
        if names == 0 && cell.trim() != "the same" {
            refuse("the row names no test that makes its fault".into());
        }
    }
    findings
}

/// The second cell of a row of a table that is no head.
fn made_by(line: &str) -> Option<&str> {
    let mut cells = line.strip_prefix('|')?.split('|');
    let (first, second) = (cells.next()?.trim(), cells.next()?);
    (first != "fault" && !first.starts_with("---")).then_some(second)
}

#[cfg(test)]
#[path = "named_tests_test.rs"]
mod named_tests_test;
