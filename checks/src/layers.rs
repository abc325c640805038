//! The order of the crates. A crate may use only crates on earlier lines of [`LINES`], or earlier
//! on its own line; development and build dependencies follow the same rule.

use crate::Finding;
use std::collections::BTreeSet;

/// The house: crates from the ground up. The order inside a line counts too.
pub const LINES: &[&[&str]] = &[
    &["base"],
    &["wire", "crash"],
    &["media", "energy"],
    &["persist", "wal"],
    &["cache", "volume"],
    &["engine"],
    &["logstore", "pmstore", "lsm", "btree", "ptree"],
    &["store"],
    &["redis", "events", "cluster"],
    &["kernels", "sql"],
    &["tierstone", "client"],
    &["server"],
    &["workload", "plan"],
    &["sim", "lab"],
    &["cli"],
];

/// The directory of this crate, which stands outside the house.
pub const CHECKS_DIRECTORY: &str = "checks";

/// A workspace member as cargo describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The package's name.
    pub package: String,
    /// Its directory, relative to the workspace's root.
    pub directory: String,
    /// The packages of the workspace that it depends on, with the kind of dependency.
    pub edges: Vec<(String, String)>,
}

/// The line of crate `name` in the house, from 1, and its place in the whole order.
pub fn place(name: &str) -> Option<(usize, usize)> {
    let ordered =
        LINES.iter().enumerate().flat_map(|(line, names)| names.iter().map(move |n| (line + 1, *n)));
    ordered.enumerate().find(|(_, (_, listed))| *listed == name).map(|(place, (line, _))| (line, place))
}

/// The name of the package of crate `name`.
pub fn package_of(name: &str) -> String {
    if name == "tierstone" { name.to_string() } else { format!("tierstone-{name}") }
}

/// Reads the output of `cargo metadata --format-version 1 --no-deps`. Errors: what is missing.
pub fn members(metadata: &str) -> Result<Vec<Member>, String> {
    let metadata: serde_json::Value = serde_json::from_str(metadata).map_err(|error| error.to_string())?;
    let text = |value: &serde_json::Value, field: &str| -> Result<String, String> {
        value[field].as_str().map(str::to_string).ok_or_else(|| format!("cargo metadata has no {field}"))
    };
    let list = |value: &serde_json::Value, field: &str| -> Result<Vec<serde_json::Value>, String> {
        value[field].as_array().cloned().ok_or_else(|| format!("cargo metadata has no list {field}"))
    };
    let root = text(&metadata, "workspace_root")?;
    let packages = list(&metadata, "packages")?;
    let names: BTreeSet<String> =
        packages.iter().map(|package| text(package, "name")).collect::<Result<_, _>>()?;
    let mut members = Vec::new();
    for package in &packages {
        let manifest = text(package, "manifest_path")?.replace('\\', "/");
        let directory = manifest.strip_suffix("/Cargo.toml").unwrap_or(&manifest);
        let directory = directory.strip_prefix(&root.replace('\\', "/")).unwrap_or(directory);
        let mut edges = Vec::new();
        for dependency in list(package, "dependencies")? {
            let name = text(&dependency, "name")?;
            if names.contains(&name) || dependency["path"].is_string() {
                edges.push((name, dependency["kind"].as_str().unwrap_or("normal").to_string()));
            }
        }
        let directory = directory.trim_start_matches('/').to_string();
        members.push(Member { package: text(package, "name")?, directory, edges });
    }
    Ok(members)
}

/// Every member that the house does not know, every name that does not fit its directory, and
/// every edge that does not point to an earlier crate.
pub fn findings(members: &[Member]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for member in members {
        let manifest = format!("{}/Cargo.toml", member.directory);
        let mut refuse = |message: String| findings.push(Finding::new(manifest.as_str(), 0, message));
        if member.directory == CHECKS_DIRECTORY {
            for (target, kind) in &member.edges {
                refuse(format!("{kind} edge to {target}: the checks stand outside the house"));
            }
            continue;
        }
        let Some(name) = member.directory.strip_prefix("crates/") else {
            refuse("a workspace member outside crates/".to_string());
            continue;
        };
        let Some((line, own_place)) = place(name) else {
            refuse(format!("{name} is not in the table of crates (LINES in checks/src/layers.rs)"));
            continue;
        };
        if member.package != package_of(name) {
            refuse(format!("the package is named {}, not {}", member.package, package_of(name)));
        }
        for (target, kind) in &member.edges {
            let target_name = target.strip_prefix("tierstone-").unwrap_or(target);
            match place(target_name) {
                None => refuse(format!("{kind} edge to {target}, which is not in the table of crates")),
                Some((target_line, target_place)) if target_place >= own_place => refuse(format!(
                    "{kind} edge from {name} (line {line}) up to {target_name} (line {target_line})"
                )),
                Some(_) => {}
            }
        }
    }
    findings
}

#[cfg(test)]
#[path = "layers_test.rs"]
mod layers_test;
