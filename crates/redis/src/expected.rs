//! What the replies of requests that wait for records will take. Nobody knows before these are read, and by then they take
//! memory: so it is guessed from the replies before, and a connection that has much to come is asked for no more.

use tierstone_engine::EngineStatistics;

/// Replies that one connection waits for take at most so much together, as is guessed, but for one.
const CONNECTION_BYTES_MAX: u64 = 512 << 10;
/// A reply is taken to have at least so many bytes.
const REPLY_BYTES_MIN: u64 = 64;
/// The guess falls by one part in so many with each shorter reply.
const FALL: u64 = 64;

/// The length that replies are guessed to have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpectedReplies {
    reply_bytes: u64,
}

impl ExpectedReplies {
    /// As long as the records of a store are, before any reply is known.
    pub fn of(statistics: &EngineStatistics) -> Self {
        ExpectedReplies {
            reply_bytes: (statistics.space_live_bytes / statistics.keys.max(1)).max(REPLY_BYTES_MIN),
        }
    }

    /// Takes note of a reply of `len` bytes that was waited for.
    pub fn note(&mut self, len: usize) {
        let fallen = self.reply_bytes - self.reply_bytes / FALL;
        self.reply_bytes = fallen.max(len as u64).max(REPLY_BYTES_MIN);
    }

    /// Whether a connection that waits for `waiting` replies should have these first. `all`: what all connections wait
    /// for, `taken`: the bytes of their buffers, and the most that these may take.
    #[inline]
    pub fn are_enough(&self, waiting: usize, all: usize, (taken, taken_max): (u64, u64)) -> bool {
        let bytes = |count: usize| self.reply_bytes.saturating_mul(count as u64);
        waiting > 0
            && (bytes(waiting) >= CONNECTION_BYTES_MAX
                || taken_max > 0 && taken.saturating_add(bytes(all)) >= taken_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_replies_let_a_connection_wait_for_few() {
        let mut expected = ExpectedReplies::of(&EngineStatistics::default());
        assert!(!expected.are_enough(5_000, 5_000, (0, 0)));
        expected.note(60_000);
        assert!(!expected.are_enough(8, 8, (0, 0)) && expected.are_enough(9, 9, (0, 0)));
        assert!(!expected.are_enough(0, 1_000, (0, 1)), "one that waits for none is asked");
        assert!(expected.are_enough(1, 100, (0, 6_000_000)) && !expected.are_enough(1, 99, (0, 6_000_000)));
        assert!(expected.are_enough(1, 1, (5_940_000, 6_000_000)));
        (0..1_000).for_each(|_| expected.note(100));
        assert!(!expected.are_enough(5_000, 5_000, (0, 0)), "what was long is forgotten");
    }
}
