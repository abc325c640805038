//! Answers that wait until what they have observed is durable.
//!
//! Invariants:
//! 1. An answer leaves when the durable sequence has reached the one it observed, or as an error.
//! 2. Answers to one sequence are given in the order in which they came.

use super::across::Across;
use super::answer::Reply;
use super::cut::Taken;
use crate::range::RangePage;
use crate::scan::Page;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use tierstone_base::{Error, Result, Seq};

/// An answer that is ready but for the gate.
#[derive(Debug)]
pub(super) enum Ready {
    Value(Reply<Option<Vec<u8>>>, Result<Option<Vec<u8>>>),
    Values(Reply<Vec<Option<Vec<u8>>>>, Result<Vec<Option<Vec<u8>>>>),
    Page(Reply<Page>, Page),
    Range(Reply<RangePage>, Result<RangePage>),
    Deleted(Reply<bool>, bool),
    Snapshot(Reply<Taken>, Taken),
    Done(Reply<()>),
    /// Of a batch over several shards: whoever knows first that it is decided answers.
    Across(Arc<Across>),
}

impl Ready {
    /// Gives the answer. Whoever has dropped the other end does not want it.
    pub fn send(self) {
        match self {
            Ready::Value(reply, value) => drop(reply.send(value)),
            Ready::Values(reply, values) => drop(reply.send(values)),
            Ready::Page(reply, page) => drop(reply.send(Ok(page))),
            Ready::Range(reply, page) => drop(reply.send(page)),
            Ready::Deleted(reply, existed) => drop(reply.send(Ok(existed))),
            Ready::Snapshot(reply, id) => drop(reply.send(Ok(id))),
            Ready::Done(reply) => drop(reply.send(Ok(()))),
            Ready::Across(across) => across.answer(Ok(())),
        }
    }

    /// Gives an error instead.
    pub fn refuse(self, error: Error) {
        match self {
            Ready::Value(reply, _) => drop(reply.send(Err(error))),
            Ready::Values(reply, _) => drop(reply.send(Err(error))),
            Ready::Page(reply, _) => drop(reply.send(Err(error))),
            Ready::Range(reply, _) => drop(reply.send(Err(error))),
            Ready::Deleted(reply, _) => drop(reply.send(Err(error))),
            Ready::Snapshot(reply, _) => drop(reply.send(Err(error))),
            Ready::Done(reply) => drop(reply.send(Err(error))),
            Ready::Across(across) => across.answer(Err(error)),
        }
    }
}

#[derive(Debug)]
struct Waiting {
    key: Reverse<(Seq, u64)>,
    ready: Ready,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// The answers of one shard that wait.
#[derive(Debug, Default)]
pub(super) struct Gate {
    waiting: BinaryHeap<Waiting>,
    came: u64,
}

impl Gate {
    /// Holds `ready` until `observed` is durable.
    pub fn hold(&mut self, observed: Seq, ready: Ready) {
        self.came += 1;
        self.waiting.push(Waiting { key: Reverse((observed, self.came)), ready });
    }

    /// Gives what has observed nothing above `durable`.
    pub fn open_to(&mut self, durable: Seq, ready: &mut Vec<Ready>) {
        while self.waiting.peek().is_some_and(|waiting| waiting.key.0.0 <= durable) {
            ready.extend(self.waiting.pop().map(|waiting| waiting.ready));
        }
    }

    /// Answers everything that waits with `error`.
    pub fn refuse_all(&mut self, error: &Error) {
        self.waiting.drain().for_each(|waiting| waiting.ready.refuse(error.clone()));
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::answer::Answer;
    use super::*;

    #[test]
    fn an_answer_leaves_when_what_it_observed_is_durable_and_not_before() {
        let mut gate = Gate::default();
        let (late, mut late_answer) = Answer::<()>::new();
        let (early, early_answer) = Answer::<()>::new();
        gate.hold(7, Ready::Done(late));
        gate.hold(3, Ready::Done(early));
        let mut open_to = |durable| {
            let mut ready = Vec::new();
            gate.open_to(durable, &mut ready);
            ready.into_iter().for_each(Ready::send);
        };
        open_to(6);
        early_answer.wait().unwrap();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(Future::poll(std::pin::Pin::new(&mut late_answer), &mut context).is_pending());
        open_to(7);
        assert!(gate.is_empty());
        late_answer.wait().unwrap();
    }

    #[test]
    fn a_refused_gate_answers_everybody_with_the_error() {
        let mut gate = Gate::default();
        let (reply, answer) = Answer::new();
        gate.hold(1, Ready::Value(reply, Ok(Some(vec![1]))));
        gate.refuse_all(&Error::new(tierstone_base::ErrorKind::DeviceFailed, "gone"));
        assert_eq!(answer.wait().unwrap_err().kind(), tierstone_base::ErrorKind::DeviceFailed);
    }
}
