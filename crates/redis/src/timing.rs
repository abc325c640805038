//! How long commands take.
//!
//! The time of a command runs from the moment at which it is taken up to the one at which its reply is
//! decided: its runs, and between them its waits for records of the device, for locks, for room and for other
//! shards. It contains neither the time before, in which the request waits in its connection, nor that after,
//! in which the reply waits to be durable and to be sent. A command that another shard carries out is timed
//! there.
//!
//! Cost: two readings of the clock a command, one where it follows another in a pipeline. Short commands that are
//! answered at once, and follow others in a pipeline, are not timed unless [`FINE_US`] asks for it: a reading would
//! cost a part of them that is seen. Those of them that wait are timed from the start of their wait.

use crate::args::Args;
use crate::latency::Latencies;
use crate::settings::Settings;
use crate::table::{Command, flag};
use tierstone_base::{CpuClock, Now};

/// The setting that says which commands are slow.
pub(crate) const SLOWER_THAN: &str = "slowlog-log-slower-than";

/// Limits in microseconds below this are for commands that take no time to speak of: then each is timed.
const FINE_US: i64 = 1_000;

/// A command of Redis's flag `fast` is short up to so many arguments.
const SHORT_ARGUMENTS: usize = 4;

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
    /// The reading at the end of the last command, where nothing has come between.
    last_ns: Option<u64>,
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
    pub fn pass(&mut self) {
        self.last_ns = None;
    }

    /// The start of a request; `None`: it is not timed unless it waits.
    pub fn begin_request(&mut self, now: Now, command: &Command, args: Args<'_>) -> Option<u64> {
        let is_short = command.has(flag::FAST) && args.len() <= SHORT_ARGUMENTS;
        if is_short && self.is_pipelined && !self.is_fine() {
            self.pass();
            return None;
        }
        self.begin(now)
    }

    /// The start of the wait of a request that was not timed before; `None`: commands are not timed.
    pub fn begin_wait(&mut self, now: Now) -> Option<u64> {
        self.is_on().then(|| self.read(now))
    }

    /// The start of a command; `None`: commands are not timed.
    pub fn begin(&mut self, now: Now) -> Option<u64> {
        if !self.is_on() {
            return None;
        }
        let last_ns = self.last_ns.take().filter(|_| self.is_pipelined);
        match self.pending_ns.take().or(last_ns) {
            Some(began_ns) => Some(began_ns),
            None => Some(self.read(now)),
        }
    }

    /// The time of a command that began at `began_ns`, in nanoseconds.
    pub fn end(&mut self, now: Now, began_ns: u64) -> u64 {
        let ended_ns = self.read(now);
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
