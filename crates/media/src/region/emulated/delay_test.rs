//! The line through waits: the published step function, exact lines, and this machine's own loop.

use super::*;
use tierstone_base::SeededRandom;

#[test]
fn the_published_step_function_gives_the_published_offset_and_fit() {
    // Pelley 2014, section 5.1: delay(x) = a floor(x / a + b) + c, R^2 = 0.997 and 9.3 ns subtracted.
    let (a, b, c) = (12.5, 0.434, 10.1);
    let points: Vec<(f64, f64)> =
        (0..2_300).map(|x| f64::from(x) / 10.0).map(|x| (x, a * (x / a + b).floor() + c)).collect();
    let fit = DelayFit::through(&points);
    assert!((fit.offset_ns - 9.3).abs() < 0.2, "{fit:?}");
    assert!((fit.r_squared - 0.997).abs() < 0.001, "{fit:?}");
    assert!((fit.worst_residual_ns - a / 2.0).abs() < 0.3, "half a step: {fit:?}");
}

#[test]
fn a_fit_finds_the_line_that_made_its_points() {
    let mut random = SeededRandom::new(5);
    for _ in 0..200 {
        let (slope, offset) = (0.5 + random.unit(), 50.0 * random.unit());
        let points: Vec<(f64, f64)> = points_ns().into_iter().map(|x| (x, slope * x + offset)).collect();
        let fit = DelayFit::through(&points);
        assert!((fit.slope - slope).abs() < 1e-9 && (fit.offset_ns - offset).abs() < 1e-6, "{fit:?}");
        assert!(fit.r_squared > 0.999_999 && fit.worst_residual_ns < 1e-6, "{fit:?}");
    }
    for few in [&[][..], &[(10.0, 20.0)], &[(10.0, 20.0), (10.0, 30.0)]] {
        let fit = DelayFit::through(few);
        assert!(
            [fit.slope, fit.offset_ns, fit.r_squared, fit.worst_residual_ns].iter().all(|n| n.is_finite())
        );
    }
}

#[test]
fn calibration_finds_the_middle_of_the_steps_however_long_a_turn_is() {
    // A loop that always takes `least` more and then ends at its next turn: the middle is half a turn above.
    let least = 18.0;
    for tenths in 50..400 {
        let turn = f64::from(tenths) / 10.0;
        let taken = |x: f64| (x / turn).ceil() * turn + least;
        let points: Vec<(f64, f64)> = points_ns().into_iter().map(|x| (x, taken(x))).collect();
        let fit = DelayFit::through(&points);
        let middle = least + turn / 2.0;
        let at = |x: f64| fit.slope * x + fit.offset_ns - x;
        for x in [100.0, 500.0, 1_000.0] {
            assert!((at(x) - middle).abs() < 0.15 * turn, "turn {turn}, {x} ns: {fit:?}");
        }
        // Half a step, and what the line is off.
        assert!(fit.worst_residual_ns < 0.65 * turn, "turn {turn}: {fit:?}");
    }
    // Round times on a loop of round turns are all at the same place: half a turn is missing.
    let round: Vec<(f64, f64)> =
        [60.0, 100.0, 150.0, 200.0, 300.0, 500.0, 700.0, 1000.0].map(|x| (x, x + least)).to_vec();
    assert!((DelayFit::through(&round).offset_ns - least).abs() < 1e-9);
}

#[test]
fn a_wait_never_ends_before_its_time_less_the_offset() {
    let machine = DelayLoop::of_machine();
    assert!(machine.ticks_per_ns() > 0.0 && machine.step_ns() > 0.0, "{machine:?}");
    for ns in [0.0, 50.0, 1_000.0, 20_000.0] {
        let (begun, ticks) = (machine.now(), machine.ticks_of(ns));
        machine.wait_until(begun + ticks);
        assert!(machine.now() - begun + machine.offset_ticks >= ticks, "{ns} ns");
        machine.uncorrected().wait_until(begun + 2 * ticks);
        assert!(machine.now() >= begun + 2 * ticks, "{ns} ns without the offset");
    }
}
