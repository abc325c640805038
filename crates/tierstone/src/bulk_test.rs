use super::*;

fn keys_of(stage: &Stage) -> Vec<Vec<u8>> {
    stage
        .pieces()
        .flat_map(|piece| {
            stage.writes(piece).iter().map(|write| write.key.bytes.to_vec()).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn pieces_are_bounded_and_hold_every_record_once() {
    let mut stage = Stage::new(KeyspaceId(3));
    assert_eq!(stage.pieces().count(), 0);
    for number in 0..5_000u32 {
        stage.push(Position(u64::from(number) << 40), &number.to_be_bytes(), &[7; 700], 0);
    }
    let pieces: Vec<Range<usize>> = stage.pieces().collect();
    assert!(pieces.len() > 1);
    assert!(pieces.iter().all(|piece| piece.len() * 704 <= PIECE_BYTES && piece.len() <= PIECE_RECORDS));
    assert_eq!(pieces.iter().map(ExactSizeIterator::len).sum::<usize>(), 5_000);
    assert_eq!(keys_of(&stage), (0..5_000u32).map(|n| n.to_be_bytes().to_vec()).collect::<Vec<_>>());

    // One record that is longer than a piece is a piece.
    stage.clear();
    stage.push(Position(1), b"long", &vec![1; 2 * PIECE_BYTES], 0);
    stage.push(Position(2), b"short", b"", 0);
    assert_eq!(stage.pieces().collect::<Vec<_>>(), [0..1, 1..2]);
}

#[test]
fn records_come_in_the_order_of_their_positions_and_those_of_one_key_as_they_were_given() {
    let mut stage = Stage::new(KeyspaceId(3));
    for (position, value) in [(9, "first"), (4, "x"), (9, "second"), (1, "y"), (9, "third")] {
        stage.push(Position(position), b"key", value.as_bytes(), 0);
    }
    stage.sort();
    let writes = stage.writes(0..5);
    let values: Vec<&[u8]> = writes
        .iter()
        .map(|write| match write.kind {
            WriteKind::Put { value, .. } => value,
            WriteKind::Delete => unreachable!("a load puts"),
        })
        .collect();
    assert_eq!(values, [&b"y"[..], b"x", b"first", b"second", b"third"]);
}

#[test]
fn a_stage_has_room_for_one_record_at_least() {
    let mut stage = Stage::new(KeyspaceId(3));
    assert!(stage.has_room(1 << 20, 64 << 10));
    stage.push(Position(1), b"key", b"value", 0);
    assert!(!stage.has_room(64 << 10, 64 << 10));
    assert!(stage.has_room(60 << 10, 64 << 10));
}

#[test]
fn options_and_lengths_out_of_range_are_refused() {
    assert!(BulkOptions { stage_bytes: 1 }.check().is_err());
    assert!(BulkOptions { stage_bytes: 2 << 30 }.check().is_err());
    assert!(BulkOptions::default().check().is_ok());
    assert!(check_lengths(&vec![0; 65_536], b"", 100).is_err());
    assert!(check_lengths(&vec![0; 65_535], b"", 100).is_ok());
    assert!(check_lengths(b"key", &[0; 101], 100).is_err());
}
