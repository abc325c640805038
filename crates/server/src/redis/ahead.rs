//! Requests that have come together, in a pipeline or from many clients: all are found in the input before the first
//! of them is carried out, so that the memory that they will touch is fetched side by side.
//!
//! Invariants:
//! 1. What is gathered is complete, and nothing of it has happened: whoever stops half way has the rest parsed
//!    again ([`RedisConnection::parse_again`]).
//! 2. What is gathered of an input before it is shown ([`Service::foresee`](crate::service::Service::foresee)) serves
//!    only this input, when it is shown in the same turn to a connection that is between two requests: in a turn no bytes change
//!    where they lie.
//! 3. Nothing is gathered behind a request that may change how the next is parsed: the parser's limits follow
//!    the client's authentication.
//!
//! Who owns the data: a service has one [`Ahead`] of what it is shown and one of what it will be; the bytes stay in their
//! connections' input.

use super::service::RedisConnection;
use std::ops::Range;
use tierstone_base::Position;
use tierstone_engine::PREFETCHED_KEYS;
use tierstone_redis::Args;
use tierstone_wire::resp::{Arguments, Progress};

/// Requests in their order.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    requests: Vec<Parsed>,
    count: usize,
    /// The inputs that they were found in, where those are still to be shown.
    coming: Vec<Coming>,
    /// Those before it have been shown, or passed over.
    shown: usize,
}

/// A request in the input.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    /// Its arguments, which lie behind `start`.
    arguments: Arguments,
    /// Where it begins.
    start: usize,
    /// Where it ends.
    pub end: usize,
    /// The position of the first argument as a key, once it is known.
    position: Option<Position>,
}

/// An input that is to be shown.
#[derive(Debug)]
struct Coming {
    /// Whose it is.
    name: u64,
    /// Where it lies, which is only compared, and how many bytes it has.
    place: (usize, usize),
    /// Its requests.
    requests: Range<usize>,
}

fn place_of(input: &[u8]) -> (usize, usize) {
    (input.as_ptr().addr(), input.len())
}

impl Parsed {
    /// Its arguments, in the `input` that it was found in.
    #[inline]
    pub fn args<'a>(&'a self, input: &'a [u8]) -> Args<'a> {
        let request = self.arguments.request(&input[self.start..]);
        match self.position {
            Some(position) => Args::Located(request, position),
            None => Args::Request(request),
        }
    }
}

impl Ahead {
    /// Gathers the request at the start of `input`, which the connection's parser has just found there and which
    /// is `len` bytes long, and what has come behind it.
    pub fn gather(&mut self, connection: &mut RedisConnection, input: &[u8], len: usize) {
        let first = self.place(0);
        std::mem::swap(&mut first.arguments, &mut connection.arguments);
        (first.start, first.end, first.position) = (0, len, None);
        self.count = 1;
        if connection.is_authenticated() && self.gather_from(len, connection, input) {
            // What is no whole request is met again when those before it are done; the parser goes on with these.
            let parsed = self.place(self.count);
            std::mem::swap(&mut parsed.arguments, &mut connection.arguments);
        }
    }

    /// Gathers what `input`, which is to be shown to the connection later in this turn, begins with; gives the requests.
    pub fn foresee(&mut self, connection: &mut RedisConnection, input: &[u8]) -> Range<usize> {
        if self.shown == self.coming.len() {
            self.end_turn();
        }
        let first = self.count;
        if !connection.is_between_requests() || !connection.is_authenticated() {
            return first..first;
        }
        if self.gather_from(0, connection, input) {
            connection.parser.begin_anew();
        }
        let requests = first..self.count;
        if !requests.is_empty() {
            let (name, place) = (connection.name, place_of(input));
            self.coming.push(Coming { name, place, requests: requests.clone() });
        }
        requests
    }

    /// Whether there is no place for more.
    pub fn is_full(&self) -> bool {
        self.count >= PREFETCHED_KEYS
    }

    /// The requests that `input`, which is shown now, begins with, if they were gathered before. They are given once.
    pub fn take(&mut self, connection: &RedisConnection, input: &[u8]) -> Option<Range<usize>> {
        let wanted = (connection.name, place_of(input));
        let mut coming = self.coming[self.shown..].iter();
        let passed = coming.position(|coming| (coming.name, coming.place) == wanted)?;
        self.shown += passed + 1;
        let requests = self.coming[self.shown - 1].requests.clone();
        connection.is_between_requests().then_some(requests)
    }

    /// What was gathered of inputs that were not shown is forgotten.
    pub fn end_turn(&mut self) {
        self.coming.clear();
        (self.count, self.shown) = (0, 0);
    }

    /// Gathers the requests from `end` on, behind those that are there; whether the parser has met what is none, or not a
    /// whole one.
    fn gather_from(&mut self, mut end: usize, connection: &mut RedisConnection, input: &[u8]) -> bool {
        while self.count < PREFETCHED_KEYS && end < input.len() {
            let parsed = self.place(self.count);
            let Ok(Progress::Complete { consumed }) =
                connection.parser.parse(&input[end..], &mut parsed.arguments)
            else {
                return true;
            };
            (parsed.start, parsed.end, parsed.position) = (end, end + consumed, None);
            end = parsed.end;
            self.count += 1;
        }
        false
    }

    /// Where the request of that number goes.
    fn place(&mut self, number: usize) -> &mut Parsed {
        if number == self.requests.len() {
            self.requests.push(Parsed::default());
        }
        &mut self.requests[number]
    }

    /// What was gathered.
    pub fn requests(&self) -> &[Parsed] {
        &self.requests[..self.count]
    }

    /// The first arguments of those of these requests that have one, and where their positions go.
    pub fn keys<'a>(
        &'a mut self,
        requests: Range<usize>,
        input: &'a [u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a mut Option<Position>)> {
        self.requests[requests].iter_mut().filter_map(|parsed| {
            let Parsed { arguments, start, position, .. } = parsed;
            let arguments: &'a Arguments = arguments;
            Some((arguments.get(1, &input[*start..])?, position))
        })
    }
}
