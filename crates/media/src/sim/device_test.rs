//! The rules of `BlockDevice`, kept by the simulation in every order of completion.

use super::*;
use crate::{
    BLOCK_BYTES, BlockDevice, DeviceErrorKind, Geometry, Guarantee, IoBuffer, IoCompletion, IoKind,
    IoRequest, Wait,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use tierstone_crash::{Choices, ExploreSettings, Violation, explore};

const BLOCK: u64 = BLOCK_BYTES as u64;

pub(super) fn geometry() -> Geometry {
    Geometry { meta_bytes: 2 * BLOCK, segment_bytes: 4 * BLOCK, segment_limit: 4 }
}

pub(super) fn filled(fill: u8) -> IoBuffer {
    IoBuffer::from_slice(&[fill; BLOCK_BYTES])
}

/// Submits one request and waits for it.
pub(super) fn run_one(device: &mut SimDevice, request: IoRequest) -> IoCompletion {
    let mut completions = Vec::new();
    device.submit(&mut vec![request]);
    device.complete(Wait::All, &mut completions);
    assert_eq!(completions.len(), 1);
    completions.pop().expect("just counted")
}

pub(super) fn first_byte(device: &mut SimDevice, offset: u64) -> u8 {
    let done = run_one(device, IoRequest::read(0, offset, IoBuffer::zeroed(BLOCK_BYTES)));
    assert_eq!(done.result, Ok(()));
    done.buffer.expect("reads hand their buffer back")[0]
}

fn with_order(order: CompletionOrder) -> SimSettings {
    SimSettings { order, ..SimSettings::new(geometry()) }
}

#[test]
fn what_was_written_is_read_back_and_the_rest_is_zeros() {
    let mut device = SimDevice::plain(geometry());
    let done = run_one(&mut device, IoRequest::write(7, BLOCK, filled(5)));
    assert_eq!((done.token, done.kind, done.offset, done.result), (7, IoKind::Write, BLOCK, Ok(())));
    assert_eq!(done.buffer.expect("handed back")[..], [5; BLOCK_BYTES]);
    assert_eq!((first_byte(&mut device, BLOCK), first_byte(&mut device, 0)), (5, 0));
    assert_eq!((device.guarantee(), device.geometry()), (Guarantee::Emulated, geometry()));
}

#[test]
fn wrong_requests_complete_as_out_of_bounds_with_their_buffers_and_right_ones_of_the_batch_run() {
    let mut device = SimDevice::plain(geometry());
    let end = geometry().end();
    let no_buffer = IoRequest { token: 3, kind: IoKind::Write, offset: 0, buffer: None };
    let discard = |offset, len| IoRequest { token: 4, kind: IoKind::Discard { len }, offset, buffer: None };
    let mut batch = vec![
        IoRequest::write(0, 17, filled(1)),
        IoRequest::write(1, 0, filled(1)),
        IoRequest::read(2, end, filled(9)),
        no_buffer,
        discard(0, BLOCK),
        discard(2 * BLOCK, u64::MAX - 100),
        IoRequest::read(5, u64::MAX - BLOCK + 1, filled(9)),
        discard(2 * BLOCK, 100),
    ];
    device.submit(&mut batch);
    assert!(batch.is_empty());
    assert_eq!(device.in_flight(), 8);
    let mut completions = Vec::new();
    assert_eq!(device.complete(Wait::All, &mut completions), 8);
    for done in &completions {
        let wrong = done.result.as_ref().is_err_and(|error| error.kind == DeviceErrorKind::OutOfBounds);
        assert_eq!(wrong, done.token != 1, "{done:?}");
        assert_eq!(done.buffer.is_some(), [0, 1, 2, 5].contains(&done.token), "{done:?}");
    }
    assert_eq!(device.medium().counters().requests, 1);
    assert_eq!(device.in_flight(), 0);
}

#[test]
fn waiting_for_one_and_for_all_does_that() {
    for order in [CompletionOrder::InOrder, CompletionOrder::Chosen, CompletionOrder::Timed] {
        let medium = SimMedium::new(with_order(order), &Choices::random(4));
        let mut device = medium.device();
        let mut completions = Vec::new();
        assert_eq!(device.complete(Wait::One, &mut completions), 0, "nothing in flight: no waiting");
        device.submit(&mut (0..5).map(|n| IoRequest::write(n, n * BLOCK, filled(1))).collect());
        assert!(device.complete(Wait::One, &mut completions) >= 1);
        device.complete(Wait::All, &mut completions);
        assert_eq!((completions.len(), device.in_flight()), (5, 0));
    }
}

#[test]
fn polling_always_gets_everything_in_the_end() {
    for seed in 0..50 {
        let medium = SimMedium::new(with_order(CompletionOrder::Chosen), &Choices::random(seed));
        let mut device = medium.device();
        device.submit(&mut (0..5).map(|n| IoRequest::write(n, n * BLOCK, filled(1))).collect());
        let (mut completions, mut idle) = (Vec::new(), 0);
        while device.in_flight() > 0 {
            idle = if device.complete(Wait::Poll, &mut completions) == 0 { idle + 1 } else { 0 };
            assert!(idle < 2, "seed {seed}");
        }
        assert_eq!(completions.len(), 5);
    }
}

#[test]
fn every_order_of_completion_is_explored() {
    let mut orders = std::collections::BTreeSet::new();
    let report = explore(ExploreSettings::exhaustive(), |choices| {
        let mut device = SimMedium::new(with_order(CompletionOrder::Chosen), choices).device();
        device.submit(&mut (0..4).map(|n| IoRequest::write(n, 0, filled(n as u8))).collect());
        let mut completions = Vec::new();
        device.complete(Wait::All, &mut completions);
        let order: Vec<u64> = completions.iter().map(|done| done.token).collect();
        assert_eq!(u64::from(first_byte(&mut device, 0)), order[3], "the last to complete is read");
        assert_eq!(device.medium().counters().overlapping_writes, 3);
        orders.insert(order);
        Ok(())
    });
    assert_eq!((report.assert_exhausted().runs, orders.len()), (24, 24));
}

#[test]
fn handles_share_the_bytes_and_keep_their_completions_apart() {
    let mut first = SimDevice::plain(geometry());
    let mut second = first.clone();
    first.submit(&mut vec![IoRequest::write(1, 0, filled(1))]);
    second.submit(&mut vec![IoRequest::write(2, BLOCK, filled(2))]);
    assert_eq!((first.in_flight(), second.in_flight()), (1, 1));
    let mut completions = Vec::new();
    second.complete(Wait::All, &mut completions);
    first.complete(Wait::All, &mut completions);
    assert_eq!(completions.iter().map(|done| done.token).collect::<Vec<_>>(), [2, 1]);
    assert_eq!((first_byte(&mut first, BLOCK), first_byte(&mut second, 0)), (2, 1));
}

#[test]
fn after_the_loss_of_power_every_request_completes_as_lost_with_its_buffer() {
    let mut device = SimDevice::plain(geometry());
    let mut other = device.clone();
    let medium = device.medium().clone();
    device.submit(&mut vec![IoRequest::write(1, 0, filled(1)), IoRequest::flush(2)]);
    other.submit(&mut vec![IoRequest::read(3, 0, filled(9))]);
    medium.cut_power();
    device.submit(&mut vec![IoRequest::write(4, 0, filled(1))]);
    let mut completions = Vec::new();
    assert_eq!(device.complete(Wait::One, &mut completions), 3);
    let mut fresh = medium.power_on_after_loss();
    assert_eq!(other.complete(Wait::Poll, &mut completions), 1, "also when power is back already");
    for done in &completions {
        assert!(done.result.as_ref().is_err_and(|error| error.kind == DeviceErrorKind::PowerLost));
        assert_eq!(done.buffer.is_some(), done.token != 2);
    }
    assert!(device.is_dead() && other.clone().is_dead() && !fresh.is_dead());
    run_one(&mut device, IoRequest::write_durable(5, 0, filled(8)));
    assert_eq!(first_byte(&mut fresh, 0), 0, "a dead handle does not reach the medium");
}

#[test]
fn a_dropped_handle_leaves_its_writes_in_flight_and_nothing_behind() {
    let mut seen = Vec::new();
    explore(ExploreSettings::exhaustive(), |choices| {
        let settings = SimSettings { sector_bytes: BLOCK_BYTES, ..SimSettings::new(geometry()) };
        let medium = SimMedium::new(settings, choices);
        medium.device().submit(&mut vec![IoRequest::write(0, 0, filled(1))]);
        assert_eq!(medium.peek(0, 1), [0], "it never completes");
        let mut device = medium.power_on_after_loss();
        seen.push(first_byte(&mut device, 0));
        assert_eq!(medium.next_completion_at(), None);
        Ok(())
    })
    .assert_exhausted();
    assert_eq!(seen, [0, 1]);
}

#[test]
fn time_runs_by_latency_and_bandwidth() {
    let latency =
        Latency { write_us: 10, flush_us: 100, bytes_per_second: 4096 * 1_000_000, ..Latency::default() };
    let settings = SimSettings { latency, ..with_order(CompletionOrder::Timed) };
    let medium = SimMedium::new(settings, &Choices::quiet());
    let mut device = medium.device();
    let write = |token| IoRequest::write(token, token * BLOCK, filled(1));
    device.submit(&mut vec![IoRequest::flush(9), write(0), write(1)]);
    assert_eq!(medium.next_completion_at(), Some(11));
    let mut completions = Vec::new();
    assert_eq!(device.complete(Wait::Poll, &mut completions), 0, "nothing is due");
    medium.advance_to(11);
    assert_eq!(device.complete(Wait::Poll, &mut completions), 1);
    assert_eq!((device.complete(Wait::One, &mut completions), medium.now_us()), (1, 12));
    assert_eq!((device.complete(Wait::All, &mut completions), medium.now_us()), (1, 100));
    assert_eq!(completions.iter().map(|done| done.token).collect::<Vec<_>>(), [0, 1, 9]);
    medium.set_latency(Latency { write_us: 5000, ..latency });
    device.submit(&mut vec![write(0)]);
    assert_eq!(medium.next_completion_at(), Some(5101), "a device that became slow");
}

#[test]
fn space_is_taken_by_segments_and_given_back_when_all_of_one_is_discarded() {
    let mut device = SimDevice::plain(geometry());
    let medium = device.medium().clone();
    medium.set_capacity_segments(2);
    let at = |segment| geometry().segment_offset(segment);
    let range = |kind, segment| IoRequest { token: 0, kind, offset: at(segment), buffer: None };
    let (all, part) = (IoKind::Discard { len: 4 * BLOCK }, IoKind::Discard { len: 3 * BLOCK });
    let full = |done: IoCompletion| done.result.is_err_and(|error| error.kind == DeviceErrorKind::Full);
    assert!(!full(run_one(&mut device, IoRequest::write(0, 0, filled(1)))), "superblocks are always there");
    assert!(!full(run_one(&mut device, range(IoKind::Prepare { len: 4 * BLOCK }, 0))));
    assert!(!full(run_one(&mut device, IoRequest::write(0, at(1), filled(1)))));
    assert!(full(run_one(&mut device, IoRequest::write(0, at(2), filled(1)))));
    assert!(full(run_one(&mut device, range(IoKind::Prepare { len: 4 * BLOCK }, 3))));
    assert_eq!(medium.peek(at(2), 1), [0]);
    run_one(&mut device, range(part, 1));
    assert!(full(run_one(&mut device, IoRequest::write(0, at(2), filled(1)))), "part of it is not enough");
    run_one(&mut device, range(all, 1));
    assert_eq!(medium.taken_segments(), 1);
    assert!(!full(run_one(&mut device, IoRequest::write(0, at(2), filled(1)))));
    assert_eq!(first_byte(&mut device, at(1)), 0);
}

#[test]
fn a_stale_range_reads_as_zeros_or_as_it_was() {
    let mut seen = Vec::new();
    explore(ExploreSettings::exhaustive(), |choices| {
        let settings = SimSettings { stale_range: StaleRange::Chosen, ..SimSettings::new(geometry()) };
        let mut device = SimMedium::new(settings, choices).device();
        let at = geometry().segment_offset(0);
        let prepare =
            || IoRequest { token: 0, kind: IoKind::Prepare { len: 4 * BLOCK }, offset: at, buffer: None };
        run_one(&mut device, prepare());
        assert_eq!(first_byte(&mut device, at), 0, "an empty range has nothing to keep");
        run_one(&mut device, IoRequest::write(0, at, filled(1)));
        run_one(&mut device, prepare());
        seen.push(first_byte(&mut device, at));
        Ok(())
    })
    .assert_exhausted();
    assert_eq!(seen, [0, 1]);
}

#[test]
fn the_counters_count() {
    let mut device = SimDevice::plain(geometry());
    run_one(&mut device, IoRequest::write(0, 0, filled(1)));
    run_one(&mut device, IoRequest::write_durable(0, 0, filled(1)));
    run_one(&mut device, IoRequest::flush(0));
    first_byte(&mut device, 0);
    let counters = device.medium().counters();
    let expected = Counters {
        events: 8,
        submissions: 4,
        requests: 4,
        completions: 4,
        reads: 1,
        writes: 2,
        durable_writes: 1,
        flushes: 1,
        bytes_read: BLOCK,
        bytes_written: 2 * BLOCK,
        ..Counters::default()
    };
    assert_eq!(counters, expected);
}

/// A random history: writes, reads, flushes, cuts, with random waits. Returns the trace.
fn random_history(seed: u64) -> (String, u64) {
    let choices = Choices::random(seed);
    let power_cut = PowerCut::Anywhere { points: CutPoints::Every, one_in: 40 };
    let latency = Latency { jitter_us: 50, ..Latency::default() };
    let settings = SimSettings { power_cut, cut_limit: 5, latency, ..SimSettings::exploring(geometry()) };
    let medium = SimMedium::new(settings, &choices);
    medium.inject(
        Fault::new(FaultTarget::Write, FaultEffect::Fail).when(FaultWhen::Chosen { one_in: 20, limit: 9 }),
    );
    let (mut device, mut completions, mut sent) = (medium.device(), Vec::new(), 0);
    for token in 0..200 {
        let offset = choices.choose(18, "block") * BLOCK;
        let request = match choices.choose(4, "kind") {
            0 => IoRequest::read(token, offset, filled(0)),
            1 => IoRequest::write(token, offset, filled(token as u8)),
            2 => IoRequest::write_durable(token, offset, filled(token as u8)),
            _ => IoRequest::flush(token),
        };
        sent += 1;
        device.submit(&mut vec![request]);
        let wait = [Wait::Poll, Wait::One, Wait::All][choices.choose(3, "wait") as usize];
        device.complete(wait, &mut completions);
        if medium.power_is_off() {
            device.complete(Wait::All, &mut completions);
            device = medium.power_on_after_loss();
        }
    }
    device.complete(Wait::All, &mut completions);
    let mut tokens: Vec<u64> = completions.iter().map(|done| done.token).collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (0..sent).collect::<Vec<_>>(), "seed {seed}: each request completes exactly once");
    (medium.trace(), medium.trace_digest())
}

