use super::*;
use std::path::Path;
use tierstone::DurableMethod;

/// On a machine that had become slower since the rate was chosen it never came to its end.
#[test]
fn more_gets_than_can_be_answered_do_not_stop_the_operation() {
    let whole = Some("emulated:64MiB".to_owned());
    let choice = StoreChoice { whole, ..StoreChoice::with_cache(MIB, 100, 1, DurableMethod::DurableWrite) };
    let mut target = LocalTarget::open(&choice, Path::new("")).unwrap();
    let key = records(100, 16).key;
    for number in 0..100 {
        target.store().put(&key.key(number), b"value").unwrap();
    }
    let mut gets = Gets {
        clock: SystemClock::default(),
        key,
        records: 100,
        random: SeededRandom::new(1),
        interval_us: None,
        due_us: 0.0,
        began_us: 0,
        latency: LatencyHistogram::default(),
        error: None,
    };
    gets.begin(Some(1e9));
    gets.serve(target.store(), None);
    assert!(gets.error.is_none(), "{:?}", gets.error);
    assert_eq!(gets.latency.count(), (ROUNDS_MAX * CALLERS) as u64);
}
