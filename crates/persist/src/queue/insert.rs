//! The three ways to insert. Every barrier has the name of the rule that it keeps.

use super::{
    FREED, HEAD, LINE, LIST_LOCK, NEXT, NODES, OLDEST, Queue, RESERVE_LOCK, RESERVED, SEEN, end_bit,
    wait_until,
};
use crate::memory::{Memory, Place};
use tierstone_base::{Error, ErrorKind, Result};

impl Queue {
    /// Copy While Locked: the copy and the head under one lock.
    pub(super) fn insert_locked<M: Memory>(&self, memory: &M, payload: &[u8], room: u64) -> Result<u64> {
        self.locked(memory, RESERVE_LOCK, || {
            memory.strand();
            let start = memory.load(Place::Persistent(HEAD));
            self.refuse_full(memory, start, room)?;
            self.store_entry(memory, start, payload);
            // crash here [entry-without-head]: the head does not cover the entry, which was never inserted
            self.barrier(memory, "the entry before the head")?;
            memory.store(Place::Persistent(HEAD), start + room);
            Ok(start)
        })
    }

    /// Two-Lock Concurrent: room is reserved under one lock, copies run side by side, and whoever finishes the
    /// oldest insert moves the head over all that are finished behind it, under the other.
    pub(super) fn insert_two_lock<M: Memory>(&self, memory: &M, payload: &[u8], room: u64) -> Result<u64> {
        let (start, ticket) = self.locked(memory, RESERVE_LOCK, || {
            let start = memory.load(Place::Volatile(RESERVED));
            self.refuse_full(memory, start, room)?;
            let ticket = memory.load(Place::Volatile(NEXT));
            self.wait_for_node(memory, ticket)?;
            memory.store(self.end_of(ticket), start + room);
            memory.store(Place::Volatile(RESERVED), start + room);
            memory.store(Place::Volatile(NEXT), ticket + 1);
            Ok((start, ticket))
        })?;
        memory.strand();
        let place = match self.breaks("the copy goes to its own room") {
            true => memory.load(Place::Persistent(HEAD)),
            false => start,
        };
        self.store_entry(memory, place, payload);
        // Whoever sees this insert done publishes the copy: it must follow the copy of this thread too.
        self.barrier(memory, "the entry before its insert is done")?;
        let late = self.locked(memory, LIST_LOCK, || {
            let Some(head) = self.finish(memory, ticket) else {
                return Ok(None);
            };
            if self.breaks("the head moves under the list's lock") {
                return Ok(Some(head));
            }
            self.barrier(memory, "the inserts done before the head")?;
            memory.store(Place::Persistent(HEAD), head);
            Ok(None)
        })?;
        if let Some(head) = late {
            memory.barrier()?;
            memory.store(Place::Persistent(HEAD), head);
        }
        Ok(start)
    }

    /// Waits, under the lock to reserve room, until the insert `ticket` has a node: they form a ring, and the oldest needs
    /// only the list's lock to go on. The number of the oldest is looked at when the one that was seen last does not
    /// do: whoever looks at it is ordered behind the copies of all who moved it, and so is the copy to come.
    fn wait_for_node<M: Memory>(&self, memory: &M, ticket: u64) -> Result<()> {
        if ticket - memory.load(Place::Volatile(SEEN)) >= self.settings.in_flight {
            let oldest = wait_until(memory, Place::Volatile(OLDEST), |oldest| {
                ticket - oldest < self.settings.in_flight
            })?;
            memory.store(Place::Volatile(SEEN), oldest);
        }
        Ok(())
    }

    /// Marks the insert as done. If it is the oldest, takes it and all that are done behind it off the list and
    /// returns where they end.
    fn finish<M: Memory>(&self, memory: &M, ticket: u64) -> Option<u64> {
        memory.store(self.done(ticket), ticket + 1);
        if memory.load(Place::Volatile(OLDEST)) != ticket {
            return None;
        }
        // A node says which insert of its own is done, so that nothing that a reservation stores is looked at: it would
        // then be ordered behind this copy. An insert that is not done yet will find itself oldest.
        let mut last = ticket;
        while memory.load(self.done(last + 1)) == last + 2 {
            last += 1;
        }
        let head = memory.load(self.end_of(last));
        memory.store(Place::Volatile(OLDEST), last + 1);
        Some(head)
    }

    /// Queue Holes: the head moves over an entry that is not there yet; the end bit says when it is.
    pub(super) fn insert_holes<M: Memory>(&self, memory: &M, payload: &[u8], room: u64) -> Result<u64> {
        let len = payload.len() as u64;
        let start = self.locked(memory, RESERVE_LOCK, || {
            memory.strand();
            let start = memory.load(Place::Persistent(HEAD));
            self.refuse_full(memory, start, room)?;
            memory.store(self.place(start), len);
            if !self.breaks("the end bit is cleared") {
                memory.store(self.place(end_bit(start, len)), 0);
            }
            self.barrier(memory, "length and end bit before the head")?;
            memory.store(Place::Persistent(HEAD), start + room);
            Ok(start)
        })?;
        // crash here [a-hole]: the head covers the entry, its end bit is clear; recovery skips it
        self.store(memory, start + 8, payload);
        self.barrier(memory, "the entry before its end bit")?;
        memory.store(self.place(end_bit(start, len)), 1);
        Ok(start)
    }

    fn store_entry<M: Memory>(&self, memory: &M, start: u64, payload: &[u8]) {
        memory.store(self.place(start), payload.len() as u64);
        self.store(memory, start + 8, payload);
    }

    fn refuse_full<M: Memory>(&self, memory: &M, start: u64, room: u64) -> Result<()> {
        let used = start - memory.load(Place::Volatile(FREED));
        if used + room > self.settings.capacity_bytes {
            let message = format!(
                "the queue is full: {used} of {} bytes are used; remove entries",
                self.settings.capacity_bytes
            );
            return Err(Error::new(ErrorKind::NoSpace, message));
        }
        Ok(())
    }

    fn end_of(&self, ticket: u64) -> Place {
        Place::Volatile(NODES + ticket % self.settings.in_flight * LINE)
    }

    /// The word that is one more than `ticket` when that insert is done.
    fn done(&self, ticket: u64) -> Place {
        Place::Volatile(NODES + ticket % self.settings.in_flight * LINE + 8)
    }
}
