//! One `INFO` out of those of all shards.
//!
//! A line is of one of these kinds:
//! 1. counters and sizes that each shard tells of its own part are added;
//! 2. what is worked out from those is worked out anew from the sums;
//! 3. of what should be the same everywhere and may not be, the worst or the newest is told: a device that has failed,
//!    when everything was durable last;
//! 4. the rest is about the process as a whole, or about the asked shard, and is that shard's.

use crate::commands::info::{
    DEVICE_HEALTH, KEYSPACE, LAST_SAVE, SAVE_STATUS, SPACE_FULL, WRITE_STATUS, merge_keyspace,
    space_full_line,
};
use crate::commandstats::merge_commandstats;
use crate::energy;
use crate::latency::merge_latencystats;
use std::collections::BTreeMap;
use tierstone_base::units::format_size;
use tierstone_engine::EngineStatistics;

/// Names of `INFO` that every shard tells of its own part.
const ADDED: [&str; 44] = [
    "connected_clients",
    "blocked_clients",
    "pubsub_clients",
    "tracking_clients",
    "watching_clients",
    "total_watched_keys",
    "tracking_total_keys",
    "tracking_total_items",
    "used_memory",
    "used_memory_peak",
    "memory_part_bytes",
    "index_bytes",
    "index_records",
    "cache_bytes",
    "buffer_bytes",
    "connection_bytes",
    "connection_bytes_max",
    "request_bytes",
    "request_bytes_max",
    "applied_sequence",
    "durable_sequence",
    "rdb_changes_since_last_save",
    "device_failed_shards",
    "total_connections_received",
    "total_commands_processed",
    "expired_keys",
    "evicted_keys",
    "evicted_clients",
    "keyspace_hits",
    "keyspace_misses",
    "suspended_commands",
    "total_error_replies",
    "rejected_connections",
    "client_query_buffer_limit_disconnections",
    "client_output_buffer_limit_disconnections",
    "total_net_input_bytes",
    "total_net_output_bytes",
    "acl_access_denied_auth",
    "acl_access_denied_cmd",
    "acl_access_denied_key",
    "acl_access_denied_channel",
    "instantaneous_ops_per_sec",
    "untold_expirations",
    "groups",
];

/// Lines of `INFO` that each shard has one of begin with this; its number follows.
pub(crate) const MEMORY_OF_SHARD: &str = "memory_part_bytes_shard_";

/// The section of which histograms are added, and shown as percentiles.
pub(crate) const LATENCYSTATS: &str = "Latencystats";
/// The section whose lines have several numbers each.
pub(crate) const COMMANDSTATS: &str = "Commandstats";

/// Sections of which every line is added.
const ADDED_SECTIONS: [&str; 2] = ["Storage", "Errorstats"];

/// A line of `INFO` with a number: everything before it, and the number.
fn numbered(line: &str) -> Option<(&str, i128)> {
    let place = line.rfind([':', '='])? + 1;
    line[place..].parse().ok().map(|number| (&line[..place], number))
}

/// The lines to be added of one shard's `INFO`, by section and name.
fn numbers_of(text: &str) -> BTreeMap<(&str, &str), i128> {
    let mut section = "";
    let mut numbers = BTreeMap::new();
    for line in text.split("\r\n") {
        if let Some(name) = line.strip_prefix("# ") {
            section = name;
        } else if let Some((name, number)) = numbered(line)
            && is_added(section, name)
        {
            *numbers.entry((section, name)).or_insert(0) += number;
        }
    }
    numbers
}

fn is_added(section: &str, name: &str) -> bool {
    // It does not follow from those of the shards.
    if name == SPACE_FULL {
        return false;
    }
    ADDED_SECTIONS.contains(&section)
        || ADDED.contains(&name.trim_end_matches([':', '=']))
        || energy::ADDED.contains(&name.trim_end_matches(':'))
        || name.starts_with(MEMORY_OF_SHARD)
}

/// The lines of a section of one shard's `INFO`; none where it was not asked for.
fn section_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("# {name}\r\n"))?;
    let lines = rest.split("\r\n\r\n").next().unwrap_or(rest);
    Some(lines.split("\r\n# ").next().unwrap_or(lines).trim_end_matches("\r\n"))
}

/// One `INFO` out of the asked shard's and those of the others.
pub(crate) fn merge_info(own: &str, others: &[&str]) -> String {
    let mut merged = merge_lines(own, others);
    for (name, merge) in [
        (COMMANDSTATS, merge_commandstats as fn(&[&str]) -> String),
        (LATENCYSTATS, merge_latencystats),
        (KEYSPACE, merge_keyspace),
    ] {
        let Some(lines) = section_of(&merged, name) else { continue };
        let all = std::iter::once(own).chain(others.iter().copied());
        let sections: Vec<&str> = all.filter_map(|text| section_of(text, name)).collect();
        let told = merge(&sections);
        let told = told.trim_end();
        // A section that was empty has no end of its last line yet.
        let end = if lines.is_empty() && !told.is_empty() { "\r\n" } else { "" };
        merged = merged.replacen(&format!("# {name}\r\n{lines}"), &format!("# {name}\r\n{told}{end}"), 1);
    }
    merged
}

