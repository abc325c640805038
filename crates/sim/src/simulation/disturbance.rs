//! What happens around the node: faults, slowness, clocks that are set, time that passes.

use super::Simulation;
use crate::ground::Ground;
use crate::node::Node;
use crate::settings::SimulationSettings;
use tierstone_base::SeededRandom;
use tierstone_media::sim::{Fault, FaultEffect, FaultTarget, FaultWhen, Latency};

/// How fast time goes, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// A tick in which something happens takes up to so long.
    pub(super) step_us: u64,
    /// One in which nothing happens up to so long.
    pub(super) jump_us: u64,
    /// A client waits so long at most before it asks again.
    pub(super) idle_us: u64,
}

impl Pace {
    /// Whether seconds pass in a life.
    pub(super) fn is_fast(&self) -> bool {
        self.step_us > 1_000
    }
}

/// Time and device of a run: where the loss of what was acknowledged is bounded by a time, seconds pass, and
/// the device takes so long for a write that the bound matters in some runs.
pub(super) fn pace_and_latency(random: &mut SeededRandom, settings: &SimulationSettings) -> (Pace, Latency) {
    let latency = Latency { jitter_us: random.below(60), ..Latency::default() };
    let fast = Pace { step_us: 20_000, jump_us: 200_000, idle_us: 100_000 };
    if settings.ground == Ground::DeviceWithRedo && random.chance(0.5) {
        // A redo log keeps what the device gets half a second later.
        return (fast, latency);
    }
    if !settings.is_relaxed {
        return (Pace { step_us: 30, jump_us: 500, idle_us: 400 }, latency);
    }
    let slow = [1, 1_000, 10_000, 60_000, 100_000][random.below(5) as usize];
    let latency = Latency { durable_us: 30 * slow, write_us: 15 * slow, flush_us: 30 * slow, ..latency };
    (fast, latency)
}

impl Simulation {
    /// The device has space again.
    pub(super) fn give_space(&mut self) {
        self.medium.set_capacity_segments(self.segments);
    }

    /// The wall clock is set.
    fn set_clock(&mut self) {
        let forward = self.random.chance(0.5);
        let by_ms = 1 + self.random.below(20);
        self.wall.jump(&self.medium, forward, by_ms);
        let wall_ms = self.now().wall_ms;
        self.history.note_wall(wall_ms);
        self.note(&format!("the clock shows {wall_ms}"));
    }

    /// Faults of the device, and slowness.
    pub(super) fn disturb(&mut self, asks: bool) {
        match self.random.below(240) {
            0 => {
                let factor = if self.settings.is_relaxed { 4 } else { 25 };
                let slow = |us: u64| us * factor;
                let Latency { read_us, write_us, durable_us, flush_us, .. } = self.latency;
                self.medium.set_latency(Latency {
                    read_us: slow(read_us),
                    write_us: slow(write_us),
                    durable_us: slow(durable_us),
                    flush_us: slow(flush_us),
                    ..self.latency
                });
                self.note("the device is slow");
            }
            1..6 => self.medium.set_latency(self.latency),
            6 if asks && self.settings.has_device_errors => {
                let when = FaultWhen::Nth(self.random.below(4));
                self.medium.inject(Fault::new(FaultTarget::Read, FaultEffect::Fail).when(when));
                self.is_faulty = true;
                self.note("a read will fail");
            }
            7 if asks && self.settings.has_device_errors && self.random.chance(0.3) => {
                let when = FaultWhen::Nth(self.random.below(10));
                self.medium.inject(Fault::new(FaultTarget::Durability, FaultEffect::Fail).when(when));
                self.is_faulty = true;
                self.note("a durable write or flush will fail");
            }
            8..12 if self.settings.has_clock_jumps => self.set_clock(),
            12..14 if asks && self.settings.has_full_device => {
                self.medium.set_capacity_segments(0);
                self.was_full = true;
                self.note("the device takes no further segment");
            }
            14..24 if self.settings.has_full_device => self.give_space(),
            _ => {}
        }
    }

    pub(super) fn pass_time(&mut self, node: &Node, moved: bool) {
        let now_us = self.now().monotonic_us;
        let small = now_us + 1 + self.random.below(self.pace.step_us);
        let is_busy = moved || self.clients.iter().any(|client| !client.outgoing.is_empty());
        let waits = self.clients.iter().map(|client| client.idle_until_us.max(client.stalled_until_us));
        let next = node
            .drivers
            .iter()
            .filter_map(|driver| driver.next_turn_at_us())
            .chain(self.medium.next_completion_at())
            .chain(waits.filter(|at| *at > now_us))
            .min();
        // Mail may wait for a shard that was not let run: jumps are short.
        let at = if is_busy {
            small
        } else {
            next.map_or(small, |next| next.clamp(small, now_us + self.pace.jump_us))
        };
        self.medium.advance_to(at);
    }
}
