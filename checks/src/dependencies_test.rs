use super::*;

const ROOT: &str = "[workspace.dependencies]\ntierstone-base = { path = \"crates/base\" }\nserde = \"1\"\n";
const PAGE_TEXT: &str =
    "| crate | used by | why | alternative |\n|---|---|---|---|\n| serde | base | x | y |\n";

fn found(root: &str, page: &str, member: &str) -> Vec<String> {
    let tree = Tree::of(&[("Cargo.toml", root), (PAGE, page), ("crates/base/Cargo.toml", member)]);
    findings(&tree).into_iter().map(|finding| finding.to_string()).collect()
}

#[test]
fn a_dependency_that_is_argued_and_used_is_fine() {
    for kind in ["dependencies", "dev-dependencies", "build-dependencies", "target.'cfg(unix)'.dependencies"]
    {
        let member = format!("[{kind}]\nserde.workspace = true\n");
        assert_eq!(found(ROOT, PAGE_TEXT, &member), Vec::<String>::new());
    }
}

#[test]
fn a_dependency_without_a_row_or_a_use_is_found() {
    assert_eq!(found(ROOT, "", "[dependencies]\nserde.workspace = true\n").len(), 1);
    assert_eq!(found(ROOT, PAGE_TEXT, "").len(), 1);
}

#[test]
fn a_row_without_a_dependency_is_found() {
    let page = format!("{PAGE_TEXT}| `syn` | checks | x | y |\n");
    assert_eq!(found(ROOT, &page, "[dependencies]\nserde.workspace = true\n").len(), 1);
}

#[test]
fn a_version_outside_the_root_manifest_is_found() {
    assert_eq!(found(ROOT, PAGE_TEXT, "[dependencies]\nserde = \"1\"\n").len(), 1);
}

#[test]
fn a_program_whose_rules_can_be_switched_off_is_found() {
    let member = |kind: &str| {
        format!("[{kind}]\nserde = {{ workspace = true, features = [\"derive\", \"mutations\"] }}\n")
    };
    for kind in ["dependencies", "build-dependencies", "target.'cfg(unix)'.dependencies"] {
        assert_eq!(found(ROOT, PAGE_TEXT, &member(kind)).len(), 1, "{kind}");
    }
    assert_eq!(found(ROOT, PAGE_TEXT, &member("dev-dependencies")), Vec::<String>::new());
}

#[test]
fn a_manifest_that_does_not_parse_is_found() {
    assert_eq!(found("[", PAGE_TEXT, "").len(), 1);
    assert_eq!(found(ROOT, PAGE_TEXT, "[").len(), 2);
}

#[test]
fn a_lock_file_of_another_workspace_that_is_stale_is_found() {
    let member = "[package]\nname = \"tierstone-wire\"\n[dependencies]\nserde.workspace = true\n\
                  tierstone-base.workspace = true\n[dev-dependencies]\ntierstone-crash.workspace = true\n";
    let found = |locked: &str| {
        let lock = format!("[[package]]\nname = \"tierstone-wire\"\ndependencies = [{locked}]\n");
        let tree = Tree::of(&[
            ("Cargo.toml", ROOT),
            (PAGE, PAGE_TEXT),
            ("crates/wire/Cargo.toml", member),
            ("fuzz/Cargo.lock", &lock),
        ]);
        findings(&tree).into_iter().map(|finding| finding.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(found("\"serde\", \"tierstone-base\""), Vec::<String>::new());
    assert_eq!(found("\"serde 1.0.1\", \"tierstone-base 0.1.0\""), Vec::<String>::new());
    for stale in ["\"serde\"", "\"tierstone-base\", \"tierstone-persist\""] {
        let found = found(stale);
        assert!(found.len() == 1 && found[0].contains("tierstone-wire has other dependencies"), "{found:?}");
    }
}
