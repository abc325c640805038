//! Regions of every backing against one model, what is refused, and what a simulated crash leaves.

use super::header::Header;
use super::*;
use std::collections::BTreeSet;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use tierstone_base::{ErrorKind, SeededRandom};
use tierstone_crash::{Choices, ExploreSettings, SurvivorSettings, Violation, explore};

/// A directory that goes with the test.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("tierstone-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn settings() -> RegionSettings {
    RegionSettings::default()
}

/// Random loads and stores of every kind against a plain array of bytes.
pub(super) fn behaves_like_bytes(region: &impl Region, seed: u64) {
    let mut random = SeededRandom::new(seed);
    let bytes = region.bytes();
    let mut model = vec![0u8; bytes as usize];
    for step in 0..2_000 {
        let offset = random.below(bytes);
        let len = random.below((bytes - offset).min(200) + 1);
        let range = offset as usize..(offset + len) as usize;
        let mut content = vec![0; len as usize];
        random.fill(&mut content);
        match random.below(6) {
            0 => {
                region.store(offset, &content);
                model[range].copy_from_slice(&content);
            }
            1 => {
                region.store_streaming(offset, &content);
                model[range].copy_from_slice(&content);
            }
            2 => {
                let (at, value) = (offset / 8 * 8, random.next_u64());
                region.store_word(at, value);
                model[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
            }
            3 => {
                let at = offset / 8 * 8;
                let word = region.load_word(at);
                let expected = if random.chance(0.5) { word } else { word ^ 1 };
                let result = region.compare_exchange_word(at, expected, 7);
                assert_eq!(result, if expected == word { Ok(word) } else { Err(word) });
                if result.is_ok() {
                    model[at as usize..at as usize + 8].copy_from_slice(&7u64.to_le_bytes());
                }
            }
            4 => {
                region.write_back(offset, len);
                region.fence().unwrap();
            }
            _ => {
                region.load(offset, &mut content);
                assert_eq!(content, model[range], "seed {seed}, step {step}, offset {offset}, {len} bytes");
            }
        }
    }
    let mut all = vec![0; bytes as usize];
    region.load(0, &mut all);
    assert_eq!(all, model, "seed {seed}");
}

#[test]
fn every_kind_of_region_behaves_like_an_array_of_bytes() {
    let scratch = Scratch::new("region-model");
    let seed = 0x5eed_0001;
    behaves_like_bytes(&LineRegion::new(4096), seed);
    behaves_like_bytes(&WordRegion::new(4096).with_persistency(SimPersistency::Strict), seed + 1);
    behaves_like_bytes(&MappedRegion::anonymous(4096, &settings()).unwrap(), seed + 2);
    let methods = [
        FlushMethod::Clwb,
        FlushMethod::ClflushOpt,
        FlushMethod::Clflush,
        FlushMethod::DcCvap,
        FlushMethod::FenceOnly,
        FlushMethod::Msync,
    ];
    for (number, method) in (0..).zip(methods) {
        let path = scratch.path().join(method.name());
        let settings = RegionSettings { flush: Some(method), ..settings() };
        match MappedRegion::create(&path, 4000, &settings) {
            Ok(region) => {
                assert_eq!(region.report().bytes, 4032, "rounded up to whole lines");
                behaves_like_bytes(&region, seed + 3 + number);
            }
            Err(error) => {
                assert!(!method.is_available(), "{error}");
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                assert!(!path.exists(), "what was refused is not left behind");
            }
        }
    }
}

#[test]
fn a_file_region_comes_back_when_it_is_opened_again() {
    let scratch = Scratch::new("region-reopen");
    let path = scratch.path().join("region");
    let region = MappedRegion::create(&path, 1 << 16, &settings()).unwrap();
    region.store(100, b"across a word and a line");
    region.write_back(100, 24);
    region.fence().unwrap();
    drop(region);
    let region = MappedRegion::open(&path, &settings()).unwrap();
    let mut found = [0; 24];
    region.load(100, &mut found);
    assert_eq!(&found, b"across a word and a line");
}

#[test]
fn a_file_without_dax_is_never_called_durable() {
    let scratch = Scratch::new("region-demand");
    let path = scratch.path().join("region");
    let durable = RegionSettings { demand: RegionDemand::Durable, ..settings() };
    let region = MappedRegion::create(&path, 4096, &settings()).unwrap();
    if region.report().map_sync {
        return; // A machine with persistent memory as its temporary directory.
    }
    assert_eq!(region.guarantee(), crate::Guarantee::ProcessCrash);
    assert!(region.report().text().contains("survives a process crash, not power"), "{:?}", region.report());
    drop(region);
    let error = MappedRegion::open(&path, &durable).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.message().contains("DAX"), "{error}");
    let beside = scratch.path().join("beside");
    assert!(MappedRegion::create(&beside, 4096, &durable).is_err());
    assert!(!beside.exists());
    assert!(MappedRegion::anonymous(4096, &durable).is_err());
    let by_msync = RegionSettings { flush: Some(FlushMethod::Msync), ..durable };
    let promised = crate::probe::FileSystem::of(&path).unwrap().guarantee() == crate::Guarantee::PowerFail;
    assert_eq!(
        MappedRegion::open(&path, &by_msync).is_ok(),
        promised,
        "msync is as durable as the file system"
    );
}

