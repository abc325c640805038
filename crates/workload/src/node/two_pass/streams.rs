//! Pieces on their way from and to the device.
//!
//! A [`Reader`] or [`Writer`] has a handle of its own; a piece is one request.

use super::layout::Layout;
use super::{Phase, Progress, Result, tell};
use crossbeam_channel::{Receiver, Sender, bounded};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use tierstone_base::{Clock, Error, ErrorKind, SeededRandom, SystemClock};
use tierstone_media::file::{DurableMethod, FileDevice};
use tierstone_media::probe::Scratch;
use tierstone_media::probe::load::{Load, run};
use tierstone_media::{BlockDevice, IoBuffer, IoKind, IoRequest, Wait};

/// Pieces that are read ahead in order.
const AHEAD: u64 = 4;
/// Time for one measurement of the bandwidth, in microseconds, and the most that it moves.
const MEASURE_US: u64 = 2_000_000;
const MEASURE_BYTES: u64 = 4 << 30;

/// Which of the two places a piece lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Region {
    /// The input, and later the result.
    Input,
    Runs,
}

/// The files of a sort; removed when dropped.
#[derive(Debug)]
pub(super) struct Disk {
    scratch: Scratch,
    layout: Layout,
}

/// What bandwidth measurements have moved, and in how much time.
#[derive(Debug, Default)]
pub(super) struct Rates {
    read: (f64, f64),
    written: (f64, f64),
}

impl Rates {
    /// Bytes a second.
    pub fn read(&self) -> f64 {
        self.read.0 / self.read.1.max(1e-9)
    }

    /// Bytes a second.
    pub fn write(&self) -> f64 {
        self.written.0 / self.written.1.max(1e-9)
    }
}

impl Disk {
    /// New files in `directory`.
    pub fn new(directory: &Path, layout: &Layout) -> Result<Disk> {
        let segments = u32::try_from(2 * layout.segments())
            .map_err(|_| Error::new(ErrorKind::InvalidInput, "too many records for files of this size"))?;
        let segment_bytes = layout.per_segment() * layout.piece_bytes() as u64;
        Ok(Disk { scratch: Scratch::new(directory, segment_bytes, segments)?, layout: *layout })
    }

    pub fn layout(&self) -> Layout {
        self.layout
    }

    fn start(&self, region: Region) -> u64 {
        let segment = if region == Region::Input { 0 } else { self.layout.segments() as u32 };
        self.scratch.store().geometry().segment_offset(segment)
    }

    fn device(&self) -> Result<FileDevice> {
        self.scratch.device(DurableMethod::WriteThenFlush)
    }

    /// Reads pieces of `region`.
    pub fn reader(&self, region: Region) -> Result<Reader> {
        let pieces = Pieces::new(self.device()?, self.start(region), self.layout);
        Ok(Reader { pieces, done: BTreeMap::new() })
    }

    /// A thread that writes pieces of `region`, with `buffers` of them.
    pub fn writer(&self, region: Region, buffers: usize) -> Result<Writer> {
        Writer::start(Pieces::new(self.device()?, self.start(region), self.layout), buffers)
    }

    /// Measures bandwidth in order: reads of the input's place, then writes to that of the runs, which are given up. Files of
    /// runs are new then, as they are in the sort.
    pub fn measure(&self, rates: &mut Rates, progress: Progress<'_>) -> Result<()> {
        let clock = SystemClock::new();
        let mut device = self.device()?;
        let mut random = SeededRandom::new(1);
        for (kind, region, part) in [(IoKind::Read, Region::Input, 0), (IoKind::Write, Region::Runs, 1)] {
            tell(progress, Phase::Measuring, part, 2)?;
            let load = Load {
                kind,
                start: self.start(region),
                len: self.layout.pieces_bytes(),
                request_bytes: self.layout.piece_bytes(),
                random: false,
                depth: AHEAD as u32,
                budget_us: MEASURE_US,
                // Once over the place, or writes would go where something lies already.
                most_requests: (MEASURE_BYTES / self.layout.piece_bytes() as u64)
                    .clamp(1, self.layout.pieces()),
            };
            if kind == IoKind::Write {
                self.give_up_runs(&mut device)?;
            }
            let begun_us = clock.now().monotonic_us;
            let rate = run(&mut device, &clock, &mut random, &load)?;
            if kind == IoKind::Write {
                carry_out(&mut device, IoRequest::flush(0))?;
            }
            let seconds = clock.now().monotonic_us.saturating_sub(begun_us) as f64 / 1e6;
            let sum = if kind == IoKind::Read { &mut rates.read } else { &mut rates.written };
            sum.0 += rate.requests as f64 * self.layout.piece_bytes() as f64;
            sum.1 += seconds;
        }
        self.give_up_runs(&mut device)
    }

