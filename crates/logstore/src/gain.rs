//! What cleaning gains: which segment is its next victim, whether there is one at all, and how many free
//! segments are kept so that there always is.
//!
//! Invariants (`docs/design/logstore.md`, *Full stores*, has the reckoning):
//! 1. A victim's live records surely fit into one empty segment: so cleaning never needs more segments than it
//!    frees, and one free segment is enough to go on. Worst case: the open segment of the cold log takes the first of
//!    them, down to none; the one that is free takes the rest, for it is taken only when the next record does not fit
//!    ([`crate::stream::Stream::segments_for`] finds what appending does), and no group is closed in it before it is full or the victim
//!    done (`room_for_copies_guessed`). The victim is then freed, and one is free again. A crash before that leaves the
//!    originals in force and the new segment dead, so free without being cleaned; a crash in recovery or in cleaning
//!    after it finds the same. So however many crashes come in a row, each leaves one that is free, or dead.
//! 2. Between two gains no record is moved twice: cleaning that gains nothing comes to an end, and the
//!    store says that it is full.
//! 3. Writers leave the reserve, and so many free segments more as the live records would need if all of
//!    them were moved.
//!
//! Nothing here is durable.

use crate::format::group;
use crate::io::StreamId;
use crate::location::UNIT_BYTES;
use crate::segments::{Role, Segment};
use crate::settings::group_bytes_max;
use crate::shard::LogShard;
use tierstone_media::BLOCK_BYTES;

/// What cleaning has come to since it last made space.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Streak {
    /// The best that was reached: segments free and segments that users have opened, less all others.
    best: i64,
    /// Segments of the cold log that begin with this group or a later one were filled since.
    from_group: u64,
    /// The least space that held nothing live, in bytes.
    waste_bytes: u64,
}

/// The best victim so far, what made it so, and which part of it lives.
#[derive(Clone, Copy, Debug)]
struct Best {
    score: (u32, f64),
    number: u32,
    live: f64,
}

/// A victim with more live bytes than this part of a segment gains too little to be worth moving, unless
/// space is short.
pub(crate) const LIVE_FRACTION_MAX: f64 = 0.97;
/// While space is plenty and segments are many, dead ones are looked for once in so many steps at least: the
/// search looks at every segment, so that the more there are the rarer it is ([`SEGMENTS_A_LOOKING_STEP`]). So it is, too, where
/// space is low and the last look has found nothing, unless somebody waits for space.
const STEPS_A_LOOK: u64 = 64;
/// A look comes once in as many steps as there are so many segments, so that on average a step looks at no more of them.
const SEGMENTS_A_LOOKING_STEP: u32 = 16;
/// So few segments are looked at in every step: less than half a microsecond.
const SEGMENTS_A_STEP: u32 = 256;
/// Dead segments that one look finds at most, where there may be many.
const DEAD_A_LOOK: usize = 256;
/// Fewer reserved segments do not do: one that takes deletions, one that takes what is moved, and one
/// that cleaning gains however the others are filled.
pub(crate) const RESERVED_MIN: u32 = 3;
/// Cleaning begins when so few segments are free above those that writers leave: one for the log, one for
/// what is moved, one that is nearly emptied, and one to begin in time.
const MARGIN: u32 = 4;
/// The same where that would be a large part of the store; the log may wait for a whole segment there.
const MARGIN_SMALL: u32 = 2;
/// So many more, so that it begins gently (`crates/logstore/src/cleaner/pace.rs`).
const PACED: u32 = 2;
/// Where space is short, a shard leaves so many segments before others that have to leave them too.
const SHARED_AHEAD_MAX: usize = 2;
/// Fewer segments are a small store.
const SEGMENTS_OF_A_SMALL_STORE: u32 = 48;
/// An entry of a summary may be longer in the segment that a record is moved to, by this many bytes: its
/// sequence differs more from its neighbour's.
const ENTRY_GROWTH_BYTES: u64 = 6;

impl LogShard {
    /// The shard's own segments, and its parts of those that it shares and of the pool.
    pub(crate) fn capacity_count(&self) -> u32 {
        let shards = u32::from(self.identity.shard_count.max(1));
        self.segments.held_count() + self.segments.pool_count() / shards
    }

