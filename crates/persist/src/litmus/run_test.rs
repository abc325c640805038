//! Claims about states that are too many to try are decided all the same; what is tried of one test is bounded.

use super::*;
use std::fmt::Write;

/// One thread that stores to `words` words without a barrier, and claims.
fn unordered(words: usize, claims: &str) -> String {
    let names: Vec<String> = (0..words).map(|word| format!("a{word}")).collect();
    let mut text = format!("litmus unordered\npersistent {}\nthread 1\n", names.join(" "));
    for name in names {
        let _ = writeln!(text, "store {name} 1");
    }
    format!("{text}under epoch\n{claims}\n")
}

/// `threads` threads that each store `stores` times to a word of their own.
fn concurrent(threads: usize, stores: usize, rest: &str) -> Litmus {
    let mut text = String::from("litmus concurrent\npersistent a0 a1 a2\n");
    for thread in 0..threads {
        let _ = writeln!(text, "thread {}", thread + 1);
        (1..=stores).for_each(|value| {
            let _ = writeln!(text, "S{thread}{value}: store a{thread} {value}");
        });
    }
    Litmus::parse(&format!("{text}{rest}\n")).unwrap()
}

/// What becomes of it within so many tries.
fn within(litmus: &Litmus, tries: u64) -> Result<LitmusReport> {
    run_within(litmus, Limits { tries, ..LIMITS }, &mut |_| Ok(()))
}

#[test]
fn claims_of_states_are_right_however_many_states_there_are() {
    for words in [3, 20, 21, 24, 60] {
        let last = words - 1;
        for (claim, holds) in [
            ("forbidden a0=1".to_owned(), false),
            ("allowed a0=1".to_owned(), true),
            (format!("allowed a0=1 a1=0 a{last}=1"), true),
            (format!("forbidden a0=0 a1=1 a{last}=0"), false),
            (format!("forbidden a{last}=2"), true),
            ("allowed at end a0=0".to_owned(), true),
        ] {
            let report = Litmus::parse(&unordered(words, &claim)).unwrap().run().unwrap();
            assert_eq!(report.holds(), holds, "{words} words, {claim}: {report}");
        }
    }
}

#[test]
fn executions_are_bounded_and_the_limit_is_named() {
    let few = concurrent(2, 3, "under epoch\nno cycle");
    assert_eq!(within(&few, 20).unwrap().executions, 20);
    let many = concurrent(3, 8, "under epoch\nallowed a0=1");
    for (litmus, limit) in [(&few, 19), (&many, 10_000)] {
        let error = within(litmus, limit).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains(&format!("more than {limit} executions and states")), "{error}");
    }
}

#[test]
fn ways_that_sees_leads_into_are_counted_though_no_execution_comes_of_them() {
    // All stores of the first two threads may come in any order; then each of the last two waits for the other.
    let stuck = concurrent(2, 4, "sees S04 before S14\nsees S14 before S04\nunder epoch\nno cycle");
    assert!(within(&stuck, 1_000).unwrap_err().message().contains("no execution"));
    assert!(within(&stuck, 19).unwrap_err().message().contains("more than 19 executions and states"));
}

#[test]
fn executions_and_the_states_of_all_claims_have_one_limit() {
    let text = "litmus ordered\npersistent a b\nthread 1\nstore a 1\nbarrier\nstore b 1\nthread 2\nload a\nunder epoch\n\
                forbidden a=0 b=1\nforbidden at end a=0 b=1\n";
    let litmus = Litmus::parse(text).unwrap();
    let executions = litmus.run().unwrap().executions;
    let tries = executions + 2 * executions;
    assert!(within(&litmus, tries).unwrap().holds());
    assert!(within(&litmus, tries - 1).unwrap_err().message().contains(&format!("more than {}", tries - 1)));
}

#[test]
fn nothing_comes_between_the_load_and_the_store_of_a_read_modify_write_without_a_label() {
    let text =
        "litmus swap\npersistent a b\nthread 1\nrmw a 1\nthread 2\nA: store a 2\nunder epoch\nno cycle\n";
    assert_eq!(Litmus::parse(text).unwrap().run().unwrap().executions, 2);
    // A load and a store are no such pair, whatever stands before the store.
    let apart = text.replace("rmw a 1", "load a\nB: store a 1");
    assert_eq!(Litmus::parse(&apart).unwrap().run().unwrap().executions, 3);
}

#[test]
fn a_test_of_more_steps_than_the_walk_goes_deep_is_refused() {
    let text = format!("litmus long\nthread 1\n{}under epoch\nno cycle\n", "barrier\n".repeat(100_000));
    assert!(Litmus::parse(&text).unwrap_err().message().contains("more than 1000 steps"));
    let text = format!("litmus long\nthread 1\n{}under epoch\nno cycle\n", "barrier\n".repeat(1_000));
    assert!(Litmus::parse(&text).unwrap().run().unwrap().holds());
}

/// Few executions of many steps take as long as many of few.
#[test]
fn work_is_bounded_by_the_steps_of_all_executions_and_orders() {
    let within = |litmus: &Litmus, steps: u64| {
        let mut told = Vec::new();
        let result = run_within(litmus, Limits { steps, ..LIMITS }, &mut |done| {
            told.push(done);
            Ok(())
        });
        (result, told)
    };
    let claims = "under strict buffered epoch strand bpfs\nno cycle\nforbidden a0=4 a1=0 a2=0\n";
    // Of 20 executions of 6 steps each has five orders, and five observers.
    let small = concurrent(2, 3, claims);
    assert!(within(&small, 20 * 6 * 11).0.unwrap_err().message().contains("more than 1320 steps"));
    assert!(within(&small, 20 * 6 * 11 * 4).0.unwrap().holds());
    // A hundred and one executions of a hundred and one steps.
    let mut text = "litmus long\npersistent a b\nthread 1\n".to_owned();
    (1..=100).for_each(|value| _ = writeln!(text, "store a {value}"));
    let long =
        Litmus::parse(&format!("{text}thread 2\nstore b 1\n{claims}").replace("a0=4 a1=0 a2=0", "a=0 b=2"));
    let long = long.unwrap();
    let (result, told) = within(&long, 2_000_000);
    assert!(result.unwrap().holds() && told.len() > 1 && told.is_sorted(), "{told:?}");
    let error = within(&long, 100_000).0.unwrap_err();
    assert!(
        error.kind() == ErrorKind::InvalidInput && error.message().contains("long takes more"),
        "{error}"
    );
}

#[test]
fn what_watches_ends_a_run() {
    let litmus = concurrent(3, 4, "under epoch\nno cycle");
    let stop = || Error::new(ErrorKind::Retry, "stopped");
    assert_eq!(litmus.run_watched(|_| Err(stop())).unwrap_err().kind(), ErrorKind::Retry);
}

#[test]
fn a_test_of_more_threads_than_have_numbers_is_refused() {
    let threads: String = (1..=70_000).map(|number| format!("thread {number}\n")).collect();
    let text = format!("litmus wide\npersistent a\n{threads}store a 1\nunder epoch\nno cycle\n");
    assert!(Litmus::parse(&text).unwrap_err().message().contains("more than 1000 steps, threads"));
}
