use super::*;

#[test]
fn a_column_is_a_sample_as_high_as_it_took_with_its_age_below() {
    let samples = [(0, 101), (86_000, 210), (86_380, 320), (86_395, 500)];
    let text = graph("command", &samples, 900, 86_400);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "command - high 500 ms, low 101 ms (all time high 900 ms)");
    assert_eq!(lines[1], "-".repeat(80));
    assert_eq!(lines[2..6], ["   #", "  _|", " _||", "_|||"]);
    assert_eq!(lines[6..], ["", "1625", "dm0s", "  s "]);
}

#[test]
fn samples_that_are_alike_lie_on_the_floor_and_many_go_into_several_pictures() {
    let samples: Vec<(u64, u64)> = (0..100).map(|second| (second, 7)).collect();
    let text = graph("fast-command", &samples, 7, 100);
    assert_eq!(text.matches('_').count(), 100);
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    assert_eq!(age(59), "59s");
    assert_eq!(age(3_599), "59m");
    assert_eq!(age(7_200), "2h");
}
