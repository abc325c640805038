use super::*;

fn at(wall_ms: u64) -> Now {
    Now { wall_ms, ..Now::default() }
}

#[test]
fn what_a_cut_shows_is_needed_and_nothing_else() {
    let mut cuts = Cuts::default();
    assert!(!cuts.need(0, 0) && !cuts.is_any_before(9));
    let first = cuts.take(10, at(100)).unwrap();
    let second = cuts.take(20, at(200)).unwrap();
    assert!(cuts.need(20, 0) && !cuts.need(21, 0));
    assert!(cuts.need(10, 150) && !cuts.need(11, 150) && !cuts.need(11, 200) && cuts.need(11, 201));
    let between = [(5, 10), (5, 11), (10, 11), (11, 20), (11, 21), (21, 30)]
        .map(|(seq, end)| cuts.is_between(seq, end));
    assert_eq!(between, [false, true, true, false, true, false]);
    assert!(cuts.is_any_before(11) && !cuts.is_any_before(10));
    assert_eq!(cuts.oldest().map(|cut| cut.id), Some(first));
    assert!(cuts.end(first) && !cuts.end(first));
    assert_eq!(cuts.get(first).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(cuts.get(second).unwrap().seq, 20);
}

#[test]
fn a_lost_snapshot_says_so_until_it_is_released_and_counts_as_one() {
    let mut cuts = Cuts::default();
    let ids: Vec<SnapshotId> = (0..SNAPSHOTS_MAX).map(|_| cuts.take(1, at(1)).unwrap()).collect();
    assert!(cuts.end(ids[0]));
    cuts.note_lost(ids[0]);
    assert_eq!(cuts.take(2, at(2)).unwrap_err().kind(), ErrorKind::Retry);
    assert_eq!(cuts.get(ids[0]).unwrap_err().kind(), ErrorKind::SnapshotLost);
    assert_eq!(cuts.counts(), (SNAPSHOTS_MAX as u64 - 1, 1));
    assert!(!cuts.end(ids[0]));
    assert_eq!(cuts.take(2, at(2)).unwrap().0, ids[SNAPSHOTS_MAX - 1].0 + 1);
}
