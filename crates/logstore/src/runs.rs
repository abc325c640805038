//! Reads of records that lie near each other, as one read of the device: for ranges, whose records the log may hold
//! side by side (they were loaded in order, or brought together by [`crate::cluster`]).
//!
//! Invariants:
//! 1. While reads are gathered nothing is submitted for them; whoever began submits them before it returns.
//! 2. What a run has brought goes the way of a read of each of its records alone: verified, held, cached. Where a run
//!    fails each record is read alone, so that a block that cannot be read harms no neighbour.

use crate::format::record;
use crate::io::IoTag;
use crate::location::Location;
use crate::shard::LogShard;
use tierstone_base::collections::Map;
use tierstone_engine::Cost;
use tierstone_media::{BLOCK_BYTES, IoCompletion, IoKind};

/// The longest run, in bytes: what callers of the shared handle read themselves.
const RUN_BYTES_MAX: usize = 128 << 10;
/// So many bytes that nobody wants are read rather than another read made.
const GAP_BYTES_MAX: usize = BLOCK_BYTES;

/// Reads that are gathered, and runs under way.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    is_gathering: bool,
    /// With the bytes that are asked for, from the record's first on.
    gathered: Vec<(Location, usize)>,
    under_way: Map<u64, Vec<(Location, usize)>>,
    next: u64,
}

impl Runs {
    /// From now on reads are gathered.
    pub fn begin(&mut self) {
        self.is_gathering = true;
    }

    /// Takes a read if reads are gathered.
    pub fn gather(&mut self, location: Location, asked: usize) -> bool {
        if self.is_gathering {
            self.gathered.push((location, asked));
        }
        self.is_gathering
    }
}

impl LogShard {
    /// The blocks around `asked` bytes at `location`, in its segment.
    fn blocks_around(&self, location: Location, asked: usize) -> (usize, usize) {
        let offset = location.offset();
        let segment_bytes = self.identity.geometry.segment_bytes as usize;
        let end = (offset + asked).next_multiple_of(BLOCK_BYTES).min(segment_bytes);
        (offset / BLOCK_BYTES * BLOCK_BYTES, end)
    }

    /// Submits what was gathered, neighbours together.
    pub(crate) fn submit_runs(&mut self) {
        self.reads.runs.is_gathering = false;
        let mut gathered = std::mem::take(&mut self.reads.runs.gathered);
        gathered.sort_unstable_by_key(|(location, _)| location.raw());
        let mut rest = gathered.as_slice();
        while let Some(&(first, asked)) = rest.first() {
            let (start, mut end) = self.blocks_around(first, asked);
            let mut count = 1;
            for &(location, asked) in &rest[1..] {
                let (next_start, next_end) = self.blocks_around(location, asked);
                let is_near = location.segment() == first.segment() && next_start <= end + GAP_BYTES_MAX;
                if !is_near || next_end - start > RUN_BYTES_MAX {
                    break;
                }
                end = end.max(next_end);
                count += 1;
            }
            let (run, others) = rest.split_at(count);
            match run {
                [(location, asked)] => self.submit_read(*location, *asked),
                _ => self.submit_run(run, (start, end)),
            }
            rest = others;
        }
        gathered.clear();
        self.reads.runs.gathered = gathered;
    }

    fn submit_run(&mut self, run: &[(Location, usize)], (start, end): (usize, usize)) {
        let Some(&(first, _)) = run.first() else { return };
        // Whoever asked for the first pays for all.
        if let Some(reading) = self.reads.reading.get_mut(&first.raw()) {
            reading.cost += Cost::of_read((end - start) as u64);
        }
        let runs = &mut self.reads.runs;
        runs.next += 1;
        let number = runs.next;
        runs.under_way.insert(number, run.to_vec());
        let place = self.identity.geometry.segment_offset(first.segment()) + start as u64;
        let buffer = self.buffers.take(end - start);
        self.requests.push(IoTag::Run { number }, IoKind::Read, place, buffer);
    }

    /// A run came back.
    pub(crate) fn run_read(&mut self, number: u64, completion: IoCompletion) {
        let Some(run) = self.reads.runs.under_way.remove(&number) else { return };
        let Some(buffer) = completion.buffer.filter(|_| completion.result.is_ok()) else {
            run.into_iter().for_each(|(location, asked)| self.submit_read(location, asked));
            return;
        };
        for (location, asked) in run {
            let begin = self.identity.geometry.segment_offset(location.segment());
            let from = (completion.offset - begin) as usize;
            let bytes = buffer.get(location.offset() - from..).unwrap_or_default();
            // A length that is not true is found out when the record is verified.
            let header = record::decode_header(bytes);
            let len = header.map_or(asked, |header| header.record_len().min(asked));
            let (start, end) = self.blocks_around(location, len);
            let mut own = self.buffers.take(end - start);
            let place = location.offset() - start;
            // A record that is longer than was asked for is looked at as far as these blocks go. Around the record is what
            // an earlier user of the buffer left: nobody looks there.
            let len = header.map_or(usize::MAX, |header| header.record_len()).min(end - start - place);
            let bytes = bytes.get(..len).unwrap_or(bytes);
            own[place..place + bytes.len()].copy_from_slice(bytes);
            self.record_read(
                location,
                IoCompletion {
                    token: completion.token,
                    kind: completion.kind,
                    offset: begin + start as u64,
                    result: Ok(()),
                    buffer: Some(own),
                },
            );
        }
        self.buffers.give(buffer);
    }
}
