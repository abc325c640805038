//! What the addresses of a foreign program mean: which are persistent, and a store to which stands for a barrier.
//!
//! The format stands in `docs/formats/persist-trace.md`.

use crate::trace::{Kind, WORD, text::number};
use std::collections::BTreeMap;
use tierstone_base::{Error, ErrorKind, Result};

const TITLE: &str = "persist-map 1";
/// Ranges and markers of one map at most.
const ENTRIES_MAX: usize = 4_096;
/// Persistent ranges begin at multiples of this in the trace, so that they share no block with each other, and keep
/// their places in blocks.
const ALIGN: u64 = 4_096;

/// What a store to an address stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// A barrier, a strand or a sync of the thread that stores.
    Mark(Kind),
    /// From here on the steps are those of another thread.
    Thread(u16),
}

/// What an access is to the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// To persistent memory, at this address of the trace.
    Persistent(u64),
    /// To volatile memory.
    Volatile,
    /// To nothing that matters.
    Ignored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
    /// Where it begins in the trace; `None` for what is ignored.
    at: Option<u64>,
}

/// A map. Ranges do not overlap; their bounds are multiples of 8.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressMap {
    /// By their starts.
    ranges: Vec<Range>,
    markers: BTreeMap<u64, Marker>,
    persistent_bytes: u64,
}

impl AddressMap {
    /// Reads a map.
    ///
    /// # Errors
    /// `Incompatible` for what is no map, `InvalidInput` for a line that is wrong, with its number.
    pub fn parse(text: &str) -> Result<AddressMap> {
        let mut lines = (1..).zip(text.lines());
        if lines.next().is_none_or(|(_, line)| line.trim() != TITLE) {
            let message = format!("this is no map of version 1: its first line is not '{TITLE}'");
            return Err(Error::new(ErrorKind::Incompatible, message));
        }
        let mut map = AddressMap::default();
        for (line_number, line) in lines {
            let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
            map.take(&words).map_err(|why| {
                let message = format!("map, line {line_number} ('{}'): {why}", line.trim());
                Error::new(ErrorKind::InvalidInput, message)
            })?;
        }
        map.place()?;
        Ok(map)
    }

    /// Bytes of persistent memory in the trace: every address of it is below.
    pub fn persistent_bytes(&self) -> u64 {
        self.persistent_bytes
    }

    /// What an access to the word around `address` means.
    pub fn meaning(&self, address: u64) -> Meaning {
        let after = self.ranges.partition_point(|range| range.start <= address);
        let range = after.checked_sub(1).and_then(|at| self.ranges.get(at));
        match range.filter(|range| address < range.end) {
            Some(Range { at: Some(at), start, .. }) => Meaning::Persistent(at + (address - start)),
            Some(_) => Meaning::Ignored,
            None => Meaning::Volatile,
        }
    }

    /// The first marker among `len` bytes from `address`.
    pub fn marker(&self, address: u64, len: u64) -> Option<Marker> {
        let end = address.saturating_add(len);
        self.markers.range(address..end).next().map(|(_, marker)| *marker)
    }

    /// Whether stores to some addresses tell which thread goes on.
    pub fn tells_threads(&self) -> bool {
        self.markers.values().any(|marker| matches!(marker, Marker::Thread(_)))
    }

    fn take(&mut self, words: &[&str]) -> std::result::Result<(), String> {
        if self.ranges.len() + self.markers.len() >= ENTRIES_MAX {
            return Err(format!("a map has {ENTRIES_MAX} entries at most"));
        }
        let address = |word: &str| number(word).ok_or_else(|| format!("'{word}' is no address"));
        match words {
            [] => Ok(()),
            [what @ ("persistent" | "ignore"), start, end] => {
                let (start, end) = (address(start)?, address(end)?);
                if start >= end || !start.is_multiple_of(WORD) || !end.is_multiple_of(WORD) {
                    return Err("a range is START END, multiples of 8, the end behind the start".to_owned());
                }
                self.ranges.push(Range { start, end, at: (*what == "persistent").then_some(0) });
                Ok(())
            }
            ["barrier", at] => self.mark(address(at)?, Marker::Mark(Kind::Barrier)),
            ["strand", at] => self.mark(address(at)?, Marker::Mark(Kind::Strand)),
            ["sync", at] => self.mark(address(at)?, Marker::Mark(Kind::Sync)),
            ["thread", thread, at] => {
                let thread = thread.parse().map_err(|_| format!("'{thread}' is no thread below 65,536"))?;
                self.mark(address(at)?, Marker::Thread(thread))
            }
            _ => Err(
                "not one of: persistent START END, ignore START END, barrier ADDRESS, strand ADDRESS, sync \
                      ADDRESS, thread NUMBER ADDRESS"
                    .to_owned(),
            ),
        }
    }

    fn mark(&mut self, address: u64, marker: Marker) -> std::result::Result<(), String> {
        match self.markers.insert(address, marker) {
            None => Ok(()),
            Some(_) => Err(format!("{address:#x} stands for something already")),
        }
    }

    /// Gives the persistent ranges their places in the trace, in the order of their addresses.
    fn place(&mut self) -> Result<()> {
        self.ranges.sort_unstable_by_key(|range| range.start);
        let wrong = |message: String| Err(Error::new(ErrorKind::InvalidInput, message));
        if let Some([first, second]) =
            self.ranges.array_windows().find(|[first, second]| second.start < first.end)
        {
            return wrong(format!(
                "map: the ranges from {:#x} and from {:#x} overlap",
                first.start, second.start
            ));
        }
        let mut end = 0u64;
        for range in self.ranges.iter_mut().filter(|range| range.at.is_some()) {
            let at = end.checked_next_multiple_of(ALIGN).and_then(|at| at.checked_add(range.start % ALIGN));
            let fits = at.and_then(|at| Some((at, at.checked_add(range.end - range.start)?)));
            let Some((at, its_end)) = fits else {
                return wrong("map: the persistent ranges do not fit an address space".to_owned());
            };
            (range.at, end) = (Some(at), its_end);
        }
        self.persistent_bytes = end;
        Ok(())
    }
}
