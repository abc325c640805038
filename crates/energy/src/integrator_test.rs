use super::*;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000;

fn settings() -> IntegratorSettings {
    IntegratorSettings {
        gap_after_us: 3 * SECOND,
        wraps_at_uj: Some(1_000_000_000),
        power_max_uw: 100_000_000,
    }
}

fn power(watts: f64) -> Reading {
    Reading::Power { uw: (watts * 1e6) as u64 }
}

fn counter(uj: u64) -> Reading {
    Reading::Counter { uj }
}

/// Everything that passed is covered or a gap, in all states together.
fn passed(integrator: &Integrator) -> u64 {
    integrator.total().covered_us + integrator.total().gap_us
}

#[test]
fn constant_power_and_a_ramp_have_their_closed_forms() {
    let mut flat = Integrator::new(settings(), 0);
    let mut ramp = Integrator::new(settings(), 0);
    for second in 0..=10 {
        flat.take(second * SECOND, power(5.0));
        // p = 2 t: the integral over ten seconds is 100 J, exactly by trapezoids.
        ramp.take(second * SECOND, power(2.0 * second as f64));
    }
    assert_eq!(flat.total().energy.joules(), 50.0);
    assert_eq!(ramp.total().energy.joules(), 100.0);
    assert_eq!(ramp.extremes_uw(), Some((0, 20_000_000)));
    assert_eq!(flat.total().gap_us, 0);
}

#[test]
fn a_parabola_is_off_by_the_known_error_of_trapezoids() {
    // p = t^2 from 0 to 6 s at one answer a second: 72 J exactly, and h^2 (b - a) f'' / 12 = 1 J more by trapezoids.
    let mut integrator = Integrator::new(settings(), 0);
    for second in 0..=6u64 {
        integrator.take(second * SECOND, power((second * second) as f64));
    }
    assert_eq!(integrator.total().energy.joules(), 73.0);
}

#[test]
fn a_counter_is_counted_over_a_wrap() {
    let mut integrator = Integrator::new(settings(), 0);
    integrator.take(0, counter(990_000_000));
    integrator.take(SECOND, counter(999_000_000));
    integrator.take(2 * SECOND, counter(8_000_000));
    integrator.take(3 * SECOND, counter(10_000_000));
    assert_eq!(integrator.total().energy.microjoules(), 20_000_000);
    assert_eq!((integrator.wraps(), integrator.gaps().len()), (1, 0));
}

#[test]
fn a_counter_that_began_anew_or_jumped_leaves_a_gap() {
    for (from, to, said) in [
        // At most 100 J come in a second: a wrap would be 500 J.
        (600_000_000, 100_000_000, "jumped"),
        (100_000_000, 900_000_000, "jumped"),
        (2_000_000_000, 5, "went back"),
    ] {
        let mut integrator = Integrator::new(settings(), 0);
        integrator.take(0, counter(from));
        integrator.take(SECOND, counter(to));
        integrator.take(2 * SECOND, counter(to + 7));
        assert_eq!(integrator.total().energy.microjoules(), 7, "{from} to {to}");
        assert_eq!(integrator.gaps().len(), 1);
        assert!(integrator.gaps()[0].why.contains(said), "{:?}", integrator.gaps());
        assert_eq!((integrator.wraps(), passed(&integrator)), (0, 2 * SECOND));
    }
    let mut without_range = Integrator::new(IntegratorSettings { wraps_at_uj: None, ..settings() }, 0);
    without_range.take(0, counter(50));
    without_range.take(SECOND, counter(40));
    assert_eq!(without_range.total().energy, Energy::ZERO);
}

#[test]
fn a_counter_that_may_have_wrapped_twice_is_not_guessed() {
    // 100 W fill the range of 1000 J in ten seconds.
    let mut integrator = Integrator::new(settings(), 0);
    integrator.take(0, counter(10));
    integrator.take(9 * SECOND, counter(110));
    assert_eq!(integrator.total().energy.microjoules(), 100);
    integrator.take(19 * SECOND, counter(120));
    assert_eq!(integrator.total().energy.microjoules(), 100);
    assert!(integrator.gaps()[0].why.contains("more than once"));
    assert_eq!(integrator.total().gap_us, 10 * SECOND);
}

#[test]
fn a_meter_that_vanishes_is_not_bridged() {
    let mut integrator = Integrator::new(settings(), 0);
    integrator.take(0, power(4.0));
    integrator.take(SECOND, power(4.0));
    integrator.fault("the file is gone");
    integrator.fault("the file is still gone");
    integrator.take(2 * SECOND, power(4.0));
    integrator.take(3 * SECOND, power(4.0));
    assert_eq!(integrator.total().energy.joules(), 8.0);
    let gap = Gap { from_us: SECOND, to_us: 2 * SECOND, why: "the file is gone".into() };
    assert_eq!(integrator.gaps(), [gap]);
    integrator.fault("the file is gone");
    integrator.finish(10 * SECOND);
    assert_eq!(integrator.total().energy.joules(), 8.0);
    assert_eq!((integrator.total().covered_us, integrator.total().gap_us), (2 * SECOND, 8 * SECOND));
}

