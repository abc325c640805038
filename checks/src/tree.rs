//! The repository as a map from path to contents, loaded once and then read by every checker.
//!
//! Invariants:
//! 1. Paths are relative to the root and use `/`.
//! 2. What git ignores is not in the tree; without git, build outputs are left out by name.
//! 3. Contents above [`CONTENT_LIMIT_BYTES`] are not kept: only the size is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Above this size a file's contents are not loaded (and the size itself is a finding).
pub const CONTENT_LIMIT_BYTES: u64 = 1 << 20;

/// Directories that hold build outputs, for a checkout without git.
const OUTPUT_DIRECTORIES: &[&str] =
    &[".git", "target", "out", "__pycache__", "fuzz/artifacts", "fuzz/corpus", ".cargo"];

/// One file.
#[derive(Clone, Debug)]
pub struct File {
    /// Its size in bytes.
    pub size: u64,
    /// Its text, unless it is binary or too large.
    pub text: Option<String>,
}

/// All files of the repository.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Path to file.
    pub files: BTreeMap<String, File>,
}

impl Tree {
    /// Loads the repository at `root`. Cost: one read of every committed or committable file.
    pub fn load(root: &Path) -> Result<Tree, String> {
        let paths = match paths_by_git(root) {
            Some(paths) => paths,
            None => {
                let mut paths = Vec::new();
                walk(root, "", &mut paths).map_err(|error| format!("{}: {error}", root.display()))?;
                paths
            }
        };
        let mut tree = Tree::default();
        for path in paths {
            let Ok(metadata) = std::fs::symlink_metadata(root.join(&path)) else {
                continue; // Deleted in the work tree, still in git's index.
            };
            if !metadata.is_file() {
                continue;
            }
            let mut text = None;
            if metadata.len() <= CONTENT_LIMIT_BYTES {
                let bytes = std::fs::read(root.join(&path)).map_err(|error| format!("{path}: {error}"))?;
                text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
            }
            tree.files.insert(path, File { size: metadata.len(), text });
        }
        Ok(tree)
    }

    /// A tree made of `(path, text)` pairs, for the tests of the checkers.
    pub fn of(files: &[(&str, &str)]) -> Tree {
        let file = |text: &str| File { size: text.len() as u64, text: Some(text.to_string()) };
        Tree { files: files.iter().map(|(path, text)| (path.to_string(), file(text))).collect() }
    }

    /// The text of `path`, if it is there and is text.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.text.as_deref()
    }

    /// All text files as `(path, text)`.
    pub fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, file)| Some((path.as_str(), file.text.as_deref()?)))
    }

    /// All Rust files as `(path, text)`.
    pub fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(|(path, _)| path.ends_with(".rs"))
    }

    /// Whether `path` names a file or a directory. `*` stands for any run of characters but `/`.
    pub fn has(&self, path: &str) -> bool {
        let wanted: Vec<&str> = path.trim_end_matches('/').split('/').collect();
        self.files.keys().any(|file| {
            let parts: Vec<&str> = file.split('/').collect();
            parts.len() >= wanted.len() && wanted.iter().zip(&parts).all(|(want, part)| matches(want, part))
        })
    }
}

/// Whether `name` fits `pattern`, where `*` stands for any run of characters.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(name) = name.strip_prefix(head) else {
        return false;
    };
    (0..=name.len()).filter(|at| name.is_char_boundary(*at)).any(|at| matches(rest, &name[at..]))
}

/// The root of this repository: the directory above the manifest of this crate.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

fn paths_by_git(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    let listing = String::from_utf8(output.stdout).ok()?;
    let paths: Vec<String> =
        listing.split('\0').filter(|path| !path.is_empty()).map(str::to_string).collect();
    (!paths.is_empty()).then_some(paths)
}

fn walk(root: &Path, below: &str, paths: &mut Vec<String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(root.join(below))? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        if OUTPUT_DIRECTORIES.iter().any(|skipped| *skipped == path || *skipped == name) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk(root, &path, paths)?;
        } else if kind.is_file() {
            paths.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "tree_test.rs"]
mod tree_test;
