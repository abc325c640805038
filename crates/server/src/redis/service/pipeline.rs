//! Requests that are gathered before the first of them is carried out: those of a pipeline, and those of clients that
//! were heard in one turn ([`Service::foresee`](crate::service::Service::foresee)).

use super::RedisService;
use crate::gate::ReplyQueue;
use crate::redis::ahead::Parsed;
use crate::redis::service::RedisConnection;
use crate::service::{ConnectionId, Want};
use tierstone_base::Now;
use tierstone_engine::Engine;

impl<E: Engine> RedisService<E> {
    /// Gathers what `input` begins with, which is shown later in this turn; whether there is room for more.
    pub(super) fn gather_coming(&mut self, connection: &mut RedisConnection, input: &[u8]) -> bool {
        let requests = self.coming.foresee(connection, input);
        self.executor.foresee(connection.name, self.coming.keys(requests, input));
        !self.coming.is_full()
    }

    /// Carries out the requests that `input` begins with, if they were gathered before it is shown. Gives what
    /// [`RedisService::requests`] gives.
    pub(super) fn foreseen(
        &mut self,
        now: Now,
        id: ConnectionId,
        connection: &mut RedisConnection,
        input: &[u8],
        output: &mut ReplyQueue,
    ) -> Option<(usize, Option<Want>)> {
        let requests = self.coming.take(connection, input)?;
        self.executor.prefetch();
        let coming = std::mem::take(&mut self.coming);
        let done = self.carry_out_all(now, id, connection, (&coming.requests()[requests], input), output);
        self.coming = coming;
        Some(done)
    }

    /// The request of `len` bytes at the start of `input`, and those that have come behind it. Gives how many
    /// bytes were consumed, and what the driver should do instead of going on, if anything.
    pub(super) fn requests(
        &mut self,
        now: Now,
        id: ConnectionId,
        connection: &mut RedisConnection,
        (input, len): (&[u8], usize),
        output: &mut ReplyQueue,
    ) -> (usize, Option<Want>) {
        let mut ahead = std::mem::take(&mut self.ahead);
        ahead.gather(connection, input, len);
        let count = ahead.requests().len();
        if count > 1 {
            self.executor.foresee(connection.name, ahead.keys(0..count, input));
            self.executor.prefetch();
        }
        let done = self.carry_out_all(now, id, connection, (ahead.requests(), input), output);
        self.ahead = ahead;
        done
    }

    fn carry_out_all(
        &mut self,
        now: Now,
        id: ConnectionId,
        connection: &mut RedisConnection,
        (requests, input): (&[Parsed], &[u8]),
        output: &mut ReplyQueue,
    ) -> (usize, Option<Want>) {
        let (mut consumed, mut want, mut has_stopped) = (0, None, false);
        for parsed in requests {
            if consumed > 0 && output.is_full() {
                want = Some(Want::Drain);
                break;
            }
            self.executor.note_pipelined(consumed > 0);
            want = self.request(now, id, connection, parsed.args(input), output);
            if want.is_some() {
                break;
            }
            consumed = parsed.end;
            if self.executor.argument_bytes_max() != connection.argument_bytes_max {
                // What follows was parsed by other limits.
                has_stopped = true;
                break;
            }
        }
        if requests.len() > 1 {
            self.executor.end_pipeline(now);
        }
        if want.is_some() || has_stopped {
            // What is put off comes again; what closes is done with.
            connection.parse_again();
        }
        (consumed, want)
    }
}
