//! Makes the path of a violation simpler while something still breaks.
//!
//! Chunks of decisions are dropped or set to zero, large chunks first (delta debugging: Zeller,
//! Hildebrandt, TSE 2002), then single answers are lowered. A candidate is kept only when the path
//! that its run really took is simpler, so the search always ends.

use crate::choices::{Choices, Decision};
use crate::explore::run_once;
use crate::path::Path;
use crate::violation::Violation;

pub(crate) struct Minimal {
    pub path: Path,
    pub message: String,
    pub decisions: Vec<Decision>,
}

/// The simplest failing path found within `max_runs` runs.
pub(crate) fn minimise(
    found: &Choices,
    violation: &Violation,
    max_runs: u64,
    scenario: &mut impl FnMut(&Choices) -> Result<(), Violation>,
) -> Minimal {
    let minimal = Minimal {
        path: found.path().trimmed(),
        message: violation.message().to_owned(),
        decisions: found.decisions(),
    };
    let mut search = Search { best: minimal, runs_left: max_runs, scenario };
    loop {
        let before = search.best.path.weight();
        search.shorten();
        search.lower();
        if search.runs_left == 0 || search.best.path.weight() >= before {
            return search.best;
        }
    }
}

struct Search<'a, S> {
    best: Minimal,
    runs_left: u64,
    scenario: &'a mut S,
}

impl<S: FnMut(&Choices) -> Result<(), Violation>> Search<'_, S> {
    fn shorten(&mut self) {
        let mut chunk = self.best.path.steps.len().div_ceil(2);
        while chunk > 0 {
            let mut at = 0;
            while at < self.best.path.steps.len() {
                let end = (at + chunk).min(self.best.path.steps.len());
                let dropped = self.try_with(|steps| drop(steps.drain(at..end)));
                if !dropped {
                    self.try_with(|steps| steps[at..end].fill(0));
                    at = end;
                }
            }
            chunk /= 2;
        }
    }

    fn lower(&mut self) {
        let mut at = 0;
        while let Some(&step) = self.best.path.steps.get(at) {
            let lowered = step > 1
                && [1, step / 2, step - 1].into_iter().any(|lower| self.try_with(|steps| steps[at] = lower));
            if !lowered {
                at += 1;
            }
        }
    }

    /// Runs the best path with a change; keeps it when it fails and is simpler.
    fn try_with(&mut self, change: impl FnOnce(&mut Vec<u64>)) -> bool {
        let mut candidate = self.best.path.clone();
        change(&mut candidate.steps);
        let candidate = candidate.trimmed();
        if self.runs_left == 0 || candidate.weight() >= self.best.path.weight() {
            return false;
        }
        self.runs_left -= 1;
        let choices = Choices::replay(&candidate);
        let Err(violation) = run_once(&choices, self.scenario) else { return false };
        let path = choices.path().trimmed();
        if path.weight() >= self.best.path.weight() {
            return false;
        }
        self.best = Minimal { path, message: violation.message().to_owned(), decisions: choices.decisions() };
        true
    }
}
