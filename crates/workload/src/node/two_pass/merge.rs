//! The second pass: all runs are read at once and merged by a tree of losers (Knuth, The Art of Computer Programming,
//! volume 3, section 5.4.1): the smallest key of all runs costs one comparison a level.

use super::layout::{Layout, MERGED_PIECES};
use super::streams::{Disk, Reader, Region};
use super::{Phase, Progress, Result, tell};
use crate::node::gensort::RECORD_BYTES;
use crate::node::sort::{Record, key_of};
use tierstone_base::{Error, ErrorKind};
use tierstone_media::IoBuffer;

/// Behind every key.
const END: u128 = u128::MAX;

/// A tree of losers over keys; the leaf's number in the lowest bits keeps equal keys in the order of leaves.
pub(super) struct Losers {
    /// The winner, then from 1 on the losers of inner nodes.
    nodes: Vec<u128>,
    leaves: usize,
}

impl Losers {
    /// Of the first key of each leaf.
    pub fn new(keys: &[u128]) -> Losers {
        let leaves = keys.len().next_power_of_two();
        let mut nodes = vec![END; leaves];
        // Winners from the leaves up; what loses stays.
        let mut winners = vec![END; 2 * leaves];
        for (leaf, key) in keys.iter().enumerate() {
            winners[leaves + leaf] = tagged(*key, leaf);
        }
        for node in (1..leaves).rev() {
            let (left, right) = (winners[2 * node], winners[2 * node + 1]);
            winners[node] = left.min(right);
            nodes[node] = left.max(right);
        }
        nodes[0] = winners[1];
        Losers { nodes, leaves }
    }

    /// The leaf of the smallest key; `None` when all have ended.
    pub fn winner(&self) -> Option<usize> {
        let winner = self.nodes[0];
        (winner != END).then_some((winner & 0xffff) as usize)
    }

    /// The winner's leaf has `key` now, or has ended.
    pub fn replace(&mut self, leaf: usize, key: Option<u128>) {
        let mut winner = key.map_or(END, |key| tagged(key, leaf));
        let mut node = (self.leaves + leaf) / 2;
        while node > 0 {
            let other = self.nodes[node];
            self.nodes[node] = other.max(winner);
            winner = other.min(winner);
            node /= 2;
        }
        self.nodes[0] = winner;
    }
}

/// Keys have 80 bits, leaves 16; the bits between are the end's, which no key has.
fn tagged(key: u128, leaf: usize) -> u128 {
    key | leaf as u128
}

/// A run that is being read.
struct Run {
    current: IoBuffer,
    /// Records of the current piece, and how many are used.
    records: usize,
    used: usize,
    /// Pieces behind the current one; the first of them is on its way.
    left: std::ops::Range<u64>,
}

impl Run {
    fn key(&self) -> u128 {
        key_of(self.record())
    }

    fn record(&self) -> &Record {
        &self.current.as_chunks::<RECORD_BYTES>().0[self.used]
    }

    /// Goes on to the next record; false at the end.
    fn advance(&mut self, reader: &mut Reader, layout: &Layout) -> Result<bool> {
        self.used += 1;
        if self.used < self.records {
            return Ok(true);
        }
        let Some(piece) = self.left.next() else { return Ok(false) };
        let next = reader.wait(piece)?;
        let spent = std::mem::replace(&mut self.current, next);
        if self.left.start < self.left.end {
            reader.ask(self.left.start, spent);
        }
        (self.records, self.used) = (layout.records_of(piece), 0);
        Ok(true)
    }
}

/// The first two pieces of each run are on their way before the first is waited for.
fn open(reader: &mut Reader, layout: &Layout) -> Result<Vec<Run>> {
    for ahead in 0..2 {
        for run in 0..layout.runs() {
            if let Some(piece) = layout.run(run).nth(ahead) {
                reader.ask(piece, IoBuffer::zeroed(layout.piece_bytes()));
            }
        }
    }
    (0..layout.runs())
        .map(|run| {
            let mut left = layout.run(run);
            let piece =
                left.next().ok_or_else(|| Error::new(ErrorKind::InvalidInput, "a run without pieces"))?;
            Ok(Run { current: reader.wait(piece)?, records: layout.records_of(piece), used: 0, left })
        })
        .collect()
}

/// Merges all runs into the input's place.
pub(super) fn merge(disk: &Disk, progress: Progress<'_>) -> Result<()> {
    let layout = disk.layout();
    let mut reader = disk.reader(Region::Runs)?;
    let writer = disk.writer(Region::Input, MERGED_PIECES as usize)?;
    let mut runs = open(&mut reader, &layout)?;
    let mut losers = Losers::new(&runs.iter().map(Run::key).collect::<Vec<_>>());
    let mut merge = || {
        for piece in 0..layout.pieces() {
            tell(progress, Phase::Merging, piece, layout.pieces())?;
            // The thread's own error is told by `finish`.
            let Some(mut buffer) = writer.buffer() else { return Ok(()) };
            let places = buffer.as_chunks_mut::<RECORD_BYTES>().0;
            for place in &mut places[..layout.records_of(piece)] {
                let Some(leaf) = losers.winner() else {
                    return Err(Error::new(ErrorKind::Corrupt, "the runs have fewer records than the input"));
                };
                let run = &mut runs[leaf];
                *place = *run.record();
                let key = run.advance(&mut reader, &layout)?.then(|| run.key());
                losers.replace(leaf, key);
            }
            if writer.write(piece, buffer).is_none() {
                return Ok(());
            }
        }
        Ok(())
    };
    let merged = merge();
    writer.finish().and(merged)
}
