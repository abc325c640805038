//! Runs a scenario under many choices and tells what was found.

use crate::choices::{Choices, Decision, advance};
use crate::minimise::minimise;
use crate::mutation::Mutations;
use crate::path::Path;
use crate::sampling::{sampled_runs, sampled_seed};
use crate::violation::Violation;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tierstone_base::SeededRandom;
use tierstone_base::collections::Set;

/// Which runs are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All of them, depth first. With `deviations`, all with at most so many answers other than
    /// zero (delay bounding: Emmi, Qadeer, Rakamaric, POPL 2011): most bugs need few.
    Exhaustive {
        /// Most answers other than zero; `None` for no bound.
        deviations: Option<u32>,
    },
    /// Random ones; run `n` uses the `n`-th number drawn from `seed`.
    Random {
        /// Decides every run.
        seed: u64,
    },
    /// Just this one.
    Replay(Path),
}

/// How to explore. Plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExploreSettings {
    /// Which runs are tried.
    pub mode: Mode,
    /// Most runs; default 1,000,000 exhaustively. More finds more and takes longer.
    pub max_runs: u64,
    /// Most decisions in a run; later questions are answered with zero. Default 1,000,000.
    pub max_decisions: usize,
    /// Most runs spent on minimising a violation. Default 1,000; zero leaves it as it was found.
    pub max_minimise_runs: u64,
}

impl ExploreSettings {
    fn of(mode: Mode, max_runs: u64) -> Self {
        ExploreSettings { mode, max_runs, max_decisions: 1_000_000, max_minimise_runs: 1_000 }
    }

    /// Every run.
    pub fn exhaustive() -> Self {
        Self::of(Mode::Exhaustive { deviations: None }, 1_000_000)
    }

    /// Every run with at most `deviations` answers other than zero.
    pub fn bounded(deviations: u32) -> Self {
        Self::of(Mode::Exhaustive { deviations: Some(deviations) }, 1_000_000)
    }

    /// `runs` random runs from `seed`.
    pub fn random(seed: u64, runs: u64) -> Self {
        Self::of(Mode::Random { seed }, runs)
    }

    /// `runs` random runs from `seed`, or those that `TIERSTONE_CRASH_SEED` and `TIERSTONE_CRASH_RUNS` ask for
    /// ([`sampled_seed`]). Of broken code always the former: how soon a mutation is found was tried out for its seed.
    pub fn sampled(seed: u64, runs: u64, mutations: &Mutations) -> Self {
        if mutations.is_any_on() {
            return Self::random(seed, runs);
        }
        Self::random(sampled_seed(seed), sampled_runs(runs))
    }

    /// One run, as recorded.
    pub fn replay(path: Path) -> Self {
        Self::of(Mode::Replay(path), 1)
    }

    /// The same with at most `runs` runs.
    #[must_use]
    pub fn with_max_runs(mut self, runs: u64) -> Self {
        self.max_runs = runs;
        self
    }
}

/// A violation and how to see it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which run found it, from zero.
    pub run: u64,
    /// The seed of [`Mode::Random`].
    pub seed: Option<u64>,
    /// The answers of that run.
    pub path: Path,
    /// What was broken.
    pub message: String,
    /// The simplest path found that still breaks something.
    pub minimal_path: Path,
    /// What that path breaks.
    pub minimal_message: String,
    /// The questions along the minimal path.
    pub minimal_decisions: Vec<Decision>,
}

/// What an exploration did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Runs tried, minimising not counted.
    pub runs: u64,
    /// Whether every run that the mode names was tried to its end.
    pub exhausted: bool,
    /// States of the media after a loss of power, different ones.
    pub distinct_states: usize,
    /// The same, each counted as often as it was met.
    pub states: u64,
    /// The first violation; exploring stops there.
    pub found: Option<Found>,
}

impl Report {
    /// The report, when nothing was found. Prints the counts, with the place of the call.
    ///
    /// # Panics
    /// When a violation was found: with seed, path and message.
    #[track_caller]
    #[expect(clippy::print_stdout, reason = "the counts belong in the output of the test")]
    pub fn assert_clean(self) -> Report {
        assert!(self.found.is_none(), "{self}");
        println!("explored clean: {}: {self}", std::panic::Location::caller());
        self
    }

