//! One shard with its device, driven by the thread that calls: the inside of the local handle.
//!
//! Invariants:
//! 1. A call returns when its answer is there; nothing runs between calls. The device may still work
//!    on what was submitted.
//! 2. After a failed write of the device every call answers with that failure.
//! 3. Time never goes back: what has expired stays expired.
//!
//! Who owns the data: the lane owns engine and device; callers' keys and values are borrowed.

use crate::engine::DatabaseShard;
use crate::plain::{check_plain, later, look, pause_us, prefetch, value_of, write_plain};
use crate::space::SpaceWatch;
use tierstone_base::clock::{Clock, SystemClock};
use tierstone_base::{Error, ErrorKind, Now, Result, Seq, Token};
use tierstone_engine::{
    Commit, Engine, Event, Health, Key, Lookup, PREFETCHED_KEYS, PreparedPart, Write, WriteReceipt,
};
use tierstone_media::{BlockDevice, IoCompletion, IoKind, IoRequest, Wait};

pub(crate) mod among;
mod pages;
mod ranges;
mod snapshots;

pub(crate) use pages::KeyPage;

/// Operations that need no waiting, between two looks at the device.
const ATTEND_EVERY: u32 = 64;
/// How long a call waits while neither device nor engine has anything to do or a time to wait for, in
/// microseconds. Nothing known leads there; a caller that hangs would be worse than an error.
const IDLE_PATIENCE_US: u64 = 1_000_000;
/// How long a write waits for room, in microseconds.
const ROOM_PATIENCE_US: u64 = 30_000_000;
/// How long a write waits for segments that are being freed, in microseconds.
pub(crate) const FREEING_PATIENCE_US: u64 = 1_000_000;
/// How often a record may move away between its fetch and the look at it.
pub(crate) const FETCH_ROUNDS: u32 = 100;
/// Writing so many bytes takes a device longer than a step of cleaning takes a processor, which is 100 µs.
const LONG_WRITE_BYTES: usize = 64 << 10;
/// Reads in flight at a time for one call.
pub(crate) const READS_AT_ONCE: usize = 1024;

/// One shard and its device.
#[derive(Debug)]
pub(crate) struct Lane<D> {
    pub engine: DatabaseShard,
    device: D,
    clock: SystemClock,
    now: Now,
    requests: Vec<IoRequest>,
    completions: Vec<IoCompletion>,
    events: Vec<Event>,
    next_token: Token,
    unattended: u32,
    /// The highest expiry that was found past and that the engine does not know of.
    expired_ms: u64,
    space: SpaceWatch,
    /// The weakest promise that a write was acknowledged with, since somebody asked.
    pub given: Option<Commit>,
}

/// Keys whose records are on their way, with their places in the caller's list.
#[derive(Default)]
pub(crate) struct Fetching<'k> {
    keys: Vec<(usize, Key<'k>)>,
    /// The token of the first; the others follow.
    first: Token,
}

/// How long nothing has happened while somebody waited.
#[derive(Default)]
pub(crate) struct Patience {
    idle_since_us: Option<u64>,
}

/// A write that waits for room.
pub(crate) struct RoomWait {
    began_us: u64,
    patience: Patience,
    looked_for_space: bool,
}

/// A record that was fetched; it is released with this, also where whoever reads it panics.
struct Held<'e> {
    engine: &'e mut DatabaseShard,
    token: Token,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.engine.release(self.token);
    }
}

impl RoomWait {
    /// A write that begins to wait now.
    pub fn new(now: Now) -> Self {
        RoomWait { began_us: now.monotonic_us, patience: Patience::default(), looked_for_space: false }
    }
}

impl<D: BlockDevice> Lane<D> {
    pub fn new(engine: DatabaseShard, device: D, clock: SystemClock) -> Self {
        let now = clock.now();
        Lane {
            now: Now { wall_ms: now.wall_ms.max(engine.past_ms()), ..now },
            engine,
            device,
            clock,
            requests: Vec::new(),
            completions: Vec::new(),
            events: Vec::new(),
            next_token: 0,
            unattended: 0,
            expired_ms: 0,
            space: SpaceWatch::default(),
            given: None,
        }
    }

