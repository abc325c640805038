//! Which segment of long values is emptied, and where what lives in it goes: to free units of other segments of its class.
//!
//! Invariants:
//! 1. A segment is chosen only when all of its runs have found room elsewhere, which is theirs from then on.
//! 2. Room that a run does not need, for its value went, is free again at the end.

use super::{CLASSES, GOING, NO_RUN, OverflowBlocks, UNNAMED};
use crate::format::Extent;
use std::collections::BTreeMap;
use tierstone_base::Result;

/// Segments for which room is looked for at a time.
const CANDIDATES: usize = 8;

/// A search for a segment that can be emptied.
#[derive(Debug)]
pub(super) struct Search {
    /// Percent of a segment that may be taken.
    percent: u64,
    /// Classes and segments that were not tried yet, that with fewest bytes last.
    left: Vec<(usize, u32)>,
}

/// What a search has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sought {
    /// A segment is being emptied.
    Found,
    /// Others are still to be tried.
    GoesOn,
    /// None can be, those left out that were given up.
    Nothing,
}

/// The segment that is being emptied.
#[derive(Debug)]
pub(super) struct Moves {
    class: usize,
    segment: u32,
    /// The room of each run, by where that begins.
    places: BTreeMap<u64, Extent>,
}

/// What is to be done for a segment to become empty.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Remaining {
    /// Blocks with records that name what lies there.
    pub blocks: Vec<u32>,
    /// Something waits for the log to be truncated.
    pub is_going: bool,
}

impl OverflowBlocks {
    /// The segment that is being emptied.
    pub fn emptying(&self) -> Option<u32> {
        self.moves.as_ref().map(|moves| moves.segment)
    }

    /// Units that are taken in the segment that is being emptied.
    pub fn left_units(&self) -> u64 {
        let own = self.moves.as_ref().and_then(|moves| self.classes[moves.class].get(moves.segment));
        own.map_or(0, |own| own.taken)
    }

    /// Chooses the segment with fewest bytes taken, of those of which so many percent are at most and that find room in others
    /// of their class. Cost: a look at each segment when a search begins, and at each run of some.
    pub fn begin_emptying(&mut self, percent_max: u64) -> Result<Sought> {
        if self.moves.is_some() {
            return Ok(Sought::Found);
        }
        let mut search = match self.search.take().filter(|search| search.percent >= percent_max) {
            Some(search) => search,
            None if self.was_tried(percent_max) => return Ok(Sought::Nothing),
            None => Search { percent: percent_max, left: self.candidates(percent_max) },
        };
        for _ in 0..CANDIDATES {
            let Some((class, segment)) = search.left.pop() else { break };
            // What is marked for a plan and unmarked again is no change.
            let changes = self.changes;
            if self.may_go(class, segment, search.percent) && self.plan(class, segment)? {
                return Ok(Sought::Found);
            }
            self.changes = changes;
        }
        if !search.left.is_empty() {
            self.search = Some(search);
            return Ok(Sought::GoesOn);
        }
        self.tried = Some((self.changes, search.percent));
        Ok(Sought::Nothing)
    }

    /// Segments that were given up may be chosen again. Whether there are some.
    pub fn unbar(&mut self) -> bool {
        let were_some = !self.barred.is_empty();
        self.barred.clear();
        if were_some {
            // Room for what they hold may have come without a run of long values being freed.
            self.tried = None;
        }
        were_some
    }

    fn was_tried(&self, percent_max: u64) -> bool {
        self.tried.is_some_and(|(changes, percent)| changes == self.changes && percent_max <= percent)
    }

    /// All segments that may be emptied, that with fewest bytes last.
    fn candidates(&self, percent_max: u64) -> Vec<(usize, u32)> {
        let mut found = Vec::new();
        // A whole segment cannot gain anything.
        for (class, segments) in self.classes[..CLASSES - 1].iter().enumerate() {
            let units = self.units(class);
            let taken: u64 = segments.iter().map(|(_, own)| own.taken).sum();
            let free = segments.len() as u64 * units - taken;
            let may_go = segments.iter().filter(|(segment, own)| {
                let elsewhere = free - (units - own.taken);
                own.taken <= elsewhere && self.may_go(class, *segment, percent_max)
            });
            found.extend(may_go.map(|(segment, own)| (own.taken * self.unit(class), class, segment)));
        }
        found.sort_unstable_by(|one, other| other.cmp(one));
        found.into_iter().map(|(_, class, segment)| (class, segment)).collect()
    }

