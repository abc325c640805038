//! The events of a run as compact text, and a digest of all of them.

use std::collections::VecDeque;
use std::fmt::{Arguments, Write};
use tierstone_base::checksum::checksum;

/// Keeps the newest lines and a digest of every line.
#[derive(Debug)]
pub(super) struct Trace {
    lines: VecDeque<String>,
    limit: usize,
    digest: u64,
    spare: String,
}

impl Trace {
    pub(super) fn new(limit: usize) -> Self {
        Trace { lines: VecDeque::new(), limit, digest: 0, spare: String::new() }
    }

    /// Appends a line; nothing at all when no lines are kept.
    pub(super) fn line(&mut self, text: Arguments<'_>) {
        if self.limit == 0 {
            return;
        }
        let mut line = std::mem::take(&mut self.spare);
        line.clear();
        // Writing to a string cannot fail.
        let _ = line.write_fmt(text);
        self.digest = checksum(self.digest, line.as_bytes());
        if self.lines.len() == self.limit {
            self.spare = self.lines.pop_front().unwrap_or_default();
        }
        self.lines.push_back(line);
    }

    pub(super) fn text(&self) -> String {
        self.lines.iter().fold(String::new(), |text, line| text + line + "\n")
    }

    pub(super) fn digest(&self) -> u64 {
        self.digest
    }
}
