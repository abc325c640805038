//! The conformance suite on files: both back-ends, both ways of making a write durable, with and
//! without the page cache, one directory and two.

#![expect(clippy::expect_used, reason = "a step that fails fails its test")]

#[path = "support/filter.rs"]
mod filter;
mod support;

use filter::{Refused, refusing};
use std::path::PathBuf;
use support::{TemporaryDirectory, backends, settings};
use tierstone_base::ErrorKind;
use tierstone_media::conformance::{ConformanceMedium, run};
use tierstone_media::file::{
    DirectIo, DurableMethod, FileBackend, FileDevice, FileStore, FileStoreSettings, uring_refusal,
};

struct FileMedium {
    _directory: TemporaryDirectory,
    settings: FileStoreSettings,
    method: DurableMethod,
    store: Option<FileStore>,
}

impl ConformanceMedium for FileMedium {
    type Device = FileDevice;

    fn device(&mut self) -> FileDevice {
        let store = self.store.as_ref().expect("the store is open");
        store.device(self.method).expect("a handle is made")
    }

    fn reopen(&mut self) {
        self.store = None;
        self.store = Some(FileStore::open(&self.settings).expect("the store opens again"));
    }
}

fn conform(method: DurableMethod, change: impl Fn(&TemporaryDirectory, &mut FileStoreSettings)) {
    for backend in backends() {
        conform_through(backend, method, &change);
    }
}

fn conform_through(
    backend: FileBackend,
    method: DurableMethod,
    change: impl Fn(&TemporaryDirectory, &mut FileStoreSettings),
) {
    println!("back-end {backend:?}, {method:?}");
    run(|_| {
        let directory = TemporaryDirectory::new();
        let mut settings = settings(directory.join("store"), backend);
        change(&directory, &mut settings);
        let store = FileStore::open(&settings).expect("a new store opens");
        FileMedium { _directory: directory, settings, method, store: Some(store) }
    });
}

#[test]
fn files_with_durable_writes_conform() {
    conform(DurableMethod::DurableWrite, |_, _| {});
}

#[test]
fn files_with_write_and_flush_conform() {
    conform(DurableMethod::WriteThenFlush, |_, _| {});
}

#[test]
fn files_through_the_page_cache_conform() {
    conform(DurableMethod::DurableWrite, |_, settings| settings.direct_io = DirectIo::Off);
}

#[test]
fn a_short_queue_over_two_directories_conforms() {
    conform(DurableMethod::WriteThenFlush, |directory, settings| {
        settings.directories = ["a", "b"].map(|name| directory.join(name)).to_vec();
        settings.queue_depth = 3;
    });
}

#[test]
fn where_the_kernel_refuses_io_uring_threads_conform() {
    let setup = Refused { call: libc::SYS_io_uring_setup, from: None };
    // What a container answers that forbids it, and what a kernel that does not have it.
    for (errno, method) in
        [(libc::EPERM, DurableMethod::DurableWrite), (libc::ENOSYS, DurableMethod::WriteThenFlush)]
    {
        refusing("files where io_uring is refused", errno, setup, || {
            let reason = uring_refusal().expect("the kernel refuses io_uring");
            assert_eq!(reason, std::io::Error::from_raw_os_error(errno).to_string());
            let directory = TemporaryDirectory::new();
            let open = |backend| {
                FileStore::open(&settings(directory.join("store"), backend)).expect("a store opens")
            };
            let refused = open(FileBackend::IoUring).device(method).expect_err("it was asked for");
            assert_eq!(refused.kind(), ErrorKind::Unsupported);
            assert!(refused.message().contains(&reason), "{refused}");
            let device = open(FileBackend::Auto).device(method).expect("threads do it");
            assert_eq!(device.backend(), FileBackend::Threads);
            conform_through(FileBackend::Auto, method, |_, _| {});
        });
    }
}

#[test]
fn a_store_in_memory_conforms_and_says_that_it_is_not_power_fail_durable() {
    let memory = PathBuf::from("/dev/shm");
    if !tierstone_media::probe::FileSystem::of(&memory).is_ok_and(|found| found.in_memory) {
        println!("SKIP: tests on a file system in memory (there is no tmpfs at /dev/shm)");
        return;
    }
    let path = memory.join(format!("tierstone-media-{}", std::process::id()));
    let store = FileStore::open(&settings(path.clone(), FileBackend::Auto)).expect("it opens");
    let guarantee = store.guarantee();
    drop(store);
    std::fs::remove_dir_all(&path).expect("it goes");
    assert_eq!(guarantee, tierstone_media::Guarantee::ProcessCrash);
}
