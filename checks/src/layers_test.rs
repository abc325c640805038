use super::*;

fn member(name: &str, edges: &[(&str, &str)]) -> Member {
    let edges = edges.iter().map(|(target, kind)| (package_of(target), kind.to_string())).collect();
    Member { package: package_of(name), directory: format!("crates/{name}"), edges }
}

#[test]
fn edges_to_earlier_crates_are_fine() {
    let media = member("media", &[("base", "normal"), ("crash", "dev")]);
    let lsm = member("lsm", &[("logstore", "normal"), ("engine", "build")]);
    assert_eq!(findings(&[media, lsm]), []);
}

#[test]
fn an_edge_upwards_is_found_whatever_its_kind() {
    for kind in ["normal", "dev", "build"] {
        assert_eq!(findings(&[member("media", &[("engine", kind)])]).len(), 1);
    }
}

#[test]
fn an_edge_to_a_later_crate_of_the_same_line_or_to_itself_is_found() {
    assert_eq!(findings(&[member("wire", &[("crash", "normal")])]).len(), 1);
    assert_eq!(findings(&[member("wire", &[("wire", "dev")])]).len(), 1);
}

#[test]
fn an_unknown_crate_and_a_name_that_does_not_fit_are_found() {
    assert_eq!(findings(&[member("cellar", &[])]).len(), 1);
    assert_eq!(findings(&[member("engine", &[("cellar", "normal")])]).len(), 1);
    let misnamed = Member { package: "tierstone-motor".to_string(), ..member("engine", &[]) };
    assert_eq!(findings(&[misnamed]).len(), 1);
    let outside = Member { directory: "garden".to_string(), ..member("engine", &[]) };
    assert_eq!(findings(&[outside]).len(), 1);
}

#[test]
fn the_checks_use_no_crate_and_no_crate_uses_them() {
    let checks = Member {
        package: "tierstone-checks".to_string(),
        directory: "checks".to_string(),
        edges: vec![("tierstone-base".to_string(), "normal".to_string())],
    };
    assert_eq!(findings(&[checks]).len(), 1);
    assert_eq!(findings(&[member("cli", &[("checks", "dev")])]).len(), 1);
}

#[test]
fn the_public_crate_has_the_short_name() {
    assert_eq!(package_of("tierstone"), "tierstone");
    assert_eq!(findings(&[member("server", &[("tierstone", "normal")])]), []);
    assert_eq!(place("base"), Some((1, 0)));
    assert!(place("cli").unwrap().0 == 15);
}

#[test]
fn metadata_is_read_into_members() {
    let metadata = r#"{"workspace_root": "/r", "packages": [
        {"name": "tierstone-base", "manifest_path": "/r/crates/base/Cargo.toml", "dependencies": [
            {"name": "serde", "kind": null}]},
        {"name": "tierstone-wire", "manifest_path": "/r/crates/wire/Cargo.toml", "dependencies": [
            {"name": "tierstone-base", "kind": "dev", "path": "/r/crates/base"}]}]}"#;
    let read = members(metadata).unwrap();
    assert_eq!(read, [member("base", &[]), member("wire", &[("base", "dev")])]);
    assert!(members("{}").is_err());
    assert!(members("not json").is_err());
}