    /// Segments that only deletes and the cleaner may use.
    pub(crate) fn reserved(&self) -> u32 {
        self.settings.reserved_segments.max(RESERVED_MIN)
    }

    /// Free segments that writers leave, as last reckoned.
    pub(crate) fn left_by_writers(&self) -> u32 {
        self.cleaner.kept.max(self.reserved())
    }

    /// Whether no more is free than what writers leave.
    pub(crate) fn is_short(&self) -> bool {
        self.segments.free_count() <= self.left_by_writers()
    }

    /// Cleaning begins when fewer segments than this are free.
    pub(crate) fn free_wanted(&self) -> u32 {
        let fraction = f64::from(self.segments.total_count()) * self.settings.clean_below_free_fraction;
        (fraction as u32).max(self.left_by_writers() + self.margin() + self.paced())
    }

    /// Whether cleaning must make space: for this shard, or for others that have asked. `coming`: segments that
    /// will be free.
    fn is_space_low(&self, coming: u32) -> bool {
        self.segments.free_count() + coming < self.free_wanted() || self.is_asked_for_space()
    }

    /// Chooses by free space and age: the benefit over the cost of Rosenblum and Ousterhout (1992), the age with an
    /// exponent of its own (`docs/decisions/045-cleaning-begins-late.md`).
    pub(crate) fn choose_victim(&mut self) {
        if let Some(number) = self.next_to_compact() {
            self.start_victim(number);
            return;
        }
        if let Some(number) = self.take_expired_to_clean() {
            self.start_victim(number);
            return;
        }
        if let Some(number) = self.take_found_dead() {
            self.start_victim(number);
            return;
        }
        let coming = self.emptied_count();
        if !self.looks_now(coming) {
            return;
        }
        self.cleaner.looked_in_vain = true;
        self.cleaner.kept = self.kept_from_writers();
        let low = self.is_space_low(coming);
        let shedding = self.shedding_tombstones();
        let last_shared = self.last_shared_to_leave();
        let (mut best, mut is_held_up): (Option<Best>, _) = (None, false);
        for (number, segment) in self.segments.iter() {
            if !low && segment.live_records > 0 {
                continue;
            }
            // While space is plenty, no checkpoint is given up for it.
            let protected = !low && self.checkpoints.protects(number, segment.generation);
            let sheds = shedding.filter(|(shedding, _)| *shedding == number);
            if protected || !(sheds.is_some() || self.may_clean(number, segment)) {
                continue;
            }
            if segment.shared.is_some() && segment.live_records > 0 && number > last_shared {
                is_held_up = true;
                continue;
            }
            let live = sheds.map_or_else(|| self.live_fraction(segment).min(1.0), |(_, live)| live);
            let age = self.applied.saturating_sub(segment.opened_seq) as f64 + 1.0;
            let worth = (1.0 - live) * age.powf(self.settings.clean_age_exponent) / (1.0 + live);
            let score = (self.rank(number, segment), worth);
            if best.is_none_or(|best| score > best.score) {
                best = Some(Best { score, number, live });
            }
        }
        if low && self.retires_rather(best.map(|best| best.live)) {
            self.cleaner.found_none = false;
            return;
        }
        if low && self.sweeps_rather(best.map(|best| best.live)) {
            self.cleaner.found_none = false;
            return;
        }
        self.cleaner.found_none = low && best.is_none();
        self.cleaner.is_held_up = is_held_up && best.is_none();
        if let Some(Best { number, .. }) = best {
            self.start_victim(number);
            self.pace_victim();
        } else if !low {
            self.sweep_tombstones();
        }
    }

    /// Whether this step looks at all segments.
    fn looks_now(&mut self, coming: u32) -> bool {
        let low = self.is_space_low(coming);
        let held = self.segments.held_count();
        let steps = STEPS_A_LOOK.max(u64::from(held / SEGMENTS_A_LOOKING_STEP));
        let is_urgent = self.cleaner.pace.take_wants_look() || self.is_asked_for_space();
        let may_wait = !low || (self.cleaner.looked_in_vain && !is_urgent);
        !may_wait || held <= SEGMENTS_A_STEP || self.reads.steps.is_multiple_of(steps)
    }

