//! The newest record of each key, by keyspace and position: two keys of one position are taken for one.

use std::collections::BTreeMap;
use tierstone_base::Seq;

/// The newest record of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newest {
    pub seq: Seq,
    /// Where it lies, in a block or in a frame.
    pub place: u64,
    pub len: u32,
    pub is_tombstone: bool,
    pub is_overflow: bool,
    /// An opening meets it.
    pub is_reached: bool,
    /// It was found at another place, too: in a frame, or as a copy of the cleaner's.
    pub has_twin: bool,
}

/// Those of one pass: keys whose position leaves `pass` when divided by `passes`.
#[derive(Debug)]
pub(super) struct Keys {
    pass: u64,
    passes: u64,
    newest: BTreeMap<(u32, u64), Newest>,
}

impl Keys {
    pub fn new((pass, passes): (u64, u64)) -> Keys {
        Keys { pass, passes, newest: BTreeMap::new() }
    }

    /// Whether keys of this position are looked at in this pass.
    pub fn is_of_pass(&self, position: u64) -> bool {
        position % self.passes == self.pass
    }

    pub fn note(&mut self, keyspace: u32, position: u64, found: Newest) {
        if !self.is_of_pass(position) {
            return;
        }
        let known = self.newest.entry((keyspace, position)).or_insert(found);
        let has_twin = found.seq == known.seq && (known.has_twin || found.place != known.place);
        known.has_twin |= has_twin;
        // Of copies one that is met.
        if (found.seq, found.is_reached) > (known.seq, known.is_reached) {
            *known = Newest { has_twin, ..found };
        }
    }

    pub fn take(&mut self) -> BTreeMap<(u32, u64), Newest> {
        std::mem::take(&mut self.newest)
    }
}
