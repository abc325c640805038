//! The published tests hold; claims that are wrong fail; texts that are wrong are refused.

use super::*;

#[test]
fn every_published_test_holds() {
    for (file, text) in PUBLISHED {
        let report = Litmus::parse(text).unwrap_or_else(|error| panic!("{file}: {error}")).run().unwrap();
        assert!(report.holds(), "{file}\n{report}");
        assert!(report.executions > 0 && !report.checks.is_empty());
    }
}

#[test]
fn every_file_of_the_folder_is_published() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("litmus");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let mut shipped: Vec<String> = PUBLISHED.iter().map(|(name, _)| (*name).to_owned()).collect();
    files.sort();
    shipped.sort();
    assert_eq!(files, shipped);
}

const SMALL: &str = "litmus small\npersistent a b\nthread 1\nA: store a 1\nbarrier\nB: store b 1\n";

#[test]
fn a_claim_that_is_wrong_fails_and_says_where() {
    for claim in [
        "concurrent A B",
        "before B A",
        "allowed a=0 b=1",
        "forbidden a=1 b=0",
        "cycle",
        "forbidden at end a=0 b=0",
    ] {
        let report = Litmus::parse(&format!("{SMALL}under epoch\n{claim}\n")).unwrap().run().unwrap();
        assert!(!report.holds(), "{claim}: {report}");
        assert!(report.to_string().contains(&format!("FAILS under epoch: {claim} (line 8)")), "{report}");
    }
    for claim in ["before A B", "forbidden a=0 b=1", "allowed a=1 b=0", "no cycle", "no deadlock"] {
        assert!(
            Litmus::parse(&format!("{SMALL}under epoch\n{claim}\n")).unwrap().run().unwrap().holds(),
            "{claim}"
        );
    }
}

#[test]
fn a_text_that_is_wrong_is_refused_with_its_line() {
    for (line, why) in [
        ("store c 1", "not declared"),
        ("A: store a 2", "twice"),
        ("jump a", "not a step"),
        ("X: barrier", "only accesses"),
        ("store a one", "no number"),
        ("persistent a", "twice"),
        ("thread 1", "thread 1 is there twice; the next is thread 2"),
        ("thread 2\nbarrier\nthread 2", "twice"),
        ("thread 3", "the next is thread 2"),
        ("thread 2\nbarrier\nthread 0", "the next is thread 3"),
        ("thread", "one number"),
        ("thread 2 3", "one number"),
        ("thread b\nbarrier\nthread b", "twice"),
        ("under", "no model"),
        ("under epoch\nbefore A B\nunder", "no model"),
        ("under total", "no model"),
        ("under epoch\nmaybe a=1", "not a claim"),
        ("under epoch\nbefore A Z", "label"),
        ("under epoch\nallowed z=1", "not a claim"),
    ] {
        let error = Litmus::parse(&format!("{SMALL}{line}\nunder epoch\nbefore A B\n")).unwrap_err();
        assert!(error.message().contains(why) && error.message().contains("line "), "{line}: {error}");
    }
    for text in
        ["", "litmus nothing", "litmus none\nthread 1\nbarrier\n", "persistent a\nthread 1\nstore a 1\n"]
    {
        assert!(Litmus::parse(text).is_err(), "{text}");
    }
}

#[test]
fn threads_have_numbers_in_order_or_names() {
    for thread in ["2", "b"] {
        let text = format!("{SMALL}thread {thread}\nstore a 2\nthread 3\nbarrier\nunder epoch\nbefore A B\n");
        assert_eq!(Litmus::parse(&text).unwrap().threads.len(), 3);
    }
}

#[test]
fn a_test_that_no_execution_fits_is_refused() {
    let text = format!("{SMALL}sees B before A\nunder epoch\nbefore A B\n");
    assert!(Litmus::parse(&text).unwrap().run().unwrap_err().message().contains("no execution"));
}

#[test]
fn texts_that_are_mangled_give_an_error_or_a_test_and_no_panic() {
    let mut random = tierstone_base::SeededRandom::new(4);
    for (_, text) in PUBLISHED {
        let lines: Vec<&str> = text.lines().collect();
        for _ in 0..300 {
            let mut mangled: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            for _ in 0..=random.below(2) {
                let at = random.below(mangled.len() as u64) as usize;
                match random.below(3) {
                    0 => drop(mangled.remove(at)),
                    1 => mangled[at] = lines[random.below(lines.len() as u64) as usize].to_owned(),
                    _ => {
                        let keep =
                            mangled[at].char_indices().map(|(at, _)| at).nth(random.below(20) as usize);
                        mangled[at].truncate(keep.unwrap_or(0));
                    }
                }
            }
            let _ = Litmus::parse(&mangled.join("\n"));
        }
    }
}
