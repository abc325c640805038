//! Partial on-line mirrors: pairs that sleep whole, both disks, while their hot rows lie mirrored on a
//! pair that stays awake.
//!
//! Source: Snyder et al., *QMD*, DaMoN 2011, section 5, a design without numbers. Who uses the volume
//! declares ranges cold; everything else is hot. Hot ranges are always on disks that turn; a cold one may
//! cost the start of a disk, and [`RangeStatus::needs_start`] says so beforehand. A pair that sleeps whole is
//! first an ordinary sleeping pair (its second disk stands, the flash buffer has what it lacks); then its
//! hot rows are copied into spare rows at the end of both disks of another pair, the *host*, which stays
//! awake, a map says so durably, and its first disk stops. Cold requests start that disk alone. When the
//! pair wakes its rows come home. The copy stays, and next time only what was written since is copied.
//!
//! What the source leaves open is decided so: nothing is cold unless declared, so nobody waits who did not
//! say so; cold ranges are rounded inwards to chunks, hot ones outwards; a host is awake on both disks; a range
//! whose class changes on a pair that sleeps whole brings that pair home first.
//!
//! Invariants:
//! 1. The map that counts names a copy only when every row of it was durable on both disks of the host;
//!    it ceases to name it only when every row is durable at home.
//! 2. A hot row of a pair that is away is read and written at its host only; its place at home is old.
//! 3. `Away::differing` holds every row in which the copy that counts was written since both were equal.
//! 4. Both disks of a host have every map since it became one; so an opening that has one of them knows.
//!
//! What a crash leaves: a map that names copies. Opening brings all of them home before anything is read;
//! doing so twice does no harm. Copies that no map names are void.

mod format;
mod moves;
mod ranges;
mod whole;

use crate::layout::{Layout, Place};
use crate::policy::{WholeHistory, WholePolicy};
use crate::superblock::{Slot, Superblock};
use format::{GuestEntry, RangeMap, SLOT_BYTES};
use ranges::{Runs, complement, count, rank, rows_of};
use std::collections::BTreeSet;
use std::ops::Range;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::IoBuffer;

/// Where the two slots of the map begin on a member.
pub(crate) const MAP_START: u64 = crate::core::JOURNAL_START;
/// Bytes of both slots.
pub(crate) const MAP_BYTES: u64 = 2 * SLOT_BYTES as u64;

/// What a range is to those who use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeClass {
    /// Always on disks that turn.
    Hot,
    /// A request may have to wait until a disk has started.
    Cold,
}

/// What is true of a range of the volume now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeStatus {
    /// Bytes of the volume.
    pub bytes: Range<u64>,
    /// What it was declared, in whole chunks.
    pub class: RangeClass,
    /// Whether reading all of it would start a disk now.
    pub needs_start: bool,
}

/// What is true of a pair that may sleep whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartialPair {
    /// The pair on which its hot rows lie and count; `None` while they count at home.
    pub host: Option<u32>,
    /// Whether both its disks stand.
    pub sleeps_whole: bool,
    /// Whether its rows are on their way, there or back.
    pub is_moving: bool,
    /// Rows that both places do not have alike yet.
    pub rows_differing: u64,
    /// Rows copied there and back since the opening.
    pub rows_copied: u64,
}

/// Where rows go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Out,
    Home,
}

/// A copy of a pair's hot rows on its host.
#[derive(Clone, Debug)]
struct Away {
    host: u32,
    /// Its first row there.
    base: u64,
    /// The pair's rows in it.
    rows: Runs,
    /// Whether it counts, and not what is at home.
    counts: bool,
    /// Rows at home in which both may differ.
    differing: BTreeSet<u64>,
    /// Which way rows go, and how many may still be copied while requests come between.
    moving: Option<(Way, u64)>,
}

impl Away {
    fn new(host: u32, base: u64, rows: Runs, counts: bool) -> Away {
        let differing = rows.iter().flat_map(|&(first, end)| first..end).collect();
        Away { host, base, rows, counts, differing, moving: None }
    }

    fn row_there(&self, row: u64) -> Option<u64> {
        rank(&self.rows, row).map(|rank| self.base + rank)
    }

    fn is_needed(&self) -> bool {
        self.counts || self.moving.is_some()
    }
}

#[derive(Debug, Default)]
struct PairRanges {
    hot: Runs,
    away: Option<Away>,
    copied: u64,
    /// Whether cold rows were asked for since the last epoch.
    was_cold: bool,
    history: WholeHistory,
}

/// The ranges of a volume with room to spare.
#[derive(Debug)]
pub(crate) struct Partial {
    pub(crate) spare_rows: u32,
    layout: Layout,
    /// Bytes of the volume.
    end: u64,
    cold: Runs,
    sequence: u64,
    slots: Vec<Slot>,
    pairs: Vec<PairRanges>,
    policy: Option<WholePolicy>,
    keeper: Option<u32>,
}

impl Partial {
    pub(crate) fn new(superblock: &Superblock) -> Partial {
        let layout = superblock.layout;
        let mut partial = Partial {
            spare_rows: superblock.spare_rows,
            layout,
            end: superblock.geometry.end(),
            cold: Runs::new(),
            sequence: 0,
            slots: vec![Slot::default(); superblock.states.len()],
            pairs: (0..layout.groups).map(|_| PairRanges::default()).collect(),
            policy: None,
            keeper: None,
        };
        partial.reckon_hot();
        partial
    }