/// What is worked out anew from the numbers of all shards.
#[derive(Default)]
struct Sums {
    used_memory: u64,
    used_memory_peak: u64,
    index_bytes: u64,
    index_records: u64,
    space: EngineStatistics,
    joules: energy::Sums,
}

impl Sums {
    /// Takes a line's number, if it is one of these; `name` ends with its colon.
    fn note(&mut self, name: &str, number: i128) {
        match name {
            "used_memory:" => self.used_memory = number as u64,
            "used_memory_peak:" => self.used_memory_peak = number as u64,
            "index_bytes:" => self.index_bytes = number as u64,
            "index_records:" => self.index_records = number as u64,
            "space_live_bytes:" => self.space.space_live_bytes = number as u64,
            "space_capacity_bytes:" => self.space.space_capacity_bytes = number as u64,
            "space_growth_bytes_per_day:" => self.space.space_growth_bytes_per_day = number as i64,
            _ => self.joules.note(name, number),
        }
    }

    /// A line of `INFO` anew, if it follows from these.
    fn line(&self, line: &str) -> Option<String> {
        let name = &line[..line.find(':')? + 1];
        match name {
            "used_memory_human:" => Some(format!("{name}{}", format_size(self.used_memory))),
            "used_memory_peak_human:" => Some(format!("{name}{}", format_size(self.used_memory_peak))),
            "index_bytes_per_key:" => {
                Some(format!("{name}{:.1}", self.index_bytes as f64 / self.index_records.max(1) as f64))
            }
            SPACE_FULL => Some(space_full_line(&self.space)),
            _ => self.joules.quotient(line),
        }
    }
}

/// The line of `own` that is told, where one shard says more than the others: a device that has failed, whoever is
/// asked, and the last time of all at which everything was durable.
fn worst_or_newest<'a>(own: &'a str, others: &[&'a str]) -> Option<&'a str> {
    let place = own.find(':')? + 1;
    let name = &own[..place];
    let same = |text: &&'a str| text.split("\r\n").find(|line| line.starts_with(name));
    match name {
        DEVICE_HEALTH | SAVE_STATUS | WRITE_STATUS => {
            let has_failed = |line: &&str| &line[place..] != "ok";
            std::iter::once(own).chain(others.iter().filter_map(same)).find(has_failed)
        }
        LAST_SAVE => {
            let when = |line: &&str| line[place..].parse::<u64>().unwrap_or(0);
            std::iter::once(own).chain(others.iter().filter_map(same)).max_by_key(when)
        }
        _ => None,
    }
}

fn merge_lines(own: &str, others: &[&str]) -> String {
    let mut rest: BTreeMap<(&str, &str), i128> = BTreeMap::new();
    for other in others {
        for (name, number) in numbers_of(other) {
            *rest.entry(name).or_insert(0) += number;
        }
    }
    let mut merged = String::with_capacity(own.len() + 256);
    let mut section = "";
    let mut sums = Sums::default();
    for line in own.split_inclusive("\r\n").map(|line| line.trim_end_matches("\r\n")).chain(["# "]) {
        if line.is_empty() || line.starts_with("# ") {
            // What only others have belongs to the end of its section.
            let left: Vec<(&str, &str)> = rest.keys().filter(|(of, _)| *of == section).copied().collect();
            for key in left {
                let number = rest.remove(&key).unwrap_or(0);
                merged.push_str(&format!("{}{number}\r\n", key.1));
            }
            if let Some(name) = line.strip_prefix("# ") {
                section = name;
            }
            if line != "# " {
                merged.push_str(line);
                merged.push_str("\r\n");
            }
            continue;
        }
        match numbered(line) {
            Some((name, number)) if is_added(section, name) => {
                let total = number + rest.remove(&(section, name)).unwrap_or(0);
                sums.note(name, total);
                merged.push_str(&format!("{name}{total}"));
            }
            told => {
                if let Some((name, number)) = told {
                    sums.note(name, number);
                }
                let line = worst_or_newest(line, others).unwrap_or(line);
                merged.push_str(&sums.line(line).unwrap_or_else(|| line.to_owned()));
            }
        }
        merged.push_str("\r\n");
    }
    merged
}

#[cfg(test)]
#[path = "merged_info_test.rs"]
mod merged_info_test;
