//! `tierstone persist litmus`.

use super::{counter, read_text};
use crate::output::{print_json, print_line, table};
use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tierstone_base::{Error, Result};
use tierstone_persist::litmus::{Litmus, LitmusReport, PUBLISHED};

#[derive(Debug, Args)]
pub struct LitmusArgs {
    /// Files of litmus tests; the language stands in docs/persist.md
    #[arg(value_name = "FILE", required_unless_present = "published")]
    files: Vec<PathBuf>,
    /// Run the tests that ship with the program: the published ones, and those of the repaired structures
    #[arg(long)]
    published: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Told {
    name: String,
    source: String,
    executions: u64,
    holds: bool,
    claims: Vec<Claim>,
}

#[derive(Debug, Serialize)]
struct Claim {
    line: usize,
    claim: String,
    model: &'static str,
    holds: bool,
}

/// Exit code 1 where a claim fails. A test that cannot be run hides nothing of the others: its error comes behind them.
pub fn run(args: &LitmusArgs) -> Result<ExitCode> {
    let bar = counter("steps of the test");
    let published = PUBLISHED.iter().filter(|_| args.published);
    let published = published.map(|(name, text)| run_one(text, &bar).map_err(|error| error.context(name)));
    let (mut told, mut errors) = (Vec::new(), Vec::new());
    for result in published.chain(args.files.iter().map(|file| run_file(file, &bar))) {
        match result {
            Ok(test) => told.push(test),
            Err(error) => errors.push(error),
        }
    }
    bar.finish_and_clear();
    if errors.is_empty() || !told.is_empty() {
        if args.json { print_json(&told)? } else { print(&told)? }
    }
    if let Some(first) = errors.first() {
        let messages: Vec<&str> = errors.iter().map(Error::message).collect();
        return Err(Error::new(first.kind(), messages.join("\n")));
    }
    Ok(if told.iter().all(|test| test.holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_file(file: &Path, bar: &ProgressBar) -> Result<Told> {
    let text = read_text(file)?;
    run_one(&text, bar).map_err(|error| error.context(&file.display().to_string()))
}

fn run_one(text: &str, bar: &ProgressBar) -> Result<Told> {
    let litmus = Litmus::parse(text)?;
    let report: LitmusReport = litmus.run_watched(|steps| {
        bar.set_position(steps);
        Ok(())
    })?;
    Ok(Told {
        name: litmus.name,
        source: litmus.source,
        executions: report.executions,
        holds: report.holds(),
        claims: report
            .checks
            .iter()
            .map(|check| Claim {
                line: check.line,
                claim: check.text.clone(),
                model: check.model.name(),
                holds: check.holds,
            })
            .collect(),
    })
}

fn print(told: &[Told]) -> Result<()> {
    let mut rows = vec![["test", "executions", "claims", "fail", "source"].map(str::to_owned).to_vec()];
    for test in told {
        let failed = test.claims.iter().filter(|claim| !claim.holds).count();
        rows.push(vec![
            test.name.clone(),
            test.executions.to_string(),
            test.claims.len().to_string(),
            failed.to_string(),
            test.source.clone(),
        ]);
    }
    print_line(table(&rows).trim_end())?;
    for test in told {
        for claim in test.claims.iter().filter(|claim| !claim.holds) {
            print_line(&format!(
                "FAILS: {}, line {}, under {}: {}",
                test.name, claim.line, claim.model, claim.claim
            ))?;
        }
    }
    Ok(())
}
