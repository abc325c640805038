//! The events of a run as compact text, and a digest of all of them.

use super::shared::Shared;
use std::collections::VecDeque;
use std::fmt::{Arguments, Write};
use tierstone_base::checksum::checksum;

/// Keeps the newest lines and a digest of every line. A clone is a handle on the same lines, so that all of a
/// machine tells its events in one order.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    limit: usize,
    kept: Shared<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<String>,
    digest: u64,
    spare: String,
}

impl Trace {
    pub(crate) fn new(limit: usize) -> Self {
        Trace { limit, kept: Shared::default() }
    }

    /// Appends a line; nothing at all when no lines are kept.
    pub(crate) fn line(&self, text: Arguments<'_>) {
        if self.limit == 0 {
            return;
        }
        let kept = &mut *self.kept.lock();
        let mut line = std::mem::take(&mut kept.spare);
        line.clear();
        // Writing to a string cannot fail.
        let _ = line.write_fmt(text);
        kept.digest = checksum(kept.digest, line.as_bytes());
        if kept.lines.len() == self.limit {
            kept.spare = kept.lines.pop_front().unwrap_or_default();
        }
        kept.lines.push_back(line);
    }

    pub(super) fn text(&self) -> String {
        self.kept.lock().lines.iter().fold(String::new(), |text, line| text + line + "\n")
    }

    /// The newest `count` lines, for a message.
    pub(super) fn newest(&self, count: usize) -> String {
        let kept = self.kept.lock();
        let lines = kept.lines.iter().skip(kept.lines.len().saturating_sub(count));
        lines.map(String::as_str).collect::<Vec<_>>().join("\n    ")
    }

    pub(super) fn digest(&self) -> u64 {
        self.kept.lock().digest
    }
}
