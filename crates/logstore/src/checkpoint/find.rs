//! At the opening: which checkpoints lie on the device, and which of them count.
//!
//! A shard's checkpoint counts when it is committed, all its segments are there in the same life, and
//! it was written for the same part of the keys; of several the youngest. All others are made void,
//! durably, before anything is served: nobody would keep them from going stale.

use crate::format::checkpoint::{Commit, pieces_a_segment};
use crate::format::segment::SegmentHeader;
use crate::open::run_all;
use std::collections::BTreeMap;
use tierstone_base::codec::Reader;
use tierstone_base::{Position, Result};
use tierstone_media::{BLOCK_BYTES, BlockDevice, IoBuffer, IoRequest};

/// The segments that hold checkpoints, and what commits them.
#[derive(Debug, Default)]
pub(crate) struct FoundCheckpoints {
    headers: BTreeMap<u32, SegmentHeader>,
    commits: Vec<Commit>,
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

    /// Makes all of them void, durably: a record that they may point to is about to be.
    pub fn drop_all(&mut self, device: &mut dyn BlockDevice, store: u64) -> Result<()> {
        self.commits.clear();
        let segments: Vec<u32> = std::mem::take(&mut self.headers).into_keys().collect();
        free(device, store, &segments)
    }

    /// Chooses for each of `shard_count` shards; gives the numbers of all other segments besides, whose
    /// checkpoints do not count.
    pub fn choose(self, shard_count: u16, segment_bytes: u64) -> (Vec<Option<Commit>>, Vec<u32>) {
        let mut chosen: Vec<Option<Commit>> = vec![None; usize::from(shard_count)];
        for commit in self.commits {
            let is_whole = (0u64..).zip(&commit.segments).all(|(place, number)| {
                self.headers.get(number).is_some_and(|header| {
                    (header.generation, header.first_group) == (commit.generation, place)
                })
            });
            let is_ours = commit.shard_count == shard_count
                && commit.shard < shard_count
                && Position(commit.first_position) == Position::first_of_shard(commit.shard, shard_count)
                && Position(commit.last_position).shard(shard_count) == commit.shard;
            let pieces_max = commit.segments.len() as u64 * pieces_a_segment(segment_bytes);
            if !is_whole || !is_ours || commit.pieces > pieces_max {
                continue;
            }
            let place = &mut chosen[usize::from(commit.shard)];
            let age = |commit: &Commit| (commit.open_count, commit.number);
            if place.as_ref().is_none_or(|other| age(other) < age(&commit)) {
                *place = Some(commit);
            }
        }
        let is_kept = |number: &u32| chosen.iter().flatten().any(|commit| commit.segments.contains(number));
        let void = self.headers.keys().filter(|number| !is_kept(number)).copied().collect();
        (chosen, void)
    }
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
