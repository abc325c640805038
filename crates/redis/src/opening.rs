//! What clients are told while a store is being opened, under Redis's names.

use std::fmt::Write;
use tierstone_base::Now;
use tierstone_engine::OpeningSeen;

/// What a command gets that has to wait for the store.
pub const LOADING: &str = "LOADING Redis is loading the dataset in memory";

/// The fields of `INFO persistence`: `started` is when the opening began.
pub fn loading_fields(out: &mut String, seen: OpeningSeen, (started, now): (Now, Now)) -> std::fmt::Result {
    if !seen.is_under_way() {
        return out.write_str("loading:0\r\nasync_loading:0\r\n");
    }
    let elapsed_us = now.monotonic_us.saturating_sub(started.monotonic_us);
    write!(
        out,
        "loading:1\r\nasync_loading:0\r\nloading_start_time:{}\r\nloading_total_bytes:{}\r\n\
         loading_loaded_bytes:{}\r\nloading_loaded_perc:{:.2}\r\nloading_eta_seconds:{}\r\n\
         loading_shards:{}\r\nloading_loaded_shards:{}\r\n",
        started.wall_ms / 1_000,
        seen.bytes_total,
        seen.bytes,
        seen.percent(),
        seen.left_us(elapsed_us).unwrap_or(1_000_000).div_ceil(1_000_000),
        seen.parts_total,
        seen.parts,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tierstone_engine::OpeningProgress;

    #[test]
    fn how_far_it_has_come_stands_under_the_names_of_redis() {
        let progress = OpeningProgress::default();
        let started = Now { monotonic_us: 5_000_000, wall_ms: 1_700_000_000_999 };
        let text = |after_s: u64| {
            let mut text = String::new();
            let now = Now { monotonic_us: started.monotonic_us + after_s * 1_000_000, ..started };
            loading_fields(&mut text, progress.seen(), (started, now)).unwrap();
            text
        };
        assert_eq!(text(1), "loading:0\r\nasync_loading:0\r\n");
        let (first, second) = (progress.part(600), progress.part(400));
        first.advance(250);
        let shown = text(3);
        for line in [
            "loading:1",
            "loading_start_time:1700000000",
            "loading_total_bytes:1000",
            "loading_loaded_bytes:250",
            "loading_loaded_perc:25.00",
            "loading_eta_seconds:9",
            "loading_shards:2",
            "loading_loaded_shards:0",
        ] {
            assert!(shown.lines().any(|other| other == line), "{line} is not in {shown}");
        }
        drop((first, second));
        assert!(text(4).starts_with("loading:0\r\n"));
    }
}
