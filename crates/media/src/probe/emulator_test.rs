//! What is said of the emulator follows from what was measured.

use super::*;

fn shares(list: &[(u64, f64)]) -> Vec<ReservationShare> {
    list.iter().map(|&(reserved_ns, share)| ReservationShare { reserved_ns, share }).collect()
}

#[test]
fn the_threshold_is_the_shortest_reservation_that_is_kept() {
    assert_eq!(threshold(&shares(&[(500, 1.0), (120, 0.99), (60, 0.7)])), Some(120));
    let disturbed = shares(&[(500, 1.0), (120, 0.5), (60, 1.0)]);
    assert_eq!(threshold(&disturbed), Some(60), "the one of 120 was disturbed");
    assert_eq!(threshold(&shares(&[(500, 0.98)])), None);
    assert_eq!(threshold(&[]), None);
}

#[test]
fn threads_never_reserve_more_than_the_time_that_passes() {
    let clock = DelayLoop::of_machine();
    for threads in [1, 2, 4] {
        // Where the machine never let all threads run at once the share is 0.
        let share = reserved_share(threads, 200);
        // At the end each thread may have one reservation that the window only saw begin.
        let edge = (threads as f64 * 200.0 + clock.fit().offset_ns.max(0.0)) / WINDOW_NS;
        assert!(share >= 0.0 && share <= 1.0 + edge + 1e-3, "{threads} threads: {share}");
    }
}

#[test]
fn presets_are_kept_where_a_granule_reserves_no_less_than_the_threshold() {
    let of = |threshold_ns| {
        let found = presets(threshold_ns);
        let row = |preset: &PresetBandwidth| {
            (preset.preset, preset.direction, preset.is_kept, preset.kept_from_bytes)
        };
        found.iter().map(row).collect::<Vec<_>>()
    };
    // 256 bytes take 6.4 and 25.6 ns, 64 bytes at 1.5 GB/s take 42.7 ns.
    let at_140 = [
        ("dcpmm", "reading", false, Some(22 * 256)),
        ("dcpmm", "writing", false, Some(6 * 256)),
        ("mlc-pcm", "writing", false, Some(4 * 64)),
    ];
    assert_eq!(of(Some(140)), at_140);
    let at_25 = [
        ("dcpmm", "reading", false, Some(4 * 256)),
        ("dcpmm", "writing", true, Some(256)),
        ("mlc-pcm", "writing", true, Some(64)),
    ];
    assert_eq!(of(Some(25)), at_25);
    assert!(of(None).iter().all(|(_, _, is_kept, from)| !is_kept && from.is_none()));
}

#[test]
fn waits_that_are_shorter_than_the_loop_can_are_told() {
    let missed = |least_ns: f64| -> Vec<(&str, &str)> {
        let waits = waits(|ns| ns.max(least_ns));
        waits.iter().filter(|wait| !wait.is_kept).map(|wait| (wait.preset, wait.what)).collect()
    };
    assert_eq!(missed(1.0), []);
    let at_40 = missed(40.0);
    assert!(at_40.contains(&("stt-mram", "a line at random")), "{at_40:?}");
    assert!(at_40.contains(&("reram", "a line at random")), "{at_40:?}");
    assert!(!at_40.iter().any(|(preset, _)| *preset == "mlc-pcm" || *preset == "dcpmm"), "{at_40:?}");
}

#[test]
fn the_report_holds_its_own_numbers() {
    let report = examine_emulator();
    assert_eq!(report.shares.len(), TRIED_NS.len());
    assert_eq!(report.threshold_ns, threshold(&report.shares));
    assert_eq!(report.presets, presets(report.threshold_ns));
    assert!(report.threads >= 1 && report.step_ns > 0.0 && report.worst_error_ns.is_finite(), "{report:?}");
    if let Some(ns) = report.threshold_ns {
        assert_eq!(report.bandwidth_kept(64), Some(64.0 * 1e9 / ns as f64));
    }
}
