//! `CLIENT` and its subcommands.

use crate::commands::connection::{check_name, set_name};
use crate::commands::tracking::redirection;
use crate::context::{Halt, NOT_AN_INTEGER, SYNTAX, fail, fail_with};
use crate::control::{Control, Flow, Pause};
use crate::number;
use crate::session::{ChannelKind, ConnectionId, ReplyMode, Session};
use crate::tracking::Mode;
use std::collections::BTreeSet;
use tierstone_base::Now;
use tierstone_wire::resp::Version;

pub(crate) fn id(control: &mut Control<'_>) -> Result<Flow, Halt> {
    control.reply.integer(control.connection as i64);
    Ok(Flow::Done)
}

pub(crate) fn getname(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let name = std::mem::take(&mut control.session().name);
    if name.is_empty() {
        control.reply.null();
    } else {
        control.reply.bulk(&name);
    }
    control.session().name = name;
    Ok(Flow::Done)
}

pub(crate) fn setname(control: &mut Control<'_>) -> Result<Flow, Halt> {
    set_name(control, control.args.at(2))?;
    control.reply.ok();
    Ok(Flow::Done)
}

pub(crate) fn setinfo(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let (name, value) = (control.args.at(2), control.args.at(3));
    let is_library_name = name.eq_ignore_ascii_case(b"LIB-NAME");
    if !is_library_name && !name.eq_ignore_ascii_case(b"LIB-VER") {
        let name = String::from_utf8_lossy(name);
        return fail_with(format!("ERR Unrecognized option '{name}'"));
    }
    let refusal = if is_library_name {
        "ERR lib-name cannot contain spaces, newlines or special characters."
    } else {
        "ERR lib-ver cannot contain spaces, newlines or special characters."
    };
    check_name(value, refusal)?;
    let session = control.session();
    *(if is_library_name { &mut session.library_name } else { &mut session.library_version }) =
        value.to_vec();
    control.reply.ok();
    Ok(Flow::Done)
}

/// What Redis keeps for replies in one piece: what is beyond lies in a list of such pieces.
const REPLY_BUFFER_BYTES: usize = 16 << 10;

/// What its buffers and arguments take, as fields of a line of `CLIENT LIST`; its request at hand has so many bytes of
/// arguments.
fn describe_memory(session: &Session, argument_bytes: usize) -> String {
    let sizes = session.buffers.sizes();
    let queued_bytes = session.transaction_bytes();
    let beyond = sizes.replies.saturating_sub(REPLY_BUFFER_BYTES);
    let total = sizes.input + sizes.output + sizes.tls + argument_bytes + queued_bytes;
    format!(
        "qbuf={} qbuf-free={} argv-mem={argument_bytes} multi-mem={queued_bytes} rbs={} obl={} oll={} omem={beyond} \
         tot-mem={}",
        sizes.unread,
        sizes.input.saturating_sub(sizes.unread),
        sizes.output,
        sizes.replies - beyond,
        beyond.div_ceil(REPLY_BUFFER_BYTES),
        total + session.channel_bytes() + session.name_bytes() + size_of::<Session>(),
    )
}

/// One line of `CLIENT LIST`, without its end. The request at hand of its client has so many bytes of arguments.
pub(crate) fn describe(session: &Session, now: Now, argument_bytes: usize) -> String {
    let seconds = |since: u64| now.monotonic_us.saturating_sub(since) / 1_000_000;
    let mut flags = String::new();
    for (flag, is_set) in [
        ('O', session.is_monitor),
        ('P', !session.channels().is_empty()),
        ('x', session.transaction.is_some()),
        ('t', session.tracking.is_some()),
        ('R', session.tracking.as_ref().is_some_and(|tracking| tracking.is_broken)),
        ('B', session.tracking.as_ref().is_some_and(|tracking| tracking.mode == Mode::Broadcast)),
        ('e', session.is_kept),
        ('T', session.is_untouching),
        ('c', session.is_closing),
    ] {
        if is_set {
            flags.push(flag);
        }
    }
    if flags.is_empty() {
        flags.push('N');
    }
    let text = String::from_utf8_lossy;
    format!(
        "id={} addr={} laddr={} name={} age={} idle={} flags={flags} db={} sub={} psub={} ssub={} multi={} watch={} {} cmd={} user={} redir={} resp={} lib-name={} lib-ver={}",
        session.id,
        session.info.address,
        session.info.local_address,
        text(&session.name),
        seconds(session.created_us),
        seconds(session.used_us),
        session.db,
        session.channels_of(ChannelKind::Channel),
        session.channels_of(ChannelKind::Pattern),
        session.channels_of(ChannelKind::Shard),
        session.transaction.as_ref().map_or(-1, |queue| queue.commands.len() as i64),
        session.watched.len(),
        describe_memory(session, argument_bytes),
        session.last_command,
        text(&session.user.name),
        redirection(session.tracking.as_deref()),
        if session.version == Version::Resp3 { 3 } else { 2 },
        text(&session.library_name),
        text(&session.library_version),
    )
}

