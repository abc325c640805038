use super::*;
use crate::mutation::{Mutations, assert_all_caught, assert_caught};
use std::cell::Cell;

/// Wrong when the fifth answer is 3 and the ninth is not zero.
fn needle(choices: &Choices) -> Result<(), Violation> {
    let answers: Vec<u64> = (0..20).map(|_| choices.choose(4, "answer")).collect();
    Violation::unless(answers[4] != 3 || answers[8] == 0, || "needle".to_owned())
}

#[test]
fn a_violation_is_minimised_to_the_decisions_that_matter_and_replays() {
    let report = explore(ExploreSettings::random(77, 10_000), needle);
    let found = report.found.clone().expect("one in six runs is wrong");
    assert_eq!(found.minimal_path.to_string(), "sampled: 0*4 3 0*3 1");
    assert_eq!(found.seed, Some(77));
    assert_eq!(replay(&found.path, needle), Err(Violation::new("needle")));
    assert_eq!(replay(&found.minimal_path, needle), Err(Violation::new("needle")));
    let text = report.to_string();
    assert!(text.contains("seed 77") && text.contains("\"sampled: 0*4 3 0*3 1\""), "{text}");
    assert_eq!(explore(ExploreSettings::random(77, 10_000), needle), report, "one seed, one report");
    let again = explore(ExploreSettings::replay(found.path.clone()), needle);
    assert_eq!(again.found.map(|again| again.path), Some(found.path));
}

#[test]
fn bounded_exploring_finds_what_needs_few_deviations() {
    assert!(explore(ExploreSettings::bounded(1), needle).assert_exhausted().runs == 1 + 20 * 3);
    assert!(explore(ExploreSettings::bounded(2), needle).found.is_some());
}

#[test]
fn minimising_drops_decisions_that_only_shift_the_others() {
    let scenario = |choices: &Choices| {
        for _ in 0..choices.choose(30, "padding") {
            choices.choose(5, "noise");
        }
        Violation::unless(choices.choose(7, "needle") < 4, || "found".to_owned())
    };
    let found = explore(ExploreSettings::random(3, 1000), scenario).found.expect("a violation");
    assert_eq!(found.minimal_path.steps, [0, 4]);
}

#[test]
fn a_panic_of_the_code_under_test_is_a_violation() {
    let report = explore(ExploreSettings::exhaustive(), |choices| {
        assert!(choices.choose(3, "n") < 2, "n is {}", 2);
        Ok(())
    });
    assert_eq!(report.found.map(|found| (found.run, found.message)), Some((2, "panic: n is 2".to_owned())));
}

#[test]
fn a_scenario_that_depends_on_something_else_is_told_so() {
    let runs = Cell::new(0);
    let report = explore(ExploreSettings::exhaustive(), |choices| {
        runs.set(runs.get() + 1);
        choices.choose(2 + runs.get(), "changing");
        choices.choose(2, "steady");
        Ok(())
    });
    assert!(report.found.is_some_and(|found| found.message.contains("besides its choices")));
}

#[test]
fn a_budget_that_ends_early_is_not_reported_as_exhausted() {
    let many = |choices: &Choices| {
        (0..10).for_each(|_| _ = choices.choose(2, "bit"));
        Ok(())
    };
    let all = explore(ExploreSettings::exhaustive(), many).assert_exhausted();
    assert_eq!(all.runs, 1024);
    let part = explore(ExploreSettings::exhaustive().with_max_runs(1000), many).assert_clean();
    assert!((part.runs, part.exhausted) == (1000, false));
    let exact = explore(ExploreSettings::exhaustive().with_max_runs(1024), many);
    assert!(exact.exhausted);
    let mut shallow = ExploreSettings::exhaustive();
    shallow.max_decisions = 4;
    let shallow = explore(shallow, many);
    assert!((shallow.runs, shallow.exhausted) == (16, false));
}

#[test]
fn states_are_counted_once_and_in_all() {
    let report = explore(ExploreSettings::exhaustive(), |choices| {
        choices.observe_state(choices.choose(2, "a") * choices.choose(3, "b"));
        Ok(())
    });
    assert_eq!((report.states, report.distinct_states), (6, 3));
}

#[test]
fn mutations_are_caught_by_name() {
    let explore_with = |mutations: &Mutations| {
        let (first, second) = (mutations.is_on("first"), mutations.is_on("second"));
        explore(ExploreSettings::exhaustive(), |choices| {
            let n = choices.choose(10, "n");
            Violation::unless(!(first && n == 3 || second && n == 9), || format!("n is {n}"))
        })
    };
    let clean = assert_all_caught(&["first", "second"], explore_with);
    assert!(clean.exhausted && clean.runs == 10);
    let caught = assert_caught("second", || explore_with(&Mutations::none().and("second")));
    assert_eq!(caught.runs, 10);
}

#[test]
#[should_panic(expected = "mutation 'harmless' was not caught")]
fn a_mutation_that_breaks_nothing_fails_the_test() {
    assert_caught("harmless", || explore(ExploreSettings::exhaustive(), |_| Ok(())));
}

#[test]
#[should_panic(expected = "violation in run 2")]
fn an_unclean_report_fails_the_test() {
    explore(ExploreSettings::exhaustive(), |choices| {
        Violation::unless(choices.choose(3, "n") != 2, || "two".to_owned())
    })
    .assert_clean();
}

#[test]
fn how_soon_broken_code_is_found_does_not_depend_on_what_is_sampled() {
    let broken = Mutations::one("any rule");
    assert_eq!(ExploreSettings::sampled(3, 10, &broken), ExploreSettings::random(3, 10));
    let (seed, runs) = (sampled_seed(3), sampled_runs(10));
    assert_eq!(ExploreSettings::sampled(3, 10, &Mutations::none()), ExploreSettings::random(seed, runs));
}
