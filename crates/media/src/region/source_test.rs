//! What names of regions mean, and what they open.

use super::*;
use crate::region::region_test::Scratch;
use proptest::prelude::*;

fn source(text: &str) -> RegionSource {
    text.parse().unwrap()
}

#[test]
fn a_source_is_a_path_or_emulated_memory_and_writes_itself_back() {
    assert_eq!(source("emulated:64MiB"), RegionSource::Emulated { bytes: 64 << 20, profile: None });
    for profile in &MEMORY_PROFILES {
        let text = format!("emulated:4096:{}", profile.name);
        assert_eq!(source(&text), RegionSource::Emulated { bytes: 4096, profile: Some(profile) });
        assert_eq!(source(&text).to_string(), text);
    }
    for path in ["/mnt/pmem/log", "./emulated", "emulated2", "./emulated:4096", "/dev/dax0.0"] {
        assert_eq!(source(path), RegionSource::Path(PathBuf::from(path)));
    }
    for odd in ["emulated:4096", "emulated"] {
        let path = RegionSource::Path(PathBuf::from(odd));
        assert_eq!(path.to_string(), format!("./{odd}"));
        assert!(matches!(source(&path.to_string()), RegionSource::Path(_)), "it stays a path");
    }
}

#[test]
fn a_source_that_means_nothing_is_refused_with_an_example() {
    for wrong in [
        "",
        "emulated",
        "emulated:",
        "emulated:lots",
        "emulated:63",
        "emulated:1GiB:",
        "emulated:1GiB:granite",
        "emulated:1GiB:dcpmm:",
        "a\0b",
    ] {
        let error = wrong.parse::<RegionSource>().expect_err(wrong);
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains("emulated:1GiB:dcpmm, with one of dram, "), "{error}");
    }
}

proptest! {
    #[test]
    fn whatever_is_read_as_a_source_is_read_the_same_again(text in "(emulated:)?[ -~]{0,20}") {
        if let Ok(found) = text.parse::<RegionSource>() {
            prop_assert_eq!(source(&found.to_string()).to_string(), found.to_string());
        }
    }
}

#[test]
fn a_path_that_names_nothing_is_made_once_and_found_again() {
    let scratch = Scratch::new("region-source");
    let file = RegionSource::Path(scratch.path().join("region"));
    let settings = RegionSettings::default();
    assert_eq!(file.open(&settings).unwrap_err().kind(), ErrorKind::InvalidInput);
    let (region, is_new) = file.open_or_create(4096, &settings).unwrap();
    region.store_word(64, 7);
    assert!(is_new && region.bytes() == 4096);
    assert_eq!(file.open(&settings).unwrap_err().kind(), ErrorKind::Busy);
    drop(region);
    let (region, is_new) = file.open_or_create(8192, &settings).unwrap();
    assert!(!is_new && region.bytes() == 4096 && region.load_word(64) == 7, "{:?}", region.report());
}

#[test]
fn emulated_memory_is_new_each_time_and_promises_nothing() {
    let memory = source("emulated:100");
    let (region, is_new) = memory.open_or_create(1 << 20, &RegionSettings::default()).unwrap();
    assert!(is_new && region.bytes() == 128 && region.guarantee() == Guarantee::Emulated);
    let durable =
        RegionSettings { demand: crate::region::RegionDemand::Durable, ..RegionSettings::default() };
    assert_eq!(memory.open(&durable).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn memory_that_is_not_there_is_refused_with_its_size() {
    let error = source("emulated:300TiB:dcpmm").open(&RegionSettings::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoMemory, "{error}");
    assert!(error.message().contains("300 TiB of memory for an emulated region"), "{error}");
}

#[test]
fn a_preset_slows_memory_down_and_the_speed_of_dram_costs_nothing() {
    let open = |text: &str| source(text).open(&RegionSettings::default()).unwrap();
    let slow = open("emulated:64KiB:pcm");
    slow.store_word(0, 7);
    slow.write_back(0, 8);
    slow.fence().unwrap();
    assert_eq!(slow.load_word(0), 7);
    let SourceRegion::Emulated(region) = &slow else { panic!("{slow:?}") };
    assert_eq!((region.slowness().persist_ns, region.counts().fences), (Some(500.0), 1));
    assert_eq!((slow.report().bytes, slow.guarantee()), (64 << 10, Guarantee::Emulated));
    for fast in ["emulated:64KiB:dram", "emulated:64KiB:nvdimm-n", "emulated:64KiB"] {
        assert!(matches!(open(fast), SourceRegion::Mapped(_)), "{fast}");
    }
}
