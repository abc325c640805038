//! Replies that leave together: a pipeline whose requests are for several shards is answered by each of them a moment
//! apart, and a send for each part would cost more than all the rest.
//!
//! Invariants:
//! 1. Replies that could leave wait only while another of the same connection is to come soon
//!    ([`crate::gate::ReplyQueue::reserve_soon`]), for [`TOGETHER_US`] at most, and never while they are many bytes.
//! 2. Who has waited for so long waits no more before nothing is to come soon.

use crate::connections::Phase;
use crate::service::Service;
use crate::turn::Turn;
use std::collections::VecDeque;

/// How long replies wait for others.
const TOGETHER_US: u64 = 200;
/// Bytes of replies that are worth a send of their own.
const TOGETHER_BYTES: usize = 16 << 10;

/// Connections whose replies wait for others.
#[derive(Debug, Default)]
pub(crate) struct Together {
    /// Until when, and whose, in this order. Stale where the connection says otherwise.
    waiting: VecDeque<(u64, u32)>,
}

impl Together {
    /// When the first of them waits no more, by the monotonic clock.
    pub fn next_turn_at_us(&self) -> Option<u64> {
        self.waiting.front().map(|(by_us, _)| *by_us)
    }
}

impl<S: Service> Turn<S> {
    /// Whether what could be sent to `index` waits for more.
    pub(crate) fn waits_for_more(&mut self, index: u32) -> bool {
        let (durable, now_us) = (self.durable, self.now.monotonic_us);
        let Some(entry) = self.connections.entry(index) else { return false };
        if !entry.output.has_soon() {
            entry.together_by_us = 0;
            return false;
        }
        if entry.phase != Phase::Open || entry.output.len() >= TOGETHER_BYTES {
            return false;
        }
        if !entry.output.release(durable) {
            return true;
        }
        if entry.together_by_us == 0 {
            entry.together_by_us = now_us + TOGETHER_US;
            self.together.waiting.push_back((entry.together_by_us, index));
        }
        now_us < entry.together_by_us
    }

    /// Has those looked at who have waited for long enough, and forgets those in front who wait no more: nobody is to
    /// wake for them.
    pub(crate) fn end_waits(&mut self) {
        while let Some((by_us, index)) = self.together.waiting.front().copied() {
            let is_its = self.connections.entry(index).is_some_and(|entry| entry.together_by_us == by_us);
            if is_its && by_us > self.now.monotonic_us {
                break;
            }
            self.together.waiting.pop_front();
            if is_its {
                self.connections.note_changed(index);
            }
        }
    }
}

#[cfg(test)]
#[path = "together_test.rs"]
mod together_test;
