//! Fields of descriptions: every value is checked against its range, and a refusal names the field.

use tierstone_base::{Error, ErrorKind, Result};

/// The refusal of a description.
pub(crate) fn refused(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, message)
}

/// `value`, if it is a number from `low` to `high`, both included.
///
/// # Errors
/// `InvalidInput`: it is not; the message names the field, the value, the unit and the range.
pub(crate) fn within(field: &str, value: f64, low: f64, high: f64, unit: &str) -> Result<f64> {
    if value.is_finite() && (low..=high).contains(&value) {
        return Ok(value);
    }
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    let by = if value > high {
        format!(" (too much by {:.6})", value - high)
    } else if value < low {
        format!(" (too little by {:.6})", low - value)
    } else {
        String::new()
    };
    Err(refused(format!("`{field}` is {value}{unit}, but must be from {low} to {high}{unit}{by}")))
}

/// `value`, if it is above zero and at most `high`.
///
/// # Errors
/// As [`within`].
pub(crate) fn positive(field: &str, value: f64, high: f64, unit: &str) -> Result<f64> {
    if value <= 0.0 {
        return Err(refused(format!("`{field}` is {value} {unit}, but must be above zero")));
    }
    within(field, value, 0.0, high, unit)
}

/// Most elements of one list of a description; what a plan works out for each is bounded by it.
pub(crate) const MOST: usize = 64;

/// Whether a list has at most [`MOST`] elements.
///
/// # Errors
/// `InvalidInput`: it has more; the message names it.
pub(crate) fn at_most(list: &str, count: usize) -> Result<()> {
    if count > MOST {
        return Err(refused(format!("`{list}` has {count} elements, {MOST} are the most")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_field_and_by_how_much() {
        assert_eq!(within("u", 0.5, 0.0, 1.0, "").unwrap(), 0.5);
        let text = within("utilisation", 1.25, 0.0, 1.0, "").unwrap_err().message().to_owned();
        assert!(text.contains("`utilisation` is 1.25") && text.contains("0.250000"), "{text}");
        assert!(within("u", f64::NAN, 0.0, 1.0, "").is_err());
        assert!(positive("peak", 0.0, 1e6, "W").is_err());
        assert!(at_most("scenario", MOST).is_ok());
        assert!(at_most("scenario", MOST + 1).unwrap_err().message().contains("`scenario` has 65"));
    }
}
