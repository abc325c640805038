//! Which batches over several shards a crash has left whole: parts are counted over all logs.
//!
//! Recovery goes in steps, each durable before the next:
//! 1. the ends of all logs are found;
//! 2. [`decide`]: a part is *resolved* when its log says so, or has a sealed segment behind it; any other
//!    is committed if all parts of its batch are found whole. The records of those that are not
//!    committed are made void in place;
//! 3. the superblock says that the batches of all these logs are decided;
//! 4. the segments are sealed, without the void records.
//!
//! Why the answer is the same when recovery is cut and begins anew:
//! - before 3, nothing is sealed: the same parts are counted. A batch that misses a part goes on missing
//!   it, and a void part only takes one more away from it;
//! - after 3, nothing is counted: what is not void is committed. So a log may be sealed, and even freed,
//!   while the others are not.
//!
//! Why a part that is counted finds its siblings: a segment that holds a part is sealed by a running
//! store only when the logs of all participants say, durably, that the batch is decided. A log that does
//! not say it proves that no sibling has left its log.

use crate::format::record::{FLAG_BATCH_MORE, FLAG_VOID, PartMark};
use crate::shard::LOG_ID_OPEN_SHIFT;
use std::collections::{BTreeMap, BTreeSet};

/// What counting must know of a record in a log that was walked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogRecord {
    /// The number of its group.
    pub group: u64,
    /// Its flags.
    pub flags: u8,
    /// The part that it begins.
    pub part: Option<PartMark>,
    /// A later segment of the log is sealed.
    pub is_before_sealed: bool,
}

/// What counting must know of a log.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogRecords {
    /// The records up to the log's end, in order.
    pub records: Vec<LogRecord>,
    /// Parts below this number are decided, says a durable group.
    pub resolved: u64,
}

/// One part.
#[derive(Debug)]
struct Part {
    batch: (u64, u64),
    parts: u16,
    is_whole: bool,
    is_resolved: bool,
    /// Its records, as places in the log's list.
    records: Vec<usize>,
}

/// What counting has found.
#[derive(Debug, Default)]
pub(crate) struct Decisions {
    /// Records that do not count, as places in their logs' lists; void ones included.
    pub dropped: BTreeMap<u64, BTreeSet<usize>>,
    /// Whether there was anything to be counted.
    pub any: bool,
}

/// Decides the batches whose parts lie in `logs`. Of openings up to `decided` they are decided already.
pub(crate) fn decide(logs: &BTreeMap<u64, LogRecords>, decided: u64, keep_undecided: bool) -> Decisions {
    let mut found = Decisions::default();
    let mut all: Vec<(u64, Part)> = Vec::new();
    for (&log_id, log) in logs {
        let void = (0..log.records.len()).filter(|&place| log.records[place].flags & FLAG_VOID != 0);
        found.dropped.insert(log_id, void.collect());
        if log_id >> LOG_ID_OPEN_SHIFT > decided {
            all.extend(parts_of(log_id, log).into_iter().map(|part| (log_id, part)));
        }
    }
    found.any = !all.is_empty();
    let mut counts: BTreeMap<(u64, u64), u32> = BTreeMap::new();
    for (_, part) in all.iter().filter(|(_, part)| part.is_whole) {
        *counts.entry(part.batch).or_insert(0) += 1;
    }
    for (log_id, part) in all {
        let is_committed = counts.get(&part.batch).is_some_and(|&count| count >= u32::from(part.parts));
        if !part.is_resolved && !is_committed && !keep_undecided {
            found.dropped.entry(log_id).or_default().extend(part.records);
        }
    }
    found
}

fn parts_of(log_id: u64, log: &LogRecords) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    // The group of the record before, while a part goes on.
    let mut goes_on: Option<u64> = None;
    for (place, record) in log.records.iter().enumerate() {
        if let Some(mark) = record.part {
            parts.push(Part {
                batch: (log_id >> LOG_ID_OPEN_SHIFT, mark.batch),
                parts: mark.parts,
                is_whole: false,
                is_resolved: mark.number < log.resolved || record.is_before_sealed,
                records: Vec::new(),
            });
        } else if goes_on.is_none_or(|group| record.group > group + 1) {
            // No part, or a part of which something is missing.
            goes_on = None;
            continue;
        }
        let Some(part) = parts.last_mut() else { continue };
        part.records.push(place);
        let ends = record.flags & FLAG_BATCH_MORE == 0;
        part.is_whole = ends;
        goes_on = (!ends).then_some(record.group);
    }
    for part in &mut parts {
        part.is_whole &= part.records.iter().all(|&place| log.records[place].flags & FLAG_VOID == 0);
    }
    parts
}

#[cfg(test)]
#[path = "batches_test.rs"]
mod batches_test;
