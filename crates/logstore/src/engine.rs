//! The log store as an [`Engine`].

use crate::admission::Purpose;
use crate::read_path::{Found, Search};
use crate::shard::LogShard;
use std::sync::Arc;
use tierstone_base::{CpuClock, KeyspaceId, Now, Position, Result, Seq, Token};
use tierstone_engine::{
    Admission, BackupCut, BackupSince, BackupStep, BatchTicket, Cost, Durability, Engine, EngineStatistics,
    Event, Eviction, Health, Housekeeping, IndexKind, Key, Lookup, PreparedPart, RangeRequest, RecordView,
    ScanRequest, SnapshotId, ValueKind, Verification, Write, WriteReceipt,
};
use tierstone_media::{IoCompletion, IoRequest};

impl LogShard {
    /// Carries a write out and adds what it cost to its answer.
    fn charged(
        &mut self,
        now: Now,
        write: impl FnOnce(&mut Self) -> Result<WriteReceipt>,
    ) -> Result<WriteReceipt> {
        let (since, bytes) = (self.meter.read(), self.hot.record_bytes);
        self.see(now);
        let answer = write(self);
        let cpu_ns = self.meter.call(since, answer.is_ok());
        // Put together anew: what was written piece by piece just now is slow to be copied whole.
        let WriteReceipt { seq, commit, .. } = answer?;
        let cost = Cost { bytes_written: self.hot.record_bytes - bytes, cpu_ns, ..Cost::default() };
        Ok(WriteReceipt { seq, commit, cost })
    }

