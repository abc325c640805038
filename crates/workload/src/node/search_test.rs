use super::*;
use proptest::prelude::*;

#[test]
fn short_or_no_patterns_are_refused() {
    assert!(Searcher::new(Vec::new()).is_err());
    assert!(Searcher::new(vec![b"1234567".to_vec()]).is_err());
}

#[test]
fn parts_find_what_the_whole_has() {
    for threads in [1, 3, 7] {
        let work = run((20_000, 300), threads, 7, &mut ()).unwrap();
        assert_eq!(work.amount, 20_000.0);
        assert!(work.note.contains("as an exact automaton"), "{}", work.note);
    }
}

proptest! {
    /// What the filter lets through holds every match, and what is left of it is exactly the matches. Letters are
    /// few, so that patterns overlap and repeat.
    #[test]
    fn the_filter_lets_every_match_through(
        text in prop::collection::vec(0..3u8, 0..400),
        patterns in prop::collection::vec(prop::collection::vec(0..3u8, 8..12), 1..20),
    ) {
        let searcher = Searcher::new(patterns.clone()).unwrap();
        let mut let_through = std::collections::BTreeSet::new();
        searcher.candidates(&text, |place, _| {
            let_through.insert(place);
        });
        let automaton = AhoCorasick::new(&patterns).unwrap();
        for found in automaton.find_overlapping_iter(&text) {
            prop_assert!(let_through.contains(&found.start()), "{} is missing", found.start());
        }
        prop_assert_eq!(searcher.count(&text, text.len()).matches, exact(&patterns, &text).unwrap());
    }
}
