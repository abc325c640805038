//! `CLIENT TRACKING` and what goes with it.

use crate::account::Account;
use crate::args::Args;
use crate::context::{Halt, NOT_AN_INTEGER, SYNTAX, fail, fail_with};
use crate::control::{Control, Flow, Host};
use crate::executor::{Executor, Outcome};
use crate::number;
use crate::remote::Ending;
use crate::session::ConnectionId;
use crate::task::Work;
use crate::tracking::{Mode, PrefixesHeld, Tracking};
use std::collections::BTreeSet;
use tierstone_base::{Now, ShardId};
use tierstone_engine::Engine;
use tierstone_store::{Holder, TaskId};
use tierstone_wire::resp::ReplyWriter;

/// What a transaction cannot have other shards told, or asked, in time.
const ELSEWHERE: &str = "ERR CLIENT TRACKING with BCAST, or with REDIRECT to a connection of another shard, is not available inside a transaction: send it before MULTI";
const NO_ROOM: &str = "ERR the prefixes that clients track take too much memory";
const NO_REDIRECT: &str = "ERR The client ID you want redirect to does not exist";

/// The work of a prefix that the client follows already, which is copied for the new list and for each place that knows it, and of
/// one that any client follows, in units of about a nanosecond.
const COPY_WORK: u64 = 300;
const LOOK_WORK: u64 = 30;

/// The options of a `CLIENT TRACKING`.
#[derive(Debug, Default)]
struct Options<'a> {
    redirect: Option<ConnectionId>,
    is_broadcast: bool,
    is_opt_in: bool,
    is_opt_out: bool,
    is_deaf: bool,
    prefixes: Vec<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn parse(args: Args<'a>) -> Result<Self, Halt> {
        let mut options = Options::default();
        let mut index = 3;
        while let Some(word) = args.get(index) {
            let value = args.get(index + 1);
            match (word.to_ascii_lowercase().as_slice(), value) {
                (b"redirect", Some(_)) if options.redirect.is_some() => {
                    return fail("ERR A client can only redirect to a single other client");
                }
                (b"redirect", Some(id)) => {
                    let Some(id) = number::integer(id) else { return fail(NOT_AN_INTEGER) };
                    // No connection has an id below 1.
                    options.redirect = Some(ConnectionId::try_from(id).unwrap_or(0));
                    index += 1;
                }
                (b"prefix", Some(prefix)) => {
                    options.prefixes.push(prefix);
                    index += 1;
                }
                (b"bcast", _) => options.is_broadcast = true,
                (b"optin", _) => options.is_opt_in = true,
                (b"optout", _) => options.is_opt_out = true,
                (b"noloop", _) => options.is_deaf = true,
                _ => return fail(SYNTAX),
            }
            index += 1;
        }
        Ok(options)
    }

    /// What a connection tracks with them that has tracked `old`, on a shard of so many. `account` has room for its prefixes.
    fn applied(&self, old: Option<&Tracking>, (account, shards): (&Account, u16)) -> Result<Tracking, Halt> {
        let mode = self.mode(old)?;
        let all = [&b""[..]];
        let is_known = old.is_some_and(|old| old.prefixes.contains(all[0]));
        let added = match self.prefixes.as_slice() {
            [] if self.is_broadcast && !is_known => &all,
            prefixes => prefixes,
        };
        // Before anything is made of them.
        let before = old.map_or(0, |old| old.prefixes_held.own_bytes());
        let prefixes_held = PrefixesHeld::with(added.iter().copied(), before, account, shards);
        let Some(prefixes_held) = prefixes_held else { return fail(NO_ROOM) };
        let mut prefixes = old.map(|old| old.prefixes.clone()).unwrap_or_default();
        check_prefixes(&prefixes, &self.prefixes)?;
        prefixes.extend(added.iter().map(|prefix| prefix.to_vec()));
        Ok(Tracking {
            mode,
            is_deaf: self.is_deaf,
            redirect: None,
            is_broken: false,
            is_caching: old.is_some_and(|old| old.is_caching),
            prefixes,
            prefixes_held,
        })
    }

    /// Which reads are noted with them, if they go together and with what was tracked.
    fn mode(&self, old: Option<&Tracking>) -> Result<Mode, Halt> {
        if !self.is_broadcast && !self.prefixes.is_empty() {
            return fail("ERR PREFIX option requires BCAST mode to be enabled");
        }
        if old.is_some_and(|old| (old.mode == Mode::Broadcast) != self.is_broadcast) {
            return fail(
                "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then re-enabling it with a different mode.",
            );
        }
        if self.is_broadcast && (self.is_opt_in || self.is_opt_out) {
            return fail("ERR OPTIN and OPTOUT are not compatible with BCAST");
        }
        if self.is_opt_in && self.is_opt_out {
            return fail("ERR You can't specify both OPTIN mode and OPTOUT mode");
        }
        let was = |mode: Mode| old.is_some_and(|old| old.mode == mode);
        if self.is_opt_in && was(Mode::OptOut) || self.is_opt_out && was(Mode::OptIn) {
            return fail(
                "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then re-enabling it with a different mode.",
            );
        }
        Ok(match (self.is_broadcast, self.is_opt_in, self.is_opt_out) {
            (true, ..) => Mode::Broadcast,
            (_, true, _) => Mode::OptIn,
            (_, _, true) => Mode::OptOut,
            _ => Mode::All,
        })
    }
}

