//! A range of a region as a block device, so that what is written for devices may lie in persistent memory.
//!
//! Requests are done while they are submitted: reads are loads, writes streaming stores, and one fence ends every
//! submission that writes or flushes, before any of its completions is handed out. So a write is durable when it
//! completes, a plain one too: a fence counts for the thread that stored, so that a later flush by a handle on another
//! thread could not make it durable, nor let that thread see it.
//!
//! Invariants:
//! 1. No write and no flush completes well before the fence behind it has.
//! 2. Nothing outside the range is touched.
//!
//! Crash: a write that has not completed survives by words of 8 bytes, in any order, not by sectors: a block may be a
//! mixture of old and new, word by word. Who keeps something here needs checksums over everything that has to be whole,
//! and may not take a sector of 512 bytes for old or new.

use super::{LINE_BYTES, Region};
use crate::device::{
    BlockDevice, DeviceError, DeviceErrorKind, DurableWriteScope, Geometry, Guarantee, IoCompletion, IoKind,
    IoRequest, Wait,
};
use crate::file::plan;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use tierstone_base::{Error, ErrorKind, Result};
use tierstone_crash::Mutations;

/// A handle on a range of a region, of the geometry given. `P` points to the region: `Arc<dyn Region + Send + Sync>` for
/// handles on several threads, `Rc<SimRegion>` in simulations. A clone is another handle on the same range, with nothing
/// in flight.
///
/// Space that nothing was written to reads as what the region holds there: zeros in a new one. Prepare and Discard
/// succeed and change nothing. Cost: the copying of the bytes in the thread that submits, and one fence a submission that
/// writes; with a region that is made durable by `msync` that fence is a system call.
#[derive(Clone)]
pub struct RegionDevice<P> {
    region: P,
    start: u64,
    geometry: Geometry,
    done: Finished,
    mutations: Mutations,
}

/// What was done and not handed out yet. A clone is empty: completions belong to the handle that submitted.
#[derive(Debug, Default)]
struct Finished(VecDeque<IoCompletion>);

impl Clone for Finished {
    fn clone(&self) -> Self {
        Finished::default()
    }
}

impl<P> RegionDevice<P>
where
    P: Deref,
    P::Target: Region,
{
    /// The device whose first byte is byte `start` of `region`, a whole line.
    ///
    /// # Errors
    /// `InvalidInput` when `geometry` is not made of whole blocks, has no segment, or does not fit the region from
    /// `start` on.
    pub fn new(region: P, start: u64, geometry: Geometry) -> Result<Self> {
        let block = crate::BLOCK_BYTES as u64;
        let Geometry { meta_bytes, segment_bytes, segment_limit } = geometry;
        let refuse =
            |why: String| Err(Error::new(ErrorKind::InvalidInput, format!("device in a region: {why}")));
        if !meta_bytes.is_multiple_of(block) || !segment_bytes.is_multiple_of(block) || segment_bytes == 0 {
            return refuse(format!(
                "{meta_bytes} and segments of {segment_bytes} bytes are not whole blocks"
            ));
        }
        if segment_limit == 0 || !start.is_multiple_of(LINE_BYTES) {
            return refuse(format!(
                "{segment_limit} segments from byte {start}: one at least, from a whole line"
            ));
        }
        let segments = segment_bytes.checked_mul(u64::from(segment_limit));
        let end = segments.and_then(|bytes| bytes.checked_add(meta_bytes)?.checked_add(start));
        if end.is_none_or(|end| end > region.bytes()) {
            let have = region.bytes();
            return refuse(format!(
                "{segment_limit} segments of {segment_bytes} bytes behind {meta_bytes} do not fit from byte {start} on: \
                 the region has {have} bytes; make a larger one or ask for less"
            ));
        }
        let mutations = Mutations::none();
        Ok(RegionDevice { region, start, geometry, done: Finished::default(), mutations })
    }

    /// The same device with rules broken.
    #[must_use]
    pub fn with_mutations(mut self, mutations: Mutations) -> Self {
        self.mutations = mutations;
        self
    }

    /// What points to the region.
    pub fn region(&self) -> &P {
        &self.region
    }

    /// Does what needs no fence. Whether one has to follow.
    fn perform(&self, request: &mut IoRequest) -> bool {
        let at = self.start + request.offset;
        match (request.kind, &mut request.buffer) {
            (IoKind::Read, Some(buffer)) => self.region.load(at, buffer),
            (IoKind::Write | IoKind::WriteDurable, Some(buffer)) => self.region.store_streaming(at, buffer),
            _ => {}
        }
        matches!(request.kind, IoKind::Write | IoKind::WriteDurable | IoKind::Flush)
    }
}

impl<P> BlockDevice for RegionDevice<P>
where
    P: Deref,
    P::Target: Region,
{
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn guarantee(&self) -> Guarantee {
        self.region.guarantee()
    }

    fn durable_write_scope(&self) -> DurableWriteScope {
        DurableWriteScope::WholeDevice
    }

    fn submit(&mut self, requests: &mut Vec<IoRequest>) {
        let first = self.done.0.len();
        let mut stored = false;
        for mut request in requests.drain(..) {
            let checked = plan::check(&self.geometry, &request);
            stored |= checked.is_ok() && self.perform(&mut request);
            self.done.0.push_back(completion(request, checked.map(|_| ())));
        }
        // crash here [region-block-torn]: of the blocks written any words may have reached the medium
        if !stored || self.mutations.is_on("writes are fenced before they complete") {
            return;
        }
        if let Err(error) = self.region.fence() {
            let failed = DeviceError::new(DeviceErrorKind::Failed, error.message());
            let waited = |kind| matches!(kind, IoKind::Write | IoKind::WriteDurable | IoKind::Flush);
            let these = self.done.0.iter_mut().skip(first);
            these
                .filter(|done| waited(done.kind) && done.result.is_ok())
                .for_each(|done| done.result = Err(failed.clone()));
        }
    }

    fn complete(&mut self, _wait: Wait, completions: &mut Vec<IoCompletion>) -> usize {
        let count = self.done.0.len();
        completions.extend(self.done.0.drain(..));
        count
    }

    fn in_flight(&self) -> usize {
        self.done.0.len()
    }
}

impl<P> fmt::Debug for RegionDevice<P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RegionDevice { start, geometry, .. } = self;
        formatter
            .debug_struct("RegionDevice")
            .field("start", start)
            .field("geometry", geometry)
            .finish_non_exhaustive()
    }
}

fn completion(request: IoRequest, result: std::result::Result<(), DeviceError>) -> IoCompletion {
    let IoRequest { token, kind, offset, buffer } = request;
    IoCompletion { token, kind, offset, buffer, result }
}

#[cfg(test)]
#[path = "block_device_test.rs"]
mod block_device_test;
