//! What a node says about itself as a whole: its version, its process, what was lost when it was opened, and what was
//! refused to users.

use super::MetricsBoard;
use std::fmt::Write;

/// What may be refused to users, in the order in which it is counted.
const KINDS: [&str; 4] = ["auth", "cmd", "key", "channel"];

impl MetricsBoard {
    /// The version of the program, and whether the store was opened without the redo log that it had.
    pub(super) fn about(&self, text: &mut String) {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "# HELP tierstone_build_info The version of the program, as a label.\n\
             # TYPE tierstone_build_info gauge\n\
             tierstone_build_info{{version=\"{}\"}} 1",
            env!("CARGO_PKG_VERSION")
        );
        let name = "tierstone_redo_log_lost";
        if !self.newest.is_empty() {
            let is_lost = self.newest.values().any(|snapshot| snapshot.is_redo_lost);
            let _ = writeln!(
                text,
                "# HELP {name} 1 when the store was opened without all of its redo log.\n\
                 # TYPE {name} gauge\n{name} {}",
                u8::from(is_lost)
            );
        }
    }

    /// What was refused to users.
    pub(super) fn denied(&self, text: &mut String) {
        let name = "tierstone_acl_denied_total";
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "# HELP {name} What was refused to users, by its kind.\n# TYPE {name} counter");
        for snapshot in self.newest.values() {
            for (kind, count) in KINDS.iter().zip(snapshot.denied) {
                let _ = writeln!(text, "{name}{{shard=\"{}\",kind=\"{kind}\"}} {count}", snapshot.shard);
            }
        }
    }

    /// The process's own numbers, under Prometheus's usual names.
    pub(super) fn process(&self, text: &mut String) {
        let Some(process) = self.process.map(|ask| ask()) else { return };
        let cpu_us = process.user_us + process.system_us;
        let mut row = |name: &str, kind: &str, help: &str, value: f64| {
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "# HELP process_{name} {help}\n# TYPE process_{name} {kind}\nprocess_{name} {value}"
            );
        };
        row("resident_memory_bytes", "gauge", "Resident memory.", process.resident_bytes as f64);
        row("cpu_seconds_total", "counter", "Processor time, user and system.", cpu_us as f64 / 1e6);
        let started_ms = self.newest.values().map(|snapshot| snapshot.started_ms).max().unwrap_or(0);
        if started_ms > 0 {
            let seconds = started_ms as f64 / 1e3;
            row("start_time_seconds", "gauge", "When it started, in seconds since 1970.", seconds);
        }
        if let Some((open, most)) = descriptors() {
            row("open_fds", "gauge", "Open files and sockets.", open as f64);
            row("max_fds", "gauge", "How many of them there may be.", most as f64);
        }
    }
}

/// Open descriptors of this process, and how many there may be. Cost: one look at a directory that has an entry for each.
fn descriptors() -> Option<(u64, u64)> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    // One of them is the directory's.
    Some((entries.saturating_sub(1), limit.current.unwrap_or(u64::MAX)))
}
