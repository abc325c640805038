//! How long commands take.
//!
//! The time of a command runs from the moment at which it is taken up to the one at which its reply is
//! decided: its runs, and between them its waits for records of the device, for locks, for room and for other
//! shards. It contains neither the time before, in which the request waits in its connection, nor that after,
//! in which the reply waits to be durable and to be sent. A command that another shard carries out is timed
//! there.
//!
//! What is not timed by itself is counted, and the time of a stretch of such commands in one pipeline is divided among
//! them in equal parts: for the sums that `INFO` tells of each command, and for nothing else.
//!
//! Cost: two readings of the clock a command, one where it follows another in a pipeline. Short commands that are
//! answered at once, and follow others in a pipeline, are not timed unless [`FINE_US`] asks for it: a reading would
//! cost a part of them that is seen. Those of them that wait are timed from the start of their wait.

use crate::args::Args;
use crate::commandstats::{CommandTimes, place_of};
use crate::latency::Latencies;
use crate::settings::Settings;
use crate::table::{Command, flag, quick_index};
use tierstone_base::{CpuClock, Now};

/// The setting that says which commands are slow.
pub(crate) const SLOWER_THAN: &str = "slowlog-log-slower-than";

/// Limits in microseconds below this are for commands that take no time to speak of: then each is timed.
const FINE_US: i64 = 1_000;

/// A command of Redis's flag `fast` is short up to so many arguments.
const SHORT_ARGUMENTS: usize = 4;

/// Commands that are not timed by themselves, `GET`s and `SET`s apart, from which on a stretch of them ends.
const STRETCH_MAX: usize = 256;

/// Takes the time of commands.
#[derive(Debug, Default)]
pub(crate) struct Timing {
    /// `None`: times are those of the caller's turns.
    clock: Option<Box<dyn CpuClock>>,
    /// From how many microseconds on a command is slow; negative: none is.
    slower_than_us: i64,
    /// Whether the times of all commands are wanted.
    is_wanted: bool,
    /// Whether the request at hand follows another one in a pipeline.
    is_pipelined: bool,
    /// The reading that was made for a quick command before it was seen that it is none.
    pending_ns: Option<u64>,
    /// The last reading of this pipeline, at the end of a command. What came since then is in `untimed`.
    last_ns: Option<u64>,
    /// How many plain `SET`s and `GET`s since then were not timed by themselves.
    untimed_quick: [u64; 2],
    /// The places of other such commands.
    untimed: Vec<u16>,
    /// What commands took, all together.
    times: CommandTimes,
}

impl Timing {
    pub fn set_clock(&mut self, clock: Box<dyn CpuClock>) {
        self.clock = Some(clock);
    }

    /// Follows the settings.
    pub fn follow(&mut self, settings: &Settings, latencies: &Latencies) {
        self.is_wanted = latencies.is_on();
        self.slower_than_us = settings.integer(SLOWER_THAN).unwrap_or(-1);
    }

    /// A request is offered, the first of a pipeline or one that follows another.
    pub fn offered(&mut self, is_pipelined: bool) {
        self.is_pipelined = is_pipelined;
    }

    fn read(&mut self, now: Now) -> u64 {
        match &mut self.clock {
            Some(clock) => clock.cpu_ns(),
            None => now.monotonic_us * 1_000,
        }
    }

    fn is_fine(&self) -> bool {
        (0..FINE_US).contains(&self.slower_than_us)
    }

    fn is_on(&self) -> bool {
        self.is_wanted || self.slower_than_us >= 0
    }

    /// The start of a command that may be answered at once; `None`: it is not timed then.
    #[inline]
    pub fn begin_quick(&mut self, now: Now) -> Option<u64> {
        self.pending_ns = None;
        if !self.is_on() || self.is_pipelined && !self.is_fine() {
            return None;
        }
        self.pending_ns = self.begin(now);
        self.pending_ns
    }

    /// A request is no quick one, and the one before it was not taken up.
    #[inline]
    pub fn forget(&mut self) {
        self.pending_ns = None;
    }

    /// A quick command was answered that is not timed.
    #[inline]
    pub fn pass(&mut self, is_get: bool) {
        self.untimed_quick[usize::from(is_get)] += 1;
    }

