//! Dependencies from outside are few and argued: each is declared once in the root manifest, named
//! in `docs/dependencies.md`, and used by some member.

use crate::Finding;
use crate::tree::Tree;
use std::collections::BTreeSet;

/// The page that argues each dependency.
pub const PAGE: &str = "docs/dependencies.md";

/// Lock files of workspaces beside this one, whose packages depend on the members here. Cargo refuses such a file with
/// `--locked` once a member's dependencies have changed, and nothing else here would notice.
const OTHER_LOCKS: [&str; 2] = ["bench/peers/Cargo.lock", "fuzz/Cargo.lock"];

/// The feature with which tests switch rules off; the program does not pay for it.
const MUTATIONS: &str = "mutations";

/// Every dependency that is not argued, not used, or declared outside the root manifest.
pub fn findings(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let declared = match table(tree, "Cargo.toml") {
        Ok(manifest) => declared_dependencies(&manifest),
        Err(finding) => return vec![finding],
    };
    let argued = argued(tree.text(PAGE).unwrap_or(""));
    let mut used = BTreeSet::new();
    for path in tree.files.keys().filter(|path| is_member_manifest(path)) {
        let manifest = match table(tree, path) {
            Ok(manifest) => manifest,
            Err(finding) => {
                findings.push(finding);
                continue;
            }
        };
        for name in rules_switched_off(&manifest) {
            let message = format!("{name}: only `dev-dependencies` may ask for the feature `{MUTATIONS}`");
            findings.push(Finding::new(path.as_str(), 0, message));
        }
        for (name, inherits) in member_dependencies(&manifest) {
            if !inherits {
                let message =
                    format!("{name}: declare it in the root manifest and write `.workspace = true`");
                findings.push(Finding::new(path.as_str(), 0, message));
            }
            used.insert(name);
        }
    }
    for name in &declared {
        if !argued.contains(name) {
            findings.push(Finding::new(PAGE, 0, format!("has no row for {name}")));
        }
        if !used.contains(name) {
            findings.push(Finding::new("Cargo.toml", 0, format!("no member uses {name}: remove it")));
        }
    }
    for name in argued.difference(&declared) {
        findings.push(Finding::new(PAGE, 0, format!("argues for {name}, which the root manifest lacks")));
    }
    findings.extend(OTHER_LOCKS.into_iter().flat_map(|path| stale_packages(tree, path)));
    findings
}

/// Members of which a lock file of another workspace knows other dependencies among the members than they have.
fn stale_packages(tree: &Tree, path: &str) -> Vec<Finding> {
    if tree.text(path).is_none() {
        return Vec::new();
    }
    let lock = match table(tree, path) {
        Ok(lock) => lock,
        Err(finding) => return vec![finding],
    };
    let packages = lock.get("package").and_then(toml::Value::as_array).into_iter().flatten();
    packages
        .filter_map(|package| {
            let name = package.get("name")?.as_str()?;
            let locked = package.get("dependencies").and_then(toml::Value::as_array).into_iter().flatten();
            let locked: BTreeSet<&str> = locked
                .filter_map(|entry| entry.as_str()?.split(' ').next())
                .filter(|name| is_own(name))
                .collect();
            let manifest = tree.files.keys().filter(|path| is_member_manifest(path)).find_map(|path| {
                let manifest = table(tree, path).ok()?;
                (manifest.get("package")?.get("name")?.as_str()? == name).then_some(manifest)
            })?;
            let built: BTreeSet<String> = built_dependencies(&manifest)
                .map(|(name, _)| name.clone())
                .filter(|name| is_own(name))
                .collect();
            let differ = !locked.iter().copied().eq(built.iter().map(String::as_str));
            differ.then(|| {
                let message =
                    format!("{name} has other dependencies now: `cargo metadata` there writes it anew");
                Finding::new(path, 0, message)
            })
        })
        .collect()
}

/// Whether a package is one of this house.
fn is_own(name: &str) -> bool {
    name == "tierstone" || name.starts_with("tierstone-")
}

fn table(tree: &Tree, path: &str) -> Result<toml::Table, Finding> {
    let text = tree.text(path).ok_or_else(|| Finding::new(path, 0, "is missing"))?;
    text.parse().map_err(|error: toml::de::Error| Finding::new(path, 0, error.to_string()))
}

fn is_member_manifest(path: &str) -> bool {
    let directory = path.strip_suffix("/Cargo.toml");
    directory.is_some_and(|directory| {
        directory == "checks" || directory.strip_prefix("crates/").is_some_and(|name| !name.contains('/'))
    })
}

/// Names in `[workspace.dependencies]` that come from outside.
fn declared_dependencies(manifest: &toml::Table) -> BTreeSet<String> {
    let entries = manifest.get("workspace").and_then(|workspace| workspace.get("dependencies")?.as_table());
    let outside = entries.into_iter().flatten().filter(|(_, entry)| entry.get("path").is_none());
    outside.map(|(name, _)| name.clone()).collect()
}

/// Names of a member's dependencies of every kind, with whether they come from the workspace.
fn member_dependencies(manifest: &toml::Table) -> Vec<(String, bool)> {
    let mut places = vec![manifest];
    if let Some(targets) = manifest.get("target").and_then(toml::Value::as_table) {
        places.extend(targets.values().filter_map(toml::Value::as_table));
    }
    let mut found = Vec::new();
    for place in places {
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for (name, entry) in place.get(kind).and_then(toml::Value::as_table).into_iter().flatten() {
                let inherits = entry.get("workspace").and_then(toml::Value::as_bool) == Some(true);
                found.push((name.clone(), inherits));
            }
        }
    }
    found
}

/// Dependencies that the built program has and of which rules can be switched off.
fn rules_switched_off(manifest: &toml::Table) -> Vec<String> {
    let asks = |entry: &toml::Value| {
        let features = entry.get("features").and_then(toml::Value::as_array);
        features.is_some_and(|features| features.iter().any(|feature| feature.as_str() == Some(MUTATIONS)))
    };
    built_dependencies(manifest).filter(|(_, entry)| asks(entry)).map(|(name, _)| name.clone()).collect()
}

/// What a member is built with, tests aside.
fn built_dependencies(manifest: &toml::Table) -> impl Iterator<Item = (&String, &toml::Value)> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let places = std::iter::once(manifest)
        .chain(targets.into_iter().flat_map(|targets| targets.values()).filter_map(toml::Value::as_table));
    let kinds = ["dependencies", "build-dependencies"];
    places
        .flat_map(move |place| kinds.into_iter().filter_map(move |kind| place.get(kind)?.as_table()))
        .flatten()
}

/// Names in the first column of the table of the page.
fn argued(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter_map(|line| line.trim().strip_prefix('|')?.split('|').next());
    let names = rows.map(|cell| cell.trim().trim_matches('`').to_string());
    names.filter(|name| !name.is_empty() && name != "crate" && !name.starts_with(['-', ':'])).collect()
}

#[cfg(test)]
#[path = "dependencies_test.rs"]
mod dependencies_test;
