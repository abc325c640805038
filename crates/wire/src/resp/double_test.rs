use proptest::prelude::*;

use super::*;

fn text(value: f64) -> String {
    let mut buffer = [0; DOUBLE_TEXT_MAX_BYTES];
    String::from_utf8(format_double(value, &mut buffer).to_vec()).unwrap()
}

#[test]
fn doubles_look_as_redis_writes_them() {
    for (value, expected) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (10.0, "10"),
        (-3.5, "-3.5"),
        (3.25, "3.25"),
        (0.1, "0.1"),
        (0.0001, "0.0001"),
        (1e21, "1e+21"),
        (1e-9, "1e-9"),
        (1.5e-8, "1.5e-8"),
        (123456.789, "123456.789"),
        (100000.0, "100000"),
        (17179869184.0, "17179869184"),
        (f64::MAX, "1.7976931348623157e+308"),
        (5e-324, "5e-324"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (f64::NAN, "nan"),
    ] {
        assert_eq!(text(value), expected, "{value:e}");
    }
}

proptest! {
    #[test]
    fn every_double_reads_back_as_itself(bits: u64) {
        let value = f64::from_bits(bits);
        prop_assume!(!value.is_nan());
        let written = text(value);
        prop_assert!(written.len() <= 25, "{written}");
        prop_assert_eq!(written.parse::<f64>().unwrap().to_bits(), bits);
    }
}
