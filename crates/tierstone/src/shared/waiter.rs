//! Callers that wait for their writes: whoever closes a group may have one of them write it, whose answer depends on
//! that anyway, in place of the shard's thread.
//!
//! Invariant: what a caller was given it carries out or hands on; one that waits no more is given nothing.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;
use tierstone_media::IoRequest;

/// Callers that are kept in mind before those that wait no more are forgotten.
const KEPT: usize = 64;

/// What a caller does until its answer is there.
#[derive(Debug)]
pub(super) enum Caller {
    GoesOn,
    /// It blocks its thread, and may as well use it for the shard.
    Waits,
    /// The same, until a group is written.
    WaitsForWrite(Arc<Waiter>),
}

/// One caller that waits for a write.
#[derive(Debug)]
pub(super) struct Waiter {
    thread: Thread,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Waits,
    Has(IoRequest),
    Gone,
}

impl Caller {
    /// This thread, which will wait for a write.
    pub fn writes() -> Caller {
        Caller::WaitsForWrite(Waiter::here())
    }
}

impl Waiter {
    fn here() -> Arc<Waiter> {
        Arc::new(Waiter { thread: std::thread::current(), state: Mutex::new(State::Waits) })
    }

    fn put(&self, state: State) -> State {
        std::mem::replace(&mut *self.state.lock().unwrap_or_else(PoisonError::into_inner), state)
    }

    /// Gives it a request; back comes one that it does not take. It has to be [woken](Waiter::wake) then.
    fn give(&self, request: IoRequest) -> Result<(), IoRequest> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &*state {
            State::Waits => {
                *state = State::Has(request);
                Ok(())
            }
            State::Has(_) | State::Gone => Err(request),
        }
    }

    pub fn wake(&self) {
        self.thread.unpark();
    }

    /// What it was given.
    pub fn take(&self) -> Option<IoRequest> {
        match self.put(State::Waits) {
            State::Has(request) => Some(request),
            State::Waits | State::Gone => None,
        }
    }

    /// It waits no more: what it was given and has not done.
    pub fn leave(&self) -> Option<IoRequest> {
        match self.put(State::Gone) {
            State::Has(request) => Some(request),
            State::Waits | State::Gone => None,
        }
    }

    fn is_gone(&self) -> bool {
        matches!(*self.state.lock().unwrap_or_else(PoisonError::into_inner), State::Gone)
    }
}

/// The callers of one shard that wait for writes, the last one at the end.
#[derive(Debug, Default)]
pub(super) struct Waiters(Vec<Arc<Waiter>>);

impl Waiters {
    pub fn add(&mut self, waiter: &Arc<Waiter>) {
        if self.0.len() >= KEPT && self.0.len().is_power_of_two() {
            self.0.retain(|waiter| !waiter.is_gone());
        }
        self.0.push(Arc::clone(waiter));
    }

    /// Gives a request to the last one who takes it: to be woken. Back comes one that nobody takes.
    pub fn give(&mut self, mut request: IoRequest) -> Result<Arc<Waiter>, IoRequest> {
        while let Some(waiter) = self.0.pop() {
            match waiter.give(request) {
                Ok(()) => return Ok(waiter),
                Err(back) => request = back,
            }
        }
        Err(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierstone_media::IoKind;

    fn request(token: u64) -> IoRequest {
        IoRequest { token, kind: IoKind::Flush, offset: 0, buffer: None }
    }

    #[test]
    fn the_last_one_who_waits_gets_a_request_and_one_who_waits_no_more_gets_none() {
        let mut waiters = Waiters::default();
        assert_eq!(waiters.give(request(1)).unwrap_err().token, 1);
        let all = [Waiter::here(), Waiter::here(), Waiter::here()];
        all.iter().for_each(|waiter| waiters.add(waiter));
        assert!(all[2].leave().is_none());
        assert!(Arc::ptr_eq(&waiters.give(request(2)).unwrap(), &all[1]));
        // What it leaves behind comes back, once.
        assert_eq!(all[1].leave().unwrap().token, 2);
        assert!(all[1].leave().is_none());
        waiters.give(request(3)).unwrap();
        assert_eq!(all[0].take().unwrap().token, 3);
        assert!(all[0].take().is_none());
        assert!(waiters.give(request(4)).is_err(), "each is kept in mind for one request");
    }

    #[test]
    fn those_who_wait_no_more_are_forgotten() {
        let mut waiters = Waiters::default();
        for _ in 0..1_000 {
            let waiter = Waiter::here();
            waiters.add(&waiter);
            waiter.leave();
        }
        assert!(waiters.0.len() <= KEPT + 1, "{}", waiters.0.len());
    }
}
