//! A trace through an array of mirrors whose second disks may sleep.
//!
//! Source: the simulator of Snyder, Chen, Chrysanthis, Labrinidis, *QMD*, DaMoN 2011, section 4. A disk
//! is a queue: average seek and rotation, left out for what follows the access before, plus size over
//! bandwidth. Flash is one too. What the source leaves open is decided so: a read goes to the disk of its
//! pair that is free first (of two, to one that follows on, else to the one that has worked less); a spin-up or spin-down draws the power of idling; after waking, what the buffer
//! holds is written in the order of the disk, runs that touch as one, each with seek and rotation divided by
//! a speed-up, while the flash is read between its writes; meanwhile writes go to the active disk and the buffer, and are written back in turn; flash
//! space is given back when its pair is flushed; a write for which the buffer has no room waits until the
//! second disk turns.
//!
//! Invariants:
//! 1. For each disk, serving, idling and standing add up to the length of the run.
//! 2. Without sleeping no disk stands and the flash is never used.

use super::describe::Description;
use super::trace::Request;
use super::whole::{HOST, Whole, WholeOutcome, WholePair};
use crate::quantity::{Bandwidth, Duration};
use std::cmp::Ordering;
use tierstone_base::histogram::LatencyHistogram;
use tierstone_volume::{Advice, PairHistory, SleepPolicy, WholePolicy};

const SECOND: f64 = 1e9;
/// Of a pair's two disks, the one that sleeps.
const SECOND_DISK: usize = 1;

/// What a run is about: the numbers of a description in the units of the simulator.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    disks: u32,
    pub(super) stripe: u64,
    pub(super) position_ns: u64,
    pub(super) ns_per_byte: f64,
    write_back_ns: u64,
    pub(super) spin_up_ns: u64,
    pub(super) spin_down_ns: u64,
    load_w: f64,
    idle_w: f64,
    down_w: f64,
    buffer_bytes: u64,
    flash_read: (u64, f64),
    flash_write: (u64, f64),
    flash_active_w: f64,
    flash_idle_w: f64,
    pub(super) epoch_ns: u64,
    pub(super) policy: SleepPolicy,
    pub(super) whole: Option<Whole>,
}

impl Machine {
    /// The machine of a description.
    pub fn of(description: &Description) -> Machine {
        let (disk, flash) = (&description.disk, &description.flash);
        let per_byte = |bandwidth: Bandwidth| SECOND / bandwidth.get();
        let ns = |time: Duration| (time.get() * SECOND).round() as u64;
        let position_ns = (disk.seek.get() + disk.rotation.get()) * SECOND;
        Machine {
            disks: description.array.disks,
            stripe: description.array.stripe.get() as u64,
            position_ns: position_ns.round() as u64,
            ns_per_byte: per_byte(disk.transfer),
            write_back_ns: (position_ns / disk.write_back_speedup).round() as u64,
            spin_up_ns: ns(disk.spin_up),
            spin_down_ns: ns(disk.spin_down),
            load_w: disk.load.get(),
            idle_w: disk.idle.get(),
            down_w: disk.down.get(),
            buffer_bytes: flash.buffer.get() as u64,
            flash_read: (ns(flash.read_latency), per_byte(flash.read_bandwidth)),
            flash_write: (ns(flash.write_latency), per_byte(flash.write_bandwidth)),
            flash_active_w: flash.active.get(),
            flash_idle_w: flash.idle.get(),
            epoch_ns: ns(description.policy.epoch).max(1),
            policy: description.sleep_policy(),
            whole: description.partial.map(|partial| Whole {
                hot_bytes: partial.hot.get() as u64,
                spare_bytes: partial.spare.get() as u64,
                policy: WholePolicy {
                    cold_epochs: partial.cold_epochs,
                    host_utilisation: partial.host_utilisation,
                },
            }),
        }
    }

    /// The same without pairs that sleep whole.
    #[must_use]
    pub fn without_whole(self) -> Machine {
        Machine { whole: None, ..self }
    }

    /// The same with another number of disks.
    #[must_use]
    pub fn with_disks(self, disks: u32) -> Machine {
        Machine { disks, ..self }
    }

    /// The same with another buffer.
    #[must_use]
    pub fn with_buffer_mib(self, mib: f64) -> Machine {
        Machine { buffer_bytes: (mib * (1 << 20) as f64) as u64, ..self }
    }

