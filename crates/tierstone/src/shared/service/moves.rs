//! This shard's part in moves and compactions of a shared handle.
//!
//! Invariants:
//! 1. What is asked is answered when there is something to say, or by the error that ends the work: nobody asks
//!    again and again.
//! 2. Taking a step's records costs no more than moving them; they are made by the engine's own steps.

use super::super::answer::Reply;
use super::super::message::Message;
use super::super::transfer::{Ask, Told};
use super::{Service, Unfinished};
use crate::transfer::drive::{Until, Work, take_step};
use tierstone_base::{Error, Result};
use tierstone_engine::Engine;
use tierstone_logstore::transfer::MovedRecord;

/// What waits until there is something to say.
#[derive(Debug, Default)]
pub(super) struct Moves(Vec<(Ask, Reply<Told>)>);

impl Moves {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Service {
    /// Does what is asked, now or when there is something to say.
    pub(super) fn work(&mut self, ask: Ask, reply: Reply<Told>) {
        match self.told(&ask) {
            Some(told) => drop(reply.send(told)),
            None => self.moves.0.push((ask, reply)),
        }
    }

    /// Answers those who waited for what is to be said now.
    pub(super) fn tell_moves(&mut self) {
        if self.moves.is_empty() {
            return;
        }
        for (ask, reply) in std::mem::take(&mut self.moves.0) {
            self.work(ask, reply);
        }
    }

    /// What is to be said, if there is anything.
    fn told(&mut self, ask: &Ask) -> Option<Result<Told>> {
        let mut told = Told::default();
        let done = match *ask {
            Ask::Begin(work) => work.begin(&mut self.engine),
            Ask::Change(change) => self.engine.log().and_then(change),
            Ask::Take { until, seen } => match take_step(&mut self.engine, &mut told.records) {
                Ok(split) => {
                    let is_news = !told.records.is_empty() || split.segments_left != seen.segments_left;
                    if !is_news && !until.is_reached(&split) {
                        if until == Until::Dropped && split.segments_left == 0 && split.changed_keys == 0 {
                            self.engine.flush(self.now);
                        }
                        return None;
                    }
                    told.split = split;
                    Ok(())
                }
                Err(error) => Err(error),
            },
            Ask::Compact { seen } => {
                match self.engine.log() {
                    Ok(engine) => told.compact = engine.compact_progress(),
                    Err(error) => return Some(Err(error)),
                }
                if told.compact.segments_left > 0 && told.compact == seen {
                    return None;
                }
                Ok(())
            }
        };
        Some(done.map(|()| told))
    }

    /// Ends some work, done or not. Whoever asked for news of it has gone.
    pub(super) fn end_work(&mut self, work: Work) {
        work.end(&mut self.engine);
        self.moves.0.retain(|(ask, _)| match work {
            Work::Split(_) => !matches!(ask, Ask::Take { .. }),
            Work::Compact => !matches!(ask, Ask::Compact { .. }),
            Work::Merge(_) => true,
        });
    }

    /// Writes what another store's shard has sent. It is durable with a later sync.
    pub(super) fn ingest(
        &mut self,
        records: Vec<MovedRecord>,
        reply: Reply<()>,
        unfinished: Option<Unfinished>,
    ) {
        let now = self.now;
        match self.engine.log().and_then(|engine| engine.ingest(now, &records)) {
            Ok(_) => {
                self.full_since_us = None;
                drop(reply.send(Ok(())));
            }
            Err(error) if self.may_find_room(&error) => {
                self.stall(Message::Ingest { records, reply }, unfinished)
            }
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    /// Answers all who wait for news with `error`.
    pub(super) fn refuse_moves(&mut self, error: &Error) {
        for (_, reply) in std::mem::take(&mut self.moves.0) {
            drop(reply.send(Err(error.clone())));
        }
    }
}
