//! Replies with large values: pieces that are read while the client takes them.
//!
//! Invariants:
//! 1. One piece of a reply, [`PIECE_BYTES`] of a value at most, is in memory here at a time; the next
//!    is read when the caller asks for it.
//! 2. What is sent is the value as the command saw it, whatever is written meanwhile (it is pinned).
//! 3. A reply that cannot be continued ends its connection: its length has been told.
//! 4. A reply that is a number found in a large value ([`Fold`]) is its only part: nothing of it is told
//!    before all of the value was seen, and each piece is a turn of its own.
//! 5. A reply that the client does not want is never begun: no piece of it leaves, its pins are given back at once.

use crate::context::error_line;
use crate::control::Output;
use crate::executor::Executor;
use crate::fold::Fold;
use crate::remote::Message;
use crate::run::Ran;
use crate::task::{Origin, Task, Work};
use std::collections::VecDeque;
use std::ops::Range;
use tierstone_base::{Error, ErrorKind, Now, Seq, ShardId};
use tierstone_engine::Engine;
use tierstone_store::{LargeMap, PinId, Place, RunOutcome, TaskId};

/// Parts of values above this are sent piece by piece; shorter ones lie whole in their reply.
pub(crate) const STREAM_ABOVE_BYTES: u64 = 1 << 20;
/// Bytes of a value in one piece.
const PIECE_BYTES: u64 = 512 << 10;

/// A part of a large value that belongs into a reply.
#[derive(Clone, Debug)]
pub(crate) struct ReplyPart {
    /// Before which byte of the reply.
    pub at: usize,
    pub place: Place,
    pub map: LargeMap,
    pub range: Range<u64>,
    /// What belongs into the reply is the number that this finds in the range, not its bytes.
    pub fold: Option<Fold>,
}

/// A reply that is being sent.
#[derive(Debug)]
pub(crate) struct Stream {
    bytes: Vec<u8>,
    sent: usize,
    parts: VecDeque<(ReplyPart, PinId)>,
    gate: Seq,
    is_wanted: bool,
}

/// What follows from a piece that was read.
enum Noted {
    /// It is to be sent, and nothing more is read under this pin.
    Passed(PinId),
    /// It is to be sent.
    Send,
    /// Nothing is to be sent before more was read.
    GoOn,
}

impl Stream {
    pub fn pins(&self) -> impl Iterator<Item = PinId> {
        self.parts.iter().map(|(_, pin)| *pin)
    }

    /// Whether the reply is a number that is being looked for.
    pub fn is_fold(&self) -> bool {
        self.parts.front().is_some_and(|(part, _)| part.fold.is_some())
    }

    /// Takes the bytes `range` of the first part, which are in `piece`: leaves there what is to be sent.
    fn note_piece(&mut self, range: Range<u64>, piece: &mut Vec<u8>) -> Noted {
        let Some((part, _)) = self.parts.front_mut() else { return Noted::Send };
        part.range.start = range.end;
        match &mut part.fold {
            None => self.sent = part.at,
            Some(fold) => {
                let found = fold.take(range.start, piece);
                piece.clear();
                let Some(found) = found.or(part.range.is_empty().then(|| fold.end())) else {
                    return Noted::GoOn;
                };
                part.range = 0..0;
                let number = format!(":{found}\r\n");
                self.bytes.splice(part.at..part.at, number.into_bytes());
            }
        }
        if !part.range.is_empty() {
            return Noted::Send;
        }
        self.parts.pop_front().map_or(Noted::Send, |(_, pin)| Noted::Passed(pin))
    }
}

impl<E: Engine> Executor<E> {
    /// Begins to send the reply of `task`, whose values are in [`Executor::parts`].
    pub(crate) fn begin_stream(
        &mut self,
        now: Now,
        id: TaskId,
        mut task: Box<Task>,
        bytes: Vec<u8>,
        gate: Seq,
    ) {
        let mut parts = VecDeque::new();
        for part in std::mem::take(&mut self.parts) {
            let pin = self.shard.next_id();
            self.shard.pin(pin, part.place, part.map.clone());
            parts.push_back((part, pin));
        }
        self.shard.release(&mut task.tokens);
        // From now on the pins keep what is read; whoever writes need not wait.
        task.positions.clear();
        if let Origin::Shard(shard, ticket) = task.origin {
            self.streams_for.insert((shard, ticket), id);
        }
        task.runs = 0;
        drop(std::mem::take(&mut task.held));
        let stream = Stream { bytes, sent: 0, parts, gate, is_wanted: true };
        if stream.is_fold() {
            Self::keep_timed(&mut task)
        } else {
            self.note_finished(now, &mut task)
        }
        task.work = Work::Stream(Box::new(stream));
        let was_locked = std::mem::take(&mut task.is_in_lock_table);
        let is_silent = task.is_silent;
        self.tasks.insert(id, task);
        if was_locked {
            let mut granted = Vec::new();
            self.shard.locks.leave(id, &mut granted);
            self.run_granted(now, granted);
        }
        if is_silent {
            self.finish(now, id, b"", gate, false);
        } else {
            self.run_stream(now, id);
        }
    }