    /// The next segment that was found dead, if it still is; others are looked for where there may be many.
    fn take_found_dead(&mut self) -> Option<u32> {
        if self.cleaner.found_dead.is_empty() && self.cleaner.seeks_dead {
            self.find_dead();
        }
        while let Some(number) = self.cleaner.found_dead.pop() {
            if self.is_dead_to_clean(number, self.segments.get(number)) {
                return Some(number);
            }
        }
        None
    }

    /// Whether nothing lives in a segment, and nothing speaks against cleaning it while space is plenty.
    fn is_dead_to_clean(&self, number: u32, segment: &Segment) -> bool {
        segment.live_records == 0
            && self.may_clean(number, segment)
            && !self.checkpoints.protects(number, segment.generation)
    }

    /// Finds some dead segments, or that there are none.
    fn find_dead(&mut self) {
        let all = self.segments.iter();
        let dead = all.filter(|(number, segment)| self.is_dead_to_clean(*number, segment));
        let found: Vec<u32> = dead.map(|(number, _)| number).take(DEAD_A_LOOK).collect();
        self.cleaner.seeks_dead = !found.is_empty();
        self.cleaner.found_dead = found;
    }

    /// What goes before benefit and cost where space is short: segments that several shards have to leave, in the
    /// same order in all of them. Else each might spend its free segment on others than the rest do, and none became
    /// free. Behind what nothing lives in, which takes no room.
    fn rank(&self, number: u32, segment: &Segment) -> u32 {
        match (self.is_short(), segment.live_records, &segment.shared) {
            (true, 0, _) => u32::MAX,
            (true, _, Some(_)) => u32::MAX - 1 - number,
            // Who asks may be ahead, and waits for this shard to follow.
            (false, _, Some(_)) if self.is_asked_for_space() => u32::MAX - 1 - number,
            _ => 0,
        }
    }

    /// Of the segments that several shards have to leave, the last one by number that this shard may leave now. Where space
    /// is short it is no more than some ahead of others: its copies would take the space that those need to follow, and
    /// nothing became free. The shard that is behind all others is never held up: what it has left of those before its
    /// next one has been left by all.
    fn last_shared_to_leave(&self) -> u32 {
        if !self.is_short()
            || self.identity.shard_count <= 1
            || self.identity.mutations.is_on("shards_run_ahead")
        {
            return u32::MAX;
        }
        let is_left = |segment: &Segment| segment.role == Role::Left && segment.may_hold_records();
        let left = self.segments.iter().filter(|(_, segment)| is_left(segment));
        left.map(|(number, _)| number).nth(SHARED_AHEAD_MAX - 1).unwrap_or(u32::MAX)
    }

    /// Free segments over which the cleaner keeps pace with writes, before they wait.
    fn paced(&self) -> u32 {
        if self.segments.total_count() < SEGMENTS_OF_A_SMALL_STORE { 0 } else { PACED }
    }

    /// Free segments at which cleaning begins above those that writers leave.
    fn margin(&self) -> u32 {
        if self.segments.total_count() < SEGMENTS_OF_A_SMALL_STORE { MARGIN_SMALL } else { MARGIN }
    }

    /// Emptied segments that will be free without anybody's doing.
    pub(crate) fn emptied_count(&self) -> u32 {
        let pinned = |number: u32| self.segments.get(number).snapshot_records > 0;
        self.cleaner.emptied_segments().filter(|&number| !pinned(number)).count() as u32
    }

    /// So few free segments make writes wait.
    pub(crate) fn paced_from(&self) -> u32 {
        self.left_by_writers() + self.margin() - 1
    }

    /// Whether so much is free that what copies leave behind makes nobody wait.
    pub(crate) fn has_space_to_cluster(&self) -> bool {
        let level = self.paced_from();
        self.segments.free_count() > level + self.free_wanted().saturating_sub(level) / 2
    }

