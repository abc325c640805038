use super::*;
use proptest::prelude::*;

#[test]
fn slots_are_those_of_redis_cluster() {
    // Values that `CLUSTER KEYSLOT` answers.
    assert_eq!(slot_of(b"123456789"), 0x31c3);
    assert_eq!(slot_of(b"foo"), 12182);
    assert_eq!(slot_of(b"bar"), 5061);
    assert_eq!(slot_of(b""), 0);
}

#[test]
fn the_hash_tag_is_the_first_non_empty_brace_pair() {
    assert_eq!(hash_tag(b"{user}.a"), b"user");
    assert_eq!(hash_tag(b"x{}y{z}"), b"x{}y{z}");
    assert_eq!(hash_tag(b"x{{a}}"), b"{a");
    assert_eq!(hash_tag(b"x{a"), b"x{a");
    assert_eq!(slot_of(b"{user}.a"), slot_of(b"b{user}"));
}

#[test]
fn slots_are_ranges_of_positions_without_gaps() {
    for slot in [0, 1, 8_191, SLOT_COUNT - 1] {
        let (first, last) = (Position::first_of_slot(slot), Position::last_of_slot(slot));
        assert_eq!((first.slot(), last.slot()), (slot, slot));
        match slot + 1 < SLOT_COUNT {
            true => assert_eq!(last.0 + 1, Position::first_of_slot(slot + 1).0),
            false => assert_eq!(last.0, u64::MAX),
        }
    }
}

#[test]
fn the_upper_bits_of_a_position_are_the_slot() {
    let hasher = KeyHasher::new([1, 2]);
    assert_eq!(hasher.position(b"foo").slot(), 12182);
    assert_ne!(hasher.position(b"{foo}1"), hasher.position(b"{foo}2"));
}

proptest! {
    #[test]
    fn a_cursor_fits_in_a_double_and_begins_no_later_than_its_position(raw: u64, count in 1u16..64) {
        let position = Position(raw);
        let (cursor, first) = (position.cursor(), position.first_of_cursor());
        prop_assert!(cursor < 1 << CURSOR_BITS && cursor as f64 as u64 == cursor);
        prop_assert!(first <= position && position.0 - first.0 < 1 << (64 - CURSOR_BITS));
        prop_assert_eq!((first.cursor(), Position::of_cursor(cursor)), (cursor, first));
        prop_assert_eq!(first.shard(count), position.shard(count));
        // What was given before cursors were shorter is still understood.
        if raw >> CURSOR_BITS != 0 {
            prop_assert_eq!(Position::of_cursor(raw), position);
        }
    }

    #[test]
    fn shard_ranges_are_contiguous_and_agree_with_their_first_position(raw: u64, count in 1u16..64) {
        let position = Position(raw);
        let shard = position.shard(count);
        prop_assert!(shard < count);
        prop_assert!(Position::first_of_shard(shard, count) <= position);
        if shard + 1 < count {
            prop_assert!(position < Position::first_of_shard(shard + 1, count));
        }
    }

    #[test]
    fn a_position_holds_the_sip_hash_of_the_key(secret: [u64; 2], key: Vec<u8>) {
        let mut hasher = SipHasher13::new_with_keys(secret[0], secret[1]);
        std::hash::Hasher::write(&mut hasher, &key);
        let hash = std::hash::Hasher::finish(&hasher) >> SLOT_BITS;
        let position = KeyHasher::new(secret).position(&key);
        prop_assert_eq!(position.0, u64::from(slot_of(&key)) << HASH_BITS | hash);
    }

    #[test]
    fn a_brace_is_found_wherever_it_is(mut key: Vec<u8>, at: usize, other in b'z'..=b'|') {
        if let Some(length) = std::num::NonZeroUsize::new(key.len()) {
            key[at % length] = other;
        }
        prop_assert_eq!(has_brace(&key), key.contains(&b'{'));
    }

    #[test]
    fn crc_by_words_equals_crc_by_bytes(bytes: Vec<u8>) {
        let mut crc = 0u16;
        for &byte in &bytes {
            crc ^= u16::from(byte) << 8;
            for _ in 0..8 {
                crc = if crc & 0x8000 != 0 { (crc << 1) ^ 0x1021 } else { crc << 1 };
            }
        }
        prop_assert_eq!(crc16(&bytes), crc);
    }
}
