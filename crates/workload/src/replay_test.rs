use super::plan::VALUE_BYTES_MAX;
use super::*;
use crate::trace::{TraceHead, TraceKey, TraceOperation, TraceReader, TraceRecord, TraceSource, TraceWriter};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const HEAD: TraceHead = TraceHead { source: TraceSource::Server, is_anonymous: false, began_ms: 0 };

fn plan_of(records: &[TraceRecord], settings: &PlanSettings) -> Result<ReplayPlan> {
    let mut writer = TraceWriter::new(Vec::new(), &HEAD).unwrap();
    records.iter().for_each(|record| writer.push(record).unwrap());
    let bytes = writer.finish().unwrap();
    ReplayPlan::read(&mut TraceReader::new(Cursor::new(bytes)).unwrap(), settings)
}

fn at(time_us: u64, operation: TraceOperation, key: &str) -> TraceRecord {
    TraceRecord::new(time_us, operation, TraceKey::of(key.as_bytes()))
}

fn sized(record: TraceRecord, bytes: u32) -> TraceRecord {
    TraceRecord { value_bytes: Some(bytes), ..record }
}

/// What a call did, in the order of the calls.
type Log = Arc<Mutex<Vec<(String, Vec<u8>, usize, Option<Duration>)>>>;

/// A map, and everything that was asked of it.
#[derive(Clone, Default)]
struct Map {
    values: Arc<Mutex<BTreeMap<Vec<u8>, Vec<u8>>>>,
    log: Log,
    breaks: bool,
}

impl Map {
    fn note(&self, what: &str, key: &[u8], bytes: usize, expiry: Option<Duration>) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push((what.to_owned(), key.to_vec(), bytes, expiry));
    }
}

impl ReplayTarget for Map {
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.values.lock().unwrap().get(key).cloned();
        self.note("get", key, found.as_ref().map_or(0, Vec::len), None);
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        if self.breaks && !value.is_empty() {
            value[0] ^= 1;
        }
        Ok(found.is_some())
    }

    fn put(&mut self, key: &[u8], value: &[u8], expiry: Option<Duration>) -> Result<()> {
        self.note("put", key, value.len(), expiry);
        self.values.lock().unwrap().insert(key.to_vec(), value.to_vec());
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        self.note("delete", key, 0, None);
        Ok(self.values.lock().unwrap().remove(key).is_some())
    }

    fn put_many(&mut self, records: &[(&[u8], &[u8])]) -> Result<()> {
        records.iter().try_for_each(|(key, value)| self.put(key, value, None))
    }
}

const FAST: ReplaySettings = ReplaySettings { pace: Pace::AsFastAsPossible, callers: 1, seed: 3 };

fn replayed(plan: &ReplayPlan, settings: &ReplaySettings, map: &Map) -> ReplayOutcome {
    let mut go_on = |_| ControlFlow::Continue(());
    let loaded = load(plan, settings, &mut || Ok(map.clone()), &mut go_on).unwrap();
    assert_eq!(loaded.operations, plan.report().loaded_keys);
    map.log.lock().unwrap().clear();
    run(plan, settings, &mut || Ok(map.clone()), &mut go_on).unwrap()
}

#[test]
fn every_operation_does_what_the_trace_says_at_its_size() {
    use TraceOperation::{Add, Append, Delete, Expire, Read, Replace, Update, Write};
    let expiring = TraceRecord { expiry_ms: Some(5_000), ..at(9, Expire, "a") };
    let records = [
        sized(at(0, Write, "a"), 30),
        sized(at(1, Add, "a"), 99),
        sized(at(2, Add, "b"), 40),
        sized(at(3, Replace, "c"), 50),
        sized(at(4, Replace, "b"), 60),
        at(5, Update, "b"),
        sized(at(6, Append, "b"), 5),
        at(7, Read, "b"),
        at(8, Delete, "b"),
        expiring,
        at(10, Read, "b"),
    ];
    let plan = plan_of(&records, &PlanSettings::default()).unwrap();
    assert_eq!(plan.report().loaded_keys, 1, "c is changed, and never written");
    let map = Map::default();
    let outcome = replayed(&plan, &FAST, &map);
    let log = map.log.lock().unwrap();
    let done: Vec<(&str, &[u8], usize)> =
        log.iter().map(|(what, key, bytes, _)| (what.as_str(), key.as_slice(), *bytes)).collect();
    let expected: &[(&str, &[u8], usize)] = &[
        ("put", b"a", 30),
        ("get", b"a", 30),
        ("get", b"b", 0),
        ("put", b"b", 40),
        ("get", b"c", 50),
        ("put", b"c", 50),
        ("get", b"b", 40),
        ("put", b"b", 60),
        ("get", b"b", 60),
        ("put", b"b", 60),
        ("get", b"b", 60),
        ("put", b"b", 65),
        ("get", b"b", 65),
        ("delete", b"b", 0),
        ("get", b"a", 30),
        ("put", b"a", 30),
        ("get", b"b", 0),
    ];
    assert_eq!(done, expected);
    assert_eq!(log.iter().filter_map(|(.., expiry)| *expiry).collect::<Vec<_>>(), [Duration::from_secs(5)]);
    assert_eq!((outcome.reads.count, outcome.writes.count), (2, 9));
    // Calls of less than a microsecond have a latency too.
    for summary in [outcome.reads, outcome.writes] {
        assert!(
            summary.mean_us > 0.0 && summary.max_us > 0.0 && summary.p50_us <= summary.max_us,
            "{summary:?}"
        );
    }
    assert_eq!((outcome.outcome.misses, outcome.outcome.verification_failures), (1, 0));
    assert!(outcome.outcome.is_clean());
}

