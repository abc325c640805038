//! Commands about the whole server: every shard carries them out for its own connections and counters,
//! and the answers become one.
//!
//! Invariant: what is merged was encoded by this program; an answer that cannot be read is left out of
//! the sum rather than shown half.

use crate::args::{Args, OwnedArgs};
use crate::commands::memory::{self, MemoryNumbers};
use crate::control::{Flow, Output};
use crate::executor::{Executor, Outcome};
use crate::latency::merge_histograms;
use crate::merged_info::merge_info;
use crate::remote::{Ending, HOME, Message};
use crate::run::run_control_as;
use crate::session::ConnectionId;
use crate::settings::Stamp;
use crate::table::{Action, Command};
use tierstone_base::{Now, ShardId};
use tierstone_engine::Engine;
use tierstone_store::TaskId;
use tierstone_wire::resp::{ReplyWriter, Version};

/// How the answers of all shards become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    /// The asked shard's own answer stands for all.
    Own,
    /// Texts one after the other.
    Texts,
    /// Numbers are added; a shard that found nothing says so with an error, which counts for nothing.
    Numbers,
    /// Histograms are added.
    Histograms,
    /// Lines of `name:value` ([`crate::merged_info`]).
    Info,
    /// What each shard knows of its memory.
    Memory,
}

impl Merge {
    /// How the answers to `command` are merged; `None`: it concerns one shard.
    fn of(command: &Command) -> Option<Merge> {
        match command.name {
            "info" => Some(Merge::Info),
            "memory|stats" | "memory|doctor" => Some(Merge::Memory),
            "latency|histogram" => Some(Merge::Histograms),
            "client|list" => Some(Merge::Texts),
            "client|kill" => Some(Merge::Numbers),
            "client|pause" | "client|unpause" | "config|resetstat" => Some(Merge::Own),
            _ => None,
        }
    }
}

impl<E: Engine> Executor<E> {
    /// Carries a control command out at every shard, if it concerns all of them.
    pub(crate) fn ask_everywhere(
        &mut self,
        now: Now,
        connection: ConnectionId,
        command: &'static Command,
        args: Args<'_>,
        version: Version,
    ) -> Option<Outcome> {
        if self.shard.count() == 1 {
            return None;
        }
        if command.name == "acl|log" {
            // The first shard keeps what was refused at all.
            return (self.shard.index() != HOME).then(|| self.ask_home(connection, args));
        }
        let merge = Merge::of(command)?;
        let mut own = Vec::new();
        let flow = self.control_for(now, connection, command, args, version, &mut own);
        if own.first() == Some(&b'-') && merge != Merge::Numbers {
            // Wrong arguments are wrong everywhere.
            return None;
        }
        let id = self.shard.next_id();
        let closes = flow == Flow::Close;
        let request = args.to_owned();
        let work = self.fan_out_to_others(Ending::Merge { merge, own, closes, request });
        let outcome = self.suspend(connection, id, work);
        let own_index = self.shard.index();
        for to in (0..self.shard.count()).filter(|shard| *shard != own_index) {
            let args = args.to_owned();
            let message = Message::Control { ticket: id, connection, command, args, version };
            self.host.outputs.push(Output::Send { to, message });
        }
        Some(outcome)
    }

    /// Tells another shard how many keys a database has here.
    pub(crate) fn count_here(&mut self, from: ShardId, ticket: TaskId, db: u32) {
        let keyspace = self.shard.map().keyspace(db);
        let value = keyspace.map_or(0, |keyspace| self.shard.engine().len(keyspace));
        let gate = self.shard.gate(self.shard.engine().applied_seq());
        self.send_gated(from, Message::Number { ticket, value }, gate);
    }

    /// Tells the other shards what a setting is that a client of this one has changed. They know it when they take what
    /// a client asks who was answered.
    pub(crate) fn tell_setting(&mut self, name: &str) {
        let Some(setting) = self.host.settings.get(name) else { return };
        let (own, stamp) = (self.shard.index(), self.host.settings.stamp(name));
        for to in (0..self.shard.count()).filter(|to| *to != own) {
            let (name, value) = (name.to_owned(), setting.value.clone());
            let message = Message::Setting { name, value, stamp };
            self.host.outputs.push(Output::Send { to, message });
        }
    }