    /// Reads the next piece of a reply, if it is wanted.
    pub(crate) fn run_stream(&mut self, now: Now, id: TaskId) {
        let Some(mut task) = self.tasks.remove(&id) else { return };
        let Work::Stream(stream) = &mut task.work else {
            self.tasks.insert(id, task);
            return;
        };
        if !stream.is_wanted || task.outstanding > 0 {
            self.tasks.insert(id, task);
            return;
        }
        let mut piece = Vec::new();
        if let Some((part, pin)) = stream.parts.front() {
            if part.fold.is_none() {
                piece.extend_from_slice(&stream.bytes[stream.sent..part.at]);
            }
            let start = part.range.start;
            // Up to the end of a chunk, so that none is read twice.
            let end = (start + PIECE_BYTES) / part.map.chunk_bytes() * part.map.chunk_bytes();
            let range = start..end.min(part.range.end);
            let failures = std::mem::take(&mut task.failures);
            let what = (*pin, range.clone());
            match self.shard.read_pinned(now, &mut self.workspace, &failures, what, &mut piece) {
                RunOutcome::Suspended => return self.park(now, id, task, Ran::Suspended),
                RunOutcome::Failed(error) if error.kind() == ErrorKind::Retry => {
                    return self.park(now, id, task, Ran::Retry);
                }
                RunOutcome::Failed(error) => return self.stream_failed(now, (id, task), &error),
                RunOutcome::Done { .. } => {}
            }
            match stream.note_piece(range, &mut piece) {
                Noted::Passed(pin) => self.shard.unpin(pin),
                Noted::Send => {}
                Noted::GoOn => {
                    self.shard.release(&mut task.tokens);
                    return self.park(now, id, task, Ran::Retry);
                }
            }
        }
        self.shard.release(&mut task.tokens);
        let gate = stream.gate;
        if stream.parts.is_empty() {
            piece.extend_from_slice(&stream.bytes[stream.sent..]);
            self.tasks.insert(id, task);
            return self.finish(now, id, piece, gate, false);
        }
        stream.is_wanted = false;
        match task.origin {
            Origin::Connection(connection) => {
                self.host.outputs.push(Output::Part { connection, task: id, bytes: piece, gate });
            }
            Origin::Shard(shard, ticket) => {
                self.send_gated(shard, Message::Part { ticket, bytes: piece }, gate);
            }
        }
        self.tasks.insert(id, task);
    }

    /// A piece could not be read: answers, if nothing was told yet, or ends the reply.
    fn stream_failed(&mut self, now: Now, (id, task): (TaskId, Box<Task>), error: &Error) {
        let origin = task.origin;
        let is_fold = matches!(&task.work, Work::Stream(stream) if stream.is_fold());
        self.tasks.insert(id, task);
        if is_fold {
            return self.finish(now, id, error_line("", error), 0, false);
        }
        if let Origin::Shard(to, ticket) = origin {
            self.drop_stream(id);
            let message = Message::Broken { ticket };
            self.host.outputs.push(Output::Send { to, message });
            return;
        }
        self.finish(now, id, b"", 0, true);
    }

    /// The connection has taken what there was of the reply of `id`: the next piece is wanted.
    pub fn pull(&mut self, now: Now, id: TaskId) {
        match self.tasks.get_mut(&id).map(Box::as_mut) {
            Some(Task { work: Work::Stream(stream), .. }) => {
                stream.is_wanted = true;
                self.run_stream(now, id);
            }
            Some(Task { work: Work::Forwarded, .. }) => {
                if let Some(to) = self.streams_from.get(&id).copied() {
                    let message = Message::Pull { ticket: id };
                    self.host.outputs.push(Output::Send { to, message });
                }
            }
            _ => {}
        }
    }

    /// A piece of a reply has come from another shard.
    pub(crate) fn part_came(&mut self, now: Now, (from, ticket): (ShardId, TaskId), bytes: Vec<u8>) {
        match self.tasks.get(&ticket).map(|task| (task.origin, task.is_silent)) {
            Some((_, true)) => {
                let message = Message::StopStream { ticket };
                self.host.outputs.push(Output::Send { to: from, message });
                self.finish(now, ticket, b"", 0, false);
            }
            Some((Origin::Connection(connection), _)) if self.host.sessions.contains_key(&connection) => {
                self.streams_from.insert(ticket, from);
                self.host.outputs.push(Output::Part { connection, task: ticket, bytes, gate: 0 });
            }
            _ => {
                self.tasks.remove(&ticket);
                let message = Message::StopStream { ticket };
                self.host.outputs.push(Output::Send { to: from, message });
            }
        }
    }

    /// Another shard wants the next piece of a reply, or nothing more of it.
    pub(crate) fn stream_message(&mut self, now: Now, name: (ShardId, TaskId), is_wanted: bool) {
        let Some(id) = self.streams_for.get(&name).copied() else { return };
        if is_wanted {
            self.pull(now, id);
        } else {
            self.drop_stream(id);
        }
    }

    /// A connection has gone that has these requests suspended: nobody takes the rest of its replies.
    pub(crate) fn stop_streams(&mut self, suspended: &[TaskId]) {
        for ticket in suspended.iter().copied() {
            if matches!(self.tasks.get(&ticket).map(|task| &task.work), Some(Work::Stream(_))) {
                self.drop_stream(ticket);
            } else if let Some(to) = self.streams_from.remove(&ticket) {
                self.tasks.remove(&ticket);
                self.host.outputs.push(Output::Send { to, message: Message::StopStream { ticket } });
            }
        }
    }

    fn drop_stream(&mut self, id: TaskId) {
        if let Some(mut task) = self.tasks.remove(&id) {
            self.shard.release(&mut task.tokens);
            self.end_stream(id, &task);
        }
    }

    /// Lets go of what a task has kept for its reply.
    pub(crate) fn end_stream(&mut self, id: TaskId, task: &Task) {
        self.streams_from.remove(&id);
        if let Origin::Shard(shard, ticket) = task.origin {
            self.streams_for.remove(&(shard, ticket));
        }
        if let Work::Stream(stream) = &task.work {
            stream.pins().for_each(|pin| self.shard.unpin(pin));
        }
    }
}