/// Refuses prefixes of which one begins with another: their keys would be told twice.
///
/// Cost: of so many prefixes as of a sort.
fn check_prefixes(old: &BTreeSet<Vec<u8>>, new: &[&[u8]]) -> Result<(), Halt> {
    let text = String::from_utf8_lossy;
    let refuse = |prefix: &[u8], which: &str, other: &[u8]| {
        fail_with(format!(
            "ERR Prefix '{}' overlaps with {which} prefix '{}'. Prefixes for a single client must not overlap.",
            text(prefix),
            text(other)
        ))
    };
    let repeated = first_overlapping(new);
    for (index, prefix) in new.iter().enumerate() {
        if let Some(other) = overlapping(old, prefix) {
            return refuse(prefix, "an existing", other);
        }
        if repeated == Some(index)
            && let Some(other) = new[index + 1..].iter().find(|other| overlap(prefix, other))
        {
            return refuse(prefix, "another provided", other);
        }
    }
    Ok(())
}

fn overlap(left: &[u8], right: &[u8]) -> bool {
    left.starts_with(right) || right.starts_with(left)
}

/// The first of `old` that overlaps with `prefix`. Of them at most the empty one overlaps with others.
fn overlapping<'o>(old: &'o BTreeSet<Vec<u8>>, prefix: &[u8]) -> Option<&'o [u8]> {
    let bound = std::ops::Bound::Included(prefix);
    // What a prefix begins with lies directly before it where none of them begins with another, and what begins
    // with it directly behind.
    let before = old.range::<[u8], _>((std::ops::Bound::Unbounded, bound)).next_back();
    let behind = old.range::<[u8], _>((bound, std::ops::Bound::Unbounded)).next();
    let near = [old.first(), before, behind].into_iter().flatten();
    near.map(Vec::as_slice).find(|other| overlap(prefix, other))
}

/// The first of `new` that overlaps with another of them.
fn first_overlapping(new: &[&[u8]]) -> Option<usize> {
    let mut sorted: Vec<(&[u8], usize)> = new.iter().copied().zip(0..).collect();
    sorted.sort_unstable();
    let mut first: Option<usize> = None;
    // What the one in hand begins with, each beginning with the one before.
    let mut above: Vec<(&[u8], usize)> = Vec::new();
    for (prefix, index) in sorted {
        while above.pop_if(|(other, _)| !prefix.starts_with(other)).is_some() {}
        if let Some((_, other)) = above.last() {
            first = first.into_iter().chain([index, *other]).min();
        }
        above.push((prefix, index));
    }
    first
}

