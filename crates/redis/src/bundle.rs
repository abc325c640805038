//! Requests of one shard's clients that another shard carries out, and their answers: many in one message.
//!
//! Invariants:
//! 1. Requests lie one behind the other in one buffer, and answers in one: each cache line of them goes from one
//!    processor to the other once. Bundles are used again by who receives them, so what is forwarded allocates nothing
//!    once they have grown.
//! 2. A bundle that is sent holds at most [`FORWARDS_MAX`] requests, and no more than [`BYTES_MAX`] bytes before its last
//!    request or answer: what is long is told in several.

use crate::args::Args;
use crate::session::ConnectionId;
use crate::table::{self, Command, quick_index};
use crate::tracking::Tracker;
use std::collections::VecDeque;
use tierstone_base::{Position, Seq, ShardId};
use tierstone_store::TaskId;
use tierstone_wire::resp::Version;

/// Requests of one bundle.
pub(crate) const FORWARDS_MAX: usize = 512;
/// Bytes of arguments, or of answers, from which on another bundle is begun.
pub(crate) const BYTES_MAX: usize = 128 << 10;
/// Requests with more arguments, or more bytes of them, go by a message of their own.
pub(crate) const ARGUMENTS_MAX: usize = 1024;
pub(crate) const ARGUMENTS_BYTES_MAX: usize = 64 << 10;
/// Bytes of empty bundles that an executor keeps.
const KEPT_BYTES: usize = 1 << 20;

/// A request for another shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forward {
    /// The asker's name for it.
    pub ticket: TaskId,
    /// Whose it is, where the asker keeps no task for it: plain `GET`s and `SET`s.
    pub connection: Option<ConnectionId>,
    pub db: u32,
    pub version: Version,
    /// The position of the first key.
    pub position: Position,
    pub command: &'static Command,
    /// For whom, where the client keeps copies.
    pub tracker: Option<Tracker>,
}

/// Requests for another shard, or answers from it.
#[derive(Clone, Debug, Default)]
pub struct Bundle {
    /// Each request's head, the ends of its arguments, and these.
    requests: Vec<u8>,
    /// The commands of those that are no plain `GET` or `SET`, in their order.
    others: Vec<(&'static Command, Option<Tracker>)>,
    forwards: usize,
    /// Each answer's head, and its bytes.
    answers: Vec<u8>,
}

/// What a request's head says of its command.
mod kind {
    pub const GET: u8 = 0;
    pub const SET: u8 = 1;
    pub const OTHER: u8 = 2;
}

/// Bytes of a request's head: ticket, connection or 0, position, database, number of arguments, protocol, kind.
const REQUEST_HEAD: usize = 8 + 8 + 8 + 4 + 4 + 1 + 1;
/// Bytes of an answer's head: ticket, connection or 0, length.
const ANSWER_HEAD: usize = 8 + 8 + 4;
/// Bytes of the end of an argument.
const END: usize = 4;

/// The arguments of a request in a bundle.
#[derive(Clone, Copy, Debug)]
pub struct Bundled<'a> {
    ends: &'a [u8],
    bytes: &'a [u8],
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut number = [0; N];
    number.copy_from_slice(&bytes[at..at + N]);
    number
}

fn number_32(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(number(bytes, at)) as usize
}

fn number_64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(number(bytes, at))
}

/// Connections have names from 1 on.
fn connection_of(name: u64) -> Option<ConnectionId> {
    (name != 0).then_some(name)
}

impl<'a> Bundled<'a> {
    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.ends.len() / END
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Argument `index`, if there is one.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        if index >= self.len() {
            return None;
        }
        let start = if index == 0 { 0 } else { number_32(self.ends, (index - 1) * END) };
        self.bytes.get(start..number_32(self.ends, index * END))
    }
}

/// A place among the requests of a bundle.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    at: usize,
    other: usize,
}

