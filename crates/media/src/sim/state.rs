//! What a medium and its handles share, and what each request does to it.

use super::fault::{Armed, FaultEffect};
use super::medium::Counters;
use super::power::PowerSwitch;
use super::settings::{CompletionOrder, Latency, PowerCut, SimSettings, StaleRange};
use super::trace::Trace;
use crate::device::{
    DeviceError, DeviceErrorKind, DurableWriteScope, Geometry, IoCompletion, IoKind, IoRequest,
};
use std::collections::BTreeSet;
use tierstone_base::SeededRandom;
use tierstone_base::checksum::checksum;
use tierstone_crash::{Choices, SectorMedia};

/// Salt of the short content digests in the trace.
const TRACE_SALT: u64 = 0x7261_6365;

/// A request between submission and completion.
#[derive(Debug)]
pub(super) struct Pending {
    pub number: u64,
    pub handle: u32,
    pub request: IoRequest,
    /// The writes applied when it was submitted: what a flush covers.
    barrier: u64,
    pub due_us: u64,
}

/// The shared state.
#[derive(Debug)]
pub(super) struct State {
    pub settings: SimSettings,
    pub choices: Choices,
    pub media: SectorMedia,
    pub in_flight: Vec<Pending>,
    /// Cut off by a restart, waiting for their handles to collect them.
    lost: Vec<Pending>,
    /// Handles that were dropped with requests in flight.
    abandoned: BTreeSet<u32>,
    pub faults: Vec<Armed>,
    pub counters: Counters,
    pub trace: Trace,
    pub power: PowerSwitch,
    /// The power is off, and what was in flight has landed.
    has_landed: bool,
    /// Rises with every restart; handles of an older epoch are dead.
    pub epoch: u32,
    pub next_handle: u32,
    pub now_us: u64,
    pipe_free_us: u64,
    jitter: SeededRandom,
    taken_segments: BTreeSet<u32>,
}

impl State {
    /// A medium with a power switch of its own.
    pub(super) fn new(settings: SimSettings, choices: Choices) -> Self {
        let power = PowerSwitch::new(settings.power_cut, settings.cut_limit, &choices);
        let trace = Trace::new(settings.trace_limit_lines);
        Self::within(settings, choices, power, trace)
    }

    /// A medium of a machine: it shares its power and its trace.
    pub(super) fn within(settings: SimSettings, choices: Choices, power: PowerSwitch, trace: Trace) -> Self {
        State {
            media: SectorMedia::new(settings.sector_bytes),
            choices,
            in_flight: Vec::new(),
            lost: Vec::new(),
            abandoned: BTreeSet::new(),
            faults: Vec::new(),
            counters: Counters::default(),
            trace,
            power,
            has_landed: false,
            epoch: 0,
            next_handle: 0,
            now_us: 0,
            pipe_free_us: 0,
            jitter: SeededRandom::new(0),
            taken_segments: BTreeSet::new(),
            settings,
        }
    }

    pub(super) fn power_is_off(&self) -> bool {
        self.power.is_off()
    }

    /// An event is about to happen; power may be lost instead. `shrinks` says whether the event
    /// takes states away from what may survive.
    fn before_event(&mut self, shrinks: bool) {
        self.counters.events += 1;
        if self.power.before_event(shrinks) {
            self.cut_power();
        }
    }

    /// Power is lost: of what is in flight any sector may have reached the medium.
    pub(super) fn cut_power(&mut self) {
        self.power.cut();
        if !self.has_landed {
            self.has_landed = true;
            self.counters.cuts += 1;
            land_in_flight(&mut self.media, &self.in_flight);
            self.trace.line(format_args!("{} CUT", self.now_us));
        }
    }

    /// Power comes back: the choices say what survived.
    pub(super) fn power_on(&mut self) {
        self.survive();
        self.power.switch_on();
    }

    /// What the choices let survive is what the medium holds now; the switch is for others to turn.
    pub(super) fn survive(&mut self) {
        self.cut_power();
        let digest = self.media.lose_power(&self.choices, &self.settings.survivors);
        self.has_landed = false;
        self.restart();
        self.trace.line(format_args!("{} ON {digest:016x}", self.now_us));
    }

