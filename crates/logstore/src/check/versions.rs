//! The newest version of each key, out of the records of all segments.

use super::CheckReport;
use crate::collect::{AtPosition, Buckets, Collected};
use crate::format::record::{FLAG_COLLIDES, RecordHeader, SEQ_MAX, is_tombstone};
use crate::format::summary::SummaryEntry;
use crate::format::superblock::KeyspaceEntry;
use crate::location::UNIT_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use tierstone_base::{Position, Seq};

/// One version of a key, in 40 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    position: u64,
    /// Number of the keyspace above the complement of the sequence: newer versions come first.
    order: u64,
    /// A second hash of the key; zero where the record is not readable.
    fingerprint: u64,
    /// Units above flags; lost versions carry the finding (from one) in [`Version::finding`].
    units_and_flags: u32,
    /// Zero: the record is served. Otherwise it is lost, to the finding of this number less one.
    finding: u32,
    /// Segment above unit; [`NO_PLACE`] where no whole record is left.
    place: u64,
}

/// The place of a record that is not whole.
const NO_PLACE: u64 = u64::MAX;

/// Lost to a finding that is not in the list.
const FINDING_UNLISTED: u32 = u32::MAX;

/// What is to be saved.
#[derive(Debug, Default)]
struct Saved {
    /// Places of the records.
    places: Vec<(u32, u32)>,
    /// Segments that may have been free: what is whole there may be too old.
    doubtful: BTreeSet<u32>,
}

/// A touch of a value that is to be saved.
#[derive(Clone, Copy, Debug)]
struct SavedTouch {
    keyspace: u32,
    position: u64,
    /// The sequence that it names.
    value_seq: Seq,
    seq: Seq,
    expiry_ms: u64,
}

impl AtPosition for Version {
    fn position(&self) -> u64 {
        self.position
    }
}

impl AtPosition for SavedTouch {
    fn position(&self) -> u64 {
        self.position
    }
}

/// Collects versions of keys, of as many positions in a pass as its memory allows.
#[derive(Debug)]
pub(super) struct Versions {
    keyspaces: BTreeMap<u32, u64>,
    /// By their numbers, whether users' keys are in them; else pieces of large values, and notes about them.
    of_users: Vec<bool>,
    all: Buckets<Version, SavedTouch>,
    /// Where that is wanted.
    saved: Option<Saved>,
    /// Where records are to be saved: of each value that touches name (keyspace, position and sequence), the
    /// sequence of the newest touch and the expiry that it says.
    touches: BTreeMap<(u32, u64, u64), (u64, u64)>,
}

/// Why a record is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is served.
    Served,
    /// It is lost, to the finding at this place in the list.
    Lost(Option<usize>),
}

impl Versions {
    pub(super) fn new(keyspaces: &[KeyspaceEntry]) -> Self {
        let of_users = keyspaces.iter().map(|keyspace| keyspace.id.is_user()).collect();
        let keyspaces = keyspaces.iter().zip(0..).map(|(keyspace, number)| (keyspace.id.0, number)).collect();
        Versions { keyspaces, of_users, all: Buckets::new((0, 0), 0), saved: None, touches: BTreeMap::new() }
    }

    /// From now on the newest whole version of each key is to be saved.
    pub(super) fn save(&mut self) {
        self.saved = Some(Saved::default());
    }

    /// Whether `segment` was in use is not known: what is saved of it may be too old.
    pub(super) fn doubt(&mut self, segment: u32) {
        if let Some(saved) = &mut self.saved {
            saved.doubtful.insert(segment);
        }
    }

    /// The places of what is to be saved of this pass, in order.
    pub(super) fn take_saved(&mut self) -> Vec<(u32, u32)> {
        let mut saved =
            self.saved.as_mut().map(|saved| std::mem::take(&mut saved.places)).unwrap_or_default();
        saved.sort_unstable();
        saved
    }

    /// When the record of a value that is to be saved expires, touches included.
    pub(super) fn expiry_of(&self, header: &RecordHeader, position: Position) -> u64 {
        let touch = self.touches.get(&(header.keyspace.0, position.0, header.seq));
        touch.map_or(header.expiry_ms, |&(_, expiry_ms)| expiry_ms)
    }

    /// In how many passes `records` records fit the memory, about.
    pub(super) fn plan(&self, records: u64, memory_bytes: u64) -> u32 {
        let needed = records.saturating_mul(size_of::<Version>() as u64);
        u32::try_from(needed.div_ceil(memory_bytes.max(1)).max(1)).unwrap_or(u32::MAX)
    }