#[test]
fn one_seed_gives_one_trace_and_every_request_completes_once() {
    for seed in 0..40 {
        assert_eq!(random_history(seed), random_history(seed), "seed {seed}");
    }
    assert_ne!(random_history(1), random_history(2));
    assert!(random_history(0).0.lines().count() > 200);
}

proptest! {
    /// Without cuts and faults the device is a flat array.
    #[test]
    fn the_device_reads_like_an_array(
        steps in prop::collection::vec((0u64..18, 1u64..4, any::<u8>(), any::<bool>()), 1..40),
    ) {
        let mut device = SimDevice::plain(geometry());
        let mut array = BTreeMap::new();
        for (block, blocks, fill, durable) in steps {
            let blocks = blocks.min(18 - block);
            let buffer = IoBuffer::from_slice(&vec![fill; blocks as usize * BLOCK_BYTES]);
            let kind = if durable { IoKind::WriteDurable } else { IoKind::Write };
            run_one(&mut device, IoRequest { token: 0, kind, offset: block * BLOCK, buffer: Some(buffer) });
            (block..block + blocks).for_each(|block| _ = array.insert(block, fill));
        }
        for block in 0..18 {
            let expected = array.get(&block).copied().unwrap_or(0);
            prop_assert_eq!(first_byte(&mut device, block * BLOCK), expected);
        }
    }
}

