//! What a region promises, over everything that it may be made of.

use super::*;
use FlushMethod::{Clflush, ClflushOpt, Clwb, DcCvap, FenceOnly, Msync};
use Guarantee::{Emulated, PowerFail, ProcessCrash, Unknown};
use PersistenceDomain as Domain;

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
fn durability_is_demanded_of_power_fail_alone() {
    let demanding = RegionSettings { demand: RegionDemand::Durable, ..RegionSettings::default() };
    for (guarantee, is_enough) in
        [(Emulated, false), (ProcessCrash, false), (Unknown, false), (PowerFail, true)]
    {
        assert_eq!(refuse_weak(&demanding, guarantee, "ext4", "it").is_ok(), is_enough, "{guarantee:?}");
        assert!(refuse_weak(&RegionSettings::default(), guarantee, "ext4", "it").is_ok());
    }
}