#[test]
fn a_region_is_mapped_once_at_a_time() {
    let scratch = Scratch::new("region-twice");
    let path = scratch.path().join("region");
    let region = MappedRegion::create(&path, 4096, &settings()).unwrap();
    let error = MappedRegion::open(&path, &settings()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    drop(region);
    MappedRegion::open(&path, &settings()).unwrap();
}

/// Opens a region's file after `change` was done to it.
fn opened_after(name: &str, change: impl FnOnce(&mut std::fs::File)) -> tierstone_base::Error {
    let scratch = Scratch::new(name);
    let path = scratch.path().join("region");
    drop(MappedRegion::create(&path, 8192, &settings()).unwrap());
    let mut file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    change(&mut file);
    MappedRegion::open(&path, &settings()).unwrap_err()
}

#[test]
fn headers_that_are_wrong_are_refused_with_their_reason() {
    let put = |at: u64, bytes: &'static [u8]| {
        move |file: &mut std::fs::File| {
            file.seek(SeekFrom::Start(at)).unwrap();
            file.write_all(bytes).unwrap();
        }
    };
    // The crash mark region-without-header: space taken, header not written. Earlier programs made files under their own name.
    let error = opened_after("region-empty", put(0, &[0; 32]));
    assert_eq!((error.kind(), error.message().contains("cut off")), (ErrorKind::Corrupt, true), "{error}");
    let error = opened_after("region-magic", put(0, b"ELF"));
    assert_eq!(
        (error.kind(), error.message().contains("no region")),
        (ErrorKind::Incompatible, true),
        "{error}"
    );
    let error = opened_after("region-version", put(8, &[9]));
    assert_eq!(
        (error.kind(), error.message().contains("version 9")),
        (ErrorKind::Incompatible, true),
        "{error}"
    );
    for torn_at in [13, 16, 24, 31] {
        let error = opened_after("region-torn", put(torn_at, &[0xa5]));
        assert_eq!((error.kind(), error.message().contains("torn")), (ErrorKind::Corrupt, true), "{error}");
    }
    let error = opened_after("region-cut", |file| file.set_len(8192).unwrap());
    assert_eq!(
        (error.kind(), error.message().contains("cut or stretched")),
        (ErrorKind::Corrupt, true),
        "{error}"
    );
    let error = opened_after("region-short", |file| file.set_len(100).unwrap());
    assert_eq!(error.kind(), ErrorKind::Incompatible, "{error}");
}

#[test]
fn a_region_that_is_too_small_is_refused() {
    let scratch = Scratch::new("region-small");
    let path = scratch.path().join("region");
    let demanding = RegionSettings { least_bytes: 1 << 20, ..settings() };
    assert_eq!(MappedRegion::create(&path, 4096, &demanding).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(!path.exists());
    drop(MappedRegion::create(&path, 4096, &settings()).unwrap());
    let error = MappedRegion::open(&path, &demanding).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.message().contains("1048576"), "{error}");
    assert!(MappedRegion::anonymous(0, &settings()).is_err());
    assert!(MappedRegion::open(Path::new("/nonexistent/region"), &settings()).is_err());
}

