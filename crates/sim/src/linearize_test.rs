use super::*;
use crate::history::History;
use crate::model::{Evicts, ObjectId, Step, Verb};
use tierstone_wire::resp::Value;

const OBJECT: ObjectId = ObjectId { database: 0, number: 0 };

fn step(verb: Verb) -> Vec<Step> {
    vec![Step { key: 0, verb }]
}

fn set(text: &str) -> Vec<Step> {
    step(Verb::Set(text.into()))
}

fn ok() -> Seen {
    Seen::Replies(vec![Value::Simple(b"OK".to_vec())])
}

fn value(text: &str) -> Seen {
    Seen::Replies(vec![Value::Bulk(text.into())])
}

fn verdict(history: &History) -> Verdict {
    check(&history.of(OBJECT), 10_000, Evicts::None)
}

#[test]
fn a_read_sees_the_newest_acknowledged_write_or_a_concurrent_one() {
    for (seen, is_possible) in [("a", true), ("b", true), ("c", false)] {
        let mut history = History::default();
        let first = history.ask(1, OBJECT, set("a"), 0);
        history.end(first, ok(), 0);
        let second = history.ask(2, OBJECT, set("b"), 0);
        let read = history.ask(3, OBJECT, step(Verb::Get), 0);
        history.end(read, value(seen), 0);
        history.end(second, ok(), 0);
        assert_eq!(verdict(&history) == Verdict::Explained, is_possible, "{seen}");
    }
}

#[test]
fn an_acknowledged_write_is_not_forgotten() {
    let mut history = History::default();
    for text in ["a", "b"] {
        let write = history.ask(1, OBJECT, set(text), 0);
        history.end(write, ok(), 0);
    }
    let read = history.ask(2, OBJECT, step(Verb::Get), 0);
    history.end(read, value("a"), 0);
    assert!(matches!(verdict(&history), Verdict::Impossible(_)));
}

#[test]
fn an_unanswered_write_is_there_or_not_and_does_not_come_after_its_end() {
    for (first, second, is_possible) in
        [("a", "a", true), ("b", "b", true), ("a", "b", false), ("b", "a", false)]
    {
        let mut history = History::default();
        let write = history.ask(1, OBJECT, set("a"), 0);
        history.end(write, ok(), 0);
        let lost = history.ask(1, OBJECT, set("b"), 0);
        history.end(lost, Seen::Nothing, 0);
        for seen in [first, second] {
            let read = history.ask(2, OBJECT, step(Verb::Get), 0);
            history.end(read, value(seen), 0);
        }
        assert_eq!(verdict(&history) == Verdict::Explained, is_possible, "{first} then {second}");
    }
}

#[test]
fn requests_of_one_connection_keep_their_order() {
    let mut history = History::default();
    let write = history.ask(1, OBJECT, set("a"), 0);
    let read = history.ask(1, OBJECT, step(Verb::Get), 0);
    history.end(write, ok(), 0);
    history.end(read, Seen::Replies(vec![Value::Null]), 0);
    assert!(matches!(verdict(&history), Verdict::Impossible(_)));
}

#[test]
fn half_a_batch_is_never_seen() {
    let both = |text: &str| (0..2).map(|key| Step { key, verb: Verb::Set(text.into()) }).collect::<Vec<_>>();
    let mut history = History::default();
    let write = history.ask(1, OBJECT, both("a"), 0);
    let read = history.ask(2, OBJECT, (0..2).map(|key| Step { key, verb: Verb::Get }).collect(), 0);
    history.end(read, Seen::Replies(vec![Value::Bulk(b"a".to_vec()), Value::Null]), 0);
    history.end(write, Seen::Replies(vec![Value::Simple(b"OK".to_vec()); 2]), 0);
    assert!(matches!(verdict(&history), Verdict::Impossible(_)));
}

#[test]
fn a_key_that_expires_goes_within_its_time() {
    for (read_at, seen, is_possible) in [
        (5, value("a"), true),
        (5, Seen::Replies(vec![Value::Null]), false),
        (10, value("a"), true),
        (11, Seen::Replies(vec![Value::Null]), true),
        (13, value("a"), false),
    ] {
        let mut history = History::default();
        let write = history.ask(1, OBJECT, step(Verb::SetFor("a".into(), 10)), 0);
        history.end(write, ok(), 2);
        let read = history.ask(2, OBJECT, step(Verb::Get), read_at);
        history.end(read, seen.clone(), read_at);
        assert_eq!(verdict(&history) == Verdict::Explained, is_possible, "{seen:?} at {read_at}");
    }
}

#[test]
fn a_transaction_in_doubt_leaves_out_what_could_not_be_read_and_nothing_else() {
    let two = |text: &str| {
        vec![
            Step { key: 0, verb: Verb::Set(text.into()) },
            Step { key: 1, verb: Verb::Take },
            Step { key: 0, verb: Verb::Take },
        ]
    };
    let both = || (0..2).map(|key| Step { key, verb: Verb::Get }).collect::<Vec<_>>();
    let bulk = |text: &str| Value::Bulk(text.into());
    // Key 1 was read, or not; but key 0 was set blindly, and taken from memory.
    for (seen, is_faulty, is_possible) in [
        ((Value::Null, Value::Null), false, true),
        ((bulk("a"), bulk("b")), false, true),
        ((Value::Null, bulk("b")), true, true),
        ((Value::Null, bulk("b")), false, false),
        ((bulk("c"), bulk("b")), true, false),
        ((bulk("a"), Value::Null), true, false),
    ] {
        let mut history = History::default();
        for (key, text) in [(0, "a"), (1, "b")] {
            let id = history.ask(1, OBJECT, vec![Step { key, verb: Verb::Set(text.into()) }], 0);
            history.end(id, ok(), 0);
        }
        let lost = history.ask(2, OBJECT, two("c"), 0);
        let read = history.ask(3, OBJECT, both(), 0);
        history.end(read, Seen::Replies(vec![seen.0.clone(), seen.1.clone()]), 0);
        history.end_in_doubt(lost, is_faulty, 0);
        let found = verdict(&history) == Verdict::Explained;
        assert_eq!(found, is_possible, "{seen:?}, faulty: {is_faulty}");
    }
}