    /// The report, when nothing was found and every run was tried.
    ///
    /// # Panics
    /// When a violation was found or runs were left out.
    #[track_caller]
    pub fn assert_exhausted(self) -> Report {
        assert!(self.exhausted, "not every run was tried: {self}");
        self.assert_clean()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = if self.exhausted { "all" } else { "not all" };
        write!(
            formatter,
            "{} runs ({all}), {} states after power loss, {} distinct",
            self.runs, self.states, self.distinct_states
        )?;
        if let Some(found) = &self.found {
            write!(formatter, "\n{found}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Found {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "violation in run {}", self.run)?;
        if let Some(seed) = self.seed {
            write!(formatter, " of seed {seed}")?;
        }
        writeln!(formatter, ": {}\n  path    \"{}\"", self.message, self.path)?;
        writeln!(formatter, "  minimal \"{}\": {}", self.minimal_path, self.minimal_message)?;
        for (at, decision) in self.minimal_decisions.iter().enumerate().filter(|(_, one)| one.chosen != 0) {
            writeln!(
                formatter,
                "    {at}: {} = {} of {}",
                decision.label, decision.chosen, decision.options
            )?;
        }
        Ok(())
    }
}

/// Runs `scenario` under the choices that `settings` name, until one returns a violation or
/// panics, and minimises that one. Prints nothing.
///
/// The scenario builds all its state anew in every run and takes every decision from its argument.
pub fn explore(
    settings: ExploreSettings,
    mut scenario: impl FnMut(&Choices) -> Result<(), Violation>,
) -> Report {
    let mut source = RunSource::new(&settings);
    let mut report = Report { runs: 0, exhausted: false, distinct_states: 0, states: 0, found: None };
    let mut distinct = Set::default();
    let mut complete = true;
    while report.runs < settings.max_runs {
        let Some(choices) = source.next() else { break };
        let choices = choices.limit(settings.max_decisions);
        let result = run_once(&choices, &mut scenario);
        report.runs += 1;
        complete &= !choices.truncated();
        let states = choices.take_states();
        report.states += states.len() as u64;
        distinct.extend(states);
        if let Err(violation) = result {
            report.found = Some(describe(&settings, report.runs - 1, &choices, violation, &mut scenario));
            break;
        }
        source.done(&choices);
    }
    report.exhausted = complete && report.found.is_none() && source.is_done();
    report.distinct_states = distinct.len();
    report
}

/// Runs `scenario` once along `path`.
///
/// # Errors
/// The violation that the path leads to.
pub fn replay(
    path: &Path,
    mut scenario: impl FnMut(&Choices) -> Result<(), Violation>,
) -> Result<(), Violation> {
    run_once(&Choices::replay(path), &mut scenario)
}

/// One run; a panic of the code under test is a violation too.
pub(crate) fn run_once(
    choices: &Choices,
    scenario: &mut impl FnMut(&Choices) -> Result<(), Violation>,
) -> Result<(), Violation> {
    let result = match catch_unwind(AssertUnwindSafe(|| scenario(choices))) {
        Ok(result) => result,
        Err(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(Violation::new(format!("panic: {text}")))
        }
    };
    match choices.misstep() {
        Some(misstep) => Err(Violation::new(misstep)),
        None => result,
    }
}

fn describe(
    settings: &ExploreSettings,
    run: u64,
    choices: &Choices,
    violation: Violation,
    scenario: &mut impl FnMut(&Choices) -> Result<(), Violation>,
) -> Found {
    let path = choices.path();
    let minimal = minimise(choices, &violation, settings.max_minimise_runs, scenario);
    let seed = match settings.mode {
        Mode::Random { seed } => Some(seed),
        _ => None,
    };
    Found {
        run,
        seed,
        path,
        message: violation.message().to_owned(),
        minimal_path: minimal.path,
        minimal_message: minimal.message,
        minimal_decisions: minimal.decisions,
    }
}

/// Gives the choices of one run after the other.
enum RunSource {
    Exhaustive { plan: Option<Vec<Decision>>, deviations: Option<u32> },
    Random(SeededRandom),
    Replay(Option<Path>),
}

impl RunSource {
    fn new(settings: &ExploreSettings) -> Self {
        match &settings.mode {
            Mode::Exhaustive { deviations } => {
                RunSource::Exhaustive { plan: Some(Vec::new()), deviations: *deviations }
            }
            Mode::Random { seed } => RunSource::Random(SeededRandom::new(*seed)),
            Mode::Replay(path) => RunSource::Replay(Some(path.clone())),
        }
    }

    fn next(&mut self) -> Option<Choices> {
        match self {
            RunSource::Exhaustive { plan, .. } => plan.take().map(Choices::plan),
            RunSource::Random(seeds) => Some(Choices::random(seeds.next_u64())),
            RunSource::Replay(path) => path.take().map(|path| Choices::replay(&path)),
        }
    }

    fn done(&mut self, choices: &Choices) {
        if let RunSource::Exhaustive { plan, deviations } = self {
            *plan = advance(choices.decisions(), *deviations);
        }
    }

    fn is_done(&self) -> bool {
        matches!(self, RunSource::Exhaustive { plan: None, .. })
    }
}

#[cfg(test)]
#[path = "explore_test.rs"]
mod explore_test;
