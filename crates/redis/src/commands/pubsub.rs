//! Channels: listening, sending, counting.

use crate::context::{Halt, fail};
use crate::control::{Control, Flow, Host, Output};
use crate::glob::Pattern;
use crate::request::KEY_SIZE_MAX_BYTES;
use crate::session::{ChannelKind, ConnectionId};
use tierstone_base::Seq;
use tierstone_wire::resp::{ReplyWriter, Version};

/// The words of one kind of channel.
struct Words {
    kind: ChannelKind,
    subscribe: &'static [u8],
    unsubscribe: &'static [u8],
}

const CHANNEL: Words =
    Words { kind: ChannelKind::Channel, subscribe: b"subscribe", unsubscribe: b"unsubscribe" };
const PATTERN: Words =
    Words { kind: ChannelKind::Pattern, subscribe: b"psubscribe", unsubscribe: b"punsubscribe" };
const SHARD: Words =
    Words { kind: ChannelKind::Shard, subscribe: b"ssubscribe", unsubscribe: b"sunsubscribe" };

/// The longest name of a channel, and the longest pattern, in bytes: that of the events of the longest key has room. A
/// message is compared with every pattern.
const CHANNEL_SIZE_MAX_BYTES: usize = KEY_SIZE_MAX_BYTES + 65;
const CHANNEL_TOO_LONG: &str = "ERR channel is longer than 65600 bytes";

const _: () = assert!(CHANNEL_SIZE_MAX_BYTES == 65_600, "the text says so");

/// The work of leaving one channel that nobody has named, and of finding one name among those that are listed, in units of
/// about a nanosecond.
const LEAVE_WORK: u64 = 500;
const NAME_WORK: u64 = 50;

/// The answer to one change of what a connection listens to.
fn answer(control: &mut Control<'_>, word: &[u8], name: Option<&[u8]>, kind: ChannelKind) {
    let count = control.session().subscriptions(kind);
    control.reply.push(3);
    control.reply.bulk(word);
    match name {
        Some(name) => control.reply.bulk(name),
        None => control.reply.null(),
    }
    control.reply.integer(count as i64);
}

fn listen(control: &mut Control<'_>, words: &Words) -> Result<Flow, Halt> {
    let args = control.args;
    let (account, copies) = (control.host.listening.clone(), copies(control));
    for name in args.from(1) {
        let connection = control.connection;
        if name.len() > CHANNEL_SIZE_MAX_BYTES {
            control.reply.error(CHANNEL_TOO_LONG);
            break;
        }
        if !control.session().listen(&account, copies, words.kind, name) {
            control.reply.error("ERR the channels that clients listen to take too much memory");
            break;
        }
        control.host.subscribe(control.engine.shard, words.kind, name, connection);
        answer(control, words.subscribe, Some(name), words.kind);
    }
    Ok(Flow::Done)
}

/// In how many places the name of a channel lies that somebody listens to: here twice, and at each other shard.
fn copies(control: &Control<'_>) -> usize {
    usize::from(control.engine.shard.1) + 1
}

fn leave(control: &mut Control<'_>, words: &Words, name: &[u8]) {
    let (connection, copies) = (control.connection, copies(control));
    control.session().leave(copies, words.kind, name);
    control.host.unsubscribe(control.engine.shard, words.kind, name, connection);
    answer(control, words.unsubscribe, Some(name), words.kind);
}

fn stop_listening(control: &mut Control<'_>, words: &Words) -> Result<Flow, Halt> {
    let args = control.args;
    if args.len() > 1 {
        for name in args.from(1) {
            leave(control, words, name);
        }
        return Ok(Flow::Done);
    }
    let names: Vec<Vec<u8>> = control.session().names_of(words.kind).map(<[u8]>::to_vec).collect();
    control.host.work.add(names.len() as u64 * LEAVE_WORK);
    for name in &names {
        leave(control, words, name);
    }
    if names.is_empty() {
        answer(control, words.unsubscribe, None, words.kind);
    }
    Ok(Flow::Done)
}

pub(crate) fn subscribe(control: &mut Control<'_>) -> Result<Flow, Halt> {
    listen(control, &CHANNEL)
}

pub(crate) fn psubscribe(control: &mut Control<'_>) -> Result<Flow, Halt> {
    listen(control, &PATTERN)
}

/// Not within a transaction, as in Redis, whose SUBSCRIBE and PSUBSCRIBE are.
pub(crate) fn ssubscribe(control: &mut Control<'_>) -> Result<Flow, Halt> {
    if control.host.is_in_exec {
        return fail("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client");
    }
    listen(control, &SHARD)
}

pub(crate) fn unsubscribe(control: &mut Control<'_>) -> Result<Flow, Halt> {
    stop_listening(control, &CHANNEL)
}

pub(crate) fn punsubscribe(control: &mut Control<'_>) -> Result<Flow, Halt> {
    stop_listening(control, &PATTERN)
}

pub(crate) fn sunsubscribe(control: &mut Control<'_>) -> Result<Flow, Halt> {
    stop_listening(control, &SHARD)
}

