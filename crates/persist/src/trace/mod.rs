//! What threads did to memory, in one order that all of them saw.
//!
//! A trace is a sequence of [`Event`]s: the total order of a sequentially consistent execution. An access
//! covers bytes of one aligned word of 8 bytes; longer ones are cut into such pieces ([`Trace::access`]).
//! [`text`] and [`binary`] read and write files of traces.

pub mod binary;
pub mod text;

use tierstone_base::{Error, ErrorKind, Result};

/// A word of memory is so many bytes: what persists whole.
pub const WORD: u64 = 8;

/// Which of the two memories an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// Lost in a crash. Accesses to it order persists all the same.
    Volatile,
    /// What a store to it makes is a persist.
    Persistent,
}

/// What an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A load of `value`.
    Load,
    /// A store of `value`; in the persistent space a persist. An atomic read-modify-write is a load and a store
    /// of one thread with nothing between them.
    Store,
    /// A persist barrier.
    Barrier,
    /// A strand barrier: a new strand begins.
    Strand,
    /// A persist sync: the thread waited until everything that it did or saw was durable.
    Sync,
}

/// One step of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The thread, from zero.
    pub thread: u16,
    /// What it did.
    pub kind: Kind,
    /// To which memory; [`Space::Volatile`] for what is no access.
    pub space: Space,
    /// How many bytes, 1 to 8, all in one aligned word; zero for what is no access.
    pub len: u8,
    /// The first byte's address.
    pub address: u64,
    /// The bytes loaded or stored, little-endian.
    pub value: u64,
}

impl Event {
    /// A barrier, a strand barrier or a sync of `thread`.
    pub fn mark(thread: u16, kind: Kind) -> Event {
        Event { thread, kind, space: Space::Volatile, len: 0, address: 0, value: 0 }
    }

    /// Whether it touches memory.
    pub fn is_access(&self) -> bool {
        matches!(self.kind, Kind::Load | Kind::Store)
    }

    /// Whether it is a store to persistent memory.
    pub fn is_persist(&self) -> bool {
        self.kind == Kind::Store && self.space == Space::Persistent
    }

    /// The address of the word that it touches.
    pub fn word(&self) -> u64 {
        self.address / WORD * WORD
    }

    /// The bytes of [`Event::value`].
    pub fn bytes(&self) -> [u8; 8] {
        self.value.to_le_bytes()
    }

    /// Why it cannot be an event; `None` when it can.
    fn fault(&self) -> Option<&'static str> {
        let fits = u64::from(self.len) <= WORD - self.address % WORD;
        match self.is_access() {
            true if self.len == 0 || !fits => Some("its bytes are not in one aligned word"),
            true if self.len < 8 && self.value >> (8 * self.len) != 0 => {
                Some("its value has more bytes than it")
            }
            false if (self.len, self.address, self.value) != (0, 0, 0) => {
                Some("it has an address and is no access")
            }
            _ => None,
        }
    }
}

/// The steps of all threads in the order in which they took effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    events: Vec<Event>,
}

impl Trace {
    /// No steps.
    pub fn new() -> Trace {
        Trace::default()
    }

    /// The steps in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// How many threads there are: one more than the highest number.
    pub fn threads(&self) -> usize {
        self.events.iter().map(|event| usize::from(event.thread) + 1).max().unwrap_or(0)
    }

    /// Appends one step.
    ///
    /// # Errors
    /// `InvalidInput` when it is no possible step.
    pub fn push(&mut self, event: Event) -> Result<()> {
        if let Some(fault) = event.fault() {
            let message =
                format!("event {}: {fault}: {event:?}; cut accesses at words of 8 bytes", self.events.len());
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        self.events.push(event);
        Ok(())
    }

    /// Appends a load or a store of `bytes` at `address`, cut into words.
    pub fn access(&mut self, thread: u16, kind: Kind, space: Space, address: u64, bytes: &[u8]) {
        self.events.extend(pieces(thread, kind, space, address, bytes));
    }

    /// Appends a barrier, a strand barrier or a sync.
    pub fn mark(&mut self, thread: u16, kind: Kind) {
        self.events.push(Event::mark(thread, kind));
    }
}

impl FromIterator<Event> for Trace {
    fn from_iter<I: IntoIterator<Item = Event>>(events: I) -> Trace {
        Trace { events: events.into_iter().collect() }
    }
}

/// The access as events of one word each, lowest address first.
pub(crate) fn pieces(
    thread: u16,
    kind: Kind,
    space: Space,
    address: u64,
    bytes: &[u8],
) -> impl Iterator<Item = Event> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = address + done as u64;
        let len = ((WORD - at % WORD) as usize).min(bytes.len() - done);
        if len == 0 {
            return None;
        }
        let mut word = [0; 8];
        word[..len].copy_from_slice(&bytes[done..done + len]);
        done += len;
        Some(Event { thread, kind, space, len: len as u8, address: at, value: u64::from_le_bytes(word) })
    })
}

#[cfg(test)]
#[path = "trace_test.rs"]
mod trace_test;
