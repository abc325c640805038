use super::*;

fn times_of(p50_us: u64, per_second: f64) -> MethodTimes {
    let rate = |depth| Rate { depth, requests: 100, per_second, p50_us, p99_us: p50_us };
    MethodTimes { depth_1: rate(1), depth_4: rate(4) }
}

#[test]
fn the_flush_must_be_clearly_better_to_win() {
    let chosen = |write, flush| choose(&write, &flush).0;
    let write = times_of(115, 16_900.0);
    assert_eq!(chosen(write, times_of(140, 15_000.0)), DurableMethod::DurableWrite);
    assert_eq!(chosen(write, times_of(115, 17_500.0)), DurableMethod::DurableWrite);
    assert_eq!(chosen(write, times_of(115, 20_000.0)), DurableMethod::WriteThenFlush);
    assert_eq!(chosen(write, times_of(200, 20_000.0)), DurableMethod::DurableWrite);
}

#[test]
fn probing_measures_both_and_leaves_nothing_behind() {
    let directory = std::env::temp_dir().join(format!("tierstone-durable-test-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("the directory is made");
    let report = durable_method(&directory).expect("probing works");
    assert!(report.write_then_flush.depth_1.requests > 0 && report.write_then_flush.depth_4.depth == 4);
    assert!(report.durable_write.is_some() || report.method == DurableMethod::WriteThenFlush);
    assert!(report.flush_slowdown > 0.0);
    let left = std::fs::read_dir(&directory).expect("it lists").count();
    std::fs::remove_dir_all(&directory).expect("the directory goes");
    assert_eq!(left, 0);
    let text = serde_json::to_string(&report).expect("it is plain data");
    assert_eq!(serde_json::from_str::<ProbeReport>(&text).expect("and comes back").method, report.method);
}
