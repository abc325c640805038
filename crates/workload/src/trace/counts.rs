//! What became of the lines of an import.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{TraceOperation, TraceRecord};

/// Names of commands that are counted one by one.
const NAMES_MAX: usize = 256;
/// Under which all further names are counted.
const FURTHER: &str = "(further names)";

/// What an import saw. Memory: at most 256 names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImportCounts {
    /// Lines, whole or not.
    pub lines: u64,
    /// Records made of them; a command with several keys makes several.
    pub records: u64,
    /// Commands that are about connections, scripts or the server, not about keys.
    pub passed_over: u64,
    /// Lines that are none of the format.
    pub refused: u64,
    /// The first of these, from 1.
    pub first_refused_line: Option<u64>,
    /// Records whose time was before that of the record before; they were moved to that one's.
    pub out_of_order: u64,
    /// Keys that were longer than is kept of an argument, so that their command is only counted.
    pub keys_too_long: u64,
    /// Records by operation; commands that cannot be replayed by their names.
    pub operations: BTreeMap<String, u64>,
}

impl ImportCounts {
    /// Counts a record.
    pub(crate) fn note(&mut self, record: &TraceRecord) {
        self.records += 1;
        let name = record.operation.name();
        let is_known = self.operations.contains_key(name);
        let is_other = matches!(record.operation, TraceOperation::Other(_));
        let name = if is_other && !is_known && self.operations.len() >= NAMES_MAX { FURTHER } else { name };
        match self.operations.get_mut(name) {
            Some(count) => *count += 1,
            None => drop(self.operations.insert(name.to_owned(), 1)),
        }
    }

    /// Counts a line that is none.
    pub(crate) fn refuse(&mut self) {
        self.refused += 1;
        self.first_refused_line.get_or_insert(self.lines);
    }
}
