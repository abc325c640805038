use super::*;
use crate::experiment::{Kind, Rule};
use crate::result::Verdict;
use tierstone_workload::Extent;

const VALUE: Published = Published {
    name: "ratio",
    value: 0.8,
    unit: "ratio",
    place: "Table 1",
    because: "what is kept",
    rule: Rule::AtLeast(0.7),
};

const GOOD: Experiment = Experiment {
    name: "good",
    title: "Good",
    source: "nowhere",
    measures: "nothing",
    kind: Kind::Measured,
    published: &[VALUE],
    series: &[],
    space_bytes: |_| 0,
    run: |run| {
        run.step("looking")?;
        run.set("depth", 3);
        run.compare("ratio", 0.75, "on a small machine")
    },
};

fn go(experiment: &Experiment) -> Result<ExperimentResult> {
    let settings = RunSettings { size: Size::Tiny, data: std::env::temp_dir(), seed: 9 };
    run(experiment, &settings, &mut |_| ControlFlow::Continue(()))
}

#[test]
fn a_row_has_the_published_value_ours_the_verdict_and_why() {
    let result = go(&GOOD).unwrap();
    let row = &result.rows[0];
    assert_eq!((row.published, row.here, row.verdict), (0.8, 0.75, Verdict::Agrees));
    assert_eq!(row.because, "what is kept; agrees at 0.7 or more; on a small machine");
    assert_eq!(result.settings["depth"], "3");
    assert_eq!(result.settings["seed"], "9");
}

#[test]
fn a_published_value_that_is_not_compared_once_fails_the_run() {
    for (run, says) in [
        ((|_| Ok(())) as fn(&mut Run<'_>) -> Result<()>, "was not compared"),
        (|run| run.compare("ratio", 1.0, "").and_then(|()| run.compare("ratio", 1.0, "")), "compared twice"),
        (|run| run.compare("other", 1.0, ""), "no such published value"),
        (|run| run.compare("ratio", f64::NAN, ""), "gives no number"),
    ] {
        let error = go(&Experiment { run, ..GOOD }).unwrap_err();
        assert!(error.message().contains(says), "{error}");
    }
}

#[test]
fn wrong_answers_of_a_store_are_no_measurement() {
    /// A store that has forgotten all.
    struct Empty;
    impl Target for Empty {
        fn get(&mut self, _: &[u8], _: &mut Vec<u8>) -> Result<bool> {
            Ok(false)
        }
        fn put(&mut self, _: &[u8], _: &[u8]) -> Result<()> {
            Err(Error::new(ErrorKind::NoSpace, "full"))
        }
    }
    let reading = Experiment {
        run: |run| {
            let few = Pacing { extent: Extent::Operations(3), ..Pacing::default() };
            run.drive(&Workload::default(), &few, &mut Empty).map(drop)
        },
        ..GOOD
    };
    let error = go(&reading).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    let writing =
        Experiment { run: |run| run.load(&Workload::default(), 0..5, 2, &mut Empty).map(drop), ..GOOD };
    let error = go(&writing).unwrap_err();
    assert!(error.message().contains("full"), "{error}");
}

#[test]
fn every_measurement_of_a_run_has_its_own_seed_and_a_run_has_the_same_ones_again() {
    fn seeds() -> Vec<String> {
        let experiment = Experiment {
            run: |run| {
                let seeds: Vec<String> = (0..4).map(|_| run.next_seed().to_string()).collect();
                run.set("seeds", seeds.join(" "));
                run.compare("ratio", 1.0, "")
            },
            ..GOOD
        };
        go(&experiment).unwrap().settings["seeds"].split(' ').map(str::to_owned).collect()
    }
    let once = seeds();
    assert_eq!(once, seeds());
    let different: std::collections::BTreeSet<&String> = once.iter().collect();
    assert_eq!(different.len(), once.len());
}
