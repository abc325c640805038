use crate::settings::{SettingKind, Settings, check_own};
use tierstone_engine::Durability;

#[test]
fn integers_are_written_in_one_way() {
    for (given, kept) in [("0", "0"), ("5", "5"), ("9223372036854775807", "9223372036854775807")] {
        assert_eq!(check_own("slowlog-max-len", given).as_deref(), Ok(kept), "{given}");
    }
    for wrong in ["", "-0", "+5", "007", " 5", "5.0", "0x5", "9223372036854775808"] {
        let refused = check_own("slowlog-max-len", wrong);
        assert_eq!(refused, Err("argument couldn't be parsed into an integer".into()), "{wrong}");
    }
    let refused = check_own("slowlog-max-len", "-1");
    assert_eq!(refused, Err("argument must be between 0 and 9223372036854775807 inclusive".into()));
}

#[test]
fn limits_of_no_class_change_nothing_and_words_have_one_space_between_them() {
    const LIMITS: &str = "client-output-buffer-limit";
    let mut settings = Settings::new(1, 1 << 20, Durability::default());
    let old = "normal 4194304 1048576 5 slave 0 0 0 pubsub 4194304 1048576 5";
    settings.add(LIMITS, old, SettingKind::OutputBufferLimits { hard_min_bytes: 8 << 20 }, true);
    assert_eq!(settings.check(LIMITS, "").as_deref(), Ok(old));
    let both = "normal 4mb 1mb 5 pubsub 4mb 1mb 5";
    let spaced =
        [both.replace(" 1mb", "  1mb"), format!(" {both}"), format!("{both} "), both.replace(' ', "\t")];
    for wrong in [" ", "normal", "normal 0 0"].into_iter().chain(spaced.iter().map(String::as_str)) {
        let refused = settings.check(LIMITS, wrong);
        assert_eq!(
            refused,
            Err("Wrong number of arguments in buffer limit configuration.".into()),
            "{wrong}"
        );
    }
}

#[test]
fn sizes_are_taken_as_redis_writes_them_and_as_the_settings_of_the_server_do() {
    for (given, kept) in
        [("16m", "16000000"), ("16mb", "16777216"), ("16MiB", "16777216"), ("1gib", "1073741824")]
    {
        assert_eq!(check_own("scrub-rate", given).as_deref(), Ok(kept), "{given}");
    }
    assert!(check_own("scrub-rate", "16mib/s").is_err());
}
