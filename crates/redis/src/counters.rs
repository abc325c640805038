//! What an executor counts, and what its caller counts for it.

use crate::commandstats::CommandCounts;
use std::collections::BTreeMap;

/// Of an error's code so many bytes are kept: no code of the store is as long, those that clients make up may be.
const CODE_BYTES_MAX: usize = 32;

/// Counters of the executor, all since the start or the last `CONFIG RESETSTAT`.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Connections accepted.
    pub connections: u64,
    /// Requests carried out.
    pub commands: u64,
    /// Keys found by reads.
    pub hits: u64,
    /// Keys not found by reads.
    pub misses: u64,
    /// Requests that had to wait for the device, a lock or another shard.
    pub suspended: u64,
    /// Clients closed since all of them took too much memory.
    pub evicted_clients: u64,
    /// Error replies by their code.
    pub errors: BTreeMap<String, u64>,
    /// What was refused to users: logins, commands, keys, channels.
    pub denied: [u64; 4],
    /// Calls, refusals and failures of each command.
    pub of_commands: CommandCounts,
    /// Requests carried out before the last `CONFIG RESETSTAT`.
    earlier_commands: u64,
    /// What the caller had counted by then.
    transport: Transport,
}

/// What the caller counts of its connections, all since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transport {
    /// Connections that were turned away.
    pub refused: u64,
    /// Connections closed for what they sent.
    pub over_input_limit: u64,
    /// Connections closed for what they did not take.
    pub over_output_limit: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
}

impl Counters {
    /// Counts anew, but for what counts since the start.
    pub(crate) fn reset(&mut self, transport: Transport) {
        *self = Counters { earlier_commands: self.since_start(), transport, ..Counters::default() };
    }

    /// What of `transport` has come since the last reset.
    pub(crate) fn lately(&self, transport: Transport) -> Transport {
        let before = self.transport;
        Transport {
            refused: transport.refused.saturating_sub(before.refused),
            over_input_limit: transport.over_input_limit.saturating_sub(before.over_input_limit),
            over_output_limit: transport.over_output_limit.saturating_sub(before.over_output_limit),
            bytes_received: transport.bytes_received.saturating_sub(before.bytes_received),
            bytes_sent: transport.bytes_sent.saturating_sub(before.bytes_sent),
        }
    }

    /// Requests carried out since the start, whatever was reset.
    pub fn since_start(&self) -> u64 {
        self.earlier_commands + self.commands
    }

    /// Counts one request of the command at this place ([`crate::commandstats::place_of`]).
    #[inline]
    pub(crate) fn call(&mut self, place: usize) {
        self.commands += 1;
        self.of_commands.call(place);
    }

    /// Counts the reply if it is an error.
    pub(crate) fn note_error(&mut self, reply: &[u8]) {
        if reply.first() != Some(&b'-') {
            return;
        }
        let end = reply.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'-');
        let end = end.unwrap_or(reply.len()).clamp(1, 1 + CODE_BYTES_MAX);
        let code = String::from_utf8_lossy(&reply[1..end]).into_owned();
        // What clients can cause is a small set of codes; the bound is against what is not foreseen.
        if self.errors.len() < 128 || self.errors.contains_key(&code) {
            *self.errors.entry(code).or_default() += 1;
        }
    }
}

/// How many requests a second were carried out lately: over the last second or two.
#[derive(Clone, Copy, Debug, Default)]
pub struct Throughput {
    /// When, in microseconds, and how many by then; the older first.
    marks: [(u64, u64); 2],
}

impl Throughput {
    /// Notes that `commands` requests were carried out by `now_us`. Whether a second has passed since it last did.
    pub fn note(&mut self, now_us: u64, commands: u64) -> bool {
        let has_passed = now_us.saturating_sub(self.marks[1].0) >= 1_000_000;
        if has_passed {
            self.marks = [self.marks[1], (now_us, commands)];
        }
        has_passed
    }

    /// Requests a second since the older mark.
    pub fn per_second(&self, now_us: u64, commands: u64) -> u64 {
        let (since_us, before) = self.marks[0];
        match now_us.saturating_sub(since_us) {
            0 => 0,
            passed_us => (commands.saturating_sub(before) as f64 * 1e6 / passed_us as f64).round() as u64,
        }
    }
}
