use super::*;
use proptest::prelude::*;

fn sum(left: &str, right: &str) -> String {
    let left = LongDouble::parse(left.as_bytes()).unwrap();
    let right = LongDouble::parse(right.as_bytes()).unwrap();
    let mut out = Vec::new();
    left.plus(right).unwrap().print(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn sums_look_as_in_the_documentation() {
    assert_eq!(sum("10.50", "0.1"), "10.6");
    assert_eq!(sum("10.6", "-5"), "5.6");
    assert_eq!(sum("5.0e3", "2.0e2"), "5200");
    assert_eq!(sum("0.1", "0.2"), "0.3");
    assert_eq!(sum("3", "1.1"), "4.1");
    assert_eq!(sum("1", "-1"), "0");
    assert_eq!(sum("-1.5", "0"), "-1.5");
    assert_eq!(sum("1e-18", "0"), "0");
    assert_eq!(sum("-1e-18", "0"), "0");
    assert_eq!(sum("17179869184", "1.5"), "17179869185.5");
    assert_eq!(sum("18446744073709551615", "1"), "18446744073709551616");
}

#[test]
fn what_is_no_number_is_refused() {
    for wrong in ["", " 1", "1 ", "abc", "nan", "-nan", "1e", "1e+", ".", "-", "1.2.3", "0x", "0xg", "0x1p"] {
        assert_eq!(LongDouble::parse(wrong.as_bytes()), None, "{wrong:?}");
    }
    let infinite = LongDouble::parse(b"-inf").unwrap();
    assert!(!infinite.is_finite());
    assert_eq!(infinite.plus(LongDouble::parse(b"INFINITY").unwrap()), None);
    for beyond in ["1e5000", "-1e99999999", "1e-6000", "0x1p20000", "0x1p-99999"] {
        assert_eq!(LongDouble::parse(beyond.as_bytes()), None, "{beyond}");
    }
    assert_eq!(sum("0e-6000", "0x0p-99999"), "0");
    assert_eq!(sum("0x10", "0X1.8p1"), "19");
    assert_eq!(sum(".5", "5."), "5.5");
}

proptest! {
    #[test]
    fn whole_sums_are_exact(left in -(1i64 << 61)..1i64 << 61, right in -(1i64 << 61)..1i64 << 61) {
        prop_assert_eq!(sum(&left.to_string(), &right.to_string()), (left + right).to_string());
    }

    #[test]
    fn cents_are_exact(left in 0i64..100_000, right in 0i64..100_000) {
        let text = |cents: i64| format!("{}.{:02}", cents / 100, cents % 100);
        let value: f64 = sum(&text(left), &text(right)).parse().unwrap();
        prop_assert!((value - (left + right) as f64 / 100.0).abs() < 1e-9);
    }

    #[test]
    fn hostile_texts_never_panic(text in "[-+0-9.eEinf]{0,40}") {
        if let Some(value) = LongDouble::parse(text.as_bytes()) {
            let mut out = Vec::new();
            value.print(&mut out);
            if let Some(double) = value.plus(value) {
                double.print(&mut out);
            }
        }
    }
}
