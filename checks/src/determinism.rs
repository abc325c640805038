//! One seed gives one run: below the drivers no code names threads, sockets or the machine's
//! clocks, except in a few named modules; and `clippy.toml` keeps the bans that the compiler sees.

use crate::Finding;
use crate::layers;
use crate::modules::Modules;
use crate::tree::Tree;

/// Crates from this line of the house on are drivers, tools or simulations.
pub const FIRST_DRIVER_LINE: usize = 12;

/// Files, and directories ending in `/`, that stand for the machine, each with the reason.
pub const MACHINE_PLACES: &[(&str, &str)] = &[
    ("crates/base/src/clock.rs", "the one place where real time enters"),
    ("crates/base/src/random.rs", "the one place where real randomness enters"),
    ("crates/media/src/file.rs", "the back-ends are drivers of files"),
    ("crates/media/src/file/", "the back-ends are drivers of files"),
    ("crates/media/src/probe.rs", "probing measures the machine's devices"),
    ("crates/media/src/probe/", "probing measures the machine's devices"),
    ("crates/energy/src/driver.rs", "the sampler's thread: meters are the machine's"),
    ("crates/persist/src/tracer/threads.rs", "the tracer runs the threads that it traces"),
    ("crates/tierstone/src/shared.rs", "the shared handle is a driver of its shards' threads"),
    ("crates/tierstone/src/shared/", "the shared handle is a driver of its shards' threads"),
    ("crates/tierstone/src/volume/", "a volume lives on a thread of its own, beside those of the shards"),
    ("crates/client/", "the client is used from threads of foreign programs"),
];

/// Modules of the standard library that bring the machine in.
const BANNED_MODULES: &[&str] = &["thread", "net"];

/// Types that read the machine's clocks.
const BANNED_TYPES: &[&str] = &["Instant", "SystemTime"];

/// What `clippy.toml` has to ban, as the compiler resolves it.
const BANNED_BY_CLIPPY: &[&str] = &[
    "std::time::Instant::now",
    "std::time::SystemTime::now",
    "std::thread::sleep",
    "std::thread::spawn",
    "std::collections::hash_map::RandomState",
    "std::collections::HashMap",
    "std::collections::HashSet",
];

/// Every use of the machine where only a seed may decide.
pub fn findings(modules: &Modules) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, source) in &modules.sources {
        if !is_governed(path) || modules.is_test(path) {
            continue;
        }
        let mut refuse = |line: usize, name: &str| {
            if !source.is_test_line(line) {
                let message =
                    format!("names {name}, which no seed decides; take it through `base` or `media`");
                findings.push(Finding::new(path.as_str(), line, message));
            }
        };
        for name in BANNED_TYPES {
            source.lines_of(&[*name]).for_each(|line| refuse(line, name));
        }
        for name in BANNED_MODULES {
            let full = format!("std::{name}");
            source.lines_of(&["std", ":", ":", name]).for_each(|line| refuse(line, &full));
            for import in &source.imports {
                let behind = import.path.strip_prefix("std::").and_then(|rest| rest.strip_prefix(*name));
                if behind.is_some_and(|rest| rest.is_empty() || rest.starts_with("::")) {
                    refuse(import.line, &full);
                }
            }
        }
        for import in source.imports.iter().filter(|import| import.path == "std::time::*") {
            refuse(import.line, "std::time::*");
        }
    }
    findings.sort();
    findings.dedup();
    findings
}

/// Whether the file belongs to a crate below the drivers and is not one of [`MACHINE_PLACES`].
fn is_governed(path: &str) -> bool {
    let named = path.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/"));
    let Some((line, _)) = named.and_then(|(name, _)| layers::place(name)) else {
        return false;
    };
    let excepted = |place: &str| path == place || place.ends_with('/') && path.starts_with(place);
    line < FIRST_DRIVER_LINE && !MACHINE_PLACES.iter().any(|(place, _)| excepted(place))
}

/// Every ban that `clippy.toml` has lost, and every ban without a reason.
pub fn clippy_findings(tree: &Tree) -> Vec<Finding> {
    let refuse = |message: String| Finding::new("clippy.toml", 0, message);
    let settings = match tree.text("clippy.toml").map(|text| text.parse::<toml::Table>()) {
        None => return vec![refuse("is missing".to_string())],
        Some(Err(error)) => return vec![refuse(error.to_string())],
        Some(Ok(settings)) => settings,
    };
    let lists = ["disallowed-methods", "disallowed-types"];
    let bans: Vec<&toml::Value> =
        lists.iter().filter_map(|list| settings.get(*list)?.as_array()).flatten().collect();
    let text =
        |ban: &toml::Value, field: &str| ban.get(field).and_then(|v| v.as_str()).unwrap_or("").to_string();
    let mut findings = Vec::new();
    for path in BANNED_BY_CLIPPY {
        match bans.iter().find(|ban| text(ban, "path") == *path) {
            None => findings.push(refuse(format!("no longer bans {path}"))),
            Some(ban) if text(ban, "reason").is_empty() => {
                findings.push(refuse(format!("bans {path} without a reason")));
            }
            Some(_) => {}
        }
    }
    findings
}

#[cfg(test)]
#[path = "determinism_test.rs"]
mod determinism_test;
