use super::*;

#[test]
fn numbers_begin_anew_after_the_last_one() {
    assert_eq!((next(1), next(LAST - 1), next(LAST)), (2, LAST, 1));
    assert_eq!((after(LAST - 1, 3), after(1, LAST), after(7, 0)), (2, 1, 7));
    assert_eq!(LAST, u32::MAX - 1, "all ones are no number");
    assert_eq!(next(0), 2, "zero is no number: a log begins at the first one");
}

#[test]
fn of_two_numbers_the_one_a_few_steps_ahead_is_after_the_other() {
    for start in [1, 2, 1_000, u32::MAX / 2, LAST - 2, LAST] {
        for steps in [0, 1, 2, 3, 4_096, AHEAD_MAX - 1] {
            let number = after(start, steps);
            assert_eq!(distance(start, number), steps, "{start} {number}");
            assert!(is_at_or_after(start, number), "{start} {number}");
            assert!(steps == 0 || !is_at_or_after(number, start), "{start} {number}");
        }
        assert!(!is_at_or_after(start, after(start, AHEAD_MAX)), "{start}");
    }
    assert_eq!(distance(LAST, 1), 1);
    assert_eq!(distance(1, LAST), LAST - 1);
}

#[test]
fn damaged_numbers_have_distances_too() {
    for start in [0, 1, LAST, SPARE] {
        for number in [0, 1, LAST, SPARE] {
            assert!(distance(start, number) < LAST);
        }
    }
}
