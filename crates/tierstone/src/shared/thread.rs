//! The thread of one shard: it carries messages, device requests and completions to and fro, and
//! sleeps when there is nothing to carry.
//!
//! Invariant: it never waits for anything but its [`Sleeper`], so that messages and completions are
//! served whichever comes first.

use super::message::Message;
use super::service::Service;
use super::sleep::Sleeper;
use crate::space::SpaceWatch;
use crossbeam_channel::{Receiver, TryRecvError};
use std::time::Duration;
use tierstone_base::clock::{Clock, SystemClock};
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_engine::{Engine, Event};
use tierstone_media::file::FileDevice;
use tierstone_media::{BlockDevice, IoCompletion, IoRequest, Wait};

/// Messages taken before the device is looked at again.
const MESSAGES_A_TURN: usize = 256;
/// How long callers wait while neither device nor engine has anything to do or a time to wait for, in
/// microseconds. Nothing known leads there; a caller that hangs would be worse than an error.
const IDLE_PATIENCE_US: u64 = 1_000_000;

/// Everything that a shard's thread owns.
pub(super) struct ShardThread {
    pub service: Service,
    pub device: FileDevice,
    pub clock: SystemClock,
    pub mailbox: Receiver<Message>,
    pub sleeper: Sleeper,
    pub requests: Vec<IoRequest>,
    pub completions: Vec<IoCompletion>,
    pub events: Vec<Event>,
    pub idle_since_us: Option<u64>,
    pub space: SpaceWatch,
}

impl ShardThread {
    /// Serves until the shard is shut, or nobody is left who could send.
    pub fn run(mut self) {
        loop {
            let now = self.service.set_now(self.clock.now());
            let parted = self.service.advance_parts();
            if self.service.stands_still() {
                // Whoever the others wait for wakes all; a vote is taken back after a while.
                if let Err(error) = self.sleeper.sleep(Some(Duration::from_millis(1))) {
                    self.service.refuse_all(&error);
                    return;
                }
                continue;
            }
            let due = self.service.engine.next_step_at_us().is_some_and(|at_us| at_us <= now.monotonic_us);
            self.service.set_busy(due || self.device.in_flight() > 0);
            let resumed = self.service.end_hold();
            let Some(received) = self.receive() else { return };
            let received = received || resumed;
            let retried = self.service.retry_stalled() | self.service.advance_loads();
            // What a stalled write waits for may begin in a step only, which nothing else would bring.
            let is_stuck = self.service.has_stalled() && self.device.in_flight() == 0;
            let turned = self.turn(received || retried || parted || due || is_stuck);
            if self.service.settle() {
                return;
            }
            if received || retried || parted || turned {
                self.idle_since_us = None;
            } else if let Err(error) = self.sleep() {
                // Without sleep the thread could only spin; the callers must know.
                self.service.refuse_all(&error);
                return;
            }
        }
    }

    /// Takes messages; `None` when no sender is left.
    fn receive(&mut self) -> Option<bool> {
        let mut some = false;
        for _ in 0..MESSAGES_A_TURN {
            if !self.service.is_open_for_more() {
                break;
            }
            match self.mailbox.try_recv() {
                Ok(message) => {
                    some = true;
                    self.service.take(message);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return None,
            }
        }
        Some(some)
    }

    /// Requests out, completions in, a step if there is a reason, requests out; true when something
    /// moved.
    fn turn(&mut self, has_reason: bool) -> bool {
        let mut moved = self.submit();
        if self.device.in_flight() > 0 {
            moved |= self.device.complete(Wait::Poll, &mut self.completions) > 0;
        }
        if !has_reason && !moved {
            return false;
        }
        let now = self.service.set_now(self.clock.now());
        self.space.note(&self.completions, now.monotonic_us);
        if let Some(error) = self.space.verdict(0, now.monotonic_us) {
            self.service.refuse_writers(&error);
        }
        self.service.engine.step(now, &mut self.completions, &mut self.events);
        moved |= !self.events.is_empty();
        for event in self.events.drain(..) {
            self.service.on_event(event);
        }
        self.submit() || moved
    }

    fn submit(&mut self) -> bool {
        self.service.engine.take_requests(&mut self.requests);
        let some = !self.requests.is_empty();
        if some {
            self.device.submit(&mut self.requests);
        }
        some
    }

    fn sleep(&mut self) -> Result<()> {
        let now_us = self.service.now_us();
        let due_us = self.service.engine.next_step_at_us();
        if due_us.is_some_and(|at| at <= now_us) {
            return Ok(());
        }
        let mut timeout = due_us.map(|at| Duration::from_micros(at - now_us));
        if self.device.in_flight() == 0 && due_us.is_none() && self.service.is_waited_for() {
            let since_us = *self.idle_since_us.get_or_insert(now_us);
            if now_us - since_us > IDLE_PATIENCE_US {
                let error = Error::new(ErrorKind::Retry, "neither device nor engine makes progress");
                self.service.refuse_writers(&error);
            }
            timeout = Some(Duration::from_millis(1));
        }
        self.sleeper.sleep(timeout)
    }
}