    /// Both slots of the map of a new volume: everything is hot.
    pub(crate) fn first_map(superblock: &Superblock) -> IoBuffer {
        let map = RangeMap { sequence: 1, ..RangeMap::default() };
        let mut slots = map.encode(superblock.volume).to_vec();
        slots.resize(MAP_BYTES as usize, 0);
        IoBuffer::from_slice(&slots)
    }

    fn reckon_hot(&mut self) {
        for pair in 0..self.pairs.len() {
            self.pairs[pair].hot = self.hot_rows(&self.cold, pair as u32);
        }
    }

    fn hot_rows(&self, cold: &Runs, pair: u32) -> Runs {
        let chunks = self.end.div_ceil(self.layout.chunk_bytes);
        rows_of(&complement(cold, chunks), u64::from(pair), u64::from(self.layout.groups))
    }

    fn first_spare_row(&self) -> u64 {
        self.layout.rows - u64::from(self.spare_rows)
    }

    fn map(&self) -> RangeMap {
        let guest = |(pair, ranges): (usize, &PairRanges)| {
            let away = ranges.away.as_ref().filter(|away| away.counts)?;
            let rows = count(&away.rows);
            Some(GuestEntry { pair: pair as u32, host: away.host, base: away.base, rows })
        };
        let guests = self.pairs.iter().enumerate().filter_map(guest).collect();
        RangeMap { sequence: self.sequence, cold: self.cold.clone(), guests }
    }

    /// Takes over a map that was read; its entries must fit the volume.
    fn adopt(&mut self, map: RangeMap) -> Result<()> {
        let corrupt = |what: String| Err(Error::new(ErrorKind::Corrupt, format!("map of ranges: {what}")));
        (self.sequence, self.cold) = (map.sequence, map.cold);
        self.reckon_hot();
        for guest in map.guests {
            let (pair, host) = (guest.pair as usize, guest.host);
            let Some(ranges) = self.pairs.get(pair) else {
                return corrupt(format!("the volume has no pair {pair}"));
            };
            let rows = ranges.hot.clone();
            let fits = guest.base >= self.first_spare_row()
                && guest.base.checked_add(guest.rows).is_some_and(|end| end <= self.layout.rows);
            if !fits || count(&rows) != guest.rows || host >= self.layout.groups || host == guest.pair {
                return corrupt(format!(
                    "pair {pair} has {} hot rows at row {} of pair {host}",
                    guest.rows, guest.base
                ));
            }
            if self.is_taken(host, guest.base, guest.base + guest.rows) || ranges.away.is_some() {
                return corrupt(format!("the rows of pair {pair} on pair {host} are another's too"));
            }
            self.pairs[pair].away = Some(Away::new(host, guest.base, rows, true));
        }
        Ok(())
    }

    /// Whether rows of `host` hold some pair's copy.
    fn is_taken(&self, host: u32, from: u64, to: u64) -> bool {
        let overlaps =
            |away: &Away| away.host == host && away.base < to && from < away.base + count(&away.rows);
        self.pairs.iter().filter_map(|ranges| ranges.away.as_ref()).any(overlaps)
    }

    /// Where `rows` free spare rows of `host` follow each other.
    fn room(&self, host: u32, rows: u64) -> Option<u64> {
        let ends = self.pairs.iter().filter_map(|ranges| ranges.away.as_ref());
        let ends = ends.filter(|away| away.host == host).map(|away| away.base + count(&away.rows));
        let mut starts: Vec<u64> = ends.chain([self.first_spare_row()]).collect();
        starts.sort_unstable();
        let fits = |base: &u64| base + rows <= self.layout.rows && !self.is_taken(host, *base, base + rows);
        starts.into_iter().find(fits)
    }

    /// Gives up copies that do not count and are not on their way on `host`.
    fn forget_copies(&mut self, host: u32) {
        for ranges in &mut self.pairs {
            if ranges.away.as_ref().is_some_and(|away| away.host == host && !away.is_needed()) {
                ranges.away = None;
            }
        }
    }

    fn away(&self, pair: u32) -> Option<&Away> {
        self.pairs.get(pair as usize)?.away.as_ref()
    }

    fn away_mut(&mut self, pair: u32) -> Option<&mut Away> {
        self.pairs.get_mut(pair as usize)?.away.as_mut()
    }

    /// Whether `pair` must be awake on both disks for others, or for rows of its own that are away.
    fn is_needed_awake(&self, pair: u32) -> bool {
        let needs = |away: &Away| away.is_needed() && away.host == pair;
        self.pairs.iter().filter_map(|ranges| ranges.away.as_ref()).any(needs)
            || self.away(pair).is_some_and(Away::is_needed)
    }

    /// Where the bytes of `place`, which lies in one chunk, count.
    fn whereabouts(&self, place: Place) -> Place {
        match self.away(place.group).filter(|away| away.counts) {
            Some(away) => match away.row_there(place.row) {
                Some(row) => Place { group: away.host, row, ..place },
                None => place,
            },
            None => place,
        }
    }

    fn note_use(&mut self, place: &Place) {
        if let Some(ranges) = self.pairs.get_mut(place.group as usize)
            && rank(&ranges.hot, place.row).is_none()
        {
            ranges.was_cold = true;
        }
    }
}
