//! What this process takes of the machine, as the kernel counts it.

use tierstone_redis::ProcessNumbers;

/// Memory and processor time of this process; zeros where the kernel does not tell. Cost: one small read.
pub fn process_numbers() -> ProcessNumbers {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    parse(&text, rustix::param::clock_ticks_per_second(), rustix::param::page_size() as u64)
        .unwrap_or_default()
}

/// Reads `/proc/PID/stat`. The second field is a name in brackets, in which anything may stand.
fn parse(text: &str, ticks_per_second: u64, page_bytes: u64) -> Option<ProcessNumbers> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let us = |ticks: u64| ticks.saturating_mul(1_000_000) / ticks_per_second.max(1);
    Some(ProcessNumbers {
        user_us: us(number(11)?),
        system_us: us(number(12)?),
        resident_bytes: number(21)?.saturating_mul(page_bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_are_found_behind_any_name() {
        let line = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 31 11 0 0 20 0 1 0 9 1000 25 18446744073709551615";
        let expected = ProcessNumbers { user_us: 310_000, system_us: 110_000, resident_bytes: 25 * 4096 };
        assert_eq!(parse(line, 100, 4096), Some(expected));
        assert_eq!(parse("7 (short) S 1", 100, 4096), None);
    }

    #[test]
    fn this_process_has_memory() {
        assert!(process_numbers().resident_bytes > 0);
    }
}
