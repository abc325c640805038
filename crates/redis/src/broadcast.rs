//! Channels over several shards: each tells the others who listens, and passes messages on to those that
//! have listeners.

use crate::control::{Host, Output};
use crate::remote::Message;
use crate::session::{ChannelKind, ConnectionId};
use std::sync::Arc;
use tierstone_base::ShardId;

impl Host {
    /// Adds a listener among this shard's connections and tells the others.
    pub(crate) fn subscribe(
        &mut self,
        shard: (ShardId, u16),
        kind: ChannelKind,
        channel: &[u8],
        who: ConnectionId,
    ) {
        if self.channels.subscribe(kind, channel, who) {
            self.tell_listening(shard, kind, channel, true);
        }
    }

    /// Removes a listener among this shard's connections and tells the others.
    pub(crate) fn unsubscribe(
        &mut self,
        shard: (ShardId, u16),
        kind: ChannelKind,
        channel: &[u8],
        who: ConnectionId,
    ) {
        if self.channels.unsubscribe(kind, channel, who) {
            self.tell_listening(shard, kind, channel, false);
        }
    }

    /// Ends a connection of this shard: it is served no more. `at_once`: what is on its way to it is lost. What it listens to
    /// ends with the connection, for a transaction may still be taken back with all that it would have told others.
    pub(crate) fn end(&mut self, connection: ConnectionId, at_once: bool) {
        let Some(session) = self.sessions.get_mut(&connection) else { return };
        session.is_closing = true;
        self.outputs.push(Output::Close { connection, at_once });
    }

    fn tell_listening(
        &mut self,
        (index, count): (ShardId, u16),
        kind: ChannelKind,
        channel: &[u8],
        has_joined: bool,
    ) {
        for to in (0..count).filter(|shard| *shard != index) {
            let message = Message::Listening { kind, channel: channel.to_vec(), has_joined };
            self.outputs.push(Output::Send { to, message });
        }
    }

    /// Passes a channel's message on to the other shards, if anyone listens there; how many do.
    pub(crate) fn broadcast_publish(
        &mut self,
        (index, count): (ShardId, u16),
        kind: ChannelKind,
        channel: &[u8],
        payload: &[u8],
    ) -> u64 {
        let mut work = 0;
        let receivers = self.channels.receivers_elsewhere(kind, channel, &mut work);
        self.work.add(work);
        if receivers == 0 {
            return 0;
        }
        let (channel, shared): (Arc<[u8]>, Arc<[u8]>) = (channel.into(), payload.into());
        for to in (0..count).filter(|shard| *shard != index) {
            let (channel, payload) = (Arc::clone(&channel), Arc::clone(&shared));
            let message = Message::Publish { kind, channel, payload };
            self.outputs.push(Output::Send { to, message });
        }
        self.pushes.note(payload.len(), usize::try_from(receivers).unwrap_or(usize::MAX));
        receivers
    }
}
