//! The thread of one shard: it carries messages, device requests and completions to and fro, as far as callers do
//! not do so themselves, and sleeps when there is nothing to carry.
//!
//! Invariant: it never waits for anything but its [`Sleeper`], and for callers inside the shard who wait for nothing,
//! so that messages and completions are served whichever comes first.

use super::gate::Ready;
use super::message::Message;
use super::service::Service;
use super::shard::{Guard, Inside, Shard};
use super::sleep::Sleeper;
use super::waiter::Waiter;
use crate::storage::StorageDevice;
use crossbeam_channel::{Receiver, TryRecvError};
use std::sync::Arc;
use std::time::Duration;
use tierstone_base::clock::{Clock, SystemClock};
use tierstone_base::{Error, ErrorKind};
use tierstone_engine::Engine;
use tierstone_media::{BlockDevice, IoCompletion, IoRequest, Wait};

/// Messages taken before the device is looked at again.
const MESSAGES_A_TURN: usize = 256;
/// How long callers wait while neither device nor engine has anything to do or a time to wait for, in
/// microseconds. Nothing known leads there; a caller that hangs would be worse than an error.
const IDLE_PATIENCE_US: u64 = 1_000_000;

/// The longest sleep while somebody waits for what nothing announces.
const WAITED_FOR: Duration = Duration::from_millis(1);

/// Everything that a shard's thread owns.
pub(super) struct ShardThread {
    pub shard: Arc<Shard>,
    pub device: StorageDevice,
    pub clock: SystemClock,
    pub mailbox: Receiver<Message>,
    /// Requests that callers have left.
    pub left: Receiver<IoRequest>,
    pub sleeper: Sleeper,
    pub requests: Vec<IoRequest>,
    /// Callers that have got a request and are to be woken.
    pub given: Vec<Arc<Waiter>>,
    pub completions: Vec<IoCompletion>,
    pub idle_since_us: Option<u64>,
}

/// What comes after a turn.
enum Next {
    Turn,
    /// To sleep, until something happens or for so long.
    Sleep(Option<Duration>),
    End,
}

impl ShardThread {
    /// Serves until the shard is shut, or nobody is left who could send.
    pub fn run(mut self) {
        let shard = Arc::clone(&self.shard);
        // When this thread panics too.
        let _end = Ending(&shard);
        loop {
            let next = match shard.enter_first() {
                Some(inside) => self.turn(&shard, inside),
                None => return,
            };
            let slept = match next {
                Next::Turn => Ok(()),
                Next::Sleep(timeout) => self.sleeper.sleep(timeout),
                Next::End => return,
            };
            // Without sleep the thread could only spin; the callers must know.
            if let Err(error) = slept {
                if let Some(inside) = shard.enter().as_mut().and_then(|inside| inside.as_mut()) {
                    inside.service.refuse_all(&error);
                }
                return;
            }
        }
    }

    /// A turn without the sleep after it; whether another one is to follow.
    #[cfg(test)]
    pub fn turn_once(&mut self, shard: &Shard, inside: Guard<'_>) -> bool {
        matches!(self.turn(shard, inside), Next::Turn)
    }

    /// Messages and completions in, what they lead to, requests out.
    fn turn<'s>(&mut self, shard: &'s Shard, mut guard: Guard<'s>) -> Next {
        let Some(inside) = guard.as_mut() else { return Next::End };
        inside.sleeps_until_us = 0;
        let service = &mut inside.service;
        let now = service.set_now(self.clock.now());
        let parted = service.advance_parts();
        if service.stands_still() {
            // Whoever the others wait for wakes all; a vote is taken back after a while.
            leave(guard);
            return Next::Sleep(Some(Duration::from_millis(1)));
        }
        let due = service.engine.next_step_at_us().is_some_and(|at_us| at_us <= now.monotonic_us);
        service.set_busy(due || self.device.in_flight() > 0);
        let resumed = service.end_hold();
        let Some(received) = self.receive(service) else { return Next::End };
        let received = received || resumed;
        let retried = service.retry_stalled() | service.advance_loads();
        // What a stalled write waits for may begin in a step only, which nothing else would bring.
        let is_stuck = service.has_stalled() && self.device.in_flight() == 0;
        let has_reason = received || retried || parted || due || is_stuck || !inside.returned.is_empty();
        service.engine.take_requests(&mut self.requests);
        self.given = inside.give_groups(&mut self.requests);
        leave(guard);
        self.wake_given();

        let mut moved = self.submit();
        if self.device.in_flight() > 0 {
            moved |= self.device.complete(Wait::Poll, &mut self.completions) > 0;
        }
        let Some(mut guard) = shard.enter_first() else { return Next::End };
        let Some(inside) = guard.as_mut() else { return Next::End };
        if has_reason || moved {
            let now = inside.service.set_now(self.clock.now());
            inside.completions.append(&mut inside.returned);
            inside.completions.append(&mut self.completions);
            moved |= inside.turn(now);
            inside.service.engine.take_requests(&mut self.requests);
            moved |= !self.requests.is_empty();
            self.given = inside.give_groups(&mut self.requests);
        }
        let next = if inside.service.settle() {
            Next::End
        } else if received || retried || parted || moved {
            self.idle_since_us = None;
            Next::Turn
        } else {
            self.rest(inside)
        };
        leave(guard);
        self.wake_given();
        self.submit();
        next
    }

    /// Wakes the callers that have got a group to write.
    fn wake_given(&mut self) {
        self.given.drain(..).for_each(|waiter| waiter.wake());
    }

    /// Takes messages; `None` when no sender is left.
    fn receive(&mut self, service: &mut Service) -> Option<bool> {
        let mut some = false;
        for _ in 0..MESSAGES_A_TURN {
            if !service.is_open_for_more() {
                break;
            }
            match self.mailbox.try_recv() {
                Ok(message) => {
                    some = true;
                    service.take(message);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return None,
            }
        }
        Some(some)
    }

    fn submit(&mut self) -> bool {
        self.requests.extend(self.left.try_iter());
        let some = !self.requests.is_empty();
        if some {
            self.device.submit(&mut self.requests);
        }
        some
    }

    /// How long there is nothing to do that nothing announces.
    fn rest(&mut self, inside: &mut Inside) -> Next {
        let service = &mut inside.service;
        let now_us = service.now_us();
        let due_us = service.engine.next_step_at_us();
        if due_us.is_some_and(|at| at <= now_us) {
            return Next::Turn;
        }
        inside.sleeps_until_us = due_us.unwrap_or(u64::MAX);
        let mut timeout = due_us.map(|at| Duration::from_micros(at - now_us));
        let is_idle = self.device.in_flight() == 0 && service.guests == 0;
        if is_idle && due_us.is_none() && service.is_waited_for() {
            let since_us = *self.idle_since_us.get_or_insert(now_us);
            if now_us - since_us > IDLE_PATIENCE_US {
                let error = Error::new(ErrorKind::Retry, "neither device nor engine makes progress");
                service.refuse_writers(&error);
            }
        }
        // A vote that was taken back is given again at once: others do not stand still for long.
        if service.has_part() || (is_idle && service.is_waited_for()) {
            timeout = Some(timeout.map_or(WAITED_FOR, |timeout| timeout.min(WAITED_FOR)));
        }
        Next::Sleep(timeout)
    }
}

/// Opens the shard to others, then tells who is to be told.
fn leave(mut guard: Guard<'_>) {
    let answers = guard.as_mut().map(|inside| inside.service.take_leaving());
    drop(guard);
    answers.into_iter().flatten().for_each(Ready::send);
}

/// Ends the shard with its thread.
struct Ending<'s>(&'s Shard);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
