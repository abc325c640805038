//! Commands about the whole server: every shard carries them out for its own connections and counters,
//! and the answers become one.
//!
//! Invariant: what is merged was encoded by this program; an answer that cannot be read is left out of
//! the sum rather than shown half.

use crate::args::{Args, OwnedArgs};
use crate::commands::info::{SPACE_FULL, space_full_line};
use crate::commandstats::merge_commandstats;
use crate::control::{Flow, Output};
use crate::energy;
use crate::executor::{Executor, Outcome};
use crate::latency::{merge_histograms, merge_latencystats};
use crate::remote::{Ending, HOME, Message};
use crate::run::run_control_as;
use crate::session::ConnectionId;
use crate::settings::Stamp;
use crate::table::{Action, Command};
use std::collections::BTreeMap;
use tierstone_base::units::format_size;
use tierstone_base::{Now, ShardId};
use tierstone_engine::{Engine, EngineStatistics};
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
    /// Lines of `name:value`: counters and sizes are added, the rest is the asked shard's.
    Info,
}

impl Merge {
    /// How the answers to `command` are merged; `None`: it concerns one shard.
    fn of(command: &Command) -> Option<Merge> {
        match command.name {
            "info" => Some(Merge::Info),
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

/// Names of `INFO` that every shard tells of its own part.
const ADDED: [&str; 38] = [
    "connected_clients",
    "blocked_clients",
    "pubsub_clients",
    "tracking_clients",
    "tracking_total_keys",
    "tracking_total_items",
    "used_memory",
    "memory_part_bytes",
    "index_bytes",
    "cache_bytes",
    "buffer_bytes",
    "connection_bytes",
    "connection_bytes_max",
    "request_bytes",
    "request_bytes_max",
    "applied_sequence",
    "durable_sequence",
    "total_connections_received",
    "total_commands_processed",
    "expired_keys",
    "evicted_keys",
    "evicted_clients",
    "keyspace_hits",
    "keyspace_misses",
    "suspended_commands",
    "total_error_replies",
    "rejected_connections",
    "client_query_buffer_limit_disconnections",
    "client_output_buffer_limit_disconnections",
    "total_net_input_bytes",
    "total_net_output_bytes",
    "acl_access_denied_auth",
    "acl_access_denied_cmd",
    "acl_access_denied_key",
    "acl_access_denied_channel",
    "instantaneous_ops_per_sec",
    "untold_expirations",
    "groups",
];

/// Lines of `INFO` that each shard has one of begin with this; its number follows.
pub(crate) const MEMORY_OF_SHARD: &str = "memory_part_bytes_shard_";

/// The section of which histograms are added, and shown as percentiles.
pub(crate) const LATENCYSTATS: &str = "Latencystats";
/// The section whose lines have several numbers each.
pub(crate) const COMMANDSTATS: &str = "Commandstats";

/// Sections of which every line is added.
const ADDED_SECTIONS: [&str; 3] = ["Storage", "Errorstats", "Keyspace"];

/// A line of `INFO` with a number: everything before it, and the number.
fn numbered(line: &str) -> Option<(&str, i128)> {
    let place = line.rfind([':', '='])? + 1;
    line[place..].parse().ok().map(|number| (&line[..place], number))
}

/// The lines to be added of one shard's `INFO`, by section and name.
fn numbers_of(text: &str) -> BTreeMap<(&str, &str), i128> {
    let mut section = "";
    let mut numbers = BTreeMap::new();
    for line in text.split("\r\n") {
        if let Some(name) = line.strip_prefix("# ") {
            section = name;
        } else if let Some((name, number)) = numbered(line)
            && is_added(section, name)
        {
            *numbers.entry((section, name)).or_insert(0) += number;
        }
    }
    numbers
}

fn is_added(section: &str, name: &str) -> bool {
    // It does not follow from those of the shards.
    if name == SPACE_FULL {
        return false;
    }
    ADDED_SECTIONS.contains(&section)
        || ADDED.contains(&name.trim_end_matches([':', '=']))
        || energy::ADDED.contains(&name.trim_end_matches(':'))
        || name.starts_with(MEMORY_OF_SHARD)
}

/// The lines of a section of one shard's `INFO`; none where it was not asked for.
fn section_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("# {name}\r\n"))?;
    let lines = rest.split("\r\n\r\n").next().unwrap_or(rest);
    Some(lines.split("\r\n# ").next().unwrap_or(lines).trim_end_matches("\r\n"))
}

/// One `INFO` out of those of all shards.
fn merge_info(own: &str, others: &[&str]) -> String {
    let mut merged = merge_lines(own, others);
    for name in [COMMANDSTATS, LATENCYSTATS] {
        let Some(lines) = section_of(&merged, name) else { continue };
        let all = std::iter::once(own).chain(others.iter().copied());
        let sections: Vec<&str> = all.filter_map(|text| section_of(text, name)).collect();
        let told =
            if name == COMMANDSTATS { merge_commandstats(&sections) } else { merge_latencystats(&sections) };
        merged =
            merged.replacen(&format!("# {name}\r\n{lines}"), &format!("# {name}\r\n{}", told.trim_end()), 1);
    }
    merged
}

fn merge_lines(own: &str, others: &[&str]) -> String {
    let mut rest: BTreeMap<(&str, &str), i128> = BTreeMap::new();
    for other in others {
        for (name, number) in numbers_of(other) {
            *rest.entry(name).or_insert(0) += number;
        }
    }
    let mut merged = String::with_capacity(own.len() + 256);
    let mut section = "";
    let (mut used_memory, mut space) = (0, EngineStatistics::default());
    let mut joules = energy::Sums::default();
    for line in own.split_inclusive("\r\n").map(|line| line.trim_end_matches("\r\n")).chain(["# "]) {
        if line.is_empty() || line.starts_with("# ") {
            // What only others have belongs to the end of its section.
            let left: Vec<(&str, &str)> = rest.keys().filter(|(of, _)| *of == section).copied().collect();
            for key in left {
                let number = rest.remove(&key).unwrap_or(0);
                merged.push_str(&format!("{}{number}\r\n", key.1));
            }
            if let Some(name) = line.strip_prefix("# ") {
                section = name;
            }
            if line != "# " {
                merged.push_str(line);
                merged.push_str("\r\n");
            }
            continue;
        }
        match numbered(line) {
            Some((name, number)) if is_added(section, name) => {
                let total = number + rest.remove(&(section, name)).unwrap_or(0);
                match name {
                    "used_memory:" => used_memory = total as u64,
                    "space_live_bytes:" => space.space_live_bytes = total as u64,
                    "space_capacity_bytes:" => space.space_capacity_bytes = total as u64,
                    "space_growth_bytes_per_day:" => space.space_growth_bytes_per_day = total as i64,
                    _ => joules.note(name, total),
                }
                merged.push_str(&format!("{name}{total}"));
            }
            _ if line.starts_with("used_memory_human:") => {
                merged.push_str(&format!("used_memory_human:{}", format_size(used_memory)));
            }
            _ if line.starts_with(SPACE_FULL) => merged.push_str(&space_full_line(&space)),
            told => {
                if let Some((name, number)) = told {
                    joules.note(name, number);
                }
                merged.push_str(&joules.quotient(line).unwrap_or_else(|| line.to_owned()));
            }
        }
        merged.push_str("\r\n");
    }
    merged
}

#[cfg(test)]
#[path = "everywhere_test.rs"]
mod everywhere_test;
