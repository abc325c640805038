//! One shard of the log store: the state machine behind [`tierstone_engine::Engine`].
//!
//! Who owns what: the shard owns its keys' index entries, its two logs, its segments and its part of
//! the memory. Nothing here does I/O or takes a lock; the driver carries requests out.
//!
//! Invariants:
//! 1. The index has exactly one entry for each live key: the place of its newest record, in the
//!    cache or on the device. A write that cannot tell whether an old record is its key's asks for
//!    that record first (`Retry`).
//! 2. A record that the index points to lies in a group that is durable, in flight, or still in
//!    memory; a read of the device waits until it is durable.
//! 3. After a failed write of a group, footer or free header nothing is durable any more
//!    (`failed`), and no such write is repeated, except for want of space.
//!
//! Crash: see `docs/design/logstore.md`; recovery is in [`crate::recovery`].

use crate::cleaner::Cleaner;
use crate::io::{IoTag, Requests, StreamId};
use crate::keyspaces::Keyspaces;
use crate::location::index_settings;
use crate::memory::MemoryBalance;
use crate::memory_ledger::MemoryLedger;
use crate::reads::Reads;
use crate::rules::BrokenRules;
use crate::segments::{Role, SegmentTable};
use crate::settings::{ShardSettings, group_bytes_max};
use crate::stream::{LazySettings, SpareBytes, Stream, StreamSettings};
use std::sync::Arc;
use tierstone_base::checksum::salt;
use tierstone_base::{Error, ErrorKind, KeyHasher, KeyspaceId, Now, Position, Seq, ShardId};
use tierstone_cache::RecordCache;
use tierstone_crash::Mutations;
use tierstone_engine::{Durability, EngineStatistics, Event};
use tierstone_media::{BufferPool, DeviceErrorKind, Geometry, IoCompletion, IoKind};

/// What a shard is in its store, for one opening.
#[derive(Clone, Debug)]
pub struct ShardIdentity {
    /// The store's id.
    pub store: u64,
    /// How often the store was opened, this time included.
    pub open_count: u64,
    /// Tells it from any other opening, in 53 bits: numbers repeat where an older copy of the files was put back.
    pub opening_mark: u64,
    /// Which shard.
    pub shard: ShardId,
    /// Of how many.
    pub shard_count: u16,
    /// Gives keys their positions.
    pub hasher: KeyHasher,
    /// Where segments lie.
    pub geometry: Geometry,
    /// Rules that a test breaks on purpose.
    pub mutations: Mutations,
}

impl ShardIdentity {
    /// The first and last position of the shard.
    pub fn positions(&self) -> (Position, Position) {
        let first = Position::first_of_shard(self.shard, self.shard_count);
        let last = if self.shard + 1 == self.shard_count {
            Position(u64::MAX)
        } else {
            Position(Position::first_of_shard(self.shard + 1, self.shard_count).0 - 1)
        };
        (first, last)
    }
}

/// Where the number of the opening begins in a log's id.
pub(crate) const LOG_ID_OPEN_SHIFT: u32 = 17;

/// The id of a log: never repeats, because the opening's number is durable before its first use.
pub fn log_id(open_count: u64, shard: ShardId, cold: bool) -> u64 {
    (open_count << LOG_ID_OPEN_SHIFT) | (u64::from(shard) << 1) | u64::from(cold)
}

/// The number of the opening whose log it is.
pub(crate) fn opening_of(log_id: u64) -> u64 {
    log_id >> LOG_ID_OPEN_SHIFT
}

/// Whether a log takes what the cleaner moves.
pub(crate) fn is_cold(log_id: u64) -> bool {
    log_id & 1 != 0
}

/// The life of the `opened`th segment of a log.
pub fn generation(log_id: u64, opened: u64) -> u64 {
    // An odd factor permutes the 64-bit numbers: lives of one log differ, and lives of two logs are
    // as unlikely to meet as two random numbers.
    log_id.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31) ^ opened.wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// The salt of the checksums in one life of a segment.
