//! From a loaded checkpoint to the index of now: the log after it is replayed, from summaries.
//!
//! For each position the loaded entries are exact as of one sequence; what is younger there is
//! replayed, for each key its newest version only. Whether a key had a record then says the flag
//! `FLAG_REPLACES` of its oldest younger version. If it had none, the newest version is put in. If it
//! had one, it is the candidate of the position when there is but one; with several, or where equal
//! positions are involved, records are read and keys compared: once in ten thousand.
//!
//! Anything that does not fit makes the checkpoint void: the summaries give the same index.

use super::find::FoundCheckpoint;
use super::load::{Loaded, load};
use super::{InForce, Tail};
use crate::collect::{Buckets, Collected};
use crate::format::checkpoint::{Commit, TouchFact};
use crate::format::record::{FLAG_COLLIDES, FLAG_REPLACES, FLAG_TOMBSTONE};
use crate::index::{Candidates, HashIndex, IndexValue};
use crate::location::{Location, Target, UNIT_BYTES};
use crate::recovery::{BuildReport, Packed, ShardPlan};
use crate::redo::snapshots::may_be_stale;
use crate::segments::Segment;
use crate::touch::{FoundTouch, Touch, TouchKey};
use std::collections::BTreeMap;
use tierstone_base::{KeyspaceId, Position};
use tierstone_media::BlockDevice;

/// A tail of fewer records is replayed whatever else there is.
const SHORT_TAIL_RECORDS: u64 = 1_000_000;

/// What a shard is made of after a replay.
pub(crate) struct Restored {
    pub indexes: Vec<(KeyspaceId, HashIndex)>,
    /// All segments, with estimates of what is live in them.
    pub segments: Vec<(u32, Segment)>,
    pub in_force: InForce,
    pub tail: Tail,
    pub report: BuildReport,
    /// Touches that count.
    pub touches: BTreeMap<TouchKey, Touch>,
}

/// What the tail says of a segment.
#[derive(Clone, Copy, Debug, Default)]
struct TailFigures {
    live_records: u32,
    live_bytes: u64,
    tombstones: u32,
    tombstone_bytes: u64,
}

struct Replay<'a> {
    plan: &'a ShardPlan,
    commit: &'a Commit,
    loaded: Loaded,
    figures: BTreeMap<u32, TailFigures>,
    candidates: Candidates,
    /// Touches after the checkpoint began.
    touches: Vec<FoundTouch>,
}

/// Loads the checkpoint and replays what came after it. `None`: it is void.
pub(crate) fn restore(
    plan: &ShardPlan,
    device: &mut dyn BlockDevice,
    checkpoint: &FoundCheckpoint,
) -> Option<Restored> {
    let (mutations, commit) = (&plan.identity.mutations, &checkpoint.commit);
    let (mut tail_records, mut tail_bytes, mut all_records) = (0, 0, 0);
    for footer in plan.footers.values() {
        all_records += u64::from(footer.records);
        if footer.max_seq > commit.seq {
            tail_records += u64::from(footer.records);
            tail_bytes += u64::from(footer.data_end);
        }
    }
    let budget = plan.collect_bytes_max() / size_of::<Packed>() as u64;
    if tail_records > budget || tail_records > (all_records / 2).max(SHORT_TAIL_RECORDS) {
        return None;
    }
    let loaded = load(device, checkpoint, &plan.keyspaces, &plan.opening)?;
    let lives: BTreeMap<u32, u64> =
        plan.segments.iter().map(|(number, segment)| (*number, segment.generation)).collect();
    let is_there = |(number, generation)| lives.get(&number) == Some(&generation);
    let all_there = loaded.facts.iter().all(|(&number, fact)| is_there((number, fact.generation)));
    if !all_there && !mutations.is_on("stale_checkpoint") && !may_be_stale(mutations) {
        return None;
    }
    let mut report = BuildReport::default();
    let (figures, candidates) = (BTreeMap::new(), Candidates::new());
    let mut replay = Replay { plan, commit, loaded, figures, candidates, touches: Vec::new() };
    if !mutations.is_on("tail_not_replayed") {
        replay.run(device, &mut report)?;
    }
    let dead: Vec<(u32, u64)> = lives.into_iter().filter(|(number, _)| replay.is_dead(*number)).collect();
    let points_to_nothing = |number: u32, count: u32| {
        count > 0 && (!plan.footers.contains_key(&number) || replay.is_dead(number))
    };
    let counts = &replay.loaded.counts;
    if (0..).zip(counts).any(|(number, &count)| points_to_nothing(number, count)) && all_there {
        return None;
    }
    plan.mend_last_seals(device, commit.seq, &mut report).ok()??;
    let touches = replay.touches()?;
    let tail = Tail { records: report.records, bytes: tail_bytes, from_seq: plan.applied, from_bytes: 0 };
    let segments = plan.segments.iter().map(|(number, segment)| (*number, replay.segment(*number, segment)));
    let segments = segments.collect();
    let indexes: Vec<(KeyspaceId, HashIndex)> =
        replay.loaded.keyspaces.into_iter().map(|(id, keyspace)| (id, keyspace.index)).collect();
    report.live = indexes.iter().map(|(_, index)| index.len()).sum();
    report.from_checkpoint = true;
    let in_force = InForce { place: checkpoint.place.clone(), dead };
    Some(Restored { indexes, segments, in_force, tail, report, touches })
}

