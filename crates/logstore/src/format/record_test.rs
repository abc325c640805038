use super::*;
use proptest::prelude::*;

fn encoded(seq: Seq, flags: u8, expiry_ms: u64, key: &[u8], value: &[u8]) -> (RecordHeader, Vec<u8>) {
    let header = RecordHeader {
        seq,
        flags,
        kind: 3,
        keyspace: KeyspaceId(9),
        expiry_ms,
        key_len: key.len(),
        value_len: value.len(),
    };
    let mut bytes = vec![0xaa; header.units() * UNIT_BYTES];
    encode(&mut bytes, &header, key, value, 77, 5);
    (header, bytes)
}

proptest! {
    #[test]
    fn a_record_comes_back(seq in 0..SEQ_MAX, key: Vec<u8>, value: Vec<u8>, expires: bool) {
        let (flags, expiry) = if expires { (FLAG_EXPIRY, 12345) } else { (0, 0) };
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