pub fn segment_salt(store: u64, segment: u32, generation: u64) -> u64 {
    salt(store.rotate_left(17) ^ u64::from(segment), generation)
}

/// One shard of the log store.
#[derive(Debug)]
pub struct LogShard {
    pub(crate) settings: ShardSettings,
    pub(crate) identity: ShardIdentity,
    pub(crate) keyspaces: Keyspaces,
    pub(crate) cache: RecordCache,
    pub(crate) memory: MemoryBalance,
    pub(crate) segments: SegmentTable,
    pub(crate) hot: Stream,
    pub(crate) cold: Stream,
    pub(crate) requests: Requests,
    pub(crate) reads: Reads,
    /// Buffers of reads of records. A read that leaves one as it was is found out: what lies in it was
    /// another place's or another segment's, whose checksum is salted otherwise.
    pub(crate) buffers: BufferPool,
    pub(crate) cleaner: Cleaner,
    pub(crate) applied: Seq,
    pub(crate) past: crate::past::Past,
    pub(crate) failed: Option<Error>,
    pub(crate) counts: EngineStatistics,
    pub(crate) now: Now,
    pub(crate) shutting: bool,
    /// Groups that the device had no space for, to be written again, and when.
    pub(crate) refused: Vec<IoCompletion>,
    pub(crate) refused_until_us: u64,
    pub(crate) candidates: crate::index::Candidates,
    pub(crate) foreseen: crate::foreseen::Foreseen,
    /// Steps taken and writes applied when a part was admitted last.
    pub(crate) admitted_at: Option<(u64, Seq)>,
    pub(crate) space: crate::space::SpaceKeeper,
    pub(crate) refresher: crate::refresh::Refresher,
    pub(crate) loading: crate::load::Loading,
    pub(crate) snapshots: crate::snapshots::Snapshots,
    pub(crate) checkpoints: crate::checkpoint::Checkpointer,
    pub(crate) transfers: crate::transfer::Transfers,
    pub(crate) compaction: crate::compact::Compaction,
    pub(crate) verifier: crate::verify::Verifier,
    pub(crate) scrubber: crate::scrub::Scrubber,
    pub(crate) backups: crate::backup::Backups,
    pub(crate) sweeper: crate::expired::Sweeper,
    pub(crate) touches: crate::touch::Touches,
    pub(crate) evictor: crate::evict::Evictor,
    pub(crate) meter: tierstone_engine::cost::Meter,
    pub(crate) growth: crate::growth::Growth,
    pub(crate) clusterer: crate::cluster::Clusterer,
}

/// How long a group that the device had no space for waits before it is tried again.
const SPACE_RETRY_US: u64 = 20_000;
/// In `relaxed`, a group is written when it has waited this long: half of the stated bound.
const RELAXED_INTERVAL_US: u64 = Durability::RELAXED_BOUND_MS * 500;
/// A group whose records are in the redo log is written when it is full, or after this long.
const REDO_LINGER_US: u64 = 500_000;

