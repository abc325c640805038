//! What a node says of the volume below its store: in `INFO`, in metrics and in the log.

use std::fmt::Write;
use std::path::PathBuf;
use tierstone::volume::{VolumeEvent, VolumeOrder as Order, VolumeReport, VolumeTeller};
use tierstone::{Database, DatabaseOptions};
use tierstone_base::Result;
use tierstone_redis::{VolumeFacts, VolumeOrder};

/// The states of members, as metrics count them.
const STATES: [&str; 4] = ["in-sync", "failed", "filling", "behind"];

/// Tells `INFO`.
#[derive(Debug)]
pub(super) struct VolumeInfo(pub VolumeTeller);

impl VolumeFacts for VolumeInfo {
    fn fields(&self) -> Vec<(String, String)> {
        let report = self.0.report();
        let mut fields = Vec::new();
        let mut field = |name: &str, value: String| fields.push((format!("volume{name}"), value));
        let count = |state: &str| report.members.iter().filter(|member| member.state == state).count();
        field("", report.level.to_owned());
        field("_state", if report.is_degraded { "degraded" } else { "whole" }.to_owned());
        field("_description", report.description.display().to_string());
        field("_bytes", report.bytes.to_string());
        field("_generation", report.generation.to_string());
        field("_members", report.members.len().to_string());
        for (name, state) in ["_failed", "_filling", "_asleep"].into_iter().zip(&STATES[1..]) {
            field(name, count(state).to_string());
        }
        field("_read_errors", read_errors(&report).to_string());
        for (index, member) in report.members.iter().enumerate() {
            let filled =
                member.filled_percent.map(|percent| format!(",filled={percent}%")).unwrap_or_default();
            let (state, errors) = (member.state, member.read_errors);
            let path = member.path.display();
            field(
                &format!("_member_{index}"),
                format!("state={state}{filled},read_errors={errors},path={path}"),
            );
        }
        if let Some(fill) = report.buffer_fill {
            field("_buffer_fill_percent", format!("{:.1}", fill * 100.0));
            field("_staging", report.staging);
            field("_spindle", report.spindle);
        }
        for (index, pair) in report.pairs.iter().enumerate() {
            let [first, second] = pair.cycles;
            field(&format!("_pair_{index}"), format!("state={},cycles={first}+{second}", pair.state));
        }
        field("_order", report.order.number.to_string());
        field("_order_state", report.order.state.to_owned());
        field("_order_text", report.order.text.replace(['\r', '\n'], " "));
        fields
    }

    fn order(&self, order: VolumeOrder) -> Result<u64> {
        self.0.order(match order {
            VolumeOrder::Fail { member } => Order::Fail { member },
            VolumeOrder::Replace { member, path } => Order::Replace { member, path: path.map(PathBuf::from) },
        })
    }
}

fn read_errors(report: &VolumeReport) -> u64 {
    report.members.iter().map(|member| u64::from(member.read_errors)).sum()
}

/// Tells metrics.
pub(super) fn metrics(text: &mut String, report: &VolumeReport) {
    let mut family = |name: &str, kind: &str, help: &str, values: Vec<(String, f64)>| {
        // Writing to a string cannot fail.
        let _ =
            writeln!(text, "# HELP tierstone_volume_{name} {help}\n# TYPE tierstone_volume_{name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(text, "tierstone_volume_{name}{labels} {value}");
        }
    };
    let count = |state: &&str| {
        let members = report.members.iter().filter(|member| member.state == *state).count();
        (format!("{{state=\"{state}\"}}"), members as f64)
    };
    family("members", "gauge", "Members of the volume by their state.", STATES.iter().map(count).collect());
    let degraded = f64::from(u8::from(report.is_degraded));
    family(
        "degraded",
        "gauge",
        "1 while a member has failed or is being filled.",
        vec![(String::new(), degraded)],
    );
    let errors = report.members.iter().enumerate();
    let errors =
        errors.map(|(index, member)| (format!("{{member=\"{index}\"}}"), f64::from(member.read_errors)));
    family("read_errors_total", "counter", "Reads of a member that failed.", errors.collect());
    if let Some(fill) = report.buffer_fill {
        family(
            "buffer_fill_ratio",
            "gauge",
            "Share of the flash buffer in use.",
            vec![(String::new(), fill)],
        );
        let cycles = report.pairs.iter().enumerate();
        let cycles = cycles.map(|(index, pair)| {
            (format!("{{pair=\"{index}\"}}"), pair.cycles.iter().map(|count| *count as f64).sum())
        });
        family("sleeps_total", "counter", "How often a disk of the pair has slept.", cycles.collect());
    }
}

/// Opens a database. Of a volume below it the log is told, from now on, and what opening has found.
pub(super) fn open_watched(options: &DatabaseOptions) -> Result<Database> {
    let database = Database::open(options)?;
    if let Some(volume) = database.storage().volume() {
        volume.watch(Box::new(|event: &VolumeEvent| {
            let what = event.text.as_str();
            match event.is_warning {
                true => tracing::warn!(what, "volume"),
                false => tracing::info!(what, "volume"),
            }
        }));
    }
    Ok(database)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierstone::volume::{MemberReport, OrderReport, PairReport};

    #[test]
    fn metrics_tell_states_errors_and_sleep() {
        let member =
            |state, read_errors| MemberReport { path: "/a".into(), state, filled_percent: None, read_errors };
        let report = VolumeReport {
            description: "/volume.toml".into(),
            order: OrderReport::default(),
            level: "raid10",
            bytes: 1,
            generation: 2,
            is_degraded: true,
            members: vec![
                member("in-sync", 0),
                member("failed", 3),
                member("in-sync", 0),
                member("behind", 0),
            ],
            buffer_fill: Some(0.25),
            staging: "the flash".into(),
            pairs: vec![
                PairReport { state: "degraded", cycles: [0, 0] },
                PairReport { state: "asleep", cycles: [1, 2] },
            ],
            spindle: "none".into(),
        };
        let mut text = String::new();
        metrics(&mut text, &report);
        for line in [
            "tierstone_volume_members{state=\"in-sync\"} 2",
            "tierstone_volume_members{state=\"failed\"} 1",
            "tierstone_volume_members{state=\"filling\"} 0",
            "tierstone_volume_degraded 1",
            "tierstone_volume_read_errors_total{member=\"1\"} 3",
            "tierstone_volume_buffer_fill_ratio 0.25",
            "tierstone_volume_sleeps_total{pair=\"1\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
