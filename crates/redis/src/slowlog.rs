//! `SLOWLOG`: the commands of all shards that took long ([`crate::timing`] says what that is).
//!
//! Invariants:
//! 1. One shard, [`HOME`], keeps the list: the others send it what they find, so that numbers rise in the
//!    order in which entries came. Who asks is answered by that shard, behind everything that his own sent.
//! 2. The list takes at most `slowlog-max-len` entries and [`LOG_BYTES_MAX`] bytes; an entry about 6 KiB.
//! 3. Secrets are not kept ([`crate::secrets`]).
//! 4. What a command of a transaction has taken is told with the transaction's other effects: once, by the run
//!    that came to its end.
//!
//! A crash takes the list with it.

use crate::args::Args;
use crate::context::{Halt, fail, fail_with};
use crate::control::Host;
use crate::executor::{Executor, Outcome};
use crate::number;
use crate::operators::OperatorMessage;
use crate::remote::HOME;
use crate::request::Started;
use crate::secrets::shown;
use crate::session::{ConnectionId, Session};
use crate::settings::Settings;
use crate::table::{Action, Command, flag};
use crate::task::{Origin, Task, Work};
use std::collections::VecDeque;
use tierstone_base::{Now, Seq, ShardId};
use tierstone_engine::Engine;
use tierstone_store::TaskId;
use tierstone_wire::resp::{ReplyWriter, Version};

/// The setting that says how many entries are kept.
const MAX_LEN: &str = "slowlog-max-len";
/// Arguments of an entry, and bytes of each.
const ARGUMENTS_MAX: usize = 32;
const ARGUMENT_BYTES_MAX: usize = 128;
/// Bytes that all entries may take.
const LOG_BYTES_MAX: usize = 8 << 20;
/// Entries that `SLOWLOG GET` gives unless it is asked for another number.
const SHOWN: usize = 10;

/// One slow command.
#[derive(Clone, Debug)]
pub struct SlowEntry {
    /// When it came to its end, in seconds since 1970.
    pub at_s: u64,
    /// Its time in microseconds.
    pub took_us: u64,
    /// Its arguments, trimmed.
    pub args: Vec<Vec<u8>>,
    /// Its client's address.
    pub address: String,
    /// Its client's name.
    pub name: Vec<u8>,
}

/// Whose a slow command was, for the one who is told of it.
#[derive(Clone, Copy, Debug)]
pub enum SlowOf {
    /// It is for the list: its entry says whose.
    List,
    /// The client's behind this task of the receiver.
    Task(TaskId),
    /// This client's of the receiver.
    Client(ConnectionId),
}

impl SlowEntry {
    /// An entry about the command of another shard's client, whom that one knows.
    fn of_another(now: Now, took_us: u64, args: Vec<Vec<u8>>) -> Box<SlowEntry> {
        let at_s = now.wall_ms / 1_000;
        Box::new(SlowEntry { at_s, took_us, args, address: String::new(), name: Vec::new() })
    }

    fn size_bytes(&self) -> usize {
        let args = self.args.iter().map(|arg| arg.capacity() + size_of::<Vec<u8>>()).sum::<usize>();
        size_of::<Self>() + args + self.address.capacity() + self.name.capacity()
    }
}

/// The list, the newest entry first.
#[derive(Debug, Default)]
pub(crate) struct SlowLog {
    entries: VecDeque<(u64, SlowEntry)>,
    next_id: u64,
    bytes: usize,
}

impl SlowLog {
    fn push(&mut self, entry: SlowEntry, len_max: usize) {
        if len_max == 0 {
            return;
        }
        self.bytes += entry.size_bytes();
        self.entries.push_front((self.next_id, entry));
        self.next_id += 1;
        self.trim(len_max);
    }

    fn trim(&mut self, len_max: usize) {
        while (self.entries.len() > len_max || self.bytes > LOG_BYTES_MAX)
            && let Some((_, entry)) = self.entries.pop_back()
        {
            self.bytes -= entry.size_bytes();
        }
    }

    fn clear(&mut self) {
        self.entries = VecDeque::new();
        self.bytes = 0;
    }