impl LogShard {
    /// A shard whose recovery has found `applied` as the highest sequence and `past_ms` as the highest expiry
    /// that was shown as past.
    pub(crate) fn new(
        settings: ShardSettings,
        identity: ShardIdentity,
        segments: SegmentTable,
        (applied, past_ms): (Seq, u64),
        ledger: Arc<MemoryLedger>,
    ) -> tierstone_base::Result<Self> {
        let (cache, memory) = MemoryBalance::new(&settings, identity.shard, ledger)?;
        let is_volatile = identity.mutations.is_on("write_without_flush");
        let write_kind = if is_volatile { IoKind::Write } else { IoKind::WriteDurable };
        let stream = |id: StreamId| {
            let settings = StreamSettings {
                id,
                store: identity.store,
                log_id: log_id(identity.open_count, identity.shard, id == StreamId::Cold),
                positions: identity.positions(),
                geometry: identity.geometry,
                group_bytes_max: group_bytes_max(&settings, identity.geometry, id),
                spare: SpareBytes::of(&settings),
                groups_in_flight: (settings.groups_in_flight_min, settings.groups_in_flight_max),
                write_kind,
                lazy: LazySettings::of(&settings),
                broken: BrokenRules::of(&identity.mutations),
            };
            let mut stream = Stream::new(settings, applied);
            stream.set_past_ms(past_ms);
            stream
        };
        Ok(LogShard {
            keyspaces: Keyspaces::new(index_settings(identity.geometry.segment_limit)),
            cache,
            memory,
            segments,
            hot: stream(StreamId::Hot),
            cold: stream(StreamId::Cold),
            requests: Requests::default(),
            reads: Reads::default(),
            buffers: BufferPool::default(),
            cleaner: Cleaner::default(),
            applied,
            past: crate::past::Past::new(past_ms),
            failed: None,
            counts: EngineStatistics::default(),
            now: Now::default(),
            shutting: false,
            refused: Vec::new(),
            refused_until_us: 0,
            candidates: crate::index::Candidates::new(),
            foreseen: crate::foreseen::Foreseen::default(),
            admitted_at: None,
            space: crate::space::SpaceKeeper::default(),
            refresher: crate::refresh::Refresher::default(),
            loading: crate::load::Loading::default(),
            snapshots: crate::snapshots::Snapshots::default(),
            checkpoints: crate::checkpoint::Checkpointer::default(),
            transfers: crate::transfer::Transfers::default(),
            compaction: crate::compact::Compaction::default(),
            verifier: crate::verify::Verifier::default(),
            scrubber: crate::scrub::Scrubber::default(),
            backups: crate::backup::Backups::default(),
            sweeper: crate::expired::Sweeper::new(),
            touches: crate::touch::Touches::default(),
            evictor: crate::evict::Evictor::of_shard_opened_at(applied),
            meter: tierstone_engine::cost::Meter::default(),
            growth: crate::growth::Growth::default(),
            clusterer: crate::cluster::Clusterer::default(),
            settings,
            identity,
        })
    }

    /// Starts the end: everything applied is written, every open segment sealed, and the index saved in
    /// a checkpoint if that is worth it.
    pub(crate) fn begin_end(&mut self) {
        self.shutting = true;
        self.cleaner.stop();
        self.keep_what_is_left();
        self.end_compact();
        self.end_split();
        self.end_merge();
        self.end_verify();
        self.scrubber.stop();
        self.shut_backup();
        self.cold.roll(&mut self.segments);
        self.end_hot();
    }

    /// Leaves the hot log's last segment when nothing has to be said in it any more.
    fn end_hot(&mut self) {
        if self.hot.is_marked() {
            self.hot.roll(&mut self.segments);
        }
    }

    /// Whether nothing is left to be written.
    pub(crate) fn has_ended(&self) -> bool {
        let rolled = self.hot.is_marked() && self.hot.written_segment().is_none();
        self.shutting
            && (rolled || self.failed.is_some())
            && self.hot.is_idle()
            && self.cold.is_idle()
            && self.has_last_checkpoint()
            && (self.failed.is_some() || self.retired_segment().is_none() || self.is_retired_blocked())
            && self.requests.outstanding() == 0
    }

    /// What the shard is in its store.
    pub fn identity(&self) -> &ShardIdentity {
        &self.identity
    }

    /// Keys that the order of a keyspace holds, those included that have expired and were not met since;
    /// `None` for one without order, and for one without keys.
    pub fn ordered_len(&self, keyspace: KeyspaceId) -> Option<u64> {
        self.keyspaces.get(keyspace)?.order.as_ref().map(crate::index::OrderedIndex::len)
    }

    /// Whether batches over several shards have parts here of which something remains to be known.
    pub fn has_parts(&self) -> bool {
        self.hot.has_parts()
    }

    pub(crate) fn stream(&mut self, id: StreamId) -> &mut Stream {
        match id {
            StreamId::Hot => &mut self.hot,
            StreamId::Cold => &mut self.cold,
        }
    }

