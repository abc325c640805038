use super::given::{Given, Place};
use super::*;
use tierstone_base::ErrorKind;
use tierstone_engine::Durability;

#[test]
fn names_of_flags_and_variables_follow_from_each_other() {
    for setting in SETTINGS {
        let variable = format!("TIERSTONE_{}", setting.name.to_ascii_uppercase().replace('-', "_"));
        assert_eq!(setting.variable, variable);
        for text in [setting.value, setting.help, setting.default, setting.trade_off] {
            assert!(!text.is_empty(), "{} lacks a text", setting.name);
        }
        assert_eq!(SETTINGS.iter().filter(|other| other.name == setting.name).count(), 1);
    }
}

/// The table of `docs/settings.md`.
fn markdown() -> String {
    let mut text = String::from("| setting | value | default | what it says | trade-off | in CONFIG |\n");
    text.push_str("|---|---|---|---|---|---|\n");
    for Setting { name, value, default, help, trade_off, redis, .. } in SETTINGS {
        text.push_str(&format!("| `{name}` | {value} | {default} | {help} | {trade_off} | {redis} |\n"));
    }
    text
}

#[test]
fn the_page_of_settings_is_made_of_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
    let page = std::fs::read_to_string(path).expect("the page is there");
    for line in markdown().lines() {
        assert!(page.lines().any(|other| other == line), "docs/settings.md lacks this line:\n{line}");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, SETTINGS.len(), "docs/settings.md has lines of settings that are none");
}

fn given(pairs: &[(&'static str, &str)]) -> ServerArgs {
    let of_flag = |value: &str| Given { text: value.to_owned(), place: Place::Flag };
    let given = pairs.iter().map(|(name, value)| (*name, of_flag(value))).collect();
    ServerArgs { given, config: None }
}

#[test]
fn values_are_read_with_their_units() {
    let all = given(&[
        ("idle-timeout", "2m"),
        ("tcp-keepalive", "0"),
        ("stop-timeout", "250ms"),
        ("durability", "group:5ms"),
        ("output-limit", "0"),
        ("value-limit", "3MiB"),
    ])
    .settings()
    .expect("they are right");
    let transport = &all.node.transport;
    assert_eq!((transport.idle_timeout_s, transport.keepalive_s, transport.stop_timeout_ms), (120, 0, 250));
    assert_eq!(all.node.durability, Durability::Group { interval_ms: 5 });
    assert_eq!((transport.output.hard_bytes, all.node.value_size_max_bytes), (0, 3 << 20));
}

#[test]
fn what_is_wrong_is_told_with_the_name_of_its_setting() {
    for (name, value) in [
        ("idle-timeout", "1500ms"),
        ("shards", "-1"),
        ("memory", "lots"),
        ("durability", "group:60001"),
        ("durable-method", "hope"),
        ("backend", "paper"),
        ("direct-io", "perhaps"),
        ("pin", "yes"),
        ("log", "xml"),
        ("log-level", "loud"),
        ("value-limit", "1GiB"),
        ("index", "tree"),
    ] {
        let error = given(&[(name, value)]).settings().expect_err("it is wrong");
        assert!(error.message().contains(&format!("--{name} '{value}'")), "{error}");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}
