use super::*;

const TESTS: &str = "crates/a/tests/kill.rs";
const HEAD: &str = "| fault | made by | seen |\n|---|---|---|\n";

fn count(row: &str) -> usize {
    let page = format!("{HEAD}{row}\n");
    findings(&Tree::of(&[(FAULTS, &page), (TESTS, "#[test]\nfn it_dies() {}\nfn helper() {}\n")])).len()
}

#[test]
fn rows_name_tests_that_exist() {
    assert_eq!(count(&format!("| kill | `{TESTS}`: `it_dies` | `not_looked_at` |")), 0);
    assert_eq!(count("| more | the same | – |"), 0);
    assert_eq!(count(&format!("| kill | `{TESTS}`: `it_lives`, `it_dies` | – |")), 1);
    assert_eq!(count(&format!("| kill | `{TESTS}`: `helper_of_it` | – |")), 1);
    assert_eq!(count("| kill | `it_dies` | – |"), 1);
    assert_eq!(count("| kill | by hand | – |"), 1);
    assert_eq!(findings(&Tree::of(&[])).len(), 1);
}
