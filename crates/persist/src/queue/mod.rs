//! Queues in persistent memory: circular buffers that several threads insert into and that recover after a crash.
//!
//! Three published designs (Pelley 2014, section 7.1), each over any [`Memory`]:
//!
//! | design | how | recovered |
//! |---|---|---|
//! | [`Design::CopyWhileLocked`] | one lock over copy and head | a prefix of the inserts |
//! | [`Design::TwoLock`] | a lock to reserve room, one for the list of inserts under way; the oldest moves the head | a prefix |
//! | [`Design::QueueHoles`] | the head moves before the entry is there; a bit behind the entry says that it is | the entries that are whole, in order |
//!
//! Persistent: a line that says what the queue is, a line for the head, a line for the tail, the data. Positions
//! only grow; where they lie is their remainder by the capacity. Entries begin at lines of 64 bytes: length,
//! payload, and for Queue Holes the end bit.
//!
//! Invariants:
//! 1. Every entry in `[tail, head)` is whole, or (Queue Holes) known not to be.
//! 2. The head never persists before what it covers, nor the tail before the head that covers what was removed.
//! 3. Room is used again only when the tail that freed it is durable.
//! 4. An insert is durable when [`Queue::settle`] has returned; a remove when it returned.
//!
//! Departures from the printed Two-Lock Concurrent, which is wrong: it copies to the head instead of to its own
//! room; it gives the list's lock back before it stores the head, which could then go back; and it has no barrier
//! between the copy and the list, so that another thread's head could persist before the copy. Each stands here as
//! a rule that the tests break. Remove, wrap, full and recovery are not published; they are ours.

mod insert;
mod lock;
mod recover;

pub use recover::{Entry, Recovered, recover};

use crate::memory::{Memory, Place};
use lock::{Lock, LockMemory};
use std::cell::Cell;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_crash::Mutations;

/// How inserts order their persists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Design {
    /// Copy While Locked.
    CopyWhileLocked,
    /// Two-Lock Concurrent, repaired.
    TwoLock,
    /// Queue Holes.
    QueueHoles,
}

impl Design {
    /// All of them.
    pub const ALL: [Design; 3] = [Design::CopyWhileLocked, Design::TwoLock, Design::QueueHoles];

    /// Its published name.
    pub fn name(self) -> &'static str {
        match self {
            Design::CopyWhileLocked => "Copy While Locked",
            Design::TwoLock => "Two-Lock Concurrent",
            Design::QueueHoles => "Queue Holes",
        }
    }
}

/// What a queue is made with.
#[derive(Clone, Debug)]
pub struct QueueSettings {
    /// The design.
    pub design: Design,
    /// Bytes for entries; a multiple of 64.
    pub capacity_bytes: u64,
    /// Threads that may use it at most, numbered from zero.
    pub threads: usize,
    /// Inserts under way at most (Two-Lock Concurrent): how far an insert may run ahead of the oldest.
    pub in_flight: u64,
    /// Rules switched off, in tests.
    pub rules: Mutations,
}

impl QueueSettings {
    /// A queue of `design` for `threads` threads; 64 inserts under way.
    pub fn new(design: Design, capacity_bytes: u64, threads: usize) -> QueueSettings {
        QueueSettings { design, capacity_bytes, threads, in_flight: 64, rules: Mutations::none() }
    }

    /// Bytes of persistent memory that it takes.
    pub fn persistent_bytes(&self) -> u64 {
        DATA.saturating_add(self.capacity_bytes)
    }

