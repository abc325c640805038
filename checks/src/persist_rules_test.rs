use super::*;

const CODE: &str = "crates/persist/src/a.rs";
const TESTS: &str = "crates/persist/tests/a.rs";

/// What is found of a page with `rows`, of as many rules, and a structure with `code`.
fn messages(code: &str, rows: &[&str]) -> Vec<String> {
    told(code, rows, &format!("**Caught: yes, in each of the {0} rows** below: {0} rules.", rows.len()))
}

/// The same, where the page begins with `sentence`.
fn told(code: &str, rows: &[&str], sentence: &str) -> Vec<String> {
    let table = "| structure | rule | caught by |\n|---|---|---|";
    let page = format!("{sentence}\n\n{table}\n{}\n", rows.join("\n"));
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
fn rules_that_are_observed_have_rows_too() {
    let code = "fn a() { self.observe_head(memory, \"one first\"); }\n";
    assert!(messages(code, &[])[0].contains("'one first' has no row"));
}

#[test]
fn rows_and_rules_are_counted() {
    let code = "fn a() { rules.is_on(\"one first\"); rules.is_on(\"another\"); }\n";
    let row = |rule: &str| format!("| a | {rule} | `{TESTS}`: `all_are_caught` | yes |");
    // One rule holds in two structures.
    let rows = [row("one first"), row("another"), row("another")];
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let found = |counts: &str| told(code, &rows, counts);
    assert_eq!(found("**Caught: yes, in each of the 3 rows** below: 2 rules, one in two."), [""; 0]);
    for wrong in ["in each of the 4 rows** below: 2 rules", "in each of the 3 rows** below: 3 rules"] {
        assert_eq!(found(wrong), ["counted, it is 'in each of the 3 rows** below: 2 rules'"]);
    }
    assert!(found("Nothing is said.")[0].contains("does not say how many"));
}

#[test]
fn a_missing_page_is_told() {
    let tree = Tree::of(&[]);
    assert_eq!(findings(&tree, &Modules::of(&tree)).len(), 1);
}