    /// Another medium that holds what a loss of power now could leave, as `choices` say. It has no
    /// faults; its power and trace are those given.
    pub(super) fn crashed_copy(&self, choices: &Choices, power: PowerSwitch, trace: Trace) -> State {
        let settings = SimSettings { power_cut: PowerCut::Never, ..self.settings.clone() };
        let mut copy = State::within(settings, choices.clone(), power, trace);
        copy.media = self.media.clone();
        copy.taken_segments = self.taken_segments.clone();
        copy.now_us = self.now_us;
        if !self.has_landed {
            land_in_flight(&mut copy.media, &self.in_flight);
        }
        copy.survive();
        copy
    }

    /// Handles of before are dead from now on.
    fn restart(&mut self) {
        self.epoch += 1;
        let abandoned = std::mem::take(&mut self.abandoned);
        let cut_off = self.in_flight.drain(..).filter(|pending| !abandoned.contains(&pending.handle));
        self.lost.extend(cut_off);
    }

    /// A handle is dropped: its requests stay in flight while power is on.
    pub(super) fn abandon(&mut self, handle: u32) {
        self.lost.retain(|pending| pending.handle != handle);
        self.abandoned.insert(handle);
    }

    /// Takes a batch; afterwards the power may be off.
    pub(super) fn submit(&mut self, handle: u32, requests: &mut Vec<IoRequest>) {
        self.before_event(false);
        self.counters.submissions += 1;
        for request in requests.drain(..) {
            let (number, barrier) = (self.counters.requests, self.media.barrier());
            self.counters.requests += 1;
            self.note_overlap(&request);
            let due_us = self.due(&request);
            self.trace.line(format_args!(
                "{} {handle} + {number} {} {} {:08x}",
                self.now_us,
                letter(request.kind),
                request.offset,
                written_digest(&request)
            ));
            self.in_flight.push(Pending { number, handle, request, barrier, due_us });
        }
    }

    fn note_overlap(&mut self, request: &IoRequest) {
        let writes = |kind| matches!(kind, IoKind::Write | IoKind::WriteDurable);
        let (start, end) = (request.offset, request.offset + span(request));
        let overlaps = |pending: &Pending| {
            let other = &pending.request;
            writes(other.kind) && start < other.offset + span(other) && other.offset < end
        };
        if writes(request.kind) && self.in_flight.iter().any(overlaps) {
            self.counters.overlapping_writes += 1;
        }
    }

    fn due(&mut self, request: &IoRequest) -> u64 {
        let latency: Latency = self.settings.latency;
        let wait_us = match request.kind {
            IoKind::Read => latency.read_us,
            IoKind::Write => latency.write_us,
            IoKind::WriteDurable => latency.durable_us,
            IoKind::Flush | IoKind::Prepare { .. } | IoKind::Discard { .. } => latency.flush_us,
        };
        let bytes = request.buffer.as_ref().map_or(0, |buffer| buffer.len() as u64);
        let transfer_us = match latency.bytes_per_second {
            0 => 0,
            rate => (u128::from(bytes) * 1_000_000).div_ceil(u128::from(rate)) as u64,
        };
        let ready_us = self.now_us + wait_us + self.jitter.below(latency.jitter_us);
        if transfer_us == 0 {
            return ready_us;
        }
        let done_us = ready_us.max(self.pipe_free_us) + transfer_us;
        self.pipe_free_us = done_us;
        done_us
    }

    /// The requests of `handle` in flight, as indexes, oldest first.
    fn of_handle(&self, handle: u32) -> impl Iterator<Item = usize> {
        let own = move |(_, pending): &(usize, &Pending)| pending.handle == handle;
        self.in_flight.iter().enumerate().filter(own).map(|(at, _)| at)
    }

    /// The request of `handle` that completes next; with `or_none`, possibly none.
    pub(super) fn next_request(&self, handle: u32, or_none: bool) -> Option<usize> {
        match self.settings.order {
            CompletionOrder::InOrder => self.of_handle(handle).next(),
            CompletionOrder::Chosen => {
                let count = self.of_handle(handle).count() as u64;
                let options = if or_none && count > 0 { count + 1 } else { count };
                self.of_handle(handle).nth(self.choices.choose(options, "completes next") as usize)
            }
            CompletionOrder::Timed => {
                let earliest = |at: &usize| (self.in_flight[*at].due_us, self.in_flight[*at].number);
                let next = self.of_handle(handle).min_by_key(earliest)?;
                (!or_none || self.in_flight[next].due_us <= self.now_us).then_some(next)
            }
        }
    }

