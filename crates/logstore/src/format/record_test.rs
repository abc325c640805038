use super::*;
use proptest::prelude::*;

fn encoded(seq: Seq, flags: u8, expiry_ms: u64, key: &[u8], value: &[u8]) -> (RecordHeader, Vec<u8>) {
    let part = if flags & FLAG_PART != 0 {
        PartMark { batch: seq ^ 0xabcd, number: seq / 3, parts: seq as u16 }
    } else {
        PartMark::default()
    };
    let header = RecordHeader {
        seq,
        flags,
        kind: 3,
        keyspace: KeyspaceId(9),
        expiry_ms,
        key_len: key.len(),
        value_len: value.len(),
        part,
        touched: if is_touch(flags) { Touched { seq: seq / 2, place: seq % 77 } } else { Touched::default() },
    };
    let mut bytes = vec![0xaa; header.units() * UNIT_BYTES];
    encode(&mut bytes, &header, key, value, 77, 5);
    (header, bytes)
}

proptest! {
    #[test]
    fn a_record_comes_back(seq in 0..SEQ_MAX, key: Vec<u8>, value: Vec<u8>, expires: bool, begins: bool, touches: bool) {
        let (flags, expiry) = if expires { (FLAG_EXPIRY, 12345) } else { (0, 0) };
        let flags = flags | if touches { FLAG_TOMBSTONE } else { 0 };
        let flags = flags | if begins { FLAG_PART } else { 0 };
        let (header, bytes) = encoded(seq, flags, expiry, &key, &value);
        prop_assert_eq!(decode(&bytes, 77, 5, 1 << 20), Decoded::Whole(header));
        prop_assert_eq!(&bytes[header.key_range()], &key[..]);
        prop_assert_eq!(&bytes[header.value_range()], &value[..]);
    }

    #[test]
    fn a_flipped_bit_is_seen(value in proptest::collection::vec(any::<u8>(), 0..100), place: usize, bit in 0..8u32) {
        let (header, mut bytes) = encoded(7, 0, 0, b"key", &value);
        let place = place % header.record_len();
        bytes[place] ^= 1 << bit;
        prop_assert!(!matches!(decode(&bytes, 77, 5, 1 << 20), Decoded::Whole(_)));
    }

    #[test]
    fn hostile_bytes_never_panic(bytes: Vec<u8>) {
        let _ = decode(&bytes, 1, 2, 1 << 20);
    }
}

#[test]
fn another_life_or_place_does_not_verify() {
    let (_, bytes) = encoded(1, FLAG_TOMBSTONE, 0, b"key", b"");
    assert_eq!(decode(&bytes, 78, 5, 1 << 20), Decoded::Invalid);
    assert_eq!(decode(&bytes, 77, 6, 1 << 20), Decoded::Invalid);
}

#[test]
fn a_short_read_says_how_much_is_needed() {
    let (header, bytes) = encoded(1, 0, 0, b"key", &[1; 500]);
    assert_eq!(decode(&bytes[..100], 77, 5, 1 << 20), Decoded::Short { needed: header.record_len() });
    assert_eq!(decode(&bytes[..100], 77, 5, 400), Decoded::Invalid);
}

#[test]
fn the_shortest_record_and_that_of_a_part_are_whole_where_the_bytes_end_with_them() {
    for flags in [FLAG_TOMBSTONE, FLAG_TOMBSTONE | FLAG_PART, FLAG_TOMBSTONE | FLAG_EXPIRY | FLAG_PART] {
        let (header, bytes) = encoded(9, flags, 0, b"", b"");
        assert_eq!(decode(&bytes[..header.record_len()], 77, 5, 1 << 20), Decoded::Whole(header));
        assert!(matches!(decode(&bytes[..31], 77, 5, 1 << 20), Decoded::Short { .. }));
    }
}

#[test]
fn a_record_is_made_void_within_its_first_unit() {
    let (header, bytes) = encoded(9, FLAG_PART | FLAG_EXPIRY, 77, b"key", &[5; 200]);
    let mut void = bytes.clone();
    set_flags(&mut void[..header.record_len()], header.flags | FLAG_VOID);
    seal(&mut void[..header.record_len()], 77, 5);
    assert_eq!(bytes[UNIT_BYTES..], void[UNIT_BYTES..]);
    let flags = header.flags | FLAG_VOID;
    assert_eq!(decode(&void, 77, 5, 1 << 20), Decoded::Whole(RecordHeader { flags, ..header }));
}
