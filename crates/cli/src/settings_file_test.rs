use super::*;
use crate::settings::SETTINGS;

fn changed(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn values_are_replaced_where_they_stand_and_the_rest_stays() {
    let directory = std::env::temp_dir().join(format!("tierstone-settings-file-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory is made");
    let path = directory.join("settings.toml");
    let old = "# mine\nshards = 2 # two\npassword = \"old\" # secret\nidle-timeout = 5\nmemory = \"1GiB\"";
    std::fs::write(&path, old).expect("it is written");
    let file = TomlFile::new(path.clone(), 3);
    file.rewrite(&changed(&[
        ("requirepass", "with \"quotes\" and \\"),
        ("timeout", "77"),
        ("acllog-max-len", "9"),
        ("protected-mode", "no"),
        ("durability", "group:5"),
        ("maxclients", "100"),
        ("client-output-buffer-limit", "normal 4194304 7 9 slave 0 0 0 pubsub 4194304 7 9"),
    ]))
    .expect("it is rewritten");
    let new = std::fs::read_to_string(&path).expect("it is there");
    for line in [
        "# mine",
        "shards = 2 # two",
        "idle-timeout = 77",
        "acllog-max-len = 9",
        "protected-mode = \"no\"",
        "memory = \"1GiB\"",
        "durability = \"group:5\"",
        "maxclients = 34",
        "output-limit = \"4194304B\"",
        "output-soft-limit = \"7B\"",
        "output-soft-time = 9",
    ] {
        assert!(new.lines().any(|other| other == line), "{line} is not in\n{new}");
    }
    assert!(new.contains("# secret"), "{new}");
    let table: toml::Table = toml::from_str(&new).expect("it is still TOML");
    assert_eq!(table["password"].as_str(), Some("with \"quotes\" and \\"));
    assert!(table.keys().all(|name| SETTINGS.iter().any(|setting| setting.name == name)), "{new}");
    assert!(file.rewrite(&changed(&[("port", "1")])).is_err(), "a port is never changed");
    assert_eq!(std::fs::read_to_string(&path).expect("it is there"), new);
    // What its owner has written into it meanwhile is not told to clients.
    std::fs::write(&path, "shards = 2\npassword = \"hunter2\nacllog-max-len = 3\n").expect("it is written");
    let error = file.rewrite(&changed(&[("acllog-max-len", "9")])).expect_err("it is no TOML");
    let told = error.message();
    assert!(told.starts_with("the file is not readable: line 2 is no TOML: "), "{told}");
    assert!(!told.contains("hunter"), "{told}");
    assert_eq!(std::fs::read_dir(&directory).expect("it lists").count(), 1);
    std::fs::remove_dir_all(&directory).expect("it goes");
}
