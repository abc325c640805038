//! Directories, locks and files of a store: what is made, what is refused, what a crash leaves.

#![expect(clippy::expect_used, reason = "a step that fails fails its test")]

#[path = "support/filter.rs"]
mod filter;
mod support;

use filter::{Refused, refusing};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use support::{TemporaryDirectory, backends, settings};
use tierstone_base::ErrorKind;
use tierstone_media::file::{
    DurableMethod, FileBackend, FileDevice, FileStore, FileStoreSettings, find_store,
};
use tierstone_media::{
    BlockDevice, DeviceError, DeviceErrorKind, IoBuffer, IoCompletion, IoKind, IoRequest, Wait,
};

fn many(directory: &TemporaryDirectory, names: &[&str]) -> FileStoreSettings {
    let mut settings = settings(directory.join("x"), FileBackend::Auto);
    settings.directories = names.iter().map(|name| directory.join(name)).collect();
    settings
}

fn open(settings: &FileStoreSettings) -> FileStore {
    FileStore::open(settings).expect("the store opens")
}

fn refused(settings: &FileStoreSettings) -> (ErrorKind, String) {
    let error = FileStore::open(settings).expect_err("the store is refused");
    (error.kind(), error.message().to_string())
}

fn device(store: &FileStore) -> FileDevice {
    store.device(DurableMethod::DurableWrite).expect("a handle is made")
}

fn one(device: &mut FileDevice, request: IoRequest) -> IoCompletion {
    let mut completions = Vec::new();
    device.submit(&mut vec![request]);
    assert_eq!(device.complete(Wait::All, &mut completions), 1);
    completions.remove(0)
}

fn write(device: &mut FileDevice, segment: u32, byte: u8) -> Result<(), DeviceError> {
    let mut buffer = IoBuffer::zeroed(4096);
    buffer.fill(byte);
    let offset = device.geometry().segment_offset(segment);
    one(device, IoRequest::write_durable(1, offset, buffer)).result
}

fn read(device: &mut FileDevice, segment: u32) -> u8 {
    let offset = device.geometry().segment_offset(segment);
    let done = one(device, IoRequest::read(1, offset, IoBuffer::zeroed(4096)));
    assert_eq!(done.result, Ok(()));
    done.buffer.expect("a read hands its buffer back")[4095]
}

fn discard(device: &mut FileDevice, segment: u32) -> Result<(), DeviceError> {
    let geometry = device.geometry();
    let kind = IoKind::Discard { len: geometry.segment_bytes };
    one(device, IoRequest { token: 1, kind, offset: geometry.segment_offset(segment), buffer: None }).result
}

#[test]
fn a_store_that_is_open_is_busy_and_names_its_holder() {
    let directory = TemporaryDirectory::new();
    let settings = settings(directory.join("store"), FileBackend::Auto);
    let store = open(&settings);
    let (kind, message) = refused(&settings);
    assert_eq!(kind, ErrorKind::Busy);
    assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
    // A handle alone keeps it open.
    let handle = device(&store);
    drop(store);
    assert_eq!(refused(&settings).0, ErrorKind::Busy);
    drop(handle);
    open(&settings);
}

#[test]
fn a_handle_dropped_with_everything_in_flight_lets_the_store_go() {
    for backend in backends() {
        let directory = TemporaryDirectory::new();
        let settings = settings(directory.join("store"), backend);
        for round in 0..5 {
            let store = open(&settings);
            let mut handle = device(&store);
            let geometry = handle.geometry();
            let mut requests: Vec<_> = (0..16)
                .map(|n| {
                    IoRequest::write_durable(n, geometry.segment_offset(n as u32), IoBuffer::zeroed(8192))
                })
                .collect();
            let kind = IoKind::Prepare { len: 2 * geometry.segment_bytes };
            requests.push(IoRequest { token: 99, kind, offset: geometry.segment_offset(3), buffer: None });
            handle.submit(&mut requests);
            assert_eq!(handle.in_flight(), 17, "round {round}");
        }
        assert_eq!(open(&settings).existing_segments().len(), 16);
    }
}