impl Replay<'_> {
    fn run(&mut self, device: &mut dyn BlockDevice, report: &mut BuildReport) -> Option<()> {
        let (first, last) = self.plan.identity.positions();
        // There are few enough of them: that has been looked at.
        let buckets = Buckets::new((first.0, last.0), u64::MAX);
        let buckets = self.plan.collect(device, buckets, self.commit.seq, report).ok()?;
        if !report.damaged_segments.is_empty() {
            return None;
        }
        for Collected { mut records, mut touches } in buckets.into_lists() {
            self.touches.append(&mut touches);
            records.sort_unstable();
            for versions in records.chunk_by(Packed::is_same_key) {
                self.replay_key(device, versions)?;
            }
        }
        Some(())
    }

    /// `versions`: the records of one position after the checkpoint began, newest first.
    fn replay_key(&mut self, device: &mut dyn BlockDevice, versions: &[Packed]) -> Option<()> {
        let newest = versions.first()?;
        let keyspace = self.plan.keyspaces.get(newest.keyspace())?.id;
        let position = Position(newest.position);
        let as_of = self.loaded.as_of(keyspace, position, self.commit.seq);
        let younger = &versions[..versions.partition_point(|version| version.seq() > as_of)];
        let collides = versions.iter().any(|version| version.flags() & FLAG_COLLIDES != 0);
        if let Some(oldest) = younger.last() {
            let existed = oldest.flags() & FLAG_REPLACES != 0;
            let entry = self.loaded.keyspace(keyspace);
            entry.index.candidates(position, &mut self.candidates);
            match (existed, self.candidates.len()) {
                _ if collides => self.replay_by_keys(device, keyspace, younger)?,
                (false, _) => self.point(keyspace, newest, None)?,
                (true, 0) => return None,
                (true, 1) => {
                    let old = self.candidates.iter().next();
                    self.point(keyspace, newest, old)?;
                }
                (true, _) => self.replay_by_keys(device, keyspace, younger)?,
            }
        }
        match collides {
            false => self.count_newest(newest),
            true => versions.iter().for_each(|version| self.count_if_live(keyspace, version)),
        }
        Some(())
    }

    /// Reads the records of the versions and of all candidates, and compares their keys.
    fn replay_by_keys(
        &mut self,
        device: &mut dyn BlockDevice,
        keyspace: KeyspaceId,
        younger: &[Packed],
    ) -> Option<()> {
        let mut newest: BTreeMap<Vec<u8>, Packed> = BTreeMap::new();
        for version in younger {
            let key = self.plan.read_key(device, version.location(), version.units()).ok()??;
            newest.entry(key).or_insert(*version);
        }
        let mut old: BTreeMap<Vec<u8>, IndexValue> = BTreeMap::new();
        let candidates: Vec<IndexValue> = self.candidates.iter().collect();
        for value in candidates {
            let Target::Device(location) = Target::unpack(value) else { return None };
            let longest = self.plan.footers.get(&location.segment())?.longest_units;
            let key = self.plan.read_key(device, location, longest as usize).ok()??;
            old.insert(key, value);
        }
        for (key, version) in &newest {
            self.point(keyspace, version, old.get(key).copied())?;
        }
        Some(())
    }

    /// Makes the index point to `newest` instead of `old`.
    fn point(&mut self, keyspace: KeyspaceId, newest: &Packed, old: Option<IndexValue>) -> Option<()> {
        let index = &mut self.loaded.keyspaces.get_mut(&keyspace)?.index;
        let position = Position(newest.position);
        let value = Target::Device(newest.location()).pack();
        let counts = &mut self.loaded.counts;
        let is_put = newest.flags() & FLAG_TOMBSTONE == 0;
        if let Some(old) = old {
            let Target::Device(location) = Target::unpack(old) else { return None };
            let count = counts.get_mut(location.segment() as usize)?;
            *count = count.checked_sub(1)?;
        }
        if is_put {
            *counts.get_mut(newest.location().segment() as usize)? += 1;
        }
        let done = match (old, is_put) {
            (Some(old), true) => index.replace(position, old, value),
            (Some(old), false) => index.remove(position, old),
            (None, true) => index.insert(position, value).is_ok(),
            (None, false) => true,
        };
        done.then_some(())
    }

    /// The touches that count: the newest of each value that the index points to where the touch says that it
    /// lies. Nothing is moved while the checkpoint is in force, so that is where it lies.
    fn touches(&mut self) -> Option<BTreeMap<TouchKey, Touch>> {
        let mut found: BTreeMap<TouchKey, Touch> = BTreeMap::new();
        let dumped = std::mem::take(&mut self.loaded.touches).into_iter().map(|fact| {
            let TouchFact { keyspace, units, position, value_seq, expiry_ms, seq, .. } = fact;
            let (place, value) = (Location::from_raw(fact.place), Location::from_raw(fact.value_place));
            let key = (keyspace, position, value_seq);
            (key, Touch { expiry_ms, seq, place: Some(place), units, value })
        });
        let keyspaces = &self.plan.keyspaces;
        let younger = std::mem::take(&mut self.touches).into_iter().filter_map(|touch| {
            let keyspace = keyspaces.get(touch.keyspace)?.id;
            let key = (keyspace, Position(touch.position), touch.value_seq);
            Some((key, touch.touch(Location::from_raw(touch.value_place))))
        });
        for (key, touch) in dumped.chain(younger) {
            if found.get(&key).is_none_or(|other| other.seq < touch.seq) {
                found.insert(key, touch);
            }
        }
        found.retain(|&(keyspace, position, value_seq), touch| {
            let index = self.loaded.keyspaces.get(&keyspace).map(|keyspace| &keyspace.index);
            let value = Target::Device(touch.value).pack();
            // Another life of the segment has younger records.
            let lives = self.plan.footers.get(&touch.value.segment());
            lives.is_some_and(|footer| (footer.min_seq..=footer.max_seq).contains(&value_seq))
                && index.is_some_and(|index| index.contains(position, value))
        });
        let is_there =
            |touch: &Touch| touch.place.is_some_and(|place| self.plan.footers.contains_key(&place.segment()));
        found.values().all(is_there).then_some(found)
    }

    fn count_newest(&mut self, newest: &Packed) {
        let figures = self.figures.entry(newest.location().segment()).or_default();
        let bytes = (newest.units() * UNIT_BYTES) as u64;
        if newest.flags() & FLAG_TOMBSTONE != 0 {
            // It may be needed no more; the cleaner finds out.
            figures.tombstones += 1;
            figures.tombstone_bytes += bytes;
        } else {
            figures.live_records += 1;
            figures.live_bytes += bytes;
        }
    }

    fn count_if_live(&mut self, keyspace: KeyspaceId, version: &Packed) {
        let value = Target::Device(version.location()).pack();
        let index = self.loaded.keyspaces.get(&keyspace).map(|keyspace| &keyspace.index);
        let is_live = index.is_some_and(|index| index.contains(Position(version.position), value));
        if is_live || version.flags() & FLAG_TOMBSTONE != 0 {
            self.count_newest(version);
        }
    }

    /// Whether nothing lived in a segment when the checkpoint began.
    fn is_dead(&self, number: u32) -> bool {
        let is_older = self.plan.footers.get(&number).is_some_and(|footer| footer.max_seq <= self.commit.seq);
        is_older && !self.loaded.facts.contains_key(&number)
    }

    /// The segment with what is live in it: what the tail put there, and of what lived there when the
    /// checkpoint began the part that is still pointed to.
    fn segment(&self, number: u32, segment: &Segment) -> Segment {
        let fact = self.loaded.facts.get(&number).copied().unwrap_or_default();
        let tail = self.figures.get(&number).copied().unwrap_or_default();
        let pointed_to = self.loaded.counts.get(number as usize).copied().unwrap_or(0);
        let old_then = u64::from(fact.live_records.saturating_sub(fact.tombstones));
        let old_now = u64::from(pointed_to.saturating_sub(tail.live_records)).min(old_then);
        let old_bytes_then = fact.live_bytes.saturating_sub(fact.tombstone_bytes);
        let old_bytes = u128::from(old_bytes_then) * u128::from(old_now) / u128::from(old_then.max(1));
        let tombstone_records = fact.tombstones.saturating_add(tail.tombstones);
        let tombstone_bytes = fact.tombstone_bytes.saturating_add(tail.tombstone_bytes);
        Segment {
            live_records: pointed_to.saturating_add(tombstone_records),
            live_bytes: (old_bytes as u64).saturating_add(tail.live_bytes).saturating_add(tombstone_bytes),
            tombstone_records,
            tombstone_bytes,
            is_estimated: true,
            ..segment.clone()
        }
    }
}