impl Bundle {
    /// Adds a request, whose arguments are no more than [`ARGUMENTS_MAX`] and [`ARGUMENTS_BYTES_MAX`] bytes.
    #[inline]
    pub(crate) fn forward(&mut self, forward: &Forward, args: Args<'_>) {
        let kind = match forward.connection {
            Some(_) if args.len() == 2 => kind::GET,
            Some(_) => kind::SET,
            None => {
                self.others.push((forward.command, forward.tracker));
                kind::OTHER
            }
        };
        let protocol = if forward.version == Version::Resp3 { 3 } else { 2 };
        let mut head = [0; REQUEST_HEAD];
        head[0..8].copy_from_slice(&forward.ticket.to_le_bytes());
        head[8..16].copy_from_slice(&forward.connection.unwrap_or(0).to_le_bytes());
        head[16..24].copy_from_slice(&forward.position.0.to_le_bytes());
        head[24..28].copy_from_slice(&forward.db.to_le_bytes());
        head[28..32].copy_from_slice(&(args.len() as u32).to_le_bytes());
        head[32..].copy_from_slice(&[protocol, kind]);
        self.requests.extend_from_slice(&head);
        let mut end = 0;
        for arg in args.from(0) {
            end += arg.len() as u32;
            self.requests.extend_from_slice(&end.to_le_bytes());
        }
        args.from(0).for_each(|arg| self.requests.extend_from_slice(arg));
        self.forwards += 1;
    }

    /// Whether the next request belongs into another bundle.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.forwards >= FORWARDS_MAX || self.requests.len() >= BYTES_MAX
    }

    /// How many requests there are.
    pub(crate) fn forwards(&self) -> usize {
        self.forwards
    }

    /// The request at `cursor`, which goes to the next; `None`: there are no more.
    #[inline]
    pub(crate) fn request(&self, cursor: &mut Cursor) -> Option<(Forward, Bundled<'_>)> {
        let (head, rest) = self.requests.get(cursor.at..)?.split_at_checked(REQUEST_HEAD)?;
        let (ends, rest) = rest.split_at_checked(number_32(head, 28) * END)?;
        let len = if ends.is_empty() { 0 } else { number_32(ends, ends.len() - END) };
        let bytes = rest.get(..len)?;
        let (command, tracker) = match head[33] {
            kind::GET => (table::command(quick_index(true)), None),
            kind::SET => (table::command(quick_index(false)), None),
            _ => {
                cursor.other += 1;
                *self.others.get(cursor.other - 1)?
            }
        };
        cursor.at += REQUEST_HEAD + ends.len() + len;
        let forward = Forward {
            ticket: number_64(head, 0),
            connection: connection_of(number_64(head, 8)),
            position: Position(number_64(head, 16)),
            db: number_32(head, 24) as u32,
            version: if head[32] == 3 { Version::Resp3 } else { Version::Resp2 },
            command,
            tracker,
        };
        Some((forward, Bundled { ends, bytes }))
    }

    /// Begins an answer, whose bytes are appended to [`Bundle::buffer`]; gives where it begins.
    #[inline]
    pub(crate) fn begin_answer(&mut self) -> usize {
        let start = self.answers.len();
        self.answers.extend_from_slice(&[0; ANSWER_HEAD]);
        start
    }

    /// Where answers are written: they are only appended.
    #[inline]
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.answers
    }

    /// What was begun at `start` is the answer to `forward`.
    #[inline]
    pub(crate) fn end_answer(&mut self, start: usize, forward: &Forward) {
        let len = (self.answers.len() - start - ANSWER_HEAD) as u32;
        let head = &mut self.answers[start..start + ANSWER_HEAD];
        head[0..8].copy_from_slice(&forward.ticket.to_le_bytes());
        head[8..16].copy_from_slice(&forward.connection.unwrap_or(0).to_le_bytes());
        head[16..].copy_from_slice(&len.to_le_bytes());
    }

    /// What was begun at `start` is no answer.
    pub(crate) fn drop_answer(&mut self, start: usize) {
        self.answers.truncate(start);
    }

    /// The answer at `start`, the last one, belongs into `other`.
    pub(crate) fn move_answer(&mut self, start: usize, other: &mut Bundle) {
        other.answers.extend_from_slice(&self.answers[start..]);
        self.answers.truncate(start);
    }

    /// Whether the next answer belongs into another bundle.
    #[inline]
    pub(crate) fn has_long_answers(&self) -> bool {
        self.answers.len() >= BYTES_MAX
    }

    /// The answers: the request's name, whose it is if the asker keeps no task for it, and the bytes.
    #[inline]
    pub(crate) fn answers(&self) -> impl Iterator<Item = (TaskId, Option<ConnectionId>, &[u8])> {
        let mut rest = self.answers.as_slice();
        std::iter::from_fn(move || {
            let (head, behind) = rest.split_at_checked(ANSWER_HEAD)?;
            let (bytes, behind) = behind.split_at_checked(number_32(head, 16))?;
            rest = behind;
            Some((number_64(head, 0), connection_of(number_64(head, 8)), bytes))
        })
    }

    /// The replies for connections, in order: connection, the request's name and the bytes.
    pub fn replies(&self) -> impl Iterator<Item = (ConnectionId, TaskId, &[u8])> {
        self.answers().filter_map(|(ticket, connection, bytes)| Some((connection?, ticket, bytes)))
    }

    /// Forgets the requests, which are carried out.
    fn forget_requests(&mut self) {
        self.requests.clear();
        self.others.clear();
        self.forwards = 0;
    }

    /// What its buffers take.
    fn memory_bytes(&self) -> usize {
        let others = self.others.capacity() * size_of::<(&'static Command, Option<Tracker>)>();
        size_of::<Bundle>() + self.requests.capacity() + self.answers.capacity() + others
    }

    fn clear(&mut self) {
        self.forget_requests();
        self.answers.clear();
    }
}

