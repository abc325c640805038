//! The first pass: chunk after chunk is read, ordered and written as a run.

use super::layout::Layout;
use super::streams::{Disk, Reader, Region};
use super::{Phase, Progress, Result, tell};
use crate::node::gensort::RECORD_BYTES;
use crate::node::sort::{Record, order};
use crossbeam_channel::{Receiver, Sender, bounded};
use tierstone_base::{Error, ErrorKind};
use tierstone_media::IoBuffer;

type Chunk = Vec<IoBuffer>;

/// Makes all runs.
pub(super) fn make(disk: &Disk, threads: usize, progress: Progress<'_>) -> Result<()> {
    let layout = disk.layout();
    let mut reader = disk.reader(Region::Input)?;
    let writer = disk.writer(Region::Runs, layout.gathered)?;
    // Two chunks take turns.
    let (full, chunks) = bounded::<Chunk>(2);
    let (empty, empties) = bounded::<Chunk>(2);
    let per_chunk = layout.per_run.min(layout.pieces());
    for _ in 0..layout.runs().min(2) {
        let chunk = (0..per_chunk).map(|_| IoBuffer::zeroed(layout.piece_bytes())).collect();
        // There is room for both.
        let _ = empty.send(chunk);
    }
    let (read, sorted) = std::thread::scope(|scope| {
        let reading = scope.spawn(move || read(&mut reader, &layout, &empties, &full));
        let sort = || {
            for run in 0..layout.runs() {
                let Ok(chunk) = chunks.recv() else { return Ok(()) };
                sort_chunk(
                    &layout,
                    run,
                    &chunk,
                    |pieces, fill| {
                        writer.write_pieces(pieces, threads, |piece, buffer| {
                            fill(piece, buffer);
                            tell(progress, Phase::Sorting, piece, layout.pieces())
                        })
                    },
                    threads,
                )?;
                // The reader may have read everything.
                let _ = empty.send(chunk);
            }
            Ok(())
        };
        let sorted = sort();
        // Nothing more is wanted: the reader ends.
        drop((empty, chunks));
        let died = |_| Err(Error::new(ErrorKind::Retry, "the thread that reads died"));
        (reading.join().unwrap_or_else(died), sorted)
    });
    let written = writer.finish();
    read.and(written).and(sorted)
}

/// The reader's thread.
fn read(reader: &mut Reader, layout: &Layout, empties: &Receiver<Chunk>, full: &Sender<Chunk>) -> Result<()> {
    for run in 0..layout.runs() {
        let Ok(mut chunk) = empties.recv() else { return Ok(()) };
        reader.read_chunk(layout.run(run), &mut chunk)?;
        if full.send(chunk).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Orders a chunk, and has its run's pieces filled in order of keys.
fn sort_chunk(
    layout: &Layout,
    run: u64,
    chunk: &[IoBuffer],
    gather: impl FnOnce(std::ops::Range<u64>, &(dyn Fn(u64, &mut IoBuffer) + Sync)) -> Result<()>,
    threads: usize,
) -> Result<()> {
    let pieces = layout.run(run);
    let parts: Vec<&[Record]> = pieces
        .clone()
        .zip(chunk)
        .map(|(piece, buffer)| &buffer.as_chunks::<RECORD_BYTES>().0[..layout.records_of(piece)])
        .collect();
    let entries = order(&parts, layout.per_piece, threads)?;
    let (shift, mask) = (layout.per_piece.trailing_zeros(), layout.per_piece as u32 - 1);
    gather(pieces.clone(), &|piece, buffer| {
        let first = (piece - pieces.start) as usize * layout.per_piece;
        let places = buffer.as_chunks_mut::<RECORD_BYTES>().0;
        for (entry, place) in entries[first..].iter().zip(places) {
            let number = *entry as u32;
            *place = parts[(number >> shift) as usize][(number & mask) as usize];
        }
    })
}
