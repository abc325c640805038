//! What is made lies apart from what it is made of: a new store from the backup or the damaged store, a backup from its store.
//! Nothing is written among files that are still to be read, and whoever removes one does not remove the other.

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
    places(directories)?.iter().try_for_each(|target| {
        let told = |how: &str| {
            format!(
                "{} {how} the backup {}: a new store lies apart from its backup; name another place",
                target.display(),
                from.display()
            )
        };
        check_pair(target, from, told)
    })
}

/// Refuses `targets`, directories of a new store or of a backup, of which one is a place of the closed store in `store`, lies
/// in one, or contains one. Nothing is changed.
///
/// # Errors
/// As [`check_apart`].
pub(crate) fn check_apart_from_store(store: &[PathBuf], targets: &[PathBuf]) -> Result<()> {
    let (origins, targets) = (places(store)?, places(targets)?);
    let pairs = origins.iter().flat_map(|origin| targets.iter().map(move |target| (origin, target)));
    for (origin, target) in pairs {
        let told = |how: &str| {
            format!(
                "{} {how} {}, where the store lies: what is made of a store lies apart from it; name another place",
                target.display(),
                origin.display()
            )
        };
        check_pair(target, origin, told)?;
    }
    Ok(())
}

/// Where a store in `directories` lies. The members of a volume are no directories.
fn places(directories: &[PathBuf]) -> Result<Vec<PathBuf>> {
    if Description::among(directories)?.is_some() {
        return Ok(Vec::new());
    }
    Ok(match NvmStore::among(directories)? {
        Some(RegionSource::Path(path)) => vec![path],
        Some(RegionSource::Emulated { .. }) => Vec::new(),
        None => directories.to_vec(),
    })
}

/// Refuses, with what is `told` of how they lie, a target that is `origin`, lies in it, or contains it.
fn check_pair(target: &Path, origin: &Path, told: impl Fn(&str) -> String) -> Result<()> {
    let (place, source) = (resolved(target), resolved(origin));
    let how = if place == source {
        "is"
    } else if place.starts_with(&source) {
        "lies in"
    } else if source.starts_with(&place) {
        "contains"
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::InvalidInput, told(how)))
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

    #[test]
    fn no_place_of_a_store_is_one_of_what_is_made_of_it() {
        let folder = std::env::temp_dir().join(format!("tierstone-apart-store-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("a")).unwrap();
        let place = |name: &str| folder.join(name);
        let store = [place("a"), place("deep/b")];
        for (target, told) in
            [("a", "is "), ("deep/b/new", "lies in "), ("a/../a/backup", "lies in "), ("deep", "contains ")]
        {
            let error = check_apart_from_store(&store, &[place("other"), place(target)]).unwrap_err();
            let is_told = error.message().contains(&format!("{target} {told}"));
            assert!(is_told && error.kind() == ErrorKind::InvalidInput, "{error}");
        }
        check_apart_from_store(&store, &[place("aa"), place("deep/c")]).unwrap();
        let region = [PathBuf::from(format!("nvm:{}", place("a/region").display()))];
        assert!(check_apart_from_store(&region, &[place("a")]).is_err());
        check_apart_from_store(&region, &[place("a/backup")]).unwrap();
        check_apart_from_store(&[place("a/volume.toml")], &[place("a")]).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
