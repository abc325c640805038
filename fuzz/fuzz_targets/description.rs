//! Descriptions of plans: text from any file, in TOML and CSV.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierstone_plan::invariants::check_description(data));
