use super::*;
use crate::meter::{Fault, FaultKind};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tierstone_base::Now;

/// A clock that the test moves.
#[derive(Clone, Default)]
struct TestClock(Arc<Mutex<u64>>);

impl TestClock {
    fn forward(&self, us: u64) {
        *self.0.lock().unwrap() += us;
    }
}

impl Clock for TestClock {
    fn now(&self) -> Now {
        Now { monotonic_us: *self.0.lock().unwrap(), wall_ms: 0 }
    }
}

type Answer = Result<Option<Reading>, Fault>;

/// Says what it was told to, then `then` for ever; each answer takes `cost_us`.
struct Scripted {
    info: MeterInfo,
    clock: TestClock,
    cost_us: u64,
    answers: VecDeque<Answer>,
    then: Answer,
}

impl Meter for Scripted {
    fn info(&self) -> &MeterInfo {
        &self.info
    }

    fn read(&mut self, _: u64) -> Answer {
        self.clock.forward(self.cost_us);
        self.answers.pop_front().unwrap_or_else(|| self.then.clone())
    }
}

fn scripted(
    clock: &TestClock,
    kind: MeterKind,
    cost_us: u64,
    answers: Vec<Answer>,
    watts: u64,
) -> Box<dyn Meter> {
    let info = MeterInfo {
        name: "scripted".into(),
        kind,
        covers: Covers::System,
        step: 1_000,
        step_source: "test",
        refresh_us: 1_000,
        wraps_at_uj: None,
        power_max_uw: 1_000_000_000,
    };
    let then = Ok(Some(Reading::Power { uw: watts * 1_000_000 }));
    Box::new(Scripted { info, clock: clock.clone(), cost_us, answers: answers.into(), then })
}

/// Steps until `until_us`, moving the clock to what each step asks for.
fn drive(sampler: &mut Sampler, clock: &TestClock, until_us: u64) -> usize {
    let mut samples = 0;
    loop {
        let next_us = sampler.step(clock, &mut |_| samples += 1);
        let now_us = clock.now().monotonic_us;
        if next_us >= until_us {
            clock.forward(until_us.saturating_sub(now_us));
            return samples;
        }
        clock.forward(next_us.saturating_sub(now_us));
    }
}

#[test]
fn meters_are_asked_at_their_interval_and_summed_up() {
    let clock = TestClock::default();
    let meter = scripted(&clock, MeterKind::Rapl, 0, vec![], 5);
    let mut sampler = Sampler::new(vec![meter], SamplerSettings::default(), 0);
    assert_eq!(drive(&mut sampler, &clock, 10_000_000), 100);
    sampler.finish(&clock, &mut |_| {});
    let report = &sampler.reports()[0];
    assert_eq!(report.total.energy.joules(), 50.0);
    assert_eq!((report.total.covered_us, report.gaps.len()), (10_000_000, 0));
    // Half a step of 1 mW for ten seconds.
    assert!((report.quantisation_joules - 0.005).abs() < 1e-12);
    assert_eq!(report.smallest_step_seen, None);
}

#[test]
fn a_slow_meter_is_asked_so_seldom_that_the_overhead_is_bounded() {
    let clock = TestClock::default();
    let meter = scripted(&clock, MeterKind::Rapl, 1_000, vec![], 5);
    let mut sampler = Sampler::new(vec![meter], SamplerSettings::default(), 0);
    drive(&mut sampler, &clock, 100_000_000);
    let report = &sampler.reports()[0];
    // 1 ms each at 0.2 %: twice a second at most.
    assert_eq!(report.interval_us, 500_000);
    assert!(report.spent_us <= 100_000_000 / 500 + 1_000, "{report:?}");
    assert_eq!(report.total.gap_us, 500, "until the first answer");
}

