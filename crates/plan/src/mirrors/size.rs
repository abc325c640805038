//! How many disks: the published method. Without sleep, more disks shorten the tail of response times;
//! where one more step hardly does, the array is large enough, and that run is the energy to compare with.

use super::simulate::{Machine, Outcome, simulate};
use super::trace::Request;

/// The quantiles that the method looks at.
pub const TAILS: [f64; 3] = [0.995, 0.999, 0.9995];

/// Runs without sleep over numbers of disks.
pub fn by_disks(machine: &Machine, trace: &[Request], disks: &[u32]) -> Vec<(u32, Outcome)> {
    disks.iter().map(|&disks| (disks, simulate(&machine.with_disks(disks), trace, false))).collect()
}

/// The first of `tails` (one row a number of disks, rising, each with its quantiles) after which no
/// quantile falls by the share `gain` or more at any later step. The last one when all still fall.
pub fn knee(tails: &[(u32, Vec<u64>)], gain: f64) -> Option<u32> {
    let falls = |pair: &[(u32, Vec<u64>)]| {
        pair[0]
            .1
            .iter()
            .zip(&pair[1].1)
            .any(|(before, after)| (*after as f64) < *before as f64 * (1.0 - gain))
    };
    let last = tails.windows(2).rposition(falls).map_or(0, |at| at + 1);
    tails.get(last).map(|(disks, _)| *disks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_is_where_tails_stop_falling() {
        let tails: Vec<(u32, Vec<u64>)> = [(4, 900), (8, 300), (12, 120), (16, 115), (20, 113)]
            .into_iter()
            .map(|(disks, us)| (disks, vec![us / 2, us]))
            .collect();
        assert_eq!(knee(&tails, 0.1), Some(12));
        assert_eq!(knee(&tails, 0.01), Some(20));
        assert_eq!(knee(&tails, 0.9), Some(4));
        assert_eq!(knee(&[], 0.1), None);
    }
}