#[test]
fn a_life_without_events_is_explored_once() {
    let report = explore(ExploreSettings::exhaustive(), |choices| {
        let medium = SimMedium::new(SimSettings::exploring(geometry()), choices);
        medium.run_lives(|_, _| Ok::<(), Violation>(()))
    });
    assert_eq!(report.assert_exhausted().runs, 1);
}

/// A medium for the suite that every back-end passes; reopening loses power or ends the process.
struct Conforming {
    medium: SimMedium,
    loses_power: bool,
}

/// The driver's part under `CompletionOrder::Timed`: time goes on while the caller polls.
struct TimeGoesOn(SimDevice);

impl BlockDevice for TimeGoesOn {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn guarantee(&self) -> Guarantee {
        self.0.guarantee()
    }

    fn durable_write_scope(&self) -> crate::DurableWriteScope {
        self.0.durable_write_scope()
    }

    fn submit(&mut self, requests: &mut Vec<IoRequest>) {
        self.0.submit(requests);
    }

    fn complete(&mut self, wait: Wait, completions: &mut Vec<IoCompletion>) -> usize {
        let medium = self.0.medium();
        medium.advance_to(medium.now_us() + 1);
        self.0.complete(wait, completions)
    }

    fn in_flight(&self) -> usize {
        self.0.in_flight()
    }
}

impl crate::conformance::ConformanceMedium for Conforming {
    type Device = TimeGoesOn;

    fn device(&mut self) -> TimeGoesOn {
        TimeGoesOn(self.medium.device())
    }

    fn reopen(&mut self) {
        if self.loses_power {
            self.medium.power_on_after_loss();
        } else {
            self.medium.kill_process();
        }
    }
}

#[test]
fn the_simulation_passes_the_suite_of_all_devices_in_every_order_of_completion() {
    let geometry = Geometry { meta_bytes: 4 * BLOCK, segment_bytes: 64 * 1024, segment_limit: 4 };
    for order in [CompletionOrder::InOrder, CompletionOrder::Chosen, CompletionOrder::Timed] {
        for loses_power in [true, false] {
            crate::conformance::run(|name| {
                let settings =
                    SimSettings { order, power_cut: PowerCut::Never, ..SimSettings::exploring(geometry) };
                let medium = SimMedium::new(settings, &Choices::random(name.len() as u64));
                Conforming { medium, loses_power }
            });
        }
    }
}
