use super::*;

const DAY: u64 = 86_400_000_000;

/// Notes whenever it is due, as steps a second apart would, `live` bytes at each time.
fn noted(growth: &mut Growth, from_us: u64, until_us: u64, live: impl Fn(u64) -> u64) {
    for now_us in (from_us..until_us).step_by(1_000_000) {
        if growth.is_due(now_us) {
            growth.note(now_us, live(now_us));
        }
    }
}

#[test]
fn a_steady_trend_is_told_whatever_its_length_and_sign() {
    for length_us in [60_000_000, DAY / 24, DAY, 4 * DAY] {
        for daily in [0i64, 1 << 30, -(1 << 30), 1 << 43] {
            let mut growth = Growth::default();
            let began = 7 * DAY;
            let live = |now_us: u64| {
                ((1i128 << 46) + i128::from(daily) * i128::from(now_us - began) / i128::from(DAY)) as u64
            };
            noted(&mut growth, began, began + length_us, live);
            let found = growth.bytes_per_day();
            // A note is a whole number of bytes.
            assert!((found - daily).abs() <= 10_000 + daily.abs() / 1_000_000, "{daily} is told as {found}");
            assert!(growth.notes.len() <= NOTES_MAX);
        }
    }
}

#[test]
fn too_little_tells_nothing() {
    let mut growth = Growth::default();
    noted(&mut growth, 0, 3 * DISTANCE_MIN_US, |now_us| now_us);
    assert_eq!((growth.notes.len(), growth.bytes_per_day()), (3, 0));
}

#[test]
fn what_is_long_past_is_forgotten() {
    let mut growth = Growth::default();
    noted(&mut growth, 0, 10 * DAY, |now_us| now_us / 1_000);
    assert!(growth.bytes_per_day() > 80_000_000);
    let held = 10 * DAY / 1_000;
    noted(&mut growth, 10 * DAY, 12 * DAY, |_| held);
    assert_eq!(growth.bytes_per_day(), 0);
}
