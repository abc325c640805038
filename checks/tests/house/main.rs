//! The house's checks on this repository. Each test is one rule; its message lists every place.
#![expect(clippy::unwrap_used, reason = "a helper of these tests that fails is a failing test")]

use std::process::Command;
use std::sync::OnceLock;
use tierstone_checks::layers::Member;
use tierstone_checks::modules::Modules;
use tierstone_checks::ratchet::{self, Exceptions};
use tierstone_checks::tree::{self, Tree};
use tierstone_checks::{
    Finding, crash_marks, dependencies, determinism, documents, layers, named_tests, persist_rules, report,
    tidy, unsafety,
};

struct House {
    tree: Tree,
    modules: Modules,
}

fn house() -> &'static House {
    static HOUSE: OnceLock<House> = OnceLock::new();
    HOUSE.get_or_init(|| {
        let tree = Tree::load(&tree::root()).unwrap();
        let modules = Modules::of(&tree);
        House { tree, modules }
    })
}

fn members() -> Vec<Member> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(tree::root())
        .output()
        .unwrap();
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    layers::members(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

fn none(findings: Vec<Finding>) {
    assert!(findings.is_empty(), "{} findings:\n{}\n", findings.len(), report(&findings));
}

fn exceptions() -> Exceptions {
    ratchet::parse(house().tree.text(ratchet::RATCHET_PATH).unwrap()).unwrap()
}

/// The ratchet file of an earlier commit; `None` without git, without that commit, or before the
/// file was made.
fn exceptions_at(commit: &str) -> Option<Exceptions> {
    let revision = format!("{commit}:{}", ratchet::RATCHET_PATH);
    let output = Command::new("git").arg("-C").arg(tree::root()).args(["show", &revision]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| ratchet::parse(&text).unwrap())
}

#[test]
fn the_whole_house_is_read() {
    let House { tree, modules } = house();
    assert!(tree.text("Cargo.toml").is_some() && tree.text("crates/base/src/lib.rs").is_some());
    assert!(modules.sources.contains_key("checks/src/layers.rs"));
    assert!(modules.sources["checks/src/layers.rs"].functions.len() > 2);
}

#[test]
fn edges_between_crates_point_down() {
    let members = members();
    assert!(members.iter().any(|member| member.package == "tierstone-base"));
    none(layers::findings(&members));
}

#[test]
fn the_tests_that_the_table_of_faults_names_exist() {
    none(named_tests::findings(&house().tree));
}

#[test]
fn the_table_of_rules_in_persistent_memory_is_whole() {
    none(persist_rules::findings(&house().tree, &house().modules));
}

#[test]
fn files_and_functions_keep_their_length_or_their_exception() {
    none(ratchet::judge(&tidy::measures(&house().tree, &house().modules), &exceptions()));
}

#[test]
fn exceptions_only_shrink_from_commit_to_commit() {
    let now = exceptions();
    for commit in ["HEAD", "HEAD^"] {
        match exceptions_at(commit) {
            Some(before) => none(ratchet::loosened(&before, &now)),
            None => println!("SKIP: the ratchet of {commit} (no git, no such commit, or no such file there)"),
        }
    }
}

#[test]
fn every_file_is_tidy() {
    none(tidy::findings(&house().tree, &house().modules));
}

#[test]
fn unsafe_stays_in_its_modules() {
    none(unsafety::findings(&house().modules));
}

#[test]
fn nothing_below_the_drivers_names_the_machine() {
    none(determinism::findings(&house().modules));
}

#[test]
fn clippy_keeps_its_bans() {
    none(determinism::clippy_findings(&house().tree));
}

#[test]
fn every_crash_mark_has_a_test() {
    none(crash_marks::findings(&house().tree, &house().modules));
}

#[test]
fn documents_name_only_what_is_there() {
    none(documents::findings(&house().tree));
}

#[test]
fn every_crate_has_its_row_in_the_architecture() {
    none(documents::unnamed_crates(&house().tree, &members()));
}

#[test]
fn dependencies_are_argued_and_used() {
    none(dependencies::findings(&house().tree));
}
