//! Processor time is shared out without a remainder.

use super::*;
use tierstone_base::CountingClock;

fn fetched(token: Token) -> Event {
    Event::Fetched { token, result: Ok(()), cost: Cost::default() }
}

fn cpu(events: &mut [Event]) -> Vec<u64> {
    events.iter_mut().map(|event| event.cost_mut().1.cpu_ns).collect()
}

#[test]
fn without_a_clock_nothing_is_counted() {
    let mut meter = Meter::default();
    let since = meter.read();
    meter.asked(since, [1, 2].into_iter());
    assert_eq!(meter.call(since, true), 0);
    let mut events = [fetched(1)];
    meter.step([0; 3], &mut events);
    assert_eq!((cpu(&mut events), meter.total_ns(), meter.background_ns()), (vec![0], 0, 0));
}

#[test]
fn parts_are_equal_and_add_up() {
    let mut meter = Meter::default();
    meter.set_clock(Box::new(CountingClock::new(1)));
    let since = meter.read();
    (0..4).for_each(|_| assert!(meter.read() > 0));
    // Five nanoseconds among three.
    meter.asked(since, [1, 2, 3].into_iter());
    let readings = [meter.read(), meter.read(), meter.read()];
    (0..4).for_each(|_| assert!(meter.read() > 0));
    // One before the background's one and five behind it, among two.
    let mut events = [fetched(3), fetched(1)];
    meter.step(readings, &mut events);
    assert_eq!((cpu(&mut events), meter.total_ns(), meter.background_ns()), (vec![1 + 3, 2 + 3], 12, 1));
    meter.forget(2);
    assert_eq!(meter.background_ns(), 1 + 2);
}

#[test]
fn a_step_without_answers_and_a_refused_call_are_background() {
    let mut meter = Meter::default();
    meter.set_clock(Box::new(CountingClock::new(1)));
    let readings = [meter.read(), meter.read(), meter.read()];
    meter.step(readings, &mut []);
    assert_eq!((meter.total_ns(), meter.background_ns()), (3, 3));
    let since = meter.read();
    assert_eq!(meter.call(since, false), 1);
    assert_eq!((meter.total_ns(), meter.background_ns()), (4, 4));
    let since = meter.read();
    assert_eq!(meter.call(since, true), 1);
    assert_eq!((meter.total_ns(), meter.background_ns()), (5, 4));
}
