use super::*;

#[test]
fn a_file_that_no_module_names_is_dead() {
    let modules = Modules::of(&Tree::of(&[
        ("crates/a/src/lib.rs", "mod used;\n#[cfg(test)]\n#[path = \"lib_test.rs\"]\nmod lib_test;"),
        ("crates/a/src/used.rs", "mod deeper;"),
        ("crates/a/src/used/deeper.rs", "mod inner { mod last; }"),
        ("crates/a/src/used/deeper/inner/last.rs", ""),
        ("crates/a/src/lib_test.rs", ""),
        ("crates/a/src/forgotten.rs", "mod also_forgotten;"),
        ("crates/a/src/also_forgotten.rs", ""),
    ]));
    let dead: Vec<&str> = modules.dead().collect();
    assert_eq!(dead, ["crates/a/src/also_forgotten.rs", "crates/a/src/forgotten.rs"]);
}

#[test]
fn a_module_in_a_folder_with_mod_rs_is_reached() {
    let modules = Modules::of(&Tree::of(&[
        ("crates/a/src/main.rs", "mod door;"),
        ("crates/a/src/door/mod.rs", "mod bell;\n#[cfg(test)]\n#[path = \"bell_test.rs\"]\nmod bell_test;"),
        ("crates/a/src/door/bell.rs", ""),
        ("crates/a/src/door/bell_test.rs", ""),
    ]));
    assert_eq!(modules.dead().count(), 0);
}

#[test]
fn a_module_under_a_test_condition_is_a_test_whatever_its_name() {
    let modules = Modules::of(&Tree::of(&[
        ("crates/a/src/lib.rs", "#[cfg(test)] mod testing;\nmod both;\n#[cfg(test)] mod more { mod deep; }"),
        ("crates/a/src/testing.rs", "#[path = \"both.rs\"] mod both;"),
        ("crates/a/src/both.rs", ""),
        ("crates/a/src/more/deep.rs", ""),
    ]));
    assert!(modules.is_test("crates/a/src/testing.rs"));
    assert!(modules.is_test("crates/a/src/more/deep.rs"));
    assert!(!modules.is_test("crates/a/src/both.rs"));
}

#[test]
fn a_target_that_the_manifest_names_is_a_root() {
    let modules = Modules::of(&Tree::of(&[
        ("crates/a/Cargo.toml", "[[bench]]\nname = \"x\"\npath = \"src/x_bench.rs\"\nharness = false"),
        ("crates/a/src/x_bench.rs", ""),
    ]));
    assert_eq!(modules.dead().count(), 0);
}

#[test]
fn where_cargo_finds_no_tests_by_itself_those_that_no_program_names_are_dead() {
    let tests = [
        ("crates/a/tests/suite.rs", "mod named;"),
        ("crates/a/tests/named.rs", ""),
        ("crates/a/tests/forgotten.rs", ""),
    ];
    let manifest = |more: &str| format!("[package]\nname = \"a\"\n{more}\n");
    let suite = manifest("autotests = false\n[[test]]\nname = \"suite\"\npath = \"tests/suite.rs\"");
    let of = |manifest: &str| {
        let all = [&[("crates/a/Cargo.toml", manifest)], &tests[..]].concat();
        Modules::of(&Tree::of(&all)).dead().map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(of(&suite), ["crates/a/tests/forgotten.rs"]);
    assert_eq!(of(&manifest("")), [""; 0]);
}

#[test]
fn paths_lose_their_dots() {
    assert_eq!(normalised("a/./b//../c.rs"), "a/c.rs");
    assert_eq!(normalised("../a"), "../a");
}