    /// Whether a write of `bytes` must wait until cleaning has got further: what is free, and what cleaning
    /// has passed of its victim, runs down to a level that leaves the log a segment to go on with until
    /// the victim is free. There each byte waits for a byte, and never for the rest of a segment.
    pub(crate) fn must_pace(&self, bytes: u64) -> bool {
        let segment_bytes = self.segments.segment_bytes();
        let free = self.segments.free_count().saturating_sub(self.left_by_writers());
        // What a segment takes besides records is not to be waited for when the next one is opened.
        let segment_bytes = segment_bytes.saturating_sub(3 * BLOCK_BYTES as u64);
        let level = u64::from(self.margin() - 1) * segment_bytes;
        if u64::from(free) * segment_bytes >= level + bytes {
            return false;
        }
        let ahead = u64::from(free + self.emptied_count()) * segment_bytes
            + self.hot.unused_bytes()
            + self.cold.unused_bytes()
            + self.cleaner.passed_bytes();
        ahead < level + bytes
            && (self.is_moving() || !(self.cleaner.found_none || self.is_starved()))
            && !self.cleaner.is_stopped()
    }

    /// What the live records need over what an empty segment surely gives to records like these: each
    /// group may lose a block to padding, the end a record, and the summary takes its part. A victim
    /// begins and ends a group. Above one where the segment holds more than would surely fit again.
    pub(crate) fn live_fraction(&self, segment: &Segment) -> f64 {
        let entry_bytes = segment.summary.len.div_ceil(segment.summary.records.max(1));
        let entries = u64::from(segment.live_records) * (u64::from(entry_bytes) + ENTRY_GROWTH_BYTES);
        (segment.live_bytes + entries) as f64 / self.packed_bytes(segment.longest_units) as f64
    }

    /// Bytes of records, with their part of the summary, that an empty segment surely takes of those that have so many units
    /// at most.
    fn packed_bytes(&self, longest_units: u32) -> u64 {
        // Every look at all segments asks for each of them, and most have the same.
        let (units, packed) = self.cleaner.packed.get();
        if packed != 0 && units == longest_units {
            return packed;
        }
        let block = BLOCK_BYTES as u64;
        let segment_bytes = self.segments.segment_bytes();
        let group_bytes = group_bytes_max(&self.settings, self.identity.geometry, StreamId::Cold) as u64;
        let longest_bytes = u64::from(longest_units) * UNIT_BYTES as u64;
        // Header, footer, and the rest of the summary's last block.
        let usable = segment_bytes.saturating_sub(3 * block);
        let header = group::HEADER_BYTES as u64;
        // A group is closed when the next record does not fit; two neighbours do not fit into one.
        let single = usable / group_bytes.saturating_sub(header + longest_bytes).max(1);
        let pairs = 2 * usable / group_bytes.saturating_sub(2 * header).max(1);
        let padding = (single.min(pairs) + 2) * (block + header);
        let packed = usable.saturating_sub(padding + longest_bytes).max(usable / 8).max(1);
        self.cleaner.packed.set((longest_units, packed));
        packed
    }

    /// The part of what writers may fill that lives, packed as cleaning packs it, about. Cost: a look at every segment.
    pub(crate) fn packed_fraction(&self) -> f64 {
        let holding = self.segments.iter().filter(|(_, segment)| segment.may_hold_records());
        let segments: f64 = holding.map(|(_, segment)| self.live_fraction(segment)).sum();
        segments / f64::from(self.capacity_count().saturating_sub(self.left_by_writers()).max(1))
    }

    /// Whether cleaning the open segment would make space: single deletes fill it with padding.
    pub(crate) fn is_open_segment_sparse(&self) -> bool {
        self.hot.written_segment().is_some_and(|number| self.live_fraction(self.segments.get(number)) < 0.5)
    }

    /// Whether the open segment has records: one without is there for what its groups say of the log, and when it is
    /// freed another one has to say it.
    pub(crate) fn open_segment_has_records(&self) -> bool {
        let open = self.hot.written_segment().and_then(|number| self.hot.open_summary_of(number));
        open.is_some_and(|summary| summary.records() > 0)
            || self.identity.mutations.is_on("segment_without_records_rolled")
    }

