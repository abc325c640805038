use super::*;

fn record<'a>(key: &'a [u8], value: &'a [u8]) -> BackupRecord<'a> {
    let (keyspace, kind) = (KeyspaceId(1 << 31 | 7), ValueKind(2));
    BackupRecord { place: 1 << 19, keyspace, kind, expiry_ms: 1 << 41, key, value }
}

#[test]
fn records_come_back_and_no_cut_of_their_bytes_is_taken_for_them() {
    let mut piece = BackupPiece::of_part(300, 1 << 60);
    let records = [record(b"key", b"value"), record(b"", b""), record(&[7; 300], &[9; 70_000])];
    let mut ends = vec![piece.bytes.len()];
    for record in &records {
        piece.push(record);
        ends.push(piece.bytes.len());
    }
    assert!(BackupRecords::new(&piece.bytes).eq(records));
    assert_eq!(BackupRecords::new(&piece.bytes).part(), Some((300, 1 << 60)));
    assert_eq!(piece.records, 3);
    for cut in 0..piece.bytes.len() {
        let mut reader = BackupRecords::new(&piece.bytes[..cut]);
        let count = reader.by_ref().count();
        assert!(count < 3, "cut at {cut}");
        assert_eq!(reader.is_damaged(), !ends.contains(&cut), "cut at {cut}");
    }
}

#[test]
fn a_key_that_is_too_long_is_no_record() {
    let mut piece = BackupPiece::of_part(0, 0);
    piece.push(&record(&vec![1; KEY_BYTES_MAX + 1], b""));
    let mut reader = BackupRecords::new(&piece.bytes);
    assert!(reader.next().is_none() && reader.is_damaged());
}

#[test]
fn entries_of_parts_come_back_and_no_cut_of_their_bytes_is_taken_for_them() {
    let name = PartName { part: 9, life: u64::MAX, checksum: 77 };
    let held = HeldPart { name, live: 1 << 20, digest: place_digest(3) };
    let entries = [
        PartEntry { held, state: PartState::Given, expiries: Vec::new() },
        PartEntry { held, state: PartState::Kept, expiries: vec![(0, 5), (1 << 20, 0)] },
        PartEntry { held, state: PartState::Changed(vec![0, 1, 1 << 20]), expiries: vec![(7, 1 << 41)] },
    ];
    let mut piece = BackupPiece::of_parts();
    let mut ends = vec![0];
    for entry in &entries {
        piece.push_part(entry);
        ends.push(piece.bytes.len());
    }
    assert_eq!(read_parts(&piece.bytes).unwrap(), entries);
    for cut in 0..piece.bytes.len() {
        assert_eq!(read_parts(&piece.bytes[..cut]).is_some(), ends.contains(&cut), "cut at {cut}");
    }
    // A count that is not there ends it, whatever it says.
    let mut hostile = piece.bytes[..ends[2]].to_vec();
    hostile.truncate(ends[1] + 1 + 8 + 8 + 3 + 8 + 1);
    put_varint(&mut hostile, u64::MAX);
    assert!(read_parts(&hostile).is_none());
}
