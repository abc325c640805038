//! Large arguments of a connection's requests, taken out of its input piece by piece.
//!
//! Invariants:
//! 1. The body of an uploaded argument never lies in the connection's input buffer as a whole: what
//!    the executor takes is consumed at once, what it does not take holds the connection up.
//! 2. What has come of the other arguments is in the shard's account, and bounded.
//! 3. The last two bytes of a request that ends with an uploaded argument are consumed when it has
//!    been carried out: a request that is put off is offered again with them.

use super::service::{RedisConnection, RedisService};
use crate::gate::ReplyQueue;
use crate::service::{ConnectionId, Want};
use tierstone_base::{Error, Now};
use tierstone_engine::Engine;
use tierstone_redis::coming::Held;
use tierstone_redis::{Args, Begun, OwnedArgs, Ticket, UPLOAD_ABOVE_BYTES};
use tierstone_wire::resp::{ProtocolError, ReplyWriter, Version};

/// The longest argument that is received whole, because its command takes no uploads, in bytes.
const WHOLE_BYTES_MAX: usize = 64 << 20;

/// A request of which at least one argument is uploaded.
#[derive(Debug, Default)]
pub struct Incoming {
    /// The arguments that have come; the uploaded ones without their bytes.
    pub(super) args: OwnedArgs,
    /// What these take.
    held: Held,
    /// Arguments behind the one that is being uploaded.
    missing: usize,
    /// The argument that is being uploaded.
    upload: Option<Current>,
    /// What went wrong: answered when all of the request has come, and nothing of that is kept.
    pub(super) failure: Option<Error>,
}

impl Incoming {
    fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
        (self.args, self.held) = (OwnedArgs::default(), Held::default());
    }
}

#[derive(Debug)]
struct Current {
    /// `None`: its request has failed, and nobody takes it.
    ticket: Option<Ticket>,
    /// Bytes of its body that are still to come.
    left: u64,
    /// Whether it is among the arguments already, and its request was put off.
    is_ended: bool,
}

impl RedisConnection {
    /// Whether the next bytes of its input belong to an uploaded argument.
    pub(super) fn is_uploading(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| incoming.upload.is_some())
    }

    /// Bytes of arguments that were taken out of its input, and not uploaded.
    pub(super) fn incoming_bytes(&self) -> usize {
        self.incoming.as_ref().map_or(0, |incoming| incoming.held.bytes())
    }

    /// What was parsed and not carried out will be parsed again, the rest of a request with an uploaded argument
    /// as such: it was put off.
    pub(super) fn parse_again(&mut self) {
        self.parser.begin_anew();
        if let Some(incoming) = &self.incoming
            && incoming.missing > 0
        {
            self.parser.resume_with(incoming.missing, &mut self.arguments);
        }
    }
}

impl<E: Engine> RedisService<E> {
    /// The longest argument that is received whole.
    fn whole_bytes_max(&self) -> usize {
        if self.buffer_bytes_max == 0 { WHOLE_BYTES_MAX } else { WHOLE_BYTES_MAX.min(self.buffer_bytes_max) }
    }

    /// The request at the start of `input` is not complete: begins to upload its last argument if that
    /// is large. Gives how much was consumed, and what the driver should do instead of going on.
    pub(super) fn begin_upload(
        &mut self,
        now: Now,
        connection: &mut RedisConnection,
        input: &[u8],
        output: &mut ReplyQueue,
    ) -> Option<(usize, Option<Want>)> {
        let pending = connection.parser.pending_bulk()?;
        if pending.declared_len <= UPLOAD_ABOVE_BYTES {
            return None;
        }
        let len = pending.declared_len as u64;
        let ticket = match self.begin_argument(now, connection, input, len) {
            Ok(ticket) => ticket,
            Err(Begun::Wait) => return Some((0, Some(Want::Pause))),
            Err(Begun::Whole) if pending.declared_len <= self.whole_bytes_max() => return None,
            Err(_) => {
                let error = ProtocolError::InvalidBulkLength;
                output.push_with(0, |bytes| ReplyWriter::new(bytes, Version::Resp2).protocol_error(&error));
                return Some((0, Some(Want::Close)));
            }
        };
        let missing = connection.parser.detach();
        let incoming = connection.incoming.get_or_insert_default();
        incoming.missing = missing;
        incoming.upload = Some(Current { ticket, left: len, is_ended: false });
        Some((pending.start, None))
    }

