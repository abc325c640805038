//! All Rust files of the tree, parsed, and the module graph over them: which files some target
//! reaches, and which of those are compiled for tests only.

use crate::Finding;
use crate::source::{ModuleDeclaration, Source};
use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// The parsed Rust files of a tree.
#[derive(Debug, Default)]
pub struct Modules {
    /// Path to facts, for every file that parses.
    pub sources: BTreeMap<String, Source>,
    /// The files that do not parse.
    pub unparsed: Vec<Finding>,
    /// Files that a target reaches, with whether only tests do.
    reached: BTreeMap<String, bool>,
}

/// Where a module's own submodules are looked for.
struct Visit {
    path: String,
    test_only: bool,
    owns_directory: bool,
}

impl Modules {
    /// Parses every Rust file and follows every `mod` from every target's root.
    pub fn of(tree: &Tree) -> Modules {
        let mut modules = Modules::default();
        for (path, text) in tree.rust() {
            match Source::parse(text) {
                Ok(source) => {
                    modules.sources.insert(path.to_string(), source);
                }
                Err(error) => modules.unparsed.push(Finding::new(path, 0, error)),
            }
        }
        let listed: Vec<String> = tree.texts().filter_map(|(path, text)| listed_tests(path, text)).collect();
        let is_listed = |path: &String| listed.iter().any(|folder| path.starts_with(folder));
        let mut roots: BTreeSet<String> =
            modules.sources.keys().filter(|path| is_root(path) && !is_listed(path)).cloned().collect();
        roots.extend(tree.texts().flat_map(|(path, text)| declared_roots(path, text)));
        for path in roots {
            let test_only = is_test_path(&path);
            modules.follow(Visit { path, test_only, owns_directory: true });
        }
        modules
    }

    /// Whether the file is compiled for tests, benchmarks or fuzzing only.
    pub fn is_test(&self, path: &str) -> bool {
        is_test_path(path) || self.reached.get(path).copied().unwrap_or(false)
    }

    /// Files under a `src/` or `tests/` that no target reaches.
    pub fn dead(&self) -> impl Iterator<Item = &str> {
        let paths = self.sources.keys().map(String::as_str);
        let belongs = |path: &str| path.contains("/src/") || path.contains("/tests/");
        paths.filter(move |path| belongs(path) && !self.reached.contains_key(*path))
    }

    fn follow(&mut self, first: Visit) {
        let mut open = vec![first];
        while let Some(visit) = open.pop() {
            let Some(source) = self.sources.get(&visit.path) else {
                continue;
            };
            match self.reached.get(&visit.path) {
                Some(false) => continue,
                Some(true) if visit.test_only => continue,
                _ => {}
            }
            for declaration in &source.modules {
                open.extend(self.resolve(&visit, declaration));
            }
            self.reached.insert(visit.path, visit.test_only);
        }
    }

    /// The files that `declaration` inside `visit` may mean; those that exist.
    fn resolve(&self, visit: &Visit, declaration: &ModuleDeclaration) -> Vec<Visit> {
        let (directory, file) = visit.path.rsplit_once('/').unwrap_or(("", &visit.path));
        let own = match file.strip_suffix(".rs") {
            Some(stem) if !visit.owns_directory => format!("{directory}/{stem}"),
            _ => directory.to_string(),
        };
        let inside: String = declaration.inside.iter().map(|name| format!("/{name}")).collect();
        let candidates = match &declaration.path {
            Some(path) if declaration.inside.is_empty() => vec![(format!("{directory}/{path}"), true)],
            Some(path) => vec![(format!("{own}{inside}/{path}"), true)],
            None => vec![
                (format!("{own}{inside}/{}.rs", declaration.name), false),
                (format!("{own}{inside}/{}/mod.rs", declaration.name), true),
            ],
        };
        let visits = candidates.into_iter().map(|(path, owns_directory)| Visit {
            path: normalised(&path),
            test_only: visit.test_only || declaration.test_only,
            owns_directory,
        });
        visits.filter(|found| self.sources.contains_key(&found.path)).collect()
    }
}

/// Whether the path alone says that the file is a test, a benchmark, a fuzz body or an example.
pub fn is_test_path(path: &str) -> bool {
    let mut directories = path.split('/');
    let file = directories.next_back().unwrap_or("");
    file.ends_with("_test.rs")
        || file.ends_with("_bench.rs")
        || path.starts_with("bench/")
        || directories.any(|name| matches!(name, "tests" | "benches" | "fuzz" | "fuzz_targets" | "examples"))
}

/// Whether cargo finds a target at this path by its own rules.
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        [.., "src", "lib.rs" | "main.rs"] | [.., "src", "bin", _] | [.., "src", "bin", _, "main.rs"] => true,
        [.., "tests" | "benches" | "examples" | "fuzz_targets", _] => true,
        [.., "tests" | "benches" | "examples", _, "main.rs"] => true,
        [.., file] => *file == "build.rs",
        [] => false,
    }
}

/// The folder of the manifest at `path`, and the manifest.
fn manifest<'a>(path: &'a str, text: &str) -> Option<(&'a str, toml::Table)> {
    Some((path.strip_suffix("Cargo.toml")?, text.parse().ok()?))
}

/// The folder of tests of the package at `path`, where cargo looks for none in it by its own rules.
fn listed_tests(path: &str, text: &str) -> Option<String> {
    let (directory, manifest) = manifest(path, text)?;
    let finds = manifest.get("package")?.get("autotests")?.as_bool()?;
    (!finds).then(|| format!("{directory}tests/"))
}

/// The targets that the manifest at `path` names itself.
fn declared_roots(path: &str, text: &str) -> Vec<String> {
    let Some((directory, manifest)) = manifest(path, text) else {
        return Vec::new();
    };
    let mut targets: Vec<&toml::Value> = manifest.get("lib").into_iter().collect();
    for kind in ["bin", "test", "bench", "example"] {
        targets.extend(manifest.get(kind).and_then(toml::Value::as_array).into_iter().flatten());
    }
    let paths = targets.into_iter().filter_map(|target| target.get("path")?.as_str());
    paths.map(|path| normalised(&format!("{directory}{path}"))).collect()
}

/// The path without `.` and `..` components and without doubled slashes.
pub fn normalised(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
#[path = "modules_test.rs"]
mod modules_test;
