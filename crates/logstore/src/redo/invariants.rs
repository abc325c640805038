//! What holds of a store whose redo log lies in a region, whatever the region's bytes are. For fuzzing (`fuzz/`) and for
//! tests.
//!
//! Invariants:
//! 1. An opening ends without a panic, refused or with the loss accepted; what is opened can be looked into and written to.
//! 2. Every key that is there has a value that was written to it.
#![allow(clippy::expect_used, clippy::panic, reason = "a body of fuzzing and of tests")]

use super::RedoMemory;
use super::format::{HEADER_BYTES, HEADER_PLACES, RegionHeader, SLOT_WRITTEN_BYTES, SlotHeader};
use crate::format::superblock::{IndexKind, KeyspaceEntry, META_BYTES};
use crate::{LogShard, OpenSettings, ShardSettings};
use std::sync::Arc;
use tierstone_base::KeyspaceId;
use tierstone_crash::Choices;
use tierstone_engine::Engine;
use tierstone_engine::harness::Harness;
use tierstone_media::Geometry;
use tierstone_media::region::{MappedRegion, Region, RegionDemand, RegionSettings};
use tierstone_media::sim::{SimDevice, SimMedium, SimSettings};

const BYTES: u64 = 128 << 10;
const KEYSPACE: KeyspaceId = KeyspaceId(1);
/// Keys that the store has, and how often each was written.
const KEYS: u32 = 24;
const ROUNDS: u8 = 6;
const VALUE_BYTES: usize = 300;

fn region(image: &[u8]) -> Arc<MappedRegion> {
    let demand = RegionSettings { demand: RegionDemand::AnyGuarantee, ..RegionSettings::default() };
    let region = MappedRegion::anonymous(BYTES, &demand).expect("memory");
    region.store(0, image);
    Arc::new(region)
}

fn open(
    medium: &SimMedium,
    region: Option<&Arc<MappedRegion>>,
    accepts_loss: bool,
) -> Option<Harness<LogShard, SimDevice>> {
    let redo = region.map(|region| RedoMemory::new(Arc::clone(region) as Arc<dyn Region + Send + Sync>));
    let keyspace = KeyspaceEntry { id: KEYSPACE, name: "1".into(), index: IndexKind::Hash };
    let settings = OpenSettings {
        shard: ShardSettings { memory_bytes: 1 << 20, group_bytes_max: 8 << 10, ..ShardSettings::default() },
        keyspaces: vec![keyspace],
        redo,
        redo_loss_accepted: accepts_loss,
        seed: 7,
        ..OpenSettings::default()
    };
    let mut device = medium.device();
    let mut opened = crate::open(&mut device, &settings).ok()?;
    let (shard, _) = opened.plans.pop()?.build(&mut device).ok()?;
    Some(Harness::new(shard, device, opened.hasher))
}

/// A store that was killed while its redo log had what the device had not, and the region's bytes.
fn base() -> (SimMedium, Vec<u8>, RegionHeader) {
    let geometry = Geometry { meta_bytes: META_BYTES, segment_bytes: 64 << 10, segment_limit: 16 };
    let medium = SimMedium::new(SimSettings::new(geometry), &Choices::quiet());
    let region = region(&[]);
    let mut store = open(&medium, Some(&region), false).expect("a new store");
    for round in 0..ROUNDS {
        for number in 0..KEYS {
            store.put(KEYSPACE, &number.to_le_bytes(), &[round; VALUE_BYTES]).expect("a write");
            if number % 3 == 0 {
                store.sync().expect("a sync");
            }
        }
    }
    drop(store);
    let mut image = vec![0; BYTES as usize];
    region.load(0, &mut image);
    let header = RedoMemory::new(region).header().expect("a header").expect("a header that counts");
    (medium, image, header)
}

/// Changes one field of what `encode` makes whole again.
fn change_slot(image: &mut [u8], header: &RegionHeader, [slot, field, value]: [u8; 3]) {
    let at = header.layout.slot(0, u32::from(slot) % header.layout.slots) as usize;
    let Some(mut found) = SlotHeader::decode(&image[at..], header.store, header.has_evidence) else { return };
    let value = value.into();
    match field % 10 {
        0 => found.log_id ^= value,
        1 => found.group = found.group.wrapping_add(value),
        2 => found.segment ^= value as u32,
        3 => found.start = found.start.wrapping_add((value as u32) << 9),
        4 => found.generation ^= value,
        5 => found.first_seq = found.first_seq.wrapping_add(value << (field & 48)),
        6 => found.durable_groups = found.durable_groups.wrapping_add(value),
        7 => found.batches_resolved = found.batches_resolved.wrapping_add(value),
        8 => found.past_ms = value << 40,
        _ => found.header ^= (value as u32) << 8,
    }
    image[at..at + SLOT_WRITTEN_BYTES].copy_from_slice(&found.encode(header.store));
}

