use crate::clients::CLIENTS_BYTES_MAX;
use crate::settings::{Settings, check_own};
use tierstone_engine::Durability;

#[test]
fn a_bound_of_clients_is_bytes_or_a_percentage() {
    for (given, kept) in
        [("0", "0"), ("100mb", "104857600"), ("5%", "5%"), ("100%", "100%"), ("0%", "0%"), ("1", "1")]
    {
        assert_eq!(check_own(CLIENTS_BYTES_MAX, given).as_deref(), Ok(kept), "{given}");
    }
    for wrong in ["", "%", "-1", "-5%", "101%", "5 %", "x", "9223372036854775808", "1.5%"] {
        assert!(check_own(CLIENTS_BYTES_MAX, wrong).is_err(), "{wrong}");
    }
    let settings = Settings::new(1, 1 << 20, Durability::default());
    assert_eq!(settings.get(CLIENTS_BYTES_MAX).map(|setting| setting.value.as_str()), Some("0"), "off");
}