    /// Begins a pass over positions from `first` on.
    pub(super) fn begin(&mut self, first: u64, memory_bytes: u64) {
        self.all = Buckets::new((first, u64::MAX), memory_bytes);
        self.touches.clear();
    }

    /// Takes one record. Those of keyspaces that were dropped are void. `segment`: where it is whole.
    pub(super) fn push(&mut self, entry: &SummaryEntry, fingerprint: u64, fate: Fate, segment: Option<u32>) {
        let Some(&keyspace) = self.keyspaces.get(&entry.keyspace.0) else { return };
        if entry.is_touch() {
            if self.saved.is_some() {
                self.all.push_touch(SavedTouch {
                    keyspace: entry.keyspace.0,
                    position: entry.position.0,
                    value_seq: entry.touched.seq,
                    seq: entry.seq,
                    expiry_ms: entry.expiry_ms,
                });
            }
            return;
        }
        self.all.push(Version {
            position: entry.position.0,
            order: (keyspace << 48) | SEQ_MAX.saturating_sub(entry.seq),
            fingerprint,
            units_and_flags: entry.units << 8 | u32::from(entry.flags),
            finding: match fate {
                Fate::Served => 0,
                Fate::Lost(place) => place.map_or(FINDING_UNLISTED, |place| place as u32 + 1),
            },
            place: segment.map_or(NO_PLACE, |segment| u64::from(segment) << 32 | u64::from(entry.unit)),
        });
    }

    /// Finds the newest versions of this pass; where the next one begins, if positions are left.
    pub(super) fn finish(&mut self, report: &mut CheckReport) -> Option<u64> {
        let all = std::mem::replace(&mut self.all, Buckets::new((0, 0), 0));
        let next = all.to().checked_add(1);
        for Collected { records, touches } in all.into_lists() {
            for touch in touches {
                let key = (touch.keyspace, touch.position, touch.value_seq);
                let newest = self.touches.entry(key).or_default();
                *newest = (*newest).max((touch.seq, touch.expiry_ms));
            }
            self.finish_range(records, report);
        }
        next
    }

    /// The same of some positions.
    fn finish_range(&mut self, mut all: Vec<Version>, report: &mut CheckReport) {
        all.sort_unstable();
        let is_same = |a: &Version, b: &Version| a.position == b.position && a.order >> 48 == b.order >> 48;
        for versions in all.chunk_by(is_same) {
            let collides = versions.iter().any(|version| version.units_and_flags as u8 & FLAG_COLLIDES != 0);
            let number = versions.first().map_or(0, |version| version.order >> 48);
            let is_user = self.of_users.get(number as usize).is_none_or(|is_user| *is_user);
            if !collides {
                newest(versions, is_user, report, &mut self.saved);
                continue;
            }
            let mut keys: BTreeMap<u64, Vec<Version>> = BTreeMap::new();
            for version in versions {
                keys.entry(version.fingerprint).or_default().push(*version);
            }
            keys.values().for_each(|versions| newest(versions, is_user, report, &mut self.saved));
        }
    }
}

/// Counts one key. `versions`: newest first; the cleaner may have left two records of one version. `is_user`: it is a user's.
fn newest(versions: &[Version], is_user: bool, report: &mut CheckReport, saved: &mut Option<Saved>) {
    let Some(first) = versions.first() else { return };
    if let Some(saved) = saved {
        save_newest(first.order, versions, report, saved);
    }
    let mut copies = versions.iter().take_while(|version| version.order == first.order);
    if let Some(whole) = copies.clone().find(|version| version.finding == 0) {
        if !is_tombstone(whole.units_and_flags as u8) {
            report.live_keys += 1;
            report.live_pieces += u64::from(!is_user);
            report.live_bytes += u64::from(whole.units_and_flags >> 8) * UNIT_BYTES as u64;
        }
        return;
    }
    report.lost_keys += 1;
    if let Some(lost) = copies.next()
        && let Some(finding) = report.findings.get_mut(lost.finding as usize - 1)
    {
        finding.lost_keys += 1;
    }
}

/// Saves the newest whole version, if it is a value.
fn save_newest(newest: u64, versions: &[Version], report: &mut CheckReport, saved: &mut Saved) {
    let Some(whole) = versions.iter().find(|version| version.place != NO_PLACE) else {
        report.unsaved_keys += 1;
        return;
    };
    let (segment, unit) = ((whole.place >> 32) as u32, whole.place as u32);
    report.reverted_keys += u64::from(whole.order != newest || saved.doubtful.contains(&segment));
    if !is_tombstone(whole.units_and_flags as u8) {
        saved.places.push((segment, unit));
        report.saved_keys += 1;
    }
}
