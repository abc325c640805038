//! A shard between its thread and its callers. Whoever has a message carries it in by itself when nobody else is
//! inside, and does at most one request of the device at a time itself if it waits for the answer anyway; the
//! thread does everything else.
//!
//! Invariants:
//! 1. Whoever leaves has handed on every request that the engine made: none stays in the engine.
//! 2. A caller enters only where its message would not overtake one that lies in the mailbox, and never while
//!    the shard stands still or waits for a cut.
//! 3. The thread is awake, or woken, whenever there is something for it: a request of the device, a write that
//!    waits for room, a part, or a step before the time until which it sleeps.
//! 4. The shard does not end while a caller is at the device for it.
//! 5. Who waits for an answer is told after the lock is open again.
//!
//! Nobody holds the lock while waiting for anything. A caller that finds it taken tries for a moment, and
//! leaves its message in the mailbox then.

use super::gate::Ready;
use super::message::Message;
use super::service::Service;
use super::sleep::Waker;
use crate::space::SpaceWatch;
use crossbeam_channel::{Receiver, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use tierstone_base::Now;
use tierstone_base::clock::{Clock, SystemClock};
use tierstone_engine::{Engine, Event};
use tierstone_media::file::CallingThread;
use tierstone_media::{IoCompletion, IoKind, IoRequest};

/// How often a caller looks whether the shard has become free.
const TRIES: u32 = 100;
/// The longest request that a caller does itself: longer ones are nobody's answer alone.
const OWN_BYTES_MAX: usize = 128 << 10;
/// Requests that one call does itself: reads of records that may be the key's, and the write of a group.
const OWN_REQUESTS_MAX: u32 = 8;

/// One shard, as its thread and its callers share it.
#[derive(Debug)]
pub(super) struct Shard {
    /// `None`: not built yet, or ended.
    inside: Mutex<Option<Inside>>,
    left: Sender<IoRequest>,
}

/// What is to be had by one at a time.
#[derive(Debug)]
pub(super) struct Inside {
    pub service: Service,
    pub space: SpaceWatch,
    files: CallingThread,
    clock: SystemClock,
    /// Until when the thread sleeps unless it is woken; 0 while it is awake.
    pub sleeps_until_us: u64,
    /// What callers brought from the device and the thread has to take.
    pub returned: Vec<IoCompletion>,
    requests: Vec<IoRequest>,
    pub completions: Vec<IoCompletion>,
    events: Vec<Event>,
}

/// The room of a shard while somebody is in it.
pub(super) type Guard<'s> = MutexGuard<'s, Option<Inside>>;

/// What a caller takes along when it leaves.
struct Leaving {
    answers: Vec<Ready>,
    own: Option<IoRequest>,
    wakes: bool,
}

impl Shard {
    /// A shard that is not built yet; the other end gives the requests that callers leave to the thread.
    pub fn new() -> (Self, Receiver<IoRequest>) {
        let (left, requests) = crossbeam_channel::unbounded();
        (Shard { inside: Mutex::new(None), left }, requests)
    }

    /// Makes it a shard that serves.
    pub fn open(&self, service: Service, files: CallingThread, clock: SystemClock) {
        let inside = Inside {
            service,
            space: SpaceWatch::default(),
            files,
            clock,
            sleeps_until_us: 0,
            returned: Vec::new(),
            requests: Vec::new(),
            completions: Vec::new(),
            events: Vec::new(),
        };
        *self.inside.lock().unwrap_or_else(PoisonError::into_inner) = Some(inside);
    }

    /// Ends it: whoever waits for an answer sees that it is gone.
    pub fn end(&self) {
        let ended = self.inside.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Outside the lock: who hears of it may call again.
        drop(ended);
    }

    /// Waits until nobody else is inside; `None` when the shard has ended, or somebody panicked in it.
    pub fn enter(&self) -> Option<Guard<'_>> {
        self.inside.lock().ok().filter(|inside| inside.is_some())
    }

    /// Enters if it is free within a moment.
    fn try_enter(&self) -> Option<Guard<'_>> {
        for _ in 0..TRIES {
            match self.inside.try_lock() {
                Ok(inside) => return Some(inside),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
                Err(TryLockError::Poisoned(_)) => return None,
            }
        }
        None
    }

    /// Has a message handled in this thread; gives it back if the shard's thread has to do it. With
    /// `is_answered`, the caller waits for the answer and does a request of the device itself until then.
    /// `is_next` says that no other message is to be handled before.
    pub fn carry_in(
        &self,
        message: Message,
        is_next: impl Fn() -> bool,
        waker: &Waker,
        is_answered: Option<&dyn Fn() -> bool>,
    ) -> Option<Message> {
        let Some(mut guard) = self.try_enter() else { return Some(message) };
        let Some(inside) = guard.as_mut().filter(|inside| inside.service.is_open_for_more() && is_next()) else {
            return Some(message);
        };
        let wants_step = message.wants_step();
        let now = inside.service.set_now(inside.clock.now());
        inside.service.take(message);
        if wants_step || inside.service.engine.next_step_at_us().is_some_and(|at_us| at_us <= now.monotonic_us) {
            inside.turn(now);
            inside.service.open_gate();
        }
        let mut leaving = inside.leave(is_answered.is_some(), &self.left);
        let files = leaving.own.is_some().then(|| inside.files.clone());
        drop(guard);
        let (Some(files), Some(is_answered)) = (files, is_answered) else {
            leaving.end(waker);
            return None;
        };
        for number in 1.. {
            let own = leaving.own.take();
            leaving.end(waker);
            let Some(request) = own else { break };
            let is_enough = number > OWN_REQUESTS_MAX || is_answered();
            let done = if is_enough { Err(request) } else { Ok(files.carry_out(request)) };
            let Some(mut guard) = self.enter() else { break };
            let Some(inside) = guard.as_mut() else { break };
            leaving = inside.come_back(done, &self.left);
        }
        None
    }
}