    pub(crate) fn step_inner(
        &mut self,
        now: Now,
        completions: &mut Vec<IoCompletion>,
        events: &mut Vec<Event>,
    ) {
        let (began, first) = (self.meter.read(), events.len());
        self.now = now;
        self.see(now);
        self.requests.set_now_us(now.monotonic_us);
        for completion in completions.drain(..) {
            self.completed(completion);
        }
        let worked = self.meter.read();
        self.retry_refused();
        self.submit_deferred();
        self.step_parts();
        if self.failed.is_none() {
            self.snapshot_step();
            self.purge_touches();
            self.backup_step();
            self.clean_step();
            self.sweep_expired();
            self.evict_step();
            self.split_step();
            self.sweep_dropped();
            self.manage_space();
            self.share_free();
            self.write_past();
            self.refresh_step();
            self.verify_step();
            self.scrub_step();
            self.close_groups();
            self.mark_parts();
            self.hot.pause_redo(self.now.monotonic_us < self.loading_until_us());
            self.hot.set_lazy(self.loads_lazily());
            self.commit_redo();
            self.hot.mark_redo(now.monotonic_us);
            self.pump();
            self.checkpoint_step();
            self.balance_memory();
        }
        if self.growth.is_due(now.monotonic_us) {
            self.growth.note(now.monotonic_us, self.segments.live_bytes());
        }
        self.answer_for_space();
        self.trim_reservations();
        let rested = self.meter.read();
        self.advance_ranges();
        events.append(&mut self.reads.ready);
        self.meter.step([began, worked, rested], &mut events[first..]);
    }

    fn completed(&mut self, completion: IoCompletion) {
        let Some(tag) = self.requests.finish(completion.token) else { return };
        match tag {
            IoTag::Record { location } => self.record_read(location, completion),
            IoTag::Run { number } => self.run_read(number, completion),
            IoTag::CleanSummary { segment } => self.clean_summary_read(segment, completion),
            IoTag::CleanPiece { segment } => self.clean_piece_read(segment, completion),
            IoTag::RefreshSummary { segment } => self.refresh_summary_read(segment, completion),
            IoTag::SweepSummary { segment } => self.walked_summary_read(segment, completion),
            IoTag::EvictSummary { segment } => self.evicted_summary_read(segment, completion),
            IoTag::EvictPiece { segment } => self.evicted_piece_read(segment, completion),
            IoTag::Verify { segment } => self.verify_read(segment, completion),
            IoTag::Scrub => self.scrub_read(completion),
            IoTag::Backup { segment, read } => self.backup_read(segment, read, completion),
            IoTag::SplitSummary { segment, read } => self.split_summary_read(segment, read, completion),
            IoTag::SplitPiece { segment, read } => self.split_piece_read(segment, read, completion),
            IoTag::Prepare { segment } | IoTag::Discard { segment } => {
                self.space_changed(segment, tag, &completion);
            }
            IoTag::Group { .. }
            | IoTag::Flush { .. }
            | IoTag::Seal { .. }
            | IoTag::Free { .. }
            | IoTag::Checkpoint { .. } => self.written(tag, completion),
        }
    }