    /// Refuses a region that the queue does not fit.
    fn refuse_small<M: Memory>(&self, memory: &M) -> Result<()> {
        let (needed, there) = (self.persistent_bytes(), memory.persistent_bytes());
        if needed > there {
            let message = format!(
                "the region is too small: the queue takes {needed} bytes of {there}; take a larger region or fewer \
                 bytes for entries"
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        Ok(())
    }

    /// Bytes of volatile memory that it takes.
    pub fn volatile_bytes(&self) -> u64 {
        NODES + (self.in_flight + 3 * self.threads as u64) * LINE
    }
}

const LINE: u64 = 64;
/// Looks at a word that is waited for, after which the memory is asked whether it has failed.
const LOOKS: u32 = 1 << 12;
/// The first word of a queue: `TSQUEUE1`.
const MAGIC: u64 = u64::from_le_bytes(*b"TSQUEUE1");
/// Persistent: magic, design, capacity, checksum of the last two; then head and tail, each in a line of its own; then
/// the data, from where no block of a coarse memory has both head and data.
const HEAD: u64 = 64;
const TAIL: u64 = 128;
const DATA: u64 = 512;

/// Volatile words, each in a line of its own.
const RESERVE_LOCK: u64 = 0;
const LIST_LOCK: u64 = 64;
const REMOVE_LOCK: u64 = 128;
/// The end of the room given out (Two-Lock Concurrent).
const RESERVED: u64 = 192;
/// The oldest insert under way as reservations saw it last, in the same line.
const SEEN: u64 = 200;
/// The tail that is durable: room before it may be used again.
const FREED: u64 = 256;
/// The number of the next insert, and of the oldest under way (Two-Lock Concurrent).
const NEXT: u64 = 320;
const OLDEST: u64 = 384;
/// Where the head was when the queue was opened: entries before it that are not whole are holes.
const OPENED: u64 = 448;
/// The list of inserts under way, then the nodes of the locks.
const NODES: u64 = 512;

/// A queue; its state is in the memory that is given to each call.
#[derive(Clone, Debug)]
pub struct Queue {
    settings: QueueSettings,
}

impl Queue {
    /// Makes an empty queue; durable when it returns. A crash before leaves no queue.
    ///
    /// # Errors
    /// `InvalidInput` for a capacity that is none, or that the region has no room for; when the memory fails.
    pub fn create<M: Memory>(settings: QueueSettings, memory: &M) -> Result<Queue> {
        let capacity = settings.capacity_bytes;
        if capacity == 0 || !capacity.is_multiple_of(LINE) || settings.threads == 0 || settings.in_flight == 0
        {
            let message =
                format!("a queue cannot have {capacity} bytes for entries: take a multiple of {LINE}");
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        settings.refuse_small(memory)?;
        let queue = Queue { settings };
        memory.store(Place::Persistent(0), 0);
        queue.barrier(memory, "no queue before a new one")?;
        for (number, word) in (1..).zip(recover::header(queue.settings.design, capacity)) {
            memory.store(Place::Persistent(number * 8), word);
        }
        memory.store(Place::Persistent(HEAD), 0);
        memory.store(Place::Persistent(TAIL), 0);
        queue.barrier(memory, "the queue before its magic")?;
        memory.store(Place::Persistent(0), MAGIC);
        if !queue.breaks("the magic before the answer") {
            memory.sync()?;
        }
        Ok(queue)
    }

    /// Opens the queue in `memory`, whose volatile words are zeros, and gives what it holds. `settings` say what it
    /// must be; nothing is written to persistent memory.
    ///
    /// # Errors
    /// As [`recover`]; `InvalidInput` when it has another design or capacity, or the region has no room for it.
    pub fn open<M: Memory>(settings: QueueSettings, memory: &M) -> Result<(Queue, Recovered)> {
        settings.refuse_small(memory)?;
        let mut image = vec![0; settings.persistent_bytes() as usize];
        memory.load_bytes(0, &mut image);
        let found = recover(&image)?;
        if (found.design, found.capacity_bytes) != (settings.design, settings.capacity_bytes) {
            let message = format!(
                "the queue is {} of {} bytes, {} of {} was asked for; open it as what it is",
                found.design.name(),
                found.capacity_bytes,
                settings.design.name(),
                settings.capacity_bytes
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        memory.store(Place::Volatile(RESERVED), found.head);
        memory.store(Place::Volatile(FREED), found.tail);
        memory.store(Place::Volatile(OPENED), found.head);
        Ok((Queue { settings }, found))
    }

    /// Inserts an entry. Returns its position, which orders it among all entries; it is durable once
    /// [`Queue::settle`] has returned for it.
    ///
    /// # Errors
    /// `NoSpace` when the queue is full, `InvalidInput` for an entry that never fits, and when the memory fails:
    /// then whether the entry is there is unknown.
    pub fn insert<M: Memory>(&self, memory: &M, payload: &[u8]) -> Result<u64> {
        let room = self.room(payload.len() as u64);
        if room > self.settings.capacity_bytes {
            let message = format!("an entry of {} bytes never fits the queue; cut it", payload.len());
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        match self.settings.design {
            Design::CopyWhileLocked => self.insert_locked(memory, payload, room),
            Design::TwoLock => self.insert_two_lock(memory, payload, room),
            Design::QueueHoles => self.insert_holes(memory, payload, room),
        }
    }

    /// Waits until the entry of `len` bytes that was inserted at `position` is durable.
    ///
    /// # Errors
    /// When the memory fails.
    pub fn settle<M: Memory>(&self, memory: &M, position: u64, len: usize) -> Result<()> {
        if self.settings.design == Design::TwoLock && !self.breaks("an insert waits for its head") {
            // Another thread may have to store the head that covers it, and its persist is waited for here.
            let end = position + self.room(len as u64);
            if self.observe_head(memory, "the head is observed when an insert settles") < end {
                // The time of waiting is used.
                memory.sync()?;
                wait_until(memory, Place::Persistent(HEAD), |head| head >= end)?;
                self.observe_head(memory, "the head that was waited for is observed");
            }
        }
        if self.breaks("a sync before the answer") { Ok(()) } else { memory.sync() }
    }

    /// Takes the oldest entry out; durable when it returns. `None` when there is none, or (Queue Holes) when the
    /// oldest is still being inserted. Holes that a crash left before it go too, also where it returns `None`: their
    /// room may be used again.
    ///
    /// # Errors
    /// `Corrupt` when what is there is no entry; when the memory fails.
    pub fn remove<M: Memory>(&self, memory: &M) -> Result<Option<Entry>> {
        self.locked(memory, REMOVE_LOCK, || {
            memory.strand();
            let tail = memory.load(Place::Persistent(TAIL));
            let head = self.observe_head(memory, "the head is observed when an entry is taken out");
            let mut position = tail;
            let mut taken = None;
            while position < head && taken.is_none() {
                let len = memory.load(self.place(position));
                let room = self.checked_room(len, head - position)?;
                if self.is_whole(memory, position, len) {
                    let mut payload = vec![0; len as usize];
                    self.load(memory, position + 8, &mut payload);
                    taken = Some(Entry { position, payload });
                } else if position >= memory.load(Place::Volatile(OPENED)) {
                    break;
                }
                position += room;
            }
            if position == tail {
                return Ok(None);
            }
            // Also past holes alone: nothing else would ever give their room back.
            self.barrier(memory, "the head before the tail")?;
            memory.store(Place::Persistent(TAIL), position);
            // crash here [room-still-needed]: the tail is old, so recovery still reads what was removed
            if !self.breaks("the tail before its room is used again") {
                memory.sync()?;
            }
            memory.store(Place::Volatile(FREED), position);
            Ok(taken)
        })
    }

    /// Bytes that an entry with a payload of `len` bytes takes: whole lines.
    fn room(&self, len: u64) -> u64 {
        room(self.settings.design, len)
    }

    fn checked_room(&self, len: u64, left: u64) -> Result<u64> {
        let room = if len <= left { self.room(len) } else { u64::MAX };
        if room > left {
            let message =
                format!("an entry of the queue claims {len} bytes where {left} are left; restore the region");
            return Err(Error::new(ErrorKind::Corrupt, message));
        }
        Ok(room)
    }

    fn is_whole<M: Memory>(&self, memory: &M, position: u64, len: u64) -> bool {
        self.settings.design != Design::QueueHoles || memory.load(self.place(end_bit(position, len))) == 1
    }

    /// Where the word at `position` is.
    fn place(&self, position: u64) -> Place {
        Place::Persistent(DATA + position % self.settings.capacity_bytes)
    }

    /// Copies to `position`, around the end of the buffer.
    fn store<M: Memory>(&self, memory: &M, position: u64, bytes: &[u8]) {
        let capacity = self.settings.capacity_bytes;
        let first = (capacity - position % capacity).min(bytes.len() as u64) as usize;
        let (head, rest) = bytes.split_at(first);
        memory.store_bytes(DATA + position % capacity, head);
        if !rest.is_empty() {
            memory.store_bytes(DATA, rest);
        }
    }

    fn load<M: Memory>(&self, memory: &M, position: u64, into: &mut [u8]) {
        let capacity = self.settings.capacity_bytes;
        let first = (capacity - position % capacity).min(into.len() as u64) as usize;
        let (head, rest) = into.split_at_mut(first);
        memory.load_bytes(DATA + position % capacity, head);
        if !rest.is_empty() {
            memory.load_bytes(DATA, rest);
        }
    }

    /// Whether a test has switched `rule` off.
    fn breaks(&self, rule: &str) -> bool {
        self.settings.rules.is_on(rule)
    }

    /// The persist barrier that keeps `rule`.
    fn barrier<M: Memory>(&self, memory: &M, rule: &str) -> Result<()> {
        if self.breaks(rule) { Ok(()) } else { memory.barrier() }
    }

    /// The head, which another thread may have stored a moment ago: observed, so that the next barrier of this thread makes
    /// it durable. That keeps `rule`; without it the head is only loaded, which no trace tells from observing.
    fn observe_head<M: Memory>(&self, memory: &M, rule: &str) -> u64 {
        if self.breaks(rule) { memory.load(Place::Persistent(HEAD)) } else { memory.observe(HEAD) }
    }

    /// Does `work` under a lock, which is given back whatever comes of it.
    fn locked<M: Memory, T>(&self, memory: &M, lock: u64, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let nodes = NODES + (self.settings.in_flight + lock / LINE * self.settings.threads as u64) * LINE;
        let lock = Lock::new(LockMemory { tail: lock, nodes }, memory);
        lock.acquire()?;
        let result = work();
        lock.release()?;
        result
    }
}

/// Waits until `holds` of the word at `place`. Whoever should store it may have met memory that has failed, and never
/// will: so it is asked now and then whether it has.
fn wait_until<M: Memory>(memory: &M, place: Place, holds: impl Fn(u64) -> bool) -> Result<u64> {
    loop {
        let looks = Cell::new(0);
        let value = memory.wait_until(place, |value| {
            looks.set(looks.get() + 1);
            holds(value) || looks.get() == LOOKS
        })?;
        if holds(value) {
            return Ok(value);
        }
        memory.sync()?;
    }
}

/// Bytes that an entry with a payload of `len` bytes takes in a queue of `design`.
fn room(design: Design, len: u64) -> u64 {
    let words = 8 + len.next_multiple_of(8) + if design == Design::QueueHoles { 8 } else { 0 };
    words.next_multiple_of(LINE)
}

/// Where the end bit of the entry at `position` is.
fn end_bit(position: u64, len: u64) -> u64 {
    position + 8 + len.next_multiple_of(8)
}

#[cfg(test)]
#[path = "queue_test.rs"]
mod queue_test;

#[cfg(test)]
#[path = "observe_test.rs"]
mod observe_test;
