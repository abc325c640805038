//! What requests cost, and how processor time is shared out among them.
//!
//! Rules, so that the costs of all requests and of the background add up to those of the engine:
//! 1. A read of the device that several requests wait for is the first one's.
//! 2. The time of a call is its requests', in equal parts. That of a call that was refused is the background's.
//! 3. The time that a step spends on completions and answers is that of the requests it answers, in equal parts;
//!    when it answers none, and for everything else that a step does, it is the background's.
//! 4. A lookup is not counted: it takes hardly longer than two readings of a clock.
//!
//! Who owns the data: each engine owns one [`Meter`].

use crate::contract::Event;
use tierstone_base::collections::Map;
use tierstone_base::{CpuClock, Token};

/// What a request or a period cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Cost {
    /// Device reads.
    pub reads: u64,
    /// Device writes.
    pub writes: u64,
    /// Device flushes (durable writes count as writes).
    pub flushes: u64,
    /// Bytes read from the device.
    pub bytes_read: u64,
    /// Bytes written to the device.
    pub bytes_written: u64,
    /// Processor time in nanoseconds; zero where the engine has no [`CpuClock`].
    pub cpu_ns: u64,
}

impl Cost {
    /// The cost of one read of the device.
    pub fn of_read(bytes: u64) -> Cost {
        Cost { reads: 1, bytes_read: bytes, ..Cost::default() }
    }
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.flushes += other.flushes;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.cpu_ns += other.cpu_ns;
    }
}

impl std::ops::Sub for Cost {
    type Output = Cost;

    /// What came between two readings of a sum, the `earlier` one taken away.
    fn sub(self, earlier: Cost) -> Cost {
        Cost {
            reads: self.reads - earlier.reads,
            writes: self.writes - earlier.writes,
            flushes: self.flushes - earlier.flushes,
            bytes_read: self.bytes_read - earlier.bytes_read,
            bytes_written: self.bytes_written - earlier.bytes_written,
            cpu_ns: self.cpu_ns - earlier.cpu_ns,
        }
    }
}

/// Counts an engine's processor time, if it was given a clock. Cost without: a branch a reading.
#[derive(Debug, Default)]
pub struct Meter {
    clock: Option<Box<dyn CpuClock>>,
    /// What the calls took whose answers have not come.
    asked: Map<Token, u64>,
    total_ns: u64,
    background_ns: u64,
}

impl Meter {
    /// Counts with `clock` from now on.
    pub fn set_clock(&mut self, clock: Box<dyn CpuClock>) {
        self.clock = Some(clock);
    }

    /// A reading of the clock; zero without one.
    pub fn read(&mut self) -> u64 {
        match &mut self.clock {
            Some(clock) => clock.cpu_ns(),
            None => 0,
        }
    }

    /// The call that began at the reading `since` asks for the answers with these tokens.
    pub fn asked(&mut self, since: u64, tokens: impl ExactSizeIterator<Item = Token>) {
        if self.clock.is_none() {
            return;
        }
        let spent_ns = self.read() - since;
        self.total_ns += spent_ns;
        let mut shares = Shares::of(spent_ns, tokens.len());
        for token in tokens {
            *self.asked.entry(token).or_default() += shares.next();
        }
        self.background_ns += shares.left_ns;
    }

    /// Nobody waits for the answer with this token any more.
    pub fn forget(&mut self, token: Token) {
        if self.clock.is_some()
            && let Some(spent_ns) = self.asked.remove(&token)
        {
            self.background_ns += spent_ns;
        }
    }

    /// What the call that began at the reading `since` took; `is_answered`: somebody is told.
    pub fn call(&mut self, since: u64, is_answered: bool) -> u64 {
        if self.clock.is_none() {
            return 0;
        }
        let spent_ns = self.read() - since;
        self.total_ns += spent_ns;
        self.background_ns += if is_answered { 0 } else { spent_ns };
        spent_ns
    }

    /// Shares a step out among the `events` that it gives. `readings`: at its begin, when the completions were
    /// in, when the background work was done.
    pub fn step(&mut self, readings: [u64; 3], events: &mut [Event]) {
        if self.clock.is_none() {
            return;
        }
        let [began, worked, rested] = readings;
        let answering_ns = self.read() - rested + (worked - began);
        self.total_ns += answering_ns + (rested - worked);
        self.background_ns += rested - worked;
        let mut shares = Shares::of(answering_ns, events.len());
        for event in events {
            let (token, cost) = event.cost_mut();
            cost.cpu_ns += self.asked.remove(&token).unwrap_or(0) + shares.next();
        }
        self.background_ns += shares.left_ns;
    }

    /// Everything counted so far, in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.total_ns
    }

    /// What of it no request was told, in nanoseconds.
    pub fn background_ns(&self) -> u64 {
        self.background_ns
    }
}

/// Equal parts of a time, the first ones a nanosecond longer where it does not divide.
struct Shares {
    left_ns: u64,
    left: u64,
}

impl Shares {
    fn of(spent_ns: u64, parts: usize) -> Shares {
        Shares { left_ns: spent_ns, left: parts as u64 }
    }

    fn next(&mut self) -> u64 {
        let share = self.left_ns.div_ceil(self.left.max(1));
        self.left_ns -= share;
        self.left = self.left.saturating_sub(1);
        share
    }
}

#[cfg(test)]
#[path = "cost_test.rs"]
mod cost_test;
