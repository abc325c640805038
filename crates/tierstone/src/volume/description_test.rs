use super::*;

#[test]
fn a_description_comes_back_from_its_text() {
    let plain = Description {
        members: vec!["a".into(), "/dev/b".into()],
        buffer: None,
        staging: None,
        staging_any_guarantee: false,
        degraded: Degraded::Refuse,
        discards: Discards::default(),
        fill_rate: None,
        sleep: None,
    };
    assert_eq!(Description::parse(&plain.text().unwrap()).unwrap(), plain);
    let rated = Sleeping { rated_cycles: Some(50_000.0), rated_years: Some(5.0), ..Sleeping::default() };
    let sleeping = Description { buffer: Some("flash".into()), sleep: Some(rated), ..plain };
    assert_eq!(Description::parse(&sleeping.text().unwrap()).unwrap(), sleeping);
    let staged =
        Description { staging: Some("emulated:4MiB".into()), staging_any_guarantee: true, ..sleeping };
    let staged = Description { fill_rate: Some("1MiB".into()), ..staged };
    assert_eq!(Description::parse(&staged.text().unwrap()).unwrap(), staged);
    let published = Sleeping::default().settings().unwrap();
    assert_eq!(published, SleepSettings::published());
}

#[test]
fn wrong_descriptions_are_refused_with_the_field() {
    for (text, part) in [
        ("", "members"),
        ("members = []", "0 are named"),
        ("members = ['a', 'a']", "named twice"),
        ("members = ['a', '']", "is empty"),
        ("members = ['a', 'b']\nbuffer = 'a'", "named twice"),
        ("members = ['a']\nlevel = 1", "unknown field `level`"),
        ("members = 'a'", "line 1"),
        ("members = ['a']\ndegraded = 'perhaps'", "degraded"),
        ("members = ['a']\nfill_rate = '1KiB'", "at least 64KiB"),
        ("members = ['a']\nfill_rate = 'fast'", "fill_rate"),
        ("members = ['a', 'b']\n[sleep]", "without a buffer"),
        ("members = ['a', 'b']\nstaging = 'c'", "nothing is staged"),
        ("members = ['a', 'b']\nbuffer = 'c'\nstaging = 'c'", "named twice"),
        ("members = ['a', 'b']\nbuffer = 'c'\nstaging = 'emulated:lots'", "emulated:1GiB:dcpmm"),
        ("members = ['a', 'b']\nbuffer = 'c'\nstaging_any_guarantee = true", "there is no staging"),
        ("members = ['a', 'b']\nbuffer = 'c'\n[sleep]\nbuffer_fill = 1.5", "buffer_fill"),
        ("members = ['a', 'b']\nbuffer = 'c'\n[sleep]\nspin_up_utilisation = nan", "spin_up_utilisation"),
        ("members = ['a', 'b']\nbuffer = 'c'\n[sleep]\nspin_down_epochs = 0", "spin_down_epochs"),
        ("members = ['a', 'b']\nbuffer = 'c'\n[sleep]\nepoch_ms = 9", "epoch_ms"),
        ("members = ['a', 'b']\nbuffer = 'c'\n[sleep]\nwrite_backs = 0", "write_backs"),
        ("members = ['a', 'b']\nbuffer = 'c'\n[sleep]\nmib_us = 99999999", "mib_us"),
        ("members = ['a', 'b']\nbuffer = 'c'\n[sleep]\nrated_cycles = 5", "give both"),
    ] {
        let error = Description::parse(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains(part), "{text}: {error}");
    }
}

#[test]
fn a_description_is_told_from_directories_and_stands_alone() {
    let among = |paths: &[&str]| {
        let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
        Description::among(&paths).map(|found| found.map(Path::to_path_buf)).map_err(|error| error.kind())
    };
    assert_eq!(among(&["a", "b"]), Ok(None));
    assert_eq!(among(&["x/a.toml"]), Ok(Some("x/a.toml".into())));
    assert_eq!(among(&["a", "a.toml"]), Err(ErrorKind::InvalidInput));
    assert_eq!(Description::resolve(Path::new("x/a.toml"), Path::new("disk")), PathBuf::from("x/disk"));
    assert_eq!(Description::resolve(Path::new("x/a.toml"), Path::new("/disk")), PathBuf::from("/disk"));
}

proptest::proptest! {
    #[test]
    fn hostile_descriptions_never_panic(text in ".{0,200}") {
        let _ = Description::parse(&text);
        let _ = Description::parse(&format!("members = ['a']\n{text}"));
    }
}