#[test]
fn power_is_not_interpolated_over_a_long_silence_but_a_counter_is_counted() {
    let mut sensor = Integrator::new(settings(), 0);
    sensor.take(0, power(4.0));
    sensor.take(4 * SECOND, power(4.0));
    assert_eq!(sensor.total().energy, Energy::ZERO);
    assert!(sensor.gaps()[0].why.contains("no answer for 4.0 s"));
    let mut counted = Integrator::new(settings(), 0);
    counted.take(0, counter(0));
    counted.take(4 * SECOND, counter(16_000_000));
    assert_eq!(counted.total().energy.joules(), 16.0);
}

#[test]
fn what_lies_before_the_first_answer_and_behind_the_last_is_a_gap() {
    let mut integrator = Integrator::new(settings(), 0);
    integrator.take(SECOND, power(4.0));
    integrator.take(2 * SECOND, power(4.0));
    integrator.finish(5 * SECOND);
    assert_eq!(
        integrator.total(),
        StateAccount { energy: Energy::from_microjoules(4_000_000), covered_us: SECOND, gap_us: 4 * SECOND }
    );
    let mut silent = Integrator::new(settings(), 7);
    silent.finish(10);
    assert_eq!(silent.total(), StateAccount { energy: Energy::ZERO, covered_us: 0, gap_us: 3 });
}

#[test]
fn a_battery_gives_what_leaves_it() {
    let mut level = Integrator::new(settings(), 0);
    level.take(0, Reading::Stored { uj: 500_000_000 });
    level.take(100 * SECOND, Reading::Stored { uj: 300_000_000 });
    level.take(200 * SECOND, Reading::Stored { uj: 400_000_000 });
    assert_eq!(level.total().energy.joules(), 200.0);
    assert_eq!(level.gaps()[0].why, "the battery was charged");
    // 15 mAh at 4 V are 60 mWh.
    let mut charge = Integrator::new(settings(), 0);
    charge.take(0, Reading::Charge { uah: 1_500_000, uv: 4_100_000 });
    charge.take(60 * SECOND, Reading::Charge { uah: 1_485_000, uv: 3_900_000 });
    assert!((charge.total().energy.joules() - 216.0).abs() < 1e-9);
}

#[test]
fn a_border_between_answers_divides_a_trapezoid_by_its_slope() {
    let mut integrator = Integrator::new(settings(), 0);
    integrator.take(0, power(0.0));
    integrator.enter(SECOND, 1);
    integrator.take(2 * SECOND, power(4.0));
    let joules: Vec<f64> = integrator.states().iter().map(|state| state.energy.joules()).collect();
    assert_eq!(joules, [1.0, 3.0]);
}

/// What may happen to an integrator.
#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Power(u64),
    Counter(u64),
    Fault,
    Enter(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..5_000_000u64).prop_map(Step::Wait),
        4 => (0..200_000_000u64).prop_map(Step::Power),
        2 => (0..1_000_000_000u64).prop_map(Step::Counter),
        1 => Just(Step::Fault),
        2 => (0..4usize).prop_map(Step::Enter),
    ]
}

proptest! {
    /// Energy partitions time: whatever comes, the states sum exactly to the total, and covered time and gaps to all
    /// time; and the total is what an integrator without states has.
    #[test]
    fn states_sum_to_the_total_and_times_to_all_time(steps in prop::collection::vec(step(), 0..60)) {
        let (mut parted, mut whole) = (Integrator::new(settings(), 100), Integrator::new(settings(), 100));
        let mut now_us = 100;
        for step in steps {
            match step {
                Step::Wait(us) => now_us += us,
                Step::Power(uw) => {
                    parted.take(now_us, Reading::Power { uw });
                    whole.take(now_us, Reading::Power { uw });
                }
                Step::Counter(uj) => {
                    parted.take(now_us, counter(uj));
                    whole.take(now_us, counter(uj));
                }
                Step::Fault => {
                    parted.fault("trouble");
                    whole.fault("trouble");
                }
                Step::Enter(state) => parted.enter(now_us, state),
            }
        }
        parted.finish(now_us);
        whole.finish(now_us);
        let sum: Energy = parted.states().iter().map(|state| state.energy).sum();
        prop_assert_eq!(sum, parted.total().energy);
        prop_assert_eq!(parted.total(), whole.total());
        prop_assert_eq!(passed(&parted), now_us - 100);
    }
}
