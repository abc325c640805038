//! Replies of requests that have waited, on their way to their connections.

use super::{RedisConnection, RedisService};
use crate::connections::{Connections, Link};
use crate::gate::SlotId;
use tierstone_base::Seq;
use tierstone_engine::Engine;
use tierstone_redis::Output;
use tierstone_store::TaskId;

impl<E: Engine> RedisService<E> {
    /// Gives a connection what came for it: a reply, a message, or its end.
    pub(super) fn reply(&mut self, output: Output, connections: &mut Connections<RedisConnection>) {
        match output {
            Output::Reply { connection, task, bytes, gate, closes } => {
                if !closes {
                    return self.fill(connections, (connection, task), gate, &bytes);
                }
                if let Some((link, slot)) = self.link(connections, (connection, task)) {
                    link.output.fill_last(slot, gate, &bytes);
                }
                if let Some(&id) = self.names.get(&connection) {
                    connections.close(id);
                }
            }
            Output::Replies(bundle) => {
                for (connection, task, bytes) in bundle.replies() {
                    self.fill(connections, (connection, task), 0, bytes);
                }
                self.executor.recycle(bundle);
            }
            Output::Waits { connection, task } => {
                if let Some((link, slot)) = self.link(connections, (connection, task)) {
                    link.output.not_soon(slot);
                }
            }
            Output::Part { connection, task, bytes, gate } => {
                if let Some((link, slot)) = self.link(connections, (connection, task)) {
                    link.output.extend_with(slot, gate, |out| out.extend_from_slice(&bytes));
                    self.streams.extend(self.names.get(&connection).map(|id| (*id, task)));
                }
            }
            Output::Push { connection, bytes, gate } => self.push(connections, connection, gate, &bytes),
            Output::Pushes { to, bytes, gate } => {
                to.iter().for_each(|connection| self.push(connections, *connection, gate, &bytes));
            }
            Output::Close { connection, at_once } => {
                if let Some(&id) = self.names.get(&connection) {
                    if at_once { connections.abort(id) } else { connections.close(id) }
                }
            }
            _ => {}
        }
    }

    /// Gives a connection a message behind its earlier replies.
    fn push(&self, connections: &mut Connections<RedisConnection>, connection: u64, gate: Seq, bytes: &[u8]) {
        if let Some(link) = self.names.get(&connection).and_then(|&id| connections.get(id)) {
            link.output.push(gate, bytes);
        }
    }

    /// The connection and the place that was kept for the reply.
    fn link<'a>(
        &self,
        connections: &'a mut Connections<RedisConnection>,
        (connection, task): (u64, TaskId),
    ) -> Option<(Link<'a, RedisConnection>, SlotId)> {
        let link = connections.get(*self.names.get(&connection)?)?;
        let slot = link.state.slots.iter().find(|(held, _)| *held == task)?.1;
        Some((link, slot))
    }

    /// Completes a reply.
    fn fill(
        &self,
        connections: &mut Connections<RedisConnection>,
        (connection, task): (u64, TaskId),
        gate: Seq,
        bytes: &[u8],
    ) {
        let Some(link) = self.names.get(&connection).and_then(|&id| connections.get(id)) else { return };
        if let Some(place) = link.state.slots.iter().position(|(held, _)| *held == task) {
            let (_, slot) = link.state.slots.remove(place);
            link.output.fill(slot, gate, bytes);
        }
    }
}
