//! `LATENCY GRAPH`: the spikes of an event as a picture in letters, the oldest at the left.
//!
//! A column is a second with a spike; under it stands how long ago that was. As in Redis, the lowest sample is the
//! floor of the picture and the highest its top.

use std::fmt::Write;

/// Rows of a picture, and columns of one: more samples go into further pictures below.
const ROWS: u64 = 4;
const COLUMNS: usize = 80;
/// What the top of a column looks like within its row, from low to high.
const TOPS: [char; 3] = ['_', 'o', '#'];
const BELOW_TOP: char = '|';

/// How long ago something was, in the largest unit of which it has one.
fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The picture of `samples`: seconds since 1970 and milliseconds, the oldest first.
pub(crate) fn graph(event: &str, samples: &[(u64, u64)], worst_ms: u64, now_s: u64) -> String {
    let times = samples.iter().map(|sample| sample.1);
    let (low_ms, high_ms) = (times.clone().min().unwrap_or(0), times.max().unwrap_or(0));
    let mut text = format!("{event} - high {high_ms} ms, low {low_ms} ms (all time high {worst_ms} ms)\n");
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}", "-".repeat(COLUMNS));
    let levels = ROWS * TOPS.len() as u64;
    let range_ms = (high_ms - low_ms).max(1);
    for part in samples.chunks(COLUMNS) {
        for row in (0..ROWS).rev() {
            let first_level = row * TOPS.len() as u64;
            text.extend(part.iter().map(|(_, took_ms)| {
                let level = ((took_ms - low_ms) * levels / range_ms).min(levels - 1);
                match level.checked_sub(first_level) {
                    None => ' ',
                    Some(height) => TOPS.get(height as usize).copied().unwrap_or(BELOW_TOP),
                }
            }));
            text.push('\n');
        }
        let ages: Vec<String> = part.iter().map(|(at_s, _)| age(now_s.saturating_sub(*at_s))).collect();
        let longest = ages.iter().map(String::len).max().unwrap_or(0);
        for place in 0..longest {
            text.push('\n');
            text.extend(ages.iter().map(|age| age.chars().nth(place).unwrap_or(' ')));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
#[path = "latency_graph_test.rs"]
mod latency_graph_test;
