//! Space ahead and behind: segments are zero-filled before they are needed, and given back when many
//! stand empty.
//!
//! A durable overwrite of space that was written before costs no change of the file's metadata: on the
//! measured machine 115 µs instead of 290 µs (`docs/design/media.md`). Under bulk load space is taken only, a block
//! of each segment: large groups hide the cost, and zeros would take half of the bandwidth. What is left of such
//! segments when the load is over is filled then.
//!
//! Rules:
//! 1. As many free segments as writers leave have their space on the device, as far as the device gives it: when it
//!    gives no more, deletions and cleaning have where to write (`reserve_without_space`).
//! 2. When it gives no more, segments that take no space yet are withheld ([`crate::pool`]), so that no group is put
//!    where it cannot be written (`shortage_not_reckoned_with`). Once a second the device is asked again, and at once for
//!    a write that would be refused: what the device lacked may have been file descriptors, for a moment.

use crate::admission::KEPT_FOR_CLEANER;
use crate::io::IoTag;
use crate::shard::LogShard;
use tierstone_media::{BLOCK_BYTES, DeviceErrorKind, IoCompletion, IoKind};

/// What is being prepared or given back.
#[derive(Debug, Default)]
pub struct SpaceKeeper {
    in_flight: bool,
    opened_before: u64,
    opened_at_us: u64,
    /// The hot log when its last segment was opened, and whether its groups are large.
    hot_before: HotLog,
    has_large_groups: bool,
    /// Segments whose space was taken and not filled; some may have been used since.
    thin: Vec<u32>,
    /// After a refusal, when to try again.
    not_before_us: u64,
    /// Whether the device gave nothing when it was asked last.
    is_refused: bool,
    demand: Demand,
    /// When to look again for space to give back, after the superblock listed what was looked at.
    discards_from_us: u64,
    /// Segments that the device has given space for since it had none.
    given_again: u32,
    /// The question that the other shards were asked when this one had no room, and when.
    asked: Option<(u64, u64)>,
    /// Whether the pool counts this shard among those whose cleaners cannot go on without a segment.
    starves: bool,
}

/// What the hot log has done so far.
#[derive(Clone, Copy, Debug, Default)]
struct HotLog {
    opened: u64,
    groups: u64,
    record_bytes: u64,
}

/// Whether the device was asked for space on behalf of writes that would be refused.
#[derive(Clone, Copy, Debug, Default)]
enum Demand {
    #[default]
    None,
    Asked,
    /// It gave nothing, and writes are refused since then.
    Refused {
        at_us: u64,
    },
}

/// Free segments that should be ready.
const READY_WANTED: u32 = 2;
/// A segment that fills faster than this is filled by bulk load, if its groups are large.
const SLOW_SEGMENT_US: u64 = 500_000;
/// Writing twice as many zeros ahead takes a device about as long as a change of metadata, 1.8 GB/s against 175 µs: half
/// is left for what else it does.
const LARGE_GROUP_BYTES: u64 = 128 << 10;
/// So many free segments are looked at for one whose space may be given back.
const DISCARD_TRIES: usize = 8;
/// How long nothing is tried after the device had no space.
const REFUSAL_PAUSE_US: u64 = 1_000_000;
/// How long writes are refused without asking after it was asked for one in vain.
const DEMAND_PAUSE_US: u64 = 100_000;
/// How long other shards are waited for when there is no room.
const OTHERS_PATIENCE_US: u64 = 2_000_000;
/// ... and how often it is looked whether they have answered.
const ANSWER_PAUSE_US: u64 = 1_000;
/// So many ready segments stay in any case.
const READY_KEPT: u32 = 8;
/// When a device that was full has given space for so many segments one after the other, it is not full.
const GIVEN_UNTIL_TRUSTED: u32 = 8;