    fn written(&mut self, tag: IoTag, completion: IoCompletion) {
        if let Err(error) = &completion.result {
            let full = error.kind == DeviceErrorKind::Full;
            if full && matches!(tag, IoTag::Checkpoint { .. }) {
                self.checkpoint_written(completion);
                return;
            }
            if full && self.failed.is_none() {
                // Nothing was promised about this write, and the same bytes go to the same place.
                self.refused_until_us = self.now.monotonic_us + SPACE_RETRY_US;
                self.device_is_full(&error.detail);
                self.requests.refuse(completion.token, tag);
                self.refused.push(completion);
                return;
            }
            if self.failed.is_none() {
                self.failed = Some(Error::from(error.clone()).context("a write to the device failed"));
            }
            return;
        }
        match tag {
            IoTag::Flush { stream } => {
                let now_us = self.now.monotonic_us;
                self.stream(stream).flushed(now_us);
                self.note_used(stream);
            }
            IoTag::Group { stream, number, .. } => {
                self.counts.groups += 1;
                let now_us = self.now.monotonic_us;
                self.stream(stream).group_written(number, completion.buffer, now_us);
                self.note_used(stream);
                if let (None, Some(error)) = (&self.failed, self.hot.redo_failure()) {
                    self.failed = Some(error.clone());
                }
            }
            IoTag::Seal { stream, segment } => {
                let generation = self.segments.get(segment).generation;
                self.segments.pool().inventory().used(segment, generation);
                let entry = self.segments.get_mut(segment);
                if entry.role == Role::Open {
                    entry.role = Role::Sealed;
                }
                let first_group = entry.groups.map_or(0, |groups| groups.0);
                self.stream(stream).sealed(first_group, completion.buffer);
            }
            IoTag::Free { segment } if self.is_retiring(segment) => self.note_retired(segment),
            IoTag::Free { segment } => {
                self.segments.freed(segment);
                self.checkpoints.freed(segment);
            }
            IoTag::Checkpoint { .. } => self.checkpoint_written(completion),
            IoTag::Record { .. }
            | IoTag::Run { .. }
            | IoTag::CleanSummary { .. }
            | IoTag::CleanPiece { .. }
            | IoTag::RefreshSummary { .. }
            | IoTag::SweepSummary { .. }
            | IoTag::EvictSummary { .. }
            | IoTag::EvictPiece { .. }
            | IoTag::Verify { .. }
            | IoTag::Scrub
            | IoTag::Backup { .. }
            | IoTag::SplitSummary { .. }
            | IoTag::SplitPiece { .. }
            | IoTag::Prepare { .. }
            | IoTag::Discard { .. } => {}
        }
    }

    fn retry_refused(&mut self) {
        if self.refused.is_empty() || self.now.monotonic_us < self.refused_until_us {
            return;
        }
        for completion in std::mem::take(&mut self.refused) {
            self.requests.resubmit(completion);
        }
    }

    /// Takes in what has become known of batches over several shards. When a shard that has a part has
    /// stopped, this one stops too, as soon as it matters: what follows the part will never be decided, or
    /// the space of its segment never come back.
    fn step_parts(&mut self) {
        self.hot.advance_parts(self.now.monotonic_us);
        if self.failed.is_none() && self.hot.is_abandoned(self.shutting) {
            let message = "a shard that takes part in a batch with this one has stopped";
            self.failed = Some(Error::new(ErrorKind::DeviceFailed, message));
        }
        if self.failed.is_some() {
            self.hot.abandon_parts();
        }
    }

    /// Lets the log say what it knows of batches where it is silent and somebody wants to know.
    fn mark_parts(&mut self) {
        self.hot.mark(self.now.monotonic_us, self.shutting, &mut self.segments);
        if self.shutting {
            self.end_hot();
        }
    }

    /// When the hot group that takes records is to be closed; `None` when there is none.
    fn group_due_us(&self) -> Option<u64> {
        let opened_us = self.hot.opened_us()?;
        if self.cleaner.waits_for_writes_from(self.hot.first_open_seq()?) {
            return Some(opened_us);
        }
        if self.hot.may_linger() && !self.waits_for_flash() {
            return Some(opened_us + REDO_LINGER_US);
        }
        if self.hot.is_lazy() {
            return Some(opened_us + self.settings.lazy_wait_ms * 1_000);
        }
        Some(match self.settings.durability {
            Durability::Sync => opened_us,
            Durability::Group { interval_ms } => opened_us + u64::from(interval_ms) * 1_000,
            Durability::Relaxed => opened_us + RELAXED_INTERVAL_US,
        })
    }

