//! Short traces against arithmetic by hand, and what holds of every run.

use super::*;
use crate::mirrors::{Description, SCENARIOS};
use proptest::prelude::*;

fn machine() -> Machine {
    let description = Description::read(&SCENARIOS[0].description()).expect("shipped");
    Machine::of(&description).with_disks(2)
}

fn request(at_s: f64, offset: u64, bytes: u32, is_write: bool) -> Request {
    Request { arrival_ns: (at_s * 1e9) as u64, offset, bytes, is_write }
}

fn close(here: f64, expected: f64) {
    assert!((here - expected).abs() <= expected.abs() * 1e-9 + 1e-6, "{here}, by hand {expected}");
}

/// 4 KiB at 120 MB/s.
const TRANSFER_S: f64 = 4096.0 / 120e6;

#[test]
fn one_read_takes_seek_rotation_and_transfer_and_what_follows_it_only_transfer() {
    let trace = [request(0.0, 8192, 4096, false), request(0.5, 12288, 4096, false)];
    let outcome = simulate(&machine(), &trace, false);
    close(outcome.length_s, 1.0);
    let busy = 0.0055 + 2.0 * TRANSFER_S;
    assert!((outcome.state_s[0] - busy).abs() < 1e-8, "{:?}", outcome.state_s);
    close(outcome.disk_j, outcome.state_s[0] * 13.2 + (2.0 - outcome.state_s[0]) * 7.7);
    assert_eq!(outcome.response.quantile_us(0.25), 35);
    assert!((5533..=5537).contains(&outcome.response.max_us()), "{}", outcome.response.max_us());
    close(outcome.flash_j, 0.0);
}

#[test]
fn a_write_takes_both_disks_and_a_request_over_a_stripes_end_takes_both_pairs() {
    let write = simulate(&machine(), &[request(0.0, 8192, 4096, true)], false);
    assert!((write.state_s[0] - 2.0 * (0.0055 + TRANSFER_S)).abs() < 1e-8);
    let over = [request(0.0, 128 * 1024 - 4096, 8192, true)];
    // The second piece begins a disk's first stripe: the head is taken to stand there.
    let over = simulate(&machine().with_disks(4), &over, false);
    assert!((over.state_s[0] - 2.0 * (0.0055 + 2.0 * TRANSFER_S)).abs() < 1e-8, "{:?}", over.state_s);
}

#[test]
fn a_queue_makes_the_second_of_two_reads_of_one_disk_wait_when_the_other_stands() {
    let mut trace = vec![request(0.0, 8192, 4096, false)];
    trace.push(request(60.0, 1 << 20, 4096, false));
    trace.push(request(60.0, 2 << 20, 4096, false));
    let awake = simulate(&machine(), &trace, false);
    assert!(awake.response.max_us() < 5600, "each has a disk");
    let asleep = simulate(&machine(), &trace, true);
    assert!((11_060..11_080).contains(&asleep.response.max_us()), "{}", asleep.response.max_us());
}

#[test]
fn an_idle_pair_sleeps_after_thirty_epochs_and_a_stop() {
    let trace = [request(0.0, 8192, 4096, false), request(100.0, 8192, 4096, false)];
    let plain = simulate(&machine(), &trace, false);
    let sleeping = simulate(&machine(), &trace, true);
    // Quiet from the first second on: asleep from 30 + 1.5 s to the end at 100 s.
    close(sleeping.state_s[2], 68.5);
    close(plain.disk_j - sleeping.disk_j, 68.5 * (7.7 - 2.5));
    close(sleeping.flash_j, 100.0 * 0.075);
    assert_eq!(sleeping.cycles, (1.0, 1));
}

