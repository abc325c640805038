//! Shards that are made while the store serves already: which comes first, and how one learns that all are there.
//!
//! Invariant: at most as many shards as there are turns are made at a time, and of those that wait the next one is the lowest
//! that somebody has asked for, or the lowest of all.

use super::Running;
use super::answer::{Answer, Reply};
use super::message::Message;
use super::service::Service;
use super::shard::Shard;
use super::sleep::Sleeper;
use super::thread::ShardThread;
use crate::database::NOTED_EVERY;
use crate::engine::DatabasePlan;
use crate::storage::Storage;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tierstone_base::clock::{Clock, SystemClock};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_engine::Engine;
use tierstone_media::IoRequest;
use tierstone_media::file::DurableMethod;

/// The shards of a store that serves, as far as they are still being made ([`crate::SharedStore::open_serving`]). Dropping it
/// stops nothing.
#[derive(Debug)]
#[must_use = "a shard that cannot be made is told of here"]
pub struct Opening {
    pub(super) ready: Vec<Answer<()>>,
}

impl Opening {
    /// Whether every shard is there, or cannot be made.
    pub fn is_over(&self) -> bool {
        self.ready.iter().all(Answer::is_there)
    }

    /// Waits until every shard is there.
    ///
    /// # Errors
    /// What kept a shard from being made, as [`crate::SharedStore::open`] tells it.
    pub fn wait(self) -> Result<()> {
        self.ready.into_iter().try_for_each(Answer::wait)
    }
}

/// Who makes its shard now, and who waits for that.
#[derive(Debug)]
pub(super) struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// Shards that wait, with what was asked of them.
    waiting: Vec<(u32, Receiver<Message>)>,
}

/// The right to make a shard; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Turn<'t>(&'t Turns);

impl Turns {
    /// So many at a time.
    pub fn new(count: usize) -> Turns {
        let state = State { free: count.max(1), waiting: Vec::new() };
        Turns { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until it is the turn of `shard`, whose messages come to `mailbox`.
    pub fn take(&self, shard: u32, mailbox: &Receiver<Message>) -> Turn<'_> {
        let mut state = self.state();
        state.waiting.push((shard, mailbox.clone()));
        while state.free == 0 || state.next() != Some(shard) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.free -= 1;
        state.waiting.retain(|(waiting, _)| *waiting != shard);
        drop(state);
        // Another one may be next, with a turn that is free.
        self.changed.notify_all();
        Turn(self)
    }
}

impl State {
    fn next(&self) -> Option<u32> {
        self.waiting.iter().map(|(shard, mailbox)| (mailbox.is_empty(), *shard)).min().map(|(_, shard)| shard)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state().free += 1;
        self.0.changed.notify_all();
    }
}

/// What a shard's thread is started with.
pub(super) struct Start {
    pub turns: Arc<Turns>,
    pub plan: DatabasePlan,
    pub storage: Storage,
    pub method: DurableMethod,
    pub clock: SystemClock,
    pub relaxed: bool,
    pub measure_cpu: bool,
    pub scrub_rate: u64,
}

/// The thread's ends of the ways to a shard.
pub(super) struct Ends {
    pub shard: Arc<Shard>,
    pub mailbox: Receiver<Message>,
    pub left: Receiver<IoRequest>,
    pub sleeper: Sleeper,
}

pub(super) fn spawn(shard: u32, start: Start, ends: Ends, ready: Reply<()>) -> Result<JoinHandle<()>> {
    let thread = std::thread::Builder::new().name(format!("tierstone-{shard}"));
    let body = move || {
        let turns = Arc::clone(&start.turns);
        let turn = turns.take(shard, &ends.mailbox);
        let built = build(start, ends);
        drop(turn);
        match built {
            Ok(shard) => {
                drop(ready.send(Ok(())));
                shard.run();
            }
            Err(error) => drop(ready.send(Err(error))),
        }
    };
    thread.spawn(body).map_err(|error| Error::from(error).context("starting the thread of a shard"))
}

/// Starts the thread that keeps the superblock's list of segments, until the sender of `ends` is dropped, or the list cannot be
/// written: what fails here fails the shards too, and they tell their callers.
///
/// # Errors
/// When no thread can be made.
pub(super) fn keep_list(running: Arc<Mutex<Option<Running>>>, ends: Receiver<()>) -> Result<()> {
    let body = move || {
        while let Err(RecvTimeoutError::Timeout) = ends.recv_timeout(NOTED_EVERY) {
            let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
            if running.as_mut().is_some_and(|running| running.database.note_segments().is_err()) {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("tierstone-list".into());
    thread.spawn(body).map(drop).map_err(|error| Error::from(error).context("starting a thread"))
}

fn build(start: Start, ends: Ends) -> Result<ShardThread> {
    let Start { plan, storage, method, clock, relaxed, measure_cpu, scrub_rate, .. } = start;
    let Ends { shard, mailbox, left, mut sleeper } = ends;
    let mut device = storage.device(method)?;
    let (for_callers, is_memory) = (storage.caller(method)?, storage.nvm().is_some());
    // Device and shard alone keep files or volume open from here on.
    drop(storage);
    let (mut engine, _) = plan.build(&mut device)?;
    if measure_cpu {
        engine.set_cpu_clock(Box::new(clock));
    }
    engine.set_scrub_rate(scrub_rate);
    match device.wake_descriptor() {
        Some(descriptor) => sleeper.watch(descriptor)?,
        // Whatever lies in memory is done when it was submitted.
        None if is_memory => {}
        None => {
            let message = "the system gives no descriptor that announces completions";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
    }
    shard.open(Service::new(engine, relaxed, clock.now()), for_callers, clock);
    let (requests, completions) = (Vec::new(), Vec::new());
    Ok(ShardThread {
        shard,
        device,
        clock,
        mailbox,
        left,
        sleeper,
        requests,
        completions,
        idle_since_us: None,
        given: Vec::new(),
    })
}

#[cfg(test)]
#[path = "opening_test.rs"]
mod opening_test;