#[test]
fn what_is_read_and_never_written_is_loaded_and_the_rest_is_said() {
    use TraceOperation::{Delete, Other, Read, Size, Write};
    let records = [
        at(0, Read, "only-read"),
        at(1, Read, "filled"),
        sized(at(2, Write, "filled"), 77),
        TraceRecord { is_miss: true, ..at(3, Read, "never-there") },
        at(4, Delete, "gone"),
        at(5, Other("hset".into()), "h"),
        at(6, Other("hset".into()), "h"),
        sized(at(7, Write, "long"), VALUE_BYTES_MAX + 1),
        sized(at(8, Read, "told"), 12),
        TraceRecord { database: 2, ..at(9, Read, "only-read") },
        sized(TraceRecord { database: 2, ..at(9, Size, "only-read") }, 33),
    ];
    let report = plan_of(&records, &PlanSettings::default()).unwrap().report().clone();
    assert_eq!((report.operations, report.reads, report.keys), (7, 5, 6));
    assert_eq!((report.loaded_keys, report.loaded_of_assumed_size, report.assumed_bytes), (3, 1, 77));
    assert_eq!(report.loaded_bytes, 77 + 12 + 33);
    assert_eq!((report.keys_read_before_written, report.values_too_long), (1, 1));
    assert_eq!((report.not_replayed["hset"], report.left_out()), (2, 3));
    let all = PlanSettings { load: LoadRule::FirstUse, value_bytes: Some(9), ..PlanSettings::default() };
    let report = plan_of(&records, &all).unwrap().report().clone();
    assert_eq!((report.loaded_keys, report.loaded_of_assumed_size), (5, 2), "filled and gone, too");
    assert_eq!((report.keys_read_before_written, report.loaded_bytes), (0, 9 + 77 + 9 + 12 + 33));
}

#[test]
fn a_part_of_a_trace_can_be_taken_and_nothing_is_refused() {
    use TraceOperation::Read;
    let records: Vec<TraceRecord> = (0..100).map(|number| at(number * 100_000, Read, "k")).collect();
    let part = PlanSettings { operations_max: Some(7), ..PlanSettings::default() };
    assert_eq!(plan_of(&records, &part).unwrap().operations(), 7);
    let part = PlanSettings { seconds_max: Some(1.0), ..PlanSettings::default() };
    assert_eq!(plan_of(&records, &part).unwrap().operations(), 11);
    let none = PlanSettings { operations_max: Some(0), ..PlanSettings::default() };
    assert_eq!(plan_of(&records, &none).unwrap_err().kind(), ErrorKind::InvalidInput);
    for settings in [
        ReplaySettings { callers: 0, ..FAST },
        ReplaySettings { pace: Pace::Recorded { speed: 0.0 }, ..FAST },
        ReplaySettings { pace: Pace::Recorded { speed: f64::NAN }, ..FAST },
    ] {
        assert_eq!(settings.validate().unwrap_err().kind(), ErrorKind::InvalidInput, "{settings:?}");
    }
}

#[test]
fn at_recorded_times_nothing_is_early_and_the_order_of_each_key_stays() {
    use TraceOperation::{Read, Write};
    let mut records = Vec::new();
    for number in 0..60u32 {
        let key = format!("key{}", number % 6);
        let record = at(u64::from(number) * 1_000, if number % 3 == 0 { Write } else { Read }, &key);
        records.push(if number % 3 == 0 { sized(record, 100 + number) } else { record });
    }
    let plan =
        plan_of(&records, &PlanSettings { load: LoadRule::FirstUse, ..PlanSettings::default() }).unwrap();
    let settings = ReplaySettings { pace: Pace::Recorded { speed: 2.0 }, callers: 4, seed: 1 };
    let map = Map::default();
    let outcome = replayed(&plan, &settings, &map).outcome;
    assert_eq!((outcome.operations, outcome.misses, outcome.verification_failures), (60, 0, 0));
    // 59 ms at double speed: the last operation was not begun before.
    assert!(outcome.seconds >= 0.0295, "{}", outcome.seconds);
    assert!(outcome.rate_intended.unwrap() > 2_000.0 && outcome.send_delay.unwrap().count == 60);
    for key in 0..6u32 {
        let name = format!("key{key}").into_bytes();
        let log = map.log.lock().unwrap();
        let sizes: Vec<usize> = log
            .iter()
            .filter(|(what, of, ..)| what == "put" && *of == name)
            .map(|(_, _, bytes, _)| *bytes)
            .collect();
        assert!(sizes.is_sorted(), "{sizes:?}");
    }
}

#[test]
fn wrong_values_and_stops_are_seen() {
    use TraceOperation::Read;
    let records: Vec<TraceRecord> = (0..50).map(|number| at(number, Read, "k")).collect();
    let plan = plan_of(&records, &PlanSettings::default()).unwrap();
    let broken = Map { breaks: true, ..Map::default() };
    assert_eq!(replayed(&plan, &FAST, &broken).outcome.verification_failures, 50);
    let far: Vec<TraceRecord> = (0..2).map(|number| at(number * 3_600_000_000, Read, "k")).collect();
    let plan = plan_of(&far, &PlanSettings::default()).unwrap();
    let settings = ReplaySettings { callers: 1, ..ReplaySettings::default() };
    let outcome = run(&plan, &settings, &mut || Ok(Map::default()), &mut |_| ControlFlow::Break(())).unwrap();
    assert!(!outcome.outcome.is_clean() && outcome.outcome.unanswered >= 1);
}
