//! Every execution of a litmus test, one after the other, and the limit of what is tried of one test.

use super::{Litmus, Step};
use crate::trace::{Event, Kind};
use std::collections::BTreeSet;
use tierstone_base::{Error, ErrorKind, Result};

/// What may still be tried of one test: executions, ways into which `sees` leads and out of which nothing does, and
/// states.
pub(super) struct Budget {
    name: String,
    limit: u64,
    left: u64,
}

impl Budget {
    pub(super) fn new(name: &str, limit: u64) -> Budget {
        Budget { name: name.to_owned(), limit, left: limit }
    }

    /// Takes one try.
    pub(super) fn take(&mut self) -> Result<()> {
        let Some(left) = self.left.checked_sub(1) else {
            let message = format!(
                "{} has more than {} executions and states, which is the limit of one test; take steps or threads out \
                 of it",
                self.name, self.limit
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        };
        self.left = left;
        Ok(())
    }
}

/// One order in which the steps of all threads became visible.
pub(super) struct Execution<'a> {
    /// Steps in that order.
    steps: Vec<&'a Step>,
    /// The places of `steps`, each thread's in program order.
    pub(super) program: Vec<usize>,
}

impl Execution<'_> {
    pub(super) fn events(&self) -> Vec<Event> {
        self.steps.iter().map(|step| step.event).collect()
    }

    pub(super) fn place(&self, label: &str) -> usize {
        self.steps.iter().position(|step| step.label.as_deref() == Some(label)).unwrap_or(usize::MAX)
    }
}

/// A walk over all executions, depth first.
pub(super) struct Walk<'a> {
    litmus: &'a Litmus,
    taken: Vec<Vec<bool>>,
    /// For each step those, by thread and number, that `sees` has become visible before it.
    awaited: Vec<Vec<Vec<(usize, usize)>>>,
    /// The steps that became visible so far: thread and number.
    order: Vec<(usize, usize)>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(litmus: &'a Litmus) -> Walk<'a> {
        let awaited = |step: &Step| -> Vec<(usize, usize)> {
            let mine = litmus.sees.iter().filter(|(_, second)| step.label.as_ref() == Some(second));
            let firsts: BTreeSet<&String> = mine.map(|(first, _)| first).collect();
            let threads = (0..).zip(&litmus.threads);
            let all = threads
                .flat_map(|(thread, steps)| (0..).zip(steps).map(move |(at, step)| ((thread, at), step)));
            all.filter(|(_, other)| other.label.as_ref().is_some_and(|label| firsts.contains(label)))
                .map(|(place, _)| place)
                .collect()
        };
        Walk {
            litmus,
            taken: litmus.threads.iter().map(|steps| vec![false; steps.len()]).collect(),
            awaited: litmus.threads.iter().map(|steps| steps.iter().map(awaited).collect()).collect(),
            order: Vec::new(),
        }
    }

    /// Gives every execution to `visit`. Calls `dead_end` where steps are left of which `sees` lets none come next:
    /// so the steps walked are bounded by the calls of both.
    pub(super) fn each(
        &mut self,
        visit: &mut dyn FnMut(&Walk<'a>) -> Result<()>,
        dead_end: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let (mut ended, mut went_on) = (true, false);
        for thread in 0..self.taken.len() {
            for step in 0..self.taken[thread].len() {
                if self.taken[thread][step] {
                    continue;
                }
                ended = false;
                if self.may_follow(thread, step) {
                    went_on = true;
                    self.taken[thread][step] = true;
                    self.order.push((thread, step));
                    self.each(visit, dead_end)?;
                    self.order.pop();
                    self.taken[thread][step] = false;
                }
                if !self.litmus.out_of_order {
                    break;
                }
            }
        }
        match (ended, went_on) {
            (true, _) => visit(self),
            (false, true) => Ok(()),
            (false, false) => dead_end(),
        }
    }

    /// Whether the step may become visible next. What is no access changes nothing that another thread sees, so
    /// it follows its thread's last step at once, except a sync, which other threads' time knows.
    fn may_follow(&self, thread: usize, step: usize) -> bool {
        let steps = &self.litmus.threads[thread];
        let mine = &steps[step];
        if self.awaited[thread][step].iter().any(|&(other, at)| !self.taken[other][at]) {
            return false;
        }
        // The store of a read-modify-write comes with its load.
        if let Some(&(last_thread, last_step)) = self.order.last() {
            let waits = self.litmus.threads[last_thread].get(last_step + 1).is_some_and(|next| {
                let mark = !next.event.is_access() && next.event.kind != Kind::Sync;
                (next.joined || mark) && !self.taken[last_thread][last_step + 1]
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

    /// The execution that the walk has come to the end of.
    pub(super) fn execution(&self) -> Execution<'a> {
        let litmus = self.litmus;
        let steps = self.order.iter().map(|&(thread, step)| &litmus.threads[thread][step]).collect();
        let mut program: Vec<usize> = (0..self.order.len()).collect();
        program.sort_by_key(|&place| self.order[place]);
        Execution { steps, program }
    }
}
