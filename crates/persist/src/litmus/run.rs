//! Every execution of a litmus test, and what its claims say of each.

use super::{Check, Claim, Litmus, Step};
use crate::observer::{Failure, Observer};
use crate::order::{Model, OrderGraph, bpfs_deadlock};
use crate::trace::{Event, Trace};
use std::fmt;
use tierstone_base::{Error, ErrorKind, Result};

/// Executions and states of one test at most.
const LIMIT: u64 = 1_000_000;

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

/// One order in which the steps of all threads became visible.
struct Execution<'a> {
    /// Steps in that order.
    steps: Vec<&'a Step>,
    /// The places of `steps`, each thread's in program order.
    program: Vec<usize>,
}

impl Execution<'_> {
    fn events(&self) -> Vec<Event> {
        self.steps.iter().map(|step| step.event).collect()
    }

    fn place(&self, label: &str) -> usize {
        self.steps.iter().position(|step| step.label.as_deref() == Some(label)).unwrap_or(usize::MAX)
    }
}

/// The state of a claim over all executions so far.
struct Verdict<'a> {
    check: &'a Check,
    model: Model,
    /// Claims of the kind "in every execution" begin as held, "in some" as not.
    holds: bool,
}

pub(super) fn run(litmus: &Litmus) -> Result<LitmusReport> {
    let begins = |claim: &Claim| {
        !matches!(claim, Claim::State { allowed: true, .. } | Claim::Cycle(true) | Claim::Deadlock(true))
    };
    let mut verdicts: Vec<Verdict<'_>> = litmus
        .checks
        .iter()
        .flat_map(|check| {
            check.models.iter().map(move |&model| Verdict { check, model, holds: begins(&check.claim) })
        })
        .collect();
    let mut executions = 0;
    let mut walk = Walk {
        litmus,
        taken: litmus.threads.iter().map(|steps| vec![false; steps.len()]).collect(),
        order: Vec::new(),
    };
    walk.each(&mut |execution| {
        executions += 1;
        if executions > LIMIT {
            let message = format!("{} has more than {LIMIT} executions; take steps out of it", litmus.name);
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        verdicts.iter_mut().try_for_each(|verdict| judge(litmus, execution, verdict))
    })?;
    if executions == 0 {
        let message = format!(
            "{}: no execution is as 'sees' asks; without 'visible out of order' none may be",
            litmus.name
        );
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    let checks = verdicts.into_iter().map(|verdict| CheckResult {
        line: verdict.check.line,
        text: verdict.check.text.clone(),
        model: verdict.model,
        holds: verdict.holds,
    });
    Ok(LitmusReport { name: litmus.name.clone(), executions, checks: checks.collect() })
}

/// A walk over all executions, depth first.
struct Walk<'a> {
    litmus: &'a Litmus,
    taken: Vec<Vec<bool>>,
    /// The steps that became visible so far: thread and number.
    order: Vec<(usize, usize)>,
}

impl<'a> Walk<'a> {
    fn each(&mut self, visit: &mut dyn FnMut(&Execution<'a>) -> Result<()>) -> Result<()> {
        let mut ended = true;
        for thread in 0..self.taken.len() {
            for step in 0..self.taken[thread].len() {
                if self.taken[thread][step] {
                    continue;
                }
                ended = false;
                if self.may_follow(thread, step) {
                    self.taken[thread][step] = true;
                    self.order.push((thread, step));
                    self.each(visit)?;
                    self.order.pop();
                    self.taken[thread][step] = false;
                }
                if !self.litmus.out_of_order {
                    break;
                }
            }
        }
        if ended { visit(&self.execution()) } else { Ok(()) }
    }

    /// Whether the step may become visible next. What is no access changes nothing that another thread sees, so
    /// it follows its thread's last step at once, except a sync, which other threads' time knows.
    fn may_follow(&self, thread: usize, step: usize) -> bool {
        let steps = &self.litmus.threads[thread];
        let mine = &steps[step];
        let unseen = |label: &str| {
            let threads = self.litmus.threads.iter().zip(&self.taken);
            threads
                .flat_map(|(steps, taken)| steps.iter().zip(taken))
                .any(|(other, taken)| !taken && other.label.as_deref() == Some(label))
        };
        if self
            .litmus
            .sees
            .iter()
            .any(|(first, second)| mine.label.as_deref() == Some(second) && unseen(first))
        {
            return false;
        }
        // The store of a read-modify-write comes with its load.
        if let Some(&(last_thread, last_step)) = self.order.last() {
            let waits = self.litmus.threads[last_thread].get(last_step + 1).is_some_and(|next| {
                let last = &self.litmus.threads[last_thread][last_step];
                let pair = last.label.is_none()
                    && last.event.kind == crate::trace::Kind::Load
                    && next.label.is_some();
                let same = pair
                    && next.event.address == last.event.address
                    && next.event.kind == crate::trace::Kind::Store;
                let mark = !next.event.is_access() && next.event.kind != crate::trace::Kind::Sync;
                (same || mark) && !self.taken[last_thread][last_step + 1]
            });
            if waits && (thread, step) != (last_thread, last_step + 1) {
                return false;
            }
        }
        // Out of order: still in order to one word, as coherence has it.
        let earlier = steps[..step].iter().zip(&self.taken[thread]);
        !earlier.into_iter().any(|(other, taken)| {
            let same_word = other.event.is_access()
                && mine.event.is_access()
                && other.event.address == mine.event.address;
            !taken && same_word && other.event.space == mine.event.space
        })
    }

    fn execution(&self) -> Execution<'a> {
        let litmus = self.litmus;
        let steps = self.order.iter().map(|&(thread, step)| &litmus.threads[thread][step]).collect();
        let mut program: Vec<usize> = (0..self.order.len()).collect();
        program.sort_by_key(|&place| self.order[place]);
        Execution { steps, program }
    }
}

fn judge(litmus: &Litmus, execution: &Execution<'_>, verdict: &mut Verdict<'_>) -> Result<()> {
    let events = execution.events();
    let model = verdict.model;
    if litmus.out_of_order && model.follows_program_order() {
        let message = format!(
            "{}: {} persistency leaves stores in order; claim it of another",
            litmus.name,
            model.name()
        );
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    let graph = OrderGraph::of_program(&events, &execution.program, model, model.conflicts())?;
    let ordered = |first: &str, second: &str| {
        graph.as_ref().is_ok_and(|graph| graph.is_before(execution.place(first), execution.place(second)))
    };
    match &verdict.check.claim {
        Claim::Before(first, second) => verdict.holds &= ordered(first, second),
        Claim::Concurrent(first, second) => {
            verdict.holds &= graph.is_ok() && !ordered(first, second) && !ordered(second, first);
        }
        Claim::Cycle(wanted) => match wanted {
            true => verdict.holds |= graph.is_err(),
            false => verdict.holds &= graph.is_ok(),
        },
        Claim::Deadlock(wanted) => {
            let found = bpfs_deadlock(&events.into_iter().collect()).is_some();
            match wanted {
                true => verdict.holds |= found,
                false => verdict.holds &= !found,
            }
        }
        Claim::State { values, allowed, at_end } => {
            if litmus.out_of_order {
                let message = format!("{}: states are known of executions in order only", litmus.name);
                return Err(Error::new(ErrorKind::InvalidInput, message));
            }
            let trace: Trace = events.into_iter().collect();
            let failure = if *at_end { Failure::AtEnd } else { Failure::Anywhere };
            let bytes = litmus.persistent.values().max().map_or(0, |last| last + 8) as usize;
            let mut found = false;
            Observer::new(&trace, model, failure, vec![0; bytes])?.enumerate(LIMIT, |state| {
                let value = |name: &String| {
                    let at = litmus.persistent.get(name).copied().unwrap_or(0) as usize;
                    let mut word = [0; 8];
                    word.copy_from_slice(&state.image[at..at + 8]);
                    u64::from_le_bytes(word)
                };
                found |= values.iter().all(|(name, wanted)| value(name) == *wanted);
                Ok(())
            })?;
            match allowed {
                true => verdict.holds |= found,
                false => verdict.holds &= !found,
            }
        }
    }
    Ok(())
}
