//! The medium: what survives, what is in flight, the switch.

use super::device::SimDevice;
use super::fault::{Armed, Fault};
use super::power::PowerSwitch;
use super::settings::{Latency, PowerCut, SimSettings};
use super::shared::Shared;
use super::state::State;
use super::trace::Trace;
use tierstone_crash::Choices;

/// What a medium has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Submissions and completions: the numbers of [`PowerCut::AtEvent`].
    pub events: u64,
    /// Batches submitted.
    pub submissions: u64,
    /// Requests submitted, wrong ones not counted.
    pub requests: u64,
    /// Requests completed with power on.
    pub completions: u64,
    /// Reads among them.
    pub reads: u64,
    /// Writes among them, durable ones included.
    pub writes: u64,
    /// Durable writes among them.
    pub durable_writes: u64,
    /// Flushes among them.
    pub flushes: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Losses of power.
    pub cuts: u32,
    /// Those that [`SimSettings::power_cut`] caused, or that of the machine around the medium.
    pub planned_cuts: u32,
    /// Requests that a fault struck.
    pub faults: u64,
    /// Writes submitted while another write to some of the same bytes was in flight. Such writes
    /// are not ordered, so code that needs an order must see zero here.
    pub overlapping_writes: u64,
}

/// A simulated medium. Clones are handles on the same medium, on any thread; one at a time does something.
#[derive(Clone, Debug)]
pub struct SimMedium {
    pub(super) state: Shared<State>,
}

impl SimMedium {
    /// An empty medium (all zeros) with power on.
    pub fn new(settings: SimSettings, choices: &Choices) -> Self {
        Self::of(State::new(settings, choices.clone()))
    }

    pub(super) fn of(state: State) -> Self {
        SimMedium { state: Shared::new(state) }
    }

    /// A new handle, with nothing in flight.
    pub fn device(&self) -> SimDevice {
        SimDevice::new(self)
    }

    /// The settings as they are now.
    pub fn settings(&self) -> SimSettings {
        self.state.lock().settings.clone()
    }

    /// Switches the power off: every request in flight and every later one completes with
    /// [`crate::DeviceErrorKind::PowerLost`].
    pub fn cut_power(&self) {
        self.state.lock().cut_power();
    }

    /// Whether power is off.
    pub fn power_is_off(&self) -> bool {
        self.state.lock().power_is_off()
    }

    /// Switches the power on after a loss (cutting it first if it is on), with what the choices
    /// let survive, and gives the first handle. Handles from before are dead.
    ///
    /// # Panics
    /// When the medium stands in a [`super::SimMachine`], which has the switch.
    pub fn power_on_after_loss(&self) -> SimDevice {
        self.assert_power_is_its_own();
        self.state.lock().power_on();
        self.device()
    }

    /// Another medium, with power on, that holds what a loss of power at this moment could leave,
    /// as `choices` say; this one runs on. One long run can so be checked at many points, in many
    /// of the states that each could leave. The copy has these settings, but never loses power by
    /// itself and has no faults. Cost: a copy of the medium.
    pub fn crashed_copy(&self, choices: &Choices) -> SimMedium {
        let power = PowerSwitch::new(PowerCut::Never, 0, choices);
        let state = self.state.lock();
        let trace = Trace::new(state.settings.trace_limit_lines);
        let copy = SimMedium::of(state.crashed_copy(choices, power.clone(), trace));
        power.switch_on();
        copy
    }

    /// The process that owned the handles ends, the machine does not: what the device's cache
    /// holds stays there; each write in flight lands whole or not at all. Handles from before are
    /// dead. Gives the first handle of the next process.
    ///
    /// # Panics
    /// When power is off, or the medium stands in a [`super::SimMachine`].
    pub fn kill_process(&self) -> SimDevice {
        assert!(!self.power_is_off(), "a process cannot run without power");
        self.assert_power_is_its_own();
        self.state.lock().kill_process();
        self.state.lock().power.plan_life();
        self.device()
    }

    fn assert_power_is_its_own(&self) {
        let shared = self.state.lock().power.is_shared();
        assert!(!shared, "the medium stands in a machine: ask that for its next life");
    }

    /// Changes where power is lost, from now on; of the whole machine, where the medium stands in one.
    pub fn set_power_cut(&self, power_cut: PowerCut) {
        let state = &mut *self.state.lock();
        state.settings.power_cut = power_cut;
        state.power.set_cut(power_cut);
    }

    /// Changes how many segments there is space for. Those taken stay taken.
    pub fn set_capacity_segments(&self, segments: u32) {
        self.state.lock().settings.capacity_segments = segments;
    }

    /// Segments that take space now.
    pub fn taken_segments(&self) -> usize {
        self.state.lock().taken_segments()
    }

    /// Changes how long later requests take: a device that becomes slow.
    pub fn set_latency(&self, latency: Latency) {
        self.state.lock().settings.latency = latency;
    }

    /// Arms a fault. Of several that strike the same request, the one armed first wins.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().faults.push(Armed::new(fault));
    }

    /// Disarms all faults. What they did stays done.
    pub fn clear_faults(&self) {
        self.state.lock().faults.clear();
    }

    /// Damages the medium: flips `bit` (0 to 7) of the byte at `offset`.
    pub fn flip_bit(&self, offset: u64, bit: u8) {
        self.state.lock().media.flip_bit(offset, bit);
    }

    /// Damages the medium: puts `bytes` at `offset`, in the cache and below it, past all order.
    pub fn overwrite(&self, offset: u64, bytes: &[u8]) {
        let media = &mut self.state.lock().media;
        for (at, &byte) in (offset..).zip(bytes) {
            media.damage(at, |held| *held = byte);
        }
    }

    /// What a read of `len` bytes at `offset` would give now, past all faults and counters.
    pub fn peek(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.state.lock().media.read(offset, &mut bytes);
        bytes
    }

    /// What `len` bytes at `offset` hold for certain after a loss of power that leaves nothing
    /// undurable.
    pub fn peek_durable(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.state.lock().media.durable().read(offset, &mut bytes);
        bytes
    }

    /// Sectors whose survivor is open, requests in flight not counted.
    pub fn undecided_sectors(&self) -> usize {
        self.state.lock().media.undecided()
    }

    /// Simulated time in microseconds; moves under [`super::CompletionOrder::Timed`] only.
    pub fn now_us(&self) -> u64 {
        self.state.lock().now_us
    }

    /// Moves the time forward to `now_us`; never back.
    pub fn advance_to(&self, now_us: u64) {
        let state = &mut *self.state.lock();
        state.now_us = state.now_us.max(now_us);
    }

    /// When the next request in flight, of any handle, is due, in microseconds.
    pub fn next_completion_at(&self) -> Option<u64> {
        self.state.lock().in_flight.iter().map(|pending| pending.due_us).min()
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        let state = self.state.lock();
        Counters { planned_cuts: state.power.planned_cuts(), ..state.counters }
    }

    /// The newest events as text, one a line: the time, the handle, `+` submitted or `-`
    /// completed, the request's number, then its kind (R, W, D durable, F, P, X discard), offset
    /// and a digest of its bytes, or its result.
    pub fn trace(&self) -> String {
        self.state.lock().trace.text()
    }

    /// A digest of every event so far; zero when no trace is kept.
    pub fn trace_digest(&self) -> u64 {
        self.state.lock().trace.digest()
    }
}
