use super::*;

#[test]
fn a_unit_is_taken_once() {
    let mut units = Units::default();
    assert!(!units.take(3, 100, 10..70));
    assert!(!units.take(3, 100, 70..72) && !units.take(4, 100, 10..70));
    assert!(units.take(3, 100, 69..70));
    assert!(!units.take(3, 100, 90..4_000), "beyond the end is nothing");
}
