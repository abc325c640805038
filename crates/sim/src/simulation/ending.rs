//! Ends of lives: everything answered and read, or cut off.

use super::{Broken, Simulation};
use crate::client::Client;
use crate::history::EventId;
use crate::node::Node;
use crate::settings::End;
use tierstone_engine::Durability;

/// Ticks in which a node must have answered everything.
const QUIET_TICKS: u32 = 60_000;
/// The same where parts of batches may wait for each other for two seconds.
const LONG_QUIET_TICKS: u32 = 400_000;

/// A device whose durable writes take longer does not write what it gets within half of the stated bound.
const SLOW_DEVICE_US: u64 = 50_000;

impl Simulation {
    /// Waits until everything is answered, reads every object, waits again.
    pub(super) fn read_everything(&mut self, node: &mut Node) -> Result<(), Broken> {
        self.medium.clear_faults();
        self.give_space();
        self.quiesce(node)?;
        if !node.failed.is_empty() {
            return Ok(());
        }
        self.ask_everything();
        self.quiesce(node)
    }

    fn quiet_ticks(&self) -> u32 {
        if self.settings.has_eviction { LONG_QUIET_TICKS } else { QUIET_TICKS }
    }

    fn quiesce(&mut self, node: &mut Node) -> Result<(), Broken> {
        for _ in 0..self.quiet_ticks() {
            if self.clients.iter().all(Client::is_answered) || !node.failed.is_empty() {
                return Ok(());
            }
            self.tick(node, false)?;
        }
        let stuck: Vec<u64> = self
            .clients
            .iter()
            .filter(|client| !client.is_answered())
            .map(|client| client.connection)
            .collect();
        Err(format!("clients {stuck:?} are never answered"))
    }

    pub(super) fn end_life(&mut self, mut node: Node, end: End) -> Result<(), Broken> {
        self.note(&format!("the life ends: {end:?}"));
        self.evicted_keys += node.evicted_keys();
        self.give_space();
        if end == End::Stop {
            self.stop(&mut node)?;
        }
        let medium = self.medium.clone();
        let crashed_ms = self.now().wall_ms;
        let is_closed = end == End::Stop && node.failed.is_empty();
        match end {
            End::PowerLoss => {
                self.machine.cut_power();
                drop(node);
                self.machine.power_on_after_loss();
            }
            End::Kill => {
                drop(node);
                self.machine.kill_process();
            }
            End::Stop => {
                if node.failed.is_empty() {
                    node.close().map_err(|error| format!("the superblock is not closed: {error}"))?;
                }
                self.machine.kill_process();
            }
        }
        let is_lost = self.settings.loses_region && self.random.chance(0.5);
        if is_lost {
            self.lose_region(is_closed);
        }
        let wall_ms = self.wall.high_ms(&self.medium);
        let clients = std::mem::take(&mut self.clients);
        let unanswered = clients.iter().flat_map(Client::unanswered);
        let in_doubt: Vec<EventId> = self.orphans.drain(..).chain(unanswered).collect();
        for id in in_doubt {
            self.history.end_in_doubt(id, self.is_faulty, wall_ms);
        }
        let moment = self.history.moment();
        self.channels.end_life(moment);
        clients.into_iter().for_each(|mut client| self.leave_scan(&mut client));
        if self.settings.may_lose() {
            if is_closed || !(self.settings.is_relaxed || is_lost) {
                // The next opening brings what a redo log holds to the device before anything else can be lost.
                self.history.close();
            } else {
                let keeps_up = self.latency.durable_us < SLOW_DEVICE_US;
                let age_ms = keeps_up.then_some(Durability::RELAXED_BOUND_MS);
                self.history.crash(crashed_ms, age_ms);
            }
        }
        medium.clear_faults();
        medium.set_latency(self.latency);
        Ok(())
    }

    /// The memory of the redo log is gone, and other memory in its place.
    fn lose_region(&mut self, is_closed: bool) {
        self.note("the memory of the redo log is lost");
        self.machine.replace_region();
        // A node that has stopped in good order has left nothing in it.
        self.region_is_lost = !is_closed;
        self.regions_lost.0 += 1;
    }

    /// Stops the node in good order; what has come is answered.
    fn stop(&mut self, node: &mut Node) -> Result<(), Broken> {
        self.medium.clear_faults();
        for client in &mut self.clients {
            client.outgoing.clear();
            client.stalled_until_us = 0;
            let (shard, index) = client.place;
            node.drivers[shard].set_stalled(index, false);
        }
        let now = self.now();
        node.drivers.iter_mut().for_each(|driver| driver.stop(now));
        for _ in 0..self.quiet_ticks() {
            if node.drivers.iter().all(|driver| driver.is_done()) || !node.failed.is_empty() {
                return Ok(());
            }
            let moved = self.turn_shards(node)?;
            node.step().map_err(|error| format!("the node: {error}"))?;
            for client in 0..self.clients.len() {
                let (shard, index) = self.clients[client].place;
                let mut bytes = Vec::new();
                node.drivers[shard].take_output(index, &mut bytes);
                let wall_ms = self.wall.high_ms(&self.medium);
                let heard = self.clients[client].hear(&bytes, &mut self.history, &mut self.channels, wall_ms);
                self.digest_replies(client, heard)?;
            }
            self.pass_time(node, moved);
        }
        Err("a stop does not end".into())
    }
}
