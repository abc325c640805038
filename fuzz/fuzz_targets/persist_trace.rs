//! Traces of persists, text and binary: files from anybody.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierstone_persist::invariants::check_trace(data));