impl LogShard {
    /// Prepares or gives back one segment at a time.
    pub(crate) fn manage_space(&mut self) {
        let now_us = self.now.monotonic_us;
        let opened = self.hot.segments_opened() + self.cold.segments_opened();
        if opened != self.space.opened_before {
            (self.space.opened_before, self.space.opened_at_us) = (opened, now_us);
        }
        let is_fast = opened > 0 && now_us < self.space.opened_at_us + SLOW_SEGMENT_US;
        let takes_only = !self.has_small_groups() && is_fast;
        let is_short = self.segments.pool().is_short();
        if is_short {
            self.segments.withhold();
        } else if self.segments.pool().withheld_count() > 0 {
            // Put there by who had not seen the end of the shortage.
            self.segments.pool().end_shortage();
        }
        if self.space.in_flight || self.shutting || now_us < self.space.not_before_us {
            return;
        }
        let used = self.segments.total_count().saturating_sub(self.segments.free_count());
        let ready = self.segments.ready_count();
        let len = self.segments.segment_bytes();
        let (segment, tag, kind) = if ready < self.ready_wanted(is_short) {
            let Some(segment) = self.segments.take_raw() else { return };
            let len = if takes_only { BLOCK_BYTES as u64 } else { len };
            (segment, IoTag::Prepare { segment }, IoKind::Prepare { len })
        } else if ready > used.max(READY_KEPT) && !is_fast {
            let Some(segment) = self.take_discardable(now_us) else { return };
            (segment, IoTag::Discard { segment }, IoKind::Discard { len })
        } else if let Some(segment) = self.take_thin(takes_only) {
            (segment, IoTag::Prepare { segment }, IoKind::Prepare { len })
        } else {
            return;
        };
        if kind == (IoKind::Prepare { len: BLOCK_BYTES as u64 }) {
            self.segments.becomes_thin(segment);
            self.space.thin.push(segment);
        }
        self.space.in_flight = true;
        self.requests.push_space(tag, kind, self.identity.geometry.segment_offset(segment));
    }

    /// A free segment whose space may be given back: nobody misses what was there ([`crate::inventory`]).
    fn take_discardable(&mut self, now_us: u64) -> Option<u32> {
        if now_us < self.space.discards_from_us {
            return None;
        }
        for _ in 0..DISCARD_TRIES {
            let segment = self.segments.take_ready()?;
            let inventory = self.segments.pool().inventory();
            if inventory.may_be_discarded(segment) || self.identity.mutations.is_on("listed_discarded") {
                return Some(segment);
            }
            self.segments.put_back(segment, true);
        }
        self.space.discards_from_us = now_us + REFUSAL_PAUSE_US;
        None
    }

    /// Whether groups are small: those of the segment that is being written, or, before it has any, of the one before.
    fn has_small_groups(&mut self) -> bool {
        let hot = HotLog {
            opened: self.hot.segments_opened(),
            groups: self.hot.group_count(),
            record_bytes: self.hot.record_bytes,
        };
        let before = self.space.hot_before;
        let groups = hot.groups.saturating_sub(before.groups);
        if groups > 0 {
            let bytes = hot.record_bytes.saturating_sub(before.record_bytes);
            self.space.has_large_groups = bytes >= groups * LARGE_GROUP_BYTES;
        }
        if hot.opened != before.opened {
            self.space.hot_before = hot;
        }
        !self.space.has_large_groups
    }

    /// A free segment whose space is to be filled, now that there is time for it, and nobody misses it meanwhile.
    fn take_thin(&mut self, takes_only: bool) -> Option<u32> {
        let has_others = self.segments.own_free_count() > self.left_by_writers() + 1;
        while !takes_only
            && has_others
            && let Some(segment) = self.space.thin.pop()
        {
            if self.segments.take_thin(segment) {
                return Some(segment);
            }
        }
        None
    }

    /// When a device that is full is asked for space again.
    pub(crate) fn next_space_step_us(&self) -> Option<u64> {
        let pool = self.segments.pool();
        let asks = pool.is_short() && pool.withheld_count() > 0 && !self.space.in_flight && !self.shutting;
        let prepares = (asks && self.segments.ready_count() < self.ready_wanted(true))
            .then(|| self.space.not_before_us.max(self.now.monotonic_us));
        [prepares, self.next_answer_us()].into_iter().flatten().min()
    }

