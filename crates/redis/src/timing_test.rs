use super::*;
use tierstone_base::CountingClock;
use tierstone_engine::Durability;

const NOW: Now = Now { monotonic_us: 5, wall_ms: 0 };

/// With a clock of which each reading takes a microsecond.
fn timing(slower_than_us: &str) -> Timing {
    let mut settings = Settings::new(1, 1 << 20, Durability::default());
    settings.set(SLOWER_THAN, slower_than_us);
    let mut timing = Timing::default();
    // Only the list of slow commands wants to know.
    settings.set(crate::latency::TRACKING, "no");
    let mut latencies = Latencies::default();
    latencies.follow(&settings);
    timing.follow(&settings, &latencies);
    timing.set_clock(Box::new(CountingClock::new(1_000)));
    timing
}

#[test]
fn nothing_is_read_where_nothing_is_slow() {
    let mut timing = timing("-1");
    timing.offered(false);
    assert_eq!((timing.begin_quick(NOW), timing.begin(NOW)), (None, None));
    assert!(!timing.is_slow(u64::MAX));
    assert_eq!(timing.read(NOW), 1_000, "the first reading");
}

#[test]
fn a_command_that_follows_another_begins_where_that_ended() {
    let mut timing = timing("10000");
    timing.offered(false);
    assert_eq!(timing.begin_quick(NOW), Some(1_000));
    assert_eq!(timing.begin(NOW), Some(1_000), "it was no quick one: the reading is its own");
    assert_eq!(timing.end(NOW, 1_000), 1_000);
    timing.offered(true);
    assert_eq!(timing.begin_quick(NOW), None, "one that follows is not worth a reading");
    assert_eq!(timing.begin(NOW), Some(2_000));
    assert_eq!(timing.end(NOW, 2_000), 1_000);
    timing.offered(true);
    assert_eq!(timing.begin_quick(NOW), None);
    timing.pass(true);
    timing.offered(true);
    assert_eq!(timing.begin(NOW), Some(4_000), "what was not timed is not a part of the next");
    let (fast, slow) =
        (&crate::table::lookup(b"incr").unwrap().command, &crate::table::lookup(b"del").unwrap().command);
    let (short, long) = (Args::Slices(&[&b"x"[..]; 4]), Args::Slices(&[&b"x"[..]; 5]));
    timing.offered(true);
    assert_eq!(timing.begin_request(NOW, fast, short), None, "not timed");
    assert_eq!(timing.begin_wait(NOW), Some(5_000), "unless it waits");
    assert_eq!(timing.begin_request(NOW, fast, long), Some(6_000));
    assert_eq!(timing.begin_request(NOW, slow, short), Some(7_000));
    timing.offered(false);
    assert_eq!(timing.begin_request(NOW, fast, short), Some(8_000), "the first of a pipeline is timed");
    timing.end(NOW, 8_000);
    assert_eq!(timing.begin(NOW), Some(10_000), "time has passed before the next pipeline");
}

#[test]
fn the_time_of_a_stretch_is_divided_among_its_commands() {
    let mut timing = timing("10000");
    let incr = crate::table::lookup(b"incr").unwrap().command;
    timing.offered(false);
    let began_ns = timing.begin_quick(NOW).unwrap();
    let took_ns = timing.end(NOW, began_ns);
    timing.add(crate::table::command(quick_index(true)), took_ns);
    for is_get in [true, true, false] {
        timing.offered(true);
        assert_eq!(timing.begin_quick(NOW), None);
        timing.pass(is_get);
    }
    timing.offered(true);
    assert_eq!(timing.begin_request(NOW, incr, Args::Slices(&[b"incr", b"k"])), None);
    timing.end_pipeline(NOW);
    let of = |timing: &Timing, place: usize| timing.times().of(place);
    // One microsecond by itself, and one for four.
    assert_eq!(of(&timing, quick_index(true)), 1_000 + 2 * 250);
    assert_eq!((of(&timing, quick_index(false)), of(&timing, place_of(incr))), (250, 250));
    timing.end_pipeline(NOW);
    assert_eq!(timing.read(NOW), 4_000, "nothing is read for nothing");
    // One that goes to another shard at once begins the stretch.
    timing.offered(false);
    assert_eq!(timing.begin_quick(NOW), Some(5_000));
    timing.pass_on(false);
    timing.end_pipeline(NOW);
    assert_eq!(of(&timing, quick_index(false)), 1_250);
    // Without a pipeline nothing more is read for it.
    timing.offered(false);
    assert_eq!(timing.begin_quick(NOW), Some(7_000));
    timing.pass_on(false);
    timing.offered(false);
    assert_eq!(timing.begin_quick(NOW), Some(8_000));
    timing.forget_times();
    assert_eq!(of(&timing, quick_index(false)), 0);
}

#[test]
fn low_limits_time_every_command() {
    let mut timing = timing("999");
    timing.offered(true);
    assert_eq!(timing.begin_quick(NOW), Some(1_000));
    assert!(timing.is_slow(999) && !timing.is_slow(998));
    let mut timing = super::timing_test::timing("1000");
    timing.offered(true);
    assert_eq!(timing.begin_quick(NOW), None);
}
