//! Large arguments of a connection's requests, taken out of its input piece by piece.
//!
//! Invariants:
//! 1. The body of an uploaded argument never lies in the connection's input buffer as a whole: what
//!    the executor takes is consumed at once, what it does not take holds the connection up.
//! 2. The last two bytes of a request that ends with an uploaded argument are consumed when it has
//!    been carried out: a request that is put off is offered again with them.

use super::service::{RedisConnection, RedisService};
use crate::gate::ReplyQueue;
use crate::service::{ConnectionId, Want};
use tierstone_base::{Error, Now};
use tierstone_engine::Engine;
use tierstone_redis::{Args, Begun, OwnedArgs, Ticket, UPLOAD_ABOVE_BYTES};
use tierstone_wire::resp::{ProtocolError, ReplyWriter, Version};

/// The longest argument that is received whole, because its command takes no uploads, in bytes.
const WHOLE_BYTES_MAX: usize = 64 << 20;

/// A request of which at least one argument is uploaded.
#[derive(Debug)]
pub struct Incoming {
    /// The arguments that have come; the uploaded ones without their bytes.
    pub(super) args: OwnedArgs,
    /// Arguments behind the one that is being uploaded.
    missing: usize,
    /// The argument that is being uploaded.
    upload: Option<Current>,
    /// What went wrong: answered when all of the request has come.
    pub(super) failure: Option<Error>,
}

#[derive(Debug)]
struct Current {
    ticket: Ticket,
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
        let mut args = connection.incoming.as_ref().map(|incoming| incoming.args.clone()).unwrap_or_default();
        args.extend(connection.arguments.request(input).iter());
        let len = pending.declared_len as u64;
        match self.executor.begin_upload(now, connection.name, &args, len) {
            Begun::Upload(ticket) => {
                let missing = connection.parser.detach();
                let failure = connection.incoming.take().and_then(|incoming| incoming.failure);
                let upload = Some(Current { ticket, left: len, is_ended: false });
                connection.incoming = Some(Incoming { args, missing, upload, failure });
                Some((pending.start, None))
            }
            Begun::Wait => Some((0, Some(Want::Pause))),
            Begun::Whole if pending.declared_len <= self.whole_bytes_max() => None,
            Begun::Whole | Begun::TooLong => {
                let error = ProtocolError::InvalidBulkLength;
                output.push_with(0, |bytes| ReplyWriter::new(bytes, Version::Resp2).protocol_error(&error));
                Some((0, Some(Want::Close)))
            }
        }
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
            let taken = self.executor.feed_upload(now, current.ticket, come);
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
            match self.executor.end_upload(now, current.ticket) {
                None => return (0, Some(Want::Pause)),
                Some(Ok(staged)) => incoming.args.push_staged(staged),
                Some(Err(error)) => {
                    incoming.failure.get_or_insert(error);
                    incoming.args.extend([&b""[..]]);
                }
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
