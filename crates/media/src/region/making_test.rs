use super::*;
use crate::region::{MappedRegion, Region, RegionSettings, RegionSource};

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
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
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
    let other = lock(open(), "region").unwrap();
    assert_eq!(make(&path, 4096).unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(std::fs::read(unfinished(&path)).unwrap(), b"half");
    drop(other);
    drop(make(&path, 4096).unwrap());
    assert_eq!(folder.names(), ["region"]);
}