#[test]
fn a_buffer_above_its_fill_wakes_at_the_end_of_the_epoch_and_is_flushed() {
    let mut trace = vec![request(0.0, 8192, 4096, false)];
    // 10 MiB of buffer; 9.1 MiB written at 40.5 s, in sleep.
    trace.extend((0..73).map(|n| request(40.5, n * 131_072, 131_072, true)));
    trace.push(request(60.0, 0, 4096, false));
    let outcome = simulate(&machine().with_buffer_mib(10.0), &trace, true);
    // Asleep from 31.5 s until the epoch ends at 41 s.
    close(outcome.state_s[2], 9.5);
    assert_eq!(outcome.stalled, 0);
    // One run of 73 stripes is written back: a sped-up position and its transfer.
    let bytes = 73.0 * 131_072.0;
    let flush_s = 0.0055 / 4.75 + bytes / 120e6;
    let writes_s = bytes / 120e6;
    let reads_s = 2.0 * (0.0055 + TRANSFER_S);
    let gap = outcome.state_s[0] - (flush_s + writes_s + reads_s);
    // The first write begins where the head is taken to stand or not, and so does the last read.
    assert!((0.0..=0.0056).contains(&gap.abs()), "{gap}: {:?}", outcome.state_s);
}

#[test]
fn two_busy_epochs_wake_and_sleep_comes_back_after_thirty_quiet_ones() {
    let mut trace = vec![request(0.0, 8192, 4096, false)];
    // 100 random reads a second for two seconds: 0.55 of one disk.
    trace.extend(
        (0u32..200)
            .map(|n| request(50.0 + f64::from(n) / 100.0, u64::from(n * 7919 % 977) << 20, 4096, false)),
    );
    trace.push(request(120.0, 8192, 4096, false));
    let outcome = simulate(&machine(), &trace, true);
    // Asleep 31.5 to 52; turns at 62.9 (nothing to flush); its first whole quiet epoch ends at 64, the
    // thirtieth at 93; stands from 94.5 on. The epoch that ends at 63 is the first in which it is awake.
    let asleep = (52.0 - 31.5) + (120.0 - 93.5);
    assert!((outcome.state_s[2] - asleep).abs() <= 1.0 + 1e-6, "{}, by hand {asleep}", outcome.state_s[2]);
    assert_eq!(outcome.cycles.1, 2);
}

#[test]
fn a_full_buffer_makes_writes_wait_for_the_disk() {
    let mut trace = vec![request(0.0, 8192, 4096, false)];
    trace.extend((0..20).map(|n| request(40.5, n * 131_072, 131_072, true)));
    trace.push(request(60.0, 0, 4096, false));
    let outcome = simulate(&machine().with_buffer_mib(1.0), &trace, true);
    assert_eq!(outcome.stalled, 12);
    assert!(outcome.response.max_us() > 10_900_000);
}

/// Three pairs with 100 MB of hot data each, of which a pair without a cold request for ten seconds sleeps whole.
fn whole_machine() -> Machine {
    let policy = WholePolicy { cold_epochs: 10, host_utilisation: 0.2 };
    let whole = Whole { hot_bytes: 300_000_000, spare_bytes: 200_000_000, policy };
    Machine { whole: Some(whole), ..machine().with_disks(6) }
}

/// A place on pair 1: hot, and cold.
const HOT: u64 = 128 << 10;
const COLD: u64 = (3001 * 128) << 10;

#[test]
fn two_of_three_idle_pairs_copy_their_hot_data_and_stand() {
    let trace = [request(0.0, 8192, 4096, false), request(200.0, 8192, 4096, false)];
    let outcome = simulate(&whole_machine(), &trace, true);
    // Second disks stand from 31.5 s. Ten epochs from the one that ends at 32: rows go out from 41 on, each
    // pair with half the host's time, done at 43; first disks stand from 44.5.
    close(outcome.state_s[2], 2.0 * (200.0 - 31.5) + 2.0 * (200.0 - 44.5));
    // Read from one disk, written to two, twice 100 MB; and the read at the start, which finds the head away.
    let served = 6.0 * 100e6 / 120e6 + 0.0055 + TRANSFER_S;
    assert!((outcome.state_s[0] - served).abs() < 1e-6, "{:?}, by hand {served}", outcome.state_s);
    let whole = outcome.whole.as_ref().expect("may sleep whole");
    assert_eq!((whole.starts, whole.cold_waits), ((1.0, 1), 0));
    close(whole.copied_gib, 200e6 / f64::from(1 << 30));
    let none = simulate(&whole_machine().without_whole(), &trace, true);
    assert!(none.whole.is_none() && outcome.joules() < none.joules());
}

