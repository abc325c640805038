//! Clustering: records of neighbouring keys that ranges find scattered over the device are brought together in the cold
//! log, so that the next range over them takes a read or two instead of one a record.
//!
//! A page of a range that has been read knows where its records lie. Pieces of the device that hold less than
//! [`PIECE_BYTES_MIN`] of the page are short; where a page takes many of them, their records are copied to the cold log
//! one behind the other, as the cleaner copies: with their old sequences. What was there before is dead, and goes when its segment
//! is cleaned or nothing is left in it. Adapted from what database cracking (Idreos, Kersten, Manegold, CIDR 2007) does to columns:
//! reads leave the data in the order that they want it in, and where nobody walks ranges nothing is moved.
//!
//! Invariants:
//! 1. A segment is freed only when the copies of its records are durable (`clustered_copies_forgotten`): what is dead in it for this
//!    reason is still the record that a crash brings back. Recovery takes the original where it finds both.
//! 2. Only what is decided, lies in a sealed segment, never expires (and has no touch) and shares its position with no other
//!    key is copied: a version that may go without a trace has no twin.
//! 3. Nothing is copied while a checkpoint of the index is written or counts (`clustered_under_checkpoint`): it names the
//!    originals, touches that came later the copies. Nor beside a backup, a split or a verification, which count records where
//!    they were.
//! 4. It never makes space short: it ends well before writes would wait, and where the store is fuller than
//!    [`LIVE_FRACTION_MAX`]. Its rate is bounded ([`crate::ShardSettings::cluster_bytes_per_second`]).
//!
//! Crash: at any point a record has its original, its copy, or both, of the same sequence.

use crate::format::record::{FLAG_BATCH_MORE, FLAG_COLLIDES, RecordHeader};
use crate::format::summary::SummaryEntry;
use crate::location::{Location, Target, UNIT_BYTES};
use crate::read_path::matching;
use crate::segments::Role;
use crate::shard::LogShard;
use tierstone_base::{KeyspaceId, Position};
use tierstone_cache::FrameId;
use tierstone_engine::{Cost, Key, RangeEntry};
use tierstone_media::BLOCK_BYTES;

/// A page of fewer entries is not looked at.
const ENTRIES_MIN: usize = 8;
/// Nor is one that took fewer reads of the device.
const READS_MIN: u64 = 3;
/// A piece of the device with so many bytes of a page is worth a read of its own.
const PIECE_BYTES_MIN: usize = 8 << 10;
/// A page with fewer short pieces is left as it is, and so is one where they are fewer than one in
/// [`ENTRIES_A_SHORT_PIECE`] entries: each page has two that its neighbours cut off.
const SHORT_PIECES_MIN: usize = 4;
const ENTRIES_A_SHORT_PIECE: usize = 8;
/// Nothing is clustered where more than this part of the capacity is live: what is left behind has to be cleaned.
const LIVE_FRACTION_MAX: f64 = 0.7;
/// The rate is kept over so much time, in microseconds.
const BURST_US: u64 = 1_000_000;
/// How long after the last clustering no checkpoint is begun, in microseconds: the next would make it void.
const CHECKPOINT_PAUSE_US: u64 = 10_000_000;

/// What clustering may do, and has done.
#[derive(Debug, Default)]
pub(crate) struct Clusterer {
    /// Bytes that may be copied now.
    credit_bytes: u64,
    given_at_us: u64,
    /// Cold groups below this number hold all copies.
    pub(crate) cold_groups: u64,
    /// Bytes copied since the shard was opened.
    pub(crate) bytes: u64,
}

impl Clusterer {
    /// Whether `bytes` may be copied now, at such a rate.
    fn may_spend(&mut self, bytes: u64, now_us: u64, bytes_per_second: u64) -> bool {
        let burst = bytes_per_second.saturating_mul(BURST_US) / 1_000_000;
        let since_us = now_us.saturating_sub(self.given_at_us).min(BURST_US);
        let given = bytes_per_second.saturating_mul(since_us) / 1_000_000;
        if given > 0 {
            self.credit_bytes = self.credit_bytes.saturating_add(given).min(burst);
            self.given_at_us = now_us;
        }
        // A page of more than a second's bytes takes all of them.
        self.credit_bytes >= bytes.min(burst.max(1))
    }

    fn spent(&mut self, bytes: u64) {
        self.credit_bytes = self.credit_bytes.saturating_sub(bytes);
        self.bytes += bytes;
    }
}

/// A record of a page, where it lies now.
#[derive(Clone, Debug)]
struct Member {
    /// Where in the page.
    order: usize,
    position: Position,
    location: Location,
    /// As its copy has it: what it says of its batch stays, so that it keeps its size; in a cold log it says nothing.
    header: RecordHeader,
    /// Its place in the cache, if it may be copied.
    frame: Option<FrameId>,
    /// It lies in a short piece.
    is_short: bool,
}

impl Member {
    fn bytes(&self) -> usize {
        self.header.units() * UNIT_BYTES
    }
}

