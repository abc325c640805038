//! Requests of one shard's clients that another shard carries out, and their answers: many in one message.
//!
//! Invariants:
//! 1. Arguments lie in one buffer, answers in another; both go there and back, and are used again. So what is
//!    forwarded allocates nothing once the buffers have grown, and nothing is freed by another thread than made it.
//! 2. A bundle that is sent holds at most [`FORWARDS_MAX`] requests, and no more than [`BYTES_MAX`] bytes before its last
//!    request or answer: what is long is told in several.

use crate::args::Args;
use crate::session::ConnectionId;
use crate::table::Command;
use crate::tracking::Tracker;
use std::collections::VecDeque;
use tierstone_base::{Position, Seq, ShardId};
use tierstone_store::TaskId;
use tierstone_wire::resp::Version;

/// Requests of one bundle.
pub(crate) const FORWARDS_MAX: usize = 512;
/// Bytes of arguments, or of answers, from which on another bundle is begun.
pub(crate) const BYTES_MAX: usize = 128 << 10;
/// Requests with more bytes of arguments go by a message of their own.
pub(crate) const ARGUMENTS_BYTES_MAX: usize = 64 << 10;
/// Buffers that have grown beyond this are not kept.
const KEPT_BYTES: usize = 512 << 10;
/// Bundles kept for each shard.
const KEPT_EACH: usize = 4;

/// A request for another shard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forward {
    /// The asker's name for it.
    pub ticket: TaskId,
    /// Whose it is, where the asker keeps no task for it: plain `GET`s and `SET`s.
    pub connection: Option<ConnectionId>,
    pub command: &'static Command,
    pub db: u32,
    pub version: Version,
    /// For whom, where the client keeps copies.
    pub tracker: Option<Tracker>,
    /// The position of the first key.
    pub position: Position,
}

/// An answer to a [`Forward`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub ticket: TaskId,
    pub connection: Option<ConnectionId>,
    /// Where it ends among the bytes; it begins where the one before it ends.
    end: usize,
}

/// Requests for another shard, or answers from it.
#[derive(Clone, Debug, Default)]
pub struct Bundle {
    forwards: Vec<Forward>,
    /// For each request, how many arguments there are up to its last.
    counts: Vec<usize>,
    /// Where arguments end.
    ends: Vec<usize>,
    arguments: Vec<u8>,
    answers: Vec<Answer>,
    bytes: Vec<u8>,
}

/// The arguments of a request in a bundle.
#[derive(Clone, Copy, Debug)]
pub struct Bundled<'a> {
    bytes: &'a [u8],
    start: usize,
    ends: &'a [usize],
}

impl<'a> Bundled<'a> {
    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Argument `index`, if there is one.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        let end = *self.ends.get(index)?;
        let start = if index == 0 { self.start } else { self.ends[index - 1] };
        self.bytes.get(start..end)
    }
}

impl Bundle {
    /// Adds a request.
    #[inline]
    pub(crate) fn forward(&mut self, forward: Forward, args: Args<'_>) {
        for index in 0..args.len() {
            self.arguments.extend_from_slice(args.at(index));
            self.ends.push(self.arguments.len());
        }
        self.counts.push(self.ends.len());
        self.forwards.push(forward);
    }

