//! A shard between its thread and its callers. Whoever has a message carries it in by itself when nobody else is
//! inside. One who waits for the answer does a request of the device itself that the answer depends on: the read
//! of a record, or the write of a group, its own or one that it waits for. The thread does everything else.
//!
//! Invariants:
//! 1. Whoever leaves has handed on every request that the engine made: none stays in the engine.
//! 2. A caller enters only where its message would not overtake one that lies in the mailbox, and never while
//!    the shard stands still or waits for a cut.
//! 3. The thread is awake, or woken, whenever there is something for it: a request of the device, a write that
//!    waits for room, a part, or a step before the time until which it sleeps.
//! 4. The shard does not end while a caller is at the device for it.
//! 5. Who waits for an answer is told after the lock is open again; so is who gets a request.
//! 6. Who is inside one shard enters another only where that is free at once ([`carry_in_together`]).
//!
//! Nobody holds the lock while waiting for anything. A caller that finds it taken tries for a moment, lets
//! others have its processor if it blocks anyway, and leaves its message in the mailbox then.

use super::Mailbox;
use super::gate::Ready;
use super::message::Message;
use super::service::Service;
use super::sleep::Waker;
use super::waiter::{Caller, Waiter, Waiters};
use crate::space::SpaceWatch;
use crate::storage::StorageCaller;
use crossbeam_channel::{Receiver, Sender};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use tierstone_base::Now;
use tierstone_base::clock::{Clock, SystemClock};
use tierstone_engine::{Engine, Event};
use tierstone_media::{IoCompletion, IoKind, IoRequest};

/// How often a caller looks whether the shard has become free.
const TRIES: u32 = 100;
/// How often one that blocks anyway lets another thread have its processor then, and looks again: who is inside may wait for
/// one. A message that goes to the shard's thread costs two switches of threads, and those that come meanwhile follow it.
const YIELDS: u32 = 3;
/// The longest request that a caller does itself: longer ones are nobody's answer alone.
const OWN_BYTES_MAX: usize = 128 << 10;

/// One shard, as its thread and its callers share it.
#[derive(Debug)]
pub(super) struct Shard {
    /// `None`: not built yet, or ended.
    inside: Mutex<Option<Inside>>,
    /// The thread wants to enter: callers who have another way take it.
    is_wanted: AtomicBool,
    left: Sender<IoRequest>,
}

/// What is to be had by one at a time.
#[derive(Debug)]
pub(super) struct Inside {
    pub service: Service,
    pub space: SpaceWatch,
    files: StorageCaller,
    clock: SystemClock,
    /// Until when the thread sleeps unless it is woken; 0 while it is awake.
    pub sleeps_until_us: u64,
    /// What callers brought from the device and the thread has to take.
    pub returned: Vec<IoCompletion>,
    waiters: Waiters,
    requests: Vec<IoRequest>,
    pub completions: Vec<IoCompletion>,
    events: Vec<Event>,
}

/// The room of a shard while somebody is in it.
pub(super) type Guard<'s> = MutexGuard<'s, Option<Inside>>;

/// What a caller takes along when it leaves.
struct Leaving {
    answers: Vec<Ready>,
    /// What it does itself.
    own: Option<IoRequest>,
    /// Who has got a request.
    given: Vec<Arc<Waiter>>,
    wakes: bool,
}

impl Shard {
    /// A shard that is not built yet; the other end gives the requests that callers leave to the thread.
    pub fn new() -> (Self, Receiver<IoRequest>) {
        let (left, requests) = crossbeam_channel::unbounded();
        (Shard { inside: Mutex::new(None), is_wanted: AtomicBool::new(false), left }, requests)
    }