impl<E: Engine> Executor<E> {
    /// `CLIENT TRACKING`. It is answered when every shard knows what the client wants to be told.
    pub(crate) fn tracking(
        &mut self,
        connection: ConnectionId,
        args: Args<'_>,
        reply: &mut Vec<u8>,
    ) -> Result<Outcome, Halt> {
        let Some(session) = self.host.sessions.get_mut(&connection) else {
            return Ok(Outcome::Close { gate: 0 });
        };
        let mut writer = ReplyWriter::new(reply, session.version);
        let options = Options::parse(args)?;
        match args.at(2).to_ascii_lowercase().as_slice() {
            b"off" => {
                let tracking = session.tracking.take();
                self.stop_tracking(connection, tracking);
                writer.ok();
                return Ok(Outcome::Ready { gate: 0 });
            }
            b"on" => {}
            _ => return fail(SYNTAX),
        }
        let known = session.tracking.as_ref().map_or(0, |tracking| tracking.prefixes.len() as u64);
        self.host.work.add(known * COPY_WORK + self.shard.tracking.prefixes() * LOOK_WORK);
        let budget = (&self.host.listening, self.shard.count());
        let mut tracking = options.applied(session.tracking.as_deref(), budget)?;
        let is_alone = self.shard.count() == 1;
        match options.redirect {
            Some(id) if self.host.sessions.contains_key(&id) => {
                tracking.redirect = Some((id, self.shard.index()));
            }
            Some(_) if is_alone => return fail(NO_REDIRECT),
            _ => {}
        }
        let elsewhere = options.redirect.filter(|_| tracking.redirect.is_none());
        if is_alone || elsewhere.is_none() && tracking.mode != Mode::Broadcast {
            self.begin_tracking(connection, tracking);
            writer.ok();
            return Ok(Outcome::Ready { gate: 0 });
        }
        let id = self.shard.next_id();
        self.tell_prefixes(Some(id), connection, &tracking.prefixes, elsewhere);
        let work = self.fan_out_to_others(Ending::Tracking(Box::new(Asked { tracking, elsewhere })));
        Ok(self.suspend(connection, id, work))
    }

    fn begin_tracking(&mut self, connection: ConnectionId, tracking: Tracking) {
        if tracking.mode == Mode::Broadcast {
            let holder = Holder { client: connection, shard: self.shard.index() };
            self.follow_prefixes(holder, tracking.prefixes.iter().cloned().collect());
        }
        if let Some(session) = self.host.sessions.get_mut(&connection) {
            let old = session.tracking.replace(Box::new(tracking));
            self.host.trackers += usize::from(old.is_none());
        }
    }

    /// The other shards know what the client of `id` wants to be told, and have answered with one more than the shard
    /// that has the connection which it is redirected to.
    pub(crate) fn tracking_answered(&mut self, now: Now, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let connection = task.connection();
        let Work::FanOut(fan_out) = &mut task.work else { return };
        let Ending::Tracking(asked) = &mut fan_out.ending else { return };
        let (mut tracking, elsewhere, found) = (asked.tracking.clone(), asked.elsewhere, fan_out.number);
        let session = connection.and_then(|connection| self.host.sessions.get(&connection));
        let shard = found.checked_sub(1).and_then(|shard| ShardId::try_from(shard).ok());
        if let Some(to) = elsewhere {
            tracking.redirect = shard.map(|shard| (to, shard));
        }
        let is_missing = elsewhere.is_some() && tracking.redirect.is_none();
        if is_missing || session.is_none() {
            // As it was before.
            let old = session.and_then(|session| session.tracking.as_ref());
            let prefixes = old.map(|old| old.prefixes.clone()).unwrap_or_default();
            if let Some(connection) = connection {
                self.tell_prefixes(None, connection, &prefixes, None);
            }
            return self.finish(now, id, format!("-{NO_REDIRECT}\r\n"), 0, false);
        }
        if let Some(connection) = connection {
            self.begin_tracking(connection, tracking);
        }
        self.finish(now, id, b"+OK\r\n", 0, false);
    }
}

/// A `CLIENT TRACKING` of which the other shards have been told.
#[derive(Debug)]
pub(crate) struct Asked {
    tracking: Tracking,
    /// The connection that is looked for at the other shards.
    elsewhere: Option<ConnectionId>,
}

