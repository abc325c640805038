use super::*;

fn enumerate(deviations: Option<u32>, mut run: impl FnMut(&Choices)) -> u32 {
    let (mut plan, mut runs) = (Some(Vec::new()), 0);
    while let Some(next) = plan {
        let choices = Choices::plan(next);
        run(&choices);
        runs += 1;
        assert_eq!(choices.misstep(), None);
        plan = advance(choices.decisions(), deviations);
    }
    runs
}

#[test]
fn depth_first_enumeration_visits_each_leaf_of_an_uneven_tree_once() {
    let mut seen = Vec::new();
    let runs = enumerate(None, |choices| {
        let first = choices.choose(3, "first");
        let rest = (0..first).map(|_| choices.choose(2, "rest")).collect::<Vec<_>>();
        seen.push((first, rest));
    });
    assert_eq!(runs, 1 + 2 + 4);
    let distinct = seen.iter().collect::<std::collections::BTreeSet<_>>();
    assert_eq!(distinct.len(), seen.len());
}

#[test]
fn a_budget_of_deviations_leaves_just_the_runs_within_it() {
    let mut seen = Vec::new();
    enumerate(Some(2), |choices| {
        seen.push((0..5).map(|_| choices.choose(3, "step")).collect::<Vec<_>>());
    });
    assert!(seen.iter().all(|run| run.iter().filter(|&&step| step != 0).count() <= 2));
    assert_eq!(seen.len(), 1 + 5 * 2 + 10 * 4);
}

#[test]
fn a_recorded_run_replays_exactly() {
    let record = |choices: &Choices| -> Vec<u64> {
        (2..40)
            .map(|options| choices.choose(options, "n") + u64::from(choices.rarely(3, "rare")) * 100)
            .chain([choices.choose_seed("seed"), choices.choose_position(1 << 40, "position")])
            .collect()
    };
    let random = Choices::random(11);
    let first = record(&random);
    assert_eq!(record(&Choices::replay(&random.path())), first);
    assert_eq!(record(&Choices::random(11)), first);
    assert_ne!(record(&Choices::random(12)), first);
}

#[test]
fn a_question_with_one_option_is_no_decision() {
    let choices = Choices::random(1);
    assert_eq!((choices.choose(0, "none"), choices.choose(1, "one")), (0, 0));
    assert!(choices.path().steps.is_empty());
}

#[test]
fn questions_beyond_the_limit_are_answered_with_zero_and_told() {
    let choices = Choices::random(3).limit(4);
    (0..4).for_each(|_| _ = choices.choose(1000, "n"));
    assert!(!choices.truncated());
    assert_eq!(choices.choose(1000, "n"), 0);
    assert!(choices.truncated());
}

#[test]
fn other_questions_on_the_same_answers_are_a_misstep() {
    let choices = Choices::plan(vec![Decision { label: "a", options: 2, chosen: 1 }]);
    choices.choose(3, "b");
    assert!(choices.misstep().is_some_and(|text| text.contains("'a' of 2")));
    let choices = Choices::plan(vec![Decision { label: "a", options: 2, chosen: 1 }]);
    assert!(choices.misstep().is_some());
}

#[test]
fn positions_of_a_long_row_include_both_ends() {
    let mut seen = Vec::new();
    enumerate(None, |choices| seen.push(choices.choose_position(1000, "at")));
    assert_eq!((seen.len(), seen.first(), seen.last()), (64, Some(&0), Some(&999)));
}