    /// Whether something waits for the log on the device, whatever the redo log has: a full segment cannot be cleaned
    /// before its footer, and who writes may be waiting for that.
    fn waits_for_flash(&self) -> bool {
        self.shutting
            || self.hot.is_sealing()
            || self.checkpoints.is_writing()
            || self.transfers.wait_for_flash()
    }

    /// Closes groups that need not wait for company any longer.
    fn close_groups(&mut self) {
        let now_us = self.now.monotonic_us;
        if let Some(due_us) = self.group_due_us()
            && (now_us >= due_us || self.shutting)
            && self.hot.may_submit()
        {
            self.hot.close_group(&self.segments);
        }
        if self.cleaner.wants_group_closed() || self.shutting {
            self.cold.close_group(&self.segments);
        }
    }

    pub(crate) fn pump(&mut self) {
        let overlap = self.settings.overlap_bytes;
        let seal_early = self.identity.mutations.is_on("seal_before_durable");
        for stream in [&mut self.hot, &mut self.cold] {
            stream.pump(overlap, &mut self.requests);
            stream.flush_lazy(self.now.monotonic_us, &mut self.requests);
            stream.seal_ready(seal_early, &mut self.segments, &mut self.requests);
        }
    }

    /// The next time at which a step would do something that no completion announces.
    pub(crate) fn next_step(&self) -> Option<u64> {
        let now_us = self.now.monotonic_us;
        if self.failed.is_some() {
            return self.reads.wants_step().then_some(now_us);
        }
        let mut next = None;
        let mut at = |time: u64| next = Some(next.map_or(time, |so_far: u64| so_far.min(time)));
        if self.reads.wants_step()
            || self.keyspaces.is_sweeping()
            || self.cleaner.wants_step()
            || self.snapshots.wants_step()
            || self.split_wants_step()
            || self.refresher.wants_step()
            || self.verifier.wants_step()
        {
            at(now_us);
        }
        if !self.refused.is_empty() {
            at(self.refused_until_us);
        }
        if let Some(time) = self.next_clean_step_us() {
            at(time.max(now_us));
        }
        if let Some(time) = self.backups.next_step_us(now_us) {
            at(time);
        }
        if let Some(time) = self.scrubber.next_step_us(now_us) {
            at(time);
        }
        if let Some(time) = self.next_space_step_us() {
            at(time);
        }
        if let Some(time) = self.next_checkpoint_us() {
            at(time);
        }
        if let Some(time) = self.sweeper.next_step_us(now_us) {
            at(time);
        }
        if let Some(time) = self.memory.next_step_us(now_us) {
            at(time);
        }
        if let Some(time) = self.next_eviction_step_us() {
            at(time);
        }
        if let Some(time) = self.reads.reservations.next_look_us() {
            at(time);
        }
        if let Some(due_us) = self.group_due_us()
            && self.hot.may_submit()
        {
            at(due_us.max(now_us));
        }
        for due_us in [self.hot.flush_due_us(), self.hot.redo_mark_due_us()].into_iter().flatten() {
            at(due_us.max(now_us));
        }
        let overlap = self.settings.overlap_bytes;
        let leaves_closed = self.identity.mutations.is_on("closed_groups_left");
        if !leaves_closed && [&self.hot, &self.cold].iter().any(|stream| stream.wants_pump(overlap)) {
            // Written since the last step: the layer above does work of its own behind each.
            at(now_us);
        }
        if let Some(at_us) = self.hot.parts_step_at(now_us, self.shutting) {
            at(at_us);
        }
        next
    }

    /// Takes records of dropped keyspaces off their segments' accounts, some at a step.
    fn sweep_dropped(&mut self) {
        const ENTRIES_A_STEP: usize = 2_000;
        if self.keyspaces.drop_reborn(self.segments.opened()) {
            self.forget_keyspace(0);
        }
        let Some(mut keyspace) = self.keyspaces.take_sweepable() else { return };
        let done = self.sweep_some(&mut keyspace, ENTRIES_A_STEP);
        match done {
            true => self.cleaner.seeks_dead = true,
            false => self.keyspaces.dying.push(keyspace),
        }
    }
}
