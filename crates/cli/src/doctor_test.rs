use super::*;
use tierstone_media::probe::published_profiles;

#[test]
fn measured_and_published_numbers_keep_to_their_columns() {
    let rows = comparison(None, published_profiles());
    assert_eq!(rows[0][2], "measured here");
    assert_eq!(rows[0][4], "published");
    let mut published = 0;
    for row in &rows[1..] {
        assert_eq!(row.len(), 6, "{row:?}");
        assert!(!row[1].is_empty(), "a number without a unit: {row:?}");
        assert!(matches!(row[2].as_str(), "-" | ""), "nothing was measured: {row:?}");
        if row[4] != "-" {
            published += 1;
            let number = row[5].trim_matches(['[', ']']).parse::<usize>().expect("the number of a source");
            assert!(number <= published_profiles().len(), "a number without a source: {row:?}");
        }
    }
    let given = published_profiles().iter().map(|profile| {
        let numbers = [
            profile.random_read_us,
            profile.random_reads_per_second,
            profile.sequential_read_bytes_per_second,
            profile.sequential_write_bytes_per_second,
            profile.durable_write_us,
            profile.writes_per_second,
        ];
        numbers.iter().flatten().count()
    });
    assert_eq!(published, given.sum::<usize>(), "every published number is shown once");
}

#[test]
fn what_is_printed_of_published_numbers_fits_the_width_and_names_every_source() {
    // Of seven digits, which is more than any device has.
    let mut rows = comparison(None, published_profiles());
    rows.iter_mut().skip(1).for_each(|row| row[2] = "1234567".to_owned());
    let lines = sources(published_profiles());
    for line in table(&rows).lines().chain(lines.iter().map(String::as_str)) {
        assert!(line.chars().count() <= WIDTH, "{line}");
    }
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = words(&lines.join("\n"));
    for (profile, number) in published_profiles().iter().zip(1..) {
        let told = format!("[{number}] {}, {}: {}", profile.device, profile.class, profile.source);
        assert!(text.contains(&words(&told)) && text.contains(&words(profile.note)), "{told}: {text}");
    }
    assert_eq!(wrapped("* ", &"x".repeat(200)), [format!("* {}", "x".repeat(200))]);
}

#[test]
fn a_refusal_of_io_uring_for_want_of_memory_names_the_limit_on_locked_memory() {
    let refused = std::io::Error::from_raw_os_error(libc::ENOMEM).to_string();
    let advice = of_locked_memory(&refused, Some(64 << 10)).expect("it is about memory");
    assert!(advice.contains("64 KiB") && advice.contains("LimitMEMLOCK="), "{advice}");
    assert_eq!(of_locked_memory(&refused, None), None, "there is no limit");
    let other = std::io::Error::from_raw_os_error(libc::EPERM).to_string();
    assert_eq!(of_locked_memory(&other, Some(1)), None);
}

#[test]
fn durable_methods_have_names() {
    assert_eq!(parse_durable_method("auto").expect("known"), None);
    for method in [DurableMethod::DurableWrite, DurableMethod::WriteThenFlush] {
        assert_eq!(parse_durable_method(method.name()).expect("known"), Some(method));
    }
    assert!(parse_durable_method("hope").is_err_and(|error| error.message().contains("write-then-flush")));
}

fn region_promise(guarantee: tierstone_media::Guarantee) -> tierstone_media::probe::RegionPromise {
    tierstone_media::probe::RegionPromise {
        place: "ext4".into(),
        map_sync: false,
        flush: "clwb".into(),
        guarantee,
        survives_process_crash: guarantee.survives_process_crash(),
        survives_power_loss: guarantee.survives_power_loss(),
    }
}

#[test]
fn a_region_is_said_to_survive_what_it_does_and_its_delays_to_be_measured() {
    use tierstone_media::Guarantee;
    let mut place = RegionPlaceReport {
        path: "/data".into(),
        by_lines: Ok(region_promise(Guarantee::ProcessCrash)),
        by_msync: Some(region_promise(Guarantee::PowerFail)),
    };
    let lines = region_lines(&place);
    assert_eq!(lines.len(), 2);
    assert!(
        lines[0].starts_with("/data: clwb on ext4, no MAP_SYNC") && lines[0].contains("is lost with power")
    );
    assert!(lines[1].contains("survives a loss of power"), "{lines:?}");
    (place.by_lines, place.by_msync) = (Err("it is a directory of another".into()), None);
    assert_eq!(region_lines(&place), ["/data: no region: it is a directory of another"]);

    let fit = tierstone_media::region::emulated::delay::DelayFit::through(&[(0.0, 20.0), (100.0, 120.0)]);
    let mut memory = MemoryReport {
        instructions: Vec::new(),
        persistence_domain: None,
        dax_devices: vec![DaxReport {
            path: "/dev/dax0.0".into(),
            bytes: Some(1 << 30),
            promise: Err("busy".into()),
        }],
        emulator: EmulatorReport {
            fit,
            step_ns: 17.0,
            worst_error_ns: 5.0,
            threads: 2,
            threshold_ns: Some(100),
            shares: Vec::new(),
            presets: tierstone_media::probe::emulator::presets(Some(100)),
            waits: tierstone_media::probe::emulator::waits(|ns| ns.max(40.0)),
        },
    };
    let text = memory_lines(&memory).join("\n");
    for words in [
        "none; regions use msync",
        "the kernel names no persistent memory",
        "/dev/dax0.0, 1 GiB: no region: busy",
        "20.0 ns are subtracted",
        "(measured, 2 threads): kept from transfers of 100 ns on: 0.64 GB/s in lines of 64 B, 2.56 GB/s",
        "not kept here: dcpmm reading (6.4 ns for 256 B; kept only by calls of 4 KiB and more), dcpmm writing (25.6 ns",
        "from 100 ns on (medians)",
        "longer here: stt-mram a line at random (10 ns take 40 ns), ",
    ] {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }
    memory.emulator.threshold_ns = None;
    memory.emulator.presets = tierstone_media::probe::emulator::presets(None);
    let text = memory_lines(&memory).join("\n");
    assert!(text.contains("not kept by any") && text.contains("kept by no call"), "{text}");
    memory.emulator.presets = tierstone_media::probe::emulator::presets(Some(1));
    memory.emulator.waits.retain(|wait| wait.is_kept);
    let text = memory_lines(&memory).join("\n");
    assert!(text.contains("bandwidth of presets: all is kept here"), "{text}");
    assert!(text.contains("waits of presets: all are kept here"), "{text}");
}

#[test]
fn regions_are_named_as_stores_name_them() {
    let places = ["nvm:/mnt/pmem0/store", "/srv", "nvm:emulated:1GiB", "./nvm:odd"].map(PathBuf::from);
    let (regions, directories) = named_regions(&places);
    assert_eq!(regions, ["/mnt/pmem0/store", "emulated:1GiB"]);
    assert_eq!(directories, [PathBuf::from("/srv"), "./nvm:odd".into()]);
}