    /// Whether the next request belongs into another bundle.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.forwards.len() >= FORWARDS_MAX || self.arguments.len() >= BYTES_MAX
    }

    /// How many requests there are.
    pub(crate) fn forwards(&self) -> usize {
        self.forwards.len()
    }

    /// Request `index` and its arguments.
    #[inline]
    pub(crate) fn request(&self, index: usize) -> (Forward, Bundled<'_>) {
        let first = if index == 0 { 0 } else { self.counts[index - 1] };
        let start = if first == 0 { 0 } else { self.ends[first - 1] };
        let ends = &self.ends[first..self.counts[index]];
        (self.forwards[index], Bundled { bytes: &self.arguments, start, ends })
    }

    /// Where answers are written: they are only appended, and ended by [`Bundle::end_answer`].
    #[inline]
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// What was appended is the answer to `forward`.
    #[inline]
    pub(crate) fn end_answer(&mut self, forward: &Forward) {
        let Forward { ticket, connection, .. } = *forward;
        self.answers.push(Answer { ticket, connection, end: self.bytes.len() });
    }

    /// What was appended from `start` on is the answer to `forward`, and belongs into `other`.
    pub(crate) fn move_answer(&mut self, start: usize, forward: &Forward, other: &mut Bundle) {
        other.bytes.extend_from_slice(&self.bytes[start..]);
        self.bytes.truncate(start);
        other.end_answer(forward);
    }

    /// Whether the next answer belongs into another bundle.
    #[inline]
    pub(crate) fn has_long_answers(&self) -> bool {
        self.bytes.len() >= BYTES_MAX
    }

    /// The answers and their bytes.
    #[inline]
    pub(crate) fn answers(&self) -> impl Iterator<Item = (Answer, &[u8])> {
        let mut start = 0;
        self.answers.iter().map(move |answer| {
            let bytes = &self.bytes[start..answer.end];
            start = answer.end;
            (*answer, bytes)
        })
    }

    /// The replies for connections, in order: connection, the request's name and the bytes.
    pub fn replies(&self) -> impl Iterator<Item = (ConnectionId, TaskId, &[u8])> {
        self.answers().filter_map(|(answer, bytes)| Some((answer.connection?, answer.ticket, bytes)))
    }

    /// Whether nobody is answered.
    pub(crate) fn has_no_answer(&self) -> bool {
        self.answers.is_empty()
    }

    /// Forgets the requests, which are carried out.
    fn forget_requests(&mut self) {
        self.forwards.clear();
        self.counts.clear();
        self.ends.clear();
        self.arguments.clear();
    }

    fn clear(&mut self) {
        self.forget_requests();
        self.answers.clear();
        self.bytes.clear();
    }
}

/// The bundles of one executor.
#[derive(Debug, Default)]
pub(crate) struct Bundles {
    /// What is being gathered for each shard.
    open: Vec<Option<Box<Bundle>>>,
    /// What is to be sent: requests and answers, with their receivers.
    ready: Vec<(ShardId, Box<Bundle>)>,
    /// Answers that wait until a sequence is durable, in the order in which they were made.
    held: VecDeque<(Seq, ShardId, Box<Bundle>)>,
    /// Empty ones.
    spare: Vec<Box<Bundle>>,
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
        let bundle = place.get_or_insert_with(|| self.spare.pop().unwrap_or_default());
        bundle.forward(forward, args);
        if bundle.is_full() {
            self.ready.extend(place.take().map(|bundle| (to, bundle)));
        }
    }

    /// An empty one.
    pub fn spare(&mut self) -> Box<Bundle> {
        self.spare.pop().unwrap_or_default()
    }

    /// Sends answers to `to`, when `gate` is durable if they wait for that.
    pub fn send_answers(&mut self, to: ShardId, mut bundle: Box<Bundle>, gate: Option<Seq>) {
        bundle.forget_requests();
        match gate {
            _ if bundle.has_no_answer() => self.recycle(bundle),
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
    pub fn take(&mut self) -> impl Iterator<Item = (ShardId, Box<Bundle>)> {
        let open = self.open.iter_mut().enumerate();
        let open = open.filter_map(|(to, place)| Some((ShardId::try_from(to).ok()?, place.take()?)));
        self.ready.drain(..).chain(open)
    }

    /// Keeps a bundle for another time.
    pub fn recycle(&mut self, mut bundle: Box<Bundle>) {
        bundle.clear();
        let kept_bytes = bundle.arguments.capacity().max(bundle.bytes.capacity());
        if self.spare.len() < KEPT_EACH * self.open.len() && kept_bytes <= KEPT_BYTES {
            self.spare.push(bundle);
        }
    }
}
