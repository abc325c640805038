//! Start-Gap wear levelling, as a model: which line of the medium holds which line of the memory.
//!
//! Source: M. Qureshi, J. Karidis, M. Franceschini, V. Srinivasan, L. Lastras, B. Abali, *Enhancing Lifetime and
//! Security of PCM-Based Main Memory with Start-Gap Wear Leveling*, MICRO 2009. The medium has one line more than the
//! memory, the gap. Every `psi` writes (100 there) the line before the gap moves into it; when the gap has gone round
//! once, every line has moved by one place. Two registers say where everything is. Hot neighbours stay neighbours, so
//! the paper scatters lines by a fixed permutation first; ours is a Feistel network walked until it stays in range.
//!
//! Invariants: at any time the lines of the memory lie at different places, none at the gap; every write of the memory
//! is one of the medium, and every `psi`-th brings one more.

use tierstone_base::SeededRandom;
use tierstone_crash::Mutations;

/// The published number of writes between two moves of the gap.
pub const PSI: u64 = 100;
/// Rounds of the scattering network.
const ROUNDS: usize = 3;

/// The two registers.
#[derive(Clone, Debug)]
pub struct StartGap {
    lines: u64,
    psi: u64,
    start: u64,
    gap: u64,
    writes: u64,
    mutations: Mutations,
}

impl StartGap {
    /// Levelling of a memory of `lines` lines; the gap moves every `psi` writes. Both at least 1.
    pub fn new(lines: u64, psi: u64) -> StartGap {
        let (lines, psi) = (lines.max(1), psi.max(1));
        StartGap { lines, psi, start: 0, gap: lines, writes: 0, mutations: Mutations::none() }
    }

    /// The same with rules broken.
    #[must_use]
    pub fn with_mutations(mut self, mutations: Mutations) -> StartGap {
        self.mutations = mutations;
        self
    }

    /// Lines of the medium: one more than the memory has.
    pub fn places(&self) -> u64 {
        self.lines + 1
    }

    /// The place without a line.
    pub fn gap(&self) -> u64 {
        self.gap
    }

    /// Where `line` of the memory lies now.
    pub fn place(&self, line: u64) -> u64 {
        let shifted = (line + self.start) % self.lines;
        let behind = shifted >= self.gap && !self.mutations.is_on("lines behind the gap are one further");
        shifted + u64::from(behind)
    }

    /// Counts a write of the memory. When it is time the gap moves: returns the place that was written for that, and
    /// the one that its line came from.
    pub fn write(&mut self) -> Option<(u64, u64)> {
        self.writes += 1;
        if !self.writes.is_multiple_of(self.psi) {
            return None;
        }
        let (into, from) = match self.gap {
            0 => (0, self.lines),
            gap => (gap, gap - 1),
        };
        if self.gap == 0 && !self.mutations.is_on("the start advances when the gap is round") {
            self.start = (self.start + 1) % self.lines;
        }
        self.gap = from;
        Some((into, from))
    }
}

/// A fixed permutation of lines, drawn from a seed.
#[derive(Clone, Debug)]
pub struct Scatter {
    lines: u64,
    half_bits: u32,
    keys: [u64; ROUNDS],
}

impl Scatter {
    /// A permutation of `lines` lines, at most 2^62.
    pub fn new(lines: u64, seed: u64) -> Scatter {
        let mut random = SeededRandom::new(seed);
        let bits = (lines.clamp(2, 1 << 62) - 1).ilog2() + 1;
        Scatter { lines, half_bits: bits.div_ceil(2), keys: std::array::from_fn(|_| random.next_u64()) }
    }

    /// Where `line` goes. Cost: a round trip through the network, four at the most on average.
    pub fn place(&self, line: u64) -> u64 {
        let mut at = self.once(line);
        // The network permutes a power of four; what leaves the range goes through again until it is back.
        while at >= self.lines {
            at = self.once(at);
        }
        at
    }

    fn once(&self, line: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (line >> self.half_bits & mask, line & mask);
        for key in self.keys {
            let mixed = (right ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (left, right) = (right, left ^ (mixed >> 32 & mask));
        }
        left << self.half_bits | right
    }
}

/// Writes lines as `next` names them until a place of the medium was written `endurance` times. Returns how many
/// writes the memory served, the last included. `psi` `None`: no levelling. Lines are taken modulo `lines`.
pub fn writes_until_worn(lines: u64, psi: Option<u64>, endurance: u64, mut next: impl FnMut() -> u64) -> u64 {
    let lines = lines.max(1);
    let mut levelling = psi.map(|psi| StartGap::new(lines, psi));
    let mut wear = vec![0u64; lines as usize + 1];
    let mut wears = |place: u64| {
        let Some(count) = wear.get_mut(place as usize) else { return true };
        *count += 1;
        *count >= endurance
    };
    let mut served = 0;
    loop {
        let line = next() % lines;
        served += 1;
        let worn = match &mut levelling {
            None => wears(line),
            Some(levelling) => {
                let worn = wears(levelling.place(line));
                levelling.write().is_some_and(|(into, _)| wears(into)) || worn
            }
        };
        if worn {
            return served;
        }
    }
}

#[cfg(test)]
#[path = "start_gap_test.rs"]
mod start_gap_test;