    /// A quick command goes to another shard, which times it: what it takes here is added.
    #[inline]
    pub fn pass_on(&mut self, is_get: bool) {
        // It was the first one.
        if let Some(began_ns) = self.pending_ns.take() {
            self.forget_stretch();
            self.last_ns = Some(began_ns);
        }
        self.pass(is_get);
    }

    /// The pipeline at hand has come to its end: what was not timed by itself gets its part.
    pub fn end_pipeline(&mut self, now: Now) {
        if self.last_ns.is_some() && self.has_stretch() {
            let ended_ns = self.read(now);
            self.divide(ended_ns);
        }
        self.forget_stretch();
    }

    fn has_stretch(&self) -> bool {
        self.untimed_quick != [0; 2] || !self.untimed.is_empty()
    }

    fn forget_stretch(&mut self) {
        self.last_ns = None;
        self.untimed_quick = [0; 2];
        self.untimed.clear();
    }

    /// Divides the time since the last reading among those that came since then; `ended_ns` is the last one now.
    fn divide(&mut self, ended_ns: u64) {
        if let Some(since_ns) = self.last_ns
            && self.has_stretch()
        {
            let [sets, gets] = self.untimed_quick;
            let part_ns = ended_ns.saturating_sub(since_ns) / (sets + gets + self.untimed.len() as u64);
            self.times.add(quick_index(false), sets * part_ns);
            self.times.add(quick_index(true), gets * part_ns);
            self.untimed.iter().for_each(|place| self.times.add(usize::from(*place), part_ns));
        }
        let had_start = self.last_ns.is_some();
        self.forget_stretch();
        self.last_ns = had_start.then_some(ended_ns);
    }

    /// What commands took, all together.
    pub fn times(&self) -> &CommandTimes {
        &self.times
    }

    /// Adds the time of a command.
    pub fn add(&mut self, command: &'static Command, took_ns: u64) {
        self.times.add(place_of(command), took_ns);
    }

    /// Forgets what commands took.
    pub fn forget_times(&mut self) {
        self.times.clear();
    }

    /// The start of a request; `None`: it is not timed unless it waits.
    pub fn begin_request(&mut self, now: Now, command: &'static Command, args: Args<'_>) -> Option<u64> {
        let is_short = command.has(flag::FAST) && args.len() <= SHORT_ARGUMENTS;
        if is_short && self.is_pipelined && !self.is_fine() {
            if self.untimed.len() >= STRETCH_MAX {
                let ended_ns = self.read(now);
                self.divide(ended_ns);
            }
            self.untimed.push(place_of(command) as u16);
            return None;
        }
        self.begin(now)
    }

    /// The start of the wait of a request that was not timed before; `None`: commands are not timed.
    pub fn begin_wait(&mut self, now: Now) -> Option<u64> {
        if !self.is_on() {
            return None;
        }
        let began_ns = self.read(now);
        if self.has_stretch() {
            self.divide(began_ns);
        }
        Some(began_ns)
    }

    /// The start of a command; `None`: commands are not timed.
    pub fn begin(&mut self, now: Now) -> Option<u64> {
        if !self.is_on() {
            return None;
        }
        if !self.is_pipelined {
            self.forget_stretch();
        } else if self.has_stretch() {
            let began_ns = self.read(now);
            self.divide(began_ns);
        }
        match self.pending_ns.take().or(self.last_ns.take()) {
            Some(began_ns) => Some(began_ns),
            None => Some(self.read(now)),
        }
    }

    /// The time of a command that began at `began_ns`, in nanoseconds.
    pub fn end(&mut self, now: Now, began_ns: u64) -> u64 {
        let ended_ns = self.read(now);
        if self.has_stretch() {
            self.divide(ended_ns);
        }
        self.pending_ns = None;
        self.last_ns = Some(ended_ns);
        ended_ns.saturating_sub(began_ns)
    }

    /// Whether so many microseconds are slow.
    pub fn is_slow(&self, took_us: u64) -> bool {
        u64::try_from(self.slower_than_us).is_ok_and(|limit_us| took_us >= limit_us)
    }
}

#[cfg(test)]
#[path = "timing_test.rs"]
mod timing_test;