#[test]
fn segments_are_files_of_exactly_their_size_spread_over_the_directories() {
    let directory = TemporaryDirectory::new();
    let settings = many(&directory, &["a", "b"]);
    let store = open(&settings);
    let mut handle = device(&store);
    for segment in [0, 3, 5, 9] {
        assert_eq!(write(&mut handle, segment, segment as u8 + 1), Ok(()));
    }
    assert_eq!(store.existing_segments(), [0, 3, 5, 9]);
    let members = store.properties().members;
    // Both lie on one disk, so they are filled evenly.
    assert_eq!(members.iter().map(|member| member.segments).collect::<Vec<_>>(), [2, 2]);
    assert!(members.iter().all(|member| member.free_bytes > 0));
    let file = |segment: u32| {
        let name = format!("segment-{segment:06}.tier");
        ["a", "b"].iter().map(|member| directory.join(member).join(&name)).find(|path| path.exists())
    };
    let path = file(5).expect("the segment has a file");
    assert_eq!(fs::metadata(&path).expect("it is there").len(), settings.segment_bytes);
    assert_eq!(discard(&mut handle, 5), Ok(()));
    assert_eq!((file(5), read(&mut handle, 5)), (None, 0));
    drop((store, handle));
    // Named in another order it is the same store.
    let turned = many(&directory, &["b", "a"]);
    let store = open(&turned);
    assert_eq!(store.existing_segments(), [0, 3, 9]);
    assert_eq!(read(&mut device(&store), 9), 10);
    assert!(store.properties().members[0].directory.ends_with("a"));
}

#[test]
fn the_capacity_is_a_full_disk_until_something_is_discarded() {
    for backend in backends() {
        let directory = TemporaryDirectory::new();
        let mut settings = settings(directory.join("store"), backend);
        settings.capacity_bytes = Some(3 * settings.segment_bytes);
        let store = open(&settings);
        let mut handle = device(&store);
        for segment in 0..3 {
            assert_eq!(write(&mut handle, segment, 1), Ok(()));
        }
        assert_eq!(store.free_bytes(), 0);
        let full = write(&mut handle, 3, 1).expect_err("there is no room");
        assert_eq!(full.kind, DeviceErrorKind::Full, "{full}");
        let geometry = handle.geometry();
        let kind = IoKind::Prepare { len: geometry.segment_bytes };
        let prepare = || IoRequest { token: 1, kind, offset: geometry.segment_offset(3), buffer: None };
        assert_eq!(
            one(&mut handle, prepare()).result.map_err(|error| error.kind),
            Err(DeviceErrorKind::Full)
        );
        assert_eq!(write(&mut handle, 0, 2), Ok(()), "what exists is overwritten");
        assert_eq!(discard(&mut handle, 1), Ok(()));
        assert_eq!(one(&mut handle, prepare()).result, Ok(()));
        assert_eq!(store.existing_segments(), [0, 2, 3]);
        assert_eq!(store.failure(), None);
    }
}

#[test]
fn a_missing_directory_is_refused_and_so_is_an_empty_one_in_its_place() {
    let directory = TemporaryDirectory::new();
    drop(open(&many(&directory, &["a", "b"])));
    let (kind, message) = refused(&many(&directory, &["a"]));
    assert!(kind == ErrorKind::InvalidInput && message.contains("number 1 is missing"), "{message}");
    let (kind, message) = refused(&many(&directory, &["b"]));
    assert!(kind == ErrorKind::InvalidInput && message.contains("first directory is missing"), "{message}");
    assert!(message.ends_with("name all of them"), "{message}");
    let (kind, message) = refused(&many(&directory, &["empty", "b"]));
    assert!(kind == ErrorKind::InvalidInput && message.contains("is its disk mounted?"), "{message}");
    let (kind, message) = refused(&many(&directory, &["a", "empty"]));
    assert!(kind == ErrorKind::InvalidInput && message.contains("is its disk mounted?"), "{message}");
    let (kind, _) = refused(&many(&directory, &["a", "a"]));
    assert_eq!(kind, ErrorKind::InvalidInput);
}