/// The bundles of one executor.
#[derive(Debug, Default)]
pub(crate) struct Bundles {
    /// What is being gathered for each shard.
    open: Vec<Option<Bundle>>,
    /// What is to be sent: requests and answers, with their receivers.
    ready: Vec<(ShardId, Bundle)>,
    /// Answers that wait until a sequence is durable, in the order in which they were made.
    held: VecDeque<(Seq, ShardId, Bundle)>,
    spare: Spare,
}

/// Empty bundles.
#[derive(Debug, Default)]
struct Spare {
    bundles: Vec<Bundle>,
    /// What their buffers take.
    bytes: usize,
}

impl Spare {
    fn take(&mut self) -> Bundle {
        let Some(bundle) = self.bundles.pop() else { return Bundle::default() };
        self.bytes -= bundle.memory_bytes();
        bundle
    }

    fn keep(&mut self, mut bundle: Bundle) {
        let bytes = bundle.memory_bytes();
        if self.bytes + bytes <= KEPT_BYTES {
            bundle.clear();
            self.bundles.push(bundle);
            self.bytes += bytes;
        }
    }
}

impl Bundles {
    /// Those of a shard of so many.
    pub fn new(shards: u16) -> Bundles {
        Bundles { open: (0..shards).map(|_| None).collect(), ..Bundles::default() }
    }

    /// Adds a request for `to`.
    #[inline]
    pub fn forward(&mut self, to: ShardId, forward: Forward, args: Args<'_>) {
        let Some(place) = self.open.get_mut(usize::from(to)) else { return };
        let bundle = place.get_or_insert_with(|| self.spare.take());
        bundle.forward(&forward, args);
        if bundle.is_full() {
            self.ready.extend(place.take().map(|bundle| (to, bundle)));
        }
    }

    /// An empty one.
    pub fn spare(&mut self) -> Bundle {
        self.spare.take()
    }

    /// What is kept for another time takes so many bytes.
    pub fn kept_bytes(&self) -> usize {
        self.spare.bytes
    }

    /// Sends answers to `to`, when `gate` is durable if they wait for that.
    pub fn send_answers(&mut self, to: ShardId, mut bundle: Bundle, gate: Option<Seq>) {
        bundle.forget_requests();
        match gate {
            _ if bundle.answers.is_empty() => self.recycle(bundle),
            Some(gate) => self.held.push_back((gate, to, bundle)),
            None => self.ready.push((to, bundle)),
        }
    }

    /// Everything up to `durable` is durable: answers that wait for no more go.
    pub fn release(&mut self, durable: Seq) {
        while let Some((gate, ..)) = self.held.front()
            && *gate <= durable
        {
            let Some((_, to, bundle)) = self.held.pop_front() else { break };
            self.ready.push((to, bundle));
        }
    }

    /// Whether something is to be sent.
    pub fn has_any_to_send(&self) -> bool {
        !self.ready.is_empty() || self.open.iter().any(Option::is_some)
    }

    /// Takes everything out that is to be sent.
    pub fn take(&mut self) -> impl Iterator<Item = (ShardId, Bundle)> {
        let open = self.open.iter_mut().enumerate();
        let open = open.filter_map(|(to, place)| Some((ShardId::try_from(to).ok()?, place.take()?)));
        self.ready.drain(..).chain(open)
    }

    /// Keeps a bundle for another time.
    pub fn recycle(&mut self, bundle: Bundle) {
        self.spare.keep(bundle);
    }
}

#[cfg(test)]
#[path = "bundle_test.rs"]
mod bundle_test;
