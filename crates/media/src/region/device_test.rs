//! DAX devices as a made-up tree of the kernel describes them; an ordinary file stands for the memory itself.

use super::*;
use crate::region::region_test::{Scratch, behaves_like_bytes};
use crate::region::{Region, RegionDemand, RegionSource};
use std::os::unix::fs::symlink;

const NUMBER: (u32, u32) = (252, 7);
const BYTES: u64 = 2 << 20;

/// A tree in which the device 252:7 is `dax0.0`, of this kind, with these files in it and its parents.
fn tree(scratch: &Scratch, kind: &str, files: &[(&str, &str)]) -> Result<DaxDevice> {
    let root = scratch.path().join("sys");
    let _ = std::fs::remove_dir_all(&root);
    let place = root.join("devices/ndbus0/region0/dax0.1/dax0.0");
    let bus = root.join("bus").join(kind);
    for folder in [&place, &bus, &root.join("dev/char"), &place.join("../dax_region")] {
        std::fs::create_dir_all(folder).unwrap();
    }
    for (name, text) in files {
        std::fs::write(place.join(name), text).unwrap();
    }
    symlink(&bus, place.join("subsystem")).unwrap();
    symlink(&place, root.join("dev/char/252:7")).unwrap();
    DaxDevice::of_number(&root, NUMBER, Path::new("/dev/dax0.0"))
}

const ADR: (&str, &str) = ("../../persistence_domain", "memory_controller\n");
const SIZE: (&str, &str) = ("size", "2097152\n");
const ALIGN: (&str, &str) = ("align", "2097152\n");

#[test]
fn a_dax_device_is_what_the_kernel_says_of_it() {
    let scratch = Scratch::new("dax-facts");
    let found = tree(&scratch, "dax", &[SIZE, ALIGN, ADR]).unwrap();
    let expected = DaxDevice {
        name: "dax0.0".into(),
        bytes: BYTES,
        align_bytes: BYTES,
        domain: Some(PersistenceDomain::MemoryController),
    };
    assert_eq!(found, expected);
    let older = tree(
        &scratch,
        "dax",
        &[SIZE, ("../dax_region/align", "4096"), ("../../persistence_domain", "cpu_cache")],
    );
    assert_eq!(
        older.map(|found| (found.align_bytes, found.domain)).unwrap(),
        (4096, Some(PersistenceDomain::Caches))
    );
    assert_eq!(tree(&scratch, "dax", &[SIZE, ALIGN]).unwrap().domain, None, "memory that forgets");
}

#[test]
fn what_is_no_dax_device_or_makes_no_sense_is_refused_with_its_reason() {
    let scratch = Scratch::new("dax-refused");
    let refused = |kind: &str, files: &[(&str, &str)], error_kind: ErrorKind, why: &str| {
        let error = tree(&scratch, kind, files).unwrap_err();
        assert!(error.kind() == error_kind && error.message().contains(why), "{error}");
        assert!(error.message().contains("/dev/dax0.0"), "{error}");
    };
    refused("mem", &[SIZE, ALIGN], ErrorKind::InvalidInput, "one of kind 'mem'");
    refused("dax", &[ALIGN], ErrorKind::InvalidInput, "size or alignment cannot be read");
    refused("dax", &[SIZE], ErrorKind::InvalidInput, "size or alignment cannot be read");
    refused("dax", &[("size", "many"), ALIGN], ErrorKind::InvalidInput, "cannot be read");
    for (size, align) in [("0", "4096"), ("4097", "4096"), ("4096", "512"), ("6291456", "3145728")] {
        refused("dax", &[("size", size), ("align", align)], ErrorKind::Incompatible, "cannot be mapped");
    }
    let unknown = DaxDevice::of_number(scratch.path(), (1, 2), Path::new("/dev/x")).unwrap_err();
    assert!(unknown.message().contains("does not describe it"), "{unknown}");
    // A character device of this machine that is none.
    let settings = RegionSettings::default();
    for opened in [
        MappedRegion::open(Path::new("/dev/null"), &settings).map(|_| ()),
        MappedRegion::create(Path::new("/dev/null"), 4096, &settings).map(|_| ()),
        RegionSource::Path("/dev/null".into()).open_or_create(4096, &settings).map(|_| ()),
    ] {
        let error = opened.unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidInput && error.message().contains("/dev/null"), "{error}");
    }
}

