use super::*;

fn measure(value: u64) -> Measure {
    Measure { rule: "file_lines", subject: "a.rs".into(), line: 0, value, limit: 600, advice: "split it" }
}

fn exceptions(text: &str) -> Exceptions {
    parse(text).unwrap()
}

#[test]
fn within_the_limit_nothing_is_found() {
    assert!(judge(&[measure(600)], &Exceptions::new()).is_empty());
}

#[test]
fn above_the_limit_without_an_exception_is_refused() {
    assert!(judge(&[measure(601)], &Exceptions::new())[0].message.contains("split it"));
}

#[test]
fn an_exception_holds_at_exactly_its_number() {
    let listed = exceptions("[file_lines]\n\"a.rs\" = 700\n");
    assert!(judge(&[measure(700)], &listed).is_empty());
    assert!(judge(&[measure(701)], &listed)[0].message.contains("may only shrink"));
    assert!(judge(&[measure(699)], &listed)[0].message.contains("tighten"));
    assert!(judge(&[measure(600)], &listed)[0].message.contains("remove"));
}

#[test]
fn an_exception_for_something_gone_is_refused() {
    let listed = exceptions("[file_lines]\n\"b.rs\" = 700\n");
    assert!(judge(&[measure(10)], &listed)[0].message.contains("nothing is measured"));
}

#[test]
fn a_ratchet_that_was_loosened_is_noticed() {
    let before = exceptions("[file_lines]\n\"a.rs\" = 700\n\"b.rs\" = 650\n");
    assert!(loosened(&before, &before).is_empty());
    assert!(loosened(&before, &exceptions("[file_lines]\n\"c.rs\" = 700\n")).is_empty());
    assert_eq!(loosened(&before, &exceptions("[file_lines]\n\"a.rs\" = 1400\n")).len(), 1);
    assert_eq!(loosened(&before, &exceptions("[function_lines]\n\"a.rs::f\" = 71\n")).len(), 1);
}

#[test]
fn a_ratchet_file_of_another_shape_is_an_error() {
    assert!(parse("file_lines = 3").is_err());
    assert!(parse("[file_lines]\n\"a.rs\" = -1").is_err());
}