    /// Takes the arguments before the next one, which has `len` bytes, out of the input, and begins to upload that, unless the
    /// request has failed: then nobody takes it.
    ///
    /// # Errors
    /// What is to be done instead; nothing has happened.
    fn begin_argument(
        &mut self,
        now: Now,
        connection: &mut RedisConnection,
        input: &[u8],
        len: u64,
    ) -> Result<Option<Ticket>, Begun> {
        let is_first = connection.incoming.is_none();
        let bytes_max = self.whole_bytes_max();
        let incoming = connection.incoming.get_or_insert_default();
        if incoming.failure.is_some() {
            return Ok(None);
        }
        let before = (incoming.args.count(), incoming.held.bytes());
        incoming.args.extend(connection.arguments.request(input).iter());
        let sizes = (incoming.args.size_bytes(), bytes_max);
        let begun = match self.executor.hold_arguments(now, connection.name, &mut incoming.held, sizes) {
            Ok(true) => self.executor.begin_upload(now, connection.name, &incoming.args, len),
            Ok(false) => Begun::Wait,
            Err(error) => {
                incoming.fail(error);
                return Ok(None);
            }
        };
        if let Begun::Upload(ticket) = begun {
            return Ok(Some(ticket));
        }
        incoming.args.truncate(before.0);
        incoming.held.shrink_to(before.1);
        if is_first {
            connection.incoming = None;
        }
        Err(begun)
    }

    /// Takes bytes of an uploaded argument, and ends it; gives how many, and what the driver should do
    /// instead of going on.
    pub(super) fn take_upload(
        &mut self,
        now: Now,
        id: ConnectionId,
        connection: &mut RedisConnection,
        input: &[u8],
        output: &mut ReplyQueue,
    ) -> (usize, Option<Want>) {
        let Some(incoming) = &mut connection.incoming else { return (0, None) };
        let Some(current) = &mut incoming.upload else { return (0, None) };
        if current.left > 0 {
            let come = &input[..input.len().min(usize::try_from(current.left).unwrap_or(usize::MAX))];
            let feed = |ticket| self.executor.feed_upload(now, ticket, come);
            let taken = current.ticket.map_or(come.len(), feed);
            current.left -= taken as u64;
            return (taken, (taken < come.len()).then_some(Want::Pause));
        }
        let Some(end) = input.get(..2) else { return (0, Some(Want::More { missing: 2 - input.len() })) };
        if end != b"\r\n" {
            let error = ProtocolError::InvalidBulkTerminator;
            output.push_with(0, |bytes| ReplyWriter::new(bytes, Version::Resp2).protocol_error(&error));
            return (0, Some(Want::Close));
        }
        if !current.is_ended {
            match current.ticket.map(|ticket| self.executor.end_upload(now, ticket)) {
                None => {}
                Some(None) => return (0, Some(Want::Pause)),
                Some(Some(Ok(staged))) => incoming.args.push_staged(staged),
                Some(Some(Err(error))) => incoming.failure = Some(error),
            }
            current.is_ended = true;
        }
        connection.arguments.clear();
        if incoming.missing > 0 {
            incoming.upload = None;
            connection.parser.resume_with(incoming.missing, &mut connection.arguments);
            return (2, None);
        }
        match self.request(now, id, connection, Args::Slices(&[]), output) {
            None => (2, None),
            Some(want) => (0, Some(want)),
        }
    }
}
