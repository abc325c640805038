//! Pieces and commits of checkpoints: bytes from any device.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| tierstone_logstore::format::invariants::check_checkpoint(data));
