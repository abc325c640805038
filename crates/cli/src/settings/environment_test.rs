use super::*;
use std::collections::BTreeSet;
use std::path::Path;

/// The list itself proves nothing, and tests of it make names up.
const MADE_UP: [&str; 3] = ["settings/environment.rs", "settings/environment_test.rs", "tests/told.rs"];

fn told_of(name: &str, value: &str) -> Vec<String> {
    unknown_variables(std::iter::once((name.to_owned(), value.to_owned())))
}

#[test]
fn settings_and_variables_of_tests_and_services_are_known() {
    for setting in SETTINGS {
        assert!(told_of(setting.variable, "").is_empty(), "{}", setting.variable);
    }
    for (name, value) in [
        ("TIERSTONE_CONFIG", "a.toml"),
        ("TIERSTONE_SEED", "7"),
        ("TIERSTONE_SERVICE_HOST", "10.0.0.1"),
        ("TIERSTONE_SERVICE_PORT_REDIS", "6379"),
        ("TIERSTONE_PORT", "tcp://10.0.0.1:6379"),
        ("TIERSTONE_PORT_6379_TCP_ADDR", "10.0.0.1"),
        ("TIERSTONES", "1"),
        ("PATH", "/bin"),
    ] {
        assert!(told_of(name, value).is_empty(), "{name}");
    }
}

#[test]
fn a_variable_that_is_no_setting_is_told_with_the_nearest() {
    for (name, near) in [
        ("TIERSTONE_MEMROY", Some("TIERSTONE_MEMORY")),
        ("TIERSTONE_MAX_MEMORY_POLICY", Some("TIERSTONE_MAXMEMORY_POLICY")),
        ("TIERSTONE_PASSWROD", Some("TIERSTONE_PASSWORD")),
        ("TIERSTONE_DATA_DIR", None),
        ("TIERSTONE_PORT", Some("TIERSTONE_LISTEN")),
        ("TIERSTONE_SOMETHING_ELSE", None),
        ("TIERSTONE_", None),
    ] {
        let told = told_of(name, "6379");
        assert!(told.len() == 1 && told[0].contains(&format!("{name} is no setting")), "{told:?}");
        match near {
            Some(near) => assert!(told[0].contains(&format!("is {near} meant?")), "{told:?}"),
            None => assert!(told[0].contains("--help"), "{told:?}"),
        }
    }
}

/// Names with the prefix in the files below `folder`.
fn names_below(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the project").flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            names_below(&path, found);
        } else if MADE_UP.iter().any(|name| path.ends_with(name)) {
            continue;
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            let words =
                text.split(|end: char| !(end.is_ascii_uppercase() || end.is_ascii_digit() || end == '_'));
            let named = words.filter(|word| word.len() > PREFIX.len() && word.starts_with(PREFIX));
            found.extend(named.map(|word| word.trim_end_matches('_').to_owned()));
        }
    }
}

#[test]
fn every_variable_that_the_project_uses_is_known() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = BTreeSet::new();
    for folder in ["bench", "checks", "crates", "scripts", "fuzz"] {
        names_below(&root.join(folder), &mut found);
    }
    let unknown: Vec<&String> =
        found.iter().filter(|name| !is_known(name) && *name != "TIERSTONE_A_NAME").collect();
    assert!(unknown.is_empty(), "add them to OTHERS: {unknown:?}");
    let unused: Vec<&&str> = OTHERS.iter().filter(|name| !found.contains(**name)).collect();
    assert!(unused.is_empty(), "nobody uses {unused:?}");
}
