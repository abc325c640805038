use super::*;

#[test]
fn values_are_kept_in_redis_order() {
    for (given, kept) in [
        ("", ""),
        ("KEA", "AKE"),
        ("EK", "KE"),
        ("$gK", "g$K"),
        ("Kn", "nK"),
        ("mE", "Em"),
        ("KEx", "xKE"),
        ("ghsz$lxetdKE", "AKE"),
        ("tdKE", "tdKE"),
        ("oKE", "oKE"),
        ("KEAmnoc", "AnocKEm"),
    ] {
        assert_eq!(check(given).as_deref(), Ok(kept), "{given}");
        assert_eq!(parse(given), parse(kept), "{given}: all of it is kept");
    }
    for wrong in ["KEy", "1", "K E", "é"] {
        assert!(check(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn nothing_is_noted_where_nothing_can_be_published() {
    let mut settings = Settings::new(1, 1 << 20, Default::default());
    let mut events = Events::default();
    for (value, is_on, noted) in
        [("", false, 0), ("A", false, 0), ("KE", true, 0), ("Kg", true, 0), ("E$", true, 1)]
    {
        settings.set(EVENTS, value);
        events.follow(&settings);
        assert_eq!(events.is_on(), is_on, "{value}");
        events.note(class::STRING, "set", 0, b"key");
        assert_eq!(events.mark(), noted, "{value}");
    }
    events.roll_back(0);
    assert_eq!(events.mark(), 0);
}
