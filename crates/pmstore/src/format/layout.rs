//! Where things lie in a region: header, lines of the shards, table, segments and their blocks.

use super::{
    BLOCKS_MAX, BLOCKS_MIN, FRAME_BYTES, LEAD_BYTES, RECORD_BYTES, SEGMENTS_MAX, SHARD_LINES_AT, SHARDS_MAX,
};
use crate::keys::STORE_BYTES_MAX;
use crate::settings::Geometry;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_media::region::LINE_BYTES;

/// Where things lie; offsets are from the store's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub geometry: Geometry,
    pub segments: u32,
    pub shards: u16,
    table: u64,
    data: u64,
}

impl Layout {
    /// The layout of `bytes` bytes behind the region's first `base`, of which what no store can have stays unused; the error
    /// says what is wrong with the geometry, or how large a region is needed.
    pub fn new(geometry: Geometry, shards: u16, bytes: u64, base: u64) -> Result<Layout> {
        let Geometry { segment_bytes, block_bytes, log_segments } = geometry;
        let invalid = |message: String| Err(Error::new(ErrorKind::InvalidInput, message));
        if !geometry.is_possible() {
            return invalid(format!(
                "segments of {segment_bytes} bytes, blocks of {block_bytes} and logs of {log_segments} segments: use \
                 powers of two, 4 KiB to 16 MiB and 1 to 128 KiB, blocks no larger than segments, logs of 3 to 4,096"
            ));
        }
        if !(1..=SHARDS_MAX).contains(&shards) {
            return invalid(format!("{shards} shards: use 1 to {SHARDS_MAX}"));
        }
        let bytes = bytes.min(STORE_BYTES_MAX);
        let mut segments =
            (bytes / segment_bytes).min(SEGMENTS_MAX).min(BLOCKS_MAX / (segment_bytes / block_bytes));
        while segments > 0 && Self::of(geometry, shards, segments as u32).end() > bytes {
            segments -= 1;
        }
        let least = Self::least_segments(geometry, shards);
        if segments < least {
            let wanted = base + Self::of(geometry, shards, least as u32).end();
            return invalid(format!(
                "{bytes} bytes hold {segments} segments of {segment_bytes} bytes; {shards} shards need {least}: give the \
                 store a region of {wanted} bytes at least, or use fewer shards"
            ));
        }
        Ok(Self::of(geometry, shards, segments as u32))
    }

    /// The fewest segments that so many shards can do with.
    pub fn least_segments(geometry: Geometry, shards: u16) -> u64 {
        let storage = BLOCKS_MIN.div_ceil(geometry.segment_bytes / geometry.block_bytes);
        u64::from(shards) * (u64::from(geometry.log_segments) + storage)
    }

    /// The layout of so many segments.
    pub fn of(geometry: Geometry, shards: u16, segments: u32) -> Layout {
        let table = (SHARD_LINES_AT + u64::from(shards) * LINE_BYTES).next_multiple_of(4096);
        let data = (table + u64::from(segments) * 8).next_multiple_of(4096);
        Layout { geometry, segments, shards, table, data }
    }

    /// Bytes of the whole store.
    pub fn end(&self) -> u64 {
        self.data + u64::from(self.segments) * self.geometry.segment_bytes
    }

    pub fn table_word(&self, segment: u32) -> u64 {
        self.table + u64::from(segment) * 8
    }

    pub fn shard_line(&self, shard: u16) -> u64 {
        SHARD_LINES_AT + u64::from(shard) * LINE_BYTES
    }

    pub fn segment(&self, segment: u32) -> u64 {
        self.data + u64::from(segment) * self.geometry.segment_bytes
    }

    pub fn segment_of(&self, offset: u64) -> u32 {
        ((offset - self.data) / self.geometry.segment_bytes) as u32
    }

    pub fn block(&self, block: u32) -> u64 {
        self.data + u64::from(block) * self.geometry.block_bytes
    }

    #[inline]
    pub fn block_of(&self, offset: u64) -> u32 {
        ((offset - self.data) >> self.geometry.block_bytes.trailing_zeros()) as u32
    }

    pub fn blocks_per_segment(&self) -> u32 {
        (self.geometry.segment_bytes / self.geometry.block_bytes) as u32
    }

    /// Bytes of segments for each shard, if all have as much.
    pub fn shard_bytes(&self) -> u64 {
        u64::from(self.segments) * self.geometry.segment_bytes / u64::from(self.shards)
    }

    /// The same without what only logs take.
    pub fn storage_bytes(&self) -> u64 {
        self.shard_bytes() - u64::from(self.geometry.log_segments) * self.geometry.segment_bytes
    }

    /// Bytes before the data: header, lines, table.
    pub fn data_start(&self) -> u64 {
        self.data
    }

    /// Bytes of a block that records may take.
    pub fn block_payload(&self) -> u64 {
        self.geometry.block_bytes - LEAD_BYTES
    }

    /// Longer values lie in overflow blocks.
    pub fn inline_value_max(&self) -> usize {
        2048.min(self.geometry.block_bytes as usize / 4)
    }

    /// Longer keys lie in overflow blocks, with their values.
    pub fn inline_key_max(&self) -> usize {
        1024.min(self.geometry.block_bytes as usize / 8)
    }

    /// Frames of a log are at most so long, in bytes: the longest record fits.
    pub fn frame_max(&self) -> usize {
        let record = (RECORD_BYTES + self.inline_key_max() + self.inline_value_max()).next_multiple_of(8);
        let longest = (FRAME_BYTES + record).next_multiple_of(LINE_BYTES as usize);
        (self.geometry.segment_bytes as usize / 4).min(64 << 10).max(longest)
    }
}