/// Gives a message to the listeners among this executor's connections, when `gate` is open; how many there were. It is
/// encoded once for all that get the same bytes.
pub(crate) fn deliver(host: &mut Host, kind: ChannelKind, name: &[u8], payload: &[u8], gate: Seq) -> usize {
    let Host { channels, sessions, outputs, pushes, work: all_work, .. } = host;
    let (mut count, mut work) = (0, 0);
    for (pattern, listeners) in channels.receivers(kind, name, &mut work) {
        let version = |id: &ConnectionId| sessions.get(id).map(|session| session.version);
        let known = listeners.iter().copied().filter(|id| version(id).is_some());
        let (older, newer): (Vec<_>, Vec<_>) = known.partition(|id| version(id) == Some(Version::Resp2));
        for (version, to) in [(Version::Resp2, older), (Version::Resp3, newer)] {
            if !to.is_empty() {
                let bytes = encode(version, kind, pattern, (name, payload));
                pushes.note(bytes.len(), to.len());
                count += to.len();
                outputs.push(Output::Pushes { to, bytes, gate });
            }
        }
    }
    all_work.add(work);
    count
}

/// One message, for those who have found it by `pattern` or by its channel's name.
fn encode(
    version: Version,
    kind: ChannelKind,
    pattern: Option<&[u8]>,
    (name, payload): (&[u8], &[u8]),
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.len() + payload.len() + 64);
    let mut message = ReplyWriter::new(&mut bytes, version);
    match pattern {
        Some(pattern) => {
            message.push(4);
            message.bulk(b"pmessage");
            message.bulk(pattern);
        }
        None => {
            message.push(3);
            message.bulk(if kind == ChannelKind::Shard { b"smessage" } else { b"message" });
        }
    }
    message.bulk(name);
    message.bulk(payload);
    bytes
}

fn send(control: &mut Control<'_>, kind: ChannelKind) -> Result<Flow, Halt> {
    let (name, payload) = (control.args.at(1), control.args.at(2));
    if name.len() > CHANNEL_SIZE_MAX_BYTES {
        return fail(CHANNEL_TOO_LONG);
    }
    let here = deliver(control.host, kind, name, payload, 0) as u64;
    let elsewhere = control.host.broadcast_publish(control.engine.shard, kind, name, payload);
    control.reply.integer((here + elsewhere) as i64);
    Ok(Flow::Done)
}

pub(crate) fn publish(control: &mut Control<'_>) -> Result<Flow, Halt> {
    send(control, ChannelKind::Channel)
}

pub(crate) fn spublish(control: &mut Control<'_>) -> Result<Flow, Halt> {
    send(control, ChannelKind::Shard)
}

fn list(control: &mut Control<'_>, kind: ChannelKind) -> Result<Flow, Halt> {
    if control.args.len() > 3 {
        return Err(unknown(control));
    }
    let pattern = control.args.get(2).map(|text| Pattern::new(text, false, CHANNEL_SIZE_MAX_BYTES));
    let mut work = pattern.as_ref().map_or(0, Pattern::work);
    work += control.host.channels.count_names(kind) as u64 * NAME_WORK;
    let names: Vec<&[u8]> = control
        .host
        .channels
        .names(kind)
        .into_iter()
        .filter(|name| pattern.as_ref().is_none_or(|pattern| pattern.matches(name, &mut work)))
        .collect();
    control.host.work.add(work);
    control.reply.array(names.len());
    for name in names {
        control.reply.bulk(name);
    }
    Ok(Flow::Done)
}

fn unknown(control: &Control<'_>) -> Halt {
    let name = String::from_utf8_lossy(control.args.at(1));
    let text = format!("ERR unknown subcommand or wrong number of arguments for '{name}'. Try PUBSUB HELP.");
    Halt::Error(text.into())
}

pub(crate) fn channels(control: &mut Control<'_>) -> Result<Flow, Halt> {
    list(control, ChannelKind::Channel)
}

pub(crate) fn shardchannels(control: &mut Control<'_>) -> Result<Flow, Halt> {
    list(control, ChannelKind::Shard)
}

fn count(control: &mut Control<'_>, kind: ChannelKind) -> Result<Flow, Halt> {
    let args = control.args;
    control.reply.array((args.len() - 2) * 2);
    for name in args.from(2) {
        control.reply.bulk(name);
        control.reply.integer(control.host.channels.count(kind, name) as i64);
    }
    Ok(Flow::Done)
}

pub(crate) fn numsub(control: &mut Control<'_>) -> Result<Flow, Halt> {
    count(control, ChannelKind::Channel)
}

pub(crate) fn shardnumsub(control: &mut Control<'_>) -> Result<Flow, Halt> {
    count(control, ChannelKind::Shard)
}

pub(crate) fn numpat(control: &mut Control<'_>) -> Result<Flow, Halt> {
    let count = control.host.channels.count_names(ChannelKind::Pattern);
    control.reply.integer(count as i64);
    Ok(Flow::Done)
}
