use super::*;
use tierstone_base::KeyHasher;
use tierstone_base::position::slot_of;

#[test]
fn every_slot_has_a_tag_that_keeps_chunks_and_entries_in_it() {
    let hasher = KeyHasher::new([3, 4]);
    let id = ValueId { epoch: 0x7d7d_7d7d_7d7d_7d7d, number: 0x7b7b_7d7d };
    for slot in 0..SLOT_COUNT {
        assert!(!tag(slot).contains(&b'}'), "slot {slot}");
        assert_eq!(slot_of(&chunk_key(slot, id, 0x7d7d_7d7d)), slot);
        assert_eq!(hasher.position(&ledger_key(slot, id)).slot(), slot);
    }
    assert_eq!(parse_key(&chunk_key(77, id, 5)), Some((id, 5)));
    assert_eq!(parse_key(&ledger_key(77, id)), Some((id, 0)));
    assert_eq!(parse_key(b"short"), None);
}

#[test]
fn maps_and_entries_are_read_as_they_were_written_and_nothing_else_is_read() {
    let ids = ValueIds::new(9, 3, 256);
    let mut map = ids.new_map(256 * 9 + 1);
    map.add(0);
    map.add(9);
    assert_eq!((map.chunks(), map.present().collect::<Vec<_>>()), (10, vec![0, 9]));
    assert!(map.has(9) && !map.has(8) && !map.has(10) && !map.has(u64::MAX));
    map.grow(256 * 20);
    assert!(map.has(9) && !map.has(19) && map.stored_bytes() == 512);
    let mut bytes = Vec::new();
    map.encode(&mut bytes);
    assert_eq!(LargeMap::decode(&bytes).unwrap(), map);
    for cut in 0..bytes.len() {
        assert!(LargeMap::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    for (at, value) in [(0, 2), (1, 3), (1, 17), (24, 1)] {
        let mut broken = bytes.clone();
        broken[at] = value;
        assert!(LargeMap::decode(&broken).is_err(), "{value} at {at}");
    }
    let entries = [
        LedgerEntry::Upload { map: map.clone() },
        LedgerEntry::Dead { map: map.clone() },
        LedgerEntry::Expires { at_ms: 77, map, owner: b"owner".to_vec() },
    ];
    for entry in entries {
        let bytes = entry.encode();
        assert_eq!(LedgerEntry::decode(&bytes).unwrap(), entry);
        assert!(LedgerEntry::decode(&bytes[..20]).is_err());
    }
    assert_ne!(ids.new_map(1).id, ids.new_map(1).id);
}

#[test]
fn the_chunk_size_is_a_power_of_two_that_the_engine_takes() {
    assert_eq!(chunk_bytes_for(1 << 30), CHUNK_BYTES);
    assert_eq!(chunk_bytes_for(27_000), 16 << 10);
    assert_eq!(chunk_bytes_for(10), CHUNK_BYTES_MIN);
    assert_eq!(value_bytes_max(CHUNK_BYTES), 4 << 30);
    assert_eq!(value_bytes_max(16 << 10), 1 << 30);
}

/// The examples of `docs/formats/large-values.md`: page and encoders cannot part.
#[test]
fn the_page_prints_a_map_a_chunk_s_key_and_an_entry() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats/large-values.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut map = ValueIds::new(9, 3, CHUNK_BYTES).new_map(200_000);
    map.add(0);
    map.add(3);
    let mut encoded = Vec::new();
    map.encode(&mut encoded);
    let key = chunk_key(slot_of(b"greeting"), map.id, 3);
    let entry = LedgerEntry::Expires { at_ms: 1_800_000_000_000, map, owner: b"greeting".to_vec() }.encode();
    let dumps = [&encoded[..], &key, &entry].map(|bytes| {
        let lines = bytes.chunks(16).enumerate().map(|(line, bytes)| {
            let bytes: String = bytes.iter().map(|byte| format!(" {byte:02x}")).collect();
            format!("{:4} {bytes}\n", line * 16)
        });
        lines.collect::<String>()
    });
    for dump in &dumps {
        let is_printed = page.contains(&format!("```text\n{dump}```"));
        assert!(is_printed, "the page does not print all of\n{}", dumps.join("\n"));
    }
}