    /// Completes the request at `index`, unless power is lost instead.
    pub(super) fn finish(&mut self, index: usize) -> Option<IoCompletion> {
        let kind = self.in_flight[index].request.kind;
        self.before_event(matches!(kind, IoKind::Flush | IoKind::WriteDurable));
        if self.power_is_off() {
            return None;
        }
        let pending = self.in_flight.remove(index);
        if self.settings.order == CompletionOrder::Timed {
            self.now_us = self.now_us.max(pending.due_us);
        }
        let (number, handle, barrier) = (pending.number, pending.handle, pending.barrier);
        let mut request = pending.request;
        let result = self.execute(&mut request, barrier);
        self.counters.completions += 1;
        let outcome = match &result {
            Ok(()) => "ok",
            Err(error) => error.detail.as_str(),
        };
        self.trace.line(format_args!("{} {handle} - {number} {outcome}", self.now_us));
        Some(completion(request, result))
    }

    fn execute(&mut self, request: &mut IoRequest, barrier: u64) -> Result<(), DeviceError> {
        let (kind, offset, len) = (request.kind, request.offset, span(request));
        let choices = self.choices.clone();
        let effect = self.faults.iter_mut().find_map(|fault| fault.strike(&choices, kind, offset, len));
        self.counters.faults += u64::from(effect.is_some());
        if effect == Some(FaultEffect::Full) {
            return Err(DeviceError::new(DeviceErrorKind::Full, "simulated device is full"));
        }
        match (kind, request.buffer.as_mut()) {
            (IoKind::Read, Some(buffer)) => {
                self.counters.reads += 1;
                fail_if(effect, "read")?;
                self.counters.bytes_read += len;
                self.media.read(offset, buffer);
            }
            (IoKind::Write | IoKind::WriteDurable, Some(buffer)) => {
                self.take_space(offset, len)?;
                self.counters.writes += 1;
                self.counters.durable_writes += u64::from(kind == IoKind::WriteDurable);
                self.counters.bytes_written += len;
                self.write(kind, offset, buffer, barrier, effect)?;
            }
            (IoKind::Flush, _) => {
                self.counters.flushes += 1;
                if effect == Some(FaultEffect::Fail) {
                    self.media.orphan(barrier);
                }
                fail_if(effect, "flush")?;
                if effect != Some(FaultEffect::Lie) {
                    self.media.flush(barrier);
                }
            }
            (IoKind::Prepare { .. }, _) => {
                fail_if(effect, "prepare")?;
                self.take_space(offset, len)?;
                self.make_stale(offset, len);
            }
            (IoKind::Discard { .. }, _) => {
                fail_if(effect, "discard")?;
                self.give_space(offset, len);
                self.make_stale(offset, len);
            }
            (IoKind::Read | IoKind::Write | IoKind::WriteDurable, None) => {
                unreachable!("request at {offset} was admitted without a buffer")
            }
        }
        Ok(())
    }

    fn write(
        &mut self,
        kind: IoKind,
        offset: u64,
        bytes: &[u8],
        barrier: u64,
        effect: Option<FaultEffect>,
    ) -> Result<(), DeviceError> {
        let (place, bytes) = match effect {
            Some(FaultEffect::Fail) => {
                if self.choices.choose(2, "failed write landed") == 1 {
                    let write = self.media.write(offset, bytes);
                    self.media.orphan_write(write);
                }
                return fail_if(effect, "write");
            }
            Some(FaultEffect::Lose) => (offset, &bytes[..0]),
            Some(FaultEffect::Misdirect { to }) => {
                let to = to - to % self.settings.sector_bytes as u64;
                let room = self.settings.geometry.end().saturating_sub(to).min(bytes.len() as u64);
                (to, &bytes[..room as usize])
            }
            _ => (offset, bytes),
        };
        let write = self.media.write(place, bytes);
        if kind == IoKind::WriteDurable && effect != Some(FaultEffect::Lie) {
            self.media.persist(write, place, bytes.len() as u64);
            if self.settings.durable_write_scope == DurableWriteScope::WholeDevice {
                self.media.flush(barrier);
            }
        }
        Ok(())
    }

    fn make_stale(&mut self, offset: u64, len: u64) {
        let zeros = match self.settings.stale_range {
            StaleRange::Zeros => true,
            StaleRange::Keeps => false,
            StaleRange::Chosen => {
                self.media.holds_data(offset, len)
                    && self.choices.choose(2, "stale range keeps its bytes") == 0
            }
        };
        if zeros {
            self.media.write_zeros(offset, len);
        }
    }

