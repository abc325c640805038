use crate::location::{Location, Target};
use crate::shard::LogShard;
use crate::{OpenSettings, ShardSettings};
use tierstone_base::{KeyspaceId, Position};
use tierstone_crash::Choices;
use tierstone_engine::harness::Harness;
use tierstone_engine::{Engine, Verification};
use tierstone_media::sim::{SimDevice, SimMedium, SimSettings};
use tierstone_media::{Geometry, Wait};

const KEYSPACE: KeyspaceId = KeyspaceId(1);

fn store() -> Harness<LogShard, SimDevice> {
    let meta_bytes = crate::format::superblock::META_BYTES;
    let geometry = Geometry { meta_bytes, segment_bytes: 64 << 10, segment_limit: 32 };
    let medium = SimMedium::new(SimSettings::new(geometry), &Choices::quiet());
    let shard =
        ShardSettings { memory_bytes: 256 << 10, group_bytes_max: 16 << 10, ..ShardSettings::default() };
    let settings = OpenSettings { shard, seed: 3, ..OpenSettings::default() };
    let mut device = medium.device();
    let mut opened = crate::open(&mut device, &settings).unwrap();
    let (shard, _) = opened.plans.remove(0).build(&mut device).unwrap();
    let mut store = Harness::new(shard, device, opened.hasher);
    for number in 0..200u32 {
        store.put(KEYSPACE, &number.to_le_bytes(), &[number as u8; 600]).unwrap();
    }
    for number in 0..20u32 {
        store.delete(KEYSPACE, &number.to_le_bytes()).unwrap();
    }
    store.sync().unwrap();
    store
}

fn verified(store: &mut Harness<LogShard, SimDevice>) -> Verification {
    store.engine.begin_verification().unwrap();
    for _ in 0..10_000 {
        store.turn(Wait::One);
        if let Some(report) = store.engine.verification().filter(|report| !report.is_running) {
            return report.clone();
        }
    }
    panic!("the verification does not end");
}

fn index(store: &mut Harness<LogShard, SimDevice>) -> &mut crate::index::HashIndex {
    &mut store.engine.keyspaces.get_mut(KEYSPACE).unwrap().index
}

#[test]
fn an_entry_that_the_index_has_lost_is_missed() {
    let mut store = store();
    let position = store.key(KEYSPACE, &77u32.to_le_bytes()).position;
    let entry = index(&mut store).first_candidate(position).unwrap();
    assert!(index(&mut store).remove(position, entry));
    let report = verified(&mut store);
    assert_eq!((report.damage.get("index"), report.lost_keys), (Some(&1), 1), "{report:?}");
    assert!(report.findings[0].contains("leaves out the record of sequence 78"), "{report:?}");
}

#[test]
fn an_entry_that_leads_to_no_record_is_seen() {
    let mut store = store();
    let location = Location::new(0, 5);
    index(&mut store).insert(Position(1 << 40), Target::Device(location).pack()).unwrap();
    let report = verified(&mut store);
    assert_eq!((report.damage.get("index"), report.lost_keys), (Some(&1), 1), "{report:?}");
    assert!(report.findings[0].starts_with("segment 0, unit 5"), "{report:?}");
}
