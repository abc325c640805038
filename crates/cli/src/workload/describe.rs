//! `tierstone workload describe`.

use super::open_trace;
use crate::output::{print_json, print_line, table};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use tierstone_base::Result;
use tierstone_base::units::format_size;
use tierstone_workload::trace::TraceHead;
use tierstone_workload::trace::describe::{Describer, TraceFacts};

/// Lines of rates that are printed; JSON has all.
const RATES_SHOWN: usize = 20;

#[derive(Debug, Args)]
pub struct DescribeArgs {
    /// The trace
    #[arg(value_name = "TRACE")]
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Described {
    trace: TraceHead,
    is_cut: bool,
    #[serde(flatten)]
    facts: TraceFacts,
}

pub fn run(args: &DescribeArgs) -> Result<()> {
    let mut reader = open_trace(&args.file)?;
    let mut describer = Describer::default();
    let name = args.file.display().to_string();
    while let Some(record) = reader.next_record().map_err(|error| error.context(&name))? {
        describer.push(&record);
    }
    let described = Described { trace: reader.head(), is_cut: reader.is_cut(), facts: describer.facts() };
    if args.json {
        return print_json(&described);
    }
    let facts = &described.facts;
    print_line(&table(&numbers(&described)))?;
    print_line(&table(&counts(
        "operation",
        facts.by_operation.iter().map(|(name, count)| (name.clone(), *count)),
    )))?;
    let sizes = |sizes: &[(u32, u64)]| -> Vec<(String, u64)> {
        sizes.iter().map(|(bytes, count)| (format_size(u64::from(*bytes)), *count)).collect()
    };
    print_line(&table(&counts("keys up to", sizes(&facts.key_sizes).into_iter())))?;
    print_line(&table(&counts("values up to", sizes(&facts.value_sizes).into_iter())))?;
    print_line(&table(&rates(facts)))
}

fn numbers(described: &Described) -> Vec<Vec<String>> {
    let facts = &described.facts;
    let mut rows = Vec::new();
    let mut row = |what: &str, value: String| rows.push(vec![what.to_owned(), value]);
    row("trace", "value".to_owned());
    if described.is_cut {
        row("the file is cut", "told is what was whole".to_owned());
    }
    row("keys", if described.trace.is_anonymous { "anonymous" } else { "as they were" }.to_owned());
    row("operations", facts.operations.to_string());
    row("seconds", format!("{:.1}", facts.seconds));
    if let Some(rate) = facts.rate {
        row("operations a second", format!("{rate:.1}"));
    }
    row("reads that found nothing, as far as it is told", facts.misses.to_string());
    row("operations with an expiry", facts.expiring.to_string());
    row("distinct keys", facts.keys.to_string());
    row("keys that are never written", facts.keys_never_written.to_string());
    row("keys whose values' size is not known", facts.keys_of_unknown_size.to_string());
    row("working set of the others", format_size(facts.working_set_bytes));
    let share = facts.share_of_hottest_hundredth * 100.0;
    row("operations on the hottest hundredth of the keys, %", format!("{share:.1}"));
    let theta = facts.zipf_theta.map_or("too few keys to tell".to_owned(), |theta| format!("{theta:.2}"));
    row("skew of popularity (theta of the likeliest Zipf distribution)", theta);
    rows
}

fn counts(what: &str, counts: impl Iterator<Item = (String, u64)>) -> Vec<Vec<String>> {
    let head = vec![what.to_owned(), "how many".to_owned()];
    std::iter::once(head).chain(counts.map(|(name, count)| vec![name, count.to_string()])).collect()
}

fn rates(facts: &TraceFacts) -> Vec<Vec<String>> {
    let step = facts.rates.len().div_ceil(RATES_SHOWN).max(1);
    let mut rows = vec![vec!["from second".to_owned(), "operations a second".to_owned()]];
    for (place, rates) in facts.rates.chunks(step).enumerate() {
        let from = (place * step) as f64 * facts.span_seconds;
        let rate = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        rows.push(vec![format!("{from:.0}"), format!("{rate:.1}")]);
    }
    rows
}
