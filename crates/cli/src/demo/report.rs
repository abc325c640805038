//! The demo's table.

use super::files::Collected;
use super::load::Done;
use crate::output::{print_json, print_line, table};
use serde::Serialize;
use std::collections::BTreeMap;
use tierstone_base::Result;
use tierstone_base::units::{format_duration_us, format_size};

/// Rate and latencies of one phase, measured at the client.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PhaseReport {
    pub operations: u64,
    pub bytes: u64,
    pub seconds: f64,
    pub per_second: f64,
    pub bytes_per_second: f64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
}

impl From<Done> for PhaseReport {
    fn from(done: Done) -> Self {
        let seconds = done.seconds.max(1e-6);
        PhaseReport {
            operations: done.operations,
            bytes: done.bytes,
            seconds: done.seconds,
            per_second: done.operations as f64 / seconds,
            bytes_per_second: done.bytes as f64 / seconds,
            p50_us: done.latencies.quantile_us(0.5),
            p99_us: done.latencies.quantile_us(0.99),
            p999_us: done.latencies.quantile_us(0.999),
        }
    }
}

/// Everything that the demo found; all of it measured in this run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DemoReport {
    pub source: String,
    pub records: u64,
    pub bytes: u64,
    pub files_left_out: u64,
    pub writes: PhaseReport,
    pub reads: PhaseReport,
    pub overwrites_acknowledged: u64,
    pub writes_in_flight_at_kill: u64,
    pub restart_ms: f64,
    pub restart_note: String,
    pub verified: u64,
    pub space_amplification: f64,
    pub write_amplification: f64,
    pub index_bytes_a_key: f64,
    pub wrong_reads: u64,
    pub acknowledged_writes_lost: u64,
}

impl DemoReport {
    pub fn new(collected: &Collected) -> Self {
        DemoReport {
            source: collected.source.clone(),
            records: collected.files.len() as u64,
            bytes: collected.bytes,
            files_left_out: collected.left_out,
            ..DemoReport::default()
        }
    }

    /// Takes memory of the index, space and write amplification, over all shards.
    pub fn take_metrics(&mut self, metrics: &BTreeMap<String, u64>) {
        let number = |name: &str| metrics.get(&format!("tierstone_{name}")).copied().unwrap_or(0) as f64;
        let user = number("user_written_bytes_total").max(1.0);
        self.space_amplification = number("space_used_bytes") / user;
        self.write_amplification = number("device_written_bytes_total") / user;
        self.index_bytes_a_key = number("index_bytes") / number("keys").max(1.0);
    }

    pub fn print(&self, json: bool) -> Result<()> {
        if json {
            return print_json(self);
        }
        print_line(&table(&self.rows()))
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        let mut row = |what: &str, value: String| rows.push(vec![what.to_owned(), value]);
        row("measured in this run", "value".into());
        row("records", format!("{} ({})", self.records, self.source));
        row("bytes", format_size(self.bytes));
        if self.files_left_out > 0 {
            row("files left out (unreadable, over 4 MiB)", self.files_left_out.to_string());
        }
        for (what, phase) in [("durable writes", &self.writes), ("reads", &self.reads)] {
            row(
                &format!("{what} a second"),
                format!("{:.0} ({}/s)", phase.per_second, format_size(phase.bytes_per_second as u64)),
            );
            let times = [phase.p50_us, phase.p99_us, phase.p999_us].map(|us| format_duration_us(us as f64));
            row(&format!("{what}, p50 / p99 / p99.9"), times.join(" / "));
        }
        row("overwrites acknowledged before SIGKILL", self.overwrites_acknowledged.to_string());
        row("writes in flight at SIGKILL", self.writes_in_flight_at_kill.to_string());
        row("restart, process start to serving", format!("{:.0} ms", self.restart_ms));
        row("records verified after it", self.verified.to_string());
        row("space amplification (whole segments)", format!("{:.2}", self.space_amplification));
        row("write amplification", format!("{:.2}", self.write_amplification));
        row("index bytes a key", format!("{:.1}", self.index_bytes_a_key));
        row("wrong reads", self.wrong_reads.to_string());
        row("acknowledged writes lost", self.acknowledged_writes_lost.to_string());
        rows
    }
}