#[test]
fn a_file_in_place_of_a_directory_is_refused_and_named() {
    let directory = TemporaryDirectory::new();
    fs::write(directory.join("plain"), b"somebody's").expect("it is written");
    for create in [true, false] {
        for name in ["plain", "plain/below"] {
            let settings = FileStoreSettings { create, ..many(&directory, &[name]) };
            let found = find_store(&settings.directories).expect_err("it is no directory");
            assert_eq!(found.kind(), ErrorKind::InvalidInput);
            let told = found.message();
            assert!(told.contains("plain is no directory") && !told.contains("below"), "{told}");
            assert!(matches!(refused(&settings).0, ErrorKind::InvalidInput), "{name}");
        }
    }
    assert_eq!(fs::read(directory.join("plain")).expect("it is there"), b"somebody's");
}

#[test]
fn a_foreign_directory_is_refused() {
    let directory = TemporaryDirectory::new();
    drop(open(&many(&directory, &["a", "b"])));
    drop(open(&many(&directory, &["c", "d"])));
    assert_eq!(refused(&many(&directory, &["a", "d"])).0, ErrorKind::InvalidInput);
    for named in [&["a", "b", "d"], &["a", "b", "c"]] {
        let (kind, message) = refused(&many(&directory, named));
        assert!(kind == ErrorKind::InvalidInput && message.contains("another store"), "{message}");
    }
    // Segments without a marker are somebody's data: no new store is made over them.
    fs::create_dir_all(directory.join("e")).expect("it is made");
    fs::write(directory.join("e").join("segment-000000.tier"), b"data").expect("it is written");
    let (kind, message) = refused(&many(&directory, &["e"]));
    assert!(kind == ErrorKind::Incompatible && message.contains("no marker"), "{message}");
}

#[test]
fn without_create_nothing_is_made() {
    let directory = TemporaryDirectory::new();
    let settings = FileStoreSettings { create: false, ..many(&directory, &["a"]) };
    assert_eq!(refused(&settings).0, ErrorKind::InvalidInput);
    assert!(!directory.join("a").exists());
    fs::create_dir_all(directory.join("a")).expect("it is made");
    assert_eq!(refused(&settings).0, ErrorKind::InvalidInput);
    assert_eq!(fs::read_dir(directory.join("a")).expect("it lists").count(), 0);
}

#[test]
fn a_store_grows_by_a_directory() {
    let directory = TemporaryDirectory::new();
    let store = open(&many(&directory, &["a"]));
    assert_eq!(write(&mut device(&store), 0, 7), Ok(()));
    drop(store);
    let grown = many(&directory, &["a", "b"]);
    assert_eq!(refused(&FileStoreSettings { create: false, ..grown.clone() }).0, ErrorKind::InvalidInput);
    let store = open(&grown);
    let mut handle = device(&store);
    assert_eq!((read(&mut handle, 0), write(&mut handle, 1, 8)), (7, Ok(())));
    assert_eq!(store.properties().members[1].segments, 1, "the emptier one is taken");
    drop((store, handle));
    assert_eq!(refused(&many(&directory, &["a"])).0, ErrorKind::InvalidInput);
    assert_eq!(read(&mut device(&open(&grown)), 1), 8);
}

#[test]
fn an_existing_store_keeps_its_own_sizes() {
    let directory = TemporaryDirectory::new();
    let settings = settings(directory.join("store"), FileBackend::Auto);
    let geometry = open(&settings).geometry();
    let other = FileStoreSettings { segment_bytes: 1 << 20, meta_bytes: 1 << 20, ..settings };
    assert_eq!(open(&other).geometry(), geometry);
}