    /// What is in memory of `key`; whether that is a use of it.
    fn look_in_memory(&mut self, now: Now, key: Key<'_>, is_use: bool) -> Lookup<'_> {
        let Search { found, header, damaged, .. } = self.search(&key);
        if found == Found::Unknown || found == Found::Absent && damaged {
            return Lookup::Fetch;
        }
        if is_use {
            self.evictor.uses.asked(key.keyspace, key.position);
            if let Found::Frame(frame) = found {
                self.cache.touch(frame);
            }
        }
        if found == Found::Absent {
            return Lookup::Missing;
        }
        let meta = self.meta_at(key.position, &header);
        if self.is_past(meta.expiry_ms, now.wall_ms) {
            return Lookup::Missing;
        }
        match self.reads.owed_lookups.checked_sub(1) {
            Some(left) => self.reads.owed_lookups = left,
            None => self.counts.memory_hits += 1,
        }
        match self.found_bytes(found).and_then(|bytes| bytes.get(header.value_range())) {
            Some(value) => Lookup::Found(RecordView { meta, value }),
            None => unreachable!("the search found the record's bytes in memory"),
        }
    }
}

impl Engine for LogShard {
    fn lookup(&mut self, now: Now, key: Key<'_>) -> Lookup<'_> {
        self.look_in_memory(now, key, true)
    }

    fn peek(&mut self, now: Now, key: Key<'_>) -> Lookup<'_> {
        self.look_in_memory(now, key, false)
    }

    fn prefetch(&mut self, places: &[(KeyspaceId, Position)]) {
        self.foresee(places);
    }

    fn fetch(&mut self, now: Now, keys: &[(Token, Key<'_>)]) {
        let since = self.meter.read();
        self.see(now);
        for (token, key) in keys {
            self.start_fetch(*token, key);
        }
        self.meter.asked(since, keys.iter().map(|(token, _)| *token));
    }

    fn release(&mut self, token: Token) {
        self.release_token(token);
        self.meter.forget(token);
    }

    fn write(&mut self, now: Now, writes: &[Write<'_>]) -> Result<WriteReceipt> {
        self.charged(now, |shard| shard.write_inner(writes))
    }

    fn admit(&mut self, now: Now, writes: &[Write<'_>]) -> Result<()> {
        self.see(now);
        let admitted = self.admit_part(writes, Purpose::Part);
        self.admitted_at = admitted.is_ok().then_some((self.reads.steps, self.applied));
        admitted.map(drop)
    }

    fn write_part(
        &mut self,
        now: Now,
        writes: &[Write<'_>],
        batch: &Arc<BatchTicket>,
    ) -> Result<WriteReceipt> {
        self.charged(now, |shard| shard.write_part_inner(writes, batch))
    }

    fn prepare_part<'e>(&'e mut self, now: Now, writes: &'e [Write<'e>]) -> Result<PreparedPart<'e>> {
        self.see(now);
        let found = self.admit_part(writes, Purpose::Part)?;
        Ok(Box::new(move |batch| self.charged(now, |shard| shard.write_admitted_part(writes, found, batch))))
    }

    fn undo_part(
        &mut self,
        now: Now,
        writes: &[Write<'_>],
        batch: &Arc<BatchTicket>,
    ) -> Result<WriteReceipt> {
        self.charged(now, |shard| shard.undo_part_inner(writes, batch))
    }

    fn scan(&mut self, now: Now, request: ScanRequest) {
        let since = self.meter.read();
        self.see(now);
        self.start_scan(request);
        self.meter.asked(since, [request.token].into_iter());
    }

    fn snapshot(&mut self, now: Now) -> Result<SnapshotId> {
        self.see(now);
        self.take_snapshot()
    }

    fn release_snapshot(&mut self, snapshot: SnapshotId) {
        self.end_snapshot(snapshot);
    }

    fn read_at(&mut self, now: Now, snapshot: SnapshotId, keys: &[(Token, Key<'_>)]) {
        let since = self.meter.read();
        self.see(now);
        for (token, key) in keys {
            self.start_read_at(snapshot, *token, key);
        }
        self.meter.asked(since, keys.iter().map(|(token, _)| *token));
    }

    fn range(&mut self, now: Now, request: RangeRequest) {
        let (since, token) = (self.meter.read(), request.token);
        self.see(now);
        self.start_range(request);
        self.meter.asked(since, [token].into_iter());
    }

    fn create_keyspace(&mut self, keyspace: KeyspaceId, index: IndexKind) {
        self.keyspaces.define(keyspace, index);
    }

    fn drop_keyspace(&mut self, keyspace: KeyspaceId) {
        self.split_loses_keyspace();
        let keys = self.len(keyspace);
        self.keyspaces.drop_keyspace(keyspace, &self.snapshots, self.segments.opened());
        self.forget_keyspace(keys);
    }

    fn len(&self, keyspace: KeyspaceId) -> u64 {
        self.keyspaces.get(keyspace).map_or(0, |keyspace| keyspace.index.len())
    }

    fn step(&mut self, now: Now, completions: &mut Vec<IoCompletion>, events: &mut Vec<Event>) {
        self.step_inner(now, completions, events);
    }

    fn take_requests(&mut self, requests: &mut Vec<IoRequest>) {
        self.requests.drain_into(requests);
    }

    fn next_step_at_us(&self) -> Option<u64> {
        self.next_step()
    }

    fn durable_seq(&self) -> Seq {
        if self.identity.mutations.is_on("ungated_replies") { self.applied } else { self.hot.answered_seq() }
    }

    fn decided_seq(&self) -> Seq {
        let mutations = &self.identity.mutations;
        if mutations.is_on("ungated_replies") {
            return self.applied;
        }
        if mutations.is_on("durable_is_decided") {
            self.hot.answered_seq()
        } else {
            self.hot.answered_decided_seq()
        }
    }

    fn applied_seq(&self) -> Seq {
        self.applied
    }

    fn past_ms(&self) -> u64 {
        self.past.shown_ms
    }

    fn note_past(&mut self, expiry_ms: u64) {
        self.show_past(expiry_ms);
    }

    fn flush(&mut self, now: Now) {
        self.see(now);
        self.commit_redo();
        if self.hot.answered_decided_seq() >= self.applied && !self.shutting {
            return;
        }
        self.note_awaited();
        self.hot.set_lazy(self.loads_lazily());
        self.hot.close_group(&self.segments);
        self.pump();
    }

    fn set_durability(&mut self, now: Now, durability: Durability) -> Seq {
        let old = std::mem::replace(&mut self.settings.durability, durability);
        let leaves_relaxed = old == Durability::Relaxed && durability != Durability::Relaxed;
        if leaves_relaxed && !self.identity.mutations.is_on("switch_leaves_group_open") {
            // Its writes were acknowledged: it may not wait for company as long as those of the new mode.
            self.flush(now);
        }
        self.applied
    }

    fn health(&self) -> Health {
        match &self.failed {
            Some(error) => Health::Failed(error.clone()),
            None => Health::Good,
        }
    }

    fn admission(&self) -> Admission {
        // What was refused, or will never be written, stays in the buffers: reads go on, and writes are told why they cannot.
        let is_stuck = self.failed.is_some() || !self.refused.is_empty();
        let busy = !is_stuck && self.hot.buffered_bytes() > self.settings.write_buffer_bytes()
            || self.reads.reading.len() > self.settings.reads_in_flight_max;
        if busy { Admission::Throttled } else { Admission::Open }
    }

    fn housekeeping(&self) -> Housekeeping {
        Housekeeping { evicts: true, scrubs: true }
    }

    fn set_eviction(&mut self, eviction: Eviction) {
        self.change_eviction(eviction);
    }

    fn evictable(&mut self) -> Option<(Key<'_>, ValueKind)> {
        self.first_evictable()
    }

    fn evict(&mut self, now: Now) -> Result<bool> {
        self.see(now);
        self.evict_first()
    }

    fn pass_evictable(&mut self, freed: Option<u64>) {
        self.pass_first(freed);
    }

    fn uses(&self, key: Key<'_>) -> Option<u8> {
        self.evictor.uses.of(key.keyspace, key.position)
    }

    fn note_outside_bytes(&mut self, bytes: u64) {
        self.memory.outside_bytes = bytes;
    }

    fn set_cpu_clock(&mut self, clock: Box<dyn CpuClock>) {
        self.meter.set_clock(clock);
    }

    fn statistics(&self) -> EngineStatistics {
        let cache = self.cache.statistics();
        let (snapshots, snapshots_lost) = self.snapshots.cuts.counts();
        let segment_bytes = self.segments.segment_bytes();
        let used = self.segments.held_count().saturating_sub(self.segments.own_free_count());
        // The pool is everybody's: the first shard counts it.
        let pool = if self.identity.shard == 0 { self.segments.pool_count() } else { 0 };
        EngineStatistics {
            keys: self.keyspaces.iter().map(|keyspace| keyspace.index.len()).sum(),
            memory_part_bytes: self.memory.part_bytes(),
            index_bytes: self.keyspaces.memory_bytes()
                + self.touches.bytes()
                + self.evictor.uses.bytes()
                + self.segments.mark_bytes(),
            cache_bytes: cache.live_bytes,
            buffer_bytes: (self.hot.memory_bytes() + self.cold.memory_bytes()) as u64
                + self.reads.held.values().map(|held| held.buffer.len() as u64).sum::<u64>(),
            record_bytes_written: self.hot.record_bytes,
            absorbed_bytes: self.hot.absorbed_bytes,
            padding_bytes_written: self.hot.padding_bytes + self.cold.padding_bytes,
            summary_bytes_written: self.hot.summary_bytes + self.cold.summary_bytes,
            cleaned_bytes_written: self.cold.record_bytes - self.clusterer.bytes,
            clustered_bytes_written: self.clusterer.bytes,
            redo_bytes_written: self.hot.redo().map_or(0, |log| log.bytes_written),
            redo_fences: self.hot.redo().map_or(0, |log| log.fences),
            redo_groups_without_slot: self.hot.redo().map_or(0, |log| log.groups_without_slot),
            lost_bytes: self.hot.redo().map_or(0, |log| log.lost_bytes),
            group_depth: self.hot.depth.now() as u64,
            device: Cost { cpu_ns: self.meter.total_ns(), ..self.requests.cost() },
            background_cpu_ns: self.meter.background_ns(),
            read_latency: self.requests.read_latency,
            commit_latency: self.requests.commit_latency,
            space_used_bytes: u64::from(used) * segment_bytes,
            space_live_bytes: self.segments.live_bytes(),
            space_capacity_bytes: u64::from(self.segments.held_count() + pool) * segment_bytes,
            space_growth_bytes_per_day: self.growth.bytes_per_day(),
            snapshots,
            snapshots_lost,
            snapshot_table_bytes: self.snapshots.table_bytes(),
            snapshot_pinned_bytes: self.snapshots.pinned_bytes(),
            device_hits: self.counts.device_hits + self.reads.device_hits,
            expired_keys: self.sweeper.dropped_keys,
            evicted_keys: self.evictor.evicted_keys,
            scrub: self.scrubber.statistics(),
            ..self.counts
        }
    }

    fn begin_verification(&mut self) -> Result<()> {
        self.begin_verify()
    }

    fn verification(&self) -> Option<&Verification> {
        self.verifier.report()
    }

    fn set_scrub_rate(&mut self, bytes_per_second: u64) {
        self.change_scrub_rate(bytes_per_second);
    }

    fn take_scrub_findings(&mut self) -> Vec<String> {
        self.scrubber.take_findings()
    }

    fn begin_backup(&mut self, now: Now, since: Option<BackupSince>) -> Result<BackupCut> {
        self.see(now);
        self.start_backup(since)
    }

    fn take_backup(&mut self) -> Result<BackupStep> {
        self.next_of_backup()
    }

    fn end_backup(&mut self) {
        self.drop_backup();
    }

    fn shut(&mut self) {
        self.begin_end();
    }

    fn is_shut(&self) -> bool {
        self.has_ended()
    }
}