/// Marks the members of short pieces; gives the number of these. Members come in the order of their locations.
fn mark_short(members: &mut [Member]) -> usize {
    let end = |member: &Member| member.location.offset() + member.bytes();
    let is_next = |one: &Member, other: &Member| {
        one.location.segment() == other.location.segment()
            && other.location.offset() <= end(one) + BLOCK_BYTES
    };
    let mut short = 0;
    for piece in members.chunk_by_mut(is_next) {
        let bytes: usize = piece.iter().map(Member::bytes).sum();
        if bytes < PIECE_BYTES_MIN {
            short += 1;
            piece.iter_mut().for_each(|member| member.is_short = true);
        }
    }
    short
}

impl LogShard {
    /// Looks whether the records of a page lie scattered, and brings them together if so.
    pub(crate) fn cluster_page(&mut self, keyspace: KeyspaceId, entries: &[RangeEntry], cost: &Cost) {
        let is_off = self.settings.cluster_bytes_per_second == 0;
        if is_off || entries.len() < ENTRIES_MIN || cost.reads < READS_MIN || !self.may_cluster() {
            return;
        }
        let members = entries.iter().zip(0..);
        let members = members.filter_map(|(entry, order)| self.member(keyspace, &entry.key, order));
        let mut members: Vec<Member> = members.collect();
        members.sort_unstable_by_key(|member| member.location.raw());
        let short = mark_short(&mut members);
        if short < SHORT_PIECES_MIN.max(members.len() / ENTRIES_A_SHORT_PIECE) {
            return;
        }
        members.retain(|member| member.is_short && member.frame.is_some());
        members.sort_unstable_by_key(|member| member.order);
        if members.len() >= SHORT_PIECES_MIN {
            self.cluster(&members);
        }
    }

    /// Whether anything may be clustered now.
    fn may_cluster(&self) -> bool {
        let is_stopped = self.failed.is_some() || self.shutting || !self.refused.is_empty();
        let capacity = f64::from(self.capacity_count()) * self.segments.segment_bytes() as f64;
        !is_stopped
            && !self.backups.is_under_way()
            && !self.transfers.are_under_way()
            && !self.verifier.is_under_way()
            && self.now.monotonic_us >= self.loading_until_us()
            && self.segments.live_bytes() as f64 <= capacity * LIVE_FRACTION_MAX
            && self.has_space_to_cluster()
    }

    /// Whether no checkpoint stands in the way; the next look may find that none does.
    fn is_without_checkpoint(&mut self) -> bool {
        if self.identity.mutations.is_on("clustered_under_checkpoint") {
            return true;
        }
        self.checkpoints.give_way(self.now.monotonic_us + CHECKPOINT_PAUSE_US);
        self.drop_checkpoints();
        !self.checkpoints.are_under_way()
    }

    /// Where the record of `key` lies.
    fn member(&self, keyspace: KeyspaceId, key: &[u8], order: usize) -> Option<Member> {
        let position = self.identity.hasher.position(key);
        let first = self.keyspaces.get(keyspace)?.index.first_candidate(position)?;
        // What is not in memory was read and has gone since, or is too long for the cache.
        let Target::Frame(bits) = Target::unpack(first) else { return None };
        let frame = FrameId::from_bits(bits);
        let view = self.cache.peek(frame);
        let header = matching(view.bytes, &Key { keyspace, position, bytes: key })?;
        let location = Location::from_raw(view.location);
        let may_move = self.may_move(position, &header, location);
        let frame = may_move.then_some(frame);
        let header = RecordHeader { flags: header.flags & !FLAG_BATCH_MORE, ..header };
        Some(Member { order, position, location, header, frame, is_short: false })
    }

    fn may_move(&self, position: Position, header: &RecordHeader, location: Location) -> bool {
        let is_sealed = self.segments.get(location.segment()).role == Role::Sealed;
        is_sealed
            && header.seq <= self.hot.decided_seq()
            && header.flags & FLAG_COLLIDES == 0
            && header.expiry_ms == 0
            && self.touch_of(header.keyspace, position, header.seq).is_none()
            && !self.reads.damaged.contains(&location.raw())
    }

    /// Copies records of the cache to the cold log, one behind the other.
    fn cluster(&mut self, members: &[Member]) {
        let entry = |member: &Member| SummaryEntry::new(&member.header, member.position, 0);
        let copies: Vec<SummaryEntry> = members.iter().map(entry).collect();
        let bytes = members.iter().map(|member| member.bytes() as u64).sum();
        let (rate, now_us) = (self.settings.cluster_bytes_per_second, self.now.monotonic_us);
        if !self.clusterer.may_spend(bytes, now_us, rate)
            || !self.has_room_for(&copies)
            || !self.is_without_checkpoint()
        {
            return;
        }
        self.cold.set_newest_seq(self.applied + 1);
        for member in members {
            let Some(frame) = member.frame else { continue };
            let (header, position) = (&member.header, member.position);
            let bytes = self.cache.peek(frame).bytes;
            let Some(to) = self.cold.append_encoded(bytes, header, position, now_us, &mut self.segments)
            else {
                break;
            };
            self.segments.kill_record(member.location, header.units(), 0, header.flags);
            self.cache.set_location(frame, to.raw());
            self.clusterer.spent(member.bytes() as u64);
        }
        // The group that takes records has the next number.
        self.clusterer.cold_groups = self.cold.group_count() + 1;
    }
}

#[cfg(test)]
#[path = "cluster_test.rs"]
mod cluster_test;