    /// Whether a write that would be refused is to wait for what the device says now: it was not asked for a write lately,
    /// or is giving.
    pub(crate) fn may_be_given_space(&mut self) -> bool {
        let pool = self.segments.pool();
        let has_enough = self.segments.ready_count() >= self.ready_wanted(true);
        if !pool.is_short() || pool.withheld_count() == 0 || has_enough || self.shutting {
            return false;
        }
        if self.space.in_flight || !self.space.is_refused {
            return true;
        }
        let now_us = self.now.monotonic_us;
        match self.space.demand {
            // Said once in any case: whoever comes back late would have it asked again and again.
            Demand::Asked => self.space.demand = Demand::Refused { at_us: now_us },
            Demand::Refused { at_us } if now_us < at_us + DEMAND_PAUSE_US => {}
            Demand::None | Demand::Refused { .. } => {
                (self.space.demand, self.space.not_before_us) = (Demand::Asked, now_us);
                return true;
            }
        }
        false
    }

    /// When other shards are to be answered, or have answered, whether there is room: woken they see it in a step only.
    fn next_answer_us(&self) -> Option<u64> {
        let (pool, now_us) = (self.segments.pool(), self.now.monotonic_us);
        if self.identity.mutations.is_on("others_not_asked_for_space") {
            return None;
        }
        if self.is_asked_for_space() && pool.must_answer(self.identity.shard) {
            // Who can gain something has said so, and is to say when it cannot any more.
            let is_new = !pool.has_seen_all(self.identity.shard);
            return if is_new { Some(now_us) } else { (!self.shutting).then_some(now_us + ANSWER_PAUSE_US) };
        }
        (self.space.asked.is_some() && !self.shutting).then_some(now_us + ANSWER_PAUSE_US)
    }

    /// Free segments that should have their space on the device.
    fn ready_wanted(&self, is_short: bool) -> u32 {
        if self.identity.mutations.is_on("reserve_without_space") {
            return READY_WANTED;
        }
        let kept = self.left_by_writers();
        if is_short { self.free_wanted() + 1 } else { READY_WANTED.max(kept + 1) }
    }

    /// Whether other shards may free space that a write here has no other hope for: they are asked, and woken,
    /// once for each write that would be refused. A segment that was left here is free only when all have left it,
    /// and who sleeps does not see that the pool has run dry.
    pub(crate) fn others_may_free(&mut self) -> bool {
        if self.identity.shard_count <= 1 || self.identity.mutations.is_on("others_not_asked_for_space") {
            return false;
        }
        match self.space.asked {
            None => {
                self.space.asked = Some((self.segments.pool().ask(), self.now.monotonic_us));
                self.memory.wake_others();
                true
            }
            Some((ask, _)) if self.segments.pool().is_answered(self.identity.shard, ask) => {
                self.end_space_wait();
                false
            }
            Some((_, at_us)) if at_us + OTHERS_PATIENCE_US < self.now.monotonic_us => {
                self.end_space_wait();
                false
            }
            Some(_) => true,
        }
    }

    /// A write has found room, or is refused.
    pub(crate) fn end_space_wait(&mut self) {
        if self.space.asked.take().is_some() {
            self.segments.pool().end_ask();
        }
    }

    /// Keeps a free segment for the cleaner, and leaves to other shards what is free beyond what this one keeps;
    /// and beyond the one that its cleaner needs, where theirs cannot go on without one. What is lent comes back: a victim that has a segment to go to is freed.
    /// A cleaner that waits for others to leave shared segments needs none until they have.
    pub(crate) fn share_free(&mut self) {
        self.note_starving();
        self.segments.give_back(self.left_by_writers() + 1);
        if self.segments.own_free_count() < KEPT_FOR_CLEANER && self.segments_being_cleaned() == 0 {
            self.segments.secure_leaving(KEPT_FOR_CLEANER, self.starving_others());
        }
        let missing = self.starving_others().saturating_sub(self.segments.pool_count());
        let own = self.segments.own_free_count();
        let is_held_up = self.cleaner.is_held_up && self.segments_being_cleaned() == 0;
        let lent = missing.min(if is_held_up { own } else { own.saturating_sub(KEPT_FOR_CLEANER) });
        if lent > 0 {
            self.segments.give_back(own - lent);
            self.wake_others_for_space();
        }
    }

