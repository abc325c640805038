use super::*;
use crate::format::record::FLAG_KEYED;
use proptest::prelude::*;
use tierstone_base::codec::put_varint;

/// Bytes that look like records one after the other, some of them broken.
fn records() -> impl Strategy<Value = Vec<u8>> {
    let one = (any::<u64>(), 0..128u8, 0..200u32, 0..40u16, any::<u8>(), 0..12u8);
    proptest::collection::vec(one, 0..6).prop_map(|parts| {
        let mut bytes = Vec::new();
        for (word, flags, value_len, key_len, fill, broken) in parts {
            let start = bytes.len();
            bytes.extend_from_slice(&word.to_le_bytes());
            bytes.extend_from_slice(&(word >> 16 | u64::from(flags) << 48).to_le_bytes());
            bytes[start + 14] = flags;
            bytes.extend_from_slice(&value_len.to_le_bytes());
            bytes.extend_from_slice(&u32::from(key_len).to_le_bytes());
            bytes.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
            let expiry = if flags & FLAG_EXPIRY != 0 { 8 } else { 0 };
            let part = if flags & record::FLAG_PART != 0 { record::PART_BYTES } else { 0 };
            bytes.resize(bytes.len() + expiry + part + value_len as usize + usize::from(key_len), fill);
            bytes.resize(start + (bytes.len() - start).next_multiple_of(UNIT_BYTES), 0);
            if broken == 0 {
                bytes.truncate(start + (bytes.len() - start) / 2);
            }
        }
        bytes
    })
}

/// Bytes that look like a summary.
fn summaries() -> impl Strategy<Value = Vec<u8>> {
    let one = (any::<u8>(), any::<u64>(), any::<u64>(), 0..9u64, 0..9u64, any::<u32>());
    proptest::collection::vec(one, 0..40).prop_map(|parts| {
        let mut bytes = (parts.len() as u16).to_be_bytes().to_vec();
        for (flags, position, difference, gap, units, keyspace) in parts {
            bytes.push(flags);
            bytes.extend_from_slice(&position.to_le_bytes());
            [difference, gap, units].into_iter().for_each(|value| put_varint(&mut bytes, value));
            if flags & 0x80 == 0 {
                put_varint(&mut bytes, u64::from(keyspace));
            }
            if flags & FLAG_EXPIRY != 0 {
                bytes.extend_from_slice(&position.to_le_bytes());
            }
            if flags & FLAG_KEYED != 0 {
                let len = keyspace % 40;
                put_varint(&mut bytes, if keyspace % 17 == 0 { difference } else { u64::from(len) });
                bytes.resize(bytes.len() + len as usize, flags);
            }
        }
        bytes
    })
}

/// Bytes that look like items of a checkpoint.
fn items() -> impl Strategy<Value = Vec<u8>> {
    let one = (0..6u32, proptest::collection::vec(any::<u8>(), 0..90), any::<bool>());
    proptest::collection::vec(one, 0..6).prop_map(|parts| {
        let mut bytes = Vec::new();
        for (kind, content, broken) in parts {
            bytes.extend_from_slice(&kind.to_le_bytes());
            let length = content.len() as u32 + u32::from(broken);
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(&content);
        }
        bytes
    })
}

proptest! {
    #[test]
    fn checkpoints_keep_their_promises(
        bytes in prop_oneof![any::<Vec<u8>>(), items(), proptest::collection::vec(any::<u8>(), 60..200)],
        segments in 0..4u32,
    ) {
        check_checkpoint(&bytes);
        let mut commit = bytes;
        if commit.len() > 80 {
            commit[76..80].copy_from_slice(&segments.to_le_bytes());
            check_checkpoint(&commit);
        }
    }

    #[test]
    fn records_keep_their_promises(bytes in prop_oneof![any::<Vec<u8>>(), records()]) {
        check_record(&bytes);
    }

    #[test]
    fn groups_keep_their_promises(header in any::<[u8; 64]>(), body in prop_oneof![any::<Vec<u8>>(), records()]) {
        check_group(&[&header[..], &body].concat());
        check_group(&body);
    }

    #[test]
    fn segment_blocks_keep_their_promises(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        check_segment_blocks(&bytes);
    }

    #[test]
    fn summaries_keep_their_promises(bytes in prop_oneof![any::<Vec<u8>>(), summaries()]) {
        check_summary(&bytes);
    }

    #[test]
    fn superblocks_keep_their_promises(
        head in any::<[u8; 33]>(),
        tail in prop_oneof![any::<Vec<u8>>(), Just(vec![1, 2, 1, 3, 0, 1, b'a', 2, 8, 9])],
    ) {
        check_superblock(&[&head[..], &tail].concat());
        check_superblock(&tail);
    }
}
