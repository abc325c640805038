//! How many reads and write-backs a second a disk does when each read lets K blocks be written back beside
//! it: the study of Snyder et al., *QMD*, DaMoN 2011, Figure 14, on a modelled disk, with the scheduler that
//! the volume runs.
//!
//! The disk: a seek takes time as the square root of its length, of the given average over random ones; then
//! half a turn passes on average, for a write-back too, since the disk is given one at a time; then the
//! transfer. The rate of write-backs alone is the description's, since a drive orders those itself.

use super::describe::FlushStudy;
use tierstone_base::SeededRandom;
use tierstone_volume::sleep::Elevator;

/// Places of the disk.
const PLACES: u64 = 1 << 40;
/// The mean of the square root of the distance of two random places, in strokes.
const MEAN_ROOT: f64 = 8.0 / 15.0;

/// What one K gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlushRate {
    /// Blocks written back a read.
    pub write_backs: u32,
    /// Reads a second, as a share of those of a disk that only reads.
    pub read_share: f64,
    /// Write-backs a second, as a share of those of a disk that only writes back.
    pub write_back_share: f64,
    /// Blocks written, all targets once.
    pub written: u64,
}

/// Writes all targets back, K beside each random read. Cost: some 200 ns a target.
pub fn flush_rate(study: &FlushStudy, write_backs: u32) -> FlushRate {
    let mut random = SeededRandom::new(study.seed);
    let mut elevator = Elevator::new();
    for _ in 0..study.targets {
        elevator.add(random.below(PLACES), ());
    }
    let (seek_ms, rotation_ms) = (1e3 * study.seek.get(), 1e3 * study.rotation.get());
    let transfer_ms = 1e3 * study.io.get() / study.transfer.get();
    let access_ms = |from: u64, to: u64| {
        let stroke = from.abs_diff(to) as f64 / PLACES as f64;
        seek_ms * stroke.sqrt() / MEAN_ROOT + rotation_ms + transfer_ms
    };
    let (mut head, mut ms, mut reads, mut written) = (0, 0.0, 0u64, 0u64);
    while !elevator.is_empty() {
        let place = random.below(PLACES);
        ms += access_ms(head, place);
        (head, reads) = (place, reads + 1);
        elevator.read_at(place);
        for _ in 0..write_backs {
            let Some((place, ())) = elevator.next_entry() else { break };
            ms += access_ms(head, place);
            (head, written) = (place, written + 1);
        }
    }
    let read_ms = seek_ms + rotation_ms + transfer_ms;
    FlushRate {
        write_backs,
        read_share: reads as f64 * read_ms / ms,
        write_back_share: written as f64 * read_ms / study.write_back_speedup / ms,
        written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirrors::describe::FlushPoint;
    use crate::quantity::{Bandwidth, Duration, Size};

    fn study() -> FlushStudy {
        FlushStudy {
            targets: 20_000,
            seed: 3,
            io: Size::new(8192.0),
            seek: Duration::new(8.5e-3),
            rotation: Duration::new(4.17e-3),
            transfer: Bandwidth::new(80e6),
            write_back_speedup: 4.75,
            point: vec![FlushPoint { write_backs: 2, read: None, write_back: None }],
        }
    }

    #[test]
    fn every_block_is_written_once_and_more_a_read_raise_one_rate_and_lower_the_other() {
        let rates = [1, 2, 5, 10, 50].map(|write_backs| flush_rate(&study(), write_backs));
        for pair in rates.windows(2) {
            assert!(pair[0].read_share > pair[1].read_share, "{rates:?}");
            assert!(pair[0].write_back_share < pair[1].write_back_share, "{rates:?}");
        }
        assert!(rates.iter().all(|rate| rate.written == 20_000), "{rates:?}");
    }

    #[test]
    fn a_disk_without_seeks_divides_its_time_by_counting() {
        let rate =
            flush_rate(&FlushStudy { seek: Duration::new(1e-12), write_back_speedup: 1.0, ..study() }, 3);
        assert!(
            (rate.read_share - 0.25).abs() < 1e-4 && (rate.write_back_share - 0.75).abs() < 1e-4,
            "{rate:?}"
        );
    }
}
