//! Persistent memory that holds redo logs: bytes laid over those of a killed store.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierstone_logstore::redo::invariants::check_redo_region(data));