    fn write(&self, count: usize, reply: &mut ReplyWriter<'_>) {
        let count = count.min(self.entries.len());
        reply.array(count);
        for (id, entry) in self.entries.iter().take(count) {
            reply.array(6);
            reply.integer(*id as i64);
            reply.integer(entry.at_s as i64);
            reply.integer(entry.took_us as i64);
            reply.array(entry.args.len());
            for arg in &entry.args {
                reply.bulk(arg);
            }
            reply.bulk(entry.address.as_bytes());
            reply.bulk(&entry.name);
        }
    }
}

/// A command whose time is taken while it waits.
#[derive(Debug)]
pub(crate) struct Timed {
    began_ns: u64,
    pub(crate) command: &'static Command,
    /// Its arguments, trimmed; none where its task has them.
    args: Option<Vec<Vec<u8>>>,
    /// Its time in nanoseconds, when its reply is decided.
    took_ns: Option<u64>,
}

/// The arguments of a request as they are kept.
fn trimmed(command: &Command, args: Args<'_>) -> Vec<Vec<u8>> {
    let kept = if args.len() > ARGUMENTS_MAX { ARGUMENTS_MAX - 1 } else { args.len() };
    let mut all: Vec<Vec<u8>> = (0..kept).map(|index| trimmed_one(command, args, index)).collect();
    if args.len() > kept {
        all.push(format!("... ({} more arguments)", args.len() - kept).into_bytes());
    }
    all
}

fn trimmed_one(command: &Command, args: Args<'_>, index: usize) -> Vec<u8> {
    let bytes = shown(command, args, index);
    let len = args.staged(index).map_or(bytes.len() as u64, |staged| staged.map.len());
    trimmed_to(bytes, len)
}

/// What is kept of the first bytes of something that has `len` of them.
fn trimmed_to(bytes: &[u8], len: u64) -> Vec<u8> {
    let mut kept = bytes[..bytes.len().min(ARGUMENT_BYTES_MAX)].to_vec();
    let left = len - kept.len() as u64;
    if left > 0 {
        kept.extend_from_slice(format!("... ({left} more bytes)").as_bytes());
    }
    kept
}

/// The name of a client as it is kept.
fn trimmed_name(session: &Session) -> Vec<u8> {
    trimmed_to(&session.name, session.name.len() as u64)
}

