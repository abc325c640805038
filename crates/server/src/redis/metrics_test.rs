use super::*;
use crossbeam_channel::bounded;

#[test]
fn metrics_name_every_stage_and_count_cumulatively() {
    let (sender, receiver) = bounded(2);
    let mut board = MetricsBoard::new(receiver, Arc::new(AtomicBool::new(true)));
    let mut snapshot = ShardSnapshot { shard: 3, is_healthy: true, ..ShardSnapshot::default() };
    snapshot.stages.gate.record_us(150);
    snapshot.stages.gate.record_us(150_000);
    sender.send(snapshot).unwrap();
    let Answer::Fine(text) = board.answer(Page::Metrics) else { panic!("metrics are always given") };
    for line in [
        "tierstone_stage_latency_seconds_bucket{shard=\"3\",stage=\"gate\",le=\"0.0001\"} 0",
        "tierstone_stage_latency_seconds_bucket{shard=\"3\",stage=\"gate\",le=\"0.0002\"} 1",
        "tierstone_stage_latency_seconds_bucket{shard=\"3\",stage=\"gate\",le=\"+Inf\"} 2",
        "tierstone_stage_latency_seconds_sum{shard=\"3\",stage=\"gate\"} 0.15015",
        "tierstone_stage_latency_seconds_count{shard=\"3\",stage=\"queue\"} 0",
        "tierstone_stage_latency_seconds_count{shard=\"3\",stage=\"device_read\"} 0",
        "tierstone_stage_latency_seconds_count{shard=\"3\",stage=\"device_commit\"} 0",
        "tierstone_stage_latency_seconds_count{shard=\"3\",stage=\"socket\"} 0",
        "tierstone_healthy{shard=\"3\"} 1",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
    }
}
