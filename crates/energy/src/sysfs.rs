//! Small files of the kernel's, read with bounds.

use crate::meter::{Fault, FaultKind};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// No file that is read here is longer; more of it is not looked at.
const BYTES_MAX: u64 = 16 << 10;

/// The text of a file, without the space around it.
pub(crate) fn text(path: &Path) -> Result<String, Fault> {
    let read = || {
        let mut text = String::new();
        File::open(path)?.take(BYTES_MAX).read_to_string(&mut text)?;
        Ok::<_, std::io::Error>(text)
    };
    match read() {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) => {
            let kind = match error.kind() {
                ErrorKind::PermissionDenied => FaultKind::Denied,
                ErrorKind::InvalidData => FaultKind::Rubbish,
                _ => FaultKind::Gone,
            };
            Err(Fault::new(kind, format!("{}: {error}", path.display())))
        }
    }
}

/// The whole number of zero or more in a file.
pub(crate) fn number(path: &Path) -> Result<u64, Fault> {
    let text = text(path)?;
    text.parse().map_err(|_| {
        let shown: String = text.chars().take(40).collect();
        Fault::new(FaultKind::Rubbish, format!("{}: '{shown}' is no whole number", path.display()))
    })
}

/// The folder's entries in order; none where it cannot be read.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(folder).map(|all| all.flatten().map(|entry| entry.path()).collect());
    let mut entries: Vec<PathBuf> = listed.unwrap_or_default();
    entries.sort();
    entries
}

/// The last part of a path, as text.
pub(crate) fn name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
