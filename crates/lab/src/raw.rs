//! What the device below gives without a store: the limit that a store's numbers stand beside.
//!
//! The requests go through the same back-end as the store's own (direct, not cached by the kernel
//! where the file system allows it), in files made for the purpose.

use crate::run::Run;
use std::path::Path;
use tierstone_base::{Clock, Error, ErrorKind, Result, SeededRandom};
use tierstone_media::file::{DurableMethod, FileDevice, FileStore, FileStoreSettings};
use tierstone_media::probe::load::{self, Load, Rate};
use tierstone_media::probe::{ProbeReport, durable_method};
use tierstone_media::{BlockDevice, IoBuffer, IoKind, IoRequest, Wait};

/// Requests of one step of a raw measurement: so long that their number does not matter, so short that
/// the run can be stopped.
const STEP_US: u64 = 100_000;

/// A device to measure.
#[derive(Debug)]
pub struct RawDevice {
    // Before the files: a device is done with them before they close.
    device: FileDevice,
    _files: FileStore,
    span_bytes: u64,
    /// Where requests in order go on.
    next_byte: u64,
    random: SeededRandom,
}

/// Which requests.
#[derive(Clone, Copy, Debug)]
pub struct RawLoad {
    /// Read, Write or WriteDurable.
    pub kind: IoKind,
    /// Bytes of a request: whole blocks.
    pub request_bytes: usize,
    /// At random places, or in order.
    pub random: bool,
    /// In flight at the same time.
    pub depth: u32,
    /// How long.
    pub budget_us: u64,
}

impl RawDevice {
    /// `span_bytes` (rounded up to whole segments) in `folder`, written once, so that reads find data.
    ///
    /// # Errors
    /// When the files cannot be made or written.
    pub fn fill(
        run: &mut Run<'_>,
        folder: &Path,
        span_bytes: u64,
        method: DurableMethod,
    ) -> Result<RawDevice> {
        let segment_bytes: u64 = 8 << 20;
        let segments = span_bytes.div_ceil(segment_bytes).max(1);
        let files = FileStore::open(&FileStoreSettings {
            segment_bytes,
            segment_limit: segments as u32,
            ..FileStoreSettings::new(vec![folder.to_owned()])
        })?;
        let mut device = files.device(method)?;
        let geometry = device.geometry();
        for segment in 0..segments as u32 {
            let kind = IoKind::Prepare { len: segment_bytes };
            let offset = geometry.segment_offset(segment);
            device.submit(&mut vec![IoRequest { token: 0, kind, offset, buffer: None }]);
            let mut completions = Vec::new();
            device.complete(Wait::All, &mut completions);
            completions.into_iter().try_for_each(|done| done.result)?;
            run.go_on(f64::from(segment) / segments as f64)?;
        }
        let random = SeededRandom::new(run.seed());
        let mut raw =
            RawDevice { device, _files: files, span_bytes: segments * segment_bytes, next_byte: 0, random };
        // Zeros may be kept as holes below: what is read must have been written.
        let write = RawLoad {
            kind: IoKind::Write,
            request_bytes: 1 << 20,
            random: false,
            depth: 4,
            budget_us: u64::MAX,
        };
        raw.measure_requests(run, &write, raw.span_bytes >> 20)?;
        Ok(raw)
    }

    /// Runs a closed loop of `load` for its time.
    ///
    /// # Errors
    /// `Retry` when the run was stopped; when the device fails.
    pub fn measure(&mut self, run: &mut Run<'_>, load: &RawLoad) -> Result<Rate> {
        self.measure_requests(run, load, u64::MAX)
    }

