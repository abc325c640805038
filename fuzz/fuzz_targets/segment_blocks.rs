//! Headers and footers of segments: bytes from any device.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierstone_logstore::format::invariants::check_segment_blocks(data));