/// `CLIENT TRACKING` within a transaction on shard `own` of so many: what can be begun and ended without the others.
pub(crate) fn tracking_queued(
    host: &mut Host,
    shard: (ShardId, u16),
    connection: ConnectionId,
    args: Args<'_>,
    reply: &mut Vec<u8>,
) {
    let Some(session) = host.sessions.get(&connection) else { return };
    let mut writer = ReplyWriter::new(reply, session.version);
    match queued(host, shard, session.tracking.as_deref(), args) {
        Ok(tracking) => {
            host.change_tracking(connection, tracking);
            writer.ok();
        }
        Err(Halt::Error(text)) => writer.error(text.as_bytes()),
        Err(Halt::Suspend) => unreachable!("no view is open here"),
    }
}

/// What a connection tracks that has tracked `old`, behind a `CLIENT TRACKING` within a transaction.
fn queued(
    host: &Host,
    (own, count): (ShardId, u16),
    old: Option<&Tracking>,
    args: Args<'_>,
) -> Result<Option<Tracking>, Halt> {
    let options = Options::parse(args)?;
    match args.at(2).to_ascii_lowercase().as_slice() {
        b"off" => return Ok(None),
        b"on" => {}
        _ => return fail(SYNTAX),
    }
    let mut tracking = options.applied(old, (&host.listening, count))?;
    match options.redirect {
        Some(id) if host.sessions.contains_key(&id) => tracking.redirect = Some((id, own)),
        Some(_) if count == 1 => return fail(NO_REDIRECT),
        Some(_) => return fail(ELSEWHERE),
        None => {}
    }
    if count > 1 && tracking.mode == Mode::Broadcast {
        return fail(ELSEWHERE);
    }
    Ok(Some(tracking))
}

pub(crate) fn caching(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let word = control.args.at(2).to_ascii_lowercase();
    let Some(tracking) = &mut control.session().tracking else {
        return fail(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
        );
    };
    match word.as_slice() {
        b"yes" if tracking.mode != Mode::OptIn => {
            return fail("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.");
        }
        b"no" if tracking.mode != Mode::OptOut => {
            return fail("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.");
        }
        b"yes" | b"no" => tracking.is_caching = true,
        _ => return fail(SYNTAX),
    }
    control.reply.ok();
    Ok(Flow::Done)
}

/// To whom a connection is redirected, as Redis shows it: 0 for itself, −1 where it tracks nothing.
pub(crate) fn redirection(tracking: Option<&Tracking>) -> i64 {
    tracking.map_or(-1, |tracking| tracking.redirect.map_or(0, |(id, _)| id as i64))
}

pub(crate) fn getredir(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let id = redirection(control.session().tracking.as_deref());
    control.reply.integer(id);
    Ok(Flow::Done)
}

pub(crate) fn trackinginfo(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let tracking = control.session().tracking.clone();
    let tracking = tracking.as_deref();
    let has = |is: fn(&Tracking) -> bool| tracking.is_some_and(is);
    let flags = [
        ("off", tracking.is_none()),
        ("on", tracking.is_some()),
        ("bcast", has(|tracking| tracking.mode == Mode::Broadcast)),
        ("optin", has(|tracking| tracking.mode == Mode::OptIn)),
        ("caching-yes", has(|tracking| tracking.mode == Mode::OptIn && tracking.is_caching)),
        ("optout", has(|tracking| tracking.mode == Mode::OptOut)),
        ("caching-no", has(|tracking| tracking.mode == Mode::OptOut && tracking.is_caching)),
        ("noloop", has(|tracking| tracking.is_deaf)),
        ("broken_redirect", has(|tracking| tracking.is_broken)),
    ];
    let flags: Vec<&str> = flags.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name).collect();
    control.reply.map(3);
    control.reply.bulk(b"flags");
    control.reply.set(flags.len());
    flags.iter().for_each(|name| control.reply.bulk(name.as_bytes()));
    control.reply.bulk(b"redirect");
    control.reply.integer(redirection(tracking));
    control.reply.bulk(b"prefixes");
    let prefixes = tracking.map(|tracking| &tracking.prefixes).into_iter().flatten();
    control.reply.array(prefixes.clone().count());
    prefixes.for_each(|prefix| control.reply.bulk(prefix));
    Ok(Flow::Done)
}

#[cfg(test)]
#[path = "tracking_test.rs"]
mod tracking_test;
