//! How long a memory lasts: years until its first cell is worn out, by how its lines are written.
//!
//! Everything here is modelled: the future is taken to be written as the past was, every cell to bear exactly the
//! endurance. Without levelling the hottest line decides; with perfect levelling the sum (S. Pelley, 2014, Figure
//! 5.7). With Start-Gap a place holds one line after the other, each for `lines psi` writes, and is empty for `psi` in
//! between: worked out from the worst run of neighbours, exact but for the grain of single writes.

use super::start_gap::Scatter;
use serde::Serialize;
use tierstone_base::{Error, ErrorKind, Result};

/// Seconds of a year of 365.25 days.
pub const YEAR_SECONDS: f64 = 31_557_600.0;

/// What the lifetime depends on beside the counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LifetimeSettings {
    /// How often a cell may be written.
    pub endurance_writes: f64,
    /// Writes of lines a second, of the whole memory.
    pub line_writes_per_second: f64,
    /// Writes between two moves of the gap.
    pub psi: u64,
    /// The permutation of scattered levelling.
    pub scatter_seed: u64,
}

/// Years until the first cell is worn out; modelled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lifetime {
    /// Every line stays where it is.
    pub years_unlevelled: f64,
    /// Start-Gap.
    pub years_start_gap: f64,
    /// Start-Gap behind a fixed random permutation.
    pub years_scattered: f64,
    /// Every cell is written equally often.
    pub years_perfect: f64,
}

/// The lifetime of a memory whose lines are written in the proportions of `line_writes`.
///
/// # Errors
/// `InvalidInput` when nothing was written, or a setting is no number above zero.
pub fn lifetime(line_writes: &[u64], settings: &LifetimeSettings) -> Result<Lifetime> {
    let wrong = |what: &str| Error::new(ErrorKind::InvalidInput, format!("no lifetime can be told: {what}"));
    let positive = |number: f64| number.is_finite() && number > 0.0;
    if !positive(settings.endurance_writes) || !positive(settings.line_writes_per_second) || settings.psi == 0
    {
        return Err(wrong("endurance, writes a second and psi have to be above zero"));
    }
    let total: u64 = line_writes.iter().sum();
    let Some(hottest) = line_writes.iter().max().filter(|_| total > 0) else {
        return Err(wrong("no line was written"));
    };
    let years = |writes: f64| writes / settings.line_writes_per_second / YEAR_SECONDS;
    let scatter = Scatter::new(line_writes.len() as u64, settings.scatter_seed);
    let mut scattered = vec![0; line_writes.len()];
    for (line, &writes) in line_writes.iter().enumerate() {
        if let Some(place) = scattered.get_mut(scatter.place(line as u64) as usize) {
            *place = writes;
        }
    }
    let endurance = settings.endurance_writes;
    Ok(Lifetime {
        years_unlevelled: years(endurance * total as f64 / *hottest as f64),
        years_start_gap: years(start_gap_writes(line_writes, settings.psi, endurance)),
        years_scattered: years(start_gap_writes(&scattered, settings.psi, endurance)),
        years_perfect: years(endurance * line_writes.len() as f64),
    })
}

/// How many writes a memory with Start-Gap serves until a place was written `endurance` times.
///
/// After all visits of a cycle every place is worn alike, so only the rest of the endurance depends on where a place
/// begins: the worst is sought.
fn start_gap_writes(line_writes: &[u64], psi: u64, endurance: f64) -> f64 {
    let total: u64 = line_writes.iter().sum();
    let (lines, psi) = (line_writes.len() as f64, psi as f64);
    // A line that moves in is one write more. A place holds the line before the one that it held.
    let wear = |&writes: &u64| lines * psi * writes as f64 / total as f64 + 1.0;
    let wear: Vec<f64> = line_writes.iter().rev().map(wear).collect();
    let cycle: f64 = wear.iter().sum();
    let cycles = (endurance / cycle).floor();
    (cycles * lines + shortest_run(&wear, endurance - cycles * cycle)) * (lines + 1.0) * psi
}

/// The least number of visits in a row, in parts too, that wear a place by `left`, in a ring of `wear`. The whole ring
/// wears it by more.
fn shortest_run(wear: &[f64], left: f64) -> f64 {
    let mut shortest = wear.len() as f64;
    // A window over the ring, unrolled once: `end` is the first visit not wholly inside.
    let (mut end, mut inside) = (0, 0.0);
    let at = |index: usize| wear.get(index % wear.len()).copied().unwrap_or_default();
    for begin in 0..wear.len() {
        while end < begin + wear.len() && inside + at(end) <= left {
            inside += at(end);
            end += 1;
        }
        let part = if at(end) > 0.0 { ((left - inside) / at(end)).clamp(0.0, 1.0) } else { 0.0 };
        shortest = shortest.min((end - begin) as f64 + part);
        if end > begin {
            inside -= at(begin);
        } else {
            end = begin + 1;
        }
    }
    shortest
}

#[cfg(test)]
#[path = "lifetime_test.rs"]
mod lifetime_test;
