//! What a region promises, over everything that it may be made of.

use super::super::region_test::Scratch;
use super::*;
use FlushMethod::{Clflush, ClflushOpt, Clwb, DcCvap, FenceOnly, Msync};
use Guarantee::{Emulated, PowerFail, ProcessCrash, Unknown};
use PersistenceDomain as Domain;
use std::io::Write;

#[test]
fn every_combination_promises_what_the_table_says() {
    // Without MAP_SYNC lines reach the page cache, whatever the memory controller does.
    let rows: [(bool, Domain, &[FlushMethod], Guarantee); 9] = [
        (false, Domain::Unknown, &[Clwb, ClflushOpt, Clflush, DcCvap, FenceOnly], ProcessCrash),
        (false, Domain::MemoryController, &[Clwb, ClflushOpt, Clflush, DcCvap, FenceOnly], ProcessCrash),
        (false, Domain::Caches, &[Clwb, ClflushOpt, Clflush, DcCvap, FenceOnly], ProcessCrash),
        // No domain named: lines leave the caches, and nobody says for where.
        (true, Domain::Unknown, &[Clwb, ClflushOpt, Clflush, DcCvap], Unknown),
        (true, Domain::Unknown, &[FenceOnly], ProcessCrash),
        // ADR: what left the caches survives; a fence alone leaves lines in them.
        (true, Domain::MemoryController, &[Clwb, ClflushOpt, Clflush, DcCvap], PowerFail),
        (true, Domain::MemoryController, &[FenceOnly], ProcessCrash),
        // eADR: the caches survive.
        (true, Domain::Caches, &[Clwb, ClflushOpt, Clflush, DcCvap], PowerFail),
        (true, Domain::Caches, &[FenceOnly], PowerFail),
    ];
    let mut tried = 0;
    for (map_sync, domain, methods, expected) in rows {
        for &flush in methods {
            for by_msync in [Emulated, ProcessCrash, Unknown, PowerFail] {
                let found = guarantee_of(map_sync, domain, flush, by_msync);
                assert_eq!(found, expected, "MAP_SYNC {map_sync}, {domain:?}, {flush:?}, msync {by_msync:?}");
            }
            tried += 1;
        }
    }
    // With msync a region is what the file system's flush is worth, by either mapping.
    for map_sync in [false, true] {
        for domain in [Domain::Unknown, Domain::MemoryController, Domain::Caches] {
            for by_msync in [Emulated, ProcessCrash, Unknown, PowerFail] {
                let found = guarantee_of(map_sync, domain, Msync, by_msync);
                assert_eq!(found, by_msync, "MAP_SYNC {map_sync}, {domain:?}, msync {by_msync:?}");
            }
            tried += 1;
        }
    }
    assert_eq!(tried, 2 * 3 * 6, "every combination");
}

#[test]
fn the_kernels_words_for_domains_are_known_and_others_promise_nothing() {
    for (text, domain) in [
        ("cpu_cache\n", Domain::Caches),
        ("memory_controller\n", Domain::MemoryController),
        ("none\n", Domain::Unknown),
        ("", Domain::Unknown),
        ("cpu_cache memory_controller", Domain::Unknown),
    ] {
        assert_eq!(PersistenceDomain::of_text(text), domain, "{text:?}");
    }
}

#[test]
fn of_several_memories_the_weakest_counts_and_one_without_a_domain_promises_nothing() {
    let scratch = Scratch::new("region-domains");
    let of = |regions: &[Option<&str>]| {
        let devices = scratch.path().join("devices");
        let _ = std::fs::remove_dir_all(&devices);
        // What is no region says nothing of domains.
        std::fs::create_dir_all(devices.join("namespace0.0")).unwrap();
        for (number, domain) in regions.iter().enumerate() {
            let region = devices.join(format!("region{number}"));
            std::fs::create_dir(&region).unwrap();
            if let Some(domain) = domain {
                std::fs::write(region.join("persistence_domain"), domain).unwrap();
            }
        }
        PersistenceDomain::of_devices(&devices)
    };
    assert_eq!(of(&[]), Domain::Unknown);
    assert_eq!(of(&[Some("cpu_cache\n")]), Domain::Caches);
    assert_eq!(of(&[Some("cpu_cache\n"), Some("memory_controller\n")]), Domain::MemoryController);
    assert_eq!(of(&[Some("memory_controller\n"), None]), Domain::Unknown);
    assert_eq!(PersistenceDomain::of_devices(&scratch.path().join("none")), Domain::Unknown);
}

/// Kibibytes of the mapping of `path` that are not written to its device.
fn dirty_kib(path: &std::path::Path) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let name = path.to_str().unwrap();
    let mapping = maps.split_once(name).unwrap().1;
    let of = |word: &str| {
        let line = mapping.lines().find(|line| line.starts_with(word)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    of("Shared_Dirty:") + of("Private_Dirty:")
}

#[test]
fn what_nobody_wrote_back_before_is_durable_where_msync_is_said_to_make_it_so() {
    let scratch = Scratch::new("region-unsynced");
    let path = scratch.path().join("region");
    if FileSystem::of(scratch.path()).is_ok_and(|found| found.guarantee() != PowerFail) {
        println!("SKIP: {} has no device to write to", path.display());
        return;
    }
    let settings = RegionSettings::default();
    let region = MappedRegion::create(&path, 1 << 20, &settings).unwrap();
    region.store(0, &[7; 1 << 20]);
    assert_eq!(dirty_kib(&path), 1024);
    drop(region);
    let by_msync = RegionSettings { flush: Some(Msync), ..settings };
    let region = MappedRegion::open(&path, &by_msync).unwrap();
    let mut found = vec![0; 1 << 20];
    region.load(0, &mut found);
    assert!(found.iter().all(|byte| *byte == 7));
    assert_eq!(dirty_kib(&path), 0, "KiB that a loss of power would take");
}

#[test]
fn a_file_with_holes_gets_its_blocks_before_it_is_mapped() {
    let scratch = Scratch::new("region-holes");
    let path = scratch.path().join("region");
    let file = File::create(&path).unwrap();
    (&file).write_all(&Header { region_bytes: 1 << 20 }.encode()).unwrap();
    let bytes = (1 << 20) + REGION_HEADER_BYTES;
    file.set_len(bytes).unwrap();
    assert!(file.metadata().unwrap().blocks() * 512 < bytes);
    let region = MappedRegion::open(&path, &RegionSettings::default()).unwrap();
    assert!(file.metadata().unwrap().blocks() * 512 >= bytes);
    assert_eq!(region.load_word(8), 0);
}

#[test]
fn durability_is_demanded_of_power_fail_alone() {
    let demanding = RegionSettings { demand: RegionDemand::Durable, ..RegionSettings::default() };
    for (guarantee, is_enough) in
        [(Emulated, false), (ProcessCrash, false), (Unknown, false), (PowerFail, true)]
    {
        assert_eq!(refuse_weak(&demanding, guarantee, "ext4", "it").is_ok(), is_enough, "{guarantee:?}");
        assert!(refuse_weak(&RegionSettings::default(), guarantee, "ext4", "it").is_ok());
    }
}