    /// A client of another shard has changed a setting: it holds here too, unless it was changed again. Whatever the
    /// order in which shards hear of changes that were made at once, all of them keep the same one.
    pub(crate) fn setting_elsewhere(&mut self, now: Now, name: String, value: String, stamp: Stamp) {
        if self.host.settings.change_elsewhere(&name, &value, stamp) {
            self.carry_out_setting(now, &name);
            self.host.outputs.push(Output::SettingElsewhere { name, value });
        }
    }

    /// Carries a control command out for a client of another shard.
    pub(crate) fn control_elsewhere(
        &mut self,
        now: Now,
        (from, ticket): (ShardId, TaskId),
        connection: ConnectionId,
        command: &'static Command,
        args: &OwnedArgs,
        version: Version,
    ) {
        let mut reply = Vec::new();
        self.control_for(now, connection, command, args.args(), version, &mut reply);
        let message = Message::Walked { ticket, found: vec![reply] };
        self.host.outputs.push(Output::Send { to: from, message });
    }

    pub(crate) fn control_for(
        &mut self,
        now: Now,
        connection: ConnectionId,
        command: &'static Command,
        args: Args<'_>,
        version: Version,
        reply: &mut Vec<u8>,
    ) -> Flow {
        let Action::Control(handler) = command.action else {
            unreachable!("'{}' is no control command", command.name)
        };
        let facts = self.engine_facts();
        self.host.is_partial = true;
        let flow = run_control_as(&mut self.host, &facts, (now, connection), handler, args, version, reply);
        self.host.is_partial = false;
        flow
    }
}

/// One answer out of the own one and those of the others.
pub(crate) fn merge(
    (merge, request): (Merge, &OwnedArgs),
    own: &[u8],
    others: &[&[u8]],
    version: Version,
) -> Vec<u8> {
    let mut reply = Vec::new();
    let mut writer = ReplyWriter::new(&mut reply, version);
    match merge {
        Merge::Own => return own.to_vec(),
        Merge::Numbers => {
            let found = std::iter::once(own)
                .chain(others.iter().copied())
                .filter(|reply| reply.first() != Some(&b'-'));
            let answers: Vec<&[u8]> = found.collect();
            match answers.first() {
                None => return own.to_vec(),
                Some(first) if first.first() == Some(&b'+') => return first.to_vec(),
                Some(_) => writer.integer(answers.iter().filter_map(|reply| number_of(reply)).sum()),
            }
        }
        Merge::Histograms => {
            let all: Vec<&[u8]> = std::iter::once(own).chain(others.iter().copied()).collect();
            merge_histograms(&all, request.args(), version, &mut reply);
        }
        Merge::Texts => {
            let all = std::iter::once(own).chain(others.iter().copied());
            let text: String = all.filter_map(text_of).collect();
            writer.verbatim(*b"txt", text.as_bytes());
        }
        Merge::Info => {
            let Some(own) = text_of(own) else { return own.to_vec() };
            let others: Vec<&str> = others.iter().filter_map(|reply| text_of(reply)).collect();
            writer.verbatim(*b"txt", merge_info(own, &others).as_bytes());
        }
        Merge::Memory => {
            let all = std::iter::once(own).chain(others.iter().copied());
            let all: Vec<MemoryNumbers> = all.filter_map(text_of).map(MemoryNumbers::read).collect();
            memory::answer(request.args(), &all, &mut writer);
        }
    }
    reply
}

/// The number of an encoded integer.
fn number_of(reply: &[u8]) -> Option<i64> {
    std::str::from_utf8(reply.strip_prefix(b":")?).ok()?.trim_end().parse().ok()
}

/// The text of an encoded bulk or verbatim string.
pub(crate) fn text_of(reply: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(reply).ok()?;
    let (head, body) = text.split_once("\r\n")?;
    let body = body.strip_suffix("\r\n")?;
    if head.starts_with('=') { body.strip_prefix("txt:") } else { Some(body) }
}

#[cfg(test)]
#[path = "everywhere_test.rs"]
mod everywhere_test;
