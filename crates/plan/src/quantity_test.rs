use super::*;
use serde::Deserialize;
use tierstone_base::ErrorKind;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    power: Power,
    capacity: Size,
}

#[test]
fn quantities_are_read_with_their_units() {
    assert_eq!(Power::parse("150 W").unwrap().get(), 150.0);
    assert_eq!(Power::parse("1.5kW").unwrap().get(), 1_500.0);
    assert_eq!(Size::parse("2 TB").unwrap().get(), 2e12);
    assert_eq!(Size::parse("1e3 MiB").unwrap().get(), 1_048_576_000.0);
    assert_eq!(Rate::parse("35_000 queries/s").unwrap().get(), 35_000.0);
    assert_eq!(Rate::parse("2 M queries/s").unwrap().get(), 2e6);
    assert_eq!(Money::parse("$ 2000").unwrap().get(), 2_000.0);
    assert_eq!(Money::parse("2 k$").unwrap().get(), 2_000.0);
    assert_eq!(EnergyPrice::parse("100 $/MWh").unwrap().get(), 0.1);
    assert_eq!(Duration::parse("3 years").unwrap().get(), 94_608_000.0);
    assert_eq!(Duration::parse("1.5 h").unwrap().get(), 5_400.0);
    assert_eq!(Size::parse("1 EB").unwrap().get(), 1e18);
    assert_eq!(Temperature::parse("-5 F").unwrap().get(), -5.0);
    assert_eq!(Temperature::parse("25 C").unwrap().get(), 77.0);
    assert_eq!(Temperature::parse("-40 C").unwrap().get(), -40.0);
    assert!((AirFlow::parse("1699.01 m3/h").unwrap().get() - 1_000.0).abs() < 1e-3);
    assert_eq!(Percent::parse("-10 %").unwrap().get(), -10.0);
    assert!(Temperature::parse("-500 F").is_err() && Temperature::parse("-300 C").is_err());
}

#[test]
fn what_is_no_quantity_is_refused_with_an_example() {
    for (text, word) in [
        ("150", "has no unit"),
        ("W", "is no power"),
        ("", "is no power"),
        ("150 MB", "a unit that is none of a power: mW, W, kW, MW"),
        ("-1 W", "out of range"),
        ("1e300 MW", "out of range"),
        ("1e400 W", "out of range"),
        ("nan W", "is no power"),
        ("inf W", "is no power"),
        ("1 5 W", "a unit that is none"),
        ("1--5 W", "a unit that is none"),
        ("\u{ff11}5 W", "is no power"),
    ] {
        let error = Power::parse(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains(word), "{text}: {error}");
    }
}

#[test]
fn a_number_without_a_unit_is_refused_where_it_stands() {
    let error = toml::from_str::<Node>("power = 150\ncapacity = \"2 TB\"").unwrap_err().to_string();
    assert!(error.contains("line 1") && error.contains("power = 150"), "{error}");
    assert!(error.contains("150 has no unit; write for example \"150 W\""), "{error}");
    let error = toml::from_str::<Node>("power = true\ncapacity = \"2 TB\"").unwrap_err().to_string();
    assert!(error.contains("a power with its unit, such as \"150 W\""), "{error}");
    let node: Node = toml::from_str("power = \"150 W\"\ncapacity = \"2 TB\"").unwrap();
    assert_eq!((node.power.get(), node.capacity.get()), (150.0, 2e12));
}

#[test]
fn numbers_are_finite_and_not_negative() {
    #[derive(Debug, Deserialize)]
    struct One {
        ratio: Number,
    }
    for wrong in ["nan", "inf", "-1", "1e300"] {
        assert!(toml::from_str::<One>(&format!("ratio = {wrong}")).is_err(), "{wrong}");
    }
    let ratio = toml::from_str::<One>("ratio = 2").unwrap().ratio;
    assert_eq!(ratio.within("pue", 1.0, 10.0).unwrap(), 2.0);
    assert!(ratio.within("share", 0.0, 1.0).unwrap_err().message().contains("`share` is 2"));
}

#[test]
fn what_another_field_decides_has_its_unit_or_none() {
    #[derive(Debug, Deserialize)]
    struct One {
        from: Given,
    }
    let given = |text: &str| toml::from_str::<One>(&format!("from = {text}")).unwrap().from;
    assert_eq!(given("\"50 F\"").quantity::<TemperatureUnits>("from").unwrap(), 50.0);
    assert_eq!(given("3").number("from").unwrap(), 3.0);
    for (refusal, words) in [
        (
            given("50").quantity::<TemperatureUnits>("from"),
            "`from`: '50' has no unit; write for example \"65 F\"",
        ),
        (given("\"50 W\"").quantity::<TemperatureUnits>("from"), "none of a temperature: F, C"),
        (given("\"50 F\"").number("from"), "`from` is \"50 F\", but must be a number without a unit"),
        (given("nan").number("from"), "`from` is NaN"),
    ] {
        let message = refusal.unwrap_err().message().to_owned();
        assert!(message.contains(words), "{message}");
    }
}
