use super::*;
use crate::conformance::{ConformanceMedium, run};
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A file of a test, removed with it.
struct Medium {
    path: PathBuf,
    settings: SingleFileSettings,
    file: Option<SingleFile>,
}

impl Medium {
    fn new(settings: SingleFileSettings) -> Medium {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tierstone-single-{}-{number}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        SingleFile::create(&path, 1 << 20).unwrap();
        let file = Some(SingleFile::open(&path, &settings).unwrap());
        Medium { path, settings, file }
    }

    fn file(&self) -> &SingleFile {
        self.file.as_ref().unwrap()
    }
}

impl Drop for Medium {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl ConformanceMedium for Medium {
    type Device = SingleFileDevice;

    fn device(&mut self) -> SingleFileDevice {
        self.file().device().unwrap()
    }

    fn reopen(&mut self) {
        self.file = None;
        self.file = Some(SingleFile::open(&self.path, &self.settings).unwrap());
    }
}

#[test]
fn a_single_file_conforms() {
    run(|_| Medium::new(SingleFileSettings::default()));
}

#[test]
fn a_single_file_through_the_page_cache_and_one_thread_conforms() {
    let settings = SingleFileSettings { direct_io: DirectIo::Off, queue_depth: 1, ..Default::default() };
    run(|_| Medium::new(settings.clone()));
}

#[test]
fn a_file_that_is_open_is_busy_and_one_that_exists_is_not_made_again() {
    let medium = Medium::new(SingleFileSettings::default());
    let kind = |result: Result<SingleFile>| result.map(drop).unwrap_err().kind();
    assert_eq!(kind(SingleFile::open(&medium.path, &medium.settings)), ErrorKind::Busy);
    assert_eq!(SingleFile::create(&medium.path, 1 << 20).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(kind(SingleFile::open(Path::new("/"), &medium.settings)), ErrorKind::InvalidInput);
    assert_eq!(kind(SingleFile::open(Path::new("/dev/null"), &medium.settings)), ErrorKind::InvalidInput);
    let missing = SingleFile::open(&medium.path.with_extension("missing"), &medium.settings);
    assert!(missing.unwrap_err().message().contains("cannot open"));
    std::fs::write(medium.path.with_extension("small"), [1; 100]).unwrap();
    let small = SingleFile::open(&medium.path.with_extension("small"), &medium.settings);
    assert!(small.unwrap_err().message().contains("has 100 bytes"));
    std::fs::remove_file(medium.path.with_extension("small")).unwrap();
}

/// Cuts the file, then writes beyond its new end; whether the write is answered well.
fn write_after_a_cut(mutations: Mutations) -> bool {
    let medium = Medium::new(SingleFileSettings { mutations, ..Default::default() });
    let write =
        |offset| medium.file().perform(IoRequest::write_durable(0, offset, IoBuffer::zeroed(BLOCK_BYTES)));
    assert_eq!(write(512 << 10).result, Ok(()));
    OpenOptions::new().write(true).open(&medium.path).unwrap().set_len(64 << 10).unwrap();
    let is_well = write(512 << 10).result.is_ok();
    // With its length back its bytes are not: it stays failed.
    OpenOptions::new().write(true).open(&medium.path).unwrap().set_len(2 << 20).unwrap();
    assert_eq!(write(0).result.is_ok(), is_well);
    is_well
}

#[test]
fn a_file_that_was_cut_takes_no_write_any_more() {
    assert!(!write_after_a_cut(Mutations::none()));
    assert!(write_after_a_cut(Mutations::one("no_length_check")), "the rule is what refuses the write");
}

#[test]
fn discarded_space_of_a_file_is_given_back_and_reads_as_zeros_where_that_was_asked_for() {
    for (discards, gives_back) in
        [(Discards::Always, true), (Discards::Devices, false), (Discards::Never, false)]
    {
        let medium = Medium::new(SingleFileSettings { discards, ..SingleFileSettings::default() });
        let mut device = medium.file().device().unwrap();
        if gives_back && !device.discards_to_zeros() {
            println!("SKIP: the file system of temporary files makes no holes");
            continue;
        }
        assert_eq!(device.discards_to_zeros(), gives_back, "{discards:?}");
        let mut bytes = IoBuffer::zeroed(256 << 10);
        bytes.fill(7);
        let mut perform = |request: IoRequest| {
            device.submit(&mut vec![request]);
            let mut done = Vec::new();
            device.complete(Wait::All, &mut done);
            done.pop().unwrap()
        };
        let at = META_BYTES + SEGMENT_BYTES;
        perform(IoRequest::write_durable(0, at, bytes)).result.unwrap();
        let blocks = || std::fs::metadata(&medium.path).unwrap().blocks();
        let before = blocks();
        let kind = IoKind::Discard { len: 128 << 10 };
        perform(IoRequest { token: 1, kind, offset: at + (64 << 10), buffer: None }).result.unwrap();
        let read = perform(IoRequest::read(2, at, IoBuffer::zeroed(256 << 10))).buffer.unwrap();
        let expected = if gives_back { 0 } else { 7 };
        assert!(read[64 << 10..192 << 10].iter().all(|byte| *byte == expected), "{discards:?}");
        assert!(read[..64 << 10].iter().chain(&read[192 << 10..]).all(|byte| *byte == 7), "its neighbours");
        assert_eq!(blocks() < before, gives_back, "{discards:?}");
        assert_eq!(medium.file().bytes(), std::fs::metadata(&medium.path).unwrap().len());
    }
}

#[test]
fn a_file_that_discards_conforms() {
    run(|_| Medium::new(SingleFileSettings { discards: Discards::Always, ..SingleFileSettings::default() }));
}
