//! A new store lies apart from the backup that it is made of: nothing is written among files that are still to be read, and
//! whoever removes one does not remove the other.

use crate::nvm::NvmStore;
use crate::volume::Description;
use std::path::{Component, Path, PathBuf};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::region::RegionSource;

/// Refuses `directories` of a new store of which one is the backup at `from`, lies in it, or contains it. Nothing is changed.
///
/// # Errors
/// `InvalidInput`, with both paths.
pub(super) fn check_apart(from: &Path, directories: &[PathBuf]) -> Result<()> {
    // The members of a volume are no directories.
    if Description::among(directories)?.is_some() {
        return Ok(());
    }
    let source = resolved(from);
    let refuse = |target: &Path, how: &str| {
        let message = format!(
            "{} {how} the backup {}: a new store lies apart from its backup; name another place",
            target.display(),
            from.display()
        );
        Err(Error::new(ErrorKind::InvalidInput, message))
    };
    let region = match NvmStore::among(directories)? {
        Some(RegionSource::Path(path)) => Some(path),
        Some(RegionSource::Emulated { .. }) => return Ok(()),
        None => None,
    };
    for target in region.iter().chain(directories.iter().filter(|_| region.is_none())) {
        let place = resolved(target);
        if place == source {
            return refuse(target, "is");
        }
        if place.starts_with(&source) {
            return refuse(target, "lies in");
        }
        if source.starts_with(&place) {
            return refuse(target, "contains");
        }
    }
    Ok(())
}

/// Where a path leads, links and dots resolved, also where a part of it is not there yet.
fn resolved(path: &Path) -> PathBuf {
    let mut place = PathBuf::new();
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    for component in whole.components() {
        match component {
            Component::ParentDir => {
                place.pop();
            }
            component => place.push(component),
        }
        // What is not there yet will be a directory.
        place = place.canonicalize().unwrap_or(place);
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backup_itself_what_lies_in_it_and_what_contains_it_are_refused_by_where_their_paths_lead() {
        let folder = std::env::temp_dir().join(format!("tierstone-apart-{}", std::process::id()));
        let backup = folder.join("backups/one");
        std::fs::create_dir_all(&backup).unwrap();
        std::os::unix::fs::symlink(&backup, folder.join("link")).unwrap();
        let text = folder.display();
        for (target, told) in [
            (format!("{text}/backups/one"), "is the backup"),
            (format!("{text}/backups/../backups/./one/"), "is the backup"),
            (format!("{text}/new/../link"), "is the backup"),
            (format!("{text}/link/new/deep"), "lies in the backup"),
            (format!("nvm:{text}/link/region"), "lies in the backup"),
            (format!("{text}/backups"), "contains the backup"),
            (format!("{text}/link/.."), "contains the backup"),
        ] {
            let error = check_apart(&backup, &[folder.join("other"), PathBuf::from(&target)]);
            let error =
                if target.starts_with("nvm:") { check_apart(&backup, &[target.into()]) } else { error };
            let error = error.unwrap_err();
            assert!(error.message().contains(told) && error.kind() == ErrorKind::InvalidInput, "{error}");
        }
        for apart in ["backups/two", "backups/one-more", "link-too", "new"] {
            check_apart(&folder.join("link"), &[folder.join(apart)]).unwrap();
        }
        check_apart(&backup, &[format!("nvm:{text}/backups/region").into()]).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
