use super::*;

#[test]
fn a_pattern_matches_within_one_component() {
    let tree = Tree::of(&[("crates/base/src/lib.rs", ""), ("docs/status.md", "")]);
    assert!(tree.has("crates/base"));
    assert!(tree.has("crates/*/src/lib.rs"));
    assert!(tree.has("crates/base/src/"));
    assert!(tree.has("docs/*.md"));
    assert!(!tree.has("docs/*.rs"));
    assert!(!tree.has("crates/*/lib.rs"));
    assert!(!tree.has("crates/bas"));
}

#[test]
fn the_repository_is_loaded_without_its_build_outputs() {
    let tree = Tree::load(&root()).unwrap();
    assert!(tree.text("checks/src/tree_test.rs").is_some());
    assert!(tree.files.keys().all(|path| !path.starts_with("target/")));
}

#[test]
fn a_walk_finds_what_git_lists_in_this_folder() {
    let mut walked = Vec::new();
    walk(&root().join("checks"), "", &mut walked).unwrap();
    assert!(walked.iter().any(|path| path == "src/tree_test.rs"));
}
