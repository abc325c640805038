//! Reads of segments that go on past blocks that the device cannot give.

use super::{Checker, DamageKind};
use crate::location::UNIT_BYTES;
use std::ops::Range;
use tierstone_base::{Error, Result};
use tierstone_media::{BLOCK_BYTES, DeviceErrorKind, IoBuffer, IoRequest, Wait};

const PIECE_BYTES: usize = 1 << 20;
const PIECES_AT_ONCE: usize = 8;

impl Checker<'_> {
    /// Reads `range` (whole blocks) of a segment to its place in `self.bytes`. Blocks that the device
    /// cannot give are findings, and zeros.
    pub(super) fn load(&mut self, segment: u32, range: Range<usize>) -> Result<()> {
        let pieces: Vec<Range<usize>> = range
            .clone()
            .step_by(PIECE_BYTES)
            .map(|start| start..(start + PIECE_BYTES).min(range.end))
            .collect();
        for batch in pieces.chunks(PIECES_AT_ONCE) {
            for piece in self.load_batch(segment, batch)? {
                let blocks: Vec<Range<usize>> =
                    piece.step_by(BLOCK_BYTES).map(|start| start..start + BLOCK_BYTES).collect();
                for block in blocks {
                    if self.load_batch(segment, std::slice::from_ref(&block))?.is_empty() {
                        continue;
                    }
                    self.bytes[block.clone()].fill(0);
                    let unit = (block.start / UNIT_BYTES) as u32;
                    let detail = "the device cannot read this block".to_owned();
                    self.note_uncounted(DamageKind::Unreadable, segment, Some(unit), 0, detail);
                }
            }
        }
        Ok(())
    }

    /// Reads pieces in one submission; gives those that the device cannot read.
    fn load_batch(&mut self, segment: u32, pieces: &[Range<usize>]) -> Result<Vec<Range<usize>>> {
        let start = self.geometry.segment_offset(segment);
        let mut requests = pieces
            .iter()
            .zip(0..)
            .map(|(piece, token)| {
                IoRequest::read(token, start + piece.start as u64, IoBuffer::zeroed(piece.len()))
            })
            .collect();
        let mut completions = Vec::with_capacity(pieces.len());
        self.device.submit(&mut requests);
        self.device.complete(Wait::All, &mut completions);
        let mut failed = Vec::new();
        for completion in completions {
            let Some(piece) = pieces.get(completion.token as usize) else { continue };
            match (completion.result, completion.buffer) {
                (Ok(_), Some(buffer)) => self.bytes[piece.clone()].copy_from_slice(&buffer[..piece.len()]),
                (Err(error), _) if error.kind != DeviceErrorKind::Failed => {
                    return Err(Error::from(error).context("checking the store"));
                }
                _ => failed.push(piece.clone()),
            }
        }
        Ok(failed)
    }
}
