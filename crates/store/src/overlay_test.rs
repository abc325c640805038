use super::*;
use std::collections::BTreeMap;
use tierstone_base::SeededRandom;

fn key(bytes: &[u8], position: u64) -> Key<'_> {
    Key { keyspace: KeyspaceId(1), position: Position(position), bytes }
}

#[test]
fn the_newest_pending_write_is_found_with_many_and_few_writes_and_shared_positions() {
    for seed in 0..40 {
        let mut random = SeededRandom::new(seed);
        let mut overlay = Overlay::default();
        let mut model: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        for step in 0..random.below(200) {
            let name = format!("key{}", random.below(12)).into_bytes();
            // Few positions, so that different keys share them.
            let key = key(&name, name.len() as u64 + u64::from(name[3] & 1));
            let mark = overlay.mark();
            if random.chance(0.3) {
                overlay.delete(key);
            } else {
                overlay.put(key, step.to_string().as_bytes(), step, ValueKind::STRING);
            }
            if random.chance(0.2) {
                overlay.roll_back(mark);
            } else {
                let value = match overlay.find(key) {
                    Some(WriteKind::Put { value, .. }) => Some(value.to_vec()),
                    _ => None,
                };
                model.insert(name.clone(), value);
            }
            for (name, expected) in &model {
                let key = Key { position: Position(name.len() as u64 + u64::from(name[3] & 1)), ..key };
                let found = match overlay.find(Key { bytes: name, ..key }) {
                    Some(WriteKind::Put { value, .. }) => Some(value.to_vec()),
                    Some(WriteKind::Delete) => None,
                    None => panic!("seed {seed}, step {step}: a pending write was forgotten"),
                };
                assert_eq!(&found, expected, "seed {seed}, step {step}");
            }
        }
        overlay.clear();
        assert!(overlay.is_empty() && overlay.find(key(b"key1", 4)).is_none());
    }
}
