//! What `--repair` says of the new store.

use super::place;
use std::path::PathBuf;
use tierstone_logstore::check::{CheckReport, DamageKind, Finding};

/// Says on standard error what the new store in `target` lacks, and what it may lack.
pub(super) fn tell(report: &CheckReport, target: &[PathBuf]) {
    let target: Vec<_> = target.iter().map(|directory| directory.display().to_string()).collect();
    let target = target.join(",");
    let CheckReport { unsaved_keys, reverted_keys, .. } = report;
    if unsaved_keys + reverted_keys > 0 {
        eprintln!(
            "tierstone: the new store in {target} lacks {unsaved_keys} keys and has an older version of {reverted_keys}"
        );
    }
    let uncounted: Vec<&Finding> = report.findings.iter().filter(|finding| is_uncounted(finding)).collect();
    if let Some((first, others)) = uncounted.split_first() {
        let more =
            if others.is_empty() { String::new() } else { format!(" (and {} more places)", others.len()) };
        eprintln!(
            "tierstone: the new store in {target} may lack keys that nobody can count, or have older versions of them, or \
             deleted ones: {}: {}{more}",
            place(first),
            first.detail
        );
    }
    if report.redo_unread {
        eprintln!(
            "tierstone: the new store in {target} lacks the newest writes as far as only the redo log in persistent memory \
             has them, which was not read: where the damaged store's server still starts with its region, stop it in good \
             order, and repair then"
        );
    }
}

/// Whether nobody knows what was lost with it, so that no number of keys in the report stands for that.
fn is_uncounted(finding: &Finding) -> bool {
    match finding.kind {
        DamageKind::Segment | DamageKind::Unreadable => true,
        // Its footer tells how many records there were, and the superblock that there were none.
        DamageKind::Header => finding.lost_records == 0 && !finding.detail.contains("the segment is free"),
        // In a segment with a summary every record is looked for by its place.
        DamageKind::Group => !finding.detail.contains("that the summary names"),
        // What is whole gives it again, unless records are gone.
        DamageKind::Footer | DamageKind::Summary => finding.lost_records > 0,
        // These have one key each, or none.
        DamageKind::Record | DamageKind::Mismatch | DamageKind::Superblock | DamageKind::Redo => false,
    }
}