    /// Appends `total_bytes` in durable requests of `request_bytes` (at most 1 MiB) to `streams` places in
    /// turn, `depth` in flight; each place is written in order. Returns bytes a second.
    ///
    /// # Errors
    /// As [`RawDevice::measure`].
    pub fn append(
        &mut self,
        run: &mut Run<'_>,
        streams: u64,
        request_bytes: u64,
        depth: u64,
        total_bytes: u64,
    ) -> Result<f64> {
        let start = self.device.geometry().segment_offset(0);
        let of_stream = self.span_bytes / streams / request_bytes * request_bytes;
        if of_stream == 0 {
            let message = format!("{streams} streams do not fit into {} bytes", self.span_bytes);
            return Err(Error::new(ErrorKind::InvalidInput, message));
        }
        let total = (total_bytes / request_bytes).max(1);
        let begun = run.now_us();
        let mut bytes = IoBuffer::zeroed(request_bytes as usize);
        self.random.fill(&mut bytes);
        let mut free: Vec<IoBuffer> = (0..depth.min(total)).map(|_| bytes.clone()).collect();
        let (mut requests, mut completions, mut issued) = (Vec::new(), Vec::new(), 0);
        loop {
            while issued < total
                && let Some(buffer) = free.pop()
            {
                let (stream, round) = (issued % streams, issued / streams);
                let offset = start + stream * of_stream + round * request_bytes % of_stream;
                requests.push(IoRequest::write_durable(issued, offset, buffer));
                issued += 1;
            }
            self.device.submit(&mut requests);
            if self.device.complete(Wait::One, &mut completions) == 0 {
                break;
            }
            for done in completions.drain(..) {
                done.result?;
                free.extend(done.buffer);
            }
            run.go_on(issued as f64 / total as f64)?;
        }
        Ok((total * request_bytes) as f64 * 1e6 / (run.now_us() - begun).max(1) as f64)
    }

    fn measure_requests(&mut self, run: &mut Run<'_>, load: &RawLoad, most_requests: u64) -> Result<Rate> {
        let clock = run.clock();
        let begun = clock.now().monotonic_us;
        let start = self.device.geometry().segment_offset(0);
        let whole = Load {
            kind: load.kind,
            start,
            len: self.span_bytes,
            request_bytes: load.request_bytes,
            random: load.random,
            depth: load.depth,
            budget_us: load.budget_us,
            most_requests,
        };
        if most_requests != u64::MAX {
            return Ok(load::run(&mut self.device, &clock, &mut self.random, &whole)?);
        }
        let mut pieces: Vec<(Rate, u64)> = Vec::new();
        loop {
            let spent_us = clock.now().monotonic_us - begun;
            let left_us = load.budget_us.saturating_sub(spent_us);
            if left_us == 0 && !pieces.is_empty() {
                return Ok(together(&pieces));
            }
            run.go_on(spent_us as f64 / load.budget_us.max(1) as f64)?;
            let piece_begun = clock.now().monotonic_us;
            // In order: each piece goes on where the last one ended.
            let skip = if load.random { 0 } else { self.next_byte };
            let piece = Load {
                start: start + skip,
                len: self.span_bytes - skip,
                budget_us: left_us.clamp(1, STEP_US),
                ..whole
            };
            let rate = load::run(&mut self.device, &clock, &mut self.random, &piece)?;
            let next_byte = skip + rate.requests * load.request_bytes as u64;
            let has_room = next_byte + (1 << 20) <= self.span_bytes;
            self.next_byte = if has_room { next_byte } else { 0 };
            pieces.push((rate, clock.now().monotonic_us - piece_begun));
        }
    }
}

/// Pieces of one loop as one: the rate over all their time, the latencies of the middle piece.
fn together(pieces: &[(Rate, u64)]) -> Rate {
    let requests: u64 = pieces.iter().map(|(rate, _)| rate.requests).sum();
    let us: u64 = pieces.iter().map(|(_, us)| us).sum();
    let middle = |of: fn(&Rate) -> u64| {
        let mut sorted: Vec<u64> = pieces.iter().map(|(rate, _)| of(rate)).collect();
        sorted.sort_unstable();
        sorted[sorted.len() / 2]
    };
    Rate {
        depth: pieces[0].0.depth,
        requests,
        per_second: requests as f64 * 1e6 / us.max(1) as f64,
        p50_us: middle(|rate| rate.p50_us),
        p99_us: middle(|rate| rate.p99_us),
    }
}

/// How stores of this run make writes durable, as probed once; noted among the settings.
///
/// # Errors
/// When the folder cannot be written.
pub fn probe(run: &mut Run<'_>) -> Result<ProbeReport> {
    let report = durable_method(run.folder())?;
    run.set("durable method", format!("{:?}: {}", report.method, report.reason));
    Ok(report)
}
