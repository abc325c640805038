use super::*;

fn sample() -> Superblock {
    Superblock {
        volume: 0x1234_5678_9abc_def0_1122_3344_5566_7788,
        index: 2,
        generation: 9,
        clean: true,
        layout: Layout { redundancy: Redundancy::Parity, groups: 1, width: 4, chunk_bytes: 8192, rows: 77 },
        geometry: Geometry { meta_bytes: 8192, segment_bytes: 65536, segment_limit: 20 },
        region_bytes: 65536,
        journal_slots: 4,
        buffer: 5 << 100,
        spare_rows: 0,
        states: vec![Health::InSync, Health::Failed, Health::Rebuilding { row: 12 }, Health::Behind],
    }
}

#[test]
fn a_superblock_comes_back_and_no_flipped_bit_passes() {
    let block = sample().encode();
    assert_eq!(Superblock::decode(&block), Some(sample()));
    let spare = |redundancy, spare_rows| Superblock {
        spare_rows,
        layout: Layout { redundancy, ..sample().layout },
        ..sample()
    };
    let mirrors = spare(Redundancy::Mirror, 70);
    assert_eq!(Superblock::decode(&mirrors.encode()), Some(mirrors));
    assert_eq!(Superblock::decode(&spare(Redundancy::Mirror, 77).encode()), None, "nothing but spare rows");
    assert_eq!(Superblock::decode(&spare(Redundancy::Parity, 1).encode()), None);
    for byte in 0..BLOCK_BYTES {
        let mut damaged = block.clone();
        damaged[byte] ^= 1 << (byte % 8);
        assert_eq!(Superblock::decode(&damaged), None, "byte {byte}");
    }
    assert_eq!(Superblock::decode(&block[..100]), None);
}

proptest::proptest! {
    #[test]
    fn hostile_superblocks_never_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..5000)) {
        let mut block = bytes;
        let head = MAGIC.len().min(block.len());
        block[..head].copy_from_slice(&MAGIC[..head]);
        let _ = Superblock::decode(&block);
    }
}

/// What a program of another version would write in place of `block`.
fn of_version(block: &[u8], version: u32) -> Vec<u8> {
    let mut bytes = block.to_vec();
    bytes[VERSION_AT..VERSION_AT + 4].copy_from_slice(&version.to_le_bytes());
    let generation = Reader::new(&bytes[GENERATION_AT..]).u64().unwrap();
    let sum = checksum(salt(SALT, generation), &bytes[..BLOCK_BYTES - 8]);
    bytes[BLOCK_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn a_newer_superblock_is_told_from_a_torn_one_and_from_a_version_that_rotted() {
    let block = sample().encode();
    assert_eq!((newer(&block), unusable(&block)), (None, None));
    for version in [3, 9, u32::MAX] {
        let later = of_version(&block, version);
        assert_eq!((newer(&later), Superblock::decode(&later)), (Some(version), None));
        // In any slot, whatever the other holds.
        for other in [vec![0; BLOCK_BYTES], block.to_vec(), vec![0x5a; BLOCK_BYTES]] {
            assert_eq!(newer(&[&other[..], &later[..]].concat()), Some(version));
            assert_eq!(newer(&[&later[..], &other[..]].concat()), Some(version));
        }
        let mut rotted = block.to_vec();
        rotted[VERSION_AT..VERSION_AT + 4].copy_from_slice(&version.to_le_bytes());
        let mut torn = later.clone();
        torn[BLOCK_BYTES - 512..].fill(0);
        for damaged in [rotted, torn] {
            assert_eq!((newer(&damaged), Superblock::decode(&damaged)), (None, None));
            let why = unusable(&damaged).unwrap();
            assert!(why.contains("checksum does not fit") && why.contains(&version.to_string()), "{why}");
        }
    }
    assert_eq!(newer(&of_version(&block, 0)), None);
    assert_eq!((newer(b"TIERVOLU"), newer(&[])), (None, None));
}

#[test]
fn spare_rows_have_a_version_of_their_own_and_are_read_under_the_first_too() {
    let spare = Superblock {
        spare_rows: 7,
        layout: Layout { redundancy: Redundancy::Mirror, ..sample().layout },
        ..sample()
    };
    let (with, without) = (spare.encode(), sample().encode());
    assert_eq!((version_in(&with), version_in(&without)), (Some(VERSION_SPARE), Some(VERSION)));
    assert!(!is_unmarked(&with));
    let before = of_version(&with, VERSION);
    assert_eq!((Superblock::decode(&before), is_unmarked(&before)), (Some(spare), true));
}
