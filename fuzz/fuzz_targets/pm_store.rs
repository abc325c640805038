//! Stores wholly in persistent memory whose bytes are hostile: checks and openings.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierstone_pmstore::invariants::check_region(data));
