//! Arguments of a request that have come while a later one of them is uploaded.
//!
//! Invariant: they are held outside their connection's input, where nobody else counts them: what they take is in the shard's
//! account.

pub use crate::account::Held;
use crate::executor::Executor;
use crate::session::ConnectionId;
use tierstone_base::{Error, ErrorKind, Now, Result};
use tierstone_engine::Engine;

impl<E: Engine> Executor<E> {
    /// Counts in `held` the `bytes` that the arguments of a request of `connection` take by now, `bytes_max` at most. False: there
    /// is no room now, again after [`crate::control::Output::Resume`].
    ///
    /// # Errors
    /// `NoMemory`: they take more than a request, or than all requests of the shard may hold, or waited for room in vain.
    pub fn hold_arguments(
        &mut self,
        now: Now,
        connection: ConnectionId,
        held: &mut Held,
        (bytes, bytes_max): (usize, usize),
    ) -> Result<bool> {
        let account = &self.host.account;
        let most = usize::try_from(account.bytes_max()).unwrap_or(usize::MAX).min(bytes_max);
        let added = bytes.saturating_sub(held.bytes());
        if bytes <= most && account.has_room(held.bytes(), added) {
            held.add(account, added);
            return Ok(true);
        }
        if bytes <= most && !self.waits_too_long(now, connection) {
            self.wait_for_room(connection, true);
            return Ok(false);
        }
        let message = format!("the arguments of the request take too much memory: more than {most} bytes");
        Err(Error::new(ErrorKind::NoMemory, message))
    }
}