impl Host {
    /// Notes a command of `connection` that has come to its end and began at `began_ns`: [`HOME`] is told among
    /// the outputs if it was slow.
    pub(crate) fn note_request(
        &mut self,
        now: Now,
        connection: ConnectionId,
        (command, began_ns): (&'static Command, Option<u64>),
        args: Args<'_>,
    ) {
        let Some(began_ns) = began_ns else { return };
        let took_ns = self.timing.end(now, began_ns);
        self.note_latency(now, command, took_ns);
        let took_us = took_ns / 1_000;
        if self.timing.is_slow(took_us) && !command.has(flag::SKIP_SLOWLOG) {
            self.tell_slow(now, connection, took_us, trimmed(command, args));
        }
    }

    fn tell_slow(&mut self, now: Now, connection: ConnectionId, took_us: u64, args: Vec<Vec<u8>>) {
        let Some(session) = self.sessions.get(&connection) else { return };
        let entry = SlowEntry {
            at_s: now.wall_ms / 1_000,
            took_us,
            args,
            address: session.info.address.clone(),
            name: trimmed_name(session),
        };
        let message = OperatorMessage::Slow { of: SlowOf::List, entry: Box::new(entry) };
        self.outputs.push(message.to(HOME));
    }
}

impl<E: Engine> Executor<E> {
    /// A request is carried out: notes its time, or when it began if it waits.
    pub(crate) fn note_outcome(
        &mut self,
        now: Now,
        connection: ConnectionId,
        (command, began_ns): (&'static Command, Option<u64>),
        args: Args<'_>,
        outcome: Outcome,
    ) {
        match (outcome, began_ns) {
            (Outcome::Blocked, _) => {}
            // Those that wait by nature are timed up to their wait, as in Redis.
            (Outcome::Suspended(id), _) if !command.has(flag::BLOCKING) => {
                if let Some(began_ns) = began_ns.or_else(|| self.host.timing.begin_wait(now)) {
                    self.note_suspended(now, (id, Origin::Connection(connection)), (command, began_ns), args);
                }
            }
            (_, None) => {}
            _ => self.host.note_request(now, connection, (command, began_ns), args),
        }
    }

    fn note_suspended(
        &mut self,
        now: Now,
        (id, origin): (TaskId, Origin),
        (command, began_ns): (&'static Command, u64),
        args: Args<'_>,
    ) {
        let Some(task) = self.tasks.get_mut(&id) else {
            // It has come to its end at once, with its reply among the outputs.
            return self.note_end(now, origin, (command, began_ns), || trimmed(command, args));
        };
        let is_data = matches!(command.action, Action::Data(_));
        match &task.work {
            // Timed by the shard that carries it out.
            Work::Forwarded if is_data => {}
            // What remains is to be sent.
            Work::Stream(stream) if !stream.is_fold() => {
                self.note_end(now, origin, (command, began_ns), || trimmed(command, args));
            }
            Work::Command { .. } => task.timed = Some(Timed { began_ns, command, args: None, took_ns: None }),
            _ => {
                let args = Some(trimmed(command, args));
                task.timed = Some(Timed { began_ns, command, args, took_ns: None });
            }
        }
    }

    /// A command has come to its end here, for a client of this shard or of another.
    fn note_end(
        &mut self,
        now: Now,
        origin: Origin,
        (command, began_ns): (&'static Command, u64),
        args: impl FnOnce() -> Vec<Vec<u8>>,
    ) {
        let took_ns = self.host.timing.end(now, began_ns);
        self.tell_if_slow(now, origin, (command, took_ns), args);
    }

    fn tell_if_slow(
        &mut self,
        now: Now,
        origin: Origin,
        (command, took_ns): (&'static Command, u64),
        args: impl FnOnce() -> Vec<Vec<u8>>,
    ) {
        self.host.note_latency(now, command, took_ns);
        let took_us = took_ns / 1_000;
        if !self.host.timing.is_slow(took_us) {
            return;
        }
        match origin {
            Origin::Connection(connection) => self.host.tell_slow(now, connection, took_us, args()),
            Origin::Shard(to, ticket) => {
                let entry = SlowEntry::of_another(now, took_us, args());
                let message = OperatorMessage::Slow { of: SlowOf::Task(ticket), entry };
                self.host.outputs.push(message.to(to));
            }
        }
    }

    /// The reply of `task` is decided.
    pub(crate) fn note_decided(&mut self, now: Now, task: &mut Task) {
        if let Some(timed) = &mut task.timed
            && timed.took_ns.is_none()
        {
            timed.took_ns = Some(self.host.timing.end(now, timed.began_ns));
        }
    }

    /// `task` has come to its end, with everything that it did.
    pub(crate) fn note_finished(&mut self, now: Now, task: &mut Task) {
        self.note_decided(now, task);
        let Some(Timed { took_ns: Some(took_ns), command, args, .. }) = task.timed.take() else { return };
        self.tell_if_slow(now, task.origin, (command, took_ns), || match (args, &task.work) {
            (Some(args), _) => args,
            (None, Work::Command { args, .. }) => trimmed(command, args.args()),
            (None, _) => vec![command.name.as_bytes().to_vec()],
        });
    }

    /// The work of `task` is about to be replaced by other work for the same request.
    pub(crate) fn keep_timed(task: &mut Task) {
        if let (Some(timed), Work::Command { args, .. }) = (&mut task.timed, &task.work) {
            timed.args.get_or_insert_with(|| trimmed(timed.command, args.args()));
        }
    }

    /// Carries out a command for another shard: gives the sequence that must be durable before the reply may leave; `None`:
    /// it comes later.
    pub(crate) fn run_for(
        &mut self,
        now: Now,
        (from, ticket): (ShardId, TaskId),
        command: &'static Command,
        args: Args<'_>,
        setting: (u32, Version),
        reply: &mut Vec<u8>,
    ) -> Option<Seq> {
        let began_ns = self.host.timing.begin_request(now, command, args);
        self.tell_gone(now);
        self.collect_positions(command, args);
        let (origin, before) = (Origin::Shard(from, ticket), reply.len());
        match self.start(now, origin, command, args, setting, reply) {
            Started::Done(gate) => {
                self.host.counters.of_commands.note_failed(command, &reply[before..]);
                if let Some(began_ns) = began_ns {
                    self.note_end(now, origin, (command, began_ns), || trimmed(command, args));
                }
                Some(gate)
            }
            Started::Suspended(id) => {
                if let Some(began_ns) = began_ns.or_else(|| self.host.timing.begin_wait(now)) {
                    self.note_suspended(now, (id, origin), (command, began_ns), args);
                }
                None
            }
        }
    }

    /// A plain request of another shard's client was answered at once.
    pub(crate) fn note_forward(
        &mut self,
        now: Now,
        (from, connection): (ShardId, ConnectionId),
        (command, began_ns): (&'static Command, u64),
        args: Args<'_>,
    ) {
        let took_ns = self.host.timing.end(now, began_ns);
        self.host.note_latency(now, command, took_ns);
        let took_us = took_ns / 1_000;
        if self.host.timing.is_slow(took_us) {
            let entry = SlowEntry::of_another(now, took_us, trimmed(command, args));
            let message = OperatorMessage::Slow { of: SlowOf::Client(connection), entry };
            self.host.outputs.push(message.to(from));
        }
    }

    /// Another shard has found a slow command: one of a client of this shard, or for the list.
    pub(crate) fn slow_message(&mut self, of: SlowOf, mut entry: Box<SlowEntry>) {
        let connection = match of {
            SlowOf::List => {
                let len_max = self.slow_len_max();
                self.slow_log.push(*entry, len_max);
                return;
            }
            SlowOf::Task(ticket) => self.tasks.get(&ticket).and_then(|task| task.connection()),
            SlowOf::Client(connection) => Some(connection),
        };
        if let Some(session) = connection.and_then(|connection| self.host.sessions.get(&connection)) {
            entry.address.clone_from(&session.info.address);
            entry.name = trimmed_name(session);
            self.host.outputs.push(OperatorMessage::Slow { of: SlowOf::List, entry }.to(HOME));
        }
    }

    fn slow_len_max(&self) -> usize {
        let len_max = self.host.settings.integer(MAX_LEN).unwrap_or(0);
        usize::try_from(len_max).unwrap_or(usize::MAX)
    }

    /// Follows the settings about times.
    pub(crate) fn follow_timing(&mut self) {
        self.host.latencies.follow(&self.host.settings);
        self.host.timing.follow(&self.host.settings, &self.host.latencies);
        let len_max = self.slow_len_max();
        self.slow_log.trim(len_max);
    }

    /// Answers `SLOWLOG` from the list.
    pub(crate) fn answer_slowlog(&mut self, args: Args<'_>, writer: &mut ReplyWriter<'_>) {
        let is = |name: &[u8]| args.at(1).eq_ignore_ascii_case(name);
        match shown_count(args) {
            Ok(count) if is(b"get") => self.slow_log.write(count, writer),
            _ if is(b"len") => writer.integer(self.slow_log.entries.len() as i64),
            _ => {
                self.slow_log.clear();
                writer.ok();
            }
        }
    }
}

/// How many entries are asked for.
fn shown_count(args: Args<'_>) -> Result<usize, Halt> {
    const TOO_FEW: &str = "ERR count should be greater than or equal to -1";
    match args.get(2).map(number::integer) {
        None => Ok(SHOWN),
        Some(Some(-1)) => Ok(usize::MAX),
        Some(Some(count)) => usize::try_from(count).or_else(|_| fail(TOO_FEW)),
        Some(None) => fail(TOO_FEW),
    }
}

/// Checks the arguments, whose numbers are right.
pub(crate) fn check(args: Args<'_>) -> Result<(), Halt> {
    if !args.at(0).eq_ignore_ascii_case(b"slowlog") || !args.at(1).eq_ignore_ascii_case(b"get") {
        return Ok(());
    }
    if args.len() > 3 {
        let given = String::from_utf8_lossy(args.at(1));
        return fail_with(format!(
            "ERR unknown subcommand or wrong number of arguments for '{given}'. Try SLOWLOG HELP."
        ));
    }
    shown_count(args).map(|_| ())
}

/// Whether a setting is about times.
pub(crate) fn is_about_time(name: &str) -> bool {
    [MAX_LEN, crate::timing::SLOWER_THAN, crate::latency::TRACKING, crate::latency::THRESHOLD]
        .iter()
        .any(|other| name.eq_ignore_ascii_case(other))
}

/// Adds the settings of the list, with Redis's first values.
pub(crate) fn add_settings(settings: &mut Settings) {
    use crate::settings::SettingKind::Integer;
    settings.add(crate::timing::SLOWER_THAN, "10000", Integer { min: -1, max: i64::MAX }, true);
    settings.add(MAX_LEN, "128", Integer { min: 0, max: i64::MAX }, true);
}
