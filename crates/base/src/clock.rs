//! Time as an input. A shard never reads a clock: its driver passes a [`Now`] into every step.

use std::time::Duration;

/// One reading of time, taken by a driver and handed down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Now {
    /// Microseconds since some fixed instant; never goes back.
    pub monotonic_us: u64,
    /// Milliseconds since 1970 by the wall clock; may jump either way.
    pub wall_ms: u64,
}

impl Now {
    /// The same reading moved forward by `duration`.
    pub fn after(self, duration: Duration) -> Now {
        Now {
            monotonic_us: self.monotonic_us + duration.as_micros() as u64,
            wall_ms: self.wall_ms + duration.as_millis() as u64,
        }
    }
}

/// Where a driver gets its time from: the machine, or a simulation.
pub trait Clock {
    /// Reads the time. Cost on Linux: about 40 ns for the machine's clocks.
    fn now(&self) -> Now;
}

/// What the processor time of an engine's calls and steps is counted with. They block on nothing, so the time
/// that passes in them is processor time, but for what the kernel takes the thread away.
pub trait CpuClock: std::fmt::Debug + Send {
    /// Nanoseconds since some fixed instant; never goes back. Cost of the machine's: about 25 ns.
    fn cpu_ns(&mut self) -> u64;
}

/// A clock for tests and simulations: each reading is one step later than the one before.
#[derive(Clone, Copy, Debug)]
pub struct CountingClock {
    now_ns: u64,
    step_ns: u64,
}

impl CountingClock {
    /// A clock whose readings are `step_ns` nanoseconds apart.
    pub fn new(step_ns: u64) -> Self {
        CountingClock { now_ns: 0, step_ns }
    }
}

impl CpuClock for CountingClock {
    fn cpu_ns(&mut self) -> u64 {
        self.now_ns += self.step_ns;
        self.now_ns
    }
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    started: std::time::Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts at zero now.
    #[expect(clippy::disallowed_methods, reason = "the one place where real time enters")]
    pub fn new() -> Self {
        SystemClock { started: std::time::Instant::now() }
    }

    /// Nanoseconds since the clock was made: what [`Now::monotonic_us`] counts, finer and without the wall clock, for measuring
    /// what is shorter than a microsecond. Cost on Linux: about 25 ns.
    #[inline]
    pub fn monotonic_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place where real time enters")]
    fn now(&self) -> Now {
        let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Now {
            monotonic_us: self.started.elapsed().as_micros() as u64,
            wall_ms: wall.map_or(0, |since| since.as_millis() as u64),
        }
    }
}

impl CpuClock for SystemClock {
    fn cpu_ns(&mut self) -> u64 {
        self.monotonic_ns()
    }
}
