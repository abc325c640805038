//! Numbers as people write them.

/// A number with three digits or more: `1,234,567`, `12.3`, `0.0812`.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || ((1.0..1e15).contains(&size) && value.fract() == 0.0) || size >= 100.0 {
        return grouped(&format!("{value:.0}"));
    }
    let digits = match size {
        10.0.. => 1,
        1.0.. => 2,
        0.1.. => 3,
        0.01.. => 4,
        _ => return format!("{value:.2e}"),
    };
    format!("{value:.digits$}")
}

fn grouped(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    let mut text = String::from(sign);
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        for (value, text) in [
            (0.0, "0"),
            (7.0, "7"),
            (1_234_567.4, "1,234,567"),
            (-1_150.0, "-1,150"),
            (23.24, "23.2"),
            (0.8076, "0.808"),
            (0.0123, "0.0123"),
            (0.00012, "1.20e-4"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
