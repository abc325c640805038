//! Reservations against a plain queue, alone and from several threads; rules broken one by one.

use super::*;
use tierstone_base::SeededRandom;

/// 1 GB/s with a tick a nanosecond: a byte takes a tick.
fn channel() -> Bandwidth {
    Bandwidth::new(1e9, 1.0, 1_000)
}

/// Random transfers at rising times; whether every end is that of a queue served in order.
fn is_a_queue(channel: &Bandwidth, seed: u64) -> bool {
    let mut random = SeededRandom::new(seed);
    let (mut now, mut free) = (1_000, 1_000);
    (0..2_000).all(|_| {
        now += random.below(300);
        let bytes = random.below(300);
        free = free.max(now) + bytes;
        channel.reserve(now, bytes) == free
    })
}

#[test]
fn transfers_are_served_one_after_the_other_and_idle_time_is_lost() {
    for seed in 0..20 {
        assert!(is_a_queue(&channel(), seed), "seed {seed}");
    }
}

#[test]
fn each_rule_of_the_channel_is_seen_broken() {
    for rule in ["transfers wait for each other", "idle time is not saved up"] {
        assert!(!is_a_queue(&channel().with_mutations(Mutations::one(rule)), 1), "'{rule}' was not caught");
    }
}

#[test]
fn no_reservation_of_any_thread_is_lost() {
    let channel = channel();
    let ends: Vec<u64> = std::thread::scope(|scope| {
        let started: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| (0..5_000).map(|_| channel.reserve(1_000, 64)).collect::<Vec<u64>>()))
            .collect();
        started.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let mut sorted = ends;
    sorted.sort_unstable();
    // Every transfer has a time of its own: 20,000 of them fill the channel without a gap.
    assert!(sorted.iter().zip(1..).all(|(&end, number)| end == 1_000 + 64 * number));
}

#[test]
fn parts_of_ticks_add_up_to_the_bandwidth() {
    // 40 GB/s at 2.6 ticks a nanosecond: a line takes 4.16 ticks.
    let channel = Bandwidth::new(40e9, 2.6, 0);
    let last = (0..100_000).map(|_| channel.reserve(0, 64)).last().unwrap();
    let asked = 64.0 * 100_000.0 / 40e9 * 2.6e9;
    assert!((last as f64 / asked - 1.0).abs() < 0.01, "{last} ticks, {asked:.0} asked");
}
