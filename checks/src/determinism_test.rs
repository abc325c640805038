use super::*;

fn found(path: &str, text: &str) -> usize {
    findings(&Modules::of(&Tree::of(&[(path, text)]))).len()
}

#[test]
fn threads_sockets_and_clocks_are_found_below_the_drivers() {
    let uses = [
        "use std::thread;",
        "use std::{io, thread::Builder};",
        "use std::net::*;",
        "use std::{net as network};",
        "use std::time::*;",
        "fn f() { std::thread::yield_now(); }",
        "fn f(a: std::net::IpAddr) {}",
        "use std::time::Instant;",
        "fn f() -> SystemTime { loop {} }",
        "m! { std::thread::park() }",
    ];
    for text in uses {
        assert_eq!(found("crates/store/src/lib.rs", text), 1, "{text}");
    }
}

#[test]
fn drivers_tests_and_named_modules_may_use_the_machine() {
    let text = "use std::thread;";
    for path in [
        "crates/server/src/lib.rs",
        "crates/media/src/file/threads.rs",
        "crates/media/src/probe.rs",
        "crates/client/src/lib.rs",
        "crates/store/tests/x.rs",
        "crates/store/src/x_test.rs",
        "checks/src/lib.rs",
    ] {
        assert_eq!(found(path, text), 0, "{path}");
    }
    assert_eq!(found("crates/store/src/lib.rs", "#[cfg(test)] mod t { use std::thread; }"), 0);
}

#[test]
fn neighbours_of_the_banned_names_are_fine() {
    let text = "use std::time::Duration; use std::network; mod thread {} // std::thread\n";
    assert_eq!(found("crates/store/src/lib.rs", text), 0);
}

#[test]
fn a_lost_ban_and_a_ban_without_a_reason_are_found() {
    let ban = |path: &str| format!("{{ path = \"{path}\", reason = \"x\" }}");
    let all: Vec<String> = BANNED_BY_CLIPPY.iter().map(|path| ban(path)).collect();
    let settings = |bans: &[String]| format!("disallowed-methods = [{}]\n", bans.join(", "));
    let count = |text: &str| clippy_findings(&Tree::of(&[("clippy.toml", text)])).len();
    assert_eq!(count(&settings(&all)), 0);
    assert_eq!(count(&settings(&all[1..])), 1);
    assert_eq!(count(&settings(&all).replace("reason = \"x\"", "reason = \"\"")), all.len());
    assert_eq!(count("disallowed-methods = ["), 1);
    assert_eq!(clippy_findings(&Tree::default()).len(), 1);
}
