//! `tierstone check --server`: the server verifies its store beside its traffic, and this program asks it how
//! far it is (`DEBUG VERIFY`).

use crate::connect::ConnectArgs;
use crate::output::{print_json, print_line, table};
use std::time::Duration;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_client::{Connection, Value};
use tierstone_engine::Verification;

/// Findings that are printed one by one; JSON has more.
const FINDINGS_SHOWN: usize = 50;
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long the program waits before it asks again.
const ASK_AGAIN: Duration = Duration::from_millis(100);

pub(super) fn run((server, connect): (&str, &ConnectArgs), json: bool) -> Result<()> {
    let mut connection = connect.connect(server, TIMEOUT)?;
    let mut report = report_of(&ask(&mut connection, &[b"DEBUG", b"VERIFY", b"START"])?)?;
    let bar = super::progress();
    while report.is_running {
        bar.set_length(report.bytes_total.max(report.bytes));
        bar.set_position(report.bytes);
        pause();
        report = report_of(&ask(&mut connection, &[b"DEBUG", b"VERIFY", b"STATUS"])?)?;
    }
    bar.finish_and_clear();
    if json {
        print_json(&report)?;
    } else {
        print_line(&table(&rows(&report)))?;
        for finding in report.findings.iter().take(FINDINGS_SHOWN) {
            print_line(&format!("* {finding}"))?;
        }
        let left = report.damage.values().sum::<u64>().saturating_sub(FINDINGS_SHOWN as u64);
        if left > 0 {
            print_line(&format!("and {left} more; --json lists the first 200"))?;
        }
    }
    if report.is_damaged() {
        let count: u64 = report.damage.values().sum();
        let message = format!(
            "{count} damaged places, {} keys lost; restore from a backup, or stop the server and save what is \
             whole with --repair (of a store at nvm:…, start it again with --nvm-loss accept)",
            report.lost_keys
        );
        return Err(Error::new(ErrorKind::Corrupt, message));
    }
    Ok(())
}

fn pause() {
    let (_never, wait) = std::sync::mpsc::channel::<()>();
    // Nothing comes: only the time passes.
    let _ = wait.recv_timeout(ASK_AGAIN);
}

/// The server's answer; what it refuses is an error.
fn ask(connection: &mut Connection, words: &[&[u8]]) -> Result<Value> {
    let answer = connection.command(words)?;
    match answer.error() {
        Some(text) if text.contains("under way") => Err(Error::new(ErrorKind::Busy, text.into_owned())),
        Some(text) => Err(Error::new(ErrorKind::InvalidInput, format!("the server refuses: {text}"))),
        None => Ok(answer),
    }
}

/// What `DEBUG VERIFY` answers, in either protocol.
fn report_of(answer: &Value) -> Result<Verification> {
    let mut report = Verification::default();
    for (name, value) in pairs(answer)? {
        let number = || match value {
            Value::Integer(number) => u64::try_from(*number).map_err(|_| odd()),
            _ => Err(odd()),
        };
        match text(name)?.as_str() {
            "running" => report.is_running = number()? == 1,
            "bytes" => report.bytes = number()?,
            "bytes_total" => report.bytes_total = number()?,
            "segments" => report.segments = number()?,
            "moved_segments" => report.moved_segments = number()?,
            "records" => report.records = number()?,
            "live_records" => report.live_records = number()?,
            "index_entries" => report.index_entries = number()?,
            "unjudged_records" => report.unjudged_records = number()?,
            "lost_keys" => report.lost_keys = number()?,
            "damage" => {
                for (kind, count) in pairs(value)? {
                    let Value::Integer(count) = count else { return Err(odd()) };
                    report.damage.insert(text(kind)?, count.unsigned_abs());
                }
            }
            "findings" => {
                let Value::Array(findings) = value else { return Err(odd()) };
                report.findings = findings.iter().map(text).collect::<Result<Vec<String>>>()?;
            }
            // A newer server may say more.
            _ => {}
        }
    }
    Ok(report)
}

fn odd() -> Error {
    Error::new(ErrorKind::Incompatible, "the server's answer to DEBUG VERIFY cannot be understood")
}

fn text(value: &Value) -> Result<String> {
    match value {
        Value::Bulk(bytes) | Value::Simple(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        _ => Err(odd()),
    }
}

/// Names and values of a map, which is a flat array in protocol 2.
fn pairs(value: &Value) -> Result<Vec<(&Value, &Value)>> {
    match value {
        Value::Map(pairs) => Ok(pairs.iter().map(|(name, value)| (name, value)).collect()),
        Value::Array(all) if all.len().is_multiple_of(2) => {
            Ok(all.chunks_exact(2).map(|pair| (&pair[0], &pair[1])).collect())
        }
        _ => Err(odd()),
    }
}

fn rows(report: &Verification) -> Vec<Vec<String>> {
    let mut rows = vec![vec!["checked beside the traffic".to_owned(), "found".to_owned()]];
    let mut row = |what: &str, value: u64| rows.push(vec![what.to_owned(), value.to_string()]);
    row("segments read", report.segments);
    row("segments that were cleaned meanwhile", report.moved_segments);
    row("records, old versions included", report.records);
    row("of these reached by the index", report.live_records);
    row("entries of the index that lead to them", report.index_entries);
    row("records left out of the index for an unknown reason", report.unjudged_records);
    for (kind, count) in &report.damage {
        row(&format!("damaged: {kind}"), *count);
    }
    row("keys lost to damage", report.lost_keys);
    rows
}