    /// The failure of the device, if it has failed.
    pub fn check_health(&self) -> Result<()> {
        match self.engine.health() {
            Health::Good => Ok(()),
            Health::Failed(error) => {
                Err(error.context("the device has failed and nothing is answered any more"))
            }
        }
    }

    /// Reads the clocks.
    pub fn tick(&mut self) -> Now {
        self.now = later(self.now, self.clock.now());
        self.now
    }

    /// Hands the engine's requests to the device.
    pub fn submit(&mut self) {
        self.engine.take_requests(&mut self.requests);
        if !self.requests.is_empty() {
            self.device.submit(&mut self.requests);
        }
    }

    /// Requests out, completions in, a step, requests out.
    pub fn turn(&mut self, wait: Wait) {
        self.unattended = 0;
        self.engine.take_requests(&mut self.requests);
        if wait == Wait::One && (!self.requests.is_empty() || self.device.in_flight() > 0) {
            self.device.carry_out(&mut self.requests, &mut self.completions);
        } else {
            self.submit();
            if self.device.in_flight() > 0 {
                self.device.complete(wait, &mut self.completions);
            }
        }
        let now = self.tick();
        self.space.note(&self.completions, now.monotonic_us);
        self.engine.step(now, &mut self.completions, &mut self.events);
        self.submit();
    }

    /// Looks after device and engine without waiting, now and then, if they want it.
    pub fn attend(&mut self) {
        self.unattended += 1;
        if self.unattended < ATTEND_EVERY {
            return;
        }
        self.unattended = 0;
        self.tick();
        if self.has_work() {
            self.turn(Wait::Poll);
        }
    }

    /// Whether a turn would have something to do now, and when at the latest, in microseconds.
    pub fn next_turn_in_us(&self) -> Option<u64> {
        if self.device.in_flight() > 0 {
            return Some(0);
        }
        self.engine.next_step_at_us().map(|at| at.saturating_sub(self.now.monotonic_us))
    }

    /// A turn that waits for something to happen.
    pub fn wait(&mut self, patience: &mut Patience) -> Result<()> {
        self.engine.take_requests(&mut self.requests);
        if !self.requests.is_empty() || self.device.in_flight() > 0 {
            patience.idle_since_us = None;
            self.turn(Wait::One);
            return Ok(());
        }
        let due_us = self.engine.next_step_at_us();
        let now_us = self.tick().monotonic_us;
        match due_us {
            Some(at_us) if at_us <= now_us => {}
            Some(at_us) => pause_us((at_us - now_us).min(10_000)),
            None => {
                let since_us = *patience.idle_since_us.get_or_insert(now_us);
                if now_us - since_us > IDLE_PATIENCE_US {
                    return Err(Error::new(ErrorKind::Retry, "neither device nor engine makes progress"));
                }
                pause_us(1_000);
            }
        }
        self.turn(Wait::Poll);
        Ok(())
    }

    /// The same for those who wait for a write since `began_us`.
    pub fn wait_for_write(&mut self, began_us: u64, patience: &mut Patience) -> Result<()> {
        self.wait(patience)?;
        self.space.verdict(began_us, self.now.monotonic_us).map_or(Ok(()), Err)
    }

    /// Whether something is under way, or to be done, that nobody waits for.
    pub fn has_work(&self) -> bool {
        self.device.in_flight() > 0 || self.wants_turn()
    }

    fn wants_turn(&self) -> bool {
        self.engine.next_step_at_us().is_some_and(|at_us| at_us <= self.now.monotonic_us)
    }

