//! Stages of bulk loads on their way into one shard.
//!
//! Invariant: a stage is answered when all its records are applied, or when one of them is refused; then those
//! of this shard and of the same load are refused too, and other loads go on.

use super::{ROOM_PATIENCE_US, Service};
use crate::bulk::Stage;
use tierstone_base::{Error, ErrorKind};

impl Service {
    /// Applies what there is room for of the stages that have come; true when something was.
    pub fn advance_loads(&mut self) -> bool {
        if self.loads.is_empty() || self.is_holding() || self.stands_still() {
            return false;
        }
        let advanced = self.loads.advance(&mut self.engine, self.now);
        while let Some((stage, reply)) = self.loads.take_done() {
            drop(reply.send(Ok(stage)));
        }
        match advanced {
            Ok(true) => {
                (self.loads_wait_since_us, self.full_since_us) = (None, None);
                true
            }
            Ok(false) => self.loads_wait(Error::new(ErrorKind::Retry, "old records are being read")),
            Err((error, _)) if self.may_find_room(&error) => self.loads_wait(error),
            Err((error, load)) => {
                self.refuse_loads(&error, |stage| stage.load() == load);
                true
            }
        }
    }

    /// Loads wait on, or have waited for too long: true then.
    fn loads_wait(&mut self, error: Error) -> bool {
        let since_us = *self.loads_wait_since_us.get_or_insert(self.now.monotonic_us);
        let is_over = self.now.monotonic_us - since_us > ROOM_PATIENCE_US;
        if is_over {
            self.refuse_loads(&error, |_| true);
        }
        is_over
    }

    /// Answers loads with `error` whose stages `is_it` names.
    pub(super) fn refuse_loads(&mut self, error: &Error, is_it: impl Fn(&Stage) -> bool) {
        for reply in self.loads.take_out(is_it) {
            drop(reply.send(Err(error.clone())));
        }
        self.loads_wait_since_us = None;
    }
}
