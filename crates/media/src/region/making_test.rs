use super::*;
use crate::region::{MappedRegion, Region, RegionSettings, RegionSource};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Barrier;

/// A directory of its own.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("tierstone-making-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open_or_create(path: &Path, bytes: u64) -> Result<bool> {
    let source = RegionSource::Path(path.to_path_buf());
    source.open_or_create(bytes, &RegionSettings::default()).map(|(_, is_new)| is_new)
}

/// What a kill leaves at any moment of the making: no file, an empty one, one with space, one with its header.
#[test]
fn a_making_that_was_killed_is_done_anew_by_the_next_start() {
    let folder = Folder::new("killed");
    let path = folder.0.join("region");
    let whole = Header { region_bytes: 1 << 20 }.encode();
    for left in [&[][..], &[0; 8192], &[0xff; 100], &whole] {
        std::fs::write(unfinished(&path), left).unwrap();
        assert!(open_or_create(&path, 1 << 16).unwrap(), "it is made");
        assert_eq!(folder.names(), ["region"]);
        let region = MappedRegion::open(&path, &RegionSettings::default()).unwrap();
        assert_eq!(region.bytes(), 1 << 16);
        let mut bytes = vec![1; 1 << 16];
        region.load(0, &mut bytes);
        assert!(bytes.iter().all(|&byte| byte == 0), "nothing of before is left");
        drop(region);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn what_is_there_is_never_replaced_and_a_making_that_fails_leaves_nothing() {
    let folder = Folder::new("there");
    let path = folder.0.join("region");
    std::fs::write(&path, b"somebody's").unwrap();
    assert!(make(&path, 4096).is_err());
    // Not even where it comes between the look and the name.
    std::fs::write(unfinished(&path), b"new").unwrap();
    assert!(name_it(&unfinished(&path), &path).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"somebody's");
    std::fs::remove_file(&path).unwrap();
    assert!(make(&path, 1 << 60).is_err(), "no file system has room for it");
    assert_eq!(folder.names(), Vec::<String>::new());
}

#[test]
fn a_making_of_another_process_is_left_alone() {
    let folder = Folder::new("other");
    let path = folder.0.join("region");
    std::fs::write(unfinished(&path), b"half").unwrap();
    let open = || OpenOptions::new().read(true).write(true).open(unfinished(&path)).unwrap();
    let other = lock(open(), &unfinished(&path), &path).unwrap();
    let refused = make(&path, 4096).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy);
    assert!(refused.message().contains("is being made by another process"), "{refused}");
    assert_eq!(std::fs::read(unfinished(&path)).unwrap(), b"half");
    drop(other);
    drop(make(&path, 4096).unwrap());
    assert_eq!(folder.names(), ["region"]);
}

/// The refusal of a making because of what lies under the unfinished name: it says what that is, and where.
fn refusal(path: &Path) -> String {
    let refused = make(path, 4096).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    let name = unfinished(path).display().to_string();
    assert!(refused.message().contains(&name) && refused.message().contains("remove it"), "{refused}");
    refused.message().to_owned()
}

#[test]
fn another_name_of_somebodys_file_is_refused_and_the_file_stays_as_it_was() {
    let folder = Folder::new("hard-link");
    let (path, other) = (folder.0.join("region"), folder.0.join("somebody's"));
    std::fs::write(&other, b"precious").unwrap();
    std::fs::hard_link(&other, unfinished(&path)).unwrap();
    assert!(refusal(&path).contains("has another name"));
    assert_eq!(std::fs::read(&other).unwrap(), b"precious");
    assert_eq!(folder.names(), [".region.tierstone-unfinished", "somebody's"]);
}

#[test]
fn links_and_directories_under_the_unfinished_name_are_refused_by_it_and_not_followed() {
    let folder = Folder::new("links");
    let (path, other) = (folder.0.join("region"), folder.0.join("somebody's"));
    let fresh = unfinished(&path);
    symlink(&other, &fresh).unwrap();
    assert!(refusal(&path).contains("is no file"));
    assert!(!other.exists(), "the target of a link was made");
    std::fs::write(&other, b"precious").unwrap();
    assert!(refusal(&path).contains("is no file"));
    assert_eq!(std::fs::read(&other).unwrap(), b"precious");
    std::fs::remove_file(&fresh).unwrap();
    std::fs::create_dir(&fresh).unwrap();
    assert!(refusal(&path).contains("is no file"));
    std::fs::remove_dir(&fresh).unwrap();
    drop(make(&path, 4096).unwrap());
    assert_eq!(folder.names(), ["region", "somebody's"]);
}

#[test]
fn a_leftover_of_another_user_is_told_with_that_user() {
    let folder = Folder::new("owner");
    std::fs::write(folder.0.join("left"), b"").unwrap();
    let found = folder.0.join("left").metadata().unwrap();
    assert_eq!(why_foreign(&found, found.uid()), None);
    let why = why_foreign(&found, found.uid() + 1).unwrap();
    assert!(why.contains(&format!("the number {}", found.uid())), "{why}");
}

/// Whoever may write to a leftover may have it open.
#[test]
fn a_region_has_neither_the_mode_of_a_leftover_nor_its_file() {
    let folder = Folder::new("mode");
    let path = folder.0.join("region");
    std::fs::write(unfinished(&path), b"left").unwrap();
    std::fs::set_permissions(unfinished(&path), PermissionsExt::from_mode(0o666)).unwrap();
    let opened = File::open(unfinished(&path)).unwrap().metadata().unwrap();
    let made = make(&path, 4096).unwrap().metadata().unwrap();
    assert_eq!(made.mode() & 0o777, 0o600);
    assert_eq!(opened.len(), 4);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(make(&path, 4096).unwrap().metadata().unwrap().mode() & 0o777, 0o600);
}

#[test]
fn a_region_may_have_any_name_that_its_file_system_takes() {
    let folder = Folder::new("long");
    for bytes in [1, 120, 121, 122, 240, 255] {
        let path = folder.0.join("n".repeat(bytes));
        std::fs::write(unfinished(&path), b"left").unwrap();
        assert!(open_or_create(&path, 4096).unwrap(), "it is made");
        assert_eq!(folder.names(), ["n".repeat(bytes)]);
        std::fs::remove_file(&path).unwrap();
    }
    let (one, other) = ("n".repeat(254) + "1", "n".repeat(254) + "2");
    assert_ne!(unfinished(&folder.0.join(one)), unfinished(&folder.0.join(other)));
}

#[test]
fn a_leftover_beside_a_region_that_is_opened_is_removed_and_nothing_else_is() {
    let folder = Folder::new("beside");
    let path = folder.0.join("region");
    let fresh = unfinished(&path);
    drop(make(&path, 4096).unwrap());
    let is_left = |folder: &Folder| {
        assert!(!open_or_create(&path, 4096).unwrap(), "it is opened");
        folder.names().len() > 1
    };
    std::fs::write(&fresh, b"left").unwrap();
    assert!(!is_left(&folder));
    std::fs::write(&fresh, b"another makes it").unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&fresh).unwrap();
    let other = lock(file, &fresh, &path).unwrap();
    assert!(is_left(&folder));
    drop(other);
    std::fs::hard_link(&fresh, folder.0.join("somebody's")).unwrap();
    assert!(is_left(&folder));
    assert_eq!(std::fs::read(&fresh).unwrap(), b"another makes it");
}

#[test]
fn of_those_who_start_together_one_has_the_region_and_the_others_are_told_so() {
    let folder = Folder::new("together");
    let path = folder.0.join("region");
    for turn in 0..100 {
        if turn % 2 == 0 {
            std::fs::write(unfinished(&path), b"left").unwrap();
        }
        let begin = Barrier::new(4);
        let start = || {
            begin.wait();
            RegionSource::Path(path.clone()).open_or_create(4096, &RegionSettings::default())
        };
        let started: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(started.iter().filter(|started| started.is_ok()).count(), 1, "turn {turn}: {started:?}");
        for refused in started.iter().filter_map(|started| started.as_ref().err()) {
            // Between its look for the region and its making the region may have come: then there is something of that name.
            let is_told = matches!(refused.kind(), ErrorKind::Busy | ErrorKind::Retry)
                || refused.message().contains("File exists");
            assert!(is_told, "turn {turn}: {refused}");
        }
        drop(started);
        assert_eq!(folder.names(), ["region"], "turn {turn}");
        std::fs::remove_file(&path).unwrap();
    }
}