    fn give_up_runs(&self, device: &mut FileDevice) -> Result<()> {
        let segment_bytes = self.layout.per_segment() * self.layout.piece_bytes() as u64;
        for segment in 0..self.layout.segments() {
            let offset = self.start(Region::Runs) + segment * segment_bytes;
            let kind = IoKind::Discard { len: segment_bytes };
            carry_out(device, IoRequest { token: 0, kind, offset, buffer: None })?;
        }
        Ok(())
    }
}

/// Does one request and waits for it.
fn carry_out(device: &mut FileDevice, request: IoRequest) -> Result<()> {
    let mut completions = Vec::new();
    device.submit(&mut vec![request]);
    device.complete(Wait::All, &mut completions);
    completions.into_iter().try_for_each(|done| done.result).map_err(Error::from)
}

/// A handle, and where pieces lie.
struct Pieces {
    device: FileDevice,
    start: u64,
    layout: Layout,
}

impl Pieces {
    fn new(device: FileDevice, start: u64, layout: Layout) -> Pieces {
        Pieces { device, start, layout }
    }

    fn submit(&mut self, piece: u64, kind: IoKind, buffer: IoBuffer) {
        let offset = self.start + piece * self.layout.piece_bytes() as u64;
        self.device.submit(&mut vec![IoRequest { token: piece, kind, offset, buffer: Some(buffer) }]);
    }

    /// What has finished, after waiting as `wait` says.
    fn complete(&mut self, wait: Wait, mut each: impl FnMut(u64, IoBuffer)) -> Result<()> {
        let mut completions = Vec::new();
        self.device.complete(wait, &mut completions);
        for done in completions {
            done.result?;
            if let Some(buffer) = done.buffer {
                each(done.token, buffer);
            }
        }
        Ok(())
    }
}

/// Reads pieces.
pub(super) struct Reader {
    pieces: Pieces,
    done: BTreeMap<u64, IoBuffer>,
}

impl Reader {
    /// Asks for `piece`, into `buffer`.
    pub fn ask(&mut self, piece: u64, buffer: IoBuffer) {
        self.pieces.submit(piece, IoKind::Read, buffer);
    }

    /// A piece that was asked for.
    pub fn wait(&mut self, piece: u64) -> Result<IoBuffer> {
        loop {
            if let Some(buffer) = self.done.remove(&piece) {
                return Ok(buffer);
            }
            if self.pieces.device.in_flight() == 0 {
                let message = format!("piece {piece} was not asked for");
                return Err(Error::new(ErrorKind::InvalidInput, message));
            }
            let done = &mut self.done;
            self.pieces.complete(Wait::One, |piece, buffer| {
                done.insert(piece, buffer);
            })?;
        }
    }

    /// Reads `pieces` in order, some ahead, each into memory of the reader's own.
    pub fn read_in_order(
        &mut self,
        pieces: Range<u64>,
        mut each: impl FnMut(u64, &IoBuffer) -> Result<()>,
    ) -> Result<()> {
        let ahead = AHEAD.min(pieces.end - pieces.start);
        for piece in pieces.start..pieces.start + ahead {
            self.ask(piece, IoBuffer::zeroed(self.pieces.layout.piece_bytes()));
        }
        for piece in pieces.clone() {
            let buffer = self.wait(piece)?;
            each(piece, &buffer)?;
            if piece + ahead < pieces.end {
                self.ask(piece + ahead, buffer);
            }
        }
        Ok(())
    }