    fn may_go(&self, class: usize, segment: u32, percent_max: u64) -> bool {
        let taken = self.classes[class].get(segment).map_or(0, |own| own.taken);
        taken > 0 && taken * 100 <= self.units(class) * percent_max && !self.barred.contains(&segment)
    }

    /// Takes room for all runs of a segment but those that go anyway; whether there is some.
    fn plan(&mut self, class: usize, segment: u32) -> Result<bool> {
        let unit = self.unit(class);
        let start = self.maker.layout.segment(segment);
        let runs = self.runs(class, segment);
        self.moves = Some(Moves { class, segment, places: BTreeMap::new() });
        // Behind where one of its length found room the next one does.
        let mut from = BTreeMap::<u64, u32>::new();
        for (first, count, named_by) in runs {
            if named_by == GOING {
                continue;
            }
            let Some((to, at)) = self.room(class, count, from.get(&count).copied().unwrap_or(0)) else {
                self.end_emptying()?;
                return Ok(false);
            };
            from.insert(count, to);
            self.mark(class, to, at, count);
            let offset = self.maker.layout.segment(to) + at * unit;
            let room = Extent { offset, len: (count * unit) as u32 };
            if let Some(moves) = &mut self.moves {
                moves.places.insert(start + first * unit, room);
            }
        }
        Ok(true)
    }

    /// The runs of a segment: where they begin, how many units they have, who names them.
    fn runs(&self, class: usize, segment: u32) -> Vec<(u64, u64, u32)> {
        let Some(own) = self.classes[class].get(segment) else { return Vec::new() };
        let (mut runs, mut at) = (Vec::new(), 0);
        while at < self.units(class) {
            let named_by = own.named_by[at as usize];
            let first = at;
            at += 1;
            if named_by == NO_RUN {
                continue;
            }
            while own.is_taken(at) && own.named_by.get(at as usize) == Some(&NO_RUN) {
                at += 1;
            }
            runs.push((first, at - first, named_by));
        }
        runs
    }

    /// What keeps the segment that is being emptied.
    pub fn remaining(&self) -> Option<Remaining> {
        let moves = self.moves.as_ref()?;
        let own = self.classes[moves.class].get(moves.segment)?;
        let mut blocks: Vec<u32> = own.named_by.iter().copied().filter(|&by| by < GOING).collect();
        blocks.sort_unstable();
        blocks.dedup();
        Some(Remaining { blocks, is_going: own.named_by.contains(&GOING) })
    }

    /// Whether it lies in the segment that is being emptied.
    pub fn is_leaving(&self, extent: &Extent) -> bool {
        let layout = &self.maker.layout;
        self.moves.as_ref().is_some_and(|moves| {
            let start = layout.segment(moves.segment);
            let end = start + layout.geometry.segment_bytes;
            (start..end).contains(&extent.offset) && extent.offset + u64::from(extent.len) <= end
        })
    }

    /// Where what lies at `extent` goes, if there is room. The room is taken, and the caller's.
    pub fn take_place(&mut self, extent: &Extent) -> Result<Option<Extent>> {
        let Some(moves) = &mut self.moves else { return Ok(None) };
        let (class, planned) = (moves.class, moves.places.remove(&extent.offset));
        let unit = self.unit(class);
        let wanted = u64::from(extent.len).div_ceil(unit);
        match planned {
            Some(room) if u64::from(room.len) == wanted * unit => {
                return Ok(Some(Extent { offset: room.offset, len: extent.len }));
            }
            Some(other) => self.free(&[other])?,
            None => {}
        }
        // It came after the others had found room.
        let Some((segment, first)) = self.room(class, wanted, 0) else { return Ok(None) };
        self.mark(class, segment, first, wanted);
        let offset = self.maker.layout.segment(segment) + first * unit;
        Ok(Some(Extent { offset, len: extent.len }))
    }

    /// Leaves the segment as it is, and takes others first.
    pub fn give_emptying_up(&mut self) -> Result<()> {
        self.barred.extend(self.emptying());
        self.end_emptying()
    }

    /// The segment is empty, or stays: room that nothing needed is free.
    pub(super) fn end_emptying(&mut self) -> Result<()> {
        let Some(moves) = self.moves.take() else { return Ok(()) };
        let unneeded: Vec<Extent> = moves.places.into_values().collect();
        self.free(&unneeded)
    }
}

const _: () = assert!(UNNAMED > GOING && NO_RUN > GOING, "blocks have smaller numbers");
