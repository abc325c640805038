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

    pub fn note(&mut self, keyspace: u32, position: u64, found: Newest) {
        if position % self.passes != self.pass {
            return;
        }
        let known = self.newest.entry((keyspace, position)).or_insert(found);
        // Of copies one that is met.
        if (found.seq, found.is_reached) > (known.seq, known.is_reached) {
            *known = found;
        }
    }

    pub fn take(&mut self) -> BTreeMap<(u32, u64), Newest> {
        std::mem::take(&mut self.newest)
    }
}
