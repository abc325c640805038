//! What holds of a store in a region, whatever its bytes are. For fuzzing (`fuzz/`) and for tests.
//!
//! Invariants:
//! 1. A check ends without a panic, and changes no byte.
//! 2. So does an opening, refused or with the loss accepted; and what is opened can be looked into.
#![allow(clippy::expect_used, reason = "a body of fuzzing and of tests")]

use crate::check::{CheckSettings, check};
use crate::format::{HEADER_WORDS, MAGIC};
use crate::settings::Geometry;
use crate::{Keyspace, OpenSettings, PmShard};
use std::sync::{Arc, OnceLock};
use tierstone_base::checksum::checksum;
use tierstone_base::{KeyHasher, KeyspaceId, Now};
use tierstone_engine::{Engine, Key, Write, WriteKind};
use tierstone_media::region::{MappedRegion, Region, RegionDemand, RegionSettings};

const BYTES: u64 = 192 << 10;
const KEYSPACE: KeyspaceId = KeyspaceId(2);
/// Keys that the store has.
const KEYS: u32 = 30;

fn settings() -> OpenSettings {
    OpenSettings {
        geometry: Geometry { segment_bytes: 16 << 10, block_bytes: 4 << 10, log_segments: 4 },
        keyspaces: vec![Keyspace { id: KEYSPACE, index: Default::default() }],
        loss_accepted: true,
        seed: 7,
        ..OpenSettings::default()
    }
}

fn region(image: &[u8]) -> Arc<MappedRegion> {
    let demand = RegionSettings { demand: RegionDemand::AnyGuarantee, ..RegionSettings::default() };
    let region = MappedRegion::anonymous(BYTES, &demand).expect("memory");
    region.store(0, image);
    Arc::new(region)
}

fn image_of(region: &MappedRegion) -> Vec<u8> {
    let mut image = vec![0; BYTES as usize];
    region.load(0, &mut image);
    image
}

fn open(region: &Arc<MappedRegion>) -> Option<(PmShard, KeyHasher)> {
    let mut opened = crate::open(Arc::clone(region) as Arc<dyn Region + Send + Sync>, &settings()).ok()?;
    Some((opened.plans.pop()?.build().ok()?.0, opened.hasher))
}

fn step(shard: &mut PmShard, now: &mut Now) {
    now.monotonic_us += 1_000_000;
    shard.step(*now, &mut Vec::new(), &mut Vec::new());
}

/// A store that was not closed: records, tombstones and long values in blocks and in the log.
fn base() -> &'static [u8] {
    static BASE: OnceLock<Vec<u8>> = OnceLock::new();
    BASE.get_or_init(|| {
        let region = region(&[]);
        let (mut shard, hasher) = open(&region).expect("a new store");
        let mut now = Now { monotonic_us: 1_000, wall_ms: 1_700_000_000_000 };
        for round in 0..6 {
            for number in 0..KEYS {
                let name = number.to_le_bytes();
                let key = Key { keyspace: KEYSPACE, position: hasher.position(&name), bytes: &name };
                let value = vec![round as u8; if number == 3 { 5_000 } else { 100 }];
                let put = WriteKind::Put { value: &value, expiry_ms: 0, kind: Default::default() };
                let kind = if (number + round) % 7 == 0 { WriteKind::Delete } else { put };
                // What finds no room is not needed.
                let _ = shard.write(now, &[Write { key, kind }]);
                step(&mut shard, &mut now);
            }
        }
        image_of(&region)
    })
}

/// Lays `data` over a store, in pieces of a place (three bytes, the highest bits: how) and a byte, and checks and opens it.
pub fn check_region(data: &[u8]) {
    let mut image = base().to_vec();
    for piece in data.chunks_exact(4) {
        let at = usize::from(piece[0]) | usize::from(piece[1]) << 8 | usize::from(piece[2] & 15) << 16;
        let at = at % image.len();
        match piece[2] >> 6 {
            0 => image[at] ^= piece[3],
            1 => image[at] = piece[3],
            // A line elsewhere, as it lies.
            2 => image.copy_within(at / 64 * 64..at / 64 * 64 + 64, usize::from(piece[3]) * 64),
            // A header that was changed gets its checksum.
            _ => {
                let sum = checksum(MAGIC, &image[..HEADER_WORDS * 8]);
                image[HEADER_WORDS * 8..][..8].copy_from_slice(&sum.to_le_bytes());
            }
        }
    }
    let whole = region(&image);
    let checked =
        check(Arc::clone(&whole) as Arc<dyn Region + Send + Sync>, &CheckSettings::default(), &mut |_| {});
    assert!(image_of(&whole) == image, "a check changed the region");
    if let Ok(report) = checked {
        let count: u64 = report.damage.values().sum();
        assert!(report.findings.len() as u64 <= count);
    }
    let Some((mut shard, hasher)) = open(&whole) else { return };
    let mut now = Now { monotonic_us: 1_000, wall_ms: 1_700_000_000_000 };
    for number in 0..KEYS {
        let name = number.to_le_bytes();
        let key = Key { keyspace: KEYSPACE, position: hasher.position(&name), bytes: &name };
        shard.lookup(now, key);
        let _ = shard.write(now, &[Write { key, kind: WriteKind::Delete }]);
        step(&mut shard, &mut now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierstone_base::SeededRandom;

    #[test]
    fn hostile_bytes_are_checked_and_opened_without_a_panic() {
        for seed in 0..300 {
            let mut random = SeededRandom::new(seed);
            let mut data = vec![0; 4 * (1 + random.below(40) as usize)];
            random.fill(&mut data);
            if random.chance(0.5) {
                // The header and what lies before the segments, mostly.
                data.chunks_exact_mut(4)
                    .for_each(|piece| (piece[1], piece[2]) = (piece[1] % 32, piece[2] & 0xc0));
            }
            if random.chance(0.5) {
                data.extend([0, 0, 0xc0, 0]);
            }
            check_region(&data);
        }
    }
}
