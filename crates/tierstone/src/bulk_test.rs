use super::*;

#[test]
fn a_stage_has_room_for_one_record_at_least() {
    let mut stage = Stage::new(KeyspaceId(3), 0);
    assert!(stage.has_room(1 << 20, 64 << 10));
    stage.push(Position(1), b"key", b"value", Until::Never);
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
    assert!(check_lengths(&[0; 1_024], &[0; 100], 100).is_ok());
    assert!(check_lengths(&[0; 1_025], &[0; 100], 100).is_err(), "the record would be too long");
    assert!(check_lengths(&[0; 1_025], &[0; 99], 100).is_ok());
    assert!(check_lengths(b"key", &[0; 101], 100).is_err());
}