#[test]
fn a_read_that_says_nothing_of_it_leaves_what_is_in_doubt_its_chance() {
    let mut history = History::default();
    let first = history.ask(1, OBJECT, set("a"), 0);
    history.end(first, ok(), 0);
    let lost = history.ask(2, OBJECT, vec![Step { key: 1, verb: Verb::Set("b".into()) }], 0);
    history.end(lost, Seen::Nothing, 0);
    let (key_0, key_1) = (step(Verb::Get), vec![Step { key: 1, verb: Verb::Get }]);
    let reads = [history.ask(3, OBJECT, key_0, 0), history.ask(4, OBJECT, key_1, 0)];
    history.end(reads[0], value("a"), 0);
    history.end(reads[1], value("b"), 0);
    assert_eq!(verdict(&history), Verdict::Explained);
}

/// Two databases' keys; the first expires at 10, the clock is set back and the node starts again.
#[test]
fn what_nobody_saw_expire_may_be_there_after_a_start_with_an_earlier_clock() {
    for (is_shown, is_possible) in [(false, true), (true, false)] {
        let mut history = History::default();
        let write = history.ask(1, OBJECT, step(Verb::SetFor("a".into(), 10)), 0);
        history.end(write, ok(), 0);
        let at_other_key = |verb| vec![Step { key: 1, verb }];
        let other = history.ask(1, OBJECT, at_other_key(Verb::Set("b".into())), 50);
        history.end(other, ok(), 50);
        if is_shown {
            let read = history.ask(1, OBJECT, step(Verb::Get), 50);
            history.end(read, Seen::Replies(vec![Value::Null]), 50);
        }
        let read = history.ask(2, OBJECT, step(Verb::Get), 5);
        history.end(read, value("a"), 50);
        assert_eq!(verdict(&history) == Verdict::Explained, is_possible, "shown: {is_shown}");
    }
}

/// Set, read as gone, read again: what was seen to have gone does not come back, and where keys are not evicted it does not go.
#[test]
fn a_key_may_be_evicted_and_does_not_come_back() {
    for (again, evicts, is_possible) in [
        (Value::Null, Evicts::All, true),
        (Value::Bulk("a".into()), Evicts::All, false),
        (Value::Null, Evicts::None, false),
    ] {
        let mut history = History::default();
        let write = history.ask(1, OBJECT, set("a"), 0);
        history.end(write, ok(), 0);
        for seen in [Value::Bulk("a".into()), Value::Null, again.clone()] {
            let read = history.ask(1, OBJECT, step(Verb::Get), 0);
            history.end(read, Seen::Replies(vec![seen]), 0);
        }
        let verdict = check(&history.of(OBJECT), 10_000, evicts);
        assert_eq!(verdict == Verdict::Explained, is_possible, "{again:?}, {evicts:?}: {verdict:?}");
    }
}

#[test]
fn which_of_many_in_doubt_took_effect_makes_no_difference_once_they_have_ended() {
    for (seen, is_possible) in [("0", true), ("16", true), ("17", false)] {
        let mut history = History::default();
        let write = history.ask(0, OBJECT, set("0"), 0);
        history.end(write, ok(), 0);
        for connection in 1..=16 {
            let lost = history.ask(connection, OBJECT, step(Verb::Add(1)), 0);
            history.end(lost, Seen::Nothing, 0);
        }
        let read = history.ask(20, OBJECT, step(Verb::Get), 0);
        history.end(read, value(seen), 0);
        match verdict(&history) {
            Verdict::Explained => assert!(is_possible, "{seen}"),
            Verdict::Impossible(_) => assert!(!is_possible, "{seen}"),
            Verdict::TooHard => panic!("{seen}: there are seventeen states, not two to the sixteenth"),
        }
    }
}

/// A key that expires late is set, perhaps told to stay, and read as gone.
#[test]
fn where_keys_that_expire_are_evicted_the_others_stay() {
    for (verb, is_possible) in [(Verb::Get, true), (Verb::Persist, false)] {
        let mut history = History::default();
        let write = history.ask(1, OBJECT, step(Verb::SetFor("a".into(), 1_000_000)), 0);
        history.end(write, ok(), 0);
        let seen = if verb == Verb::Get { Value::Bulk("a".into()) } else { Value::Integer(1) };
        for (verb, seen) in [(verb.clone(), seen), (Verb::Get, Value::Null)] {
            let asked = history.ask(1, OBJECT, step(verb), 0);
            history.end(asked, Seen::Replies(vec![seen]), 0);
        }
        let verdict = check(&history.of(OBJECT), 10_000, Evicts::Expiring);
        assert_eq!(verdict == Verdict::Explained, is_possible, "{verb:?}: {verdict:?}");
    }
}
