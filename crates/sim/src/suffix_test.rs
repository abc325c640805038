use super::*;
use crate::model::WallSpan;

const LIVES: [Life; 2] = [Life { began: 0, shards: 1 }, Life { began: 1_000, shards: 1 }];

fn event(number: u32, verb: Verb, (asked, ended): (u64, u64), reply: Value) -> Event {
    Event {
        object: ObjectId { database: 0, number },
        connection: 1,
        steps: vec![Step { key: 0, verb }],
        asked,
        ended,
        span: WallSpan { from_ms: 0, to_ms: 0 },
        seen: Seen::Replies(vec![reply]),
        reads_may_fail: false,
        survives: false,
    }
}

/// Two registers; the first is written twice, the second once, and both are read after the crash.
fn findings(second_asked: u64, first_read: &str, second_read: &str) -> Findings {
    let ok = || Value::Simple(b"OK".to_vec());
    let read = |text: &str| Value::Bulk(text.into());
    let events = vec![
        event(0, Verb::Set("a".into()), (1, 2), ok()),
        event(0, Verb::Set("b".into()), (3, 6), ok()),
        event(6, Verb::Set("c".into()), (second_asked, 9), ok()),
        event(0, Verb::Get, (1_001, 1_002), read(first_read)),
        event(6, Verb::Get, (1_003, 1_004), read(second_read)),
    ];
    let mut history = History::default();
    history.events = events;
    check(&history, &LIVES)
}

#[test]
fn a_write_that_outlives_one_acknowledged_before_it_was_asked_for_is_noticed() {
    assert!(findings(7, "a", "c").violation.is_some());
}

#[test]
fn the_end_of_a_log_may_be_lost_and_concurrent_writes_have_no_order() {
    for (asked, first, second) in [(7, "b", "c"), (5, "a", "c"), (7, "b", "d"), (7, "a", "d")] {
        assert_eq!(findings(asked, first, second).violation, None, "{asked} {first} {second}");
    }
    assert_eq!(findings(7, "a", "d").lost, 1);
}
