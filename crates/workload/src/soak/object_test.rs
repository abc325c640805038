use super::*;
use crate::key::SizeDistribution;
use crate::value::ValueSettings;

const VALUE: u64 = ROUND + 20;
const LEASE: u64 = ROUND;
const COUNTER: u64 = ROUND + 3;
const TRANSACTION: u64 = ROUND + 6;
const SPREAD: u64 = ROUND + 9;

fn objects() -> Objects {
    let settings = ValueSettings { size: SizeDistribution::Fixed(40), ..ValueSettings::default() };
    Objects::new(ValueMaker::new(settings, 5))
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    push_header(b'$', bytes.len(), &mut out);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
    out
}

/// What a right server answers to a read after write `version`.
fn answer(number: u64, version: u32) -> Vec<u8> {
    answer_of_parts(number, [version; PARTS])
}

/// What a read of keys would be answered that hold values of these writes.
fn answer_of_parts(number: u64, versions: [u32; PARTS]) -> Vec<u8> {
    let mut objects = objects();
    let mut value = |part: usize| {
        let mut out = Vec::new();
        objects.value(number, part, versions[part], &mut out);
        out
    };
    match kind(number) {
        Kind::Value if versions[0].is_multiple_of(DELETE_EVERY) => b"$-1\r\n".to_vec(),
        Kind::Value | Kind::Lease => value(0),
        Kind::Counter => bulk(versions[0].to_string().as_bytes()),
        Kind::Spread => [b"*3\r\n".to_vec(), value(0), value(1), value(2)].concat(),
        Kind::Transaction => {
            let count = bulk(versions[2].to_string().as_bytes());
            [b"*3\r\n".to_vec(), value(0), value(1), count].concat()
        }
    }
}

fn between(oldest: u32, newest: u32) -> Expected {
    Expected { oldest, newest, asked_us: 0, answered_us: 0, times: None }
}

#[test]
fn a_read_shows_a_write_between_the_acknowledged_and_the_sent() {
    for number in [VALUE, LEASE, COUNTER, TRANSACTION, SPREAD] {
        for version in 3..=8 {
            let judged = Objects::judge(number, &answer(number, version), &between(4, 7));
            assert_eq!(judged.is_ok(), (4..=7).contains(&version), "{number}, {version}: {judged:?}");
        }
    }
    // What is missing was deleted, or never written; or it is lost.
    assert_eq!(Objects::judge(VALUE, b"$-1\r\n", &between(5, 8)), Ok(7));
    assert!(Objects::judge(VALUE, b"$-1\r\n", &between(8, 9)).is_err());
    assert!(Objects::judge(COUNTER, b"$-1\r\n", &between(1, 1)).is_err());
    assert_eq!(Objects::judge(COUNTER, b"$-1\r\n", &between(0, 1)), Ok(0));
}

#[test]
fn damage_other_keys_values_and_halves_of_batches_are_seen() {
    let mut damaged = answer(VALUE, 5);
    damaged[30] ^= 1;
    assert!(Objects::judge(VALUE, &damaged, &between(5, 5)).is_err());
    assert!(Objects::judge(VALUE, &answer(VALUE + 1, 5), &between(5, 5)).is_err());
    assert!(Objects::judge(VALUE, b"*0\r\n", &between(0, 5)).is_err());
    for number in [TRANSACTION, SPREAD] {
        for versions in [[6, 6, 5], [6, 5, 5], [5, 6, 6]] {
            let judged = Objects::judge(number, &answer_of_parts(number, versions), &between(5, 6));
            assert!(judged.is_err(), "{number}: {versions:?}");
        }
    }
    assert!(Objects::judge(SPREAD, b"*2\r\n$-1\r\n$-1\r\n", &between(0, 5)).is_err(), "a key less");
}

#[test]
fn leases_are_there_as_long_as_they_last_and_not_much_longer() {
    let lasts_us = Objects::lease_us(LEASE, 2);
    let times = LeaseTimes { asked_us: 1_000, acknowledged_us: Some(2_000) };
    let at = |us: u64| Expected { asked_us: us, answered_us: us, times: Some(times), ..between(2, 2) };
    let (there, missing) = (answer(LEASE, 2), b"$-1\r\n");
    assert!(Objects::judge(LEASE, &there, &at(lasts_us)).is_ok());
    assert!(Objects::judge(LEASE, &there, &at(2_000 + lasts_us + SLACK_US + 1)).is_err(), "served too long");
    assert!(Objects::judge(LEASE, missing, &at(1_000 + lasts_us)).is_ok());
    assert!(Objects::judge(LEASE, missing, &at(999 + lasts_us - SLACK_US)).is_err(), "gone too soon");
    // A write in doubt may have taken its place.
    assert!(Objects::judge(LEASE, missing, &Expected { newest: 3, ..at(5_000) }).is_ok());
}

#[test]
fn answers_to_writes_are_exact_and_keys_lead_back_to_their_objects() {
    for (number, version, right, wrong) in [
        (VALUE, 6, "+OK\r\n", ":1\r\n"),
        (VALUE, 7, ":1\r\n", ":0\r\n"),
        (COUNTER, 9, ":9\r\n", ":8\r\n"),
        (SPREAD, 2, "+OK\r\n", "$-1\r\n"),
        (TRANSACTION, 4, "*3\r\n+OK\r\n+OK\r\n:4\r\n", "*3\r\n+OK\r\n+OK\r\n:5\r\n"),
    ] {
        assert!(Objects::is_answer(number, version, right.as_bytes()));
        assert!(!Objects::is_answer(number, version, wrong.as_bytes()));
    }
    for number in [VALUE, LEASE, COUNTER, TRANSACTION, SPREAD] {
        for part in 0..Objects::parts(number) {
            let mut request = Vec::new();
            Objects::key(number, part, &mut request);
            let key = bodies(&request).next().flatten().map(<[u8]>::to_vec).unwrap();
            assert_eq!(Objects::of_key(&key), Some((number, part)), "{}", key.escape_ascii());
        }
    }
    assert_eq!(Objects::of_key(b"stranger"), None);
}
