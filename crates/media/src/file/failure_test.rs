//! What back-ends do when the operating system refuses: special files stand in for broken ones.

use super::fixture::{Fixture, backends, fixture};
use super::*;
use crate::{BLOCK_BYTES, DeviceError, DeviceErrorKind, IoBuffer, IoKind};
use std::fs::{File, OpenOptions};

/// Runs `test` on both back-ends and both ways of making a write durable.
fn on_both(name: &str, test: impl Fn(&Fixture, &mut FileDevice, DurableMethod)) {
    for backend in backends() {
        for method in [DurableMethod::DurableWrite, DurableMethod::WriteThenFlush] {
            let fixture = fixture(&format!("{name}-{method:?}"), backend);
            let mut device = fixture.store.device(method).expect("a handle is made");
            test(&fixture, &mut device, method);
        }
    }
}

fn open(path: &str) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("a special file opens")
}

fn one(device: &mut FileDevice, request: IoRequest) -> IoCompletion {
    let mut completions = Vec::new();
    device.submit(&mut vec![request]);
    assert_eq!(device.complete(Wait::All, &mut completions), 1);
    completions.remove(0)
}

fn write(device: &mut FileDevice, segment: u32) -> Result<(), DeviceErrorKind> {
    let request =
        IoRequest::write(1, device.geometry().segment_offset(segment), IoBuffer::zeroed(BLOCK_BYTES));
    one(device, request).result.map_err(|error| error.kind)
}

fn write_durable(device: &mut FileDevice, segment: u32) -> Result<(), DeviceError> {
    let offset = device.geometry().segment_offset(segment);
    let done = one(device, IoRequest::write_durable(1, offset, IoBuffer::zeroed(BLOCK_BYTES)));
    assert!(done.buffer.is_some(), "the buffer comes back also with an error");
    done.result
}

#[test]
fn a_failed_flush_ends_all_durability_and_is_never_tried_again() {
    on_both("flush", |fixture, device, _| {
        assert_eq!(write_durable(device, 0), Ok(()));
        // The null device takes writes and refuses to flush.
        fixture.store.inner.replace_file(1, open("/dev/null"));
        assert_eq!(write(device, 1), Ok(()));
        let flush = one(device, IoRequest::flush(2)).result;
        assert_eq!(flush.map_err(|error| error.kind), Err(DeviceErrorKind::Failed));
        assert!(fixture.store.failure().is_some());
        // With the broken file gone nothing stands in the way of a flush but its memory.
        fixture.store.inner.replace_file(1, open("/dev/null"));
        for _ in 0..2 {
            let again = one(device, IoRequest::flush(3)).result.expect_err("it stays failed");
            assert!(again.detail.contains("earlier flush"), "{again}");
        }
        let refused = write_durable(device, 0).expect_err("no durable write either");
        assert_eq!(refused.kind, DeviceErrorKind::Failed);
        assert_eq!(write(device, 0), Err(DeviceErrorKind::Failed));
        let prepare =
            IoRequest { token: 4, kind: IoKind::Prepare { len: 65536 }, offset: 1 << 16, buffer: None };
        assert!(one(device, prepare).result.is_err());
        let offset = device.geometry().segment_offset(0);
        assert_eq!(
            one(device, IoRequest::read(5, offset, IoBuffer::zeroed(4096))).result,
            Ok(()),
            "reads go on"
        );
        let mut other = fixture.store.device(DurableMethod::DurableWrite).expect("another handle");
        assert!(write_durable(&mut other, 0).is_err(), "every handle knows");
    });
}

#[test]
fn a_failed_durable_write_ends_all_durability() {
    on_both("durable", |fixture, device, _| {
        fixture.store.inner.replace_file(1, File::open("/dev/null").expect("it opens read-only"));
        let refused = write_durable(device, 1).expect_err("a read-only file takes no write");
        assert_eq!(refused.kind, DeviceErrorKind::Failed);
        assert!(refused.detail.contains("segment-000001.tier"), "{refused}");
        assert!(write_durable(device, 0).is_err());
    });
}

