//! Threads that run one at a time, the next one drawn from a seed, so that one seed gives one run.

use crate::memory::Place;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use tierstone_base::{Error, ErrorKind, Result, SeededRandom};

/// Whose turn it is.
#[derive(Debug)]
pub(super) struct Turns {
    state: Mutex<State>,
    /// One for each thread: it is its turn, or nobody can go on.
    changed: Vec<Condvar>,
    one_in: u64,
}

#[derive(Debug)]
struct State {
    random: SeededRandom,
    threads: Vec<Standing>,
    /// The thread that runs.
    current: usize,
    stuck: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Ready,
    /// Until the word there is stored to.
    Waiting(Place),
    Done,
}

impl State {
    /// Draws who runs next; nobody when all are done. All waiting is a deadlock.
    fn draw(&mut self) -> Option<usize> {
        let ready = |standing: &&Standing| **standing == Standing::Ready;
        let count = self.threads.iter().filter(ready).count() as u64;
        if count == 0 {
            self.stuck |= self.threads.iter().any(|standing| *standing != Standing::Done);
            return None;
        }
        let chosen = self.random.below(count) as usize;
        let mut numbers = (0..).zip(&self.threads).filter(|(_, standing)| ready(standing));
        self.current = numbers.nth(chosen).map_or(self.current, |(number, _)| number);
        Some(self.current)
    }
}

impl Turns {
    pub fn new(threads: usize, seed: u64, one_in: u64) -> Turns {
        let mut state = State {
            random: SeededRandom::new(seed),
            threads: vec![Standing::Ready; threads],
            current: 0,
            stuck: false,
        };
        state.draw();
        let changed = (0..threads).map(|_| Condvar::new()).collect();
        Turns { state: Mutex::new(state), changed, one_in: one_in.max(1) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the first turn of thread `me`.
    pub fn enter(&self, me: usize) {
        drop(self.wait(self.state(), me));
    }

    /// Lets the drawn thread run, and waits for the next turn of `me`.
    pub fn pass(&self, me: usize) {
        let mut state = self.state();
        if self.one_in > 1 && state.random.below(self.one_in) != 0 {
            return;
        }
        if let Some(next) = state.draw()
            && next != me
        {
            self.changed[next].notify_one();
            drop(self.wait(state, me));
        }
    }

    /// Stops `me` until the word at `place` is stored to.
    pub fn wait_for(&self, me: usize, place: Place) -> Result<()> {
        let mut state = self.state();
        state.threads[me] = Standing::Waiting(place);
        self.hand_on(&mut state);
        let state = self.wait(state, me);
        if state.stuck {
            let message = format!(
                "every thread waits for another: thread {me} for {place:?}; the program has a deadlock"
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        Ok(())
    }

    /// The word at `place` was stored to: who waits for it may run again.
    pub fn stored(&self, place: Place) {
        for standing in &mut self.state().threads {
            if *standing == Standing::Waiting(place) {
                *standing = Standing::Ready;
            }
        }
    }

    /// Thread `me` is done, or never began: nobody waits for its turn.
    pub fn leave(&self, me: usize) {
        let mut state = self.state();
        if state.stuck {
            return;
        }
        state.threads[me] = Standing::Done;
        if state.current == me {
            self.hand_on(&mut state);
        }
    }

    fn hand_on(&self, state: &mut State) {
        match state.draw() {
            Some(next) => self.changed[next].notify_one(),
            None => self.changed.iter().for_each(Condvar::notify_one),
        }
    }

    fn wait<'a>(&self, mut state: MutexGuard<'a, State>, me: usize) -> MutexGuard<'a, State> {
        while !state.stuck && (state.current != me || state.threads[me] != Standing::Ready) {
            state = self.changed[me].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }
}
