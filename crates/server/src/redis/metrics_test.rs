use super::*;

#[test]
fn metrics_name_every_stage_and_count_cumulatively() {
    let numbers = NewestNumbers::new(4);
    let mut board = MetricsBoard::new(numbers.clone(), Arc::new(AtomicBool::new(true)));
    let mut snapshot = ShardSnapshot { shard: 3, is_healthy: true, ..ShardSnapshot::default() };
    snapshot.stages.gate.record_us(150);
    snapshot.stages.gate.record_us(150_000);
    numbers.tell(snapshot);
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

#[test]
fn full_space_is_foreseen_for_all_shards_together() {
    let numbers = NewestNumbers::new(4);
    let mut board = MetricsBoard::new(numbers.clone(), Arc::new(AtomicBool::new(true)));
    let mut full_in = |shard, live, capacity, growth| {
        let mut snapshot = ShardSnapshot { shard, ..ShardSnapshot::default() };
        snapshot.engine.space_live_bytes = live;
        snapshot.engine.space_capacity_bytes = capacity;
        snapshot.engine.space_growth_bytes_per_day = growth;
        numbers.tell(snapshot);
        let Answer::Fine(text) = board.answer(Page::Metrics) else { panic!("metrics are always given") };
        let line = text.lines().find_map(|line| line.strip_prefix("tierstone_space_full_in_seconds "));
        line.unwrap().to_owned()
    };
    assert_eq!(full_in(0, 40, 100, 30), "158400");
    assert_eq!(full_in(1, 30, 0, -20), "216000");
    assert_eq!(full_in(1, 30, 0, -30), "+Inf");
}

/// A clock that a test moves.
#[derive(Clone, Default)]
struct Hand(Arc<std::sync::atomic::AtomicU64>);

impl Clock for Hand {
    fn now(&self) -> tierstone_base::Now {
        let monotonic_us = self.0.load(Ordering::Relaxed);
        tierstone_base::Now { monotonic_us, ..Default::default() }
    }
}

#[test]
fn a_thread_that_does_not_turn_any_more_ends_the_life_of_the_process() {
    let numbers = NewestNumbers::new(4);
    let (hand, beats) = (Hand::default(), vec![Heartbeat::default(), Heartbeat::default()]);
    let mut board = MetricsBoard::new(numbers.clone(), Arc::new(AtomicBool::new(true)))
        .with_liveness(beats.clone(), Box::new(hand.clone()));
    let mut live_after = |us: u64| {
        hand.0.fetch_add(us, Ordering::Relaxed);
        board.answer(Page::Live)
    };
    let fine = Answer::Fine("live\n".into());
    assert_eq!(live_after(10 * HUNG_AFTER_US), fine, "what has not begun to turn is being opened");
    beats.iter().for_each(Heartbeat::beat);
    assert_eq!(live_after(1), fine);
    assert_eq!(live_after(HUNG_AFTER_US - 1), fine, "not long enough");
    beats[0].beat();
    let Answer::Unavailable(why) = live_after(1) else { panic!("the second shard hangs") };
    assert_eq!(why, "shard 1: its thread has not turned for 30 seconds\n");
    beats[1].beat();
    assert_eq!(live_after(1), fine, "it goes on");
    // Nobody asked for a long time: what turned meanwhile lives.
    beats.iter().for_each(Heartbeat::beat);
    assert_eq!(live_after(100 * HUNG_AFTER_US), fine);
}

#[test]
fn the_accounts_of_writing_and_the_process_are_told() {
    let numbers = NewestNumbers::new(4);
    let process = || ProcessNumbers { resident_bytes: 7, user_us: 1_500_000, system_us: 500_000 };
    let mut board = MetricsBoard::new(numbers.clone(), Arc::new(AtomicBool::new(true))).with_process(process);
    let mut snapshot = ShardSnapshot { is_healthy: true, ..ShardSnapshot::default() };
    snapshot.engine.record_bytes_written = 11;
    snapshot.engine.checkpoint_bytes_written = 12;
    snapshot.engine.device.flushes = 13;
    snapshot.engine.snapshots = 14;
    numbers.tell(snapshot);
    let Answer::Fine(text) = board.answer(Page::Metrics) else { panic!("metrics are always given") };
    for line in [
        "tierstone_record_bytes_total{shard=\"0\"} 11",
        "tierstone_checkpoint_bytes_total{shard=\"0\"} 12",
        "tierstone_device_flushes_total{shard=\"0\"} 13",
        "tierstone_snapshots{shard=\"0\"} 14",
        "process_resident_memory_bytes 7",
        "process_cpu_seconds_total 2",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
    }
}

#[test]
fn refusals_errors_and_what_was_lost_are_told() {
    let numbers = NewestNumbers::new(2);
    let mut board = MetricsBoard::new(numbers.clone(), Arc::new(AtomicBool::new(true)))
        .with_process(ProcessNumbers::default);
    let mut text = || match board.answer(Page::Metrics) {
        Answer::Fine(text) => text,
        other => panic!("metrics are always given: {other:?}"),
    };
    assert!(!text().contains("tierstone_redo_log_lost"), "nobody knows before the store is open");
    let transport =
        Transport { refused: 1, over_input_limit: 2, over_output_limit: 3, bytes_received: 4, bytes_sent: 5 };
    let snapshot = ShardSnapshot { transport, errors: 6, denied: [7, 8, 9, 10], ..ShardSnapshot::default() };
    numbers.tell(ShardSnapshot { started_ms: 1_700_000_000_500, ..snapshot.clone() });
    numbers.tell(ShardSnapshot { shard: 1, ..snapshot.clone() });
    let told = text();
    for line in [
        "tierstone_rejected_connections_total{shard=\"0\"} 1",
        "tierstone_input_limit_disconnections_total{shard=\"0\"} 2",
        "tierstone_output_limit_disconnections_total{shard=\"1\"} 3",
        "tierstone_received_bytes_total{shard=\"0\"} 4",
        "tierstone_sent_bytes_total{shard=\"0\"} 5",
        "tierstone_error_replies_total{shard=\"1\"} 6",
        "tierstone_acl_denied_total{shard=\"0\",kind=\"auth\"} 7",
        "tierstone_acl_denied_total{shard=\"1\",kind=\"channel\"} 10",
        "tierstone_redo_log_lost 0",
        concat!("tierstone_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
        "process_start_time_seconds 1700000000.5",
    ] {
        assert!(told.lines().any(|other| other == line), "{line} is not in\n{told}");
    }
    let number = |name: &str| -> u64 {
        told.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap().parse().unwrap()
    };
    assert!((3..=number("process_max_fds")).contains(&number("process_open_fds")), "{told}");
    numbers.tell(ShardSnapshot { shard: 1, is_redo_lost: true, ..snapshot });
    assert!(text().contains("\ntierstone_redo_log_lost 1\n"));
}

#[test]
fn joules_are_told_with_their_label() {
    let numbers = NewestNumbers::new(4);
    let process = || ProcessNumbers { resident_bytes: 7, user_us: 750_000, system_us: 250_000 };
    let clock = Hand::default();
    clock.0.store(10_000_000, Ordering::Relaxed);
    let model = tierstone_energy::presets::named("cloud").unwrap();
    let watch = Arc::new(tierstone_energy::Watch::without_meters(model, 2));
    let mut board = MetricsBoard::new(numbers.clone(), Arc::new(AtomicBool::new(true)))
        .with_process(process)
        .with_energy(watch, Box::new(clock));
    numbers.tell(ShardSnapshot { is_healthy: true, requests: 1_000, ..ShardSnapshot::default() });
    let Answer::Fine(text) = board.answer(Page::Metrics) else { panic!("metrics are always given") };
    for (start, joules) in [
        ("tierstone_energy_joules_total{label=\"modelled\",model=\"cloud\",part=\"idle\"} ", 14.8),
        ("tierstone_energy_joules_total{label=\"modelled\",model=\"cloud\",part=\"cpu\"} ", 2.76),
        ("tierstone_energy_joules_per_request{label=\"modelled\",part=\"active\"} ", 0.00276),
        ("tierstone_energy_joules_per_request{label=\"modelled\",part=\"all\"} ", 0.01756),
    ] {
        let told = text
            .lines()
            .find_map(|line| line.strip_prefix(start))
            .unwrap_or_else(|| panic!("{start}\n{text}"));
        assert!((told.parse::<f64>().unwrap() - joules).abs() < 1e-9, "{start}{told}");
    }
    assert!(!text.contains("measured\""), "nothing was measured:\n{text}");
}

#[test]
fn who_asks_before_all_is_open_is_told_how_far_it_has_come() {
    let numbers = NewestNumbers::new(4);
    let opening = OpeningProgress::default();
    let ready = Arc::new(AtomicBool::new(false));
    let mut board = MetricsBoard::new(numbers.clone(), Arc::clone(&ready)).with_opening(opening.clone());
    assert_eq!(board.answer(Page::Ready), Answer::Unavailable("opening\n".into()));
    let (first, second) = (opening.part(1 << 20), opening.part(3 << 20));
    second.advance(1 << 20);
    drop(first);
    let text = "opening: 50.0 % of 4 MiB read, 1 of 2 shards ready\n";
    assert_eq!(board.answer(Page::Ready), Answer::Unavailable(text.into()));
    let Answer::Fine(text) = board.answer(Page::Metrics) else { panic!("metrics are always given") };
    for line in [
        "tierstone_opening_bytes 2097152",
        "tierstone_opening_total_bytes 4194304",
        "tierstone_opening_shards_ready 1",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
    }
    drop(second);
    ready.store(true, Ordering::Release);
    assert_eq!(board.answer(Page::Ready), Answer::Fine("ready\n".into()));
}

/// However many numbers were told between two looks, the last ones are seen, and a failure at the first look.
#[test]
fn what_is_told_last_is_seen() {
    let numbers = NewestNumbers::new(2);
    let mut board = MetricsBoard::new(numbers.clone(), Arc::new(AtomicBool::new(true)));
    for commands in 0..1_000 {
        for shard in 0..2 {
            numbers.tell(ShardSnapshot { shard, commands, is_healthy: true, ..ShardSnapshot::default() });
        }
    }
    let Answer::Fine(text) = board.answer(Page::Metrics) else { panic!("metrics are always given") };
    for shard in 0..2 {
        let line = format!("tierstone_commands_total{{shard=\"{shard}\"}} 999");
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
    }
    numbers.tell(ShardSnapshot { shard: 1, is_healthy: false, ..ShardSnapshot::default() });
    assert!(matches!(board.answer(Page::Ready), Answer::Unavailable(_)), "the device of shard 1 has failed");
    // What does not change any more stays, and a shard that is not there is not told of.
    numbers.tell(ShardSnapshot { shard: 7, ..ShardSnapshot::default() });
    assert!(matches!(board.answer(Page::Ready), Answer::Unavailable(_)));
}
