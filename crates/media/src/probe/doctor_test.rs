use super::*;

#[test]
fn a_short_examination_measures_everything_and_leaves_nothing_behind() {
    let directory = std::env::temp_dir().join(format!("tierstone-doctor-test-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("the directory is made");
    let settings = DoctorSettings {
        budget_ms: 100,
        file_bytes: 8 << 20,
        ..DoctorSettings::new(vec![directory.clone()])
    };
    let report = examine(&settings).expect("the place is there");
    let left = std::fs::read_dir(&directory).expect("it lists").count();
    std::fs::remove_dir_all(&directory).expect("the directory goes");
    assert_eq!(left, 0);
    let [found] = &report.directories[..] else { panic!("one report a directory: {report:?}") };
    let measured = found.measured.as_ref().expect("it was measured");
    assert_eq!(measured.durable.iter().map(|rate| rate.depth).collect::<Vec<_>>(), [1, 4, 16]);
    assert!(measured.durable.iter().all(|rate| rate.requests > 0));
    assert!(measured.read_alone.requests > 0 && measured.read_parallel.requests >= 32);
    assert!(measured.sequential_read_bytes_per_second > 0.0);
    assert!(measured.sequential_write_bytes_per_second > 0.0);
    assert_eq!(measured.method_used, measured.durable_method.method);
    let file_system = FileSystem::of(std::env::temp_dir().as_path()).expect("it is somewhere");
    assert_eq!(found.guarantee, file_system.guarantee());
    assert!(found.free_bytes > 0 && found.total_bytes >= found.free_bytes);
    assert!(!report.published.is_empty());
    let text = serde_json::to_string(&report).expect("it is plain data");
    assert!(text.contains("VelociRaptor"));
    let [region] = &report.regions[..] else { panic!("one report a place: {report:?}") };
    assert!(region.by_lines.as_ref().is_ok_and(|promise| promise.survives_process_crash), "{region:?}");
}

#[test]
fn a_directory_that_cannot_be_measured_is_reported_and_not_fatal() {
    let report = examine(&DoctorSettings::new(vec!["/proc".into()])).expect("it is there");
    assert!(report.directories[0].measured.is_none());
    assert_eq!(report.directories[0].guarantee, Guarantee::Unknown, "nothing is promised of it");
    assert!(
        report.directories[0].advice[0].starts_with("measuring failed"),
        "{:?}",
        report.directories[0].advice
    );
    assert!(report.regions[0].by_lines.is_err());
}

#[test]
fn what_is_not_there_or_no_region_is_refused_before_anything_is_measured() {
    use crate::region::{MappedRegion, RegionSettings};
    let directory = std::env::temp_dir().join(format!("tierstone-doctor-refuses-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("the directory is made");
    let (empty, region) = (directory.join("empty"), directory.join("region"));
    std::fs::write(&empty, b"").expect("a file is made");
    drop(MappedRegion::create(&region, 4096, &RegionSettings::default()).expect("a region is made"));
    let newer = directory.join("newer");
    std::fs::write(&newer, [&b"TSREGION\x09"[..], &[0; 8192]].concat()).expect("a file is made");
    let missing = directory.join("missing");
    let named = |name: &Path| name.display().to_string();
    let kind = |directories: &[&Path], regions: &[String]| {
        let directories = directories.iter().map(|path| path.to_path_buf()).collect();
        let settings = DoctorSettings { regions: regions.to_vec(), ..DoctorSettings::new(directories) };
        let checked = settings.check();
        if checked.is_err() {
            examine(&settings).expect_err("what is refused is not examined");
        }
        checked.map_err(|error| error.kind())
    };
    let found = [
        kind(&[&directory, &missing], &[]),
        kind(&[&empty], &[]),
        kind(&[&region], &[named(&region), "emulated:300TiB:dcpmm".into()]),
        kind(&[], &[named(&missing)]),
        kind(&[], &[named(&empty)]),
        kind(&[], &[named(&directory)]),
        kind(&[], &["emulated".into()]),
        kind(&[Path::new("/dev/null")], &[]),
        kind(&[&newer], &[]),
    ];
    std::fs::remove_dir_all(&directory).expect("the directory goes");
    let (input, other) = (Err(ErrorKind::InvalidInput), Err(ErrorKind::Incompatible));
    assert_eq!(found, [input, input, Ok(()), input, input, input, input, input, other]);
}

#[test]
fn findings_turn_into_advice() {
    let mut report = DirectoryReport {
        directory: PathBuf::from("/data"),
        file_system: "ext4".to_string(),
        guarantee: Guarantee::PowerFail,
        facts: DeviceFacts {
            rotational: Some(true),
            write_cache: Some("write back".to_string()),
            physical_block_bytes: Some(16384),
            ..DeviceFacts::default()
        },
        free_bytes: 1,
        total_bytes: 100,
        direct_io: false,
        measured: None,
        advice: Vec::new(),
    };
    advise(&mut report, Some("forbidden"));
    let all = report.advice.join("\n");
    for word in
        ["io_uring (forbidden)", "turning disk", "volatile write cache", "larger than 4 KiB", "only 1 B"]
    {
        assert!(all.contains(word), "{word} in {all}");
    }
}

#[test]
fn a_disk_that_reads_too_soon_is_not_said_to_need_the_time_of_one_that_turns() {
    for read_us in [None, Some(7_000)] {
        assert!(of_turning(read_us).contains("expect 5 to 15 ms"), "{read_us:?}");
    }
    let said = of_turning(Some(83));
    assert!(said.contains("a read took 83 us here") && !said.contains("expect"), "{said}");
}