/// Bytes of the arguments of the request at hand.
fn argument_bytes(control: &Control<'_>) -> usize {
    control.args.from(0).map(<[u8]>::len).sum()
}

pub(crate) fn info(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let (now, bytes) = (control.now, argument_bytes(control));
    let mut text = describe(control.session(), now, bytes);
    text.push('\n');
    control.reply.verbatim(*b"txt", text.as_bytes());
    Ok(Flow::Done)
}

/// Which connections `CLIENT LIST` and `CLIENT KILL` mean.
#[derive(Debug, Default)]
struct Filter<'a> {
    ids: Option<BTreeSet<i64>>,
    kind: Option<&'a [u8]>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    age_min_s: Option<i64>,
    spares_self: bool,
}

impl Filter<'_> {
    fn fits(&self, session: &Session, now: Now, own: ConnectionId) -> bool {
        let kind: &[u8] = if session.channels().is_empty() { b"normal" } else { b"pubsub" };
        let age_s = now.monotonic_us.saturating_sub(session.created_us) / 1_000_000;
        self.ids.as_ref().is_none_or(|ids| ids.contains(&(session.id as i64)))
            && self.kind.is_none_or(|wanted| wanted.eq_ignore_ascii_case(kind))
            && self.address.is_none_or(|wanted| wanted == session.info.address.as_bytes())
            && self.local_address.is_none_or(|wanted| wanted == session.info.local_address.as_bytes())
            && self.user.is_none_or(|wanted| wanted == session.user.name)
            && self.age_min_s.is_none_or(|min| age_s as i64 >= min)
            && !(self.spares_self && session.id == own)
    }
}

/// The ids of the connections that fit, in order.
fn select(control: &Control<'_>, filter: &Filter<'_>) -> Vec<ConnectionId> {
    let own = control.connection;
    let mut ids: Vec<ConnectionId> = control
        .host
        .sessions
        .values()
        .filter(|session| filter.fits(session, control.now, own))
        .map(|session| session.id)
        .collect();
    ids.sort_unstable();
    ids
}

fn client_type(text: &[u8]) -> Result<&[u8], Halt> {
    let known: [&[u8]; 5] = [b"normal", b"master", b"replica", b"slave", b"pubsub"];
    if known.iter().any(|kind| text.eq_ignore_ascii_case(kind)) {
        return Ok(text);
    }
    fail_with(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(text)))
}

pub(crate) fn list(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let args = control.args;
    let mut filter = Filter::default();
    match (args.len(), args.get(2)) {
        (2, _) => {}
        (4, Some(option)) if option.eq_ignore_ascii_case(b"TYPE") => {
            filter.kind = Some(client_type(args.at(3))?);
        }
        (4.., Some(option)) if option.eq_ignore_ascii_case(b"ID") => {
            let mut ids = BTreeSet::new();
            for text in args.from(3) {
                match number::integer(text) {
                    Some(id) if id > 0 => drop(ids.insert(id)),
                    _ => return fail("ERR Invalid client ID"),
                }
            }
            filter.ids = Some(ids);
        }
        _ => return fail(SYNTAX),
    }
    let mut text = String::new();
    for id in select(control, &filter) {
        if let Some(session) = control.host.sessions.get(&id) {
            let bytes = if id == control.connection { argument_bytes(control) } else { 0 };
            text.push_str(&describe(session, control.now, bytes));
            text.push('\n');
        }
    }
    control.reply.verbatim(*b"txt", text.as_bytes());
    Ok(Flow::Done)
}

