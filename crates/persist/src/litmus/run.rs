//! What the claims of a litmus test say of each of its executions.

use super::walk::{Budget, Execution, Limits, Met, Walk};
use super::{Check, Claim, Litmus, Values};
use crate::observer::{Failure, Observer};
use crate::order::{Model, OrderGraph, bpfs_deadlock};
use crate::trace::{Event, Trace};
use std::fmt;
use tierstone_base::{Error, ErrorKind, Result};

/// Executions and states of one test at most, together; and steps of all orders that are derived of it, which a processor
/// does in a minute or two.
const LIMITS: Limits = Limits { tries: 1_000_000, steps: 200_000_000 };

/// What became of one claim under one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckResult {
    /// The line of the claim.
    pub line: usize,
    /// The claim.
    pub text: String,
    /// The model.
    pub model: Model,
    /// Whether it holds.
    pub holds: bool,
}

/// What a test came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LitmusReport {
    /// The test's name.
    pub name: String,
    /// How many executions there are.
    pub executions: u64,
    /// Every claim under every model that it names.
    pub checks: Vec<CheckResult>,
}

impl LitmusReport {
    /// Whether every claim holds.
    pub fn holds(&self) -> bool {
        self.checks.iter().all(|check| check.holds)
    }
}

impl fmt::Display for LitmusReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}: {} executions", self.name, self.executions)?;
        for check in &self.checks {
            let verdict = if check.holds { "holds" } else { "FAILS" };
            writeln!(
                formatter,
                "  {verdict} under {}: {} (line {})",
                check.model.name(),
                check.text,
                check.line
            )?;
        }
        Ok(())
    }
}

/// The state of a claim over all executions so far.
struct Verdict<'a> {
    check: &'a Check,
    model: Model,
    /// Claims of the kind "in every execution" begin as held, "in some" as not; one execution decides the other way.
    holds: bool,
    decided: bool,
}

