//! Fields that were once called by their unit (`peak_w = 200.0`): what to write now (`peak = "200 W"`).
//!
//! Units stand in values, in every plan. A description of the old form is refused, as every unknown field is; the
//! refusal then says what the field has become.

/// Old names that do not become new ones by losing their unit: the new name, and an example.
const NAMES: &[(&str, &str, &str)] = &[
    ("minutes", "length", "\"24 h\""),
    ("days", "length", "\"7 days\""),
    ("hours", "length", "\"24 h\""),
    ("years", "term", "\"15 years\""),
    ("dollars_per_w", "price", "\"15 $/W\""),
    ("uncontrolled_w_per_feed", "uncontrolled-per-feed", "\"150 W\""),
    ("daily_at_hour", "daily-at", "\"14 h\""),
    ("noise_minutes", "noise-lasts", "\"30 min\""),
    ("job_minutes", "job-lasts", "\"2 h\""),
    ("rated_years", "rated-life", "\"5 years\""),
    ("read_us", "read-latency", "\"65 us\""),
    ("write_us", "write-latency", "\"85 us\""),
    ("read_mb_per_s", "read-bandwidth", "\"250 MB/s\""),
    ("write_mb_per_s", "write-bandwidth", "\"70 MB/s\""),
    ("busy_from_h", "busy-from", "\"10 h\""),
    ("busy_hours", "busy-lasts", "\"90 min\""),
    ("bursts_a_day", "bursts", "\"5 /day\""),
    ("burst_s", "burst-lasts", "\"5 s\""),
    ("spike_s", "spike-lasts", "\"3 s\""),
    ("saving_percent", "saving", "\"31 %\""),
];

/// Endings of old names, longest first, and a quantity as it is written now.
const ENDINGS: &[(&str, &str)] = &[
    ("_mb_per_s", "\"120 MB/s\""),
    ("_percent", "\"20 %\""),
    ("_per_s", "\"130 requests/s\""),
    ("_cfm", "\"45 CFM\""),
    ("_kib", "\"128 KiB\""),
    ("_mib", "\"512 MiB\""),
    ("_gib", "\"200 GiB\""),
    ("_kw", "\"80 kW\""),
    ("_ms", "\"3.5 ms\""),
    ("_w", "\"200 W\""),
    ("_f", "\"65 F\""),
    ("_s", "\"10 s\""),
];

/// What to add to the parser's refusal `message`: nothing, or which field of the plan the unknown one has become.
pub(super) fn advice(message: &str) -> String {
    let quoted = |text: &str| text.split('`').nth(1).map(str::to_owned);
    let unknown = ["unknown field", "unknown variant"].iter().find_map(|what| message.split_once(*what));
    let Some(old) = unknown.and_then(|(_, rest)| quoted(rest)) else { return String::new() };
    let Some((_, known)) = message.split_once("expected") else { return String::new() };
    let Some((new, example)) = now(&old) else { return String::new() };
    if !known.contains(&format!("`{new}`")) {
        return String::new();
    }
    match example {
        Some(example) => {
            format!(
                "`{old}` has become `{new}`, whose value has its unit: write for example {new} = {example}\n"
            )
        }
        None => format!("`{old}` has become `{new}`\n"),
    }
}

/// The new name of `old`, and an example where its value needs a unit now.
fn now(old: &str) -> Option<(String, Option<&'static str>)> {
    if let Some((_, new, example)) = NAMES.iter().find(|(name, _, _)| *name == old) {
        return Some(((*new).to_owned(), Some(example)));
    }
    for (ending, example) in ENDINGS {
        if let Some(stem) = old.strip_suffix(ending) {
            return Some((stem.replace('_', "-"), Some(example)));
        }
    }
    old.contains('_').then(|| (old.replace('_', "-"), None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_name_is_answered_with_the_new_one_where_the_plan_has_it() {
        for (old, known, says) in [
            ("peak_w", "`peak`, `curve`", "write for example peak = \"200 W\""),
            ("supply_f", "`inlet-max`, `supply`", "supply = \"65 F\""),
            ("minutes", "`seed`, `length`", "length = \"24 h\""),
            ("load_balance", "`load-balance`", "has become `load-balance`\n"),
            ("colour", "`peak`", ""),
            ("colour_w", "`peak`", ""),
        ] {
            let message = format!("unknown field `{old}`, expected one of {known}");
            let advice = advice(&message);
            assert!(
                if says.is_empty() { advice.is_empty() } else { advice.contains(says) },
                "{old}: {advice}"
            );
        }
        assert_eq!(advice("unknown field `peak_w`, there are no fields"), "");
        assert_eq!(advice("missing field `peak`"), "");
    }
}