#[test]
fn a_command_runs_for_a_bounded_part_of_the_time_and_holds_nobody_up() {
    let clock = TestClock::default();
    let power = || Ok(Some(Reading::Power { uw: 7_000_000 }));
    let mut answers = Vec::new();
    for _ in 0..3 {
        // Asked for, then under way for some polls.
        answers.extend((0..40).map(|_| Ok(None)));
        answers.push(power());
    }
    let slow = scripted(&clock, MeterKind::Command, 0, answers, 7);
    let quick = scripted(&clock, MeterKind::Rapl, 0, vec![], 5);
    let mut sampler = Sampler::new(vec![slow, quick], SamplerSettings::default(), 0);
    drive(&mut sampler, &clock, 5_900_000);
    let reports = sampler.reports();
    assert_eq!(reports[1].samples, 59);
    // 200 ms each at 10 %: every two seconds.
    assert_eq!(reports[0].interval_us, 2_000_000);
    assert_eq!(reports[0].samples, 3);
}

#[test]
fn a_meter_that_vanishes_is_reported_and_asked_again() {
    let clock = TestClock::default();
    let gone = || Err(Fault::new(FaultKind::Gone, "the file is gone"));
    let power = || Ok(Some(Reading::Power { uw: 5_000_000 }));
    let answers = vec![power(), power(), gone(), gone(), power()];
    let meter = scripted(&clock, MeterKind::Hwmon, 0, answers, 5);
    let mut sampler = Sampler::new(vec![meter], SamplerSettings::default(), 0);
    drive(&mut sampler, &clock, 1_000_000);
    sampler.finish(&clock, &mut |_| {});
    let report = &sampler.reports()[0];
    assert_eq!((report.faults, report.first_fault.as_deref()), (2, Some("the file is gone")));
    assert_eq!(report.gaps.len(), 1);
    assert_eq!((report.gaps[0].from_us, report.gaps[0].to_us), (100_000, 400_000));
    assert_eq!(report.total.gap_us, 300_000);
    assert!((report.total.energy.joules() - 3.5).abs() < 1e-9);
}

#[test]
fn a_command_under_way_at_the_end_is_a_gap_with_its_reason() {
    let clock = TestClock::default();
    let answers = (0..10_000).map(|_| Ok(None)).collect();
    let meter = scripted(&clock, MeterKind::Command, 0, answers, 5);
    let mut sampler = Sampler::new(vec![meter], SamplerSettings::default(), 0);
    drive(&mut sampler, &clock, 2_000_000);
    sampler.finish(&clock, &mut |_| {});
    let report = &sampler.reports()[0];
    assert_eq!((report.samples, report.total.gap_us), (0, 2_000_000));
    assert!(report.gaps[0].why.contains("under way"), "{:?}", report.gaps);
}

#[test]
fn states_have_sharp_borders_and_sum_to_the_total() {
    let clock = TestClock::default();
    let meter = scripted(&clock, MeterKind::Rapl, 0, vec![], 5);
    let mut sampler = Sampler::new(vec![meter], SamplerSettings::default(), 0);
    drive(&mut sampler, &clock, 1_050_000);
    sampler.enter(&clock, 1, &mut |_| {});
    drive(&mut sampler, &clock, 3_000_000);
    sampler.finish(&clock, &mut |_| {});
    let report = &sampler.reports()[0];
    let joules: Vec<f64> = report.states.iter().map(|state| state.energy.joules()).collect();
    assert_eq!(joules, [5.25, 9.75]);
    assert_eq!(report.total.energy.joules(), 15.0);
    // Half a step of 1 mW for the time of each.
    let errors: Vec<f64> = (0..3).map(|state| report.quantisation_joules_of(state)).collect();
    assert_eq!(errors, [0.000_525, 0.000_975, 0.0]);
    assert!((report.quantisation_joules - 0.0015).abs() < 1e-12);
}

#[test]
fn without_meters_there_is_nothing_to_come_again_for() {
    let clock = TestClock::default();
    let mut sampler = Sampler::new(Vec::new(), SamplerSettings::default(), 0);
    assert_eq!(sampler.step(&clock, &mut |_| {}), u64::MAX);
}
