//! The settings file of a running server: `CONFIG REWRITE` puts what clients have set into it.
//!
//! Comments, order and everything else stay as they are: only the values of changed settings are replaced,
//! and settings that the file did not name are added at its end.
//!
//! Crash: the new file is written beside the old one, made durable, and takes its name: one of them is there,
//! whole.

use crate::settings::told_of_toml;
use std::collections::BTreeMap;
use std::path::PathBuf;
use tierstone::replace_file;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_server::redis::{SettingsFile, parse_output_limits};
use toml::{Spanned, Value};

/// A TOML file of settings.
#[derive(Debug)]
pub struct TomlFile {
    path: PathBuf,
    /// Among which the connections of `maxclients` are divided.
    shards: u16,
}

impl TomlFile {
    /// The file at `path`, of a server with so many shards.
    pub fn new(path: PathBuf, shards: u16) -> Self {
        TomlFile { path, shards }
    }

    /// The lines of the file that a setting of `CONFIG` is.
    fn lines_of(&self, name: &str, value: &str) -> Result<Vec<(&'static str, Value)>> {
        let wrong = || Error::new(ErrorKind::InvalidInput, format!("{name} is not kept in the file"));
        let text = |text: &str| Value::String(text.to_owned());
        let number = || value.parse::<i64>().map(Value::Integer).map_err(|_| wrong());
        let bytes = |bytes: u64| Value::String(format!("{bytes}B"));
        Ok(match name {
            "durability" => vec![("durability", text(value))],
            "protected-mode" => vec![("protected-mode", text(value))],
            "acllog-max-len" => vec![("acllog-max-len", number()?)],
            "requirepass" => vec![("password", text(value))],
            "maxmemory-policy" => vec![("maxmemory-policy", text(value))],
            "slowlog-log-slower-than" => vec![("slowlog-log-slower-than", number()?)],
            "latency-monitor-threshold" => vec![("latency-monitor-threshold", number()?)],
            "latency-tracking" => vec![("latency-tracking", text(value))],
            "latency-tracking-info-percentiles" => vec![("latency-tracking-info-percentiles", text(value))],
            "notify-keyspace-events" => vec![("notify-keyspace-events", text(value))],
            "scrub-rate" => vec![("scrub-rate", text(&format!("{value}B")))],
            "slowlog-max-len" => vec![("slowlog-max-len", number()?)],
            "tracking-table-max-keys" => vec![("tracking-table-max-keys", number()?)],
            "maxmemory-clients" => vec![("maxmemory-clients", text(value))],
            "timeout" => vec![("idle-timeout", number()?)],
            "proto-max-bulk-len" => vec![("value-limit", text(&format!("{value}B")))],
            "client-query-buffer-limit" => vec![("input-limit", text(&format!("{value}B")))],
            "maxclients" => {
                let all: u64 = value.parse().map_err(|_| wrong())?;
                let part = all.div_ceil(u64::from(self.shards.max(1)));
                vec![("maxclients", Value::Integer(i64::try_from(part).map_err(|_| wrong())?))]
            }
            "client-output-buffer-limit" => {
                let limits = parse_output_limits(value, "").map_err(|_| wrong())?;
                let seconds = i64::try_from(limits.soft_s).map_err(|_| wrong())?;
                vec![
                    ("output-limit", bytes(limits.hard_bytes)),
                    ("output-soft-limit", bytes(limits.soft_bytes)),
                    ("output-soft-time", Value::Integer(seconds)),
                ]
            }
            _ => return Err(wrong()),
        })
    }
}

impl SettingsFile for TomlFile {
    fn path(&self) -> String {
        let whole = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        whole.display().to_string()
    }

    fn rewrite(&self, changed: &[(String, String)]) -> Result<()> {
        let mut lines = Vec::new();
        for (name, value) in changed {
            lines.extend(self.lines_of(name, value)?);
        }
        let old = std::fs::read_to_string(&self.path)?;
        let new = replaced(&old, lines)?;
        replace_file(&self.path, new.as_bytes())
    }
}

/// `text` with these values.
fn replaced(text: &str, lines: Vec<(&'static str, Value)>) -> Result<String> {
    let found: BTreeMap<String, Spanned<Value>> = toml::from_str(text).map_err(|error| {
        let told = format!("the file is not readable: {}", told_of_toml(text, &error));
        Error::new(ErrorKind::InvalidInput, told)
    })?;
    let mut places = Vec::new();
    let mut added = String::new();
    for (name, value) in lines {
        match found.get(name) {
            Some(old) => places.push((old.span(), value.to_string())),
            None => added.push_str(&format!("{name} = {value}\n")),
        }
    }
    // From the end, so that what comes before stays where it is.
    places.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
    let mut new = text.to_owned();
    for (span, value) in places {
        new.replace_range(span, &value);
    }
    if !added.is_empty() && !new.is_empty() && !new.ends_with('\n') {
        new.push('\n');
    }
    Ok(new + &added)
}

#[cfg(test)]
#[path = "settings_file_test.rs"]
mod settings_file_test;