impl<'a> Verdict<'a> {
    fn new(check: &'a Check, model: Model) -> Verdict<'a> {
        let in_some = matches!(
            check.claim,
            Claim::State { allowed: true, .. } | Claim::Cycle(true) | Claim::Deadlock(true)
        );
        Verdict { check, model, holds: !in_some, decided: false }
    }

    fn decide(&mut self, holds: bool) {
        (self.holds, self.decided) = (holds, true);
    }
}

pub(super) fn run(litmus: &Litmus, watch: &mut dyn FnMut(u64) -> Result<()>) -> Result<LitmusReport> {
    run_within(litmus, LIMITS, watch)
}

/// The same with other limits.
fn run_within(
    litmus: &Litmus,
    limits: Limits,
    watch: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<LitmusReport> {
    litmus.checks.iter().try_for_each(|check| refuse_unknown(litmus, check))?;
    // Executions are counted first: walking is quick, and a test that has too many is refused before any is judged.
    let (mut executions, mut budget) = (0, Budget::new(&litmus.name, limits, watch));
    let mut walk = Walk::new(litmus);
    walk.each(&mut |_, met| match met {
        Met::Look(count) => budget.look(count),
        Met::DeadEnd => budget.take(),
        Met::Execution => {
            executions += 1;
            budget.take()
        }
    })?;
    if executions == 0 {
        let message = format!(
            "{}: no execution is as 'sees' asks; without 'visible out of order' none may be",
            litmus.name
        );
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    let mut verdicts: Vec<Verdict<'_>> = litmus
        .checks
        .iter()
        .flat_map(|check| check.models.iter().map(move |&model| Verdict::new(check, model)))
        .collect();
    // The second walk is as long as the first.
    walk.each(&mut |walk, met| match met {
        Met::Execution => judge(litmus, walk, &mut verdicts, &mut budget),
        Met::Look(_) | Met::DeadEnd => Ok(()),
    })?;
    let checks = verdicts.into_iter().map(|verdict| CheckResult {
        line: verdict.check.line,
        text: verdict.check.text.clone(),
        model: verdict.model,
        holds: verdict.holds,
    });
    Ok(LitmusReport { name: litmus.name.clone(), executions, checks: checks.collect() })
}

/// Refuses a claim about which nothing is known where accesses become visible out of order.
fn refuse_unknown(litmus: &Litmus, check: &Check) -> Result<()> {
    let in_order = check.models.iter().find(|model| model.follows_program_order());
    let message = match (litmus.out_of_order, in_order, &check.claim) {
        (true, Some(model), _) => format!(
            "{}: {} persistency leaves stores in order; claim it of another",
            litmus.name,
            model.name()
        ),
        (true, None, Claim::State { .. }) => {
            format!("{}: states are known of executions in order only", litmus.name)
        }
        _ => return Ok(()),
    };
    Err(Error::new(ErrorKind::InvalidInput, message))
}

/// What one execution says of every claim that is open, model by model.
fn judge(
    litmus: &Litmus,
    walk: &Walk<'_>,
    verdicts: &mut [Verdict<'_>],
    budget: &mut Budget<'_>,
) -> Result<()> {
    budget.look(verdicts.len())?;
    if verdicts.iter().all(|verdict| verdict.decided) {
        return Ok(());
    }
    let execution: Execution<'_> = walk.execution();
    let events = execution.events();
    budget.derive(events.len())?;
    for model in Model::ALL {
        let mut open: Vec<&mut Verdict<'_>> =
            verdicts.iter_mut().filter(|verdict| verdict.model == model && !verdict.decided).collect();
        if open.is_empty() {
            continue;
        }
        budget.derive(events.len())?;
        let graph = OrderGraph::of_program(&events, &execution.program, model, model.conflicts())?;
        let ordered = |first: &str, second: &str| {
            graph.as_ref().is_ok_and(|graph| graph.is_before(execution.place(first), execution.place(second)))
        };
        let mut states = States { litmus, events: &events, model, observers: [None, None] };
        for verdict in &mut open {
            budget.look(events.len())?;
            let (found, decides) = match &verdict.check.claim {
                Claim::Before(first, second) => (ordered(first, second), false),
                Claim::Concurrent(first, second) => {
                    (graph.is_ok() && !ordered(first, second) && !ordered(second, first), false)
                }
                Claim::Cycle(wanted) => (graph.is_err() == *wanted, *wanted),
                Claim::Deadlock(wanted) => {
                    let trace: Trace = events.iter().copied().collect();
                    (bpfs_deadlock(&trace).is_some() == *wanted, *wanted)
                }
                Claim::State { values, allowed, at_end } => {
                    (states.leave(values, *at_end, budget)? == *allowed, *allowed)
                }
            };
            if found == decides {
                verdict.decide(decides);
            }
        }
    }
    Ok(())
}

/// What failures may leave of one execution under one model.
struct States<'a> {
    litmus: &'a Litmus,
    events: &'a [Event],
    model: Model,
    /// Of failures anywhere and at the end, once they are asked for.
    observers: [Option<Observer>; 2],
}

impl States<'_> {
    /// Whether some failure leaves `values`.
    fn leave(&mut self, values: &Values, at_end: bool, budget: &mut Budget<'_>) -> Result<bool> {
        let observer = match &mut self.observers[usize::from(at_end)] {
            Some(observer) => observer,
            none => {
                budget.derive(self.events.len())?;
                let failure = if at_end { Failure::AtEnd } else { Failure::Anywhere };
                let bytes = self.litmus.persistent.values().max().map_or(0, |last| last + 8) as usize;
                let trace: Trace = self.events.iter().copied().collect();
                none.insert(Observer::new(&trace, self.model, failure, vec![0; bytes])?)
            }
        };
        let words: Vec<(u64, u64)> = values
            .iter()
            .filter_map(|(name, value)| Some((*self.litmus.persistent.get(name)?, *value)))
            .collect();
        budget.look(self.events.len() * words.len())?;
        observer.may_leave(&words, || {
            budget.look(words.len())?;
            budget.take()
        })
    }
}

#[cfg(test)]
#[path = "run_test.rs"]
mod run_test;
