use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

/// A directory with a file `settings`, whose rights are `mode`.
fn folder(name: &str, mode: u32) -> (PathBuf, PathBuf) {
    let folder = std::env::temp_dir().join(format!("tierstone-replace-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("settings");
    std::fs::write(&file, "old").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    (folder, file)
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn a_replaced_file_keeps_its_rights() {
    for rights in [0o600, 0o640, 0o644] {
        let (folder, file) = folder(&format!("{rights:o}"), rights);
        replace_file(&file, b"new").unwrap();
        assert_eq!((std::fs::read(&file).unwrap(), mode(&file)), (b"new".to_vec(), rights));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn what_lies_where_the_new_file_is_written_is_neither_written_nor_followed() {
    let (folder, file) = folder("planted", 0o600);
    let fresh = folder.join("settings.new");
    // A file that others have open, as a crash may have left it.
    std::fs::write(&fresh, "left over").unwrap();
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o666)).unwrap();
    let open = File::open(&fresh).unwrap();
    replace_file(&file, b"secret").unwrap();
    assert_eq!(std::io::read_to_string(open).unwrap(), "left over", "who had it open reads the secret");
    assert_eq!(mode(&file), 0o600);
    // A link to a file of somebody else.
    let other = folder.join("other");
    std::fs::write(&other, "of somebody else").unwrap();
    symlink(&other, &fresh).unwrap();
    replace_file(&file, b"more").unwrap();
    assert_eq!(std::fs::read(&other).unwrap(), b"of somebody else");
    assert_eq!(std::fs::read(&file).unwrap(), b"more");
    assert!(std::fs::symlink_metadata(&file).unwrap().is_file(), "the link has taken its place");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_private_file_is_its_owners_alone() {
    let (folder, file) = folder("private", 0o644);
    drop(create_private(&file).unwrap());
    assert_eq!((std::fs::read(&file).unwrap(), mode(&file)), (Vec::new(), 0o600));
    std::fs::remove_dir_all(&folder).unwrap();
}
