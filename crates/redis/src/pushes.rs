//! Messages that wait among an executor's outputs, by the connections that they are for.
//!
//! Invariants:
//! 1. An output is looked at once at most, however many requests the connections make that listen.
//! 2. A connection's messages are given in their order, each of them once.

use crate::control::{Host, Output};
use crate::executor::Executor;
use crate::session::{ConnectionId, Session};
use tierstone_base::Seq;
use tierstone_base::collections::Map;
use tierstone_engine::Engine;

/// Bytes of messages, counted once for each receiver, from which on no more requests are wanted before the messages
/// are given to their connections: a pipeline of short requests can ask for any amount.
const BYTES_MAX: usize = 4 << 20;

/// A receiver who has his message.
const NOBODY: ConnectionId = ConnectionId::MAX;

/// Where the messages are.
#[derive(Debug, Default)]
pub(crate) struct Pushes {
    /// How many outputs were looked at.
    seen: usize,
    /// Of each connection: the outputs among these that it receives, and its place among their receivers.
    places: Map<ConnectionId, Vec<(usize, usize)>>,
    /// What all messages take, at all their receivers.
    bytes: usize,
}

impl Pushes {
    /// There is one more message of so many bytes, with so many receivers.
    pub fn note(&mut self, bytes: usize, receivers: usize) {
        self.bytes = self.bytes.saturating_add(bytes.saturating_mul(receivers));
    }

    /// Gives the messages for `connection` that wait among `outputs`, which have only grown since the last call.
    fn take(&mut self, outputs: &mut [Output], connection: ConnectionId, mut give: impl FnMut(Seq, &[u8])) {
        for (place, output) in outputs.iter().enumerate().skip(self.seen) {
            let receivers = match output {
                Output::Push { connection, .. } => std::slice::from_ref(connection),
                Output::Pushes { to, .. } => to.as_slice(),
                _ => continue,
            };
            for (number, receiver) in receivers.iter().enumerate() {
                self.places.entry(*receiver).or_default().push((place, number));
            }
        }
        self.seen = outputs.len();
        for (place, number) in self.places.remove(&connection).unwrap_or_default() {
            match outputs.get_mut(place) {
                Some(Output::Push { connection, bytes, gate }) => {
                    give(*gate, bytes);
                    (*connection, *bytes) = (NOBODY, Vec::new());
                }
                Some(Output::Pushes { to, bytes, gate }) => {
                    give(*gate, bytes);
                    to[number] = NOBODY;
                }
                _ => {}
            }
        }
    }

    /// The outputs are gone.
    pub fn clear(&mut self) {
        (self.seen, self.bytes) = (0, 0);
        self.places.clear();
    }
}

impl<E: Engine> Executor<E> {
    /// Takes out the messages of channels that wait among the outputs for a connection that is about to make a
    /// request, in their order: they were sent before whatever it is answered, so nothing comes to a client
    /// behind the answer to its `UNSUBSCRIBE`. Costs one look at each output that is new, for connections that listen.
    pub fn take_messages(&mut self, connection: ConnectionId, give: impl FnMut(Seq, &[u8])) {
        let Host { outputs, sessions, pushes, .. } = &mut self.host;
        let hears = |session: &Session| {
            session.is_monitor || !session.channels().is_empty() || session.tracking.is_some()
        };
        if !outputs.is_empty() && sessions.get(&connection).is_some_and(hears) {
            pushes.take(outputs, connection, give);
        }
    }

    /// Whether so many messages wait among the outputs that no more requests are wanted before
    /// [`Executor::drain_outputs`].
    #[inline]
    pub fn has_much_to_push(&self) -> bool {
        self.host.pushes.bytes >= BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(pushes: &mut Pushes, outputs: &mut [Output], connection: ConnectionId) -> Vec<Vec<u8>> {
        let mut taken = Vec::new();
        pushes.take(outputs, connection, |_, bytes| taken.push(bytes.to_vec()));
        taken
    }

    fn message(to: &[ConnectionId], bytes: &[u8]) -> Output {
        Output::Pushes { to: to.to_vec(), bytes: bytes.to_vec(), gate: 0 }
    }

    #[test]
    fn messages_are_given_once_and_in_their_order() {
        let single = Output::Push { connection: 2, bytes: b"b".to_vec(), gate: 7 };
        let mut outputs = vec![message(&[1, 2], b"a"), single, Output::Resume { connection: 2 }];
        let mut pushes = Pushes::default();
        assert_eq!(taken(&mut pushes, &mut outputs, 2), [b"a", b"b"]);
        outputs.push(message(&[2, 3], b"c"));
        assert_eq!(taken(&mut pushes, &mut outputs, 2), [b"c"]);
        assert!(taken(&mut pushes, &mut outputs, 2).is_empty());
        let left = |output: &Output| match output {
            Output::Push { connection, .. } => vec![*connection],
            Output::Pushes { to, .. } => to.clone(),
            _ => Vec::new(),
        };
        let left: Vec<ConnectionId> = outputs.iter().flat_map(left).filter(|id| *id != NOBODY).collect();
        assert_eq!(left, [1, 3]);
        pushes.clear();
        let mut outputs = vec![message(&[1], b"d")];
        assert_eq!(taken(&mut pushes, &mut outputs, 1), [b"d"]);
    }

    #[test]
    fn an_output_is_looked_at_once() {
        let mut outputs = vec![message(&[1, 2], b"a"), message(&[2], b"b")];
        let mut pushes = Pushes::default();
        assert!(taken(&mut pushes, &mut outputs, 3).is_empty());
        // Whoever looks at them again finds nothing for the connection any more.
        outputs.iter_mut().for_each(|output| {
            if let Output::Pushes { to, .. } = output {
                to.fill(3);
            }
        });
        assert!(taken(&mut pushes, &mut outputs, 3).is_empty());
        assert_eq!(taken(&mut pushes, &mut outputs, 2).len(), 2);
    }
}
