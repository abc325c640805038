//! A handle on a simulated medium.

use super::medium::SimMedium;
use super::settings::{CompletionOrder, SimSettings, StaleRange};
use super::state::{completion, span};
use crate::buffer::BLOCK_BYTES;
use crate::device::{
    BlockDevice, DeviceError, DeviceErrorKind, DurableWriteScope, Geometry, Guarantee, IoCompletion, IoKind,
    IoRequest, Wait,
};
use std::collections::VecDeque;
use tierstone_crash::Choices;

/// A simulated block device. Requests and completions belong to the handle that submitted them,
/// the bytes to the medium. A clone is another handle, with nothing in flight.
///
/// Dropping a handle leaves its requests in flight: they never complete, and may or may not have
/// reached the medium when power is lost.
#[derive(Debug)]
pub struct SimDevice {
    medium: SimMedium,
    geometry: Geometry,
    scope: DurableWriteScope,
    handle: u32,
    epoch: u32,
    /// Done without the medium: refused, or submitted without power.
    ready: VecDeque<IoCompletion>,
    on_medium: usize,
    idle_poll: bool,
}

impl SimDevice {
    pub(super) fn new(medium: &SimMedium) -> Self {
        let state = &mut *medium.state.lock();
        state.next_handle += 1;
        SimDevice {
            medium: medium.clone(),
            geometry: state.settings.geometry,
            scope: state.settings.durable_write_scope,
            handle: state.next_handle,
            epoch: state.epoch,
            ready: VecDeque::new(),
            on_medium: 0,
            idle_poll: false,
        }
    }

    /// A device on a medium of its own that completes in order and never fails: for tests that
    /// need a device and no faults.
    pub fn plain(geometry: Geometry) -> Self {
        SimMedium::new(SimSettings::new(geometry), &Choices::quiet()).device()
    }

    /// The medium behind the handle.
    pub fn medium(&self) -> &SimMedium {
        &self.medium
    }

    /// Whether this handle will never reach the medium again: power is off, or was since.
    pub fn is_dead(&self) -> bool {
        let state = self.medium.state.lock();
        state.power_is_off() || state.epoch != self.epoch
    }

    fn admit(&self, request: &IoRequest) -> Result<(), DeviceError> {
        let wrong = |what: &str| {
            let detail = format!("simulated device: {what} ({:?} at {})", request.kind, request.offset);
            Err(DeviceError::new(DeviceErrorKind::OutOfBounds, detail))
        };
        if request.kind == IoKind::Flush {
            return Ok(());
        }
        let transfers = matches!(request.kind, IoKind::Read | IoKind::Write | IoKind::WriteDurable);
        let (block, len) = (BLOCK_BYTES as u64, span(request));
        if transfers && request.buffer.is_none() {
            return wrong("a transfer without a buffer");
        }
        if !request.offset.is_multiple_of(block) || !len.is_multiple_of(block) {
            return wrong("not whole blocks");
        }
        match request.offset.checked_add(len) {
            Some(end) if end <= self.geometry.end() => {}
            _ => return wrong("beyond the end of the device"),
        }
        if matches!(request.kind, IoKind::Discard { .. }) && request.offset < self.geometry.meta_bytes {
            return wrong("superblocks are never discarded");
        }
        Ok(())
    }

    /// Answers everything that this handle has in flight with the loss of power.
    fn lose(&mut self, requests: Vec<IoRequest>) {
        let lost = |request| {
            let error = DeviceError::new(DeviceErrorKind::PowerLost, "simulated power is off");
            completion(request, Err(error))
        };
        self.ready.extend(requests.into_iter().map(lost));
    }

    fn collect_lost(&mut self) {
        if self.on_medium > 0 && self.is_dead() {
            let lost = self.medium.state.lock().take_back(self.handle);
            self.on_medium = 0;
            self.lose(lost);
        }
    }

    fn drain_ready(&mut self, completions: &mut Vec<IoCompletion>) {
        self.collect_lost();
        completions.extend(self.ready.drain(..));
    }

    /// Completes one request; `false` when none is completed now.
    fn step(&mut self, or_none: bool, completions: &mut Vec<IoCompletion>) -> bool {
        let state = &mut *self.medium.state.lock();
        let Some(index) = state.next_request(self.handle, or_none) else { return false };
        let Some(done) = state.finish(index) else { return false };
        self.on_medium -= 1;
        completions.push(done);
        true
    }

    fn poll(&mut self, completions: &mut Vec<IoCompletion>) {
        let order = self.medium.state.lock().settings.order;
        match order {
            CompletionOrder::InOrder => {
                self.step(false, completions);
            }
            CompletionOrder::Timed => while self.step(true, completions) {},
            CompletionOrder::Chosen => {
                // A second idle poll in a row would let a caller that polls spin for ever.
                let before = completions.len();
                let mut or_none = !self.idle_poll;
                while self.step(or_none, completions) {
                    or_none = true;
                }
                self.idle_poll = completions.len() == before;
            }
        }
    }
}

impl Clone for SimDevice {
    fn clone(&self) -> Self {
        let mut clone = SimDevice::new(&self.medium);
        // A clone of a dead handle is dead.
        clone.epoch = self.epoch;
        clone
    }
}

impl Drop for SimDevice {
    fn drop(&mut self) {
        // The state is borrowed only while a panic of the simulation itself unwinds.
        if self.on_medium > 0
            && let Some(mut state) = self.medium.state.try_lock()
        {
            state.abandon(self.handle);
        }
    }
}

impl BlockDevice for SimDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::Emulated
    }

    fn durable_write_scope(&self) -> DurableWriteScope {
        self.scope
    }

    fn discards_to_zeros(&self) -> bool {
        self.medium.state.lock().settings.stale_range == StaleRange::Zeros
    }

    fn submit(&mut self, requests: &mut Vec<IoRequest>) {
        let mut refused = Vec::new();
        for at in (0..requests.len()).rev() {
            if let Err(error) = self.admit(&requests[at]) {
                refused.push(completion(requests.remove(at), Err(error)));
            }
        }
        self.ready.extend(refused.into_iter().rev());
        if requests.is_empty() {
            return;
        }
        if self.is_dead() {
            self.collect_lost();
            self.lose(std::mem::take(requests));
            return;
        }
        self.on_medium += requests.len();
        self.medium.state.lock().submit(self.handle, requests);
    }

    fn complete(&mut self, wait: Wait, completions: &mut Vec<IoCompletion>) -> usize {
        let before = completions.len();
        self.drain_ready(completions);
        let any = completions.len() > before;
        match wait {
            Wait::Poll => self.poll(completions),
            Wait::One if any => {}
            Wait::One => _ = self.step(false, completions),
            Wait::All => while self.step(false, completions) {},
        }
        // Power may have been lost on the way.
        self.drain_ready(completions);
        completions.len() - before
    }

    fn in_flight(&self) -> usize {
        self.on_medium + self.ready.len()
    }
}
