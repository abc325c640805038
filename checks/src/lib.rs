//! The house's own checks. Nothing here ships: the crate exists for its tests, which read the
//! repository and fail when it breaks a rule of `ARCHITECTURE.md` or `CONTRIBUTING.md`.
//!
//! Invariants:
//! 1. A checker is a pure function of a [`tree::Tree`] (or of parsed metadata), so that each has
//!    tests on small bad inputs that show it can fail.
//! 2. The crate uses no other crate of the workspace, and none may use it.
//! 3. Exceptions live in `checks/ratchet.toml` with their present number, which only shrinks.

pub mod comments;
pub mod crash_marks;
pub mod dependencies;
pub mod determinism;
pub mod documents;
pub mod layers;
pub mod modules;
pub mod named_tests;
pub mod persist_rules;
pub mod ratchet;
pub mod source;
pub mod tidy;
pub mod tree;
pub mod unsafety;

use std::fmt;

/// One broken rule, at one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, relative to the repository's root.
    pub path: String,
    /// The line, from 1; 0 when the whole file is meant.
    pub line: usize,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl Finding {
    /// A finding at `line` of `path`.
    pub fn new(path: impl Into<String>, line: usize, message: impl Into<String>) -> Self {
        Finding { path: path.into(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            write!(formatter, "{}: {}", self.path, self.message)
        } else {
            write!(formatter, "{}:{}: {}", self.path, self.line, self.message)
        }
    }
}

/// All findings as lines of one report, for the message of a failing test.
pub fn report(findings: &[Finding]) -> String {
    let mut lines: Vec<String> = findings.iter().map(Finding::to_string).collect();
    lines.sort();
    lines.join("\n")
}