#[test]
fn damage_is_named_and_not_repaired_silently() {
    let directory = TemporaryDirectory::new();
    let settings = settings(directory.join("store"), FileBackend::Auto);
    let store = open(&settings);
    assert_eq!(write(&mut device(&store), 2, 1), Ok(()));
    drop(store);
    let file = |name: &str| directory.join("store").join(name);

    fs::write(file("segment-000003.tier"), b"short").expect("it is written");
    let (kind, message) = refused(&settings);
    assert!(kind == ErrorKind::Corrupt && message.contains("segment-000003.tier"), "{message}");
    fs::remove_file(file("segment-000003.tier")).expect("it goes");

    let marker = fs::read(file("member.tier")).expect("it is there");
    fs::write(file("member.tier"), &marker[..40]).expect("it is written");
    let (kind, message) = refused(&settings);
    assert!(kind == ErrorKind::Corrupt && message.contains("member.tier"), "{message}");
    fs::write(file("member.tier"), &marker).expect("it is written");

    let low = FileStoreSettings { segment_limit: 2, ..settings.clone() };
    assert_eq!(refused(&low).0, ErrorKind::InvalidInput);

    fs::rename(file("superblock.tier"), file("elsewhere")).expect("it moves");
    let (kind, message) = refused(&settings);
    assert!(kind == ErrorKind::Corrupt && message.contains("superblock.tier is missing"), "{message}");
    fs::rename(file("elsewhere"), file("superblock.tier")).expect("it moves");
    open(&settings);
}

#[test]
fn a_segment_in_two_directories_is_refused() {
    let directory = TemporaryDirectory::new();
    let settings = many(&directory, &["a", "b"]);
    let store = open(&settings);
    assert_eq!(write(&mut device(&store), 0, 1), Ok(()));
    drop(store);
    let name = "segment-000000.tier";
    let (source, target) = (directory.join("a").join(name), directory.join("b").join(name));
    fs::copy(source, target).expect("it is copied");
    assert_eq!(refused(&settings).0, ErrorKind::Corrupt);
}

/// The states that a crash can leave while a store is made over two directories (crash mark
/// `members_half_marked`): each is the complete store less what comes later.
#[test]
fn a_store_whose_creation_was_cut_off_opens() {
    let copy = |from: PathBuf, to: PathBuf, names: &[&str]| {
        fs::create_dir_all(&to).expect("it is made");
        for name in names {
            fs::copy(from.join(name), to.join(name)).expect("it is copied");
        }
    };
    // Member 0 before it was ready: its marker as the first step wrote it.
    let states: [(&[&str], &[&str], bool); 5] = [
        (&[], &[], false),
        (&["member.tier"], &[], false),
        (&["member.tier"], &["member.tier"], false),
        (&["member.tier", "superblock.tier"], &["member.tier"], false),
        (&["member.tier", "superblock.tier"], &["member.tier"], true),
    ];
    let directory = TemporaryDirectory::new();
    drop(open(&many(&directory, &["a", "b"])));
    for (number, (first, second, ready)) in states.into_iter().enumerate() {
        let names = [format!("a{number}"), format!("b{number}")];
        copy(directory.join("a"), directory.join(&names[0]), first);
        copy(directory.join("b"), directory.join(&names[1]), second);
        if !ready && !first.is_empty() {
            unready(directory.join(&names[0]).join("member.tier"));
        }
        fs::write(directory.join(&names[0]).join("segment-000001.tier.new"), b"half").expect("it is written");
        let settings = many(&directory, &[&names[0], &names[1]]);
        let store = open(&settings);
        assert_eq!(write(&mut device(&store), 1, 1), Ok(()), "state {number}");
        assert!(!directory.join(&names[0]).join("segment-000001.tier.new").exists());
        drop(store);
        assert_eq!(read(&mut device(&open(&settings)), 1), 1, "state {number}");
    }
}

