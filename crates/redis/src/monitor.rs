//! `MONITOR`: what clients of all shards have carried out, as lines for those who watch.
//!
//! Invariants:
//! 1. While nobody watches, a request costs one comparison.
//! 2. A line is made once; it goes to the watchers here, and to the other shards while one of them has any.
//! 3. Lines of one shard come in the order of its commands; those of different shards in the order in which
//!    they arrive. A line tells what was asked: it does not wait for the write to be durable.
//! 4. What watchers do not take counts as their output, whose limits end them.
//! 5. Secrets are not shown ([`crate::secrets`]); an uploaded argument is shown by its length.

use crate::args::Args;
use crate::control::{Host, Output};
use crate::executor::{Executor, Outcome};
use crate::operators::OperatorMessage;
use crate::secrets::shown;
use crate::session::{ConnectionId, Session};
use crate::table::{Command, flag};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use tierstone_base::{Now, ShardId};
use tierstone_engine::Engine;
use tierstone_wire::resp::{ReplyWriter, Version};

/// Who watches.
#[derive(Debug, Default)]
pub(crate) struct Monitors {
    here: BTreeSet<ConnectionId>,
    /// How many connections of other shards do.
    elsewhere: u64,
    /// Which shard this is, and of how many.
    shard: (ShardId, u16),
}

impl Monitors {
    pub fn new(shard: (ShardId, u16)) -> Self {
        Monitors { shard, ..Monitors::default() }
    }

    /// Whether anybody watches, at any shard.
    #[inline]
    pub fn is_any(&self) -> bool {
        !self.here.is_empty() || self.elsewhere > 0
    }

    /// Another shard has one watcher more, or one less.
    pub fn note_elsewhere(&mut self, has_joined: bool) {
        self.elsewhere = if has_joined { self.elsewhere + 1 } else { self.elsewhere.saturating_sub(1) };
    }

    /// What `message` makes, to every other shard.
    fn to_others(&self, message: impl Fn() -> OperatorMessage) -> impl Iterator<Item = Output> {
        let (index, count) = self.shard;
        (0..count).filter(move |shard| *shard != index).map(move |to| message().to(to))
    }
}

impl Host {
    /// Shows a request that was carried out.
    pub(crate) fn show(&mut self, now: Now, connection: ConnectionId, command: &Command, args: Args<'_>) {
        // Redis holds those of administrators to be too dangerous to be shown.
        if !self.monitors.is_any() || command.has(flag::ADMIN | flag::SKIP_MONITOR) {
            return;
        }
        let Some(session) = self.sessions.get(&connection) else { return };
        let line = line_of(now, session, command, args);
        if self.monitors.elsewhere > 0 {
            let shared: Arc<[u8]> = line.as_slice().into();
            let message = || OperatorMessage::Line { bytes: Arc::clone(&shared) };
            self.outputs.extend(self.monitors.to_others(message));
            self.pushes.note(line.len(), usize::try_from(self.monitors.elsewhere).unwrap_or(usize::MAX));
        }
        self.give_line(&line);
    }

    /// Gives a line to the watchers among this shard's connections.
    pub(crate) fn give_line(&mut self, line: &[u8]) {
        if self.monitors.here.is_empty() {
            return;
        }
        let to: Vec<ConnectionId> = self.monitors.here.iter().copied().collect();
        self.pushes.note(line.len(), to.len());
        self.outputs.push(Output::Pushes { to, bytes: line.to_vec(), gate: 0 });
    }

    /// `connection` has ended, or was reset: it does not watch any more.
    pub(crate) fn stop_monitor(&mut self, connection: ConnectionId) {
        if self.monitors.here.remove(&connection) {
            let message = || OperatorMessage::Monitor { has_joined: false };
            self.outputs.extend(self.monitors.to_others(message));
        }
    }
}

impl<E: Engine> Executor<E> {
    /// `MONITOR`. Who watches already gets no answer, as in Redis.
    pub(crate) fn monitor(&mut self, connection: ConnectionId, reply: &mut Vec<u8>) -> Outcome {
        if self.host.monitors.here.insert(connection) {
            if let Some(session) = self.host.sessions.get_mut(&connection) {
                session.is_monitor = true;
            }
            let message = || OperatorMessage::Monitor { has_joined: true };
            self.host.outputs.extend(self.host.monitors.to_others(message));
            ReplyWriter::new(reply, Version::Resp2).ok();
        }
        Outcome::Ready { gate: 0 }
    }
}

/// Why a watcher may not carry out a command, if so: as in Redis, where it is a replica of a kind.
pub(crate) fn refused_to(session: &Session, command: &Command) -> Option<&'static str> {
    let is_about_data =
        command.has(flag::WRITE | flag::READONLY) || matches!(command.name, "publish" | "spublish");
    (session.is_monitor && is_about_data).then_some("ERR Replica can't interact with the keyspace")
}

/// The line of a request, in Redis's format.
fn line_of(now: Now, session: &Session, command: &Command, args: Args<'_>) -> Vec<u8> {
    // Below the millisecond only the monotonic clock is known.
    let (s, us) = (now.wall_ms / 1_000, now.wall_ms % 1_000 * 1_000 + now.monotonic_us % 1_000);
    let mut line = format!("+{s}.{us:06} [{} {}]", session.db, session.info.address);
    for index in 0..args.len() {
        line.push_str(" \"");
        for byte in shown(command, args, index) {
            escape(*byte, &mut line);
        }
        if let Some(staged) = args.staged(index) {
            // Writing to a string cannot fail.
            let _ = write!(line, "... ({} more bytes)", staged.map.len());
        }
        line.push('"');
    }
    line.push_str("\r\n");
    line.into_bytes()
}

fn escape(byte: u8, line: &mut String) {
    match byte {
        b'\\' => line.push_str("\\\\"),
        b'"' => line.push_str("\\\""),
        b'\n' => line.push_str("\\n"),
        b'\r' => line.push_str("\\r"),
        b'\t' => line.push_str("\\t"),
        0x07 => line.push_str("\\a"),
        0x08 => line.push_str("\\b"),
        b' '..=b'~' => line.push(char::from(byte)),
        _ => {
            // Writing to a string cannot fail.
            let _ = write!(line, "\\x{byte:02x}");
        }
    }
}