    /// The same waking at another utilisation.
    #[must_use]
    pub fn with_spin_up(self, utilisation: f64) -> Machine {
        let down = self.policy.spin_down_utilisation.min(utilisation);
        let policy =
            SleepPolicy { spin_up_utilisation: utilisation, spin_down_utilisation: down, ..self.policy };
        Machine { policy, ..self }
    }

    /// The most that sleeping can save of an idle pair: a half of its disks stands instead of idling.
    pub fn idle_bound(&self) -> f64 {
        (self.idle_w - self.down_w) / (2.0 * self.idle_w)
    }

    /// The most that whole sleep can save of an idle array: all pairs stand but one.
    pub fn whole_bound(&self) -> f64 {
        2.0 * self.idle_bound() * (1.0 - 2.0 / f64::from(self.disks))
    }

    /// Joules that a start costs beyond idling, at `watts` while it lasts.
    pub fn start_j(&self, watts: f64) -> f64 {
        (watts - self.idle_w) * self.spin_up_ns as f64 / SECOND
    }
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Requests.
    pub requests: u64,
    /// The length of the run, in seconds.
    pub length_s: f64,
    /// Joules of all disks.
    pub disk_j: f64,
    /// Joules of the flash.
    pub flash_j: f64,
    /// Seconds of all disks together: serving, idling, standing.
    pub state_s: [f64; 3],
    /// Starts, of the mean second disk and of the one with most.
    pub cycles: (f64, u64),
    /// Of requests.
    pub response: LatencyHistogram,
    /// Disks that turned, a point every hundredth of the run: (hours, mean number).
    pub spinning: Vec<(f64, f64)>,
    /// Requests a second, at the same points.
    pub load: Vec<(f64, f64)>,
    /// Writes that waited for a disk because the buffer was full.
    pub stalled: u64,
    /// Of pairs that slept whole, where they may.
    pub whole: Option<WholeOutcome>,
}

impl Outcome {
    /// Starts of all disks.
    pub fn starts(&self, pairs: u32) -> f64 {
        let first =
            self.whole.as_ref().map_or(0.0, |whole| whole.starts.0 * f64::from(pairs.saturating_sub(1)));
        self.cycles.0 * f64::from(pairs) + first
    }

