//! When operations are sent.
//!
//! Closed loop (no rate): each of the connections has up to `pipeline` operations under way; the next
//! is sent when one is answered. Open loop (a rate): every operation has an intended time that does
//! not depend on any answer. An operation that cannot be sent in time (all places taken, or this
//! program late) is sent as soon as it can be, and its latency still counts from the intended time:
//! there is no coordinated omission (Tene; Schroeder et al., "Open versus closed", NSDI 2006).
//!
//! Invariant: intended times are computed from the start, not from each other's rounding, so that the
//! rate does not drift: constant arrivals keep it to one operation, Poisson arrivals on average.

use serde::{Deserialize, Serialize};
use tierstone_base::{Error, ErrorKind, Result, SeededRandom};

/// How the intended times of an open loop follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Equal distances.
    Constant,
    /// Independent users: exponential distances.
    #[default]
    Poisson,
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Extent {
    /// After so many operations behind the warm-up.
    Operations(u64),
    /// After so many seconds behind the warm-up.
    Seconds(f64),
}

/// How fast, how long, by how many.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pacing {
    /// Threads of the generator, 1 to 1,024. Default 1.
    pub threads: usize,
    /// Operations under way at most on a connection (or in one batch of an embedded store), 1 to 65,536.
    /// Default 1. In an open loop it bounds what is sent ahead of the answers: choose it so high that
    /// the server, not the generator, queues.
    pub pipeline: usize,
    /// Operations a second in an open loop, all threads together, above 0 and at most 10^8; `None`: a
    /// closed loop. Default none.
    pub rate: Option<f64>,
    /// Distances in an open loop. Default Poisson.
    pub arrivals: Arrivals,
    /// When the run ends. Default 10 seconds.
    pub extent: Extent,
    /// Seconds at the start that are not counted. Default 0.
    pub warmup_seconds: f64,
    /// Seconds without any answer after which a thread gives up. Default 30.
    pub timeout_seconds: f64,
    /// The seed of keys, kinds, values and arrivals. Default 1.
    pub seed: u64,
}

impl Default for Pacing {
    fn default() -> Self {
        Pacing {
            threads: 1,
            pipeline: 1,
            rate: None,
            arrivals: Arrivals::Poisson,
            extent: Extent::Seconds(10.0),
            warmup_seconds: 0.0,
            timeout_seconds: 30.0,
            seed: 1,
        }
    }
}

/// A year, the longest time that is accepted.
const SECONDS_MAX: f64 = 366.0 * 86_400.0;

impl Pacing {
    /// Errors: `InvalidInput`, naming the setting that is out of its range.
    pub fn validate(&self) -> Result<()> {
        let refuse = |what: &str| Err(Error::new(ErrorKind::InvalidInput, format!("pacing: {what}")));
        if !(1..=1024).contains(&self.threads) {
            return refuse("threads must be 1 to 1,024");
        }
        if !(1..=65_536).contains(&self.pipeline) {
            return refuse("the pipeline must be 1 to 65,536 deep");
        }
        if self.rate.is_some_and(|rate| !(rate > 0.0 && rate <= 1e8)) {
            return refuse("the rate must be above 0 and at most 100,000,000 a second");
        }
        let is_time = |seconds: f64| (0.0..=SECONDS_MAX).contains(&seconds);
        if !is_time(self.warmup_seconds) || !is_time(self.timeout_seconds) || self.timeout_seconds == 0.0 {
            return refuse("warm-up and timeout must be times of at most a year, the timeout not 0");
        }
        if let Extent::Seconds(seconds) = self.extent
            && !is_time(seconds)
        {
            return refuse("the run must last at most a year");
        }
        Ok(())
    }

    /// The intended times of thread `thread`; `None` in a closed loop.
    pub fn schedule(&self, thread: usize, start_us: u64) -> Option<Schedule> {
        let threads = self.threads.max(1) as f64;
        let gap_ns = 1e9 * threads / self.rate?;
        let random = SeededRandom::new(self.seed ^ 0x6172_7269_7661_6c73 ^ ((thread as u64) << 32));
        let mut schedule =
            Schedule { arrivals: self.arrivals, gap_ns, start_us, offset_ns: 0.0, sent: 0, random };
        match self.arrivals {
            // The threads' operations lie between each other, not on top of each other.
            Arrivals::Constant => schedule.offset_ns = gap_ns * thread as f64 / threads,
            Arrivals::Poisson => schedule.offset_ns = schedule.exponential_ns(),
        }
        Some(schedule)
    }
}

/// The intended times of one thread of an open loop, in order.
#[derive(Clone, Debug)]
pub struct Schedule {
    arrivals: Arrivals,
    gap_ns: f64,
    start_us: u64,
    /// Constant: the first operation's time behind the start. Poisson: the next one's.
    offset_ns: f64,
    sent: u64,
    random: SeededRandom,
}

impl Schedule {
    /// When the next operation is meant to be sent, in microseconds of the clock that gave the start.
    #[inline]
    pub fn intended_us(&self) -> u64 {
        let behind_ns = match self.arrivals {
            Arrivals::Constant => self.offset_ns + self.sent as f64 * self.gap_ns,
            Arrivals::Poisson => self.offset_ns,
        };
        self.start_us + (behind_ns / 1000.0) as u64
    }

    /// Goes on to the operation after it.
    #[inline]
    pub fn advance(&mut self) {
        self.sent += 1;
        if self.arrivals == Arrivals::Poisson {
            self.offset_ns += self.exponential_ns();
        }
    }

    fn exponential_ns(&mut self) -> f64 {
        -(1.0 - self.random.unit()).ln() * self.gap_ns
    }
}

#[cfg(test)]
#[path = "pacing_test.rs"]
mod pacing_test;
