//! Traces of programs that do not know this library: memory accesses as a foreign tool recorded them, and a map of
//! what their addresses mean.
//!
//! Invariants:
//! 1. Memory and time are bounded by [`ImportSettings::steps_max`], whatever the input says.
//! 2. Every address of persistent memory in the trace is below [`Import::persistent_bytes`].

pub mod lackey;
mod map;

pub use map::{AddressMap, Marker, Meaning};

use crate::trace::{Event, Kind, Space, Trace, WORD};
use tierstone_base::{Error, ErrorKind, Result};

/// How a foreign trace is read.
pub struct ImportSettings<'a> {
    /// Steps of the trace at most: 24 bytes of memory each. Default 20 million.
    pub steps_max: usize,
    /// Whether a trace that does not tell the program's end is taken all the same. Default: no.
    pub allow_cut: bool,
    /// Whether a trace that never tells which thread goes on is taken for that of one thread. Default: no.
    pub one_thread: bool,
    /// Called now and then with the steps so far; an error ends the import.
    pub progress: &'a dyn Fn(u64) -> Result<()>,
}

impl Default for ImportSettings<'_> {
    fn default() -> Self {
        ImportSettings { steps_max: 20_000_000, allow_cut: false, one_thread: false, progress: &|_| Ok(()) }
    }
}

impl std::fmt::Debug for ImportSettings<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = formatter.debug_struct("ImportSettings");
        shown.field("steps_max", &self.steps_max).field("allow_cut", &self.allow_cut);
        shown.field("one_thread", &self.one_thread).finish_non_exhaustive()
    }
}

/// What an import gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Import {
    /// The steps.
    pub trace: Trace,
    /// Bytes of persistent memory.
    pub persistent_bytes: u64,
    /// Loads and stores of the source, those ignored included.
    pub accesses: u64,
    /// Those that the map ignores.
    pub ignored: u64,
    /// Steps that are persists.
    pub persists: u64,
    /// Steps that are barriers, strands and syncs.
    pub marks: u64,
}

/// Reads a trace of our own by `map`: what addresses it persists to, and what stores stand for barriers, is taken
/// from the map; its own barriers, strands and syncs stay.
///
/// # Errors
/// `InvalidInput` for more steps than the settings allow, and for an access of the last bytes of all addresses, with the
/// number of its step.
pub fn remap(trace: &Trace, map: &AddressMap, settings: &ImportSettings<'_>) -> Result<Import> {
    let mut importer = Importer::new(map, settings);
    for (step, event) in trace.events().iter().enumerate() {
        importer.switch(event.thread);
        let taken = match event.is_access() {
            true => importer.access(&[event.kind], event.address, u64::from(event.len), Some(event.value)),
            false => importer.mark(event.kind),
        };
        taken.map_err(|error| error.context(&format!("step {step}")))?;
    }
    Ok(importer.finish())
}

/// Builds the trace.
struct Importer<'a> {
    map: &'a AddressMap,
    steps_max: usize,
    thread: u16,
    stores: u64,
    import: Import,
}

impl<'a> Importer<'a> {
    fn new(map: &'a AddressMap, settings: &ImportSettings<'_>) -> Importer<'a> {
        let import = Import { persistent_bytes: map.persistent_bytes(), ..Import::default() };
        Importer { map, steps_max: settings.steps_max, thread: 0, stores: 0, import }
    }

    fn steps(&self) -> u64 {
        self.import.trace.events().len() as u64
    }

    fn switch(&mut self, thread: u16) {
        self.thread = thread;
    }

    fn mark(&mut self, kind: Kind) -> Result<()> {
        self.import.marks += 1;
        self.push(Event::mark(self.thread, kind))
    }

    /// An access of `len` bytes, of each of `kinds` in turn. Without a `value` a store gets its number.
    fn access(&mut self, kinds: &[Kind], address: u64, len: u64, value: Option<u64>) -> Result<()> {
        // As of a recording of lackey: of the last bytes there is no end, and none may be lost without a word.
        let Some(end) = address.checked_add(len) else {
            let message = format!(
                "an access of {len} bytes at {address:#x} reaches the end of all addresses; leave it out"
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        };
        self.import.accesses += 1;
        let stores = kinds.contains(&Kind::Store);
        if stores && let Some(marker) = self.map.marker(address, len) {
            return match marker {
                Marker::Mark(kind) => self.mark(kind),
                Marker::Thread(thread) => {
                    self.switch(thread);
                    Ok(())
                }
            };
        }
        self.stores += u64::from(stores);
        let mut was_ignored = false;
        for &kind in kinds {
            let mut at = address;
            while at < end {
                let piece = (WORD - at % WORD).min(end - at);
                was_ignored |= !self.piece(kind, at, piece, value)?;
                at += piece;
            }
        }
        self.import.ignored += u64::from(was_ignored);
        Ok(())
    }

    /// The part of an access in one word; whether the map wants it.
    fn piece(&mut self, kind: Kind, address: u64, len: u64, value: Option<u64>) -> Result<bool> {
        let (space, address) = match self.map.meaning(address) {
            Meaning::Ignored => return Ok(false),
            Meaning::Volatile => (Space::Volatile, address),
            Meaning::Persistent(at) => (Space::Persistent, at),
        };
        let number = if kind == Kind::Store { self.stores } else { 0 };
        let bits = 64 - 8 * len as u32;
        let value = value.unwrap_or(number) << bits >> bits;
        self.import.persists += u64::from(kind == Kind::Store && space == Space::Persistent);
        self.push(Event { thread: self.thread, kind, space, len: len as u8, address, value })?;
        Ok(true)
    }

    fn push(&mut self, event: Event) -> Result<()> {
        if self.import.trace.events().len() >= self.steps_max {
            let message = format!(
                "the trace has more than {} steps; leave memory out that does not matter (ignore), or allow more",
                self.steps_max
            );
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        self.import.trace.push(event)
    }

    fn finish(self) -> Import {
        self.import
    }
}

#[cfg(test)]
#[path = "import_test.rs"]
mod import_test;
