//! Collects the files that the demo imports.

use std::path::{Path, PathBuf};
use tierstone_base::{Error, ErrorKind, Result};

/// Larger files are left out: values of this release are limited.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// So many files are enough to see rates and tails.
const FILES_MAX: usize = 60_000;
/// Where documentation, headers and sources usually are.
const DEFAULT_TREES: [&str; 5] =
    ["/usr/share/doc", "/usr/include", "/usr/share/man", "/usr/share/perl", "/usr/lib/python3"];

/// What was collected.
#[derive(Debug, Default)]
pub struct Collected {
    /// Path and content.
    pub files: Vec<(Vec<u8>, Vec<u8>)>,
    /// Bytes of contents.
    pub bytes: u64,
    /// Files that were too large or could not be read.
    pub left_out: u64,
    /// Where they come from.
    pub source: String,
}

/// Collects files below `path`, or from the usual places, up to `limit` bytes.
pub fn collect(path: Option<&Path>, limit: u64) -> Result<Collected> {
    let trees: Vec<PathBuf> = match path {
        Some(path) if path.exists() => vec![path.to_path_buf()],
        Some(path) => {
            return Err(Error::new(ErrorKind::InvalidInput, format!("{} does not exist", path.display())));
        }
        None => DEFAULT_TREES.iter().map(PathBuf::from).filter(|tree| tree.is_dir()).collect(),
    };
    let mut collected = Collected {
        source: trees.iter().map(|tree| tree.display().to_string()).collect::<Vec<_>>().join(", "),
        ..Collected::default()
    };
    let mut waiting: Vec<PathBuf> = trees.into_iter().rev().collect();
    while let Some(path) = waiting.pop() {
        if collected.bytes >= limit || collected.files.len() >= FILES_MAX {
            break;
        }
        let Ok(about) = path.symlink_metadata() else { continue };
        if about.is_dir() {
            let Ok(entries) = std::fs::read_dir(&path) else { continue };
            let mut names: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            names.sort_unstable_by(|a, b| b.cmp(a));
            waiting.append(&mut names);
        } else if about.is_file() {
            take(&path, about.len(), &mut collected);
        }
    }
    if collected.files.is_empty() {
        return Err(Error::new(ErrorKind::InvalidInput, "no readable file was found to import"));
    }
    Ok(collected)
}

fn take(path: &Path, len: u64, collected: &mut Collected) {
    use std::os::unix::ffi::OsStrExt;
    if len > FILE_BYTES_MAX {
        collected.left_out += 1;
        return;
    }
    match std::fs::read(path) {
        Ok(content) => {
            collected.bytes += content.len() as u64;
            collected.files.push((path.as_os_str().as_bytes().to_vec(), content));
        }
        Err(_) => collected.left_out += 1,
    }
}
