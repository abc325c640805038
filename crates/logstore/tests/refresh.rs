//! Tag bits that the index loses while it grows come back from the summaries.

mod common;

use common::{fresh, small_settings};
use tierstone_base::KeyspaceId;
use tierstone_engine::{Write, WriteKind};

#[test]
fn tags_lost_by_growth_are_refreshed_and_every_key_is_still_found() {
    let mut settings = small_settings();
    settings.shard.memory_bytes = 24 << 20;
    settings.shard.group_bytes_max = 64 << 10;
    let (_medium, mut store) = fresh(1 << 20, 128, &settings);
    let keyspace = KeyspaceId(1);
    let keys: Vec<String> = (0..600_000).map(|number| format!("k{number}")).collect();
    let mut worst = 0;
    for batch in keys.chunks(500) {
        let writes: Vec<Write<'_>> = batch
            .iter()
            .map(|key| Write {
                key: store.key(keyspace, key.as_bytes()),
                kind: WriteKind::Put { value: key.as_bytes(), expiry_ms: 0, kind: Default::default() },
            })
            .collect();
        store.write(&writes).unwrap();
        worst = worst.max(store.engine.lost_tag_bits());
    }
    assert!(worst >= 4, "the index lost only {worst} bits: the test shows nothing");
    store.sync().unwrap();
    store.settle(50_000);
    let left = store.engine.lost_tag_bits();
    assert!(left < worst, "{left} bits are lost after the refresh, {worst} before");
    for key in keys.iter().step_by(97) {
        let (_, value) = store.get(keyspace, key.as_bytes()).unwrap().unwrap();
        assert_eq!(value, key.as_bytes());
    }
}