    /// Takes the segments that `offset .. offset + len` touches, all or none of them.
    fn take_space(&mut self, offset: u64, len: u64) -> Result<(), DeviceError> {
        let wanted = touched_segments(&self.settings.geometry, offset, len);
        let missing: Vec<u32> = wanted.filter(|segment| !self.taken_segments.contains(segment)).collect();
        let taken = self.taken_segments.len() + missing.len();
        if !missing.is_empty() && taken > self.settings.capacity_segments as usize {
            return Err(DeviceError::new(DeviceErrorKind::Full, "simulated device has no free segment"));
        }
        self.taken_segments.extend(missing);
        Ok(())
    }

    fn give_space(&mut self, offset: u64, len: u64) {
        let geometry = self.settings.geometry;
        for segment in touched_segments(&geometry, offset, len) {
            let start = geometry.segment_offset(segment);
            if offset <= start && start + geometry.segment_bytes <= offset + len {
                self.taken_segments.remove(&segment);
            }
        }
    }

    pub(super) fn taken_segments(&self) -> usize {
        self.taken_segments.len()
    }

    /// Takes the requests of `handle` in flight back, undone.
    pub(super) fn take_back(&mut self, handle: u32) -> Vec<IoRequest> {
        let own = |pending: &mut Pending| pending.handle == handle;
        let taken = self.lost.extract_if(.., own).chain(self.in_flight.extract_if(.., own));
        taken.map(|pending| pending.request).collect()
    }

    /// The process ends, the device does not: each write in flight lands whole or not at all, as
    /// the choices say, and stays undurable.
    pub(super) fn kill_process(&mut self) {
        for pending in &self.in_flight {
            if let (IoKind::Write | IoKind::WriteDurable, Some(buffer)) =
                (pending.request.kind, &pending.request.buffer)
                && self.choices.choose(2, "write of a dead process lands") == 1
            {
                self.media.write(pending.request.offset, buffer);
            }
        }
        self.restart();
        self.trace.line(format_args!("{} KILL", self.now_us));
    }
}

/// What is in flight when power is lost may have reached the medium, in any of its sectors.
fn land_in_flight(media: &mut SectorMedia, in_flight: &[Pending]) {
    for request in in_flight.iter().map(|pending| &pending.request) {
        match (request.kind, &request.buffer) {
            (IoKind::Write | IoKind::WriteDurable, Some(buffer)) => _ = media.write(request.offset, buffer),
            (IoKind::Prepare { len } | IoKind::Discard { len }, _) => {
                media.write_zeros(request.offset, len);
            }
            _ => {}
        }
    }
}

/// A finished request.
pub(super) fn completion(request: IoRequest, result: Result<(), DeviceError>) -> IoCompletion {
    let IoRequest { token, kind, offset, buffer } = request;
    IoCompletion { token, kind, offset, buffer, result }
}

/// Bytes that a request concerns.
pub(super) fn span(request: &IoRequest) -> u64 {
    match request.kind {
        IoKind::Prepare { len } | IoKind::Discard { len } => len,
        IoKind::Flush => 0,
        IoKind::Read | IoKind::Write | IoKind::WriteDurable => {
            request.buffer.as_ref().map_or(0, |buffer| buffer.len() as u64)
        }
    }
}

fn touched_segments(geometry: &Geometry, offset: u64, len: u64) -> std::ops::Range<u32> {
    let segment = |at: u64| (at.saturating_sub(geometry.meta_bytes) / geometry.segment_bytes.max(1)) as u32;
    if len == 0 || offset + len <= geometry.meta_bytes {
        return 0..0;
    }
    segment(offset)..segment(offset + len - 1) + 1
}

fn fail_if(effect: Option<FaultEffect>, what: &str) -> Result<(), DeviceError> {
    match effect {
        Some(FaultEffect::Fail) => {
            Err(DeviceError::new(DeviceErrorKind::Failed, format!("simulated device: {what} failed")))
        }
        _ => Ok(()),
    }
}

fn letter(kind: IoKind) -> &'static str {
    match kind {
        IoKind::Read => "R",
        IoKind::Write => "W",
        IoKind::WriteDurable => "D",
        IoKind::Flush => "F",
        IoKind::Prepare { .. } => "P",
        IoKind::Discard { .. } => "X",
    }
}

/// The length and, of writes, a short digest of the bytes.
fn written_digest(request: &IoRequest) -> u64 {
    match (request.kind, &request.buffer) {
        (IoKind::Write | IoKind::WriteDurable, Some(buffer)) => checksum(TRACE_SALT, buffer) >> 32,
        _ => span(request),
    }
}