#[test]
fn any_prefix_of_a_header_is_refused_or_right() {
    let whole = Header { region_bytes: 4096 }.encode();
    for cut in 0..=32 {
        let mut bytes = [0; 32];
        bytes[..cut].copy_from_slice(&whole[..cut]);
        let read = Header::decode(&bytes, 8192, "test");
        assert_eq!(read.is_ok(), bytes == whole, "cut at {cut}");
    }
}

#[test]
#[should_panic(expected = "not aligned")]
fn a_word_off_its_place_is_a_mistake() {
    MappedRegion::anonymous(4096, &settings()).unwrap().load_word(4);
}

/// The states that two stores and what follows may leave.
fn left<const UNIT: usize>(
    durable_caches: bool,
    work: impl Fn(&SimRegion<UNIT>),
) -> BTreeSet<(u64, u64, u64)> {
    let mut states = BTreeSet::new();
    let report = explore(ExploreSettings::exhaustive(), |choices: &Choices| {
        let mut region = SimRegion::<UNIT>::new(128).with_cuts(choices, 4);
        if durable_caches {
            region = region.with_persistency(SimPersistency::Strict);
        }
        work(&region);
        region.lose_power(choices, &SurvivorSettings::default());
        states.insert((region.load_word(0), region.load_word(8), region.load_word(64)));
        Ok::<(), Violation>(())
    });
    report.assert_exhausted();
    states
}

#[test]
fn a_crash_leaves_every_legal_subset_of_lines_and_words_and_nothing_else() {
    // A line keeps the order of its stores: the second word never without the first.
    let states = left::<64>(false, |region| {
        region.store_word(0, 1);
        region.store_word(8, 2);
        region.store_word(64, 3);
    });
    assert!(states.contains(&(0, 0, 3)) && states.contains(&(1, 0, 3)) && !states.contains(&(0, 2, 0)));
    assert_eq!(states.len(), 6, "{states:?}");
    let states = left::<8>(false, |region| {
        region.store_word(0, 1);
        region.store_word(8, 2);
        region.store_word(64, 3);
    });
    assert_eq!(states.len(), 8, "every subset of words: {states:?}");
    // Durable caches: what was stored is there, so only prefixes are left.
    let states = left::<8>(true, |region| {
        region.store_word(0, 1);
        region.store_word(8, 2);
        region.store_word(64, 3);
    });
    assert_eq!(states.into_iter().collect::<Vec<_>>(), [(0, 0, 0), (1, 0, 0), (1, 2, 0), (1, 2, 3)]);
}

#[test]
fn what_was_fenced_survives_and_a_fence_after_the_cut_fails() {
    let report = explore(ExploreSettings::exhaustive(), |choices: &Choices| {
        let region = WordRegion::new(128).with_cuts(choices, 4);
        region.store_streaming(0, &7u64.to_le_bytes());
        region.store_word(64, 8);
        let durable = region.fence().is_ok();
        Violation::unless(durable == region.power_is_on(), || "a fence lied".into())?;
        region.lose_power(choices, &SurvivorSettings::default());
        Violation::unless(!durable || region.load_word(0) == 7, || "a fenced store is gone".into())
    });
    assert!(report.assert_exhausted().distinct_states >= 4);
}

#[test]
fn threads_that_race_on_one_word_leave_one_of_their_values() {
    let region = MappedRegion::anonymous(64, &settings()).unwrap();
    std::thread::scope(|scope| {
        for thread in 1..=4u8 {
            let region = &region;
            scope.spawn(move || {
                for _ in 0..1_000 {
                    region.store_word(0, u64::from_le_bytes([thread; 8]));
                    region.store(8 + u64::from(thread), &[thread]);
                }
            });
        }
    });
    let mut bytes = [0; 16];
    region.load(0, &mut bytes);
    assert!(bytes[..8].iter().all(|byte| *byte == bytes[0]), "{bytes:?}");
    assert_eq!(bytes[8..14], [0, 1, 2, 3, 4, 0], "parts of a word do not disturb each other");
}
