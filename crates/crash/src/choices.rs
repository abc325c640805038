//! Where every decision of a run comes from.
//!
//! Invariants:
//! 1. Option zero is the quiet one: the oldest request completes, power stays on, no fault.
//!    Minimising drives decisions towards zero.
//! 2. A question with one option is not a decision and is not recorded.
//! 3. The same source and the same questions give the same answers.

use crate::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tierstone_base::SeededRandom;

/// Seeds that exhaustive mode tries where a model wants a random pattern.
const EXHAUSTIVE_SEEDS: u64 = 4;
/// Positions that exhaustive mode tries in a long row.
const EXHAUSTIVE_POSITIONS: u64 = 64;

/// How questions are put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// All answers will be tried: questions about huge spaces are narrowed to telling cases.
    Exhaustive,
    /// Some answers will be tried: questions may be as wide as the world.
    Sampled,
}

/// One question and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What was asked.
    pub label: &'static str,
    /// How many options there were; two at least.
    pub options: u64,
    /// The option taken, below `options`.
    pub chosen: u64,
}

/// A source of decisions, shared by the scenario, the device and the models. Clones are handles
/// on the same source, on any thread.
#[derive(Clone, Debug)]
pub struct Choices {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    source: Source,
    style: Style,
    taken: Vec<Decision>,
    max_decisions: usize,
    truncated: bool,
    misstep: Option<String>,
    states: Vec<u64>,
}

#[derive(Debug)]
enum Source {
    /// Follows the plan, then takes option zero; complains when the questions differ.
    Plan(Vec<Decision>),
    Random(SeededRandom),
    /// Follows the steps, bent to the options that there are, then takes option zero.
    Steps(Vec<u64>),
}

impl Choices {
    fn new(source: Source, style: Style) -> Self {
        let state = State {
            source,
            style,
            taken: Vec::new(),
            max_decisions: usize::MAX,
            truncated: false,
            misstep: None,
            states: Vec::new(),
        };
        Choices { state: Arc::new(Mutex::new(state)) }
    }

    /// The state, also after a panic elsewhere: what a run has answered so far is told then.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Always the first option: for tests that explore nothing.
    pub fn quiet() -> Self {
        Self::new(Source::Steps(Vec::new()), Style::Sampled)
    }

    /// Random answers from `seed`.
    pub fn random(seed: u64) -> Self {
        Self::new(Source::Random(SeededRandom::new(seed)), Style::Sampled)
    }

    /// The answers of a recorded run.
    pub fn replay(path: &Path) -> Self {
        Self::new(Source::Steps(path.steps.clone()), path.style)
    }

    /// The next run of a depth-first enumeration.
    pub(crate) fn plan(plan: Vec<Decision>) -> Self {
        Self::new(Source::Plan(plan), Style::Exhaustive)
    }

    pub(crate) fn limit(self, max_decisions: usize) -> Self {
        self.lock().max_decisions = max_decisions;
        self
    }

    /// One of `0..options`. Zero or one option: zero, and nothing is recorded.
    pub fn choose(&self, options: u64, label: &'static str) -> u64 {
        self.decide(options, label, |random| random.below(options))
    }

    /// A rare event: exhaustive mode tries both, sampling says yes once in `one_in` times.
    pub fn rarely(&self, one_in: u64, label: &'static str) -> bool {
        self.decide(2, label, |random| u64::from(random.below(one_in.max(1)) == 0)) == 1
    }

    /// A seed for a pattern that is too large to decide bit by bit.
    pub fn choose_seed(&self, label: &'static str) -> u64 {
        self.choose(if self.style() == Style::Exhaustive { EXHAUSTIVE_SEEDS } else { 1 << 32 }, label)
    }

    /// One of `0..positions`; exhaustive mode spreads its tries evenly over a long row, its two
    /// ends included.
    pub fn choose_position(&self, positions: u64, label: &'static str) -> u64 {
        if self.style() == Style::Sampled || positions <= EXHAUSTIVE_POSITIONS {
            return self.choose(positions, label);
        }
        let step = u128::from(self.choose(EXHAUSTIVE_POSITIONS, label));
        (step * u128::from(positions - 1) / u128::from(EXHAUSTIVE_POSITIONS - 1)) as u64
    }

    fn decide(&self, options: u64, label: &'static str, draw: impl FnOnce(&mut SeededRandom) -> u64) -> u64 {
        if options <= 1 {
            return 0;
        }
        let state = &mut *self.lock();
        let at = state.taken.len();
        if at >= state.max_decisions {
            state.truncated = true;
            return 0;
        }
        let chosen = match &mut state.source {
            Source::Random(random) => draw(random),
            Source::Steps(steps) => steps.get(at).copied().unwrap_or(0).min(options - 1),
            Source::Plan(plan) => match plan.get(at) {
                Some(planned) => {
                    if (planned.label, planned.options) != (label, options) && state.misstep.is_none() {
                        state.misstep = Some(format!(
                            "decision {at} was '{}' of {} and is now '{label}' of {options}: \
                             the scenario depends on something besides its choices",
                            planned.label, planned.options
                        ));
                    }
                    planned.chosen.min(options - 1)
                }
                None => 0,
            },
        };
        state.taken.push(Decision { label, options, chosen });
        chosen
    }

    /// How questions are put in this run.
    pub fn style(&self) -> Style {
        self.lock().style
    }

    /// Notes that the run met a state of the media with this digest, for [`crate::Report`].
    pub fn observe_state(&self, digest: u64) {
        self.lock().states.push(digest);
    }

    /// The answers so far.
    pub fn path(&self) -> Path {
        let state = self.lock();
        Path { style: state.style, steps: state.taken.iter().map(|decision| decision.chosen).collect() }
    }

    /// The questions and answers so far.
    pub fn decisions(&self) -> Vec<Decision> {
        self.lock().taken.clone()
    }

    /// Whether questions came after the limit of decisions and were answered with zero.
    pub fn truncated(&self) -> bool {
        self.lock().truncated
    }

    pub(crate) fn misstep(&self) -> Option<String> {
        let state = self.lock();
        let short = match &state.source {
            Source::Plan(plan) if plan.len() > state.taken.len() => Some(format!(
                "the run asked {} questions where it asked {} before: \
                 the scenario depends on something besides its choices",
                state.taken.len(),
                plan.len()
            )),
            _ => None,
        };
        state.misstep.clone().or(short)
    }

    pub(crate) fn take_states(&self) -> Vec<u64> {
        std::mem::take(&mut self.lock().states)
    }
}

/// The plan of the next run after one that took `decisions`, with at most `deviations` answers
/// other than zero; `None` when all are tried.
pub(crate) fn advance(mut decisions: Vec<Decision>, deviations: Option<u32>) -> Option<Vec<Decision>> {
    let budget = deviations.map_or(usize::MAX, |limit| limit as usize);
    let mut used = decisions.iter().filter(|decision| decision.chosen != 0).count();
    while let Some(last) = decisions.last_mut() {
        let used_before = used - usize::from(last.chosen != 0);
        if last.chosen + 1 < last.options && used_before < budget {
            last.chosen += 1;
            return Some(decisions);
        }
        used = used_before;
        decisions.pop();
    }
    None
}

#[cfg(test)]
#[path = "choices_test.rs"]
mod choices_test;
