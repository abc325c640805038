//! The shard as a [`tierstone_engine::Engine`]: each call measured, most of them one line.

use crate::graves::grave_of;
use crate::shard::PmShard;
use std::sync::Arc;
use tierstone_base::{CpuClock, Error, ErrorKind, KeyspaceId, Now, Position, Result, Seq, Token};
use tierstone_engine::{
    Admission, BackupCut, BackupSince, BackupStep, BatchTicket, Cost, Durability, Engine, EngineStatistics,
    Event, Eviction, Health, Housekeeping, IndexKind, Key, Lookup, RangeRequest, ScanRequest, SnapshotId,
    ValueKind, Verification, Write, WriteReceipt,
};
use tierstone_media::{IoCompletion, IoRequest};

/// Nobody tells when another shard's part is durable: it is looked for so often, in microseconds.
const PARTS_STEP_US: u64 = 200;

impl PmShard {
    fn metered(
        &mut self,
        now: Now,
        writes: &[Write<'_>],
        part: Option<&Arc<BatchTicket>>,
        is_undo: bool,
    ) -> Result<WriteReceipt> {
        let since = self.meter.read();
        let result = self.write_inner(now, writes, part, is_undo);
        let cpu_ns = self.meter.call(since, result.is_ok());
        result.map(|receipt| WriteReceipt { cost: Cost { cpu_ns, ..receipt.cost }, ..receipt })
    }
}

impl Engine for PmShard {
    fn lookup(&mut self, now: Now, key: Key<'_>) -> Lookup<'_> {
        self.lookup_inner(now, key, true)
    }

    fn peek(&mut self, now: Now, key: Key<'_>) -> Lookup<'_> {
        self.lookup_inner(now, key, false)
    }

    fn prefetch(&mut self, places: &[(KeyspaceId, Position)]) {
        for (keyspace, position) in places {
            if let Some(index) = self.keyspaces.get(keyspace) {
                index.prefetch(*position);
            }
        }
        // Their buckets are on their way: the records that these name come side by side, too, and what a write changes
        // of their blocks and graves.
        for &(keyspace, position) in places {
            if let Some(index) = self.keyspaces.get(&keyspace) {
                index.prefetch_records(position, |place| self.blocks.prefetch(place));
                self.graves.prefetch(grave_of(keyspace, position));
            }
        }
    }

    fn fetch(&mut self, _now: Now, keys: &[(Token, Key<'_>)]) {
        let since = self.meter.read();
        for (token, key) in keys {
            let result = self.fetch_one(key);
            self.asked.fetched.push((*token, result));
        }
        self.meter.asked(since, keys.iter().map(|(token, _)| *token));
    }

    fn release(&mut self, token: Token) {
        self.meter.forget(token);
    }

    fn write(&mut self, now: Now, writes: &[Write<'_>]) -> Result<WriteReceipt> {
        self.metered(now, writes, None, false)
    }

    fn admit(&mut self, now: Now, writes: &[Write<'_>]) -> Result<()> {
        let since = self.meter.read();
        self.see(now);
        let result = self.admit_inner(writes);
        self.meter.call(since, false);
        result
    }

    fn write_part(
        &mut self,
        now: Now,
        writes: &[Write<'_>],
        batch: &Arc<BatchTicket>,
    ) -> Result<WriteReceipt> {
        if writes.is_empty() {
            return Err(Error::new(ErrorKind::InvalidInput, "a part of a batch has at least one write"));
        }
        self.metered(now, writes, Some(batch), false)
    }

    fn undo_part(
        &mut self,
        now: Now,
        writes: &[Write<'_>],
        batch: &Arc<BatchTicket>,
    ) -> Result<WriteReceipt> {
        let receipt = self.metered(now, writes, None, true)?;
        self.parts.undo(batch, receipt.seq);
        Ok(receipt)
    }

    fn scan(&mut self, now: Now, request: ScanRequest) {
        let (since, token) = (self.meter.read(), request.token);
        self.see(now);
        match request.snapshot {
            None => self.asked.scans.push(request),
            Some(snapshot) => self.asked.ready.push(self.scan_at(&request, snapshot)),
        }
        self.meter.asked(since, [token].into_iter());
    }

    fn range(&mut self, now: Now, request: RangeRequest) {
        let (since, token) = (self.meter.read(), request.token);
        self.see(now);
        match request.snapshot {
            None => self.asked.ranges.push(request),
            Some(snapshot) => self.asked.ready.push(self.range_at(&request, snapshot)),
        }
        self.meter.asked(since, [token].into_iter());
    }

    fn create_keyspace(&mut self, keyspace: KeyspaceId, index: IndexKind) {
        let is_new = |keys: &crate::keys::Keys| keys.len() == 0 && index == IndexKind::Ordered;
        if self.keyspaces.get(&keyspace).is_none_or(is_new) {
            let keys = self.new_keys(index);
            self.keyspaces.insert(keyspace, keys);
        }
    }

    fn snapshot(&mut self, now: Now) -> Result<SnapshotId> {
        self.see(now);
        self.take_snapshot()
    }

    fn release_snapshot(&mut self, snapshot: SnapshotId) {
        self.end_snapshot(snapshot);
    }

    fn read_at(&mut self, _now: Now, snapshot: SnapshotId, keys: &[(Token, Key<'_>)]) {
        let since = self.meter.read();
        for (token, key) in keys {
            let result = self.record_at(snapshot, key);
            self.asked.ready.push(Event::SnapshotRead { token: *token, result, cost: Cost::default() });
        }
        self.meter.asked(since, keys.iter().map(|(token, _)| *token));
    }

    fn drop_keyspace(&mut self, keyspace: KeyspaceId) {
        self.drop_keys(keyspace);
    }

    fn past_ms(&self) -> u64 {
        self.past.shown_ms
    }

    fn note_past(&mut self, expiry_ms: u64) {
        self.show_past(expiry_ms);
    }

    fn len(&self, keyspace: KeyspaceId) -> u64 {
        self.keys_of(keyspace)
    }

    fn begin_backup(&mut self, now: Now, since: Option<BackupSince>) -> Result<BackupCut> {
        self.start_backup(now, since.as_ref())
    }

    fn take_backup(&mut self) -> Result<BackupStep> {
        self.next_of_backup()
    }

    fn end_backup(&mut self) {
        self.drop_backup();
    }

    fn begin_verification(&mut self) -> Result<()> {
        self.begin_verify()
    }

    fn verification(&self) -> Option<&Verification> {
        self.verifier.report()
    }

    fn housekeeping(&self) -> Housekeeping {
        Housekeeping { evicts: true, scrubs: true }
    }

    fn set_scrub_rate(&mut self, bytes_per_second: u64) {
        self.change_scrub_rate(bytes_per_second);
    }

    fn take_scrub_findings(&mut self) -> Vec<String> {
        self.scrubber.take_findings()
    }

    fn set_eviction(&mut self, eviction: Eviction) {
        self.change_eviction(eviction);
    }

    fn evictable(&mut self) -> Option<(Key<'_>, ValueKind)> {
        self.first_evictable()
    }

    fn evict(&mut self, now: Now) -> Result<bool> {
        let since = self.meter.read();
        let result = self.evict_first(now);
        self.meter.call(since, matches!(result, Ok(true)));
        result
    }

    fn pass_evictable(&mut self, freed: Option<u64>) {
        self.pass_first(freed);
    }

    fn uses(&self, key: Key<'_>) -> Option<u8> {
        self.evictor.uses.how_often(key.keyspace, key.position)
    }

    fn note_outside_bytes(&mut self, bytes: u64) {
        self.memory.outside_bytes = bytes;
    }

    fn step(&mut self, now: Now, completions: &mut Vec<IoCompletion>, events: &mut Vec<Event>) {
        completions.clear();
        self.release_admitted();
        self.step_inner(now, events);
    }

    fn take_requests(&mut self, _requests: &mut Vec<IoRequest>) {}

    fn next_step_at_us(&self) -> Option<u64> {
        if !self.asked.is_empty() {
            return Some(0);
        }
        if self.failed.is_some() {
            return None;
        }
        let is_busy = self.is_cleaning
            || self.wants_space
            || self.wants_truncation
            || self.wants_log
            || !self.sweeping.is_empty()
            || !self.reborn.is_empty()
            || self.snapshots.wants_step()
            || self.backup_wants_step()
            || self.verifier.wants_step()
            || self.blocks.is_writing_back()
            || self.deaths.front().is_some_and(|death| death.seq <= self.decided())
            || self.is_shutting && !self.has_ended;
        let parts_us = (!self.parts.is_empty()).then_some(self.now.monotonic_us + PARTS_STEP_US);
        let busy_us = is_busy.then_some(0);
        let others =
            [parts_us, busy_us, self.sweeper.due_at_us(), self.mark_due_at_us(), self.scrubber.due_at_us()];
        others
            .into_iter()
            .chain([self.due_at_us(), self.recount.due_at_us(), self.eviction_due_at_us()])
            .chain([self.checkpoints.due_at_us()])
            .flatten()
            .min()
    }

    fn durable_seq(&self) -> Seq {
        self.durable
    }

    fn decided_seq(&self) -> Seq {
        self.decided()
    }

    fn applied_seq(&self) -> Seq {
        self.applied
    }

    fn flush(&mut self, now: Now) {
        self.see(now);
        if self.failed.is_none() && self.due_at_us().is_some() {
            // A failure is told by the engine's health.
            let _ = self.commit();
        }
    }

    fn set_durability(&mut self, now: Now, durability: Durability) -> Seq {
        self.see(now);
        if self.settings.durability == Durability::Relaxed && durability != Durability::Relaxed {
            self.wants_flush = true;
        }
        self.settings.durability = durability;
        self.applied
    }

    fn health(&self) -> Health {
        self.failed.as_ref().map_or(Health::Good, |error| Health::Failed(error.clone()))
    }

    fn admission(&self) -> Admission {
        // Not while a backup is behind: nobody but who is admitted takes its pieces, or ends it. Writes wait for it.
        if self.wants_space { Admission::Throttled } else { Admission::Open }
    }

    fn set_cpu_clock(&mut self, clock: Box<dyn CpuClock>) {
        self.meter.set_clock(clock);
    }

    fn statistics(&self) -> EngineStatistics {
        self.statistics_inner()
    }

    fn shut(&mut self) {
        self.is_shutting = true;
    }

    fn is_shut(&self) -> bool {
        self.is_shutting && (self.has_ended || self.failed.is_some())
    }
}