    /// Makes it a shard that serves.
    pub fn open(&self, service: Service, files: StorageCaller, clock: SystemClock) {
        let inside = Inside {
            service,
            space: SpaceWatch::default(),
            files,
            clock,
            sleeps_until_us: 0,
            returned: Vec::new(),
            waiters: Waiters::default(),
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

    /// The same for the shard's thread, before callers who try: the lock by itself gives no turns.
    pub fn enter_first(&self) -> Option<Guard<'_>> {
        // No more than a hint: what it says is not relied upon.
        self.is_wanted.store(true, Ordering::Relaxed);
        let inside = self.enter();
        self.is_wanted.store(false, Ordering::Relaxed);
        inside
    }

    /// Enters if it is free within a moment.
    fn try_enter(&self, yields: u32) -> Option<Guard<'_>> {
        for turn in 0..TRIES + yields {
            if turn >= TRIES {
                std::thread::yield_now();
            }
            if !self.is_wanted.load(Ordering::Relaxed) {
                match self.inside.try_lock() {
                    Ok(inside) => return Some(inside),
                    Err(TryLockError::WouldBlock) => {}
                    Err(TryLockError::Poisoned(_)) => return None,
                }
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Has a message handled in this thread; gives it back if the shard's thread has to do it. `is_next` says that
    /// no other message is to be handled before.
    pub fn carry_in(
        &self,
        message: Message,
        is_next: impl Fn() -> bool,
        waker: &Waker,
        caller: &Caller,
    ) -> Option<Message> {
        let yields = if matches!(caller, Caller::GoesOn) { 0 } else { YIELDS };
        let Some(mut guard) = self.try_enter(yields) else { return Some(message) };
        let Some(inside) = guard.as_mut().filter(|inside| inside.service.is_open_for_more() && is_next())
        else {
            return Some(message);
        };
        let wants_step = message.wants_step();
        let now = inside.service.set_now(inside.clock.now());
        inside.service.take(message);
        if wants_step
            || inside.service.engine.next_step_at_us().is_some_and(|at_us| at_us <= now.monotonic_us)
        {
            inside.turn(now);
            inside.service.open_gate();
        }
        let leaving = inside.leave(!matches!(caller, Caller::GoesOn), caller, &self.left);
        let files = leaving.own.is_some().then(|| inside.files.clone());
        drop(guard);
        if let (Some(request), Some(files)) = (leaving.end(waker), files) {
            self.carry_out(request, &files, (waker, caller));
        }
        None
    }

    /// Enters for something that comes to several shards at one moment: only where it is free within a moment, a message
    /// may be handled, and none has to be handled before.
    fn enter_with_others(&self, is_next: impl Fn() -> bool) -> Option<Guard<'_>> {
        // Who holds others does not yield.
        self.try_enter(0).filter(|guard| {
            let takes = |inside: &Inside| inside.service.is_open_for_more() && !inside.service.has_part();
            guard.as_ref().is_some_and(takes) && is_next()
        })
    }

    /// Does a request that the caller was given, and what it leads to.
    pub fn lead(&self, request: IoRequest, waker: &Waker, caller: &Caller) {
        let files = self.enter().and_then(|inside| inside.as_ref().map(|inside| inside.files.clone()));
        if let Some(files) = files {
            self.carry_out(request, &files, (waker, caller));
        }
    }

    fn carry_out(&self, mut request: IoRequest, files: &StorageCaller, (waker, caller): (&Waker, &Caller)) {
        loop {
            let done = files.carry_out(request);
            let Some(mut guard) = self.enter() else { return };
            let Some(inside) = guard.as_mut() else { return };
            let leaving = inside.come_back(done, caller, &self.left);
            drop(guard);
            match leaving.end(waker) {
                Some(next) => request = next,
                None => return,
            }
        }
    }

    /// Leaves a request that a caller was given, and has no time for, to the thread.
    pub fn hand_on(&self, request: IoRequest, waker: &Waker) {
        if let Some(inside) = self.enter().as_mut().and_then(|inside| inside.as_mut()) {
            inside.service.guests -= 1;
            // The thread is gone only with the shard; nobody is promised anything then.
            let _ = self.left.send(request);
        }
        waker.wake();
    }
}

/// Has a message of each shard handled in this thread while it is inside all of them: at one moment. Gives the messages
/// back where one of the shards has somebody inside, or something else to do first. Tried, so that two who do this cannot
/// wait for each other.
pub(super) fn carry_in_together(ends: &[Mailbox], messages: Vec<Message>) -> Option<Vec<Message>> {
    let mut guards = Vec::with_capacity(ends.len());
    for end in ends {
        match end.shard.enter_with_others(|| end.sender.is_empty()) {
            Some(guard) => guards.push(guard),
            None => return Some(messages),
        }
    }
    for (guard, message) in guards.iter_mut().zip(messages) {
        if let Some(inside) = guard.as_mut() {
            inside.service.set_now(inside.clock.now());
            inside.service.take(message);
        }
    }
    // All have taken theirs.
    for (mut guard, end) in guards.into_iter().zip(ends) {
        let Some(inside) = guard.as_mut() else { continue };
        inside.service.end_hold();
        let now_us = inside.service.now_us();
        let is_due = inside.service.engine.next_step_at_us().is_some_and(|at_us| at_us <= now_us);
        if is_due || inside.service.is_waited_for() {
            let now = inside.service.set_now(inside.clock.now());
            inside.turn(now);
            inside.service.open_gate();
        }
        let leaving = inside.leave(false, &Caller::GoesOn, &end.shard.left);
        drop(guard);
        leaving.end(&end.waker);
    }
    None
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

    /// A caller has brought a request to its end.
    fn come_back(&mut self, done: IoCompletion, caller: &Caller, left: &Sender<IoRequest>) -> Leaving {
        self.service.guests -= 1;
        let now = self.service.set_now(self.clock.now());
        let is_write = done.kind != IoKind::Read;
        // What the refusal of a write means, and what happens in a shard that stands still, the thread knows.
        let is_for_thread = self.service.stands_still() || (is_write && done.result.is_err());
        if is_for_thread {
            self.returned.push(done);
        } else {
            self.completions.push(done);
            self.turn(now);
            self.service.open_gate();
        }
        // Behind a read comes what the caller wanted it for. Behind a write it has its answer, most likely.
        self.leave(!is_write && !is_for_thread, caller, left)
    }

    /// Gives the writes of groups among `requests` to callers that wait for them, as far as some do: these are to be
    /// woken.
    pub fn give_groups(&mut self, requests: &mut Vec<IoRequest>) -> Vec<Arc<Waiter>> {
        let is_group = |request: &mut IoRequest| request.kind == IoKind::WriteDurable && is_short(request);
        let (mut given, mut kept) = (Vec::new(), Vec::new());
        for request in requests.extract_if(.., is_group) {
            match self.waiters.give(request) {
                Ok(waiter) => given.push(waiter),
                Err(request) => kept.push(request),
            }
        }
        self.service.guests += given.len();
        requests.append(&mut kept);
        given
    }

    /// Hands on what is to be done: one request stays with a caller who waits, the write of a group goes to
    /// one who waits for it, the rest to the thread.
    fn leave(&mut self, does_more: bool, caller: &Caller, left: &Sender<IoRequest>) -> Leaving {
        self.service.engine.take_requests(&mut self.requests);
        let is_alone = self.requests.len() == 1;
        let (mut own, mut given, mut leaves_some) = (None, Vec::new(), false);
        for request in self.requests.drain(..) {
            let is_write = request.kind == IoKind::WriteDurable;
            let is_for_callers =
                is_short(&request) && (is_write || (request.kind == IoKind::Read && is_alone));
            let kept = if !is_for_callers {
                Err(request)
            } else if does_more && own.is_none() && !(is_write && matches!(caller, Caller::Waits)) {
                own = Some(request);
                Ok(())
            } else if is_write {
                self.waiters.give(request).map(|waiter| given.push(waiter))
            } else {
                Err(request)
            };
            match kept {
                Ok(()) => self.service.guests += 1,
                Err(request) => {
                    leaves_some = true;
                    // The thread is gone only with the shard; nobody is promised anything then.
                    let _ = left.send(request);
                }
            }
        }
        if let Caller::WaitsForWrite(waiter) = caller
            && own.is_none()
        {
            self.waiters.add(waiter);
        }
        // A thread that is awake looks for itself before it sleeps.
        let is_early = self.sleeps_until_us > 0
            && self.service.engine.next_step_at_us().is_some_and(|at_us| at_us < self.sleeps_until_us);
        let wakes = leaves_some || is_early || !self.returned.is_empty() || self.service.needs_thread();
        Leaving { answers: self.service.take_leaving(), own, given, wakes }
    }
}

/// Whether a caller may do it.
fn is_short(request: &IoRequest) -> bool {
    request.buffer.as_ref().map_or(0, |buffer| buffer.len()) <= OWN_BYTES_MAX
}

impl Leaving {
    /// Tells who is to be told; gives what the caller does itself.
    fn end(self, waker: &Waker) -> Option<IoRequest> {
        // First who has work to do.
        self.given.iter().for_each(|waiter| waiter.wake());
        if self.wakes {
            waker.wake();
        }
        self.answers.into_iter().for_each(Ready::send);
        self.own
    }
}

#[cfg(test)]
#[path = "shard_test.rs"]
mod shard_test;
