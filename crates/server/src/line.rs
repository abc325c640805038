//! Who may go on sending when the buffers of a thread's connections take too much memory.
//!
//! Invariants:
//! 1. Up to [`TransportSettings::buffer_bytes_max`](crate::TransportSettings) nobody waits. Above it, a
//!    connection that has sent more than a small part of a request waits in line, its socket unread. The first
//!    ones go on, as many as need that much again, so that requests come to their end one after the other.
//! 2. What is small is not waited for, and not waited with: requests of a few kilobytes pass, and replies that
//!    are not taken hold their own connection up early.
//! 3. Who holds memory, has been free to send and has sent nothing for [`PATIENCE_US`] while others wait, is
//!    told so and closed. So whoever waits in line comes to be its first.

use crate::connections::{Hold, Phase};
use crate::reactor::Reactor;
use crate::service::{ConnectionId, Service};
use crate::turn::Turn;
use std::collections::VecDeque;

/// How long somebody who holds memory may send nothing while others wait for it.
const PATIENCE_US: u64 = 5_000_000;
/// What a connection may have unread at most without waiting in line, and what it may at least.
const SMALL_BYTES: usize = 16 << 10;
const SMALLEST_BYTES: usize = 512;
/// Connections that one turn lets out of the line: what they send is counted in the next.
const LET_OUT: usize = 8;

/// The connections that wait, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Line {
    waiting: VecDeque<ConnectionId>,
    /// How many at its beginning go on.
    first: usize,
}

impl<S: Service> Turn<S> {
    /// Whether the buffers of all connections take more than they should, beside what idle ones may keep.
    pub fn is_memory_short(&self) -> bool {
        let max = self.settings.buffer_bytes_max;
        max > 0 && self.connections.excess_bytes() > max
    }

    /// Whether they take no more than half of that: far enough from being short to receive as ever.
    pub fn has_ample_memory(&self) -> bool {
        self.connections.excess_bytes() <= self.settings.buffer_bytes_max / 2
    }

    /// Whether somebody in line could go on now.
    pub fn has_line_to_move(&self) -> bool {
        !self.line.waiting.is_empty() && !self.is_memory_short()
    }

    /// Bytes of unread input up to which a connection counts as small: all of them together take a part of
    /// what there is.
    fn small_bytes(&self) -> usize {
        let share = self.settings.buffer_bytes_max / 2 / self.connections.len().max(1);
        share.clamp(SMALLEST_BYTES, SMALL_BYTES)
    }

    /// From how many bytes of unsent replies on a connection takes no further request.
    pub fn output_full_bytes(&self) -> usize {
        let full = self.settings.output.full_bytes;
        if self.is_memory_short() { self.small_bytes().min(full) } else { full }
    }

    /// Whether connection `index` may not receive now; puts it in line then.
    pub fn waits_in_line(&mut self, index: u32) -> bool {
        if !self.is_memory_short() {
            return false;
        }
        let (small, id) = (self.small_bytes(), self.connections.id(index));
        let Some(entry) = self.connections.entry(index) else { return false };
        if entry.input.len() <= small {
            return false;
        }
        if !entry.is_in_line {
            entry.is_in_line = true;
            self.line.waiting.push_back(id);
        }
        !entry.is_first_in_line
    }

    /// Lets those go on who need not wait any more, and the first ones in any case: as many as need no more
    /// together than all buffers may take.
    pub fn move_line(&mut self, reactor: &mut impl Reactor) {
        let (small, is_short) = (self.small_bytes(), self.is_memory_short());
        let (mut place, mut let_out, mut needed) = (0, 0, 0);
        while let_out < LET_OUT
            && let Some(id) = self.line.waiting.get(place).copied()
        {
            let now_us = self.now.monotonic_us;
            let Some(entry) = self.connections.entry_of(id) else {
                self.line.waiting.remove(place);
                continue;
            };
            let is_done = entry.phase != Phase::Open || entry.input.len() <= small;
            needed += if is_done { 0 } else { entry.needed.max(entry.input.len()) };
            if is_short && !is_done && place > 0 && needed > self.settings.buffer_bytes_max {
                break;
            }
            if entry.is_receive_paused && entry.hold == Hold::Free && entry.phase == Phase::Open {
                entry.is_receive_paused = false;
                // Its patience begins now.
                entry.last_input_us = now_us;
                reactor.resume_receive(id.index);
            }
            let leaves = is_done || !is_short;
            (entry.is_in_line, entry.is_first_in_line) = (!leaves, !leaves);
            if leaves {
                self.line.waiting.remove(place);
                let_out += usize::from(!is_done);
            } else {
                place += 1;
            }
        }
        // Who was among them, and is not any more because another's need has grown.
        for place in place..self.line.first.min(self.line.waiting.len()) {
            if let Some(entry) = self.connections.entry_of(self.line.waiting[place]) {
                entry.is_first_in_line = false;
            }
        }
        self.line.first = place;
    }

    /// Ends the connections that keep memory from those in line without using it.
    pub fn judge_line(&mut self) {
        if self.line.waiting.len() < 2 || !self.is_memory_short() {
            return;
        }
        let (small, now_us) = (self.small_bytes(), self.now.monotonic_us);
        for index in 0..self.connections.place_count() {
            let Some(entry) = self.connections.entry(index) else { continue };
            let is_silent = now_us.saturating_sub(entry.last_input_us) >= PATIENCE_US;
            let is_free = !entry.is_receive_paused && entry.hold == Hold::Free && entry.phase == Phase::Open;
            if is_silent && is_free && entry.input.len() > small {
                self.refuse_input(index);
            }
        }
    }

    /// Tells connection `index` that its input takes too much memory, and ends it.
    pub fn refuse_input(&mut self, index: u32) {
        let Some(entry) = self.connections.entry(index) else { return };
        let text = self.service.too_much_input();
        if text.is_empty() {
            entry.phase = Phase::Aborted;
        } else {
            entry.output.push(0, text);
            entry.phase = entry.phase.max_with(Phase::Closing);
        }
        let ended = &mut self.connections.report.connections_over_input_limit;
        *ended += 1;
        // Told ever more seldom: a flood of clients must not become one of lines.
        if ended.is_power_of_two() {
            tracing::warn!(
                clients = *ended,
                "clients were closed for what they sent: a request above client-query-buffer-limit (or above the part of the memory \
                 that requests may take), or half of one that kept others waiting"
            );
        }
        self.connections.note_changed(index);
    }
}

#[cfg(test)]
#[path = "line_test.rs"]
mod line_test;
