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
fn the_report_holds_its_own_numbers() {
    let report = examine_emulator();
    assert_eq!(report.shares.len(), TRIED_NS.len());
    assert_eq!(report.threshold_ns, threshold(&report.shares));
    assert!(report.threads >= 1 && report.step_ns > 0.0 && report.worst_error_ns.is_finite(), "{report:?}");
    if let Some(ns) = report.threshold_ns {
        assert_eq!(report.bandwidth_kept(64), Some(64.0 * 1e9 / ns as f64));
    }
}
