//! How long ago each of many keys was asked for, in a byte or two a key.
//!
//! A table of stamps, one byte each, without keys: a key's place follows from its hash, so that keys share places. The
//! clock counts uses, not time: it goes on by one when about a sixteenth as many uses came as there are keys. Stamps that
//! are as old as can be told are kept from coming round again, one line of them after the other, so that no call takes
//! long. (Redis keeps a stamp of three bytes with each key, by a clock of seconds; it stands for the same choice.)
//!
//! Invariants:
//! 1. No key is older than [`RecencySketch::age`] says: it may be younger, by the uses of keys that share its place.
//! 2. A call touches one line of the processor's cache, and one more for each line that is aged.
//! 3. The table takes no more bytes than it was allowed, but for the least size.

use crate::hashing::mix;

/// Stamps in a line of the processor's cache.
const LINE_STAMPS: usize = 64;
/// Bytes that a table begins with.
const BYTES_MIN: u64 = 4 << 10;
/// The table grows when there are more keys than half its stamps.
const STAMPS_A_KEY: u64 = 2;
/// The clock goes on when a use came for one of so many keys.
const KEYS_A_TICK: u64 = 16;
/// ... and in any case when so many came.
const USES_A_TICK_MAX: u64 = 1 << 40;
/// All stamps are aged within so many ticks: fewer than lie between the oldest age and a full round of the clock.
const TICKS_A_ROUND: u64 = 32;

/// Estimates of how long ago keys were asked for. Keys are told by 64 bits that need not be mixed.
#[derive(Debug)]
pub struct RecencySketch {
    stamps: Vec<[u8; LINE_STAMPS]>,
    bytes_max: u64,
    clock: u8,
    /// Uses of a tick, and those that came since the last one.
    uses_a_tick: u64,
    uses: u64,
    /// Lines that should have been aged, times the uses of a round.
    owed: u64,
    next_to_age: usize,
}

impl RecencySketch {
    /// The highest age, in ticks: about twelve uses for each key.
    pub const OLDEST: u8 = 191;

    /// A table that will not take more than `bytes_max`, but for 4 KiB at least. All keys begin as old as can be.
    pub fn new(bytes_max: u64) -> Self {
        RecencySketch {
            stamps: vec![[0; LINE_STAMPS]; BYTES_MIN as usize / LINE_STAMPS],
            bytes_max,
            clock: Self::OLDEST,
            uses_a_tick: 1,
            uses: 0,
            owed: 0,
            next_to_age: 0,
        }
    }

    /// Bytes of all stamps.
    pub fn bytes(&self) -> u64 {
        (self.stamps.len() * LINE_STAMPS) as u64
    }

    /// Makes room for `keys`, and sets the clock's pace by them. What is known stays. Costs as much as a copy of the
    /// table when it grows, to twice what it was.
    pub fn fit(&mut self, keys: u64) {
        while self.bytes() < keys.saturating_mul(STAMPS_A_KEY) && self.bytes() * 2 <= self.bytes_max {
            // A key's place is told by the lowest bits of its hash: with one bit more it is this one or its copy.
            self.stamps.extend_from_within(..);
        }
        self.uses_a_tick = (keys / KEYS_A_TICK).clamp(1, USES_A_TICK_MAX);
    }

    fn place(&self, key: u64) -> (usize, usize) {
        let hash = mix(key);
        // The line from the lowest bits, the stamp from the highest: a table that has grown keeps both.
        (hash as usize & (self.stamps.len() - 1), (hash >> 58) as usize)
    }

    /// About how many ticks ago `key` was asked for, 0 to [`RecencySketch::OLDEST`].
    pub fn age(&self, key: u64) -> u8 {
        let (line, at) = self.place(key);
        self.clock.wrapping_sub(self.stamps[line][at]).min(Self::OLDEST)
    }

    /// `key` was asked for.
    #[inline]
    pub fn touch(&mut self, key: u64) {
        let (line, at) = self.place(key);
        self.stamps[line][at] = self.clock;
        self.uses += 1;
        if self.uses >= self.uses_a_tick {
            self.uses = 0;
            self.clock = self.clock.wrapping_add(1);
        }
        let uses_a_round = self.uses_a_tick * TICKS_A_ROUND;
        self.owed += self.stamps.len() as u64;
        while self.owed >= uses_a_round {
            self.owed -= uses_a_round;
            self.age_line();
        }
    }

    /// Keeps the next line's stamps from coming round.
    fn age_line(&mut self) {
        let (clock, line) = (self.clock, self.next_to_age % self.stamps.len());
        for stamp in &mut self.stamps[line] {
            if clock.wrapping_sub(*stamp) > Self::OLDEST {
                *stamp = clock.wrapping_sub(Self::OLDEST);
            }
        }
        self.next_to_age = line + 1;
    }
}

#[cfg(test)]
#[path = "recency_test.rs"]
mod recency_test;