/// Rewrites a marker as it was before the store was ready.
fn unready(path: PathBuf) {
    let text = fs::read_to_string(&path).expect("the marker is there");
    let (body, _) = text.split_once("checksum ").expect("it has a checksum");
    let body = body.replace("ready 2", "ready 0");
    let sum = tierstone_base::checksum::checksum(0, body.as_bytes());
    fs::write(&path, format!("{body}checksum {sum:016x}\n")).expect("it is written");
}

#[test]
fn settings_out_of_range_are_named() {
    let directory = TemporaryDirectory::new();
    let good = settings(directory.join("store"), FileBackend::Auto);
    let wrong = [
        ("directories", FileStoreSettings { directories: Vec::new(), ..good.clone() }),
        ("segment_bytes", FileStoreSettings { segment_bytes: 70_000, ..good.clone() }),
        ("segment_limit", FileStoreSettings { segment_limit: 0, ..good.clone() }),
        ("meta_bytes", FileStoreSettings { meta_bytes: 4096, ..good.clone() }),
        ("queue_depth", FileStoreSettings { queue_depth: 0, ..good.clone() }),
        (
            "segment_limit",
            FileStoreSettings { segment_bytes: 16 << 30, segment_limit: u32::MAX - 1, ..good.clone() },
        ),
    ];
    for (name, settings) in wrong {
        let (kind, message) = refused(&settings);
        assert!(kind == ErrorKind::InvalidInput && message.contains(name), "{name}: {message}");
    }
    let text = serde_json::to_string(&good).expect("settings are plain data");
    assert_eq!(serde_json::from_str::<FileStoreSettings>(&text).expect("and come back"), good);
}

/// What a kernel says where there is no room: on the file system, for this user, for files of this length.
const WITHOUT_ROOM: [i32; 3] = [libc::ENOSPC, libc::EDQUOT, libc::EFBIG];

#[test]
fn a_write_without_room_is_refused_and_may_be_tried_again() {
    // Writes behind the first blocks of a file are refused, others are not.
    let refused = Refused { call: libc::SYS_pwritev2, from: Some((3, 4 * 4096)) };
    for errno in WITHOUT_ROOM {
        refusing("writes without room", errno, refused, || {
            for method in [DurableMethod::DurableWrite, DurableMethod::WriteThenFlush] {
                let directory = TemporaryDirectory::new();
                let store = open(&settings(directory.join("store"), FileBackend::Threads));
                let mut handle = store.device(method).expect("a handle is made");
                let mut write = |block: u64| {
                    let offset = handle.geometry().segment_offset(0) + block * 4096;
                    let done = one(&mut handle, IoRequest::write_durable(1, offset, IoBuffer::zeroed(4096)));
                    done.result.map_err(|error| error.kind)
                };
                assert_eq!(write(3), Ok(()));
                assert_eq!(write(4), Err(DeviceErrorKind::Full), "{errno}");
                assert_eq!(store.failure(), None, "{errno} is no failed flush");
                assert_eq!(write(2), Ok(()), "{errno}");
            }
        });
    }
}

#[test]
fn a_segment_without_room_is_not_made_and_nothing_has_failed() {
    // Space is taken for whole files; the superblock's is shorter than a segment's.
    let refused = Refused { call: libc::SYS_fallocate, from: Some((3, 128 << 10)) };
    for errno in WITHOUT_ROOM {
        refusing("files without room", errno, refused, || {
            let directory = TemporaryDirectory::new();
            let store = open(&settings(directory.join("store"), FileBackend::Threads));
            let mut handle = device(&store);
            let full = write(&mut handle, 3, 7).expect_err("there is no room for its file");
            assert_eq!(full.kind, DeviceErrorKind::Full, "{full}");
            let geometry = handle.geometry();
            let (kind, offset) =
                (IoKind::Prepare { len: geometry.segment_bytes }, geometry.segment_offset(2));
            let full = one(&mut handle, IoRequest { token: 2, kind, offset, buffer: None }).result;
            assert_eq!(full.map_err(|error| error.kind), Err(DeviceErrorKind::Full), "{errno}");
            assert_eq!((store.failure(), store.existing_segments()), (None, vec![]));
            assert_eq!(read(&mut handle, 3), 0, "what is not there reads as zeros");
        });
    }
}

