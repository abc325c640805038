//! Shards on a simulated device, for tests.

use crate::engine::DatabaseShard;
use crate::lane::Lane;
use crate::local::Store;
use tierstone_base::KeyspaceId;
use tierstone_base::clock::SystemClock;
use tierstone_crash::Choices;
use tierstone_engine::{Durability, Engine, Key, ValueKind, Write, WriteKind};
use tierstone_logstore::format::superblock::{IndexKind, KeyspaceEntry, META_BYTES};
use tierstone_logstore::{OpenSettings, ShardSettings};
use tierstone_media::{Geometry, SimDevice, SimMedium, SimSettings};

/// The one keyspace.
pub(crate) const KEYSPACE: KeyspaceId = KeyspaceId(1);

/// An empty medium of segments of 128 KiB.
pub(crate) fn medium(segment_limit: u32) -> SimMedium {
    let geometry = Geometry { meta_bytes: META_BYTES, segment_bytes: 128 << 10, segment_limit };
    SimMedium::new(SimSettings::new(geometry), &Choices::quiet())
}

/// The only shard of the store on `medium`, which is made if there is none.
pub(crate) fn shard(
    medium: &SimMedium,
    memory_bytes: u64,
    durability: Durability,
) -> (DatabaseShard, SimDevice) {
    let mut device = medium.device();
    let settings = OpenSettings {
        shard: ShardSettings { memory_bytes, durability, ..ShardSettings::default() },
        keyspaces: vec![KeyspaceEntry { id: KEYSPACE, name: "0".into(), index: IndexKind::Hash }],
        seed: 5,
        ..OpenSettings::default()
    };
    let mut opened = tierstone_logstore::open(&mut device, &settings).unwrap();
    let (shard, _) = opened.plans.remove(0).build(&mut device).unwrap();
    (DatabaseShard::Log(Box::new(shard)), device)
}

/// The same as a lane.
pub(crate) fn lane(medium: &SimMedium, memory_bytes: u64, durability: Durability) -> Lane<SimDevice> {
    let (shard, device) = shard(medium, memory_bytes, durability);
    Lane::new(shard, device, SystemClock::new())
}

/// Writes a large value under `{name}large` as the server does: what says that it is one, and a chunk of it.
pub(crate) fn put_large(store: &mut Store, name: &str) {
    let (owner, chunk) = (format!("{{{name}}}large"), format!("{{{name}}}chunk"));
    let (hasher, id, shards) = (store.hasher(), store.first, store.shards());
    let put = |keyspace, bytes, kind| Write {
        key: Key { keyspace, position: hasher.position(bytes), bytes },
        kind: WriteKind::Put { value: b"bytes", expiry_ms: 0, kind },
    };
    let writes = [
        put(id.chunks(), chunk.as_bytes(), ValueKind::STRING),
        put(id, owner.as_bytes(), ValueKind::CHUNKED),
    ];
    let lane = &mut store.lanes[usize::from(writes[0].key.position.shard(shards))];
    let receipt = lane.attempt(|engine, now| engine.write(now, &writes)).unwrap();
    lane.commit(receipt).unwrap();
}
