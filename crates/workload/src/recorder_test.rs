use super::{Recorder, combine};
use crate::mix::OperationKind;

#[test]
fn the_warm_up_is_not_counted() {
    let mut recorder = Recorder::new(1_000);
    recorder.answered(OperationKind::Get, 999, 1_500);
    recorder.failed(999, b"ERR early");
    recorder.answered(OperationKind::Get, 1_000, 1_001_000);
    let outcome = combine(vec![recorder], None);
    assert_eq!((outcome.operations, outcome.errors), (1, 0));
    assert_eq!(outcome.first_error.as_deref(), Some("ERR early"));
    assert_eq!(outcome.seconds, 1.0);
    assert_eq!(outcome.rate, 1.0);
}

#[test]
fn answers_by_nanoseconds_are_told_apart() {
    let mut recorder = Recorder::new(1);
    recorder.answered_ns(OperationKind::Get, 999, 5_000);
    recorder.answered_ns(OperationKind::Get, 1_000, 1_630);
    recorder.answered_ns(OperationKind::Get, 2_000, 2_310);
    let outcome = combine(vec![recorder], None);
    let histogram = &outcome.kinds[&OperationKind::Get].histogram;
    assert_eq!((histogram.count(), histogram.quantile_ns(0.5), histogram.max_ns()), (2, 310, 630));
    assert_eq!(outcome.latency.max_us, 0, "whole microseconds");
}

#[test]
fn the_longest_gap_counts_only_while_a_reply_is_awaited() {
    let mut recorder = Recorder::new(0);
    recorder.awaits(100);
    recorder.heard(150, false);
    // Nothing is awaited between 150 and 900.
    recorder.awaits(900);
    recorder.heard(910, true);
    recorder.heard(1_000, false);
    assert_eq!(combine(vec![recorder], None).longest_gap_us, 90);
}

#[test]
fn threads_are_put_together_and_the_rate_is_compared() {
    let thread = |latency_us: u64| {
        let mut recorder = Recorder::new(0);
        recorder.answered(OperationKind::Set, 500_000 - latency_us, 500_000);
        recorder.sent_late(10, 15);
        recorder.cpu_starts_at(10.0);
        recorder.cpu_ends_at(14.0);
        recorder
    };
    let outcome = combine(vec![thread(100), thread(300)], Some(5.0));
    assert_eq!(outcome.operations, 2);
    assert_eq!(outcome.rate, 4.0);
    assert!((outcome.rate_error.unwrap() + 0.2).abs() < 1e-9);
    assert_eq!(outcome.kinds[&OperationKind::Set].latency.max_us, 300);
    assert_eq!(outcome.send_delay.unwrap().max_us, 5);
    assert_eq!(outcome.client_cpu_us_per_operation, 4.0);
    let json = serde_json::to_value(&outcome).unwrap();
    assert_eq!(json["kinds"]["set"]["operations"], 2);
    assert_eq!(json["latency"]["p50_us"], 100);
}