    /// Joules of disks and flash.
    pub fn joules(&self) -> f64 {
        self.disk_j + self.flash_j
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queue {
    /// When all that was given to it is done.
    pub(super) free_ns: u64,
    /// All service times.
    busy_ns: u64,
    /// Where the access before ended.
    end: u64,
}

impl Queue {
    /// Serves `bytes` at `offset` from `now` on; when it is done.
    fn serve(&mut self, now: u64, offset: u64, bytes: u64, position_ns: u64, ns_per_byte: f64) -> u64 {
        let position = if offset == self.end { 0 } else { position_ns };
        self.end = offset + bytes;
        self.occupy(now, position + (bytes as f64 * ns_per_byte) as u64)
    }

    fn occupy(&mut self, now: u64, service_ns: u64) -> u64 {
        self.free_ns = self.free_ns.max(now) + service_ns;
        self.busy_ns += service_ns;
        self.free_ns
    }

    /// How much of its work lies before `now`: what it was given by then, less what is still to do.
    fn worked(&self, now: u64) -> u64 {
        self.busy_ns.saturating_sub(self.free_ns.saturating_sub(now))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum State {
    /// Both disks turn.
    High,
    /// The second disk stops turning.
    Stopping { until: u64 },
    /// It stands.
    Low,
    /// It starts.
    Starting { until: u64 },
    /// It turns, and gets what it missed.
    Flushing { until: u64, direct_from: u64 },
}

#[derive(Debug)]
pub(super) struct Pair {
    pub(super) disks: [Queue; 2],
    pub(super) state: State,
    history: PairHistory,
    worked: [u64; 2],
    /// Bytes of the buffer that are its.
    buffered: u64,
    /// What its second disk misses: (offset, bytes).
    missing: Vec<(u64, u64)>,
    down_since: u64,
    down_ns: u64,
}

pub(super) struct Simulation<'a> {
    pub(super) machine: &'a Machine,
    pub(super) sleeps: bool,
    pub(super) pairs: Vec<Pair>,
    /// Empty unless pairs may sleep whole.
    pub(super) whole: Vec<WholePair>,
    pub(super) hot_response: LatencyHistogram,
    pub(super) cold_waits: u64,
    /// Bytes to the host and home.
    pub(super) copied: u64,
    flash: Queue,
    /// Reads of flushes, which go on between the writes and do not hold them up.
    flash_background_ns: u64,
    /// Whether the access before was a write at the end of the log.
    flash_is_at_log: bool,
    buffered: u64,
    /// The first moment at which some pair changes its state by itself.
    next_change: u64,
    stalled: u64,
    spinning_ns: Vec<f64>,
}

/// Points of the pictures.
const POINTS: usize = 100;

/// Runs a trace, with disks that sleep or without. Cost: some 100 ns a request and stripe, and some 10 ns
/// an epoch and pair.
pub fn simulate(machine: &Machine, trace: &[Request], sleeps: bool) -> Outcome {
    let pair = || Pair {
        disks: [Queue::default(); 2],
        state: State::High,
        history: PairHistory::default(),
        worked: [0; 2],
        buffered: 0,
        missing: Vec::new(),
        down_since: 0,
        down_ns: 0,
    };
    let mut simulation = Simulation {
        machine,
        sleeps,
        pairs: (0..machine.disks / 2).map(|_| pair()).collect(),
        whole: Vec::new(),
        hot_response: LatencyHistogram::new(),
        cold_waits: 0,
        copied: 0,
        flash: Queue::default(),
        flash_background_ns: 0,
        flash_is_at_log: false,
        buffered: 0,
        next_change: u64::MAX,
        stalled: 0,
        spinning_ns: vec![0.0; POINTS],
    };
    if sleeps && machine.whole.is_some() {
        let hot_bytes = simulation.hot_bytes_a_pair();
        simulation.whole = simulation.pairs.iter().map(|_| WholePair::new(hot_bytes)).collect();
    }
    let last = trace.last().map_or(0, |request| request.arrival_ns);
    let length = last.next_multiple_of(machine.epoch_ns).max(machine.epoch_ns);
    let mut response = LatencyHistogram::new();
    let mut load = vec![0.0; POINTS];
    let mut epoch_end = machine.epoch_ns;
    for request in trace {
        while epoch_end <= request.arrival_ns {
            simulation.end_epoch(epoch_end, length);
            epoch_end += machine.epoch_ns;
        }
        let finish = simulation.request(request);
        let took_us = (finish - request.arrival_ns).div_ceil(1000);
        response.record_us(took_us);
        if simulation.is_hot(request.offset) {
            simulation.hot_response.record_us(took_us);
        }
        load[point(request.arrival_ns, length)] += 1.0;
    }
    while epoch_end <= length {
        simulation.end_epoch(epoch_end, length);
        epoch_end += machine.epoch_ns;
    }
    simulation.outcome(trace.len() as u64, length, response, load)
}

fn point(at: u64, length: u64) -> usize {
    ((u128::from(at) * POINTS as u128 / u128::from(length)) as usize).min(POINTS - 1)
}

impl Simulation<'_> {
    /// Whether whole sleep is on and a place is among what stays on disks that turn.
    fn is_hot(&self, offset: u64) -> bool {
        !self.whole.is_empty() && self.machine.whole.is_some_and(|whole| offset < whole.hot_bytes)
    }

    /// Serves one request; when its last piece is done.
    fn request(&mut self, request: &Request) -> u64 {
        let now = request.arrival_ns;
        if self.next_change <= now {
            self.change_states(now);
        }
        let (stripe, pairs) = (self.machine.stripe, self.pairs.len() as u64);
        let (mut offset, mut left) = (request.offset, u64::from(request.bytes).max(1));
        let mut finish = now;
        while left > 0 {
            let chunk = offset / stripe;
            let take = (stripe - offset % stripe).min(left);
            let at = chunk / pairs * stripe + offset % stripe;
            let pair = (chunk % pairs) as usize;
            let is_hot = self.is_hot(offset);
            let (pair, at) = self.whereabouts(now, pair, at, is_hot, request.is_write);
            let done = if request.is_write {
                self.write(pair, now, at, take)
            } else {
                self.read(pair, now, at, take)
            };
            finish = finish.max(done);
            offset += take;
            left -= take;
        }
        finish
    }

    fn read(&mut self, pair: usize, now: u64, at: u64, bytes: u64) -> u64 {
        let machine = self.machine;
        let pair = &mut self.pairs[pair];
        let [first, second] = &pair.disks;
        let waits = [first.free_ns.max(now), second.free_ns.max(now)];
        let is_second = match waits[0].cmp(&waits[1]) {
            _ if pair.state != State::High => false,
            Ordering::Less => false,
            Ordering::Greater => true,
            Ordering::Equal if at == first.end || at == second.end => at == second.end,
            Ordering::Equal => second.busy_ns < first.busy_ns,
        };
        let disk = if is_second { SECOND_DISK } else { 0 };
        pair.disks[disk].serve(now, at, bytes, machine.position_ns, machine.ns_per_byte)
    }

    fn write(&mut self, index: usize, now: u64, at: u64, bytes: u64) -> u64 {
        let machine = self.machine;
        let pair = &mut self.pairs[index];
        let served = pair.disks[0].serve(now, at, bytes, machine.position_ns, machine.ns_per_byte);
        let is_direct = match pair.state {
            State::High => true,
            State::Flushing { direct_from, .. } => now >= direct_from,
            _ => false,
        };
        if is_direct {
            let other =
                pair.disks[SECOND_DISK].serve(now, at, bytes, machine.position_ns, machine.ns_per_byte);
            return served.max(other);
        }
        if self.buffered + bytes > machine.buffer_bytes {
            self.stalled += 1;
            self.wake(index, now);
            let pair = &mut self.pairs[index];
            let turns = match pair.state {
                State::Starting { until } => until,
                _ => now,
            };
            let other = pair.disks[SECOND_DISK].serve(
                turns.max(now),
                at,
                bytes,
                machine.position_ns,
                machine.ns_per_byte,
            );
            return served.max(other);
        }
        pair.buffered += bytes;
        self.buffered += bytes;
        if let State::Flushing { until, direct_from } = pair.state {
            let service = machine.write_back_ns + (bytes as f64 * machine.ns_per_byte) as u64;
            pair.disks[SECOND_DISK].occupy(now, service);
            pair.state = State::Flushing { until: until + service, direct_from };
        } else {
            pair.missing.push((at, bytes));
        }
        let (latency, per_byte) = machine.flash_write;
        // The buffer is written as a log: one position after the other, unless a flush read in between.
        let latency = if self.flash_is_at_log { 0 } else { latency };
        self.flash_is_at_log = true;
        let staged = self.flash.occupy(now, latency + (bytes as f64 * per_byte) as u64);
        served.max(staged)
    }

    /// Pairs whose time has come go on to their next state.
    fn change_states(&mut self, now: u64) {
        for index in 0..self.pairs.len() {
            loop {
                let pair = &mut self.pairs[index];
                match pair.state {
                    State::Stopping { until } if until <= now => {
                        pair.state = State::Low;
                        pair.down_since = until;
                    }
                    State::Starting { until } if until <= now => self.start_flush(index, until),
                    State::Flushing { until, .. } if until <= now => {
                        self.buffered -= pair.buffered;
                        pair.buffered = 0;
                        pair.state = State::High;
                    }
                    _ => break,
                }
            }
        }
        let change = |pair: &Pair| match pair.state {
            State::Stopping { until } | State::Starting { until } | State::Flushing { until, .. } => {
                Some(until)
            }
            State::High | State::Low => None,
        };
        self.next_change = self.pairs.iter().filter_map(change).min().unwrap_or(u64::MAX);
    }

    /// The second disk of a pair turns at `now`: it gets what it missed, in the order of the disk.
    fn start_flush(&mut self, index: usize, now: u64) {
        let machine = self.machine;
        let pair = &mut self.pairs[index];
        let mut missing = std::mem::take(&mut pair.missing);
        missing.sort_unstable();
        let mut until = now;
        let mut run: Option<(u64, u64)> = None;
        let mut read = 0;
        let mut write = |pair: &mut Pair, (from, to): (u64, u64)| {
            let service = machine.write_back_ns + ((to - from) as f64 * machine.ns_per_byte) as u64;
            read += to - from;
            until = pair.disks[SECOND_DISK].occupy(now, service);
        };
        for (at, bytes) in missing {
            match &mut run {
                Some((_, to)) if at <= *to => *to = (*to).max(at + bytes),
                _ => {
                    if let Some(run) = run.replace((at, at + bytes)) {
                        write(pair, run);
                    }
                }
            }
        }
        if let Some(run) = run {
            write(pair, run);
        }
        let (latency, per_byte) = machine.flash_read;
        if read > 0 {
            self.flash_background_ns += latency + (read as f64 * per_byte) as u64;
            self.flash_is_at_log = false;
        }
        let direct_from = now + 3 * (until - now);
        pair.state = State::Flushing { until, direct_from };
    }

    /// The second disk of a pair starts, unless it turns or starts already. One that is stopping starts
    /// when it has stopped.
    pub(super) fn wake(&mut self, index: usize, now: u64) {
        self.start_first(index, now);
        let pair = &mut self.pairs[index];
        let stopped = match pair.state {
            State::Low => {
                pair.down_ns += now - pair.down_since;
                now
            }
            State::Stopping { until } => until,
            _ => return,
        };
        let until = stopped + self.machine.spin_up_ns;
        pair.state = State::Starting { until };
        self.next_change = self.next_change.min(until);
    }

    fn end_epoch(&mut self, now: u64, length: u64) {
        if self.next_change <= now {
            self.change_states(now);
        }
        let machine = self.machine;
        let hours = now as f64 / (3600.0 * SECOND);
        let fill = self.buffered as f64 / machine.buffer_bytes as f64;
        let (mut spinning, mut kept) = (0.0, 0.0f64);
        for index in 0..self.pairs.len() {
            let pair = &mut self.pairs[index];
            let worked = [pair.disks[0].worked(now), pair.disks[1].worked(now)];
            let share =
                |disk: usize| worked[disk].saturating_sub(pair.worked[disk]) as f64 / machine.epoch_ns as f64;
            let shares = [share(0), share(1)];
            pair.worked = worked;
            spinning += if pair.state == State::Low { 1.0 } else { 2.0 };
            if !self.sleeps {
                continue;
            }
            if index == HOST {
                kept = shares[0].max(shares[1]);
            }
            let is_host = index == HOST && !self.whole.is_empty();
            match pair.state {
                State::High if is_host || self.whole.get(index).is_some_and(WholePair::is_needed) => {}
                State::High => {
                    if pair.history.awake(&machine.policy, shares[0].max(shares[1]), hours) == Advice::Sleep {
                        let until = now.max(pair.disks[SECOND_DISK].free_ns) + machine.spin_down_ns;
                        pair.state = State::Stopping { until };
                        self.next_change = self.next_change.min(until);
                    }
                }
                State::Low => {
                    let advice = pair.history.asleep(&machine.policy, shares[0], fill);
                    if advice == Advice::Wake {
                        self.wake(index, now);
                    }
                }
                _ => pair.history.between(),
            }
            if !self.whole.is_empty() {
                self.end_whole_epoch(index, now, shares, kept);
                spinning -= if self.whole[index].stands() { 1.0 } else { 0.0 };
            }
        }
        self.spinning_ns[point(now - 1, length)] += spinning * machine.epoch_ns as f64;
    }

    fn outcome(mut self, requests: u64, length: u64, response: LatencyHistogram, load: Vec<f64>) -> Outcome {
        self.change_states(length);
        let machine = self.machine;
        let mut state_s = [0.0; 3];
        for (index, pair) in self.pairs.iter_mut().enumerate() {
            if pair.state == State::Low {
                pair.down_ns += length - pair.down_since.min(length);
            }
            let (copying, first_down) = self.whole.get(index).map_or((0, 0), |whole| whole.times(length));
            let load: u64 = pair.disks.iter().map(|disk| disk.worked(length)).sum::<u64>() + copying;
            let down = pair.down_ns + first_down;
            state_s[0] += load as f64 / SECOND;
            state_s[2] += down as f64 / SECOND;
            state_s[1] += (2 * length).saturating_sub(load + down) as f64 / SECOND;
        }
        let flash_s = (self.flash.worked(length) + self.flash_background_ns).min(length) as f64 / SECOND;
        let length_s = length as f64 / SECOND;
        let flash_j = if self.sleeps {
            flash_s * machine.flash_active_w + (length_s - flash_s) * machine.flash_idle_w
        } else {
            0.0
        };
        let cycles: Vec<u64> = self.pairs.iter().map(|pair| pair.history.cycles).collect();
        let total: u64 = cycles.iter().sum();
        let hour = |at: usize| (at as f64 + 0.5) * length_s / POINTS as f64 / 3600.0;
        let part_s = length_s / POINTS as f64;
        let spinning = self.spinning_ns.iter().enumerate();
        Outcome {
            requests,
            length_s,
            disk_j: state_s[0] * machine.load_w + state_s[1] * machine.idle_w + state_s[2] * machine.down_w,
            flash_j,
            state_s,
            cycles: (total as f64 / self.pairs.len() as f64, cycles.into_iter().max().unwrap_or(0)),
            response,
            spinning: spinning.map(|(at, ns)| (hour(at), ns / SECOND / part_s)).collect(),
            load: load.iter().enumerate().map(|(at, count)| (hour(at), count / part_s)).collect(),
            stalled: self.stalled,
            whole: self.whole_outcome(),
        }
    }
}

#[cfg(test)]
#[path = "simulate_test.rs"]
mod simulate_test;