    /// Shards besides this one whose cleaners cannot go on without a free segment.
    pub(crate) fn starving_others(&self) -> u32 {
        if self.identity.mutations.is_on("starving_cleaners_left_alone") {
            return 0;
        }
        self.segments.pool().starving_count().saturating_sub(u32::from(self.space.starves))
    }

    /// Says whether the cleaner cannot go on without a segment that others may have.
    fn note_starving(&mut self) {
        let is_at_work = self.failed.is_none() && !self.shutting;
        let starves = is_at_work && self.identity.shard_count > 1 && self.is_starved();
        if starves != self.space.starves {
            self.space.starves = starves;
            self.segments.pool().starve(starves);
            if starves {
                self.wake_others_for_space();
            }
        }
    }

    /// Lets other shards see what there is to free, to lend or to take.
    fn wake_others_for_space(&self) {
        if !self.identity.mutations.is_on("others_not_asked_for_space") {
            self.memory.wake_others();
        }
    }

    /// Whether other shards wait for what this one could free.
    pub(crate) fn is_asked_for_space(&self) -> bool {
        self.segments.pool().waiting_count() > u32::from(self.space.asked.is_some())
    }

    /// Tells shards that have no room whether this one can free some, and forgets a question that nobody comes
    /// back for.
    pub(crate) fn answer_for_space(&mut self) {
        if self.space.asked.is_some_and(|(_, at_us)| at_us + 2 * OTHERS_PATIENCE_US < self.now.monotonic_us) {
            self.end_space_wait();
        }
        let shard = self.identity.shard;
        let is_at_work = self.failed.is_none() && !self.shutting;
        self.note_starving();
        let can_lend = is_at_work && self.segments.own_free_count() > KEPT_FOR_CLEANER;
        self.segments.pool().offer(shard, can_lend);
        if self.segments.pool().must_answer(shard) {
            let waits = self.is_backup_waited_for() || self.may_borrow();
            let can_gain = is_at_work && (self.can_gain() || waits);
            self.segments.pool().answer(shard, || can_gain);
        }
    }

    /// Whether another shard has a segment for a cleaner that cannot go on without one.
    fn may_borrow(&self) -> bool {
        self.is_starved()
            && self.segments.pool().has_lender(self.identity.shard)
            && !self.identity.mutations.is_on("starving_cleaners_left_alone")
    }

    /// A segment was prepared or given back, or could not be.
    pub(crate) fn space_changed(&mut self, segment: u32, tag: IoTag, completion: &IoCompletion) {
        self.space.in_flight = false;
        let is_preparing = matches!(tag, IoTag::Prepare { .. });
        if is_preparing {
            self.space.is_refused = completion.result.is_err();
            if completion.result.is_ok() {
                self.space.demand = Demand::None;
            }
        }
        match &completion.result {
            Ok(()) if is_preparing && self.segments.pool().is_short() => {
                self.space.given_again += 1;
                if self.space.given_again >= GIVEN_UNTIL_TRUSTED {
                    self.segments.pool().end_shortage();
                }
            }
            Ok(()) => {}
            Err(error) => {
                self.space.not_before_us = self.now.monotonic_us + REFUSAL_PAUSE_US;
                if is_preparing && error.kind == DeviceErrorKind::Full {
                    self.device_is_full(&error.detail);
                }
            }
        }
        self.segments.put_back(segment, is_preparing == completion.result.is_ok());
    }

    /// The device gives no more space, and says why.
    pub(crate) fn device_is_full(&mut self, words: &str) {
        (self.space.given_again, self.space.is_refused) = (0, true);
        self.segments.pool().note_refusal(words);
        if !self.identity.mutations.is_on("shortage_not_reckoned_with") {
            self.segments.withhold();
        }
    }
}