#[test]
fn a_segment_is_made_in_another_directory_only_when_its_removal_is_durable() {
    for backend in backends() {
        let directory = TemporaryDirectory::new();
        let settings = FileStoreSettings { backend, ..many(&directory, &["a", "b"]) };
        let store = open(&settings);
        let mut handle = device(&store);
        (0..4).for_each(|segment| assert_eq!(write(&mut handle, segment, 1), Ok(())));
        let has = |member: &str, segment: u32| {
            directory.join(member).join(format!("segment-{segment:06}.tier")).exists()
        };
        assert!(has("a", 0) && has("b", 1) && has("a", 2) && has("b", 3), "they take turns");
        for segment in [0, 1, 3] {
            assert_eq!(discard(&mut handle, segment), Ok(()));
        }
        // The first directory cannot be flushed, so the name that was removed there may come back after a crash.
        fs::rename(directory.join("a"), directory.join("away")).expect("it moves");
        assert!(write(&mut handle, 0, 2).is_err(), "{backend:?}");
        assert!(!has("b", 0));
        assert_eq!(write(&mut handle, 1, 3), Ok(()), "what was here may be made here");
        assert_eq!(discard(&mut handle, 1), Ok(()));
        fs::rename(directory.join("away"), directory.join("a")).expect("it moves back");
        assert_eq!(write(&mut handle, 0, 2), Ok(()), "{backend:?}");
        assert!(has("b", 0) && !has("a", 0), "the emptier one is taken");
        drop((store, handle));
        assert_eq!(open(&settings).existing_segments(), [0, 2]);
    }
}

#[test]
fn names_are_made_durable_before_an_opening_trusts_them() {
    let directory = TemporaryDirectory::new();
    let settings = many(&directory, &["a", "b"]);
    drop(open(&settings));
    let refused = Refused { call: libc::SYS_fsync, from: None };
    let failing = |settings: &FileStoreSettings| {
        let settings = settings.clone();
        refusing("directories that cannot be flushed", libc::EIO, refused, move || {
            FileStore::open(&settings).map(drop).map_err(|error| error.to_string())
        })
    };
    if let Some(opened) = failing(&settings) {
        let error = opened.expect_err("an earlier process may have left them in memory only");
        assert!(error.contains("cannot make the names durable"), "{error}");
    }
    open(&settings);
    // So is the name of a directory that was made, in the one above it.
    if let Some(opened) = failing(&many(&directory, &["new/below"])) {
        let error = opened.expect_err("its name may be in memory only");
        assert!(error.contains("cannot make ") && !error.contains("member.tier"), "{error}");
    }
}

#[test]
fn what_is_made_belongs_to_its_owner_alone_and_what_was_there_stays_as_it_is() {
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
    let directory = TemporaryDirectory::new();
    let (made, there) = (directory.join("above/made"), directory.join("there"));
    fs::create_dir(&there).expect("it is made");
    fs::set_permissions(&there, fs::Permissions::from_mode(0o755)).expect("it is opened up");
    let store = open(&many(&directory, &["above/made", "there"]));
    let mut handle = device(&store);
    (0..2).for_each(|segment| assert_eq!(write(&mut handle, segment, 1), Ok(())));
    assert_eq!([mode(&directory.join("above")), mode(&made), mode(&there)], [0o700, 0o700, 0o755]);
    let mut files = 0;
    for entry in [&made, &there].into_iter().flat_map(|path| fs::read_dir(path).expect("it lists")) {
        let path = entry.expect("it lists").path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        files += 1;
    }
    assert_eq!(files, 2 + 2 + 2, "markers, segments, the lock and the superblock");
}
