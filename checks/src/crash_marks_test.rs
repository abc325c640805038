use super::*;

fn found(code: &str, test: &str) -> usize {
    let tree = Tree::of(&[("crates/a/src/lib.rs", code), ("crates/a/src/lib_test.rs", test)]);
    findings(&tree, &Modules::of(&tree)).len()
}

#[test]
fn a_mark_that_a_test_mentions_is_fine() {
    let code = "// crash here [segment-sealed]: the input is still whole\n";
    assert_eq!(found(code, "fn segment_sealed_leaves_the_input() {}"), 0);
    assert_eq!(found(code, "const A: &str = \"segment-sealed\";"), 0);
    let inline = format!("{code}#[cfg(test)]\nmod tests {{\n    fn segment_sealed() {{}}\n}}\n");
    assert_eq!(found(&inline, ""), 0);
}

#[test]
fn a_mark_without_a_test_is_found() {
    let code = "// crash here [segment_sealed]: the input is still whole\n";
    assert_eq!(found(code, ""), 1);
    assert_eq!(found(code, "fn segment_sealedness() {}"), 1);
    assert_eq!(found(&format!("{code}fn segment_sealed() {{}}\n"), ""), 1);
}

#[test]
fn a_mark_without_a_name_or_an_explanation_is_found() {
    let test = "fn some_name() {}";
    for mark in ["crash here: x", "crash here []: x", "crash here [Some Name]: x", "crash here [some_name]:"]
    {
        assert_eq!(found(&format!("// {mark}\n"), test), 1, "{mark}");
    }
}

#[test]
fn two_marks_of_one_name_are_found() {
    let code = "// crash here [twice]: x\n// crash here [twice]: y\n";
    assert_eq!(found(code, "fn twice() {}"), 1);
}

#[test]
fn the_words_in_documentation_are_no_mark() {
    assert_eq!(found("//! crash here: as documented\nconst A: &str = \"// crash here\";\n", ""), 0);
}
