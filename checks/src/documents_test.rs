use super::*;

fn found(document: &str) -> usize {
    let files =
        [("crates/base/src/ids.rs", ""), ("docs/status.md", ""), ("docs/page.md", document), ("test", "")];
    findings(&Tree::of(&files)).len()
}

#[test]
fn a_path_that_is_there_is_fine() {
    assert_eq!(
        found("See `crates/base/src/ids.rs:12`, `crates/*/src/ids.rs`, `docs/` and `cargo -p x`.\n"),
        0
    );
    assert_eq!(
        found("Read [the status](status.md#works) and [the suite](../test) or [b](https://b.org/c).\n"),
        0
    );
}

#[test]
fn a_path_that_is_not_there_is_found() {
    assert_eq!(found("See `crates/cellar`.\n"), 1);
    assert_eq!(found("Run `cat docs/nothing.md` and `bench/*`.\n"), 2);
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    assert_eq!(found("Read [it](nothing.md).\n"), 1);
    assert_eq!(found("Read [it](../docs/status.md) and [it](docs/status.md).\n"), 1);
}

#[test]
fn a_fenced_block_is_not_read() {
    assert_eq!(found("```\n`crates/cellar`\n```\n`crates/cellar`\n"), 1);
}

#[test]
fn a_crate_without_a_row_is_found() {
    let member = |name: &str| Member { package: String::new(), directory: name.to_string(), edges: vec![] };
    let tree = Tree::of(&[("ARCHITECTURE.md", "| `crates/base` | ids |\n")]);
    assert_eq!(unnamed_crates(&tree, &[member("crates/base")]), []);
    assert_eq!(unnamed_crates(&tree, &[member("crates/base"), member("crates/media")]).len(), 1);
}
