use super::*;
use proptest::prelude::*;

#[test]
fn watts_and_joules_are_read_from_what_people_print() {
    for (text, reading) in [
        ("12.5 W", Reading::Power { uw: 12_500_000 }),
        ("12.5W\n", Reading::Power { uw: 12_500_000 }),
        ("warming up\n\nload: 830 mW now\n\n", Reading::Power { uw: 830_000 }),
        ("phase 2 power=0.4kW", Reading::Power { uw: 400_000_000 }),
        ("0 watts", Reading::Power { uw: 0 }),
        ("1034 J", Reading::Counter { uj: 1_034_000_000 }),
        ("0.001 kWh", Reading::Counter { uj: 3_600_000_000 }),
    ] {
        assert_eq!(watts_or_joules(text), Ok(reading), "{text}");
    }
}

#[test]
fn what_has_no_unit_or_no_sense_is_refused() {
    for text in [
        "",
        "\n\n",
        "12",
        "12 MW",
        "12 bananas",
        "-1 W",
        "1e400 W",
        "NaN W",
        "inf W",
        "W 12",
        "9999999999999999 kWh",
    ] {
        assert_eq!(watts_or_joules(text).unwrap_err().kind, FaultKind::Rubbish, "{text}");
    }
}

#[test]
fn the_power_of_all_devices_is_added() {
    assert_eq!(nvidia("0, 68.21\n1, 70.00\n"), Ok(Reading::Power { uw: 138_210_000 }));
    for text in ["", "0, [N/A]\n", "0, 68.21\n1, [Not Supported]\n", "No devices were found\n"] {
        assert_eq!(nvidia(text).unwrap_err().kind, FaultKind::Rubbish, "{text}");
    }
}

/// The form is that of ipmitool 1.8.
#[test]
fn the_controllers_instantaneous_power_is_read() {
    let text = "\n    Instantaneous power reading:                   220 Watts\n\
                \x20   Minimum during sampling period:                 10 Watts\n\
                \x20   Power reading state is:                   activated\n\n";
    assert_eq!(ipmi(text), Ok(Reading::Power { uw: 220_000_000 }));
    let off = text.replace("activated", "deactivated");
    assert_eq!(ipmi(&off).unwrap_err().kind, FaultKind::NotNow);
    for text in
        ["", "DCMI request failed because: Invalid command (c1)", "Instantaneous power reading: many Watts"]
    {
        assert_eq!(ipmi(text).unwrap_err().kind, FaultKind::Rubbish, "{text}");
    }
}

proptest! {
    /// What a tool prints is anything at all.
    #[test]
    fn no_output_is_too_strange(text in "(?s)([0-9.+-]{0,6}[ =:,]?(W|mW|J|kWh|Watts|µ|[A)]|Instantaneous power reading|\n)?){0,8}.{0,20}") {
        for reading in [watts_or_joules(&text), nvidia(&text), ipmi(&text)].into_iter().flatten() {
            let (Reading::Power { uw: millionths } | Reading::Counter { uj: millionths }) = reading else {
                panic!("{reading:?} is neither power nor energy")
            };
            prop_assert!(millionths <= 1 << 62);
        }
    }

    #[test]
    fn printed_watts_are_read_again(uw in 0..10_000_000_000u64) {
        let text = format!("{}.{:06} W", uw / 1_000_000, uw % 1_000_000);
        prop_assert_eq!(watts_or_joules(&text), Ok(Reading::Power { uw }));
    }
}
