//! What a benchmark measured, as a table or as JSON.

use super::energy::EnergyCost;
use crate::output::{print_json, print_line, table};
use serde::Serialize;
use std::collections::BTreeMap;
use tierstone_base::Result;
use tierstone_base::units::format_duration_us;
use tierstone_workload::redis_load::Plan;
use tierstone_workload::{LatencySummary, OperationKind, Outcome};

/// What the measured part cost the own server.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ServerCost {
    /// Processor time an operation, user and system, in microseconds.
    pub cpu_us_per_operation: Option<f64>,
    /// Bytes read from the device an operation.
    pub device_read_bytes_per_operation: f64,
    /// Bytes written to the device an operation, padding, summaries and cleaning included.
    pub device_written_bytes_per_operation: f64,
    /// Memory of the index a key at the end, in bytes.
    pub index_bytes_per_key: f64,
}

impl ServerCost {
    pub fn new(
        operations: u64,
        cpu_us: Option<(u64, u64)>,
        before: &BTreeMap<String, u64>,
        after: &BTreeMap<String, u64>,
    ) -> Self {
        let operations = operations.max(1) as f64;
        let each = |name: &str| {
            let number = |numbers: &BTreeMap<String, u64>| numbers.get(name).copied().unwrap_or(0);
            number(after).saturating_sub(number(before)) as f64 / operations
        };
        let last = |name: &str| after.get(name).copied().unwrap_or(0) as f64;
        ServerCost {
            cpu_us_per_operation: cpu_us.map(|(from, to)| to.saturating_sub(from) as f64 / operations),
            device_read_bytes_per_operation: each("tierstone_device_read_bytes_total"),
            device_written_bytes_per_operation: each("tierstone_device_written_bytes_total"),
            index_bytes_per_key: last("tierstone_index_bytes") / last("tierstone_keys").max(1.0),
        }
    }
}

/// Everything that was measured, with the plan that gives it again.
#[derive(Debug, Serialize)]
pub struct BenchReport {
    pub workload: String,
    pub is_own_server: bool,
    pub plan: Plan,
    pub load: Option<Outcome>,
    pub run: Outcome,
    pub server: Option<ServerCost>,
    pub energy: EnergyCost,
    pub verified: Option<Outcome>,
}

impl BenchReport {
    pub fn print(&self, json: bool) -> Result<()> {
        if json {
            return print_json(self);
        }
        print_line(&table(&self.rates()))?;
        print_line(&table(&self.numbers()))
    }

    fn rates(&self) -> Vec<Vec<String>> {
        let head = ["phase", "operations", "a second", "p50", "p99", "p99.9", "max", "longest gap"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        let mut phase = |what: &str, outcome: &Outcome| {
            let gap = format_duration_us(outcome.longest_gap_us as f64);
            rows.push(row(what, outcome.operations, outcome.rate, &outcome.latency, gap));
            if outcome.kinds.len() > 1 {
                for (kind, of_kind) in &outcome.kinds {
                    let rate = of_kind.operations as f64 / outcome.seconds.max(1e-6);
                    rows.push(row(
                        &format!("  {kind}"),
                        of_kind.operations,
                        rate,
                        &of_kind.latency,
                        String::new(),
                    ));
                }
            }
        };
        if let Some(load) = &self.load {
            phase("load", load);
        }
        phase(&format!("run {}", self.workload), &self.run);
        if let Some(verified) = &self.verified {
            phase("verify", verified);
        }
        rows
    }

    fn energy_rows(&self, row: &mut impl FnMut(&str, String)) {
        let energy = &self.energy;
        let micro = |joules: Option<f64>| joules.map(|joules| format!("{:.3}", joules * 1e6));
        if let (Some(measured), Some(uj)) = (&energy.measured, micro(energy.measured_joules_per_operation)) {
            row("energy of the machine, uJ an operation (measured)", uj);
            row("power of the machine, W (measured)", format!("{:.2}", measured.watts));
            if let Some(covered) = measured.coverage() {
                row("of that the meters cover, s (the rest is taken to be like it)", covered);
            }
        }
        let active = micro(energy.modelled_active_joules_per_operation);
        if let (Some(modelled), Some(uj)) = (&energy.modelled, active) {
            let model = &modelled.model;
            row(&format!("energy above idle, uJ an operation (modelled: {model})"), uj);
            let all = micro(energy.modelled_joules_per_operation).unwrap_or_default();
            row(&format!("with the idle machine, uJ an operation (modelled: {model})"), all);
        }
    }

    fn numbers(&self) -> Vec<Vec<String>> {
        let mut rows = Vec::new();
        let mut row = |what: &str, value: String| rows.push(vec![what.to_owned(), value]);
        row("measured in the run", "value".to_owned());
        row("seconds", format!("{:.2}", self.run.seconds));
        if let (Some(rate), Some(error)) = (self.run.rate_intended, self.run.rate_error) {
            row("rate asked for, a second", rate.to_string());
            row("rate error, %", format!("{:.2}", error * 100.0));
        }
        if let Some(delay) = &self.run.send_delay {
            row("sent late by, p99", format_duration_us(delay.p99_us as f64));
        }
        row("client CPU, us an operation", format!("{:.2}", self.run.client_cpu_us_per_operation));
        if let Some(server) = &self.server {
            if let Some(cpu) = server.cpu_us_per_operation {
                row("server CPU, us an operation", format!("{cpu:.2}"));
            }
            row("device bytes read an operation", format!("{:.0}", server.device_read_bytes_per_operation));
            row(
                "device bytes written an operation",
                format!("{:.0}", server.device_written_bytes_per_operation),
            );
            row("index bytes a key", format!("{:.1}", server.index_bytes_per_key));
        }
        self.energy_rows(&mut row);
        row("errors", self.run.errors.to_string());
        row("not answered", self.run.unanswered.to_string());
        row("misses", self.run.misses.to_string());
        if self.run.kinds.contains_key(&OperationKind::ReadThrough) {
            let found = 1.0 - self.run.misses as f64 / self.run.operations.max(1) as f64;
            row("found, %", format!("{:.2}", found * 100.0));
        }
        if let Some(verified) = &self.verified {
            row(
                "wrong values",
                (self.run.verification_failures + verified.verification_failures).to_string(),
            );
            row("records missing at the end", verified.misses.to_string());
        }
        rows
    }
}

fn row(what: &str, operations: u64, rate: f64, latency: &LatencySummary, gap: String) -> Vec<String> {
    let decimals = if rate < 10.0 { 2 } else { 0 };
    let mut cells = vec![what.to_owned(), operations.to_string(), format!("{rate:.decimals$}")];
    let times = [latency.p50_us, latency.p99_us, latency.p999_us, latency.max_us];
    cells.extend(times.map(|us| format_duration_us(us as f64)));
    cells.push(gap);
    cells
}
