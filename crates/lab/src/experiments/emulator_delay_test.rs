use super::*;

fn waits(of: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
    (1..=230).map(|asked| (f64::from(asked), of(f64::from(asked)))).collect()
}

#[test]
fn steps_are_found_again_in_what_they_gave() {
    let fit = StepFit::through(&waits(|asked| PUBLISHED_STEPS.at(asked)));
    assert!((fit.step_ns - 12.5).abs() < 0.1 && (fit.shift - 0.434).abs() < 0.1, "{fit:?}");
    assert!(fit.r_squared > 0.999, "{fit:?}");
    assert!((fit.wait_ns() - PUBLISHED_STEPS.wait_ns()).abs() < 0.2, "{fit:?}");
    assert!((PUBLISHED_STEPS.wait_ns() - 9.3).abs() < 0.05);
}

#[test]
fn steps_explain_more_of_steps_than_a_line_and_little_of_what_is_none() {
    let steps = waits(|asked| PUBLISHED_STEPS.at(asked));
    assert!(DelayFit::through(&steps).r_squared < StepFit::through(&steps).r_squared);
    // Noise that does not rise.
    let level = waits(|asked| 50.0 + (asked * 7.0) % 11.0);
    assert!(StepFit::through(&level).r_squared < 0.5);
    assert_eq!(StepFit::through(&[]).r_squared, 0.0);
}
