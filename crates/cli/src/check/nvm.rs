//! What a check of a store wholly in persistent memory found.

use super::FINDINGS_SHOWN;
use crate::output::{print_json, print_line, table};
use tierstone::nvm_check::{CheckReport, Finding};
use tierstone_base::units::format_size;
use tierstone_base::{Error, ErrorKind, Result};

pub(super) fn tell(report: &CheckReport, json: bool) -> Result<()> {
    if json {
        print_json(report)?;
    } else {
        print_line(&table(&rows(report)))?;
        for finding in report.findings.iter().take(FINDINGS_SHOWN) {
            print_line(&line(finding))?;
        }
        let left = report.damage.values().sum::<u64>().saturating_sub(FINDINGS_SHOWN as u64);
        if left > 0 {
            print_line(&format!("and {left} more; --json lists them"))?;
        }
    }
    if !report.is_damaged() {
        return Ok(());
    }
    let message = format!(
        "{} damaged places, {} keys known to be lost; restore the region from a copy, or open the store without what is \
         lost with --nvm-loss accept",
        report.damage.values().sum::<u64>(),
        report.lost_keys
    );
    Err(Error::new(ErrorKind::Corrupt, message))
}

fn rows(report: &CheckReport) -> Vec<Vec<String>> {
    let mut rows = vec![vec!["checked".to_owned(), "found".to_owned()]];
    let mut row = |what: &str, value: String| rows.push(vec![what.to_owned(), value]);
    row("closed in good order", if report.clean { "yes" } else { "no" }.to_owned());
    row("shards", report.shards.to_string());
    row("segments in use", report.segments.to_string());
    row("blocks in use", report.blocks.to_string());
    row("frames to be replayed", report.frames.to_string());
    row("records, old versions included", report.records.to_string());
    row("keys", (report.live_keys - report.live_pieces).to_string());
    row("pieces of large values", report.live_pieces.to_string());
    row("bytes of long values", format_size(report.overflow_bytes));
    row("shards with a checkpoint of the index", report.checkpoints.to_string());
    row("keys that these name", report.checkpoint_keys.to_string());
    if !report.clean {
        row("segments that were being taken", report.claimed_segments.to_string());
        row("records behind the ends of logs (void)", report.void_records.to_string());
        row("parts of batches that were not whole (void)", report.void_parts.to_string());
    }
    for (kind, count) in &report.damage {
        row(&format!("damaged: {}", kind.name()), count.to_string());
    }
    row("bytes lost to damage", report.lost_bytes.to_string());
    row("keys known to be lost", report.lost_keys.to_string());
    rows
}

fn line(finding: &Finding) -> String {
    let mut place = match finding.shard {
        Some(shard) => format!("shard {shard}"),
        None => "the store".to_owned(),
    };
    for (what, number) in [("segment", finding.segment), ("block", finding.block)] {
        if let Some(number) = number {
            place += &format!(", {what} {number}");
        }
    }
    place += &format!(", byte {}", finding.offset);
    if let Some(hash) = &finding.key_hash {
        place += &format!(", key hash {hash}");
    }
    format!("* {place}: {}: {}", finding.kind.name(), finding.detail)
}