pub(crate) fn kill(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let args = control.args;
    let is_old_form = args.len() == 3;
    let mut filter = Filter { spares_self: !is_old_form, ..Filter::default() };
    if is_old_form {
        filter.address = Some(args.at(2));
    }
    let mut index = 2;
    while !is_old_form && index < args.len() {
        let Some(value) = args.get(index + 1) else { return fail(SYNTAX) };
        match args.at(index).to_ascii_uppercase().as_slice() {
            b"ID" => match number::integer(value) {
                Some(id) if id > 0 => filter.ids = Some(BTreeSet::from([id])),
                _ => return fail("ERR client-id should be greater than 0"),
            },
            b"TYPE" => filter.kind = Some(client_type(value)?),
            b"ADDR" => filter.address = Some(value),
            b"LADDR" => filter.local_address = Some(value),
            b"USER" if control.host.users.get(value).is_some() => filter.user = Some(value),
            b"USER" => {
                return fail_with(format!("ERR No such user '{}'", String::from_utf8_lossy(value)));
            }
            b"SKIPME" => match value.to_ascii_lowercase().as_slice() {
                b"yes" => filter.spares_self = true,
                b"no" => filter.spares_self = false,
                _ => return fail(SYNTAX),
            },
            b"MAXAGE" => match number::integer(value) {
                Some(age) if age > 0 => filter.age_min_s = Some(age),
                Some(_) => return fail("ERR maxage should be greater than 0"),
                None => return fail("ERR maxage is not an integer or out of range"),
            },
            _ => return fail(SYNTAX),
        }
        index += 2;
    }
    let mut kills_self = false;
    let ids = select(control, &filter);
    for id in &ids {
        if *id == control.connection {
            kills_self = true;
        } else {
            control.host.end(*id, true);
        }
    }
    match (is_old_form, ids.len()) {
        (true, 0) => return fail("ERR No such client"),
        (true, _) => control.reply.ok(),
        (false, count) => control.reply.integer(count as i64),
    }
    Ok(if kills_self { Flow::Close } else { Flow::Done })
}

/// Argument 2 as `on` or `off`.
fn on_or_off(control: &Control<'_>) -> Result<bool, Halt> {
    match control.args.at(2).to_ascii_lowercase().as_slice() {
        b"on" => Ok(true),
        b"off" => Ok(false),
        _ => fail(SYNTAX),
    }
}

pub(crate) fn no_evict(control: &mut Control<'_>) -> Result<Flow, Halt> {
    control.session().is_kept = on_or_off(control)?;
    control.reply.ok();
    Ok(Flow::Done)
}

pub(crate) fn no_touch(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let is_untouching = on_or_off(control)?;
    control.session().is_untouching = is_untouching;
    control.host.has_untouching |= is_untouching;
    control.reply.ok();
    Ok(Flow::Done)
}

pub(crate) fn reply(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let mode = match control.args.at(2).to_ascii_lowercase().as_slice() {
        b"on" => ReplyMode::On,
        b"off" => ReplyMode::Off,
        b"skip" if control.session().reply_mode == ReplyMode::Off => ReplyMode::Off,
        b"skip" => ReplyMode::SkipNext,
        _ => return fail(SYNTAX),
    };
    control.session().reply_mode = mode;
    if mode == ReplyMode::On {
        control.reply.ok();
    }
    Ok(Flow::Done)
}

pub(crate) fn pause(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let args = control.args;
    let only_writes = match args.get(3) {
        None => false,
        Some(_) if args.len() > 4 => return fail(SYNTAX),
        Some(mode) if mode.eq_ignore_ascii_case(b"WRITE") => true,
        Some(mode) if mode.eq_ignore_ascii_case(b"ALL") => false,
        Some(_) => return fail("ERR CLIENT PAUSE mode must be WRITE or ALL"),
    };
    let Some(timeout_ms) = number::integer(args.at(2)) else {
        return fail("ERR timeout is not an integer or out of range");
    };
    let Ok(timeout_ms) = u64::try_from(timeout_ms) else { return fail("ERR timeout is negative") };
    if timeout_ms > (i64::MAX as u64).saturating_sub(control.now.wall_ms) {
        return fail("ERR timeout is out of range");
    }
    let until_us = control.now.monotonic_us.saturating_add(timeout_ms.saturating_mul(1_000));
    // A second pause may only hold more back for longer, as in Redis.
    let held = control.host.pause.filter(|pause| pause.until_us > control.now.monotonic_us);
    control.host.pause = Some(match held {
        Some(pause) => {
            Pause { until_us: pause.until_us.max(until_us), only_writes: pause.only_writes && only_writes }
        }
        None => Pause { until_us, only_writes },
    });
    control.reply.ok();
    Ok(Flow::Done)
}

pub(crate) fn unpause(control: &mut Control<'_>) -> Result<Flow, Halt> {
    if let Some(pause) = &mut control.host.pause {
        pause.until_us = 0;
    }
    control.reply.ok();
    Ok(Flow::Done)
}

pub(crate) fn unblock(control: &mut Control<'_>) -> Result<Flow, Halt> {
    if number::integer(control.args.at(2)).is_none() {
        return fail(NOT_AN_INTEGER);
    }
    match control.args.get(3) {
        None => {}
        Some(mode) if mode.eq_ignore_ascii_case(b"TIMEOUT") || mode.eq_ignore_ascii_case(b"ERROR") => {}
        Some(_) => return fail("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
    }
    control.reply.integer(0);
    Ok(Flow::Done)
}
