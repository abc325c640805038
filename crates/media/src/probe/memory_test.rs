//! What is said of places follows from their mappings, and nothing is left behind.

use super::*;
use crate::probe::FileSystem;
use crate::region::Region;

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tierstone-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("the directory is made");
    path
}

#[test]
fn a_directory_is_told_what_its_regions_survive_and_left_as_it_was() {
    let directory = folder("probe-memory");
    let report = examine_region(&directory);
    let file = directory.join("region");
    drop(MappedRegion::create(&file, 4096, &RegionSettings::default()).expect("a region is made"));
    let of_file = examine_region(&file);
    let left = std::fs::read_dir(&directory).expect("it lists").count();
    std::fs::remove_dir_all(&directory).expect("the directory goes");
    assert_eq!(left, 1, "the region's own file");
    let found = report.by_lines.clone().expect("a region can be made");
    assert!(found.survives_process_crash, "{found:?}");
    if !found.map_sync {
        assert_eq!((found.guarantee, found.survives_power_loss), (Guarantee::ProcessCrash, Some(false)));
        assert!(
            found.text().contains("no MAP_SYNC: survives a process crash, is lost with power"),
            "{}",
            found.text()
        );
        let disk = FileSystem::of(&std::env::temp_dir()).expect("it is somewhere").guarantee();
        let by_msync = report.by_msync.as_ref().map_or(Guarantee::ProcessCrash, |promise| promise.guarantee);
        assert_eq!(by_msync, disk);
    }
    assert_eq!((of_file.by_lines, of_file.by_msync), (report.by_lines, report.by_msync));
}

#[test]
fn what_is_no_place_for_a_region_says_why() {
    for (path, why) in
        [("/no/such/place", "/no/such/place"), ("/dev/null", "character device"), ("/proc", "/proc")]
    {
        let report = examine_region(Path::new(path));
        let error = report.by_lines.expect_err(path);
        assert!(error.contains(why), "{error}");
        assert_eq!(report.by_msync, None);
    }
}

#[test]
fn a_machine_without_persistent_memory_claims_none() {
    let report = examine_memory();
    assert_eq!(
        report.instructions.first().map(String::as_str) == Some(FlushMethod::detect().name()),
        FlushMethod::detect() != FlushMethod::Msync
    );
    let is_told = PersistenceDomain::of_machine() != PersistenceDomain::Unknown;
    assert_eq!(report.persistence_domain.is_some(), is_told);
    assert!(serde_json::to_string(&report).is_ok_and(|text| text.contains("\"offset_ns\"")));
    assert!(dax_devices(Path::new("/no/such/list")).is_empty());
}

#[test]
fn devices_that_are_listed_and_cannot_be_looked_at_say_so() {
    let list = folder("probe-dax-list");
    for number in 0..DAX_DEVICES_MAX + 3 {
        std::fs::write(list.join(format!("tierstone-no-dax{number:03}")), b"").expect("an entry is made");
    }
    let found = dax_devices(&list);
    std::fs::remove_dir_all(&list).expect("the directory goes");
    assert_eq!(found.len(), DAX_DEVICES_MAX);
    assert!(
        found[0].promise.as_ref().is_err_and(|why| why.contains("/dev/tierstone-no-dax000")),
        "{:?}",
        found[0]
    );
}

#[test]
fn promises_are_those_of_their_guarantees() {
    let memory = MappedRegion::anonymous(4096, &RegionSettings::default()).expect("there is memory");
    let promise = RegionPromise::of(memory.report());
    assert_eq!((promise.survives_process_crash, promise.survives_power_loss), (false, Some(false)));
    assert!(promise.text().ends_with("on anonymous, no MAP_SYNC: lost with the process, is lost with power"));
    for (guarantee, crash, power) in [
        (Guarantee::Emulated, false, Some(false)),
        (Guarantee::ProcessCrash, true, Some(false)),
        (Guarantee::Unknown, true, None),
        (Guarantee::PowerFail, true, Some(true)),
    ] {
        assert_eq!((guarantee.survives_process_crash(), guarantee.survives_power_loss()), (crash, power));
    }
    assert_eq!(memory.guarantee(), promise.guarantee);
    let device = |domain| DaxDevice { name: "dax0.0".into(), bytes: 1 << 21, align_bytes: 4096, domain };
    let durable = promise_of(&device(Some(PersistenceDomain::Caches)));
    assert!(
        durable
            .text()
            .starts_with("fence-only on device-dax, DAX device: survives a process crash, survives")
    );
    assert_eq!(promise_of(&device(None)).survives_power_loss, Some(false));
}
