use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn what_is_made_for_a_backup_is_its_owners_alone() {
    let root = std::env::temp_dir().join(format!("tierstone-backup-files-{}", std::process::id()));
    std::fs::create_dir_all(&root).unwrap();
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = root.join("of the week/of today");
    let mut files = DirectoryFiles::create(&path).unwrap();
    // One that was left there, readable by all.
    std::fs::write(path.join(NEW_MANIFEST_FILE), "left over").unwrap();
    files.append(b"frames").unwrap();
    files.sync_frames().unwrap();
    files.write_manifest(b"manifest").unwrap();
    files.sync_manifest().unwrap();
    files.name_manifest().unwrap();
    files.sync_names().unwrap();
    files.sync_place().unwrap();
    assert_eq!(std::fs::read(path.join(MANIFEST_FILE)).unwrap(), b"manifest");
    for file in [FRAMES_FILE, MANIFEST_FILE] {
        assert_eq!(mode(&path.join(file)), 0o600, "{file}");
    }
    assert_eq!((mode(&path), mode(&root.join("of the week"))), (0o700, 0o700));
    assert_eq!(mode(&root), 0o755, "it was there");
    std::fs::remove_dir_all(&root).unwrap();
}