#[test]
fn a_full_device_says_so_and_goes_on() {
    on_both("full", |fixture, device, method| {
        fixture.store.inner.replace_file(1, open("/dev/full"));
        assert_eq!(write(device, 1), Err(DeviceErrorKind::Full));
        // The full device knows no RWF_DSYNC, so that it can stand in for one method only.
        if method == DurableMethod::WriteThenFlush {
            let full = write_durable(device, 1).expect_err("the full device is full");
            assert_eq!(full.kind, DeviceErrorKind::Full, "{full}");
        }
        assert_eq!(fixture.store.failure(), None);
        assert_eq!(write_durable(device, 0), Ok(()));
    });
}

#[test]
fn a_file_that_ends_early_fails_the_read() {
    on_both("short", |fixture, device, _| {
        let path = fixture.path.join("short");
        std::fs::write(&path, vec![7; 4096 + 2048]).expect("a short file is made");
        fixture.store.inner.replace_file(1, open(path.to_str().expect("a plain path")));
        let offset = device.geometry().segment_offset(1);
        let whole = one(device, IoRequest::read(1, offset, IoBuffer::zeroed(4096)));
        assert_eq!(whole.result, Ok(()));
        assert!(whole.buffer.is_some_and(|buffer| buffer.iter().all(|&byte| byte == 7)));
        for (at, len) in [(offset, 8192), (offset + 4096, 4096), (offset + 8192, 4096)] {
            let done = one(device, IoRequest::read(2, at, IoBuffer::zeroed(len)));
            assert_eq!(
                done.result.map_err(|error| error.kind),
                Err(DeviceErrorKind::Failed),
                "{len} at {at}"
            );
            assert!(done.buffer.is_some());
        }
    });
}

/// Says to a process of its own that it is the one which runs out of descriptors.
const ONE_LEFT: &str = "TIERSTONE_TEST_ONE_DESCRIPTOR_LEFT";

#[test]
fn a_segment_lies_in_one_directory_when_descriptors_run_out() {
    if std::env::var_os(ONE_LEFT).is_some() {
        return runs_out_of_descriptors();
    }
    // The limit is a process's, and other tests run in this one.
    let name = "file::failure_test::a_segment_lies_in_one_directory_when_descriptors_run_out";
    let own = std::env::current_exe().expect("this program has a path");
    let run =
        std::process::Command::new(own).args(["--exact", name, "--nocapture"]).env(ONE_LEFT, "1").output();
    let output = run.expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn runs_out_of_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::os::fd::AsRawFd;
    let first = fixture("descriptors", FileBackend::Threads);
    let paths = [first.path.join("one"), first.path.join("two")];
    let settings = FileStoreSettings {
        segment_bytes: 64 << 10,
        segment_limit: 8,
        backend: FileBackend::Threads,
        ..FileStoreSettings::new(paths.to_vec())
    };
    for path in &paths {
        std::fs::create_dir(path).expect("a directory is made");
    }
    let store = FileStore::open(&settings).expect("a new store opens");
    let limit = getrlimit(Resource::Nofile);
    let files = || {
        let named = |path: &std::path::PathBuf| std::fs::read_dir(path).expect("it is listed").flatten();
        let names = paths.iter().flat_map(named).map(|entry| entry.file_name().into_string().expect("text"));
        names.filter(|name| name.starts_with("segment")).count()
    };
    for left in 0..3 {
        let before = files();
        let next_free = open("/dev/null").as_raw_fd() as u64;
        let current = Some(next_free + left);
        setrlimit(Resource::Nofile, Rlimit { current, ..limit }).expect("it is lowered");
        let made = store.inner.create(left as u32);
        setrlimit(Resource::Nofile, limit).expect("it is raised");
        match made {
            Ok(_) => assert_eq!((left, files()), (2, before + 1)),
            Err(error) => {
                assert_eq!(error.kind, DeviceErrorKind::Full, "nothing is wrong with the device: {error}");
                assert_eq!(files(), before, "{left} left: nothing lies anywhere");
            }
        }
    }
    drop(store);
    let store = FileStore::open(&settings).expect("it opens again");
    assert_eq!(store.existing_segments(), [2]);
}
