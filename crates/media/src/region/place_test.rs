//! What can be no region is refused as wrong input, in words that say what it is, and left as it was.

use super::*;
use crate::region::region_test::Scratch;
use crate::region::{MappedRegion, RegionSettings, RegionSource};

/// What opening, creating and opening or creating a region at `path` say; all the same.
fn refusal(path: &Path) -> String {
    let settings = RegionSettings::default();
    let source = RegionSource::Path(path.to_owned());
    let errors = [
        MappedRegion::open(path, &settings).expect_err("no region"),
        MappedRegion::create(path, 4096, &settings).expect_err("no region"),
        source.open(&settings).expect_err("no region"),
        source.open_or_create(4096, &settings).expect_err("no region"),
    ];
    for error in &errors {
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert_eq!(error.message(), errors[0].message());
    }
    errors[0].message().to_owned()
}

#[test]
fn a_directory_is_no_region_and_the_text_says_so() {
    let scratch = Scratch::new("region-directory");
    let text = refusal(scratch.path());
    assert!(text.contains("is a directory, a region is a file"), "{text}");
    assert!(scratch.path().is_dir());
}

#[test]
fn a_link_to_nothing_names_what_is_missing_and_a_link_to_a_region_is_one() {
    let scratch = Scratch::new("region-link");
    let (link, target) = (scratch.path().join("link"), scratch.path().join("target"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let text = refusal(&link);
    assert!(text.contains("is a link to") && text.contains("target, which is not there"), "{text}");
    assert!(!target.exists());
    drop(MappedRegion::create(&target, 4096, &RegionSettings::default()).unwrap());
    MappedRegion::open(&link, &RegionSettings::default()).unwrap();
}

#[test]
fn a_block_device_is_said_to_be_no_memory() {
    // Any that is there; without one nothing is tried.
    let list = std::fs::read_dir("/dev").into_iter().flatten().flatten().map(|entry| entry.path());
    let is_block = |path: &std::path::PathBuf| {
        std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
    };
    for device in list.filter(is_block).take(2) {
        let text = refusal(&device);
        assert!(text.contains("a block device") && text.contains("no byte-addressable memory"), "{text}");
    }
}

#[test]
fn sockets_and_character_devices_of_other_kinds_say_what_they_are() {
    let scratch = Scratch::new("region-socket");
    let path = scratch.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert!(refusal(&path).contains("a pipe or a socket"));
    for device in ["/dev/null", "/dev/full", "/dev/zero"] {
        let text = refusal(Path::new(device));
        assert!(text.contains("no DAX device"), "{text}");
    }
}