/// A file in place of the device's memory, filled with `fill`.
struct Memory(Scratch);

impl Memory {
    fn new(name: &str, fill: u8) -> Memory {
        let scratch = Scratch::new(name);
        std::fs::write(scratch.path().join("dax0.0"), vec![fill; BYTES as usize]).unwrap();
        Memory(scratch)
    }

    fn map(
        &self,
        access: Access,
        domain: Option<PersistenceDomain>,
        settings: &RegionSettings,
    ) -> Result<(MappedRegion, bool)> {
        let path = self.0.path().join("dax0.0");
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let device = DaxDevice { name: "dax0.0".into(), bytes: BYTES, align_bytes: 4096, domain };
        map_file(file, &device, &path, access, settings)
    }
}

#[test]
fn a_device_is_created_once_whole_and_found_again() {
    let memory = Memory::new("dax-create", 0);
    let settings = RegionSettings::default();
    // The crash mark device-without-header: zeros, and no header yet.
    let cut_off = memory.map(Access::Open, None, &settings).unwrap_err();
    assert_eq!(cut_off.kind(), ErrorKind::Corrupt, "{cut_off}");
    let (region, is_new) = memory.map(Access::OpenOrCreate, None, &settings).unwrap();
    assert!(is_new && region.bytes() == BYTES - REGION_HEADER_BYTES);
    assert_eq!(memory.map(Access::Open, None, &settings).unwrap_err().kind(), ErrorKind::Busy);
    behaves_like_bytes(&region, 31);
    region.store_word(0, 99);
    drop(region);
    let created_again = memory.map(Access::Create, None, &settings).unwrap_err();
    assert!(created_again.message().contains("holds something"), "{created_again}");
    let (region, is_new) = memory.map(Access::OpenOrCreate, None, &settings).unwrap();
    assert!(!is_new && region.load_word(0) == 99);
}

#[test]
fn a_device_that_others_use_is_never_taken_and_a_new_region_is_zeros() {
    let memory = Memory::new("dax-foreign", 7);
    let settings = RegionSettings::default();
    let foreign = memory.map(Access::OpenOrCreate, None, &settings).unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::Incompatible, "{foreign}");
    assert_eq!(memory.map(Access::Create, None, &settings).unwrap_err().kind(), ErrorKind::InvalidInput);
    let path = memory.0.path().join("dax0.0");
    let mut bytes = std::fs::read(&path).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 7), "nothing was written");
    bytes[..REGION_HEADER_BYTES as usize].fill(0);
    std::fs::write(&path, bytes).unwrap();
    let (region, _) = memory.map(Access::Create, None, &settings).unwrap();
    let mut content = vec![1; region.bytes() as usize];
    region.load(0, &mut content);
    assert!(content.iter().all(|byte| *byte == 0), "what lay behind the first page is gone");
}

#[test]
fn only_persistent_memory_is_called_durable() {
    let memory = Memory::new("dax-durable", 0);
    let durable = RegionSettings { demand: RegionDemand::Durable, ..RegionSettings::default() };
    for weak in [None, Some(PersistenceDomain::Unknown)] {
        let error = memory.map(Access::Create, weak, &durable).unwrap_err();
        assert!(error.kind() == ErrorKind::Unsupported && error.message().contains(DEVICE_DAX), "{error}");
    }
    let (region, _) = memory.map(Access::Create, Some(PersistenceDomain::Caches), &durable).unwrap();
    assert_eq!((region.guarantee(), region.report().flush), (Guarantee::PowerFail, FlushMethod::FenceOnly));
    assert!(region.report().text().contains("no page cache"), "{}", region.report().text());
    drop(region);
    let (region, _) = memory.map(Access::Open, None, &RegionSettings::default()).unwrap();
    assert_eq!(region.guarantee(), Guarantee::ProcessCrash, "the same without persistent memory below");
    drop(region);
    let msync = RegionSettings { flush: Some(FlushMethod::Msync), ..RegionSettings::default() };
    assert!(memory.map(Access::Open, None, &msync).unwrap_err().message().contains("no msync"));
    let large = RegionSettings { least_bytes: BYTES, ..RegionSettings::default() };
    assert_eq!(memory.map(Access::Open, None, &large).unwrap_err().kind(), ErrorKind::InvalidInput);
}