impl Inside {
    /// A step of the engine with what came from the device; true when something became known.
    pub fn turn(&mut self, now: Now) -> bool {
        self.space.note(&self.completions, now.monotonic_us);
        if let Some(error) = self.space.verdict(0, now.monotonic_us) {
            self.service.refuse_writers(&error);
        }
        self.service.engine.step(now, &mut self.completions, &mut self.events);
        let some = !self.events.is_empty();
        for event in self.events.drain(..) {
            self.service.on_event(event);
        }
        some
    }

    /// A caller has brought its request to an end, or brings it back undone.
    fn come_back(&mut self, done: Result<IoCompletion, IoRequest>, left: &Sender<IoRequest>) -> Leaving {
        self.service.guests -= 1;
        let now = self.service.set_now(self.clock.now());
        let mut may_do_more = false;
        match done {
            Err(request) => self.requests.push(request),
            // What the refusal of a write means, and what happens in a shard that stands still, the thread knows.
            Ok(done) if self.service.stands_still() || (done.kind != IoKind::Read && done.result.is_err()) => {
                self.returned.push(done);
            }
            Ok(done) => {
                self.completions.push(done);
                self.turn(now);
                self.service.open_gate();
                may_do_more = true;
            }
        }
        self.leave(may_do_more, left)
    }

    /// Hands on what is to be done; the only request of the device stays with a caller who waits.
    fn leave(&mut self, waits: bool, left: &Sender<IoRequest>) -> Leaving {
        self.service.engine.take_requests(&mut self.requests);
        let is_own = |request: &IoRequest| {
            let len = request.buffer.as_ref().map_or(0, |buffer| buffer.len());
            matches!(request.kind, IoKind::Read | IoKind::WriteDurable) && len <= OWN_BYTES_MAX
        };
        let is_own = waits && self.requests.len() == 1 && self.requests.iter().all(is_own);
        let own = if is_own { self.requests.pop() } else { None };
        self.service.guests += usize::from(own.is_some());
        let mut wakes = !self.requests.is_empty() || !self.returned.is_empty() || self.service.needs_thread();
        for request in self.requests.drain(..) {
            // The thread is gone only with the shard; nobody is promised anything then.
            let _ = left.send(request);
        }
        wakes |= self.service.engine.next_step_at_us().is_some_and(|at_us| at_us < self.sleeps_until_us);
        Leaving { answers: self.service.take_leaving(), own, wakes }
    }
}

impl Leaving {
    /// Tells who is to be told.
    fn end(&mut self, waker: &Waker) {
        self.answers.drain(..).for_each(Ready::send);
        if std::mem::take(&mut self.wakes) {
            waker.wake();
        }
    }
}