    /// Applies `writes` as one; waits while there is no room yet.
    pub fn write(&mut self, writes: &[Write<'_>]) -> Result<WriteReceipt> {
        self.attempt(|engine, now| write_plain(engine, now, writes))
    }

    /// The same for anything that writes.
    pub fn attempt<T>(&mut self, mut write: impl FnMut(&mut DatabaseShard, Now) -> Result<T>) -> Result<T> {
        self.check_health()?;
        let mut room = RoomWait::new(self.tick());
        loop {
            match write(&mut self.engine, self.now) {
                Err(error) => self.wait_for_room(&mut room, error)?,
                answer => return answer,
            }
        }
    }

    /// A turn for a write that was refused with `error`, if that may change; the error if not.
    pub fn wait_for_room(&mut self, room: &mut RoomWait, error: Error) -> Result<()> {
        let waited_us = self.now.monotonic_us - room.began_us;
        match error.kind() {
            // A segment that is being freed does not count yet, and some space only a step finds.
            ErrorKind::NoSpace
                if (self.has_work() || !room.looked_for_space) && waited_us < FREEING_PATIENCE_US =>
            {
                room.looked_for_space = true;
                if self.has_work() {
                    return self.wait(&mut room.patience);
                }
                self.turn(Wait::Poll);
                Ok(())
            }
            ErrorKind::Retry if waited_us <= ROOM_PATIENCE_US => {
                self.wait(&mut room.patience).map_err(|_| error)
            }
            _ => Err(error),
        }
    }

    /// A write is to be acknowledged with this promise.
    pub fn note_given(&mut self, commit: Commit) {
        self.given = self.given.max(Some(commit));
    }

    /// Waits until `receipt` may be acknowledged.
    pub fn commit(&mut self, receipt: WriteReceipt) -> Result<()> {
        self.note_given(receipt.commit);
        match receipt.commit {
            Commit::Relaxed => {
                self.attend();
                Ok(())
            }
            // Nobody else can join the group while this thread waits.
            Commit::Durable | Commit::Grouped => self.make_durable(receipt.seq),
        }
    }

    /// Waits until everything up to `seq` is durable.
    pub fn make_durable(&mut self, seq: Seq) -> Result<()> {
        if self.engine.durable_seq() < seq {
            self.engine.flush(self.now);
        }
        let began_us = self.now.monotonic_us;
        let mut patience = Patience::default();
        self.work_beside_write(seq);
        while self.engine.durable_seq() < seq {
            self.check_health()?;
            self.wait_for_write(began_us, &mut patience)?;
        }
        Ok(())
    }

    /// Hands the device a write that takes it long, and does meanwhile what the engine wants done, cleaning above
    /// all. A short one is over sooner than such a step: it is left to the thread that waits for it.
    fn work_beside_write(&mut self, seq: Seq) {
        if self.engine.durable_seq() >= seq {
            return;
        }
        self.engine.take_requests(&mut self.requests);
        let written = |request: &IoRequest| match request.kind {
            IoKind::Write | IoKind::WriteDurable => request.buffer.as_ref().map_or(0, |buffer| buffer.len()),
            _ => 0,
        };
        if self.requests.iter().map(written).sum::<usize>() < LONG_WRITE_BYTES {
            return;
        }
        self.turn(Wait::Poll);
        while self.engine.durable_seq() < seq && self.wants_turn() && self.check_health().is_ok() {
            self.turn(Wait::Poll);
        }
    }

    /// Waits until it is durable that what was just found to have expired has: a clock that is set back
    /// before the next opening brings it back otherwise.
    fn settle_past(&mut self) -> Result<()> {
        if self.expired_ms != 0 {
            self.engine.note_past(std::mem::take(&mut self.expired_ms));
        }
        match self.engine.past_gate() {
            seq if seq > self.engine.durable_seq() => self.make_durable(seq),
            _ => Ok(()),
        }
    }

    /// Whether everything up to `seq` is durable.
    pub fn is_durable(&self, seq: Seq) -> bool {
        self.engine.durable_seq() >= seq
    }

    /// Starts to write what is applied; [`Lane::make_durable`] waits for it.
    pub fn start_sync(&mut self) -> Result<Seq> {
        self.check_health()?;
        self.tick();
        self.engine.flush(self.now);
        self.submit();
        Ok(self.engine.applied_seq())
    }

    /// Gives the key's value to `read`. Cost: no allocation when the record is in memory.
    pub fn get_with<R>(&mut self, key: Key<'_>, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.check_health()?;
        self.attend();
        match look(&mut self.engine, &self.clock, (&mut self.now, &mut self.expired_ms), key) {
            Lookup::Found(record) => return Ok(Some(read(value_of(record)?))),
            Lookup::Missing => return self.settle_past().map(|()| None),
            Lookup::Fetch => {}
        }
        for _ in 0..FETCH_ROUNDS {
            let (token, failure) = self.fetch_one(key)?;
            let held = Held { engine: &mut self.engine, token };
            let missing = match look(held.engine, &self.clock, (&mut self.now, &mut self.expired_ms), key) {
                Lookup::Found(record) => return value_of(record).map(read).map(Some),
                Lookup::Missing => true,
                Lookup::Fetch => false,
            };
            drop(held);
            match failure {
                _ if missing => return self.settle_past().map(|()| None),
                Some(error) => return Err(error),
                None => {}
            }
        }
        Err(never_held())
    }

    /// Deletes the key; `None` when it has no value.
    pub fn delete(&mut self, key: Key<'_>) -> Result<Option<WriteReceipt>> {
        self.check_health()?;
        self.engine.check_not_moved(key.position)?;
        self.tick();
        let mut held = None;
        let mut rounds = 0;
        let answer = loop {
            match self.engine.lookup(self.now, key) {
                Lookup::Missing => break Ok(None),
                Lookup::Found(_) => {
                    let write = Write { key, kind: tierstone_engine::WriteKind::Delete };
                    break self.write(&[write]).map(Some);
                }
                Lookup::Fetch if rounds == FETCH_ROUNDS => break Err(never_held()),
                Lookup::Fetch => {}
            }
            rounds += 1;
            held.into_iter().for_each(|token| self.engine.release(token));
            let (token, failure) = self.fetch_one(key)?;
            held = Some(token);
            if let Some(error) = failure
                && matches!(self.engine.lookup(self.now, key), Lookup::Fetch)
            {
                break Err(error);
            }
        };
        held.into_iter().for_each(|token| self.engine.release(token));
        if matches!(answer, Ok(None)) {
            self.settle_past()?;
        }
        answer
    }

    /// Fetches one record; gives the token that holds it, and what went wrong.
    fn fetch_one(&mut self, key: Key<'_>) -> Result<(Token, Option<Error>)> {
        self.next_token += 1;
        let token = self.next_token;
        self.engine.fetch(self.now, &[(token, key)]);
        let mut failure = None;
        self.await_fetched(token, 1, &mut failure)?;
        Ok((token, failure))
    }

    /// Looks up `keys`, gives those in memory to `take`, and starts one submission for the others.
    pub fn begin_many<'k>(
        &mut self,
        keys: impl Iterator<Item = (usize, Key<'k>)>,
        take: &mut impl FnMut(usize, Result<&[u8]>),
    ) -> Result<Fetching<'k>> {
        self.check_health()?;
        self.attend();
        let mut fetching = Fetching::default();
        let keys: Vec<(usize, Key<'k>)> = keys.collect();
        for (number, &(place, key)) in keys.iter().enumerate() {
            if number.is_multiple_of(PREFETCHED_KEYS) {
                prefetch(&mut self.engine, keys[number..].iter().map(|(_, key)| *key));
            }
            match look(&mut self.engine, &self.clock, (&mut self.now, &mut self.expired_ms), key) {
                Lookup::Found(record) => take(place, value_of(record)),
                Lookup::Missing => {}
                Lookup::Fetch => fetching.keys.push((place, key)),
            }
        }
        self.start_fetches(&mut fetching);
        Ok(fetching)
    }

    fn start_fetches(&mut self, fetching: &mut Fetching<'_>) {
        if fetching.keys.is_empty() {
            return;
        }
        fetching.first = self.next_token + 1;
        self.next_token += fetching.keys.len() as u64;
        let keys = fetching.keys.iter().zip(fetching.first..);
        let tokens: Vec<(Token, Key<'_>)> = keys.map(|(&(_, key), token)| (token, key)).collect();
        self.engine.fetch(self.now, &tokens);
        self.submit();
    }

    /// Waits for what [`Lane::begin_many`] has started and gives it to `take`. A key that is missing
    /// is given to nobody.
    pub fn finish_many(
        &mut self,
        mut fetching: Fetching<'_>,
        take: &mut impl FnMut(usize, Result<&[u8]>),
    ) -> Result<()> {
        for _ in 0..FETCH_ROUNDS {
            if fetching.keys.is_empty() {
                return self.settle_past();
            }
            let (first, count) = (fetching.first, fetching.keys.len() as u64);
            let mut failure = None;
            self.await_fetched(first, count, &mut failure)?;
            fetching.keys.retain(|&(place, key)| {
                match look(&mut self.engine, &self.clock, (&mut self.now, &mut self.expired_ms), key) {
                    Lookup::Found(record) => take(place, value_of(record)),
                    Lookup::Missing => {}
                    Lookup::Fetch => match &failure {
                        Some(error) => take(place, Err(error.clone())),
                        None => return true,
                    },
                }
                false
            });
            (first..first + count).for_each(|token| self.engine.release(token));
            self.start_fetches(&mut fetching);
        }
        Err(never_held())
    }

    /// Waits for the fetches `first .. first + count`; keeps the first failure.
    fn await_fetched(&mut self, first: Token, count: u64, failure: &mut Option<Error>) -> Result<()> {
        let mut missing = count;
        let mut patience = Patience::default();
        loop {
            for event in self.events.drain(..) {
                match event {
                    Event::Fetched { token, result, .. } if (first..first + count).contains(&token) => {
                        missing -= 1;
                        *failure = failure.take().or(result.err());
                    }
                    // Of a call that ended early because the device failed.
                    Event::Fetched { token, .. } => self.engine.release(token),
                    Event::Scanned { .. } | Event::Ranged { .. } | Event::SnapshotRead { .. } => {}
                }
            }
            if missing == 0 {
                return Ok(());
            }
            self.check_health()?;
            self.wait(&mut patience)?;
        }
    }

    /// Whether `writes` would be taken now.
    pub fn admit(&mut self, writes: &[Write<'_>]) -> Result<()> {
        check_plain(&mut self.engine, self.now, writes)?;
        self.engine.admit(self.now, writes)
    }

    /// What writes this shard's part of a batch, if it is taken now.
    pub fn prepare_part<'e>(&'e mut self, writes: &'e [Write<'e>]) -> Result<PreparedPart<'e>> {
        check_plain(&mut self.engine, self.now, writes)?;
        self.engine.prepare_part(self.now, writes)
    }

