//! How much memory is for what, and where pieces lie.

use super::Result;
use crate::node::gensort::RECORD_BYTES;
use tierstone_base::units::format_size;
use tierstone_base::{Error, ErrorKind};
use tierstone_media::BLOCK_BYTES;

/// Records of a piece, from the longest on: so many that a piece is whole blocks, and a power of two.
const PER_PIECE: [usize; 4] = [32_768, 16_384, 8_192, 4_096];
/// Memory that ordering takes a record, in bytes: its key twice, and some room.
const ENTRY_BYTES: u64 = 40;
/// Pieces of a file of the device, at most: some 500 MB.
const PER_SEGMENT_MAX: u64 = 160;
/// Pieces that the merge has for the result.
pub(super) const MERGED_PIECES: u64 = 4;

const _: () = assert!((4_096 * RECORD_BYTES).is_multiple_of(BLOCK_BYTES), "pieces are whole blocks");

/// Sizes that two passes keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub records: u64,
    /// Records of a piece.
    pub per_piece: usize,
    /// Pieces of a chunk of memory, and so of a run.
    pub per_run: u64,
    /// Pieces that are being gathered and written while runs are made.
    pub gathered: usize,
}

impl Layout {
    /// For `records` in `memory_bytes`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for no record, and for memory that two passes are too few with.
    pub fn new(records: u64, memory_bytes: u64, threads: usize) -> Result<Layout> {
        if records == 0 || records > 1 << 40 {
            return Err(Error::new(ErrorKind::InvalidInput, "a sort in two passes takes 1 to 2^40 records"));
        }
        let fits =
            PER_PIECE.iter().find_map(|per_piece| Layout::with(records, memory_bytes, threads, *per_piece));
        fits.ok_or_else(|| {
            let message = format!(
                "memory of {} is too little to sort {} in two passes with {threads} threads",
                format_size(memory_bytes),
                format_size(records.saturating_mul(RECORD_BYTES as u64))
            );
            Error::new(ErrorKind::InvalidInput, message)
        })
    }

    fn with(records: u64, memory_bytes: u64, threads: usize, per_piece: usize) -> Option<Layout> {
        let piece_bytes = (per_piece * RECORD_BYTES) as u64;
        // An eighth of the memory waits to be written, so that writing goes on while the next chunk is ordered.
        let gathered = (memory_bytes / 8 / piece_bytes).max(threads as u64 + 2);
        let left = memory_bytes.checked_sub(gathered * piece_bytes)?;
        let most = u64::from(u32::MAX) / per_piece as u64;
        let per_run = (left / (2 * piece_bytes + ENTRY_BYTES * per_piece as u64)).min(most);
        let layout = Layout { records, per_piece, per_run, gathered: gathered as usize };
        let merged = |runs: u64| (2 * runs + MERGED_PIECES) * piece_bytes;
        // Short chunks leave nothing to overlap.
        (per_run >= 4 && layout.runs() <= 1 << 16 && merged(layout.runs()) <= memory_bytes).then_some(layout)
    }

    /// Bytes of a piece.
    pub fn piece_bytes(&self) -> usize {
        self.per_piece * RECORD_BYTES
    }

    /// Pieces of the input.
    pub fn pieces(&self) -> u64 {
        self.records.div_ceil(self.per_piece as u64)
    }

    /// Bytes of all of them.
    pub fn pieces_bytes(&self) -> u64 {
        self.pieces() * self.piece_bytes() as u64
    }

    /// Records of piece `piece`: the last may have fewer.
    pub fn records_of(&self, piece: u64) -> usize {
        let first = piece * self.per_piece as u64;
        self.records.saturating_sub(first).min(self.per_piece as u64) as usize
    }

    /// Runs.
    pub fn runs(&self) -> u64 {
        self.pieces().div_ceil(self.per_run)
    }

    /// Pieces of run `run`.
    pub fn run(&self, run: u64) -> std::ops::Range<u64> {
        run * self.per_run..((run + 1) * self.per_run).min(self.pieces())
    }

    /// Pieces of a file of the device.
    pub fn per_segment(&self) -> u64 {
        self.pieces().min(PER_SEGMENT_MAX)
    }

    /// Files for the input.
    pub fn segments(&self) -> u64 {
        self.pieces().div_ceil(self.per_segment())
    }

    /// Bytes of all files: input and runs.
    pub fn file_bytes(&self) -> u64 {
        2 * self.segments() * self.per_segment() * self.piece_bytes() as u64
    }
}
