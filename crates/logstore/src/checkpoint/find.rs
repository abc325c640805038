//! At the opening: which checkpoints lie on the device and in the region, and which of them count.
//!
//! A shard's checkpoint counts when it is committed, all its segments are there in the same life, and
//! it was written for the same part of the keys; of several the youngest. All others are made void,
//! durably, before anything is served: nobody would keep them from going stale.

use super::Place;
use crate::format::checkpoint::{Commit, piece_bytes, pieces_a_segment};
use crate::format::segment::SegmentHeader;
use crate::open::run_all;
use crate::redo::snapshots::Area;
use std::collections::{BTreeMap, BTreeSet};
use tierstone_base::codec::Reader;
use tierstone_base::{Position, Result};
use tierstone_media::{BLOCK_BYTES, BlockDevice, IoBuffer, IoRequest};

/// The segments that hold checkpoints, and what commits them.
#[derive(Debug, Default)]
pub(crate) struct FoundCheckpoints {
    headers: BTreeMap<u32, SegmentHeader>,
    commits: Vec<Commit>,
    in_region: Vec<(Commit, Area)>,
}

impl FoundCheckpoints {
    /// A segment whose header says that it holds a checkpoint.
    pub fn add_header(&mut self, header: SegmentHeader) {
        self.headers.insert(header.segment, header);
    }

    /// The last block of `segment`. `any_generation`: a test's mutation.
    pub fn add_last_block(&mut self, segment: u32, block: &[u8], any_generation: bool) {
        let Some(header) = self.headers.get(&segment) else { return };
        let generation = match any_generation {
            true => block.get(24..).and_then(|rest| Reader::new(rest).u64()).unwrap_or(0),
            false => header.generation,
        };
        if let Some(commit) = Commit::decode(block, header.store, segment, generation) {
            self.commits.push(Commit { generation: header.generation, ..commit });
        }
    }

    /// Those that the region holds.
    pub fn add_region(&mut self, found: Vec<(Commit, Area)>) {
        self.in_region = found;
    }

    /// Makes all of them void, durably: a record that they may point to is about to be.
    pub fn drop_all(&mut self, device: &mut dyn BlockDevice, store: u64) -> Result<()> {
        self.commits.clear();
        for (_, area) in std::mem::take(&mut self.in_region) {
            area.make_void()?;
        }
        let segments: Vec<u32> = std::mem::take(&mut self.headers).into_keys().collect();
        free(device, store, &segments)
    }

    /// Chooses for each of `shard_count` shards; gives the numbers of all other segments besides, whose
    /// checkpoints do not count.
    pub fn choose(self, shard_count: u16, segment_bytes: u64) -> (Vec<Option<FoundCheckpoint>>, Vec<u32>) {
        let mut chosen: Vec<Option<FoundCheckpoint>> = vec![None; usize::from(shard_count)];
        let is_whole = |commit: &Commit| {
            let mut segments = (0u64..).zip(&commit.segments);
            let pieces_max = commit.segments.len() as u64 * pieces_a_segment(segment_bytes);
            segments.all(|(place, number)| {
                self.headers.get(number).is_some_and(|header| {
                    (header.generation, header.first_group) == (commit.generation, place)
                })
            }) && commit.pieces <= pieces_max
        };
        let on_flash = self.commits.into_iter().filter(is_whole).map(|commit| {
            let place = Place::Flash(commit.segments.clone());
            (commit, place)
        });
        let in_region = self.in_region.into_iter().map(|(commit, area)| (commit, Place::Region(area)));
        for (commit, place) in on_flash.chain(in_region) {
            let is_ours = commit.shard_count == shard_count
                && commit.shard < shard_count
                && Position(commit.first_position) == Position::first_of_shard(commit.shard, shard_count)
                && Position(commit.last_position).shard(shard_count) == commit.shard;
            if !is_ours {
                continue;
            }
            let best = &mut chosen[usize::from(commit.shard)];
            let age = |commit: &Commit| (commit.open_count, commit.number);
            if best.as_ref().is_none_or(|other| age(&other.commit) < age(&commit)) {
                *best = Some(FoundCheckpoint { commit, place });
            }
        }
        let kept: BTreeSet<&u32> = chosen.iter().flatten().flat_map(|found| found.place.segments()).collect();
        let void = self.headers.keys().filter(|number| !kept.contains(number)).copied().collect();
        (chosen, void)
    }
}

/// A checkpoint that counts.
#[derive(Clone, Debug)]
pub(crate) struct FoundCheckpoint {
    /// What commits it.
    pub commit: Commit,
    /// Where it lies.
    pub place: Place,
}

impl FoundCheckpoint {
    /// What is read of it, in bytes, in segments of `segment_bytes`.
    pub fn bytes(&self, segment_bytes: u64) -> u64 {
        self.commit.pieces * piece_bytes(segment_bytes) as u64
    }

    /// Makes it void, durably.
    pub fn make_void(&self, device: &mut dyn BlockDevice, store: u64) -> Result<()> {
        match &self.place {
            Place::Flash(segments) => free(device, store, segments),
            Place::Region(area) => area.make_void(),
        }
    }
}

/// Where in the region the chosen ones that lie there are committed.
pub(crate) fn kept_in_region(chosen: &[Option<FoundCheckpoint>]) -> Vec<u64> {
    let commit_at = |found: &FoundCheckpoint| match &found.place {
        Place::Region(area) => Some(area.commit_at()),
        Place::Flash(_) => None,
    };
    chosen.iter().flatten().filter_map(commit_at).collect()
}

/// Makes `segments` free, durably.
pub(crate) fn free(device: &mut dyn BlockDevice, store: u64, segments: &[u32]) -> Result<()> {
    let geometry = device.geometry();
    let free_header = |&segment: &u32| {
        let mut buffer = IoBuffer::zeroed(BLOCK_BYTES);
        SegmentHeader::free(store, segment, 0).encode(&mut buffer);
        IoRequest::write_durable(u64::from(segment), geometry.segment_offset(segment), buffer)
    };
    run_all(device, segments.iter().map(free_header).collect()).map(drop)
}
