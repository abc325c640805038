use super::*;
use crate::ratchet::{Exceptions, judge};

const LICENSE: (&str, &str) = ("LICENSE", "Apache License\n");

fn found(path: &str, text: &str) -> Vec<String> {
    let tree = Tree::of(&[LICENSE, ("crates/a/src/lib.rs", "//! A.\nmod b;\n"), (path, text)]);
    findings(&tree, &Modules::of(&tree)).into_iter().map(|finding| finding.to_string()).collect()
}

fn measured(path: &str, text: &str) -> Vec<String> {
    let tree = Tree::of(&[(path, text)]);
    let findings = judge(&measures(&tree, &Modules::of(&tree)), &Exceptions::new());
    findings.into_iter().map(|finding| finding.to_string()).collect()
}

#[test]
fn a_tidy_file_has_no_findings() {
    assert_eq!(found("crates/a/src/b.rs", "//! B.\n"), Vec::<String>::new());
}

#[test]
fn a_long_file_is_found_and_a_test_may_be_longer() {
    let lines = "//\n".repeat(601);
    assert_eq!(measured("crates/a/src/lib.rs", &lines).len(), 1);
    assert_eq!(measured("crates/a/src/lib_test.rs", &lines).len(), 0);
    assert_eq!(measured("crates/a/tests/x.rs", &"//\n".repeat(1001)).len(), 1);
}

#[test]
fn a_long_function_is_found() {
    let body = |lines: usize| format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines));
    assert_eq!(measured("crates/a/src/lib.rs", &body(68)).len(), 0);
    assert_eq!(measured("crates/a/src/lib.rs", &body(69)).len(), 1);
}

#[test]
fn a_module_without_a_purpose_is_found() {
    assert_eq!(found("crates/a/src/b.rs", "fn f() {}\n").len(), 1);
}

#[test]
fn a_postponed_task_needs_a_reason() {
    for word in ["TODO", "FIXME"] {
        assert_eq!(found("crates/a/src/b.rs", &format!("//! B.\n// {word}: later\n")).len(), 1);
        assert_eq!(found("crates/a/src/b.rs", &format!("//! B.\n// {word}( ): later\n")).len(), 1);
        assert_eq!(found("crates/a/src/b.rs", &format!("//! B.\n// {word}(waits for x): later\n")).len(), 0);
        assert_eq!(found("crates/a/src/b.rs", &format!("//! B.\nconst A: &str = \"{word}\";\n")).len(), 0);
    }
}

#[test]
fn unfinished_code_and_skipped_tests_need_an_owner() {
    let bodies = ["fn f() { todo!() }", "fn f() { unimplemented!() }", "#[test]\n#[ignore]\nfn f() {}"];
    for body in bodies {
        assert_eq!(found("crates/a/src/b.rs", &format!("//! B.\n{body}\n")).len(), 1);
        let text = format!("//! B.\n{body}\n");
        let owned = "| `crates/a/src/b.rs` | owner: storage |\n";
        let tree = Tree::of(&[
            LICENSE,
            ("crates/a/src/lib.rs", "//! A.\nmod b;\n"),
            ("crates/a/src/b.rs", &text),
            ("docs/status.md", owned),
        ]);
        assert_eq!(findings(&tree, &Modules::of(&tree)), []);
    }
}

#[test]
fn whitespace_at_the_end_tabs_and_open_last_lines_are_found() {
    assert_eq!(found("docs/a.md", "a \n").len(), 1);
    assert_eq!(found("docs/a.md", "a").len(), 1);
    assert_eq!(found("docs/a.md", "a\r\n").len(), 1);
    assert_eq!(found("crates/a/src/b.rs", "//! B.\nfn f() {\n\tg();\n}\n").len(), 1);
    assert_eq!(found("Makefile", "a:\n\tb\n").len(), 0);
}

#[test]
fn a_path_of_one_machine_is_found() {
    for needle in MACHINE_PATHS {
        assert_eq!(found("docs/a.md", &format!("see {needle}x\n")).len(), 1);
        assert_eq!(found("docs/a.md", &format!("see a{needle}x\n")).len(), 0);
    }
}

#[test]
fn a_dead_file_and_one_that_does_not_parse_are_found() {
    assert_eq!(found("crates/a/src/c.rs", "//! C.\n").len(), 1);
    assert_eq!(found("crates/a/src/b.rs", "//! B.\nfn\n").len(), 1);
}

#[test]
fn a_large_file_and_a_missing_license_are_found() {
    let mut tree = Tree::of(&[]);
    assert_eq!(findings(&tree, &Modules::of(&tree)).len(), 1);
    let file = crate::tree::File { size: CONTENT_LIMIT_BYTES + 1, text: None };
    tree.files.insert("a.bin".to_string(), file);
    assert_eq!(findings(&tree, &Modules::of(&tree)).len(), 2);
}