    /// Starts to write what is left and to seal what is open.
    pub fn start_shut(&mut self) -> Result<ShutWait> {
        self.check_health()?;
        let began_us = self.tick().monotonic_us;
        self.engine.shut();
        Ok(ShutWait { began_us, patience: Patience::default() })
    }

    /// A turn for what [`Lane::start_shut`] has started; true at its end.
    pub fn go_on_shutting(&mut self, wait: &mut ShutWait) -> Result<bool> {
        self.check_health()?;
        if self.engine.is_shut() {
            return Ok(true);
        }
        self.wait_for_write(wait.began_us, &mut wait.patience)?;
        Ok(false)
    }

    /// Writes all that is left and seals what is open, where no other shard is waited for.
    #[cfg(test)]
    pub fn shut(&mut self) -> Result<()> {
        let mut wait = self.start_shut()?;
        while !self.go_on_shutting(&mut wait)? {}
        Ok(())
    }
}

/// A shard that is being shut.
pub(crate) struct ShutWait {
    began_us: u64,
    patience: Patience,
}

pub(crate) fn never_held() -> Error {
    Error::new(ErrorKind::Retry, format!("a record moved away {FETCH_ROUNDS} times before it could be read"))
}

#[cfg(test)]
#[path = "lane_test.rs"]
mod lane_test;
