use super::*;

const OPENING: u64 = 3;

fn log_id(shard: u64) -> u64 {
    OPENING << LOG_ID_OPEN_SHIFT | shard << 1
}

fn record(group: u64, more: bool, part: Option<(u64, u64, u16)>) -> LogRecord {
    LogRecord {
        group,
        flags: if more { FLAG_BATCH_MORE } else { 0 },
        part: part.map(|(batch, number, parts)| PartMark { batch, number, parts }),
        is_before_sealed: false,
    }
}

fn logs(all: &[&[LogRecord]]) -> BTreeMap<u64, LogRecords> {
    let log = |records: &&[LogRecord]| LogRecords { records: records.to_vec(), resolved: 0 };
    (0..).map(log_id).zip(all.iter().map(log)).collect()
}

fn dropped(logs: &BTreeMap<u64, LogRecords>, shard: u64) -> Vec<usize> {
    decide(logs, OPENING - 1, false).dropped[&log_id(shard)].iter().copied().collect()
}

#[test]
fn a_batch_with_all_parts_is_kept_and_one_that_misses_a_part_is_dropped_in_the_middle() {
    let found = logs(&[
        &[record(0, false, None), record(1, true, Some((7, 0, 2))), record(2, false, None)],
        &[record(0, false, Some((7, 0, 2))), record(1, false, Some((8, 1, 2))), record(2, false, None)],
    ]);
    assert_eq!(dropped(&found, 0), []);
    assert_eq!(dropped(&found, 1), [1]);
    assert!(decide(&found, OPENING - 1, false).any);
    let decided = decide(&found, OPENING, false);
    assert!(!decided.any && decided.dropped[&log_id(1)].is_empty());
}

#[test]
fn a_part_that_misses_records_does_not_count_and_what_follows_it_stays() {
    // Group 2 is missing: damage.
    let found = logs(&[
        &[record(1, true, Some((7, 0, 2))), record(3, true, None), record(3, false, None)],
        &[record(0, false, Some((7, 0, 2)))],
    ]);
    assert_eq!(dropped(&found, 0), [0]);
    assert_eq!(dropped(&found, 1), [0]);
}

#[test]
fn a_part_that_its_log_calls_decided_is_kept_without_its_siblings() {
    let mut found = logs(&[&[record(0, false, Some((7, 4, 3))), record(0, false, Some((8, 5, 3)))]]);
    assert_eq!(dropped(&found, 0), [0, 1]);
    found.get_mut(&log_id(0)).unwrap().resolved = 5;
    assert_eq!(dropped(&found, 0), [1]);
    found.get_mut(&log_id(0)).unwrap().records[1].is_before_sealed = true;
    assert_eq!(dropped(&found, 0), []);
}

#[test]
fn a_void_record_is_dropped_always_and_its_part_does_not_count() {
    let mut found = logs(&[
        &[record(0, true, Some((7, 0, 2))), record(0, false, None)],
        &[record(0, false, Some((7, 0, 2)))],
    ]);
    found.get_mut(&log_id(0)).unwrap().records[1].flags |= FLAG_VOID;
    assert_eq!(dropped(&found, 0), [0, 1]);
    assert_eq!(dropped(&found, 1), [0]);
    assert_eq!(decide(&found, OPENING, false).dropped[&log_id(0)], BTreeSet::from([1]));
}

#[test]
fn batches_of_different_openings_are_not_mixed_up() {
    let mut found = logs(&[&[record(0, false, Some((7, 0, 2)))]]);
    let other = (OPENING + 1) << LOG_ID_OPEN_SHIFT;
    let log = LogRecords { records: vec![record(0, false, Some((7, 0, 2)))], resolved: 0 };
    found.insert(other, log);
    let decisions = decide(&found, OPENING - 1, false);
    assert!(decisions.dropped.values().all(|dropped| dropped.len() == 1));
}