    /// Whether nothing of a segment is needed, so that it can be freed without being read.
    pub(crate) fn is_dead(&self, number: u32, segment: &Segment) -> bool {
        segment.role == Role::Sealed
            && segment.live_records == 0
            && (segment.snapshot_records == 0 || self.ignores_snapshot_pins())
            && !segment.is_estimated
            && !self.cleaner.is_unreadable(number)
    }

    pub(crate) fn may_clean(&self, number: u32, segment: &Segment) -> bool {
        let live = self.live_fraction(segment);
        segment.role == Role::Sealed
            && (segment.snapshot_records == 0 || self.ignores_snapshot_pins())
            && !self.cleaner.is_unreadable(number)
            && (live <= LIVE_FRACTION_MAX || (self.is_short() && live < 1.0))
            && (segment.live_records == 0 || !self.is_of_this_streak(segment))
    }

    /// Whether a segment holds what was moved since cleaning last made space.
    fn is_of_this_streak(&self, segment: &Segment) -> bool {
        let from_group = self.cleaner.streak.from_group;
        segment.cold && segment.groups.is_some_and(|groups| groups.0 >= from_group)
    }

    /// Notes whether cleaning has made space, or users have made something that can be cleaned.
    pub(crate) fn note_gain(&mut self) {
        let used = self.segments.used_count();
        let reached = self.hot.segments_opened() as i64 - i64::from(used);
        let segment_bytes = self.segments.segment_bytes();
        let waste_bytes = (u64::from(used) * segment_bytes)
            .saturating_sub(self.segments.live_bytes() + self.hot.unused_bytes());
        let streak = &mut self.cleaner.streak;
        if reached > streak.best || waste_bytes >= streak.waste_bytes + segment_bytes {
            let from_group = self.cold.group_count() + 1;
            *streak = Streak { best: reached, from_group, waste_bytes };
        }
        streak.waste_bytes = streak.waste_bytes.min(waste_bytes);
    }

    /// Everything may be moved again, once.
    pub(crate) fn begin_streak(&mut self) {
        self.cleaner.streak.from_group = self.cold.group_count() + 1;
    }

    /// Whether cleaning is making space, or could. Cost: a look at every segment.
    pub(crate) fn can_gain(&self) -> bool {
        if self.cleaner.is_stopped() {
            return false;
        }
        let is_pinned = |number: u32| self.segments.get(number).snapshot_records > 0;
        let starved = self.is_starved();
        let last_shared = self.last_shared_to_leave();
        self.is_moving()
            || (!starved && self.may_retire())
            || (!starved && (self.shedding_tombstones().is_some() || self.can_sweep_tombstones()))
            || self.cleaner.emptied_segments().any(|number| !is_pinned(number))
            || self.segments.iter().any(|(number, segment)| {
                segment.role == Role::Freeing
                    || self.is_dead(number, segment)
                    || (!starved
                        && (segment.shared.is_none() || number <= last_shared)
                        && self.may_clean(number, segment))
            })
    }

    /// Frees a segment in which nothing lives, so that a victim that waits for room gets some.
    pub(crate) fn free_one_dead(&mut self) {
        let found = self.segments.iter().find(|(number, segment)| self.is_dead(*number, segment));
        if let Some(number) = found.map(|(number, _)| number) {
            self.start_victim(number);
        }
    }

    /// Free segments that writers leave: the reserve, and what the live records would need more than they
    /// take now if all of them were moved. Cost: a look at every segment, when few are free.
    pub(crate) fn kept_from_writers(&self) -> u32 {
        if self.segments.free_count() > self.reserved() + 2 * self.segments.used_count() {
            return self.reserved();
        }
        let holds = |segment: &Segment| matches!(segment.role, Role::Open | Role::Sealed | Role::Cleaning);
        let more: f64 = self
            .segments
            .iter()
            .filter(|(_, segment)| holds(segment))
            .map(|(_, segment)| self.live_fraction(segment) - 1.0)
            .sum();
        self.reserved() + more.max(0.0).ceil() as u32
    }
}