fn change_header(image: &mut [u8], header: &RegionHeader, [which, field, value]: [u8; 3]) {
    let mut header = *header;
    let value = u64::from(value);
    match field % 7 {
        0 => header.store ^= value,
        1 => header.opening = header.opening.wrapping_add(value),
        2 => header.layout.shards = value as u16,
        3 => header.layout.slots = value as u32,
        4 => header.layout.slot_bytes = value << 6,
        5 => header.layout.snapshot_bytes = value << 12,
        _ => header.is_void = !header.is_void,
    }
    header.counter = header.counter.wrapping_add(u64::from(which));
    let at = HEADER_PLACES[usize::from(which) % 2] as usize;
    image[at..at + HEADER_BYTES].copy_from_slice(&header.encode());
}

/// Lays `data` over the region of a killed store, in pieces of four bytes (how, and three more), and opens it.
pub fn check_redo_region(data: &[u8]) {
    thread_local! {
        static BASE: (SimMedium, Vec<u8>, RegionHeader) = base();
    }
    BASE.with(|(medium, image, header)| {
        let mut image = image.clone();
        let (mut cuts, len) = (0, image.len());
        for piece in data.chunks_exact(4) {
            let [how, rest @ ..] = [piece[0], piece[1], piece[2], piece[3]];
            let at = (usize::from(rest[0]) << 9 | usize::from(rest[1]) << 1 | usize::from(how >> 7)) % len;
            match how % 5 {
                0 => image[at] ^= rest[2],
                // A line elsewhere, as it lies.
                1 => image.copy_within(at / 64 * 64..at / 64 * 64 + 64, usize::from(rest[2]) << 9),
                2 => change_slot(&mut image, header, rest),
                3 => change_header(&mut image, header, rest),
                _ => cuts += u64::from(rest[2]) << 8,
            }
        }
        // A region that was made smaller has zeros, or nothing, at its end.
        let end = len - (cuts as usize).min(len);
        image[end..].fill(0);
        let whole = region(&image);
        // Power is lost too: what the device had not made durable is gone.
        let medium = medium.crashed_copy(&Choices::quiet());
        let opened = open(&medium, Some(&whole), false);
        let Some(mut store) = opened.or_else(|| open(&medium, Some(&whole), true)) else { return };
        for number in 0..KEYS {
            let name = number.to_le_bytes();
            if let Ok(Some((_, value))) = store.get(KEYSPACE, &name) {
                let is_of_it = value.len() == VALUE_BYTES && value.iter().all(|&byte| byte == value[0]);
                assert!(is_of_it && value[0] < ROUNDS, "key {number} has a value that nobody wrote");
            }
            let _ = store.put(KEYSPACE, &name, &[0; VALUE_BYTES]);
        }
        let _ = store.sync();
        store.engine.shut();
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierstone_base::SeededRandom;

    #[test]
    fn hostile_bytes_of_a_redo_region_are_opened_without_a_panic() {
        for seed in 0..200 {
            let mut random = SeededRandom::new(seed);
            let mut data = vec![0; 4 * (1 + random.below(24) as usize)];
            random.fill(&mut data);
            if random.chance(0.7) {
                // Headers and slots, whose checksums fit.
                data.chunks_exact_mut(4).for_each(|piece| piece[0] = 2 + piece[0] % 2);
            }
            check_redo_region(&data);
        }
    }

    #[test]
    fn without_a_change_everything_is_there() {
        check_redo_region(&[]);
        let (medium, image, _) = base();
        let medium = medium.crashed_copy(&Choices::quiet());
        let mut store = open(&medium, Some(&region(&image)), false).expect("a whole region");
        // What came before the last sync.
        for number in 0..=(KEYS - 1) / 3 * 3 {
            let found = store.get(KEYSPACE, &number.to_le_bytes()).expect("it can be read");
            assert_eq!(found.map(|(_, value)| value[0]), Some(ROUNDS - 1), "key {number}");
        }
    }
}
