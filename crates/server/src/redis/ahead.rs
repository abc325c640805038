//! The requests of a pipeline that have come together: all are found in the input before the first of them is
//! carried out, so that the memory that they will touch is fetched side by side.
//!
//! Invariants:
//! 1. What is gathered is complete, and nothing of it has happened: whoever stops half way has the rest parsed
//!    again ([`RedisConnection::parse_again`]).
//! 2. Nothing is gathered behind a request that may change how the next is parsed: the parser's limits follow
//!    the client's authentication.
//!
//! Who owns the data: one [`Ahead`] a service; the bytes stay in their connection's input.

use super::service::RedisConnection;
use tierstone_base::Position;
use tierstone_engine::PREFETCHED_KEYS;
use tierstone_redis::Args;
use tierstone_wire::resp::{Arguments, Progress};

/// Requests of one connection, in their order.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    requests: Vec<Parsed>,
    count: usize,
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
        let mut end = len;
        self.count = 1;
        while connection.is_authenticated() && self.count < PREFETCHED_KEYS && end < input.len() {
            let parsed = self.place(self.count);
            let Ok(Progress::Complete { consumed }) =
                connection.parser.parse(&input[end..], &mut parsed.arguments)
            else {
                // What is no whole request is met again when those before it are done; the parser goes on with these.
                std::mem::swap(&mut parsed.arguments, &mut connection.arguments);
                break;
            };
            (parsed.start, parsed.end, parsed.position) = (end, end + consumed, None);
            end = parsed.end;
            self.count += 1;
        }
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

    /// The first arguments of all that have one, and where their positions go.
    pub fn keys<'a>(
        &'a mut self,
        input: &'a [u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a mut Option<Position>)> {
        self.requests[..self.count].iter_mut().filter_map(|parsed| {
            let Parsed { arguments, start, position, .. } = parsed;
            let arguments: &'a Arguments = arguments;
            Some((arguments.get(1, &input[*start..])?, position))
        })
    }
}
