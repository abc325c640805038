//! What goes wrong and how it is told, on both handles and both back-ends.

use crate::support::{TemporaryDirectory, backends};
use tierstone::{Batch, Cursor, DatabaseOptions, SharedStore, Store};
use tierstone_base::{ErrorKind, Result};
use tierstone_media::file::FileBackend;

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn a_store_is_opened_once_by_either_handle() {
    let directory = TemporaryDirectory::new();
    let options = directory.options(Default::default());
    let local = Store::open(&options).unwrap();
    assert_eq!(kind(Store::open(&options)), ErrorKind::Busy);
    assert_eq!(kind(SharedStore::open(&options)), ErrorKind::Busy);
    drop(local);
    let shared = SharedStore::open(&options).unwrap();
    assert_eq!(kind(Store::open(&options)), ErrorKind::Busy);
    let other_handle = shared.clone();
    drop(shared);
    assert_eq!(kind(Store::open(&options)), ErrorKind::Busy);
    drop(other_handle);
    Store::open(&options).unwrap().close().unwrap();
}

#[test]
fn wrong_input_is_refused_and_changes_nothing() {
    let directory = TemporaryDirectory::new();
    let options = DatabaseOptions { segment_bytes: Some(1 << 20), ..directory.options(Default::default()) };
    let long = vec![b'k'; 65_536];
    let huge = vec![0; 300 << 10];
    let mut batch = Batch::new();
    batch.put(b"good", b"1").put(&long, b"");
    let mut elsewhere = Batch::new();
    elsewhere.put(b"good", b"1").in_database(99).put(b"key", b"");
    let mut store = Store::open(&options).unwrap();
    assert_eq!(kind(store.put(&long, b"")), ErrorKind::InvalidInput);
    assert_eq!(kind(store.put(b"key", &huge)), ErrorKind::InvalidInput);
    assert_eq!(kind(store.write(&batch)), ErrorKind::InvalidInput);
    assert_eq!(kind(store.write(&elsewhere)), ErrorKind::InvalidInput);
    assert_eq!(store.get(&long).unwrap(), None);
    assert!(!store.delete(&long).unwrap());
    assert_eq!(store.len(), 0);
    store.put(&long[..65_535], b"longest").unwrap();
    store.close().unwrap();
    let store = SharedStore::open(&options).unwrap();
    assert_eq!(kind(store.put(&long, b"")), ErrorKind::InvalidInput);
    assert_eq!(kind(store.put(b"key", &huge)), ErrorKind::InvalidInput);
    assert_eq!(kind(store.write(&batch)), ErrorKind::InvalidInput);
    assert_eq!(kind(store.write(&elsewhere)), ErrorKind::InvalidInput);
    assert_eq!(store.get(&long[..65_535]).unwrap().unwrap(), b"longest");
    assert_eq!(store.len().unwrap(), 1);
    assert_eq!(kind(store.keyspace(16)), ErrorKind::InvalidInput);
    store.write(&Batch::new()).unwrap();
    assert_eq!(store.get_many(&[]).unwrap(), Vec::<Option<Vec<u8>>>::new());
}

#[test]
fn a_closed_shared_store_says_so_to_all_its_handles() {
    let directory = TemporaryDirectory::new();
    let store = SharedStore::open(&directory.options(Default::default())).unwrap();
    let other = store.clone();
    store.put(b"key", b"value").unwrap();
    store.close().unwrap();
    assert_eq!(kind(other.get(b"key")), ErrorKind::Busy);
    assert_eq!(kind(other.put(b"key", b"2")), ErrorKind::Busy);
    assert_eq!(kind(other.scan_page(Cursor::START, 1)), ErrorKind::Busy);
    assert_eq!(kind(other.close()), ErrorKind::Busy);
    // The files are free although handles are left.
    let again = SharedStore::open(&directory.options(Default::default())).unwrap();
    assert_eq!(again.get(b"key").unwrap().unwrap(), b"value");
}

fn small(directory: &TemporaryDirectory, options: DatabaseOptions) -> DatabaseOptions {
    let _ = directory;
    DatabaseOptions { segment_bytes: Some(128 << 10), capacity_bytes: Some(48 * (128 << 10)), ..options }
}

fn name(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Fills the store, empties it by half, writes again; `close` ends it for the check after reopening.
fn fill_and_resume(
    mut put: impl FnMut(u32) -> Result<()>,
    mut delete: impl FnMut(u32) -> Result<bool>,
    mut get: impl FnMut(u32) -> Result<Option<Vec<u8>>>,
) -> u32 {
    let full = (0..10_000).find_map(|number| put(number).err().map(|error| (number, error)));
    let (count, error) = full.unwrap();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    assert!(count > 500, "only {count} values fitted");
    for number in 0..count {
        assert_eq!(get(number).unwrap().unwrap(), vec![number as u8; 1_000], "a full store is read");
    }
    assert_eq!(put(count).unwrap_err().kind(), ErrorKind::NoSpace);
    for number in (0..count).filter(|number| number % 2 == 0) {
        assert!(delete(number).unwrap(), "a full store is emptied");
    }
    for number in count..count + count / 4 {
        put(number).unwrap();
    }
    count
}

/// Shards fill each by itself, and one that is full asks the others for space.
fn backends_and_shards() -> impl Iterator<Item = (FileBackend, u16)> {
    backends().into_iter().flat_map(|backend| [1, 2, 4].map(|shards| (backend, shards)))
}

fn expected(number: u32, count: u32) -> Option<Vec<u8>> {
    (number >= count || number % 2 == 1).then(|| vec![number as u8; 1_000])
}

#[test]
fn a_full_local_store_takes_deletes_and_resumes() {
    for (backend, shards) in backends_and_shards() {
        let directory = TemporaryDirectory::new();
        let options = DatabaseOptions { shards, ..small(&directory, directory.options(backend)) };
        let store = std::cell::RefCell::new(Store::open(&options).unwrap());
        let count = fill_and_resume(
            |number| store.borrow_mut().put(&name(number), &vec![number as u8; 1_000]),
            |number| store.borrow_mut().delete(&name(number)),
            |number| store.borrow_mut().get(&name(number)),
        );
        drop(store);
        let mut store = Store::open(&options).unwrap();
        for number in 0..count + count / 4 {
            assert!(store.get(&name(number)).unwrap() == expected(number, count), "{number} of {count}");
        }
    }
}

#[test]
fn a_full_shared_store_takes_deletes_and_resumes() {
    for (backend, shards) in backends_and_shards() {
        let directory = TemporaryDirectory::new();
        let options = DatabaseOptions { shards, ..small(&directory, directory.options(backend)) };
        let store = SharedStore::open(&options).unwrap();
        let count = fill_and_resume(
            |number| store.put(&name(number), &vec![number as u8; 1_000]),
            |number| store.delete(&name(number)),
            |number| store.get(&name(number)),
        );
        store.close().unwrap();
        let store = SharedStore::open(&options).unwrap();
        for number in 0..count + count / 4 {
            assert!(store.get(&name(number)).unwrap() == expected(number, count), "{number} of {count}");
        }
    }
}

#[test]
fn a_store_opens_while_the_process_makes_children() {
    // A child has copies of all open files, locks included, until it has become its program.
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                std::process::Command::new("/bin/true").status().unwrap();
            }
        });
        let opened = (0..30).try_for_each(|_| {
            let directory = TemporaryDirectory::new();
            let options = directory.options(backends()[0]);
            Store::open(&options).and_then(Store::close).and_then(|()| Store::open(&options)).map(drop)
        });
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        opened.unwrap();
    });
}