    /// Reads `pieces` in order, some at a time, into `chunk`.
    pub fn read_chunk(&mut self, pieces: Range<u64>, chunk: &mut Vec<IoBuffer>) -> Result<()> {
        let count = (pieces.end - pieces.start) as usize;
        let mut empty = chunk.split_off(0).into_iter();
        let mut asked = pieces.clone().zip(empty.by_ref().take(count));
        for (piece, buffer) in asked.by_ref().take(AHEAD as usize) {
            self.ask(piece, buffer);
        }
        for piece in pieces {
            let buffer = self.wait(piece)?;
            chunk.push(buffer);
            if let Some((next, buffer)) = asked.next() {
                self.ask(next, buffer);
            }
        }
        drop(asked);
        // The last run may be shorter than its chunk.
        chunk.extend(empty);
        Ok(())
    }
}

/// A thread that writes pieces, and the buffers that go round between it and those who fill them.
pub(super) struct Writer {
    filled: Sender<(u64, IoBuffer)>,
    free: Receiver<IoBuffer>,
    thread: JoinHandle<Result<()>>,
}

impl Writer {
    fn start(pieces: Pieces, buffers: usize) -> Result<Writer> {
        let (filled, inbox) = bounded(buffers);
        let (outbox, free) = bounded(buffers);
        for _ in 0..buffers {
            // There is room for all of them.
            let _ = outbox.send(IoBuffer::zeroed(pieces.layout.piece_bytes()));
        }
        let thread = std::thread::Builder::new()
            .name("sort-writer".into())
            .spawn(move || write(pieces, &inbox, &outbox))?;
        Ok(Writer { filled, free, thread })
    }

    /// A buffer to fill; waits until one has been written. `None`: the thread has ended with an error.
    pub fn buffer(&self) -> Option<IoBuffer> {
        self.free.recv().ok()
    }

    /// Hands a piece over. `None` as above.
    pub fn write(&self, piece: u64, buffer: IoBuffer) -> Option<()> {
        self.filled.send((piece, buffer)).ok()
    }

    /// Fills and writes `pieces` in `threads` threads.
    pub fn write_pieces(
        &self,
        pieces: Range<u64>,
        threads: usize,
        fill: impl Fn(u64, &mut IoBuffer) -> Result<()> + Sync,
    ) -> Result<()> {
        let next = AtomicU64::new(pieces.start);
        let mut states = vec![(); threads];
        let outcomes = crate::node::in_threads(&mut states, |()| {
            loop {
                let piece = next.fetch_add(1, Ordering::Relaxed);
                if piece >= pieces.end {
                    return Ok(());
                }
                // The thread's own error is told by `finish`.
                let Some(mut buffer) = self.buffer() else { return Ok(()) };
                fill(piece, &mut buffer)?;
                if self.write(piece, buffer).is_none() {
                    return Ok(());
                }
            }
        })?;
        outcomes.into_iter().collect()
    }

    /// Waits until everything is written and flushed.
    pub fn finish(self) -> Result<()> {
        drop(self.filled);
        let died = |_| Err(Error::new(ErrorKind::Retry, "the thread that writes died"));
        self.thread.join().unwrap_or_else(died)
    }
}

/// The writer's thread.
fn write(mut pieces: Pieces, inbox: &Receiver<(u64, IoBuffer)>, outbox: &Sender<IoBuffer>) -> Result<()> {
    let give = |_: u64, buffer: IoBuffer| {
        // Nobody may want it any more.
        let _ = outbox.send(buffer);
    };
    loop {
        // With writes under way it looks for finished ones as long as nothing new comes.
        let next = if pieces.device.in_flight() == 0 { inbox.recv().ok() } else { inbox.try_recv().ok() };
        match next {
            Some((piece, buffer)) => {
                pieces.submit(piece, IoKind::Write, buffer);
                pieces.complete(Wait::Poll, give)?;
            }
            None if pieces.device.in_flight() > 0 => pieces.complete(Wait::One, give)?,
            None => break,
        }
    }
    carry_out(&mut pieces.device, IoRequest::flush(0))
}
