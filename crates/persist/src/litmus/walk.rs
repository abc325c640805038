//! Every execution of a litmus test, one after the other, and the limit of what is tried of one test.

use super::{Litmus, Step};
use crate::trace::{Event, Kind, Space};
use std::collections::{BTreeMap, BTreeSet};
use tierstone_base::{Error, ErrorKind, Result};

/// The most that is tried of one test.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Executions, ways into which `sees` leads and out of which nothing does, and states.
    pub(super) tries: u64,
    /// Steps that all orders have that are derived.
    pub(super) steps: u64,
}

/// Steps of work between two calls of what watches.
const WATCHED_EVERY: u64 = 1 << 16;

/// What may still be tried of one test.
pub(super) struct Budget<'a> {
    name: String,
    limits: Limits,
    tries_left: u64,
    /// Work done, in steps of an order derived.
    steps: u64,
    watch: &'a mut dyn FnMut(u64) -> Result<()>,
    watched_next: u64,
}

impl<'a> Budget<'a> {
    pub(super) fn new(name: &str, limits: Limits, watch: &'a mut dyn FnMut(u64) -> Result<()>) -> Budget<'a> {
        let tries_left = limits.tries;
        Budget { name: name.to_owned(), limits, tries_left, steps: 0, watch, watched_next: WATCHED_EVERY }
    }

    /// Takes one try.
    pub(super) fn take(&mut self) -> Result<()> {
        let Some(left) = self.tries_left.checked_sub(1) else {
            let message = format!(
                "{} has more than {} executions and states, which is the limit of one test; take steps or threads out \
                 of it",
                self.name, self.limits.tries
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        };
        self.tries_left = left;
        Ok(())
    }

    /// Takes the work of deriving an order of so many steps.
    pub(super) fn derive(&mut self, steps: usize) -> Result<()> {
        self.steps += steps as u64;
        if self.steps > self.limits.steps {
            let message = format!(
                "{} takes more than {} steps, which is the limit of one test: those of all its executions, each once \
                 for every order that its claims ask for; take steps, threads or claims out of it",
                self.name, self.limits.steps
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        if self.steps >= self.watched_next {
            self.watched_next = self.steps + WATCHED_EVERY;
            (self.watch)(self.steps)?;
        }
        Ok(())
    }

    /// Takes the work of looking at so many steps, words or names: many are as much as one step of an order.
    pub(super) fn look(&mut self, count: usize) -> Result<()> {
        self.derive(1 + count / LOOKS_A_STEP)
    }
}

/// So many looks take about as long as one step of an order.
const LOOKS_A_STEP: usize = 16;

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
    /// For each step the last one of its thread to the same word.
    before: Vec<Vec<Option<usize>>>,
    /// How many steps of each thread became visible.
    count: Vec<usize>,
    /// What one look for the next step looks at, at most.
    looks: usize,
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
        let steps: usize = litmus.threads.iter().map(Vec::len).sum();
        let next = if litmus.out_of_order { steps } else { litmus.threads.len() };
        Walk {
            litmus,
            before: litmus.threads.iter().map(|steps| last_to_each_word(steps)).collect(),
            count: vec![0; litmus.threads.len()],
            looks: next + litmus.sees.len(),
            taken: litmus.threads.iter().map(|steps| vec![false; steps.len()]).collect(),
            awaited: litmus.threads.iter().map(|steps| steps.iter().map(awaited).collect()).collect(),
            order: Vec::new(),
        }
    }

    /// Walks all executions. What it meets it gives to `visit`, so that its caller can bound the work.
    pub(super) fn each(&mut self, visit: &mut dyn FnMut(&Walk<'a>, Met) -> Result<()>) -> Result<()> {
        visit(self, Met::Look(self.looks))?;
        let (mut ended, mut went_on) = (true, false);
        for thread in 0..self.taken.len() {
            // In order, those that became visible are the first ones.
            let first = if self.litmus.out_of_order { 0 } else { self.count[thread] };
            for step in first..self.taken[thread].len() {
                if self.taken[thread][step] {
                    continue;
                }
                ended = false;
                if self.may_follow(thread, step) {
                    went_on = true;
                    self.taken[thread][step] = true;
                    self.count[thread] += 1;
                    self.order.push((thread, step));
                    self.each(visit)?;
                    self.order.pop();
                    self.count[thread] -= 1;
                    self.taken[thread][step] = false;
                }
                if !self.litmus.out_of_order {
                    break;
                }
            }
        }
        match (ended, went_on) {
            (true, _) => visit(self, Met::Execution),
            (false, true) => Ok(()),
            (false, false) => visit(self, Met::DeadEnd),
        }
    }

    /// Whether the step may become visible next. What is no access changes nothing that another thread sees, so
    /// it follows its thread's last step at once, except a sync, which other threads' time knows.
    fn may_follow(&self, thread: usize, step: usize) -> bool {
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
        // Out of order: still in order to one word, as coherence has it. The last one waited for those before it.
        self.before[thread][step].is_none_or(|last| self.taken[thread][last])
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

/// What a walk meets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Met {
    /// It looks for the next step, at so many steps and lines `sees` at most.
    Look(usize),
    /// All steps became visible.
    Execution,
    /// Steps are left of which `sees` lets none come next.
    DeadEnd,
}

/// For each step of a thread the last one before it to the same word.
fn last_to_each_word(steps: &[Step]) -> Vec<Option<usize>> {
    let mut last: BTreeMap<(Space, u64), usize> = BTreeMap::new();
    let mut before = |(at, step): (usize, &Step)| match step.event.is_access() {
        true => last.insert((step.event.space, step.event.address), at),
        false => None,
    };
    steps.iter().enumerate().map(&mut before).collect()
}
