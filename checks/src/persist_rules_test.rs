use super::*;

const CODE: &str = "crates/persist/src/a.rs";
const TESTS: &str = "crates/persist/tests/a.rs";

/// What is found of a page with `rows` and a structure with `code`.
fn messages(code: &str, rows: &[&str]) -> Vec<String> {
    let page = format!("| structure | rule | caught by |\n|---|---|---|\n{}\n", rows.join("\n"));
    let tests = "#[test]\nfn all_are_caught() { \"one first\"; \"another\"; }\n";
    let tree = Tree::of(&[(PAGE, &page), (CODE, code), (TESTS, tests)]);
    findings(&tree, &Modules::of(&tree)).into_iter().map(|finding| finding.message).collect()
}

#[test]
fn every_rule_has_a_row_with_a_test_that_names_it() {
    let code = "fn a() { if !rules.is_on(\"one first\") { self.barrier(memory, \"another\")?; } }\n";
    let row = |rule: &str, test: &str| format!("| a | {rule} | `{TESTS}`: `{test}` | yes |");
    let whole = [row("one first", "all_are_caught"), row("another", "all_are_caught")];
    let whole: Vec<&str> = whole.iter().map(String::as_str).collect();
    assert!(messages(code, &whole).is_empty(), "{:?}", messages(code, &whole));
    assert!(messages(code, &whole[1..])[0].contains("'one first' has no row"));
    assert!(messages("fn a() { rules.is_on(\"another\"); }\n", &whole)[0].contains("no structure has"));
    let wrong_test = row("another", "all_pass");
    assert!(messages(code, &[whole[0], &wrong_test])[0].contains("no test `all_pass`"));
    let unnamed = "fn a() { self.breaks(\"a third\"); }\n";
    let third = row("a third", "all_are_caught");
    assert!(messages(unnamed, &[&third])[0].contains("does not name"));
    assert!(messages("// is_on(\"in a comment\")\nfn is_on(name: &str) {}\n", &[]).is_empty());
}

#[test]
fn a_missing_page_is_told() {
    let tree = Tree::of(&[]);
    assert_eq!(findings(&tree, &Modules::of(&tree)).len(), 1);
}
