use super::{Arrivals, Extent, Pacing, Schedule};

fn schedule(arrivals: Arrivals, rate: f64, threads: usize, thread: usize) -> Schedule {
    Pacing { rate: Some(rate), arrivals, threads, ..Pacing::default() }.schedule(thread, 1_000).unwrap()
}

fn times(mut schedule: Schedule, count: usize) -> Vec<u64> {
    (0..count)
        .map(|_| {
            let time = schedule.intended_us();
            schedule.advance();
            time
        })
        .collect()
}

#[test]
fn constant_arrivals_do_not_drift() {
    // A rate whose distance is no whole number of nanoseconds.
    let times = times(schedule(Arrivals::Constant, 3e5, 1, 0), 3_000_001);
    assert_eq!(times[0], 1_000);
    assert_eq!(times[3_000_000], 10_001_000);
    assert!(times.windows(2).all(|pair| (3..=4).contains(&(pair[1] - pair[0]))));
}

#[test]
fn the_threads_of_a_constant_rate_interleave() {
    let (first, second) = (schedule(Arrivals::Constant, 1e4, 2, 0), schedule(Arrivals::Constant, 1e4, 2, 1));
    assert_eq!(times(first, 3), [1_000, 1_200, 1_400]);
    assert_eq!(times(second, 3), [1_100, 1_300, 1_500]);
}

#[test]
fn poisson_arrivals_keep_the_rate_and_are_exponential() {
    for threads in [1, 3] {
        let count = 400_000;
        // So low that microseconds are fine against the distances.
        let rate = 100.0;
        let times = times(schedule(Arrivals::Poisson, rate, threads, threads - 1), count);
        let gap = 1e6 * threads as f64 / rate;
        let mean = (times[count - 1] - times[0]) as f64 / (count - 1) as f64;
        assert!((mean / gap - 1.0).abs() < 0.01, "{threads} threads: {mean} for {gap}");
        let mut cells = [0f64; 10];
        for pair in times.windows(2) {
            let below = 1.0 - (-((pair[1] - pair[0]) as f64) / gap).exp();
            cells[((below * 10.0) as usize).min(9)] += 1.0;
        }
        let expected = (count - 1) as f64 / 10.0;
        let chi_square: f64 = cells.iter().map(|cell| (cell - expected).powi(2) / expected).sum();
        assert!(chi_square < 27.9, "nine degrees of freedom, p = 0.001: {chi_square}");
    }
}

#[test]
fn one_seed_gives_one_schedule_and_threads_differ() {
    let run = |thread| times(schedule(Arrivals::Poisson, 1e4, 2, thread), 50);
    assert_eq!(run(0), run(0));
    assert_ne!(run(0), run(1));
}

#[test]
fn settings_out_of_their_range_are_refused() {
    let good = Pacing::default();
    assert!(good.validate().is_ok());
    assert!(good.schedule(0, 0).is_none());
    for bad in [
        Pacing { threads: 0, ..good },
        Pacing { pipeline: 0, ..good },
        Pacing { rate: Some(0.0), ..good },
        Pacing { rate: Some(f64::NAN), ..good },
        Pacing { rate: Some(f64::INFINITY), ..good },
        Pacing { warmup_seconds: -1.0, ..good },
        Pacing { timeout_seconds: 0.0, ..good },
        Pacing { extent: Extent::Seconds(f64::NAN), ..good },
    ] {
        assert!(bad.validate().is_err(), "{bad:?}");
    }
}
