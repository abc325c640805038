//! Sizes and durations as people write them: `64MiB`, `1.5GB`, `250us`, `10ms`.

use crate::error::{Error, ErrorKind, Result};

const SIZE_UNITS: [(&str, u64); 15] = [
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("k", 1 << 10),
    ("m", 1 << 20),
    ("g", 1 << 30),
    ("t", 1 << 40),
    ("bytes", 1),
    ("b", 1),
    ("", 1),
];

/// Parses a size in bytes. `KiB`, `MiB`, `GiB`, `TiB` and bare `k`, `m`, `g`, `t` are powers of
/// 1024; `KB`, `MB`, `GB`, `TB` are powers of 1000. Case does not matter.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for anything else, and for sizes over 2^63 bytes.
pub fn parse_size(text: &str) -> Result<u64> {
    parse(text, &SIZE_UNITS).ok_or_else(|| {
        Error::new(ErrorKind::InvalidInput, format!("'{text}' is no size; write for example 512MiB or 4GiB"))
    })
}

/// Parses a duration in microseconds from `us`, `ms`, `s`, `m` or `h`.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] for anything else.
pub fn parse_duration_us(text: &str) -> Result<u64> {
    let units = [("us", 1), ("ms", 1_000), ("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000)];
    parse(text, &units).ok_or_else(|| {
        Error::new(ErrorKind::InvalidInput, format!("'{text}' is no duration; write for example 10ms or 2s"))
    })
}

fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit.trim().to_ascii_lowercase();
    let factor = units.iter().find(|(name, _)| *name == unit)?.1;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).filter(|&bytes| bytes <= 1 << 63);
    }
    let value = number.parse::<f64>().ok()? * factor as f64;
    (value.is_finite() && value <= (1u64 << 63) as f64).then_some(value as u64)
}

/// Writes a size with a binary unit and up to three digits: `64 MiB`, `1.5 GiB`.
pub fn format_size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if value >= 100.0 || (value - value.round()).abs() < 0.05 {
        format!("{value:.0} {unit}")
    } else {
        format!("{value:.1} {unit}")
    }
}

/// Writes a duration given in microseconds: `0.63 us`, `740 us`, `1.2 ms`, `3.4 s`. Parts of a microsecond are written below ten,
/// where there are some.
pub fn format_duration_us(us: f64) -> String {
    if us < 10.0 && us.fract() != 0.0 {
        format!("{us:.2} us")
    } else if us < 1_000.0 {
        format!("{us:.0} us")
    } else if us < 1_000_000.0 {
        format!("{:.1} ms", us / 1_000.0)
    } else {
        format!("{:.1} s", us / 1_000_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_both_families_of_units() {
        assert_eq!(parse_size("64MiB").ok(), Some(64 << 20));
        assert_eq!(parse_size("1.5 gb").ok(), Some(1_500_000_000));
        assert_eq!(parse_size("4096").ok(), Some(4096));
        assert_eq!(parse_size("2g").ok(), Some(2 << 30));
        for wrong in ["", "x", "5 parsecs", "-1", "99999999999999999999", "1e400tb"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(parse_duration_us("10ms").ok(), Some(10_000));
        assert!(parse_duration_us("10").is_err());
    }

    #[test]
    fn durations_are_written_short() {
        for (us, text) in [
            (0.0, "0 us"),
            (0.631, "0.63 us"),
            (7.0, "7 us"),
            (12.6, "13 us"),
            (740.0, "740 us"),
            (1_240.0, "1.2 ms"),
        ] {
            assert_eq!(format_duration_us(us), text);
        }
        assert_eq!(format_duration_us(3_400_000.0), "3.4 s");
    }

    #[test]
    fn sizes_are_written_short() {
        assert_eq!(format_size(64 << 20), "64 MiB");
        assert_eq!(format_size(1_610_612_736), "1.5 GiB");
        assert_eq!(format_size(17), "17 B");
    }
}
