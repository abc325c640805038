use super::*;
use proptest::prelude::*;
use tierstone_base::KeyspaceId;

fn group(values: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = vec![0u8; HEADER_BYTES];
    for (number, value) in values.iter().enumerate() {
        let header = RecordHeader {
            seq: number as u64 + 10,
            keyspace: KeyspaceId(1),
            key_len: 3,
            value_len: value.len(),
            ..RecordHeader::default()
        };
        let at = bytes.len();
        bytes.resize(at + header.units() * UNIT_BYTES, 0);
        record::encode(&mut bytes[at..], &header, b"key", value, 5, ((4096 + at) / UNIT_BYTES) as u32);
    }
    let header = GroupHeader {
        log_id: 1,
        number: 2,
        durable_groups: 1,
        first_seq: 10,
        len: bytes.len(),
        records: values.len() as u32,
        batches_resolved: 0,
        past_ms: 77,
    };
    encode_header(&mut bytes, &header, 5, 4096);
    bytes
}

proptest! {
    #[test]
    fn a_group_with_any_sector_missing_is_not_a_group(
        values in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..700), 1..10),
        sector: usize,
    ) {
        let bytes = group(&values);
        let mut records = Vec::new();
        prop_assert!(decode(&bytes, 5, 4096, &mut records).is_some());
        prop_assert_eq!(records.len(), values.len());
        records.clear();
        let mut torn = bytes.clone();
        let start = sector % bytes.len() / 512 * 512;
        let end = (start + 512).min(bytes.len());
        torn[start..end].fill(0xee);
        prop_assert!(decode(&torn, 5, 4096, &mut records).is_none());
        prop_assert!(records.is_empty());
    }

    #[test]
    fn hostile_bytes_never_panic(bytes: Vec<u8>) {
        let _ = decode(&bytes, 1, 4096, &mut Vec::new());
    }
}

#[test]
fn a_group_of_another_place_is_not_valid_here() {
    let bytes = group(&[vec![1; 10]]);
    assert!(decode(&bytes, 5, 8192, &mut Vec::new()).is_none());
    assert!(decode(&bytes, 6, 4096, &mut Vec::new()).is_none());
}

#[test]
fn a_group_of_the_first_version_says_nothing_of_expiry() {
    let mut bytes = group(&[vec![1; 10]]);
    let wanted = GroupHeader { past_ms: 0, batches_resolved: 3, ..decode_header(&bytes, 5, 4096).unwrap() };
    bytes[4..8].copy_from_slice(&OLDEST_VERSION.to_le_bytes());
    bytes[24..32].copy_from_slice(&wanted.durable_groups.to_le_bytes());
    bytes[32..40].copy_from_slice(&wanted.first_seq.to_le_bytes());
    bytes[40..44].copy_from_slice(&(wanted.len as u32).to_le_bytes());
    bytes[44..48].copy_from_slice(&wanted.records.to_le_bytes());
    bytes[48..56].copy_from_slice(&wanted.batches_resolved.to_le_bytes());
    let sum = checksum(place_salt(5, 4096), &bytes[..SUMMED_BYTES]);
    bytes[SUMMED_BYTES..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
    let mut records = Vec::new();
    assert_eq!((decode(&bytes, 5, 4096, &mut records), records.len()), (Some(wanted), 1));
}