#[test]
fn hot_requests_never_wait_for_a_start_and_a_cold_one_does() {
    let trace = [
        request(0.0, 8192, 4096, false),
        request(100.0, COLD, 4096, false),
        request(100.5, HOT, 4096, false),
        request(101.0, HOT, 4096, true),
        request(200.0, 8192, 4096, false),
    ];
    let outcome = simulate(&whole_machine(), &trace, true);
    let whole = outcome.whole.as_ref().expect("may sleep whole");
    assert!(whole.hot_response.max_us() < 10_000, "{}", whole.hot_response.max_us());
    assert!((10_900_000..10_950_000).contains(&outcome.response.max_us()), "{}", outcome.response.max_us());
    assert_eq!(whole.cold_waits, 1);
    // Its hot data is away still: it stops again without a copy, ten epochs later.
    assert_eq!(whole.starts, (1.5, 2));
    close(whole.copied_gib, 200e6 / f64::from(1 << 30));
}

#[test]
fn what_finds_no_room_on_the_host_does_not_stand() {
    let trace = [request(0.0, 8192, 4096, false), request(200.0, 8192, 4096, false)];
    let mut machine = whole_machine();
    machine.whole.as_mut().expect("set").spare_bytes = 150_000_000;
    let outcome = simulate(&machine, &trace, true);
    assert_eq!(outcome.whole.expect("may sleep whole").starts, (0.5, 1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn times_add_up_and_no_run_saves_more_than_idle_pairs_could(
        steps in prop::collection::vec((0u64..40_000, 0u64..4096, 1u32..64, any::<bool>()), 1..200),
        disks in 1u32..4,
        buffer in 1u32..100,
    ) {
        let mut at_ms = 0;
        let trace: Vec<Request> = steps
            .iter()
            .map(|&(gap_ms, place, blocks, is_write)| {
                at_ms += gap_ms;
                Request { arrival_ns: at_ms * 1_000_000, offset: place << 16, bytes: blocks * 4096, is_write }
            })
            .collect();
        let machine = machine().with_disks(2 * disks).with_buffer_mib(f64::from(buffer));
        let plain = simulate(&machine, &trace, false);
        let sleeping = simulate(&machine, &trace, true);
        let again = simulate(&machine, &trace, true);
        prop_assert_eq!(sleeping.disk_j.to_bits(), again.disk_j.to_bits());
        for outcome in [&plain, &sleeping] {
            let sum: f64 = outcome.state_s.iter().sum();
            prop_assert!((sum - f64::from(2 * disks) * outcome.length_s).abs() < 1e-6 * sum);
            prop_assert!(outcome.state_s.iter().all(|state| *state >= 0.0));
        }
        prop_assert_eq!(plain.state_s[2], 0.0);
        prop_assert!(1.0 - sleeping.joules() / plain.joules() <= machine.idle_bound());
        let policy = WholePolicy { cold_epochs: 5, host_utilisation: 0.2 };
        let whole = Whole { hot_bytes: 64 << 20, spare_bytes: 1 << 30, policy };
        let machine = Machine { whole: Some(whole), ..machine.with_disks(2 * disks + 4) };
        let outcome = simulate(&machine, &trace, true);
        let plain = simulate(&machine, &trace, false);
        let sum: f64 = outcome.state_s.iter().sum();
        prop_assert!((sum - f64::from(2 * disks + 4) * outcome.length_s).abs() < 1e-6 * sum);
        prop_assert!(1.0 - outcome.joules() / plain.joules() <= machine.whole_bound());
    }
}
