//! What holds of every large value's map and ledger entry, whatever bytes they are read from. For fuzzing
//! (`fuzz/`) and for tests.
//!
//! Invariants:
//! 1. Reading never panics and takes memory of the order of what is read.
//! 2. What can be read comes back when it is written and read again.
//! 3. A map names no chunk beyond its length.

use crate::large::{LargeMap, LedgerEntry, parse_key};

/// Reads `data` as a map, as an entry of the ledger and as a chunk's key, and as what a broken entry
/// with a whole map would be.
pub fn check_large_values(data: &[u8]) {
    if let Ok(map) = LargeMap::decode(data) {
        check_map(&map);
        let mut again = Vec::new();
        map.encode(&mut again);
        assert_eq!(LargeMap::decode(&again).ok().as_ref(), Some(&map));
        let mut entry = LedgerEntry::Expires { at_ms: map.len(), map, owner: data.to_vec() }.encode();
        assert!(LedgerEntry::decode(&entry).is_ok());
        // Each byte of an entry's head, wrong.
        let place = data.len() % 16;
        entry[place] = entry[place].wrapping_add(data[0].max(1));
        check_entry(&entry);
    }
    check_entry(data);
    if let Some((_, number)) = parse_key(data) {
        assert!(u32::try_from(number).is_ok());
    }
}

fn check_entry(data: &[u8]) {
    if let Ok(entry) = LedgerEntry::decode(data) {
        check_map(entry.map());
        assert_eq!(LedgerEntry::decode(&entry.encode()).ok(), Some(entry));
    }
}

fn check_map(map: &LargeMap) {
    assert!(map.can_hold(map.len()));
    assert!(map.present().all(|number| map.has(number) && number < map.chunks()));
    assert!(map.stored_bytes() >= map.present().count() as u64 * map.chunk_bytes());
    assert!(!map.has(u64::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::large::ValueIds;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn maps_and_entries_hold_for_any_bytes(data in proptest::collection::vec(any::<u8>(), 0..200)) {
            check_large_values(&data);
        }

        #[test]
        fn maps_and_entries_hold_for_bytes_that_are_nearly_right(
            len in 1..1u64 << 30,
            shift in 0..3u32,
            broken in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..3),
            cut in any::<u16>(),
        ) {
            let map = ValueIds::new(7, 1, 16 << 10 << shift).new_map(len.min(1 << 29));
            let mut bytes = Vec::new();
            map.encode(&mut bytes);
            for (at, byte) in broken {
                let at = usize::from(at) % bytes.len();
                bytes[at] = byte;
            }
            check_large_values(&bytes);
            bytes.truncate(usize::from(cut) % bytes.len());
            check_large_values(&bytes);
        }
    }
}
