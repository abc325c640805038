//! What `--repair` says of the new store.

use super::place;
use std::path::PathBuf;
use tierstone_logstore::check::{CheckReport, Finding, Loss};

/// Says on standard error what the new store in `target` lacks, and what it may lack.
pub(super) fn tell(report: &CheckReport, target: &[PathBuf]) {
    let target: Vec<_> = target.iter().map(|directory| directory.display().to_string()).collect();
    let target = target.join(",");
    let CheckReport { unsaved_keys, reverted_keys, .. } = report;
    if unsaved_keys + reverted_keys > 0 {
        tell!(
            "tierstone: the new store in {target} lacks {unsaved_keys} keys and has an older version of {reverted_keys}"
        );
    }
    // No number of keys in the report stands for what is lost with these.
    let is_uncounted = |finding: &&Finding| finding.loss == Loss::Unknown;
    let uncounted: Vec<&Finding> = report.findings.iter().filter(is_uncounted).collect();
    if let Some((first, others)) = uncounted.split_first() {
        let more =
            if others.is_empty() { String::new() } else { format!(" (and {} more places)", others.len()) };
        tell!(
            "tierstone: the new store in {target} may lack keys that nobody can count, or have older versions of them, or \
             deleted ones: {}: {}{more}",
            place(first),
            first.detail
        );
    }
    if report.redo_unread {
        tell!(
            "tierstone: the new store in {target} lacks the newest writes as far as only the redo log in persistent memory \
             has them, which was not read: where the damaged store's server still starts with its region, stop it in good \
             order, and repair then"
        );
    }
}
